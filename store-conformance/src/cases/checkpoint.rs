//! Checkpoints (C1, C2).

use std::{sync::Arc, time::Duration};

use wow_store_api::{
    AcquireLease, CheckpointSaved, ContextName, Error, ErrorKind, LeaseAcquired, MAX_COUNTER, MemberId,
    Outcome, PartitionId, SaveCheckpoint, StoreExt as _, SubscriptionName, TailRequest,
};

use super::tools::{fence, mailer, neighbours, positions, race, refused};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop, soon},
};

topic! { "checkpoint":
    none_was_saved_at_first [C1],
    moves_forward_only [C1],
    the_same_position_is_saved_again [C1],
    reset_moves_it_anywhere [C1],
    the_furthest_of_many_saves_stays [C1],
    a_lower_epoch_is_refused [C2, ERRORS],
    a_lower_epoch_is_refused_also_behind_the_checkpoint [C2],
    a_save_that_finds_it_ahead_raises_its_epoch [C2],
    a_lease_taken_over_fences_before_anything_was_saved [C2],
    a_fenced_append_fences_it_and_the_other_way_round [C2, L7],
    reset_keeps_the_epoch [C2],
    a_save_without_an_epoch_keeps_it [C2],
    each_subscription_and_partition_has_its_own [C1, C2],
    checkpoints_are_listed_by_context [C1],
    positions_and_epochs_go_up_to_the_last [C1, C2, ERRORS],
    positions_need_not_be_in_the_log [C1],
    saved_at_is_the_stores_time [C1],
    reopen_keeps_checkpoints [C1, C2, L4],
    tail_goes_on_from_the_checkpoint [C1, T1],
}

/// No versions, no heads.
const NONE: [u64; 0] = [];

fn partition(index: u32) -> PartitionId {
    PartitionId::new(shop(), index)
}

fn at(position: u64) -> SaveCheckpoint {
    SaveCheckpoint::new(mailer(), partition(0), position)
}

/// Position and epoch of the checkpoint of `mailer` in partition 0 of `shop`.
async fn stored(env: &Env) -> Option<(u64, u64)> {
    let checkpoint = env.store().checkpoint(&mailer(), &partition(0)).await.expect("a read");
    checkpoint.map(|checkpoint| (checkpoint.position, checkpoint.epoch))
}

fn assert_fenced(error: &Error, epoch: u64, current: u64) {
    let kind = ErrorKind::Fenced { group: mailer(), partition: partition(0), epoch, current };
    assert_eq!(*error.kind(), kind, "it says which epoch overtook it");
    assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
}

async fn none_was_saved_at_first(env: Env) {
    let store = env.store();
    append_many(store, &order("1"), "c", 3).await;
    assert_eq!(stored(&env).await, None, "nothing was saved");
    assert_eq!(store.checkpoints(&shop()).await.expect("a read"), [], "for no subscription");
    store.save_checkpoint(at(0)).await.expect("it is saved");
    assert_eq!(stored(&env).await, Some((0, 0)), "position 0 is a checkpoint too");
}

async fn moves_forward_only(env: Env) {
    let store = env.store();
    for (position, answer, then) in [
        (10, CheckpointSaved::Saved, 10),
        (9, CheckpointSaved::Ahead(10), 10),
        (0, CheckpointSaved::Ahead(10), 10),
        (11, CheckpointSaved::Saved, 11),
        (10, CheckpointSaved::Ahead(11), 11),
        (5_000, CheckpointSaved::Saved, 5_000),
        (4_999, CheckpointSaved::Ahead(5_000), 5_000),
    ] {
        assert_eq!(store.save_checkpoint(at(position)).await.expect("an answer"), answer, "at {position}");
        assert_eq!(stored(&env).await, Some((then, 0)), "where it is after {position}");
    }
}

async fn the_same_position_is_saved_again(env: Env) {
    for _ in 0..3 {
        let answer = env.store().save_checkpoint(at(7)).await.expect("an answer");
        assert_eq!(answer, CheckpointSaved::Saved, "it is where it was asked to be");
    }
    assert_eq!(stored(&env).await, Some((7, 0)), "and stays there");
}

