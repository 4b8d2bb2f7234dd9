//! Many writers at once (L1 to L3, L5, L8, L10, L11).

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::task::yield_now;
use wow_store_api::{
    AggregateId, EventStore, ExpectedVersion, Outcome, ReadPage, Receipt, Result, StoreExt as _,
};

use super::tools::{fence, load_all, neighbours, poll_once, positions, race, refused, sound_log, stored};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop, soon},
};

topic! { "append_races":
    one_version_has_one_winner [L2],
    writers_that_expect_anything_all_succeed [L2],
    writers_on_different_aggregates_never_conflict [L2, L8],
    one_command_from_many_tasks_is_stored_once [L3],
    every_append_of_a_batch_gets_its_own_outcome [L8, L5],
    order_of_arrival_is_kept_for_one_aggregate [L8],
    new_aggregate_types_appear_from_many_tasks_at_once [L10],
    appends_in_opposite_orders_never_deadlock [L11],
    several_commits_race_as_one [L11, L2],
    a_dropped_append_is_stored_whole_or_not_at_all [L1, L3, L6],
    a_dropped_append_of_several_is_stored_whole_or_not_at_all [L1, L11],
    a_reader_never_sees_a_hole_or_goes_back [L5],
    what_was_acknowledged_is_seen_by_all [L5, L9],
}

/// Splits the outcomes of a race into receipts and errors.
fn split(results: Vec<Result<Receipt>>) -> (Vec<Receipt>, Vec<wow_store_api::Error>) {
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    (won.into_iter().flatten().collect(), lost.into_iter().filter_map(Result::err).collect())
}

async fn one_version_has_one_winner(env: Env) {
    let (handles, id) = ([Arc::clone(env.store()), env.second_handle().await], order("1"));
    for round in 0..20 {
        let results = race(16, |n| {
            let (store, id) = (Arc::clone(&handles[n % 2]), id.clone());
            async move {
                let next = commit(&id, format!("{round}-{n}")).expect(ExpectedVersion::Exact(round));
                store.append(next).await
            }
        })
        .await;
        let (won, lost) = split(results);
        assert_eq!((won.len(), won[0].version), (1, round + 1), "one winner per version");
        for error in lost {
            assert!(error.is_conflict(), "the others are told so: {error:?}");
            assert_eq!(error.outcome(), Outcome::NotApplied, "and that they stored nothing");
        }
    }
    assert_eq!(stored(env.store(), &shop()).await, 20, "as many commits as winners");
}

async fn writers_that_expect_anything_all_succeed(env: Env) {
    let (handles, id) = ([Arc::clone(env.store()), env.second_handle().await], order("1"));
    let results = race(50, |n| {
        let (store, id) = (Arc::clone(&handles[n % 2]), id.clone());
        async move { store.append(commit(&id, format!("c{n}"))).await }
    })
    .await;
    let mut versions: Vec<_> =
        results.into_iter().map(|receipt| receipt.expect("any version is right").version).collect();
    versions.sort_unstable();
    assert!(versions.into_iter().eq(1..=50), "each has a version of its own, without a hole");
    assert_eq!(stored(env.store(), &shop()).await, 50, "and all are stored");
}

async fn writers_on_different_aggregates_never_conflict(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 16).await;
    race(16, |n| {
        let (store, id) = (Arc::clone(store), ids[n].clone());
        async move {
            for version in 0..10 {
                let next = commit(&id, format!("c{version}")).expect(ExpectedVersion::Exact(version));
                let receipt = store.append(next).await.expect("nobody else writes to this aggregate");
                assert_eq!((receipt.version, receipt.replayed), (version + 1, false), "the next version");
            }
        }
    })
    .await;
    assert_eq!(stored(store, &shop()).await, 160, "all are stored");
}

