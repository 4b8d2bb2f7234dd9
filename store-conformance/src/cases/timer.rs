//! Timers (M1, M2).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use wow_store_api::{
    AggregateId, ClaimTimers, ContextName, Due, ErrorKind, EventStore, MAX_CLAIM, MAX_TTL, Outcome, Payload,
    ScheduleTimer, Timer, TimerId, TimerScheduled, TimerToken, Timestamp,
};

use super::support::{HOUR, member, race};
use crate::{
    case::topic,
    env::{Env, order, shop},
};

topic! { "timer":
    timer_comes_back_as_scheduled [M1],
    body_comes_back_exactly [M1, PAYLOAD],
    due_after_counts_from_the_stores_clock [M1] sets_clock,
    due_at_the_very_instant [M1] sets_clock,
    not_claimed_before_its_time [M1],
    past_due_fires_at_once [M1],
    claimed_in_the_order_they_are_due [M1],
    each_timer_goes_to_one_claimer [M1],
    claimed_one_is_left_alone [M1],
    claim_ends_at_the_very_instant [M1] sets_clock,
    expired_claim_is_due_again [M1],
    old_claim_is_void_once_claimed_again [M1],
    expired_claim_still_completes [M1],
    completed_one_is_gone_for_good [M1],
    released_one_is_due_at_once [M1],
    released_one_can_wait [M1],
    existing_one_stays [M2],
    replacing_takes_over_and_voids_the_claim [M2],
    one_of_many_schedulers_wins [M2],
    cancel_says_whether_it_was_there [M2],
    cancelled_while_claimed [M2, M1],
    claims_have_bounds [M1],
    next_due_is_the_earliest_to_be_claimed [M1],
    contexts_and_ids_are_separate [M1, NAMES],
    list_pages_by_id [M1],
    survives_reopen [M1],
}

pub(crate) fn timer_id(id: impl AsRef<str>) -> TimerId {
    TimerId::new(id).expect("a valid id")
}

pub(crate) fn scheduling(id: impl AsRef<str>, due: Due) -> ScheduleTimer {
    ScheduleTimer::new(shop(), timer_id(id), due, &1).expect("a valid timer")
}

/// Already due, by so many seconds since 1970.
fn due_since(seconds: i64) -> Due {
    Due::At(Timestamp::from_millis(seconds * 1_000).expect("in range"))
}

#[track_caller]
fn scheduled(outcome: TimerScheduled) -> Timer {
    match outcome {
        TimerScheduled::Scheduled(timer) => timer,
        TimerScheduled::Exists(timer) => panic!("it should be scheduled, but exists: {timer:?}"),
    }
}

async fn schedule(store: &Arc<dyn EventStore>, timer: ScheduleTimer) -> TimerScheduled {
    store.schedule_timer(timer).await.expect("scheduling is answered")
}

async fn claim(store: &Arc<dyn EventStore>, by: &str, ttl: Duration) -> Vec<Timer> {
    let claim = ClaimTimers::new(shop(), member(by), ttl).with_limit(MAX_CLAIM);
    store.claim_timers(claim).await.expect("the claim is answered")
}

async fn claim_one(store: &Arc<dyn EventStore>, by: &str, ttl: Duration) -> (Timer, TimerToken) {
    let mut timers = claim(store, by, ttl).await;
    assert_eq!(timers.len(), 1, "exactly one is due");
    let timer = timers.remove(0);
    let token = timer.token().expect("what was claimed has a token");
    (timer, token)
}

async fn complete(store: &Arc<dyn EventStore>, token: &TimerToken) -> bool {
    store.complete_timer(token).await.expect("answered")
}

async fn release(store: &Arc<dyn EventStore>, token: &TimerToken, retry_in: Duration) -> bool {
    store.release_timer(token, retry_in).await.expect("answered")
}

async fn cancel(store: &Arc<dyn EventStore>, id: &str) -> bool {
    store.cancel_timer(&shop(), &timer_id(id)).await.expect("answered")
}

/// All timers of `shop`.
pub(crate) async fn timers(store: &Arc<dyn EventStore>) -> Vec<Timer> {
    store.timers(&shop(), None, 10_000).await.expect("listed")
}

fn ids(timers: &[Timer]) -> Vec<&str> {
    timers.iter().map(|timer| timer.id.as_str()).collect()
}

async fn next_due(store: &Arc<dyn EventStore>) -> Option<Timestamp> {
    store.next_due(&shop()).await.expect("answered")
}

