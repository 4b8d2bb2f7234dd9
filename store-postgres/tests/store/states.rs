//! What becomes of the server's errors: each SQLSTATE raised by the server, in the middle of an append.

use wow_store_api::{ErrorKind, Outcome, PartitionCount, prelude::*};
use wow_store_postgres::PostgresStore;

use crate::support::{Schema, commit, order};

/// A store on a log whose inserts fail with this SQLSTATE so many times.
async fn failing(state: &str, times: u32) -> (Schema, PostgresStore) {
    let schema = Schema::fresh();
    let config = schema.config().with_partitions(PartitionCount::new(1).unwrap());
    let config = config.with_transaction_timeout(std::time::Duration::from_secs(2));
    let store = PostgresStore::open(config).await.unwrap();
    store.append(commit(&order("1"), "first")).await.unwrap();
    // A sequence counts on when its transaction is rolled back.
    schema
        .execute(&format!(
            "CREATE SEQUENCE {0}; \
             CREATE FUNCTION {1}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF nextval('{0}') <= {times} THEN \
                     RAISE EXCEPTION 'a payload: 4711' USING ERRCODE = '{state}'; \
                 END IF; \
                 RETURN NEW; END $$; \
             CREATE TRIGGER fail BEFORE INSERT ON {2} FOR EACH ROW EXECUTE FUNCTION {1}()",
            schema.at("failed"),
            schema.at("fail"),
            schema.at("wow_log__shop__order")
        ))
        .await;
    (schema, store)
}

#[tokio::test]
async fn what_may_work_later_is_tried_again() {
    for state in [
        "40001", "40P01", "55P03", "57014", "57P01", "57P02", "57P03", "53000", "53200", "53300", "58030",
        "08000", "08003", "08006", "23505", "25006",
    ] {
        let (_schema, store) = failing(state, 3).await;
        let receipt = store.append(commit(&order("1"), "c")).await;
        assert_eq!(receipt.unwrap().version(), 2, "{state}: the fourth attempt goes through");
        let together = failing(state, 3).await;
        let receipts = together.1.append_all([commit(&order("1"), "c")]).await;
        assert_eq!(receipts.unwrap()[0].version(), 2, "{state}: several commits as well");
    }
}

#[tokio::test]
async fn what_never_works_is_told_in_time_and_honestly() {
    for (state, outcome) in [
        // The server says that it rolled back.
        ("40001", Outcome::NotApplied),
        ("57014", Outcome::NotApplied),
        // Its end may have swallowed the answer to a commit.
        ("57P01", Outcome::Unknown),
        ("08006", Outcome::Unknown),
    ] {
        let (_schema, store) = failing(state, u32::MAX / 2).await;
        let refused = store.append(commit(&order("1"), "c")).await.unwrap_err();
        assert_eq!(refused.outcome(), outcome, "{state}: {refused:?}");
        assert!(refused.is_transient(), "{state}: it may work later");
        assert_eq!(store.head(&order("1")).await.unwrap(), 1, "{state}: nothing is there");
    }
}

#[tokio::test]
async fn what_cannot_work_is_refused_at_once_with_its_meaning() {
    type Meaning = fn(&ErrorKind) -> bool;
    let cases: [(&str, Meaning); 6] = [
        ("53100", |kind| matches!(kind, ErrorKind::StorageFull)),
        ("42501", |kind| matches!(kind, ErrorKind::Misconfigured { .. })),
        ("42P01", |kind| matches!(kind, ErrorKind::SchemaMismatch { .. })),
        ("XX001", |kind| matches!(kind, ErrorKind::Corrupt { .. })),
        ("22P02", |kind| matches!(kind, ErrorKind::Internal { .. })),
        ("22003", |kind| matches!(kind, ErrorKind::Exhausted { .. })),
    ];
    for (state, means) in cases {
        let (_schema, store) = failing(state, u32::MAX / 2).await;
        let refused = store.append(commit(&order("1"), "c")).await.unwrap_err();
        assert!(means(refused.kind()), "{state}: {refused:?}");
        assert_eq!(refused.outcome(), Outcome::NotApplied, "{state}: nothing was done");
        // The server's own words may quote data.
        assert!(!format!("{refused} {refused:?}").contains("4711"), "{state}: {refused:?}");
        assert_eq!(store.head(&order("1")).await.unwrap(), 1, "{state}: nothing is there");
    }
}

#[tokio::test]
async fn one_that_fails_does_not_take_its_neighbours_along() {
    let schema = Schema::fresh();
    let config = schema.config().with_partitions(PartitionCount::new(1).unwrap());
    let store = PostgresStore::open(config).await.unwrap();
    store.append(commit(&order("0"), "first")).await.unwrap();
    schema
        .execute(&format!(
            "ALTER TABLE {} ADD CONSTRAINT not_this_one CHECK (id <> 'bad')",
            schema.at("wow_log__shop__order")
        ))
        .await;
    let ids: Vec<_> = ["a", "bad", "b", "c"].map(order).into();
    let outcomes = futures::future::join_all(ids.iter().map(|id| store.append(commit(id, "c")))).await;
    let stored: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(stored, [true, false, true, true], "only the one that the server refuses: {outcomes:?}");
    let mut positions: Vec<u64> = outcomes.into_iter().flatten().map(|receipt| receipt.position()).collect();
    positions.sort_unstable();
    assert_eq!(positions, [2, 3, 4], "and it leaves no hole");
}
