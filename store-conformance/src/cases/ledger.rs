//! The failure ledger (F1 to F3).

use std::{collections::BTreeMap, sync::Arc};

use wow_store_api::{
    AggregateId, Attempt, ErrorKind, EventStore, FailedCommit, Failure, FailureCounts, FailureState,
    ListFailures, MAX_COUNTER, MAX_FAILURE_TEXT_BYTES, Outcome, Park, PartitionId, RecordedCommit,
    SubscriptionName, Version,
};

use super::support::{load, race, stored_commits, subscription};
use crate::{
    case::topic,
    env::{Env, append_many, order},
};

topic! { "ledger":
    first_attempt_makes_an_entry [F1],
    attempts_count_whatever_the_version [F1],
    attempts_of_many_nodes_all_count [F1],
    success_starts_the_count_again [F1],
    park_keeps_what_failed [F1],
    park_without_an_attempt_is_enough [F1],
    parked_one_keeps_its_first_failure [F1, F2],
    parked_one_counts_no_attempts [F2],
    retry_starts_from_the_parked_commit [F2],
    retry_of_what_is_not_parked_says_so [F2, F3],
    advance_moves_behind_the_commit_and_never_back [F2],
    advance_needs_a_retry [F2],
    parked_again_while_retrying [F2],
    parking_while_retrying_skips_none [F2],
    discard_skips_no_more_than_one [F2, F3],
    resolve_needs_the_commit_that_failed [F2],
    late_resolve_does_not_end_a_retry [F2],
    resolve_leaves_a_parked_one [F2],
    discard_skips_one_commit_once [F3],
    discard_of_another_version_changes_nothing [F3],
    later_commits_wait_then_go_on_in_order [F1, F2],
    discarded_commit_is_never_handled_again [F2, F3],
    counts_by_state [F3],
    list_pages_by_aggregate [F3],
    list_filters [F3],
    discarded_are_listed_newest_first [F3],
    error_text_is_cut [F1],
    nul_does_not_keep_from_parking [F1],
    subscriptions_are_separate [F1],
    invalid_attempts_are_refused [F1],
    survives_reopen [F1, F2, F3],
}

fn mailer() -> SubscriptionName {
    subscription("mailer")
}

fn attempt(commit: &RecordedCommit) -> Attempt {
    Attempt::new(mailer(), commit)
}

async fn park(store: &Arc<dyn EventStore>, commit: &RecordedCommit) -> Failure {
    let park = Park::new(attempt(commit), format!("broken at {}", commit.version));
    store.park(park.with_event("Happened")).await.expect("parked")
}

async fn record(store: &Arc<dyn EventStore>, commit: &RecordedCommit) -> Failure {
    store.record_attempt(attempt(commit)).await.expect("the attempt is counted")
}

async fn advance(store: &Arc<dyn EventStore>, commit: &RecordedCommit) -> bool {
    store.advance(attempt(commit)).await.expect("answered")
}

async fn resolve(store: &Arc<dyn EventStore>, commit: &RecordedCommit) -> bool {
    store.resolve(attempt(commit)).await.expect("answered")
}

async fn retry(store: &Arc<dyn EventStore>, id: &AggregateId) -> bool {
    store.retry(&mailer(), id).await.expect("answered")
}

async fn discard(store: &Arc<dyn EventStore>, id: &AggregateId, version: Version) -> bool {
    store.discard(&mailer(), id, version).await.expect("answered")
}

async fn entry(store: &Arc<dyn EventStore>, id: &AggregateId) -> Option<Failure> {
    store.failure(&mailer(), id).await.expect("the entry is read")
}

async fn state(store: &Arc<dyn EventStore>, id: &AggregateId) -> Option<(FailureState, Version)> {
    entry(store, id).await.map(|failure| (failure.state, failure.from_version))
}

async fn counts(store: &Arc<dyn EventStore>) -> FailureCounts {
    store.failure_counts(&mailer()).await.expect("counted")
}

