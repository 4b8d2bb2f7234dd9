//! Faults of reservations (R1 to R4). Those of reservations that ride in an append are in [`super::riders`].

use std::time::Duration;

use async_trait::async_trait;
use wow_store_api::{
    ListReservations, MAX_TTL, MemoryStore, OwnerId, Reservation, ReservationKey, ReservationOp,
    ReservationOutcome, ReservationScope, Reservations, Result,
};

use super::{Mutant, mutant::at_another_time, mutants};

mutants! { ReservationFault in "reservation":
    /// A key is looked at first and taken then: in between another may have taken it.
    LooksThenTakes => [
        "reservation::one_of_many_owners_wins_a_new_key",
        "reservation::one_of_many_owners_wins_an_expired_key",
        "reservation::swap_races_a_reserve",
        "riders::append_races_a_plain_reserve",
    ],
    /// An expired key is taken until something sweeps it up, which never happens.
    ExpiredIsTaken => [
        "reservation::one_of_many_owners_wins_an_expired_key",
        "reservation::key_is_free_at_the_very_instant",
        "reservation::expired_key_is_free_at_once",
        "reservation::owner_of_an_expired_key_is_told",
        "riders::expired_key_cannot_be_confirmed",
    ],
    /// A key can be taken away from its owner.
    TakesFromOthers => [
        "reservation::one_of_many_owners_wins_a_new_key",
        "reservation::one_of_many_owners_wins_an_expired_key",
        "reservation::another_owner_is_told_who_holds_it",
        "reservation::key_is_free_at_the_very_instant",
        "reservation::confirmed_key_never_expires",
        "reservation::survives_reopen",
    ],
    /// The owner that reserves again is told that its key is taken.
    OwnReservationIsTaken => [
        "reservation::same_owner_reserves_again",
        "reservation::reserving_again_never_shortens",
    ],
    /// Reserving again for less time makes it shorter.
    ReservingShortens => [
        "reservation::same_owner_reserves_again",
        "reservation::reserving_again_never_shortens",
    ],
    /// Reserving again for more time changes nothing.
    ReservingNeverExtends => ["reservation::same_owner_reserves_again"],
    /// Without an expiry a key is held for a day.
    UnlimitedIsADay => [
        "reservation::same_owner_reserves_again",
        "reservation::without_an_expiry_it_is_confirmed",
    ],
    /// What is read does not say when it ends.
    ForgetsTheEnd => [
        "reservation::reserved_key_is_held",
        "reservation::one_of_many_owners_wins_a_new_key",
        "reservation::one_of_many_owners_wins_an_expired_key",
        "reservation::another_owner_is_told_who_holds_it",
        "reservation::reserving_again_never_shortens",
        "reservation::key_is_free_at_the_very_instant",
        "reservation::confirming_needs_the_owner",
        "reservation::releasing_needs_the_owner",
        "reservation::late_release_does_not_free_the_new_owners_key",
        "reservation::swap_moves_the_reservation",
        "reservation::swap_for_itself_changes_nothing",
        "reservation::many_swaps_to_one_key_have_one_winner",
        "reservation::scopes_are_separate",
        "reservation::fractions_of_a_millisecond_round_up",
        "riders::ride_in_with_their_commit",
    ],
    /// A key is held for a millisecond after its end.
    EndsLate => [
        "reservation::one_of_many_owners_wins_an_expired_key",
        "reservation::key_is_free_at_the_very_instant",
        "reservation::expired_key_is_free_at_once",
        "reservation::owner_of_an_expired_key_is_told",
        "riders::expired_key_cannot_be_confirmed",
    ],
    /// A key is free a millisecond before its end.
    EndsEarly => [
        "reservation::key_is_free_at_the_very_instant",
        "reservation::fractions_of_a_millisecond_round_up",
    ],
    /// Confirming changes nothing.
    ConfirmDoesNothing => ["reservation::confirmed_key_never_expires"],
    /// Confirming does not look at the owner.
    ConfirmsForAnyone => [
        "reservation::confirming_needs_the_owner",
        "reservation::owner_of_an_expired_key_is_told",
    ],
    /// Confirming reserves where nobody holds the key.
    ConfirmReserves => [
        "reservation::key_is_free_at_the_very_instant",
        "reservation::confirming_needs_the_owner",
        "reservation::owner_of_an_expired_key_is_told",
    ],
    /// An expired reservation that nobody took can be confirmed.
    ConfirmsExpired => [
        "reservation::key_is_free_at_the_very_instant",
        "reservation::owner_of_an_expired_key_is_told",
    ],
    /// Releasing changes nothing.
    ReleaseDoesNothing => [
        "reservation::released_key_is_free_at_once",
        "reservation::late_release_does_not_free_the_new_owners_key",
        "reservation::keys_and_owners_are_compared_by_bytes",
        "reservation::list_shows_what_is_held_now",
    ],
    /// Releasing does not look at the owner.
    ReleasesForAnyone => [
        "reservation::releasing_needs_the_owner",
        "reservation::owner_of_an_expired_key_is_told",
        "reservation::late_release_does_not_free_the_new_owners_key",
        "reservation::scopes_are_separate",
        "reservation::keys_and_owners_are_compared_by_bytes",
    ],
    /// What was released can be released again.
    ReleasesTwice => [
        "reservation::released_key_is_free_at_once",
        "reservation::releasing_needs_the_owner",
        "reservation::owner_of_an_expired_key_is_told",
    ],
    /// Who confirms or releases another's key is not told whose it is.
    DoesNotSayWhose => [
        "reservation::confirming_needs_the_owner",
        "reservation::releasing_needs_the_owner",
        "reservation::owner_of_an_expired_key_is_told",
        "reservation::late_release_does_not_free_the_new_owners_key",
        "reservation::swap_needs_the_owner",
        "reservation::scopes_are_separate",
        "reservation::keys_and_owners_are_compared_by_bytes",
    ],
    /// A swap keeps the old key.
    SwapKeepsBoth => [
        "reservation::swap_moves_the_reservation",
        "reservation::swap_to_an_own_key_keeps_the_later_expiry",
        "reservation::many_swaps_to_one_key_have_one_winner",
    ],
    /// A swap releases first and reserves then.
    SwapIsTwoSteps => [
        "reservation::swap_to_a_taken_key_changes_nothing",
        "reservation::swap_races_a_reserve",
        "reservation::many_swaps_to_one_key_have_one_winner",
        "reservation::opposite_swaps_are_both_refused",
    ],
    /// A swap looks first and moves then.
    SwapLooksThenMoves => ["reservation::many_swaps_to_one_key_have_one_winner"],
    /// A swap makes the new key permanent.
    SwapConfirms => [
        "reservation::swap_moves_the_reservation",
        "reservation::swap_to_an_own_key_keeps_the_later_expiry",
    ],
    /// A swap does not look at the owner of the old key.
    SwapsForAnyone => [
        "reservation::owner_of_an_expired_key_is_told",
        "reservation::swap_needs_the_owner",
    ],
    /// A swap takes the new key away from its owner.
    SwapTakesFromOthers => [
        "reservation::swap_to_a_taken_key_changes_nothing",
        "reservation::swap_races_a_reserve",
        "reservation::many_swaps_to_one_key_have_one_winner",
        "reservation::opposite_swaps_are_both_refused",
    ],
    /// A swap of a key for itself releases it.
    SwapForItselfReleases => ["reservation::swap_for_itself_changes_nothing"],
    /// A swap to an own key takes the expiry of the old one.
    SwapForgetsTheLaterEnd => ["reservation::swap_to_an_own_key_keeps_the_later_expiry"],
    /// All scopes share their keys.
    ScopesShare => [
        "reservation::scopes_are_separate",
        "reservation::list_pages_by_scope_and_key",
    ],
    /// The case of keys does not count.
    KeysIgnoreCase => [
        "reservation::keys_and_owners_are_compared_by_bytes",
        "reservation::list_pages_by_scope_and_key",
    ],
    /// Spaces at the end of keys do not count.
    KeysIgnoreSpaces => ["reservation::keys_and_owners_are_compared_by_bytes"],
    /// The case of owners does not count.
    OwnersIgnoreCase => ["reservation::keys_and_owners_are_compared_by_bytes"],
    /// An expiry out of bounds is moved into them.
    MovesIntoBounds => ["reservation::expiry_has_bounds"],
    /// Fractions of a millisecond are cut off.
    CutsMilliseconds => ["reservation::fractions_of_a_millisecond_round_up"],
    /// A page starts with the key that it should start behind.
    PageRepeats => [
        "reservation::list_pages_by_scope_and_key",
        "reservation::list_shows_what_is_held_now",
    ],
    /// Keys are listed in no order.
    ListedInAnotherOrder => [
        "reservation::expired_key_is_free_at_once",
        "reservation::swap_to_a_taken_key_changes_nothing",
        "reservation::opposite_swaps_are_both_refused",
        "reservation::list_pages_by_scope_and_key",
        "reservation::list_shows_what_is_held_now",
        "reservation::survives_reopen",
    ],
    /// The scope that is asked for does not count.
    ListIgnoresScope => ["reservation::list_pages_by_scope_and_key"],
    /// Expired keys are listed.
    ListsExpired => [
        "reservation::owner_of_an_expired_key_is_told",
        "reservation::list_shows_what_is_held_now",
    ],
    /// Expired keys take room in a page.
    ExpiredTakeRoom => ["reservation::list_shows_what_is_held_now"],
    /// Opened again, the store knows of no key.
    ForgetsAtReopen => [
        "reservation::survives_reopen",
        "riders::survive_reopen",
    ],
}

