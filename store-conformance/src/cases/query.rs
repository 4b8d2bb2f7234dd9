//! Queries: what filters find (Q1). Order and pages are in [`super::query_pages`].

use std::{collections::BTreeSet, sync::Arc};

use wow_store_api::{
    AggregateId, Commit, Event, EventStore, Payload, SaveSnapshot, StoreExt as _, Timestamp,
    payload::Number,
    query::{EventQuery, Field, Filter, Scalar, SnapshotQuery, Target},
};

use crate::{
    case::topic,
    env::{Env, append_many, order},
};

topic! { "query":
    eq_needs_kind_and_value [Q1],
    ne_is_all_the_rest [Q1],
    ranges_of_numbers_go_by_value [Q1],
    ranges_of_strings_go_by_bytes [Q1],
    in_is_any_of_them [Q1],
    contains_looks_into_arrays_and_strings [Q1],
    starts_with_looks_at_bytes [Q1],
    exists_sees_nulls [Q1],
    not_and_or_combine [Q1],
    long_numbers_are_exact [Q1],
    text_that_looks_like_code_is_data [Q1],
    keys_are_data [Q1],
    steps_into_arrays_lead_nowhere [Q1],
    envelope_of_snapshots [Q1],
    envelope_of_events [Q1],
    instants_are_compared_as_instants [Q1] sets_clock,
    metadata_of_events [Q1],
    events_are_found_one_by_one [Q1],
    other_types_are_not_seen [Q1],
    only_the_revision_asked_for [Q1, S2],
    snapshots_are_found_as_they_are [Q1, S4],
    unused_type_is_empty [Q1],
    survives_reopen [Q1],
}

