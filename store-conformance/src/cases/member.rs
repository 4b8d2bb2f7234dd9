//! Members and how they share partitions (E3).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use wow_store_api::{
    ErrorKind, EventStore, Heartbeat, LeaseAcquired, MAX_TTL, Member, MemberId, Outcome, Timestamp, share_out,
};

use super::{
    lease::{acquire, ask, group},
    support::{HOUR, member, partition, race, subscription},
};
use crate::{
    case::topic,
    env::{Env, shop},
};

topic! { "member":
    members_are_listed_by_id [E3],
    heartbeats_keep_the_day_of_joining [E3],
    member_is_gone_at_the_very_instant [E3] sets_clock,
    member_that_comes_back_joins_anew [E3],
    leaving_says_whether_it_was_there [E3],
    leaving_keeps_leases [E3, E2],
    members_survive_reopen [E3],
    heartbeat_time_to_live_has_bounds [E3],
    join_moves_only_what_it_must [E3],
    dead_members_partitions_move [E3],
}

async fn beat(store: &Arc<dyn EventStore>, member: &MemberId, ttl: Duration) -> Member {
    store.heartbeat(Heartbeat::new(group(), member.clone(), ttl)).await.expect("a sign of life")
}

async fn listed(store: &Arc<dyn EventStore>) -> Vec<String> {
    let members = store.members(&group()).await.expect("members are listed");
    members.iter().map(|member| member.member.to_string()).collect()
}

async fn members_are_listed_by_id(env: Env) {
    let store = Arc::clone(env.store());
    race(6, |n| {
        let store = Arc::clone(&store);
        async move { beat(&store, &member(["c", "a", "B", "ä", "a1", "Z"][n]), HOUR).await }
    })
    .await;
    let elsewhere = Heartbeat::new(subscription("printer"), member("d"), HOUR);
    store.heartbeat(elsewhere).await.expect("a member of another group");
    assert_eq!(listed(&store).await, ["B", "Z", "a", "a1", "c", "ä"], "by bytes, of this group only");
}

async fn heartbeats_keep_the_day_of_joining(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let before = store.now().await.expect("the time");
    let first = beat(store, &a, HOUR).await;
    assert!(first.joined_at >= before, "it joins now, by the store's clock");
    env.pass(env.ttl()).await;
    let again = beat(store, &a, 2 * HOUR).await;
    assert_eq!(again.joined_at, first.joined_at, "it joined when it first announced itself");
    assert!(again.expires_at > first.expires_at, "each sign of life counts from its own time");
    let members = store.members(&group()).await.expect("members are listed");
    assert_eq!(members, [again], "what is listed is what was answered last");
}

async fn member_is_gone_at_the_very_instant(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let now = store.now().await.expect("the time");
    let alive = beat(store, &a, Duration::from_micros(9_999_001)).await;
    assert_eq!(alive.expires_at, now.saturating_add(Duration::from_secs(10)), "fractions of a ms round up");
    let just_before = Timestamp::from_millis(alive.expires_at.as_millis() - 1).expect("in range");
    env.clock().set(just_before);
    assert_eq!(listed(store).await, ["a"], "1 ms before its end it is alive");
    env.clock().set(alive.expires_at);
    assert_eq!(listed(store).await, [""; 0], "at the very instant it is gone");
    let again = beat(store, &a, HOUR).await;
    assert_eq!(again.joined_at, alive.expires_at, "and joins anew");
}

async fn member_that_comes_back_joins_anew(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let first = beat(store, &a, env.ttl()).await;
    env.pass(env.ttl()).await;
    assert_eq!(listed(store).await, [""; 0], "it is gone");
    let again = beat(store, &a, HOUR).await;
    assert!(again.joined_at >= first.expires_at, "it joins anew");
    assert_eq!(listed(store).await, ["a"], "and is there again");
}

async fn leaving_says_whether_it_was_there(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    let leave = async |member: &MemberId| store.leave(&group(), member).await.expect("a leave is answered");
    assert!(!leave(&a).await, "nobody was there");
    beat(store, &a, HOUR).await;
    beat(store, &b, env.ttl()).await;
    let other = store.leave(&subscription("printer"), &a).await.expect("answered");
    assert!(!other, "it is not in that group");
    assert!(leave(&a).await, "it was there");
    assert_eq!(listed(store).await, ["b"], "it is gone at once, alone");
    assert!(!leave(&a).await, "it left already");
    env.pass(env.ttl()).await;
    assert!(!leave(&b).await, "its time was over: it was not there any more");
}

async fn leaving_keeps_leases(env: Env) {
    let (store, a, b) = (env.store(), member("a"), member("b"));
    beat(store, &a, HOUR).await;
    let held = acquire(store, &partition(0), &a, HOUR).await;
    assert!(store.leave(&group(), &a).await.expect("a leave is answered"), "it was there");
    let answer = ask(store, &partition(0), &b, HOUR).await;
    assert_eq!(answer, LeaseAcquired::Held(held), "a lease ends by its own time or by its release");
}

async fn members_survive_reopen(mut env: Env) {
    let a = beat(env.store(), &member("a"), HOUR).await;
    let b = beat(env.store(), &member("b"), 2 * HOUR).await;
    env.reopen().await;
    let members = env.store().members(&group()).await.expect("members are listed");
    assert_eq!(members, [a, b], "all as it was");
}

