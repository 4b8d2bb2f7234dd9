//! The checker under test: right histories pass, and each kind of wrong one is found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::runtime::Builder;
use uuid::Uuid;
use wow_store_api::{
    AggregateId, CommandId, ErrorKind, Event, ExpectedVersion, MemberId, OwnerId, PartitionId, Payload,
    Receipt, RecordedCommit, ReservationKey, SubscriptionName, TimerId, Timestamp,
};

use super::{
    Plan,
    check::{Truth, check},
    client::{rider, shop},
    objects::{LeaseCall, ReservationCall, Reserved, TimerCall},
    record::{Asked, Call, MAX_CALLS, Recorder, Told, What},
};
use crate::{
    harness::Backend,
    mutants::{self, MutantBackend},
    seed::Seed,
};

fn order(id: &str) -> AggregateId {
    AggregateId::new("shop", "order", id).expect("a valid id")
}

fn asked(id: &str, command: &str) -> Asked {
    Asked {
        aggregate: order(id),
        command: CommandId::new(command).expect("a valid id"),
        expected: ExpectedVersion::Any,
        events: vec![Event::new("Happened", 1, Payload::null()).expect("an event")],
        fence: None,
        key: None,
        timer: None,
    }
}

/// The commit that was asked for, all in partition 0.
fn stored(asked: &Asked, version: u64, position: u64) -> RecordedCommit {
    RecordedCommit {
        aggregate_id: asked.aggregate.clone(),
        version,
        command_id: asked.command.clone(),
        partition: 0,
        position,
        committed_at: Timestamp::UNIX_EPOCH,
        metadata: None,
        events: asked.events.clone(),
    }
}

fn truth(log: Vec<RecordedCommit>) -> Truth {
    let mut aggregates: BTreeMap<AggregateId, Vec<RecordedCommit>> = BTreeMap::new();
    for commit in &log {
        aggregates.entry(commit.aggregate_id.clone()).or_default().push(commit.clone());
    }
    let heads = vec![u64::try_from(log.len()).expect("a length")];
    Truth { partitions: vec![log], heads, aggregates, ..Truth::default() }
}

fn at(begun: u64, ended: u64, what: What) -> Call {
    Call { client: 0, begun, ended, what }
}

fn done(asked: &Asked, version: u64, position: u64) -> What {
    What::Append(asked.clone(), Told::Done(stored(asked, version, position).receipt()))
}

fn replayed(asked: &Asked, version: u64, position: u64) -> What {
    What::Append(asked.clone(), Told::Done(stored(asked, version, position).receipt().replay()))
}

fn refused(asked: &Asked) -> What {
    let kind = ErrorKind::Unavailable { reason: String::new() };
    What::Append(asked.clone(), Told::NotApplied(kind))
}

fn unknown(asked: &Asked) -> What {
    What::Append(asked.clone(), Told::Unknown)
}

/// Two commits on one aggregate, one after the other.
fn two() -> (Asked, Asked, Truth) {
    let (a, b) = (asked("1", "a"), asked("1", "b"));
    let log = vec![stored(&a, 1, 1), stored(&b, 2, 2)];
    (a, b, truth(log))
}

#[track_caller]
fn right(calls: &[Call], truth: &Truth) {
    assert_eq!(check(calls, truth), Vec::<String>::new(), "a right history");
}

#[track_caller]
fn wrong(calls: &[Call], truth: &Truth) {
    assert_ne!(check(calls, truth), Vec::<String>::new(), "a wrong history");
}

#[test]
fn a_right_history_passes() {
    let (a, b, truth) = two();
    right(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2)), at(4, 5, What::Head(order("1"), 2))], &truth);
    right(&[at(0, 3, done(&a, 1, 1)), at(1, 2, unknown(&b)), at(4, 5, replayed(&b, 2, 2))], &truth);
    right(&[at(0, 1, unknown(&a)), at(2, 3, done(&b, 2, 2)), at(4, 5, refused(&asked("1", "c")))], &truth);
}

#[test]
fn an_acknowledged_commit_that_is_gone_is_found() {
    let (a, b, truth) = two();
    let appended = [at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))];
    let gone = at(4, 5, done(&asked("1", "c"), 3, 3));
    wrong(&[appended.to_vec(), vec![gone]].concat(), &truth);
}

#[test]
fn a_receipt_of_another_place_is_found() {
    let (a, b, truth) = two();
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 3))], &truth);
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 1, 2))], &truth);
}