async fn timer_comes_back_as_scheduled(env: Env) {
    let store = env.store();
    let target = order("42").with_tenant("acme").expect("a valid tenant");
    let due_at: Timestamp = "2500-01-01T12:00:00.001Z".parse().expect("an instant");
    let before = store.now().await.expect("the time");
    let timer =
        scheduled(schedule(store, scheduling("a", Due::At(due_at)).with_target(target.clone())).await);
    let after = store.now().await.expect("the time");
    let expected = Timer {
        context: shop(),
        id: timer_id("a"),
        due_at,
        target: Some(target),
        body: Payload::from_json("1").expect("valid"),
        scheduled_at: timer.scheduled_at,
        attempts: 0,
        claim: None,
    };
    assert_eq!(timer, expected, "as asked");
    assert!((before..=after).contains(&timer.scheduled_at), "at the store's time");
    let plain = scheduled(schedule(store, scheduling("b", Due::At(due_at))).await);
    assert_eq!(plain.target, None, "without a target there is none");
    assert_eq!(timers(store).await, [timer, plain], "what is stored is what was answered");
}

async fn body_comes_back_exactly(env: Env) {
    let store = env.store();
    for (n, text) in [
        "null",
        "-1.50",
        "1234567890123456789012345678901234",
        "1e-6000",
        r#""""#,
        r#"{"$gt":{"$oid":"x"},"a.b":{"":[1.10,null]},"é":"é"}"#,
        "[]",
    ]
    .into_iter()
    .enumerate()
    {
        let body = Payload::from_json(text).expect("inside the profile");
        let timer = ScheduleTimer { body: body.clone(), ..scheduling(n.to_string(), due_since(1)) };
        assert_eq!(scheduled(schedule(store, timer).await).body, body, "as scheduled: {text}");
        assert_eq!(timers(store).await[n].body, body, "as listed: {text}");
        let (claimed, _) = claim_one(store, "m", HOUR).await;
        assert_eq!(claimed.body, body, "as claimed: {text}");
        let exact: &str = claimed.body.as_json();
        assert!(text != "-1.50" || exact == text, "with its scale");
    }
}

async fn due_after_counts_from_the_stores_clock(env: Env) {
    let store = env.store();
    let now = store.now().await.expect("the time");
    let later = |millis| now.saturating_add(Duration::from_millis(millis));
    for (id, nanos, millis) in [("a", 0, 0), ("b", 1, 1), ("c", 1_500_000, 2), ("d", 2_000_000, 2)] {
        let timer = scheduled(schedule(store, scheduling(id, Due::After(Duration::from_nanos(nanos)))).await);
        assert_eq!(timer.due_at, later(millis), "rounded up: never early");
    }
    let never = scheduled(schedule(store, scheduling("e", Due::After(Duration::MAX))).await);
    assert_eq!(never.due_at, Timestamp::MAX, "at the end of time at the latest");
    assert_eq!(ids(&timers(store).await), ["a", "b", "c", "d", "e"], "all are stored");
}

async fn due_at_the_very_instant(env: Env) {
    let store = env.store();
    // The text of a whole second sorts behind that of the next millisecond.
    let noon: Timestamp = "2600-01-01T12:00:00Z".parse().expect("an instant");
    let after = noon.saturating_add(Duration::from_millis(1));
    schedule(store, scheduling("later", Due::At(after))).await;
    schedule(store, scheduling("noon", Due::At(noon))).await;
    env.clock().set(Timestamp::from_millis(noon.as_millis() - 1).expect("in range"));
    assert_eq!(claim(store, "m", HOUR).await, [], "1 ms before its time it is not due");
    env.clock().set(noon);
    assert_eq!(ids(&claim(store, "m", HOUR).await), ["noon"], "at the very instant it is");
    env.clock().set(after);
    assert_eq!(ids(&claim(store, "m", HOUR).await), ["later"], "and the next at its own");
}

async fn not_claimed_before_its_time(env: Env) {
    let store = env.store();
    schedule(store, scheduling("soon", Due::After(env.ttl()))).await;
    schedule(store, scheduling("late", Due::After(HOUR))).await;
    assert_eq!(claim(store, "m", HOUR).await, [], "nothing is due yet");
    env.pass(env.ttl()).await;
    assert_eq!(ids(&claim(store, "m", HOUR).await), ["soon"], "its time has come, and no other's");
    assert_eq!(claim(store, "m", HOUR).await, [], "the other one waits");
}

