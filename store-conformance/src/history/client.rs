//! Clients that do random things, many at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _};
use uuid::Uuid;
use wow_store_api::{
    AcquireLease, AggregateId, ClaimTimers, CommandId, Commit, ContextName, Due, Event, EventStore,
    ExpectedVersion, Fence, Lease, LeaseAcquired, LeaseRenewed, LeaseToken, MemberId, OwnerId, PartitionId,
    Payload, Position, ReadPage, Receipt, ReservationKey, ReservationOp, ReservationOutcome,
    ReservationScope, ScheduleTimer, StoreExt as _, SubscriptionName, TailRequest, TimerId, TimerOp,
    TimerScheduled, TimerToken, Timestamp, Version,
};

use super::{
    objects::{LeaseCall, ReservationCall, Reserved, TimerCall},
    record::{Asked, Recorder, Told, What},
};
use crate::seed::{Dice, Seed};

/// So long that nothing expires during a history.
const TTL: Duration = Duration::from_secs(86_400);

/// How often an append is sent again under its command id while its outcome is not known.
const ATTEMPTS: u32 = 5;

/// The context of the log.
pub(super) fn shop() -> ContextName {
    ContextName::new("shop").expect("a valid name")
}

/// The context of the timers that are claimed.
fn reminders() -> ContextName {
    ContextName::new("reminders").expect("a valid name")
}

/// The scope of the keys that ride in appends.
pub(super) fn riding() -> ReservationScope {
    ReservationScope::new("riding").expect("a valid name")
}

fn racing() -> ReservationScope {
    ReservationScope::new("racing").expect("a valid name")
}

fn group() -> SubscriptionName {
    SubscriptionName::new("mailer").expect("a valid name")
}

pub(super) fn aggregates() -> Vec<AggregateId> {
    let id = |aggregate: &str, id: &str| AggregateId::new("shop", aggregate, id).expect("a valid id");
    vec![id("order", "1"), id("order", "2"), id("order", "3"), id("cart", "1"), id("cart", "2")]
}

/// Who holds the key that rides in the commit of a command.
pub(super) fn rider(aggregate: &AggregateId, command: &CommandId) -> OwnerId {
    OwnerId::new(format!("{aggregate} {command}")).expect("a valid id")
}

/// One client: one thing after the other.
pub(super) struct Client {
    number: usize,
    store: Arc<dyn EventStore>,
    recorder: Arc<Recorder>,
    dice: Dice,
    /// What everybody does, about half of the time, so that they meet.
    fashion: Seed,
    commands: u64,
    versions: BTreeMap<AggregateId, Version>,
    leases: Vec<LeaseToken>,
    claims: Vec<TimerToken>,
}

impl Client {
    pub(super) fn new(
        number: usize,
        store: Arc<dyn EventStore>,
        recorder: Arc<Recorder>,
        seed: Seed,
    ) -> Self {
        let dice = Dice::new(seed.part(100 + u64::try_from(number).expect("small")));
        let (versions, leases, claims) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { number, store, recorder, dice, fashion: seed, commands: 0, versions, leases, claims }
    }

    /// Does so many things.
    pub(super) async fn run(mut self, things: u32) {
        for thing in 0..things {
            // On one thread, too, the others get their turn.
            tokio::task::yield_now().await;
            let throw = match self.dice.percent(50) {
                true => Dice::new(self.fashion.part(u64::from(thing) / 4)).below(100),
                false => self.dice.below(100),
            };
            match throw {
                0..45 => self.append().await,
                45..50 => self.append_all().await,
                50..70 => self.look_at_the_log().await,
                70..82 => self.lease().await,
                82..91 => self.reserve().await,
                _ => self.timer().await,
            }
        }
    }

    fn member(&self) -> MemberId {
        MemberId::new(format!("m{}", self.number)).expect("a valid id")
    }

    fn ended(&self, begun: u64, what: What) {
        self.recorder.ended(self.number, begun, what);
    }

