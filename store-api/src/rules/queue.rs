//! Group commit (L8): which of the appends that wait for a partition go together, and who gets which answer.
//!
//! One [`Queue`] for each partition and node. Whoever pushes the first append starts a writer, which takes batch after
//! batch until there is nothing left. Where so many wait that it is worth it there may be a second writer, which gets
//! its batch ready while the first one's is on its way. Nothing here waits: how a writer runs and how an answer reaches
//! its caller is the backend's.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    commit::{CheckedCommit, ExpectedVersion, Receipt},
    error::{Error, ErrorKind, Outcome, Result},
    name::{AggregateId, AggregateType, CommandId},
    partition::PartitionId,
};

/// Most commits in a batch.
const MAX_COMMITS: usize = 500;
/// About how many bytes are in a batch at most; one commit may be as large alone.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Fewest commits that are worth a batch beside another one.
const WORTH_A_WRITER: usize = 32;

/// The way back to whoever asked for an append.
pub trait Reply {
    /// Gives the answer. Whoever asked may have gone.
    fn answer(self, answer: Result<Receipt>);
}

/// What may share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Any appends: each is decided on top of those before it.
    Any,
    /// For a backend that decides a batch in one statement: what depends on the outcome of another commit of the batch
    /// waits for the next one. That is a command that is in it already, and an exact version behind another commit of
    /// the aggregate. Appends with a fence or riders keep to themselves, and there are at most so many aggregate types.
    Independent {
        /// At most so many (inclusive).
        max_types: usize,
    },
}

/// An append that waits for its answer.
#[derive(Debug)]
pub struct Pending<R> {
    commit: CheckedCommit,
    reply: R,
    deadline: Instant,
    /// An attempt of unknown outcome was made.
    unknown: bool,
}

impl<R: Reply> Pending<R> {
    /// An append that has to be answered by `deadline`.
    #[must_use]
    pub fn new(commit: CheckedCommit, reply: R, deadline: Instant) -> Self {
        Self { commit, reply, deadline, unknown: false }
    }

    fn answer(self, answer: Result<Receipt>) {
        let context = self.commit.aggregate_id();
        let answer = answer.map_err(|error| settled(error, self.unknown).with_context(context));
        self.reply.answer(answer);
    }

    /// Nothing rides in it and no lease is to be looked at.
    fn is_plain(&self) -> bool {
        self.commit.fence().is_none()
            && self.commit.reservations().is_empty()
            && self.commit.timers().is_empty()
    }
}

/// The queue of a partition.
#[derive(Debug)]
pub struct Queue<R> {
    partition: PartitionId,
    company: Company,
    max_writers: usize,
    state: Mutex<State<R>>,
}

#[derive(Debug)]
struct State<R> {
    waiting: VecDeque<Pending<R>>,
    writers: usize,
    /// Aggregates with commits in a batch that is under way: their next ones wait for its end.
    under_way: HashSet<AggregateId>,
    commits_under_way: usize,
}

/// A writer, as the queue knows it.
#[derive(Debug, Default)]
pub struct Writer {
    aggregates: Vec<AggregateId>,
    commits: usize,
}

impl<R: Reply> Queue<R> {
    /// An empty queue, which has one writer at most.
    #[must_use]
    pub fn new(partition: PartitionId, company: Company) -> Self {
        let state =
            State { waiting: VecDeque::new(), writers: 0, under_way: HashSet::new(), commits_under_way: 0 };
        Self { partition, company, max_writers: 1, state: Mutex::new(state) }
    }

    /// With two writers where many wait. Their batches never hold commits of one aggregate, so it does not matter to its
    /// order which of them is written first.
    #[must_use]
    pub fn with_two_writers(mut self) -> Self {
        self.max_writers = 2;
        self
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &PartitionId {
        &self.partition
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing waits and no writer is at work.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.writers == 0 && state.waiting.is_empty()
    }

    /// Queues an append; says whether a writer has to be started.
    #[must_use]
    pub fn push(&self, pending: Pending<R>) -> bool {
        let mut state = self.state();
        state.waiting.push_back(pending);
        state.begin_writer(self.max_writers)
    }

    /// Whether another writer has to be started: to be asked by one that has taken a batch.
    #[must_use]
    pub fn needs_writer(&self) -> bool {
        self.state().begin_writer(self.max_writers)
    }

    /// What is written next; `None` ends the writer. Those whose time is over are answered. What the writer took before
    /// has been answered.
    pub fn take(&self, writer: &mut Writer, now: Instant) -> Option<Batch<R>> {
        let (taken, late) = {
            let mut state = self.state();
            state.end(writer);
            let most = state.share(self.max_writers);
            let State { waiting, under_way, .. } = &mut *state;
            let (taken, late) = match most {
                0 => (Vec::new(), Vec::new()),
                most => take(waiting, self.company, under_way, most, now),
            };
            if taken.is_empty() {
                // What waits now waits for another writer's batch, and that writer comes back for it.
                state.writers -= 1;
            } else if self.max_writers > 1 {
                state.begin(writer, &taken);
            }
            (taken, late)
        };
        for pending in late {
            pending.answer(Err(Error::not_applied(ErrorKind::Timeout)));
        }
        if taken.is_empty() { None } else { Some(Batch::new(taken)) }
    }
}

impl<R> State<R> {
    /// Counts another writer, if one is of use.
    fn begin_writer(&mut self, max_writers: usize) -> bool {
        let waiting = self.waiting.len();
        let of_use = waiting > 0 && self.writers == 0
            || self.writers < max_writers && self.commits_under_way > 0 && self.is_worth_it();
        self.writers += usize::from(of_use);
        of_use
    }

