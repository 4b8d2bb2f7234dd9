//! Leases (E1, E2).

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use wow_store_api::{
    AcquireLease, ContextName, Epoch, ErrorKind, EventStore, Lease, LeaseAcquired, LeaseRenewed, LeaseToken,
    MAX_TTL, MemberId, Outcome, PartitionId, SubscriptionName, Timestamp,
};

use super::support::{HOUR, member, partition, race, subscription};
use crate::{
    case::topic,
    env::{Env, shop},
};

topic! { "lease":
    one_of_many_members_wins [E1, E2],
    every_partition_gets_one_owner [E1],
    asking_again_is_held_for_the_owner_too [E1],
    lease_is_over_at_the_very_instant [E1] sets_clock,
    renewal_counts_from_now [E1] sets_clock,
    renewal_at_the_very_instant_is_lost [E1] sets_clock,
    expired_lease_is_never_revived [E1, E2],
    released_lease_is_not_renewed [E1],
    taken_over_lease_is_not_renewed [E1],
    renewals_are_answered_in_order [E1],
    renewal_needs_the_very_token [E1],
    released_lease_is_free_at_once [E1, E2],
    only_the_owner_releases [E1],
    late_release_does_not_free_the_new_owners_lease [E1],
    expired_lease_can_be_given_back_once [E1],
    epoch_rises_with_every_owner [E2],
    epoch_survives_reopen [E2],
    epochs_of_leases_are_separate [E2],
    owners_never_overlap_under_load [E1, E2],
    leases_are_listed_by_partition [E1],
    lease_survives_reopen [E1],
    time_to_live_has_bounds [E1],
    fractions_of_a_millisecond_round_up [E1] sets_clock,
}

/// The group of these cases.
pub(crate) fn group() -> SubscriptionName {
    subscription("mailer")
}

/// Asks for a lease of the group `mailer`.
pub(crate) async fn ask(
    store: &Arc<dyn EventStore>,
    partition: &PartitionId,
    member: &MemberId,
    ttl: Duration,
) -> LeaseAcquired {
    let request = AcquireLease::new(group(), partition.clone(), member.clone(), ttl);
    store.acquire_lease(request).await.expect("the request is answered")
}

/// Acquires a lease that is free.
pub(crate) async fn acquire(
    store: &Arc<dyn EventStore>,
    partition: &PartitionId,
    member: &MemberId,
    ttl: Duration,
) -> Lease {
    match ask(store, partition, member, ttl).await {
        LeaseAcquired::Acquired(lease) => lease,
        LeaseAcquired::Held(lease) => panic!("the lease is free, but held: {lease:?}"),
    }
}

async fn renew(store: &Arc<dyn EventStore>, token: &LeaseToken, ttl: Duration) -> LeaseRenewed {
    let answers =
        store.renew_leases(std::slice::from_ref(token), ttl).await.expect("the renewal is answered");
    assert_eq!(answers.len(), 1, "one answer per token");
    answers[0]
}

async fn release(store: &Arc<dyn EventStore>, token: &LeaseToken) -> bool {
    store.release_lease(token).await.expect("the release is answered")
}

async fn lease(store: &Arc<dyn EventStore>, partition: &PartitionId) -> Option<Lease> {
    let leases = store.leases(&group(), partition.context()).await.expect("leases are listed");
    leases.into_iter().find(|lease| lease.partition == *partition)
}

fn later(instant: Timestamp, millis: i64) -> Timestamp {
    Timestamp::from_millis(instant.as_millis() + millis).expect("an instant in range")
}

async fn one_of_many_members_wins(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    for round in 0..10 {
        let answers = race(16, |n| {
            let store = Arc::clone(&stores[n % 2]);
            async move { ask(&store, &partition(round), &member(format!("m{n}")), HOUR).await }
        })
        .await;
        let won: Vec<&Lease> = answers
            .iter()
            .filter_map(|answer| match answer {
                LeaseAcquired::Acquired(lease) => Some(lease),
                LeaseAcquired::Held(_) => None,
            })
            .collect();
        assert_eq!(won.len(), 1, "exactly one member acquires it");
        assert_eq!(won[0].epoch, 1, "the epoch rises once, not with every loser");
        for answer in &answers {
            let (LeaseAcquired::Acquired(lease) | LeaseAcquired::Held(lease)) = answer;
            assert_eq!(lease, won[0], "the losers are told who holds it");
        }
    }
}

