//! Two nodes that write to one partition: both get on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use wow_store_api::{EventStore, PartitionCount, StoreExt as _};
use wow_store_conformance::server::MongoServer;

use crate::{
    scene::open,
    support::{Database, commit, order, whole_log},
};

/// How long they fight.
const TIME: Duration = Duration::from_secs(8);

/// What one writer got done, and the longest that it waited.
type Done = (u64, Duration);

async fn write(store: Arc<dyn EventStore>, name: String, stop: Arc<AtomicBool>) -> Done {
    let id = order(&name);
    let (mut done, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        store.append(commit(&id, format!("{done}"))).await.expect("no conflict reaches a caller");
        longest = longest.max(start.elapsed());
        done += 1;
    }
    (done, longest)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_on_one_partition_both_get_on() {
    let database = Database::on(MongoServer::shared());
    let one = PartitionCount::new(1).unwrap();
    let nodes = [
        open(database.config().with_partitions(one)).await,
        open(database.config().with_partitions(one)).await,
    ];
    // Both know the place before they fight for it.
    for (number, node) in nodes.iter().enumerate() {
        node.append(commit(&order("first"), format!("{number}"))).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..64)
        .map(|number| {
            let node = Arc::clone(&nodes[number % 2]);
            tokio::spawn(write(node, format!("{number}"), Arc::clone(&stop)))
        })
        .collect();
    tokio::time::sleep(TIME).await;
    stop.store(true, Ordering::SeqCst);
    let done: Vec<Done> = join_all(writers).await.into_iter().map(|done| done.unwrap()).collect();
    let of_node = |node: usize| done.iter().skip(node).step_by(2).map(|(done, _)| done).sum::<u64>();
    let longest = done.iter().map(|(_, longest)| *longest).max().unwrap();
    let (first, second) = (of_node(0), of_node(1));
    println!("{first} and {second} appends of 64 writers on two nodes, the longest took {longest:?}");
    assert!(first.min(second) * 5 >= first.max(second), "both get on: {first} and {second}");
    assert!(done.iter().all(|(done, _)| *done > 0), "every writer does");
    assert!(longest < Duration::from_secs(4), "nobody waits until the time is over: {longest:?}");
    assert_eq!(u64::try_from(whole_log(&nodes[0]).await.len()).unwrap(), first + second + 2, "all are there");
    for node in &nodes {
        node.close().await.unwrap();
    }
}
