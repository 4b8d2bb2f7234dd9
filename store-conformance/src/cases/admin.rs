//! The store itself: who it is, its formats, its end, and what its errors say (D3, N3, ERRORS, L6).

use std::{collections::BTreeSet, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _};
use wow_store_api::{
    CommandId, Commit, Error, ErrorKind, ExpectedVersion, Outcome, PartitionId, ReadPage, SaveCheckpoint,
    StoreExt as _, TailRequest, Timestamp,
};

use super::tools::{fence, json, load_all, mailer, poll_once, race, refused, stored};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop, soon},
};

topic! { "admin":
    formats_are_recorded [D3],
    now_is_the_time_that_commits_carry [L9],
    an_error_names_the_operation_and_the_store [ERRORS],
    no_payload_is_shown_anywhere [N3],
    close_ends_tails [T1, ERRORS],
    close_ends_watchers_that_are_opened_meanwhile [T3],
    after_close_everything_is_refused [ERRORS, L6],
    appends_under_way_are_finished_by_close [L4, L6],
}

async fn formats_are_recorded(mut env: Env) {
    append_many(env.store(), &order("1"), "c", 1).await;
    let formats = env.store().formats().await.expect("the formats");
    assert!(!formats.is_empty(), "what is stored has a format");
    assert!(formats.iter().all(|format| format.version >= 1), "counted from 1");
    let names: BTreeSet<_> = formats.iter().map(|format| &format.structure).collect();
    assert_eq!(names.len(), formats.len(), "one for each structure");
    env.reopen().await;
    assert_eq!(env.store().formats().await.expect("the formats"), formats, "they stay");
    assert_eq!(load_all(env.store(), &order("1")).await.len(), 1, "and are read");
}

async fn now_is_the_time_that_commits_carry(env: Env) {
    let (store, second) = (env.store(), env.second_handle().await);
    for n in 0..4 {
        let before = store.now().await.expect("the time");
        env.pass(Duration::from_millis(2)).await;
        let receipt = append_many(store, &order("1"), &format!("c{n}"), 1).await.remove(0);
        env.pass(Duration::from_millis(2)).await;
        let after = second.now().await.expect("the time");
        assert!(before < receipt.committed_at && receipt.committed_at < after, "one clock for all handles");
        let stored = load_all(&second, &order("1")).await.remove(n).committed_at;
        assert_eq!(stored, receipt.committed_at, "and what is told is what is stored");
    }
}

async fn an_error_names_the_operation_and_the_store(env: Env) {
    let store = env.store();
    assert!(!store.name().is_empty(), "a store has a name");
    store.append(commit(&order("1"), "c1").fenced(fence(5))).await.expect("it succeeds");
    let named = |error: Error, operation: &str| {
        assert_eq!(error.store(), Some(&**store.name()), "which store it was");
        assert_eq!(error.operation(), Some(operation), "what it did");
    };
    let stale = || commit(&order("1"), "c2").expect(ExpectedVersion::NoStream);
    named(refused(store.append(stale()).await), "append");
    named(refused(store.append_all([commit(&order("2"), "c"), stale()]).await), "append_all");
    let many = (0..1_001).map(|n| commit(&order("1"), n.to_string()));
    named(refused(store.append_all(many).await), "append_all");
    named(refused(store.append(commit(&order("1"), "c3").fenced(fence(4))).await), "append");
    named(refused(store.read(ReadPage::new(PartitionId::new(shop(), 99), 0)).await), "read");
    let save = || SaveCheckpoint::new(mailer(), PartitionId::new(shop(), 0), 1).with_epoch(4);
    named(refused(store.save_checkpoint(save()).await), "save_checkpoint");
    named(refused(store.reset_checkpoint(save()).await), "reset_checkpoint");
    let error = refused(store.append(stale()).await);
    let context = error.context().expect("what it was working on");
    assert!(context.contains("shop.order"), "the aggregate: {context}");
}

