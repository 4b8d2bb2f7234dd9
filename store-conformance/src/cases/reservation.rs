//! Reservations (R1 to R4).

use std::{sync::Arc, time::Duration};

use wow_store_api::{
    ErrorKind, EventStore, ListReservations, MAX_TTL, Outcome, OwnerId, Reservation, ReservationKey,
    ReservationOp, ReservationOutcome, ReservationScope, Timestamp,
};

use super::support::{HOUR, race};
use crate::{case::topic, env::Env};

topic! { "reservation":
    reserved_key_is_held [R1],
    one_of_many_owners_wins_a_new_key [R1],
    one_of_many_owners_wins_an_expired_key [R1, R2],
    another_owner_is_told_who_holds_it [R1],
    same_owner_reserves_again [R1],
    reserving_again_never_shortens [R1, R2],
    without_an_expiry_it_is_confirmed [R2],
    key_is_free_at_the_very_instant [R2] sets_clock,
    expired_key_is_free_at_once [R2],
    confirmed_key_never_expires [R2],
    confirming_needs_the_owner [R3],
    released_key_is_free_at_once [R2],
    releasing_needs_the_owner [R3],
    owner_of_an_expired_key_is_told [R3],
    late_release_does_not_free_the_new_owners_key [R3],
    swap_moves_the_reservation [R4],
    swap_to_a_taken_key_changes_nothing [R4, R1],
    swap_needs_the_owner [R4, R3],
    swap_for_itself_changes_nothing [R4],
    swap_to_an_own_key_keeps_the_later_expiry [R4],
    swap_races_a_reserve [R4, R1],
    many_swaps_to_one_key_have_one_winner [R4, R1],
    opposite_swaps_are_both_refused [R4],
    scopes_are_separate [R1],
    keys_and_owners_are_compared_by_bytes [R1, NAMES],
    expiry_has_bounds [R2],
    fractions_of_a_millisecond_round_up [R2] sets_clock,
    list_pages_by_scope_and_key [R1],
    list_shows_what_is_held_now [R2],
    survives_reopen [R1, R2],
}

pub(crate) fn scope() -> ReservationScope {
    ReservationScope::new("user.email").expect("a valid scope")
}

pub(crate) fn key(key: impl AsRef<str>) -> ReservationKey {
    ReservationKey::new(key).expect("a valid key")
}

pub(crate) fn owner(owner: impl AsRef<str>) -> OwnerId {
    OwnerId::new(owner).expect("a valid owner")
}

pub(crate) fn reserving(of: &str, by: &str, expires_in: impl Into<Option<Duration>>) -> ReservationOp {
    ReservationOp::Reserve { scope: scope(), key: key(of), owner: owner(by), expires_in: expires_in.into() }
}

pub(crate) fn confirming(of: &str, by: &str) -> ReservationOp {
    ReservationOp::Confirm { scope: scope(), key: key(of), owner: owner(by) }
}

pub(crate) fn releasing(of: &str, by: &str) -> ReservationOp {
    ReservationOp::Release { scope: scope(), key: key(of), owner: owner(by) }
}

pub(crate) fn swapping(from: &str, to: &str, by: &str) -> ReservationOp {
    ReservationOp::Swap { scope: scope(), from: key(from), to: key(to), owner: owner(by) }
}

async fn make(store: &Arc<dyn EventStore>, op: ReservationOp) -> ReservationOutcome {
    store.reserve(op).await.expect("the change is answered")
}

/// Makes a change that must succeed with a key held.
#[track_caller]
fn held(outcome: ReservationOutcome) -> Reservation {
    match outcome {
        ReservationOutcome::Held(reservation) => reservation,
        other => panic!("it should be held: {other:?}"),
    }
}

pub(crate) async fn reservation(store: &Arc<dyn EventStore>, of: &str) -> Option<Reservation> {
    store.reservation(&scope(), &key(of)).await.expect("the reservation is read")
}

/// Who holds a key.
pub(crate) async fn holder(store: &Arc<dyn EventStore>, of: &str) -> Option<String> {
    reservation(store, of).await.map(|reservation| reservation.owner.to_string())
}

async fn all(store: &Arc<dyn EventStore>) -> Vec<Reservation> {
    store.reservations(ListReservations::default()).await.expect("listed")
}

