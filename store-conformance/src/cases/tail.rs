//! The tail (T1 to T3, T5).

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use tokio::task::yield_now;
use wow_store_api::{
    AggregateId, AggregateName, Commit, CommitFilter, ContextName, ErrorKind, EventName, EventStore,
    MAX_COUNTER, Outcome, Position, RecordedCommit, StoreExt as _, Tail, TailRequest,
};

use super::tools::{json, neighbours, poll_once, positions, race, refused, sound_log, with_body};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop, soon},
};

topic! { "tail":
    delivers_everything_in_order_from_the_beginning [T1],
    goes_on_without_end [T1],
    positions_to_go_on_after_are_exclusive [T1],
    from_now_leaves_out_what_is_there [T1],
    waits_behind_a_position_ahead_of_the_log [T1],
    partitions_and_positions_that_cannot_be_are_refused [T1, ERRORS],
    starts_on_a_context_that_was_never_used [T1, T3],
    follows_new_aggregate_types [T1, L10],
    wakes_up_for_an_append_that_meets_it_going_idle [T3],
    wakes_up_for_an_append_through_another_handle [T3],
    a_watcher_is_woken_by_every_commit [T3],
    a_batch_is_what_is_there_up_to_a_number [T2],
    a_batch_is_bounded_by_bytes [T2],
    a_slow_consumer_loses_nothing [T2, T1],
    a_busy_partition_does_not_starve_the_others [T1, T2],
    a_dropped_next_loses_nothing [T1],
    a_filter_delivers_what_it_lets_through [T5],
    a_filter_that_lets_nothing_through_advances [T5],
    nothing_is_missed_under_concurrent_writers [T1, L5],
}

type AnyTail = Tail<dyn EventStore>;

async fn open(store: &Arc<dyn EventStore>, request: TailRequest) -> AnyTail {
    store.tail(request).await.expect("the tail opens")
}

fn places(tail: &AnyTail) -> BTreeMap<u32, Position> {
    tail.positions().map(|(partition, position)| (partition.index(), position)).collect()
}

/// Follows an unfiltered tail until it has delivered so many commits; each batch must go on where its partition was.
async fn follow(tail: &mut AnyTail, count: usize) -> Vec<RecordedCommit> {
    let mut commits = Vec::new();
    while commits.len() < count {
        let before = places(tail);
        let batch = soon("a batch", tail.next()).await.expect("a batch");
        let after = before[&batch.partition.index()];
        assert!(
            positions(&batch.commits).into_iter().eq(after + 1..=batch.through),
            "the next ones, gapless"
        );
        assert!(batch.through > after, "and not nothing");
        assert_eq!(places(tail)[&batch.partition.index()], batch.through, "the tail says where it is");
        assert!(
            batch.commits.iter().all(|it| it.partition == batch.partition.index()),
            "all of one partition"
        );
        commits.extend(batch.commits);
    }
    assert_eq!(commits.len(), count, "and no more than there are");
    commits
}

/// The commits of a context, in the order of partitions.
async fn logged(store: &Arc<dyn EventStore>) -> Vec<RecordedCommit> {
    sound_log(store, &shop()).await.concat()
}

fn sorted(mut commits: Vec<RecordedCommit>) -> Vec<RecordedCommit> {
    commits.sort_by_key(|commit| (commit.partition, commit.position));
    commits
}

async fn delivers_everything_in_order_from_the_beginning(env: Env) {
    let store = env.store();
    for n in 0..20 {
        append_many(store, &order(n.to_string()), "c", 5).await;
    }
    let mut tail = open(store, TailRequest::new(shop())).await;
    assert_eq!(
        places(&tail),
        (0..16).map(|index| (index, 0)).collect(),
        "before the first in every partition"
    );
    let delivered = follow(&mut tail, 100).await;
    assert_eq!(sorted(delivered), logged(store).await, "every commit, as the log holds it");
    assert_eq!(tail.try_next().await.expect("an answer"), None, "and now there is no more");
    let heads = store.heads(&shop()).await.expect("the heads");
    assert!(places(&tail).into_values().eq(heads), "it is at the heads");
}