    /// Whether a batch beside the one under way is worth it. A much smaller one would only be in the way of the larger
    /// ones that follow.
    fn is_worth_it(&self) -> bool {
        let waiting = self.waiting.len();
        waiting >= WORTH_A_WRITER && waiting * 2 >= self.commits_under_way
    }

    /// How many a writer takes: none beside another if that is not worth it, and a half of many, so that there is
    /// something left to get ready while they are under way.
    fn share(&self, max_writers: usize) -> usize {
        match (self.waiting.len(), self.commits_under_way) {
            (_, 1..) if !self.is_worth_it() => 0,
            (waiting, 0) if max_writers > 1 && waiting >= 2 * WORTH_A_WRITER => waiting.div_ceil(2),
            _ => MAX_COMMITS,
        }
    }

    fn begin(&mut self, writer: &mut Writer, taken: &[Pending<R>]) {
        for pending in taken {
            let id = pending.commit.aggregate_id();
            if self.under_way.insert(id.clone()) {
                writer.aggregates.push(id.clone());
            }
        }
        writer.commits = taken.len();
        self.commits_under_way += taken.len();
    }

    fn end(&mut self, writer: &mut Writer) {
        for id in writer.aggregates.drain(..) {
            self.under_way.remove(&id);
        }
        self.commits_under_way -= std::mem::take(&mut writer.commits);
    }
}

type Taken<R> = (Vec<Pending<R>>, Vec<Pending<R>>);

/// Takes what can go together from the front of a queue, `most` or so, and those whose time is over; what is left keeps
/// its order. Whatever waits or is under way holds back the later commits of its aggregate.
fn take<R: Reply>(
    waiting: &mut VecDeque<Pending<R>>,
    company: Company,
    under_way: &HashSet<AggregateId>,
    most: usize,
    now: Instant,
) -> Taken<R> {
    let mut late = Vec::new();
    let mut left = VecDeque::new();
    let mut taken: Vec<Pending<R>> = Vec::new();
    let mut held: HashSet<AggregateId> = HashSet::new();
    let mut seen: HashMap<AggregateId, Vec<(ExpectedVersion, CommandId)>> = HashMap::new();
    let mut types: BTreeSet<AggregateType> = BTreeSet::new();
    let mut bytes = 0;
    // The first that is in time says which kind of batch it is.
    let mut plain = None;
    while let Some(pending) = waiting.pop_front() {
        if pending.deadline <= now {
            late.push(pending);
            continue;
        }
        let size = pending.commit.encoded_size();
        if taken.len() == MAX_COMMITS || (!taken.is_empty() && bytes + size > MAX_BYTES) {
            waiting.push_front(pending);
            break;
        }
        let id = pending.commit.aggregate_id();
        // What cannot go beside this batch may as well go with it.
        let enough = taken.len() >= most && !seen.contains_key(id);
        let fits = !enough
            && !held.contains(id)
            && !under_way.contains(id)
            && match company {
                Company::Any => true,
                Company::Independent { max_types } if *plain.get_or_insert_with(|| pending.is_plain()) => {
                    let earlier = seen.get(id).map(Vec::as_slice).unwrap_or_default();
                    let any = ExpectedVersion::Any;
                    let independent = earlier.is_empty()
                        || (pending.commit.expected() == any
                            && earlier.iter().all(|(expected, command)| {
                                *expected == any && command != pending.commit.command_id()
                            }));
                    let room = types.len() < max_types || types.contains(id.aggregate_type());
                    pending.is_plain() && independent && room
                }
                Company::Independent { .. } => true,
            };
        if fits {
            bytes += size;
            if company != Company::Any {
                types.insert(id.aggregate_type().clone());
                let entry = (pending.commit.expected(), pending.commit.command_id().clone());
                seen.entry(id.clone()).or_default().push(entry);
            }
            taken.push(pending);
        } else {
            held.insert(id.clone());
            left.push_back(pending);
        }
    }
    while let Some(pending) = left.pop_back() {
        waiting.push_front(pending);
    }
    (taken, late)
}

/// Appends that share a transaction.
#[derive(Debug)]
pub struct Batch<R> {
    pending: Vec<Pending<R>>,
    commits: Vec<CheckedCommit>,
    plain: bool,
}

impl<R: Reply> Batch<R> {
    fn new(pending: Vec<Pending<R>>) -> Self {
        let commits = pending.iter().map(|pending| pending.commit.clone()).collect();
        let plain = pending.iter().all(Pending::is_plain);
        Self { pending, commits, plain }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether none has a fence or riders.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The commits, in order of arrival.
    #[must_use]
    pub fn commits(&self) -> &[CheckedCommit] {
        &self.commits
    }

    /// When the first of them has to be answered; `None` if there is none.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// Whether one of them may have been stored by an earlier attempt.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.pending.iter().any(|pending| pending.unknown)
    }

