//! Reservations and timers that ride in an append (R5).

use std::{sync::Arc, time::Duration};

use wow_store_api::{
    AggregateId, Commit, ContextName, Due, Error, ErrorKind, EventStore, ExpectedVersion, Fence,
    ListReservations, MAX_RIDERS, MAX_TTL, Outcome, Position, Reservation, ScheduleTimer, StoreExt as _,
    Timer, TimerOp,
};

use super::{
    lease::group,
    reservation::{confirming, holder, key, owner, releasing, reservation, reserving, scope, swapping},
    support::{HOUR, member, partition, race},
    timer::{scheduling, timer_id, timers},
};
use crate::{
    case::topic,
    env::{Env, commit, order, shop},
};

topic! { "riders":
    ride_in_with_their_commit [R5, L1],
    version_conflict_takes_them_all_back [R5, L1, L2],
    fenced_append_takes_them_all_back [R5, L1, L7],
    taken_key_stores_nothing [R5, L1],
    key_not_held_stores_nothing [R5, R3, L1],
    expired_key_cannot_be_confirmed [R5, R3],
    existing_timer_stores_nothing [R5, M2, L1],
    replacing_timer_rides_in [R5, M2],
    cancel_of_an_absent_timer_is_fine [R5, M2],
    appends_race_for_one_key [R5, R1],
    append_races_a_plain_reserve [R5, R1],
    appends_race_for_one_timer [R5, M2],
    replay_does_not_run_them_again [R5, L3],
    keys_see_earlier_riders [R5],
    timers_see_earlier_riders [R5],
    ride_in_several_commits [R5, L11],
    one_refused_rider_refuses_all_commits [R5, L11],
    number_is_limited [R5],
    expiry_has_bounds [R5, R2],
    timers_are_of_the_commits_context [R5],
    fence_of_the_commit_counts [R5, L7],
    version_is_looked_at_first [R5, L2],
    survive_reopen [R5, M1],
}

fn timer(id: &str) -> TimerOp {
    TimerOp::Schedule(scheduling(id, Due::After(HOUR)))
}

fn cancel(id: &str) -> TimerOp {
    TimerOp::Cancel { context: shop(), id: timer_id(id) }
}

/// All that riders and their commits could have changed.
type Everything = (Vec<Position>, Vec<Reservation>, Vec<Timer>);

async fn everything(store: &Arc<dyn EventStore>) -> Everything {
    (
        store.heads(&shop()).await.expect("heads"),
        store.reservations(ListReservations::default()).await.expect("reservations"),
        timers(store).await,
    )
}

/// Appends what must be refused, and checks that nothing of it is there.
async fn refused(store: &Arc<dyn EventStore>, commits: Vec<Commit>) -> Error {
    // Also a refused append may be the first use of its context.
    store.partitions(&shop()).await.expect("the context is used");
    let before = everything(store).await;
    let error = match <[Commit; 1]>::try_from(commits) {
        Ok([commit]) => store.append(commit).await.map(drop),
        Err(commits) => store.append_all(commits).await.map(drop),
    }
    .expect_err("a rider is refused");
    assert_eq!(error.outcome(), Outcome::NotApplied, "it says that nothing was stored");
    assert_eq!(everything(store).await, before, "neither the commit nor any of its riders: {error:?}");
    error
}

/// A key and a timer that are there before.
async fn prepare(store: &Arc<dyn EventStore>) {
    store.reserve(reserving("old", "o", HOUR)).await.expect("reserved");
    store.schedule_timer(scheduling("old", Due::After(HOUR))).await.expect("scheduled");
}

/// A commit with a rider of every kind, all of which would go through.
fn laden(id: &AggregateId, command: &str) -> Commit {
    commit(id, command)
        .reservation(reserving("new", "o", HOUR))
        .reservation(confirming("old", "o"))
        .reservation(swapping("old", "other", "o"))
        .timer(timer("new"))
        .timer(cancel("old"))
}