async fn first_attempt_makes_an_entry(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 3).await;
    assert_eq!(entry(store, &id).await, None, "nothing failed yet");
    let before = store.now().await.expect("the time");
    let failure = record(store, &commits[1]).await;
    let expected = Failure {
        subscription: mailer(),
        aggregate_id: id.clone(),
        partition: PartitionId::new(id.context().clone(), commits[1].partition),
        state: FailureState::Trying,
        commit: FailedCommit { position: commits[1].position, version: 2 },
        from_version: 2,
        attempts: 1,
        event: None,
        error: None,
        since: failure.since,
        updated_at: failure.since,
    };
    assert_eq!(failure, expected, "all that is known of it");
    assert!(failure.since >= before, "since now, by the store's clock");
    assert_eq!(entry(store, &id).await, Some(failure), "what is stored is what was answered");
}

async fn attempts_count_whatever_the_version(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    // Two failing commits that take turns do not reset each other's count.
    for (attempts, at) in (1..).zip([2, 3, 2, 3, 2, 0]) {
        let failure = record(store, &commits[at]).await;
        let version = commits[at].version;
        assert_eq!(
            (failure.attempts, failure.commit.version),
            (attempts, version),
            "one count per aggregate"
        );
        assert_eq!(failure.from_version, version, "the one that is tried is the one to go on from");
    }
    let other = stored_commits(store, &order("2"), 1).await;
    assert_eq!(record(store, &other[0]).await.attempts, 1, "another aggregate counts its own");
}

async fn attempts_of_many_nodes_all_count(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    let commits = stored_commits(&stores[0], &order("1"), 1).await;
    let mut counts = race(16, |n| {
        let (store, commit) = (Arc::clone(&stores[n % 2]), commits[0].clone());
        async move { record(&store, &commit).await.attempts }
    })
    .await;
    counts.sort_unstable();
    assert_eq!(counts, (1..=16).collect::<Vec<_>>(), "each attempt is counted once");
}

async fn success_starts_the_count_again(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 2).await;
    record(store, &commits[0]).await;
    record(store, &commits[0]).await;
    assert!(resolve(store, &commits[0]).await, "the handler succeeded: no entry any more");
    assert_eq!(entry(store, &id).await, None, "the entry is gone");
    assert_eq!(record(store, &commits[1]).await.attempts, 1, "a new failure counts from the start");
    park(store, &commits[1]).await;
    assert!(retry(store, &id).await, "it was parked");
    assert_eq!(entry(store, &id).await.expect("there").attempts, 0, "a retry has a new count");
    assert_eq!(record(store, &commits[1]).await.attempts, 1, "and counts from there");
    assert!(advance(store, &commits[1]).await, "handled");
    assert_eq!(entry(store, &id).await.expect("there").attempts, 0, "success while retrying starts anew too");
}

async fn park_keeps_what_failed(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 3).await;
    for _ in 0..2 {
        record(store, &commits[2]).await;
    }
    let tried = entry(store, &id).await.expect("tried");
    env.pass(std::time::Duration::from_millis(2)).await;
    let parked = park(store, &commits[2]).await;
    let expected = Failure {
        state: FailureState::Parked,
        event: Some("Happened".to_owned()),
        error: Some("broken at 3".to_owned()),
        updated_at: parked.updated_at,
        ..tried.clone()
    };
    assert_eq!(parked, expected, "position, version, event, error, attempts, since when");
    assert!(parked.updated_at > tried.updated_at, "and when it was parked");
    assert_eq!(entry(store, &id).await, Some(parked), "what is stored is what was answered");
}

async fn park_without_an_attempt_is_enough(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 1).await;
    let parked = store.park(Park::new(attempt(&commits[0]), "undecodable")).await.expect("parked");
    assert_eq!(
        (parked.state, parked.attempts, parked.event.clone()),
        (FailureState::Parked, 0, None),
        "at once"
    );
    assert_eq!(entry(store, &id).await, Some(parked), "stored");
}

