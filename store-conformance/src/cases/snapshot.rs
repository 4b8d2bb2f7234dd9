//! Snapshots (S1 to S4).

use std::sync::Arc;

use rust_decimal::{Decimal, dec};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wow_store_api::{
    AggregateId, AggregateType, ErrorKind, EventStore, MAX_COUNTER, MAX_REVISION, Outcome, Payload,
    SaveSnapshot, Snapshot, SnapshotSaved, Version,
    payload::{MAX_DEPTH, MAX_PAYLOAD_BYTES},
    query::SnapshotQuery,
};

use super::{support::race, tools::neighbours};
use crate::{
    case::topic,
    env::{Env, append_many, order},
};

topic! { "snapshot":
    absent_one_is_none [S1],
    saved_one_comes_back [S1],
    newer_one_replaces [S1],
    older_one_is_kept_out [S1],
    same_version_is_replaced [S1],
    latest_wins_whatever_the_order [S1],
    latest_wins_under_concurrent_saves [S1],
    version_decides_within_one_instant [S1] sets_clock,
    another_revision_is_not_returned [S2],
    higher_revision_replaces_at_any_version [S2],
    lower_revision_is_kept_out [S2],
    ahead_of_the_log_is_refused [S3],
    ahead_of_a_restored_log_is_not_used [S3, S4],
    version_and_revision_have_bounds [S1, S2],
    state_comes_back_exactly [S1, PAYLOAD],
    the_largest_state_is_kept [S1, PAYLOAD] is_heavy,
    aggregates_and_tenants_are_separate [S1],
    delete_drops_one [S4],
    drop_takes_all_of_one_type [S4],
    dropped_one_is_rebuilt_at_any_version [S4],
    saving_leaves_the_log_alone [S4],
    survives_reopen [S1],
}

async fn save(
    store: &Arc<dyn EventStore>,
    id: &AggregateId,
    version: Version,
    revision: u32,
) -> SnapshotSaved {
    let save = SaveSnapshot::new(id.clone(), version, revision, &json!({"at": version, "of": revision}));
    store.save_snapshot(save.expect("a valid state")).await.expect("the save is answered")
}

async fn stored(store: &Arc<dyn EventStore>, id: &AggregateId, revision: u32) -> Option<Snapshot> {
    store.snapshot(id, revision).await.expect("the snapshot is read")
}

/// The version that is stored, checked against the state.
async fn version(store: &Arc<dyn EventStore>, id: &AggregateId, revision: u32) -> Option<Version> {
    let snapshot = stored(store, id, revision).await?;
    let expected = Payload::from_serialize(&json!({"at": snapshot.version, "of": revision}));
    assert_eq!(snapshot.state, expected.expect("a valid state"), "the state is that of its version");
    Some(snapshot.version)
}

async fn absent_one_is_none(env: Env) {
    let (store, id) = (env.store(), order("1"));
    assert_eq!(stored(store, &id, 1).await, None, "nothing was ever stored");
    append_many(store, &id, "c", 2).await;
    assert_eq!(stored(store, &id, 1).await, None, "commits make no snapshot");
    assert!(!store.delete_snapshot(&id).await.expect("answered"), "there is none to drop");
    let none = store.drop_snapshots(id.aggregate_type()).await.expect("answered");
    assert_eq!(none, 0, "there are none to drop");
}

async fn saved_one_comes_back(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    let before = store.now().await.expect("the time");
    assert_eq!(save(store, &id, 3, 7).await, SnapshotSaved::Saved, "it is stored");
    let after = store.now().await.expect("the time");
    let snapshot = stored(store, &id, 7).await.expect("it is there");
    assert_eq!((&snapshot.aggregate_id, snapshot.version, snapshot.revision), (&id, 3, 7), "as it was saved");
    assert!((before..=after).contains(&snapshot.saved_at), "at the store's time");
}

async fn newer_one_replaces(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    for at in [1, 2, 3] {
        assert_eq!(save(store, &id, at, 1).await, SnapshotSaved::Saved, "a newer one is stored");
        assert_eq!(version(store, &id, 1).await, Some(at), "and is the one");
    }
}

async fn older_one_is_kept_out(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    save(store, &id, 3, 1).await;
    let before = stored(store, &id, 1).await;
    for at in [1, 2] {
        let kept = SnapshotSaved::Kept { revision: 1, version: 3 };
        assert_eq!(save(store, &id, at, 1).await, kept, "it says that a newer one stays");
    }
    assert_eq!(stored(store, &id, 1).await, before, "and nothing of it changed");
}

