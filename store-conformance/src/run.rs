//! Runs the suite as a test program.

use std::{
    any::Any, collections::BTreeSet, future::Future, iter, process::ExitCode, sync::Arc, time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

use crate::{
    case::Case,
    cases,
    env::Env,
    fault::{Faults, FaultyBackend},
    harness::{Backend, Settings},
    history::{self, Plan},
    model::{self, Effort, Theme},
    seed::Seed,
};

/// Longest that one case, or one random history, may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs everything against a backend, as a test program (`harness = false`): takes the usual arguments, reports one
/// test per case and per theme of random histories, and fails if any fails. An exception that names no test is a
/// failure too.
pub fn run(backend: impl Backend) -> ExitCode {
    let arguments = Arguments::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let suite =
        Suite { backend: Arc::new(backend), runtime: Arc::new(runtime.expect("a runtime for the tests")) };
    libtest_mimic::run(&arguments, suite.trials()).exit_code()
}

/// How many concurrent histories of each kind are made.
const ROUNDS: usize = 3;

/// The kinds of concurrent histories.
const HISTORIES: &[(&str, Plan)] = &[
    ("one_handle", Plan { clients: 8, things: 60, handles: 1, faults: 0 }),
    ("two_handles", Plan { clients: 8, things: 60, handles: 2, faults: 0 }),
    ("under_faults", Plan { clients: 8, things: 40, handles: 2, faults: 5 }),
];

#[derive(Clone)]
struct Suite {
    backend: Arc<dyn Backend>,
    runtime: Arc<Runtime>,
}

impl Suite {
    fn trials(&self) -> Vec<Trial> {
        let mut trials: Vec<Trial> = cases().into_iter().map(|case| self.case(case)).collect();
        if self.backend.is_in_process() {
            trials.extend(cases().into_iter().map(|case| self.wrapped(case)));
        }
        trials.extend(Theme::ALL.iter().map(|theme| self.model(*theme)));
        trials.extend(HISTORIES.iter().map(|(name, plan)| self.history(name, *plan)));
        let names: BTreeSet<String> = trials.iter().map(|trial| trial.name().to_owned()).collect();
        let exceptions = self.backend.exceptions();
        trials.push(Trial::test("suite::every_exception_names_a_test", move || {
            let unknown: Vec<_> = exceptions.iter().filter(|it| !names.contains(it.case)).collect();
            if unknown.is_empty() { Ok(()) } else { Err(format!("no such test: {unknown:?}").into()) }
        }));
        trials
    }

    fn trial(&self, name: &str, test: impl FnOnce(&Self) -> Result<(), String> + Send + 'static) -> Trial {
        let exception = self.backend.exceptions().iter().find(|it| it.case == name);
        let suite = self.clone();
        Trial::test(name, move || test(&suite).map_err(Failed::from))
            .with_ignored_flag(exception.is_some())
            .with_kind(exception.map_or("", |it| it.reason))
    }

    fn case(&self, case: Case) -> Trial {
        self.trial(case.name, move |suite| suite.runtime.block_on(run_case(case, suite.backend.as_ref())))
    }

    /// Through the fault wrapper while nothing goes wrong: it cannot be told from the store that it wraps.
    fn wrapped(&self, case: Case) -> Trial {
        let exception = self.backend.exceptions().iter().find(|it| it.case == case.name);
        self.trial(&format!("wrapped::{}", case.name), move |suite| {
            let wrapped = FaultyBackend::new(Arc::clone(&suite.backend), Faults::none());
            suite.runtime.block_on(run_case(case, &wrapped))
        })
        .with_ignored_flag(exception.is_some())
    }

    fn history(&self, name: &str, plan: Plan) -> Trial {
        self.trial(&format!("history::{name}"), move |suite| {
            // The seed that a failure names is the one that its round was made of.
            let seeds = iter::successors(Some(Seed::from_env()), |seed| Some(seed.part(0)));
            seeds
                .take(ROUNDS)
                .try_for_each(|seed| suite.runtime.block_on(history::check(plan, &suite.backend, seed)))
        })
    }

    fn model(&self, theme: Theme) -> Trial {
        self.trial(&format!("model::{}", theme.name()), move |suite| {
            model::compare(theme, &suite.backend, &suite.runtime, Seed::from_env(), Effort::from_env())
        })
    }
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
    contained(async move {
        (case.run)(env).await;
        Ok(())
    })
    .await
}

/// Runs a test in a task of its own, so that a panic is a result, and not for ever.
///
/// # Errors
/// That of the test, what it panicked with, or that it took too long.
pub(crate) async fn contained(
    test: impl Future<Output = Result<(), String>> + Send + 'static,
) -> Result<(), String> {
    let task = tokio::spawn(test);
    let abort = task.abort_handle();
    match tokio::time::timeout(TIMEOUT, task).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => match error.try_into_panic() {
            Ok(panic) => Err(panic_text(panic.as_ref())),
            Err(error) => Err(error.to_string()),
        },
        Err(_) => {
            abort.abort();
            Err(format!("took more than {TIMEOUT:?}"))
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}