async fn goes_on_without_end(env: Env) {
    let store = env.store();
    let mut tail = open(store, TailRequest::new(shop())).await;
    for round in 1..=30 {
        let id = order((round % 7).to_string());
        let receipts = append_many(store, &id, &format!("c{round}"), 1 + round % 3).await;
        let delivered = follow(&mut tail, receipts.len()).await;
        let found: Vec<_> = delivered.iter().map(RecordedCommit::receipt).collect();
        assert_eq!(found, receipts, "what was appended since");
        assert_eq!(tail.try_next().await.expect("an answer"), None, "nothing twice");
    }
}

async fn positions_to_go_on_after_are_exclusive(env: Env) {
    let store = env.store();
    let mut commits = 0;
    for partition in 0..4 {
        let (_, ids) = neighbours(store, partition, 1).await;
        commits += append_many(store, &ids[0], "c", 10).await.len();
    }
    assert_eq!(commits, 40, "ten in each of four partitions");
    let request = TailRequest::new(shop()).after_positions([(1, 0), (2, 7), (3, 10)]);
    let mut tail = open(store, request).await;
    let delivered = follow(&mut tail, 13).await;
    let of = |index: u32| {
        let here = delivered.iter().filter(|it| it.partition == index);
        here.map(|it| it.position).collect::<Vec<_>>()
    };
    assert_eq!(of(1), (1..=10).collect::<Vec<_>>(), "0 is before the first");
    assert_eq!(of(2), [8, 9, 10], "from just after the position");
    assert_eq!(of(3), [] as [u64; 0], "nothing after the head");
    assert_eq!(of(0), [] as [u64; 0], "a partition that is not named is left out");
    for partition in 0..4 {
        let (_, ids) = neighbours(store, partition, 1).await;
        append_many(store, &ids[0], "more", 1).await;
    }
    let more: Vec<_> =
        sorted(follow(&mut tail, 3).await).iter().map(|it| (it.partition, it.position)).collect();
    assert_eq!(more, [(1, 11), (2, 11), (3, 11)], "and from there on, in these only");
    assert_eq!(tail.try_next().await.expect("an answer"), None, "the others never");
}

async fn from_now_leaves_out_what_is_there(env: Env) {
    let store = env.store();
    for n in 0..10 {
        append_many(store, &order(n.to_string()), "before", 2).await;
    }
    let mut tail = open(store, TailRequest::new(shop()).from_now()).await;
    let heads = store.heads(&shop()).await.expect("the heads");
    assert!(places(&tail).into_values().eq(heads), "it starts at the heads");
    assert_eq!(tail.try_next().await.expect("an answer"), None, "nothing of what was there");
    for n in 0..10 {
        append_many(store, &order(n.to_string()), "after", 1).await;
    }
    let delivered = follow(&mut tail, 10).await;
    assert!(delivered.iter().all(|it| it.command_id == "after-1"), "only what came later");
}

async fn waits_behind_a_position_ahead_of_the_log(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 3).await;
    let mut tail = open(store, TailRequest::new(shop()).after_positions([(0, 5)])).await;
    for position in 4..=5 {
        append_many(store, &ids[0], &format!("c{position}"), 1).await;
        assert_eq!(tail.try_next().await.expect("an answer"), None, "{position} is not after 5");
        let mut next = pin!(tail.next());
        assert!(poll_once(next.as_mut()).await.is_pending(), "it waits");
    }
    append_many(store, &ids[0], "c6", 1).await;
    assert_eq!(positions(&follow(&mut tail, 1).await), [6], "the first one after 5");
}

async fn partitions_and_positions_that_cannot_be_are_refused(env: Env) {
    let store = env.store();
    append_many(store, &order("1"), "c", 1).await;
    for place in [(16, 0), (u32::MAX, 0), (0, MAX_COUNTER + 1), (15, u64::MAX)] {
        let error = refused(store.tail(TailRequest::new(shop()).after_positions([(0, 0), place])).await);
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{place:?}: {error:?}");
        assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
    }
    let last = [(0, 0), (15, MAX_COUNTER)];
    let mut tail = open(store, TailRequest::new(shop()).after_positions(last)).await;
    assert_eq!(tail.try_next().await.expect("an answer"), None, "the last ones that can be are empty");
    let (_, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 1).await;
    assert_eq!(follow(&mut tail, 1).await.len(), 1, "and it works");
}