async fn no_payload_is_shown_anywhere(env: Env) {
    let store = env.store();
    let canary = json("{\"card\":\"canary-4111\",\"n\":41114111.4111}");
    let hidden = |what: &str, shown: &dyn Debug| {
        let shown = format!("{shown:?} {shown:#?}");
        assert!(!shown.contains("4111"), "{what} shows a payload");
    };
    let event = wow_store_api::Event::new("Paid", 1, canary.clone()).expect("a valid event");
    let made = Commit::new(order("1"), "c1").with_event(event).with_metadata(canary.clone());
    hidden("a commit", &made);
    hidden("a checked commit", &made.clone().check().expect("valid"));
    let receipt = store.append(made.clone()).await.expect("it succeeds");
    hidden("a receipt", &receipt);
    let loaded = load_all(store, &order("1")).await;
    assert_eq!(loaded[0].events[0].body, canary, "it is there");
    hidden("a stored commit", &loaded);
    hidden("a page", &store.read(ReadPage::new(receipt.partition.clone(), 0)).await.expect("a page"));
    let mut tail = store.tail(TailRequest::new(shop())).await.expect("a tail");
    hidden("a batch", &soon("a batch", tail.next()).await.expect("a batch"));
    hidden("a tail", &tail);
    hidden("a store", store);
    let decoded = canary.decode::<Vec<u8>>().expect_err("it has another shape");
    hidden("an error of decoding", &decoded);
    let text = format!("{{\"card\":\"canary-4111\\u0000\",\"n\":{}}}", "4111".repeat(12));
    let outside = wow_store_api::Payload::from_json(&text).expect_err("outside the profile");
    let stale =
        Commit::new(order("1"), "c2").expect(ExpectedVersion::NoStream).event("Paid", 1, &canary.to_value());
    let late = Commit::new(order("1"), "c3").fenced(fence(1)).event("Paid", 1, &canary.to_value());
    store.append(commit(&order("2"), "c").fenced(fence(2))).await.expect("it succeeds");
    for error in [
        refused(store.append(stale.expect("valid")).await),
        refused(store.append(late.expect("valid")).await),
        Error::unrepresentable("event", outside),
    ] {
        hidden("an error", &error);
        assert!(!error.to_string().contains("4111"), "an error's text shows a payload");
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            assert!(!format!("{error} {error:?}").contains("4111"), "an error's source shows a payload");
            source = error.source();
        }
    }
}

async fn close_ends_tails(env: Env) {
    let store = Arc::clone(env.store());
    append_many(&store, &order("1"), "c", 3).await;
    let mut waiting = store.tail(TailRequest::new(shop()).from_now()).await.expect("a tail");
    let mut behind = store.tail(TailRequest::new(shop())).await.expect("a tail");
    let streaming = store.tail(TailRequest::new(shop()).from_now()).await.expect("a tail");
    let waits = tokio::spawn(async move {
        let ended = waiting.next().await;
        (ended, waiting.next().await)
    });
    let streams = tokio::spawn(async move { streaming.into_stream().collect::<Vec<_>>().await });
    {
        let mut next = pin!(behind.next());
        assert!(soon("a batch", next.as_mut()).await.is_ok(), "it works while the store is open");
    }
    tokio::task::yield_now().await;
    store.close().await.expect("it closes");
    let closed = |error: Error| assert_eq!(*error.kind(), ErrorKind::Closed, "it says why it ended");
    let (ended, again) = soon("a tail that waits ends", waits).await.expect("no panic");
    closed(refused(ended));
    closed(refused(again));
    closed(refused(soon("a tail that does not wait ends too", behind.next()).await));
    let mut batches = soon("a stream ends", streams).await.expect("no panic");
    closed(refused(batches.pop().expect("an item")));
    assert!(batches.is_empty(), "after the error");
}

async fn close_ends_watchers_that_are_opened_meanwhile(mut env: Env) {
    for _ in 0..10 {
        let store = Arc::clone(env.store());
        let ended = race(9, |n| {
            let store = Arc::clone(&store);
            async move {
                if n == 4 {
                    store.close().await.expect("it closes");
                    return ErrorKind::Closed;
                }
                match store.watch(&shop()).await {
                    Ok(mut watcher) => loop {
                        if let Err(error) = watcher.changed().await {
                            return error.kind().clone();
                        }
                    },
                    Err(error) => error.kind().clone(),
                }
            }
        })
        .await;
        assert!(ended.iter().all(|kind| *kind == ErrorKind::Closed), "opened before or after: it ends");
        env.reopen().await;
    }
    append_many(env.store(), &order("1"), "c", 1).await;
    assert_eq!(stored(env.store(), &shop()).await, 1, "the place is fine");
}