const LONG_AGO: i64 = 1_000_000_000;

/// The key, and its owner, that a change starts from.
fn parts(op: &ReservationOp) -> (ReservationKey, OwnerId) {
    match op {
        ReservationOp::Reserve { key, owner, .. }
        | ReservationOp::Confirm { key, owner, .. }
        | ReservationOp::Release { key, owner, .. }
        | ReservationOp::Swap { from: key, owner, .. } => (key.clone(), owner.clone()),
    }
}

fn set_owner(op: &mut ReservationOp, new: OwnerId) {
    match op {
        ReservationOp::Reserve { owner, .. }
        | ReservationOp::Confirm { owner, .. }
        | ReservationOp::Release { owner, .. }
        | ReservationOp::Swap { owner, .. } => *owner = new,
    }
}

impl Mutant {
    fn keys(&self) -> &MemoryStore {
        match self.reopened() > 0 && self.is(ReservationFault::ForgetsAtReopen) {
            true => self.spare(),
            false => self.store(),
        }
    }

    fn faulty_scope(&self, scope: &ReservationScope) -> ReservationScope {
        match scope != "user.email" && self.is(ReservationFault::ScopesShare) {
            true => ReservationScope::new("user.email").expect("a valid scope"),
            false => scope.clone(),
        }
    }