async fn reserved_key_is_held(env: Env) {
    let store = env.store();
    assert_eq!(reservation(store, "k").await, None, "nobody holds it");
    let before = store.now().await.expect("the time");
    let taken = held(make(store, reserving("k", "a", HOUR)).await);
    let after = store.now().await.expect("the time");
    assert_eq!((&taken.scope, &taken.key, &taken.owner), (&scope(), &key("k"), &owner("a")), "as asked");
    assert!((before..=after).contains(&taken.reserved_at), "since now, by the store's clock");
    assert_eq!(taken.expires_at, Some(taken.reserved_at.saturating_add(HOUR)), "for an hour");
    assert_eq!(reservation(store, "k").await, Some(taken), "what is stored is what was answered");
}

/// Sixteen owners reserve one key at one moment; exactly one gets it, and all are told who.
async fn assert_one_wins(stores: &[Arc<dyn EventStore>; 2], of: &str) {
    let outcomes = race(16, |n| {
        let (store, of) = (Arc::clone(&stores[n % 2]), of.to_owned());
        async move { make(&store, reserving(&of, &format!("o{n}"), HOUR)).await }
    })
    .await;
    let winner = reservation(&stores[0], of).await.expect("somebody holds it");
    let won = outcomes.iter().filter(|outcome| matches!(outcome, ReservationOutcome::Held(_))).count();
    assert_eq!(won, 1, "exactly one owner gets it");
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let expected = match winner.owner == owner(format!("o{n}")) {
            true => ReservationOutcome::Held(winner.clone()),
            false => ReservationOutcome::Taken(winner.clone()),
        };
        assert_eq!(outcome, expected, "everybody is told who holds it");
    }
}

async fn one_of_many_owners_wins_a_new_key(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..10 {
        assert_one_wins(&stores, &format!("k{round}")).await;
    }
}

async fn one_of_many_owners_wins_an_expired_key(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..10 {
        make(&stores[0], reserving(&format!("k{round}"), "old", env.ttl())).await;
    }
    env.pass(env.ttl()).await;
    for round in 0..10 {
        assert_one_wins(&stores, &format!("k{round}")).await;
    }
}

async fn another_owner_is_told_who_holds_it(env: Env) {
    let store = env.store();
    let a = held(make(store, reserving("k", "a", HOUR)).await);
    for expires_in in [Some(2 * HOUR), None] {
        let outcome = make(store, reserving("k", "b", expires_in)).await;
        assert_eq!(outcome, ReservationOutcome::Taken(a.clone()), "a key has at most one owner");
    }
    assert_eq!(reservation(store, "k").await, Some(a), "nothing changed");
}

async fn same_owner_reserves_again(env: Env) {
    let store = env.store();
    let first = held(make(store, reserving("k", "a", HOUR)).await);
    let again = held(make(store, reserving("k", "a", 2 * HOUR)).await);
    assert!(again.expires_at > first.expires_at, "the expiry moves later");
    assert_eq!(again.reserved_at, first.reserved_at, "it holds it since the first time");
    let confirmed = held(make(store, reserving("k", "a", None)).await);
    assert_eq!(confirmed, Reservation { expires_at: None, ..again }, "no expiry is the latest of all");
    let still = held(make(store, reserving("k", "a", HOUR)).await);
    assert_eq!(still, confirmed, "a confirmed one stays confirmed");
    assert_eq!(reservation(store, "k").await, Some(confirmed), "what is stored is what was answered");
}

async fn reserving_again_never_shortens(env: Env) {
    let store = env.store();
    let first = held(make(store, reserving("k", "a", 3 * HOUR)).await);
    let again = held(make(store, reserving("k", "a", HOUR)).await);
    assert_eq!(again, first, "an earlier expiry changes nothing");
    assert_eq!(reservation(store, "k").await, Some(first), "nothing changed");
}

async fn without_an_expiry_it_is_confirmed(env: Env) {
    let store = env.store();
    let confirmed = held(make(store, reserving("k", "a", None)).await);
    assert_eq!(confirmed.expires_at, None, "at once and for ever");
    assert_eq!(reservation(store, "k").await, Some(confirmed), "stored so");
}

async fn key_is_free_at_the_very_instant(env: Env) {
    let store = env.store();
    let a = held(make(store, reserving("k", "a", Duration::from_secs(10))).await);
    let end = a.expires_at.expect("it expires");
    env.clock().set(Timestamp::from_millis(end.as_millis() - 1).expect("in range"));
    assert_eq!(reservation(store, "k").await, Some(a.clone()), "1 ms before its end it is held");
    let outcome = make(store, reserving("k", "b", HOUR)).await;
    assert_eq!(outcome, ReservationOutcome::Taken(a), "and taken");
    env.clock().set(end);
    assert_eq!(reservation(store, "k").await, None, "at the very instant it is free");
    let outcome = make(store, confirming("k", "a")).await;
    assert_eq!(outcome, ReservationOutcome::NotHeld, "its owner does not hold it any more");
    let b = held(make(store, reserving("k", "b", HOUR)).await);
    assert_eq!((&b.owner, b.reserved_at), (&owner("b"), end), "and the next can have it");
}

