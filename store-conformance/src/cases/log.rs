//! The log, one writer at a time: versions, positions, idempotency, fences (L1 to L7, L10).

use wow_store_api::{
    AggregateId, CommandId, Commit, ErrorKind, Event, ExpectedVersion, MAX_COUNTER, MAX_REVISION, Outcome,
    Receipt, StoreExt as _,
};

use super::tools::{fence, json, load_all, neighbours, read_all, refused, sound_log, stored};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop},
};

topic! { "log":
    append_numbers_versions_and_positions_densely [L2, L5],
    append_rejects_every_other_expected_version [L2, ERRORS],
    no_stream_is_exact_zero [L2],
    any_goes_behind_whatever_is_there [L2],
    replay_returns_the_first_receipt_whatever_is_asked [L3],
    replay_works_after_a_thousand_more_commits [L3],
    a_command_id_belongs_to_its_aggregate [L3],
    receipt_is_told_beforehand [L3],
    refused_append_leaves_no_trace [L1, L5],
    recorded_commit_is_what_was_appended [L1, L9],
    seventy_thousand_events_fit_in_one_commit [L1] is_heavy,
    aggregate_types_appear_with_their_first_commit [L10],
    contexts_have_logs_of_their_own [L5, L9],
    second_handle_continues_what_the_first_wrote [L2, L3, L5],
    reopen_keeps_everything [L4],
}

async fn append_numbers_versions_and_positions_densely(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 3, 3).await;
    let mut position = 0;
    for version in 1..=15 {
        for id in &ids {
            let receipt = store.append(commit(id, format!("c{version}"))).await.expect("it succeeds");
            position += 1;
            let asked = (receipt.version, &receipt.partition, receipt.position, receipt.replayed);
            assert_eq!(asked, (version, &partition, position, false), "the next version and position");
        }
    }
    assert_eq!(stored(store, &shop()).await, 45, "all are stored");
}

