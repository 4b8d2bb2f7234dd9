//! Reading: one aggregate beside mongo-es, and the whole log beside a scan by the driver.
#![allow(clippy::future_not_send, reason = "these are awaited where they are made")]

use anyhow::{Context as _, Result, ensure};
use mongodb::bson::{RawDocumentBuf, doc};

use super::{
    bare,
    peer::Peer,
    who::{close, fresh, store},
};
use crate::{
    Options,
    load::Body,
    reads::{self, LONG_ID},
    report::{Op, Report},
};

/// The store's log.
const LOG: &str = "wow_log__shop__order";

pub(crate) async fn load(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    fresh(url).await?;
    let (store, peer) = (store(url, 1, false).await?, Peer::open(bare::client(url).await?).await?);
    let theirs = async || Ok(peer.get_events(LONG_ID).await?.len());
    let ratio = reads::load(options, &store, ("mongo-es 0.4.1", &peer), &theirs).await?;
    report.goal("mongo-load-vs-mongo-es", ratio, Op::AtLeast, 4.0);
    close(&store).await
}

pub(crate) async fn tail(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    fresh(url).await?;
    let database = bare::client(url).await?.default_database().context("a database in the URL")?;
    let log = database.collection::<RawDocumentBuf>(LOG);
    let settle = async || {
        let stored = log.find_one(doc! {}).await?.context("the log is empty")?;
        bare::check_same(&stored, &Body::new()?)
    };
    let scan = async |commits: usize| {
        let filter = doc! { "_id": { "$gt": { "partition": 0, "position": 0_i64 } } };
        let mut cursor = log.find(filter).sort(doc! { "_id": 1 }).batch_size(1_000).await?;
        let (mut seen, mut bytes) = (0, 0);
        while cursor.advance().await? {
            let found = cursor.current();
            seen += 1;
            bytes += found.get_str("id")?.len() + found.get_array("events")?.as_bytes().len();
        }
        ensure!(seen == commits && bytes > commits * 100, "all is read");
        Ok(())
    };
    let tailed = reads::tail(options, store(url, 1, false).await?, settle, scan).await?;
    report.goal("mongo-tail-vs-scan", tailed.vs_scan, Op::AtLeast, 0.9);
    report.goal("mongo-tail-memory-growth-mib", tailed.growth, Op::AtMost, 32.0);
    report.goal("mongo-last-page-vs-first", tailed.last_vs_first, Op::AtMost, 1.25);
    Ok(())
}
