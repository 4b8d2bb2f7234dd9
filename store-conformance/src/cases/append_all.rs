//! Several commits, all or nothing (L11).

use wow_store_api::{
    AggregateId, ErrorKind, ExpectedVersion, MAX_APPEND_BYTES, MAX_COMMIT_BYTES, MAX_COMMITS_PER_APPEND,
    Outcome, StoreExt as _,
};

use super::tools::{fence, json, load_all, neighbours, refused, sound_log, stored, with_body};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop},
};

topic! { "append_all":
    no_commits_give_no_receipts [L11],
    all_are_stored_in_the_order_given [L11, L2, L5],
    nothing_is_stored_if_one_is_refused [L11, L1],
    a_later_commit_sees_the_earlier_ones [L11, L2],
    a_command_given_twice_is_stored_once [L11, L3],
    replays_and_new_commits_mix [L11, L3],
    a_fence_counts_from_the_commit_that_brings_it [L11, L7],
    the_first_refusal_is_told [L11, ERRORS],
    a_thousand_commits_are_taken_and_one_more_refused [L11, ERRORS],
    thirty_two_mebibytes_are_taken_and_more_refused [L11, ERRORS] is_heavy,
}

async fn no_commits_give_no_receipts(env: Env) {
    let store = env.store();
    append_many(store, &order("1"), "c", 1).await;
    let receipts = store.append_all([]).await.expect("no commits at all is fine");
    assert_eq!(receipts, [], "and gives no receipts");
    assert_eq!(stored(store, &shop()).await, 1, "nothing was stored");
}

async fn all_are_stored_in_the_order_given(env: Env) {
    let store = env.store();
    let ids: Vec<_> =
        [("shop", "order", "1"), ("depot", "bin", "1"), ("shop", "cart", "1"), ("shop", "order", "2")]
            .map(|(context, aggregate, id)| AggregateId::new(context, aggregate, id).expect("a valid id"))
            .into();
    append_many(store, &ids[3], "before", 2).await;
    let order_given: Vec<_> = [0, 1, 3, 0, 2, 0, 1, 3].map(|n: usize| ids[n].clone()).into();
    let commits = order_given.iter().enumerate().map(|(n, id)| commit(id, format!("c{n}")));
    let receipts = store.append_all(commits).await.expect("it succeeds");
    let versions: Vec<_> = receipts.iter().map(|receipt| receipt.version).collect();
    assert_eq!(versions, [1, 1, 3, 2, 1, 3, 2, 4], "a receipt for each, in their order");
    for (n, (id, receipt)) in order_given.iter().zip(&receipts).enumerate() {
        let count = store.partitions(id.context()).await.expect("the number of partitions");
        assert_eq!(receipt.partition, count.partition_of(id), "each in its own partition");
        assert!(!receipt.replayed, "each for the first time");
        let stored = &load_all(store, id).await[receipt.version as usize - 1];
        assert_eq!(stored.command_id, format!("c{n}").as_str(), "and it is that commit");
        assert_eq!(stored.receipt(), *receipt, "where the receipt says");
    }
    assert_eq!(stored(store, ids[0].context()).await + stored(store, ids[1].context()).await, 10, "once");
}

async fn nothing_is_stored_if_one_is_refused(env: Env) {
    let store = env.store();
    let ids: Vec<_> =
        (0..5).map(|n| AggregateId::new("shop", format!("t{n}"), "1").expect("valid")).collect();
    append_many(store, &ids[0], "c", 1).await;
    let before = sound_log(store, &shop()).await;
    for bad in 0..6 {
        let expected = |n| if n == bad { ExpectedVersion::Exact(9) } else { ExpectedVersion::Any };
        let mut commits: Vec<_> =
            (0..5).map(|n| commit(&ids[n], format!("try-{bad}")).expect(expected(n))).collect();
        if bad == 5 {
            commits.push(
                commit(&AggregateId::new("depot", "bin", "1").expect("valid"), "c").expect(expected(5)),
            );
        }
        let error = refused(store.append_all(commits).await);
        assert!(error.is_conflict(), "commit {bad} is refused: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing of any commit is stored");
        assert_eq!(sound_log(store, &shop()).await, before, "no commit, no position");
    }
    let types = store.aggregate_types().await.expect("the types");
    assert_eq!(types.len(), 1, "no new aggregate type either: {types:?}");
    let receipts = store.append_all((0..5).map(|n| commit(&ids[n], "try-0"))).await.expect("it is fine now");
    assert!(receipts.iter().all(|receipt| !receipt.replayed), "no command is remembered");
    sound_log(store, &shop()).await;
}