#[test]
fn a_refused_commit_that_is_stored_is_found() {
    let (a, b, truth) = two();
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, refused(&b))], &truth);
}

#[test]
fn a_commit_that_nobody_asked_for_is_found() {
    let (a, _, truth) = two();
    wrong(&[at(0, 1, done(&a, 1, 1))], &truth);
}

#[test]
fn a_command_that_is_stored_twice_is_found() {
    let a = asked("1", "a");
    let twice = truth(vec![stored(&a, 1, 1), stored(&a, 2, 2)]);
    wrong(&[at(0, 1, unknown(&a)), at(2, 3, done(&a, 2, 2))], &twice);
}

#[test]
fn a_command_that_is_appended_anew_is_found() {
    let (a, b, truth) = two();
    let appended = [at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))];
    wrong(&[appended.to_vec(), vec![at(4, 5, done(&a, 1, 1))]].concat(), &truth);
}

#[test]
fn a_replay_that_is_refused_is_found() {
    let (a, b, truth) = two();
    let kind = ErrorKind::VersionConflict {
        aggregate_id: order("1"),
        expected: ExpectedVersion::NoStream,
        actual: 2,
    };
    let conflict =
        What::Append(Asked { expected: ExpectedVersion::NoStream, ..a.clone() }, Told::NotApplied(kind));
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2)), at(4, 5, conflict)], &truth);
}

#[test]
fn an_unmet_expectation_is_found() {
    let (a, b, truth) = two();
    let b = Asked { expected: ExpectedVersion::Exact(7), ..b };
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))], &truth);
    let kind = ErrorKind::VersionConflict {
        aggregate_id: order("1"),
        expected: ExpectedVersion::Exact(2),
        actual: 2,
    };
    let c = Asked { expected: ExpectedVersion::Exact(2), ..asked("1", "c") };
    let calls = [
        at(0, 1, done(&a, 1, 1)),
        at(2, 3, done(&asked("1", "b"), 2, 2)),
        at(4, 5, What::Append(c, Told::NotApplied(kind))),
    ];
    wrong(&calls, &truth);
}

#[test]
fn events_that_were_mixed_up_are_found() {
    let (a, b, mut truth) = two();
    let other = Payload::from_json("1").expect("a document");
    truth.partitions[0][1].events[0].body = other.clone();
    truth.aggregates.get_mut(&order("1")).expect("it is there")[1].events[0].body = other;
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))], &truth);
}

#[test]
fn a_later_append_with_an_earlier_place_is_found() {
    let (a, b, truth) = two();
    wrong(&[at(0, 1, done(&b, 2, 2)), at(2, 3, done(&a, 1, 1))], &truth);
    // Other aggregates, the same partition.
    let (a, b) = (asked("1", "a"), asked("2", "b"));
    let log = self::truth(vec![stored(&a, 1, 1), stored(&b, 1, 2)]);
    wrong(&[at(0, 1, done(&b, 1, 2)), at(2, 3, done(&a, 1, 1))], &log);
    right(&[at(0, 3, done(&b, 1, 2)), at(1, 2, done(&a, 1, 1))], &log);
}

#[test]
fn holes_and_disorder_are_found() {
    let (a, b, _) = two();
    let calls = [at(0, 1, unknown(&a)), at(0, 1, unknown(&b))];
    wrong(&calls, &truth(vec![stored(&a, 1, 1), stored(&b, 2, 3)]));
    wrong(&calls, &truth(vec![stored(&a, 1, 1), stored(&b, 3, 2)]));
    wrong(&calls, &truth(vec![stored(&a, 2, 1), stored(&b, 1, 2)]));
    let mut falling = truth(vec![stored(&a, 1, 1), stored(&b, 2, 2)]);
    right(&calls, &falling);
    falling.heads = vec![3];
    wrong(&calls, &falling);
}