async fn parked_one_keeps_its_first_failure(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    let first = park(store, &commits[1]).await;
    for at in [0, 1, 3] {
        assert_eq!(park(store, &commits[at]).await, first, "it stays parked at the commit it was parked at");
    }
    assert_eq!(entry(store, &id).await, Some(first), "nothing changed");
}

async fn parked_one_counts_no_attempts(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 3).await;
    let parked = park(store, &commits[0]).await;
    for commit in &commits {
        assert_eq!(record(store, commit).await, parked, "the handler is told that it must not run");
    }
    assert_eq!(entry(store, &id).await, Some(parked), "nothing changed");
}

async fn retry_starts_from_the_parked_commit(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    record(store, &commits[2]).await;
    let parked = park(store, &commits[2]).await;
    assert!(retry(store, &id).await, "it was parked");
    let failure = entry(store, &id).await.expect("there");
    let expected =
        Failure { state: FailureState::Retrying, attempts: 0, updated_at: failure.updated_at, ..parked };
    assert_eq!(failure, expected, "from the failed commit on, with a new count; what failed is still known");
    assert!(retry(store, &id).await, "asked twice, it is retrying already");
    assert_eq!(entry(store, &id).await, Some(failure), "and goes on as it was");
}

async fn retry_of_what_is_not_parked_says_so(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 1).await;
    assert!(!retry(store, &id).await, "there is no entry");
    let tried = record(store, &commits[0]).await;
    assert!(!retry(store, &id).await, "it is being tried");
    assert_eq!(entry(store, &id).await, Some(tried), "nothing changed");
}

async fn advance_moves_behind_the_commit_and_never_back(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 5).await;
    park(store, &commits[1]).await;
    retry(store, &id).await;
    for (at, from) in [(1, 3), (3, 5), (1, 5), (2, 5), (3, 5)] {
        assert!(advance(store, &commits[at]).await, "it is retrying");
        assert_eq!(state(store, &id).await, Some((FailureState::Retrying, from)), "behind it, never back");
    }
}

async fn advance_needs_a_retry(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 2).await;
    assert!(!advance(store, &commits[0]).await, "there is no entry");
    assert_eq!(entry(store, &id).await, None, "and none is made");
    let tried = record(store, &commits[0]).await;
    assert!(!advance(store, &commits[0]).await, "it is being tried");
    assert_eq!(entry(store, &id).await, Some(tried), "nothing changed");
    let parked = park(store, &commits[0]).await;
    assert!(!advance(store, &commits[0]).await, "it is parked");
    assert_eq!(entry(store, &id).await, Some(parked), "nothing changed");
}

async fn parked_again_while_retrying(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 5).await;
    let first = park(store, &commits[1]).await;
    retry(store, &id).await;
    advance(store, &commits[1]).await;
    let tried = record(store, &commits[2]).await;
    assert_eq!(
        (tried.state, tried.from_version, tried.attempts),
        (FailureState::Retrying, 3, 1),
        "still retrying"
    );
    let again = park(store, &commits[2]).await;
    assert_eq!((again.state, again.from_version), (FailureState::Parked, 3), "parked where it failed now");
    assert_eq!(again.commit.version, 3, "the commit that failed now");
    assert_eq!(
        (again.error.as_deref(), again.since),
        (Some("broken at 3"), first.since),
        "in the same entry"
    );
    assert!(retry(store, &id).await, "and can be retried again");
    assert_eq!(state(store, &id).await, Some((FailureState::Retrying, 3)), "from there");
}

