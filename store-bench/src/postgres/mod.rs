//! The PostgreSQL store: how near it is to its database, how far it is from others, what telling other nodes costs, and
//! how it reads.

mod bare;
mod peer;
mod push;
mod reads;
mod server;
mod who;

use std::{path::Path, time::Duration};

use anyhow::Result;

use self::{server::Server, who::Who};
use crate::{
    Options,
    duel::rows,
    load::{Body, Written},
    report::{Op, Report},
    stats::median,
};

/// What `--only` can name.
pub(crate) const LEGS: [&str; 8] =
    ["hot-64", "batch-256", "partitions-1024", "lone", "push", "load", "tail", "slow-64"];

/// How much longer a sync takes on the slow disk, in microseconds.
const SLOWER: u32 = 1_000;

const HOT: Who = Who::Store { partitions: 1, push: true };
const PEERS: [Who; 2] = [Who::Peer { pool: 10 }, Who::Peer { pool: 64 }];

pub(crate) async fn run(options: &Options, scratch: &Path, report: &mut Report) -> Result<()> {
    if LEGS.iter().any(|leg| *leg != "slow-64" && options.wants(leg)) {
        let server = Server::start(scratch, None)?;
        writes(options, server.url(), report).await?;
        if options.wants("push") {
            push::run(options, server.url(), report).await?;
        }
        if options.wants("load") {
            reads::load(options, server.url(), report).await?;
        }
        if options.wants("tail") {
            reads::tail(options, server.url(), report).await?;
        }
    }
    if options.wants("slow-64") {
        let server = Server::start(scratch, Some(SLOWER))?;
        println!("\na disk whose every sync takes {SLOWER} µs longer");
        let turns = [(HOT, 64), (PEERS[0], 64), (PEERS[1], 64)];
        let table = Turns::run(options, server.url(), "slow disk, one partition", &turns).await?;
        report.goal("postgres-slow-64-vs-postgres-es", table.over_better(0, &[1, 2]), Op::AtLeast, 1.6);
    }
    Ok(())
}

async fn writes(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    if options.wants("hot-64") {
        let batch = Who::Batches { rows: 100, connections: 1 };
        let turns = [(HOT, 64), (PEERS[0], 64), (PEERS[1], 64), (batch, 1), (Who::Unqueued, 64)];
        let table = Turns::run(options, url, "64 callers, one partition", &turns).await?;
        report.goal("postgres-64-vs-postgres-es", table.over_better(0, &[1, 2]), Op::AtLeast, 3.5);
        report.goal("postgres-64-vs-unnest-100", table.over(0, 3), Op::AtLeast, 0.8);
        report.goal("postgres-64-vs-unqueued", table.over(0, 4), Op::AtLeast, 15.0);
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

/// What several sides did, round by round.
struct Turns(Vec<Vec<Written>>);

impl Turns {
    /// Lets all write, in turns on one server. Who begins changes from round to round.
    async fn run(options: &Options, url: &str, title: &str, sides: &[(Who, usize)]) -> Result<Self> {
        println!("\n{title}, {} rounds", options.rounds);
        let body = Body::new()?;
        let mut all: Vec<Vec<Written>> = vec![Vec::new(); sides.len()];
        for round in 0..options.rounds {
            for step in 0..sides.len() {
                let place = (round + step) % sides.len();
                if let (Some((who, writers)), Some(written)) = (sides.get(place), all.get_mut(place)) {
                    written.push(who.turn(url, *writers, &body, options.slice()).await?);
                }
            }
        }
        let names: Vec<String> = sides.iter().map(|(who, _)| who.name()).collect();
        println!("{}", rows(names.iter().map(String::as_str).zip(all.iter().map(Vec::as_slice))));
        Ok(Self(all))
    }

    /// The median of one figure over another side's, within each round.
    fn ratio(&self, ours: usize, theirs: usize, figure: fn(&Written) -> f64) -> f64 {
        let of = |side: usize| self.0.get(side).map(Vec::as_slice).unwrap_or_default();
        let rounds = of(ours).iter().zip(of(theirs));
        median(rounds.map(|(ours, theirs)| figure(ours) / figure(theirs).max(f64::MIN_POSITIVE)).collect())
    }

    fn over(&self, ours: usize, theirs: usize) -> f64 {
        self.ratio(ours, theirs, Written::per_second)
    }

    /// Over the better one of others.
    fn over_better(&self, ours: usize, others: &[usize]) -> f64 {
        others.iter().map(|theirs| self.over(ours, *theirs)).fold(f64::INFINITY, f64::min)
    }
}

/// How long reads are measured at a time.
fn read_slice(options: &Options) -> Duration {
    options.slice() / 2
}