async fn after_close_everything_is_refused(mut env: Env) {
    let store = Arc::clone(env.store());
    append_many(&store, &order("1"), "c", 2).await;
    let opened = store.load(&order("1"), ..).await.expect("it starts");
    store.close().await.expect("it closes");
    store.close().await.expect("closing twice is fine");
    let (id, partition) = (order("1"), PartitionId::new(shop(), 0));
    let save = || SaveCheckpoint::new(mailer(), partition.clone(), 1);
    let command = CommandId::new("c-1").expect("a valid id");
    let errors = [
        refused(store.append(commit(&id, "new")).await),
        refused(store.append(commit(&id, "c-1")).await),
        refused(store.append_all([commit(&id, "new")]).await),
        refused(store.append_all([]).await),
        refused(store.receipt(&id, &command).await),
        refused(store.head(&id).await),
        refused(async { store.load(&id, ..).await?.try_collect::<Vec<_>>().await }.await),
        refused(async { store.load_as_of(&id, Timestamp::MAX).await?.try_collect::<Vec<_>>().await }.await),
        refused(store.partitions(&shop()).await),
        refused(store.heads(&shop()).await),
        refused(store.read(ReadPage::new(partition.clone(), 0)).await),
        refused(store.aggregate_types().await),
        refused(store.watch(&shop()).await),
        refused(store.tail(TailRequest::new(shop())).await),
        refused(store.checkpoint(&mailer(), &partition).await),
        refused(store.checkpoints(&shop()).await),
        refused(store.save_checkpoint(save()).await),
        refused(store.reset_checkpoint(save()).await),
        refused(store.now().await),
        refused(store.formats().await),
    ];
    for (n, error) in errors.into_iter().enumerate() {
        assert_eq!(*error.kind(), ErrorKind::Closed, "call {n} says why");
        assert_eq!(
            (error.outcome(), error.is_transient()),
            (Outcome::NotApplied, false),
            "call {n}: for good"
        );
    }
    let rest: Result<Vec<_>, _> = opened.try_collect().await;
    assert!(
        rest.map_or_else(|error| *error.kind() == ErrorKind::Closed, |all| all.len() == 2),
        "whole or closed"
    );
    env.reopen().await;
    assert_eq!(stored(env.store(), &shop()).await, 2, "nothing was changed");
}

async fn appends_under_way_are_finished_by_close(mut env: Env) {
    for round in 0..5 {
        let store = Arc::clone(env.store());
        let outcomes = race(31, |n| {
            let (store, id) = (Arc::clone(&store), order((n % 10).to_string()));
            async move {
                if n == 20 {
                    // Some of them are queued by now.
                    tokio::task::yield_now().await;
                    store.close().await.expect("it closes");
                    return None;
                }
                let mut append = pin!(store.append(commit(&id, format!("{round}-{n}"))));
                match poll_once(append.as_mut()).await {
                    std::task::Poll::Ready(outcome) => Some((id, n, outcome)),
                    std::task::Poll::Pending => Some((id.clone(), n, append.await)),
                }
            }
        })
        .await;
        env.reopen().await;
        for (id, n, outcome) in outcomes.into_iter().flatten() {
            let command = CommandId::new(format!("{round}-{n}")).expect("a valid id");
            let found = env.store().receipt(&id, &command).await.expect("a read");
            match outcome {
                Ok(receipt) => assert_eq!(found, Some(receipt.replay()), "what was acknowledged is there"),
                Err(error) => {
                    assert_eq!(*error.kind(), ErrorKind::Closed, "the others were too late");
                    let told = error.outcome() == Outcome::Unknown || found.is_none();
                    assert!(told, "and what says that it did not apply is not there");
                }
            }
        }
    }
    append_many(env.store(), &order("after"), "c", 1).await;
    stored(env.store(), &shop()).await;
}
