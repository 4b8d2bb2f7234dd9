//! A wrapper around any store in which things go wrong, as they do between a client and a server.

mod place;
mod store;
mod wakeups;

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use wow_store_api::{Error, ErrorKind, EventStore, Result};

use self::wakeups::FaultyWakeups;
use crate::seed::{Dice, Seed};

pub(crate) use place::FaultyBackend;

/// How often things go wrong, each in percent of the calls, and the seed of the dice that decide.
///
/// ```
/// use wow_store_conformance::Faults;
///
/// let unreliable = Faults::seeded(42).with_lost_requests(10).with_lost_replies(10);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "faults do nothing until a store is wrapped"]
pub struct Faults {
    seed: Seed,
    lost_requests: u8,
    lost_replies: u8,
    dropped: u8,
    delayed: u8,
    lost_wakeups: u8,
}

impl Faults {
    /// Nothing goes wrong: the wrapper cannot be told from the store that it wraps.
    pub fn none() -> Self {
        Self::seeded(0)
    }

    /// Nothing goes wrong yet; what will is decided by this seed and the order of the calls.
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed: Seed::of(seed),
            lost_requests: 0,
            lost_replies: 0,
            dropped: 0,
            delayed: 0,
            lost_wakeups: 0,
        }
    }

    /// Calls that never get to the store. Writes say so or not, by the coin of lost replies.
    pub fn with_lost_requests(mut self, percent: u8) -> Self {
        self.lost_requests = percent;
        self
    }

    /// Calls whose outcome is not told: the caller cannot know whether it was applied.
    pub fn with_lost_replies(mut self, percent: u8) -> Self {
        self.lost_replies = percent;
        self
    }

    /// Calls that are begun and then dropped.
    pub fn with_dropped_calls(mut self, percent: u8) -> Self {
        self.dropped = percent;
        self
    }

    /// Calls that let others go first.
    pub fn with_delays(mut self, percent: u8) -> Self {
        self.delayed = percent;
        self
    }

    /// Wake-ups that come late, as a poll finds them.
    pub fn with_lost_wakeups(mut self, percent: u8) -> Self {
        self.lost_wakeups = percent;
        self
    }

    /// All of it, this often.
    pub(crate) fn everywhere(seed: Seed, percent: u8) -> Self {
        Self { seed, ..Self::none() }
            .with_lost_requests(percent)
            .with_lost_replies(percent)
            .with_dropped_calls(percent)
            .with_delays(percent.saturating_mul(3).min(100))
            .with_lost_wakeups(percent.saturating_mul(4).min(100))
    }
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy)]
struct Fate {
    /// How often others go first.
    delay: u64,
    /// Whether it gets to the store.
    applied: bool,
    /// Whether its outcome gets back.
    reported: bool,
    /// After how many polls it is dropped.
    dropped: Option<u64>,
}

/// A store around a store, in which calls get lost on the way there or back, are dropped half-way or delayed, and
/// wake-ups come late: as [`Faults`] says, the same for the same seed and order of calls.
///
/// What the contract promises of a store holds for this one too: an error says whether the call may have been applied,
/// a lost wake-up is made up for, nothing is applied twice. Needs a tokio runtime.
pub struct Faulty {
    inner: Arc<dyn EventStore>,
    faults: Faults,
    dice: Mutex<Dice>,
    wakeups: FaultyWakeups,
}

impl Faulty {
    /// Wraps a store.
    #[must_use]
    pub fn new(inner: Arc<dyn EventStore>, faults: Faults) -> Self {
        let wakeups = FaultyWakeups::new(faults.lost_wakeups, Dice::new(faults.seed.part(1)));
        Self { inner, faults, dice: Mutex::new(Dice::new(faults.seed)), wakeups }
    }

    fn fate(&self) -> Fate {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = &self.faults;
        Fate {
            delay: if dice.percent(faults.delayed) { 1 + dice.below(4) } else { 0 },
            applied: !dice.percent(faults.lost_requests),
            reported: !dice.percent(faults.lost_replies),
            dropped: dice.percent(faults.dropped).then(|| dice.below(3)),
        }
    }

    /// A call that changes something: two coins say whether it is applied, and whether that is told.
    async fn write<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let fate = self.fate();
        delay(fate).await;
        if let Some(polls) = fate.dropped {
            drop_after(polls, call).await;
            return Err(Error::unknown(ErrorKind::Timeout));
        }
        match (fate.applied, fate.reported) {
            (true, true) => call.await,
            (true, false) => {
                // Whether it succeeded is what the caller will not know.
                let _ = call.await;
                Err(Error::unknown(ErrorKind::Timeout))
            }
            (false, true) => Err(lost()),
            (false, false) => Err(Error::unknown(ErrorKind::Timeout)),
        }
    }

    /// A call that changes nothing: it fails if it gets lost on either way.
    async fn read<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let fate = self.fate();
        delay(fate).await;
        if let Some(polls) = fate.dropped {
            drop_after(polls, call).await;
            return Err(lost());
        }
        match (fate.applied, fate.reported) {
            (true, true) => call.await,
            (true, false) => {
                call.await?;
                Err(lost())
            }
            (false, _) => Err(lost()),
        }
    }
}

async fn delay(fate: Fate) {
    for _ in 0..fate.delay {
        tokio::task::yield_now().await;
    }
}

/// Polls a call so many times more than once, and drops it.
async fn drop_after<T>(polls: u64, call: impl Future<Output = T> + Send) {
    let mut call = pin!(call);
    for _ in 0..=polls {
        let done = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if done {
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn lost() -> Error {
    Error::not_applied(ErrorKind::Unavailable { reason: "the request was lost (fault wrapper)".to_owned() })
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("inner", &self.inner)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}
