//! What rides in appends: fences, reservations and timers (L7, R5).

use std::collections::{BTreeMap, BTreeSet};

use mongodb::bson::doc;
use wow_store_api::{
    CheckedCommit, ContextName, Fence, Lease, PartitionId, Reservation, ReservationKey, ReservationOp,
    ReservationScope, Result, SubscriptionName, Timer, TimerId, TimerOp, Timestamp,
    rules::{self, reservation::Write},
};

use crate::{
    db::{Work, strange},
    document::Fields as _,
    fault::Fault,
    names,
    records::{lease, reservation, timer},
    store::Inner,
};

type LeaseKey = (SubscriptionName, PartitionId);
type KeyInScope = (ReservationScope, ReservationKey);
type TimerKey = (ContextName, TimerId);

/// Changes of one commit, or of all that were decided.
#[derive(Default)]
pub(super) struct Changes {
    leases: BTreeMap<LeaseKey, Lease>,
    reservations: BTreeMap<KeyInScope, Option<Reservation>>,
    timers: BTreeMap<TimerKey, Option<Timer>>,
}

/// What is there, and what was decided.
#[derive(Default)]
pub(super) struct Riders {
    leases: BTreeMap<LeaseKey, Option<Lease>>,
    reservations: BTreeMap<KeyInScope, Option<Reservation>>,
    timers: BTreeMap<TimerKey, Option<Timer>>,
    changes: Changes,
}

fn key_of(op: &TimerOp) -> TimerKey {
    match op {
        TimerOp::Schedule(schedule) => (schedule.context.clone(), schedule.id.clone()),
        TimerOp::Cancel { context, id } => (context.clone(), id.clone()),
    }
}

impl Riders {
    /// Reads everything that rides in the commits, and the clock after that. Leases are also touched, so that nobody
    /// takes one over before the transaction is committed; reservations and timers are only changed by who changes
    /// them.
    pub(super) async fn read(
        inner: &Inner,
        work: &mut Work<'_>,
        commits: &[CheckedCommit],
    ) -> std::result::Result<(Self, Timestamp), Fault> {
        let fences: BTreeSet<LeaseKey> = commits
            .iter()
            .filter_map(CheckedCommit::fence)
            .map(|fence| (fence.group.clone(), fence.partition.clone()))
            .collect();
        let reservations: BTreeSet<KeyInScope> =
            commits.iter().flat_map(CheckedCommit::reservations).flat_map(reservation::keys_of).collect();
        let timers: BTreeSet<TimerKey> = commits.iter().flat_map(CheckedCommit::timers).map(key_of).collect();
        let needs_clock = !reservations.is_empty() || !timers.is_empty();
        let mut riders = Self::default();
        for key in fences {
            let known = lease::touch(work, &key.0, &key.1).await?;
            riders.leases.insert(key, known);
        }
        for (scope, key) in reservations {
            let found =
                work.find_one(names::RESERVATION, doc! { "_id": reservation::id(&scope, &key) }).await?;
            let found = found.map(|found| reservation::read(&found)).transpose()?;
            riders.reservations.insert((scope, key), found);
        }
        for (context, id) in timers {
            let found = work.find_one(&names::timer(&context), doc! { "_id": id.as_str() }).await?;
            let found = found.map(|found| timer::read(&found, &context)).transpose()?;
            riders.timers.insert((context, id), found);
        }
        let now = if needs_clock { inner.now_in(work).await? } else { Timestamp::UNIX_EPOCH };
        Ok((riders, now))
    }

    pub(super) fn fence(&self, changes: &mut Changes, fence: &Fence) -> Result<()> {
        let key = (fence.group.clone(), fence.partition.clone());
        let decided = changes.leases.get(&key).or_else(|| self.changes.leases.get(&key));
        let known = decided.or_else(|| self.leases.get(&key).and_then(Option::as_ref));
        if let Some(lease) = rules::fence::check(fence, known)? {
            changes.leases.insert(key, lease);
        }
        Ok(())
    }

    pub(super) fn reserve(&self, changes: &mut Changes, op: &ReservationOp, now: Timestamp) -> Result<()> {
        let scope = op.scope();
        let (writes, outcome) = rules::reservation::decide(op, now, |key| {
            let key = (scope.clone(), key.clone());
            let decided = changes.reservations.get(&key).or_else(|| self.changes.reservations.get(&key));
            Ok(decided.or_else(|| self.reservations.get(&key)).cloned().flatten())
        })?;
        rules::reservation::ride(op, outcome)?;
        for write in writes {
            match write {
                Write::Put(put) => {
                    changes.reservations.insert((scope.clone(), put.key.clone()), Some(put));
                }
                Write::Delete(key) => {
                    changes.reservations.insert((scope.clone(), key), None);
                }
            }
        }
        Ok(())
    }

    pub(super) fn timer(&self, changes: &mut Changes, op: &TimerOp, now: Timestamp) -> Result<()> {
        let key = key_of(op);
        match op {
            TimerOp::Schedule(schedule) => {
                let decided = changes.timers.get(&key).or_else(|| self.changes.timers.get(&key));
                let known = decided.or_else(|| self.timers.get(&key)).and_then(Option::as_ref);
                let outcome = rules::timer::schedule(schedule.clone(), known, now);
                let timer = rules::timer::ride(outcome)?;
                changes.timers.insert(key, Some(timer));
            }
            TimerOp::Cancel { .. } => {
                changes.timers.insert(key, None);
            }
        }
        Ok(())
    }

    /// The commit is stored: its changes count from here on.
    pub(super) fn apply(&mut self, changes: Changes) {
        self.changes.leases.extend(changes.leases);
        self.changes.reservations.extend(changes.reservations);
        self.changes.timers.extend(changes.timers);
    }

    /// Writes what was decided.
    pub(super) async fn write(&self, work: &mut Work<'_>) -> std::result::Result<(), Fault> {
        for lease in self.changes.leases.values() {
            lease::put(work, lease).await?;
        }
        for ((scope, key), change) in &self.changes.reservations {
            match change {
                Some(reservation) => reservation::put(work, reservation).await?,
                None => reservation::delete(work, scope, key).await?,
            }
        }
        for ((context, id), change) in &self.changes.timers {
            match change {
                Some(timer) => timer::put(work, timer).await?,
                None => drop(work.delete(&names::timer(context), doc! { "_id": id.as_str() }).await?),
            }
        }
        Ok(())
    }
}

impl Inner {
    /// The server's clock, inside a transaction.
    pub(crate) async fn now_in(&self, work: &mut Work<'_>) -> std::result::Result<Timestamp, Fault> {
        let pipeline = vec![doc! { "$limit": 1 }, doc! { "$project": { "now": self.now() } }];
        // A collection that is never empty.
        let found = work.aggregate(names::FORMAT, pipeline).await?;
        found.first().ok_or_else(strange)?.instant("now")
    }
}
