//! Timers: delayed commands, due at an instant (M1, M2).

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    error::{Error, Result},
    lease::{Fence, check_ttl},
    name::{AggregateId, ContextName, MemberId, TimerId},
    payload::Payload,
    time::Timestamp,
};

/// Most timers that one claim takes (inclusive).
pub const MAX_CLAIM: usize = 1_000;

/// When a timer is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At an instant of the store's clock (inclusive), any one. One in the past is due at once.
    At(Timestamp),
    /// So long after the store's clock now, rounded up to whole milliseconds; zero is due at once, and what would be
    /// beyond [`Timestamp::MAX`] is due then.
    After(Duration),
}

impl Due {
    /// The instant it stands for.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(instant) => instant,
            Self::After(duration) => crate::lease::expiry(now, duration),
        }
    }
}

/// A timer that is scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct Timer {
    /// The context.
    pub context: ContextName,
    /// Its id in the context.
    pub id: TimerId,
    /// When it is due (inclusive).
    pub due_at: Timestamp,
    /// The aggregate that the command is for.
    pub target: Option<AggregateId>,
    /// What to do.
    pub body: Payload,
    /// When it was scheduled, by the store's clock.
    pub scheduled_at: Timestamp,
    /// How often it was claimed.
    pub attempts: u32,
    /// The claim on it, live or expired.
    pub claim: Option<TimerClaim>,
}

impl Timer {
    /// When it can be claimed next: when it is due, or when the claim on it expires, whichever is later.
    #[must_use]
    pub fn claimable_at(&self) -> Timestamp {
        match &self.claim {
            Some(claim) => self.due_at.max(claim.expires_at),
            None => self.due_at,
        }
    }
}

/// A claim on a timer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerClaim {
    /// Who claimed it.
    pub member: MemberId,
    /// Which claim: never the same twice.
    pub claim: Uuid,
    /// Exclusive while the store's clock is before this; then the timer is due again.
    pub expires_at: Timestamp,
}

/// A timer to be scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleTimer {
    /// The context.
    pub context: ContextName,
    /// Its id in the context.
    pub id: TimerId,
    /// When it is due.
    pub due: Due,
    /// The aggregate that the command is for.
    pub target: Option<AggregateId>,
    /// What to do.
    pub body: Payload,
    /// Whether it replaces one of the same id (M2).
    pub replace: bool,
    /// The lease that the writer works under. Riding in an append, the commit's own fence counts instead.
    pub fence: Option<Fence>,
}

impl ScheduleTimer {
    /// A timer.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unrepresentable`] if the body is outside the portable profile.
    pub fn new<T: Serialize + ?Sized>(context: ContextName, id: TimerId, due: Due, body: &T) -> Result<Self> {
        let body =
            Payload::from_serialize(body).map_err(|error| Error::unrepresentable("timer body", error))?;
        Ok(Self { context, id, due, target: None, body, replace: false, fence: None })
    }

    /// The aggregate that the command is for.
    #[must_use]
    pub fn with_target(mut self, target: AggregateId) -> Self {
        self.target = Some(target);
        self
    }

    /// Replace one of the same id.
    #[must_use]
    pub fn replacing(mut self) -> Self {
        self.replace = true;
        self
    }

    /// Only while no higher epoch of the lease is known.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The timer as it is stored.
    #[must_use]
    pub fn into_timer(self, now: Timestamp) -> Timer {
        Timer {
            due_at: self.due.at(now),
            context: self.context,
            id: self.id,
            target: self.target,
            body: self.body,
            scheduled_at: now,
            attempts: 0,
            claim: None,
        }
    }
}

/// What became of scheduling.
#[derive(Debug, Clone, PartialEq)]
pub enum TimerScheduled {
    /// It is scheduled.
    Scheduled(Timer),
    /// One of this id is there and stays as it is (M2).
    Exists(Timer),
}

/// A change of a timer that rides in an append (R5).
#[derive(Debug, Clone, PartialEq)]
pub enum TimerOp {
    /// Schedules one. If it exists and is not to be replaced, the append is refused.
    Schedule(ScheduleTimer),
    /// Cancels one. That it is not there is no reason to refuse the append.
    Cancel {
        /// The context.
        context: ContextName,
        /// The timer.
        id: TimerId,
    },
}

impl TimerOp {
    /// The timer's context.
    #[must_use]
    pub fn context(&self) -> &ContextName {
        match self {
            Self::Schedule(schedule) => &schedule.context,
            Self::Cancel { context, .. } => context,
        }
    }

    /// What it counts towards the commit's size.
    pub(crate) fn encoded_size(&self) -> usize {
        match self {
            Self::Schedule(schedule) => schedule.body.size(),
            Self::Cancel { .. } => 0,
        }
    }
}

