//! Reading the log: loads, pages, heads, filters (L9, L5, T2, T5).

use std::time::Duration;

use futures_util::{
    TryStreamExt as _,
    future::{join_all, maybe_done},
};
use wow_store_api::{
    AggregateId, AggregateName, CommitFilter, ContextName, ErrorKind, EventName, MAX_COUNTER, Outcome, Page,
    PartitionId, ReadPage, StoreExt as _, Timestamp, VersionRange,
};

use super::tools::{
    json, load_all, neighbours, poll_once, positions, read_all, refused, versions, with_body,
};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop, soon},
};

topic! { "read":
    load_takes_ranges_of_every_shape [L9],
    load_streams_a_long_aggregate_in_order [L9],
    load_as_of_is_inclusive [L9],
    committed_at_never_falls_along_a_partition [L5, L9] sets_clock,
    heads_are_the_last_positions [L9],
    an_unused_context_reads_as_empty [L9],
    the_number_of_partitions_is_fixed_at_first_use [L9],
    a_partition_that_is_not_there_is_refused [L9, ERRORS],
    a_page_stops_at_its_number_of_commits [L9, T2],
    a_page_stops_at_its_bytes [L9, T2],
    a_page_behind_the_head_is_empty [L9],
    ten_thousand_commits_are_read_in_pages [L5, L9] is_heavy,
    filter_lets_through_what_was_asked_for [L9, T5],
    filtered_pages_advance_past_what_they_leave_out [L9, T5],
    aggregates_of_several_types_are_merged_by_position [L5, L9],
    reads_that_were_begun_and_left_hold_nobody_up [L9, T2],
}

/// No versions, no heads.
const NONE: [u64; 0] = [];

async fn load_takes_ranges_of_every_shape(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 6).await;
    append_many(store, &order("2"), "c", 9).await;
    assert_eq!(versions(store, &id, ..).await, [1, 2, 3, 4, 5, 6], "all");
    assert_eq!(versions(store, &id, 0..).await, [1, 2, 3, 4, 5, 6], "there is no version 0");
    assert_eq!(versions(store, &id, 1..).await, [1, 2, 3, 4, 5, 6], "the first is included");
    assert_eq!(versions(store, &id, 3..).await, [3, 4, 5, 6], "the first bound is inclusive");
    assert_eq!(versions(store, &id, 6..).await, [6], "the last one alone");
    assert_eq!(versions(store, &id, 2..5).await, [2, 3, 4], "a half-open range");
    assert_eq!(versions(store, &id, 2..=5).await, [2, 3, 4, 5], "the last bound is inclusive");
    assert_eq!(versions(store, &id, ..=1).await, [1], "the first one alone");
    assert_eq!(versions(store, &id, ..1).await, NONE, "before the first");
    assert_eq!(versions(store, &id, ..=0).await, NONE, "before the first");
    assert_eq!(versions(store, &id, 4..=4).await, [4], "one in the middle");
    assert_eq!(versions(store, &id, 4..4).await, NONE, "an empty range");
    #[allow(clippy::reversed_empty_ranges, reason = "an empty range is what is tried")]
    let reversed = versions(store, &id, 5..=2).await;
    assert_eq!(reversed, NONE, "a range that ends before it starts");
    assert_eq!(versions(store, &id, 5..=1_000).await, [5, 6], "beyond the head");
    assert_eq!(versions(store, &id, 7..).await, NONE, "behind the head");
    assert_eq!(versions(store, &id, MAX_COUNTER..).await, NONE, "the last version there is");
    assert_eq!(versions(store, &id, u64::MAX..).await, NONE, "beyond every version");
    assert_eq!(versions(store, &id, ..=u64::MAX).await, [1, 2, 3, 4, 5, 6], "beyond every version");
    assert_eq!(versions(store, &order("3"), ..).await, NONE, "an aggregate without commits");
    let by_hand = VersionRange { first: 0, last: 2 };
    let by_hand: Vec<_> =
        store.load_range(&id, by_hand).await.expect("it starts").try_collect().await.expect("ends");
    assert_eq!(positions(&by_hand), positions(&load_all(store, &id).await[..2]), "no version twice");
}