async fn ride_in_with_their_commit(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    let target = order("1").with_tenant("acme").expect("a valid tenant");
    let with_target = scheduling("targeted", Due::After(HOUR)).with_target(target.clone());
    let receipt = store.append(laden(&id, "c").timer(TimerOp::Schedule(with_target))).await.expect("stored");
    assert_eq!((receipt.version, receipt.replayed), (1, false), "the commit is stored");
    let new = reservation(store, "new").await.expect("reserved");
    assert_eq!(new.expires_at, Some(new.reserved_at.saturating_add(HOUR)), "with its expiry");
    assert_eq!(holder(store, "old").await, None, "swapped away");
    let other = reservation(store, "other").await.expect("swapped in");
    assert_eq!((other.owner, other.expires_at), (owner("o"), None), "as it was confirmed before");
    let stored = timers(store).await;
    let ids: Vec<&str> = stored.iter().map(|timer| timer.id.as_str()).collect();
    assert_eq!(ids, ["new", "targeted"], "scheduled and cancelled");
    assert_eq!(stored[1].target, Some(target), "whole");
    assert_eq!(stored[0].due_at, stored[0].scheduled_at.saturating_add(HOUR), "due by the store's clock");
    store.append(commit(&id, "d").reservation(releasing("new", "o"))).await.expect("stored");
    assert_eq!(holder(store, "new").await, None, "released");
}

async fn version_conflict_takes_them_all_back(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    store.append(commit(&id, "first")).await.expect("stored");
    let error = refused(store, vec![laden(&id, "c").expect(ExpectedVersion::NoStream)]).await;
    assert!(matches!(error.kind(), ErrorKind::VersionConflict { .. }), "the version decides: {error:?}");
    store
        .append(laden(&id, "c").expect(ExpectedVersion::Exact(1)))
        .await
        .expect("the same command goes through");
}

async fn fenced_append_takes_them_all_back(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    let fence = |epoch| Fence { group: group(), partition: partition(0), epoch };
    store.append(commit(&id, "first").fenced(fence(2))).await.expect("stored");
    let error = refused(store, vec![laden(&id, "c").fenced(fence(1))]).await;
    assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "the writer was overtaken: {error:?}");
    store.append(laden(&id, "c").fenced(fence(2))).await.expect("the same command of the owner goes through");
}

async fn taken_key_stores_nothing(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    store.reserve(reserving("taken", "them", None)).await.expect("reserved");
    store.reserve(reserving("mine", "o", None)).await.expect("reserved");
    let ops = [
        reserving("taken", "o", HOUR),
        confirming("taken", "o"),
        releasing("taken", "o"),
        swapping("taken", "free", "o"),
        swapping("mine", "taken", "o"),
    ];
    for op in ops {
        let error = refused(store, vec![laden(&id, "c").reservation(op)]).await;
        let ErrorKind::ReservationTaken { scope: of, key: taken, owner: by } = error.kind() else {
            panic!("the key is taken: {error:?}")
        };
        assert_eq!((of, taken, by), (&scope(), &key("taken"), &owner("them")), "it says which and by whom");
    }
    store.append(laden(&id, "c")).await.expect("without it, the same command goes through");
}

async fn key_not_held_stores_nothing(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    for op in [confirming("free", "o"), releasing("free", "o"), swapping("free", "wanted", "o")] {
        let error = refused(store, vec![laden(&id, "c").reservation(op)]).await;
        let ErrorKind::ReservationNotHeld { scope: of, key: free } = error.kind() else {
            panic!("the key is not held: {error:?}")
        };
        assert_eq!((of, free), (&scope(), &key("free")), "it says which");
    }
}

