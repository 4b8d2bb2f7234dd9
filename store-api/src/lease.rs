//! Leases: which member of a group works on which partition, with epochs that fence off the others (E1 to E3).
//!
//! Time is the store's: a lease is live while the store's clock is **before** `expires_at`; at that instant it is
//! over. An owner on its own clock must count from *before* it sent its request, and stop before its time to live is
//! over.
//!
//! What makes ownership safe is not the time but the **epoch**: an owner that was paused and comes back still has its
//! old one, and every fenced write of it is refused once another member has a higher one.

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    log::Epoch,
    name::{ContextName, MemberId, SubscriptionName},
    partition::PartitionId,
    time::{Timestamp, whole_millis},
};

/// Longest time to live of a lease, a member, a reservation or a claim (inclusive): 366 days.
pub const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Checks a time to live: more than zero, at most [`MAX_TTL`]. Stores round it up to whole milliseconds.
///
/// # Errors
/// [`crate::ErrorKind::InvalidInput`].
pub fn check_ttl(what: &str, ttl: Duration) -> Result<()> {
    if ttl.is_zero() || ttl > MAX_TTL {
        return Err(Error::invalid_input(format!(
            "a {what} of {ttl:?}: choose more than zero and at most {} days",
            MAX_TTL.as_secs() / 86_400
        )));
    }
    Ok(())
}

/// The proof that a writer owned a partition: the group, the partition and the epoch of its lease (L7, C2).
///
/// A store refuses a write with a fence if it knows a higher epoch of that lease. It knows the epochs that it gave out
/// itself and those it saw on fenced writes, so a fence also works on a store that does not hold the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The group.
    pub group: SubscriptionName,
    /// The partition that is leased. Not necessarily the one that is written to: a handler of one partition may
    /// append to any aggregate.
    pub partition: PartitionId,
    /// The epoch, at most [`crate::MAX_COUNTER`].
    pub epoch: Epoch,
}

/// The state of one lease. It is kept for ever, so that its epoch never repeats (E2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The group.
    pub group: SubscriptionName,
    /// The partition.
    pub partition: PartitionId,
    /// The member that holds it, or held it last until it expired; `None` after a release, and for a lease that is
    /// only known from fenced writes.
    pub owner: Option<MemberId>,
    /// The highest epoch known.
    pub epoch: Epoch,
    /// Live while the store's clock is before this.
    pub expires_at: Timestamp,
}

impl Lease {
    /// The owner, if the lease is live at `now`.
    #[must_use]
    pub fn live_owner(&self, now: Timestamp) -> Option<&MemberId> {
        self.owner.as_ref().filter(|_| now < self.expires_at)
    }

    /// The fence of its current epoch.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence { group: self.group.clone(), partition: self.partition.clone(), epoch: self.epoch }
    }

    /// What its owner shows to renew or release it.
    #[must_use]
    pub fn token(&self, member: &MemberId) -> LeaseToken {
        LeaseToken {
            group: self.group.clone(),
            partition: self.partition.clone(),
            member: member.clone(),
            epoch: self.epoch,
        }
    }
}

/// A request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcquireLease {
    /// The group.
    pub group: SubscriptionName,
    /// The partition.
    pub partition: PartitionId,
    /// The member that wants it.
    pub member: MemberId,
    /// How long it lasts unless renewed, by the store's clock; more than zero, at most [`MAX_TTL`].
    pub ttl: Duration,
}

impl AcquireLease {
    /// A request.
    #[must_use]
    pub fn new(group: SubscriptionName, partition: PartitionId, member: MemberId, ttl: Duration) -> Self {
        Self { group, partition, member, ttl }
    }
}

/// What became of a request for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAcquired {
    /// The member owns it now, with a new epoch.
    Acquired(Lease),
    /// It is live and held, perhaps by this very member. It stays as it is.
    Held(Lease),
}

/// What an owner shows to renew or release its lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseToken {
    /// The group.
    pub group: SubscriptionName,
    /// The partition.
    pub partition: PartitionId,
    /// The owner.
    pub member: MemberId,
    /// The epoch that it acquired.
    pub epoch: Epoch,
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRenewed {
    /// It is live until this instant.
    Renewed(Timestamp),
    /// It is over: expired, released or taken over. Stop working.
    Lost,
}