async fn every_partition_gets_one_owner(env: Env) {
    let store = Arc::clone(env.store());
    let won = race(4, |n| {
        let store = Arc::clone(&store);
        async move {
            let mut won = Vec::new();
            for step in 0..16 {
                // Each member starts elsewhere, so that they meet all over.
                let index = (step + u32::try_from(n).unwrap() * 4) % 16;
                if let LeaseAcquired::Acquired(lease) =
                    ask(&store, &partition(index), &member(format!("m{n}")), HOUR).await
                {
                    won.push(lease);
                }
            }
            won
        }
    })
    .await;
    let mut won = won.concat();
    won.sort_by_key(|lease| lease.partition.index());
    let indexes: Vec<u32> = won.iter().map(|lease| lease.partition.index()).collect();
    assert_eq!(indexes, (0..16).collect::<Vec<_>>(), "every partition was acquired by exactly one member");
    let listed = store.leases(&group(), &shop()).await.expect("leases are listed");
    assert_eq!(listed, won, "what is listed is what was acquired");
}

async fn asking_again_is_held_for_the_owner_too(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let first = acquire(store, &partition(0), &a, HOUR).await;
    let again = ask(store, &partition(0), &a, 2 * HOUR).await;
    assert_eq!(again, LeaseAcquired::Held(first.clone()), "the name alone does not prove ownership");
    // Whose reply was lost finds itself, and can go on with the token of what it finds.
    let found = lease(store, &partition(0)).await.expect("the lease is there");
    assert_eq!(found, first, "asking again changed nothing");
    let answer = renew(store, &found.token(&a), HOUR).await;
    assert!(matches!(answer, LeaseRenewed::Renewed(_)), "the token that was read back is the owner's");
}

async fn lease_is_over_at_the_very_instant(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let held = acquire(store, &partition(0), &a, Duration::from_secs(10)).await;
    env.clock().set(later(held.expires_at, -1));
    let answer = ask(store, &partition(0), &b, HOUR).await;
    assert_eq!(answer, LeaseAcquired::Held(held.clone()), "1 ms before its end it is live");
    env.clock().set(held.expires_at);
    let next = acquire(store, &partition(0), &b, HOUR).await;
    assert!(next.epoch > held.epoch, "at the very instant it is over, and free");
}

async fn renewal_counts_from_now(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, Duration::from_secs(10)).await;
    let start = later(held.expires_at, -10_000);
    env.clock().set(later(start, 4_000));
    let answer = renew(store, &held.token(&a), Duration::from_secs(10)).await;
    assert_eq!(answer, LeaseRenewed::Renewed(later(start, 14_000)), "it lasts 10 s from now");
    let answer = renew(store, &held.token(&a), Duration::from_secs(2)).await;
    assert_eq!(answer, LeaseRenewed::Renewed(later(start, 6_000)), "a shorter one is shorter");
    let stored = lease(store, &partition(0)).await.expect("the lease is there");
    assert_eq!(stored, Lease { expires_at: later(start, 6_000), ..held }, "nothing but its end changed");
}

async fn renewal_at_the_very_instant_is_lost(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, Duration::from_secs(10)).await;
    env.clock().set(later(held.expires_at, -1));
    let answer = renew(store, &held.token(&a), Duration::from_secs(10)).await;
    let LeaseRenewed::Renewed(until) = answer else { panic!("1 ms before its end it is renewed") };
    env.clock().set(until);
    let answer = renew(store, &held.token(&a), Duration::from_secs(10)).await;
    assert_eq!(answer, LeaseRenewed::Lost, "at the very instant it is over");
}

async fn expired_lease_is_never_revived(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, env.ttl()).await;
    env.pass(env.ttl()).await;
    for _ in 0..2 {
        let answer = renew(store, &held.token(&a), HOUR).await;
        assert_eq!(answer, LeaseRenewed::Lost, "an expired lease is lost even if nobody took it");
    }
    let stored = lease(store, &partition(0)).await.expect("the lease is kept");
    assert_eq!(stored, held, "the renewal changed nothing");
    let again = acquire(store, &partition(0), &a, HOUR).await;
    assert!(again.epoch > held.epoch, "the same member gets it back with a new epoch only");
    let answer = renew(store, &held.token(&a), HOUR).await;
    assert_eq!(answer, LeaseRenewed::Lost, "the old token stays lost");
}