async fn load_streams_a_long_aggregate_in_order(env: Env) {
    let (store, id) = (env.store(), order("1"));
    for part in 0..3 {
        let commits = (1..=900).map(|n| commit(&id, format!("c{}", part * 900 + n)));
        store.append_all(commits).await.expect("it succeeds");
    }
    let commits = load_all(store, &id).await;
    assert_eq!(commits.len(), 2_700, "a stream that ends without an error is complete");
    for (n, commit) in (1..).zip(&commits) {
        let here = (commit.version, commit.command_id.as_str().to_owned());
        assert_eq!(here, (n, format!("c{n}")), "in order, none twice, none left out");
    }
    let middle = versions(store, &id, 255..=1_800).await;
    assert!(middle.into_iter().eq(255..=1_800), "a part of it, across all pages");
    let mut dropped = store.load(&id, ..).await.expect("it starts");
    assert_eq!(dropped.try_next().await.expect("a commit").expect("a commit").version, 1, "the first");
    drop(dropped);
    assert_eq!(store.head(&id).await.expect("the head"), 2_700, "a load that was dropped does no harm");
}

async fn load_as_of_is_inclusive(env: Env) {
    let (store, id) = (env.store(), order("1"));
    for version in 1..=4 {
        append_many(store, &id, &format!("c{version}"), 2).await;
        env.pass(Duration::from_millis(3)).await;
    }
    let commits = load_all(store, &id).await;
    let as_of = |instant: Timestamp| async move {
        let commits = store.load_as_of(&order("1"), instant).await.expect("the load starts");
        commits.try_collect::<Vec<_>>().await.expect("it ends well")
    };
    for commit in &commits {
        let at = commit.committed_at;
        let before = Timestamp::from_millis(at.as_millis() - 1).expect("an instant");
        let prefix = |last: Timestamp| {
            commits.iter().filter(|it| it.committed_at <= last).cloned().collect::<Vec<_>>()
        };
        assert_eq!(as_of(at).await, prefix(at), "what was committed at this instant is in it");
        assert_eq!(as_of(before).await, prefix(before), "a millisecond before it is not");
    }
    assert!(commits[2].committed_at > commits[1].committed_at, "the instants of this case do differ");
    assert_eq!(as_of(Timestamp::MAX).await, commits, "at the end of time, all");
    assert_eq!(as_of(Timestamp::MIN).await, [], "at the beginning, nothing");
    let nobody = store.load_as_of(&order("2"), Timestamp::MAX).await.expect("it starts");
    assert_eq!(nobody.try_collect::<Vec<_>>().await.expect("it ends well"), [], "nothing of others");
}

async fn committed_at_never_falls_along_a_partition(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 2).await;
    let start = store.now().await.expect("the time");
    let late = start.saturating_add(Duration::from_secs(60));
    env.clock().set(late);
    store.append(commit(&ids[0], "c1")).await.expect("it succeeds");
    env.clock().set(start);
    let back = store.append(commit(&ids[1], "c1")).await.expect("a clock set back does no harm");
    assert_eq!(back.committed_at, late, "never before the commit in front of it");
    let all = store.append_all([commit(&ids[0], "c2"), commit(&ids[1], "c2")]).await.expect("it succeeds");
    assert_eq!([all[0].committed_at, all[1].committed_at], [late; 2], "nor in an append of several");
    env.clock().set(late.saturating_add(Duration::from_millis(1)));
    let on = store.append(commit(&ids[0], "c3")).await.expect("it succeeds");
    assert!(on.committed_at > late, "it goes on with the clock");
    let commits = read_all(store, ReadPage::new(partition, 0)).await;
    let instants: Vec<_> = commits.iter().map(|it| it.committed_at).collect();
    assert_eq!(instants, [late, late, late, late, on.committed_at], "and that is what is stored");
}

async fn heads_are_the_last_positions(env: Env) {
    let store = env.store();
    let (_, first) = neighbours(store, 0, 2).await;
    let (_, last) = neighbours(store, 15, 1).await;
    assert_eq!(store.heads(&shop()).await.expect("the heads"), [0; 16], "every partition is empty");
    append_many(store, &first[0], "c", 2).await;
    append_many(store, &first[1], "c", 3).await;
    append_many(store, &last[0], "c", 1).await;
    let mut expected = vec![0; 16];
    (expected[0], expected[15]) = (5, 1);
    assert_eq!(store.heads(&shop()).await.expect("the heads"), expected, "by the index of the partition");
    assert_eq!(store.head(&first[1]).await.expect("the head"), 3, "the head of an aggregate is its version");
}

