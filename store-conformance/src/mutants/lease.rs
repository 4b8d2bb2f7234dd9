//! Faults of leases (E1, E2). Those of members are in [`super::member`], those of fences in [`super::fence`].

use std::time::Duration;

use async_trait::async_trait;
use wow_store_api::{
    AcquireLease, ContextName, Epoch, ErrorKind, Fence, Heartbeat, Lease, LeaseAcquired, LeaseRenewed,
    LeaseToken, Leases, MAX_TTL, Member, MemberId, MemoryStore, PartitionId, Result, StoreAdmin as _,
    SubscriptionName, Timestamp, expiry,
};

use super::{Mutant, mutant::at_another_time, mutants};

mutants! { LeaseFault in "lease":
    /// Who asks looks first and takes then: in between another may have taken it.
    LooksThenTakes => [
        "lease::one_of_many_members_wins",
        "lease::every_partition_gets_one_owner",
        "lease::owners_never_overlap_under_load",
    ],
    /// Another handle on the place does not see the leases of the first.
    NodesDoNotSeeEachOther => [
        "lease::one_of_many_members_wins",
        "lease::owners_never_overlap_under_load",
    ],
    /// Who holds it and asks again acquires it again.
    OwnerAcquiresAgain => ["lease::asking_again_is_held_for_the_owner_too"],
    /// A lease is live for a millisecond after its end.
    EndsLate => [
        "lease::lease_is_over_at_the_very_instant",
        "lease::expired_lease_is_never_revived",
        "lease::taken_over_lease_is_not_renewed",
        "lease::late_release_does_not_free_the_new_owners_lease",
        "lease::epoch_rises_with_every_owner",
        "member::dead_members_partitions_move",
        "fence::overtaken_owner_cannot_append",
        "fence::overtaken_owner_cannot_append_all",
        "fence::overtaken_owner_cannot_save_a_checkpoint",
        "fence::overtaken_owner_cannot_reset_a_checkpoint",
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::overtaken_owner_cannot_schedule_a_timer",
        "fence::writes_without_a_fence_are_let_through",
    ],
    /// A lease is over a millisecond before its end.
    EndsEarly => ["lease::lease_is_over_at_the_very_instant"],
    /// A renewal adds to the end instead of counting from now.
    RenewalAddsUp => [
        "lease::renewal_counts_from_now",
        "lease::fractions_of_a_millisecond_round_up",
        "member::dead_members_partitions_move",
    ],
    /// A renewal never makes a lease shorter.
    RenewalNeverShortens => [
        "lease::renewal_counts_from_now",
        "member::dead_members_partitions_move",
    ],
    /// At its very end a lease is still renewed.
    RenewedAtTheInstant => [
        "lease::renewal_at_the_very_instant_is_lost",
        "lease::expired_lease_is_never_revived",
    ],
    /// An expired lease that nobody took is renewed.
    RevivesExpired => [
        "lease::renewal_at_the_very_instant_is_lost",
        "lease::expired_lease_is_never_revived",
    ],
    /// A lease that was given back is renewed.
    RevivesReleased => [
        "lease::released_lease_is_not_renewed",
        "lease::renewals_are_answered_in_order",
    ],
    /// A renewal does not look at the epoch.
    RenewalIgnoresEpoch => [
        "lease::expired_lease_is_never_revived",
        "lease::renewal_needs_the_very_token",
    ],
    /// A renewal does not look at the member.
    RenewalIgnoresMember => [
        "lease::renewals_are_answered_in_order",
        "lease::renewal_needs_the_very_token",
    ],
    /// A renewal does not look at the owner at all.
    RenewsForAnyone => [
        "lease::expired_lease_is_never_revived",
        "lease::taken_over_lease_is_not_renewed",
        "lease::renewals_are_answered_in_order",
        "lease::renewal_needs_the_very_token",
    ],
    /// Renewals are answered in the order of the partitions.
    AnswersInAnotherOrder => ["lease::renewals_are_answered_in_order"],
    /// After one that is lost no other is renewed.
    StopsAtTheFirstLost => ["lease::renewals_are_answered_in_order"],
    /// What is released stays held until it expires.
    ReleaseDoesNothing => [
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "lease::released_lease_is_not_renewed",
        "lease::renewals_are_answered_in_order",
        "lease::renewal_needs_the_very_token",
        "lease::released_lease_is_free_at_once",
        "lease::only_the_owner_releases",
        "lease::expired_lease_can_be_given_back_once",
        "lease::epoch_rises_with_every_owner",
        "lease::epoch_survives_reopen",
        "lease::epochs_of_leases_are_separate",
        "lease::leases_are_listed_by_partition",
        "member::join_moves_only_what_it_must",
        "fence::no_stale_append_lands_behind_a_take_over",
    ],
    /// A release does not look at the owner.
    ReleasesForAnyone => [
        "lease::only_the_owner_releases",
        "lease::late_release_does_not_free_the_new_owners_lease",
    ],
    /// A release does not look at the epoch.
    ReleaseIgnoresEpoch => ["lease::only_the_owner_releases"],
    /// An expired lease cannot be given back.
    ExpiredIsNotReleased => [
        "lease::expired_lease_can_be_given_back_once",
        "fence::owner_nobody_overtook_is_let_through",
    ],
    /// What was given back can be given back again.
    ReleasesTwice => ["lease::expired_lease_can_be_given_back_once"],
    /// A lease that is released is deleted, and its epoch with it.
    ForgetsEpochAtRelease => [
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "lease::released_lease_is_not_renewed",
        "lease::renewal_needs_the_very_token",
        "lease::released_lease_is_free_at_once",
        "lease::only_the_owner_releases",
        "lease::expired_lease_can_be_given_back_once",
        "lease::epoch_rises_with_every_owner",
        "lease::epoch_survives_reopen",
        "lease::owners_never_overlap_under_load",
        "lease::leases_are_listed_by_partition",
    ],
    /// A lease that expired is deleted, and its epoch with it.
    ForgetsEpochAtExpiry => [
        "lease::lease_is_over_at_the_very_instant",
        "lease::expired_lease_is_never_revived",
        "lease::epoch_rises_with_every_owner",
        "fence::overtaken_owner_cannot_append",
        "fence::overtaken_owner_cannot_append_all",
        "fence::overtaken_owner_cannot_save_a_checkpoint",
        "fence::overtaken_owner_cannot_reset_a_checkpoint",
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::overtaken_owner_cannot_schedule_a_timer",
    ],
    /// When a member leaves, its leases are deleted, and their epochs with them.
    ForgetsEpochAtLeave => [
        "lease::epoch_rises_with_every_owner",
        "member::leaving_keeps_leases",
    ],
    /// When a member leaves, its leases are released.
    LeavingReleases => ["member::leaving_keeps_leases"],
    /// Opened again, the store knows of no lease.
    ForgetsAtReopen => [
        "lease::epoch_survives_reopen",
        "lease::lease_survives_reopen",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// All partitions of a group share one counter of epochs.
    OneCounterForAll => [
        "lease::one_of_many_members_wins",
        "lease::epochs_of_leases_are_separate",
        "lease::time_to_live_has_bounds",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// Behind the last epoch comes the first.
    EpochStartsAgain => ["fence::last_epoch_can_be_used_but_not_overtaken"],
    /// Only live leases are listed.
    ListsLiveOnly => [
        "lease::expired_lease_is_never_revived",
        "lease::released_lease_is_not_renewed",
        "lease::expired_lease_can_be_given_back_once",
        "lease::leases_are_listed_by_partition",
    ],
    /// Leases are listed in the order of the text of their numbers.
    ListsByText => [
        "lease::every_partition_gets_one_owner",
        "lease::leases_are_listed_by_partition",
    ],
    /// Leases are listed without their owners once they are over.
    ListForgetsOwners => [
        "lease::expired_lease_is_never_revived",
        "lease::leases_are_listed_by_partition",
    ],
    /// A time to live of nothing is a millisecond.
    TakesNoTime => [
        "lease::time_to_live_has_bounds",
        "member::heartbeat_time_to_live_has_bounds",
    ],
    /// A time to live beyond the longest is the longest.
    TakesAnyTime => [
        "lease::time_to_live_has_bounds",
        "member::heartbeat_time_to_live_has_bounds",
    ],
    /// The longest time to live is refused.
    RefusesTheLongest => [
        "lease::time_to_live_has_bounds",
        "member::heartbeat_time_to_live_has_bounds",
    ],
    /// Fractions of a millisecond are cut off.
    CutsMilliseconds => [
        "lease::time_to_live_has_bounds",
        "lease::fractions_of_a_millisecond_round_up",
        "member::member_is_gone_at_the_very_instant",
        "member::heartbeat_time_to_live_has_bounds",
    ],
}

type Answer = Result<LeaseAcquired>;

impl Mutant {
    /// The instant now.
    pub(super) async fn time(&self) -> Timestamp {
        self.store().now().await.expect("the store in memory is open")
    }

    /// The store that a lease is in: a lease whose record was deleted starts anew in another.
    fn lease_store(&self, group: &SubscriptionName, partition: &PartitionId) -> &MemoryStore {
        if self.reopened() > 0 && self.is(LeaseFault::ForgetsAtReopen)
            || self.is_second() && self.is(LeaseFault::NodesDoNotSeeEachOther)
            || self.shared().get(&moved(group, partition)) == Some(true)
        {
            return self.spare();
        }
        self.store()
    }

    fn delete_lease(&self, lease: &Lease) {
        self.shared().put(moved(&lease.group, &lease.partition), true);
    }

    async fn known_lease(&self, group: &SubscriptionName, partition: &PartitionId) -> Option<Lease> {
        let leases = self.lease_store(group, partition).leases(group, partition.context()).await.ok()?;
        leases.into_iter().find(|lease| lease.partition == *partition)
    }

    /// A time to live as it is taken.
    pub(super) fn faulty_ttl(&self, ttl: Duration) -> Duration {
        match ttl {
            ttl if ttl.is_zero() && self.is(LeaseFault::TakesNoTime) => Duration::from_millis(1),
            ttl if ttl > MAX_TTL && self.is(LeaseFault::TakesAnyTime) => MAX_TTL,
            ttl if ttl == MAX_TTL && self.is(LeaseFault::RefusesTheLongest) => Duration::ZERO,
            ttl if ttl.subsec_nanos() % 1_000_000 > 0
                && ttl.as_millis() > 0
                && self.is(LeaseFault::CutsMilliseconds) =>
            {
                Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
            }
            ttl => ttl,
        }
    }

    async fn acquire_known(&self, request: AcquireLease, known: Lease) -> Answer {
        let now = self.time().await;
        let store = self.lease_store(&request.group, &request.partition);
        let is_live = known.live_owner(now).is_some();
        if is_live && known.owner.as_ref() == Some(&request.member) && self.is(LeaseFault::OwnerAcquiresAgain)
        {
            return Ok(LeaseAcquired::Acquired(known));
        }
        let one = Duration::from_millis(1);
        if known.owner.is_some() && known.expires_at == now && self.is(LeaseFault::EndsLate) {
            return Ok(LeaseAcquired::Held(known));
        }
        if is_live && known.expires_at == now.saturating_add(one) && self.is(LeaseFault::EndsEarly) {
            return at_another_time(1, store.acquire_lease(request)).await;
        }
        if !is_live && known.owner.is_some() && self.is(LeaseFault::ForgetsEpochAtExpiry) {
            self.delete_lease(&known);
            return self.spare().acquire_lease(request).await;
        }
        store.acquire_lease(request).await
    }

    async fn acquire_faulty(&self, request: AcquireLease) -> Answer {
        let (group, partition) = (request.group.clone(), request.partition.clone());
        let known = self.known_lease(&group, &partition).await;
        if let Some(known) = known.clone().filter(|lease| lease.owner.is_some()) {
            return self.acquire_known(request, known).await;
        }
        if self.is(LeaseFault::LooksThenTakes) {
            tokio::task::yield_now().await;
            if let Some(taken) = self.known_lease(&group, &partition).await
                && let Some(owner) = taken.owner.clone()
            {
                self.store().release_lease(&taken.token(&owner)).await?;
            }
        }
        if self.is(LeaseFault::OneCounterForAll) {
            let all = self.store().leases(&group, partition.context()).await?;
            let epoch: Epoch = all.iter().map(|lease| lease.epoch).max().unwrap_or_default();
            self.raise(&Fence { group: group.clone(), partition: partition.clone(), epoch }).await?;
        }
        let answer = self.lease_store(&group, &partition).acquire_lease(request.clone()).await;
        match &answer {
            Err(error)
                if matches!(error.kind(), ErrorKind::Exhausted { .. })
                    && self.is(LeaseFault::EpochStartsAgain) =>
            {
                let expires_at = expiry(self.time().await, request.ttl);
                let owner = Some(request.member);
                Ok(LeaseAcquired::Acquired(Lease { group, partition, owner, epoch: 1, expires_at }))
            }
            _ => answer,
        }
    }

    async fn renew_one(&self, token: &LeaseToken, ttl: Duration) -> Result<LeaseRenewed> {
        let store = self.lease_store(&token.group, &token.partition);
        let now = self.time().await;
        let until = LeaseRenewed::Renewed(expiry(now, ttl));
        let Some(lease) = self.known_lease(&token.group, &token.partition).await else {
            return Ok(first(store.renew_leases(std::slice::from_ref(token), ttl).await?));
        };
        let left = lease.expires_at.saturating_since(now);
        let (mut token, mut ttl) = (token.clone(), ttl);
        let is_owner = lease.owner.as_ref() == Some(&token.member);
        if lease.owner.is_none() && lease.epoch == token.epoch && self.is(LeaseFault::RevivesReleased) {
            return Ok(until);
        }
        if is_owner && lease.epoch == token.epoch && left.is_zero() {
            let over = now.saturating_since(lease.expires_at);
            if self.is(LeaseFault::RevivesExpired)
                || over.is_zero() && self.is(LeaseFault::RenewedAtTheInstant)
            {
                let back = i64::try_from(over.as_millis()).unwrap_or(i64::MAX).saturating_add(1);
                let ttl = ttl + over + Duration::from_millis(1);
                return Ok(first(at_another_time(-back, store.renew_leases(&[token], ttl)).await?));
            }
        }
        if is_owner && lease.epoch != token.epoch && self.is(LeaseFault::RenewalIgnoresEpoch)
            || !is_owner && lease.epoch == token.epoch && self.is(LeaseFault::RenewalIgnoresMember)
            || (!is_owner || lease.epoch != token.epoch) && self.is(LeaseFault::RenewsForAnyone)
        {
            token.epoch = lease.epoch;
            token.member = lease.owner.clone().unwrap_or(token.member);
        }
        if self.is(LeaseFault::RenewalAddsUp) {
            ttl += left;
        }
        if ttl < left && self.is(LeaseFault::RenewalNeverShortens) {
            ttl = left;
        }
        Ok(first(store.renew_leases(&[token], ttl).await?))
    }
}

fn moved(group: &SubscriptionName, partition: &PartitionId) -> String {
    format!("{group} {partition} starts anew")
}

fn first(answers: Vec<LeaseRenewed>) -> LeaseRenewed {
    answers.into_iter().next().expect("an answer for the token")
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Leases for Mutant {
    async fn acquire_lease(&self, mut request: AcquireLease) -> Result<LeaseAcquired> {
        request.ttl = self.faulty_ttl(request.ttl);
        self.acquire_faulty(request).await
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        let ttl = self.faulty_ttl(ttl);
        wow_store_api::check_ttl("lease", ttl)?;
        let mut tokens = tokens.to_vec();
        if tokens.len() > 1 && self.is(LeaseFault::AnswersInAnotherOrder) {
            tokens.sort_by(|a, b| a.partition.cmp(&b.partition));
        }
        let mut answers = Vec::new();
        for token in &tokens {
            if answers.contains(&LeaseRenewed::Lost) && self.is(LeaseFault::StopsAtTheFirstLost) {
                answers.push(LeaseRenewed::Lost);
                continue;
            }
            answers.push(self.renew_one(token, ttl).await?);
        }
        Ok(answers)
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        let store = self.lease_store(&token.group, &token.partition);
        let Some(lease) = self.known_lease(&token.group, &token.partition).await else {
            return store.release_lease(token).await;
        };
        let (mut token, now) = (token.clone(), self.time().await);
        let is_owner = lease.owner.as_ref() == Some(&token.member);
        let is_its = is_owner && lease.epoch == token.epoch;
        if is_its && self.is(LeaseFault::ReleaseDoesNothing) {
            return Ok(true);
        }
        if is_its && now >= lease.expires_at && self.is(LeaseFault::ExpiredIsNotReleased) {
            return Ok(false);
        }
        if lease.owner.is_none() && lease.epoch == token.epoch && self.is(LeaseFault::ReleasesTwice) {
            return Ok(true);
        }
        if is_owner && !is_its && self.is(LeaseFault::ReleaseIgnoresEpoch)
            || !is_its && lease.owner.is_some() && self.is(LeaseFault::ReleasesForAnyone)
        {
            token = lease.token(lease.owner.as_ref().unwrap_or(&token.member));
        }
        if is_its && self.is(LeaseFault::ForgetsEpochAtRelease) {
            self.delete_lease(&lease);
        }
        store.release_lease(&token).await
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        if self.reopened() > 0 && self.is(LeaseFault::ForgetsAtReopen)
            || self.is_second() && self.is(LeaseFault::NodesDoNotSeeEachOther)
        {
            return self.spare().leases(group, context).await;
        }
        let mut leases = self.store().leases(group, context).await?;
        leases.retain(|lease| self.shared().get(&moved(group, &lease.partition)) != Some(true));
        leases.extend(self.spare().leases(group, context).await?);
        leases.sort_by(|a, b| a.partition.cmp(&b.partition));
        let now = self.time().await;
        if leases.iter().any(|lease| lease.live_owner(now).is_none()) && self.is(LeaseFault::ListsLiveOnly) {
            leases.retain(|lease| lease.live_owner(now).is_some());
        }
        if leases.iter().any(|lease| now >= lease.expires_at) && self.is(LeaseFault::ListForgetsOwners) {
            for lease in leases.iter_mut().filter(|lease| now >= lease.expires_at) {
                lease.owner = None;
            }
        }
        if leases.len() > 1 && self.is(LeaseFault::ListsByText) {
            leases.sort_by_key(|lease| lease.partition.index().to_string());
        }
        Ok(leases)
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.beat(heartbeat).await
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        self.list_members(group).await
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        let leases = self.store().leases(group, &ContextName::new("shop")?).await?;
        for lease in leases.iter().filter(|lease| lease.owner.as_ref() == Some(member)) {
            if self.is(LeaseFault::ForgetsEpochAtLeave) {
                self.delete_lease(lease);
            }
            if self.is(LeaseFault::LeavingReleases) {
                self.store().release_lease(&lease.token(member)).await?;
            }
        }
        self.member_leaves(group, member).await
    }
}