/// One value of every kind, under names that say what it is.
const VALUES: &[(&str, &str)] = &[
    ("null", "null"),
    ("false", "false"),
    ("true", "true"),
    ("-5", "-5"),
    ("0", "0"),
    ("tiny", "1E-30"),
    ("1.1", "1.1"),
    ("1.10", "1.10"),
    ("2", "2"),
    ("10", "10"),
    ("u64", "18446744073709551615"),
    ("long", "1234567890123456789012345678901234"),
    ("empty", r#""""#),
    ("text 1.1", r#""1.1""#),
    ("text null", r#""null""#),
    ("text true", r#""true""#),
    ("a", r#""a""#),
    ("ab", r#""ab""#),
    ("AB", r#""AB""#),
    ("b", r#""b""#),
    ("é", r#""é""#),
    ("e+accent", r#""é""#),
    ("percent", r#""100%_of\\it""#),
    ("no elements", "[]"),
    ("elements", r#"[1.10,"a",null,true,[2],{"k":"b"}]"#),
    ("no entries", "{}"),
    ("entries", r#"{"a":1.1}"#),
];

/// Stores every value under the key `v` of a snapshot and of an event, and one of each without that key.
async fn store_values(store: &Arc<dyn EventStore>) {
    store_body(store, "missing", "{}").await;
    for (name, value) in VALUES {
        store_body(store, name, &format!(r#"{{"v":{value}}}"#)).await;
    }
}

/// A snapshot and an event with the same body.
pub(crate) async fn store_body(store: &Arc<dyn EventStore>, id: &str, body: &str) {
    let (id, body) = (order(id), Payload::from_json(body).expect("inside the profile"));
    let event = Event::new("Happened", 1, body.clone()).expect("a valid event");
    store.append(Commit::new(id.clone(), "c").with_event(event)).await.expect("stored");
    let save = SaveSnapshot { aggregate_id: id, version: 1, revision: 1, state: body };
    store.save_snapshot(save).await.expect("saved");
}

pub(crate) fn snapshots() -> SnapshotQuery {
    SnapshotQuery::new("shop.order".parse().expect("a valid type"), 1).with_limit(1_000)
}

pub(crate) fn events() -> EventQuery {
    EventQuery::new("shop.order".parse().expect("a valid type")).with_limit(1_000)
}

fn v() -> Field {
    Field::body(["v"]).expect("a valid path")
}

fn number(text: &str) -> Scalar {
    Scalar::Number(text.parse::<Number>().expect("a number"))
}

/// The ids of what a filter finds, the same among snapshots and events, and as many as are counted.
pub(crate) async fn found(store: &Arc<dyn EventStore>, filter: &Filter) -> BTreeSet<String> {
    filter.check(Target::Snapshots).expect("a valid filter");
    let snapshots = snapshots().with_filter(filter.clone());
    let page = store.query_snapshots(snapshots.clone()).await.expect("snapshots are found");
    let among_snapshots: BTreeSet<String> =
        page.items.iter().map(|item| item.aggregate_id.id().to_owned()).collect();
    let events = events().with_filter(filter.clone());
    let page = store.query_events(events.clone()).await.expect("events are found");
    let among_events: BTreeSet<String> =
        page.items.iter().map(|item| item.aggregate_id.id().to_owned()).collect();
    assert_eq!(among_snapshots, among_events, "snapshots and events say the same of {filter:?}");
    let counted = store.count_snapshots(snapshots).await.expect("counted");
    assert_eq!(counted, among_snapshots.len() as u64, "snapshots are counted as they are found");
    let counted = store.count_events(events).await.expect("counted");
    assert_eq!(counted, among_events.len() as u64, "events are counted as they are found");
    among_snapshots
}

/// Checks what a filter finds among the values.
async fn finds(store: &Arc<dyn EventStore>, filter: Filter, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&id| id.to_owned()).collect();
    assert_eq!(found(store, &filter).await, expected, "what {filter:?} finds");
    // Turned round, it finds all the others.
    let all = VALUES.iter().map(|(id, _)| *id).chain(["missing"]).map(str::to_owned);
    let others: BTreeSet<String> = all.filter(|id| !expected.contains(id)).collect();
    let not = Filter::Not(Box::new(filter));
    assert_eq!(found(store, &not).await, others, "what {not:?} finds");
}

async fn eq_needs_kind_and_value(env: Env) {
    let store = env.store();
    store_values(store).await;
    let cases: [(Scalar, &[&str]); 14] = [
        (Scalar::Null, &["null"]),
        (false.into(), &["false"]),
        (true.into(), &["true"]),
        (0.into(), &["0"]),
        (number("1.100"), &["1.1", "1.10"]),
        (number("2.0"), &["2"]),
        (number("1E1"), &["10"]),
        (u64::MAX.into(), &["u64"]),
        ("".into(), &["empty"]),
        ("1.1".into(), &["text 1.1"]),
        ("null".into(), &["text null"]),
        ("true".into(), &["text true"]),
        ("a".into(), &["a"]),
        ("é".into(), &["é", "e+accent"]),
    ];
    for (scalar, expected) in cases {
        finds(store, Filter::Eq(v(), scalar), expected).await;
    }
    finds(store, Filter::eq(v(), 3), &[]).await;
}

async fn ne_is_all_the_rest(env: Env) {
    let store = env.store();
    store_values(store).await;
    for (scalar, equal) in
        [(number("1.1"), &["1.1", "1.10"] as &[&str]), (Scalar::Null, &["null"]), ("a".into(), &["a"])]
    {
        let all = VALUES.iter().map(|(id, _)| *id).chain(["missing"]);
        let rest: Vec<&str> = all.filter(|id| !equal.contains(id)).collect();
        finds(store, Filter::Ne(v(), scalar), &rest).await;
    }
}

async fn ranges_of_numbers_go_by_value(env: Env) {
    let store = env.store();
    store_values(store).await;
    let field = v;
    finds(store, Filter::lt(field(), 0), &["-5"]).await;
    finds(store, Filter::le(field(), 0), &["-5", "0"]).await;
    finds(store, Filter::gt(field(), number("1.1")), &["2", "10", "u64", "long"]).await;
    finds(store, Filter::ge(field(), number("1.1")), &["1.1", "1.10", "2", "10", "u64", "long"]).await;
    finds(store, Filter::lt(field(), number("1E-29")), &["-5", "0", "tiny"]).await;
    finds(store, Filter::lt(field(), number("1E-31")), &["-5", "0"]).await;
    finds(store, Filter::gt(field(), number("9223372036854775807")), &["u64", "long"]).await;
    let between = Filter::gt(field(), 1).and(Filter::lt(field(), number("10.0")));
    finds(store, between, &["1.1", "1.10", "2"]).await;
}

async fn ranges_of_strings_go_by_bytes(env: Env) {
    let store = env.store();
    store_values(store).await;
    let below_a = ["empty", "text 1.1", "AB", "percent"];
    finds(store, Filter::lt(v(), "a"), &below_a).await;
    finds(store, Filter::le(v(), "a"), &[&below_a[..], &["a"]].concat()).await;
    finds(store, Filter::gt(v(), "b"), &["text null", "text true", "é", "e+accent"]).await;
    finds(store, Filter::ge(v(), "b"), &["b", "text null", "text true", "é", "e+accent"]).await;
    finds(store, Filter::gt(v(), "z"), &["é", "e+accent"]).await;
    let above_all = ["text null", "text true", "a", "ab", "AB", "b", "é", "e+accent", "text 1.1", "percent"];
    finds(store, Filter::gt(v(), ""), &above_all).await;
    finds(store, Filter::lt(v(), ""), &[]).await;
}

async fn in_is_any_of_them(env: Env) {
    let store = env.store();
    store_values(store).await;
    let mixed = vec![Scalar::Null, number("1.10"), "a".into(), true.into(), "absent".into()];
    finds(store, Filter::In(v(), mixed), &["null", "1.1", "1.10", "a", "true"]).await;
    finds(store, Filter::In(v(), Vec::new()), &[]).await;
    finds(store, Filter::one_of(v(), ["1.1", "2"]), &["text 1.1"]).await;
    finds(store, Filter::one_of(v(), vec![2; 500]), &["2"]).await;
}

async fn contains_looks_into_arrays_and_strings(env: Env) {
    let store = env.store();
    store_values(store).await;
    finds(store, Filter::contains(v(), "a"), &["elements", "a", "ab"]).await;
    finds(store, Filter::contains(v(), "b"), &["ab", "b"]).await;
    finds(store, Filter::contains(v(), number("1.1")), &["elements"]).await;
    finds(store, Filter::contains(v(), Scalar::Null), &["elements"]).await;
    finds(store, Filter::contains(v(), true), &["elements"]).await;
    finds(store, Filter::contains(v(), false), &[]).await;
    finds(store, Filter::contains(v(), 2), &[]).await;
    finds(store, Filter::contains(v(), "%_"), &["percent"]).await;
    finds(store, Filter::contains(v(), "\\"), &["percent"]).await;
    let strings =
        ["empty", "text 1.1", "text null", "text true", "a", "ab", "AB", "b", "é", "e+accent", "percent"];
    finds(store, Filter::contains(v(), ""), &strings).await;
}

async fn starts_with_looks_at_bytes(env: Env) {
    let store = env.store();
    store_values(store).await;
    finds(store, Filter::starts_with(v(), "a"), &["a", "ab"]).await;
    finds(store, Filter::starts_with(v(), "A"), &["AB"]).await;
    finds(store, Filter::starts_with(v(), "1"), &["text 1.1", "percent"]).await;
    finds(store, Filter::starts_with(v(), "100%_"), &["percent"]).await;
    finds(store, Filter::starts_with(v(), "%"), &[]).await;
    finds(store, Filter::starts_with(v(), "_"), &[]).await;
    finds(store, Filter::starts_with(v(), "^a"), &[]).await;
    finds(store, Filter::starts_with(v(), "."), &[]).await;
    finds(store, Filter::starts_with(v(), "é"), &["é", "e+accent"]).await;
    let strings =
        ["empty", "text 1.1", "text null", "text true", "a", "ab", "AB", "b", "é", "e+accent", "percent"];
    finds(store, Filter::starts_with(v(), ""), &strings).await;
}

async fn exists_sees_nulls(env: Env) {
    let store = env.store();
    store_values(store).await;
    let all: Vec<&str> = VALUES.iter().map(|(id, _)| *id).collect();
    finds(store, Filter::exists(v()), &all).await;
    finds(store, Filter::exists(Field::body(["w"]).expect("a valid path")), &[]).await;
    finds(store, Filter::exists(Field::body(["v", "a"]).expect("a valid path")), &["entries"]).await;
}

async fn not_and_or_combine(env: Env) {
    let store = env.store();
    store_values(store).await;
    let (small, big) = (Filter::lt(v(), 1), Filter::gt(v(), 5));
    finds(store, small.clone().or(big.clone()), &["-5", "0", "tiny", "10", "u64", "long"]).await;
    finds(store, small.clone().and(big.clone()), &[]).await;
    let neither = !(small.clone().or(big)).and(Filter::exists(v()));
    let within = neither.and(Filter::ge(v(), 0));
    finds(store, within, &["1.1", "1.10", "2"]).await;
    finds(
        store,
        Filter::And(Vec::new()),
        &[&VALUES.iter().map(|(id, _)| *id).collect::<Vec<_>>()[..], &["missing"]].concat(),
    )
    .await;
    finds(store, Filter::Or(Vec::new()), &[]).await;
    let nested = (0..15).fold(small, |inner, _| Filter::And(vec![Filter::Or(vec![inner])]));
    finds(store, nested, &["-5", "0", "tiny"]).await;
}

async fn long_numbers_are_exact(env: Env) {
    let store = env.store();
    let numbers = [
        ("a", "1234567890123456789012345678901233"),
        ("b", "1234567890123456789012345678901234"),
        ("c", "0.1000000000000000000000000000000001"),
        ("d", "0.1"),
        ("e", "9007199254740993"),
        ("f", "9007199254740992"),
        ("g", "1E6000"),
        ("h", "1E-6000"),
    ];
    for (id, text) in numbers {
        store_body(store, id, &format!(r#"{{"v":{text}}}"#)).await;
    }
    for (id, text) in numbers {
        let alone = BTreeSet::from([id.to_owned()]);
        assert_eq!(
            found(store, &Filter::eq(v(), number(text))).await,
            alone,
            "its neighbour is another number"
        );
    }
    let above = found(store, &Filter::gt(v(), number("1234567890123456789012345678901233"))).await;
    assert_eq!(above, BTreeSet::from(["b".to_owned(), "g".to_owned()]), "ranges are exact too");
    let small = found(store, &Filter::lt(v(), number("0.1"))).await;
    assert_eq!(small, BTreeSet::from(["h".to_owned()]), "down to the smallest");
}

async fn text_that_looks_like_code_is_data(env: Env) {
    let store = env.store();
    let texts = [
        "$gt",
        "$ne",
        "{\"$gt\":\"\"}",
        "' OR '1'='1",
        "\"; DROP TABLE x; --",
        "%",
        "_",
        ".*",
        "\\",
        "null",
        "[]",
        "$v",
        "{}",
        "${jndi:x}",
        "a\nb",
        "\u{1}",
    ];
    for (n, text) in texts.iter().enumerate() {
        let body = serde_json::json!({"v": text}).to_string();
        store_body(store, &format!("t{n}"), &body).await;
    }
    for (n, text) in texts.iter().enumerate() {
        let alone = BTreeSet::from([format!("t{n}")]);
        assert_eq!(found(store, &Filter::eq(v(), *text)).await, alone, "{text:?} is a string like any other");
        assert_eq!(found(store, &Filter::one_of(v(), [*text])).await, alone, "in a list too: {text:?}");
        let prefixed = found(store, &Filter::starts_with(v(), *text)).await;
        assert!(prefixed.contains(&format!("t{n}")), "as a prefix too: {text:?}");
        let expected = texts.iter().filter(|other| other.contains(text)).count();
        assert_eq!(
            found(store, &Filter::contains(v(), *text)).await.len(),
            expected,
            "as a part too: {text:?}"
        );
    }
}

async fn keys_are_data(env: Env) {
    let store = env.store();
    let keys = ["$x", "a.b", "", "a/b", "~", "0", "$gt", "a'b", "a\"b", "_id", "é", "a b", "%", "$a.$b"];
    for (n, key) in keys.iter().enumerate() {
        let body = serde_json::json!({ *key: {"deep": {*key: n}}, "a": {"b": "nested"} }).to_string();
        store_body(store, &format!("k{n}"), &body).await;
    }
    for (n, key) in keys.iter().enumerate() {
        let alone = BTreeSet::from([format!("k{n}")]);
        let at = |segments: &[&str]| Field::body(segments.iter().copied()).expect("a valid path");
        assert_eq!(found(store, &Filter::exists(at(&[key]))).await, alone, "the key {key:?}");
        let deep = Filter::eq(at(&[key, "deep", key]), n as u64);
        assert_eq!(found(store, &deep).await, alone, "the key {key:?}, deep down");
    }
    let nested = Filter::eq(Field::body(["a", "b"]).expect("a valid path"), "nested");
    assert_eq!(found(store, &nested).await.len(), keys.len(), "a step is a step, a dot is a dot");
}

async fn steps_into_arrays_lead_nowhere(env: Env) {
    let store = env.store();
    store_body(store, "array", r#"{"v":["a",{"k":"b"}]}"#).await;
    store_body(store, "object", r#"{"v":{"0":"a","1":{"k":"b"},"k":"b"}}"#).await;
    store_body(store, "text", r#"{"v":"a"}"#).await;
    for segments in [&["v", "0"] as &[&str], &["v", "1", "k"], &["v", "k"]] {
        let field = Field::body(segments.iter().copied()).expect("a valid path");
        let object = BTreeSet::from(["object".to_owned()]);
        assert_eq!(
            found(store, &Filter::exists(field)).await,
            object,
            "only objects have keys: {segments:?}"
        );
    }
}

async fn envelope_of_snapshots(env: Env) {
    let store = env.store();
    let ids = [
        order("a"),
        order("b").with_tenant("acme").expect("valid"),
        order("c").with_tenant("Acme").expect("valid"),
    ];
    for (n, id) in (1..).zip(&ids) {
        append_many(store, id, "c", n).await;
        let save = SaveSnapshot::new(id.clone(), n, 1, &0).expect("a valid state");
        store.save_snapshot(save).await.expect("saved");
    }
    for (filter, expected) in [
        (Filter::eq(Field::Id, "b"), "b"),
        (Filter::one_of(Field::Id, ["a", "c"]), "ac"),
        (Filter::starts_with(Field::Id, "c"), "c"),
        (Filter::gt(Field::Id, "a"), "bc"),
        (Filter::eq(Field::Tenant, "acme"), "b"),
        (Filter::contains(Field::Tenant, "cme"), "bc"),
        (Filter::exists(Field::Tenant), "bc"),
        (!Filter::exists(Field::Tenant), "a"),
        (Filter::ne(Field::Tenant, "acme"), "ac"),
        (Filter::ge(Field::Version, 2), "bc"),
        (Filter::eq(Field::Version, "3.0".parse::<Number>().expect("a number")), "c"),
        (Filter::eq(Field::Revision, 1), "abc"),
        (Filter::gt(Field::Revision, 1), ""),
    ] {
        let query = snapshots()
            .with_filter(filter.clone())
            .with_sort([wow_store_api::query::Sort::ascending(Field::Id)]);
        let page = store.query_snapshots(query).await.expect("found");
        let ids: String = page.items.iter().map(|item| item.aggregate_id.id()).collect();
        assert_eq!(ids, expected, "what {filter:?} finds");
    }
    let page = store.query_snapshots(snapshots()).await.expect("found");
    for item in page.items {
        let snapshot = store.snapshot(&item.aggregate_id, 1).await.expect("read").expect("it is there");
        assert_eq!(item, snapshot.into(), "an item has all that its snapshot has");
    }
}

/// Two orders, three commits, four events.
async fn store_events(store: &Arc<dyn EventStore>) {
    let (a, b) = (order("a"), order("b").with_tenant("acme").expect("a valid tenant"));
    let first = Commit::new(a.clone(), "place-1")
        .event("OrderPlaced", 1, &serde_json::json!({"by": "ann"}))
        .and_then(|commit| commit.event("LineAdded", 2, &serde_json::json!({"sku": "x"})))
        .and_then(|commit| commit.metadata(&serde_json::json!({"user": {"name": "ann"}, "$x": 1.10})));
    store.append(first.expect("a valid commit")).await.expect("stored");
    let second = Commit::new(a, "add-1").event("LineAdded", 1, &serde_json::json!({"sku": "y"}));
    store.append(second.expect("a valid commit")).await.expect("stored");
    let third = Commit::new(b, "place-2")
        .event("OrderPlaced", 3, &serde_json::json!({"by": "bob"}))
        .and_then(|commit| commit.metadata(&serde_json::json!({"user": {"name": "bob"}})));
    store.append(third.expect("a valid commit")).await.expect("stored");
}

/// The events that a filter finds, as `<id><version>.<index>`.
async fn which(store: &Arc<dyn EventStore>, filter: Filter) -> Vec<String> {
    let query = events().with_filter(filter);
    let page = store.query_events(query.clone()).await.expect("found");
    assert_eq!(store.count_events(query).await.expect("counted"), page.items.len() as u64, "counted alike");
    let mut found: Vec<String> = page
        .items
        .iter()
        .map(|item| format!("{}{}.{}", item.aggregate_id.id(), item.version, item.index))
        .collect();
    found.sort();
    found
}

async fn envelope_of_events(env: Env) {
    let store = env.store();
    store_events(store).await;
    for (filter, expected) in [
        (Filter::eq(Field::EventName, "LineAdded"), "a1.1 a2.0"),
        (Filter::starts_with(Field::EventName, "Order"), "a1.0 b1.0"),
        (Filter::eq(Field::EventName, "lineadded"), ""),
        (Filter::eq(Field::CommandId, "place-1"), "a1.0 a1.1"),
        (Filter::starts_with(Field::CommandId, "place-"), "a1.0 a1.1 b1.0"),
        (Filter::eq(Field::Id, "b"), "b1.0"),
        (Filter::exists(Field::Tenant), "b1.0"),
        (Filter::eq(Field::Version, 2), "a2.0"),
        (Filter::ge(Field::Revision, 2), "a1.1 b1.0"),
        (Filter::eq(Field::EventIndex, 1), "a1.1"),
        (Filter::ge(Field::Position, 1), "a1.0 a1.1 a2.0 b1.0"),
        (Filter::ge(Field::Partition, 0), "a1.0 a1.1 a2.0 b1.0"),
        (Filter::lt(Field::Partition, 0), ""),
    ] {
        assert_eq!(which(store, filter.clone()).await.join(" "), expected, "what {filter:?} finds");
    }
    let page = store.query_events(events()).await.expect("found");
    for item in &page.items {
        let commits = super::support::load(store, &item.aggregate_id).await;
        let commit = commits.iter().find(|commit| commit.version == item.version).expect("it is in the log");
        let event = &commit.events[item.index as usize];
        let expected = wow_store_api::query::EventItem::new(commit, event, item.index);
        assert_eq!(item, &expected, "an item has all that its event and its commit have");
        let here =
            Filter::eq(Field::Partition, item.partition).and(Filter::eq(Field::Position, item.position));
        assert!(which(store, here).await.len() <= 2, "partition and position lead to its commit");
    }
}

async fn instants_are_compared_as_instants(env: Env) {
    let store = env.store();
    let noon: Timestamp = "2600-01-01T12:00:00Z".parse().expect("an instant");
    let at = |millis: i64| Timestamp::from_millis(noon.as_millis() + millis).expect("in range");
    for (id, millis) in [("a", -1), ("b", 0), ("c", 1)] {
        env.clock().set(at(millis));
        store_body(store, id, "{}").await;
    }
    let ids = |ids: &str| ids.chars().map(String::from).collect::<BTreeSet<_>>();
    for (filter, expected) in [
        (Filter::lt(Field::At, noon), "a"),
        (Filter::le(Field::At, noon), "ab"),
        (Filter::eq(Field::At, noon), "b"),
        (Filter::ne(Field::At, noon), "ac"),
        (Filter::gt(Field::At, noon), "c"),
        (Filter::ge(Field::At, "2600-01-01T12:00:00.000Z"), "bc"),
        (Filter::one_of(Field::At, [at(-1), at(1)]), "ac"),
    ] {
        assert_eq!(found(store, &filter).await, ids(expected), "what {filter:?} finds");
    }
}

async fn metadata_of_events(env: Env) {
    let store = env.store();
    store_events(store).await;
    let at = |segments: &[&str]| Field::metadata(segments.iter().copied()).expect("a valid path");
    for (filter, expected) in [
        (Filter::eq(at(&["user", "name"]), "ann"), "a1.0 a1.1"),
        (Filter::starts_with(at(&["user", "name"]), "b"), "b1.0"),
        (Filter::exists(at(&["user"])), "a1.0 a1.1 b1.0"),
        (!Filter::exists(at(&["user"])), "a2.0"),
        (Filter::eq(at(&["$x"]), "1.1".parse::<Number>().expect("a number")), "a1.0 a1.1"),
        (Filter::eq(Field::body(["user", "name"]).expect("a valid path"), "ann"), ""),
    ] {
        assert_eq!(which(store, filter.clone()).await.join(" "), expected, "what {filter:?} finds");
    }
}

async fn events_are_found_one_by_one(env: Env) {
    let store = env.store();
    store_events(store).await;
    let x = Filter::eq(Field::body(["sku"]).expect("a valid path"), "x");
    assert_eq!(which(store, x).await, ["a1.1"], "of a commit with two events the one that is asked for");
    let by = Filter::exists(Field::body(["by"]).expect("a valid path"));
    assert_eq!(which(store, by).await, ["a1.0", "b1.0"], "and the other one");
    assert_eq!(which(store, Filter::All).await, ["a1.0", "a1.1", "a2.0", "b1.0"], "all of them");
}

async fn other_types_are_not_seen(env: Env) {
    let store = env.store();
    store_body(store, "1", "{}").await;
    for (context, aggregate) in [("shop", "Order"), ("shop", "orders"), ("bank", "order")] {
        let id = AggregateId::new(context, aggregate, "1").expect("a valid id");
        append_many(store, &id, "c", 2).await;
        let save = SaveSnapshot::new(id.clone(), 2, 1, &0).expect("a valid state");
        store.save_snapshot(save).await.expect("saved");
        let query = EventQuery::new(id.aggregate_type().clone());
        assert_eq!(store.count_events(query).await.expect("counted"), 2, "each type has its own");
    }
    assert_eq!(found(store, &Filter::All).await, BTreeSet::from(["1".to_owned()]), "of one type only");
    let page = store.query_events(events()).await.expect("found");
    assert!(page.items.iter().all(|item| item.aggregate_id == order("1")), "of that very type");
}

async fn only_the_revision_asked_for(env: Env) {
    let store = env.store();
    for (id, revision) in [("a", 1), ("b", 2), ("c", 0), ("d", 1)] {
        append_many(store, &order(id), "c", 1).await;
        let save = SaveSnapshot::new(order(id), 1, revision, &0).expect("a valid state");
        store.save_snapshot(save).await.expect("saved");
    }
    for (revision, expected) in [(0, vec!["c"]), (1, vec!["a", "d"]), (2, vec!["b"]), (3, vec![])] {
        let query = SnapshotQuery { revision, ..snapshots() };
        let page = store.query_snapshots(query.clone()).await.expect("found");
        let ids: Vec<&str> = page.items.iter().map(|item| item.aggregate_id.id()).collect();
        assert_eq!(ids, expected, "another shape is not returned");
        let counted = store.count_snapshots(query).await.expect("counted");
        assert_eq!(counted, expected.len() as u64, "nor counted");
    }
}

async fn snapshots_are_found_as_they_are(env: Env) {
    let store = env.store();
    for id in ["lags", "none", "dropped"] {
        append_many(store, &order(id), "c", 3).await;
    }
    for id in ["lags", "dropped"] {
        let save = SaveSnapshot::new(order(id), 2, 1, &"old").expect("a valid state");
        store.save_snapshot(save).await.expect("saved");
    }
    store.delete_snapshot(&order("dropped")).await.expect("dropped");
    let page = store.query_snapshots(snapshots()).await.expect("found");
    let seen: Vec<_> = page.items.iter().map(|item| (item.aggregate_id.id(), item.version)).collect();
    assert_eq!(seen, [("lags", 2)], "one that lags as it is; none that was never made or was dropped");
    let save = SaveSnapshot::new(order("lags"), 3, 1, &"new").expect("a valid state");
    store.save_snapshot(save).await.expect("saved");
    let page = store.query_snapshots(snapshots()).await.expect("found");
    assert_eq!(page.items[0].state.as_json(), r#""new""#, "and the new one once it is there");
    assert_eq!(page.items.len(), 1, "in place of the old one");
}

async fn unused_type_is_empty(env: Env) {
    let store = env.store();
    let page = store.query_snapshots(snapshots()).await.expect("no such type is no error");
    assert_eq!((page.items.len(), page.next), (0, None), "nothing is found");
    let page = store.query_events(events()).await.expect("no such type is no error");
    assert_eq!((page.items.len(), page.next), (0, None), "nothing is found");
    let counts = (store.count_snapshots(snapshots()).await, store.count_events(events()).await);
    assert_eq!((counts.0.expect("counted"), counts.1.expect("counted")), (0, 0), "nothing is counted");
    store_body(store, "1", "{}").await;
    assert_eq!(found(store, &Filter::All).await.len(), 1, "and then there is something");
}

async fn survives_reopen(mut env: Env) {
    for n in 0..5 {
        store_body(env.store(), &n.to_string(), &format!(r#"{{"v":{n}}}"#)).await;
    }
    let at_least_two = Filter::ge(v(), 2);
    let before = found(env.store(), &at_least_two).await;
    assert_eq!(before.len(), 3, "they are found");
    env.reopen().await;
    assert_eq!(found(env.store(), &at_least_two).await, before, "and found again");
}