async fn an_unused_context_reads_as_empty(env: Env) {
    let store = env.store();
    append_many(store, &order("1"), "c", 2).await;
    let never = ContextName::new("never").expect("a valid name");
    let id = AggregateId::new("never", "order", "1").expect("a valid id");
    for after in [0, 7, MAX_COUNTER] {
        let page = ReadPage::new(PartitionId::new(never.clone(), 3), after);
        assert_eq!(
            store.read(page).await.expect("an empty page"),
            Page::empty(after),
            "nothing after {after}"
        );
    }
    assert_eq!(load_all(store, &id).await, [], "no commits");
    assert_eq!(store.head(&id).await.expect("the head"), 0, "no version");
    let heads = store.heads(&never).await.expect("the heads");
    assert_eq!(heads, NONE, "and to look is not to use: it has no partitions yet");
}

async fn the_number_of_partitions_is_fixed_at_first_use(mut env: Env) {
    let depot = ContextName::new("depot").expect("a valid name");
    let count = env.store().partitions(&shop()).await.expect("asking is a first use");
    assert_eq!(count.get(), 16, "as configured");
    assert_eq!(env.store().heads(&shop()).await.expect("the heads").len(), 16, "it is recorded");
    let id = AggregateId::new("depot", "order", "1").expect("a valid id");
    env.store().append(commit(&id, "c")).await.expect("so is an append");
    assert_eq!(env.store().heads(&depot).await.expect("the heads").len(), 16, "recorded too");
    let second = env.second_handle().await;
    env.reopen().await;
    for context in [shop(), depot] {
        assert_eq!(env.store().partitions(&context).await.expect("the count"), count, "and stays");
    }
    assert_eq!(env.store().head(&id).await.expect("the head"), 1, "with what is in them");
    drop(second);
}

async fn a_partition_that_is_not_there_is_refused(env: Env) {
    let store = env.store();
    append_many(store, &order("1"), "c", 1).await;
    for index in [16, 17, 4_096, u32::MAX] {
        let error = refused(store.read(ReadPage::new(PartitionId::new(shop(), index), 0)).await);
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "{index} is too high: {error:?}");
        assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
    }
    let last = store.read(ReadPage::new(PartitionId::new(shop(), 15), 0)).await;
    assert!(!last.expect("the last partition").more, "counted from 0");
}

async fn a_page_stops_at_its_number_of_commits(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 10).await;
    for (after, max, expected, more) in [
        (0, 3, 1..=3, true),
        (3, 3, 4..=6, true),
        (0, 9, 1..=9, true),
        (0, 10, 1..=10, false),
        (0, 11, 1..=10, false),
        (9, 1, 10..=10, false),
        (8, 1, 9..=9, true),
        (0, 0, 1..=1, true),
    ] {
        let request = ReadPage::new(partition.clone(), after).with_max_commits(max);
        let page = store.read(request).await.expect("a page");
        assert!(positions(&page.commits).into_iter().eq(expected.clone()), "after {after}, at most {max}");
        assert_eq!(
            (page.through, page.more),
            (*expected.end(), more),
            "where it ends, and whether there is more"
        );
    }
    let mut by_hand = ReadPage::new(partition, 0);
    by_hand.max_commits = 0;
    assert_eq!(store.read(by_hand).await.expect("a page").commits.len(), 1, "a page never stands still");
}