async fn past_due_fires_at_once(env: Env) {
    let store = env.store();
    let past: Timestamp = "1969-07-20T20:17:40.123Z".parse().expect("an instant");
    for (id, due) in [("a", Due::At(Timestamp::MIN)), ("b", Due::At(past)), ("c", Due::After(Duration::ZERO))]
    {
        schedule(store, scheduling(id, due)).await;
    }
    let claimed = claim(store, "m", HOUR).await;
    assert_eq!(ids(&claimed), ["a", "b", "c"], "what is past its time is due at once");
    assert_eq!(claimed[1].due_at, past, "and keeps the time it was due at");
}

async fn claimed_in_the_order_they_are_due(env: Env) {
    let store = env.store();
    for (id, seconds) in [("e", 30), ("b", 20), ("a", 20), ("é", 10), ("z", 10), ("Z", 10), ("d", 5)] {
        schedule(store, scheduling(id, due_since(seconds))).await;
    }
    let mut seen = Vec::new();
    for limit in [1, 2, 3] {
        let claim = ClaimTimers::new(shop(), member("m"), HOUR).with_limit(limit);
        let claimed = store.claim_timers(claim).await.expect("answered");
        assert_eq!(claimed.len(), limit, "as many as asked for");
        seen.extend(claimed);
    }
    assert_eq!(
        ids(&seen),
        ["d", "Z", "z", "é", "a", "b"],
        "the one due first, then by id; the last one waits"
    );
    assert_eq!(ids(&claim(store, "m", HOUR).await), ["e"], "what was not asked for was not claimed");
}

async fn each_timer_goes_to_one_claimer(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for n in 0..100 {
        schedule(&stores[0], scheduling(format!("{n:03}"), due_since(1))).await;
    }
    let claimed = race(16, |n| {
        let store = Arc::clone(&stores[n % 2]);
        async move {
            let mut mine = Vec::new();
            loop {
                let request = ClaimTimers::new(shop(), member(format!("m{n}")), HOUR).with_limit(7);
                let claimed = store.claim_timers(request).await.expect("answered");
                if claimed.is_empty() {
                    return mine;
                }
                for timer in &claimed {
                    let claim = timer.claim.as_ref().expect("it is claimed");
                    assert_eq!(claim.member, member(format!("m{n}")), "by who asked");
                }
                mine.extend(claimed);
            }
        }
    })
    .await;
    let all = claimed.concat();
    let distinct: BTreeSet<&str> = all.iter().map(|timer| timer.id.as_str()).collect();
    assert_eq!((all.len(), distinct.len()), (100, 100), "every timer went to exactly one");
    let tokens: BTreeSet<_> = all.iter().filter_map(Timer::token).map(|token| token.claim).collect();
    assert_eq!(tokens.len(), 100, "no claim is the same twice");
}

async fn claimed_one_is_left_alone(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let before = store.now().await.expect("the time");
    let (timer, token) = claim_one(store, "m", HOUR).await;
    let claim_of = timer.claim.clone().expect("it is claimed");
    assert_eq!((&claim_of.member, timer.attempts), (&member("m"), 1), "it says by whom");
    assert!(claim_of.expires_at >= before.saturating_add(HOUR), "and for how long");
    for by in ["m", "other"] {
        assert_eq!(claim(store, by, HOUR).await, [], "it is nobody else's, nor the same node's once more");
    }
    assert_eq!(timers(store).await, [timer], "nothing changed");
    assert!(complete(store, &token).await, "its claimer completes it");
}

async fn claim_ends_at_the_very_instant(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let (first, _) = claim_one(store, "m", Duration::from_micros(9_999_001)).await;
    let end = first.claim.expect("it is claimed").expires_at;
    let now = store.now().await.expect("the time");
    assert_eq!(end, now.saturating_add(Duration::from_secs(10)), "fractions of a ms round up");
    env.clock().set(Timestamp::from_millis(end.as_millis() - 1).expect("in range"));
    assert_eq!(claim(store, "n", HOUR).await, [], "1 ms before its end the claim holds");
    env.clock().set(end);
    let (second, _) = claim_one(store, "n", HOUR).await;
    assert_eq!(second.attempts, 2, "at the very instant it is due again");
}