async fn released_lease_is_not_renewed(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, HOUR).await;
    assert!(release(store, &held.token(&a)).await, "the owner gives it back");
    assert_eq!(renew(store, &held.token(&a), HOUR).await, LeaseRenewed::Lost, "what was given back is lost");
    let stored = lease(store, &partition(0)).await.expect("the lease is kept");
    assert_eq!((stored.owner, stored.epoch), (None, held.epoch), "it stays free, with its epoch");
}

async fn taken_over_lease_is_not_renewed(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let old = acquire(store, &partition(0), &a, env.ttl()).await;
    env.pass(env.ttl()).await;
    let new = acquire(store, &partition(0), &b, HOUR).await;
    assert_eq!(renew(store, &old.token(&a), HOUR).await, LeaseRenewed::Lost, "the old owner is told");
    assert_eq!(lease(store, &partition(0)).await, Some(new.clone()), "the new owner's lease is untouched");
    let answer = renew(store, &new.token(&b), HOUR).await;
    assert!(matches!(answer, LeaseRenewed::Renewed(_)), "the new owner renews");
}

async fn renewals_are_answered_in_order(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let mut tokens = Vec::new();
    for index in 0..8 {
        let owner = if index % 3 == 1 { &b } else { &a };
        tokens.push(acquire(store, &partition(index), owner, HOUR).await.token(&a));
    }
    assert!(release(store, &tokens[5]).await, "the owner gives one back");
    tokens.push(LeaseToken { partition: partition(15), ..tokens[0].clone() });
    tokens.reverse();
    let answers = store.renew_leases(&tokens, 2 * HOUR).await.expect("the renewals are answered");
    let renewed: Vec<bool> =
        answers.iter().map(|answer| matches!(answer, LeaseRenewed::Renewed(_))).collect();
    // Partition 15 was never leased, 7, 4 and 1 are another's, 5 was given back.
    let expected = [false, false, true, false, false, true, true, false, true];
    assert_eq!(renewed, expected, "each token has its own answer, in the order asked");
    for (token, answer) in tokens.iter().zip(&answers) {
        if let LeaseRenewed::Renewed(until) = answer {
            let stored = lease(store, &token.partition).await.expect("the lease is there");
            assert_eq!(stored.expires_at, *until, "the answer is of that very lease");
        }
    }
    let none = store.renew_leases(&[], HOUR).await.expect("no tokens are fine");
    assert_eq!(none, [], "no tokens, no answers");
}

async fn renewal_needs_the_very_token(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let first = acquire(store, &partition(0), &a, HOUR).await;
    release(store, &first.token(&a)).await;
    let held = acquire(store, &partition(0), &a, HOUR).await;
    let token = held.token(&a);
    let wrong = [
        LeaseToken { member: member("b"), ..token.clone() },
        LeaseToken { member: member("A"), ..token.clone() },
        LeaseToken { epoch: first.epoch, ..token.clone() },
        LeaseToken { epoch: held.epoch + 1, ..token.clone() },
        LeaseToken { group: subscription("other"), ..token.clone() },
        LeaseToken { partition: partition(1), ..token.clone() },
    ];
    for token in wrong {
        assert_eq!(renew(store, &token, 2 * HOUR).await, LeaseRenewed::Lost, "not the owner's: {token:?}");
    }
    assert_eq!(lease(store, &partition(0)).await, Some(held), "the owner's lease is untouched");
}

async fn released_lease_is_free_at_once(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let held = acquire(store, &partition(0), &a, HOUR).await;
    assert!(release(store, &held.token(&a)).await, "the owner gives it back");
    let next = acquire(store, &partition(0), &b, HOUR).await;
    assert_eq!((next.owner.as_ref(), next.epoch > held.epoch), (Some(&b), true), "the next gets a new epoch");
}

async fn only_the_owner_releases(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let first = acquire(store, &partition(0), &a, HOUR).await;
    release(store, &first.token(&a)).await;
    let held = acquire(store, &partition(0), &a, HOUR).await;
    let token = held.token(&a);
    let wrong = [
        LeaseToken { member: member("b"), ..token.clone() },
        LeaseToken { epoch: first.epoch, ..token.clone() },
        LeaseToken { epoch: held.epoch + 1, ..token.clone() },
        LeaseToken { group: subscription("other"), ..token.clone() },
        LeaseToken { partition: partition(1), ..token.clone() },
    ];
    for token in wrong {
        assert!(!release(store, &token).await, "not the owner's: {token:?}");
    }
    assert_eq!(lease(store, &partition(0)).await, Some(held), "the owner's lease is untouched");
    assert!(release(store, &token).await, "the owner gives it back");
}

