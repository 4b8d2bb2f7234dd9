//! One of the two stores that are compared, and what it was given out.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _};
use uuid::Uuid;
use wow_store_api::{
    AggregateId, CommandId, Commit, ContextName, Due, EventStore, ExpectedVersion, LeaseAcquired, LeaseToken,
    MemberId, Position, ReadPage, RecordedCommit, ReservationOp, Result, StoreExt as _, TailRequest, TimerOp,
    TimerToken, Timestamp, VersionRange,
    query::{EventQuery, SnapshotQuery},
};

use super::{
    answer::{Answer, Instants},
    step::{Expected, GivenOut, Handle, Step, Write},
};
use crate::harness::Place;

/// Longest that one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Most commits that are loaded at once: more than any history has. A wrong store may go on for ever.
const MAX_COMMITS: usize = 10_000;

/// Most pages that a query may have.
const MAX_PAGES: usize = 1_000;

pub(super) struct Side {
    place: Arc<dyn Place>,
    store: Arc<dyn EventStore>,
    second: Option<Arc<dyn EventStore>>,
    instants: Instants,
    begin: Timestamp,
    leases: Vec<LeaseToken>,
    claims: Vec<TimerToken>,
}

impl Side {
    pub(super) async fn open(place: Arc<dyn Place>, instants: Instants) -> Self {
        let store = place.open().await.expect("a fresh place opens");
        let begin = store.now().await.expect("the store tells the time");
        let (leases, claims) = (Vec::new(), Vec::new());
        Self { place, store, second: None, instants, begin, leases, claims }
    }

    async fn handle(&mut self, handle: Handle) -> Arc<dyn EventStore> {
        match (handle, &self.second) {
            (Handle::First, _) => Arc::clone(&self.store),
            (Handle::Second, Some(second)) => Arc::clone(second),
            (Handle::Second, None) => {
                let second = self.place.second_handle(&self.store).await.expect("a second handle");
                Arc::clone(self.second.insert(second))
            }
        }
    }