#[test]
fn a_reader_that_goes_back_is_found() {
    let (a, b, truth) = two();
    let appended = [at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))];
    let read = |begun, what| at(begun, begun + 1, what);
    let load = |count: usize| What::Load(order("1"), truth.partitions[0][..count].to_vec());
    let page = |count: usize| What::Read {
        partition: 0,
        after: 0,
        commits: truth.partitions[0][..count].to_vec(),
        through: u64::try_from(count).expect("small"),
    };
    let with = |what| [appended.to_vec(), vec![read(4, what)]].concat();
    for (behind, at_the_head) in [
        (What::Head(order("1"), 1), What::Head(order("1"), 2)),
        (load(1), load(2)),
        (What::Heads(vec![1]), What::Heads(vec![2])),
        (page(1), page(2)),
    ] {
        wrong(&with(behind), &truth);
        right(&with(at_the_head), &truth);
    }
    // Nothing was acknowledged, but somebody saw it.
    let lost = [at(0, 1, unknown(&a)), at(0, 1, unknown(&b))];
    let seen = [read(2, What::Head(order("1"), 2)), read(4, What::Head(order("1"), 1))];
    wrong(&[lost.to_vec(), seen.to_vec()].concat(), &truth);
}

#[test]
fn a_reader_that_sees_what_is_not_there_is_found() {
    let (a, b, truth) = two();
    let appended = [at(0, 1, done(&a, 1, 1)), at(4, 5, done(&b, 2, 2))];
    let with = |what| [appended.to_vec(), vec![at(2, 3, what)]].concat();
    wrong(&with(What::Head(order("1"), 2)), &truth);
    wrong(&[appended.to_vec(), vec![at(6, 7, What::Head(order("1"), 3))]].concat(), &truth);
    let strange = stored(&asked("1", "never"), 1, 1);
    wrong(&with(What::Load(order("1"), vec![strange.clone()])), &truth);
    wrong(&with(What::Read { partition: 0, after: 0, commits: vec![strange], through: 1 }), &truth);
}

#[test]
fn a_tail_that_skips_or_repeats_is_found() {
    let (a, b, truth) = two();
    let appended = [at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))];
    let batch = |after: u64, through: u64| {
        let index = |number: u64| usize::try_from(number).expect("small");
        let commits = truth.partitions[0][index(after)..index(through)].to_vec();
        What::Tail { partition: 0, after, commits, through }
    };
    let with = |first, then| [appended.to_vec(), vec![at(4, 5, first), at(6, 7, then)]].concat();
    right(&with(batch(0, 1), batch(1, 2)), &truth);
    wrong(&with(batch(0, 1), batch(0, 2)), &truth);
    wrong(&[appended.to_vec(), vec![at(4, 5, batch(1, 2))]].concat(), &truth);
    let skipped =
        What::Tail { partition: 0, after: 0, commits: truth.partitions[0][1..].to_vec(), through: 2 };
    wrong(&[appended.to_vec(), vec![at(4, 5, skipped)]].concat(), &truth);
}

#[test]
fn half_of_what_belongs_together_is_found() {
    let (a, b) = (asked("1", "a"), asked("2", "b"));
    let both = |told| What::AppendAll(vec![a.clone(), b.clone()], told);
    let half = truth(vec![stored(&a, 1, 1)]);
    let whole = truth(vec![stored(&a, 1, 1), stored(&b, 1, 2)]);
    wrong(&[at(0, 1, both(Told::Unknown))], &half);
    right(&[at(0, 1, both(Told::Unknown))], &whole);
    right(&[at(0, 1, both(Told::Unknown))], &truth(Vec::new()));
    let receipts: Vec<Receipt> = whole.partitions[0].iter().map(RecordedCommit::receipt).collect();
    wrong(&[at(0, 1, both(Told::Done(receipts[..1].to_vec())))], &whole);
    right(&[at(0, 1, both(Told::Done(receipts)))], &whole);
}

#[test]
fn a_receipt_that_is_missing_or_wrong_is_found() {
    let (a, b, truth) = two();
    let appended = [at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))];
    let with = |found| {
        [appended.to_vec(), vec![at(4, 5, What::Receipt(order("1"), b.command.clone(), found))]].concat()
    };
    right(&with(Some(stored(&b, 2, 2).receipt().replay())), &truth);
    wrong(&with(Some(stored(&b, 3, 2).receipt().replay())), &truth);
    wrong(&with(None), &truth);
}