async fn parking_while_retrying_skips_none(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    park(store, &commits[1]).await;
    retry(store, &id).await;
    let ahead = park(store, &commits[3]).await;
    assert_eq!((ahead.state, ahead.commit.version), (FailureState::Parked, 4), "parked where it failed");
    assert_eq!(ahead.from_version, 2, "2 and 3 were not handled");
    assert!(retry(store, &id).await, "it can be retried");
    assert_eq!(
        state(store, &id).await,
        Some((FailureState::Retrying, 2)),
        "from what is still to be handled"
    );
    advance(store, &commits[3]).await;
    let back = park(store, &commits[2]).await;
    assert_eq!(
        (back.state, back.from_version),
        (FailureState::Parked, 3),
        "the one that failed is to be handled"
    );
}

async fn discard_skips_no_more_than_one(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    park(store, &commits[1]).await;
    retry(store, &id).await;
    let ahead = park(store, &commits[3]).await;
    assert!(!discard(store, &id, 4).await, "2 and 3 would be skipped with it");
    assert_eq!(entry(store, &id).await, Some(ahead), "nothing changed");
    retry(store, &id).await;
    for commit in &commits[1..3] {
        advance(store, commit).await;
    }
    park(store, &commits[3]).await;
    assert!(discard(store, &id, 4).await, "those before it were handled");
    assert_eq!(state(store, &id).await, Some((FailureState::Retrying, 5)), "the rest is to be handled");
}

async fn resolve_needs_the_commit_that_failed(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    assert!(resolve(store, &commits[0]).await, "there is no entry");
    let tried = record(store, &commits[2]).await;
    assert!(!resolve(store, &commits[1]).await, "that an earlier one succeeded is old news");
    assert_eq!(entry(store, &id).await, Some(tried), "nothing changed");
    assert!(resolve(store, &commits[2]).await, "the one that was tried succeeded");
    assert_eq!(entry(store, &id).await, None, "the entry is gone");
    record(store, &commits[2]).await;
    assert!(resolve(store, &commits[3]).await, "a later one means that it is through");
}

async fn late_resolve_does_not_end_a_retry(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 5).await;
    park(store, &commits[2]).await;
    retry(store, &id).await;
    for commit in &commits[..2] {
        assert!(!resolve(store, commit).await, "it is to be handled from version 3 on");
    }
    assert_eq!(state(store, &id).await, Some((FailureState::Retrying, 3)), "nothing changed");
    for commit in &commits[2..4] {
        record(store, commit).await;
        advance(store, commit).await;
    }
    assert!(!resolve(store, &commits[2]).await, "it has come further than this");
    record(store, &commits[4]).await;
    assert!(!resolve(store, &commits[3]).await, "the next one is being tried");
    assert_eq!(state(store, &id).await, Some((FailureState::Retrying, 5)), "nothing changed");
    advance(store, &commits[4]).await;
    assert!(resolve(store, &commits[4]).await, "it has caught up");
    assert_eq!(entry(store, &id).await, None, "the entry is gone");
}

async fn resolve_leaves_a_parked_one(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 3).await;
    let parked = park(store, &commits[1]).await;
    for commit in &commits {
        assert!(!resolve(store, commit).await, "somebody has to decide");
    }
    assert_eq!(entry(store, &id).await, Some(parked), "nothing changed");
}

async fn discard_skips_one_commit_once(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 4).await;
    record(store, &commits[1]).await;
    let parked = park(store, &commits[1]).await;
    assert!(discard(store, &id, 2).await, "it was parked at this version");
    let failure = entry(store, &id).await.expect("there");
    let expected = Failure {
        state: FailureState::Retrying,
        from_version: 3,
        attempts: 0,
        updated_at: failure.updated_at,
        ..parked.clone()
    };
    assert_eq!(failure, expected, "the rest is to be handled");
    assert!(!discard(store, &id, 2).await, "asked twice, it skips one commit");
    assert!(!discard(store, &id, 3).await, "the next one has not failed");
    assert_eq!(entry(store, &id).await, Some(failure), "nothing changed");
    let discarded = store.discarded(&mailer(), 10).await.expect("listed");
    assert_eq!(discarded.len(), 1, "one is on record");
    assert_eq!((&discarded[0].aggregate_id, &discarded[0].commit), (&id, &parked.commit), "which");
    assert_eq!((&discarded[0].event, &discarded[0].error), (&parked.event, &parked.error), "and why");
    assert!(discarded[0].discarded_at >= parked.updated_at, "and when");
}

