//! Waiting for a write to be seen (Q3).

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use futures_timer::Delay;
use futures_util::future::{Either, select};

use crate::error::{Error, ErrorKind, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Asks `probe` until it says yes: at once, then after 1 ms, 2 ms, 4 ms … at most 50 ms. How every backend keeps Q3.
///
/// With `within` zero it asks once and does not wait. Otherwise a probe that is under way when the time is up is
/// dropped. Needs no async runtime.
///
/// # Errors
/// [`Timeout`](crate::ErrorKind::Timeout), `NotApplied`, if it did not say yes in time; an error of the probe at once.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::time::Duration;
/// use wow_store_api::query::wait_until;
///
/// let mut asked = 0;
/// wait_until(Duration::from_secs(5), || {
///     asked += 1;
///     let done = asked == 3;
///     async move { Ok(done) }
/// })
/// .await?;
/// assert_eq!(asked, 3);
/// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
/// ```
pub async fn wait_until<F, P>(within: Duration, mut probe: F) -> Result<()>
where
    F: FnMut() -> P + Send,
    P: Future<Output = Result<bool>> + Send,
{
    let timeout = || Error::not_applied(ErrorKind::Timeout);
    if within.is_zero() {
        return if probe().await? { Ok(()) } else { Err(timeout()) };
    }
    let started = Instant::now();
    let mut deadline = pin!(Delay::new(within));
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = match select(pin!(probe()), deadline.as_mut()).await {
            Either::Left((seen, _)) => seen?,
            Either::Right(_) => false,
        };
        if seen {
            return Ok(());
        }
        let left = within.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(timeout());
        }
        Delay::new(pause.min(left)).await;
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::executor::block_on;

    use super::*;
    use crate::Outcome;

    fn is_timeout(result: Result<()>) -> bool {
        result.is_err_and(|error| {
            matches!(error.kind(), ErrorKind::Timeout) && error.outcome() == Outcome::NotApplied
        })
    }

    #[test]
    fn asks_once_without_time() {
        let mut asked = 0;
        assert!(is_timeout(block_on(wait_until(Duration::ZERO, || {
            asked += 1;
            ready(Ok(false))
        }))));
        assert_eq!(asked, 1);
        assert!(block_on(wait_until(Duration::ZERO, || ready(Ok(true)))).is_ok());
    }

    #[test]
    fn asks_again_until_yes() {
        let mut asked = 0;
        let waited = block_on(wait_until(Duration::from_secs(60), || {
            asked += 1;
            ready(Ok(asked == 5))
        }));
        assert!(waited.is_ok());
        assert_eq!(asked, 5);
    }

    #[test]
    fn gives_up_in_time() {
        let started = Instant::now();
        let mut asked = 0;
        assert!(is_timeout(block_on(wait_until(Duration::from_millis(120), || {
            asked += 1;
            ready(Ok(false))
        }))));
        assert!(started.elapsed() >= Duration::from_millis(120));
        assert!(asked < 20, "it pauses longer and longer");
    }

    #[test]
    fn drops_a_probe_that_hangs() {
        assert!(is_timeout(block_on(wait_until(Duration::from_millis(20), pending))));
    }

    #[test]
    fn passes_on_an_error() {
        let failed = block_on(wait_until(Duration::from_secs(60), || {
            ready(Err(Error::not_applied(ErrorKind::Closed)))
        }));
        assert!(matches!(failed.unwrap_err().kind(), ErrorKind::Closed));
    }
}
