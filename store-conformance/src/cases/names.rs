//! Names and ids: one rule for all stores, and nothing that a database makes of them.

use wow_store_api::{
    AggregateId, AggregateName, AggregateType, CommandId, Commit, ContextName, Error, ErrorKind, EventName,
    EventStore, MAX_ID_BYTES, MAX_NAME_BYTES, MAX_QUALIFIED_NAME_BYTES, Outcome, PartitionId, SaveCheckpoint,
    StoreExt as _, SubscriptionName,
};

use super::tools::{load_all, refused, sound_log, stored};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop},
};

topic! { "names":
    the_longest_names_are_kept_whole [NAMES],
    names_differ_by_case_and_by_their_separators [NAMES],
    names_that_mean_something_elsewhere_work [NAMES],
    names_that_break_the_rule_are_refused [NAMES, ERRORS],
    ids_are_compared_by_bytes [NAMES],
    command_ids_are_compared_by_bytes [NAMES, L3],
    strange_ids_come_back_as_they_were [NAMES],
    strange_event_names_come_back_as_they_were [NAMES],
    strange_subscriptions_come_back_as_they_were [NAMES, C1],
    the_longest_ids_are_kept_whole [NAMES],
    ids_that_break_the_rule_are_refused [NAMES, ERRORS],
    a_tenant_is_part_of_the_identity [NAMES],
}

/// Pairwise different by bytes, and the same to many a collation, normalisation or trimming.
const ALIKE: &[&str] = &[
    "a",
    "A",
    "á",
    "a\u{301}",
    "Á",
    " a",
    "a ",
    "a\t",
    "a\u{a0}",
    "a\u{200b}",
    "ａ",
    "å",
    "a\u{30a}",
    "\u{212b}",
    "ß",
    "ss",
    "SS",
    "ı",
    "i",
    "I",
    "İ",
    "1",
    "01",
    "1.0",
    "１",
    "ﬁ",
    "fi",
    "null",
    "NULL",
    "true",
    "\u{feff}a",
    "a\u{301}\u{323}",
    "a\u{323}\u{301}",
];

/// What breaks out of quotes, patterns, paths, shells and queries that are put together by hand.
const STRANGE: &[&str] = &[
    "'; drop table t;--",
    "\"; drop table t;--",
    "\"",
    "'",
    "''",
    "\\",
    "\\'",
    "`",
    "$$",
    "$1",
    "$where",
    "$set",
    "{\"$gt\":\"\"}",
    "%",
    "_",
    "%%",
    "a%",
    "a_",
    "[a]",
    "*",
    "?",
    "../..",
    "..",
    ".",
    "/",
    "a/b",
    "a\\b",
    "~",
    "a\nb",
    "\r\n",
    "\t",
    "\u{1}",
    "\u{1b}[31m",
    "\u{7f}",
    "😀",
    "👨‍👩‍👧",
    "\u{202e}abc",
    "日本語",
    "ÿ",
    "\u{ffff}",
    "\u{10ffff}",
    " ",
    "  ",
    "a b",
    "a,b",
    "a;b",
    "a:b",
    "a|b",
    "{}",
    "[]",
    "()",
    "%s",
    "%00",
    "\\0",
    "\\u0000",
    "&amp;",
    "<a>",
    "#",
    "null",
    "NaN",
    "-1",
    "1e2",
    "0x10",
    "true",
    "undefined",
    "shop.order/1",
    "a__b",
    "system.users",
    "-- ",
    "/*",
];

fn aggregate(context: &str, aggregate: &str, id: &str) -> AggregateId {
    AggregateId::new(context, aggregate, id).expect("a valid id")
}

/// Appends one commit to each aggregate: they must not know of each other.
async fn all_apart(store: &std::sync::Arc<dyn EventStore>, ids: &[AggregateId]) {
    for id in ids {
        let receipt = store.append(commit(id, "c1")).await.expect("the name is fine");
        assert_eq!((receipt.version, receipt.replayed), (1, false), "{id:?} is another one");
    }
    for id in ids {
        let commits = load_all(store, id).await;
        assert_eq!(commits.len(), 1, "{id:?} has its own commit");
        assert_eq!(commits[0].aggregate_id, *id, "under its own name");
    }
    let receipt = store.append(commit(&ids[0], "c2")).await.expect("it succeeds");
    assert_eq!(receipt.version, 2, "and they stay apart");
    assert!(ids.len() < 2 || store.head(&ids[1]).await.expect("the head") == 1, "and they stay apart");
}