async fn starts_on_a_context_that_was_never_used(env: Env) {
    let store = env.store();
    let fresh = |name: &str| TailRequest::new(ContextName::new(name).expect("a valid name"));
    for (context, request) in [("shop", fresh("shop")), ("depot", fresh("depot").from_now())] {
        let context = ContextName::new(context).expect("a valid name");
        let mut tail = open(store, request).await;
        assert_eq!(store.heads(&context).await.expect("the heads"), [0; 16], "its partitions are fixed now");
        {
            let mut next = pin!(tail.next());
            assert!(poll_once(next.as_mut()).await.is_pending(), "there is nothing yet");
            let id = AggregateId::new(&context, "order", "1").expect("a valid id");
            append_many(store, &id, "c", 1).await;
            let batch = soon("the first commit", next).await.expect("a batch");
            assert_eq!(positions(&batch.commits), [1], "the first commit wakes it");
        }
        assert_eq!(tail.try_next().await.expect("an answer"), None, "and is all");
    }
}

async fn follows_new_aggregate_types(env: Env) {
    let store = env.store();
    let mut tail = open(store, TailRequest::new(shop())).await;
    let mut appended = Vec::new();
    for n in 0..12 {
        for aggregate in 0..=n {
            let id = AggregateId::new("shop", format!("type-{aggregate}"), "1").expect("a valid id");
            appended.push(store.append(commit(&id, format!("c{n}"))).await.expect("it succeeds"));
        }
        let delivered = follow(&mut tail, n + 1).await;
        let here = appended.split_off(0);
        let mut found: Vec<_> = delivered.iter().map(RecordedCommit::receipt).collect();
        found.sort_by_key(|it| here.iter().position(|receipt| receipt == it));
        assert_eq!(found, here, "also those of types that were not there when it was opened");
    }
}

async fn wakes_up_for_an_append_that_meets_it_going_idle(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let mut tail = open(store, TailRequest::new(shop())).await;
    for round in 0..300 {
        assert_eq!(tail.try_next().await.expect("an answer"), None, "it is about to go idle");
        let (writer, next) = (Arc::clone(store), commit(&id, format!("c{round}")));
        let append = tokio::spawn(async move { writer.append(next).await });
        for _ in 0..round % 5 {
            yield_now().await;
        }
        let batch = soon("it wakes up", tail.next()).await.expect("a batch");
        assert_eq!(batch.commits[0].command_id, format!("c{round}").as_str(), "for this commit");
        append.await.expect("no panic").expect("the append succeeds");
    }
}

async fn wakes_up_for_an_append_through_another_handle(env: Env) {
    let (here, there) = (env.store(), env.second_handle().await);
    let mut tails =
        [open(here, TailRequest::new(shop())).await, open(&there, TailRequest::new(shop())).await];
    for round in 0..6 {
        let writer = if round % 2 == 0 { here } else { &there };
        for tail in &mut tails {
            let mut next = pin!(tail.next());
            assert!(poll_once(next.as_mut()).await.is_pending(), "it waits");
        }
        append_many(writer, &order(round.to_string()), "c", 1).await;
        for tail in &mut tails {
            let delivered = follow(tail, 1).await;
            assert_eq!(delivered[0].aggregate_id, order(round.to_string()), "both are woken");
        }
    }
}

async fn a_watcher_is_woken_by_every_commit(env: Env) {
    let store = env.store();
    append_many(store, &order("0"), "before", 1).await;
    let mut watcher = store.watch(&shop()).await.expect("a watcher");
    for n in 0..10 {
        let receipt = append_many(store, &order(n.to_string()), "c", 1).await.remove(0);
        // It may be woken for nothing, or for other partitions first, but it must hear of this one.
        let mut heard = false;
        while !heard {
            let changed = soon("the watcher is woken", watcher.changed()).await.expect("the store is open");
            heard = changed.contains(receipt.partition.index());
        }
    }
    let receipts = append_many(store, &order("1"), "late", 1).await;
    yield_now().await;
    let changed = soon("it remembers", watcher.changed()).await.expect("the store is open");
    assert!(changed.contains(receipts[0].partition.index()), "what happened while it was not asked");
}

