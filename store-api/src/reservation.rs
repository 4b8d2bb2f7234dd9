//! Reservations: keys that are unique in a scope (R1 to R5).

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    error::Result,
    lease::check_ttl,
    name::{OwnerId, ReservationKey, ReservationScope},
    time::Timestamp,
};

/// A key that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The scope.
    pub scope: ReservationScope,
    /// The key.
    pub key: ReservationKey,
    /// Who holds it.
    pub owner: OwnerId,
    /// Held while the store's clock is before this; `None`: confirmed, held for ever.
    pub expires_at: Option<Timestamp>,
    /// Since when the owner holds it, by the store's clock.
    pub reserved_at: Timestamp,
}

impl Reservation {
    /// Whether it is held at `now`: an expired one is free at the very instant (R2).
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// A change of a reservation, alone or riding in an append (R5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationOp {
    /// Takes a key, or keeps it if the owner already holds it: a confirmed one stays confirmed, an expiry only moves
    /// later (R1, R2).
    Reserve {
        /// The scope.
        scope: ReservationScope,
        /// The key.
        key: ReservationKey,
        /// Who wants it.
        owner: OwnerId,
        /// How long, by the store's clock (more than zero, at most [`MAX_TTL`](crate::MAX_TTL)); `None`: confirmed at
        /// once.
        expires_in: Option<Duration>,
    },
    /// Makes a held key permanent (R2, R3).
    Confirm {
        /// The scope.
        scope: ReservationScope,
        /// The key.
        key: ReservationKey,
        /// Who holds it.
        owner: OwnerId,
    },
    /// Gives a held key back (R2, R3).
    Release {
        /// The scope.
        scope: ReservationScope,
        /// The key.
        key: ReservationKey,
        /// Who holds it.
        owner: OwnerId,
    },
    /// Gives `from` back and takes `to`, in one step, with the expiry of `from` (R4). If the owner already holds
    /// `to`, the later of both expiries stays. Swapping a key for itself changes nothing.
    Swap {
        /// The scope of both keys.
        scope: ReservationScope,
        /// The key that the owner holds.
        from: ReservationKey,
        /// The key that it wants instead.
        to: ReservationKey,
        /// Who holds `from`.
        owner: OwnerId,
    },
}

impl ReservationOp {
    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &ReservationScope {
        match self {
            Self::Reserve { scope, .. }
            | Self::Confirm { scope, .. }
            | Self::Release { scope, .. }
            | Self::Swap { scope, .. } => scope,
        }
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] for the expiry.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Reserve { expires_in: Some(ttl), .. } => check_ttl("reservation", *ttl),
            Self::Reserve { .. } | Self::Confirm { .. } | Self::Release { .. } | Self::Swap { .. } => Ok(()),
        }
    }
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationOutcome {
    /// The owner holds this now (the key asked for, or for a swap the new one).
    Held(Reservation),
    /// The key was given back.
    Released,
    /// Another owner holds the key that was asked for (R1, R3). Nothing changed.
    Taken(Reservation),
    /// The owner does not hold the key (any more), and nobody else does: it expired, was released, or was never
    /// reserved (R3). Nothing changed.
    NotHeld,
}

/// A page of reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReservations {
    /// Only this scope.
    pub scope: Option<ReservationScope>,
    /// Only those behind this scope and key (exclusive).
    pub after: Option<(ReservationScope, ReservationKey)>,
    /// At most so many (inclusive), 1,000 by default; 0: none. There is no largest limit.
    pub limit: usize,
}

impl Default for ListReservations {
    fn default() -> Self {
        Self { scope: None, after: None, limit: 1_000 }
    }
}

/// Reservations. Judged by the store's clock; an expired one is free at once, whether or not anything has swept it up
/// (R2).
#[async_trait]
pub trait Reservations: Send + Sync {
    /// Makes one change, in one step.
    ///
    /// - R1 A key in a scope has **at most one owner**. Reserving it again for the same owner succeeds; for another,
    ///   the answer is who holds it.
    /// - R2 **Two phases**: reserve with an expiry, then confirm or release.
    /// - R3 **Only the owner** confirms, releases or swaps; one whose reservation expired is told so, and by whom it
    ///   was taken.
    /// - R4 **Swap in one step**: there is no moment at which the owner holds neither or both.
    ///
    /// An expiry is more than zero, at most [`MAX_TTL`](crate::MAX_TTL), rounded up to whole milliseconds; at its last
    /// instant the key is free (exclusive).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for the expiry; those of any write. That somebody else holds
    /// the key is an answer, not an error (but riding in an append it is one, R5).
    ///
    /// Cancel-safety: dropping the future leaves the change made or not, never half. Reserve or confirm again; after a
    /// release or a swap look with [`reservation`](Self::reservation): the owner no longer holds what it gave away.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use wow_store_api::{MemoryStore, OwnerId, ReservationKey, ReservationOp, ReservationOutcome,
    ///     ReservationScope, Reservations};
    ///
    /// let store = MemoryStore::new();
    /// let reserve = |owner: &str| ReservationOp::Reserve {
    ///     scope: ReservationScope::new("user.email").unwrap(),
    ///     key: ReservationKey::new("ada@example.org").unwrap(),
    ///     owner: OwnerId::new(owner).unwrap(),
    ///     expires_in: Some(Duration::from_secs(60)),
    /// };
    /// assert!(matches!(store.reserve(reserve("user-1")).await?, ReservationOutcome::Held(_)));
    /// let ReservationOutcome::Taken(by) = store.reserve(reserve("user-2")).await? else { panic!() };
    /// assert_eq!(by.owner, "user-1");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome>;

    /// Who holds a key now (R1), by the store's clock; `None` if nobody does, also from the very instant at which a
    /// reservation expires (R2).
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ListReservations, MemoryStore, OwnerId, ReservationKey, ReservationOp, ReservationScope, Reservations};
    /// # let (store, scope) = (MemoryStore::new(), ReservationScope::new("user.email")?);
    /// # let (key, owner) = (ReservationKey::new("ada@example.org")?, OwnerId::new("user-1")?);
    /// # let expires_in = Some(Duration::from_secs(60));
    /// # store.reserve(ReservationOp::Reserve { scope: scope.clone(), key: key.clone(), owner, expires_in }).await?;
    /// assert_eq!(store.reservation(&scope, &key).await?.unwrap().owner, "user-1");
    /// let free = ReservationKey::new("bob@example.org")?;
    /// assert!(store.reservation(&scope, &free).await?.is_none());
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>>;

    /// A page of the reservations that are held now (R2), by scope and key, from behind `after` (exclusive), at most
    /// `limit`. A limit of 0 gives none; there is no largest one, and all that it lets through is in memory at once: go in
    /// pages.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ListReservations, MemoryStore, OwnerId, ReservationKey, ReservationOp, ReservationScope, Reservations};
    /// # let (store, scope) = (MemoryStore::new(), ReservationScope::new("user.email")?);
    /// # let (key, owner) = (ReservationKey::new("ada@example.org")?, OwnerId::new("user-1")?);
    /// # let expires_in = Some(Duration::from_secs(60));
    /// # store.reserve(ReservationOp::Reserve { scope: scope.clone(), key: key.clone(), owner, expires_in }).await?;
    /// let list = ListReservations { scope: Some(scope), limit: 100, ..ListReservations::default() };
    /// let page = store.reservations(list).await?;
    /// assert_eq!((page.len(), &page[0].key), (1, &key));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>>;
}