    /// Does one step. What it answers is normalised.
    pub(super) async fn does(&mut self, handle: Handle, step: Step) -> Answer {
        let store = self.handle(handle).await;
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, self.answer(&store, step)).await {
            Ok(answer) => answer.unwrap_or_else(Answer::from),
            Err(_) => panic!("no answer after {ANSWER_TIMEOUT:?}"),
        };
        self.remember(&answer);
        answer.normalised(self.instants)
    }

    fn remember(&mut self, answer: &Answer) {
        match answer {
            Answer::LeaseAcquired(LeaseAcquired::Acquired(lease)) => {
                self.leases.extend(lease.owner.as_ref().map(|owner| lease.token(owner)));
            }
            Answer::Timers(timers) => self.claims.extend(timers.iter().filter_map(|timer| timer.token())),
            _ => {}
        }
    }

    async fn answer(&mut self, store: &Arc<dyn EventStore>, step: Step) -> Result<Answer> {
        Ok(match step {
            Step::Append(write) => {
                let commit = self.commit(store, write).await?;
                let context = commit.aggregate_id().context().clone();
                let receipt = store.append(commit).await;
                settle(store, &[context], receipt.is_err()).await?;
                Answer::Receipts(vec![receipt?])
            }
            Step::AppendAll(writes) => {
                let contexts: Vec<_> = writes.iter().map(|write| write.aggregate.context().clone()).collect();
                let mut commits = Vec::with_capacity(writes.len());
                for write in writes {
                    commits.push(self.commit(store, write).await?);
                }
                let receipts = store.append_all(commits).await;
                settle(store, &contexts, receipts.is_err()).await?;
                Answer::Receipts(receipts?)
            }
            Step::Receipt(id, command) => {
                Answer::MaybeReceipt(store.receipt(&id, &CommandId::new(command)?).await?)
            }
            Step::Head(id) => Answer::Number(store.head(&id).await?),
            Step::Load(id, first, last) => {
                let commits = store.load_range(&id, VersionRange::new(first..=last)).await?;
                Answer::Commits(commits.take(MAX_COMMITS).try_collect().await?)
            }
            Step::LoadAsOf(id, seconds) => self.load_as_of(store, &id, seconds).await?,
            Step::Partitions(context) => Answer::Number(store.partitions(&context).await?.get().into()),
            Step::Heads(context) => {
                let heads = store.heads(&context).await?;
                // Whether a refused append was the first use of its context is the store's to say.
                let is_empty = heads.iter().all(|head| *head == 0);
                Answer::Numbers(if is_empty { Vec::new() } else { heads })
            }
            Step::Read { partition, after, max_commits, max_bytes, filter } => {
                let read = ReadPage::new(partition, after)
                    .with_max_commits(max_commits)
                    .with_max_bytes(max_bytes)
                    .with_filter(filter);
                Answer::Page(store.read(read).await?)
            }
            Step::Tail { context, max_commits, filter } => {
                let request = TailRequest::new(context).with_max_commits(max_commits).with_filter(filter);
                Answer::Tail(tail(store, request).await?)
            }
            Step::Types => {
                Answer::Texts(store.aggregate_types().await?.iter().map(ToString::to_string).collect())
            }

            Step::SaveCheckpoint(save) => Answer::CheckpointSaved(store.save_checkpoint(save).await?),
            Step::ResetCheckpoint(reset) => {
                store.reset_checkpoint(reset).await?;
                Answer::Nothing
            }
            Step::Checkpoint(subscription, partition) => {
                Answer::Checkpoint(store.checkpoint(&subscription, &partition).await?)
            }
            Step::Checkpoints(context) => Answer::Checkpoints(store.checkpoints(&context).await?),

            Step::Acquire(mut acquire) => {
                acquire.ttl = self.ttl(acquire.ttl);
                Answer::LeaseAcquired(store.acquire_lease(acquire).await?)
            }
            Step::Renew(tokens, ttl) => {
                let tokens: Vec<LeaseToken> = tokens.iter().filter_map(|token| self.lease(*token)).collect();
                Answer::LeasesRenewed(store.renew_leases(&tokens, self.ttl(ttl)).await?)
            }
            Step::ReleaseLease(token) => match self.lease(token) {
                Some(token) => Answer::Bool(store.release_lease(&token).await?),
                None => Answer::Nothing,
            },
            Step::Leases(group, context) => Answer::Leases(store.leases(&group, &context).await?),
            Step::Heartbeat(mut heartbeat) => {
                heartbeat.ttl = self.ttl(heartbeat.ttl);
                Answer::Members(vec![store.heartbeat(heartbeat).await?])
            }
            Step::Members(group) => Answer::Members(store.members(&group).await?),
            Step::Leave(group, member) => Answer::Bool(store.leave(&group, &member).await?),

            Step::SaveSnapshot(save) => Answer::SnapshotSaved(store.save_snapshot(save).await?),
            Step::Snapshot(id, revision) => Answer::Snapshot(store.snapshot(&id, revision).await?),
            Step::DeleteSnapshot(id) => Answer::Bool(store.delete_snapshot(&id).await?),
            Step::DropSnapshots(of) => Answer::Number(store.drop_snapshots(&of).await?),

            Step::RecordAttempt(attempt) => Answer::Failure(Some(store.record_attempt(attempt).await?)),
            Step::Park(park) => Answer::Failure(Some(store.park(park).await?)),
            Step::Retry(subscription, id) => Answer::Bool(store.retry(&subscription, &id).await?),
            Step::Discard(subscription, id, version) => {
                Answer::Bool(store.discard(&subscription, &id, version).await?)
            }
            Step::Advance(attempt) => Answer::Bool(store.advance(attempt).await?),
            Step::Resolve(attempt) => Answer::Bool(store.resolve(attempt).await?),
            Step::Failure(subscription, id) => Answer::Failure(store.failure(&subscription, &id).await?),
            Step::Failures(list) => Answer::Failures(store.failures(list).await?),
            Step::Discarded(subscription, limit) => {
                Answer::Discarded(store.discarded(&subscription, limit).await?)
            }
            Step::FailureCounts(subscription) => {
                Answer::FailureCounts(store.failure_counts(&subscription).await?)
            }

            Step::Reserve(op) => Answer::ReservationOutcome(store.reserve(self.reservation(op)).await?),
            Step::Reservation(scope, key) => Answer::Reservation(store.reservation(&scope, &key).await?),
            Step::Reservations(list) => Answer::Reservations(store.reservations(list).await?),

            Step::Schedule(mut schedule) => {
                schedule.due = self.due(schedule.due);
                Answer::TimerScheduled(store.schedule_timer(schedule).await?)
            }
            Step::CancelTimer(context, id) => Answer::Bool(store.cancel_timer(&context, &id).await?),
            Step::Claim(mut claim) => {
                claim.ttl = self.ttl(claim.ttl);
                Answer::Timers(store.claim_timers(claim).await?)
            }
            Step::Complete(token) => match self.claim(token) {
                Some(token) => Answer::Bool(store.complete_timer(&token).await?),
                None => Answer::Nothing,
            },
            Step::ReleaseTimer(token, retry_in) => match self.claim(token) {
                Some(token) => Answer::Bool(store.release_timer(&token, self.retry_in(retry_in)).await?),
                None => Answer::Nothing,
            },
            Step::NextDue(context) => Answer::Instant(store.next_due(&context).await?),
            Step::Timers(context, after, limit) => {
                Answer::Timers(store.timers(&context, after.as_ref(), limit).await?)
            }

            Step::QuerySnapshots(query) => query_snapshots(store, query).await?,
            Step::CountSnapshots(query) => Answer::Number(store.count_snapshots(query).await?),
            Step::QueryEvents(query) => query_events(store, query).await?,
            Step::CountEvents(query) => Answer::Number(store.count_events(query).await?),

            Step::Pass(time) => {
                if let Some(clock) = self.place.clock() {
                    clock.advance(time);
                }
                Answer::Nothing
            }
            Step::Reopen => {
                if let Some(second) = self.second.take() {
                    second.close().await?;
                }
                self.store.close().await?;
                self.store = self.place.open().await?;
                Answer::Nothing
            }
        })
    }

    fn lease(&self, of: GivenOut) -> Option<LeaseToken> {
        let mut token = self.leases.iter().rev().nth(of.back)?.clone();
        if of.forged {
            token.member = MemberId::new("somebody else").expect("a valid id");
        }
        Some(token)
    }

    fn claim(&self, of: GivenOut) -> Option<TimerToken> {
        let mut token = self.claims.iter().rev().nth(of.back)?.clone();
        if of.forged {
            token.claim = Uuid::nil();
        }
        Some(token)
    }

    async fn commit(&self, store: &Arc<dyn EventStore>, write: Write) -> Result<Commit> {
        let expected = match write.expected {
            Expected::Any => ExpectedVersion::Any,
            Expected::NoStream => ExpectedVersion::NoStream,
            Expected::Exact(version) => ExpectedVersion::Exact(version),
            Expected::Head => ExpectedVersion::Exact(store.head(&write.aggregate).await?),
        };
        let events: Vec<_> = write.events().collect();
        let mut commit = Commit::new(write.aggregate, write.command).expect(expected);
        for event in events {
            commit = commit.with_event(event);
        }
        if let Some(metadata) = write.metadata {
            commit = commit.with_metadata(metadata.0);
        }
        if let Some(fence) = write.fence {
            commit = commit.fenced(fence);
        }
        for op in write.reservations {
            commit = commit.reservation(self.reservation(op));
        }
        for op in write.timers {
            commit = commit.timer(match op {
                TimerOp::Schedule(mut schedule) => {
                    schedule.due = self.due(schedule.due);
                    TimerOp::Schedule(schedule)
                }
                cancel @ TimerOp::Cancel { .. } => cancel,
            });
        }
        Ok(commit)
    }

    async fn load_as_of(
        &self,
        store: &Arc<dyn EventStore>,
        id: &AggregateId,
        seconds: u64,
    ) -> Result<Answer> {
        match self.instants {
            Instants::Exact => {
                let instant = self.begin.saturating_add(Duration::from_secs(seconds));
                Ok(Answer::Commits(
                    store.load_as_of(id, instant).await?.take(MAX_COMMITS).try_collect().await?,
                ))
            }
            Instants::Any => Ok(Answer::Commits(
                store.load_as_of(id, Timestamp::MAX).await?.take(MAX_COMMITS).try_collect().await?,
            )),
        }
    }

    /// Where time cannot be set, nothing that is valid expires during a history.
    fn ttl(&self, ttl: Duration) -> Duration {
        let day = Duration::from_secs(86_400);
        match self.instants {
            Instants::Any if !ttl.is_zero() && ttl < day => day,
            Instants::Exact | Instants::Any => ttl,
        }
    }

    /// Where time cannot be set, timers are due in the order of their delays, at once; or not at all.
    fn due(&self, due: Due) -> Due {
        match (self.instants, due) {
            (Instants::Any, Due::After(delay)) if delay <= Duration::from_secs(1) => {
                Due::At(Timestamp::UNIX_EPOCH.saturating_add(delay))
            }
            (Instants::Any, Due::After(_)) => Due::At(Timestamp::MAX),
            (Instants::Exact, due) | (Instants::Any, due @ Due::At(_)) => due,
        }
    }

    fn retry_in(&self, retry_in: Duration) -> Duration {
        if retry_in.is_zero() { retry_in } else { self.ttl(retry_in) }
    }

    fn reservation(&self, mut op: ReservationOp) -> ReservationOp {
        if let ReservationOp::Reserve { expires_in: Some(ttl), .. } = &mut op {
            *ttl = self.ttl(*ttl);
        }
        op
    }
}

