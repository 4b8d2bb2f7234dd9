//! Queries: order, pages, projection, waiting and what is refused (Q1, Q3).

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use wow_store_api::{
    AggregateType, Error, ErrorKind, EventStore, MAX_REVISION, Outcome, Payload, Result, SaveSnapshot,
    query::{
        AtLeast, Cursor, EventQuery, Field, Filter, MAX_FILTER_DEPTH, MAX_QUERY_LIMIT, MAX_QUERY_WAIT,
        MAX_SORT_FIELDS, Path, Scalar, SnapshotQuery, Sort,
    },
};

use super::{
    query::{events, snapshots, store_body},
    tools::poll_once,
};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, soon},
};

topic! { "query_pages":
    order_of_all_kinds_of_values [Q1],
    order_by_several_fields [Q1],
    ties_go_by_tenant_and_id [Q1],
    events_come_in_the_order_of_the_log [Q1],
    events_are_sorted_by_body_and_envelope [Q1],
    pages_give_each_item_once [Q1],
    next_cursor_only_if_there_is_more [Q1],
    cursor_goes_behind_an_item_that_is_gone [Q1],
    pages_hold_under_concurrent_writes [Q1],
    filter_may_change_between_pages [Q1],
    count_is_of_all_pages [Q1],
    projection_keeps_only_what_is_asked_for [Q1],
    cursor_of_another_query_is_refused [Q1],
    bad_requests_are_refused [Q1],
    largest_page_is_fine [Q1],
    waits_for_a_snapshot [Q3],
    waits_for_an_event [Q3],
    wait_times_out [Q3],
    waits_for_nothing_that_is_there [Q3],
}

fn at(key: &str) -> Field {
    Field::body([key]).expect("a valid path")
}

/// The ids of all pages of a query of snapshots, each cursor sent through its text.
async fn paged(store: &Arc<dyn EventStore>, query: &SnapshotQuery, limit: usize) -> Vec<String> {
    let (mut ids, mut query) = (Vec::new(), query.clone().with_limit(limit));
    loop {
        let page = store.query_snapshots(query.clone()).await.expect("a page");
        assert!(page.items.len() <= limit, "at most as many as asked for");
        assert!(page.next.is_none() || page.items.len() == limit, "only the last page is short");
        ids.extend(page.items.iter().map(|item| item.aggregate_id.id().to_owned()));
        let Some(next) = page.next else { return ids };
        query.after = Some(next.to_string().parse().expect("a cursor comes back from its text"));
        // Others get a turn between two pages.
        tokio::task::yield_now().await;
    }
}

/// The same of a query of events.
async fn paged_events(store: &Arc<dyn EventStore>, query: &EventQuery, limit: usize) -> Vec<String> {
    let (mut ids, mut query) = (Vec::new(), query.clone().with_limit(limit));
    loop {
        let page = store.query_events(query.clone()).await.expect("a page");
        assert!(page.items.len() <= limit, "at most as many as asked for");
        assert!(page.next.is_none() || page.items.len() == limit, "only the last page is short");
        ids.extend(page.items.iter().map(|item| item.aggregate_id.id().to_owned()));
        let Some(next) = page.next else { return ids };
        query.after = Some(next.to_string().parse().expect("a cursor comes back from its text"));
    }
}