async fn expired_key_is_free_at_once(env: Env) {
    let store = env.store();
    let old = held(make(store, reserving("k", "a", env.ttl())).await);
    held(make(store, reserving("own", "a", env.ttl())).await);
    env.pass(env.ttl()).await;
    assert_eq!(reservation(store, "k").await, None, "nothing has to sweep it up first");
    let new = held(make(store, reserving("k", "b", HOUR)).await);
    assert!(new.reserved_at >= old.expires_at.expect("it expired"), "the next holds it since now");
    // The same owner takes it anew as well.
    let anew = held(make(store, reserving("own", "a", HOUR)).await);
    assert!(anew.reserved_at > old.reserved_at, "it is not the old reservation that goes on");
    assert_eq!(all(store).await, [new, anew], "what is stored is what was answered");
}

async fn confirmed_key_never_expires(env: Env) {
    let store = env.store();
    let taken = held(make(store, reserving("k", "a", env.ttl())).await);
    let confirmed = held(make(store, confirming("k", "a")).await);
    assert_eq!(confirmed, Reservation { expires_at: None, ..taken }, "permanent");
    env.pass(env.ttl()).await;
    assert_eq!(reservation(store, "k").await, Some(confirmed.clone()), "past its expiry too");
    let outcome = make(store, reserving("k", "b", HOUR)).await;
    assert_eq!(outcome, ReservationOutcome::Taken(confirmed.clone()), "and taken for the others");
    assert_eq!(held(make(store, confirming("k", "a")).await), confirmed, "confirming twice is fine");
}

async fn confirming_needs_the_owner(env: Env) {
    let store = env.store();
    assert_eq!(make(store, confirming("k", "a")).await, ReservationOutcome::NotHeld, "it was never reserved");
    assert_eq!(reservation(store, "k").await, None, "confirming reserves nothing");
    let a = held(make(store, reserving("k", "a", HOUR)).await);
    let outcome = make(store, confirming("k", "b")).await;
    assert_eq!(outcome, ReservationOutcome::Taken(a.clone()), "another owner is told who holds it");
    assert_eq!(reservation(store, "k").await, Some(a), "nothing changed");
}

async fn released_key_is_free_at_once(env: Env) {
    let store = env.store();
    for expires_in in [Some(HOUR), None] {
        held(make(store, reserving("k", "a", expires_in)).await);
        assert_eq!(make(store, releasing("k", "a")).await, ReservationOutcome::Released, "given back");
        assert_eq!(reservation(store, "k").await, None, "nobody holds it");
        let b = held(make(store, reserving("k", "b", HOUR)).await);
        assert_eq!(b.owner, owner("b"), "the next can have it");
        assert_eq!(make(store, releasing("k", "b")).await, ReservationOutcome::Released, "given back");
        assert_eq!(make(store, releasing("k", "b")).await, ReservationOutcome::NotHeld, "only once");
    }
}

async fn releasing_needs_the_owner(env: Env) {
    let store = env.store();
    assert_eq!(make(store, releasing("k", "a")).await, ReservationOutcome::NotHeld, "it was never reserved");
    for (of, expires_in) in [("k", Some(HOUR)), ("l", None)] {
        let a = held(make(store, reserving(of, "a", expires_in)).await);
        let outcome = make(store, releasing(of, "b")).await;
        assert_eq!(outcome, ReservationOutcome::Taken(a.clone()), "another owner is told who holds it");
        assert_eq!(reservation(store, of).await, Some(a), "nothing changed");
    }
}

async fn owner_of_an_expired_key_is_told(env: Env) {
    let store = env.store();
    for of in ["free", "taken"] {
        held(make(store, reserving(of, "a", env.ttl())).await);
    }
    env.pass(env.ttl()).await;
    let b = held(make(store, reserving("taken", "b", HOUR)).await);
    for op in [confirming("free", "a"), releasing("free", "a"), swapping("free", "other", "a")] {
        assert_eq!(make(store, op).await, ReservationOutcome::NotHeld, "it expired, and nobody took it");
    }
    for op in [confirming("taken", "a"), releasing("taken", "a"), swapping("taken", "other", "a")] {
        let outcome = make(store, op).await;
        assert_eq!(outcome, ReservationOutcome::Taken(b.clone()), "it expired, and this one took it");
    }
    assert_eq!(all(store).await, [b], "nothing changed");
}