async fn expired_key_cannot_be_confirmed(env: Env) {
    let (store, id) = (env.store(), order("1"));
    for of in ["free", "taken"] {
        store.reserve(reserving(of, "o", env.ttl())).await.expect("reserved");
    }
    env.pass(env.ttl()).await;
    store.reserve(reserving("taken", "them", None)).await.expect("it is free again");
    let error = refused(store, vec![commit(&id, "c").reservation(confirming("free", "o"))]).await;
    assert!(matches!(error.kind(), ErrorKind::ReservationNotHeld { .. }), "it expired: {error:?}");
    let error = refused(store, vec![commit(&id, "c").reservation(confirming("taken", "o"))]).await;
    assert!(matches!(error.kind(), ErrorKind::ReservationTaken { .. }), "it was taken since: {error:?}");
    store
        .append(commit(&id, "c").reservation(reserving("free", "p", HOUR)))
        .await
        .expect("it is free at once");
}

async fn existing_timer_stores_nothing(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    store.schedule_timer(scheduling("there", Due::After(2 * HOUR))).await.expect("scheduled");
    let error = refused(store, vec![laden(&id, "c").timer(timer("there"))]).await;
    let ErrorKind::TimerExists { id: there } = error.kind() else { panic!("it is there: {error:?}") };
    assert_eq!(there, &timer_id("there"), "it says which");
    store.append(laden(&id, "c")).await.expect("without it, the same command goes through");
}

async fn replacing_timer_rides_in(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let due = Due::At(wow_store_api::Timestamp::UNIX_EPOCH);
    store.schedule_timer(scheduling("there", due)).await.expect("scheduled");
    let claim = wow_store_api::ClaimTimers::new(shop(), member("m"), HOUR);
    let claimed = store.claim_timers(claim).await.expect("claimed");
    let new = ScheduleTimer::new(shop(), timer_id("there"), Due::After(HOUR), &"new").expect("valid");
    store.append(commit(&id, "c").timer(TimerOp::Schedule(new.replacing()))).await.expect("stored");
    let stored = timers(store).await;
    assert_eq!((stored.len(), stored[0].body.as_json()), (1, r#""new""#), "in place of the old one");
    assert_eq!((stored[0].attempts, &stored[0].claim), (0, &None), "without its claim");
    let token = claimed[0].token().expect("it was claimed");
    assert!(!store.complete_timer(&token).await.expect("answered"), "which is void");
}

async fn cancel_of_an_absent_timer_is_fine(env: Env) {
    let (store, id) = (env.store(), order("1"));
    store.append(commit(&id, "c").timer(cancel("absent"))).await.expect("no reason to refuse it");
    assert_eq!(store.head(&id).await.expect("the head"), 1, "the commit is stored");
    assert_eq!(timers(store).await, [], "nothing else");
}

async fn appends_race_for_one_key(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..5 {
        let results = race(16, |n| {
            let (store, of) = (Arc::clone(&stores[n % 2]), format!("k{round}"));
            let wanted = reserving(&of, &format!("o{n}"), None);
            let commit = commit(&order(format!("{round}-{n}")), "c").reservation(wanted);
            async move { store.append(commit).await }
        })
        .await;
        let held_by = holder(&stores[0], &format!("k{round}")).await;
        let mut winners = Vec::new();
        for (n, result) in results.into_iter().enumerate() {
            let head = stores[0].head(&order(format!("{round}-{n}"))).await.expect("the head");
            match result {
                Ok(_) => {
                    winners.push(format!("o{n}"));
                    assert_eq!(head, 1, "the winner's commit is stored");
                }
                Err(error) => {
                    let taken = matches!(error.kind(), ErrorKind::ReservationTaken { .. });
                    assert!(taken, "the losers are told that it is taken: {error:?}");
                    assert_eq!(head, 0, "and their commits are not stored");
                }
            }
        }
        assert_eq!((winners.len(), winners.pop()), (1, held_by), "one winner, who holds the key");
    }
}

async fn append_races_a_plain_reserve(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..10 {
        let (of, id) = (format!("k{round}"), order(round.to_string()));
        let stored = race(2, |n| {
            let (store, of, id) = (Arc::clone(&stores[n]), of.clone(), id.clone());
            async move {
                if n == 0 {
                    return store
                        .append(commit(&id, "c").reservation(reserving(&of, "rider", HOUR)))
                        .await
                        .is_ok();
                }
                let outcome = store.reserve(reserving(&of, "plain", HOUR)).await.expect("answered");
                matches!(outcome, wow_store_api::ReservationOutcome::Held(_))
            }
        })
        .await;
        assert_ne!(stored[0], stored[1], "exactly one of them gets it");
        let expected = if stored[0] { "rider" } else { "plain" };
        assert_eq!(holder(&stores[0], &of).await.as_deref(), Some(expected), "the one that was told so");
        let head = stores[0].head(&id).await.expect("the head");
        assert_eq!(head, u64::from(stored[0]), "the commit is there if and only if its key is");
    }
}

async fn appends_race_for_one_timer(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    let results = race(16, |n| {
        let store = Arc::clone(&stores[n % 2]);
        let commit = commit(&order(n.to_string()), "c").timer(timer("one"));
        async move { store.append(commit).await }
    })
    .await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 15), "exactly one schedules it");
    for error in lost.into_iter().filter_map(Result::err) {
        assert!(matches!(error.kind(), ErrorKind::TimerExists { .. }), "the losers are told: {error:?}");
    }
    let heads = stores[0].heads(&shop()).await.expect("heads");
    assert_eq!((heads.iter().sum::<u64>(), timers(&stores[0]).await.len()), (1, 1), "one commit, one timer");
}

