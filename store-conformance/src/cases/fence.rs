//! Fencing (L7, C2): what a writer whose lease was overtaken can still do, which is nothing.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use wow_store_api::{
    AggregateId, Attempt, Checkpoint, Commit, ContextName, Due, Epoch, ErrorKind, EventStore,
    ExpectedVersion, FailedCommit, Failure, Fence, Lease, LeaseAcquired, LeaseRenewed, ListFailures,
    MAX_COUNTER, Outcome, Park, PartitionId, RecordedCommit, Result, SaveCheckpoint, ScheduleTimer,
    StoreExt as _, Timer, TimerId,
};

use super::{
    lease::{acquire, ask, group},
    support::{HOUR, load, member, partition, race, subscription},
};
use crate::{
    case::topic,
    env::{Env, commit, order, shop},
};

topic! { "fence":
    overtaken_owner_cannot_append [L7],
    overtaken_owner_cannot_append_all [L7, L11],
    overtaken_owner_cannot_save_a_checkpoint [L7, C2],
    overtaken_owner_cannot_reset_a_checkpoint [L7, C2],
    overtaken_owner_cannot_write_the_ledger [L7, F1],
    overtaken_owner_cannot_schedule_a_timer [L7, M2],
    owner_is_let_through_everywhere [L7],
    owner_nobody_overtook_is_let_through [L7],
    writes_without_a_fence_are_let_through [L7],
    epoch_of_every_fenced_write_is_remembered [L7, E2],
    remembered_epoch_survives_reopen [L7, E2],
    newer_fence_ends_the_lease_it_overtakes [L7, E1, E2],
    fence_of_one_lease_leaves_the_others_alone [L7],
    fence_need_not_be_of_the_written_partition [L7],
    replay_is_answered_whatever_the_fence [L3, L7],
    fence_is_looked_at_before_the_version [L7, L2],
    one_fenced_commit_refuses_them_all [L7, L11],
    epoch_beyond_the_last_is_refused [L7],
    last_epoch_can_be_used_but_not_overtaken [L7, E2],
    no_stale_append_lands_behind_a_take_over [L7],
}

/// A way to write with a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Append,
    AppendAll,
    SaveCheckpoint,
    ResetCheckpoint,
    RecordAttempt,
    Park,
    Advance,
    Resolve,
    ScheduleTimer,
}

const DOORS: [Door; 9] = [
    Door::Append,
    Door::AppendAll,
    Door::SaveCheckpoint,
    Door::ResetCheckpoint,
    Door::RecordAttempt,
    Door::Park,
    Door::Advance,
    Door::Resolve,
    Door::ScheduleTimer,
];

const LEDGER: [Door; 4] = [Door::RecordAttempt, Door::Park, Door::Advance, Door::Resolve];

/// Writes through a door under a fence of `group` on `partition`. What is written is new every time.
async fn write(store: &Arc<dyn EventStore>, door: Door, partition: &PartitionId, epoch: Epoch) -> Result<()> {
    let fence = Fence { group: group(), partition: partition.clone(), epoch };
    let id = order("written");
    let version = store.head(&id).await? + 1;
    let new = commit(&id, format!("{door:?}-{version}")).fenced(fence.clone());
    let checkpoint = SaveCheckpoint::new(group(), partition.clone(), version).with_epoch(epoch);
    let attempt = Attempt {
        subscription: group(),
        aggregate_id: AggregateId::new(partition.context(), "order", "failing")?,
        partition: partition.clone(),
        commit: FailedCommit { position: 1, version: 1 },
        epoch: Some(epoch),
    };
    match door {
        Door::Append => store.append(new).await.map(drop),
        Door::AppendAll => store.append_all([new]).await.map(drop),
        Door::SaveCheckpoint => store.save_checkpoint(checkpoint).await.map(drop),
        Door::ResetCheckpoint => store.reset_checkpoint(checkpoint).await,
        Door::RecordAttempt => store.record_attempt(attempt).await.map(drop),
        Door::Park => store.park(Park::new(attempt, "broken")).await.map(drop),
        Door::Advance => store.advance(attempt).await.map(drop),
        Door::Resolve => store.resolve(attempt).await.map(drop),
        Door::ScheduleTimer => {
            let id = TimerId::new("reminder")?;
            let timer = ScheduleTimer::new(shop(), id, Due::After(HOUR), &1)?.replacing().fenced(fence);
            store.schedule_timer(timer).await.map(drop)
        }
    }
}