async fn a_later_commit_sees_the_earlier_ones(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let expecting = |n: u64, expected| commit(&id, format!("c{n}")).expect(expected);
    let receipts = store
        .append_all([
            expecting(1, ExpectedVersion::NoStream),
            expecting(2, ExpectedVersion::Exact(1)),
            expecting(3, ExpectedVersion::Any),
            expecting(4, ExpectedVersion::Exact(3)),
        ])
        .await
        .expect("each expects what the one before it made");
    let versions: Vec<_> = receipts.iter().map(|receipt| receipt.version).collect();
    assert_eq!(versions, [1, 2, 3, 4], "one version each");
    let stale = [expecting(5, ExpectedVersion::Exact(4)), expecting(6, ExpectedVersion::Exact(4))];
    let error = refused(store.append_all(stale).await);
    let ErrorKind::VersionConflict { actual, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!(*actual, 5, "the second sees the first");
    assert_eq!(store.head(&id).await.expect("the head"), 4, "and neither is stored");
}

async fn a_command_given_twice_is_stored_once(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let receipts = store
        .append_all([
            commit(&id, "twice"),
            commit(&order("2"), "twice"),
            commit(&id, "other"),
            commit(&id, "twice").expect(ExpectedVersion::NoStream),
        ])
        .await
        .expect("the second is a replay of the first");
    assert_eq!(receipts[3], receipts[0].clone().replay(), "with its receipt");
    let replayed: Vec<_> = receipts.iter().map(|receipt| receipt.replayed).collect();
    assert_eq!(replayed, [false, false, false, true], "on the same aggregate only");
    assert_eq!(store.head(&id).await.expect("the head"), 2, "it is stored once");
    assert_eq!(stored(store, &shop()).await, 3, "in the log too");
}

async fn replays_and_new_commits_mix(env: Env) {
    let (store, a, b) = (env.store(), order("a"), order("b"));
    let (on_a, on_b) = (append_many(store, &a, "c", 2).await, append_many(store, &b, "c", 1).await);
    let mixed = || {
        [
            commit(&b, "new").expect(ExpectedVersion::Exact(1)),
            commit(&a, "c-1").expect(ExpectedVersion::Exact(7)),
            commit(&a, "new").expect(ExpectedVersion::Exact(2)),
            commit(&b, "c-1").expect(ExpectedVersion::NoStream),
        ]
    };
    let receipts = store.append_all(mixed()).await.expect("replays are not looked at any further");
    assert_eq!(receipts[1], on_a[0].clone().replay(), "a replay in its place");
    assert_eq!(receipts[3], on_b[0].clone().replay(), "a replay in its place");
    assert_eq!([receipts[0].version, receipts[2].version], [2, 3], "the new ones are stored");
    assert!(!receipts[0].replayed && !receipts[2].replayed, "and not marked");
    let again = store.append_all(mixed()).await.expect("the whole call again");
    let expected: Vec<_> = receipts.into_iter().map(wow_store_api::Receipt::replay).collect();
    assert_eq!(again, expected, "is a replay of each");
    assert_eq!(stored(store, &shop()).await, 5, "and stores nothing");
}

async fn a_fence_counts_from_the_commit_that_brings_it(env: Env) {
    let store = env.store();
    store.append(commit(&order("1"), "c1").fenced(fence(3))).await.expect("it succeeds");
    let falling = [commit(&order("2"), "c").fenced(fence(5)), commit(&order("3"), "c").fenced(fence(4))];
    let error = refused(store.append_all(falling).await);
    assert!(error.is_fenced(), "the second is overtaken by the first: {error:?}");
    assert_eq!(stored(store, &shop()).await, 1, "nothing is stored");
    store.append(commit(&order("4"), "c").fenced(fence(3))).await.expect("nor is the epoch remembered");
    let rising = [commit(&order("2"), "c").fenced(fence(4)), commit(&order("3"), "c").fenced(fence(5))];
    store.append_all(rising).await.expect("epochs may rise");
    let error = refused(store.append(commit(&order("5"), "c").fenced(fence(4))).await);
    assert!(error.is_fenced(), "and the highest is remembered: {error:?}");
}

async fn the_first_refusal_is_told(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 3).await;
    store.append(commit(&ids[0], "c").fenced(fence(9))).await.expect("it succeeds");
    let fenced = || commit(&ids[1], "f").fenced(fence(1));
    let stale = || commit(&ids[2], "s").expect(ExpectedVersion::Exact(5));
    let error = refused(store.append_all([commit(&ids[0], "n"), fenced(), stale()]).await);
    assert!(error.is_fenced(), "the fenced one comes first: {error:?}");
    let error = refused(store.append_all([commit(&ids[0], "n"), stale(), fenced()]).await);
    let ErrorKind::VersionConflict { aggregate_id, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!(*aggregate_id, ids[2], "the stale one comes first, and is named");
}

async fn a_thousand_commits_are_taken_and_one_more_refused(env: Env) {
    let store = env.store();
    let commits = |count: usize| (0..count).map(|n| commit(&order((n % 50).to_string()), format!("c{n}")));
    let error = refused(store.append_all(commits(MAX_COMMITS_PER_APPEND + 1)).await);
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "one too many: {error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "before anything is stored");
    assert_eq!(store.heads(&shop()).await.expect("the heads").iter().sum::<u64>(), 0, "nothing is");
    let receipts = store.append_all(commits(MAX_COMMITS_PER_APPEND)).await.expect("the limit itself is fine");
    assert_eq!(receipts.len(), MAX_COMMITS_PER_APPEND, "a receipt for each");
    assert_eq!(stored(store, &shop()).await, MAX_COMMITS_PER_APPEND, "all are stored");
}

async fn thirty_two_mebibytes_are_taken_and_more_refused(env: Env) {
    let store = env.store();
    let large = |n: usize, bytes: usize| {
        let overhead = with_body(&order("x"), "c", json("\"\"")).check().expect("valid").encoded_size();
        let body = json(&format!("\"{}\"", "x".repeat(bytes - overhead)));
        with_body(&order(n.to_string()), "large", body)
    };
    let full = || (0..MAX_APPEND_BYTES / MAX_COMMIT_BYTES).map(|n| large(n, MAX_COMMIT_BYTES));
    let error = refused(store.append_all(full().chain([commit(&order("more"), "c")])).await);
    let ErrorKind::TooLarge { size, limit, .. } = error.kind() else { panic!("{error:?}") };
    assert!(*limit == MAX_APPEND_BYTES && size > limit, "it says what the limit is");
    assert_eq!(error.outcome(), Outcome::NotApplied, "before anything is stored");
    assert_eq!(store.head(&order("0")).await.expect("the head"), 0, "nothing is");
    let receipts = store.append_all(full()).await.expect("the limit itself is fine");
    assert_eq!(receipts.len(), 4, "a receipt for each");
    let body = load_all(store, &order("3")).await.remove(0).events.remove(0).body;
    assert_eq!(
        body.as_json().len(),
        large(3, MAX_COMMIT_BYTES).check().expect("valid").events()[0].body.as_json().len(),
        "whole"
    );
}
