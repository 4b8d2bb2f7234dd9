//! Asking a node: the primary or a replica (Q2), once it has what the query must see (Q3).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sqlx::postgres::PgRow;
use tokio::time::{Instant, sleep, timeout_at};
use wow_store_api::{
    Error, ErrorKind, Outcome, Result,
    query::{AtLeast, ReadPreference, wait_until},
};

use super::compile::Bound;
use crate::{
    attempts::back_off,
    fault::{Again, Fault},
    pool::{Pool, Sql},
    store::Inner,
    value::Cells as _,
};

/// Longest that a query asks one node for a connection while another could answer.
const NODE: Duration = Duration::from_secs(2);

/// Queries scan where no index helps, and their plans depend on what is asked for.
const SETTINGS: &str = "SET TRANSACTION READ ONLY; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; \
                        SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; \
                        SET LOCAL enable_material = on; SET LOCAL plan_cache_mode = force_custom_plan;";

/// What is asked.
pub(super) struct Question {
    pub(super) operation: &'static str,
    pub(super) preference: Option<ReadPreference>,
    pub(super) probe: Option<Probe>,
    pub(super) sql: Sql,
    pub(super) bound: Bound,
}

/// What the node must have first.
pub(super) struct Probe {
    pub(super) sql: Sql,
    pub(super) bound: Bound,
    pub(super) at_least: AtLeast,
}

/// Which replica is asked first.
#[derive(Default)]
pub(crate) struct Turn(AtomicUsize);

impl Inner {
    /// The nodes that may answer, the preferred one first.
    fn nodes(&self, preference: ReadPreference) -> Vec<Arc<Pool>> {
        let turn = self.turn.0.fetch_add(1, Ordering::Relaxed);
        let mut replicas = self.replicas.clone();
        if !replicas.is_empty() {
            let first = turn % replicas.len();
            replicas.rotate_left(first);
        }
        let primary = [Arc::clone(&self.pool)];
        match preference {
            ReadPreference::Primary => primary.into(),
            ReadPreference::Secondary => replicas,
            ReadPreference::PrimaryPreferred => primary.into_iter().chain(replicas).collect(),
            ReadPreference::SecondaryPreferred => replicas.into_iter().chain(primary).collect(),
            ReadPreference::Nearest => {
                let mut all: Vec<Arc<Pool>> = replicas.into_iter().chain(primary).collect();
                all.sort_by_key(|pool| pool.distance());
                all
            }
        }
    }

    /// The rows that answer a question; none where a table is missing.
    pub(super) async fn ask(&self, question: &Question) -> Result<Vec<PgRow>> {
        let preference = question.preference.unwrap_or(self.config.read_preference);
        let named = |error: Error| self.named(question.operation, error.with_outcome(Outcome::NotApplied));
        let nodes = self.nodes(preference);
        if nodes.is_empty() {
            return Err(named(Error::not_applied(ErrorKind::Unavailable {
                reason: "the query asks for a replica, but the store is configured with none".to_owned(),
            })));
        }
        let deadline = Instant::now() + self.config.transaction_timeout;
        let mut tries = 0;
        loop {
            let mut last = Fault::too_late();
            for node in &nodes {
                match self.ask_node(node, question, nodes.len() == 1).await {
                    Ok(rows) => return Ok(rows),
                    Err(fault) if fault.is_missing() => return Ok(Vec::new()),
                    Err(fault) if fault.again == Again::No => return Err(named(fault.error)),
                    Err(fault) => last = fault,
                }
            }
            let pause = back_off(tries);
            if Instant::now() + pause >= deadline || self.is_closed() {
                return Err(named(last.error));
            }
            sleep(pause).await;
            tries += 1;
        }
    }

    async fn ask_node(
        &self,
        node: &Arc<Pool>,
        question: &Question,
        only: bool,
    ) -> std::result::Result<Vec<PgRow>, Fault> {
        if let Some(probe) = &question.probe {
            let waiting = wait_until(probe.at_least.within, || async {
                match self.rows_of(node, &probe.sql, &probe.bound, only).await {
                    Ok(rows) => {
                        let version = rows.first().map_or(Ok(0), |row| row.counter(0));
                        Ok(version.map_err(|fault| fault.error)? >= probe.at_least.version)
                    }
                    // It may come up in time.
                    Err(fault) if fault.is_missing() || fault.again != Again::No => Ok(false),
                    Err(fault) => Err(fault.error),
                }
            });
            waiting.await.map_err(|error| error.with_context(&probe.at_least.aggregate_id))?;
        }
        self.rows_of(node, &question.sql, &question.bound, only).await
    }

    async fn rows_of(
        &self,
        node: &Arc<Pool>,
        sql: &Sql,
        bound: &Bound,
        only: bool,
    ) -> std::result::Result<Vec<PgRow>, Fault> {
        let wait =
            if only { self.config.transaction_timeout } else { NODE.min(self.config.transaction_timeout) };
        let mut conn = node.take(Instant::now() + wait).await?;
        let work = async {
            let started = Instant::now();
            conn.begin_with(SETTINGS).await?;
            node.measured(started.elapsed());
            let rows = conn.rows_once(sql, bound.arguments()?).await?;
            conn.commit().await?;
            Ok(rows)
        };
        let rows = timeout_at(Instant::now() + self.config.read_timeout, work).await;
        let rows = rows.unwrap_or_else(|_| Err(Fault::no_answer()));
        if rows.is_err() {
            conn.rollback().await;
        }
        rows
    }
}