async fn same_version_is_replaced(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    save(store, &id, 2, 1).await;
    let again = SaveSnapshot::new(id.clone(), 2, 1, &"repaired").expect("a valid state");
    assert_eq!(store.save_snapshot(again).await.expect("answered"), SnapshotSaved::Saved, "it is stored");
    let state = stored(store, &id, 1).await.expect("it is there").state;
    assert_eq!(state.as_json(), r#""repaired""#, "in place of the first");
}

async fn latest_wins_whatever_the_order(env: Env) {
    let (store, versions) = (env.store(), [1, 2, 3, 4]);
    for (round, a) in versions.into_iter().enumerate() {
        for b in versions.into_iter().filter(|b| *b != a) {
            let id = order(format!("{round}-{b}"));
            append_many(store, &id, "c", 4).await;
            for at in [a, b, a] {
                save(store, &id, at, 1).await;
            }
            assert_eq!(version(store, &id, 1).await, Some(a.max(b)), "the latest stays");
        }
    }
}

async fn latest_wins_under_concurrent_saves(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    let mut saves = [100, 50, 100, 99, 1, 98, 2, 97];
    let id = order("1");
    append_many(&stores[0], &id, "c", 100).await;
    for _ in 0..8 {
        saves.rotate_left(1);
        let answers = race(saves.len(), |n| {
            let (store, id) = (Arc::clone(&stores[n % 2]), id.clone());
            async move { save(&store, &id, saves[n], 1).await }
        })
        .await;
        for (at, answer) in saves.into_iter().zip(answers) {
            if let SnapshotSaved::Kept { version, .. } = answer {
                assert!(version > at, "what kept it out is newer");
            } else if at == 100 {
                continue;
            }
        }
        assert_eq!(version(&stores[0], &id, 1).await, Some(100), "the latest stays");
        stores[0].delete_snapshot(&id).await.expect("dropped for the next round");
    }
}

async fn version_decides_within_one_instant(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 20).await;
    // The clock stands still, then goes back: time has no say.
    save(store, &id, 20, 1).await;
    save(store, &id, 10, 1).await;
    assert_eq!(version(store, &id, 1).await, Some(20), "of two saves in one ms the higher version stays");
    append_many(store, &id, "d", 1).await;
    let now = store.now().await.expect("the time");
    env.clock().set(wow_store_api::Timestamp::from_millis(now.as_millis() - 60_000).expect("in range"));
    save(store, &id, 21, 1).await;
    assert_eq!(version(store, &id, 1).await, Some(21), "a clock that went back keeps no newer version out");
    env.clock().set(now);
    save(store, &id, 10, 1).await;
    assert_eq!(version(store, &id, 1).await, Some(21), "a later save of an older version stays out");
}

async fn another_revision_is_not_returned(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    save(store, &id, 3, 5).await;
    for revision in [0, 4, 6, MAX_REVISION] {
        assert_eq!(stored(store, &id, revision).await, None, "it has another shape");
    }
    assert_eq!(version(store, &id, 5).await, Some(3), "its own revision finds it");
}

async fn higher_revision_replaces_at_any_version(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    save(store, &id, 3, 1).await;
    assert_eq!(save(store, &id, 1, 2).await, SnapshotSaved::Saved, "a newer shape replaces an older one");
    assert_eq!(version(store, &id, 2).await, Some(1), "also at an earlier version");
    assert_eq!(stored(store, &id, 1).await, None, "there is one per aggregate");
}

async fn lower_revision_is_kept_out(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    save(store, &id, 1, 2).await;
    let kept = SnapshotSaved::Kept { revision: 2, version: 1 };
    assert_eq!(save(store, &id, 3, 1).await, kept, "old and new nodes of a rolling update do not fight");
    assert_eq!(version(store, &id, 2).await, Some(1), "the newer shape stays");
}

async fn ahead_of_the_log_is_refused(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 2).await;
    save(store, &id, 1, 1).await;
    for (id, at) in [(&id, 3), (&id, 4), (&id, MAX_COUNTER), (&order("never-used"), 1)] {
        let save = SaveSnapshot::new(id.clone(), at, 1, &0).expect("a valid state");
        let error = store.save_snapshot(save).await.expect_err("the log has no such version");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was stored");
    }
    assert_eq!(version(store, &id, 1).await, Some(1), "the stored one is untouched");
    assert_eq!(save(store, &id, 2, 1).await, SnapshotSaved::Saved, "the last version of the log is fine");
}

