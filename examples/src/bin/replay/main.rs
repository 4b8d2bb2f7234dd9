//! A real event log in the store, and a report on it that can be killed at any time.
//!
//! ```text
//! cargo run --release --bin replay -- LOG.xes.gz
//! ```
//!
//! The program reads an XES event log (IEEE 1849, gzipped or not), stores each case as an aggregate and each event as a
//! commit, many cases at a time. Then a subscription counts the activities and adds up the amounts, and the totals are
//! checked against the file. Kill it anywhere and start it again: it goes on where it was.

#![allow(clippy::print_stdout, reason = "a program talks to its user")]

mod case;
mod import;
mod tally;
mod totals;
mod xes;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Result, ensure};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use wow_store_api::ContextName;
use wow_store_examples::open::{open_store, shown};

use crate::{totals::Totals, xes::XesError};

/// Stores an event log (XES, gzipped or not) case by case, counts it with a subscription, and compares the totals.
#[derive(Debug, Parser)]
struct Args {
    /// The event log.
    #[arg(value_name = "LOG.xes.gz")]
    log: PathBuf,
    /// The directory of the store, made if it is not there; the URL of a database (postgres://…, mongodb://…); or
    /// `memory` for a store that is gone afterwards.
    #[arg(long, value_name = "DIR|URL", default_value = "data/replay")]
    data: String,
    /// The context to store the log in, its own for each log [default: made of the file's name].
    #[arg(long, value_name = "NAME")]
    context: Option<ContextName>,
    /// How many cases are appended at a time.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: u32,
}

const LOOK_FURTHER: &str = "
Look further:
  run it again: everything is there already, and counted
  kill it in the middle (kill -9), then run it again: it goes on where it was
  one case at a time, to see what group commit is good for:
    cargo run --release --bin replay -- LOG.xes.gz --in-flight 1 --data data/slowly
  what else can be set:
    cargo run --release --bin replay -- --help";

/// The exit code for input that is at fault, as for arguments that are.
const BAD_INPUT: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let Some(input) = error.downcast_ref::<XesError>() else {
                eprintln!("error: {error:#}");
                return ExitCode::FAILURE;
            };
            eprintln!("error: {}: {input}", args.log.display());
            if input.line().is_some() {
                eprintln!(
                    "The cases before that line are stored; run it again with a good file and it goes on from there."
                );
            }
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Does it all; whether the totals are those of the file.
async fn run(args: &Args) -> Result<bool> {
    let context = match &args.context {
        Some(context) => context.clone(),
        None => ContextName::new(context_name(&args.log))?,
    };
    ensure!(
        context.as_str() != tally::CONTEXT,
        "the context {context} is where the counts are kept: choose another one with --context"
    );
    let reader = import::open(&args.log)?;
    let store = open_store(&args.data).await?;
    println!("store     {} ({}), context {context}", shown(&args.data), store.backend());

    let start = Instant::now();
    let imported = import::import(&store, reader, &context, usize::try_from(args.in_flight)?).await?;
    let (file, took) = (&imported.totals, start.elapsed());
    println!(
        "file      {} cases with {} events: {} commits stored now, {} were there ({took:.1?})",
        file.cases,
        file.events(),
        imported.stored,
        imported.found
    );
    if imported.left_out > 0 {
        println!("          {} nested attributes, lists and containers were left out", imported.left_out);
    }

    let start = Instant::now();
    let log = tally::count(&store, &context).await?;
    println!("log       {} cases with {} events counted ({:.1?})", log.cases, log.events(), start.elapsed());
    store.close().await?;

    report(&log);
    if log == *file {
        println!("totals match the file");
        println!("{LOOK_FURTHER}");
    } else {
        println!("TOTALS DO NOT MATCH THE FILE");
        differences(file, &log);
        println!(
            "The store holds another version of this log: choose another --data or --context for this one."
        );
    }
    Ok(log == *file)
}

/// `a/BPI 2012.xes.gz` -> `BPI-2012`.
fn context_name(path: &Path) -> String {
    const LONGEST: usize = 32;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = file.strip_suffix(".gz").unwrap_or(&file);
    let stem = stem.strip_suffix(".xes").unwrap_or(stem);
    let words: Vec<&str> =
        stem.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "log-");
    }
    name.truncate(LONGEST);
    name.trim_end_matches('-').to_owned()
}

fn report(totals: &Totals) {
    const SHOWN: usize = 12;
    let mut activities: Vec<_> = totals.activities.iter().collect();
    activities.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut table = table(["activity", "events"]);
    for (activity, count) in activities.iter().take(SHOWN) {
        table.add_row([(*activity).clone(), count.to_string()]);
    }
    align(&mut table);
    println!("\n{table}");
    if activities.len() > SHOWN {
        println!("  … and {} more activities", activities.len() - SHOWN);
    }
    if !totals.amounts.is_empty() {
        let mut table = self::table(["amount", "times", "sum"]);
        for (key, sum) in &totals.amounts {
            table.add_row([key.clone(), sum.count.to_string(), sum.sum.to_string()]);
        }
        align(&mut table);
        println!("{table}");
    }
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header(header);
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn differences(file: &Totals, log: &Totals) {
    if file.cases != log.cases {
        println!("  cases: {} in the file, {} in the log", file.cases, log.cases);
    }
    for activity in
        file.activities.keys().chain(log.activities.keys().filter(|key| !file.activities.contains_key(*key)))
    {
        let (in_file, in_log) = (file.activities.get(activity), log.activities.get(activity));
        if in_file != in_log {
            println!(
                "  {activity}: {} in the file, {} in the log",
                in_file.copied().unwrap_or_default(),
                in_log.copied().unwrap_or_default()
            );
        }
    }
    for key in file.amounts.keys().chain(log.amounts.keys().filter(|key| !file.amounts.contains_key(*key))) {
        let (in_file, in_log) = (file.amounts.get(key), log.amounts.get(key));
        if in_file != in_log {
            let (in_file, in_log) =
                (in_file.copied().unwrap_or_default(), in_log.copied().unwrap_or_default());
            println!(
                "  {key}: {} in {} events of the file, {} in {} of the log",
                in_file.sum, in_file.count, in_log.sum, in_log.count
            );
        }
    }
}
