//! What rides in appends: fences, reservations and timers (L7, R5).

use std::collections::{BTreeMap, BTreeSet};

use wow_store_api::{
    CheckedCommit, ContextName, Fence, Lease, PartitionId, Reservation, ReservationKey, ReservationOp,
    ReservationScope, Result, SubscriptionName, Timer, TimerId, TimerOp, Timestamp,
    rules::{self, reservation::Write},
};

use crate::{fault::Fault, pool::Conn, store::Inner};

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

/// What is there, locked, and what was decided.
pub(super) struct Riders {
    leases: BTreeMap<LeaseKey, Option<Lease>>,
    reservations: BTreeMap<KeyInScope, Option<Reservation>>,
    timers: BTreeMap<TimerKey, Option<Timer>>,
    changes: Changes,
}

fn keys_of(op: &ReservationOp) -> Vec<KeyInScope> {
    let keys = match op {
        ReservationOp::Reserve { key, .. }
        | ReservationOp::Confirm { key, .. }
        | ReservationOp::Release { key, .. } => vec![key],
        ReservationOp::Swap { from, to, .. } => vec![from, to],
    };
    keys.into_iter().map(|key| (op.scope().clone(), key.clone())).collect()
}

fn key_of(op: &TimerOp) -> TimerKey {
    match op {
        TimerOp::Schedule(schedule) => (schedule.context.clone(), schedule.id.clone()),
        TimerOp::Cancel { context, id } => (context.clone(), id.clone()),
    }
}

impl Riders {
    /// Locks everything that rides in the commits, in order.
    pub(super) async fn lock(
        inner: &Inner,
        conn: &mut Conn,
        commits: &[CheckedCommit],
    ) -> std::result::Result<Self, Fault> {
        let fences: BTreeSet<LeaseKey> = commits
            .iter()
            .filter_map(CheckedCommit::fence)
            .map(|fence| (fence.group.clone(), fence.partition.clone()))
            .collect();
        let reservations: BTreeSet<KeyInScope> =
            commits.iter().flat_map(CheckedCommit::reservations).flat_map(keys_of).collect();
        let timers: BTreeSet<TimerKey> = commits.iter().flat_map(CheckedCommit::timers).map(key_of).collect();
        let mut riders = Self {
            leases: BTreeMap::new(),
            reservations: BTreeMap::new(),
            timers: BTreeMap::new(),
            changes: Changes::default(),
        };
        for key in fences {
            let lease = inner.share_lease(conn, &key.0, &key.1).await?;
            riders.leases.insert(key, lease);
        }
        for (scope, key) in reservations {
            let reservation = inner.lock_reservation(conn, &scope, &key).await?;
            riders.reservations.insert((scope, key), reservation);
        }
        for (context, id) in timers {
            let timer = inner.lock_timer(conn, &context, &id).await?;
            riders.timers.insert((context, id), timer);
        }
        Ok(riders)
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

    /// Writes what was decided, and takes back what only held the place of a missing row.
    pub(super) async fn write(&self, inner: &Inner, conn: &mut Conn) -> std::result::Result<(), Fault> {
        for lease in self.changes.leases.values() {
            inner.put_lease(conn, lease).await?;
        }
        for (key, known) in &self.reservations {
            match (self.changes.reservations.get(key), known) {
                (Some(Some(reservation)), _) => inner.put_reservation(conn, reservation).await?,
                (Some(None), _) | (None, None) => inner.delete_reservation(conn, &key.0, &key.1).await?,
                (None, Some(_)) => {}
            }
        }
        for (key, known) in &self.timers {
            match (self.changes.timers.get(key), known) {
                (Some(Some(timer)), _) => inner.put_timer(conn, timer).await?,
                (Some(None), _) | (None, None) => {
                    inner.delete_timer(conn, &key.0, &key.1).await?;
                }
                (None, Some(_)) => {}
            }
        }
        Ok(())
    }
}