async fn a_page_stops_at_its_bytes(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 1).await;
    for n in 0..8 {
        let body = json(&format!("\"{}\"", "x".repeat(if n == 4 { 100_000 } else { 1_000 })));
        store.append(with_body(&ids[0], &format!("c{n}"), body)).await.expect("it succeeds");
    }
    let read = |after, max_bytes| {
        let request = ReadPage::new(partition.clone(), after).with_max_bytes(max_bytes);
        async { store.read(request).await.expect("a page") }
    };
    let page = read(0, 2_500).await;
    assert!((2..=4).contains(&page.commits.len()), "about 2,500 bytes: {}", page.commits.len());
    assert_eq!((page.through, page.more), (page.commits.len() as u64, true), "there is more behind it");
    for max_bytes in [0, 1] {
        let page = read(4, max_bytes).await;
        assert_eq!(positions(&page.commits), [5], "the first commit is always delivered, however large");
        assert_eq!((page.through, page.more), (5, true), "and alone");
    }
    let all = read(0, usize::MAX).await;
    assert_eq!((all.commits.len(), all.more), (8, false), "no limit");
    let walked = read_all(store, ReadPage::new(partition.clone(), 0).with_max_bytes(1)).await;
    assert_eq!(walked, all.commits, "page by page nothing is left out");
}

async fn a_page_behind_the_head_is_empty(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 3).await;
    let narrow = [i32::MAX as u64, u64::from(u32::MAX), 1 << 53].map(|edge| [edge, edge + 1]).concat();
    for after in [3, 4, 100].into_iter().chain(narrow).chain([MAX_COUNTER - 1, MAX_COUNTER]) {
        let page = store.read(ReadPage::new(partition.clone(), after)).await.expect("an empty page");
        assert_eq!(page, Page::empty(after), "never below the position that was asked for");
    }
    let last = store.read(ReadPage::new(partition.clone(), 2)).await.expect("a page");
    assert_eq!(
        (positions(&last.commits), last.through, last.more),
        (vec![3], 3, false),
        "just before it is not"
    );
    let empty = store.read(ReadPage::new(PartitionId::new(shop(), 1), 0)).await.expect("an empty page");
    assert_eq!(empty, Page::empty(0), "an empty partition");
}

async fn ten_thousand_commits_are_read_in_pages(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 7).await;
    for part in 0..11 {
        let size = if part == 10 { 1 } else { 1_000 };
        let commits = (0..size).map(|n| commit(&ids[n % ids.len()], format!("c{part}-{n}")));
        store.append_all(commits).await.expect("it succeeds");
    }
    for size in [777, 1_000, ReadPage::LIMIT_MAX_COMMITS] {
        let request = ReadPage::new(partition.clone(), 0).with_max_commits(size).with_max_bytes(usize::MAX);
        let commits = read_all(store, request).await;
        assert!(positions(&commits).into_iter().eq(1..=10_001), "gapless from the first to the last");
    }
    let mut beyond = ReadPage::new(partition, 0).with_max_bytes(usize::MAX);
    beyond.max_commits = usize::MAX;
    let page = store.read(beyond).await.expect("a page");
    assert_eq!(page.commits.len(), ReadPage::LIMIT_MAX_COMMITS, "more are asked for in vain");
    assert!(page.more, "the last one is left");
}

async fn filter_lets_through_what_was_asked_for(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 1).await;
    let id = &ids[0];
    for (n, events) in
        [vec!["A"], vec!["B"], vec!["A", "B"], vec!["C"], vec!["C", "A", "C"]].iter().enumerate()
    {
        let commit =
            events.iter().fold(wow_store_api::Commit::new(id.clone(), format!("c{n}")), |commit, name| {
                commit.event(*name, 1, &1).expect("a valid event")
            });
        store.append(commit).await.expect("it succeeds");
    }
    let event = |name: &str| EventName::new(name).expect("a valid name");
    let aggregate = |name: &str| AggregateName::new(name).expect("a valid name");
    for (filter, expected) in [
        (CommitFilter::all(), vec![1, 2, 3, 4, 5]),
        (CommitFilter::all().with_events([event("A")]), vec![1, 3, 5]),
        (CommitFilter::all().with_events([event("B")]).with_events([event("C")]), vec![2, 3, 4, 5]),
        (CommitFilter::all().with_events([event("a"), event("A%"), event("_")]), vec![]),
        (CommitFilter::all().with_events([]), vec![]),
        (CommitFilter::all().with_aggregates([aggregate("order"), aggregate("cart")]), vec![1, 2, 3, 4, 5]),
        (CommitFilter::all().with_aggregates([aggregate("Order")]), vec![]),
        (CommitFilter::all().with_aggregates([]), vec![]),
        (CommitFilter::all().with_aggregates([aggregate("order")]).with_events([event("C")]), vec![4, 5]),
        (CommitFilter::all().with_aggregates([aggregate("cart")]).with_events([event("A")]), vec![]),
    ] {
        let request = ReadPage::new(partition.clone(), 0).with_filter(filter.clone());
        let page = store.read(request).await.expect("a page");
        assert_eq!(positions(&page.commits), expected, "{filter:?}");
        assert_eq!((page.through, page.more), (5, false), "all of it was looked at");
        assert_eq!(
            page.commits.iter().find(|it| it.position == 5).map_or(3, |it| it.events.len()),
            3,
            "a commit is delivered whole"
        );
    }
}

