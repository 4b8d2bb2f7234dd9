//! Whether what was told fits what is stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use futures_util::TryStreamExt as _;
use wow_store_api::{
    AggregateId, EventStore, ListReservations, PartitionId, ReadPage, Receipt, RecordedCommit, StoreExt as _,
};

use super::{Asked, Command, Follower, Witness, riding};

/// How many problems are told.
const SHOWN: usize = 12;

/// What a check went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Commits that are stored.
    pub stored: usize,
    /// Commands that were acknowledged.
    pub acknowledged: usize,
    /// Commands of which nobody was told in the end whether they were applied.
    pub unknown: usize,
    /// Of these, how many were.
    pub unknown_stored: usize,
    /// Commands of which every attempt was refused.
    pub refused: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stored, acknowledged, unknown, unknown_stored, refused } = self;
        write!(
            f,
            "{stored} stored, {acknowledged} acknowledged, {refused} refused, {unknown} unknown of which \
             {unknown_stored} are stored"
        )
    }
}

impl Witness {
    /// Reads everything that is stored and compares. Nobody may append meanwhile; the followers have caught up.
    ///
    /// # Panics
    /// If anything is wrong, with all that is.
    pub async fn check(&self, store: &Arc<dyn EventStore>, followers: &[&Follower]) -> Tally {
        let mut problems = Problems::default();
        let log = self.log(store, &mut problems).await;
        for (number, follower) in followers.iter().enumerate() {
            if follower.seen() != log {
                problems.add(format!("follower {number} was not given the log as it is"));
            }
        }
        let stored = by_command(&log, &mut problems);
        self.other_ways(store, &stored, &mut problems).await;
        let (commands, together) = {
            let book = self.book();
            (book.commands.clone(), book.together.clone())
        };
        for (command, asked) in &commands {
            told(command, asked, stored.get(command).copied(), &mut problems);
        }
        for command in stored.keys().filter(|command| !commands.contains_key(command)) {
            problems.add(format!("{} is stored, but nobody asked for it", named(command)));
        }
        for group in together {
            let there = group.iter().filter(|command| stored.contains_key(command)).count();
            if there != 0 && there != group.len() {
                problems.add(format!("of {} commits that belong together {there} are stored", group.len()));
            }
        }
        riders(store, &commands, &stored, &mut problems).await;
        problems.none_or_panic();
        let unknown = || commands.iter().filter(|(_, asked)| !asked.is_acknowledged() && !asked.is_refused());
        Tally {
            stored: stored.len(),
            acknowledged: commands.values().filter(|asked| asked.is_acknowledged()).count(),
            refused: commands.values().filter(|asked| asked.is_refused()).count(),
            unknown: unknown().count(),
            unknown_stored: unknown().filter(|(command, _)| stored.contains_key(command)).count(),
        }
    }

    /// The log by partition; positions dense up to the heads, every commit where it belongs, instants in order.
    async fn log(&self, store: &Arc<dyn EventStore>, problems: &mut Problems) -> Vec<Vec<RecordedCommit>> {
        let count = store.partitions(&self.context).await.expect("the partitions");
        let heads = store.heads(&self.context).await.expect("the heads");
        let mut log = Vec::new();
        for (index, head) in (0..).zip(heads) {
            let mut commits: Vec<RecordedCommit> = Vec::new();
            let mut after = 0;
            loop {
                let page = ReadPage::new(PartitionId::new(self.context.clone(), index), after);
                let page = store.read(page).await.expect("a page");
                after = page.through;
                commits.extend(page.commits);
                if !page.more {
                    break;
                }
            }
            if !commits.iter().map(|commit| commit.position).eq(1..=head) {
                let positions: Vec<_> = commits.iter().map(|commit| commit.position).collect();
                problems.add(format!("partition {index} has head {head} and the positions {positions:?}"));
            }
            let elsewhere = |commit: &&RecordedCommit| {
                commit.partition != index || count.partition_of(&commit.aggregate_id).index() != index
            };
            if let Some(commit) = commits.iter().find(elsewhere) {
                problems.add(format!("{} does not belong to partition {index}", commit.aggregate_id));
            }
            if !commits.is_sorted_by_key(|commit| commit.committed_at) {
                problems.add(format!("partition {index}: instants fall"));
            }
            log.push(commits);
        }
        log
    }