async fn late_release_does_not_free_the_new_owners_key(env: Env) {
    let store = env.store();
    held(make(store, reserving("k", "a", HOUR)).await);
    assert_eq!(make(store, releasing("k", "a")).await, ReservationOutcome::Released, "given back");
    let b = held(make(store, reserving("k", "b", HOUR)).await);
    // The reply was lost, and the old owner releases once more.
    assert_eq!(make(store, releasing("k", "a")).await, ReservationOutcome::Taken(b.clone()), "too late");
    assert_eq!(reservation(store, "k").await, Some(b), "the new owner keeps it");
}

async fn swap_moves_the_reservation(env: Env) {
    let store = env.store();
    for (from, to, expires_in) in [("k1", "k2", Some(HOUR)), ("l1", "l2", None)] {
        let old = held(make(store, reserving(from, "a", expires_in)).await);
        let new = held(make(store, swapping(from, to, "a")).await);
        assert_eq!((&new.key, &new.owner), (&key(to), &owner("a")), "it holds the other key");
        assert_eq!(new.expires_at, old.expires_at, "with the expiry of the one it gave back");
        assert!(new.reserved_at >= old.reserved_at, "since now");
        assert_eq!(reservation(store, to).await, Some(new), "what is stored is what was answered");
        assert_eq!(reservation(store, from).await, None, "the old key is free");
        held(make(store, reserving(from, "b", HOUR)).await);
    }
}

async fn swap_to_a_taken_key_changes_nothing(env: Env) {
    let store = env.store();
    let a = held(make(store, reserving("k1", "a", HOUR)).await);
    let b = held(make(store, reserving("k2", "b", HOUR)).await);
    let outcome = make(store, swapping("k1", "k2", "a")).await;
    assert_eq!(outcome, ReservationOutcome::Taken(b.clone()), "it says who holds it");
    assert_eq!(all(store).await, [a, b], "it still holds what it held");
}

async fn swap_needs_the_owner(env: Env) {
    let store = env.store();
    assert_eq!(
        make(store, swapping("k1", "k2", "a")).await,
        ReservationOutcome::NotHeld,
        "nothing to give back"
    );
    assert_eq!(all(store).await, [], "and nothing was taken");
    let b = held(make(store, reserving("k1", "b", HOUR)).await);
    let outcome = make(store, swapping("k1", "k2", "a")).await;
    assert_eq!(outcome, ReservationOutcome::Taken(b.clone()), "it is another's to give back");
    assert_eq!(
        make(store, swapping("k1", "k1", "a")).await,
        ReservationOutcome::Taken(b.clone()),
        "for itself too"
    );
    assert_eq!(all(store).await, [b], "nothing changed");
}

async fn swap_for_itself_changes_nothing(env: Env) {
    let store = env.store();
    for (of, expires_in) in [("k", Some(HOUR)), ("l", None)] {
        let a = held(make(store, reserving(of, "a", expires_in)).await);
        assert_eq!(held(make(store, swapping(of, of, "a")).await), a, "it holds what it held");
        assert_eq!(reservation(store, of).await, Some(a), "nothing changed");
    }
    assert_eq!(
        make(store, swapping("m", "m", "a")).await,
        ReservationOutcome::NotHeld,
        "it holds no such key"
    );
}

async fn swap_to_an_own_key_keeps_the_later_expiry(env: Env) {
    let store = env.store();
    let long = Some(2 * HOUR);
    for (n, (from, to)) in [(Some(HOUR), long), (long, Some(HOUR)), (None, Some(HOUR)), (Some(HOUR), None)]
        .into_iter()
        .enumerate()
    {
        let (from_key, to_key) = (format!("from{n}"), format!("to{n}"));
        let given = held(make(store, reserving(&from_key, "a", from)).await);
        let owned = held(make(store, reserving(&to_key, "a", to)).await);
        let kept = held(make(store, swapping(&from_key, &to_key, "a")).await);
        let later = given.expires_at.zip(owned.expires_at).map(|(given, owned)| given.max(owned));
        assert_eq!(kept, Reservation { expires_at: later, ..owned }, "the later of both expiries stays");
        assert_eq!(reservation(store, &from_key).await, None, "the other key is free");
    }
}