async fn discard_of_another_version_changes_nothing(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 3).await;
    assert!(!discard(store, &id, 2).await, "there is no entry");
    let tried = record(store, &commits[1]).await;
    assert!(!discard(store, &id, 2).await, "it is being tried");
    assert_eq!(entry(store, &id).await, Some(tried), "nothing changed");
    let parked = park(store, &commits[1]).await;
    for version in [0, 1, 3, u64::MAX] {
        assert!(!discard(store, &id, version).await, "it is parked at another version");
    }
    assert_eq!(entry(store, &id).await, Some(parked), "nothing changed");
    assert_eq!(counts(store).await.discarded, 0, "and nothing is on record");
}

/// A subscription as small as can be: it handles every commit once its aggregate's turn has come, and those in
/// `poison` fail.
#[derive(Default)]
struct Handler {
    handled: BTreeMap<AggregateId, Vec<Version>>,
    poison: Vec<(AggregateId, Version)>,
}

impl Handler {
    fn handle(&mut self, commit: &RecordedCommit) -> bool {
        if self.poison.contains(&(commit.aggregate_id.clone(), commit.version)) {
            return false;
        }
        self.handled.entry(commit.aggregate_id.clone()).or_default().push(commit.version);
        true
    }

    /// What the owner of the partition does with a commit from the log.
    async fn live(&mut self, store: &Arc<dyn EventStore>, commit: &RecordedCommit) {
        match entry(store, &commit.aggregate_id).await.map(|failure| failure.state) {
            Some(FailureState::Parked | FailureState::Retrying) => {}
            Some(FailureState::Trying) | None => {
                record(store, commit).await;
                if self.handle(commit) {
                    resolve(store, commit).await;
                } else {
                    park(store, commit).await;
                }
            }
        }
    }

    /// What it does now and then: it goes on with those that are to be retried.
    async fn catch_up(&mut self, store: &Arc<dyn EventStore>) {
        let list = ListFailures::new(mailer()).with_state(FailureState::Retrying);
        for failure in store.failures(list).await.expect("listed") {
            let commits = load(store, &failure.aggregate_id).await;
            let mut last = None;
            for commit in commits.iter().filter(|commit| commit.version >= failure.from_version) {
                record(store, commit).await;
                if !self.handle(commit) {
                    park(store, commit).await;
                    last = None;
                    break;
                }
                advance(store, commit).await;
                last = Some(commit);
            }
            if let Some(last) = last {
                assert!(resolve(store, last).await, "it has caught up");
            }
        }
    }
}

async fn later_commits_wait_then_go_on_in_order(env: Env) {
    let (store, a, b) = (env.store(), order("a"), order("b"));
    let mut handler = Handler { poison: vec![(a.clone(), 3)], ..Handler::default() };
    append_many(store, &a, "c", 3).await;
    for commit in load(store, &a).await {
        handler.live(store, &commit).await;
    }
    append_many(store, &a, "d", 3).await;
    append_many(store, &b, "c", 10).await;
    for commit in load(store, &a).await.iter().skip(3).chain(&load(store, &b).await) {
        handler.live(store, commit).await;
    }
    assert_eq!(handler.handled[&a], [1, 2], "the parked aggregate waits");
    assert_eq!(handler.handled[&b], (1..=10).collect::<Vec<_>>(), "the other goes on");
    assert_eq!(counts(store).await.parked, 1, "it is seen to wait");
    handler.catch_up(store).await;
    assert_eq!(handler.handled[&a], [1, 2], "until somebody decides");
    retry(store, &a).await;
    handler.catch_up(store).await;
    assert_eq!(state(store, &a).await, Some((FailureState::Parked, 3)), "it failed again, and waits again");
    handler.poison.clear();
    retry(store, &a).await;
    handler.catch_up(store).await;
    assert_eq!(handler.handled[&a], [1, 2, 3, 4, 5, 6], "from the failed one on, in order, none skipped");
    assert_eq!(counts(store).await, FailureCounts::default(), "nothing is left");
}