/// Whether an append that is refused is a first use of its context is not said: afterwards it is used.
async fn settle(store: &Arc<dyn EventStore>, contexts: &[ContextName], refused: bool) -> Result<()> {
    for context in contexts.iter().filter(|_| refused) {
        store.partitions(context).await?;
    }
    Ok(())
}

async fn tail(
    store: &Arc<dyn EventStore>,
    request: TailRequest,
) -> Result<BTreeMap<u32, (Vec<RecordedCommit>, Position)>> {
    let mut delivered: BTreeMap<u32, (Vec<RecordedCommit>, Position)> = BTreeMap::new();
    let mut tail = store.tail(request).await?;
    while let Some(batch) = tail.try_next().await? {
        let (commits, through) = delivered.entry(batch.partition.index()).or_default();
        commits.extend(batch.commits);
        *through = batch.through;
    }
    Ok(delivered)
}

/// All pages of a query: asks for the one after the last until there is none.
async fn pages<T, C, F>(mut ask: impl FnMut(Option<C>) -> F) -> Result<Vec<Vec<T>>>
where
    F: Future<Output = Result<(Vec<T>, Option<C>)>>,
{
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let (items, next) = ask(after).await?;
        pages.push(items);
        assert!(pages.len() < MAX_PAGES, "a query of few items has {MAX_PAGES} pages");
        match next {
            Some(next) => after = Some(next),
            None => return Ok(pages),
        }
    }
}

async fn query_snapshots(store: &Arc<dyn EventStore>, query: SnapshotQuery) -> Result<Answer> {
    let ask = |after| {
        let query = SnapshotQuery { after, ..query.clone() };
        async move { store.query_snapshots(query).await.map(|page| (page.items, page.next)) }
    };
    Ok(Answer::Snapshots(pages(ask).await?))
}

async fn query_events(store: &Arc<dyn EventStore>, query: EventQuery) -> Result<Answer> {
    let ask = |after| {
        let query = EventQuery { after, ..query.clone() };
        async move { store.query_events(query).await.map(|page| (page.items, page.next)) }
    };
    Ok(Answer::Events(pages(ask).await?))
}
