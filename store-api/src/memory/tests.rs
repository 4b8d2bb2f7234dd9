use std::thread;

use futures::executor::block_on;

use super::MemoryStore;
use crate::{AggregateId, Commit, ContextName, ErrorKind, EventLog, PartitionCount, StoreAdmin, StoreExt};

fn shop() -> ContextName {
    ContextName::new("shop").unwrap()
}

fn hubs(store: &MemoryStore) -> usize {
    store.place.hubs.lock().unwrap().len()
}

#[test]
fn nothing_is_stored_after_close_has_returned() {
    for round in 0..200 {
        let store = MemoryStore::builder().partitions(PartitionCount::new(1).unwrap()).build();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let store = store.clone();
                thread::spawn(move || {
                    let id = AggregateId::new("shop", "order", format!("{writer}")).unwrap();
                    for n in 0.. {
                        let commit = Commit::new(id.clone(), format!("{n}")).event("Counted", 1, &n).unwrap();
                        if let Err(error) = block_on(store.append(commit)) {
                            assert!(matches!(error.kind(), ErrorKind::Closed), "only for the close");
                            break;
                        }
                    }
                })
            })
            .collect();
        let another = store.reopen();
        while round % 2 == 0 && block_on(another.heads(&shop())).unwrap().iter().sum::<u64>() < 3 {
            thread::yield_now();
        }
        block_on(store.close()).unwrap();
        let stored = block_on(another.heads(&shop())).unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
        let later = block_on(another.heads(&shop())).unwrap();
        assert_eq!(stored, later, "what was under way when it was closed was finished before it returned");
    }
}

#[test]
fn handles_that_are_gone_are_forgotten() {
    let store = MemoryStore::new();
    for _ in 0..100 {
        drop(store.reopen());
        block_on(store.reopen().close()).unwrap();
    }
    assert!(hubs(&store) <= 3, "those that are dropped or closed take no room: {}", hubs(&store));
}

#[test]
fn watcher_of_a_handle_that_is_gone_is_still_told() {
    let store = MemoryStore::new();
    let mut watcher = block_on(store.reopen().watch(&shop())).unwrap();
    let other = store.reopen();
    let id = AggregateId::new("shop", "order", "1").unwrap();
    block_on(other.append(Commit::new(id, "c-1").event("Counted", 1, &1).unwrap())).unwrap();
    let told = block_on(watcher.changed());
    assert!(told.is_ok(), "what other handles commit concerns it: {told:?}");
}