async fn the_longest_names_are_kept_whole(env: Env) {
    let store = env.store();
    let long = |length: usize, last: char| format!("{}{last}", "n".repeat(length - 1));
    let mut ids = Vec::new();
    for length in [1, 21, 40, MAX_NAME_BYTES] {
        for last in ['x', 'y'] {
            let context = long(length, last);
            let rest = MAX_QUALIFIED_NAME_BYTES - length;
            ids.extend([
                aggregate(&context, &long(rest, 'x'), "1"),
                aggregate(&context, &long(rest, 'y'), "1"),
            ]);
        }
        let too_long =
            AggregateType::new(long(length, 'x'), "n".repeat(MAX_QUALIFIED_NAME_BYTES + 1 - length));
        assert_invalid(&refused(too_long));
    }
    all_apart(store, &ids).await;
    let mut types: Vec<_> = ids.iter().map(|id| id.aggregate_type().clone()).collect();
    types.sort();
    assert_eq!(store.aggregate_types().await.expect("the types"), types, "every name, to the last byte");
    for id in &ids {
        let commits = if id.context() == ids[0].context() { 3 } else { 2 };
        assert_eq!(stored(store, id.context()).await, commits, "each context has its own");
    }
    assert_invalid(&refused(ContextName::new("n".repeat(MAX_NAME_BYTES + 1))));
    assert_invalid(&refused(AggregateName::new("n".repeat(MAX_NAME_BYTES + 1))));
}

async fn names_differ_by_case_and_by_their_separators(env: Env) {
    let pairs = [
        ("shop", "order"),
        ("Shop", "order"),
        ("shop", "Order"),
        ("SHOP", "ORDER"),
        ("shop", "or-der"),
        ("shop", "or_der"),
        ("sh-op", "order"),
        ("sh_op", "order"),
        ("a", "b_c"),
        ("a_b", "c"),
        ("a-b", "c"),
        ("a", "b-c"),
        ("a", "b"),
        ("A", "b"),
        ("a", "B"),
        ("shop", "order1"),
        ("shop", "order_1"),
        ("shop", "Partition"),
        ("shop", "partitions"),
    ];
    let ids: Vec<_> = pairs.map(|(context, name)| aggregate(context, name, "1")).into();
    all_apart(env.store(), &ids).await;
    for (context, commits) in
        [("shop", 9), ("Shop", 1), ("SHOP", 1), ("a", 4), ("A", 1), ("a_b", 1), ("a-b", 1)]
    {
        let context = ContextName::new(context).expect("a valid name");
        assert_eq!(stored(env.store(), &context).await, commits, "the log of {context} is its own");
    }
    assert_eq!(env.store().aggregate_types().await.expect("the types").len(), pairs.len(), "each is a type");
}

async fn names_that_mean_something_elsewhere_work(mut env: Env) {
    let names = [
        "systems",
        "system",
        "systemOrders",
        "con",
        "CON",
        "nul",
        "aux",
        "com1",
        "select",
        "table",
        "user",
        "group",
        "order",
        "from",
        "index",
        "admin",
        "local",
        "config",
        "public",
        "pg_catalog",
        "information_schema",
        "default",
        "null",
        "true",
        "partition1",
        "log",
        "wow",
        "wow_log",
    ];
    let ids: Vec<_> = names.iter().map(|name| aggregate(name, name, "1")).collect();
    all_apart(env.store(), &ids).await;
    all_apart(env.store(), &[aggregate("partition", "order", "1")]).await;
    env.reopen().await;
    for id in &ids {
        assert_eq!(load_all(env.store(), id).await[0].aggregate_id, *id, "also after a reopen");
    }
}

fn assert_invalid(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::InvalidName { .. }), "the name is what is wrong: {error:?}");
    assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
}