async fn one_command_from_many_tasks_is_stored_once(env: Env) {
    let (handles, id) = ([Arc::clone(env.store()), env.second_handle().await], order("1"));
    for round in 0..10_u64 {
        let results = race(24, |n| {
            let (store, id) = (Arc::clone(&handles[n % 2]), id.clone());
            let expected = if n % 3 == 0 { ExpectedVersion::Exact(round) } else { ExpectedVersion::Any };
            async move { store.append(commit(&id, format!("c{round}")).expect(expected)).await }
        })
        .await;
        let receipts: Vec<_> =
            results.into_iter().map(|receipt| receipt.expect("each is told where it is")).collect();
        let first: Vec<_> = receipts.iter().filter(|receipt| !receipt.replayed).collect();
        assert_eq!(first.len(), 1, "one of them stored it");
        assert_eq!(first[0].version, round + 1, "as the next version");
        let replay = first[0].clone().replay();
        let rest = receipts.iter().filter(|receipt| receipt.replayed);
        assert_eq!(rest.filter(|it| **it == replay).count(), 23, "the others got its receipt");
    }
    assert_eq!(stored(env.store(), &shop()).await, 10, "each command is stored once");
}

async fn every_append_of_a_batch_gets_its_own_outcome(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 63).await;
    let (old, taken) = (&ids[60], &ids[61]);
    let first = append_many(store, old, "old", 1).await.remove(0).replay();
    append_many(store, taken, "c", 1).await;
    store.append(commit(&ids[62], "leased").fenced(fence(5))).await.expect("it succeeds");
    let appends = (0..60).map(|n| {
        let (own, name) = (&ids[n], format!("batch-{n}"));
        store.append(match n % 5 {
            0 => commit(own, name),
            1 => commit(old, "old-1"),
            2 => commit(taken, name).expect(ExpectedVersion::Exact(9)),
            3 => commit(own, name).fenced(fence(4)),
            _ => commit(own, name).expect(ExpectedVersion::NoStream),
        })
    });
    let outcomes = soon("the batch is done", join_all(appends)).await;
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match n % 5 {
            1 => assert_eq!(outcome.expect("a replay succeeds"), first, "the receipt of the first"),
            2 => assert!(refused(outcome).is_conflict(), "its version is wrong"),
            3 => assert!(refused(outcome).is_fenced(), "its lease was overtaken"),
            _ => assert_eq!(outcome.expect("nothing is wrong with it").version, 1, "it is stored"),
        }
    }
    assert_eq!(stored(store, &shop()).await, 3 + 24, "the good ones are stored, without a hole");
    let receipt = store.append(commit(&ids[0], "after")).await.expect("it succeeds");
    assert_eq!(receipt.position, 28, "no position was used up by the others");
}

async fn order_of_arrival_is_kept_for_one_aggregate(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "first", 1).await;
    for round in 0..5 {
        let mut appends: Vec<_> =
            (0..40).map(|n| Box::pin(store.append(commit(&id, format!("{round}-{n}"))))).collect();
        let mut receipts = Vec::new();
        // Each arrives before the next one does.
        for (n, append) in appends.iter_mut().enumerate() {
            if let std::task::Poll::Ready(receipt) = poll_once(append.as_mut()).await {
                receipts.push((n, receipt.expect("it succeeds")));
            }
        }
        let done: Vec<_> = receipts.iter().map(|(n, _)| *n).collect();
        let rest = appends.into_iter().enumerate().filter(|(n, _)| !done.contains(n));
        let rest = join_all(rest.map(|(n, append)| async move { (n, append.await.expect("it succeeds")) }));
        receipts.extend(soon("the others are done", rest).await);
        receipts.sort_by_key(|(n, _)| *n);
        let versions: Vec<_> = receipts.iter().map(|(_, receipt)| receipt.version).collect();
        assert!(versions.into_iter().eq(round * 40 + 2..=round * 40 + 41), "in the order of arrival");
    }
}

