//! The semantics as a whole: every operator on every kind of value, pages, projection, waiting.

use std::time::Duration;

use futures::executor::block_on;
use rust_decimal::dec;
use serde_json::json;

use super::*;
use crate::{
    AggregateId, AggregateType, Commit, ErrorKind, Event, MAX_COUNTER, MemoryStore, Payload, RecordedCommit,
    SaveSnapshot, Snapshot, Snapshots, StoreExt, Timestamp, name::CommandId, payload::Number,
};

fn order() -> AggregateType {
    "shop.order".parse().unwrap()
}

fn snapshot(tenant: &str, id: &str, state: &str) -> Snapshot {
    let id = AggregateId::of(order(), id).unwrap();
    Snapshot {
        aggregate_id: if tenant.is_empty() { id } else { id.with_tenant(tenant).unwrap() },
        version: 3,
        revision: 1,
        state: Payload::from_json(state).unwrap(),
        saved_at: Timestamp::UNIX_EPOCH,
    }
}

fn commit(id: &str, version: u64, partition: u32, position: u64, bodies: &[&str]) -> RecordedCommit {
    let event = |body: &&str| Event::new("Tested", 2, Payload::from_json(body).unwrap()).unwrap();
    RecordedCommit {
        aggregate_id: AggregateId::of(order(), id).unwrap(),
        version,
        command_id: CommandId::new(format!("cmd-{version}")).unwrap(),
        partition,
        position,
        committed_at: Timestamp::from_millis(i64::try_from(position).unwrap() * 1_000).unwrap(),
        metadata: (version == 1).then(|| Payload::from_json(r#"{"user":{"name":"ann"}}"#).unwrap()),
        events: bodies.iter().map(event).collect(),
    }
}

fn finds(filter: &Filter, snapshot: &Snapshot) -> bool {
    let query = SnapshotQuery::new(order(), 1).with_filter(filter.clone());
    let count = count_snapshots(&query, [Ok(snapshot.clone())]).unwrap();
    let page = run_snapshots(&query, [Ok(snapshot.clone())]).unwrap();
    assert_eq!(u64::try_from(page.items.len()).unwrap(), count);
    count == 1
}

fn v() -> Field {
    Field::body(["v"]).unwrap()
}

/// A body `{"v": <value>}`; an empty text leaves `v` out.
fn holding(value: &str) -> Snapshot {
    snapshot("", "x", &if value.is_empty() { "{}".to_owned() } else { format!(r#"{{"v":{value}}}"#) })
}

/// One value of every kind, missing first.
const KINDS: [&str; 12] = [
    "",
    "null",
    "false",
    "true",
    "0",
    "7",
    r#""""#,
    r#""7""#,
    r#""abc""#,
    "[]",
    r#"[null,7,"abc",[true]]"#,
    r#"{"v":7}"#,
];

/// Asserts that `filter` finds exactly those of [`KINDS`].
fn finds_of_kinds(filter: Filter, expected: &[&str]) {
    for value in KINDS {
        assert_eq!(finds(&filter, &holding(value)), expected.contains(&value), "{filter:?} on {value:?}");
        let negated = Filter::Not(Box::new(filter.clone()));
        assert_ne!(finds(&negated, &holding(value)), expected.contains(&value), "{negated:?} on {value:?}");
    }
}

fn all_but(left_out: &[&str]) -> Vec<&'static str> {
    KINDS.into_iter().filter(|value| !left_out.contains(value)).collect()
}

#[test]
fn equality_needs_the_same_kind() {
    let scalars: [(Scalar, &[&str]); 8] = [
        (Scalar::Null, &["null"]),
        (false.into(), &["false"]),
        (true.into(), &["true"]),
        (0.into(), &["0"]),
        (7.into(), &["7"]),
        ("".into(), &[r#""""#]),
        ("7".into(), &[r#""7""#]),
        ("no such".into(), &[]),
    ];
    for (scalar, equal) in scalars {
        finds_of_kinds(Filter::eq(v(), scalar.clone()), equal);
        finds_of_kinds(Filter::ne(v(), scalar), &all_but(equal));
    }
}

#[test]
fn ranges_stay_within_their_kind() {
    finds_of_kinds(Filter::lt(v(), 7), &["0"]);
    finds_of_kinds(Filter::le(v(), 7), &["0", "7"]);
    finds_of_kinds(Filter::gt(v(), 0), &["7"]);
    finds_of_kinds(Filter::ge(v(), 0), &["0", "7"]);
    finds_of_kinds(Filter::lt(v(), "7"), &[r#""""#]);
    finds_of_kinds(Filter::le(v(), "7"), &[r#""""#, r#""7""#]);
    finds_of_kinds(Filter::gt(v(), ""), &[r#""7""#, r#""abc""#]);
    finds_of_kinds(Filter::ge(v(), ""), &[r#""""#, r#""7""#, r#""abc""#]);
}

#[test]
fn in_is_any_equality() {
    finds_of_kinds(Filter::In(v(), vec![]), &[]);
    finds_of_kinds(
        Filter::In(v(), vec![Scalar::Null, 7.into(), "abc".into(), true.into()]),
        &["null", "true", "7", r#""abc""#],
    );
}

#[test]
fn contains_looks_into_arrays_and_strings() {
    let list = r#"[null,7,"abc",[true]]"#;
    finds_of_kinds(Filter::contains(v(), Scalar::Null), &[list]);
    finds_of_kinds(Filter::contains(v(), 7), &[list]);
    finds_of_kinds(Filter::contains(v(), "7"), &[r#""7""#]);
    finds_of_kinds(Filter::contains(v(), "abc"), &[r#""abc""#, list]);
    finds_of_kinds(Filter::contains(v(), "bc"), &[r#""abc""#]);
    finds_of_kinds(Filter::contains(v(), ""), &[r#""""#, r#""7""#, r#""abc""#]);
    finds_of_kinds(Filter::contains(v(), true), &[]);
}

#[test]
fn starts_with_looks_at_strings() {
    finds_of_kinds(Filter::starts_with(v(), "ab"), &[r#""abc""#]);
    finds_of_kinds(Filter::starts_with(v(), "abcd"), &[]);
    finds_of_kinds(Filter::starts_with(v(), ""), &[r#""""#, r#""7""#, r#""abc""#]);
    finds_of_kinds(Filter::starts_with(v(), "AB"), &[]);
}

#[test]
fn exists_counts_a_null() {
    finds_of_kinds(Filter::exists(v()), &all_but(&[""]));
}

#[test]
fn connectives_are_two_valued() {
    finds_of_kinds(Filter::All, &KINDS);
    finds_of_kinds(Filter::And(vec![]), &KINDS);
    finds_of_kinds(Filter::Or(vec![]), &[]);
    finds_of_kinds(Filter::ge(v(), 0).and(Filter::ne(v(), 7)), &["0"]);
    finds_of_kinds(
        Filter::eq(v(), 7).or(Filter::eq(v(), Scalar::Null)).or(Filter::eq(v(), true)),
        &["null", "true", "7"],
    );
    finds_of_kinds(!Filter::lt(v(), 7), &all_but(&["0"]));
    assert_eq!(!!Filter::exists(v()), Filter::exists(v()));
    assert_eq!(Filter::All.and(Filter::exists(v())), Filter::exists(v()));
}

#[test]
fn text_that_looks_like_code_is_data() {
    for text in [
        "$gt",
        "$where",
        "1 OR 1=1",
        "'; DROP TABLE x; --",
        "%",
        "_",
        "\\",
        ".*",
        "a.b",
        "{\"$ne\":1}",
        "é",
        "ÿ%",
    ] {
        let json = serde_json::to_string(text).unwrap();
        let longer = serde_json::to_string(&format!("{text}+{text}x")).unwrap();
        for filter in [Filter::eq(v(), text), Filter::contains(v(), text), Filter::starts_with(v(), text)] {
            assert!(finds(&filter, &holding(&json)), "{filter:?}");
            assert!(!finds(&filter, &holding(r#""abc""#)), "{filter:?}");
        }
        assert!(!finds(&Filter::eq(v(), text), &holding(&longer)));
        assert!(finds(&Filter::contains(v(), text), &holding(&longer)));
        let keyed = snapshot("", "x", &format!("{{{json}:{{{json}:1}}}}"));
        assert!(finds(&Filter::eq(Field::body([text, text]).unwrap(), 1), &keyed));
    }
}

#[test]
fn paths_go_through_objects_only() {
    let state = snapshot("", "x", r#"{"a":{"b":1,"":{"":2}},"a.b":3,"$x":4,"list":[{"k":5}],"o":{"0":6}}"#);
    let path = |pointer: &str| Field::Body(pointer.parse().unwrap());
    for (pointer, value) in [("/a/b", 1), ("/a//", 2), ("/a.b", 3), ("/$x", 4), ("/o/0", 6)] {
        assert!(finds(&Filter::eq(path(pointer), value), &state), "{pointer}");
    }
    for pointer in ["/a/b/c", "/list/0", "/list/0/k", "/list/k", "/", "/b", "/A", "/a/b/"] {
        assert!(!finds(&Filter::exists(path(pointer)), &state), "{pointer}");
    }
    for state in ["null", "7", r#""a""#, r#"[{"v":1}]"#] {
        assert!(!finds(&Filter::exists(v()), &snapshot("", "x", state)), "{state}");
    }
}

#[test]
fn numbers_compare_by_value() {
    let number = |text: &str| text.parse::<Number>().unwrap();
    let nines = "9".repeat(34);
    for (stored, equal) in [
        ("1.10", "1.1"),
        ("1.1", "1.10"),
        ("100", "1E2"),
        ("-0.0", "0"),
        ("18446744073709551615", "18446744073709551615.0"),
        (nines.as_str(), &format!("{nines}E0")),
        ("1E6144", "10E6143"),
        ("1E-6176", "1E-6176"),
    ] {
        let item = holding(stored);
        assert!(finds(&Filter::eq(v(), number(equal)), &item), "{stored} {equal}");
        assert!(finds(&Filter::le(v(), number(equal)).and(Filter::ge(v(), number(equal))), &item));
        assert!(!finds(&Filter::lt(v(), number(equal)).or(Filter::gt(v(), number(equal))), &item));
        assert!(finds(&Filter::contains(v(), number(equal)), &holding(&format!("[{stored}]"))));
    }
    for (less, more) in [
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.1000000000000000055511151231257827"),
        ("9223372036854775807", "9223372036854775808"),
        ("9", "10"),
        ("-10", "-9"),
        ("1E-6176", "1E6144"),
        ("-1E6144", "-1E-6176"),
        ("0", "1E-6176"),
        ("9999999999999999999999999999999998", nines.as_str()),
    ] {
        assert!(finds(&Filter::lt(v(), number(more)), &holding(less)), "{less} < {more}");
        assert!(finds(&Filter::gt(v(), number(less)), &holding(more)), "{less} < {more}");
        assert!(finds(&Filter::ne(v(), number(less)), &holding(more)), "{less} != {more}");
    }
    assert!(finds(&Filter::eq(v(), dec!(1.1)), &holding("1.100")));
    assert!(finds(&Filter::eq(v(), u64::MAX), &holding("18446744073709551615")));
}

#[test]
fn envelope_of_a_snapshot() {
    let item = snapshot("acme", "42", "{}");
    let alone = snapshot("", "42", "{}");
    for filter in [
        Filter::eq(Field::Id, "42"),
        Filter::starts_with(Field::Id, "4"),
        Filter::eq(Field::Version, 3),
        Filter::gt(Field::Version, dec!(2.5)),
        Filter::eq(Field::Revision, 1),
        Filter::eq(Field::At, Timestamp::UNIX_EPOCH),
        Filter::lt(Field::At, Timestamp::from_millis(1).unwrap()),
        Filter::gt(Field::At, Timestamp::MIN),
        Filter::one_of(Field::At, [Timestamp::MAX, Timestamp::UNIX_EPOCH]),
    ] {
        assert!(finds(&filter, &item), "{filter:?}");
        assert!(finds(&filter, &alone), "{filter:?}");
    }
    assert!(finds(&Filter::eq(Field::Tenant, "acme"), &item));
    assert!(finds(&Filter::exists(Field::Tenant), &item));
    assert!(!finds(&Filter::exists(Field::Tenant), &alone));
    assert!(finds(&Filter::ne(Field::Tenant, "acme"), &alone));
}

#[test]
fn only_the_type_and_revision_asked_for() {
    let mut other_revision = snapshot("", "a", "{}");
    other_revision.revision = 2;
    let mut other_type = snapshot("", "b", "{}");
    other_type.aggregate_id = AggregateId::new("shop", "cart", "b").unwrap();
    let query = SnapshotQuery::new(order(), 1);
    let all = || [Ok(other_revision.clone()), Ok(other_type.clone()), Ok(snapshot("", "c", "{}"))];
    let page = run_snapshots(&query, all()).unwrap();
    assert_eq!(page.items.iter().map(|item| item.aggregate_id.id()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(count_snapshots(&query, all()).unwrap(), 1);
}

#[test]
fn an_error_among_the_candidates_ends_the_query() {
    let broken = || [Ok(snapshot("", "a", "{}")), Err(crate::Error::corrupt("x", "y"))];
    assert!(run_snapshots(&SnapshotQuery::new(order(), 1), broken()).unwrap_err().is_corrupt());
    assert!(count_snapshots(&SnapshotQuery::new(order(), 1), broken()).unwrap_err().is_corrupt());
}

/// The ids on each page.
fn pages(query: &SnapshotQuery, snapshots: &[Snapshot]) -> Vec<Vec<String>> {
    let mut query = query.clone();
    let mut pages = Vec::new();
    loop {
        let page = run_snapshots(&query, snapshots.iter().cloned().map(Ok)).unwrap();
        assert!(page.items.len() <= query.limit);
        let name = |item: &SnapshotItem| {
            format!("{}{}", item.aggregate_id.tenant().unwrap_or_default(), item.aggregate_id.id())
        };
        pages.push(page.items.iter().map(name).collect());
        let Some(next) = page.next else { return pages };
        query.after = Some(next.to_string().parse().unwrap());
    }
}

#[test]
fn pages_of_any_size_give_the_whole_order() {
    let values = [
        "",
        "null",
        "false",
        "true",
        "-1E6144",
        "0",
        "1.10",
        "1.1",
        "1.100",
        "9",
        "10",
        r#""""#,
        r#""10""#,
        r#""9""#,
        r#""a""#,
        r#""é""#,
        "[]",
        "[1]",
        "{}",
        r#"{"a":1}"#,
    ];
    let expected: Vec<String> = (0..values.len()).map(|n| format!("{n:02}")).collect();
    let mut snapshots: Vec<Snapshot> = values
        .iter()
        .zip(&expected)
        .map(|(value, id)| Snapshot { state: holding(value).state, ..snapshot("", id, "{}") })
        .collect();
    snapshots.reverse();
    // Ties stay in the order of their ids when the order of values is turned round.
    let ties = [6..9, 16..18, 18..20];
    let mut descending: Vec<String> = expected.iter().rev().cloned().collect();
    for tie in ties {
        let (from, to) = (expected.len() - tie.end, expected.len() - tie.start);
        descending[from..to].reverse();
    }
    for limit in 1..=values.len() + 1 {
        let query = SnapshotQuery::new(order(), 1).with_limit(limit);
        let ascending = query.clone().with_sort([Sort::ascending(v())]);
        assert_eq!(pages(&ascending, &snapshots).concat(), expected, "limit {limit}");
        let down = query.clone().with_sort([Sort::descending(v())]);
        assert_eq!(pages(&down, &snapshots).concat(), descending, "limit {limit}");
        assert_eq!(pages(&query, &snapshots).concat(), expected, "limit {limit}");
    }
    let query = SnapshotQuery::new(order(), 1).with_limit(values.len());
    assert_eq!(pages(&query, &snapshots).len(), 1, "a full page that is the last has no cursor");
    assert_eq!(pages(&query, &[]), [Vec::<String>::new()]);
}

#[test]
fn ties_go_by_tenant_then_id() {
    let snapshots: Vec<Snapshot> = [("b", "1"), ("", "2"), ("a", "9"), ("B", "5"), ("", "10"), ("a", "10")]
        .map(|(tenant, id)| snapshot(tenant, id, r#"{"v":1}"#))
        .into();
    for sort in
        [vec![], vec![Sort::descending(v())], vec![Sort::ascending(v()), Sort::descending(Field::Version)]]
    {
        let query = SnapshotQuery::new(order(), 1).with_sort(sort).with_limit(1);
        assert_eq!(pages(&query, &snapshots).concat(), ["10", "2", "B5", "a10", "a9", "b1"]);
    }
}

#[test]
fn several_fields_sort_in_turn() {
    let state = |a: i32, b: i32| format!(r#"{{"v":{a},"w":{b}}}"#);
    let snapshots: Vec<Snapshot> = [("p", 1, 1), ("q", 1, 2), ("r", 2, 1), ("s", 2, 2), ("t", 2, 2)]
        .map(|(id, a, b)| snapshot("", id, &state(a, b)))
        .into();
    let w = Field::body(["w"]).unwrap();
    for limit in 1..=5 {
        let query = SnapshotQuery::new(order(), 1).with_limit(limit);
        let query = query.with_sort([Sort::descending(v()), Sort::ascending(&w)]);
        assert_eq!(pages(&query, &snapshots).concat(), ["r", "s", "t", "p", "q"]);
        let query = query.with_sort([Sort::ascending(&w), Sort::descending(v())]);
        assert_eq!(pages(&query, &snapshots).concat(), ["r", "p", "s", "t", "q"]);
    }
}

#[test]
fn pages_stay_right_while_items_come_and_go() {
    let all: Vec<Snapshot> =
        (0..20).map(|n| snapshot("", &format!("{n:02}"), &format!(r#"{{"v":{}}}"#, n / 3))).collect();
    let (stay, come): (Vec<_>, Vec<_>) = all.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let [stay, come]: [Vec<Snapshot>; 2] =
        [stay, come].map(|list| list.into_iter().map(|(_, item)| item).collect());
    let query = SnapshotQuery::new(order(), 1).with_sort([Sort::descending(v())]).with_limit(2);
    let mut after = None;
    let mut seen = Vec::new();
    for round in 0.. {
        // Every other page finds other neighbours.
        let there = stay.iter().chain(if round % 2 == 0 { &[] } else { come.as_slice() });
        let query = SnapshotQuery { after, ..query.clone() };
        let page = run_snapshots(&query, there.cloned().map(Ok)).unwrap();
        seen.extend(page.items.into_iter().map(|item| item.aggregate_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let of_those_that_stay = |id: &&AggregateId| stay.iter().any(|snapshot| snapshot.aggregate_id == **id);
    let mut kept: Vec<_> = seen.iter().filter(of_those_that_stay).collect();
    assert_eq!(kept.len(), stay.len(), "none twice");
    kept.sort();
    assert!(kept.into_iter().eq(stay.iter().map(|snapshot| &snapshot.aggregate_id)), "none skipped");
}

#[test]
fn a_cursor_is_good_for_its_order_only() {
    let snapshots = || ["a", "b"].map(|id| Ok(snapshot("", id, r#"{"v":1}"#)));
    let query = SnapshotQuery::new(order(), 1).with_sort([Sort::ascending(v())]).with_limit(1);
    let next = run_snapshots(&query, snapshots()).unwrap().next.unwrap();
    let query = query.with_after(next.clone());
    assert!(run_snapshots(&query, snapshots()).is_ok());
    assert!(query.clone().with_filter(Filter::exists(v())).check().is_ok(), "the filter may change");
    let others = [
        query.clone().with_sort([]),
        query.clone().with_sort([Sort::descending(v())]),
        query.clone().with_sort([Sort::ascending(Field::Id)]),
        query.clone().with_sort([Sort::ascending(v()), Sort::ascending(v())]),
        SnapshotQuery { aggregate_type: "shop.cart".parse().unwrap(), ..query },
    ];
    for other in others {
        assert!(matches!(other.check().unwrap_err().kind(), ErrorKind::InvalidInput { .. }), "{other:?}");
    }
    let events = EventQuery::new(order()).with_sort([Sort::ascending(v())]).with_after(next);
    assert!(events.check().is_err());
}

#[test]
fn requests_are_checked() {
    let query = SnapshotQuery::new(order(), 1);
    for (limit, fine) in [(0, false), (1, true), (MAX_QUERY_LIMIT, true), (MAX_QUERY_LIMIT + 1, false)] {
        assert_eq!(query.clone().with_limit(limit).check().is_ok(), fine, "{limit}");
    }
    assert!(SnapshotQuery::new(order(), u32::MAX).check().is_err());
    assert!(query.clone().with_filter(Filter::eq(Field::EventName, "x")).check().is_err());
    assert!(query.clone().with_sort([Sort::ascending(Field::Position)]).check().is_err());
    let path = Path::key("a").unwrap();
    assert!(query.clone().with_projection(vec![path; MAX_PROJECTION_PATHS + 1]).check().is_err());
    let id = AggregateId::of(order(), "a").unwrap();
    let waits = |at_least| query.clone().with_at_least(at_least).check().is_ok();
    assert!(waits(AtLeast::new(id.clone(), MAX_COUNTER).within(MAX_QUERY_WAIT)));
    assert!(!waits(AtLeast::new(id.clone(), MAX_COUNTER + 1)));
    assert!(!waits(AtLeast::new(id, 1).within(MAX_QUERY_WAIT + Duration::from_millis(1))));
    assert!(!waits(AtLeast::new(AggregateId::new("shop", "cart", "a").unwrap(), 1)));
}

fn log() -> Vec<RecordedCommit> {
    let mut other = commit("z", 1, 0, 4, &["{}"]);
    other.aggregate_id = AggregateId::new("shop", "cart", "z").unwrap();
    vec![
        commit("b", 1, 1, 1, &[r#"{"v":1}"#, r#"{"v":2}"#, r#"{"v":1.0}"#]),
        commit("a", 1, 0, 1, &[r#"{"v":2}"#]),
        commit("a", 2, 0, 2, &[r#"{"v":null}"#, "{}"]),
        commit("b", 2, 1, 10, &[r#"{"v":1}"#]),
        commit("b", 3, 1, 2, &["[1]"]),
        other,
    ]
}

/// The places (partition, position, index) on all pages.
fn places(query: &EventQuery) -> Vec<(u32, u64, u32)> {
    let mut query = query.clone();
    let mut places = Vec::new();
    loop {
        let page = run_events(&query, log().into_iter().map(Ok)).unwrap();
        places.extend(page.items.iter().map(|item| (item.partition, item.position, item.index)));
        let Some(next) = page.next else { break };
        query.after = Some(next.to_string().parse().unwrap());
    }
    assert_eq!(
        count_events(&query, log().into_iter().map(Ok)).unwrap(),
        u64::try_from(places.len()).unwrap(),
        "a count looks at no cursor"
    );
    places
}

#[test]
fn events_come_one_by_one_in_the_order_of_the_log() {
    let in_order = [(0, 1, 0), (0, 2, 0), (0, 2, 1), (1, 1, 0), (1, 1, 1), (1, 1, 2), (1, 2, 0), (1, 10, 0)];
    for limit in 1..=9 {
        let query = EventQuery::new(order()).with_limit(limit);
        assert_eq!(places(&query), in_order);
        let by_value = query.clone().with_sort([Sort::descending(v())]);
        assert_eq!(
            places(&by_value),
            [(0, 1, 0), (1, 1, 1), (1, 1, 0), (1, 1, 2), (1, 10, 0), (0, 2, 0), (0, 2, 1), (1, 2, 0)]
        );
        let mut latest = query.with_sort([Sort::descending(Field::At), Sort::descending(Field::EventIndex)]);
        assert_eq!(places(&latest)[..3], [(1, 10, 0), (0, 2, 1), (0, 2, 0)]);
        latest.filter = Filter::eq(v(), 1);
        assert_eq!(places(&latest), [(1, 10, 0), (1, 1, 2), (1, 1, 0)]);
    }
}

#[test]
fn envelope_of_an_event() {
    let found = |filter: Filter| places(&EventQuery::new(order()).with_filter(filter)).len();
    assert_eq!(found(Filter::eq(Field::Id, "a")), 3);
    assert_eq!(found(Filter::eq(Field::EventName, "Tested")), 8);
    assert_eq!(found(Filter::starts_with(Field::EventName, "Tested!")), 0);
    assert_eq!(found(Filter::eq(Field::CommandId, "cmd-2")), 3);
    assert_eq!(found(Filter::eq(Field::Partition, 1)), 5);
    assert_eq!(found(Filter::ge(Field::Position, 2)), 4);
    assert_eq!(found(Filter::eq(Field::EventIndex, 0)), 5);
    assert_eq!(found(Filter::eq(Field::Version, 3)), 1);
    assert_eq!(found(Filter::eq(Field::Revision, 2)), 8);
    assert_eq!(found(Filter::exists(Field::Tenant)), 0);
    assert_eq!(found(Filter::le(Field::At, Timestamp::from_millis(1_000).unwrap())), 4);
    let user = Field::metadata(["user", "name"]).unwrap();
    assert_eq!(found(Filter::eq(&user, "ann")), 4);
    assert_eq!(found(Filter::ne(&user, "ann")), 4, "also where there is no metadata");
}

#[test]
fn an_event_has_its_envelope_and_projection() {
    let query = EventQuery::new(order())
        .with_filter(Filter::eq(Field::EventIndex, 2))
        .with_projection([Path::key("w").unwrap()]);
    let page = run_events(&query, log().into_iter().map(Ok)).unwrap();
    let [item] = page.items.as_slice() else { panic!("one event") };
    let commit = &log()[0];
    assert_eq!(
        *item,
        EventItem { body: Payload::empty_object(), ..EventItem::new(commit, &commit.events[2], 2) }
    );
    assert_eq!(item.metadata, commit.metadata, "whole");
}

#[test]
fn a_projected_page_still_knows_where_it_ends() {
    let snapshots =
        || [3, 1, 2].map(|n| Ok(snapshot("", &n.to_string(), &json!({"v": n, "w": {"x": n}}).to_string())));
    let query = SnapshotQuery::new(order(), 1)
        .with_sort([Sort::descending(v())])
        .with_projection(["/w/x".parse().unwrap()])
        .with_limit(2);
    let page = run_snapshots(&query, snapshots()).unwrap();
    assert_eq!(page.items[1].state.as_json(), r#"{"w":{"x":2}}"#);
    let page = run_snapshots(&query.with_after(page.next.unwrap()), snapshots()).unwrap();
    assert_eq!(page.items[0].state.as_json(), r#"{"w":{"x":1}}"#);
}

#[test]
fn a_value_too_long_for_a_cursor_is_an_error_only_where_a_page_ends() {
    let long = format!(r#"{{"v":"{}"}}"#, "x".repeat(MAX_CURSOR_BYTES));
    let snapshots = || [Ok(snapshot("", "a", &long)), Ok(snapshot("", "b", r#"{"v":"y"}"#))];
    let query = SnapshotQuery::new(order(), 1).with_sort([Sort::ascending(v())]);
    assert_eq!(run_snapshots(&query, snapshots()).unwrap().items.len(), 2);
    let error = run_snapshots(&query.with_limit(1), snapshots()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }));
}

#[test]
fn a_query_waits_for_a_write() {
    block_on(async {
        let store = MemoryStore::new();
        let id = AggregateId::of(order(), "a").unwrap();
        let wait = |version| AtLeast::new(id.clone(), version).within(Duration::from_millis(10));
        let append = |n: u64| Commit::new(id.clone(), format!("cmd-{n}")).event("Counted", 1, &n).unwrap();
        let events = EventQuery::new(order());
        let snapshots = SnapshotQuery::new(order(), 1);
        let times_out = |error: crate::Error| matches!(error.kind(), ErrorKind::Timeout);

        assert!(times_out(store.query_events(events.clone().with_at_least(wait(1))).await.unwrap_err()));
        store.append(append(1)).await.unwrap();
        assert_eq!(store.query_events(events.clone().with_at_least(wait(1))).await.unwrap().items.len(), 1);
        assert!(times_out(store.count_events(events.clone().with_at_least(wait(2))).await.unwrap_err()));

        let asked = snapshots.clone().with_at_least(wait(1));
        assert!(times_out(store.query_snapshots(asked.clone()).await.unwrap_err()), "the log is not enough");
        store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 0, &1).unwrap()).await.unwrap();
        assert!(times_out(store.count_snapshots(asked.clone()).await.unwrap_err()), "another revision");
        store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 1, &1).unwrap()).await.unwrap();
        assert_eq!(store.count_snapshots(asked).await.unwrap(), 1);
        assert_eq!(store.count_snapshots(snapshots.with_at_least(wait(0))).await.unwrap(), 1);
    });
}