async fn a_batch_is_what_is_there_up_to_a_number(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 25).await;
    for (max_commits, expected) in
        [(10, vec![10, 10, 5]), (25, vec![25]), (1_000, vec![25]), (24, vec![24, 1])]
    {
        let mut tail = open(store, TailRequest::new(shop()).with_max_commits(max_commits)).await;
        let mut sizes = Vec::new();
        while let Some(batch) = tail.try_next().await.expect("an answer") {
            sizes.push(batch.commits.len());
        }
        assert_eq!(sizes, expected, "whatever is there, at most {max_commits}");
    }
    let mut tail = open(store, TailRequest::new(shop()).with_max_commits(0)).await;
    let batch = tail.try_next().await.expect("an answer").expect("a batch");
    assert_eq!(batch.commits.len(), 1, "never less than one");
}

async fn a_batch_is_bounded_by_bytes(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 1).await;
    for n in 0..12 {
        let body = json(&format!("\"{}\"", "x".repeat(if n == 5 { 50_000 } else { 1_000 })));
        store.append(with_body(&ids[0], &format!("c{n}"), body)).await.expect("it succeeds");
    }
    let mut tail = open(store, TailRequest::new(shop()).with_max_bytes(3_500)).await;
    let (mut seen, mut batches) = (Vec::new(), 0);
    while let Some(batch) = tail.try_next().await.expect("an answer") {
        let sizes: Vec<_> = batch.commits.iter().map(|it| it.events[0].body.as_json().len()).collect();
        assert!(sizes[..sizes.len() - 1].iter().sum::<usize>() < 4_000, "about 3,500 bytes: {sizes:?}");
        seen.extend(positions(&batch.commits));
        batches += 1;
    }
    assert_eq!(seen, (1..=12).collect::<Vec<_>>(), "a commit larger than the limit is delivered too");
    assert!((3..=8).contains(&batches), "several small ones share a batch: {batches}");
}

async fn a_slow_consumer_loses_nothing(env: Env) {
    let store = env.store();
    let mut tail = open(store, TailRequest::new(shop()).with_max_commits(100)).await;
    for part in 0..3 {
        let commits = (0..1_000).map(|n| commit(&order((n % 40).to_string()), format!("c{part}-{n}")));
        store.append_all(commits).await.expect("it succeeds");
    }
    assert!(places(&tail).into_values().all(|position| position == 0), "it reads nothing that nobody wants");
    let first = soon("a batch", tail.next()).await.expect("a batch");
    assert!(first.commits.len() <= 100, "nor more than it was asked for");
    let moved: u64 = places(&tail).into_values().sum();
    assert_eq!(moved, first.through, "it is where it delivered to, and no further");
    let mut delivered = first.commits;
    delivered.extend(follow(&mut tail, 3_000 - delivered.len()).await);
    assert_eq!(sorted(delivered), logged(store).await, "and everything comes in the end");
}

async fn a_busy_partition_does_not_starve_the_others(env: Env) {
    let store = env.store();
    let (_, busy) = neighbours(store, 0, 1).await;
    for part in 0..4 {
        store
            .append_all((0..100).map(|n| commit(&busy[0], format!("{part}-{n}"))))
            .await
            .expect("it succeeds");
    }
    let mut quiet = Vec::new();
    for partition in 1..16 {
        let (_, ids) = neighbours(store, partition, 1).await;
        quiet.extend(append_many(store, &ids[0], "c", 1).await);
    }
    let mut tail = open(store, TailRequest::new(shop()).with_max_commits(10)).await;
    let mut turns = Vec::new();
    for _ in 0..20 {
        turns.push(soon("a batch", tail.next()).await.expect("a batch").partition.index());
    }
    for receipt in quiet {
        let partition = receipt.partition.index();
        assert!(
            turns.contains(&partition),
            "{partition} has its turn before the busy one is done: {turns:?}"
        );
    }
}