async fn swap_races_a_reserve(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..20 {
        let (from, to) = (format!("from{round}"), format!("to{round}"));
        held(make(&stores[0], reserving(&from, "a", HOUR)).await);
        let outcomes = race(2, |n| {
            let (store, from, to) = (Arc::clone(&stores[n]), from.clone(), to.clone());
            let op = if n == 0 { swapping(&from, &to, "a") } else { reserving(&to, "b", HOUR) };
            async move { make(&store, op).await }
        })
        .await;
        let holders = (holder(&stores[0], &from).await, holder(&stores[0], &to).await);
        match &outcomes[0] {
            ReservationOutcome::Held(_) => {
                assert_eq!(holders, (None, Some("a".to_owned())), "the swap won: it moved");
                assert!(matches!(outcomes[1], ReservationOutcome::Taken(_)), "the reserve was told");
            }
            ReservationOutcome::Taken(by) => {
                assert_eq!(by.owner, owner("b"), "the reserve won");
                let expected = (Some("a".to_owned()), Some("b".to_owned()));
                assert_eq!(holders, expected, "and the swap kept what it had");
                assert!(matches!(outcomes[1], ReservationOutcome::Held(_)), "each has one");
            }
            other => panic!("it holds the key: {other:?}"),
        }
    }
}

async fn many_swaps_to_one_key_have_one_winner(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for n in 0..16 {
        held(make(&stores[0], reserving(&format!("k{n:02}"), &format!("o{n}"), HOUR)).await);
    }
    let outcomes = race(16, |n| {
        let store = Arc::clone(&stores[n % 2]);
        async move { make(&store, swapping(&format!("k{n:02}"), "target", &format!("o{n}"))).await }
    })
    .await;
    let winner = reservation(&stores[0], "target").await.expect("somebody got it");
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let kept = holder(&stores[0], &format!("k{n:02}")).await;
        if winner.owner == owner(format!("o{n}")) {
            assert_eq!((held(outcome), kept), (winner.clone(), None), "the winner gave its key back");
        } else {
            assert_eq!(outcome, ReservationOutcome::Taken(winner.clone()), "the others are told who won");
            assert_eq!(kept, Some(format!("o{n}")), "and keep what they had");
        }
    }
}

async fn opposite_swaps_are_both_refused(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    let a = held(make(&stores[0], reserving("k1", "a", HOUR)).await);
    let b = held(make(&stores[0], reserving("k2", "b", HOUR)).await);
    for _ in 0..20 {
        let outcomes = race(2, |n| {
            let store = Arc::clone(&stores[n]);
            let op = if n == 0 { swapping("k1", "k2", "a") } else { swapping("k2", "k1", "b") };
            async move { make(&store, op).await }
        })
        .await;
        let expected = [ReservationOutcome::Taken(b.clone()), ReservationOutcome::Taken(a.clone())];
        assert_eq!(outcomes, expected, "neither waits for the other for ever, neither wins");
    }
    assert_eq!(all(&stores[0]).await, [a, b], "nothing changed");
}

async fn scopes_are_separate(env: Env) {
    let store = env.store();
    let a = held(make(store, reserving("k", "a", HOUR)).await);
    let other_scope = ReservationScope::new("user.phone").expect("a valid scope");
    let op = ReservationOp::Reserve {
        scope: other_scope.clone(),
        key: key("k"),
        owner: owner("b"),
        expires_in: None,
    };
    let b = held(make(store, op).await);
    let release = ReservationOp::Release { scope: other_scope.clone(), key: key("k"), owner: owner("a") };
    assert_eq!(make(store, release).await, ReservationOutcome::Taken(b.clone()), "another's in that scope");
    assert_eq!(reservation(store, "k").await, Some(a), "each scope has its own owner of a key");
    let found = store.reservation(&other_scope, &key("k")).await.expect("read");
    assert_eq!(found, Some(b), "and finds its own");
}

async fn keys_and_owners_are_compared_by_bytes(env: Env) {
    let store = env.store();
    let long = "x".repeat(255);
    let keys = [
        "ada@example.org",
        "Ada@example.org",
        "ada@example.org ",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "%",
        "a\u{200b}b",
        "ab",
        "$where",
        "a.b",
        &long,
        &long[..254],
    ];
    for (n, of) in keys.iter().enumerate() {
        let outcome = make(store, reserving(of, &format!("o{n}"), HOUR)).await;
        assert_eq!(held(outcome).key, key(of), "different bytes are different keys: {of:?}");
    }
    for (n, of) in keys.iter().enumerate() {
        assert_eq!(holder(store, of).await, Some(format!("o{n}")), "each has its own owner: {of:?}");
    }
    for (right, wrong) in [("A", "a"), ("é", "e\u{301}"), ("b", "b ")] {
        held(make(store, reserving("owned", right, HOUR)).await);
        let outcome = make(store, releasing("owned", wrong)).await;
        assert!(matches!(outcome, ReservationOutcome::Taken(_)), "different bytes are different owners");
        make(store, releasing("owned", right)).await;
    }
}