async fn ahead_of_a_restored_log_is_not_used(mut env: Env) {
    let (partition, ids) = neighbours(env.store(), 0, 3).await;
    for id in &ids {
        append_many(env.store(), id, "c", 2).await;
        save(env.store(), id, 2, 5).await;
    }
    // What the backup of the log does not hold: the second commit of one, both of another.
    env.lose_log_after(&partition, 3).await;
    let store = env.store();
    let heads = [store.head(&ids[0]).await, store.head(&ids[1]).await, store.head(&ids[2]).await];
    assert_eq!(heads.map(|head| head.expect("the head")), [2, 1, 0], "the log is back where it was");
    assert_eq!(version(store, &ids[0], 5).await, Some(2), "one that is not ahead is as good as before");
    assert_eq!(stored(store, &ids[1], 5).await, None, "one that is ahead would stand for lost commits");
    assert_eq!(stored(store, &ids[2], 5).await, None, "also where no commit is left");
    let all = || SnapshotQuery::new(ids[0].aggregate_type().clone(), 5);
    let found = store.query_snapshots(all()).await.expect("a page").items;
    let found: Vec<_> = found.iter().map(|it| &it.aggregate_id).collect();
    assert_eq!(found, [&ids[0]], "a query does not find them either");
    assert_eq!(store.count_snapshots(all()).await.expect("a count"), 1, "or count them");
    assert_eq!(save(store, &ids[1], 1, 5).await, SnapshotSaved::Saved, "it keeps nothing out");
    assert_eq!(version(store, &ids[1], 5).await, Some(1), "what was made from the log is there");
    append_many(store, &ids[2], "d", 1).await;
    assert_eq!(save(store, &ids[2], 1, 4).await, SnapshotSaved::Saved, "whatever its revision was");
    assert_eq!(version(store, &ids[2], 4).await, Some(1), "and it is the one");
}

async fn version_and_revision_have_bounds(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 1).await;
    for (at, revision) in [(0, 1), (MAX_COUNTER + 1, 1), (u64::MAX, 1), (1, MAX_REVISION + 1), (1, u32::MAX)]
    {
        let save = SaveSnapshot::new(id.clone(), at, revision, &0).expect("a valid state");
        let error = store.save_snapshot(save).await.expect_err("out of bounds");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was stored");
    }
    assert!(!store.delete_snapshot(&id).await.expect("answered"), "there is none");
    for revision in [0, MAX_REVISION] {
        assert_eq!(save(store, &id, 1, revision).await, SnapshotSaved::Saved, "the outermost are fine");
        assert_eq!(version(store, &id, revision).await, Some(1), "and found");
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    #[serde(with = "wow_store_api::payload::decimal")]
    balance: Decimal,
    #[serde(rename = "$set", with = "wow_store_api::payload::decimal")]
    limit: Decimal,
    #[serde(rename = "a.b")]
    dotted: Option<i64>,
    #[serde(rename = "")]
    unnamed: Vec<u64>,
}

async fn state_comes_back_exactly(env: Env) {
    let store = env.store();
    let account = Account {
        balance: dec!(1.10),
        limit: dec!(-79228162514264337593543950335),
        dotted: None,
        unnamed: vec![0, u64::MAX],
    };
    let id = order("typed");
    append_many(store, &id, "c", 1).await;
    let save = SaveSnapshot::new(id.clone(), 1, 1, &account).expect("a valid state");
    store.save_snapshot(save).await.expect("stored");
    let read: Account = stored(store, &id, 1).await.expect("there").state.decode().expect("the same shape");
    assert_eq!(read, account, "equal in value");
    assert_eq!(read.balance.to_string(), "1.10", "with its scale");
    let deep = format!("{}1{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    for (n, text) in [
        "null",
        "true",
        "0",
        "-1.50",
        "1234567890123456789012345678901234",
        "1e-6000",
        r#""""#,
        r#"{"$gt":{"$oid":"x"},"a.b":{"":[]},"é":"é","_id":null}"#,
        "[]",
        "{}",
        r#"{"a.b":1,"a":{"c":2},"$set":{"a":3},"$unset":{"a":1}}"#,
        r#"{"a":{"b":1}}"#,
        &deep,
    ]
    .into_iter()
    .enumerate()
    {
        // Alone, and in the place of the one before it, of which nothing may be left.
        for (id, version) in [(order(n.to_string()), 1), (order("all"), n as u64 + 1)] {
            append_many(store, &id, &format!("c{n}"), 1).await;
            let state = Payload::from_json(text).expect("inside the profile");
            let save = SaveSnapshot { aggregate_id: id.clone(), version, revision: 1, state: state.clone() };
            store.save_snapshot(save).await.expect("stored");
            assert_eq!(stored(store, &id, 1).await.map(|it| it.state), Some(state), "equal in value: {text}");
        }
    }
}