async fn discarded_commit_is_never_handled_again(mut env: Env) {
    let a = order("a");
    let mut handler = Handler { poison: vec![(a.clone(), 3), (a.clone(), 5)], ..Handler::default() };
    append_many(env.store(), &a, "c", 6).await;
    for commit in load(env.store(), &a).await {
        handler.live(env.store(), &commit).await;
    }
    assert!(discard(env.store(), &a, 3).await, "parked at 3");
    env.reopen().await;
    handler.catch_up(env.store()).await;
    assert_eq!(handler.handled[&a], [1, 2, 4], "3 is skipped, 4 is handled, 5 fails");
    assert_eq!(state(env.store(), &a).await, Some((FailureState::Parked, 5)), "and it waits there");
    assert!(discard(env.store(), &a, 5).await, "parked at 5");
    handler.catch_up(env.store()).await;
    assert_eq!(handler.handled[&a], [1, 2, 4, 6], "the rest is handled");
    let expected = FailureCounts { discarded: 2, ..FailureCounts::default() };
    assert_eq!(counts(env.store()).await, expected, "what was skipped is on record");
    // One that was the last: nothing is left to handle behind it.
    let commits = append_many(env.store(), &a, "d", 1).await;
    let last = load(env.store(), &a).await.pop().expect("the new one");
    park(env.store(), &last).await;
    assert!(discard(env.store(), &a, commits[0].version).await, "parked at 7");
    assert!(resolve(env.store(), &last).await, "with the last one discarded it has caught up");
}

async fn counts_by_state(env: Env) {
    let store = env.store();
    assert_eq!(counts(store).await, FailureCounts::default(), "nothing yet");
    for n in 0..10 {
        let id = order(n.to_string());
        let commits = stored_commits(store, &id, 2).await;
        record(store, &commits[0]).await;
        if n >= 1 {
            park(store, &commits[0]).await;
        }
        if n >= 4 {
            retry(store, &id).await;
        }
        if n >= 6 {
            park(store, &commits[0]).await;
            discard(store, &id, 1).await;
        }
    }
    let expected = FailureCounts { trying: 1, parked: 3, retrying: 6, discarded: 4 };
    assert_eq!(counts(store).await, expected, "each is in one state");
    let other = store.failure_counts(&subscription("printer")).await.expect("counted");
    assert_eq!(other, FailureCounts::default(), "another subscription has none");
}

async fn list_pages_by_aggregate(env: Env) {
    let store = env.store();
    let acme = |id: &str| order(id).with_tenant("acme").expect("a valid tenant");
    let cart = AggregateId::new("shop", "cart", "5").expect("a valid id");
    let bank = AggregateId::new("bank", "order", "5").expect("a valid id");
    let mut ids =
        vec![acme("2"), order("10"), order("2"), cart, order("é"), bank, order("B"), acme("1"), order("a")];
    for id in &ids {
        let commits = stored_commits(store, id, 1).await;
        park(store, &commits[0]).await;
    }
    ids.sort();
    for limit in [1, 2, 4, 100] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let list = ListFailures { after: after.clone(), ..ListFailures::new(mailer()) }.with_limit(limit);
            let page = store.failures(list).await.expect("listed");
            assert!(page.len() <= limit, "at most as many as asked for");
            let Some(last) = page.last() else { break };
            after = Some(last.aggregate_id.clone());
            seen.extend(page.into_iter().map(|failure| failure.aggregate_id));
        }
        assert_eq!(seen, ids, "each once, by aggregate id, in pages of {limit}");
    }
}

