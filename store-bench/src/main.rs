//! Benchmarks of the stores, side by side with others on the same machine in the same run.
//!
//! ```text
//! cargo run --release -p wow-store-bench -- embedded
//! cargo run --release -p wow-store-bench -- postgres
//! cargo run --release -p wow-store-bench -- mongo
//! ```
//!
//! Both sides of a comparison take turns, a few seconds each, for several rounds; a ratio is taken within each round
//! and the median over the rounds is reported, so that a machine that is busy with other things for a while slows
//! both. Every goal gives one line:
//!
//! ```text
//! ratio <name> <value> <op> <goal> ok|SHORT
//! ```
//!
//! It is a report, not a test: the exit code is 0 however the goals come out, unless `--strict` is given.
#![allow(clippy::print_stdout, reason = "a report is printed")]

mod delay;
mod duel;
mod embedded;
mod load;
mod machine;
mod mongo;
mod postgres;
mod reads;
mod report;
mod sides;
mod slow;
mod stats;
mod turns;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::{
    machine::Machine,
    report::Report,
    sides::{bare::Bare, sierra::Sierra, sqlite::Sqlite, store::Store},
};

/// Benchmarks, side by side with others.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    backend: Backend,
}

#[derive(Debug, Subcommand)]
enum Backend {
    /// The embedded store, beside a bare fjall loop, SQLite and SierraDB.
    Embedded(Options),
    /// The PostgreSQL store, beside postgres-es and bare SQL, on a server of its own.
    Postgres(Options),
    /// The MongoDB store, beside mongo-es and the bare driver, on a server of its own.
    Mongo(Options),
    /// Lets one side write alone for a while: something for a profiler to look at.
    #[command(hide = true)]
    Alone {
        /// The side.
        side: AloneSide,
        #[arg(long, default_value_t = 64)]
        writers: usize,
        #[arg(long, default_value_t = 3)]
        seconds: u64,
        #[arg(long)]
        dir: PathBuf,
    },
    /// Tails a store directory and prints how much memory that takes: a process of its own for the embedded leg.
    #[command(hide = true)]
    TailMemory {
        /// The store.
        store: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AloneSide {
    Store,
    Bare,
    Sqlite,
    Sierra,
}

/// How to measure.
#[derive(Debug, Clone, Args)]
struct Options {
    /// Short slices and 100,000 commits in place of 1,000,000: a first impression.
    #[arg(long)]
    quick: bool,
    /// Only this leg; can be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Rounds of each leg, at least 3.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Where the stores are made, and removed afterwards; on the disk to be measured. The system's directory for
    /// temporary files unless given.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Exit with 1 if a goal is missed.
    #[arg(long)]
    strict: bool,
}

impl Options {
    /// How long one side is measured at a time.
    fn slice(&self) -> Duration {
        if self.quick { Duration::from_millis(500) } else { Duration::from_millis(2_000) }
    }

    fn wants(&self, leg: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == leg)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let backend = Cli::parse().backend;
    let (options, legs) = match &backend {
        Backend::TailMemory { store } => {
            embedded::memory::tail(store).await?;
            return Ok(ExitCode::SUCCESS);
        }
        Backend::Alone { side, writers, seconds, dir } => {
            let (writers, time) = (*writers, Duration::from_secs(*seconds));
            let written = match side {
                AloneSide::Store => duel::alone::<Store>(dir, writers, time).await,
                AloneSide::Bare => duel::alone::<Bare>(dir, writers, time).await,
                AloneSide::Sqlite => duel::alone::<Sqlite>(dir, writers, time).await,
                AloneSide::Sierra => duel::alone::<Sierra>(dir, writers, time).await,
            }?;
            println!("{}", duel::rows([("", [written].as_slice())]));
            return Ok(ExitCode::SUCCESS);
        }
        Backend::Embedded(options) => (options, &embedded::LEGS[..]),
        Backend::Postgres(options) => (options, &postgres::LEGS[..]),
        Backend::Mongo(options) => (options, &mongo::LEGS[..]),
    };
    ensure!(options.rounds >= 3, "--rounds {}: a median needs at least 3", options.rounds);
    for name in &options.only {
        ensure!(
            legs.contains(&name.as_str()),
            "--only {name}: there is no such leg, there are {}",
            legs.join(", ")
        );
    }
    // Open to whoever runs a server in it.
    let mut scratch = tempfile::Builder::new();
    scratch.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o711));
    let scratch = match &options.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            scratch.tempdir_in(dir)
        }
        None => scratch.tempdir(),
    }
    .context("cannot create a directory for the stores")?;
    let machine = Machine::look(scratch.path())?;
    println!("{machine}");
    if options.quick {
        println!("quick: shorter slices and fewer commits than the goals are stated for");
    }
    let mut report = Report::default();
    match &backend {
        Backend::Postgres(_) => postgres::run(options, scratch.path(), &mut report).await?,
        Backend::Mongo(_) => mongo::run(options, scratch.path(), &mut report).await?,
        _ => embedded::run(options, scratch.path(), &mut report).await?,
    }
    println!("\nload average at the end: {}", machine::load_average());
    report.print();
    Ok(if options.strict && report.is_short() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