/// A request for due timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimTimers {
    /// The context.
    pub context: ContextName,
    /// Who claims them.
    pub member: MemberId,
    /// How long the claim lasts, by the store's clock; more than zero, at most [`MAX_TTL`](crate::MAX_TTL).
    pub ttl: Duration,
    /// At most so many (inclusive), at least 1, at most [`MAX_CLAIM`].
    pub limit: usize,
}

impl ClaimTimers {
    /// Up to 100 due timers.
    #[must_use]
    pub fn new(context: ContextName, member: MemberId, ttl: Duration) -> Self {
        Self { context, member, ttl, limit: 100 }
    }

    /// At most so many.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] for time to live or limit.
    pub fn check(&self) -> Result<()> {
        check_ttl("claim", self.ttl)?;
        if self.limit == 0 || self.limit > MAX_CLAIM {
            return Err(Error::invalid_input(format!("a claim of {} timers: 1 to {MAX_CLAIM}", self.limit)));
        }
        Ok(())
    }
}

/// What the claimer of a timer shows to complete or release it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimerToken {
    /// The context.
    pub context: ContextName,
    /// The timer.
    pub id: TimerId,
    /// The claim.
    pub claim: Uuid,
}

impl Timer {
    /// The token of the claim on it.
    #[must_use]
    pub fn token(&self) -> Option<TimerToken> {
        self.claim.as_ref().map(|claim| TimerToken {
            context: self.context.clone(),
            id: self.id.clone(),
            claim: claim.claim,
        })
    }
}

