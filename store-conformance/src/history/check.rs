//! Whether what the clients were told fits what is stored in the end.

use std::collections::{BTreeMap, BTreeSet};

use wow_store_api::{
    AggregateId, CommandId, ErrorKind, OwnerId, Position, Receipt, RecordedCommit, ReservationKey, TimerId,
};

use super::{
    client::rider,
    counter::{self, Look},
    linear::{Budget, Object, Timed, Verdict, explain},
    objects::{LeaseCall, LeaseObject, ReservationCall, ScopeObject, TimerCall, TimersObject},
    record::{Asked, Call, Told, What},
};

/// What is stored when all is over.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    /// The log, by partition.
    pub(super) partitions: Vec<Vec<RecordedCommit>>,
    pub(super) heads: Vec<Position>,
    /// Each aggregate as it is loaded.
    pub(super) aggregates: BTreeMap<AggregateId, Vec<RecordedCommit>>,
    /// Who holds the keys that rode in appends.
    pub(super) keys: BTreeMap<ReservationKey, OwnerId>,
    /// The timers that rode in appends.
    pub(super) timers: BTreeSet<TimerId>,
}

type Command = (AggregateId, CommandId);

fn command(asked: &Asked) -> Command {
    (asked.aggregate.clone(), asked.command.clone())
}

/// An attempt to append a commit.
struct Attempt<'a> {
    call: &'a Call,
    asked: &'a Asked,
    told: Told<&'a Receipt>,
}

struct Check<'a> {
    calls: &'a [Call],
    truth: &'a Truth,
    stored: BTreeMap<Command, &'a RecordedCommit>,
    attempts: BTreeMap<Command, Vec<Attempt<'a>>>,
    problems: Vec<String>,
}

/// Checks a history; tells everything that is wrong with it.
pub(super) fn check(calls: &[Call], truth: &Truth) -> Vec<String> {
    let mut check =
        Check { calls, truth, stored: BTreeMap::new(), attempts: BTreeMap::new(), problems: Vec::new() };
    check.the_log_is_sound();
    check.collect_attempts();
    check.appends();
    check.all_or_nothing();
    check.receipts();
    check.riders();
    check.counters();
    check.contents();
    check.fences();
    check.leases();
    check.reservations();
    check.timers();
    check.problems
}

fn attempts(call: &Call) -> Vec<Attempt<'_>> {
    match &call.what {
        What::Append(asked, told) => vec![Attempt { call, asked, told: told.as_ref() }],
        What::AppendAll(several, told) => several
            .iter()
            .enumerate()
            .map(|(index, asked)| Attempt {
                call,
                asked,
                told: match told {
                    // That it has so many is checked before.
                    Told::Done(receipts) => receipts.get(index).map_or(Told::Unknown, Told::Done),
                    Told::NotApplied(kind) => Told::NotApplied(kind.clone()),
                    Told::Unknown => Told::Unknown,
                },
            })
            .collect(),
        _ => Vec::new(),
    }
}