async fn replay_does_not_run_them_again(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    let first = store.append(laden(&id, "c")).await.expect("stored");
    let before = everything(store).await;
    let again = store.append(laden(&id, "c")).await.expect("a replay");
    assert_eq!((again.position, again.replayed), (first.position, true), "the first receipt");
    assert_eq!(everything(store).await, before, "the riders were not run again");
    // Also after what they did was undone.
    store.reserve(releasing("new", "o")).await.expect("released");
    store.cancel_timer(&shop(), &timer_id("new")).await.expect("cancelled");
    store.reserve(reserving("new", "them", None)).await.expect("reserved");
    let before = everything(store).await;
    for replay in [laden(&id, "c"), laden(&id, "c").expect(ExpectedVersion::NoStream)] {
        let again = store.append_all([replay]).await.expect("a replay, whatever its riders would come to");
        assert!(again[0].replayed, "it says so");
    }
    assert_eq!(everything(store).await, before, "nothing of it came back");
}

async fn keys_see_earlier_riders(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let chain = commit(&id, "c")
        .reservation(reserving("a", "o", HOUR))
        .reservation(swapping("a", "b", "o"))
        .reservation(reserving("a", "p", HOUR))
        .reservation(releasing("b", "o"))
        .reservation(reserving("b", "p", HOUR))
        .reservation(confirming("b", "p"));
    store.append(chain).await.expect("each sees what those before it did");
    assert_eq!(holder(store, "a").await.as_deref(), Some("p"), "given back and taken by another");
    let b = reservation(store, "b").await.expect("held");
    assert_eq!((b.owner, b.expires_at), (owner("p"), None), "reserved and confirmed");
    let twice =
        commit(&id, "d").reservation(reserving("x", "o", HOUR)).reservation(reserving("x", "p", HOUR));
    let error = refused(store, vec![twice]).await;
    assert!(matches!(error.kind(), ErrorKind::ReservationTaken { .. }), "taken just before: {error:?}");
    let gone = commit(&id, "d").reservation(releasing("a", "p")).reservation(confirming("a", "p"));
    let error = refused(store, vec![gone]).await;
    assert!(matches!(error.kind(), ErrorKind::ReservationNotHeld { .. }), "released just before: {error:?}");
}