    fn faulty_key(&self, key: &ReservationKey) -> ReservationKey {
        let (lower, trimmed) = (key.as_str().to_lowercase(), key.as_str().trim_end());
        if lower != key.as_str() && self.is(ReservationFault::KeysIgnoreCase) {
            return ReservationKey::new(lower).expect("a valid key");
        }
        if trimmed != key.as_str() && self.is(ReservationFault::KeysIgnoreSpaces) {
            return ReservationKey::new(trimmed).expect("a valid key");
        }
        key.clone()
    }

    fn faulty_op(&self, op: ReservationOp) -> ReservationOp {
        let lower = |owner: OwnerId| match owner.as_str().to_lowercase() {
            lower if lower != owner.as_str() && self.is(ReservationFault::OwnersIgnoreCase) => {
                OwnerId::new(lower).expect("a valid owner")
            }
            _ => owner,
        };
        match op {
            ReservationOp::Reserve { scope, key, owner, expires_in } => ReservationOp::Reserve {
                scope: self.faulty_scope(&scope),
                key: self.faulty_key(&key),
                owner: lower(owner),
                expires_in: self.faulty_expiry(expires_in),
            },
            ReservationOp::Confirm { scope, key, owner } => ReservationOp::Confirm {
                scope: self.faulty_scope(&scope),
                key: self.faulty_key(&key),
                owner: lower(owner),
            },
            ReservationOp::Release { scope, key, owner } => ReservationOp::Release {
                scope: self.faulty_scope(&scope),
                key: self.faulty_key(&key),
                owner: lower(owner),
            },
            ReservationOp::Swap { scope, from, to, owner } => ReservationOp::Swap {
                scope: self.faulty_scope(&scope),
                from: self.faulty_key(&from),
                to: self.faulty_key(&to),
                owner: lower(owner),
            },
        }
    }

