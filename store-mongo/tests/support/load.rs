//! Appends under trouble, and what must hold afterwards.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::TryStreamExt as _;
use tokio::task::JoinHandle;
use wow_store_api::{
    AggregateId, Commit, ContextName, ErrorKind, EventStore, Outcome, PartitionId, ReadPage, Receipt,
    StoreExt as _,
};

/// What became of a command.
#[derive(Debug, Clone)]
enum Answer {
    Stored(Receipt),
    NotApplied,
    Unknown,
}

/// Appends until it is told to stop.
pub struct Load {
    stop: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    answers: Arc<Mutex<HashMap<String, (AggregateId, Answer)>>>,
    writers: Vec<JoinHandle<()>>,
}

/// What there was, and what came of it.
#[derive(Debug)]
pub struct Found {
    pub stored: usize,
    pub not_applied: usize,
    pub unknown: usize,
}

pub fn order(id: impl AsRef<str>) -> AggregateId {
    AggregateId::new("shop", "order", id).unwrap()
}

pub fn commit(id: &AggregateId, command: impl Into<String>) -> Commit {
    Commit::new(id.clone(), command).event("Happened", 1, &serde_json::json!({"n": 1})).unwrap()
}

impl Load {
    /// So many writers, on aggregates of a few partitions.
    pub fn start(store: &Arc<dyn EventStore>, writers: usize) -> Self {
        let (stop, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let answers = Arc::new(Mutex::new(HashMap::new()));
        let writers = (0..writers)
            .map(|writer| {
                let (store, stop, stored) = (Arc::clone(store), Arc::clone(&stop), Arc::clone(&stored));
                let answers = Arc::clone(&answers);
                tokio::spawn(async move {
                    let mut number = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let id = order((writer % 4).to_string());
                        let command = format!("w{writer}-{number}");
                        number += 1;
                        let answer = match store.append(commit(&id, command.clone())).await {
                            Ok(receipt) => {
                                stored.fetch_add(1, Ordering::SeqCst);
                                Answer::Stored(receipt)
                            }
                            Err(error) => {
                                let expected = matches!(
                                    error.kind(),
                                    ErrorKind::Unavailable { .. } | ErrorKind::Timeout
                                );
                                assert!(expected, "what an outage may lead to: {error:?}");
                                match error.outcome() {
                                    Outcome::NotApplied => Answer::NotApplied,
                                    Outcome::Unknown => Answer::Unknown,
                                }
                            }
                        };
                        answers.lock().unwrap().insert(command, (id, answer));
                    }
                })
            })
            .collect();
        Self { stop, stored, answers, writers }
    }

    /// How many appends were acknowledged so far.
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::SeqCst)
    }

    /// Waits for so many more.
    pub async fn more(&self, count: u64) {
        let target = self.stored() + count;
        eventually("more appends are acknowledged", || async { self.stored() >= target }).await;
    }

    /// Ends the load and compares the log with every answer.
    pub async fn check(self, store: &Arc<dyn EventStore>) -> Found {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers {
            writer.await.unwrap();
        }
        let log = whole_log(store).await;
        let answers = self.answers.lock().unwrap().clone();
        let mut outcome = Found { stored: 0, not_applied: 0, unknown: 0 };
        for (command, (id, answer)) in &answers {
            let found: Vec<_> = log.iter().filter(|it| it.command_id.as_str() == command).collect();
            assert!(found.len() <= 1, "a command is stored once");
            match answer {
                Answer::Stored(receipt) => {
                    let [found] = found[..] else { panic!("an acknowledged append is stored: {command}") };
                    let place = (found.version, found.position);
                    assert_eq!(place, (receipt.version, receipt.position), "where its receipt says");
                    assert_eq!(found.aggregate_id, *id, "in its aggregate");
                    outcome.stored += 1;
                }
                Answer::NotApplied => {
                    assert!(found.is_empty(), "what was not applied is not there");
                    outcome.not_applied += 1;
                }
                Answer::Unknown => outcome.unknown += 1,
            }
        }
        for stored in &log {
            assert!(answers.contains_key(stored.command_id.as_str()), "nothing that nobody appended");
        }
        for id in (0..4).map(|n| order(n.to_string())) {
            let versions: Vec<u64> =
                store.load(&id, ..).await.unwrap().map_ok(|it| it.version).try_collect().await.unwrap();
            assert_eq!(versions, (1..).take(versions.len()).collect::<Vec<u64>>(), "versions are dense");
        }
        outcome
    }
}

/// Every commit of the context, with its positions checked.
pub async fn whole_log(store: &Arc<dyn EventStore>) -> Vec<wow_store_api::RecordedCommit> {
    let context: ContextName = "shop".parse().unwrap();
    let mut log = Vec::new();
    for (index, head) in (0..).zip(store.heads(&context).await.unwrap()) {
        let (mut after, mut positions) = (0, Vec::new());
        while after < head {
            let page =
                store.read(ReadPage::new(PartitionId::new(context.clone(), index), after)).await.unwrap();
            positions.extend(page.commits.iter().map(|it| it.position));
            log.extend(page.commits);
            after = page.through;
        }
        assert_eq!(positions, (1..=head).collect::<Vec<_>>(), "positions are gapless");
    }
    log
}

/// Asks again until the answer is yes.
pub async fn eventually<F>(what: &str, mut ask: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !ask().await {
        assert!(tokio::time::Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