#[test]
fn riders_without_their_commit_are_found() {
    let key = ReservationKey::new("k").expect("a valid key");
    let timer = TimerId::new("t").expect("a valid id");
    let a = Asked { key: Some(key.clone()), timer: Some(timer.clone()), ..asked("1", "a") };
    let owner = rider(&a.aggregate, &a.command);
    let there = |log: Vec<RecordedCommit>| Truth {
        keys: BTreeMap::from([(key.clone(), owner.clone())]),
        timers: BTreeSet::from([timer.clone()]),
        ..truth(log)
    };
    right(&[at(0, 1, done(&a, 1, 1))], &there(vec![stored(&a, 1, 1)]));
    wrong(&[at(0, 1, unknown(&a))], &there(Vec::new()));
    wrong(&[at(0, 1, done(&a, 1, 1))], &truth(vec![stored(&a, 1, 1)]));
    let no_timer = Truth { timers: BTreeSet::new(), ..there(vec![stored(&a, 1, 1)]) };
    wrong(&[at(0, 1, done(&a, 1, 1))], &no_timer);
    let b = Asked { key: Some(key.clone()), ..asked("1", "b") };
    let both_won = there(vec![stored(&a, 1, 1), stored(&b, 2, 2)]);
    wrong(&[at(0, 1, done(&a, 1, 1)), at(2, 3, done(&b, 2, 2))], &both_won);
}

fn member(name: &str) -> MemberId {
    MemberId::new(name).expect("a valid id")
}

fn acquired(name: &str, epoch: u64) -> What {
    What::Lease(0, LeaseCall::Acquire(member(name), Some((true, Some(member(name)), epoch))))
}

#[test]
fn a_write_under_an_overtaken_epoch_is_found() {
    let a = Asked { fence: Some((0, 1)), ..asked("1", "a") };
    let log = truth(vec![stored(&a, 1, 1)]);
    let released = What::Lease(0, LeaseCall::Release(member("m"), 1, Some(true)));
    let leases = [at(0, 1, acquired("m", 1)), at(2, 3, released), at(4, 5, acquired("n", 2))];
    wrong(&[leases.to_vec(), vec![at(6, 7, done(&a, 1, 1))]].concat(), &log);
    right(&[leases.to_vec(), vec![at(3, 7, done(&a, 1, 1))]].concat(), &log);
    let kind = ErrorKind::Fenced {
        group: SubscriptionName::new("mailer").expect("a valid name"),
        partition: PartitionId::new(shop(), 0),
        epoch: 1,
        current: 1,
    };
    let fenced = What::Append(a, Told::NotApplied(kind));
    wrong(&[leases.to_vec(), vec![at(6, 7, fenced)]].concat(), &truth(Vec::new()));
}

#[test]
fn two_owners_and_an_epoch_twice_are_found() {
    let nothing = truth(Vec::new());
    let lease = |call| What::Lease(0, call);
    let release = |answer| lease(LeaseCall::Release(member("m"), 1, answer));
    wrong(&[at(0, 1, acquired("m", 1)), at(2, 3, acquired("n", 2))], &nothing);
    right(&[at(0, 1, acquired("m", 1)), at(2, 3, release(None)), at(4, 5, acquired("n", 2))], &nothing);
    wrong(&[at(0, 1, acquired("m", 1)), at(2, 3, release(Some(true))), at(4, 5, acquired("n", 1))], &nothing);
    wrong(&[at(0, 9, acquired("m", 1)), at(1, 8, acquired("n", 1))], &nothing);
    let renewed = lease(LeaseCall::Renew(member("m"), 1, Some(true)));
    wrong(&[at(0, 1, acquired("m", 1)), at(2, 3, release(Some(true))), at(4, 5, renewed)], &nothing);
    let lost = lease(LeaseCall::Acquire(member("m"), None));
    let seen = lease(LeaseCall::Look(Some((Some(member("m")), 1))));
    right(&[at(0, 1, lost), at(2, 3, seen)], &nothing);
}

#[test]
fn two_winners_of_a_key_are_found() {
    let nothing = truth(Vec::new());
    let key = |name: &str| ReservationKey::new(name).expect("a valid key");
    let owner = |name: &str| OwnerId::new(name).expect("a valid id");
    let reserve =
        |name: &str, answer| What::Reservation(ReservationCall::Reserve(key("a"), owner(name), Some(answer)));
    let held = || Reserved::Held(key("a"));
    wrong(&[at(0, 9, reserve("o", held())), at(1, 8, reserve("p", held()))], &nothing);
    right(&[at(0, 9, reserve("o", held())), at(1, 8, reserve("p", Reserved::Taken(owner("o"))))], &nothing);
    // A swap that kept both.
    let swap = ReservationCall::Swap(key("a"), key("b"), owner("o"), Some(Reserved::Held(key("b"))));
    let look =
        |of: &str, found: Option<&str>| What::Reservation(ReservationCall::Look(key(of), found.map(owner)));
    let swapped = [at(0, 1, reserve("o", held())), at(2, 3, What::Reservation(swap))];
    right(
        &[swapped.to_vec(), vec![at(4, 5, look("a", None)), at(6, 7, look("b", Some("o")))]].concat(),
        &nothing,
    );
    wrong(&[swapped.to_vec(), vec![at(4, 5, look("a", Some("o")))]].concat(), &nothing);
}