/// Timers.
///
/// A timer fires **at least once** (M1): claim it, act on it, complete it. Who crashes in between leaves a claim that
/// expires, and another node acts on it again; an append under a command id made from the timer's id makes the effect
/// happen once.
#[async_trait]
pub trait Timers: Send + Sync {
    /// Schedules a timer.
    ///
    /// - M2 One of the same id is replaced only if asked; otherwise it stays, and
    ///   [`Exists`](TimerScheduled::Exists) shows it. A replaced one loses its claim.
    /// - L7 Refused if the fence was overtaken.
    ///
    /// It may be due at any instant, also one that is past. A duration counts from the store's clock now, and ends at
    /// [`Timestamp::MAX`] at the latest ([`Due`]).
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced); [`InvalidInput`](crate::ErrorKind::InvalidInput) for a fence with an epoch
    /// beyond [`MAX_COUNTER`](crate::MAX_COUNTER); those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the timer scheduled or not. Schedule it again:
    /// [`Exists`](TimerScheduled::Exists) if it was.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use std::time::Duration;
    /// use wow_store_api::{ClaimTimers, ContextName, Due, ManualClock, MemberId, MemoryStore, ScheduleTimer, TimerId,
    ///     Timers, Timestamp};
    ///
    /// let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
    /// let store = MemoryStore::builder().clock(clock.clone()).build();
    /// let shop = ContextName::new("shop")?;
    /// let minute = Due::After(Duration::from_secs(60));
    /// store.schedule_timer(ScheduleTimer::new(shop.clone(), TimerId::new("remind-42")?, minute, &42)?).await?;
    ///
    /// let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// assert!(store.claim_timers(claim.clone()).await?.is_empty(), "not before its time");
    /// clock.advance(Duration::from_secs(60));
    /// let due = store.claim_timers(claim).await?;
    /// assert!(store.complete_timer(&due[0].token().unwrap()).await?);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled>;

    /// Cancels a timer, claimed or not. Says whether it was still there (M2).
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the timer there or gone. Cancel again: `false` if it was gone.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ClaimTimers, ContextName, Due, MemberId, MemoryStore, ScheduleTimer, TimerId, Timers, Timestamp};
    /// # let (store, shop, id) = (MemoryStore::new(), ContextName::new("shop")?, TimerId::new("remind-42")?);
    /// # let due = Due::At(Timestamp::UNIX_EPOCH);
    /// # store.schedule_timer(ScheduleTimer::new(shop.clone(), id.clone(), due, &42)?).await?;
    /// # let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// assert!(store.cancel_timer(&shop, &id).await?);
    /// assert!(!store.cancel_timer(&shop, &id).await?, "not there any more");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool>;

    /// Claims due timers that nobody has claimed, or whose claim expired, the one due first first, then by id (M1). Two
    /// claims never get the same timer while a claim lasts. A timer is due at its very instant (inclusive), and a claim is
    /// over at its last one (exclusive), by the store's clock.
    ///
    /// At least 1 and at most [`MAX_CLAIM`] timers may be asked for; the time to live is more than zero, at most
    /// [`MAX_TTL`](crate::MAX_TTL), rounded up to whole milliseconds. Fewer than asked for may come while others are being
    /// claimed: ask again.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) as for [`ClaimTimers::check`]; those of any write.
    ///
    /// Cancel-safety: dropping the future leaves timers claimed or not. Those that were are due again when the claim expires.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ClaimTimers, ContextName, Due, MemberId, MemoryStore, ScheduleTimer, TimerId, Timers, Timestamp};
    /// # let (store, shop, id) = (MemoryStore::new(), ContextName::new("shop")?, TimerId::new("remind-42")?);
    /// # let due = Due::At(Timestamp::UNIX_EPOCH);
    /// # store.schedule_timer(ScheduleTimer::new(shop.clone(), id.clone(), due, &42)?).await?;
    /// # let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// let due = store.claim_timers(claim.clone()).await?;
    /// assert_eq!((due[0].id.as_str(), due[0].attempts), ("remind-42", 1));
    /// assert!(store.claim_timers(claim).await?.is_empty(), "nobody else gets it meanwhile");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>>;

    /// Removes a timer that was acted on (M1). Says whether the claim was still the timer's last one: `false` if it expired
    /// and the timer was claimed again, or if it was released, replaced or cancelled. A claim that expired without that
    /// still completes.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the timer there or gone. Complete again: `false` if it was gone.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ClaimTimers, ContextName, Due, MemberId, MemoryStore, ScheduleTimer, TimerId, Timers, Timestamp};
    /// # let (store, shop, id) = (MemoryStore::new(), ContextName::new("shop")?, TimerId::new("remind-42")?);
    /// # let due = Due::At(Timestamp::UNIX_EPOCH);
    /// # store.schedule_timer(ScheduleTimer::new(shop.clone(), id.clone(), due, &42)?).await?;
    /// # let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// for timer in store.claim_timers(claim).await? {
    ///     // Act on it, then:
    ///     assert!(store.complete_timer(&timer.token().unwrap()).await?);
    /// }
    /// assert!(store.timers(&shop, None, 10).await?.is_empty());
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn complete_timer(&self, token: &TimerToken) -> Result<bool>;

    /// Gives a claimed timer back (M1). Says whether the claim was still the timer's last one. The timer is due again after
    /// `retry_in`, rounded up to whole milliseconds and at [`Timestamp::MAX`] at the latest; if that is zero, it stays due
    /// when it was.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the timer given back or claimed. Release again: `false` if it was given back.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ClaimTimers, ContextName, Due, MemberId, MemoryStore, ScheduleTimer, TimerId, Timers, Timestamp};
    /// # let (store, shop, id) = (MemoryStore::new(), ContextName::new("shop")?, TimerId::new("remind-42")?);
    /// # let due = Due::At(Timestamp::UNIX_EPOCH);
    /// # store.schedule_timer(ScheduleTimer::new(shop.clone(), id.clone(), due, &42)?).await?;
    /// # let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// let due = store.claim_timers(claim.clone()).await?;
    /// assert!(store.release_timer(&due[0].token().unwrap(), Duration::from_secs(60)).await?);
    /// assert!(store.claim_timers(claim).await?.is_empty(), "not before a minute has passed");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool>;

    /// The earliest instant at which a timer of the context can be claimed ([`Timer::claimable_at`], M1): what a node sleeps
    /// until. It may be past; `None` if there are no timers.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ClaimTimers, ContextName, Due, MemberId, MemoryStore, ScheduleTimer, TimerId, Timers, Timestamp};
    /// # let (store, shop, id) = (MemoryStore::new(), ContextName::new("shop")?, TimerId::new("remind-42")?);
    /// # let due = Due::At(Timestamp::UNIX_EPOCH);
    /// # store.schedule_timer(ScheduleTimer::new(shop.clone(), id.clone(), due, &42)?).await?;
    /// # let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// assert_eq!(store.next_due(&shop).await?, Some(Timestamp::UNIX_EPOCH));
    /// store.cancel_timer(&shop, &id).await?;
    /// assert_eq!(store.next_due(&shop).await?, None);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>>;

    /// A page of the timers that are scheduled, claimed or not, by id, from behind `after` (exclusive), at most `limit`. A
    /// limit of 0 gives none; there is no largest one, and all that it lets through is in memory at once: go in pages.
    /// Cancelled and completed ones are not there (M2).
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::time::Duration;
    /// # use wow_store_api::{ClaimTimers, ContextName, Due, MemberId, MemoryStore, ScheduleTimer, TimerId, Timers, Timestamp};
    /// # let (store, shop, id) = (MemoryStore::new(), ContextName::new("shop")?, TimerId::new("remind-42")?);
    /// # let due = Due::At(Timestamp::UNIX_EPOCH);
    /// # store.schedule_timer(ScheduleTimer::new(shop.clone(), id.clone(), due, &42)?).await?;
    /// # let claim = ClaimTimers::new(shop.clone(), MemberId::generate("node"), Duration::from_secs(30));
    /// let page = store.timers(&shop, None, 100).await?;
    /// assert_eq!((page.len(), &page[0].id), (1, &id));
    /// assert!(store.timers(&shop, Some(&id), 100).await?.is_empty(), "none behind the last");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        limit: usize,
    ) -> Result<Vec<Timer>>;
}
