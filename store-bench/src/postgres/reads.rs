//! Reading: one aggregate beside postgres-es, and the whole log beside a scan by the driver.
#![allow(clippy::future_not_send, reason = "these are awaited where they are made")]

use anyhow::{Context as _, Result, ensure};
use cqrs_es::persist::PersistedEventRepository as _;
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::sync::Mutex;
use wow_store_api::StoreAdmin as _;

use super::who::{Peer, fresh, store};
use crate::{
    Options,
    reads::{self, LONG_ID},
    report::{Op, Report},
    sides::cqrs::Order,
};

pub(crate) async fn load(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    fresh(url).await?;
    let (store, peer) = (store(url, 1, false).await?, Peer::open(url, 10).await?);
    let theirs = async || Ok(peer.0.get_events::<Order>(LONG_ID).await?.len());
    let ratio = reads::load(options, &store, ("postgres-es 0.5", &peer), &theirs).await?;
    report.goal("postgres-load-vs-postgres-es", ratio, Op::AtLeast, 1.1);
    Ok(store.store.close().await?)
}

pub(crate) async fn tail(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    fresh(url).await?;
    let connection = Mutex::new(PgConnection::connect(url).await?);
    let settle = async || {
        sqlx::raw_sql("VACUUM ANALYZE").execute(&mut *connection.lock().await).await?;
        Ok(())
    };
    let scan = async |commits| scan(&mut *connection.lock().await, commits).await;
    let tailed = reads::tail(options, store(url, 1, false).await?, settle, scan).await?;
    report.goal("postgres-tail-vs-scan", tailed.vs_scan, Op::AtLeast, 0.9);
    report.goal("postgres-tail-memory-growth-mib", tailed.growth, Op::AtMost, 32.0);
    report.goal("postgres-last-page-vs-first", tailed.last_vs_first, Op::AtMost, 1.25);
    Ok(())
}

/// The same columns of the same table, by keyset, without anything made of them.
async fn scan(connection: &mut PgConnection, commits: usize) -> Result<()> {
    const SCAN: &str = "
        SELECT position, tenant, id, version, command_id, committed_at::text, metadata::text, events::text
        FROM wow.wow_log__shop__order WHERE partition = 0 AND position > $1 ORDER BY position LIMIT 1000";
    let (mut after, mut seen, mut bytes) = (0_i64, 0, 0);
    while seen < commits {
        let rows = sqlx::query(SCAN).bind(after).fetch_all(&mut *connection).await?;
        seen += rows.len();
        for row in &rows {
            bytes += row.try_get::<&str, _>(2)?.len() + row.try_get::<&str, _>(7)?.len();
        }
        after = rows.last().context("a page is not empty")?.try_get(0)?;
    }
    ensure!(bytes > commits * 100, "payloads were read");
    Ok(())
}