async fn names_that_break_the_rule_are_refused(env: Env) {
    let store = env.store();
    append_many(store, &order("canary"), "c", 2).await;
    let before = sound_log(store, &shop()).await;
    assert_eq!(before.concat().len(), 2, "the canary is there");
    for name in [
        "",
        " ",
        "1abc",
        "_a",
        "-a",
        "a_",
        "a-",
        "a__b",
        "a b",
        "a ",
        "ä",
        "a\u{301}",
        "a\"b",
        "a'b",
        "a`b",
        "a.b",
        "a.",
        ".",
        "..",
        "a/b",
        "a\\b",
        "%s",
        "a%",
        "😀",
        "a$b",
        "$a",
        "system.orders",
        "a\0",
        "\0",
        "a\n",
        "a:b",
        "a;b",
        "app\".t where true;--",
        "x'); drop table y;--",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    ] {
        assert_invalid(&refused(ContextName::new(name)));
        assert_invalid(&refused(AggregateName::new(name)));
        assert_invalid(&refused(AggregateId::new(name, "order", "1")));
        assert_invalid(&refused(AggregateId::new("shop", name, "1")));
    }
    assert_invalid(&refused(AggregateType::new("shop", "partition")));
    assert_invalid(&refused("shop".parse::<AggregateType>()));
    assert_eq!(sound_log(store, &shop()).await, before, "nothing of it reached the store");
}

async fn ids_are_compared_by_bytes(env: Env) {
    let ids: Vec<_> = ALIKE.iter().map(order).collect();
    all_apart(env.store(), &ids).await;
    assert_eq!(stored(env.store(), &shop()).await, ALIKE.len() + 1, "as many as there are ids");
}

async fn command_ids_are_compared_by_bytes(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let mut receipts = Vec::new();
    for (version, command) in (1..).zip(ALIKE.iter().chain(&["b"]).chain(STRANGE)) {
        let known = store.receipt(&id, &CommandId::new(command).expect("a valid id")).await.expect("a read");
        let duplicate = ALIKE.iter().chain(&["b"]).chain(STRANGE).take(version - 1).any(|it| it == command);
        assert_eq!(known.is_some(), duplicate, "{command:?} is a command of its own");
        let receipt = store.append(commit(&id, *command)).await.expect("it succeeds");
        assert_eq!(receipt.replayed, duplicate, "{command:?} was not appended before");
        receipts.push((command, receipt));
    }
    for (command, receipt) in receipts {
        let replay = store.append(commit(&id, *command)).await.expect("it succeeds");
        assert_eq!(replay, receipt.replay(), "{command:?} is known by its bytes");
    }
}

async fn strange_ids_come_back_as_they_were(mut env: Env) {
    let mut ids: Vec<_> = STRANGE.iter().map(order).collect();
    ids.extend(STRANGE.iter().map(|tenant| order("1").with_tenant(tenant).expect("a valid tenant")));
    all_apart(env.store(), &ids).await;
    env.reopen().await;
    let log = sound_log(env.store(), &shop()).await.concat();
    assert_eq!(log.len(), ids.len() + 1, "the log holds them");
    for id in &ids {
        assert!(log.iter().any(|commit| commit.aggregate_id == *id), "{id:?} as it was");
    }
}

async fn strange_event_names_come_back_as_they_were(env: Env) {
    let store = env.store();
    for (n, name) in STRANGE.iter().chain(ALIKE).enumerate() {
        let commit = Commit::new(order("1"), format!("c{n}")).event(name, 1, &n).expect("a valid event");
        store.append(commit).await.expect("it succeeds");
    }
    let loaded = load_all(store, &order("1")).await;
    let names: Vec<_> = loaded.iter().map(|commit| commit.events[0].name.as_str()).collect();
    assert!(names.iter().eq(STRANGE.iter().chain(ALIKE)), "every name, by its bytes");
    for name in ["%", "_", "a%", "$where", "'", "a", "A", "á", "a "] {
        let only = EventName::new(name).expect("a valid name");
        let filter = wow_store_api::CommitFilter::all().with_events([only]);
        let partition = loaded[0].receipt().partition;
        let page = store.read(wow_store_api::ReadPage::new(partition, 0).with_filter(filter)).await;
        let found = page.expect("a page").commits;
        assert_eq!(found.len(), 1, "a filter is no pattern either: {name:?}");
        assert_eq!(found[0].events[0].name, name, "and finds it");
    }
}

