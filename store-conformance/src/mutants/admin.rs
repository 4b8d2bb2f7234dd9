//! Faults of the store itself (D3, N3): its formats, its clock, its end, and of what its errors say.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use wow_store_api::{CheckedCommit, Error, Format, Result, StoreAdmin, Timestamp};

use super::{Mutant, mutants};

mutants! { AdminFault in "admin":
    /// No format is recorded.
    NoFormats => ["admin::formats_are_recorded"],
    /// A format is recorded once for each time that the store was opened.
    FormatsPileUp => ["admin::formats_are_recorded"],
    /// The time is that of the client, an hour late.
    TimeIsTheClients => [
        "checkpoint::saved_at_is_the_stores_time",
        "lease::leases_are_listed_by_partition",
        "lease::fractions_of_a_millisecond_round_up",
        "member::heartbeats_keep_the_day_of_joining",
        "member::member_is_gone_at_the_very_instant",
        "member::join_moves_only_what_it_must",
        "member::dead_members_partitions_move",
        "snapshot::saved_one_comes_back",
        "ledger::first_attempt_makes_an_entry",
        "reservation::reserved_key_is_held",
        "reservation::fractions_of_a_millisecond_round_up",
        "timer::timer_comes_back_as_scheduled",
        "timer::due_after_counts_from_the_stores_clock",
        "timer::claimed_one_is_left_alone",
        "timer::claim_ends_at_the_very_instant",
        "timer::released_one_can_wait",
        "admin::now_is_the_time_that_commits_carry",
    ],
    /// An error does not say which store it was.
    ErrorsForgetTheStore => ["admin::an_error_names_the_operation_and_the_store"],
    /// An error does not say what was done.
    ErrorsForgetTheOperation => ["admin::an_error_names_the_operation_and_the_store"],
    /// A conflict shows what was to be appended.
    ErrorsShowPayloads => ["admin::no_payload_is_shown_anywhere"],
    /// An error shows the payload in its source.
    SourcesShowPayloads => ["admin::no_payload_is_shown_anywhere"],
    /// Tails are left waiting when the store is closed.
    CloseLeavesTails => [
        "admin::close_ends_tails",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
    ],
    /// Closing does nothing.
    CloseIsIgnored => [
        "admin::close_ends_tails",
        "admin::close_ends_watchers_that_are_opened_meanwhile",
        "admin::after_close_everything_is_refused",
    ],
    /// A store cannot be closed twice.
    ClosesOnlyOnce => [
        "admin::close_ends_watchers_that_are_opened_meanwhile",
        "admin::after_close_everything_is_refused",
        "admin::appends_under_way_are_finished_by_close",
    ],
    /// What was under way when the store was closed is stored, and said not to be.
    CloseDeniesWhatItStored => ["admin::appends_under_way_are_finished_by_close"],
}

/// An error with a payload in it.
#[derive(Debug)]
struct Leak(String);

impl std::fmt::Display for Leak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Leak {}

impl Mutant {
    /// What becomes of an error on its way out.
    pub(super) fn told(&self, error: Error, commit: Option<&CheckedCommit>) -> Error {
        let bare = || Error::not_applied(error.kind().clone()).with_outcome(error.outcome());
        let with = |bare: Error, context: &str| match error.context() {
            Some(told) => bare.with_context(format!("{told}{context}")),
            None => bare,
        };
        if error.store().is_some() && self.is(AdminFault::ErrorsForgetTheStore) {
            let bare = with(bare(), "");
            return error.operation().into_iter().fold(bare, Error::with_operation);
        }
        if error.operation().is_some() && self.is(AdminFault::ErrorsForgetTheOperation) {
            return with(bare(), "").with_store(self.store().name());
        }
        let Some(commit) = commit.filter(|_| error.is_conflict() || error.is_fenced()) else { return error };
        let body = commit.events()[0].body.as_json();
        if self.is(AdminFault::ErrorsShowPayloads) {
            let bare = with(bare(), body).with_store(self.store().name());
            return error.operation().into_iter().fold(bare, Error::with_operation);
        }
        if self.is(AdminFault::SourcesShowPayloads) {
            return error.with_source(Leak(body.to_owned()));
        }
        error
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl StoreAdmin for Mutant {
    fn name(&self) -> &Arc<str> {
        self.store().name()
    }

    fn backend(&self) -> &'static str {
        self.store().backend()
    }

    async fn now(&self) -> Result<Timestamp> {
        let now = self.store().now().await?;
        if self.is(AdminFault::TimeIsTheClients) {
            return Ok(now.saturating_add(Duration::from_secs(3_600)));
        }
        Ok(now)
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        let mut formats = self.store().formats().await?;
        if self.is(AdminFault::NoFormats) {
            formats.clear();
        }
        if self.reopened() > 0 && self.is(AdminFault::FormatsPileUp) {
            formats.extend(formats.clone());
        }
        Ok(formats)
    }

    async fn close(&self) -> Result<()> {
        if self.own().put("closed", true) == Some(true) && self.is(AdminFault::ClosesOnlyOnce) {
            return Err(Error::not_applied(wow_store_api::ErrorKind::Closed));
        }
        if self.is(AdminFault::CloseIsIgnored) {
            return Ok(());
        }
        self.close_hubs();
        self.store().close().await
    }
}
