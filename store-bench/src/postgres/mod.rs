//! The PostgreSQL store: how near it is to its database, how far it is from others, what telling other nodes costs, and
//! how it reads.

mod bare;
mod reads;
mod who;

use std::{path::Path, time::Duration};

use anyhow::Result;
use wow_store_conformance::server::{LocalServer, PostgresServer};

use self::who::{Who, config, fresh};
use crate::{
    Options, delay,
    load::Written,
    report::{Op, Report},
    slow::{self, SLOWER},
    turns::Turns,
};

/// What `--only` can name.
pub(crate) const LEGS: [&str; 8] =
    ["hot-64", "batch-256", "partitions-1024", "lone", "push", "load", "tail", "slow-64"];

/// What is acknowledged is on disk. Memory and log are so large that neither is what is measured.
const SETTINGS: [&str; 7] = [
    "fsync = on",
    "synchronous_commit = on",
    "full_page_writes = on",
    "wal_sync_method = fdatasync",
    "shared_buffers = 1GB",
    "max_wal_size = 8GB",
    "checkpoint_timeout = 30min",
];
const HOT: Who = Who::Store { partitions: 1, push: true };
const PEERS: [Who; 2] = [Who::Peer { pool: 10 }, Who::Peer { pool: 64 }];

pub(crate) async fn run(options: &Options, scratch: &Path, report: &mut Report) -> Result<()> {
    let directory = Some(scratch);
    if LEGS.iter().any(|leg| *leg != "slow-64" && options.wants(leg)) {
        let server = PostgresServer::start_local(&SETTINGS, LocalServer { directory, preloaded: None });
        let url = &url(&server);
        writes(options, url, report).await?;
        if options.wants("push") {
            push(options, url, report).await?;
        }
        if options.wants("load") {
            reads::load(options, url, report).await?;
        }
        if options.wants("tail") {
            reads::tail(options, url, report).await?;
        }
    }
    if options.wants("slow-64") {
        let slower = slow::compile(scratch)?;
        let preloaded = Some(slower.as_path());
        let server = PostgresServer::start_local(&SETTINGS, LocalServer { directory, preloaded });
        let url = &url(&server);
        println!("\na disk whose every sync takes {SLOWER} µs longer");
        let turns = [(HOT, 64), (PEERS[0], 64), (PEERS[1], 64)];
        let table = Turns::run(options, url, "slow disk, one partition", &turns).await?;
        report.goal("postgres-slow-64-vs-postgres-es", table.over_better(0, &[1, 2]), Op::AtLeast, 1.9);
    }
    Ok(())
}

fn url(server: &PostgresServer) -> String {
    format!("{}?sslmode=disable", server.url())
}

async fn writes(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    if options.wants("hot-64") {
        let batch = Who::Batches { rows: 100, connections: 1 };
        let turns = [(HOT, 64), (PEERS[0], 64), (PEERS[1], 64), (batch, 1), (Who::Unqueued, 64)];
        let table = Turns::run(options, url, "64 callers, one partition", &turns).await?;
        report.goal("postgres-64-vs-postgres-es", table.over_better(0, &[1, 2]), Op::AtLeast, 4.0);
        report.goal("postgres-64-vs-unnest-100", table.over(0, 3), Op::AtLeast, 0.8);
        report.goal("postgres-64-vs-unqueued", table.over(0, 4), Op::AtLeast, 18.0);
    }
    if options.wants("batch-256") {
        let turns = [(HOT, 256), (Who::Batches { rows: 500, connections: 1 }, 1)];
        let table = Turns::run(options, url, "256 callers, one partition", &turns).await?;
        report.goal("postgres-256-vs-unnest-500", table.over(0, 1), Op::AtLeast, 0.85);
    }
    if options.wants("partitions-1024") {
        let store = Who::Store { partitions: 16, push: true };
        let turns = [(store, 1_024), (Who::Batches { rows: 500, connections: 2 }, 1)];
        let table = Turns::run(options, url, "1,024 callers, 16 partitions", &turns).await?;
        report.goal("postgres-1024-vs-unnest-500-twice", table.over(0, 1), Op::AtLeast, 0.6);
    }
    if options.wants("lone") {
        let turns = [(HOT, 1), (Who::Insert, 1), (PEERS[0], 1)];
        let table = Turns::run(options, url, "one caller", &turns).await?;
        let p50 = |ours: usize, theirs: usize| table.ratio(ours, theirs, Written::p50);
        report.goal("postgres-1-p50-vs-insert", p50(0, 1), Op::AtMost, 1.5);
        report.goal("postgres-1-p50-vs-postgres-es", p50(0, 2), Op::AtMost, 1.0);
    }
    if options.wants("push") {
        let turns = [(HOT, 64), (Who::Store { partitions: 1, push: false }, 64)];
        let table = Turns::run(options, url, "64 callers, push on and off", &turns).await?;
        report.goal("postgres-64-push-vs-none", table.over(0, 1), Op::AtLeast, 0.9);
    }
    Ok(())
}

/// From the acknowledgement of an append on one node to the handler on another.
async fn push(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    let node = async |push: bool, poll: Duration| {
        who::with(config(url)?.with_push(push).with_poll_interval(poll)).await
    };
    let (p50, p99) = delay::measure(options, async || fresh(url).await, node).await?;
    report.goal("postgres-push-p50-ms", p50, Op::AtMost, 1.0);
    report.goal("postgres-push-p99-ms", p99, Op::AtMost, 5.0);
    Ok(())
}
