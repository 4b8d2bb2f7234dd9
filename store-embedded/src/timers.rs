//! Timers (M1, M2).
//!
//! Beside each timer stands an entry in one of two lists: of those that nobody has claimed, by when they are due, and
//! of those that are claimed, by when they can be claimed again. Claiming reads the first list in order and as far as
//! it needs, and of the second one the entries that have expired, which name when their timers were due: it costs what
//! is claimed, not what is scheduled.

use std::{ops::Bound, time::Duration};

use async_trait::async_trait;
use wow_store_api::{
    ClaimTimers, ContextName, Error, Result, ScheduleTimer, Timer, TimerId, TimerScheduled, TimerToken,
    Timers, Timestamp, rules,
};

use crate::{
    access::{Records as _, behind},
    codec::{DueRecord, unseal},
    engine::{
        error::Hex,
        keys::{Key, KeyParts},
        view::{Source, Tx},
    },
    leases::fence,
    places::{self, Place},
    store::EmbeddedStore,
};

/// Where a timer stands in the lists.
fn listed(timer: &Timer) -> Place {
    match &timer.claim {
        None => places::free_timer(&timer.context, timer.due_at, &timer.id),
        Some(_) => places::claimed_timer(&timer.context, timer.claimable_at(), &timer.id),
    }
}

fn put(tx: &mut Tx<'_>, known: Option<&Timer>, timer: &Timer) {
    if let Some(known) = known {
        tx.remove(listed(known));
    }
    let due = timer.claim.as_ref().map(|_| timer.due_at);
    tx.store(listed(timer), &DueRecord(due));
    tx.store(places::timer(&timer.context, &timer.id), timer);
}

fn take_out(tx: &mut Tx<'_>, timer: &Timer) {
    tx.remove(listed(timer));
    tx.remove(places::timer(&timer.context, &timer.id));
}

/// Schedules one, alone or riding in an append. The fence was checked.
pub(crate) fn schedule(tx: &mut Tx<'_>, schedule: ScheduleTimer) -> Result<TimerScheduled> {
    let known: Option<Timer> = tx.record(&places::timer(&schedule.context, &schedule.id))?;
    let outcome = rules::timer::schedule(schedule, known.as_ref(), tx.now());
    if let TimerScheduled::Scheduled(timer) = &outcome {
        put(tx, known.as_ref(), timer);
    }
    Ok(outcome)
}

/// Cancels one, alone or riding in an append. Says whether it was there.
pub(crate) fn cancel(tx: &mut Tx<'_>, context: &ContextName, id: &TimerId) -> Result<bool> {
    match tx.record::<Timer>(&places::timer(context, id))? {
        Some(timer) => {
            take_out(tx, &timer);
            Ok(true)
        }
        None => Ok(false),
    }
}

/// An entry of a list.
struct Listed {
    /// What the list is in order of.
    at: Timestamp,
    id: TimerId,
    due: DueRecord,
}

/// The entries of a list, up to an instant (inclusive).
fn list_until(source: &impl Source, list: &Place, until: Timestamp) -> impl Iterator<Item = Result<Listed>> {
    let end = list.key.clone().i64(until.as_millis().saturating_add(1));
    let prefix = list.key.as_slice().len();
    let space = list.space;
    let range = (Bound::Included(list.key.as_slice()), Bound::Excluded(end.as_slice()));
    source.scan(space, range).map(move |entry| {
        let (key, value) = entry?;
        let (at, id) = entry_of(key.get(prefix..).unwrap_or_default()).ok_or_else(|| {
            Error::corrupt(format!("{}, key {}", space.name(), Hex(&key)), "not the key of a timer")
        })?;
        Ok(Listed { at, id, due: unseal(space, &key, &value)? })
    })
}

fn entry_of(key: &[u8]) -> Option<(Timestamp, TimerId)> {
    let mut parts = KeyParts::new(key);
    let instant = Timestamp::from_millis(parts.i64()?).ok()?;
    let id = TimerId::new(parts.text()?).ok()?;
    parts.end()?;
    Some((instant, id))
}

fn listed_timer(source: &impl Source, context: &ContextName, id: &TimerId) -> Result<Timer> {
    let place = places::timer(context, id);
    source.record(&place)?.ok_or_else(|| {
        let location = format!("{}, key {}", place.space.name(), Hex(place.key.as_slice()));
        Error::corrupt(location, "a timer is listed that is not there")
    })
}

fn not_claimed(context: &ContextName, id: &TimerId) -> Error {
    Error::corrupt(format!("claimed timers of {context}, {id}"), "it is listed without when it was due")
}

#[async_trait]
impl Timers for EmbeddedStore {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        self.write("schedule_timer", schedule.body.as_json().len(), move |tx| {
            fence(tx, schedule.fence.as_ref())?;
            self::schedule(tx, schedule)
        })
        .await
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        let (context, id) = (context.clone(), id.clone());
        self.write("cancel_timer", 0, move |tx| cancel(tx, &context, &id)).await
    }

    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>> {
        self.write("claim_timers", 0, move |tx| {
            claim.check()?;
            let (context, now) = (&claim.context, tx.now());
            let mut due: Vec<(Timestamp, TimerId)> = Vec::new();
            for entry in list_until(tx, &places::free_timers(context), now).take(claim.limit) {
                let Listed { at, id, .. } = entry?;
                due.push((at, id));
            }
            for entry in list_until(tx, &places::claimed_timers(context), now) {
                let Listed { id, due: DueRecord(due_at), .. } = entry?;
                due.push((due_at.ok_or_else(|| not_claimed(context, &id))?, id));
            }
            due.sort_unstable();
            let mut claimed = Vec::with_capacity(due.len().min(claim.limit));
            for (_, id) in due.iter().take(claim.limit) {
                let timer = listed_timer(tx, context, id)?;
                if let Some(next) = rules::timer::claim(&claim, &timer, now) {
                    put(tx, Some(&timer), &next);
                    claimed.push(next);
                }
            }
            Ok(claimed)
        })
        .await
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        let token = token.clone();
        self.write("complete_timer", 0, move |tx| {
            let known: Option<Timer> = tx.record(&places::timer(&token.context, &token.id))?;
            match known.filter(|timer| rules::timer::is_claimed_by(&token, timer)) {
                Some(timer) => {
                    take_out(tx, &timer);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
        .await
    }

    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool> {
        let token = token.clone();
        self.write("release_timer", 0, move |tx| {
            let known: Option<Timer> = tx.record(&places::timer(&token.context, &token.id))?;
            let released =
                known.as_ref().and_then(|timer| rules::timer::release(&token, timer, retry_in, tx.now()));
            match released {
                Some(timer) => {
                    put(tx, known.as_ref(), &timer);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
        .await
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        self.read("next_due", |view| {
            let first = |list: Place| list_until(view, &list, Timestamp::MAX).next().transpose();
            let free = first(places::free_timers(context))?.map(|entry| entry.at);
            let claimed = first(places::claimed_timers(context))?.map(|entry| entry.at);
            Ok(free.into_iter().chain(claimed).min())
        })
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        limit: usize,
    ) -> Result<Vec<Timer>> {
        let under = places::timers(context);
        let from: Key = match after {
            Some(id) => Key::from_bytes(behind(&places::timer(context, id).key)),
            None => under.key.clone(),
        };
        self.scan("timers", move |view| {
            view.records_from(&under, Bound::Included(from.as_slice())).take(limit).collect()
        })
        .await
    }
}