async fn timers_see_earlier_riders(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    let replaced = scheduling("b", Due::At(wow_store_api::Timestamp::UNIX_EPOCH)).replacing();
    let chain = commit(&id, "c")
        .timer(cancel("old"))
        .timer(timer("old"))
        .timer(timer("a"))
        .timer(cancel("a"))
        .timer(timer("b"))
        .timer(TimerOp::Schedule(replaced));
    store.append(chain).await.expect("each sees what those before it did");
    let stored = timers(store).await;
    let ids: Vec<&str> = stored.iter().map(|timer| timer.id.as_str()).collect();
    assert_eq!(ids, ["b", "old"], "cancelled and scheduled in order");
    assert_eq!(stored[0].due_at, wow_store_api::Timestamp::UNIX_EPOCH, "the last one of an id stays");
    let twice = commit(&id, "d").timer(timer("x")).timer(timer("x"));
    let error = refused(store, vec![twice]).await;
    assert!(matches!(error.kind(), ErrorKind::TimerExists { .. }), "scheduled just before: {error:?}");
}

async fn ride_in_several_commits(env: Env) {
    let (store, a, b) = (env.store(), order("a"), AggregateId::new("bank", "account", "b").expect("valid"));
    let bank = ContextName::new("bank").expect("a valid name");
    let bank_timer = ScheduleTimer::new(bank.clone(), timer_id("t"), Due::After(HOUR), &1).expect("valid");
    let commits = [
        commit(&a, "1").reservation(reserving("k", "a", HOUR)).timer(timer("t")),
        commit(&b, "1").reservation(releasing("k", "a")).timer(TimerOp::Schedule(bank_timer)),
        commit(&a, "2").reservation(reserving("k", "b", None)).timer(cancel("t")).timer(timer("u")),
    ];
    let receipts = store.append_all(commits).await.expect("each sees what those before it did");
    assert_eq!(
        receipts.iter().map(|receipt| receipt.version).collect::<Vec<_>>(),
        [1, 1, 2],
        "all are stored"
    );
    assert_eq!(holder(store, "k").await.as_deref(), Some("b"), "handed over");
    let here = timers(store).await;
    assert_eq!(here.iter().map(|timer| timer.id.as_str()).collect::<Vec<_>>(), ["u"], "in order");
    assert_eq!(store.timers(&bank, None, 9).await.expect("listed").len(), 1, "in each its own context");
}

async fn one_refused_rider_refuses_all_commits(env: Env) {
    let (store, a, b) = (env.store(), order("a"), order("b"));
    prepare(store).await;
    store.append(commit(&a, "stored")).await.expect("stored");
    let taken = vec![laden(&a, "1"), commit(&b, "1").reservation(reserving("new", "them", HOUR))];
    let error = refused(store, taken).await;
    assert!(matches!(error.kind(), ErrorKind::ReservationTaken { .. }), "by the commit before: {error:?}");
    let exists = vec![laden(&a, "1"), commit(&b, "1").timer(timer("new"))];
    let error = refused(store, exists).await;
    assert!(matches!(error.kind(), ErrorKind::TimerExists { .. }), "by the commit before: {error:?}");
    let conflict = vec![laden(&a, "1"), commit(&b, "1").expect(ExpectedVersion::Exact(7))];
    let error = refused(store, conflict).await;
    assert!(matches!(error.kind(), ErrorKind::VersionConflict { .. }), "the last one's version: {error:?}");
    // A replayed commit among them runs none of its riders, and the rest goes through.
    let replayed = [commit(&a, "stored").reservation(reserving("x", "o", None)), laden(&b, "1")];
    let receipts = store.append_all(replayed).await.expect("stored");
    assert_eq!((receipts[0].replayed, receipts[1].replayed), (true, false), "one replayed, one stored");
    assert_eq!(holder(store, "x").await, None, "what is replayed does nothing");
}

