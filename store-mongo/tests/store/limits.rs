//! As much as the contract lets through, in the forms that take most room on MongoDB.

use futures_util::{TryStreamExt as _, future::join_all};
use serde_json::json;
use wow_store_api::{
    AggregateId, Commit, Due, Event, MAX_APPEND_BYTES, MAX_COMMIT_BYTES, MAX_COMMITS_PER_APPEND,
    PartitionCount, PartitionId, Payload, ReadPage, SaveSnapshot, ScheduleTimer, TimerId, prelude::*,
};

use wow_store_mongo::MongoStore;

use crate::support::{Database, commit, order, shop};

async fn one_partition(database: &Database) -> MongoStore {
    MongoStore::open(database.config().with_partitions(PartitionCount::new(1).unwrap())).await.unwrap()
}

/// The largest commit of so many events with such bodies that is let through, found by halving.
fn largest(make: impl Fn(usize) -> wow_store_api::Result<Commit>) -> Commit {
    let (mut fits, mut above) = (1, MAX_COMMIT_BYTES);
    while above - fits > 1 {
        let middle = fits.midpoint(above);
        match make(middle).and_then(Commit::check) {
            Ok(_) => fits = middle,
            Err(_) => above = middle,
        }
    }
    make(fits).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_commits_of_every_form_are_stored_and_read() {
    let database = Database::fresh();
    let store = one_partition(&database).await;
    let id = order("large");
    let one = |command: &str, body: &serde_json::Value| Commit::new(id.clone(), command).event("E", 1, body);
    // A long text; very many numbers, which are longer in BSON; very many small events.
    let forms = [
        largest(|size| one("text", &json!("x".repeat(size)))),
        largest(|size| one("numbers", &json!(vec![1; size.min(MAX_COMMIT_BYTES / 4)]))),
        largest(|size| {
            let event = Event::new("E", 1, Payload::from_json("0").unwrap())?;
            let events = std::iter::repeat_n(event, size.min(200_000));
            Ok(events.fold(Commit::new(id.clone(), "events"), Commit::with_event))
        }),
    ];
    let mut written = Vec::new();
    for form in forms {
        let checked = form.clone().check().unwrap();
        assert!(checked.encoded_size() > MAX_COMMIT_BYTES - 200, "as large as can be");
        store.append(form).await.unwrap_or_else(|error| panic!("{}: {error:?}", checked.command_id()));
        written.push(checked);
    }
    // All at once, as one batch: it is parted where a command would be too large.
    let more: Vec<_> = (0..4)
        .map(|number| {
            let body = json!("y".repeat(MAX_COMMIT_BYTES - 1_000));
            let commit = one(&format!("more-{number}"), &body).unwrap();
            let store = store.clone();
            written.push(commit.clone().check().unwrap());
            tokio::spawn(async move { store.append(commit).await })
        })
        .collect();
    for appended in join_all(more).await {
        appended.unwrap().unwrap();
    }
    let loaded: Vec<_> = store.load(&id, ..).await.unwrap().try_collect().await.unwrap();
    assert_eq!(loaded.len(), written.len(), "all are there");
    for commit in &loaded {
        let asked = written.iter().find(|it| *it.command_id() == commit.command_id).unwrap();
        assert!(commit.events == asked.events(), "{} is as it was", commit.command_id);
    }
    let mut after = 0;
    while let page = store.read(ReadPage::new(PartitionId::new(shop(), 0), after)).await.unwrap()
        && page.through > after
    {
        assert!(!page.commits.is_empty(), "a page has one at least, however large");
        after = page.through;
    }
    assert_eq!(after, 7, "and in the log");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_append_of_several_is_stored_at_once() {
    let database = Database::fresh();
    let store = MongoStore::open(database.config()).await.unwrap();
    let each = MAX_APPEND_BYTES / 40 - 1_000;
    let commits = (0..40).map(|number| {
        Commit::new(order(format!("{number}")), "c").event("E", 1, &json!("z".repeat(each))).unwrap()
    });
    let receipts = store.append_all(commits.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(receipts.len(), 40, "32 MiB in one transaction");
    let many = (0..MAX_COMMITS_PER_APPEND).map(|number| commit(&order(format!("many-{number}")), "c"));
    let receipts = store.append_all(many.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(receipts.len(), MAX_COMMITS_PER_APPEND, "as many as may be");
    let heads: u64 = store.heads(&shop()).await.unwrap().iter().sum();
    assert_eq!(heads, 40 + u64::try_from(MAX_COMMITS_PER_APPEND).unwrap(), "all are there");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_snapshots_and_timers_are_stored() {
    let database = Database::fresh();
    let store = MongoStore::open(database.config()).await.unwrap();
    let id = order("1");
    store.append(commit(&id, "c")).await.unwrap();
    for body in [json!("x".repeat(MAX_COMMIT_BYTES - 100)), json!(vec![1; 400_000])] {
        store.append(commit(&id, body.to_string().len().to_string())).await.unwrap();
        let head = store.head(&id).await.unwrap();
        store.save_snapshot(SaveSnapshot::new(id.clone(), head, 1, &body).unwrap()).await.unwrap();
        let found = store.snapshot(&id, 1).await.unwrap().unwrap();
        assert_eq!(found.state.decode::<serde_json::Value>().unwrap(), body, "a snapshot as it was");
        let timer = TimerId::new(head.to_string()).unwrap();
        let due = Due::After(std::time::Duration::ZERO);
        store.schedule_timer(ScheduleTimer::new(shop(), timer, due, &body).unwrap()).await.unwrap();
    }
    assert_eq!(store.timers(&shop(), None, 10).await.unwrap().len(), 2, "both timers");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_names_work() {
    // 42 bytes for context and aggregate together.
    for context in [1, 21, 41] {
        let database = Database::fresh();
        let store = MongoStore::open(database.config()).await.unwrap();
        let (context, aggregate) = ("c".repeat(context), "A".repeat(42 - context));
        let id = AggregateId::new(&context, &aggregate, "$".repeat(255)).unwrap();
        let id = id.with_tenant("é".repeat(127)).unwrap();
        store.append(commit(&id, "k".repeat(255))).await.unwrap();
        store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 1, &1).unwrap()).await.unwrap();
        let due = Due::After(std::time::Duration::ZERO);
        let timer =
            ScheduleTimer::new(context.parse().unwrap(), TimerId::new("t".repeat(255)).unwrap(), due, &1);
        store.schedule_timer(timer.unwrap()).await.unwrap();
        let found: Vec<_> = store.load(&id, ..).await.unwrap().try_collect().await.unwrap();
        assert_eq!(found.len(), 1, "a commit");
        assert!(store.snapshot(&id, 1).await.unwrap().is_some(), "a snapshot");
        let names = database.connect().await.list_collection_names().await.unwrap();
        assert!(names.iter().all(|name| name.len() <= 63), "no name is too long for any backend: {names:?}");
        store.close().await.unwrap();
    }
}