async fn append_rejects_every_other_expected_version(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    for expected in [0, 1, 2, 4, 5, 100, MAX_COUNTER, MAX_COUNTER + 1, u64::MAX] {
        let expected = ExpectedVersion::Exact(expected);
        let error = refused(store.append(commit(&id, format!("stale-{expected}")).expect(expected)).await);
        let kind = ErrorKind::VersionConflict { aggregate_id: id.clone(), expected, actual: 3 };
        assert_eq!(*error.kind(), kind, "it says what was expected and what the version is");
        assert_eq!(error.outcome(), Outcome::NotApplied, "and that nothing was stored");
        assert!(!error.is_transient(), "the same request never succeeds");
    }
    let error = refused(store.append(commit(&id, "new").expect(ExpectedVersion::NoStream)).await);
    assert!(error.is_conflict(), "there is a stream: {error:?}");
    // The stream is as it was, and the right expectation works.
    let next = commit(&id, "next").expect(ExpectedVersion::Exact(3));
    assert_eq!(store.append(next).await.expect("3 is right").version, 4, "the next version");
    let missing = commit(&order("2"), "c").expect(ExpectedVersion::Exact(1));
    let error = refused(store.append(missing).await);
    let ErrorKind::VersionConflict { actual, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!(*actual, 0, "an aggregate without commits is at version 0");
}

async fn no_stream_is_exact_zero(env: Env) {
    let store = env.store();
    for (id, expected) in [("a", ExpectedVersion::NoStream), ("b", ExpectedVersion::Exact(0))] {
        let first = commit(&order(id), "c1").expect(expected);
        assert_eq!(store.append(first).await.expect("it has no commit").version, 1, "the first version");
        let again = commit(&order(id), "c2").expect(expected);
        assert!(refused(store.append(again).await).is_conflict(), "now it has one");
    }
}

async fn any_goes_behind_whatever_is_there(env: Env) {
    let (store, id) = (env.store(), order("1"));
    for version in 1..=5 {
        let any = commit(&id, format!("c{version}")).expect(ExpectedVersion::Any);
        assert_eq!(store.append(any).await.expect("any is right").version, version, "the next version");
    }
}

async fn replay_returns_the_first_receipt_whatever_is_asked(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let first = append_many(store, &id, "c", 3).await;
    for (n, receipt) in first.iter().enumerate() {
        for expected in [
            ExpectedVersion::Any,
            ExpectedVersion::NoStream,
            ExpectedVersion::Exact(0),
            ExpectedVersion::Exact(2),
            ExpectedVersion::Exact(3),
            ExpectedVersion::Exact(u64::MAX),
        ] {
            let again = Commit::new(id.clone(), format!("c-{}", n + 1))
                .expect(expected)
                .event("SomethingElse", 7, &"other events")
                .expect("a valid event");
            let replay = store.append(again).await.expect("a replay succeeds");
            assert_eq!(replay, receipt.clone().replay(), "the first receipt, marked as replayed");
        }
    }
    let names: Vec<_> = load_all(store, &id).await.iter().map(|it| it.events[0].name.clone()).collect();
    assert_eq!(names, ["Happened"; 3], "nothing was stored or changed");
    assert_eq!(stored(store, &shop()).await, 3, "in the log neither");
}

async fn replay_works_after_a_thousand_more_commits(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let first = append_many(store, &id, "c", 2).await;
    let more = (0..1_000).map(|n| commit(&id, format!("more-{n}")));
    store.append_all(more).await.expect("a thousand more");
    for receipt in first {
        let again = commit(&id, format!("c-{}", receipt.version)).expect(ExpectedVersion::Exact(1_002));
        let replay = store.append(again).await.expect("a replay succeeds");
        assert_eq!(replay, receipt.replay(), "the first receipt, however long ago");
    }
    assert_eq!(store.head(&id).await.expect("the head"), 1_002, "nothing was stored");
}

async fn a_command_id_belongs_to_its_aggregate(env: Env) {
    let store = env.store();
    let (_, ids) = neighbours(store, 0, 2).await;
    let others = [
        ids[0].clone(),
        ids[1].clone(),
        ids[0].clone().with_tenant("acme").expect("a valid tenant"),
        ids[0].clone().with_tenant("umbra").expect("a valid tenant"),
        AggregateId::new("shop", "cart", ids[0].id()).expect("a valid id"),
        AggregateId::new("depot", "order", ids[0].id()).expect("a valid id"),
    ];
    for id in &others {
        let receipt = store.append(commit(id, "cmd")).await.expect("it succeeds");
        assert_eq!((receipt.version, receipt.replayed), (1, false), "{id} did not have it");
    }
    for id in &others {
        let receipt = store.append(commit(id, "cmd")).await.expect("it succeeds");
        assert!(receipt.replayed, "{id} has it now");
    }
}

async fn receipt_is_told_beforehand(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let (known, unknown) = (CommandId::new("c-2").expect("valid"), CommandId::new("c-9").expect("valid"));
    assert_eq!(store.receipt(&id, &known).await.expect("a read"), None, "nothing is there yet");
    let receipts = append_many(store, &id, "c", 3).await;
    let told = store.receipt(&id, &known).await.expect("a read");
    assert_eq!(told, Some(receipts[1].clone().replay()), "the receipt of the append, as a replay gets it");
    assert_eq!(store.receipt(&id, &unknown).await.expect("a read"), None, "this command is not known");
    assert_eq!(store.receipt(&order("2"), &known).await.expect("a read"), None, "nor on another aggregate");
}

async fn refused_append_leaves_no_trace(env: Env) {
    let store = env.store();
    let (partition, ids) = neighbours(store, 0, 2).await;
    append_many(store, &ids[0], "c", 2).await;
    store.append(commit(&ids[0], "fenced").fenced(fence(5))).await.expect("the first with this lease");
    for round in 0..5 {
        let stale = commit(&ids[0], "stale").expect(ExpectedVersion::Exact(round));
        assert!(round == 3 || store.append(stale).await.is_err(), "the version is 3");
        let fenced = commit(&ids[1], "late").fenced(fence(4));
        assert!(refused(store.append(fenced).await).is_fenced(), "the lease was overtaken");
    }
    assert_eq!(store.head(&ids[1]).await.expect("the head"), 0, "no commit of it is there");
    assert_eq!(store.heads(&shop()).await.expect("the heads")[0], 3, "no position was used up");
    // The refused commands are not remembered either.
    for (id, command, version) in [(&ids[0], "stale", 4), (&ids[1], "late", 1)] {
        let receipt = store.append(commit(id, command)).await.expect("it is fine now");
        assert_eq!((receipt.version, receipt.replayed), (version, false), "it is stored for the first time");
    }
    let commits = read_all(store, wow_store_api::ReadPage::new(partition, 0)).await;
    assert_eq!(commits.len(), 5, "and nothing else is in the log");
    sound_log(store, &shop()).await;
}

async fn recorded_commit_is_what_was_appended(env: Env) {
    let store = env.store();
    let id = order("1").with_tenant("acme").expect("a valid tenant");
    let event = |name, revision, body| Event::new(name, revision, json(body)).expect("a valid event");
    let events =
        vec![event("Placed", 0, "{\"n\":1}"), event("Paid", MAX_REVISION, "[]"), event("Placed", 3, "null")];
    let full = events.iter().cloned().fold(Commit::new(id.clone(), "full"), Commit::with_event);
    let full = full.with_metadata(json("{\"user\":\"u\",\"n\":null}"));
    let bare = commit(&id, "bare");
    let (full, bare) = (full.check().expect("valid"), bare.check().expect("valid"));
    let mut expected = Vec::new();
    for commit in [full, bare] {
        let receipt: Receipt = store.append_checked(commit.clone()).await.expect("it succeeds");
        expected.push(commit.record(&receipt));
    }
    let loaded = load_all(store, &id).await;
    assert_eq!(loaded, expected, "a load gives back every part: events in order, metadata or none");
    let partition = expected[0].receipt().partition;
    let read = read_all(store, wow_store_api::ReadPage::new(partition, 0)).await;
    assert_eq!(read, expected, "and so does a read");
    assert_eq!(loaded[0].events, events, "names, revisions and bodies");
    assert_eq!((loaded[0].metadata.is_some(), loaded[1].metadata.is_none()), (true, true), "or none");
    let committed_at = loaded[0].committed_at;
    assert!(committed_at <= store.now().await.expect("the time"), "by the store's clock");
}

async fn seventy_thousand_events_fit_in_one_commit(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let event = |n: u32| Event::new("E", 1, json(&n.to_string())).expect("a valid event");
    let many = (0..70_000).map(event).fold(Commit::new(id.clone(), "many"), Commit::with_event);
    let receipt = store.append(many).await.expect("the size is what counts, not the number of events");
    assert_eq!((receipt.version, receipt.position), (1, 1), "it is one commit");
    let loaded = load_all(store, &id).await;
    let numbers: Vec<u32> = loaded[0].events.iter().map(|it| it.body.decode().expect("a number")).collect();
    assert!(numbers.into_iter().eq(0..70_000), "every event is there, in order");
}

async fn aggregate_types_appear_with_their_first_commit(env: Env) {
    let store = env.store();
    let types = || async {
        let types = store.aggregate_types().await.expect("the types");
        types.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(types().await, Vec::<String>::new(), "none at first");
    store.partitions(&shop()).await.expect("a first use of the context");
    let refused_type = AggregateId::new("shop", "refused", "1").expect("a valid id");
    refused(store.append(commit(&refused_type, "c").expect(ExpectedVersion::Exact(1))).await);
    assert_eq!(types().await, Vec::<String>::new(), "a refused commit is none");
    for (context, aggregate) in
        [("shop", "order"), ("shop", "Order"), ("depot", "z"), ("shop", "cart"), ("shop", "order")]
    {
        let id = AggregateId::new(context, aggregate, "1").expect("a valid id");
        store.append(commit(&id, "c")).await.expect("a new type needs no restart");
    }
    assert_eq!(types().await, ["depot.z", "shop.Order", "shop.cart", "shop.order"], "each once, in order");
}

async fn contexts_have_logs_of_their_own(env: Env) {
    let store = env.store();
    for (count, context) in (1..).zip(["shop", "Shop", "sho", "shop2"]) {
        let id = AggregateId::new(context, "order", "1").expect("a valid id");
        let receipts = append_many(store, &id, "c", count).await;
        let positions = receipts.iter().map(|receipt| receipt.position);
        assert!(positions.eq(1..=count), "the first positions of {context}");
        assert_eq!(stored(store, id.context()).await as u64, count, "nothing of the others is in {context}");
    }
}

async fn second_handle_continues_what_the_first_wrote(env: Env) {
    let (first, second) = (env.store(), env.second_handle().await);
    let id = order("1");
    for version in 1..=20 {
        let (writer, reader) = if version % 2 == 0 { (first, &second) } else { (&second, first) };
        let next = commit(&id, format!("c{version}")).expect(ExpectedVersion::Exact(version - 1));
        let receipt = writer.append(next.clone()).await.expect("it knows what the other stored");
        assert_eq!(reader.head(&id).await.expect("the head"), version, "the other sees it at once");
        let replay = reader.append(next).await.expect("a replay succeeds");
        assert_eq!(replay, receipt.replay(), "and its command");
        let stale = commit(&id, format!("s{version}")).expect(ExpectedVersion::Exact(version - 1));
        assert!(refused(reader.append(stale).await).is_conflict(), "and its version");
    }
    assert_eq!(stored(first, &shop()).await, 20, "as the first sees it");
    assert_eq!(stored(&second, &shop()).await, 20, "as the second sees it");
}

async fn reopen_keeps_everything(mut env: Env) {
    let ids = [order("1"), order("2").with_tenant("acme").expect("valid"), order("3")];
    let mut receipts = Vec::new();
    for id in &ids {
        receipts.extend(append_many(env.store(), id, "c", 12).await);
    }
    let before = sound_log(env.store(), &shop()).await;
    for round in 0..3 {
        env.reopen().await;
        let store = env.store();
        let mut log = sound_log(store, &shop()).await;
        log.iter_mut()
            .for_each(|commits| commits.retain(|commit| commit.command_id.as_str().starts_with('c')));
        assert_eq!(log, before, "every commit is there, as it was");
        let again = append_many(store, &ids[1], "c", 12).await;
        let first: Vec<_> = receipts[12..24].iter().cloned().map(Receipt::replay).collect();
        assert_eq!(again, first, "commands are known");
        let next = commit(&ids[0], format!("round-{round}")).expect(ExpectedVersion::Exact(12 + round));
        assert_eq!(store.append(next).await.expect("it goes on").version, 13 + round, "where it was");
    }
    assert_eq!(env.store().aggregate_types().await.expect("the types").len(), 1, "the type is known");
}