async fn expired_claim_is_due_again(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let mut tokens = BTreeSet::new();
    for attempt in 1..=3 {
        let (timer, token) = claim_one(store, "m", env.ttl()).await;
        assert_eq!(timer.attempts, attempt, "every claim counts");
        tokens.insert(token.claim);
        env.pass(env.ttl()).await;
    }
    assert_eq!(tokens.len(), 3, "each claim has a token of its own");
}

async fn old_claim_is_void_once_claimed_again(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let (_, old) = claim_one(store, "m", env.ttl()).await;
    env.pass(env.ttl()).await;
    let (again, new) = claim_one(store, "m", HOUR).await;
    assert!(!complete(store, &old).await, "the old claim completes nothing");
    assert!(!release(store, &old, Duration::ZERO).await, "and gives nothing back");
    assert_eq!(timers(store).await, [again], "nothing changed");
    let elsewhere = TimerToken { id: timer_id("b"), ..new.clone() };
    assert!(!complete(store, &elsewhere).await, "a token is of one timer");
    assert!(complete(store, &new).await, "the new claim completes it");
}

async fn expired_claim_still_completes(env: Env) {
    let store = env.store();
    for id in ["a", "b"] {
        schedule(store, scheduling(id, due_since(1))).await;
    }
    let claimed = claim(store, "m", env.ttl()).await;
    let tokens: Vec<TimerToken> = claimed.iter().filter_map(Timer::token).collect();
    env.pass(env.ttl()).await;
    assert!(complete(store, &tokens[0]).await, "nobody claimed it since: it was acted on");
    assert!(
        release(store, &tokens[1], Duration::ZERO).await,
        "nobody claimed it since: it can be given back"
    );
    assert_eq!(ids(&timers(store).await), ["b"], "the completed one is gone");
    assert_eq!(claim_one(store, "m", HOUR).await.0.attempts, 2, "the other one is due");
}

async fn completed_one_is_gone_for_good(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let (_, token) = claim_one(store, "m", env.ttl()).await;
    assert!(complete(store, &token).await, "it was acted on");
    assert!(!complete(store, &token).await, "only once");
    assert!(!release(store, &token, Duration::ZERO).await, "there is nothing to give back");
    env.pass(env.ttl()).await;
    assert_eq!(claim(store, "m", HOUR).await, [], "it never fires again");
    assert_eq!((timers(store).await, next_due(store).await), (Vec::new(), None), "nothing is left of it");
    assert!(!cancel(store, "a").await, "nor to cancel");
    let anew = scheduled(schedule(store, scheduling("a", due_since(1))).await);
    assert_eq!((anew.attempts, anew.claim), (0, None), "its id can be used anew");
}

async fn released_one_is_due_at_once(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(7))).await;
    let (first, token) = claim_one(store, "m", HOUR).await;
    assert!(release(store, &token, Duration::ZERO).await, "its claimer gives it back");
    assert!(!release(store, &token, Duration::ZERO).await, "only once");
    assert!(!complete(store, &token).await, "what was given back is not its own");
    let stored = timers(store).await;
    assert_eq!(stored, [Timer { claim: None, ..first.clone() }], "all but the claim is as it was");
    let (second, _) = claim_one(store, "n", HOUR).await;
    assert_eq!((second.attempts, second.due_at), (2, first.due_at), "and it is due at once");
}

async fn released_one_can_wait(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(7))).await;
    let (_, token) = claim_one(store, "m", HOUR).await;
    let before = store.now().await.expect("the time");
    assert!(release(store, &token, env.ttl()).await, "its claimer gives it back");
    let due = timers(store).await[0].due_at;
    assert!(due >= before.saturating_add(env.ttl()), "it is due so long after now, by the store's clock");
    assert_eq!(next_due(store).await, Some(due), "that is when to look again");
    assert_eq!(claim(store, "m", HOUR).await, [], "not before");
    env.pass(env.ttl()).await;
    assert_eq!(claim_one(store, "n", HOUR).await.0.attempts, 2, "then it is due again");
}

async fn existing_one_stays(env: Env) {
    let store = env.store();
    let first = scheduled(schedule(store, scheduling("a", due_since(1))).await);
    let other = ScheduleTimer::new(shop(), timer_id("a"), Due::After(HOUR), &"other").expect("valid");
    let outcome = schedule(store, other.clone()).await;
    assert_eq!(outcome, TimerScheduled::Exists(first.clone()), "it says which one is there");
    assert_eq!(timers(store).await, [first], "and that one stays as it is");
    let (claimed, token) = claim_one(store, "m", HOUR).await;
    let outcome = schedule(store, other).await;
    assert_eq!(outcome, TimerScheduled::Exists(claimed), "a claimed one too");
    assert!(complete(store, &token).await, "and its claim holds");
}