async fn the_largest_state_is_kept(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 1).await;
    let of = |bytes: usize| Payload::from_serialize(&"x".repeat(bytes));
    let overhead = of(1_000).expect("small").size() - 1_000;
    let state = of(MAX_PAYLOAD_BYTES - overhead).expect("the limit itself is fine");
    let save = SaveSnapshot { aggregate_id: id.clone(), version: 1, revision: 1, state: state.clone() };
    assert_eq!(
        store.save_snapshot(save).await.expect("answered"),
        SnapshotSaved::Saved,
        "every store takes it"
    );
    let back = stored(store, &id, 1).await.expect("it is there").state;
    assert!(back == state, "whole");
    assert!(of(MAX_PAYLOAD_BYTES - overhead + 1).is_err(), "one more is refused before a store is asked");
}

async fn aggregates_and_tenants_are_separate(env: Env) {
    let store = env.store();
    let ids = [
        order("1"),
        order("1").with_tenant("acme").expect("a valid tenant"),
        order("1").with_tenant("Acme").expect("a valid tenant"),
        AggregateId::new("shop", "cart", "1").expect("a valid id"),
        AggregateId::new("bank", "order", "1").expect("a valid id"),
        order("1 "),
    ];
    for (at, id) in (1..).zip(&ids) {
        append_many(store, id, "c", 6).await;
        assert_eq!(save(store, id, at, 1).await, SnapshotSaved::Saved, "each has its own");
    }
    for (at, id) in (1..).zip(&ids) {
        let snapshot = stored(store, id, 1).await.expect("it is there");
        assert_eq!((&snapshot.aggregate_id, snapshot.version), (id, at), "its own");
    }
}

async fn delete_drops_one(env: Env) {
    let (store, a, b) = (env.store(), order("a"), order("a").with_tenant("acme").expect("a valid tenant"));
    for id in [&a, &b] {
        append_many(store, id, "c", 1).await;
        save(store, id, 1, 1).await;
    }
    assert!(store.delete_snapshot(&a).await.expect("answered"), "it was there");
    assert_eq!(
        (version(store, &a, 1).await, version(store, &b, 1).await),
        (None, Some(1)),
        "it alone is gone"
    );
    assert!(!store.delete_snapshot(&a).await.expect("answered"), "it is gone already");
}

async fn drop_takes_all_of_one_type(env: Env) {
    let store = env.store();
    let cart = |id: &str| AggregateId::new("shop", "cart", id).expect("a valid id");
    let bank = AggregateId::new("bank", "order", "1").expect("a valid id");
    let ids = [order("1"), order("2"), order("1").with_tenant("acme").expect("valid"), cart("1"), bank];
    for (revision, id) in (1..).zip(&ids) {
        append_many(store, id, "c", 1).await;
        save(store, id, 1, revision).await;
    }
    let order_type = AggregateType::new("shop", "order").expect("a valid type");
    let dropped = store.drop_snapshots(&order_type).await.expect("answered");
    assert_eq!(dropped, 3, "of every tenant and revision");
    for (revision, id) in (1..).zip(&ids) {
        let kept = id.aggregate_type() != &order_type;
        assert_eq!(version(store, id, revision).await.is_some(), kept, "those of other types stay: {id}");
    }
    assert_eq!(store.drop_snapshots(&order_type).await.expect("answered"), 0, "they are gone already");
}

async fn dropped_one_is_rebuilt_at_any_version(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    save(store, &id, 3, 2).await;
    store.delete_snapshot(&id).await.expect("answered");
    assert_eq!(save(store, &id, 1, 1).await, SnapshotSaved::Saved, "nothing of the dropped one is left");
    assert_eq!(version(store, &id, 1).await, Some(1), "and it is there again");
    store.drop_snapshots(id.aggregate_type()).await.expect("answered");
    assert_eq!(version(store, &id, 1).await, None, "dropped again");
    assert_eq!(save(store, &id, 1, 0).await, SnapshotSaved::Saved, "and rebuilt");
}

async fn saving_leaves_the_log_alone(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    let before = super::support::load(store, &id).await;
    let heads = store.heads(id.context()).await.expect("heads");
    save(store, &id, 3, 1).await;
    store.drop_snapshots(id.aggregate_type()).await.expect("answered");
    assert_eq!(super::support::load(store, &id).await, before, "the log is as it was");
    assert_eq!(store.heads(id.context()).await.expect("heads"), heads, "and its heads");
    let next = append_many(store, &id, "d", 1).await;
    assert_eq!(next[0].version, 4, "and goes on");
}

async fn survives_reopen(mut env: Env) {
    let id = order("1");
    append_many(env.store(), &id, "c", 3).await;
    save(env.store(), &id, 2, 3).await;
    let before = stored(env.store(), &id, 3).await;
    env.reopen().await;
    assert_eq!(stored(env.store(), &id, 3).await, before, "it is as it was");
    let kept = SnapshotSaved::Kept { revision: 3, version: 2 };
    assert_eq!(save(env.store(), &id, 1, 3).await, kept, "and still keeps older ones out");
}