    fn asked(&mut self) -> Asked {
        self.commands += 1;
        let mut aggregate = self.dice.one_of(&aggregates()).clone();
        let mut command = format!("c{}-{}", self.number, self.commands);
        let mut key = None;
        if self.dice.percent(10) {
            // The same command from several clients, each with its own idea of what it means.
            let shared = self.dice.below(8);
            let all = aggregates();
            aggregate = all[usize::try_from(shared).expect("small") % all.len()].clone();
            command = format!("shared-{shared}");
        } else if self.dice.percent(20) {
            key = ReservationKey::new(format!("k{}", self.dice.below(20))).ok();
        }
        let command = CommandId::new(command).expect("a valid id");
        let known = self.versions.get(&aggregate).copied().unwrap_or_default();
        let expected = match self.dice.below(10) {
            0..5 => ExpectedVersion::Any,
            5..9 => ExpectedVersion::Exact(known),
            _ => ExpectedVersion::NoStream,
        };
        let body = format!(r#"{{"by":{},"n":{}}}"#, self.number, self.commands);
        let body = Payload::from_json(&body).expect("a valid document");
        let fence = self.leases.last().filter(|_| self.dice.percent(30));
        Asked {
            timer: self
                .dice
                .percent(10)
                .then(|| TimerId::new(format!("{aggregate} {command}")).expect("an id")),
            fence: fence.map(|token| (token.partition.index(), token.epoch)),
            events: vec![Event::new("Happened", 1, body).expect("a valid event")],
            aggregate,
            command,
            expected,
            key,
        }
    }

    fn commit(asked: &Asked) -> Commit {
        let mut commit =
            Commit::new(asked.aggregate.clone(), asked.command.to_string()).expect(asked.expected);
        for event in &asked.events {
            commit = commit.with_event(event.clone());
        }
        if let Some((index, epoch)) = asked.fence {
            let partition = PartitionId::new(shop(), index);
            commit = commit.fenced(Fence { group: group(), partition, epoch });
        }
        if let Some(key) = &asked.key {
            let owner = rider(&asked.aggregate, &asked.command);
            let (scope, key) = (riding(), key.clone());
            commit = commit.reservation(ReservationOp::Reserve { scope, key, owner, expires_in: None });
        }
        if let Some(id) = &asked.timer {
            let timer = ScheduleTimer::new(shop(), id.clone(), Due::At(Timestamp::MAX), &0).expect("a timer");
            commit = commit.timer(TimerOp::Schedule(timer));
        }
        commit
    }

    async fn append(&mut self) {
        let asked = self.asked();
        for _ in 0..ATTEMPTS {
            let begun = self.recorder.stamp();
            let answer = self.store.append(Self::commit(&asked)).await;
            let again = answer.as_ref().is_err_and(wow_store_api::Error::is_transient);
            if let Ok(Receipt { version, .. }) = &answer {
                self.versions.insert(asked.aggregate.clone(), *version);
            }
            self.ended(begun, What::Append(asked.clone(), Told::from(answer)));
            if !again {
                return;
            }
        }
    }

    async fn append_all(&mut self) {
        let several: Vec<Asked> = (0..2 + self.dice.below(2)).map(|_| self.asked()).collect();
        for _ in 0..ATTEMPTS {
            let begun = self.recorder.stamp();
            let answer = self.store.append_all(several.iter().map(Self::commit)).await;
            let again = answer.as_ref().is_err_and(wow_store_api::Error::is_transient);
            self.ended(begun, What::AppendAll(several.clone(), Told::from(answer)));
            if !again {
                return;
            }
        }
    }

    /// Reads that fail say nothing, and are not recorded.
    async fn look_at_the_log(&mut self) {
        let id = self.dice.one_of(&aggregates()).clone();
        let begun = self.recorder.stamp();
        match self.dice.below(5) {
            0 => {
                if let Ok(version) = self.store.head(&id).await {
                    self.versions.insert(id.clone(), version);
                    self.ended(begun, What::Head(id, version));
                }
            }
            1 => {
                let Ok(commits) = self.store.load(&id, ..).await else { return };
                // A wrong store may go on for ever.
                if let Ok(commits) = commits.take(super::MAX_COMMITS).try_collect().await {
                    self.ended(begun, What::Load(id, commits));
                }
            }
            2 => {
                if let Ok(heads) = self.store.heads(&shop()).await {
                    self.ended(begun, What::Heads(heads));
                }
            }
            3 => {
                let partition = u32::try_from(self.dice.below(super::PARTITIONS.into())).expect("small");
                let read = ReadPage::new(PartitionId::new(shop(), partition), 0)
                    .with_max_commits(super::MAX_COMMITS);
                if let Ok(page) = self.store.read(read).await {
                    let (commits, through) = (page.commits, page.through);
                    self.ended(begun, What::Read { partition, after: 0, commits, through });
                }
            }
            _ => {
                let mine = self.commands.saturating_sub(self.dice.below(3));
                let command = CommandId::new(format!("c{}-{mine}", self.number)).expect("a valid id");
                if let Ok(receipt) = self.store.receipt(&id, &command).await {
                    self.ended(begun, What::Receipt(id, command, receipt));
                }
            }
        }
    }

    async fn lease(&mut self) {
        let index = u32::try_from(self.dice.below(super::PARTITIONS.into())).expect("small");
        let partition = PartitionId::new(shop(), index);
        let token = (!self.leases.is_empty()).then(|| self.dice.one_of(&self.leases).clone());
        let begun = self.recorder.stamp();
        match (self.dice.below(10), token) {
            (0..2, Some(token)) => {
                let renewed = self.store.renew_leases(std::slice::from_ref(&token), TTL).await;
                let renewed = renewed.map(|answers| matches!(answers.as_slice(), [LeaseRenewed::Renewed(_)]));
                if let Some(answer) = known(renewed) {
                    let call = LeaseCall::Renew(token.member, token.epoch, answer);
                    self.ended(begun, What::Lease(token.partition.index(), call));
                }
            }
            (2..6, Some(token)) => {
                if let Some(answer) = known(self.store.release_lease(&token).await) {
                    let call = LeaseCall::Release(token.member, token.epoch, answer);
                    self.ended(begun, What::Lease(token.partition.index(), call));
                }
            }
            (6, _) => {
                let Ok(leases) = self.store.leases(&group(), &shop()).await else { return };
                let ended = self.recorder.stamp();
                for index in 0..super::PARTITIONS {
                    let of = |lease: &&Lease| lease.partition.index() == index;
                    let found = leases.iter().find(of).map(|lease| (lease.owner.clone(), lease.epoch));
                    self.recorder.ended_at(
                        self.number,
                        begun,
                        ended,
                        What::Lease(index, LeaseCall::Look(found)),
                    );
                }
            }
            _ => {
                let request = AcquireLease::new(group(), partition.clone(), self.member(), TTL);
                let answer = self.store.acquire_lease(request).await;
                if let Ok(LeaseAcquired::Acquired(lease)) = &answer {
                    self.leases.push(lease.token(&self.member()));
                }
                let answer = answer.map(|answer| match answer {
                    LeaseAcquired::Acquired(lease) => (true, lease.owner, lease.epoch),
                    LeaseAcquired::Held(lease) => (false, lease.owner, lease.epoch),
                });
                if let Some(answer) = known(answer) {
                    self.ended(begun, What::Lease(index, LeaseCall::Acquire(self.member(), answer)));
                }
            }
        }
    }

    async fn reserve(&mut self) {
        let mut key = || ReservationKey::new(*self.dice.one_of(&["a", "b", "c"])).expect("a valid key");
        let (key, other) = (key(), key());
        let owner = OwnerId::new(format!("o{}", self.number % 4)).expect("a valid id");
        let scope = racing();
        let begun = self.recorder.stamp();
        let what = self.dice.below(10);
        if what == 9 {
            if let Ok(found) = self.store.reservation(&scope, &key).await {
                let call = ReservationCall::Look(key, found.map(|found| found.owner));
                self.ended(begun, What::Reservation(call));
            }
            return;
        }
        let (key_again, owner_again) = (key.clone(), owner.clone());
        let op = match what {
            0..4 => ReservationOp::Reserve { scope, key, owner, expires_in: Some(TTL) },
            4 => ReservationOp::Confirm { scope, key, owner },
            5..7 => ReservationOp::Release { scope, key, owner },
            _ => ReservationOp::Swap { scope, from: key, to: other.clone(), owner },
        };
        let answer = self.store.reserve(op).await.map(|outcome| match outcome {
            ReservationOutcome::Held(held) => Reserved::Held(held.key),
            ReservationOutcome::Released => Reserved::Released,
            ReservationOutcome::Taken(by) => Reserved::Taken(by.owner),
            ReservationOutcome::NotHeld => Reserved::NotHeld,
        });
        let Some(answer) = known(answer) else { return };
        let (key, owner) = (key_again, owner_again);
        let call = match what {
            0..4 => ReservationCall::Reserve(key, owner, answer),
            4 => ReservationCall::Confirm(key, owner, answer),
            5..7 => ReservationCall::Release(key, owner, answer),
            _ => ReservationCall::Swap(key, other, owner, answer),
        };
        self.ended(begun, What::Reservation(call));
    }

    async fn timer(&mut self) {
        let id = TimerId::new(*self.dice.one_of(&["t1", "t2", "t3", "t4"])).expect("a valid id");
        let token = (!self.claims.is_empty()).then(|| self.dice.one_of(&self.claims).clone());
        let begun = self.recorder.stamp();
        let call = match (self.dice.below(10), token) {
            (0..2, Some(token)) => {
                let answer = known(self.store.complete_timer(&token).await);
                answer.map(|answer| TimerCall::Complete(token.id, token.claim, answer))
            }
            (2..4, Some(token)) => {
                let answer = known(self.store.release_timer(&token, Duration::ZERO).await);
                answer.map(|answer| TimerCall::Release(token.id, token.claim, answer))
            }
            (4..7, _) => {
                let limit = usize::try_from(1 + self.dice.below(2)).expect("small");
                let claim = ClaimTimers::new(reminders(), self.member(), TTL).with_limit(limit);
                let claimed = self.store.claim_timers(claim).await;
                if let Ok(claimed) = &claimed {
                    self.claims.extend(claimed.iter().filter_map(|timer| timer.token()));
                }
                let answer = known(claimed.map(|claimed| {
                    let token = |timer: &wow_store_api::Timer| {
                        (timer.id.clone(), timer.token().map_or(Uuid::nil(), |token| token.claim))
                    };
                    claimed.iter().map(token).collect()
                }));
                answer.map(|answer| TimerCall::Claim(limit, answer))
            }
            (7, _) => {
                let answer = known(self.store.cancel_timer(&reminders(), &id).await);
                answer.map(|answer| TimerCall::Cancel(id, answer))
            }
            _ => {
                let due = Due::At(Timestamp::UNIX_EPOCH);
                let schedule = ScheduleTimer::new(reminders(), id.clone(), due, &0).expect("a valid timer");
                let answer = self.store.schedule_timer(schedule).await;
                let answer = known(answer.map(|answer| matches!(answer, TimerScheduled::Scheduled(_))));
                answer.map(|answer| TimerCall::Schedule(id, answer))
            }
        };
        if let Some(call) = call {
            self.ended(begun, What::Timer(call));
        }
    }
}

/// What is known of an answer; `None` if nothing was applied, so that there was no call.
fn known<T>(answer: wow_store_api::Result<T>) -> Option<Option<T>> {
    match Told::from(answer) {
        Told::Done(answer) => Some(Some(answer)),
        Told::NotApplied(_) => None,
        Told::Unknown => Some(None),
    }
}

/// Follows the log until it has been told where to stop, and is there.
pub(super) async fn follow(
    number: usize,
    store: Arc<dyn EventStore>,
    recorder: Arc<Recorder>,
    mut until: tokio::sync::watch::Receiver<Option<Vec<Position>>>,
) {
    let mut tail = loop {
        if let Ok(tail) = store.tail(TailRequest::new(shop()).with_max_commits(7)).await {
            break tail;
        }
        tokio::task::yield_now().await;
    };
    loop {
        let begun = recorder.stamp();
        let positions: Vec<Position> = tail.positions().map(|(_, position)| position).collect();
        let is_there = until
            .borrow_and_update()
            .as_ref()
            .is_some_and(|heads| heads.iter().zip(&positions).all(|(head, position)| position >= head));
        if is_there {
            return;
        }
        let batch = tokio::select! {
            // The same choice every time.
            biased;
            batch = tail.next() => batch,
            _ = until.changed() => continue,
        };
        match batch {
            Ok(batch) => {
                let partition = batch.partition.index();
                let after = positions[usize::try_from(partition).expect("small")];
                let (commits, through) = (batch.commits, batch.through);
                recorder.ended(number, begun, What::Tail { partition, after, commits, through });
            }
            Err(error) => {
                assert!(error.is_transient(), "the tail broke: {error}");
                tokio::task::yield_now().await;
            }
        }
    }
}
