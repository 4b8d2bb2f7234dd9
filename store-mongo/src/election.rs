//! Whether there is another primary by now.
//!
//! A primary that is cut off from the other members does not know it for a while, and whoever waits for its answer would
//! wait in vain. The driver is told of its successor, but does not break off what it has sent already.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use mongodb::bson::{Document, doc, oid::ObjectId};
use tokio::{
    pin, select,
    time::{Instant, sleep, timeout_at},
};

use crate::{attempts::GRACE, fault::Fault, store::Inner};

/// How long an answer may take before it is asked who the primary is, and how often then.
const LOOK: Duration = Duration::from_secs(1);

/// The election that the primary came from when it was last asked.
#[derive(Default)]
pub(crate) struct Election(Mutex<Option<ObjectId>>);

impl Election {
    fn last(&self) -> Option<ObjectId> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a primary says of itself.
    pub(crate) fn seen(&self, hello: &Document) {
        if let Ok(id) = hello.get_object_id("electionId") {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        }
    }
}

impl Inner {
    /// Waits for `work` until it is too late, or there is another primary than when it began.
    pub(crate) async fn while_primary<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let overtaken = self.is_overtaken();
        pin!(overtaken);
        select! {
            biased;
            done = timeout_at(deadline + GRACE, work) => done.unwrap_or_else(|_| Err(Fault::no_answer())),
            () = overtaken => Err(Fault::no_answer()),
        }
    }

    /// Ends when there is another primary.
    async fn is_overtaken(&self) {
        let before = self.election.last();
        loop {
            sleep(LOOK).await;
            if let Ok(hello) = self.db.command(doc! { "hello": 1 }).await {
                self.election.seen(&hello);
            }
            if self.election.last() != before {
                return;
            }
        }
    }
}