async fn replacing_takes_over_and_voids_the_claim(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1)).with_target(order("1"))).await;
    let (_, token) = claim_one(store, "m", HOUR).await;
    let other = ScheduleTimer::new(shop(), timer_id("a"), due_since(2), &"other").expect("valid");
    let replaced = scheduled(schedule(store, other.replacing()).await);
    assert_eq!(
        (replaced.attempts, replaced.claim.clone(), replaced.target.clone()),
        (0, None, None),
        "it is a new one"
    );
    assert_eq!(replaced.body.as_json(), r#""other""#, "with its own body");
    assert_eq!(timers(store).await, [replaced], "in place of the old one");
    assert!(!complete(store, &token).await, "the claim on the old one is void");
    assert!(!release(store, &token, Duration::ZERO).await, "wholly");
    assert_eq!(claim_one(store, "n", HOUR).await.0.attempts, 1, "the new one can be claimed at once");
    let new = scheduled(schedule(store, scheduling("b", Due::After(HOUR)).replacing()).await);
    assert_eq!(new.id, timer_id("b"), "where there is nothing to replace it is scheduled");
}

async fn one_of_many_schedulers_wins(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..10 {
        let outcomes = race(16, |n| {
            let store = Arc::clone(&stores[n % 2]);
            let timer = ScheduleTimer::new(shop(), timer_id(round.to_string()), due_since(1), &n);
            async move { schedule(&store, timer.expect("a valid timer")).await }
        })
        .await;
        let won = outcomes.iter().filter(|outcome| matches!(outcome, TimerScheduled::Scheduled(_))).count();
        assert_eq!(won, 1, "exactly one schedules it");
        let stored = timers(&stores[0]).await.pop().expect("it is there");
        for outcome in outcomes {
            let (TimerScheduled::Scheduled(timer) | TimerScheduled::Exists(timer)) = outcome;
            assert_eq!(timer, stored, "the others are told which one is there");
        }
    }
}

async fn cancel_says_whether_it_was_there(env: Env) {
    let store = env.store();
    assert!(!cancel(store, "a").await, "there is none");
    for id in ["a", "b"] {
        schedule(store, scheduling(id, due_since(1))).await;
    }
    assert!(cancel(store, "a").await, "it was still there");
    assert!(!cancel(store, "a").await, "it is gone");
    assert_eq!(ids(&claim(store, "m", HOUR).await), ["b"], "it never fires; the other one does");
    scheduled(schedule(store, scheduling("a", Due::After(HOUR))).await);
    assert_eq!(ids(&timers(store).await), ["a", "b"], "its id can be used anew");
}

async fn cancelled_while_claimed(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let (_, token) = claim_one(store, "m", HOUR).await;
    assert!(cancel(store, "a").await, "it was still there");
    assert!(!complete(store, &token).await, "its claimer is told");
    assert!(!release(store, &token, Duration::ZERO).await, "and cannot bring it back");
    scheduled(schedule(store, scheduling("a", due_since(1))).await);
    assert!(!complete(store, &token).await, "nor complete a new one of the same id");
    assert_eq!(ids(&timers(store).await), ["a"], "which is there");
}

async fn claims_have_bounds(env: Env) {
    let store = env.store();
    schedule(store, scheduling("a", due_since(1))).await;
    let request = ClaimTimers::new(shop(), member("m"), HOUR);
    let wrong = [
        request.clone().with_limit(0),
        request.clone().with_limit(MAX_CLAIM + 1),
        ClaimTimers { ttl: Duration::ZERO, ..request.clone() },
        ClaimTimers { ttl: MAX_TTL + Duration::from_nanos(1), ..request.clone() },
    ];
    for claim in wrong {
        let error = store.claim_timers(claim).await.expect_err("out of bounds");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was claimed");
    }
    let longest = ClaimTimers { ttl: MAX_TTL, ..request }.with_limit(MAX_CLAIM);
    let claimed = store.claim_timers(longest).await.expect("the outermost are fine");
    assert_eq!((claimed.len(), claimed[0].attempts), (1, 1), "and no refused claim counted");
}