async fn number_is_limited(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let with = |count: usize| {
        (0..count).fold(commit(&id, "c"), |commit, n| match n % 2 {
            0 => commit.reservation(reserving(&format!("k{n}"), "o", HOUR)),
            _ => commit.timer(timer(&format!("t{n}"))),
        })
    };
    let error = refused(store, vec![with(MAX_RIDERS + 1)]).await;
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "one too many: {error:?}");
    store.append(with(MAX_RIDERS)).await.expect("the most are fine");
    let (_, reservations, timers) = everything(store).await;
    assert_eq!((reservations.len(), timers.len()), (MAX_RIDERS / 2, MAX_RIDERS / 2), "and all are there");
}

async fn expiry_has_bounds(env: Env) {
    let (store, id) = (env.store(), order("1"));
    for expires_in in [Duration::ZERO, MAX_TTL + Duration::from_nanos(1)] {
        let error = refused(store, vec![commit(&id, "c").reservation(reserving("k", "o", expires_in))]).await;
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
    }
    store
        .append(commit(&id, "c").reservation(reserving("k", "o", MAX_TTL)))
        .await
        .expect("the longest is fine");
    assert_eq!(holder(store, "k").await.as_deref(), Some("o"), "and held");
}

async fn timers_are_of_the_commits_context(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let bank = ContextName::new("bank").expect("a valid name");
    let elsewhere = ScheduleTimer::new(bank.clone(), timer_id("t"), Due::After(HOUR), &1).expect("valid");
    store.schedule_timer(elsewhere.clone()).await.expect("on its own it can be anywhere");
    for op in [
        TimerOp::Schedule(elsewhere.replacing()),
        TimerOp::Cancel { context: bank.clone(), id: timer_id("t") },
    ] {
        let error = refused(store, vec![commit(&id, "c").timer(op)]).await;
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
    }
    assert_eq!(store.timers(&bank, None, 9).await.expect("listed").len(), 1, "that one is untouched");
    store.append(commit(&id, "c").timer(timer("t"))).await.expect("one of its own context rides in");
    assert_eq!(timers(store).await.len(), 1, "and is there");
}

async fn fence_of_the_commit_counts(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let fence = |epoch| Fence { group: group(), partition: partition(0), epoch };
    store.append(commit(&id, "first").fenced(fence(2))).await.expect("stored");
    let stale = TimerOp::Schedule(scheduling("t", Due::After(HOUR)).fenced(fence(1)));
    store
        .append(commit(&id, "c").timer(stale).fenced(fence(2)))
        .await
        .expect("the timer's own is not looked at");
    assert_eq!(timers(store).await.len(), 1, "it is scheduled");
}

async fn version_is_looked_at_first(env: Env) {
    let (store, id) = (env.store(), order("1"));
    prepare(store).await;
    store.append(commit(&id, "first")).await.expect("stored");
    let all_wrong = commit(&id, "c")
        .expect(ExpectedVersion::NoStream)
        .reservation(reserving("old", "them", HOUR))
        .timer(timer("old"));
    let error = refused(store, vec![all_wrong]).await;
    assert!(
        matches!(error.kind(), ErrorKind::VersionConflict { .. }),
        "version, then keys, then timers: {error:?}"
    );
    let both_wrong = commit(&id, "c").timer(timer("old")).reservation(reserving("old", "them", HOUR));
    let error = refused(store, vec![both_wrong]).await;
    assert!(matches!(error.kind(), ErrorKind::ReservationTaken { .. }), "keys before timers: {error:?}");
}

async fn survive_reopen(mut env: Env) {
    let id = order("1");
    prepare(env.store()).await;
    let due = TimerOp::Schedule(scheduling("due", Due::After(Duration::ZERO)));
    env.store().append(laden(&id, "c").timer(due)).await.expect("stored");
    let before = everything(env.store()).await;
    env.reopen().await;
    assert_eq!(everything(env.store()).await, before, "all as it was");
    let claim = wow_store_api::ClaimTimers::new(shop(), member("m"), HOUR);
    let claimed = env.store().claim_timers(claim).await.expect("claimed");
    assert_eq!(claimed.first().map(|timer| timer.id.clone()), Some(timer_id("due")), "and it fires");
}