/// A running node of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The group.
    pub group: SubscriptionName,
    /// The member.
    pub member: MemberId,
    /// Since when it is there, by the store's clock.
    pub joined_at: Timestamp,
    /// Alive while the store's clock is before this.
    pub expires_at: Timestamp,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// The group.
    pub group: SubscriptionName,
    /// The member.
    pub member: MemberId,
    /// How long it counts as alive, by the store's clock; more than zero, at most [`MAX_TTL`].
    pub ttl: Duration,
}

impl Heartbeat {
    /// A sign of life.
    #[must_use]
    pub fn new(group: SubscriptionName, member: MemberId, ttl: Duration) -> Self {
        Self { group, member, ttl }
    }
}

/// Leases and members.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Tries to take a lease.
    ///
    /// - E1 **At most one live owner**, judged by the store's clock. A lease that is live is
    ///   [`Held`](LeaseAcquired::Held), also if the same member asks: the token is what proves ownership, and two
    ///   processes may have been given one name. A member that lost the reply of an acquire reads the lease, and
    ///   finds itself as the owner.
    /// - E2 **The epoch rises** with every acquire, never falls, never repeats, also after expiry and release, and
    ///   goes above any epoch seen on a fenced write.
    ///
    /// The time to live is more than zero, at most [`MAX_TTL`], rounded up to whole milliseconds; at its last instant
    /// the lease is over (exclusive). Whether there is such a partition, or such a member, is not looked at.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for the time to live;
    /// [`Exhausted`](crate::ErrorKind::Exhausted); those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the lease taken or as it was. If it was taken, [`leases`](Self::leases)
    /// shows it; left alone, it expires.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use wow_store_api::{AcquireLease, ContextName, LeaseAcquired, LeaseRenewed, Leases, ManualClock, MemberId,
    ///     MemoryStore, PartitionId, SubscriptionName, Timestamp};
    ///
    /// let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
    /// let store = MemoryStore::builder().clock(clock.clone()).build();
    /// let partition = PartitionId::new(ContextName::new("shop")?, 0);
    /// let ask = |member: &MemberId| AcquireLease::new(
    ///     SubscriptionName::new("mailer").unwrap(), partition.clone(), member.clone(), Duration::from_secs(10));
    /// let (a, b) = (MemberId::generate("a"), MemberId::generate("b"));
    ///
    /// let LeaseAcquired::Acquired(lease) = store.acquire_lease(ask(&a)).await? else { panic!() };
    /// assert!(matches!(store.acquire_lease(ask(&b)).await?, LeaseAcquired::Held(_)));
    ///
    /// clock.advance(Duration::from_secs(10)); // over at the very instant
    /// let LeaseAcquired::Acquired(next) = store.acquire_lease(ask(&b)).await? else { panic!() };
    /// assert!(next.epoch > lease.epoch);
    /// let renewed = store.renew_leases(&[lease.token(&a)], Duration::from_secs(10)).await?;
    /// assert_eq!(renewed, [LeaseRenewed::Lost]);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired>;

    /// Renews leases, all in one step, answered in the order of the tokens: each lasts `ttl` from now if it is live and the
    /// token is its owner's (E1), under the same epoch (E2). One that expired is lost even if nobody took it: an expired
    /// lease never comes back under its old epoch.
    ///
    /// The time to live is bounded as for [`acquire_lease`](Self::acquire_lease). Any number of tokens goes, each of any
    /// group and context: none gives no answers, one that is given twice is answered twice.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for the time to live; those of any write.
    ///
    /// Cancel-safety: dropping the future leaves all of them renewed or none. Renew again.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{AcquireLease, ContextName, Heartbeat, LeaseAcquired, LeaseRenewed, Leases, MemberId, MemoryStore,
    /// #     PartitionId, SubscriptionName};
    /// # let (store, ttl) = (MemoryStore::new(), Duration::from_secs(10));
    /// # let (shop, group, me) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?, MemberId::generate("node"));
    /// # let ask = AcquireLease::new(group.clone(), PartitionId::new(shop.clone(), 0), me.clone(), ttl);
    /// let LeaseAcquired::Acquired(lease) = store.acquire_lease(ask).await? else { panic!() };
    /// let renewed = store.renew_leases(&[lease.token(&me)], ttl).await?;
    /// let LeaseRenewed::Renewed(until) = renewed[0] else { panic!("lost: stop working") };
    /// assert!(until >= lease.expires_at);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>>;

    /// Gives a lease back, so that another member can take it at once. Only the token of the current owner does (E1), and
    /// the epoch is kept (E2). Says whether it was given back: `false` if it was not this owner's any more. A lease that
    /// expired but was not taken can be given back.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the lease given back or held. Release again: `false` if it was.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{AcquireLease, ContextName, Heartbeat, LeaseAcquired, LeaseRenewed, Leases, MemberId, MemoryStore,
    /// #     PartitionId, SubscriptionName};
    /// # let (store, ttl) = (MemoryStore::new(), Duration::from_secs(10));
    /// # let (shop, group, me) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?, MemberId::generate("node"));
    /// # let ask = AcquireLease::new(group.clone(), PartitionId::new(shop.clone(), 0), me.clone(), ttl);
    /// let LeaseAcquired::Acquired(lease) = store.acquire_lease(ask).await? else { panic!() };
    /// assert!(store.release_lease(&lease.token(&me)).await?);
    /// assert!(!store.release_lease(&lease.token(&me)).await?, "it is nobody's now");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn release_lease(&self, token: &LeaseToken) -> Result<bool>;

    /// All leases of a group in a context, by partition, also expired and released ones (they keep their epochs, E2), and
    /// those that are only known from fenced writes. Never taken ones are not there.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{AcquireLease, ContextName, Heartbeat, LeaseAcquired, LeaseRenewed, Leases, MemberId, MemoryStore,
    /// #     PartitionId, SubscriptionName};
    /// # let (store, ttl) = (MemoryStore::new(), Duration::from_secs(10));
    /// # let (shop, group, me) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?, MemberId::generate("node"));
    /// # let ask = AcquireLease::new(group.clone(), PartitionId::new(shop.clone(), 0), me.clone(), ttl);
    /// store.acquire_lease(ask).await?;
    /// let now = wow_store_api::StoreAdmin::now(&store).await?;
    /// let owners: Vec<_> = store.leases(&group, &shop).await?.into_iter().map(|it| it.live_owner(now).cloned()).collect();
    /// assert_eq!(owners, [Some(me)]);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>>;

    /// Tells the group that a member is alive (E3). The first one announces it; `joined_at` stays until it leaves or its
    /// time to live is over. The time to live is bounded as for [`acquire_lease`](Self::acquire_lease), and counts from now.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for the time to live; those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the sign of life seen or not. Send it again.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{AcquireLease, ContextName, Heartbeat, LeaseAcquired, LeaseRenewed, Leases, MemberId, MemoryStore,
    /// #     PartitionId, SubscriptionName};
    /// # let (store, ttl) = (MemoryStore::new(), Duration::from_secs(10));
    /// # let (shop, group, me) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?, MemberId::generate("node"));
    /// # let ask = AcquireLease::new(group.clone(), PartitionId::new(shop.clone(), 0), me.clone(), ttl);
    /// let member = store.heartbeat(Heartbeat::new(group, me, ttl)).await?;
    /// assert!(member.joined_at < member.expires_at);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member>;

    /// The members of a group that are alive now, by member id (E3): those whose time to live is not over (exclusive), by
    /// the store's clock. What [`share_out`] shares among.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{AcquireLease, ContextName, Heartbeat, LeaseAcquired, LeaseRenewed, Leases, MemberId, MemoryStore,
    /// #     PartitionId, SubscriptionName};
    /// # let (store, ttl) = (MemoryStore::new(), Duration::from_secs(10));
    /// # let (shop, group, me) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?, MemberId::generate("node"));
    /// # let ask = AcquireLease::new(group.clone(), PartitionId::new(shop.clone(), 0), me.clone(), ttl);
    /// store.heartbeat(Heartbeat::new(group.clone(), me.clone(), ttl)).await?;
    /// assert_eq!(store.members(&group).await?[0].member, me);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>>;

    /// Takes a member out of its group, so that its partitions are shared out anew at once (E3). Its leases stay as they
    /// are, with their epochs (E2): release them first. Says whether it was there and alive.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the member in or out. Leave again: `false` if it was out.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{AcquireLease, ContextName, Heartbeat, LeaseAcquired, LeaseRenewed, Leases, MemberId, MemoryStore,
    /// #     PartitionId, SubscriptionName};
    /// # let (store, ttl) = (MemoryStore::new(), Duration::from_secs(10));
    /// # let (shop, group, me) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?, MemberId::generate("node"));
    /// # let ask = AcquireLease::new(group.clone(), PartitionId::new(shop.clone(), 0), me.clone(), ttl);
    /// store.heartbeat(Heartbeat::new(group.clone(), me.clone(), ttl)).await?;
    /// assert!(store.leave(&group, &me).await?);
    /// assert!(store.members(&group).await?.is_empty());
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool>;
}