async fn heartbeat_time_to_live_has_bounds(env: Env) {
    let store = env.store();
    for ttl in [Duration::ZERO, MAX_TTL + Duration::from_nanos(1), Duration::MAX] {
        let heartbeat = Heartbeat::new(group(), member("a"), ttl);
        let error = store.heartbeat(heartbeat).await.expect_err("out of bounds");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nobody was announced");
    }
    assert_eq!(listed(store).await, [""; 0], "refused ones left nothing behind");
    beat(store, &member("a"), MAX_TTL).await;
    assert_eq!(listed(store).await, ["a"], "the longest one is fine");
}

/// One look of a member at its group: it gives back what it should not have, and takes what is free and its share.
async fn rebalance(store: &Arc<dyn EventStore>, me: &MemberId, ttl: Duration) {
    let now = store.now().await.expect("the time");
    let members: Vec<MemberId> =
        store.members(&group()).await.expect("members").into_iter().map(|member| member.member).collect();
    let leases = store.leases(&group(), &shop()).await.expect("leases");
    let owners: BTreeMap<u32, MemberId> = leases
        .iter()
        .filter_map(|lease| Some((lease.partition.index(), lease.live_owner(now)?.clone())))
        .collect();
    let shares = share_out(16, &members, &owners);
    let mine = shares.get(me).cloned().unwrap_or_default();
    for lease in leases.iter().filter(|lease| lease.live_owner(now) == Some(me)) {
        if !mine.contains(&lease.partition.index()) {
            store.release_lease(&lease.token(me)).await.expect("the release is answered");
        }
    }
    for index in mine.into_iter().filter(|index| owners.get(index) != Some(me)) {
        ask(store, &partition(index), me, ttl).await;
    }
}

/// Who owns what, after every member has looked a few times.
async fn settle(store: &Arc<dyn EventStore>, members: &[(MemberId, Duration)]) -> BTreeMap<u32, MemberId> {
    for _ in 0..3 {
        for (member, ttl) in members {
            rebalance(store, member, *ttl).await;
        }
    }
    let now = store.now().await.expect("the time");
    let leases = store.leases(&group(), &shop()).await.expect("leases");
    leases
        .iter()
        .filter_map(|lease| Some((lease.partition.index(), lease.live_owner(now)?.clone())))
        .collect()
}

fn counts(owners: &BTreeMap<u32, MemberId>) -> Vec<usize> {
    let mut counts: BTreeMap<&MemberId, usize> = BTreeMap::new();
    for owner in owners.values() {
        *counts.entry(owner).or_default() += 1;
    }
    counts.into_values().collect()
}

fn moved(before: &BTreeMap<u32, MemberId>, after: &BTreeMap<u32, MemberId>) -> usize {
    after.iter().filter(|(index, owner)| before.get(index) != Some(owner)).count()
}

async fn join_moves_only_what_it_must(env: Env) {
    let store = env.store();
    let (a, b, c) = ((member("a"), HOUR), (member("b"), HOUR), (member("c"), HOUR));
    beat(store, &a.0, HOUR).await;
    let alone = settle(store, std::slice::from_ref(&a)).await;
    assert_eq!(counts(&alone), [16], "a member on its own has everything");
    beat(store, &b.0, HOUR).await;
    let two = settle(store, &[a.clone(), b.clone()]).await;
    assert_eq!((counts(&two), moved(&alone, &two)), (vec![8, 8], 8), "half of them move");
    beat(store, &c.0, HOUR).await;
    let three = settle(store, &[a.clone(), b.clone(), c.clone()]).await;
    assert_eq!(counts(&three).iter().sum::<usize>(), 16, "every partition has an owner");
    assert_eq!(moved(&two, &three), 5, "only the newcomer's share moves");
    assert!(store.leave(&group(), &b.0).await.expect("a leave is answered"), "b was there");
    rebalance(store, &b.0, HOUR).await;
    let after = settle(store, &[a, c]).await;
    let of_b = three.values().filter(|owner| **owner == b.0).count();
    assert_eq!((counts(&after), moved(&three, &after)), (vec![8, 8], of_b), "only the leaver's share moves");
}

async fn dead_members_partitions_move(env: Env) {
    let store = env.store();
    let (a, dying) = ((member("a"), HOUR), (member("dying"), HOUR));
    beat(store, &a.0, HOUR).await;
    beat(store, &dying.0, HOUR).await;
    let before = settle(store, &[a.clone(), dying.clone()]).await;
    assert_eq!(counts(&before), [8, 8], "two members have everything between them");
    // Its last signs of life.
    let leases = store.leases(&group(), &shop()).await.expect("leases");
    let tokens: Vec<_> = leases
        .iter()
        .filter(|lease| lease.owner.as_ref() == Some(&dying.0))
        .map(|lease| lease.token(&dying.0))
        .collect();
    store.renew_leases(&tokens, env.ttl()).await.expect("the last renewal");
    beat(store, &dying.0, env.ttl()).await;
    env.pass(env.ttl()).await;
    let after = settle(store, std::slice::from_ref(&a)).await;
    assert_eq!(counts(&after), [16], "after its time to live the survivor has everything");
    assert_eq!(moved(&before, &after), 8, "and it kept what it had");
}