    fn faulty_expiry(&self, expires_in: Option<Duration>) -> Option<Duration> {
        let Some(ttl) = expires_in else {
            return self.is(ReservationFault::UnlimitedIsADay).then_some(Duration::from_secs(86_400));
        };
        if (ttl.is_zero() || ttl > MAX_TTL) && self.is(ReservationFault::MovesIntoBounds) {
            return Some(ttl.clamp(Duration::from_millis(1), MAX_TTL));
        }
        if ttl.subsec_nanos() % 1_000_000 > 0
            && ttl < Duration::from_secs(1)
            && ttl.as_millis() > 0
            && self.is(ReservationFault::CutsMilliseconds)
        {
            return Some(Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)));
        }
        Some(ttl)
    }

    async fn free(&self, held: &Reservation) -> Result<()> {
        let (scope, key, owner) = (held.scope.clone(), held.key.clone(), held.owner.clone());
        self.keys().reserve(ReservationOp::Release { scope, key, owner }).await.map(drop)
    }

    /// Reserving a key that `held` may hold now.
    async fn reserve_key(&self, op: ReservationOp, held: Option<Reservation>) -> Result<ReservationOutcome> {
        let (key, owner) = parts(&op);
        let ReservationOp::Reserve { expires_in, .. } = &op else { return self.keys().reserve(op).await };
        let scope = op.scope().clone();
        let Some(held) = held else {
            let expired = at_another_time(-LONG_AGO, self.keys().reservation(&scope, &key)).await?;
            if let Some(expired) = expired
                && self.is(ReservationFault::ExpiredIsTaken)
            {
                return Ok(ReservationOutcome::Taken(expired));
            }
            if self.is(ReservationFault::LooksThenTakes) {
                tokio::task::yield_now().await;
                if let Some(taken) = self.keys().reservation(&scope, &key).await? {
                    self.free(&taken).await?;
                }
            }
            return self.keys().reserve(op).await;
        };
        let is_own = held.owner == owner;
        let wanted = match expires_in {
            Some(ttl) => Some(wow_store_api::expiry(self.time().await, *ttl)),
            None => None,
        };
        let is_shorter = wanted.is_some() && (held.expires_at.is_none() || wanted < held.expires_at);
        if is_own && self.is(ReservationFault::OwnReservationIsTaken) {
            return Ok(ReservationOutcome::Taken(held));
        }
        if is_own && !is_shorter && self.is(ReservationFault::ReservingNeverExtends) {
            return Ok(ReservationOutcome::Held(held));
        }
        if is_own && is_shorter && self.is(ReservationFault::ReservingShortens)
            || !is_own && self.is(ReservationFault::TakesFromOthers)
        {
            self.free(&held).await?;
        }
        self.keys().reserve(op).await
    }

    async fn confirm_key(&self, op: ReservationOp, held: Option<Reservation>) -> Result<ReservationOutcome> {
        let (key, owner) = parts(&op);
        let scope = op.scope().clone();
        match held {
            Some(held) if held.owner == owner && self.is(ReservationFault::ConfirmDoesNothing) => {
                Ok(ReservationOutcome::Held(held))
            }
            Some(held) if held.owner != owner && self.is(ReservationFault::ConfirmsForAnyone) => {
                self.keys().reserve(ReservationOp::Confirm { scope, key, owner: held.owner }).await
            }
            None if self.is(ReservationFault::ConfirmReserves) => {
                self.keys().reserve(ReservationOp::Reserve { scope, key, owner, expires_in: None }).await
            }
            None if self.is(ReservationFault::ConfirmsExpired) => {
                at_another_time(-LONG_AGO, self.keys().reserve(op)).await
            }
            _ => self.keys().reserve(op).await,
        }
    }

    async fn release_key(
        &self,
        mut op: ReservationOp,
        held: Option<Reservation>,
    ) -> Result<ReservationOutcome> {
        let (_, owner) = parts(&op);
        match held {
            Some(held) if held.owner == owner && self.is(ReservationFault::ReleaseDoesNothing) => {
                return Ok(ReservationOutcome::Released);
            }
            Some(held) if held.owner != owner && self.is(ReservationFault::ReleasesForAnyone) => {
                set_owner(&mut op, held.owner);
            }
            None if self.is(ReservationFault::ReleasesTwice) => return Ok(ReservationOutcome::Released),
            _ => {}
        }
        self.keys().reserve(op).await
    }

    async fn swap_keys(
        &self,
        mut op: ReservationOp,
        held: Option<Reservation>,
    ) -> Result<ReservationOutcome> {
        let ReservationOp::Swap { scope, from, to, owner } = op.clone() else {
            return self.keys().reserve(op).await;
        };
        let Some(held) = held else { return self.keys().reserve(op).await };
        if held.owner != owner {
            if self.is(ReservationFault::SwapsForAnyone) {
                set_owner(&mut op, held.owner);
            }
            return self.keys().reserve(op).await;
        }
        if from == to {
            if self.is(ReservationFault::SwapForItselfReleases) {
                self.free(&held).await?;
            }
            return self.keys().reserve(op).await;
        }
        let target = self.keys().reservation(&scope, &to).await?;
        let left = match held.expires_at {
            Some(end) => Some(end.saturating_since(self.time().await)),
            None => None,
        };
        let take = ReservationOp::Reserve {
            scope: scope.clone(),
            key: to.clone(),
            owner: owner.clone(),
            expires_in: left,
        };
        let is_own = target.as_ref().is_some_and(|target| target.owner == owner);
        if target.as_ref().is_none_or(|_| is_own) && self.is(ReservationFault::SwapKeepsBoth) {
            return self.keys().reserve(take).await;
        }
        if self.is(ReservationFault::SwapIsTwoSteps) {
            self.free(&held).await?;
            tokio::task::yield_now().await;
            return self.keys().reserve(take).await;
        }
        if target.is_none() && self.is(ReservationFault::SwapLooksThenMoves) {
            tokio::task::yield_now().await;
            if let Some(taken) = self.keys().reservation(&scope, &to).await? {
                self.free(&taken).await?;
            }
        }
        if let Some(target) = target
            && (is_own && self.is(ReservationFault::SwapForgetsTheLaterEnd)
                || !is_own && self.is(ReservationFault::SwapTakesFromOthers))
        {
            self.free(&target).await?;
        }
        let outcome = self.keys().reserve(op).await?;
        if matches!(outcome, ReservationOutcome::Held(_)) && self.is(ReservationFault::SwapConfirms) {
            return self.keys().reserve(ReservationOp::Confirm { scope, key: to, owner }).await;
        }
        Ok(outcome)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Reservations for Mutant {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        let op = self.faulty_op(op);
        op.check()?;
        let (key, owner) = parts(&op);
        let held = self.keys().reservation(op.scope(), &key).await?;
        for (fault, beside) in [(ReservationFault::EndsLate, -1), (ReservationFault::EndsEarly, 1)] {
            let seen = at_another_time(beside, self.keys().reservation(op.scope(), &key)).await?;
            if seen != held && self.is(fault) {
                return at_another_time(beside, self.keys().reserve(op)).await;
            }
        }
        let is_others = held.as_ref().is_some_and(|held| held.owner != owner);
        let reserves = matches!(op, ReservationOp::Reserve { .. });
        if is_others && !reserves && self.is(ReservationFault::DoesNotSayWhose) {
            return Ok(ReservationOutcome::NotHeld);
        }
        match &op {
            ReservationOp::Reserve { .. } => self.reserve_key(op, held).await,
            ReservationOp::Confirm { .. } => self.confirm_key(op, held).await,
            ReservationOp::Release { .. } => self.release_key(op, held).await,
            ReservationOp::Swap { .. } => self.swap_keys(op, held).await,
        }
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        let (scope, key) = (self.faulty_scope(scope), self.faulty_key(key));
        let found = self.keys().reservation(&scope, &key).await?;
        for (fault, beside) in [(ReservationFault::EndsLate, -1), (ReservationFault::EndsEarly, 1)] {
            let seen = at_another_time(beside, self.keys().reservation(&scope, &key)).await?;
            if seen != found && self.is(fault) {
                return Ok(seen);
            }
        }
        Ok(found.map(|mut found| {
            if found.expires_at.is_some() && self.is(ReservationFault::ForgetsTheEnd) {
                found.expires_at = None;
            }
            found
        }))
    }

    async fn reservations(&self, mut list: ListReservations) -> Result<Vec<Reservation>> {
        if list.scope.is_some() && self.is(ReservationFault::ListIgnoresScope) {
            list.scope = None;
        }
        if let Some(after) = list.after.clone()
            && self.is(ReservationFault::PageRepeats)
        {
            let limit = std::mem::replace(&mut list.limit, usize::MAX);
            list.after = None;
            let mut all = self.keys().reservations(list).await?;
            all.retain(|it| (it.scope.clone(), it.key.clone()) >= after);
            all.truncate(limit);
            return Ok(all);
        }
        let mut found = self.keys().reservations(list.clone()).await?;
        let with_expired = at_another_time(-LONG_AGO, self.keys().reservations(list)).await?;
        if with_expired != found {
            if self.is(ReservationFault::ListsExpired) {
                return Ok(with_expired);
            }
            if self.is(ReservationFault::ExpiredTakeRoom) {
                found.retain(|it| with_expired.contains(it));
            }
        }
        if found.len() > 1 && self.is(ReservationFault::ListedInAnotherOrder) {
            found.reverse();
        }
        Ok(found)
    }
}
