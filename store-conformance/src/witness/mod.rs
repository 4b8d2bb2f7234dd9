//! For tests that break a real server: what clients asked for and were told, and whether it fits what is stored.
//!
//! Every append of such a test goes through one [`Witness`]. When the server is back, [`Witness::check`] reads all there
//! is and compares:
//!
//! - what was acknowledged is there, once, exactly as its receipt says;
//! - what was refused is not there; what is unknown is there once, or not at all;
//! - what was to be stored together is there together, and what rides in a commit is there if and only if the commit is;
//! - positions and versions are dense, instants never fall, and every way to read tells the same;
//! - nothing is there that nobody asked for.
//!
//! A [`Follower`] reads a tail meanwhile; [`Load`] keeps a store busy.

mod check;
mod follower;
mod load;
mod standing;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::timeout};
use wow_store_api::{
    AggregateId, CheckedCommit, CommandId, Commit, ContextName, Error, EventStore, Outcome, Receipt,
    ReservationKey, ReservationOp, ReservationScope, Result,
};

use self::standing::Standing;
pub use self::{
    check::Tally,
    follower::Follower,
    load::{Load, Plan},
};

type Command = (AggregateId, CommandId);

fn command(commit: &CheckedCommit) -> Command {
    (commit.aggregate_id().clone(), commit.command_id().clone())
}

/// A command: what was to be stored for it, and what each attempt was told.
#[derive(Debug, Clone)]
struct Asked {
    commit: CheckedCommit,
    /// Attempts that were begun. What was begun and not told is unknown.
    begun: usize,
    told: Vec<std::result::Result<Receipt, Error>>,
}

impl Asked {
    fn is_acknowledged(&self) -> bool {
        self.told.iter().any(Result::is_ok)
    }

    /// Whether every attempt was refused.
    fn is_refused(&self) -> bool {
        let refused = |answer: &Result<Receipt>| {
            answer.as_ref().is_err_and(|error| error.outcome() == Outcome::NotApplied)
        };
        self.told.len() == self.begun && self.told.iter().all(refused)
    }
}

#[derive(Debug, Default)]
struct Book {
    commands: BTreeMap<Command, Asked>,
    /// Commands that were asked for together.
    together: Vec<Vec<Command>>,
}

/// Remembers what was asked for and what was told, in one context.
#[derive(Debug)]
pub struct Witness {
    context: ContextName,
    book: Mutex<Book>,
    standing: Standing,
    acknowledged: watch::Sender<usize>,
}

impl Witness {
    /// A witness who has seen nothing yet. All appends in the context are to go through it.
    #[must_use]
    pub fn new(context: ContextName) -> Arc<Self> {
        let (book, standing) = (Mutex::default(), Standing::default());
        Arc::new(Self { context, book, standing, acknowledged: watch::Sender::new(0) })
    }

    /// The context that it watches.
    #[must_use]
    pub fn context(&self) -> &ContextName {
        &self.context
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a commit. The same command may be appended again, with the same events.
    ///
    /// # Errors
    /// Those of the append.
    pub async fn append(&self, store: &Arc<dyn EventStore>, commit: Commit) -> Result<Receipt> {
        let commit = commit.check()?;
        self.begin(std::slice::from_ref(&commit));
        let under_way = self.standing.begin(store, std::slice::from_ref(&commit));
        let answer = store.append_checked(commit.clone()).await;
        let answers = answer.clone().map(|receipt| vec![receipt]);
        under_way.end(&answers);
        self.end(&[commit], &answers);
        answer
    }

    /// Appends several, all or nothing. Their commands are always asked for together.
    ///
    /// # Errors
    /// Those of the append.
    pub async fn append_all(
        &self,
        store: &Arc<dyn EventStore>,
        commits: Vec<Commit>,
    ) -> Result<Vec<Receipt>> {
        let commits = commits.into_iter().map(Commit::check).collect::<Result<Vec<_>>>()?;
        self.begin(&commits);
        self.book().together.push(commits.iter().map(command).collect());
        let under_way = self.standing.begin(store, &commits);
        let answer = store.append_all_checked(commits.clone()).await;
        under_way.end(&answer);
        self.end(&commits, &answer);
        answer
    }

    fn begin(&self, commits: &[CheckedCommit]) {
        let mut book = self.book();
        for commit in commits {
            let new = || Asked { commit: commit.clone(), begun: 0, told: Vec::new() };
            book.commands.entry(command(commit)).or_insert_with(new).begun += 1;
        }
    }

    fn end(&self, commits: &[CheckedCommit], answer: &Result<Vec<Receipt>>) {
        let mut book = self.book();
        let mut news = 0;
        for (place, commit) in commits.iter().enumerate() {
            let asked = book.commands.get_mut(&command(commit)).expect("it was begun");
            let told = answer.as_ref().map(|receipts| receipts[place].clone()).map_err(Clone::clone);
            news += usize::from(told.is_ok() && !asked.is_acknowledged());
            asked.told.push(told);
        }
        drop(book);
        self.acknowledged.send_modify(|acknowledged| *acknowledged += news);
    }

    /// How many commands were acknowledged so far.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        *self.acknowledged.borrow()
    }

    /// Waits until so many more commands were acknowledged than now.
    ///
    /// # Panics
    /// If that takes longer than `within`; it says who waits for what.
    pub async fn acknowledges(&self, more: usize, within: Duration) {
        self.acknowledges_or(more, within, async { String::new() }).await;
    }

    /// The same; if it takes too long, `explain` is asked how the server is.
    ///
    /// # Panics
    /// If that takes longer than `within`; it says who waits for what, and what `explain` found.
    pub async fn acknowledges_or(
        &self,
        more: usize,
        within: Duration,
        explain: impl Future<Output = String>,
    ) {
        let mut watched = self.acknowledged.subscribe();
        let target = *watched.borrow_and_update() + more;
        let reached = timeout(within, watched.wait_for(|count| *count >= target)).await.is_ok();
        if reached {
            return;
        }
        let (count, standing) = (self.acknowledged(), self.standing.to_string());
        panic!(
            "{more} more commands are acknowledged within {within:?}: {count} of {target} are\n{standing}{}",
            explain.await
        );
    }
}

/// The scope of the keys that ride in commits.
fn riding() -> ReservationScope {
    ReservationScope::new("riding").expect("a valid name")
}

/// Lets a key ride in a commit, named after its aggregate and command: [`Witness::check`] looks for it.
pub fn with_rider(commit: Commit, command: &str) -> Commit {
    let id = commit.aggregate_id();
    let key = ReservationKey::new(format!("{id} {command}")).expect("a valid key");
    let owner = wow_store_api::OwnerId::new(command).expect("a valid id");
    commit.reservation(ReservationOp::Reserve { scope: riding(), key, owner, expires_in: None })
}