async fn new_aggregate_types_appear_from_many_tasks_at_once(env: Env) {
    let handles = [Arc::clone(env.store()), env.second_handle().await];
    race(40, |n| {
        let store = Arc::clone(&handles[n % 2]);
        async move {
            // Half of them share one new type, half bring their own; the context is new too.
            let aggregate = if n < 20 { "shared".to_owned() } else { format!("own-{n}") };
            let id = AggregateId::new("fresh", aggregate, format!("{n}")).expect("a valid id");
            let receipt = store.append(commit(&id, "c1")).await.expect("a new type needs nothing beforehand");
            assert_eq!(receipt.version, 1, "the first commit");
            store.append(commit(&id, "c2")).await.expect("and it goes on");
        }
    })
    .await;
    for store in &handles {
        assert_eq!(store.aggregate_types().await.expect("the types").len(), 21, "all types are there");
        assert_eq!(stored(store, &"fresh".try_into().expect("valid")).await, 80, "and all commits");
    }
}

async fn appends_in_opposite_orders_never_deadlock(env: Env) {
    let handles = [Arc::clone(env.store()), env.second_handle().await];
    let ids: Vec<_> = (0..6).map(|n| order(n.to_string())).collect();
    race(8, |n| {
        let (store, mut ids) = (Arc::clone(&handles[n % 2]), ids.clone());
        ids.rotate_left(n % 6);
        if n % 2 == 1 {
            ids.reverse();
        }
        async move {
            for round in 0..15 {
                let commits = ids.iter().map(|id| commit(id, format!("{n}-{round}")));
                let receipts = store.append_all(commits).await.expect("any version is right");
                assert!(receipts.iter().all(|receipt| !receipt.replayed), "all are stored");
            }
        }
    })
    .await;
    assert_eq!(stored(env.store(), &shop()).await, 8 * 15 * 6, "every commit of every call");
}

async fn several_commits_race_as_one(env: Env) {
    let (handles, a, b) = ([Arc::clone(env.store()), env.second_handle().await], order("a"), order("b"));
    for round in 0..10 {
        let results = race(10, |n| {
            let (store, mut ids) = (Arc::clone(&handles[n % 2]), vec![a.clone(), b.clone()]);
            ids.rotate_left(n % 2);
            let command = format!("{round}-{n}");
            async move {
                let expecting = |id| commit(id, command.clone()).expect(ExpectedVersion::Exact(round));
                store.append_all(ids.iter().map(expecting)).await
            }
        })
        .await;
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "one call per version");
        let lost = results.into_iter().filter_map(Result::err);
        assert!(lost.into_iter().all(|error| error.is_conflict()), "the others are told so");
    }
    let commands = |commits: Vec<wow_store_api::RecordedCommit>| {
        commits.into_iter().map(|commit| commit.command_id).collect::<Vec<_>>()
    };
    let store = env.store();
    let both = (commands(load_all(store, &a).await), commands(load_all(store, &b).await));
    assert_eq!(both.0, both.1, "what won on one won on the other");
    assert_eq!(stored(store, &shop()).await, 20, "and nothing else is stored");
}

/// Polls a future a few times, or for some microseconds, and drops it.
async fn start_and_drop<T>(future: impl Future<Output = T>, polls: u32) {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll_once(future.as_mut()).await.is_ready() {
            return;
        }
        yield_now().await;
    }
    let _ = tokio::time::timeout(Duration::from_micros(u64::from(polls) * 150), future).await;
}

async fn a_dropped_append_is_stored_whole_or_not_at_all(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 8).await;
    race(8, |task| {
        let (store, id) = (Arc::clone(store), ids[task].clone());
        async move {
            for round in 0..25_u32 {
                let next = commit(&id, format!("c{round}")).expect(ExpectedVersion::Exact(u64::from(round)));
                // 0 drops it before it was ever polled.
                start_and_drop(store.append(next.clone()), (round * 7 + task as u32 * 3) % 20).await;
                let receipt = soon("the store still works", store.append(next)).await;
                let receipt = receipt.expect("the same command again says where it is");
                assert_eq!(receipt.version, u64::from(round) + 1, "it is stored once");
            }
        }
    })
    .await;
    assert_eq!(stored(store, &shop()).await, 200, "every command once, without a hole");
}