    /// Each gets its own answer.
    pub fn answer(self, answers: Vec<Result<Receipt>>) {
        for (pending, answer) in self.pending.into_iter().zip(answers) {
            pending.answer(answer);
        }
    }

    /// All get the same error.
    pub fn refuse(self, error: &Error) {
        for pending in self.pending {
            pending.answer(Err(error.clone()));
        }
    }

    /// Each alone.
    #[must_use]
    pub fn split(self) -> Vec<Self> {
        self.pending.into_iter().map(|pending| Self::new(vec![pending])).collect()
    }

    /// An attempt failed; `lost` if nobody knows whether it was applied.
    pub fn note(&mut self, lost: bool) {
        for pending in &mut self.pending {
            pending.unknown |= lost;
        }
    }

    /// Answers those whose time is over at `at` with what kept them from being stored.
    pub fn expire(&mut self, at: Instant, error: &Error) {
        let (late, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.deadline <= at);
        for pending in late {
            let error = error.clone().with_outcome(Outcome::NotApplied);
            pending.answer(Err(error));
        }
        *self = Self::new(rest);
    }
}

/// The error of an append after earlier attempts, one of them perhaps of unknown outcome (L6).
///
/// A refusal that rests on the request itself, or on having looked, stands whatever those came to: they would have been
/// found by their command ids. Anything else after an attempt of unknown outcome leaves it unknown.
#[must_use]
pub fn settled(error: Error, unknown: bool) -> Error {
    let refusal = matches!(
        error.kind(),
        ErrorKind::InvalidName { .. }
            | ErrorKind::InvalidInput { .. }
            | ErrorKind::Unrepresentable { .. }
            | ErrorKind::TooLarge { .. }
            | ErrorKind::VersionConflict { .. }
            | ErrorKind::Fenced { .. }
            | ErrorKind::ReservationTaken { .. }
            | ErrorKind::ReservationNotHeld { .. }
            | ErrorKind::TimerExists { .. }
            | ErrorKind::Exhausted { .. }
    );
    if unknown && !refusal { error.with_outcome(Outcome::Unknown) } else { error }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc, time::Duration};

    use super::*;
    use crate::{Commit, ReservationOp};

    type Answers = Rc<RefCell<Vec<(u32, bool)>>>;

    #[derive(Debug)]
    struct Caller(u32, Answers);

    impl Reply for Caller {
        fn answer(self, answer: Result<Receipt>) {
            self.1.borrow_mut().push((self.0, answer.is_ok()));
        }
    }

    struct Case {
        queue: Queue<Caller>,
        writers: [Writer; 2],
        answers: Answers,
        now: Instant,
        next: u32,
    }

    impl Case {
        fn new(company: Company) -> Self {
            let partition = PartitionId::new("shop".parse().unwrap(), 0);
            let queue = Queue::new(partition, company);
            Self {
                queue,
                writers: Default::default(),
                answers: Answers::default(),
                now: Instant::now(),
                next: 0,
            }
        }

        fn add(&mut self, id: &str, command: &str, change: impl FnOnce(Commit) -> Commit) -> bool {
            let id = AggregateId::new("shop", "order", id).unwrap();
            let commit = Commit::new(id, command).event("Happened", 1, &1).unwrap();
            let caller = Caller(self.next, Rc::clone(&self.answers));
            self.next += 1;
            let deadline = self.now + Duration::from_secs(5);
            self.queue.push(Pending::new(change(commit).check().unwrap(), caller, deadline))
        }

        fn commands(&mut self) -> Vec<String> {
            self.commands_of(0).unwrap()
        }

        fn commands_of(&mut self, writer: usize) -> Option<Vec<String>> {
            let batch = self.queue.take(&mut self.writers[writer], self.now)?;
            let commands = batch.commits().iter();
            Some(commands.map(|commit| commit.command_id().as_str().to_owned()).collect())
        }
    }

