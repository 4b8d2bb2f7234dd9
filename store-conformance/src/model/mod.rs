//! The model test: random histories on the store under test and on [`MemoryStore`], compared answer by answer.
//!
//! The values are so few that operations meet: the same aggregates, commands, leases, keys and timers again and again,
//! through two handles, with reopening, and with time passing where it can be set. What differs is shrunk to a short
//! history before it is reported.
//!
//! The same histories are tried in every run, those of one seed. From the environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `WOW_STORE_SEED` | another seed; `random` makes one up. A failure prints the one to run again |
//! | `WOW_STORE_HISTORIES` | how many histories of each theme, instead of a few |

mod answer;
mod query;
mod side;
mod step;
mod values;

use std::{cell::RefCell, fmt::Write as _, sync::Arc};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tokio::runtime::Runtime;
use wow_store_api::{Clock as _, EventStore, ManualClock, MemoryStore, PartitionCount, Result, Timestamp};

use self::{
    answer::{Answer, Instants, show},
    side::Side,
    step::{Handle, Step},
};
use crate::{
    harness::{Backend, Place, Settings},
    run::contained,
    seed::{self, Seed},
};

pub(crate) use step::Theme;

/// How many partitions each context has: so few that aggregates share them.
const PARTITIONS: u32 = 3;

/// Most steps of one history.
const STEPS: usize = 60;

/// How much is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Histories of one theme.
    pub(crate) histories: u32,
    /// Shorter histories that are looked at once one has failed.
    pub(crate) shrinks: u32,
}

impl Effort {
    /// A few histories, unless the environment says otherwise.
    pub(crate) fn from_env() -> Self {
        const VARIABLE: &str = "WOW_STORE_HISTORIES";
        let histories = match std::env::var(VARIABLE) {
            Ok(count) => count.parse().unwrap_or_else(|_| panic!("{VARIABLE}={count}: a number")),
            Err(_) => 30,
        };
        Self { histories, shrinks: 3_000 }
    }
}

/// Compares the backend with the model on random histories.
///
/// # Errors
/// The seed, the shortest history found that makes a difference, and the difference.
pub(crate) fn compare(
    theme: Theme,
    backend: &Arc<dyn Backend>,
    runtime: &Runtime,
    seed: Seed,
    effort: Effort,
) -> Result<(), String> {
    let config = Config {
        cases: effort.histories,
        failure_persistence: None,
        max_shrink_iters: effort.shrinks,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed.bytes());
    let mut runner = TestRunner::new_with_rng(config, rng);
    let told = RefCell::new(String::new());
    let outcome = runner.run(&theme.histories(STEPS), |history| {
        runtime.block_on(differs(backend, history)).map_err(|difference| {
            told.replace(difference);
            TestCaseError::fail("the answers differ")
        })
    });
    match outcome {
        Ok(()) => Ok(()),
        // The last failure is not necessarily the shortest: run that once more.
        Err(TestError::Fail(_, history)) => {
            let difference = runtime.block_on(differs(backend, history)).err();
            let difference = difference.unwrap_or_else(|| told.take() + "\n(not every time)");
            Err(format!("seed {seed} ({} to run it again): {difference}", seed::VARIABLE))
        }
        Err(TestError::Abort(why)) => Err(format!("seed {seed}: {why}")),
    }
}

/// Runs one history on both; the error tells the first difference.
async fn differs(backend: &Arc<dyn Backend>, history: Vec<(Handle, Step)>) -> Result<(), String> {
    let partitions = PartitionCount::new(PARTITIONS).expect("a valid count");
    let place = backend.place(Settings { partitions }).await;
    let model = ModelPlace::like(place.as_ref(), partitions);
    let instants = if place.clock().is_some() { Instants::Exact } else { Instants::Any };
    let run = async move {
        let mut model = Side::open(Arc::new(model), instants).await;
        let mut tested = Side::open(place, instants).await;
        let mut told = String::new();
        for (number, (handle, step)) in history.into_iter().enumerate() {
            let right: Answer = model.does(handle, step.clone()).await;
            let answer = tested.does(handle, step.clone()).await;
            let through = if handle == Handle::First { "" } else { " (second handle)" };
            let _ = writeln!(told, "  {number}{through}: {step:?}");
            if answer != right {
                let (right, answer) = (show(&right), show(&answer));
                return Err(format!("{told}    should answer {right}\n    but answers   {answer}"));
            }
            let _ = writeln!(told, "    {}", show(&right));
        }
        Ok(())
    };
    contained(run).await
}

/// The model's place: as many partitions, the same time, a clock that is set alike.
#[derive(Debug)]
struct ModelPlace {
    clock: ManualClock,
    store: MemoryStore,
}

impl ModelPlace {
    fn like(place: &dyn Place, partitions: PartitionCount) -> Self {
        let later = Timestamp::from_millis(1_800_000_000_000).expect("an instant");
        let now = place.clock().map_or(later, |clock| clock.now());
        let clock = ManualClock::new(now);
        let store = MemoryStore::builder().partitions(partitions).clock(clock.clone()).build();
        Self { clock, store }
    }
}

#[crate::async_trait]
impl Place for ModelPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::new(self.store.reopen()))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        self.open().await
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store in memory, as a server shows itself: with a clock of its own.
    struct OwnClock;

    #[derive(Debug)]
    struct OwnClockPlace(MemoryStore);

    #[crate::async_trait]
    impl Backend for OwnClock {
        async fn place(&self, settings: Settings) -> Arc<dyn Place> {
            Arc::new(OwnClockPlace(MemoryStore::builder().partitions(settings.partitions).build()))
        }
    }

    #[crate::async_trait]
    impl Place for OwnClockPlace {
        async fn open(&self) -> Result<Arc<dyn EventStore>> {
            Ok(Arc::new(self.0.reopen()))
        }

        async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
            self.open().await
        }
    }

    #[test]
    fn a_store_with_a_clock_of_its_own_agrees_with_the_model() {
        let backend: Arc<dyn Backend> = Arc::new(OwnClock);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        for theme in Theme::ALL {
            let effort = Effort { histories: 40, shrinks: 3_000 };
            compare(*theme, &backend, &runtime, Seed::of(1), effort)
                .unwrap_or_else(|why| panic!("{theme:?}: {why}"));
        }
    }
}
