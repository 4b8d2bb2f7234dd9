//! Instants and the clock they come from.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::error::{Error, Result};

/// An instant in UTC with millisecond precision, from year 1 to 9999 (inclusive).
///
/// Shown and parsed as RFC 3339 with three digits, e.g. `2026-11-30T18:53:00.000Z`. Text without an offset is
/// refused: it would have to be read as somebody's local time. Digits beyond the millisecond are refused rather than
/// cut.
///
/// ```
/// use wow_store_api::Timestamp;
///
/// let at: Timestamp = "2026-11-30T19:53:00.5+01:00".parse()?;
/// assert_eq!(at.to_string(), "2026-11-30T18:53:00.500Z");
/// assert!("2026-11-30T18:53:00".parse::<Timestamp>().is_err(), "whose local time?");
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 0001-01-01T00:00:00.000Z
    pub const MIN: Self = Self(-62_135_596_800_000);
    /// 9999-12-30T22:00:00.000Z: the last instant that every library and database here can hold, in any time zone.
    pub const MAX: Self = Self(253_402_207_200_000);
    /// 1970-01-01T00:00:00.000Z
    pub const UNIX_EPOCH: Self = Self(0);

    /// Milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] outside [`Timestamp::MIN`]..=[`Timestamp::MAX`].
    pub fn from_millis(millis: i64) -> Result<Self> {
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(Error::invalid_input(format!(
                "{millis} ms since 1970 is outside {} to {}",
                Self::MIN,
                Self::MAX
            )))
        }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant plus a duration, which is rounded **up** to whole milliseconds; [`Timestamp::MAX`] at most.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let millis = i64::try_from(whole_millis(duration)).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis).min(Self::MAX.0))
    }

    /// How long after `earlier` this is; zero if it is not after.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in whole milliseconds, rounded up: 1.5 ms lasts 2 ms. A time to live must not end early.
#[must_use]
pub fn whole_millis(duration: Duration) -> u64 {
    let nanos = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(f, "{instant:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| {
            Error::invalid_input(format!(
                "{text:?} is not an instant: write it like 2026-11-30T18:53:00.000Z, with an offset"
            ))
        })?;
        let millis = instant.as_millisecond();
        if instant.as_nanosecond() != i128::from(millis) * 1_000_000 {
            return Err(Error::invalid_input(format!(
                "{text:?} has digits beyond the millisecond: round it first"
            )));
        }
        Self::from_millis(millis)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Where a store without a server gets its time from.
///
/// Stores on a database use the database server's clock instead: it is the one clock that all nodes share.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The instant now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock, cut to the millisecond.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, i64::wrapping_neg),
        };
        Timestamp(millis.clamp(Timestamp::MIN.0, Timestamp::MAX.0))
    }
}

/// A clock that stands still until it is set: for tests. Clones share the time.
///
/// ```
/// use std::time::Duration;
/// use wow_store_api::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().as_millis(), 60_000);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.0)))
    }

    /// Sets the time, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        let now = self.now().saturating_add(by);
        self.set(now);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