async fn a_dropped_next_loses_nothing(env: Env) {
    let store = env.store();
    let mut tail = open(store, TailRequest::new(shop()).with_max_commits(3)).await;
    let (writer, ids) = (Arc::clone(store), (0..5).map(|n| order(n.to_string())).collect::<Vec<_>>());
    let append = tokio::spawn(async move {
        for n in 0..200 {
            writer.append(commit(&ids[n % 5], format!("c{n}"))).await.expect("it succeeds");
            yield_now().await;
        }
    });
    let mut delivered = Vec::new();
    while delivered.len() < 200 {
        for polls in 0..3 {
            for _ in 0..delivered.len() % 4 {
                yield_now().await;
            }
            // Started, polled a few times, and dropped; unless it was done by then.
            let mut next = pin!(tail.next());
            for _ in 0..polls {
                if let std::task::Poll::Ready(batch) = poll_once(next.as_mut()).await {
                    delivered.extend(batch.expect("a batch").commits);
                    break;
                }
                yield_now().await;
            }
        }
        if delivered.len() < 200 {
            delivered.extend(soon("a batch", tail.next()).await.expect("a batch").commits);
        }
    }
    append.await.expect("the writer is done");
    let log = logged(store).await;
    assert_eq!(log.len(), 200, "all are stored");
    for partition in 0..16 {
        let of = |commits: &[RecordedCommit]| {
            let here = commits.iter().filter(|it| it.partition == partition);
            here.map(|it| it.position).collect::<Vec<_>>()
        };
        assert_eq!(of(&delivered), of(&log), "each once and in order, whatever was dropped");
    }
}

async fn a_filter_delivers_what_it_lets_through(env: Env) {
    let store = env.store();
    let (aggregate, event) =
        (AggregateName::new("cart").expect("valid"), EventName::new("Paid").expect("valid"));
    let filter = CommitFilter::all().with_aggregates([aggregate]).with_events([event]);
    let mut tail =
        open(store, TailRequest::new(shop()).with_filter(filter.clone()).with_max_commits(2)).await;
    for n in 0..120 {
        let id = AggregateId::new("shop", if n % 2 == 0 { "cart" } else { "order" }, (n % 6).to_string());
        let name = if n % 3 == 0 { "Paid" } else { "Placed" };
        let commit = Commit::new(id.expect("a valid id"), format!("c{n}")).event(name, 1, &n).expect("valid");
        store.append(commit.event("Noted", 1, &n).expect("valid")).await.expect("it succeeds");
    }
    let mut delivered = Vec::new();
    while let Some(batch) = tail.try_next().await.expect("an answer") {
        assert!(batch.commits.iter().all(|it| it.events.len() == 2), "a commit is delivered whole");
        delivered.extend(batch.commits);
    }
    let mut expected = logged(store).await;
    expected.retain(|commit| filter.matches(commit));
    assert_eq!(expected.len(), 20, "a sixth of them");
    assert_eq!(sorted(delivered), expected, "and these are what comes");
    let heads = store.heads(&shop()).await.expect("the heads");
    assert!(places(&tail).into_values().eq(heads), "it has moved past the others");
}

async fn a_filter_that_lets_nothing_through_advances(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 30).await;
    let filter = CommitFilter::all().with_events([EventName::new("Never").expect("valid")]);
    let request = TailRequest::new(shop()).with_filter(filter).with_max_commits(4);
    let mut tail = open(store, request).await;
    let mut through = 0;
    while through < 30 {
        let batch = soon("a batch", tail.next()).await.expect("a batch");
        assert_eq!(batch.commits, [], "nothing matches");
        assert!(batch.through > through, "and yet there is a checkpoint to save");
        through = batch.through;
    }
    assert_eq!(tail.try_next().await.expect("an answer"), None, "once it was looked at, that is it");
    append_many(store, &ids[0], "more", 1).await;
    let batch = soon("a batch", tail.next()).await.expect("a batch");
    assert_eq!((batch.commits.len(), batch.through), (0, 31), "it goes on with what is new");
}

async fn nothing_is_missed_under_concurrent_writers(env: Env) {
    let handles = [Arc::clone(env.store()), env.second_handle().await];
    let (writers, rounds) = (12, 30);
    let delivered = race(writers + 4, |n| {
        let store = Arc::clone(&handles[n % 2]);
        async move {
            if n < writers {
                for round in 0..rounds {
                    let id = order(((n * 5 + round) % 60).to_string());
                    store.append(commit(&id, format!("{n}-{round}"))).await.expect("it succeeds");
                }
                return None;
            }
            let max_commits = if n % 4 < 2 { 1 } else { 1_000 };
            let mut tail = open(&store, TailRequest::new(shop()).with_max_commits(max_commits)).await;
            Some(follow(&mut tail, writers * rounds).await)
        }
    })
    .await;
    let log = logged(env.store()).await;
    for delivered in delivered.into_iter().flatten() {
        assert_eq!(sorted(delivered), log, "every tail delivered every commit");
    }
}
