//! Faults of an append of several commits (L11).

use wow_store_api::{
    CheckedCommit, Error, ErrorKind, EventLog as _, ExpectedVersion, MAX_COMMITS_PER_APPEND, Receipt, Result,
};

use super::{Mutant, mutants, rewrite::rewrite};

mutants! { AppendAllFault in "append_all":
    /// No commits at all are refused.
    RefusesNothing => [
        "append_all::no_commits_give_no_receipts",
        "admin::after_close_everything_is_refused",
    ],
    /// Receipts are in the order of partitions and positions.
    ReceiptsAreSorted => [
        "append_all::all_are_stored_in_the_order_given",
        "append_all::a_command_given_twice_is_stored_once",
        "append_all::replays_and_new_commits_mix",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// What comes before a refused commit is stored.
    StoresWhatComesBefore => [
        "append_all::nothing_is_stored_if_one_is_refused",
        "append_all::a_later_commit_sees_the_earlier_ones",
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_all::thirty_two_mebibytes_are_taken_and_more_refused",
        "fence::one_fenced_commit_refuses_them_all",
        "riders::one_refused_rider_refuses_all_commits",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// A refused call leaves its commands behind.
    RemembersRefusedCommands => [
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_all::the_first_refusal_is_told",
        "append_all::thirty_two_mebibytes_are_taken_and_more_refused",
        "fence::overtaken_owner_cannot_append_all",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::one_fenced_commit_refuses_them_all",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// Each commit is looked at as if it came alone.
    CommitsDoNotSeeEachOther => [
        "append_all::a_later_commit_sees_the_earlier_ones",
        "append_all::the_first_refusal_is_told",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// A command that is given twice is stored twice.
    StoresTwice => ["append_all::a_command_given_twice_is_stored_once"],
    /// A command that is given twice is refused.
    RefusesTwice => ["append_all::a_command_given_twice_is_stored_once"],
    /// A call with a replay in it stores nothing new.
    ReplayEndsTheCall => [
        "append_all::replays_and_new_commits_mix",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// A replay is looked at for its expected version.
    ReplaysMustExpect => [
        "append_all::replays_and_new_commits_mix",
        "riders::replay_does_not_run_them_again",
    ],
    /// A conflict is told before any other refusal.
    ConflictsAreToldFirst => ["append_all::the_first_refusal_is_told"],
    /// More than a thousand commits are taken, in parts.
    TakesAnyNumber => [
        "append_all::a_thousand_commits_are_taken_and_one_more_refused",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// More than 32 MiB are taken, in parts.
    TakesAnySize => ["append_all::thirty_two_mebibytes_are_taken_and_more_refused"],
    /// A call of 32 MiB is too large.
    RefusesTheLimit => ["append_all::thirty_two_mebibytes_are_taken_and_more_refused"],
}

impl Mutant {
    /// Takes in parts what is too much at once.
    pub(super) async fn append_all_unlimited(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        match self.store().append_all_checked(commits.clone()).await {
            Err(error)
                if matches!(error.kind(), ErrorKind::TooLarge { .. } | ErrorKind::InvalidInput { .. }) =>
            {
                let mut receipts = Vec::new();
                for commit in commits {
                    receipts.push(self.store().append_checked(commit).await?);
                }
                Ok(receipts)
            }
            outcome => outcome,
        }
    }

    async fn stale(&self, commits: &[CheckedCommit]) -> Result<Option<CheckedCommit>> {
        for commit in commits {
            let head = self.store().head(commit.aggregate_id()).await?;
            if !commit.expected().is_met_by(head) {
                return Ok(Some(commit.clone()));
            }
        }
        Ok(None)
    }

    async fn known(&self, commits: &[CheckedCommit]) -> Result<Vec<Option<Receipt>>> {
        let mut known = Vec::new();
        for commit in commits {
            known.push(self.store().receipt(commit.aggregate_id(), commit.command_id()).await?);
        }
        Ok(known)
    }

    /// The commits with those changed that repeat a command of the call.
    fn renamed(commits: &[CheckedCommit]) -> Vec<CheckedCommit> {
        let same = |a: &CheckedCommit, b: &CheckedCommit| {
            (a.aggregate_id(), a.command_id()) == (b.aggregate_id(), b.command_id())
        };
        let rename =
            |(n, commit): (usize, &CheckedCommit)| match commits[..n].iter().any(|it| same(it, commit)) {
                true => rewrite(commit, |parts| {
                    parts.command_id = format!("{}-{n}", parts.command_id);
                    parts.expected = ExpectedVersion::Any;
                }),
                false => commit.clone(),
            };
        commits.iter().enumerate().map(rename).collect()
    }

    /// A call beside which nothing else goes on.
    pub(super) async fn append_all_alone(&self, mut commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        if commits.is_empty() && self.is(AppendAllFault::RefusesNothing) {
            return Err(Error::invalid_input("there is nothing to append"));
        }
        if commits.len() > MAX_COMMITS_PER_APPEND {
            // Consulted only where it makes a difference.
            self.is(AppendAllFault::TakesAnyNumber);
        }
        let size: usize = commits.iter().map(CheckedCommit::encoded_size).sum();
        if size > wow_store_api::MAX_APPEND_BYTES {
            self.is(AppendAllFault::TakesAnySize);
        }
        if size == wow_store_api::MAX_APPEND_BYTES && self.is(AppendAllFault::RefusesTheLimit) {
            let limit = wow_store_api::MAX_APPEND_BYTES;
            return Err(Error::not_applied(ErrorKind::TooLarge { what: "append", size, limit }));
        }
        if commits.len() > 100 {
            return self.append_all_last(commits).await;
        }
        for commit in &commits {
            let refusal = format!("refusal {:?} {:?}", commit.aggregate_id(), commit.command_id());
            if let Some(error) = self.shared().get::<Error>(&refusal) {
                return Err(error);
            }
        }
        let known = self.known(&commits).await?;
        let some = known.iter().any(Option::is_some);
        if some && known.iter().any(Option::is_none) && self.is(AppendAllFault::ReplayEndsTheCall) {
            let filled = known.iter().flatten().next().cloned();
            return Ok(known.into_iter().filter_map(|it| it.or_else(|| filled.clone())).collect());
        }
        if some
            && self.is(AppendAllFault::ReplaysMustExpect)
            && let Some(stale) = self.stale(&commits).await?
        {
            return Err(Self::conflict(&stale, 0));
        }
        let renamed = Self::renamed(&commits);
        let twice = renamed.iter().zip(&commits).any(|(a, b)| a.command_id() != b.command_id());
        if twice && self.is(AppendAllFault::RefusesTwice) {
            return Err(Error::invalid_input("a command is given twice"));
        }
        if twice && self.is(AppendAllFault::StoresTwice) {
            commits = renamed;
        }
        if !some && self.is(AppendAllFault::CommitsDoNotSeeEachOther) {
            if let Some(stale) = self.stale(&commits).await? {
                let head = self.store().head(stale.aggregate_id()).await?;
                return Err(Self::conflict(&stale, head));
            }
            let any = |commit| rewrite(commit, |parts| parts.expected = ExpectedVersion::Any);
            commits = commits.iter().map(any).collect();
        }
        let outcome = self.append_all_last(commits.clone()).await;
        match outcome {
            Ok(mut receipts) => {
                if !receipts.is_sorted_by_key(|it| (it.partition.clone(), it.position))
                    && self.is(AppendAllFault::ReceiptsAreSorted)
                {
                    receipts.sort_by_key(|it| (it.partition.clone(), it.position));
                }
                Ok(receipts)
            }
            Err(error) => self.refused_all(commits, error).await,
        }
    }

    async fn refused_all(&self, commits: Vec<CheckedCommit>, error: Error) -> Result<Vec<Receipt>> {
        if self.is(AppendAllFault::StoresWhatComesBefore) {
            for commit in commits {
                self.store().append_checked(commit).await?;
            }
            return Err(error);
        }
        if error.is_fenced()
            && self.is(AppendAllFault::ConflictsAreToldFirst)
            && let Some(stale) = self.stale(&commits).await?
        {
            return Err(Self::conflict(&stale, 0));
        }
        if self.is(AppendAllFault::RemembersRefusedCommands) {
            let stale = self.stale(&commits).await?.map(|commit| commit.command_id().clone());
            for commit in commits.iter().filter(|commit| Some(commit.command_id()) != stale.as_ref()) {
                let id = commit.aggregate_id();
                self.shared().put(format!("refusal {id:?} {:?}", commit.command_id()), error.clone());
            }
        }
        Err(error)
    }
}
