//! How often something is tried, and for how long (L6).

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep_until, timeout_at};
use wow_store_api::{Error, Outcome};

use crate::{
    fault::{Again, Fault},
    store::Inner,
};

/// What an operation is to be tried again after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It changes nothing: anything transient.
    Read,
    /// Doing it twice is doing it once: anything transient.
    Repeatable,
    /// Only what certainly was not applied.
    Once,
    /// Making collections: repeatable, and it takes longer than a write, above all where many nodes start at once.
    Schema,
}

/// What an attempt gets on top of a deadline, so that it is the driver that says whether it applied.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// How long making collections may take at least.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Attempts<'a> {
    inner: &'a Inner,
    kind: Kind,
    operation: &'static str,
    /// Until when it is tried again.
    deadline: Instant,
    tries: u32,
    /// Whether an attempt of unknown outcome was made.
    unknown: bool,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(inner: &'a Inner, kind: Kind, operation: &'static str) -> Self {
        let time = match kind {
            Kind::Read | Kind::Repeatable | Kind::Once => inner.config.transaction_timeout,
            Kind::Schema => inner.config.transaction_timeout.max(SCHEMA_TIMEOUT),
        };
        let deadline = Instant::now() + time;
        Self { inner, kind, operation, deadline, tries: 0, unknown: false }
    }

    /// Limits one attempt.
    pub(crate) async fn limit<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let until = match self.kind {
            Kind::Read => Instant::now() + self.inner.config.read_timeout,
            Kind::Repeatable | Kind::Once | Kind::Schema => self.deadline + GRACE,
        };
        timeout_at(until, work).await.unwrap_or_else(|_| Err(Fault::no_answer()))
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    /// The fault, if there is none.
    pub(crate) async fn again(&mut self, fault: Fault) -> Result<(), Error> {
        self.unknown |= fault.again == Again::Lost;
        let retry = match fault.again {
            Again::No => false,
            Again::Safe => true,
            Again::Lost => self.kind != Kind::Once,
        };
        let pause = pause(&fault, self.tries);
        self.tries = self.tries.saturating_add(1);
        if retry && Instant::now() + pause < self.deadline && !self.inner.is_closed() {
            sleep_until(Instant::now() + pause).await;
            return Ok(());
        }
        let outcome = match self.kind {
            Kind::Read => Outcome::NotApplied,
            Kind::Repeatable | Kind::Once | Kind::Schema if self.unknown => Outcome::Unknown,
            Kind::Repeatable | Kind::Once | Kind::Schema => Outcome::NotApplied,
        };
        // What a closing store breaks off failed for that reason.
        let error = if retry && self.inner.is_closed() { Fault::closed().error } else { fault.error };
        let error = error.with_outcome(outcome);
        Err(error.with_operation(self.operation).with_store(&self.inner.config.name))
    }
}

/// How long to wait after a fault before the next attempt.
pub(crate) fn pause(fault: &Fault, tries: u32) -> Duration {
    if fault.is_conflict() { take_turns(tries) } else { back_off(tries) }
}

/// How long to wait for another transaction to end: they are short, and whoever waits long always comes too late where
/// another node writes one after the other.
fn take_turns(tries: u32) -> Duration {
    let base = 1_u64 << tries.min(4);
    Duration::from_millis(base + jitter(base))
}

/// How long to wait before the next attempt: at once after the first, then 10 ms doubling to 320 ms, each by up to a
/// half longer, so that many nodes do not come back together.
pub(crate) fn back_off(tries: u32) -> Duration {
    if tries == 0 {
        return Duration::ZERO;
    }
    let base = 10_u64 << (tries - 1).min(5);
    Duration::from_millis(base + jitter(base / 2))
}

/// A number below or at `most` that differs from call to call.
fn jitter(most: u64) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // Every state has keys of its own.
    RandomState::new().hash_one(0_u8) % (most + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound() {
        assert!(back_off(0).is_zero(), "the first is made at once");
        assert!(back_off(1) >= Duration::from_millis(10) && back_off(1) <= Duration::from_millis(15));
        assert!(back_off(1_000) <= Duration::from_millis(480), "it is bounded");
        let collided = Fault::of_code(112);
        assert!(!pause(&collided, 0).is_zero(), "nobody is faster than the one that is there");
        assert!(pause(&collided, 1_000) <= Duration::from_millis(32), "nor has to wait for long");
    }
}