    #[test]
    fn one_writer_until_nothing_is_left() {
        let mut case = Case::new(Company::Any);
        assert!(case.add("a", "1", |it| it), "the first starts a writer");
        assert!(!case.add("a", "1", |it| it), "the second finds one");
        assert_eq!(case.commands(), ["1", "1"], "anything goes together");
        assert!(!case.queue.is_idle());
        assert_eq!(case.commands_of(0), None, "the writer ends");
        assert!(case.queue.is_idle());
        assert!(case.add("a", "2", |it| it), "the next starts another");
    }

    #[test]
    fn what_depends_on_another_waits_and_holds_back_its_aggregate() {
        let mut case = Case::new(Company::Independent { max_types: 4 });
        let exact = |commit: Commit| commit.expect(ExpectedVersion::Exact(1));
        case.add("a", "1", |it| it);
        case.add("a", "2", exact);
        case.add("a", "3", |it| it);
        case.add("b", "4", exact);
        case.add("b", "4", |it| it);
        assert_eq!(case.commands(), ["1", "4"]);
        assert_eq!(case.commands(), ["2", "4"]);
        assert_eq!(case.commands(), ["3"], "order of arrival for one aggregate");
    }

    #[test]
    fn many_are_shared_by_two_writers_and_no_aggregate_is() {
        let mut case = Case::new(Company::Independent { max_types: 4 });
        case.queue = case.queue.with_two_writers();
        assert!(case.add("hot", "0", |it| it), "the first starts a writer");
        for n in 1..WORTH_A_WRITER * 2 {
            let id = if n % 4 == 0 { "hot".to_owned() } else { n.to_string() };
            assert!(
                !case.add(&id, &n.to_string(), |it| it),
                "nobody is of use before something is under way"
            );
        }
        let numbers = |commands: Vec<String>| -> Vec<usize> {
            commands.into_iter().map(|command| command.parse().unwrap()).collect()
        };
        let first = numbers(case.commands());
        assert_eq!(first[..WORTH_A_WRITER], (0..WORTH_A_WRITER).collect::<Vec<_>>(), "a half, in order");
        let rest = &first[WORTH_A_WRITER..];
        assert!(!rest.is_empty() && rest.iter().all(|n| n % 4 == 0), "and all of an aggregate that is in it");
        assert!(!case.queue.needs_writer(), "too few are left");
        for n in 100..200 {
            let started = case.add(if n < 110 { "hot" } else { "cool" }, &n.to_string(), |it| it);
            assert_eq!(started, n == 107, "a second writer, when there is enough for it: {n}");
        }
        let second = numbers(case.commands_of(1).unwrap());
        assert!(second.iter().all(|n| n % 4 != 0 && *n < 100 || *n >= 110), "nothing of what is under way");
        assert_eq!(case.commands_of(0), None, "too little for a batch beside that one");
        assert!(!case.queue.is_idle(), "the second comes back for it");
        assert_eq!(numbers(case.commands_of(1).unwrap()), (100..110).collect::<Vec<_>>(), "in order");
        assert_eq!(case.commands_of(1), None, "nothing is left");
        assert!(case.queue.is_idle());
    }

    #[test]
    fn riders_keep_to_themselves() {
        let mut case = Case::new(Company::Independent { max_types: 4 });
        let release = |commit: Commit| {
            let (scope, key) = ("s".parse().unwrap(), "k".parse().unwrap());
            commit.reservation(ReservationOp::Release { scope, key, owner: "o".parse().unwrap() })
        };
        case.add("a", "1", |it| it);
        case.add("b", "2", release);
        case.add("c", "3", |it| it);
        assert_eq!(case.commands(), ["1", "3"]);
        assert_eq!(case.commands(), ["2"]);
    }

    #[test]
    fn who_is_late_is_told_and_holds_up_nobody() {
        let mut case = Case::new(Company::Any);
        case.add("a", "1", |it| it);
        case.now += Duration::from_secs(5);
        case.add("a", "2", |it| it);
        assert_eq!(case.commands(), ["2"]);
        assert_eq!(*case.answers.borrow(), [(0, false)], "told");
        case.now += Duration::from_secs(5);
        case.add("a", "3", |it| it);
        assert_eq!(case.commands(), ["3"], "the writer goes on");
    }

    #[test]
    fn an_unknown_attempt_stays_unknown_unless_refused() {
        let timeout = Error::not_applied(ErrorKind::Timeout);
        assert_eq!(settled(timeout.clone(), true).outcome(), Outcome::Unknown);
        assert_eq!(settled(timeout, false).outcome(), Outcome::NotApplied);
        assert_eq!(settled(Error::invalid_input("no"), true).outcome(), Outcome::NotApplied);
        let closed = Error::not_applied(ErrorKind::Closed);
        assert_eq!(settled(closed, true).outcome(), Outcome::Unknown, "nobody looked");
    }
}