async fn list_filters(env: Env) {
    let store = env.store();
    let mut partitions = BTreeMap::new();
    for n in 0..12 {
        let id = order(format!("{n:02}"));
        let commits = stored_commits(store, &id, 1).await;
        let failure = record(store, &commits[0]).await;
        if n % 3 > 0 {
            park(store, &commits[0]).await;
        }
        if n % 3 == 2 {
            retry(store, &id).await;
        }
        partitions.insert(id, failure.partition);
    }
    for (state, expected) in
        [(FailureState::Trying, 0), (FailureState::Parked, 1), (FailureState::Retrying, 2)]
    {
        let found = store.failures(ListFailures::new(mailer()).with_state(state)).await.expect("listed");
        let found: Vec<String> = found.iter().map(|failure| failure.aggregate_id.id().to_owned()).collect();
        let expected: Vec<String> = (0..4).map(|n| format!("{:02}", n * 3 + expected)).collect();
        assert_eq!(found, expected, "only those in this state");
    }
    let partition = partitions[&order("05")].clone();
    let list = ListFailures::new(mailer()).with_partition(partition.clone()).after(order("02"));
    let found = store.failures(list).await.expect("listed");
    let found: Vec<&AggregateId> = found.iter().map(|failure| &failure.aggregate_id).collect();
    let expected: Vec<&AggregateId> = partitions
        .iter()
        .filter(|(id, at)| **at == partition && **id > order("02"))
        .map(|(id, _)| id)
        .collect();
    assert_eq!(found, expected, "only those of this partition behind that one");
    let none = store.failures(ListFailures::new(mailer()).with_limit(0)).await.expect("listed");
    assert_eq!(none, [], "none asked for, none given");
}

async fn discarded_are_listed_newest_first(env: Env) {
    let (store, ids) = (env.store(), ["c", "a", "b"].map(order));
    for id in &ids {
        let commits = stored_commits(store, id, 2).await;
        for commit in &commits {
            park(store, commit).await;
            assert!(discard(store, id, commit.version).await, "parked there");
        }
    }
    let listed = |limit| async move {
        let discarded = store.discarded(&mailer(), limit).await.expect("listed");
        let short = discarded.iter().map(|it| format!("{}{}", it.aggregate_id.id(), it.commit.version));
        short.collect::<Vec<_>>()
    };
    assert_eq!(listed(10).await, ["b2", "b1", "a2", "a1", "c2", "c1"], "the newest first");
    assert_eq!(listed(2).await, ["b2", "b1"], "at most as many as asked for");
    assert_eq!(listed(0).await, [""; 0], "none asked for, none given");
    let other = store.discarded(&subscription("printer"), 10).await.expect("listed");
    assert_eq!(other, [], "another subscription has none");
}

async fn error_text_is_cut(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 1).await;
    // A character of 2 bytes lies across the limit.
    let long = format!("x{}", "é".repeat(MAX_FAILURE_TEXT_BYTES));
    let park = Park::new(attempt(&commits[0]), long.clone()).with_event(long.clone());
    let parked = store.park(park).await.expect("a long text keeps nothing from being parked");
    let kept = &long[..MAX_FAILURE_TEXT_BYTES - 1];
    assert_eq!(parked.error.as_deref(), Some(kept), "cut at the last character that fits");
    assert_eq!(parked.event.as_deref(), Some(kept), "the event's name too");
    assert_eq!(entry(store, &id).await, Some(parked), "and stored so");
    let other = stored_commits(store, &order("2"), 1).await;
    let exact = "é".repeat(MAX_FAILURE_TEXT_BYTES / 2);
    let parked = store.park(Park::new(attempt(&other[0]), exact.clone())).await.expect("parked");
    assert_eq!(parked.error, Some(exact), "what just fits is kept whole");
}

