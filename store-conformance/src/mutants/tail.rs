//! Faults of the tail (T1 to T5): of reading a partition and of waking its readers.

use std::sync::Arc;

use tokio::{sync::Semaphore, task::yield_now};
use wow_store_api::{
    ContextName, EventLog as _, MAX_COUNTER, Page, PartitionId, ReadPage, Receipt, Result, Wakeups, Watcher,
};

use super::{Mutant, admin::AdminFault, mutants};

mutants! { TailFault in "tail":
    /// Every seventh wake-up is lost.
    LosesWakeUps => [
        "tail::goes_on_without_end",
        "tail::positions_to_go_on_after_are_exclusive",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::a_watcher_is_woken_by_every_commit",
    ],
    /// A commit wakes the tails of the handle that it was made through.
    WakesItsOwnHandle => ["tail::wakes_up_for_an_append_through_another_handle"],
    /// Tails are woken before the commit can be seen.
    WakesBeforeTheCommit => [
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::a_dropped_next_loses_nothing",
        "tail::nothing_is_missed_under_concurrent_writers",
    ],
    /// Nobody watches a context before it was used.
    UnusedIsNotWatched => [
        "tail::goes_on_without_end",
        "tail::starts_on_a_context_that_was_never_used",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::wakes_up_for_an_append_through_another_handle",
        "tail::a_dropped_next_loses_nothing",
        "tail::nothing_is_missed_under_concurrent_writers",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
    ],
    /// Only the last hundred commits of a partition are kept for tails.
    TailIsARing => [
        "read::ten_thousand_commits_are_read_in_pages",
        "append_all::a_thousand_commits_are_taken_and_one_more_refused",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::appends_in_opposite_orders_never_deadlock",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_busy_partition_does_not_starve_the_others",
        "payload::integers_keep_every_digit",
    ],
    /// A quiet partition is read when the busy ones are done.
    QuietPartitionsWait => [
        "append_all::a_thousand_commits_are_taken_and_one_more_refused",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::appends_in_opposite_orders_never_deadlock",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_busy_partition_does_not_starve_the_others",
    ],
    /// A page that was read and not taken is gone.
    DroppedPagesAreGone => [
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "tail::nothing_is_missed_under_concurrent_writers",
        "read::reads_that_were_begun_and_left_hold_nobody_up",
    ],
    /// A page that is asked for often is read by ten at a time, and who has begun holds up the others until it is done.
    BegunReadsHoldUpOthers => ["read::reads_that_were_begun_and_left_hold_nobody_up"],
    /// A position that is ahead of the log is taken for its head.
    AheadIsTheHead => [
        "read::an_unused_context_reads_as_empty",
        "read::a_page_behind_the_head_is_empty",
        "tail::waits_behind_a_position_ahead_of_the_log",
        "tail::partitions_and_positions_that_cannot_be_are_refused",
    ],
    /// A position beyond the last possible one reads as an error.
    TheLastPositionIsAnError => [
        "read::an_unused_context_reads_as_empty",
        "read::a_page_behind_the_head_is_empty",
        "tail::partitions_and_positions_that_cannot_be_are_refused",
    ],
    /// Positions before the head of a partition's first page are delivered again.
    ReadsFromTheBeginning => [
        "read::a_page_stops_at_its_number_of_commits",
        "read::a_page_stops_at_its_bytes",
        "read::a_page_behind_the_head_is_empty",
        "read::aggregates_of_several_types_are_merged_by_position",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::goes_on_without_end",
        "tail::from_now_leaves_out_what_is_there",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::wakes_up_for_an_append_through_another_handle",
        "tail::a_dropped_next_loses_nothing",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::nothing_is_missed_under_concurrent_writers",
        "payload::many_large_commits_are_read_whole",
        "checkpoint::tail_goes_on_from_the_checkpoint",
        "admin::close_ends_tails",
    ],
}

impl Mutant {
    async fn ring(&self, page: &mut ReadPage) -> Result<()> {
        let partition = &page.partition;
        let heads = self.store().heads(partition.context()).await?;
        let head = heads.get(partition.index() as usize).copied().unwrap_or_default();
        if head > page.after_position.saturating_add(100) && self.is(TailFault::TailIsARing) {
            page.after_position = head - 100;
        }
        if head < page.after_position && self.is(TailFault::AheadIsTheHead) {
            page.after_position = head;
        }
        if page.after_position == MAX_COUNTER && self.is(TailFault::TheLastPositionIsAnError) {
            return Err(wow_store_api::Error::invalid_input("there is nothing after the last position"));
        }
        Ok(())
    }

