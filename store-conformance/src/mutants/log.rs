//! Faults of the log, one writer at a time (L1 to L5, L10), and the log of the mutant as a whole.

use async_trait::async_trait;
use futures_util::StreamExt as _;
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, CommitStream, ContextName, Error, ErrorKind,
    EventLog, ExpectedVersion, Page, PartitionCount, PartitionId, Position, ReadPage, Receipt,
    RecordedCommit, Result, StoreExt as _, Timestamp, Version, VersionRange, Watcher, rules,
};

use super::{Mutant, mutants, rewrite::rewrite};

mutants! { LogFault in "log":
    /// The expected version is not looked at.
    IgnoresExpectedVersion => [
        "log::append_rejects_every_other_expected_version",
        "log::no_stream_is_exact_zero",
        "log::refused_append_leaves_no_trace",
        "log::aggregate_types_appear_with_their_first_commit",
        "log::second_handle_continues_what_the_first_wrote",
        "append_all::nothing_is_stored_if_one_is_refused",
        "append_all::a_later_commit_sees_the_earlier_ones",
        "append_all::the_first_refusal_is_told",
        "append_races::one_version_has_one_winner",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "append_races::several_commits_race_as_one",
        "riders::version_conflict_takes_them_all_back",
        "riders::one_refused_rider_refuses_all_commits",
        "riders::version_is_looked_at_first",
        "admin::an_error_names_the_operation_and_the_store",
        "admin::no_payload_is_shown_anywhere",
    ],
    /// A version lower than the aggregate's is accepted.
    AcceptsLowerVersions => [
        "log::append_rejects_every_other_expected_version",
        "log::no_stream_is_exact_zero",
        "log::refused_append_leaves_no_trace",
        "log::second_handle_continues_what_the_first_wrote",
        "append_races::one_version_has_one_winner",
    ],
    /// A version higher than the aggregate's is accepted.
    AcceptsHigherVersions => [
        "log::append_rejects_every_other_expected_version",
        "log::refused_append_leaves_no_trace",
        "log::aggregate_types_appear_with_their_first_commit",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
    ],
    /// No stream is taken for whatever it is.
    NoStreamIsAny => [
        "log::append_rejects_every_other_expected_version",
        "log::no_stream_is_exact_zero",
        "riders::version_conflict_takes_them_all_back",
        "riders::version_is_looked_at_first",
        "admin::an_error_names_the_operation_and_the_store",
        "admin::no_payload_is_shown_anywhere",
    ],
    /// Version 0 is taken for whatever it is.
    ZeroIsAny => [
        "log::append_rejects_every_other_expected_version",
        "log::no_stream_is_exact_zero",
        "log::refused_append_leaves_no_trace",
        "log::second_handle_continues_what_the_first_wrote",
        "append_races::one_version_has_one_winner",
    ],
    /// Any version is expected to be the one that the fifth commit finds.
    AnyEndsAtTheFifth => [
        "log::append_numbers_versions_and_positions_densely",
        "log::any_goes_behind_whatever_is_there",
        "log::reopen_keeps_everything",
        "read::load_takes_ranges_of_every_shape",
        "read::load_as_of_is_inclusive",
        "read::a_page_stops_at_its_number_of_commits",
        "read::a_page_stops_at_its_bytes",
        "read::filter_lets_through_what_was_asked_for",
        "read::filtered_pages_advance_past_what_they_leave_out",
        "read::aggregates_of_several_types_are_merged_by_position",
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::order_of_arrival_is_kept_for_one_aggregate",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::delivers_everything_in_order_from_the_beginning",
        "tail::goes_on_without_end",
        "tail::positions_to_go_on_after_are_exclusive",
        "tail::waits_behind_a_position_ahead_of_the_log",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::a_batch_is_what_is_there_up_to_a_number",
        "tail::a_batch_is_bounded_by_bytes",
        "tail::a_dropped_next_loses_nothing",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::a_filter_that_lets_nothing_through_advances",
        "tail::nothing_is_missed_under_concurrent_writers",
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::keys_of_every_kind_are_data",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "payload::many_large_commits_are_read_whole",
        "names::command_ids_are_compared_by_bytes",
        "names::strange_event_names_come_back_as_they_were",
        "names::the_longest_ids_are_kept_whole",
        "checkpoint::tail_goes_on_from_the_checkpoint",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "snapshot::latest_wins_under_concurrent_saves",
        "snapshot::version_decides_within_one_instant",
        "snapshot::aggregates_and_tenants_are_separate",
        "ledger::advance_moves_behind_the_commit_and_never_back",
        "ledger::parked_again_while_retrying",
        "ledger::late_resolve_does_not_end_a_retry",
        "ledger::later_commits_wait_then_go_on_in_order",
        "ledger::discarded_commit_is_never_handled_again",
        "admin::appends_under_way_are_finished_by_close",
        "snapshot::state_comes_back_exactly",
    ],
    /// A conflict says that the aggregate is where the append expected it to be.
    ConflictTellsTheExpected => ["log::append_rejects_every_other_expected_version"],
    /// A conflict says that it may have been applied.
    ConflictIsUnknown => [
        "log::append_rejects_every_other_expected_version",
        "append_races::one_version_has_one_winner",
        "fence::fence_is_looked_at_before_the_version",
        "riders::version_conflict_takes_them_all_back",
        "riders::version_is_looked_at_first",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// The loser of a version is told that it won.
    ConflictIsAcknowledged => [
        "log::append_rejects_every_other_expected_version",
        "log::no_stream_is_exact_zero",
        "log::refused_append_leaves_no_trace",
        "log::aggregate_types_appear_with_their_first_commit",
        "log::second_handle_continues_what_the_first_wrote",
        "append_races::one_version_has_one_winner",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "fence::fence_is_looked_at_before_the_version",
        "riders::version_conflict_takes_them_all_back",
        "riders::version_is_looked_at_first",
        "admin::an_error_names_the_operation_and_the_store",
        "admin::no_payload_is_shown_anywhere",
    ],
    /// Every seventh commit of an aggregate is acknowledged and not stored.
    LosesTheSeventh => [
        "log::append_numbers_versions_and_positions_densely",
        "log::second_handle_continues_what_the_first_wrote",
        "log::reopen_keeps_everything",
        "read::a_page_stops_at_its_number_of_commits",
        "read::a_page_stops_at_its_bytes",
        "read::filtered_pages_advance_past_what_they_leave_out",
        "read::aggregates_of_several_types_are_merged_by_position",
        "append_races::one_version_has_one_winner",
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::order_of_arrival_is_kept_for_one_aggregate",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::goes_on_without_end",
        "tail::positions_to_go_on_after_are_exclusive",
        "tail::follows_new_aggregate_types",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::a_batch_is_what_is_there_up_to_a_number",
        "tail::a_batch_is_bounded_by_bytes",
        "tail::a_dropped_next_loses_nothing",
        "tail::a_filter_delivers_what_it_lets_through",
        "tail::a_filter_that_lets_nothing_through_advances",
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::keys_of_every_kind_are_data",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "names::command_ids_are_compared_by_bytes",
        "names::strange_event_names_come_back_as_they_were",
        "checkpoint::tail_goes_on_from_the_checkpoint",
        "snapshot::latest_wins_under_concurrent_saves",
        "snapshot::version_decides_within_one_instant",
        "ledger::later_commits_wait_then_go_on_in_order",
        "ledger::discarded_commit_is_never_handled_again",
        "admin::appends_under_way_are_finished_by_close",
        "snapshot::state_comes_back_exactly",
    ],
    /// Every seventh version is passed over, on the receipt.
    TellsAnotherVersion => [
        "log::append_numbers_versions_and_positions_densely",
        "log::second_handle_continues_what_the_first_wrote",
        "log::reopen_keeps_everything",
        "append_races::one_version_has_one_winner",
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::order_of_arrival_is_kept_for_one_aggregate",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::goes_on_without_end",
        "tail::follows_new_aggregate_types",
        "names::command_ids_are_compared_by_bytes",
        "ledger::discarded_commit_is_never_handled_again",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// Only the last command of an aggregate is known.
    KnowsTheLastCommandOnly => [
        "log::replay_returns_the_first_receipt_whatever_is_asked",
        "log::replay_works_after_a_thousand_more_commits",
        "log::reopen_keeps_everything",
        "names::command_ids_are_compared_by_bytes",
        "fence::replay_is_answered_whatever_the_fence",
    ],
    /// A command is forgotten after a thousand more.
    ForgetsAfterAThousand => ["log::replay_works_after_a_thousand_more_commits"],
    /// Commands are forgotten when the store is opened again.
    ForgetsCommandsAtReopen => ["log::reopen_keeps_everything"],
    /// The expected version is looked at before the command.
    VersionBeforeCommand => [
        "log::replay_returns_the_first_receipt_whatever_is_asked",
        "log::second_handle_continues_what_the_first_wrote",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
    ],
    /// A replay is not marked as one.
    ReplayIsNotMarked => [
        "log::replay_returns_the_first_receipt_whatever_is_asked",
        "log::replay_works_after_a_thousand_more_commits",
        "log::a_command_id_belongs_to_its_aggregate",
        "log::second_handle_continues_what_the_first_wrote",
        "log::reopen_keeps_everything",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "names::command_ids_are_compared_by_bytes",
        "fence::replay_is_answered_whatever_the_fence",
        "riders::replay_does_not_run_them_again",
    ],
    /// A replay gets the receipt of the last commit.
    ReplayTellsTheLast => [
        "log::replay_returns_the_first_receipt_whatever_is_asked",
        "log::replay_works_after_a_thousand_more_commits",
        "log::reopen_keeps_everything",
        "names::command_ids_are_compared_by_bytes",
        "fence::replay_is_answered_whatever_the_fence",
    ],
    /// A replay with other events replaces what was stored under the command.
    ReplayOverwrites => ["log::replay_returns_the_first_receipt_whatever_is_asked"],
    /// The tenants of an id share its commands.
    TenantsShareCommands => [
        "log::a_command_id_belongs_to_its_aggregate",
        "names::the_longest_ids_are_kept_whole",
        "names::a_tenant_is_part_of_the_identity",
        "snapshot::aggregates_and_tenants_are_separate",
        "snapshot::delete_drops_one",
        "snapshot::drop_takes_all_of_one_type",
    ],
    /// Asked beforehand, a command that is not known has the receipt of the last commit.
    UnknownCommandHasAReceipt => [
        "log::receipt_is_told_beforehand",
        "names::command_ids_are_compared_by_bytes",
    ],
    /// Asked beforehand, a receipt is not marked as replayed.
    ReceiptIsNotMarked => [
        "log::receipt_is_told_beforehand",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// The command of a refused append is refused for ever.
    RemembersRefusals => [
        "log::refused_append_leaves_no_trace",
        "fence::overtaken_owner_cannot_append",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "riders::version_conflict_takes_them_all_back",
        "riders::fenced_append_takes_them_all_back",
        "riders::version_is_looked_at_first",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// A refused append uses up a position.
    RefusalsUseUpPositions => [
        "log::refused_append_leaves_no_trace",
        "log::aggregate_types_appear_with_their_first_commit",
        "log::second_handle_continues_what_the_first_wrote",
        "append_races::one_version_has_one_winner",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "riders::version_conflict_takes_them_all_back",
        "riders::fenced_append_takes_them_all_back",
        "riders::version_is_looked_at_first",
    ],
    /// The events of a commit come back last first.
    TurnsEventsRound => [
        "log::recorded_commit_is_what_was_appended",
        "log::seventy_thousand_events_fit_in_one_commit",
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::strings_are_left_alone",
        "payload::the_nul_character_is_refused",
        "payload::half_surrogate_pairs_are_refused",
        "payload::keys_of_every_kind_are_data",
        "payload::a_key_given_twice_is_refused",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "payload::wide_and_long_documents_are_kept",
        "query::envelope_of_events",
        "query::events_are_found_one_by_one",
    ],
    /// More than 65,535 events are cut off.
    CutsEventsOff => ["log::seventy_thousand_events_fit_in_one_commit"],
    /// An event's revision is kept in a byte.
    CutsRevisions => ["log::recorded_commit_is_what_was_appended"],
    /// Types are listed in the order in which they appeared.
    TypesAsTheyAppear => [
        "log::aggregate_types_appear_with_their_first_commit",
        "names::the_longest_names_are_kept_whole",
    ],
    /// Types are those that were there when they were first asked for.
    TypesAreCached => ["log::aggregate_types_appear_with_their_first_commit"],
    /// The type of a refused commit is listed.
    RefusedTypesAreListed => ["log::aggregate_types_appear_with_their_first_commit"],
    /// A handle that was opened second knows no commit that came after it first asked for the aggregate's version.
    SecondHandleCachesVersions => [
        "log::second_handle_continues_what_the_first_wrote",
        "append_races::what_was_acknowledged_is_seen_by_all",
    ],
    /// Opened again, the store does not load the last commit of an aggregate.
    ReopenLosesTheLast => [
        "log::reopen_keeps_everything",
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::strings_are_left_alone",
        "payload::the_nul_character_is_refused",
        "payload::half_surrogate_pairs_are_refused",
        "payload::keys_of_every_kind_are_data",
        "payload::a_key_given_twice_is_refused",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "payload::wide_and_long_documents_are_kept",
        "names::names_that_mean_something_elsewhere_work",
        "names::strange_ids_come_back_as_they_were",
        "ledger::discarded_commit_is_never_handled_again",
        "admin::formats_are_recorded",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
        "admin::after_close_everything_is_refused",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// All contexts that start alike share the positions of the first.
    ContextsShareHeads => ["log::contexts_have_logs_of_their_own"],
}

/// A commit whose positions nobody ever sees: what a refusal leaves behind.
const BURNED: &str = "burned";

impl Mutant {
    /// Whether this commit is one of those that only use up positions.
    pub(super) fn is_burned(commit: &RecordedCommit) -> bool {
        commit.aggregate_id.id().starts_with(BURNED)
    }

    /// The partition of an aggregate, and its head.
    pub(super) async fn place(&self, id: &AggregateId) -> Result<(PartitionId, Position)> {
        let heads = self.store().heads(id.context()).await?;
        // A context that was never used stays so.
        let count = PartitionCount::new(heads.len() as u32).unwrap_or_default();
        let partition = count.partition_of(id);
        let head = heads.get(partition.index() as usize).copied().unwrap_or_default();
        Ok((partition, head))
    }

    pub(super) async fn last_receipt(&self, id: &AggregateId) -> Result<Option<Receipt>> {
        let head = self.store().head(id).await?;
        let mut last = self.store().load(id, head.max(1)..).await?;
        Ok(last.next().await.transpose()?.map(|commit| commit.receipt()))
    }

    /// What an append fails with that finds another version.
    pub(super) fn conflict(commit: &CheckedCommit, actual: Version) -> Error {
        let (aggregate_id, expected) = (commit.aggregate_id().clone(), commit.expected());
        Error::not_applied(ErrorKind::VersionConflict { aggregate_id, expected, actual })
    }

    async fn burn(&self, id: &AggregateId) -> Result<()> {
        let count = self.store().partitions(id.context()).await?;
        let partition = count.partition_of(id);
        let names = (0..).map(|n: u64| AggregateId::of(id.aggregate_type().clone(), format!("{BURNED}-{n}")));
        let here = names.flatten().find(|it| count.partition_of(it) == partition).expect("one of many");
        let number = self.shared().count("burned");
        let commit = wow_store_api::Commit::new(here, number.to_string()).event("Burned", 1, &number)?;
        self.store().append(commit).await.map(|_| ())
    }

    fn faulty_commit(&self, commit: CheckedCommit) -> CheckedCommit {
        let commit = self.stored_commit(commit);
        if commit.expected() != ExpectedVersion::Any && self.is(LogFault::IgnoresExpectedVersion) {
            return rewrite(&commit, |parts| parts.expected = ExpectedVersion::Any);
        }
        if commit.events().len() > 1 && self.is(LogFault::TurnsEventsRound) {
            return rewrite(&commit, |parts| parts.events.reverse());
        }
        if commit.events().len() > 65_535 && self.is(LogFault::CutsEventsOff) {
            return rewrite(&commit, |parts| parts.events.truncate(65_535));
        }
        if commit.events().iter().any(|it| it.revision > 255) && self.is(LogFault::CutsRevisions) {
            return rewrite(&commit, |parts| parts.events.iter_mut().for_each(|it| it.revision %= 256));
        }
        commit
    }

    /// Appends a command that is not known.
    async fn append_new(&self, mut commit: CheckedCommit, head: Version) -> Result<Receipt> {
        let expected = commit.expected();
        let any = match expected {
            ExpectedVersion::NoStream => head > 0 && self.is(LogFault::NoStreamIsAny),
            ExpectedVersion::Exact(0) if head > 0 => {
                self.is(LogFault::ZeroIsAny) || self.is(LogFault::AcceptsLowerVersions)
            }
            ExpectedVersion::Exact(version) if version < head => self.is(LogFault::AcceptsLowerVersions),
            ExpectedVersion::Exact(version) if version > head => self.is(LogFault::AcceptsHigherVersions),
            ExpectedVersion::Any if head == 4 && self.is(LogFault::AnyEndsAtTheFifth) => {
                return Err(Self::conflict(&commit, head));
            }
            ExpectedVersion::Exact(_) | ExpectedVersion::Any => false,
        };
        if any {
            commit = rewrite(&commit, |parts| parts.expected = ExpectedVersion::Any);
        }
        if !commit.expected().is_met_by(head) {
            if let ExpectedVersion::Exact(version) = expected
                && self.is(LogFault::ConflictTellsTheExpected)
            {
                return Err(Self::conflict(&commit, version));
            }
            if self.is(LogFault::ConflictIsUnknown) {
                return Err(Self::conflict(&commit, head).with_outcome(wow_store_api::Outcome::Unknown));
            }
            if self.is(LogFault::ConflictIsAcknowledged) {
                let last = self.last_receipt(commit.aggregate_id()).await?;
                let (partition, _) = self.place(commit.aggregate_id()).await?;
                let now = rules::append::receipt(partition, 1, 1, Timestamp::UNIX_EPOCH);
                return Ok(last.unwrap_or(now));
            }
        } else if (head + 1).is_multiple_of(7) && self.is(LogFault::LosesTheSeventh) {
            let (partition, position) = self.place(commit.aggregate_id()).await?;
            let now = wow_store_api::StoreAdmin::now(self.store()).await?;
            return Ok(rules::append::receipt(partition, head + 1, position + 1, now));
        }
        let (id, command) = (commit.aggregate_id().clone(), commit.command_id().clone());
        let refusal = format!("refusal {id:?} {command:?}");
        if let Some(error) = self.shared().get::<Error>(&refusal) {
            return Err(error);
        }
        let outcome = self.append_last(commit).await;
        match &outcome {
            Ok(receipt) => {
                self.shared().put(format!("born {id:?} {command:?}"), self.reopened());
                if receipt.version.is_multiple_of(7) && self.is(LogFault::TellsAnotherVersion) {
                    return Ok(Receipt { version: receipt.version + 1, ..receipt.clone() });
                }
            }
            Err(error) if error.is_conflict() || error.is_fenced() => {
                if self.is(LogFault::RemembersRefusals) {
                    self.shared().put(refusal, error.clone());
                }
                if self.is(LogFault::RefusalsUseUpPositions) {
                    self.burn(&id).await?;
                }
                if head == 0 && self.is(LogFault::RefusedTypesAreListed) {
                    self.shared().put("refused type", id.aggregate_type().clone());
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Appends a command that is known.
    async fn append_again(&self, commit: CheckedCommit, first: Receipt, head: Version) -> Result<Receipt> {
        let (id, command) = (commit.aggregate_id().clone(), commit.command_id().clone());
        let older = head - first.version;
        let born: u64 = self.shared().get(&format!("born {id:?} {command:?}")).unwrap_or_default();
        let forgets = (older > 0 && self.is(LogFault::KnowsTheLastCommandOnly))
            || (older >= 1_000 && self.is(LogFault::ForgetsAfterAThousand))
            || (born < self.reopened() && self.is(LogFault::ForgetsCommandsAtReopen));
        if forgets {
            let number = self.shared().count("forgotten");
            let commit = rewrite(&commit, |parts| parts.command_id = format!("forgotten-{number}"));
            return self.append_last(commit).await;
        }
        if !commit.expected().is_met_by(head) && self.is(LogFault::VersionBeforeCommand) {
            return Err(Self::conflict(&commit, head));
        }
        if self.is(LogFault::ReplayIsNotMarked) {
            return Ok(Receipt { replayed: false, ..first });
        }
        if older > 0 && self.is(LogFault::ReplayTellsTheLast) {
            return Ok(self.last_receipt(&id).await?.unwrap_or(first).replay());
        }
        if self.is(LogFault::ReplayOverwrites) {
            self.shared().put(format!("events {id:?} {}", first.version), commit.events().to_vec());
        }
        self.append_last(commit).await
    }

    /// An append as it is once all that goes on beside it is settled.
    pub(super) async fn append_one(&self, commit: CheckedCommit) -> Result<Receipt> {
        let (id, command) = (commit.aggregate_id(), commit.command_id());
        let (Ok(known), Ok(head)) = (self.store().receipt(id, command).await, self.store().head(id).await)
        else {
            return self.append_last(commit).await;
        };
        if let Some(first) = known {
            return self.append_again(commit, first, head).await;
        }
        if id.tenant().is_some() && self.is(LogFault::TenantsShareCommands) {
            let plain = AggregateId::of(id.aggregate_type().clone(), id.id())?;
            if let Some(receipt) = self.store().receipt(&plain, command).await? {
                return Ok(receipt);
            }
        }
        self.append_new(commit, head).await
    }

    async fn append_last(&self, commit: CheckedCommit) -> Result<Receipt> {
        self.append_fenced(commit).await
    }

    /// Several commits, as they are once all that goes on beside them is settled.
    pub(super) async fn append_all_last(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        self.append_all_fenced(commits).await
    }

    fn overwritten(&self, mut commit: RecordedCommit) -> RecordedCommit {
        let key = format!("events {:?} {}", commit.aggregate_id, commit.version);
        if let Some(events) = self.shared().get(&key) {
            commit.events = events;
        }
        commit
    }

    async fn loaded(&self, id: &AggregateId, commits: CommitStream) -> Result<CommitStream> {
        let serve = self.serving();
        let overwrites = self.is_fault(LogFault::ReplayOverwrites);
        if overwrites {
            let commits: Vec<_> = commits.collect().await;
            let commits: Vec<_> =
                commits.into_iter().map(|it| it.map(|commit| self.overwritten(commit))).collect();
            return Ok(futures_util::stream::iter(commits).boxed());
        }
        if self.reopened() > 0 && self.is(LogFault::ReopenLosesTheLast) {
            let head = self.store().head(id).await?;
            let commits = commits.filter(move |commit| {
                let last = commit.as_ref().is_ok_and(|commit| commit.version == head);
                std::future::ready(!last)
            });
            return Ok(commits.map(serve).boxed());
        }
        Ok(commits.map(serve).boxed())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for Mutant {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        let commit = self.faulty_commit(commit);
        let refused = self.refused_name(commit.aggregate_id()).and_then(|()| self.refused_size(&commit));
        let outcome = match refused {
            Ok(()) => self.append_racing(commit.clone()).await,
            Err(error) => Err(error),
        };
        if let Ok(receipt) = &outcome {
            self.wake(receipt);
        }
        outcome.map_err(|error| self.told(error, Some(&commit)))
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        let commits: Vec<_> = commits.into_iter().map(|commit| self.faulty_commit(commit)).collect();
        let outcome = self.append_all_racing(commits).await;
        outcome.iter().flatten().for_each(|receipt| self.wake(receipt));
        outcome.map_err(|error| self.told(error, None))
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        let aggregate_id = self.stored_id(aggregate_id);
        let command_id = self.stored_command_id(command_id);
        let receipt = self.store().receipt(&aggregate_id, &command_id).await?;
        match receipt {
            Some(receipt) if self.is(LogFault::ReceiptIsNotMarked) => {
                Ok(Some(Receipt { replayed: false, ..receipt }))
            }
            None if self.is(LogFault::UnknownCommandHasAReceipt) => self.last_receipt(&aggregate_id).await,
            Some(_) | None => Ok(receipt),
        }
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        let aggregate_id = self.stored_id(aggregate_id);
        let head = self.store().head(&aggregate_id).await?;
        if self.is_second() && self.is(LogFault::SecondHandleCachesVersions) {
            let key = format!("head {aggregate_id:?}");
            let cached = self.own().get(&key).unwrap_or(head);
            self.own().put(key, cached);
            return Ok(cached);
        }
        Ok(head)
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        let aggregate_id = self.stored_id(aggregate_id);
        let versions = self.loaded_range(versions);
        let commits = self.store().load_range(&aggregate_id, versions).await?;
        self.loaded(&aggregate_id, self.faulty_load(commits)).await
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        let aggregate_id = self.stored_id(aggregate_id);
        let commits = self.store().load_as_of(&aggregate_id, self.faulty_instant(instant)).await?;
        self.loaded(&aggregate_id, commits).await
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        self.faulty_partitions(context).await
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        if context.as_str().len() != 4 && self.is(LogFault::ContextsShareHeads) {
            let first = context.as_str().get(..4).and_then(|name| ContextName::new(name).ok());
            let first = first.unwrap_or_else(|| context.clone());
            let heads = self.store().heads(&first).await?;
            return if heads.is_empty() { self.faulty_heads(context).await } else { Ok(heads) };
        }
        self.faulty_heads(context).await
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        let page = self.read_page(page).await.map_err(|error| self.told(error, None));
        let (mut page, serve) = (page?, self.serving());
        page.commits.retain(|commit| !Self::is_burned(commit));
        self.served_page(&mut page.commits);
        page.commits = page.commits.into_iter().map(|commit| serve(Ok(commit))).collect::<Result<_>>()?;
        Ok(page)
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        let mut types = self.store().aggregate_types().await?;
        if self.is(LogFault::TypesAreCached) {
            let cached = self.shared().get("types").unwrap_or(types);
            self.shared().put("types", cached.clone());
            return Ok(cached);
        }
        if types.len() > 1 && self.is(LogFault::TypesAsTheyAppear) {
            types.reverse();
        }
        types.extend(self.shared().get::<AggregateType>("refused type"));
        Ok(types)
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.watch_context(context).await
    }
}