async fn a_dropped_append_of_several_is_stored_whole_or_not_at_all(env: Env) {
    let store = env.store();
    race(4, |task| {
        let store: Arc<dyn EventStore> = Arc::clone(store);
        async move {
            let ids: Vec<_> = (0..3).map(|n| order(format!("{task}-{n}"))).collect();
            for round in 0..20_u32 {
                let all = || ids.iter().map(|id| commit(id, format!("c{round}"))).collect::<Vec<_>>();
                start_and_drop(store.append_all(all()), (round * 5 + task as u32) % 16).await;
                let receipts = soon("the store still works", store.append_all(all())).await;
                let receipts = receipts.expect("the same commands again say where they are");
                let replayed = receipts.iter().filter(|receipt| receipt.replayed).count();
                assert!(matches!(replayed, 0 | 3), "all of it was stored, or nothing: {replayed} of 3");
            }
        }
    })
    .await;
    assert_eq!(stored(store, &shop()).await, 4 * 20 * 3, "every command once");
}

async fn a_reader_never_sees_a_hole_or_goes_back(env: Env) {
    let handles = [Arc::clone(env.store()), env.second_handle().await];
    let (partition, ids) = neighbours(env.store(), 0, 8).await;
    let (writers, rounds) = (8, 40);
    race(writers + 4, |n| {
        let (store, ids, partition) = (Arc::clone(&handles[n % 2]), ids.clone(), partition.clone());
        async move {
            if n < writers {
                for round in 0..rounds {
                    let id = if round % 2 == 0 { &ids[n] } else { &ids[round % 8] };
                    store.append(commit(id, format!("{n}-{round}"))).await.expect("it succeeds");
                }
                return;
            }
            let (mut after, mut head) = (0, 0);
            while after < (writers * rounds) as u64 {
                let request = ReadPage::new(partition.clone(), after).with_max_commits(1 + n % 7);
                let page = store.read(request).await.expect("a page");
                let dense = after + 1..=after + page.commits.len() as u64;
                assert!(positions(&page.commits).into_iter().eq(dense), "the next ones, without a hole");
                assert_eq!(page.through, after + page.commits.len() as u64, "and nothing is passed over");
                after = page.through;
                let heads = store.heads(&shop()).await.expect("the heads");
                assert!(heads[0] >= head.max(after), "a head never goes back, nor behind what was read");
                head = heads[0];
                match page.commits.is_empty() {
                    true => tokio::time::sleep(Duration::from_millis(1)).await,
                    false => yield_now().await,
                }
            }
        }
    })
    .await;
    sound_log(env.store(), &shop()).await;
}

async fn what_was_acknowledged_is_seen_by_all(env: Env) {
    let handles = [Arc::clone(env.store()), env.second_handle().await];
    let (_, ids) = neighbours(env.store(), 0, 6).await;
    race(6, |n| {
        let (here, there, id) =
            (Arc::clone(&handles[n % 2]), Arc::clone(&handles[(n + 1) % 2]), ids[n].clone());
        async move {
            for version in 1..=15 {
                let receipt = here.append(commit(&id, format!("c{version}"))).await.expect("it succeeds");
                for store in [&here, &there] {
                    assert_eq!(store.head(&id).await.expect("the head"), version, "its head");
                    let last =
                        ReadPage::new(receipt.partition.clone(), receipt.position - 1).with_max_commits(1);
                    let page = store.read(last).await.expect("a page");
                    assert_eq!(page.commits[0].aggregate_id, id, "at its position");
                    let heads = store.heads(&shop()).await.expect("the heads");
                    assert!(heads[0] >= receipt.position, "behind the head of its partition");
                    let known = store.receipt(&id, &page.commits[0].command_id).await.expect("a read");
                    assert_eq!(known, Some(receipt.clone().replay()), "under its command");
                }
            }
        }
    })
    .await;
}