    async fn waits(&self, page: &ReadPage) -> Result<bool> {
        let partition = &page.partition;
        let heads = self.store().heads(partition.context()).await?;
        let head = heads.get(partition.index() as usize).copied().unwrap_or_default();
        let busy = heads.iter().any(|it| *it >= 100);
        Ok(busy && head < 10 && self.is(TailFault::QuietPartitionsWait))
    }

    /// What [`EventLog::read`](wow_store_api::EventLog::read) does.
    pub(super) async fn read_page(&self, mut page: ReadPage) -> Result<Page> {
        self.ring(&mut page).await?;
        if self.waits(&page).await? {
            return Ok(Page { more: true, ..Page::empty(page.after_position) });
        }
        if page.after_position > 0 && page.after_position < 4 && self.is(TailFault::ReadsFromTheBeginning) {
            page.after_position = 0;
        }
        let request = page.clone();
        let dropped = format!("dropped {} {}", page.partition, page.after_position);
        if self.is_fault(TailFault::DroppedPagesAreGone)
            && let Some(through) = self.own().get::<u64>(&dropped).filter(|through| *through > 0)
        {
            page.after_position = through;
        }
        let often = self.shared().count(format!("reads {} {}", page.partition, page.after_position)) > 50;
        if often && self.is(TailFault::BegunReadsHoldUpOthers) {
            let turns = self.turns();
            let _turn = turns.acquire().await;
            yield_now().await;
            return self.faulty_page(page).await;
        }
        let found = self.faulty_page(page).await?;
        if !found.commits.is_empty() && self.is(TailFault::DroppedPagesAreGone) {
            self.own().put(dropped.clone(), found.through);
            yield_now().await;
            self.own().put(dropped, 0_u64);
        }
        Ok(self.visible(&request, found))
    }

    /// Ten of them, for all handles.
    fn turns(&self) -> Arc<Semaphore> {
        self.shared().get("turns").unwrap_or_else(|| {
            let turns = Arc::new(Semaphore::new(10));
            self.shared().put("turns", Arc::clone(&turns));
            turns
        })
    }

    /// A hub of watchers, of all handles or of this one.
    fn hub(&self, of_all: bool) -> Wakeups {
        let memory = if of_all { self.shared() } else { self.own() };
        memory.get("hub").unwrap_or_else(|| {
            let hub = Wakeups::new();
            memory.put("hub", hub.clone());
            hub
        })
    }

    /// What [`EventLog::watch`](wow_store_api::EventLog::watch) does.
    pub(super) async fn watch_context(&self, context: &ContextName) -> Result<Watcher> {
        let watcher = self.store().watch(context).await?;
        if self.store().heads(context).await?.is_empty() && self.is(TailFault::UnusedIsNotWatched) {
            return Wakeups::new().watch(context);
        }
        if self.is(TailFault::WakesItsOwnHandle) {
            return self.hub(false).watch(context);
        }
        let all = self.is(TailFault::LosesWakeUps)
            || self.is(TailFault::WakesBeforeTheCommit)
            || self.is(AdminFault::CloseLeavesTails);
        if all { self.hub(true).watch(context) } else { Ok(watcher) }
    }

    /// Tells the watchers of a hub, if there is one.
    pub(super) fn wake_now(&self, partition: &PartitionId) {
        for memory in [self.shared(), self.own()] {
            if let Some(hub) = memory.get::<Wakeups>("hub") {
                hub.notify(partition.context(), partition.index());
            }
        }
    }

    /// A commit is stored.
    pub(super) fn wake(&self, receipt: &Receipt) {
        let lost =
            self.is_fault(TailFault::LosesWakeUps) && self.shared().count("wake-ups").is_multiple_of(7);
        if !lost && !self.is_fault(TailFault::WakesBeforeTheCommit) {
            self.wake_now(&receipt.partition);
        }
    }

    /// The store is closed.
    pub(super) fn close_hubs(&self) {
        for memory in [self.shared(), self.own()] {
            if let Some(hub) = memory.put("hub", Wakeups::new())
                && !self.is_fault(AdminFault::CloseLeavesTails)
            {
                hub.close();
            }
        }
    }
}
