//! How a backend is put under the suite.

use std::{fmt, process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use wow_store_api::{EventStore, ManualClock, PartitionCount, Result};

use crate::{case::Case, cases, env::Env};

/// Longest that one case may take.
const CASE_TIMEOUT: Duration = Duration::from_secs(120);

/// What a case asks of its place.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How many partitions a context gets.
    pub partitions: PartitionCount,
}

/// A backend: a factory of places.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// A fresh, empty place that shares nothing with any other: a directory, a schema, a database. What it takes is
    /// given back when the last handle on it is dropped. Never a place that is wiped and used again.
    async fn place(&self, settings: Settings) -> Arc<dyn Place>;

    /// The cases that this backend does not pass by design, each with the reason.
    fn exceptions(&self) -> &'static [Exception] {
        &[]
    }
}

/// Where a store keeps what it stores.
#[async_trait]
pub trait Place: Send + Sync + fmt::Debug {
    /// Opens the store. Called again after the store was closed, it must find everything that was stored.
    ///
    /// # Errors
    /// What the store refuses to open with.
    async fn open(&self) -> Result<Arc<dyn EventStore>>;

    /// Another handle while `first` is open: as another node has it; or, where the place belongs to one process, as
    /// another part of this process has it.
    ///
    /// # Errors
    /// What the store refuses to open with.
    async fn second_handle(&self, first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>>;

    /// The store's clock, where it can be set.
    fn clock(&self) -> Option<&ManualClock> {
        None
    }
}

/// A case that a backend does not pass by design.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// The name of the case.
    pub case: &'static str,
    /// Why it cannot.
    pub reason: &'static str,
}

/// Runs every case against a backend, as a test program (`harness = false`): takes the usual arguments, reports one
/// test per case, and fails if any fails. An exception that names no case, or one that would pass without it, is a
/// failure too.
pub fn run(backend: impl Backend) -> ExitCode {
    let arguments = Arguments::from_args();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let runtime = Arc::new(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .expect("a runtime for the tests"),
    );
    let mut trials: Vec<Trial> =
        cases::all().into_iter().map(|case| trial(case, &backend, &runtime)).collect();
    let names: Vec<&str> = cases::all().iter().map(|case| case.name).collect();
    let unknown: Vec<&'static str> =
        backend.exceptions().iter().map(|it| it.case).filter(|case| !names.contains(case)).collect();
    trials.push(Trial::test("suite::every_exception_names_a_case", move || {
        if unknown.is_empty() { Ok(()) } else { Err(Failed::from(format!("no such case: {unknown:?}"))) }
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(case: Case, backend: &Arc<dyn Backend>, runtime: &Arc<Runtime>) -> Trial {
    let exception = backend.exceptions().iter().find(|it| it.case == case.name);
    let (backend, runtime) = (Arc::clone(backend), Arc::clone(runtime));
    Trial::test(case.name, move || runtime.block_on(run_case(case, backend.as_ref())).map_err(Failed::from))
        .with_ignored_flag(exception.is_some())
        .with_kind(exception.map_or("", |it| it.reason))
}

/// Runs one case in a fresh place.
///
/// # Errors
/// What the case panicked with, or that it took too long.
pub(crate) async fn run_case(case: Case, backend: &dyn Backend) -> Result<(), String> {
    let place = backend.place(Settings::default()).await;
    if case.sets_clock && place.clock().is_none() {
        return Err("this case sets the store's clock: give it one, or list the case as an exception".into());
    }
    let env = Env::open(place).await;
    // In a task of its own, so that a panic is a result.
    let task = tokio::spawn((case.run)(env));
    let abort = task.abort_handle();
    match tokio::time::timeout(CASE_TIMEOUT, task).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => match error.try_into_panic() {
            Ok(panic) => Err(panic_text(panic.as_ref())),
            Err(error) => Err(error.to_string()),
        },
        Err(_) => {
            abort.abort();
            Err(format!("took more than {CASE_TIMEOUT:?}"))
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}