async fn reset_moves_it_anywhere(env: Env) {
    let store = env.store();
    for position in [7, 3, 3, 0, 100, 1] {
        store.reset_checkpoint(at(position)).await.expect("it is reset");
        assert_eq!(stored(&env).await, Some((position, 0)), "forward, back, or there already");
    }
    let answer = store.save_checkpoint(at(2)).await.expect("an answer");
    assert_eq!(answer, CheckpointSaved::Saved, "from there it moves forward again");
}

async fn the_furthest_of_many_saves_stays(env: Env) {
    let handles = [Arc::clone(env.store()), env.second_handle().await];
    for round in 1..=5 {
        let answers = race(20, |n| {
            let store = Arc::clone(&handles[n % 2]);
            async move { store.save_checkpoint(at(round * 100 + n as u64)).await.expect("an answer") }
        })
        .await;
        for (n, answer) in answers.into_iter().enumerate() {
            match answer {
                CheckpointSaved::Saved => {}
                CheckpointSaved::Ahead(position) => {
                    assert!(position > round * 100 + n as u64, "it is further than this one asked for");
                }
            }
        }
        assert_eq!(stored(&env).await, Some((round * 100 + 19, 0)), "the furthest stays");
    }
}

async fn a_lower_epoch_is_refused(env: Env) {
    let store = env.store();
    for (epoch, position) in [(0, 1), (3, 2), (3, 3), (7, 4)] {
        let answer = store.save_checkpoint(at(position).with_epoch(epoch)).await.expect("an answer");
        assert_eq!(answer, CheckpointSaved::Saved, "the highest epoch so far is let through");
    }
    let before = store.checkpoint(&mailer(), &partition(0)).await.expect("a read");
    for epoch in [0, 1, 6] {
        let error = refused(store.save_checkpoint(at(50).with_epoch(epoch)).await);
        assert_fenced(&error, epoch, 7);
        let error = refused(store.reset_checkpoint(at(50).with_epoch(epoch)).await);
        assert_fenced(&error, epoch, 7);
    }
    let after = store.checkpoint(&mailer(), &partition(0)).await.expect("a read");
    assert_eq!(after, before, "what was refused changed nothing");
}

async fn a_lower_epoch_is_refused_also_behind_the_checkpoint(env: Env) {
    let store = env.store();
    store.save_checkpoint(at(10).with_epoch(5)).await.expect("it is saved");
    for position in [0, 9, 10] {
        let error = refused(store.save_checkpoint(at(position).with_epoch(4)).await);
        assert_fenced(&error, 4, 5);
    }
    assert_eq!(stored(&env).await, Some((10, 5)), "it stays where it is");
}

async fn a_save_that_finds_it_ahead_raises_its_epoch(env: Env) {
    let store = env.store();
    store.save_checkpoint(at(10).with_epoch(2)).await.expect("it is saved");
    let answer = store.save_checkpoint(at(4).with_epoch(6)).await.expect("an answer");
    assert_eq!(answer, CheckpointSaved::Ahead(10), "the new owner starts behind");
    assert_eq!(stored(&env).await, Some((10, 6)), "the position stays, the epoch is raised");
    let error = refused(store.save_checkpoint(at(11).with_epoch(5)).await);
    assert_fenced(&error, 5, 6);
}

async fn a_lease_taken_over_fences_before_anything_was_saved(env: Env) {
    let store = env.store();
    let mut epochs = Vec::new();
    for name in ["a", "b"] {
        let member = MemberId::new(name).expect("a valid id");
        let ask = AcquireLease::new(mailer(), partition(0), member.clone(), Duration::from_secs(3_600));
        let LeaseAcquired::Acquired(lease) = store.acquire_lease(ask).await.expect("an answer") else {
            panic!("the lease is free");
        };
        epochs.push(lease.epoch);
        store.release_lease(&lease.token(&member)).await.expect("it is given back");
    }
    let error = refused(store.save_checkpoint(at(5).with_epoch(epochs[0])).await);
    assert_fenced(&error, epochs[0], epochs[1]);
    let error = refused(store.reset_checkpoint(at(5).with_epoch(epochs[0])).await);
    assert_fenced(&error, epochs[0], epochs[1]);
    assert_eq!(stored(&env).await, None, "nothing was saved");
    let error = refused(store.append(commit(&order("1"), "c").fenced(fence(epochs[0]))).await);
    assert_fenced(&error, epochs[0], epochs[1]);
    store.save_checkpoint(at(5).with_epoch(epochs[1])).await.expect("the last owner may");
}

