//! Faults of the log (L1 to L11).

use async_trait::async_trait;
use futures_util::StreamExt as _;
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, CommitStream, ContextName, EventLog,
    ExpectedVersion, Page, PartitionCount, Position, ReadPage, Receipt, Result, Timestamp, Version,
    VersionRange, Watcher,
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
}

impl Mutant {
    fn faulty_commit(&self, commit: CheckedCommit) -> CheckedCommit {
        let commit = self.stored_commit(commit);
        if commit.expected() != ExpectedVersion::Any && self.is(LogFault::IgnoresExpectedVersion) {
            return rewrite(&commit, |parts| parts.expected = ExpectedVersion::Any);
        }
        commit
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for Mutant {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        let commit = self.faulty_commit(commit);
        self.append_fenced(commit).await
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        let commits = commits.into_iter().map(|commit| self.faulty_commit(commit)).collect();
        self.append_all_fenced(commits).await
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        let aggregate_id = self.stored_id(aggregate_id);
        let command_id = self.stored_command_id(command_id);
        self.store().receipt(&aggregate_id, &command_id).await
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        let aggregate_id = self.stored_id(aggregate_id);
        self.store().head(&aggregate_id).await
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        let aggregate_id = self.stored_id(aggregate_id);
        let commits = self.store().load_range(&aggregate_id, versions).await?;
        Ok(commits.map(self.serving()).boxed())
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        let aggregate_id = self.stored_id(aggregate_id);
        let commits = self.store().load_as_of(&aggregate_id, instant).await?;
        Ok(commits.map(self.serving()).boxed())
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        self.store().partitions(context).await
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        self.store().heads(context).await
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        let mut page = self.read_page(page).await?;
        let serve = self.serving();
        page.commits = page.commits.into_iter().map(|commit| serve(Ok(commit))).collect::<Result<_>>()?;
        Ok(page)
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        self.store().aggregate_types().await
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.watch_context(context).await
    }
}