/// All that the doors could have changed.
type Everything = (Vec<RecordedCommit>, Vec<Checkpoint>, Vec<Failure>, Vec<Timer>, Vec<Lease>);

async fn everything(store: &Arc<dyn EventStore>) -> Everything {
    (
        load(store, &order("written")).await,
        store.checkpoints(&shop()).await.expect("checkpoints"),
        store.failures(ListFailures::new(group())).await.expect("failures"),
        store.timers(&shop(), None, 100).await.expect("timers"),
        store.leases(&group(), &shop()).await.expect("leases"),
    )
}

#[track_caller]
fn assert_fenced(result: Result<()>, stale: Epoch, known: Epoch) {
    let error = result.expect_err("the writer was overtaken");
    let ErrorKind::Fenced { group: of, epoch, current, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!((of, *epoch, *current), (&group(), stale, known), "it says who was overtaken by which epoch");
    assert_eq!(error.outcome(), Outcome::NotApplied, "and that nothing was written");
}

/// A pauses past its lease, and B takes over, having written once through each of the doors.
async fn take_over(env: &Env) -> (Epoch, Epoch) {
    let store = env.store();
    let old = acquire(store, &partition(0), &member("a"), env.ttl()).await;
    env.pass(env.ttl()).await;
    let new = acquire(store, &partition(0), &member("b"), HOUR).await;
    for door in [Door::Append, Door::SaveCheckpoint, Door::Park, Door::ScheduleTimer] {
        write(store, door, &partition(0), new.epoch).await.expect("the owner is let through");
    }
    (old.epoch, new.epoch)
}

/// The overtaken owner tries these doors, all in vain.
async fn assert_shut(env: Env, doors: &[Door]) {
    let store = env.store();
    let (old, new) = take_over(&env).await;
    let before = everything(store).await;
    for door in doors {
        assert_fenced(write(store, *door, &partition(0), old).await, old, new);
        assert_eq!(everything(store).await, before, "nothing changed through {door:?}");
    }
    for door in doors {
        write(store, *door, &partition(0), new).await.expect("the owner goes on");
    }
}

async fn overtaken_owner_cannot_append(env: Env) {
    assert_shut(env, &[Door::Append]).await;
}

async fn overtaken_owner_cannot_append_all(env: Env) {
    assert_shut(env, &[Door::AppendAll]).await;
}

async fn overtaken_owner_cannot_save_a_checkpoint(env: Env) {
    assert_shut(env, &[Door::SaveCheckpoint]).await;
}

async fn overtaken_owner_cannot_reset_a_checkpoint(env: Env) {
    assert_shut(env, &[Door::ResetCheckpoint]).await;
}

async fn overtaken_owner_cannot_write_the_ledger(env: Env) {
    assert_shut(env, &LEDGER).await;
}

async fn overtaken_owner_cannot_schedule_a_timer(env: Env) {
    assert_shut(env, &[Door::ScheduleTimer]).await;
}

async fn owner_is_let_through_everywhere(env: Env) {
    let store = env.store();
    let held = acquire(store, &partition(0), &member("a"), HOUR).await;
    for door in DOORS {
        write(store, door, &partition(0), held.epoch).await.expect("the owner is let through");
    }
    let known = store.leases(&group(), &shop()).await.expect("leases");
    assert_eq!(known, [held], "its own writes leave its lease as it is");
}

async fn owner_nobody_overtook_is_let_through(env: Env) {
    // Time alone fences nobody off: only a higher epoch does.
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, env.ttl()).await;
    env.pass(env.ttl()).await;
    for door in DOORS {
        write(store, door, &partition(0), held.epoch).await.expect("expired, but nobody took it");
    }
    assert!(store.release_lease(&held.token(&a)).await.expect("answered"), "given back");
    for door in DOORS {
        write(store, door, &partition(0), held.epoch).await.expect("given back, but nobody took it");
    }
    assert_eq!(store.head(&order("written")).await.expect("the head"), 4, "every append was stored");
}

async fn writes_without_a_fence_are_let_through(env: Env) {
    let store = env.store();
    take_over(&env).await;
    store.append(commit(&order("written"), "free")).await.expect("no fence, no refusal");
    assert_eq!(store.head(&order("written")).await.expect("the head"), 2, "it was stored");
    let save = SaveCheckpoint::new(group(), partition(0), 1_000);
    store.save_checkpoint(save).await.expect("no epoch, no refusal");
    let timer = ScheduleTimer::new(shop(), TimerId::new("free").expect("valid"), Due::After(HOUR), &1);
    store.schedule_timer(timer.expect("a valid timer")).await.expect("no fence, no refusal");
}