async fn a_fenced_append_fences_it_and_the_other_way_round(env: Env) {
    let store = env.store();
    store.append(commit(&order("1"), "c1").fenced(fence(5))).await.expect("it succeeds");
    let error = refused(store.save_checkpoint(at(1).with_epoch(4)).await);
    assert_fenced(&error, 4, 5);
    store.save_checkpoint(at(1).with_epoch(8)).await.expect("a higher epoch");
    let error = refused(store.append(commit(&order("1"), "c2").fenced(fence(7))).await);
    assert_fenced(&error, 7, 8);
    store.reset_checkpoint(at(0).with_epoch(9)).await.expect("a higher epoch");
    let error = refused(store.append(commit(&order("1"), "c3").fenced(fence(8))).await);
    assert_fenced(&error, 8, 9);
}

async fn reset_keeps_the_epoch(env: Env) {
    let store = env.store();
    store.save_checkpoint(at(10).with_epoch(5)).await.expect("it is saved");
    store.reset_checkpoint(at(2)).await.expect("an operator resets it");
    assert_eq!(stored(&env).await, Some((2, 5)), "without an epoch it keeps its own");
    let error = refused(store.save_checkpoint(at(3).with_epoch(4)).await);
    assert_fenced(&error, 4, 5);
    store.reset_checkpoint(at(1).with_epoch(6)).await.expect("it is reset");
    assert_eq!(stored(&env).await, Some((1, 6)), "with a higher one it takes that");
}

async fn a_save_without_an_epoch_keeps_it(env: Env) {
    let store = env.store();
    store.save_checkpoint(at(1).with_epoch(5)).await.expect("it is saved");
    for (position, answer) in [(2, CheckpointSaved::Saved), (1, CheckpointSaved::Ahead(2))] {
        assert_eq!(store.save_checkpoint(at(position)).await.expect("an answer"), answer, "at {position}");
        assert_eq!(stored(&env).await, Some((2, 5)), "the epoch never falls");
    }
}

async fn each_subscription_and_partition_has_its_own(env: Env) {
    let store = env.store();
    let name = |text: &str| SubscriptionName::new(text).expect("a valid name");
    let depot = ContextName::new("depot").expect("a valid name");
    let mut all = Vec::new();
    for subscription in [name("mailer"), name("Mailer"), name("mailer "), name("mail")] {
        for partition in [partition(0), partition(1), PartitionId::new(depot.clone(), 0)] {
            all.push((subscription.clone(), partition));
        }
    }
    for (n, (subscription, partition)) in (0..).zip(&all) {
        let save = SaveCheckpoint::new(subscription.clone(), partition.clone(), 100 - n);
        let answer = store.save_checkpoint(save.with_epoch(50 - n)).await.expect("no other's is in the way");
        assert_eq!(answer, CheckpointSaved::Saved, "nor further");
    }
    for (n, (subscription, partition)) in (0..).zip(&all) {
        let checkpoint =
            store.checkpoint(subscription, partition).await.expect("a read").expect("it is there");
        assert_eq!((checkpoint.position, checkpoint.epoch), (100 - n, 50 - n), "what was saved");
        assert_eq!((&checkpoint.subscription, &checkpoint.partition), (subscription, partition), "its key");
    }
}

async fn checkpoints_are_listed_by_context(env: Env) {
    let store = env.store();
    let mut keys = Vec::new();
    for subscription in ["b", "a", "é", "B", "a b", "ab"] {
        for (context, index) in [("shop", 10), ("shop", 2), ("Shop", 0), ("shops", 1)] {
            let partition = PartitionId::new(ContextName::new(context).expect("valid"), index);
            let subscription = SubscriptionName::new(subscription).expect("a valid name");
            store
                .save_checkpoint(SaveCheckpoint::new(subscription.clone(), partition.clone(), 1))
                .await
                .expect("saved");
            keys.push((subscription, partition));
        }
    }
    let found = store.checkpoints(&shop()).await.expect("a read");
    let found: Vec<_> = found.into_iter().map(|it| (it.subscription, it.partition)).collect();
    keys.retain(|(_, partition)| *partition.context() == shop());
    keys.sort();
    assert_eq!(found, keys, "those of the context, by subscription (bytes) and partition (number)");
}