async fn filtered_pages_advance_past_what_they_leave_out(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 1).await;
    for n in 1..=60 {
        let name = if n % 20 == 0 { "Rare" } else { "Usual" };
        let commit = wow_store_api::Commit::new(ids[0].clone(), format!("c{n}"));
        store.append(commit.event(name, 1, &n).expect("valid")).await.expect("it succeeds");
    }
    let rare = CommitFilter::all().with_events([EventName::new("Rare").expect("valid")]);
    for max_commits in [1, 2, 3, 1_000] {
        let request =
            ReadPage::new(partition.clone(), 0).with_filter(rare.clone()).with_max_commits(max_commits);
        assert_eq!(positions(&read_all(store, request).await), [20, 40, 60], "in pages of {max_commits}");
    }
    let none = CommitFilter::all().with_events([EventName::new("Never").expect("valid")]);
    let mut after = 0;
    while after < 60 {
        let request = ReadPage::new(partition.clone(), after).with_filter(none.clone()).with_max_commits(2);
        let page = store.read(request).await.expect("a page");
        assert_eq!(page.commits, [], "nothing matches");
        assert!(page.through > after, "and yet it advances, so that nothing is looked at twice");
        assert_eq!(page.more, page.through < 60, "up to the head");
        after = page.through;
    }
}

async fn aggregates_of_several_types_are_merged_by_position(env: Env) {
    let store = env.store();
    let count = store.partitions(&shop()).await.expect("the number of partitions");
    let mut expected = Vec::new();
    // One type after the other appears, and all go on taking turns.
    for round in 0..12_u32 {
        for aggregate in 0..=round {
            let id = AggregateId::new("shop", format!("type-{aggregate}"), "1").expect("a valid id");
            let receipt = store.append(commit(&id, format!("c{round}"))).await.expect("it succeeds");
            assert_eq!(receipt.partition, count.partition_of(&id), "its type counts for its partition");
            expected.push((receipt.partition, receipt.position, id));
        }
    }
    for partition in count.partitions(&shop()) {
        let here = expected.iter().filter(|(home, ..)| *home == partition);
        let here: Vec<_> = here.map(|(_, at, id)| (*at, id.clone())).collect();
        for size in [2, 1_000] {
            let commits = read_all(store, ReadPage::new(partition.clone(), 0).with_max_commits(size)).await;
            let found: Vec<_> = commits.iter().map(|it| (it.position, it.aggregate_id.clone())).collect();
            assert_eq!(found, here, "in one order, in pages of {size}");
        }
    }
}

async fn reads_that_were_begun_and_left_hold_nobody_up(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 1).await;
    append_many(store, &ids[0], "c", 3).await;
    let request = ReadPage::new(partition, 0);
    let mut begun = Vec::new();
    for _ in 0..100 {
        let mut read = Box::pin(maybe_done(store.read(request.clone())));
        let _ = poll_once(read.as_mut()).await;
        begun.push(read);
    }
    soon("an append", store.append(commit(&ids[0], "later"))).await.expect("it succeeds");
    let page = soon("another read", store.read(request)).await.expect("a page");
    assert_eq!(positions(&page.commits), [1, 2, 3, 4], "nobody waits for those who do not go on");
    soon("the reads that were left", join_all(begun.iter_mut().map(|read| read.as_mut()))).await;
    for mut read in begun {
        let page = read.as_mut().take_output().expect("it has ended").expect("a page");
        assert!(positions(&page.commits).starts_with(&[1, 2, 3]), "and they can be gone on with");
    }
}