async fn epoch_of_every_fenced_write_is_remembered(env: Env) {
    // The lease is held elsewhere: this store learns of its epochs from writes alone.
    let store = env.store();
    for (index, door) in (0..).zip(DOORS) {
        let at = partition(index);
        write(store, door, &at, 7).await.expect("newer than anything known");
        for other in DOORS {
            assert_fenced(write(store, other, &at, 6).await, 6, 7);
        }
        write(store, door, &at, 7).await.expect("the same epoch again");
        let next = acquire(store, &at, &member("a"), HOUR).await;
        assert_eq!(next.epoch, 8, "an acquire goes above every epoch seen, here through {door:?}");
    }
}

async fn remembered_epoch_survives_reopen(mut env: Env) {
    for (index, door) in (0..).zip(DOORS) {
        write(env.store(), door, &partition(index), 7).await.expect("newer than anything known");
    }
    env.reopen().await;
    for (index, door) in (0..).zip(DOORS) {
        assert_fenced(write(env.store(), door, &partition(index), 6).await, 6, 7);
        let next = acquire(env.store(), &partition(index), &member("a"), HOUR).await;
        assert_eq!(next.epoch, 8, "an acquire goes above every epoch seen before");
    }
}

async fn newer_fence_ends_the_lease_it_overtakes(env: Env) {
    let (store, a) = (env.store(), member("a"));
    let held = acquire(store, &partition(0), &a, HOUR).await;
    write(store, Door::Append, &partition(0), held.epoch + 4).await.expect("newer than anything known");
    let answers = store.renew_leases(&[held.token(&a)], HOUR).await.expect("answered");
    assert_eq!(answers, [LeaseRenewed::Lost], "the owner that was overtaken is told");
    assert!(!store.release_lease(&held.token(&a)).await.expect("answered"), "it is not its own any more");
    let LeaseAcquired::Acquired(next) = ask(store, &partition(0), &member("b"), HOUR).await else {
        panic!("nobody is known to hold it")
    };
    assert_eq!(next.epoch, held.epoch + 5, "above the epoch seen");
}

async fn fence_of_one_lease_leaves_the_others_alone(env: Env) {
    let store = env.store();
    write(store, Door::Append, &partition(0), 9).await.expect("newer than anything known");
    write(store, Door::Append, &partition(1), 1).await.expect("another partition");
    let bank = PartitionId::new(ContextName::new("bank").expect("a valid name"), 0);
    write(store, Door::Append, &bank, 1).await.expect("another context");
    let other = Fence { group: subscription("printer"), partition: partition(0), epoch: 1 };
    store.append(commit(&order("other"), "c").fenced(other)).await.expect("another group");
    assert_fenced(write(store, Door::Append, &partition(0), 8).await, 8, 9);
}

async fn fence_need_not_be_of_the_written_partition(env: Env) {
    let store = env.store();
    let fence = |epoch| Fence { group: group(), partition: partition(3), epoch };
    for n in 0..20 {
        // Aggregates all over the partitions, and of another context.
        let id = order(n.to_string());
        store.append(commit(&id, "c").fenced(fence(5))).await.expect("a handler may write anywhere");
        let stale = store.append(commit(&id, "stale").fenced(fence(4))).await.map(drop);
        assert_fenced(stale, 4, 5);
    }
    let elsewhere = AggregateId::new("bank", "account", "1").expect("a valid id");
    let stale = store.append(commit(&elsewhere, "stale").fenced(fence(4))).await.map(drop);
    assert_fenced(stale, 4, 5);
    assert_eq!(store.head(&elsewhere).await.expect("the head"), 0, "nothing was stored there");
}

async fn replay_is_answered_whatever_the_fence(env: Env) {
    let (store, id) = (env.store(), order("written"));
    let fence = |epoch| Fence { group: group(), partition: partition(0), epoch };
    let first = store.append(commit(&id, "c").fenced(fence(1))).await.expect("stored");
    store.append(commit(&id, "later").fenced(fence(2))).await.expect("a newer owner");
    let again = store.append(commit(&id, "c").fenced(fence(1))).await.expect("it was stored before");
    assert_eq!(
        (again.version, again.position, again.replayed),
        (first.version, first.position, true),
        "first"
    );
    let again = store.append_all([commit(&id, "c").fenced(fence(1))]).await.expect("it was stored before");
    assert!(again[0].replayed, "also among several");
    // And a replay with a newer epoch stores nothing, so it teaches nothing.
    let again = store.append(commit(&id, "c").fenced(fence(9))).await.expect("it was stored before");
    assert!(again.replayed, "a replay too");
    store
        .append(commit(&id, "last").fenced(fence(2)))
        .await
        .expect("2 is still the highest epoch that wrote");
}

