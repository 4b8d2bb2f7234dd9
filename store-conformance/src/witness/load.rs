//! Writers that keep a store busy.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;
use tokio::task::JoinHandle;
use wow_store_api::{AggregateId, Commit, EventStore, ExpectedVersion};

use super::{Witness, with_rider};
use crate::seed::{Dice, Seed};

/// How many aggregates all writers fight for.
const HOT: u64 = 4;

/// What writers do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many there are; they take turns with the stores.
    pub writers: usize,
    /// Of a hundred appends, how many carry a reservation.
    pub riders: u8,
    /// Of a hundred appends, how many are of two commits.
    pub together: u8,
}

impl Default for Plan {
    fn default() -> Self {
        Self { writers: 16, riders: 10, together: 10 }
    }
}

/// Writers at work: one append after the other each, on aggregates of their own and on such that all fight for.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    writers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts them. `tag` tells their commands apart from those of others; it is different in every call.
    #[must_use]
    pub fn start(witness: &Arc<Witness>, stores: &[Arc<dyn EventStore>], plan: Plan, tag: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..plan.writers).map(|number| {
            let writer = Writer {
                witness: Arc::clone(witness),
                store: Arc::clone(&stores[number % stores.len()]),
                plan,
                name: format!("{tag}-{number}"),
                number,
                dice: Dice::new(Seed::from_env().part(u64::try_from(number).expect("small"))),
                commands: 0,
            };
            tokio::spawn(writer.run(Arc::clone(&stop)))
        });
        let writers = writers.collect();
        Self { stop, writers }
    }

    /// Lets them finish what they are about.
    ///
    /// # Panics
    /// If one of them was told what a fault of the server is no reason for.
    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers {
            writer.await.expect("a writer is told nothing strange");
        }
    }
}

struct Writer {
    witness: Arc<Witness>,
    store: Arc<dyn EventStore>,
    plan: Plan,
    name: String,
    number: usize,
    dice: Dice,
    commands: u64,
}

impl Writer {
    async fn run(mut self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::SeqCst) {
            self.commands += 1;
            let command = format!("{}-{}", self.name, self.commands);
            // The same command is the same commit again.
            let choices = self.dice.clone();
            while !self.append(&command).await && !stop.load(Ordering::SeqCst) {
                // Half of those who were not told leave it at that.
                if self.dice.percent(50) {
                    break;
                }
                self.dice = choices.clone();
            }
        }
    }

    fn aggregate(&mut self) -> AggregateId {
        let aggregate = if self.dice.percent(50) { "order" } else { "cart" };
        let id = match self.dice.percent(30) {
            true => format!("hot-{}", self.dice.below(HOT)),
            false => format!("{}-{}", self.number, self.dice.below(50)),
        };
        AggregateId::new(self.witness.context(), aggregate, id).expect("a valid id")
    }

    fn commit(&mut self, command: &str) -> Commit {
        let length = if self.dice.below(256) == 0 { 50_000 } else { self.dice.below(600) };
        let text = "x".repeat(usize::try_from(length).expect("small"));
        Commit::new(self.aggregate(), command)
            .event("Happened", 1, &json!({ "command": command, "text": text }))
            .expect("a valid event")
    }

    /// Says whether there was an answer to the command.
    async fn append(&mut self, command: &str) -> bool {
        if self.dice.percent(self.plan.together) {
            let commits = vec![self.commit(command), self.commit(&format!("{command}-b"))];
            let answer = self.witness.append_all(&self.store, commits).await;
            return is_settled(answer.map(|_| ()));
        }
        let mut commit = self.commit(command);
        if self.dice.percent(self.plan.riders) {
            commit = with_rider(commit, command);
        }
        if self.dice.percent(40) {
            // Whoever cannot look decides on nothing, and loses to others.
            let head = self.store.head(commit.aggregate_id()).await.unwrap_or_default();
            commit = commit.expect(ExpectedVersion::Exact(head));
        }
        let answer = self.witness.append(&self.store, commit).await;
        is_settled(answer.map(|_| ()))
    }
}

fn is_settled(answer: wow_store_api::Result<()>) -> bool {
    let Err(error) = answer else { return true };
    assert!(error.is_transient() || error.is_conflict(), "a fault of the server is transient: {error:?}");
    error.is_conflict()
}