async fn late_release_does_not_free_the_new_owners_lease(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let old = acquire(store, &partition(0), &a, env.ttl()).await;
    env.pass(env.ttl()).await;
    let new = acquire(store, &partition(0), &b, HOUR).await;
    assert!(!release(store, &old.token(&a)).await, "it is not the old owner's any more");
    let answer = ask(store, &partition(0), &a, HOUR).await;
    assert_eq!(answer, LeaseAcquired::Held(new), "the new owner keeps it");
}

async fn expired_lease_can_be_given_back_once(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, env.ttl()).await;
    env.pass(env.ttl()).await;
    assert!(release(store, &held.token(&a)).await, "nobody took it: its last owner gives it back");
    assert!(!release(store, &held.token(&a)).await, "what was given back is nobody's");
    let stored = lease(store, &partition(0)).await.expect("the lease is kept");
    assert_eq!((stored.owner, stored.epoch), (None, held.epoch), "free, with its epoch");
}

async fn epoch_rises_with_every_owner(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let mut epochs: Vec<Epoch> = Vec::new();
    for round in 0..6 {
        let owner = if round % 2 == 0 { &a } else { &b };
        store
            .heartbeat(wow_store_api::Heartbeat::new(group(), owner.clone(), HOUR))
            .await
            .expect("a member announces itself");
        match round % 3 {
            0 => {
                let held = acquire(store, &partition(0), owner, HOUR).await;
                assert!(release(store, &held.token(owner)).await, "given back");
                epochs.push(held.epoch);
            }
            1 => {
                epochs.push(acquire(store, &partition(0), owner, env.ttl()).await.epoch);
                env.pass(env.ttl()).await;
            }
            _ => {
                let held = acquire(store, &partition(0), owner, env.ttl()).await;
                assert!(store.leave(&group(), owner).await.expect("a member leaves"), "it was there");
                env.pass(env.ttl()).await;
                epochs.push(held.epoch);
            }
        }
    }
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "strictly rising: {epochs:?}");
}

async fn epoch_survives_reopen(mut env: Env) {
    let a = member("a");
    let mut epochs: Vec<Epoch> = Vec::new();
    for _ in 0..3 {
        let held = acquire(env.store(), &partition(0), &a, HOUR).await;
        release(env.store(), &held.token(&a)).await;
        epochs.push(held.epoch);
        env.reopen().await;
    }
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "strictly rising over reopen: {epochs:?}");
}

async fn epochs_of_leases_are_separate(env: Env) {
    let (store, a) = (env.store(), member("a"));
    for _ in 0..3 {
        let held = acquire(store, &partition(0), &a, HOUR).await;
        release(store, &held.token(&a)).await;
    }
    let bank = PartitionId::new(ContextName::new("bank").expect("a valid name"), 0);
    let held = acquire(store, &partition(0), &a, HOUR).await;
    for (group, partition) in
        [(group(), partition(1)), (group(), bank), (subscription("printer"), partition(0))]
    {
        let request = AcquireLease::new(group, partition, member("b"), HOUR);
        let LeaseAcquired::Acquired(other) = store.acquire_lease(request).await.expect("answered") else {
            panic!("another group's or partition's lease is free")
        };
        assert_eq!(other.epoch, 1, "every lease counts its own epochs");
    }
    assert_eq!(lease(store, &partition(0)).await, Some(held), "the first is untouched");
}

async fn owners_never_overlap_under_load(env: Env) {
    let stores = [Arc::clone(env.store()), env.second_handle().await];
    let owned = Arc::new(AtomicBool::new(false));
    let epochs = race(8, |n| {
        let (store, owned) = (Arc::clone(&stores[n % 2]), Arc::clone(&owned));
        async move {
            let (me, mut epochs) = (member(format!("m{n}")), Vec::new());
            for _ in 0..40 {
                if let LeaseAcquired::Acquired(lease) = ask(&store, &partition(0), &me, HOUR).await {
                    assert!(!owned.swap(true, Ordering::SeqCst), "two live owners at one time");
                    epochs.push(lease.epoch);
                    tokio::task::yield_now().await;
                    owned.store(false, Ordering::SeqCst);
                    assert!(release(&store, &lease.token(&me)).await, "the owner gives it back");
                }
            }
            epochs
        }
    })
    .await;
    let all: Vec<Epoch> = epochs.concat();
    let distinct: BTreeSet<Epoch> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "no epoch was given out twice");
    assert!(epochs.iter().all(|mine| mine.is_sorted()), "nobody saw epochs fall");
}