#[test]
fn a_key_that_is_reserved_again_after_a_swap_is_explained() {
    let (key, owner) = (
        |name: &str| ReservationKey::new(name).expect("a valid key"),
        OwnerId::new("o").expect("a valid id"),
    );
    let reserve =
        |name: &str| ReservationCall::Reserve(key(name), owner.clone(), Some(Reserved::Held(key(name))));
    let swap = ReservationCall::Swap(key("b"), key("c"), owner.clone(), Some(Reserved::Held(key("c"))));
    let release = ReservationCall::Release(key("b"), owner.clone(), Some(Reserved::Released));
    // The second reservation of `b` changes nothing if it comes before the swap, and must come after it.
    let calls =
        [(0, 1, reserve("b")), (2, 3, reserve("c")), (4, 9, swap), (5, 10, reserve("b")), (11, 12, release)];
    right(&calls.map(|(begun, ended, call)| at(begun, ended, What::Reservation(call))), &truth(Vec::new()));
}

#[test]
fn a_timer_that_is_claimed_twice_is_found() {
    let nothing = truth(Vec::new());
    let id = || TimerId::new("t1").expect("a valid id");
    let timer = |call| What::Timer(call);
    let claim = |number| timer(TimerCall::Claim(1, Some(vec![(id(), Uuid::from_u128(number))])));
    let scheduled = at(0, 1, timer(TimerCall::Schedule(id(), Some(true))));
    wrong(&[scheduled.clone(), at(2, 9, claim(1)), at(3, 8, claim(2))], &nothing);
    let released = timer(TimerCall::Release(id(), Uuid::from_u128(1), Some(true)));
    right(&[scheduled.clone(), at(2, 3, claim(1)), at(4, 5, released), at(6, 7, claim(2))], &nothing);
    let completed = |answer| timer(TimerCall::Complete(id(), Uuid::from_u128(1), Some(answer)));
    right(
        &[scheduled.clone(), at(2, 3, claim(1)), at(4, 5, completed(true)), at(6, 7, completed(false))],
        &nothing,
    );
    wrong(
        &[scheduled.clone(), at(2, 3, claim(1)), at(4, 5, completed(true)), at(6, 7, completed(true))],
        &nothing,
    );
    let none = timer(TimerCall::Claim(1, Some(Vec::new())));
    wrong(&[scheduled, at(2, 3, none)], &nothing);
}

/// However wrong a store is, the answer comes: the searches and the record are bounded.
#[test]
fn histories_of_wrong_stores_are_answered_with_the_seed() {
    let wrong = [
        "log::IgnoresExpectedVersion",
        "lease::LooksThenTakes",
        "lease::NodesDoNotSeeEachOther",
        "fence::AppendIgnoresIt",
        "reservation::SwapIsTwoSteps",
        "timer::ClaimsItsOwnAgain",
    ];
    for mutant in mutants::all().into_iter().filter(|mutant| wrong.contains(&mutant.name)) {
        let backend = MutantBackend { fault: Some(mutant.fault), ..MutantBackend::default() };
        let backend: Arc<dyn Backend> = Arc::new(backend);
        let plan = Plan { clients: 8, things: 60, handles: 2, faults: 0 };
        // One thread, and a clock that jumps: the same history every time.
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let told = runtime.expect("a runtime").block_on(super::check(plan, &backend, Seed::of(1)));
        let told = told.expect_err(mutant.name);
        assert!(told.starts_with("seed 1 "), "{} is answered with the seed: {told}", mutant.name);
    }
}

#[test]
#[should_panic(expected = "this would never end")]
fn a_log_that_leads_round_in_circles_is_not_followed_for_ever() {
    let recorder = Recorder::default();
    for _ in 0..=MAX_CALLS {
        let begun = recorder.stamp();
        recorder.ended(0, begun, What::Heads(Vec::new()));
    }
}