impl<'a> Check<'a> {
    fn wrong(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// L2, L3, L5, L9: dense, once each, and the same however it is read.
    fn the_log_is_sound(&mut self) {
        let truth = self.truth;
        let mut by_aggregate: BTreeMap<AggregateId, Vec<RecordedCommit>> = BTreeMap::new();
        for (index, log) in truth.partitions.iter().enumerate() {
            for (place, commit) in log.iter().enumerate() {
                let right = u64::try_from(place + 1).expect("a position");
                if commit.position != right || usize::try_from(commit.partition) != Ok(index) {
                    self.wrong(format!(
                        "partition {index}: at {right} stands position {} of partition {}",
                        commit.position, commit.partition
                    ));
                }
                by_aggregate.entry(commit.aggregate_id.clone()).or_default().push(commit.clone());
                let command = (commit.aggregate_id.clone(), commit.command_id.clone());
                if self.stored.insert(command, commit).is_some() {
                    self.wrong(format!("{} is stored twice", named(commit)));
                }
            }
            if !log.is_sorted_by_key(|commit| commit.committed_at) {
                self.wrong(format!("partition {index}: instants fall"));
            }
        }
        for (id, commits) in &by_aggregate {
            let versions = commits.iter().map(|commit| commit.version);
            if !versions.clone().eq((1..).take(commits.len())) {
                self.wrong(format!("{id} has the versions {:?}", versions.collect::<Vec<_>>()));
            }
        }
        if by_aggregate != truth.aggregates {
            self.wrong("aggregates are loaded other than they are read by position");
        }
        let lengths: Vec<Position> =
            truth.partitions.iter().map(|log| u64::try_from(log.len()).expect("a length")).collect();
        if lengths != truth.heads {
            self.wrong(format!("the heads are {:?}, the log has {lengths:?}", truth.heads));
        }
    }

    fn collect_attempts(&mut self) {
        for call in self.calls {
            if let What::AppendAll(several, Told::Done(receipts)) = &call.what
                && several.len() != receipts.len()
            {
                self.wrong(format!("{} commits have {} receipts", several.len(), receipts.len()));
            }
            for attempt in attempts(call) {
                self.attempts.entry(command(attempt.asked)).or_default().push(attempt);
            }
        }
    }

    /// L1 to L3, L6: what was acknowledged is stored, once, as it was told; what was refused is not.
    fn appends(&mut self) {
        let mut problems = Vec::new();
        for ((id, command), attempts) in &self.attempts {
            let name = format!("{id} {command}");
            let stored = self.stored.get(&(id.clone(), command.clone())).copied();
            let first =
                attempts.iter().filter(|it| matches!(it.told, Told::Done(receipt) if !receipt.replayed));
            if first.count() > 1 {
                problems.push(format!("{name} was appended more than once"));
            }
            let acknowledged = attempts
                .iter()
                .filter(|it| matches!(it.told, Told::Done(_)))
                .map(|it| it.call.ended)
                .min()
                .unwrap_or(u64::MAX);
            for attempt in attempts {
                match &attempt.told {
                    Told::Done(receipt) => problems.extend(receipt_is_wrong(&name, receipt, stored)),
                    Told::NotApplied(kind)
                        if matches!(attempt.call.what, What::Append(..))
                            && acknowledged < attempt.call.begun
                            && !may_come_back(kind) =>
                    {
                        problems.push(format!("{name} was acknowledged, then refused: {kind}"));
                    }
                    Told::NotApplied(ErrorKind::VersionConflict { actual, .. })
                        if matches!(attempt.call.what, What::Append(..))
                            && attempt.asked.expected.is_met_by(*actual) =>
                    {
                        problems.push(format!("{name} was refused at version {actual}, which it expected"));
                    }
                    Told::NotApplied(_) | Told::Unknown => {}
                }
                if let Told::Done(Receipt { version, replayed: false, .. }) = attempt.told
                    && !attempt.asked.expected.is_met_by(version.saturating_sub(1))
                {
                    let expected = attempt.asked.expected;
                    problems.push(format!("{name} became version {version}, but expected {expected}"));
                }
            }
            let applied = || attempts.iter().filter(|it| !matches!(it.told, Told::NotApplied(_)));
            if let Some(commit) = stored {
                if applied().next().is_none() {
                    problems.push(format!("{name} is stored, but every attempt was refused"));
                } else if applied().all(|it| it.asked.events != commit.events) {
                    problems.push(format!("{name} is stored with the events of another attempt"));
                }
            }
        }
        for (id, command) in self.stored.keys() {
            if !self.attempts.contains_key(&(id.clone(), command.clone())) {
                problems.push(format!("{id} {command} is stored, but nobody asked for it"));
            }
        }
        self.problems.extend(problems);
    }

    /// L11.
    fn all_or_nothing(&mut self) {
        for call in self.calls {
            let What::AppendAll(several, told) = &call.what else { continue };
            // What was asked for with others, or alone, may have been stored without these.
            let own = |asked: &&Asked| {
                let attempts = self.attempts.get(&command(asked));
                attempts.into_iter().flatten().all(|it| match &it.call.what {
                    What::AppendAll(with, _) => with.iter().map(command).eq(several.iter().map(command)),
                    _ => false,
                })
            };
            let own: Vec<&Asked> = several.iter().filter(own).collect();
            let is_stored = |asked: &&&Asked| self.stored.contains_key(&command(asked));
            let stored = own.iter().filter(is_stored).count();
            if stored != 0 && stored != own.len() {
                self.wrong(format!(
                    "of {} commits that were to be stored together {stored} are: {told:?}",
                    own.len()
                ));
            }
        }
    }

    fn receipts(&mut self) {
        for call in self.calls {
            let What::Receipt(id, command, found) = &call.what else { continue };
            let name = format!("{id} {command}");
            match found {
                Some(receipt) => {
                    let stored = self.stored.get(&(id.clone(), command.clone())).copied();
                    self.problems.extend(receipt_is_wrong(&name, receipt, stored));
                }
                None => {
                    let attempts = self.attempts.get(&(id.clone(), command.clone()));
                    let acknowledged = attempts
                        .into_iter()
                        .flatten()
                        .any(|it| matches!(it.told, Told::Done(_)) && it.call.ended < call.begun);
                    if acknowledged {
                        self.wrong(format!("{name} was acknowledged, but has no receipt"));
                    }
                }
            }
        }
    }

    /// R1, R5: a key and a timer are there if and only if the commit is in which they rode.
    fn riders(&mut self) {
        let mut holders: BTreeMap<&ReservationKey, BTreeSet<OwnerId>> = BTreeMap::new();
        let mut timers: BTreeSet<&TimerId> = BTreeSet::new();
        for (command, attempts) in &self.attempts {
            if !self.stored.contains_key(command) {
                continue;
            }
            for attempt in attempts {
                if let Some(key) = &attempt.asked.key {
                    holders.entry(key).or_default().insert(rider(&command.0, &command.1));
                }
                if let Some(commit) = self.stored.get(command)
                    && attempt.asked.events == commit.events
                {
                    timers.extend(&attempt.asked.timer);
                }
            }
        }
        let mut problems = Vec::new();
        for (key, owners) in &holders {
            let owner = self.truth.keys.get(*key);
            if owners.len() > 1 {
                problems.push(format!("key {key} was won by {owners:?}"));
            } else if owner.is_none_or(|owner| !owners.contains(owner)) {
                problems.push(format!("key {key} was won by {owners:?}, but is held by {owner:?}"));
            }
        }
        for (key, owner) in &self.truth.keys {
            if !holders.contains_key(key) {
                problems.push(format!("key {key} is held by {owner}, whose commit is not stored"));
            }
        }
        if !timers.iter().copied().eq(&self.truth.timers) {
            let there = &self.truth.timers;
            problems.push(format!("the timers are {there:?}, but those of stored commits are {timers:?}"));
        }
        self.problems.extend(problems);
    }

    /// When a commit that is stored was first asked for.
    fn begun(&self, commit: &RecordedCommit) -> u64 {
        let attempts = self.attempts.get(&(commit.aggregate_id.clone(), commit.command_id.clone()));
        let applied = attempts.into_iter().flatten().filter(|it| !matches!(it.told, Told::NotApplied(_)));
        applied.map(|it| it.call.begun).min().unwrap_or(0)
    }

    /// L2, L5, L9: nobody sees anything go back, and what was acknowledged is behind what comes after it.
    fn counters(&mut self) {
        let mut problems = Vec::new();
        for (id, commits) in &self.truth.aggregates {
            let begun: Vec<u64> = commits.iter().map(|commit| self.begun(commit)).collect();
            let (mut known, mut looks) = (Vec::new(), Vec::new());
            for call in self.calls {
                let mut look = |value, who: &str| {
                    let who = format!("{who} of client {}", call.client);
                    looks.push(Look { begun: call.begun, ended: call.ended, value, who });
                };
                match &call.what {
                    What::Head(of, version) if of == id => look(*version, "a head"),
                    What::Load(of, found) if of == id => {
                        look(u64::try_from(found.len()).expect("a length"), "a load");
                    }
                    _ => {}
                }
                for attempt in attempts(call).iter().filter(|it| it.asked.aggregate == *id) {
                    match &attempt.told {
                        Told::Done(receipt) => {
                            known.push((call.ended, receipt.version));
                            if !receipt.replayed && !matches!(call.what, What::AppendAll(..)) {
                                // What came before it was there.
                                look(receipt.version.saturating_sub(1), "an append");
                            }
                        }
                        Told::NotApplied(ErrorKind::VersionConflict { actual, .. })
                            if matches!(call.what, What::Append(..)) =>
                        {
                            look(*actual, "a conflict");
                        }
                        Told::NotApplied(_) | Told::Unknown => {}
                    }
                }
            }
            problems.extend(counter::check(&format!("the version of {id}"), &begun, &known, &looks));
        }
        for (index, log) in self.truth.partitions.iter().enumerate() {
            let begun: Vec<u64> = log.iter().map(|commit| self.begun(commit)).collect();
            let (mut known, mut looks) = (Vec::new(), Vec::new());
            for call in self.calls {
                let mut look = |value, who: &str| {
                    let who = format!("{who} of client {}", call.client);
                    looks.push(Look { begun: call.begun, ended: call.ended, value, who });
                };
                match &call.what {
                    What::Heads(heads) => look(heads.get(index).copied().unwrap_or_default(), "heads"),
                    What::Read { partition, through, .. } if usize::try_from(*partition) == Ok(index) => {
                        look(*through, "a read");
                    }
                    What::Tail { partition, through, .. } if usize::try_from(*partition) == Ok(index) => {
                        known.push((call.ended, *through));
                    }
                    _ => {}
                }
                for attempt in attempts(call) {
                    let Told::Done(receipt) = attempt.told else { continue };
                    if usize::try_from(receipt.partition.index()) != Ok(index) {
                        continue;
                    }
                    known.push((call.ended, receipt.position));
                    if !receipt.replayed && !matches!(call.what, What::AppendAll(..)) {
                        look(receipt.position.saturating_sub(1), "an append");
                    }
                }
            }
            problems.extend(counter::check(&format!("partition {index}"), &begun, &known, &looks));
        }
        self.problems.extend(problems);
    }

    /// L4, L5, T1: whatever was read is what is stored, in order, without a hole.
    fn contents(&mut self) {
        let mut tails: BTreeMap<(usize, u32), Position> = BTreeMap::new();
        for call in self.calls {
            match &call.what {
                What::Load(id, found) => {
                    let stored = self.truth.aggregates.get(id).map_or(&[][..], Vec::as_slice);
                    if stored.get(..found.len()) != Some(found) {
                        self.wrong(format!("client {} loaded of {id} what is not stored", call.client));
                    }
                }
                What::Read { partition, after, commits, through } => {
                    self.page(call.client, *partition, *after, commits, *through);
                }
                What::Tail { partition, after, commits, through } => {
                    let last = tails.insert((call.client, *partition), *through).unwrap_or_default();
                    if last != *after {
                        self.wrong(format!("a tail went on behind {after} of {partition}, it was at {last}"));
                    }
                    self.page(call.client, *partition, *after, commits, *through);
                }
                _ => {}
            }
        }
    }

    fn page(
        &mut self,
        client: usize,
        partition: u32,
        after: Position,
        commits: &[RecordedCommit],
        through: Position,
    ) {
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let log = self.truth.partitions.get(index(partition.into())).map_or(&[][..], Vec::as_slice);
        if log.get(index(after)..index(through)) != Some(commits) {
            self.wrong(format!(
                "client {client} read behind {after} through {through} of partition {partition} what is not stored"
            ));
        }
    }

    /// L7: nothing is written under an epoch that was overtaken.
    fn fences(&mut self) {
        let mut problems = Vec::new();
        for attempt in self.attempts.values().flatten() {
            let Some((partition, epoch)) = attempt.asked.fence else { continue };
            let overtaken = self.calls.iter().find(|call| match &call.what {
                What::Lease(of, LeaseCall::Acquire(_, Some((true, _, higher)))) => {
                    *of == partition && *higher > epoch && call.ended < attempt.call.begun
                }
                _ => false,
            });
            match (&attempt.told, overtaken) {
                (Told::Done(Receipt { replayed: false, .. }), Some(by)) => problems.push(format!(
                    "{} {} was written under epoch {epoch} after {:?}",
                    attempt.asked.aggregate, attempt.asked.command, by.what
                )),
                (Told::NotApplied(ErrorKind::Fenced { current, .. }), _) if *current <= epoch => {
                    problems.push(format!("epoch {epoch} was fenced off by {current}"));
                }
                _ => {}
            }
        }
        self.problems.extend(problems);
    }

    /// E1, E2.
    fn leases(&mut self) {
        let mut by_partition: BTreeMap<u32, Vec<Timed<LeaseCall>>> = BTreeMap::new();
        for call in self.calls {
            let What::Lease(partition, what) = &call.what else { continue };
            let unknown = match what {
                LeaseCall::Acquire(_, answer) => answer.is_none(),
                LeaseCall::Renew(_, _, answer) | LeaseCall::Release(_, _, answer) => answer.is_none(),
                LeaseCall::Look(_) => false,
            };
            by_partition.entry(*partition).or_default().push(timed(call, what, unknown));
        }
        for (partition, calls) in by_partition {
            self.explain(&format!("the lease of partition {partition}"), &LeaseObject, &calls);
        }
    }

    /// R1 to R4.
    fn reservations(&mut self) {
        let mut calls = Vec::new();
        for call in self.calls {
            let What::Reservation(what) = &call.what else { continue };
            let unknown = match what {
                ReservationCall::Reserve(_, _, answer)
                | ReservationCall::Confirm(_, _, answer)
                | ReservationCall::Release(_, _, answer)
                | ReservationCall::Swap(_, _, _, answer) => answer.is_none(),
                ReservationCall::Look(..) => false,
            };
            calls.push(timed(call, what, unknown));
        }
        self.explain("the reservations of a scope", &ScopeObject, &calls);
    }

    /// M1, M2.
    fn timers(&mut self) {
        let mut calls = Vec::new();
        for call in self.calls {
            let What::Timer(what) = &call.what else { continue };
            let unknown = match what {
                TimerCall::Claim(_, answer) => answer.is_none(),
                TimerCall::Schedule(_, answer)
                | TimerCall::Cancel(_, answer)
                | TimerCall::Complete(_, _, answer)
                | TimerCall::Release(_, _, answer) => answer.is_none(),
            };
            calls.push(timed(call, what, unknown));
        }
        self.explain("the timers of a context", &TimersObject, &calls);
    }

    fn explain<O: Object>(&mut self, name: &str, object: &O, calls: &[Timed<O::Call>]) {
        match explain(object, calls, Budget::default()) {
            Verdict::Explained => {}
            Verdict::Inexplicable(why) | Verdict::Undecided(why) => self.wrong(format!("{name}: {why}")),
        }
    }
}

fn timed<C: Clone>(call: &Call, what: &C, unknown: bool) -> Timed<C> {
    Timed { begun: call.begun, ended: (!unknown).then_some(call.ended), call: what.clone() }
}

fn named(commit: &RecordedCommit) -> String {
    format!("{} {}", commit.aggregate_id, commit.command_id)
}

fn receipt_is_wrong(name: &str, receipt: &Receipt, stored: Option<&RecordedCommit>) -> Option<String> {
    let Some(commit) = stored else {
        return Some(format!("{name} was acknowledged, but is not stored"));
    };
    let right = Receipt { replayed: receipt.replayed, ..commit.receipt() };
    (right != *receipt).then(|| format!("{name} was acknowledged as {receipt:?}, but is stored as {right:?}"))
}

/// Whether a refusal says nothing about the command: the request did not get through.
fn may_come_back(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable { .. } | ErrorKind::Timeout)
}

impl<T> Told<T> {
    fn as_ref(&self) -> Told<&T> {
        match self {
            Self::Done(answer) => Told::Done(answer),
            Self::NotApplied(kind) => Told::NotApplied(kind.clone()),
            Self::Unknown => Told::Unknown,
        }
    }
}
