//! Random queries.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, sample::select};
use wow_store_api::{
    AggregateId, AggregateType,
    payload::Number,
    query::{AtLeast, EventQuery, Field, Filter, Path, Scalar, SnapshotQuery, Sort, Target},
};

fn path() -> impl Strategy<Value = Path> + Clone {
    const PATHS: &[&[&str]] = &[
        &["n"],
        &["n"],
        &["s"],
        &["s"],
        &["tags"],
        &["tags", "0"],
        &["a"],
        &["a", "b"],
        &["$x", ""],
        &["c.d"],
        &["c", "d"],
        &["0"],
    ];
    select(PATHS).prop_map(|segments| Path::new(segments.iter().copied()).expect("a valid path"))
}

fn number(text: &str) -> Scalar {
    Scalar::Number(text.parse::<Number>().expect("a valid number"))
}

fn scalar() -> impl Strategy<Value = Scalar> + Clone {
    let numbers = ["1", "1.1", "-3", "2", "9223372036854775808", "12345678901234567890.50"];
    prop_oneof![
        4 => select(numbers.map(number).to_vec()),
        4 => select(vec!["a", "ab", "b", "1", "%", "$gt", ""]).prop_map(Scalar::from),
        1 => Just(Scalar::Null),
        1 => any::<bool>().prop_map(Scalar::Bool),
    ]
}

fn ordered() -> impl Strategy<Value = Scalar> + Clone {
    scalar().prop_filter("has an order", |scalar| matches!(scalar, Scalar::Number(_) | Scalar::String(_)))
}

/// A filter on the envelope.
fn envelope(target: Target) -> BoxedStrategy<Filter> {
    let id = select(vec!["a", "b", "c"]).prop_map(|id| Filter::ge(Field::Id, id));
    let tenant = any::<bool>().prop_map(|there| {
        let there_is_one = Filter::exists(Field::Tenant);
        if there { there_is_one } else { !there_is_one }
    });
    let version = (0..5u32).prop_map(|version| Filter::le(Field::Version, version));
    match target {
        Target::Snapshots => prop_oneof![id, tenant, version].boxed(),
        Target::Events => {
            let name = select(vec!["Placed", "Paid"]).prop_map(|name| Filter::eq(Field::EventName, name));
            let metadata =
                scalar().prop_map(|scalar| Filter::eq(Field::metadata(["s"]).expect("a path"), scalar));
            prop_oneof![id, tenant, version, name, metadata].boxed()
        }
    }
}

fn filter(target: Target) -> BoxedStrategy<Filter> {
    let body = || path().prop_map(Field::Body);
    let leaf = prop_oneof![
        10 => Just(Filter::All),
        3 => (body(), scalar()).prop_map(|(field, scalar)| Filter::Eq(field, scalar)),
        1 => (body(), scalar()).prop_map(|(field, scalar)| Filter::Ne(field, scalar)),
        1 => (body(), ordered()).prop_map(|(field, scalar)| Filter::Lt(field, scalar)),
        1 => (body(), ordered()).prop_map(|(field, scalar)| Filter::Le(field, scalar)),
        1 => (body(), ordered()).prop_map(|(field, scalar)| Filter::Gt(field, scalar)),
        1 => (body(), ordered()).prop_map(|(field, scalar)| Filter::Ge(field, scalar)),
        1 => (body(), vec(scalar(), 0..3)).prop_map(|(field, scalars)| Filter::In(field, scalars)),
        1 => (body(), scalar()).prop_map(|(field, scalar)| Filter::Contains(field, scalar)),
        1 => (body(), select(vec!["a", "$", "_", "A", ""])).prop_map(|(field, text)| Filter::StartsWith(field, text.into())),
        1 => body().prop_map(Filter::Exists),
        3 => envelope(target),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Filter::And),
            vec(inner.clone(), 0..3).prop_map(Filter::Or),
            inner.prop_map(|filter| !filter),
        ]
    })
    .boxed()
}

fn sort(target: Target) -> BoxedStrategy<Vec<Sort>> {
    let field = match target {
        Target::Snapshots => {
            prop_oneof![3 => path().prop_map(Field::Body), 1 => Just(Field::Id), 1 => Just(Field::Version)]
                .boxed()
        }
        Target::Events => {
            prop_oneof![3 => path().prop_map(Field::Body), 1 => Just(Field::Id), 1 => Just(Field::EventName)]
                .boxed()
        }
    };
    let sort = (field, any::<bool>())
        .prop_map(|(field, up)| if up { Sort::ascending(field) } else { Sort::descending(field) });
    vec(sort, 0..3)
        .prop_map(|sorts| {
            let mut once: Vec<Sort> = Vec::new();
            for sort in sorts {
                if once.iter().all(|other| other.field != sort.field) {
                    once.push(sort);
                }
            }
            once
        })
        .boxed()
}

fn projection() -> impl Strategy<Value = Option<Vec<Path>>> + Clone {
    option::weighted(0.3, vec(path(), 0..3))
}

fn of() -> impl Strategy<Value = AggregateType> + Clone {
    select(vec!["order", "order", "order", "order", "cart", "Order"])
        .prop_map(|name| AggregateType::new("shop", name).expect("a valid type"))
}

/// What must be seen, without waiting for it.
fn at_least(of: &AggregateType, version: Option<u64>) -> Option<AtLeast> {
    let id = AggregateId::of(of.clone(), "a").expect("a valid id");
    version.map(|version| AtLeast::new(id, version).within(Duration::ZERO))
}

fn version() -> impl Strategy<Value = Option<u64>> + Clone {
    option::weighted(0.1, 0..3u64)
}

pub(super) fn snapshots() -> impl Strategy<Value = SnapshotQuery> {
    let target = Target::Snapshots;
    (of(), 1..3u32, filter(target), sort(target), projection(), 1..4usize, version()).prop_map(
        |(of, revision, filter, sort, projection, limit, version)| SnapshotQuery {
            filter,
            sort,
            projection,
            limit,
            at_least: at_least(&of, version),
            ..SnapshotQuery::new(of, revision)
        },
    )
}

pub(super) fn events() -> impl Strategy<Value = EventQuery> {
    let target = Target::Events;
    (of(), filter(target), sort(target), projection(), 1..4usize, version()).prop_map(
        |(of, filter, sort, projection, limit, version)| EventQuery {
            filter,
            sort,
            projection,
            limit,
            at_least: at_least(&of, version),
            ..EventQuery::new(of)
        },
    )
}