async fn fence_is_looked_at_before_the_version(env: Env) {
    let (store, id) = (env.store(), order("written"));
    let fence = |epoch| Fence { group: group(), partition: partition(0), epoch };
    store.append(commit(&id, "c").fenced(fence(2))).await.expect("stored");
    let stale = commit(&id, "stale").expect(ExpectedVersion::NoStream).fenced(fence(1));
    assert_fenced(store.append(stale).await.map(drop), 1, 2);
}

async fn one_fenced_commit_refuses_them_all(env: Env) {
    let (store, a, b) = (env.store(), order("a"), order("b"));
    let fence = |epoch| Fence { group: group(), partition: partition(0), epoch };
    store.append(commit(&order("written"), "c").fenced(fence(2))).await.expect("stored");
    let several = [commit(&a, "1"), commit(&b, "1").fenced(fence(1)), commit(&a, "2").fenced(fence(2))];
    assert_fenced(store.append_all(several).await.map(drop), 1, 2);
    for id in [&a, &b] {
        assert_eq!(store.head(id).await.expect("the head"), 0, "nothing of them is stored");
    }
    // An epoch seen by an earlier commit of the same call counts for the later ones.
    let several = [commit(&a, "1").fenced(fence(4)), commit(&b, "1").fenced(fence(3))];
    assert_fenced(store.append_all(several).await.map(drop), 3, 4);
    store.append(commit(&b, "3").fenced(fence(3))).await.expect("what was refused as a whole taught nothing");
}

async fn epoch_beyond_the_last_is_refused(env: Env) {
    let store = env.store();
    let before = everything(store).await;
    for door in DOORS {
        let error = write(store, door, &partition(0), MAX_COUNTER + 1).await.expect_err("no such epoch");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "refused as invalid: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "nothing was written through {door:?}");
    }
    assert_eq!(everything(store).await, before, "nothing changed");
}

async fn last_epoch_can_be_used_but_not_overtaken(env: Env) {
    let store = env.store();
    write(store, Door::Append, &partition(0), MAX_COUNTER).await.expect("the last epoch is one");
    assert_fenced(
        write(store, Door::Append, &partition(0), MAX_COUNTER - 1).await,
        MAX_COUNTER - 1,
        MAX_COUNTER,
    );
    let request = wow_store_api::AcquireLease::new(group(), partition(0), member("a"), HOUR);
    let error = store.acquire_lease(request).await.expect_err("there is no epoch above it");
    assert!(matches!(error.kind(), ErrorKind::Exhausted { .. }), "it says so: {error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "and nothing was acquired");
}

async fn no_stale_append_lands_behind_a_take_over(env: Env) {
    let (store, a) = (Arc::clone(env.store()), member("a"));
    let old = acquire(&store, &partition(0), &a, HOUR).await;
    let first = commit(&order("written"), "first").fenced(old.fence());
    store.append(first).await.expect("the owner is let through");
    let over = Arc::new(AtomicBool::new(false));
    let heads = race(5, |n| {
        let (store, over, old) = (Arc::clone(&store), Arc::clone(&over), old.clone());
        async move {
            if n == 0 {
                tokio::task::yield_now().await;
                store.release_lease(&old.token(&member("a"))).await.expect("answered");
                acquire(&store, &partition(0), &member("b"), HOUR).await;
                let head = store.head(&order("written")).await.expect("the head");
                over.store(true, Ordering::SeqCst);
                return head;
            }
            for round in 0..1_000 {
                let stop = over.load(Ordering::SeqCst);
                let write: Commit = commit(&order("written"), format!("old-{n}-{round}")).fenced(old.fence());
                let result = store.append(write).await;
                assert!(!stop || result.is_err(), "nothing goes through after the take-over");
                if stop {
                    break;
                }
            }
            0
        }
    })
    .await;
    let last = store.head(&order("written")).await.expect("the head");
    assert!(last >= 1, "the owner's first one is there");
    assert_eq!(last, heads[0], "what was on its way when the lease was taken over came too late");
}