/// Bodies in the order of their values `v`, least first, ties by id.
const ORDERED: &[(&str, &str)] = &[
    ("z-missing", "{}"),
    ("y-null", r#"{"v":null}"#),
    ("x-false", r#"{"v":false}"#),
    ("w-true", r#"{"v":true}"#),
    ("v-neg", r#"{"v":-1E6000}"#),
    ("u-minus", r#"{"v":-0.5}"#),
    ("t-zero", r#"{"v":0}"#),
    ("s-tiny", r#"{"v":1E-6000}"#),
    ("r-a", r#"{"v":1.1}"#),
    ("r-b", r#"{"v":1.10}"#),
    ("q-more", r#"{"v":1.100000000000000000000000000000001}"#),
    ("p-two", r#"{"v":2}"#),
    ("o-ten", r#"{"v":10}"#),
    ("n-long", r#"{"v":1234567890123456789012345678901233}"#),
    ("m-longer", r#"{"v":1234567890123456789012345678901234}"#),
    ("l-empty", r#"{"v":""}"#),
    ("k-10", r#"{"v":"10"}"#),
    ("j-2", r#"{"v":"2"}"#),
    ("i-B", r#"{"v":"B"}"#),
    ("h-a", r#"{"v":"a"}"#),
    ("g-aa", r#"{"v":"aa"}"#),
    ("f-accent", r#"{"v":"é"}"#),
    ("e-array", r#"{"v":[1]}"#),
    ("e-empty", r#"{"v":[]}"#),
    ("d-empty", r#"{"v":{}}"#),
    ("d-object", r#"{"v":{"a":1}}"#),
];

async fn order_of_all_kinds_of_values(env: Env) {
    let store = env.store();
    for (id, body) in ORDERED.iter().rev() {
        store_body(store, id, body).await;
    }
    let ascending: Vec<&str> = ORDERED.iter().map(|(id, _)| *id).collect();
    // Turned round, but for those that tie: these always go by id.
    let mut descending = ascending.clone();
    descending.reverse();
    for pair in [("r-b", "r-a"), ("e-empty", "e-array"), ("d-object", "d-empty")] {
        let at = descending.iter().position(|id| *id == pair.0).expect("it is there");
        descending.swap(at, at + 1);
    }
    for (sort, expected) in [(Sort::ascending(at("v")), &ascending), (Sort::descending(at("v")), &descending)]
    {
        for limit in [1, 3, 1_000] {
            let query = snapshots().with_sort([sort.clone()]);
            assert_eq!(&paged(store, &query, limit).await, expected, "one order for all kinds of values");
            let query = events().with_sort([sort.clone(), Sort::ascending(Field::Id)]);
            assert_eq!(&paged_events(store, &query, limit).await, expected, "and for events");
        }
    }
}

async fn order_by_several_fields(env: Env) {
    let store = env.store();
    for (id, body) in [
        ("1", r#"{"a":1,"b":"x"}"#),
        ("2", r#"{"a":1,"b":"y"}"#),
        ("3", r#"{"a":2,"b":"x"}"#),
        ("4", r#"{"a":2}"#),
        ("5", r#"{"b":"y"}"#),
        ("6", r#"{"a":1.0,"b":"x"}"#),
    ] {
        store_body(store, id, body).await;
    }
    for (sort, expected) in [
        ([Sort::ascending(at("a")), Sort::ascending(at("b"))], "516243"),
        ([Sort::ascending(at("a")), Sort::descending(at("b"))], "521634"),
        ([Sort::descending(at("b")), Sort::descending(at("a"))], "253164"),
        ([Sort::descending(at("a")), Sort::descending(Field::Id)], "436215"),
    ] {
        for limit in [1, 2, 10] {
            let query = snapshots().with_sort(sort.clone());
            assert_eq!(paged(store, &query, limit).await.concat(), expected, "{sort:?}");
        }
    }
}

async fn ties_go_by_tenant_and_id(env: Env) {
    let store = env.store();
    let mut expected = Vec::new();
    for tenant in ["", "B", "a", "é"] {
        for id in ["10", "9", "Z", "a", "ä"] {
            let plain = order(id);
            let id =
                if tenant.is_empty() { plain } else { plain.with_tenant(tenant).expect("a valid tenant") };
            expected.push(id);
        }
    }
    for id in expected.iter().rev() {
        append_many(store, id, "c", 1).await;
        let save = SaveSnapshot::new(id.clone(), 1, 1, &serde_json::json!({"v": 1})).expect("a valid state");
        store.save_snapshot(save).await.expect("saved");
    }
    for sort in [vec![], vec![Sort::ascending(at("v"))], vec![Sort::descending(at("v"))]] {
        let (mut seen, mut query) = (Vec::new(), snapshots().with_sort(sort).with_limit(3));
        loop {
            let page = store.query_snapshots(query.clone()).await.expect("a page");
            seen.extend(page.items.into_iter().map(|item| item.aggregate_id));
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        assert_eq!(seen, expected, "by tenant, then id, by bytes, whichever way the sort goes");
    }
}

async fn events_come_in_the_order_of_the_log(env: Env) {
    let store = env.store();
    for n in 0..20 {
        let id = order(n.to_string());
        for round in 0..2 {
            let two = commit(&id, format!("c{round}")).event("Second", 1, &round).expect("a valid event");
            wow_store_api::StoreExt::append(store.as_ref(), two).await.expect("stored");
        }
    }
    for limit in [1, 7, 1_000] {
        let (mut seen, mut query) = (Vec::new(), events().with_limit(limit));
        loop {
            let page = store.query_events(query.clone()).await.expect("a page");
            seen.extend(page.items.iter().map(|item| (item.partition, item.position, item.index)));
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        assert_eq!(seen.len(), 80, "each event once");
        assert!(seen.is_sorted(), "by partition, position and index in the commit");
    }
}

async fn events_are_sorted_by_body_and_envelope(env: Env) {
    let store = env.store();
    for n in [3, 1, 2, 5, 4] {
        let body = serde_json::json!({"v": n % 3}).to_string();
        store_body(store, &n.to_string(), &body).await;
    }
    for (sort, expected) in [
        (vec![Sort::descending(Field::Id)], "54321"),
        (vec![Sort::ascending(at("v")), Sort::ascending(Field::Id)], "31425"),
        (vec![Sort::descending(at("v")), Sort::ascending(Field::Id)], "25143"),
        (vec![Sort::ascending(Field::EventName), Sort::ascending(Field::Id)], "12345"),
        (vec![Sort::ascending(Field::Version), Sort::descending(Field::Id)], "54321"),
    ] {
        for limit in [1, 2, 5] {
            let query = events().with_sort(sort.clone());
            assert_eq!(paged_events(store, &query, limit).await.concat(), expected, "{sort:?}");
        }
    }
}

async fn pages_give_each_item_once(env: Env) {
    let store = env.store();
    for n in 0..23 {
        store_body(store, &format!("{n:02}"), &format!(r#"{{"v":{}}}"#, n % 4)).await;
    }
    let mut expected: Vec<(u32, String)> = (0..23).map(|n| (n % 4, format!("{n:02}"))).collect();
    expected.sort();
    let ids = |expected: &[(u32, String)]| expected.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>();
    let query = snapshots().with_sort([Sort::ascending(at("v"))]);
    for limit in [1, 2, 5, 6, 22, 23, 24] {
        assert_eq!(paged(store, &query, limit).await, ids(&expected), "over ties, in pages of {limit}");
    }
    expected.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let query = snapshots().with_sort([Sort::descending(at("v"))]);
    for limit in [1, 5, 23] {
        assert_eq!(paged(store, &query, limit).await, ids(&expected), "the other way, in pages of {limit}");
    }
}

async fn next_cursor_only_if_there_is_more(env: Env) {
    let store = env.store();
    for n in 0..4 {
        store_body(store, &n.to_string(), &format!(r#"{{"v":{n}}}"#)).await;
    }
    for (limit, more) in [(1, true), (3, true), (4, false), (5, false)] {
        let page = store.query_snapshots(snapshots().with_limit(limit)).await.expect("a page");
        assert_eq!((page.items.len(), page.next.is_some()), (limit.min(4), more), "a limit of {limit}");
        let page = store.query_events(events().with_limit(limit)).await.expect("a page");
        assert_eq!((page.items.len(), page.next.is_some()), (limit.min(4), more), "a limit of {limit}");
    }
    let small = Filter::lt(at("v"), 2);
    let page = store.query_snapshots(snapshots().with_filter(small).with_limit(2)).await.expect("a page");
    assert_eq!((page.items.len(), page.next), (2, None), "there is more, but nothing that the filter finds");
}

async fn cursor_goes_behind_an_item_that_is_gone(env: Env) {
    let store = env.store();
    for id in ["a", "b", "c", "d"] {
        store_body(store, id, r#"{"v":1}"#).await;
    }
    let query = snapshots().with_sort([Sort::ascending(at("v"))]).with_limit(2);
    let page = store.query_snapshots(query.clone()).await.expect("a page");
    assert_eq!(page.items[1].aggregate_id, order("b"), "the page ends here");
    store.delete_snapshot(&order("b")).await.expect("dropped");
    for id in ["aa", "ab", "bb"] {
        store_body(store, id, r#"{"v":1}"#).await;
    }
    let next = query.with_after(page.next.expect("there is more"));
    let page = store.query_snapshots(next.with_limit(10)).await.expect("a page");
    let ids: Vec<&str> = page.items.iter().map(|item| item.aggregate_id.id()).collect();
    assert_eq!(ids, ["bb", "c", "d"], "from behind its place on, wherever that is now");
}

async fn pages_hold_under_concurrent_writes(env: Env) {
    let (store, other) = (Arc::clone(env.store()), env.second_handle().await);
    for n in 0..40 {
        store_body(&store, &format!("still-{n:02}"), &format!(r#"{{"v":{}}}"#, n % 5)).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            for n in 0..200 {
                if done.load(Ordering::SeqCst) {
                    break;
                }
                // New ones, and some that move from one end to the other.
                let id = order(format!("moving-{}", n % 20));
                let receipts = append_many(&other, &id, &format!("w{n}"), 1).await;
                let state = serde_json::json!({"v": (n * 7) % 5});
                let save = SaveSnapshot::new(id, receipts[0].version, 1, &state).expect("a valid state");
                other.save_snapshot(save).await.expect("saved");
                tokio::task::yield_now().await;
            }
        }
    });
    for (round, sort) in
        [Sort::ascending(at("v")), Sort::descending(at("v"))].into_iter().cycle().take(6).enumerate()
    {
        let query = snapshots().with_sort([sort.clone()]);
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for id in paged(&store, &query, 3 + round).await {
            *seen.entry(id).or_default() += 1;
        }
        for n in 0..40 {
            let times = seen.get(&format!("still-{n:02}")).copied();
            assert_eq!(times, Some(1), "what did not change comes exactly once");
        }
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::SeqCst);
    soon("the writer ends", writer).await.expect("the writer does not panic");
}

async fn filter_may_change_between_pages(env: Env) {
    let store = env.store();
    for n in 0..6 {
        store_body(store, &n.to_string(), &format!(r#"{{"v":{n},"even":{}}}"#, n % 2 == 0)).await;
    }
    let page = store.query_snapshots(snapshots().with_limit(2)).await.expect("a page");
    let narrower = snapshots().with_filter(Filter::eq(at("even"), true)).with_after(page.next.expect("more"));
    let page = store.query_snapshots(narrower).await.expect("the cursor is a place in the order");
    let ids: Vec<&str> = page.items.iter().map(|item| item.aggregate_id.id()).collect();
    assert_eq!(ids, ["2", "4"], "from there on, what the new filter finds");
}

async fn count_is_of_all_pages(env: Env) {
    let store = env.store();
    for n in 0..9 {
        store_body(store, &n.to_string(), &format!(r#"{{"v":{n}}}"#)).await;
    }
    let big = Filter::ge(at("v"), 3);
    let query = snapshots().with_filter(big.clone()).with_sort([Sort::descending(at("v"))]).with_limit(2);
    let page = store.query_snapshots(query.clone()).await.expect("a page");
    let second = query.clone().with_after(page.next.expect("more")).with_projection([]);
    for query in [query, second] {
        assert_eq!(store.count_snapshots(query).await.expect("counted"), 6, "of all pages together");
    }
    let query = events().with_filter(big).with_limit(1);
    let page = store.query_events(query.clone()).await.expect("a page");
    let second = query.clone().with_after(page.next.expect("more"));
    for query in [query, second] {
        assert_eq!(store.count_events(query).await.expect("counted"), 6, "of all pages together");
    }
}

async fn projection_keeps_only_what_is_asked_for(env: Env) {
    let store = env.store();
    let body = r#"{"z":1.10,"a":{"b":{"c":[1,{"d":2}],"e":null},"f":true},"a.b":"dot","$x":{"":0}}"#;
    store_body(store, "object", body).await;
    store_body(store, "scalar", "17").await;
    let path = |pointer: &str| pointer.parse::<Path>().expect("a valid pointer");
    let json = |text: &str| Payload::from_json(text).expect("a payload");
    // A store may change the order of keys, and no digit.
    let exact = |payload: &Payload| {
        let mut letters = payload.as_json().as_bytes().to_vec();
        letters.sort_unstable();
        (payload.clone(), letters)
    };
    for (pointers, expected) in [
        (vec!["/z"], r#"{"z":1.10}"#),
        (vec!["/a/b/c", "/z"], r#"{"z":1.10,"a":{"b":{"c":[1,{"d":2}]}}}"#),
        (vec!["/a/b/e"], r#"{"a":{"b":{"e":null}}}"#),
        (vec!["/a", "/a/b/e"], r#"{"a":{"b":{"c":[1,{"d":2}],"e":null},"f":true}}"#),
        (vec!["/a.b", "/$x/"], r#"{"a.b":"dot","$x":{"":0}}"#),
        (vec!["/a/b/c/0", "/a/x/y", "/nowhere"], "{}"),
        (vec![], "{}"),
    ] {
        let paths: Vec<Path> = pointers.iter().map(|pointer| path(pointer)).collect();
        let sorted = [Sort::ascending(at("z"))];
        let query = snapshots().with_projection(paths.clone()).with_sort(sorted.clone());
        let page = store.query_snapshots(query).await.expect("a page");
        let states: Vec<_> = page.items.iter().map(|item| exact(&item.state)).collect();
        let expected = [exact(&json("{}")), exact(&json(expected))];
        assert_eq!(states, expected, "what {pointers:?} leave of a state");
        let page =
            store.query_events(events().with_projection(paths).with_sort(sorted)).await.expect("a page");
        let bodies: Vec<_> = page.items.iter().map(|item| exact(&item.body)).collect();
        assert_eq!(bodies, expected, "what {pointers:?} leave of a body");
    }
    let whole = store.query_snapshots(snapshots()).await.expect("a page");
    let states: Vec<_> = whole.items.iter().map(|item| exact(&item.state)).collect();
    assert_eq!(states, [exact(&json(body)), exact(&json("17"))], "without a projection all of it");
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(result: Result<T>) -> Error {
    let error = result.expect_err("it is refused");
    assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "nothing happened");
    error
}

async fn cursor_of_another_query_is_refused(env: Env) {
    let store = env.store();
    for id in ["a", "b", "c"] {
        store_body(store, id, r#"{"v":1}"#).await;
    }
    let by_v = snapshots().with_sort([Sort::ascending(at("v"))]).with_limit(1);
    let cursor: Cursor = store.query_snapshots(by_v.clone()).await.expect("a page").next.expect("more");
    let cart: AggregateType = "shop.cart".parse().expect("a valid type");
    let others = [
        snapshots(),
        snapshots().with_sort([Sort::descending(at("v"))]),
        snapshots().with_sort([Sort::ascending(at("w"))]),
        snapshots().with_sort([Sort::ascending(at("v")), Sort::ascending(Field::Id)]),
        SnapshotQuery { aggregate_type: cart, ..by_v.clone() },
    ];
    for query in others {
        assert_invalid(store.query_snapshots(query.clone().with_after(cursor.clone())).await);
        assert_invalid(store.count_snapshots(query.with_after(cursor.clone())).await);
    }
    let of_events = events().with_sort([Sort::ascending(at("v"))]).with_after(cursor.clone());
    assert_invalid(store.query_events(of_events.clone()).await);
    assert_invalid(store.count_events(of_events).await);
    let page = store.query_snapshots(by_v.with_after(cursor)).await.expect("its own query");
    assert_eq!(page.items[0].aggregate_id, order("b"), "goes on");
}

async fn bad_requests_are_refused(env: Env) {
    let store = env.store();
    store_body(store, "a", r#"{"v":1}"#).await;
    let deep = (0..MAX_FILTER_DEPTH).fold(Filter::exists(at("v")), |inner, _| Filter::Not(Box::new(inner)));
    let filters = [
        deep,
        Filter::Lt(at("v"), Scalar::Null),
        Filter::Ge(at("v"), true.into()),
        Filter::eq(at("v"), "nul\0"),
        Filter::eq(Field::Id, 1),
        Filter::eq(Field::Version, "1"),
        Filter::contains(Field::Version, 1),
        Filter::eq(Field::At, "yesterday"),
        Filter::starts_with(Field::At, "2026"),
        Filter::one_of(at("v"), vec![1; 1_000]),
    ];
    for filter in filters {
        assert_invalid(store.query_snapshots(snapshots().with_filter(filter.clone())).await);
        assert_invalid(store.count_snapshots(snapshots().with_filter(filter.clone())).await);
        assert_invalid(store.query_events(events().with_filter(filter.clone())).await);
        assert_invalid(store.count_events(events().with_filter(filter)).await);
    }
    let many = vec![Sort::ascending(at("v")); MAX_SORT_FIELDS + 1];
    let elsewhere = AtLeast::new(
        "shop.cart".parse().and_then(|cart| wow_store_api::AggregateId::of(cart, "1")).expect("valid"),
        1,
    );
    let patient = AtLeast::new(order("a"), 1).within(MAX_QUERY_WAIT + Duration::from_millis(1));
    let queries = [
        snapshots().with_limit(0),
        snapshots().with_limit(MAX_QUERY_LIMIT + 1),
        snapshots().with_sort(many),
        snapshots().with_filter(Filter::eq(Field::EventName, "Happened")),
        snapshots().with_sort([Sort::ascending(Field::Position)]),
        snapshots().with_at_least(elsewhere),
        snapshots().with_at_least(patient),
        SnapshotQuery { revision: MAX_REVISION + 1, ..snapshots() },
    ];
    for query in queries {
        assert_invalid(store.query_snapshots(query.clone()).await);
        assert_invalid(store.count_snapshots(query).await);
    }
    let page = store.query_snapshots(snapshots()).await.expect("a right one");
    assert_eq!(page.items.len(), 1, "works");
}

async fn largest_page_is_fine(env: Env) {
    let store = env.store();
    store_body(store, "a", r#"{"v":1}"#).await;
    let sort = vec![Sort::ascending(at("v")); MAX_SORT_FIELDS];
    let filter = Filter::one_of(at("v"), vec![1; 998]).and(Filter::All);
    let query = snapshots().with_limit(MAX_QUERY_LIMIT).with_sort(sort.clone()).with_filter(filter.clone());
    let page = store.query_snapshots(query).await.expect("the outermost are fine");
    assert_eq!(page.items.len(), 1, "found");
    let query = events().with_limit(MAX_QUERY_LIMIT).with_sort(sort).with_filter(filter);
    let page = store.query_events(query).await.expect("the outermost are fine");
    assert_eq!(page.items.len(), 1, "found");
    let query = SnapshotQuery { revision: MAX_REVISION, ..snapshots() };
    assert_eq!(store.count_snapshots(query).await.expect("the last revision is one"), 0, "nothing has it");
}

async fn waits_for_a_snapshot(env: Env) {
    let (store, id) = (env.store(), order("a"));
    append_many(store, &id, "c", 3).await;
    let save = |version| SaveSnapshot::new(id.clone(), version, 1, &serde_json::json!({"at": version}));
    store.save_snapshot(save(2).expect("a valid state")).await.expect("saved");
    let query = snapshots().with_at_least(AtLeast::new(id.clone(), 3).within(Duration::from_secs(20)));
    let mut waiting = pin!(store.query_snapshots(query.clone()));
    let mut counting = pin!(store.count_snapshots(query.with_filter(Filter::eq(at("at"), 3))));
    assert!(matches!(poll_once(waiting.as_mut()).await, Poll::Pending), "it is not there yet");
    assert!(matches!(poll_once(counting.as_mut()).await, Poll::Pending), "nor to be counted");
    store.save_snapshot(save(3).expect("a valid state")).await.expect("saved");
    let page = soon("the query sees it", waiting).await.expect("it came in time");
    assert_eq!(page.items[0].version, 3, "what it finds is at least as new");
    let counted = soon("the count sees it", counting).await.expect("it came in time");
    assert_eq!(counted, 1, "what it counts too");
}

async fn waits_for_an_event(env: Env) {
    let (store, id) = (env.store(), order("a"));
    append_many(store, &id, "c", 1).await;
    let query = events().with_at_least(AtLeast::new(id.clone(), 2).within(Duration::from_secs(20)));
    let mut waiting = pin!(store.query_events(query.clone()));
    let mut counting = pin!(store.count_events(query));
    assert!(matches!(poll_once(waiting.as_mut()).await, Poll::Pending), "it is not there yet");
    assert!(matches!(poll_once(counting.as_mut()).await, Poll::Pending), "nor to be counted");
    append_many(store, &id, "d", 1).await;
    let page = soon("the query sees it", waiting).await.expect("it came in time");
    assert_eq!(page.items.last().map(|item| item.version), Some(2), "what it finds is at least as new");
    let counted = soon("the count sees it", counting).await.expect("it came in time");
    assert_eq!(counted, 2, "what it counts too");
}

async fn wait_times_out(env: Env) {
    let (store, id) = (env.store(), order("a"));
    append_many(store, &id, "c", 1).await;
    for within in [Duration::ZERO, Duration::from_millis(60)] {
        let started = tokio::time::Instant::now();
        let at_least = |version| AtLeast::new(id.clone(), version).within(within);
        let results = [
            store.query_snapshots(snapshots().with_at_least(at_least(1))).await.map(drop),
            store.count_snapshots(snapshots().with_at_least(at_least(1))).await.map(drop),
            store.query_events(events().with_at_least(at_least(2))).await.map(drop),
            store.count_events(events().with_at_least(at_least(2))).await.map(drop),
        ];
        for error in results {
            let error = error.expect_err("nobody wrote it");
            assert_eq!(
                (error.kind(), error.outcome()),
                (&ErrorKind::Timeout, Outcome::NotApplied),
                "it says so"
            );
            assert!(error.is_transient(), "it may be there later");
        }
        assert!(started.elapsed() >= within * 4, "each waited as long as asked for");
    }
    let save = SaveSnapshot::new(id.clone(), 1, 2, &0).expect("a valid state");
    store.save_snapshot(save).await.expect("saved");
    let query = snapshots().with_at_least(AtLeast::new(id, 1).within(Duration::ZERO));
    let error = store.query_snapshots(query).await.expect_err("it has another revision");
    assert_eq!(error.kind(), &ErrorKind::Timeout, "which is not what was waited for");
}

async fn waits_for_nothing_that_is_there(env: Env) {
    let store = env.store();
    store_body(store, "a", r#"{"v":1}"#).await;
    for version in [0, 1] {
        let at_least = AtLeast::new(order("a"), version).within(Duration::ZERO);
        let page =
            store.query_snapshots(snapshots().with_at_least(at_least.clone())).await.expect("it is there");
        assert_eq!(page.items.len(), 1, "found at once");
        let page = store.query_events(events().with_at_least(at_least)).await.expect("it is there");
        assert_eq!(page.items.len(), 1, "found at once");
    }
    let none = AtLeast::new(order("never-used"), 0).within(Duration::ZERO);
    let counted = store.count_events(events().with_at_least(none)).await.expect("version 0 is always there");
    assert_eq!(counted, 1, "counted");
}