async fn expiry_has_bounds(env: Env) {
    let store = env.store();
    for expires_in in [Duration::ZERO, MAX_TTL + Duration::from_nanos(1), Duration::MAX] {
        let error = store.reserve(reserving("k", "a", expires_in)).await.expect_err("out of bounds");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was reserved");
    }
    assert_eq!(all(store).await, [], "refused ones left nothing behind");
    let longest = held(make(store, reserving("k", "a", MAX_TTL)).await);
    assert_eq!(longest.expires_at, Some(longest.reserved_at.saturating_add(MAX_TTL)), "the longest is fine");
    assert_eq!(all(store).await, [longest], "and stored");
}

async fn fractions_of_a_millisecond_round_up(env: Env) {
    let store = env.store();
    let now = store.now().await.expect("the time");
    for (of, nanos, millis) in [("k", 1, 1), ("l", 1_000_000, 1), ("m", 1_500_000, 2)] {
        let taken = held(make(store, reserving(of, "a", Duration::from_nanos(nanos))).await);
        let expected = now.saturating_add(Duration::from_millis(millis));
        assert_eq!(taken.expires_at, Some(expected), "it does not end early");
        assert_eq!(reservation(store, of).await, Some(taken), "and is stored so");
    }
}

async fn list_pages_by_scope_and_key(env: Env) {
    let store = env.store();
    let mut expected = Vec::new();
    for scope in ["b", "a", "B", "é"] {
        for of in ["2", "10", "z", "Z", "ä"] {
            let op = ReservationOp::Reserve {
                scope: ReservationScope::new(scope).expect("a valid scope"),
                key: key(of),
                owner: owner("o"),
                expires_in: None,
            };
            expected.push(held(make(store, op).await));
        }
    }
    expected.sort_by(|a, b| (&a.scope, &a.key).cmp(&(&b.scope, &b.key)));
    for (scope, limit) in [(None, 1), (None, 7), (None, 1_000), (Some("B"), 2), (Some("none"), 2)] {
        let scope = scope.map(|scope| ReservationScope::new(scope).expect("a valid scope"));
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let list = ListReservations { scope: scope.clone(), after: after.clone(), limit };
            let page = store.reservations(list).await.expect("listed");
            assert!(page.len() <= limit, "at most as many as asked for");
            let Some(last) = page.last() else { break };
            after = Some((last.scope.clone(), last.key.clone()));
            seen.extend(page);
        }
        let of_scope = |it: &&Reservation| scope.as_ref().is_none_or(|scope| it.scope == *scope);
        let expected: Vec<Reservation> = expected.iter().filter(of_scope).cloned().collect();
        assert_eq!(seen, expected, "each once, by scope and key, in pages of {limit}");
    }
}

async fn list_shows_what_is_held_now(env: Env) {
    let store = env.store();
    let confirmed = held(make(store, reserving("a", "o", None)).await);
    held(make(store, reserving("b", "o", env.ttl())).await);
    let long = held(make(store, reserving("c", "o", HOUR)).await);
    held(make(store, reserving("d", "o", HOUR)).await);
    make(store, releasing("d", "o")).await;
    env.pass(env.ttl()).await;
    assert_eq!(all(store).await, [confirmed, long.clone()], "neither expired nor released ones");
    // An expired one in between takes no room in a page.
    let list = ListReservations { after: Some((scope(), key("a"))), limit: 1, ..ListReservations::default() };
    assert_eq!(store.reservations(list).await.expect("listed"), [long], "a full page of what is held");
}

async fn survives_reopen(mut env: Env) {
    held(make(env.store(), reserving("k", "a", HOUR)).await);
    held(make(env.store(), reserving("l", "a", None)).await);
    let before = all(env.store()).await;
    env.reopen().await;
    assert_eq!(all(env.store()).await, before, "all as it was");
    let outcome = make(env.store(), reserving("k", "b", HOUR)).await;
    assert_eq!(outcome, ReservationOutcome::Taken(before[0].clone()), "and still taken");
}
