//! The embedded store: how near it is to its engine, how far it is from others, and whether it keeps its speed as it
//! grows.

pub(crate) mod memory;
mod same_keys;
mod scale;

use std::path::Path;

use anyhow::Result;

use crate::{
    Options,
    duel::Duel,
    load::Written,
    report::{Op, Report},
    sides::{bare::Bare, sierra::Sierra, sqlite::Sqlite, store::Store},
};

/// What `--only` can name.
pub(crate) const LEGS: [&str; 5] = ["bare-64", "bare-1", "sqlite-64", "sierradb-64", "scale"];

const WRITERS: usize = 64;

pub(crate) async fn run(options: &Options, scratch: &Path, report: &mut Report) -> Result<()> {
    if options.wants("bare-64") || options.wants("bare-1") {
        same_keys::check(scratch).await?;
    }
    if options.wants("bare-64") {
        let duel = Duel::run::<Store, Bare>(options, scratch, WRITERS).await?;
        report.goal("embedded-64-vs-bare", duel.ratio(Written::per_second), Op::AtLeast, 0.8);
        report.goal("embedded-64-commits-per-s", duel.ours(Written::per_second), Op::Above, 50_000.0);
    }
    if options.wants("bare-1") {
        let duel = Duel::run::<Store, Bare>(options, scratch, 1).await?;
        report.goal("embedded-1-p50-vs-bare", duel.ratio(Written::p50), Op::AtMost, 1.3);
    }
    if options.wants("sqlite-64") {
        let duel = Duel::run::<Store, Sqlite>(options, scratch, WRITERS).await?;
        report.goal("embedded-64-vs-sqlite", duel.ratio(Written::per_second), Op::AtLeast, 2.2);
    }
    if options.wants("sierradb-64") {
        let duel = Duel::run::<Store, Sierra>(options, scratch, WRITERS).await?;
        report.goal("embedded-64-vs-sierradb", duel.ratio(Written::per_second), Op::AtLeast, 2.2);
    }
    if options.wants("scale") {
        scale::run(options, scratch, report).await?;
    }
    Ok(())
}