async fn next_due_is_the_earliest_to_be_claimed(env: Env) {
    let store = env.store();
    assert_eq!(next_due(store).await, None, "there is none");
    let late = scheduled(schedule(store, scheduling("late", Due::After(3 * HOUR))).await);
    assert_eq!(next_due(store).await, Some(late.due_at), "the only one");
    let soon = scheduled(schedule(store, scheduling("soon", due_since(9))).await);
    schedule(store, scheduling("later", Due::After(4 * HOUR))).await;
    assert_eq!(next_due(store).await, Some(soon.due_at), "the earliest, also one that is past");
    let (claimed, token) = claim_one(store, "m", HOUR).await;
    let end = claimed.claim.expect("it is claimed").expires_at;
    assert_eq!(next_due(store).await, Some(end), "a claimed one counts from when its claim ends");
    assert!(complete(store, &token).await, "acted on");
    assert_eq!(next_due(store).await, Some(late.due_at), "the next one");
    assert!(cancel(store, "late").await && cancel(store, "later").await, "both were there");
    assert_eq!(next_due(store).await, None, "there is none");
    // A long claim on one hides no other that is due earlier.
    schedule(store, scheduling("first", due_since(1))).await;
    claim_one(store, "m", 2 * HOUR).await;
    let second = scheduled(schedule(store, scheduling("second", Due::After(HOUR))).await);
    assert_eq!(next_due(store).await, Some(second.due_at), "it comes before the claim ends");
}

async fn contexts_and_ids_are_separate(env: Env) {
    let store = env.store();
    let bank = ContextName::new("bank").expect("a valid name");
    let shop_upper = ContextName::new("Shop").expect("a valid name");
    for context in [&bank, &shop_upper] {
        let timer = ScheduleTimer { context: context.clone(), ..scheduling("a", due_since(1)) };
        scheduled(schedule(store, timer).await);
    }
    assert_eq!((next_due(store).await, timers(store).await), (None, Vec::new()), "none of them is in shop");
    assert_eq!(claim(store, "m", HOUR).await, [], "nor claimed there");
    assert!(!cancel(store, "a").await, "nor cancelled there");
    let ids_here = ["A", "a", "a ", "e\u{301}", "é"];
    for id in ids_here {
        scheduled(schedule(store, scheduling(id, due_since(1))).await);
    }
    assert_eq!(ids(&claim(store, "m", HOUR).await), ids_here, "different bytes are different timers");
    let claim = ClaimTimers::new(bank.clone(), member("m"), HOUR);
    let claimed = store.claim_timers(claim).await.expect("answered");
    let token = claimed[0].token().expect("it is claimed");
    let elsewhere = TimerToken { context: shop_upper, ..token.clone() };
    assert!(!complete(store, &elsewhere).await, "a token is of one context");
    assert!(complete(store, &token).await, "its own");
}

async fn list_pages_by_id(env: Env) {
    let store = env.store();
    let target = AggregateId::new("bank", "account", "7").expect("a valid id");
    for (n, id) in ["b", "10", "2", "é", "B", "a"].into_iter().enumerate() {
        let seconds = 100 - i64::try_from(n).expect("small");
        schedule(store, scheduling(id, due_since(seconds)).with_target(target.clone())).await;
    }
    claim(store, "m", HOUR).await;
    for limit in [1, 4, 100] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.timers(&shop(), after.as_ref(), limit).await.expect("listed");
            assert!(page.len() <= limit, "at most as many as asked for");
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            seen.extend(page);
        }
        assert_eq!(ids(&seen), ["10", "2", "B", "a", "b", "é"], "each once, by id, claimed or not");
        assert!(seen.iter().all(|timer| timer.target.as_ref() == Some(&target)), "whole");
    }
}

async fn survives_reopen(mut env: Env) {
    schedule(env.store(), scheduling("due", due_since(1)).with_target(order("1"))).await;
    claim(env.store(), "m", HOUR).await;
    schedule(env.store(), scheduling("future", Due::After(env.ttl()))).await;
    let before = timers(env.store()).await;
    env.reopen().await;
    assert_eq!(timers(env.store()).await, before, "all as it was");
    assert_eq!(claim(env.store(), "n", HOUR).await, [], "the claim holds");
    env.pass(env.ttl()).await;
    env.reopen().await;
    assert_eq!(
        ids(&claim(env.store(), "n", HOUR).await),
        ["future"],
        "what came due while it was closed fires"
    );
    let token = before[0].token().expect("it is claimed");
    assert!(complete(env.store(), &token).await, "the claimer goes on with its token");
}