/// Shares partitions out among members (E3): evenly (counts differ by at most one), with as few moves as possible, and
/// the same on every node that sees the same members and owners.
///
/// `owners` says who has which partition now (by index); owners that are not in `members` count as gone. Returns the
/// partitions that each member should have. Partitions are indexes from 0 to `partitions` (exclusive).
///
/// ```
/// use std::collections::BTreeMap;
/// use wow_store_api::{MemberId, share_out};
///
/// let (a, b) = (MemberId::new("a")?, MemberId::new("b")?);
/// let owners = (0..4).map(|index| (index, a.clone())).collect::<BTreeMap<_, _>>();
/// let shares = share_out(4, &[a.clone(), b.clone()], &owners);
/// assert_eq!(shares[&a], [0, 1], "keeps half of what it had");
/// assert_eq!(shares[&b], [2, 3]);
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[must_use]
pub fn share_out(
    partitions: u32,
    members: &[MemberId],
    owners: &BTreeMap<u32, MemberId>,
) -> BTreeMap<MemberId, Vec<u32>> {
    let mut shares: BTreeMap<MemberId, Vec<u32>> =
        members.iter().map(|member| (member.clone(), Vec::new())).collect();
    let Ok(count) = u32::try_from(shares.len()) else { return shares };
    if count == 0 {
        return shares;
    }
    let mut free = Vec::new();
    for index in 0..partitions {
        match owners.get(&index).and_then(|owner| shares.get_mut(owner)) {
            Some(share) => share.push(index),
            None => free.push(index),
        }
    }
    // Those who have most keep one more than the others, so that the fewest partitions move.
    let (base, extra) = (partitions / count, partitions % count);
    let mut order: Vec<MemberId> = shares.keys().cloned().collect();
    order.sort_by_key(|member| std::cmp::Reverse(shares.get(member).map_or(0, Vec::len)));
    let quota = |rank: usize| {
        let more = u32::try_from(rank).is_ok_and(|rank| rank < extra);
        usize::try_from(base + u32::from(more)).unwrap_or(usize::MAX)
    };
    for (rank, member) in order.iter().enumerate() {
        if let Some(share) = shares.get_mut(member) {
            free.extend(share.drain(quota(rank).min(share.len())..));
        }
    }
    free.sort_unstable();
    let mut free = free.into_iter();
    for (rank, member) in order.iter().enumerate() {
        if let Some(share) = shares.get_mut(member) {
            let wanted = quota(rank).saturating_sub(share.len());
            share.extend(free.by_ref().take(wanted));
            share.sort_unstable();
        }
    }
    shares
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} of {} on {}", self.epoch, self.group, self.partition)
    }
}

/// `now` plus a time to live, in whole milliseconds, rounded up.
#[must_use]
pub fn expiry(now: Timestamp, ttl: Duration) -> Timestamp {
    now.saturating_add(Duration::from_millis(whole_millis(ttl)))
}