async fn positions_and_epochs_go_up_to_the_last(env: Env) {
    let store = env.store();
    let edges = [i32::MAX as u64, u64::from(u32::MAX), 1 << 53, MAX_COUNTER - 1];
    for position in edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]) {
        store.save_checkpoint(at(position).with_epoch(position)).await.expect("any up to the last");
        assert_eq!(stored(&env).await, Some((position, position)), "to the last digit");
    }
    for beyond in [MAX_COUNTER + 1, u64::MAX] {
        for save in [at(beyond), at(1).with_epoch(beyond)] {
            let error = refused(store.save_checkpoint(save.clone()).await);
            assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "there is none: {error:?}");
            assert_eq!(error.outcome(), Outcome::NotApplied, "nothing is saved");
            let error = refused(store.reset_checkpoint(save).await);
            assert!(matches!(error.kind(), ErrorKind::InvalidInput { .. }), "there is none: {error:?}");
        }
    }
    assert_eq!(stored(&env).await, Some((MAX_COUNTER, MAX_COUNTER)), "it is where it was");
}

async fn positions_need_not_be_in_the_log(env: Env) {
    let elsewhere = PartitionId::new(ContextName::new("elsewhere").expect("valid"), 4_000);
    let save = SaveCheckpoint::new(mailer(), elsewhere.clone(), 1_000_000);
    let answer = env.store().save_checkpoint(save).await.expect("the log may be in another store");
    assert_eq!(answer, CheckpointSaved::Saved, "it is saved");
    let heads = env.store().heads(elsewhere.context()).await.expect("the heads");
    assert_eq!(heads, NONE, "which is no use of the context's log");
}

async fn saved_at_is_the_stores_time(env: Env) {
    let store = env.store();
    let mut last = store.now().await.expect("the time");
    for position in 1..=3 {
        env.pass(Duration::from_millis(2)).await;
        store.save_checkpoint(at(position)).await.expect("it is saved");
        let saved_at =
            store.checkpoint(&mailer(), &partition(0)).await.expect("a read").expect("saved").saved_at;
        let now = store.now().await.expect("the time");
        assert!(last < saved_at && saved_at <= now, "it is told when it was last saved");
        last = saved_at;
    }
}

async fn reopen_keeps_checkpoints(mut env: Env) {
    env.store().save_checkpoint(at(10).with_epoch(5)).await.expect("it is saved");
    let before = env.store().checkpoints(&shop()).await.expect("a read");
    let second = env.second_handle().await;
    assert_eq!(second.checkpoints(&shop()).await.expect("a read"), before, "another handle sees it");
    drop(second);
    env.reopen().await;
    assert_eq!(env.store().checkpoints(&shop()).await.expect("a read"), before, "as it was");
    let answer = env.store().save_checkpoint(at(3)).await.expect("an answer");
    assert_eq!(answer, CheckpointSaved::Ahead(10), "its position counts");
    assert_fenced(&refused(env.store().save_checkpoint(at(11).with_epoch(4)).await), 4, 5);
}

async fn tail_goes_on_from_the_checkpoint(mut env: Env) {
    let (_, ids) = neighbours(env.store(), 0, 1).await;
    append_many(env.store(), &ids[0], "c", 10).await;
    let mut handled = Vec::new();
    // Each run handles two batches, but its node dies before the second one's checkpoint is saved.
    for _ in 0..4 {
        let checkpoint = env.store().checkpoint(&mailer(), &partition(0)).await.expect("a read");
        let from = checkpoint.map_or(0, |checkpoint| checkpoint.position);
        let request = TailRequest::new(shop()).after_positions([(0, from)]).with_max_commits(2);
        let mut tail = env.store().tail(request).await.expect("a tail");
        let first = soon("a batch", tail.next()).await.expect("a batch");
        env.store().save_checkpoint(at(first.through)).await.expect("it is saved");
        let second = soon("a batch", tail.next()).await.expect("a batch");
        handled.push((positions(&first.commits), positions(&second.commits)));
        env.reopen().await;
    }
    let again = |from: u64| (vec![from, from + 1], vec![from + 2, from + 3]);
    assert_eq!(
        handled,
        [1, 3, 5, 7].map(again),
        "what was handled after it is delivered again, nothing skipped"
    );
}