    /// Loading an aggregate, its head and its receipts tell what the log tells.
    async fn other_ways(
        &self,
        store: &Arc<dyn EventStore>,
        stored: &BTreeMap<Command, &RecordedCommit>,
        problems: &mut Problems,
    ) {
        let mut aggregates: BTreeMap<&AggregateId, Vec<&RecordedCommit>> = BTreeMap::new();
        for ((id, _), commit) in stored {
            aggregates.entry(id).or_default().push(commit);
        }
        for (id, mut commits) in aggregates {
            commits.sort_by_key(|commit| commit.position);
            let versions = commits.iter().map(|commit| commit.version);
            if !versions.clone().eq((1..).take(commits.len())) {
                problems.add(format!("{id} has the versions {:?}", versions.collect::<Vec<_>>()));
            }
            let loaded: Vec<RecordedCommit> =
                store.load(id, ..).await.expect("a stream").try_collect().await.expect("commits");
            if !loaded.iter().eq(commits.iter().copied()) {
                problems.add(format!("{id} is loaded other than it stands in the log"));
            }
            let last = commits.last().expect("one at least");
            if store.head(id).await.expect("a head") != last.version {
                problems.add(format!("the head of {id} is not its last version"));
            }
            let receipt = store.receipt(id, &last.command_id).await.expect("a receipt");
            if receipt != Some(last.receipt().replay()) {
                problems.add(format!("the receipt of {id} {} is {receipt:?}", last.command_id));
            }
        }
    }
}

/// The commits by command; none twice.
fn by_command<'a>(
    log: &'a [Vec<RecordedCommit>],
    problems: &mut Problems,
) -> BTreeMap<Command, &'a RecordedCommit> {
    let mut stored = BTreeMap::new();
    for commit in log.iter().flatten() {
        let command = (commit.aggregate_id.clone(), commit.command_id.clone());
        if stored.insert(command.clone(), commit).is_some() {
            problems.add(format!("{} is stored twice", named(&command)));
        }
    }
    stored
}

/// What one command was told.
fn told(command: &Command, asked: &Asked, stored: Option<&RecordedCommit>, problems: &mut Problems) {
    let name = named(command);
    for receipt in asked.told.iter().flatten() {
        match stored {
            None => problems.add(format!("{name} was acknowledged, but is not stored")),
            Some(commit) => {
                let right = Receipt { replayed: receipt.replayed, ..commit.receipt() };
                if right != *receipt {
                    problems.add(format!("{name} was acknowledged as {receipt:?}, but is {right:?}"));
                }
            }
        }
    }
    if asked.told.iter().flatten().filter(|receipt| !receipt.replayed).count() > 1 {
        problems.add(format!("{name} was stored more than once, its receipts say"));
    }
    if let Some(commit) = stored {
        if asked.is_refused() {
            let refusals = &asked.told;
            problems.add(format!("{name} is stored, but every attempt was refused: {refusals:?}"));
        }
        if commit.events != asked.commit.events() {
            problems.add(format!("{name} is stored with other events"));
        }
    }
}

/// A key is held if and only if the commit is stored in which it rode.
async fn riders(
    store: &Arc<dyn EventStore>,
    commands: &BTreeMap<Command, Asked>,
    stored: &BTreeMap<Command, &RecordedCommit>,
    problems: &mut Problems,
) {
    let mut held = BTreeSet::new();
    let mut after = None;
    loop {
        let list =
            ListReservations { scope: Some(riding()), after: after.take(), ..ListReservations::default() };
        let found = store.reservations(list).await.expect("the reservations");
        let Some(last) = found.last() else { break };
        after = Some((last.scope.clone(), last.key.clone()));
        held.extend(found.into_iter().map(|held| held.key.to_string()));
    }
    for (command, asked) in commands.iter().filter(|(_, asked)| !asked.commit.reservations().is_empty()) {
        let is_held = held.remove(&named(command));
        if is_held != stored.contains_key(command) {
            let told = &asked.told;
            problems
                .add(format!("{}: its key is held: {is_held}, its commit is not: {told:?}", named(command)));
        }
    }
    if !held.is_empty() {
        problems.add(format!("keys are held that nobody asked for: {held:?}"));
    }
}

fn named((id, command): &Command) -> String {
    format!("{id} {command}")
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, problem: String) {
        self.0.push(problem);
    }

    fn none_or_panic(mut self) {
        let more = self.0.split_off(self.0.len().min(SHOWN)).len();
        let all = self.0.join("\n  ");
        assert!(all.is_empty(), "what was told fits what is stored:\n  {all}\n  and {more} more");
    }
}