async fn leases_are_listed_by_partition(env: Env) {
    let (store, a) = (env.store(), member("a"));
    for index in [11, 2, 10, 1, 0] {
        acquire(store, &partition(index), &a, if index == 2 { env.ttl() } else { HOUR }).await;
    }
    let released = lease(store, &partition(10)).await.expect("the lease is there");
    release(store, &released.token(&a)).await;
    env.pass(env.ttl()).await;
    let elsewhere = PartitionId::new(ContextName::new("bank").expect("a valid name"), 3);
    acquire(store, &elsewhere, &a, HOUR).await;
    let request = AcquireLease::new(subscription("printer"), partition(4), a.clone(), HOUR);
    store.acquire_lease(request).await.expect("another group's lease");
    let listed = store.leases(&group(), &shop()).await.expect("leases are listed");
    let indexes: Vec<u32> = listed.iter().map(|lease| lease.partition.index()).collect();
    assert_eq!(
        indexes,
        [0, 1, 2, 10, 11],
        "by number, expired and released ones too, of this group and context"
    );
    let now = store.now().await.expect("the time");
    let live: Vec<bool> = listed.iter().map(|lease| lease.live_owner(now).is_some()).collect();
    assert_eq!(live, [true, true, false, false, true], "the expired and the released one are not live");
    let owners: Vec<_> = listed.iter().map(|lease| lease.owner.clone()).collect();
    assert_eq!(owners[2], Some(a), "an expired lease still says who held it last");
    assert_eq!(owners[3], None, "a released one is nobody's");
}

async fn lease_survives_reopen(mut env: Env) {
    let (a, b) = (member("a"), member("b"));
    let held = acquire(env.store(), &partition(0), &a, HOUR).await;
    env.reopen().await;
    let answer = ask(env.store(), &partition(0), &b, HOUR).await;
    assert_eq!(answer, LeaseAcquired::Held(held.clone()), "a live lease outlives the store's handle");
    let answer = renew(env.store(), &held.token(&a), HOUR).await;
    assert!(matches!(answer, LeaseRenewed::Renewed(_)), "its owner goes on with its token");
}

async fn time_to_live_has_bounds(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, HOUR).await;
    for ttl in [Duration::ZERO, MAX_TTL + Duration::from_nanos(1), Duration::MAX] {
        let request = AcquireLease::new(group(), partition(1), a.clone(), ttl);
        let error = store.acquire_lease(request).await.expect_err("out of bounds");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was acquired");
        let error = store.renew_leases(&[held.token(&a)], ttl).await.expect_err("out of bounds");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was renewed");
    }
    let listed = store.leases(&group(), &shop()).await.expect("leases are listed");
    assert_eq!(listed, [held], "refused requests left nothing behind");
    let longest = acquire(store, &partition(1), &a, MAX_TTL).await;
    let now = store.now().await.expect("the time");
    assert!(longest.expires_at <= now.saturating_add(MAX_TTL), "the longest one is fine");
    assert!(longest.live_owner(now).is_some(), "and live");
}

async fn fractions_of_a_millisecond_round_up(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let now = store.now().await.expect("the time");
    let held = acquire(store, &partition(0), &a, Duration::from_micros(1_500)).await;
    assert_eq!(held.expires_at, later(now, 2), "1.5 ms last 2 ms");
    let held = acquire(store, &partition(1), &a, Duration::from_nanos(1)).await;
    assert_eq!(held.expires_at, later(now, 1), "1 ns lasts 1 ms, not nothing");
    let answer = renew(store, &held.token(&a), Duration::from_micros(2_001)).await;
    assert_eq!(answer, LeaseRenewed::Renewed(later(now, 3)), "renewals round up too");
    let stored = store.leases(&group(), &shop()).await.expect("leases are listed");
    let ends: Vec<Timestamp> = stored.iter().map(|lease| lease.expires_at).collect();
    assert_eq!(ends, [later(now, 2), later(now, 3)], "what is stored is what was answered");
}