async fn nul_does_not_keep_from_parking(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 1).await;
    let park = Park::new(attempt(&commits[0]), "a\0b\u{1}\n\"'\\{}\0").with_event("\0");
    let parked = store.park(park).await.expect("no text keeps an aggregate from being parked");
    assert_eq!(parked.error.as_deref(), Some("ab\u{1}\n\"'\\{}"), "all but U+0000 is kept");
    assert_eq!(parked.event.as_deref(), Some(""), "nothing is left of it");
    assert_eq!(entry(store, &id).await, Some(parked), "stored so");
}

async fn subscriptions_are_separate(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 2).await;
    let parked = park(store, &commits[0]).await;
    let (printer, mailer_upper) = (subscription("printer"), subscription("Mailer"));
    for other in [&printer, &mailer_upper] {
        assert_eq!(store.failure(other, &id).await.expect("read"), None, "it did not fail there");
        assert!(!store.retry(other, &id).await.expect("answered"), "it is not parked there");
        assert!(!store.discard(other, &id, 1).await.expect("answered"), "it is not parked there");
        let tried = store.record_attempt(Attempt::new(other.clone(), &commits[1])).await.expect("counted");
        assert_eq!((tried.state, tried.attempts), (FailureState::Trying, 1), "it counts its own");
        assert!(store.resolve(Attempt::new(other.clone(), &commits[1])).await.expect("answered"), "its own");
    }
    assert_eq!(entry(store, &id).await, Some(parked), "the first one's is untouched");
}

async fn invalid_attempts_are_refused(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let commits = stored_commits(store, &id, 1).await;
    let right = attempt(&commits[0]);
    let at = |position, version| Attempt { commit: FailedCommit { position, version }, ..right.clone() };
    let elsewhere = AggregateId::new("bank", "account", "1").expect("a valid id");
    let wrong = [
        at(0, 1),
        at(1, 0),
        at(MAX_COUNTER + 1, 1),
        at(1, MAX_COUNTER + 1),
        right.clone().with_epoch(MAX_COUNTER + 1),
        Attempt { aggregate_id: elsewhere, ..right.clone() },
    ];
    for attempt in wrong {
        let errors = [
            store.record_attempt(attempt.clone()).await.map(drop),
            store.park(Park::new(attempt.clone(), "broken")).await.map(drop),
            store.advance(attempt.clone()).await.map(drop),
            store.resolve(attempt.clone()).await.map(drop),
        ];
        for error in errors {
            let error = error.expect_err("no such commit can have failed");
            assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
            assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was written");
        }
    }
    assert_eq!(counts(store).await, FailureCounts::default(), "nothing was stored");
    let last = store.record_attempt(at(MAX_COUNTER, MAX_COUNTER)).await.expect("the outermost are fine");
    assert_eq!(last.commit, FailedCommit { position: MAX_COUNTER, version: MAX_COUNTER }, "and kept exactly");
}

async fn survives_reopen(mut env: Env) {
    let ids = ["trying", "parked", "retrying", "discarded"].map(order);
    for (n, id) in ids.iter().enumerate() {
        let commits = stored_commits(env.store(), id, 2).await;
        record(env.store(), &commits[0]).await;
        if n > 0 {
            park(env.store(), &commits[0]).await;
        }
        if n == 2 {
            retry(env.store(), id).await;
        }
        if n == 3 {
            discard(env.store(), id, 1).await;
        }
    }
    let all = async |store: &Arc<dyn EventStore>| {
        let failures = store.failures(ListFailures::new(mailer())).await.expect("listed");
        (failures, counts(store).await, store.discarded(&mailer(), 10).await.expect("listed"))
    };
    let before = all(env.store()).await;
    env.reopen().await;
    assert_eq!(all(env.store()).await, before, "all as it was");
}
