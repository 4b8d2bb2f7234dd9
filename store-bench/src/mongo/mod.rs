//! The MongoDB store: how near it is to its database, how far it is from others, and how it reads.

mod bare;
mod peer;
mod reads;
mod who;

use std::{path::Path, time::Duration};

use anyhow::Result;
use wow_store_conformance::server::{LocalServer, MongoServer};

use self::who::{Who, config, fresh};
use crate::{
    Options, delay,
    load::Written,
    report::{Op, Report},
    slow::{self, SLOWER},
    turns::Turns,
};

/// What `--only` can name.
pub(crate) const LEGS: [&str; 7] = ["hot-64", "partitions-1024", "lone", "push", "load", "tail", "slow-64"];

const DATABASE: &str = "bench";
const HOT: Who = Who::Store { partitions: 1 };

pub(crate) async fn run(options: &Options, scratch: &Path, report: &mut Report) -> Result<()> {
    let directory = Some(scratch);
    if LEGS.iter().any(|leg| *leg != "slow-64" && options.wants(leg)) {
        let server = MongoServer::start_local(LocalServer { directory, preloaded: None });
        let url = server.url(DATABASE);
        writes(options, &url, report).await?;
        if options.wants("push") {
            push(options, &url, report).await?;
        }
        if options.wants("load") {
            reads::load(options, &url, report).await?;
        }
        if options.wants("tail") {
            reads::tail(options, &url, report).await?;
        }
    }
    if options.wants("slow-64") {
        let slower = slow::compile(scratch)?;
        let preloaded = Some(slower.as_path());
        let server = MongoServer::start_local(LocalServer { directory, preloaded });
        println!("\na disk whose every sync takes {SLOWER} µs longer");
        let turns = [(HOT, 64), (Who::Peer, 64)];
        let table = Turns::run(options, &server.url(DATABASE), "slow disk, one partition", &turns).await?;
        report.goal("mongo-slow-64-vs-mongo-es", table.over(0, 1), Op::AtLeast, 3.5);
    }
    Ok(())
}

async fn writes(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    if options.wants("hot-64") {
        let batch = Who::Batches { rows: 100, connections: 1 };
        let turns = [(HOT, 64), (Who::Peer, 64), (batch, 1), (Who::OneByOne, 64)];
        let table = Turns::run(options, url, "64 callers, one partition", &turns).await?;
        report.goal("mongo-64-vs-mongo-es", table.over(0, 1), Op::AtLeast, 3.4);
        report.goal("mongo-64-vs-insert-many-100", table.over(0, 2), Op::AtLeast, 0.55);
        report.goal("mongo-64-vs-one-per-transaction", table.over(0, 3), Op::AtLeast, 18.0);
    }
    if options.wants("partitions-1024") {
        let store = Who::Store { partitions: 16 };
        let turns = [(store, 1_024), (Who::Batches { rows: 500, connections: 2 }, 1)];
        let table = Turns::run(options, url, "1,024 callers, 16 partitions", &turns).await?;
        report.goal("mongo-1024-vs-insert-many-500-twice", table.over(0, 1), Op::AtLeast, 0.8);
    }
    if options.wants("lone") {
        let turns = [(HOT, 1), (Who::Insert, 1)];
        let table = Turns::run(options, url, "one caller", &turns).await?;
        report.goal("mongo-1-p50-vs-insert-one", table.ratio(0, 1, Written::p50), Op::AtMost, 1.6);
    }
    Ok(())
}

/// From the acknowledgement of an append on one node to the handler on another.
async fn push(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    let node = async |push: bool, poll: Duration| {
        who::with(config(url)?.with_push(push).with_poll_interval(poll)).await
    };
    let (p50, p99) = delay::measure(options, async || fresh(url).await, node).await?;
    report.goal("mongo-push-p50-ms", p50, Op::AtMost, 1.0);
    report.goal("mongo-push-p99-ms", p99, Op::AtMost, 5.0);
    Ok(())
}
