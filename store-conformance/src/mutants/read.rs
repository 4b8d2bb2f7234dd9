//! Faults of reading the log (L9, T5): of loads, pages, heads, partitions and filters.

use futures_util::{StreamExt as _, stream};
use wow_store_api::{
    CommitFilter, CommitStream, ContextName, Error, EventLog as _, MAX_COUNTER, Page, PartitionCount,
    Position, ReadPage, RecordedCommit, Result, Timestamp, VersionRange,
};

use super::{Mutant, mutants};

mutants! { ReadFault in "read":
    /// The first version of a range is left out.
    FirstVersionIsExclusive => [
        "read::load_takes_ranges_of_every_shape",
        "read::load_streams_a_long_aggregate_in_order",
    ],
    /// The last version of a range is left out.
    LastVersionIsExclusive => [
        "read::load_takes_ranges_of_every_shape",
        "read::load_streams_a_long_aggregate_in_order",
    ],
    /// A range that starts behind the aggregate's version gives its last commit.
    EmptyLoadGivesSomething => ["read::load_takes_ranges_of_every_shape"],
    /// A load ends after a thousand commits.
    LoadEndsAfterAThousand => ["read::load_streams_a_long_aggregate_in_order"],
    /// A load gives one commit twice where a page of it ends.
    LoadRepeatsAtAPage => ["read::load_streams_a_long_aggregate_in_order"],
    /// As of an instant is before it.
    AsOfIsExclusive => ["read::load_as_of_is_inclusive"],
    /// As of an instant is a minute later.
    AsOfIsLate => ["read::load_as_of_is_inclusive"],
    /// A commit carries the time of the clock, even if that was set back.
    InstantsFall => ["read::committed_at_never_falls_along_a_partition"],
    /// Heads are what they were when they were asked for before.
    HeadsLag => [
        "log::refused_append_leaves_no_trace",
        "read::heads_are_the_last_positions",
        "append_all::nothing_is_stored_if_one_is_refused",
        "append_all::a_thousand_commits_are_taken_and_one_more_refused",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
    ],
    /// Heads are one position behind.
    HeadsAreOneBehind => [
        "log::append_numbers_versions_and_positions_densely",
        "log::replay_returns_the_first_receipt_whatever_is_asked",
        "log::refused_append_leaves_no_trace",
        "log::contexts_have_logs_of_their_own",
        "log::second_handle_continues_what_the_first_wrote",
        "log::reopen_keeps_everything",
        "read::heads_are_the_last_positions",
        "append_all::no_commits_give_no_receipts",
        "append_all::all_are_stored_in_the_order_given",
        "append_all::nothing_is_stored_if_one_is_refused",
        "append_all::a_command_given_twice_is_stored_once",
        "append_all::replays_and_new_commits_mix",
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_all::a_thousand_commits_are_taken_and_one_more_refused",
        "append_races::one_version_has_one_winner",
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "append_races::new_aggregate_types_appear_from_many_tasks_at_once",
        "append_races::appends_in_opposite_orders_never_deadlock",
        "append_races::several_commits_race_as_one",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_dropped_append_of_several_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::delivers_everything_in_order_from_the_beginning",
        "tail::from_now_leaves_out_what_is_there",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_dropped_next_loses_nothing",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::nothing_is_missed_under_concurrent_writers",
        "payload::floats_that_are_no_numbers_are_refused",
        "payload::the_largest_commit_is_taken_and_one_byte_more_refused",
        "names::the_longest_names_are_kept_whole",
        "names::names_differ_by_case_and_by_their_separators",
        "names::names_that_break_the_rule_are_refused",
        "names::ids_are_compared_by_bytes",
        "names::strange_ids_come_back_as_they_were",
        "names::ids_that_break_the_rule_are_refused",
        "names::a_tenant_is_part_of_the_identity",
        "riders::appends_race_for_one_timer",
        "admin::close_ends_tails",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
        "admin::after_close_everything_is_refused",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// Heads count from the second partition.
    HeadsLeaveOneOut => [
        "log::append_numbers_versions_and_positions_densely",
        "log::replay_returns_the_first_receipt_whatever_is_asked",
        "log::refused_append_leaves_no_trace",
        "log::contexts_have_logs_of_their_own",
        "log::second_handle_continues_what_the_first_wrote",
        "log::reopen_keeps_everything",
        "read::heads_are_the_last_positions",
        "append_all::no_commits_give_no_receipts",
        "append_all::all_are_stored_in_the_order_given",
        "append_all::nothing_is_stored_if_one_is_refused",
        "append_all::a_command_given_twice_is_stored_once",
        "append_all::replays_and_new_commits_mix",
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_all::a_thousand_commits_are_taken_and_one_more_refused",
        "append_races::one_version_has_one_winner",
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "append_races::new_aggregate_types_appear_from_many_tasks_at_once",
        "append_races::appends_in_opposite_orders_never_deadlock",
        "append_races::several_commits_race_as_one",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_dropped_append_of_several_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::delivers_everything_in_order_from_the_beginning",
        "tail::from_now_leaves_out_what_is_there",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_dropped_next_loses_nothing",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::nothing_is_missed_under_concurrent_writers",
        "payload::floats_that_are_no_numbers_are_refused",
        "payload::the_largest_commit_is_taken_and_one_byte_more_refused",
        "names::the_longest_names_are_kept_whole",
        "names::names_differ_by_case_and_by_their_separators",
        "names::names_that_break_the_rule_are_refused",
        "names::ids_are_compared_by_bytes",
        "names::strange_ids_come_back_as_they_were",
        "names::ids_that_break_the_rule_are_refused",
        "names::a_tenant_is_part_of_the_identity",
        "admin::close_ends_tails",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
        "admin::after_close_everything_is_refused",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// Reading a context that was never used is an error.
    UnusedIsAnError => ["read::an_unused_context_reads_as_empty"],
    /// To look at a context is to use it.
    LookingIsUsing => [
        "read::an_unused_context_reads_as_empty",
        "checkpoint::positions_need_not_be_in_the_log",
    ],
    /// Asking for the number of partitions does not fix it.
    AskingFixesNothing => [
        "read::heads_are_the_last_positions",
        "read::the_number_of_partitions_is_fixed_at_first_use",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "tail::starts_on_a_context_that_was_never_used",
    ],
    /// Opened again, the store has twice as many partitions.
    PartitionsDoubleAtReopen => [
        "log::reopen_keeps_everything",
        "read::the_number_of_partitions_is_fixed_at_first_use",
        "names::strange_ids_come_back_as_they_were",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
        "admin::after_close_everything_is_refused",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// A partition that is not there reads as empty.
    AnyPartitionIsThere => [
        "read::a_partition_that_is_not_there_is_refused",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// A page holds one commit more than asked for.
    PageHoldsOneMore => [
        "read::a_page_stops_at_its_number_of_commits",
        "tail::a_batch_is_what_is_there_up_to_a_number",
        "tail::a_slow_consumer_loses_nothing",
        "checkpoint::tail_goes_on_from_the_checkpoint",
    ],
    /// A page holds all commits, however many were asked for.
    PageHoldsAll => [
        "read::a_page_stops_at_its_number_of_commits",
        "tail::a_batch_is_what_is_there_up_to_a_number",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_busy_partition_does_not_starve_the_others",
        "checkpoint::tail_goes_on_from_the_checkpoint",
    ],
    /// A full page says that there is more behind it.
    FullMeansMore => ["read::a_page_stops_at_its_number_of_commits"],
    /// No page says that there is more behind it.
    NeverMore => [
        "read::a_page_stops_at_its_number_of_commits",
        "read::a_page_stops_at_its_bytes",
        "read::ten_thousand_commits_are_read_in_pages",
        "read::filtered_pages_advance_past_what_they_leave_out",
        "read::aggregates_of_several_types_are_merged_by_position",
        "tail::a_batch_is_what_is_there_up_to_a_number",
        "tail::a_batch_is_bounded_by_bytes",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_busy_partition_does_not_starve_the_others",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::nothing_is_missed_under_concurrent_writers",
        "payload::many_large_commits_are_read_whole",
        "checkpoint::tail_goes_on_from_the_checkpoint",
    ],
    /// The bytes of a page are not counted.
    BytesAreNotCounted => [
        "read::a_page_stops_at_its_bytes",
        "tail::a_batch_is_bounded_by_bytes",
    ],
    /// A commit that is larger than a page is stepped over.
    LargeCommitsAreSteppedOver => [
        "read::a_page_stops_at_its_bytes",
        "tail::a_batch_is_bounded_by_bytes",
        "payload::the_largest_commit_is_taken_and_one_byte_more_refused",
    ],
    /// A page ends before a commit that is larger than it.
    LargeCommitsBlock => [
        "read::a_page_stops_at_its_bytes",
        "tail::a_batch_is_bounded_by_bytes",
        "payload::the_largest_commit_is_taken_and_one_byte_more_refused",
    ],
    /// A page behind the head goes back to it.
    PageGoesBack => [
        "read::an_unused_context_reads_as_empty",
        "read::a_page_behind_the_head_is_empty",
        "tail::waits_behind_a_position_ahead_of_the_log",
        "tail::partitions_and_positions_that_cannot_be_are_refused",
    ],
    /// A page starts with the commit that it was to start after.
    StartsWithTheLast => [
        "read::an_unused_context_reads_as_empty",
        "read::a_page_stops_at_its_number_of_commits",
        "read::a_page_stops_at_its_bytes",
        "read::a_page_behind_the_head_is_empty",
        "read::ten_thousand_commits_are_read_in_pages",
        "read::filtered_pages_advance_past_what_they_leave_out",
        "read::aggregates_of_several_types_are_merged_by_position",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::goes_on_without_end",
        "tail::positions_to_go_on_after_are_exclusive",
        "tail::from_now_leaves_out_what_is_there",
        "tail::waits_behind_a_position_ahead_of_the_log",
        "tail::partitions_and_positions_that_cannot_be_are_refused",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::wakes_up_for_an_append_through_another_handle",
        "tail::a_batch_is_what_is_there_up_to_a_number",
        "tail::a_batch_is_bounded_by_bytes",
        "tail::a_slow_consumer_loses_nothing",
        "tail::a_busy_partition_does_not_starve_the_others",
        "tail::a_dropped_next_loses_nothing",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::nothing_is_missed_under_concurrent_writers",
        "payload::many_large_commits_are_read_whole",
        "checkpoint::tail_goes_on_from_the_checkpoint",
        "admin::close_ends_tails",
    ],
    /// A page steps over a commit where one of 777 ended.
    StepsOverOne => ["read::ten_thousand_commits_are_read_in_pages"],
    /// A page gives its commits by type, then by position.
    OneTypeAfterTheOther => [
        "append_races::new_aggregate_types_appear_from_many_tasks_at_once",
        "names::names_differ_by_case_and_by_their_separators",
        "read::aggregates_of_several_types_are_merged_by_position",
    ],
    /// Types that appeared after a handle first read the log are not read by it.
    NewTypesAreNotRead => [
        "log::contexts_have_logs_of_their_own",
        "append_all::nothing_is_stored_if_one_is_refused",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "tail::starts_on_a_context_that_was_never_used",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::wakes_up_for_an_append_through_another_handle",
        "tail::a_dropped_next_loses_nothing",
        "tail::nothing_is_missed_under_concurrent_writers",
    ],
    /// A filter takes upper and lower case for the same.
    FilterFoldsCase => [
        "read::filter_lets_through_what_was_asked_for",
        "names::strange_event_names_come_back_as_they_were",
    ],
    /// A filter takes names for patterns.
    FilterMatchesPatterns => [
        "read::filter_lets_through_what_was_asked_for",
        "names::strange_event_names_come_back_as_they_were",
    ],
    /// One of the restrictions of a filter is enough.
    FilterIsEither => [
        "read::filter_lets_through_what_was_asked_for",
        "tail::a_filter_delivers_what_it_lets_through",
    ],
    /// A filter on no names at all lets everything through.
    EmptyFilterIsNone => ["read::filter_lets_through_what_was_asked_for"],
    /// A filter cuts the events that were not asked for out of a commit.
    FilterCutsCommits => [
        "read::filter_lets_through_what_was_asked_for",
        "tail::a_filter_delivers_what_it_lets_through",
    ],
    /// The first event decides whether a filter lets a commit through.
    FilterLooksAtTheFirstEvent => ["read::filter_lets_through_what_was_asked_for"],
    /// A page does not advance past what a filter leaves out.
    FilterDoesNotAdvance => [
        "read::filter_lets_through_what_was_asked_for",
        "read::filtered_pages_advance_past_what_they_leave_out",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::a_filter_that_lets_nothing_through_advances",
    ],
}

fn lower(filter: &CommitFilter) -> CommitFilter {
    let events = filter.events().map(|names| {
        names.iter().filter_map(|name| name.as_str().to_lowercase().parse().ok()).collect::<Vec<_>>()
    });
    let aggregates = filter.aggregates().map(|names| {
        names.iter().filter_map(|name| name.as_str().to_lowercase().parse().ok()).collect::<Vec<_>>()
    });
    let all = CommitFilter::all();
    let all = events.into_iter().fold(all, CommitFilter::with_events);
    aggregates.into_iter().fold(all, CommitFilter::with_aggregates)
}

fn lower_commit(commit: &RecordedCommit) -> RecordedCommit {
    let mut commit = commit.clone();
    for event in &mut commit.events {
        if let Ok(name) = event.name.as_str().to_lowercase().parse() {
            event.name = name;
        }
    }
    let id = &commit.aggregate_id;
    let name = id.aggregate_type().name().as_str().to_lowercase();
    if let Ok(id) = wow_store_api::AggregateId::new(id.context(), name, id.id()) {
        commit.aggregate_id = id;
    }
    commit
}

/// Whether a pattern of `%` and `_` matches.
fn like(pattern: &[char], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some(('%', rest)), _) => {
            like(rest, text) || text.split_first().is_some_and(|(_, t)| like(pattern, t))
        }
        (Some(('_', rest)), Some((_, text))) => like(rest, text),
        (Some((p, rest)), Some((t, text))) => p == t && like(rest, text),
        _ => false,
    }
}

fn matches_pattern(filter: &CommitFilter, commit: &RecordedCommit) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    filter.events().is_none_or(|names| {
        let found = |name: &str| names.iter().any(|pattern| like(&chars(pattern.as_str()), &chars(name)));
        commit.events.iter().any(|event| found(event.name.as_str()))
    })
}

impl Mutant {
    pub(super) fn loaded_range(&self, mut versions: VersionRange) -> VersionRange {
        if versions.first > 1 && self.is(ReadFault::FirstVersionIsExclusive) {
            versions.first = versions.first.saturating_add(1);
        }
        if versions.last < MAX_COUNTER && self.is(ReadFault::LastVersionIsExclusive) {
            versions.last = versions.last.saturating_sub(1);
        }
        if versions.first > versions.last && self.is(ReadFault::EmptyLoadGivesSomething) {
            return VersionRange::ALL;
        }
        versions
    }

    pub(super) fn faulty_load(&self, commits: CommitStream) -> CommitStream {
        if self.is(ReadFault::LoadEndsAfterAThousand) {
            return commits.take(1_000).boxed();
        }
        if self.is(ReadFault::LoadRepeatsAtAPage) {
            let twice = |commit: Result<RecordedCommit>| {
                let again = commit.as_ref().is_ok_and(|commit| commit.version.is_multiple_of(256));
                stream::iter(std::iter::repeat_n(commit, 1 + usize::from(again)))
            };
            return commits.flat_map(twice).boxed();
        }
        commits
    }

    pub(super) fn faulty_instant(&self, instant: Timestamp) -> Timestamp {
        let beside = |millis: i64| {
            let at = instant.as_millis().saturating_add(millis);
            Timestamp::from_millis(at).unwrap_or(instant)
        };
        if self.is(ReadFault::AsOfIsExclusive) {
            return beside(-1);
        }
        if self.is(ReadFault::AsOfIsLate) {
            return beside(60_000);
        }
        instant
    }

    /// The instant on a receipt.
    pub(super) async fn faulty_receipt(&self, mut receipt: wow_store_api::Receipt) -> wow_store_api::Receipt {
        if let Ok(now) = wow_store_api::StoreAdmin::now(self.store()).await
            && now < receipt.committed_at
            && !receipt.replayed
            && self.is(ReadFault::InstantsFall)
        {
            receipt.committed_at = now;
        }
        receipt
    }

    pub(super) async fn faulty_partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        let unused = self.store().heads(context).await.is_ok_and(|heads| heads.is_empty());
        if unused && self.is(ReadFault::AskingFixesNothing) {
            return Ok(PartitionCount::DEFAULT);
        }
        let count = self.store().partitions(context).await?;
        if self.reopened() > 0 && self.is(ReadFault::PartitionsDoubleAtReopen) {
            return PartitionCount::new(count.get() * 2);
        }
        Ok(count)
    }

    pub(super) async fn faulty_heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        let mut heads = self.store().heads(context).await?;
        if heads.is_empty() && self.is(ReadFault::LookingIsUsing) {
            self.store().partitions(context).await?;
            return self.store().heads(context).await;
        }
        if self.is(ReadFault::HeadsLag) {
            return Ok(self.own().put(format!("heads {context}"), heads.clone()).unwrap_or(heads));
        }
        if heads.iter().any(|head| *head > 0) {
            if self.is(ReadFault::HeadsAreOneBehind) {
                heads.iter_mut().for_each(|head| *head = head.saturating_sub(1));
            }
            if self.is(ReadFault::HeadsLeaveOneOut) {
                heads.rotate_left(1);
            }
        }
        Ok(heads)
    }

    /// A page for a filter that is evaluated in another way.
    async fn filtered(&self, page: ReadPage, lets_through: impl Fn(&RecordedCommit) -> bool) -> Result<Page> {
        let mut found = self.store().read(ReadPage { filter: CommitFilter::all(), ..page }).await?;
        found.commits.retain(lets_through);
        Ok(found)
    }

    async fn filtered_page(&self, page: ReadPage) -> Result<Page> {
        let filter = page.filter.clone();
        if self.is(ReadFault::FilterFoldsCase) {
            let filter = lower(&filter);
            return self.filtered(page, |commit| filter.matches(&lower_commit(commit))).await;
        }
        if filter.aggregates().is_none() && self.is(ReadFault::FilterMatchesPatterns) {
            return self.filtered(page, |commit| matches_pattern(&filter, commit)).await;
        }
        if let (Some(aggregates), Some(events)) = (filter.aggregates(), filter.events())
            && self.is(ReadFault::FilterIsEither)
        {
            let either = |commit: &RecordedCommit| {
                let name = commit.aggregate_id.aggregate_type().name();
                aggregates.contains(name) || commit.events.iter().any(|event| events.contains(&event.name))
            };
            return self.filtered(page, either).await;
        }
        let empty = filter.aggregates().is_some_and(|names| names.is_empty())
            || filter.events().is_some_and(|names| names.is_empty());
        if empty && self.is(ReadFault::EmptyFilterIsNone) {
            return self.filtered(page, |_| true).await;
        }
        if let Some(events) = filter.events() {
            if self.is(ReadFault::FilterCutsCommits) {
                let mut found = self.store().read(page).await?;
                let cut = |commit: &mut RecordedCommit| commit.events.retain(|it| events.contains(&it.name));
                found.commits.iter_mut().for_each(cut);
                return Ok(found);
            }
            if self.is(ReadFault::FilterLooksAtTheFirstEvent) {
                let first = |commit: &RecordedCommit| {
                    filter.matches(commit)
                        && commit.events.first().is_some_and(|it| events.contains(&it.name))
                };
                return self.filtered(page, first).await;
            }
        }
        if self.is(ReadFault::FilterDoesNotAdvance) {
            let mut found = self.store().read(page.clone()).await?;
            found.through = found.commits.last().map_or(page.after_position, |commit| commit.position);
            return Ok(found);
        }
        self.store().read(page).await
    }

    async fn unused(&self, page: &ReadPage) -> Result<()> {
        let context = page.partition.context();
        let heads = self.store().heads(context).await?;
        if heads.is_empty() && self.is(ReadFault::UnusedIsAnError) {
            return Err(Error::invalid_input("there is no such context"));
        }
        if heads.is_empty() && self.is(ReadFault::LookingIsUsing) {
            self.store().partitions(context).await?;
        }
        Ok(())
    }

    /// What [`EventLog::read`](wow_store_api::EventLog::read) gives.
    pub(super) async fn faulty_page(&self, mut page: ReadPage) -> Result<Page> {
        self.unused(&page).await?;
        let after = page.after_position;
        if after > 0 && self.is(ReadFault::StartsWithTheLast) {
            page.after_position -= 1;
        }
        if after > 0 && after.is_multiple_of(777) && self.is(ReadFault::StepsOverOne) {
            page.after_position += 1;
        }
        let max_commits = page.max_commits;
        if max_commits < ReadPage::DEFAULT_MAX_COMMITS && self.is(ReadFault::PageHoldsOneMore) {
            page.max_commits += 1;
        }
        if max_commits < ReadPage::DEFAULT_MAX_COMMITS && self.is(ReadFault::PageHoldsAll) {
            page.max_commits = ReadPage::LIMIT_MAX_COMMITS;
        }
        let max_bytes = page.max_bytes;
        if max_bytes < ReadPage::DEFAULT_MAX_BYTES && self.is(ReadFault::BytesAreNotCounted) {
            page.max_bytes = usize::MAX;
        }
        let outcome = match page.filter.is_all() {
            true => self.store().read(page).await,
            false => self.filtered_page(page).await,
        };
        let mut found = match outcome {
            Ok(found) => found,
            Err(error)
                if *error.kind() != wow_store_api::ErrorKind::Closed
                    && self.is(ReadFault::AnyPartitionIsThere) =>
            {
                return Ok(Page::empty(after));
            }
            Err(error) => return Err(error),
        };
        let large = |commit: &RecordedCommit| {
            commit.events.iter().map(|it| it.body.as_json().len()).sum::<usize>() > max_bytes
        };
        if let Some(at) = found.commits.iter().position(large) {
            if self.is(ReadFault::LargeCommitsAreSteppedOver) {
                found.commits.retain(|commit| !large(commit));
            }
            if self.is(ReadFault::LargeCommitsBlock) {
                found.through = found.commits[at].position - 1;
                found.commits.truncate(at);
                found.more = true;
            }
        }
        if found.commits.len() == max_commits && !found.more && self.is(ReadFault::FullMeansMore) {
            found.more = true;
        }
        if found.more && self.is(ReadFault::NeverMore) {
            found.more = false;
        }
        if found.commits.is_empty() && found.through > 0 && self.is(ReadFault::PageGoesBack) {
            return self.back_to_the_head(found).await;
        }
        self.faulty_types(found).await
    }

    async fn back_to_the_head(&self, found: Page) -> Result<Page> {
        let heads = self.store().heads(&ContextName::new("shop")?).await?;
        let head = heads.into_iter().max().unwrap_or_default();
        Ok(Page { through: found.through.min(head), ..found })
    }

    async fn faulty_types(&self, mut found: Page) -> Result<Page> {
        let name = |commit: &RecordedCommit| commit.aggregate_id.aggregate_type().to_string();
        if found.commits.iter().any(|commit| name(commit) != name(&found.commits[0]))
            && self.is(ReadFault::OneTypeAfterTheOther)
        {
            found.commits.sort_by_key(|commit| (name(commit), commit.position));
        }
        if self.is(ReadFault::NewTypesAreNotRead) {
            let types: Vec<_> = self.store().aggregate_types().await?;
            let known = self.own().get("known types").unwrap_or_else(|| types.clone());
            self.own().put("known types", known.clone());
            found.commits.retain(|commit| known.contains(commit.aggregate_id.aggregate_type()));
        }
        Ok(found)
    }
}