async fn strange_subscriptions_come_back_as_they_were(env: Env) {
    let store = env.store();
    let partition = PartitionId::new(shop(), 0);
    let mut names: Vec<_> =
        STRANGE.iter().chain(ALIKE).map(|name| SubscriptionName::new(name).expect("valid")).collect();
    names.sort();
    names.dedup();
    for (position, name) in (1..).zip(&names) {
        let save = SaveCheckpoint::new(name.clone(), partition.clone(), position);
        store.save_checkpoint(save).await.expect("it is saved");
    }
    for (position, name) in (1..).zip(&names) {
        let found = store.checkpoint(name, &partition).await.expect("a read").expect("it is there");
        assert_eq!((&found.subscription, found.position), (name, position), "its own");
    }
    let listed = store.checkpoints(&shop()).await.expect("a read");
    assert!(listed.iter().map(|it| &it.subscription).eq(&names), "all of them, ordered by their bytes");
}

async fn the_longest_ids_are_kept_whole(env: Env) {
    let store = env.store();
    let long = |last: &str| format!("{}{last}", "€".repeat((MAX_ID_BYTES - last.len()) / 3));
    let texts = ["xyz", "xyZ", "x€", "€"].map(long);
    assert!(texts.iter().all(|text| text.len() >= MAX_ID_BYTES - 2), "as long as they may be");
    let full = "n".repeat(MAX_ID_BYTES);
    let ids: Vec<_> = texts.iter().chain([&full]).map(order).collect();
    let tenants = texts.iter().map(|tenant| order(&full).with_tenant(tenant).expect("a valid tenant"));
    let ids: Vec<_> = ids.into_iter().chain(tenants).collect();
    all_apart(store, &ids).await;
    for (n, text) in texts.iter().chain([&full]).enumerate() {
        let commit = Commit::new(ids[1].clone(), text.as_str()).event(text, 1, &n).expect("a valid event");
        let receipt = store.append(commit).await.expect("it succeeds");
        assert!(!receipt.replayed, "no two commands are one");
    }
    let loaded = load_all(store, &ids[1]).await;
    let kept = loaded[1..].iter().map(|it| (it.command_id.as_str(), it.events[0].name.as_str()));
    assert!(
        kept.eq(texts.iter().chain([&full]).map(|text| (text.as_str(), text.as_str()))),
        "to the last byte"
    );
}

async fn ids_that_break_the_rule_are_refused(env: Env) {
    let store = env.store();
    append_many(store, &order("canary"), "c", 1).await;
    let before = sound_log(store, &shop()).await;
    assert_eq!(before.concat().len(), 1, "the canary is there");
    let long = "n".repeat(MAX_ID_BYTES + 1);
    let wide = "€".repeat(86);
    for bad in ["", "\0", "a\0", "\0a", "a\0b", &long, &wide] {
        assert_invalid(&refused(AggregateId::new("shop", "order", bad)));
        assert_invalid(&refused(order("1").with_tenant(bad)));
        assert_invalid(&refused(CommandId::new(bad)));
        assert_invalid(&refused(SubscriptionName::new(bad)));
        assert_invalid(&refused(Commit::new(order("1"), "c").event(bad, 1, &1)));
        assert_invalid(&refused(store.append(commit(&order("1"), bad)).await));
        let all = [commit(&order("1"), "fine"), commit(&order("1"), bad)];
        assert_invalid(&refused(store.append_all(all).await));
    }
    assert_eq!(sound_log(store, &shop()).await, before, "nothing of it reached the store");
}

async fn a_tenant_is_part_of_the_identity(env: Env) {
    let tenant = |tenant: &str, id: &str| order(id).with_tenant(tenant).expect("a valid tenant");
    let mut ids = vec![
        order("1"),
        tenant("acme", "1"),
        tenant("Acme", "1"),
        tenant("1", "1"),
        order("acme"),
        tenant("1", "acme"),
    ];
    // However the two are put together, they must not run into each other.
    for separator in ["/", ":", "|", ".", "-", "_", "__", " ", "\u{1}", "\u{1f}", "\u{ffff}", "~", ","] {
        let joined = format!("b{separator}c");
        ids.extend([
            tenant("a", &joined),
            tenant(&format!("a{separator}b"), "c"),
            order(format!("a{separator}{joined}")),
        ]);
    }
    all_apart(env.store(), &ids).await;
    let log = sound_log(env.store(), &shop()).await.concat();
    assert!(ids.iter().all(|id| log.iter().any(|it| it.aggregate_id == *id)), "with their tenants");
}
