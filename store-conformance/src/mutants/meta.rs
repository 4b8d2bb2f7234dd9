//! Gives every mutant to every case.
//!
//! Each run has a runtime of its own, with one thread and a clock of its own that jumps to the next timer when nothing
//! is left to do: what never happens is known at once, and the order of things is the same every time. For that, cases
//! and mutants wait and measure with tokio's clock, and use tasks rather than threads.
//!
//! So a case that never asks a right store about a fault ([`Mutant::is`](super::Mutant::is)) cannot tell the mutant
//! from a right store, and is not run against it, unless `WOW_STORE_MUTANTS=all` asks for every pair. Heavy cases are
//! run against the mutants that name them.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    panic,
    process::ExitCode,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use super::{Fault, MutantBackend, MutantSpec, nothing::NothingBackend, random};
use crate::{case::Case, cases, coverage, harness::Backend, run::run_case};

/// Longest that one run may take on the clock on the wall: it takes milliseconds.
const WATCHDOG: Duration = Duration::from_secs(120);

static RUNS: AtomicUsize = AtomicUsize::new(0);

/// What was run, how often, and how long that took.
static TIMES: Mutex<BTreeMap<String, (usize, Duration)>> = Mutex::new(BTreeMap::new());

/// Adds to what is told in the end about where the time went.
pub(super) fn took(what: &str, time: Duration) {
    let mut times = TIMES.lock().expect("no panic under the lock");
    let (runs, total) = times.entry(what.to_owned()).or_default();
    *runs += 1;
    *total += time;
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs every case against every mutant, as a test program (`harness = false`): one test per mutant, which must be
/// rejected by exactly the cases that it names; every case must reject one, and a store that does nothing.
#[must_use]
pub fn run() -> ExitCode {
    let arguments = Arguments::from_args();
    let started = Instant::now();
    let loud = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            loud(info);
        }
    }));
    let mut trials: Vec<Trial> = super::all()
        .into_iter()
        .map(|spec| Trial::test(spec.name, move || check(spec).map_err(Failed::from)))
        .collect();
    trials.push(Trial::test("suite::a_right_store_passes_every_case", || {
        let failed = right_runs().iter().filter_map(|(case, run)| Some((case, run.as_ref().err()?)));
        none("a right store is rejected by", failed.map(|(case, why)| format!("{case}: {why}")))
    }));
    trials.push(Trial::test("suite::a_store_that_does_nothing_fails_every_case", || {
        let passed = cases().into_iter().filter(|case| verdict(*case, NothingBackend).is_ok());
        none("cases that a store that does nothing passes", passed.map(|case| case.name.to_owned()))
    }));
    trials.push(Trial::test("suite::every_guarantee_has_a_case_and_every_case_a_mutant", || {
        none("gaps in the suite", coverage::gaps().into_iter())
    }));
    trials.push(Trial::test("suite::every_mutant_is_there_once_and_names_cases", || {
        let names: BTreeSet<_> = cases().iter().map(|case| case.name).collect();
        let mut seen = BTreeSet::new();
        let wrong = super::all().into_iter().filter_map(|spec| {
            let unknown: Vec<_> = spec.rejected_by.iter().filter(|case| !names.contains(*case)).collect();
            let twice = !seen.insert(spec.name);
            (twice || !unknown.is_empty()).then(|| format!("{} (unknown cases: {unknown:?})", spec.name))
        });
        none("mutants that are listed twice or name unknown cases", wrong)
    }));
    trials.push(Trial::test("suite::a_right_store_passes_the_random_tests", || {
        none("a right store is wrong", random::against_a_right_store().into_iter())
    }));
    trials.push(Trial::test("suite::the_random_tests_catch_three_of_four_wrong_stores", || {
        let caught = random::caught();
        let some = caught.iter().filter(|it| it.by_model || it.by_history).count();
        if some * 4 >= caught.len() * 3 { Ok(()) } else { Err(format!("{some} of {}", caught.len()).into()) }
    }));
    trials.push(Trial::test("suite::coverage_table_is_up_to_date", table_is_up_to_date));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        eprintln!(
            "{} cases, {} mutants, {} runs in {:.1} s",
            cases().len(),
            super::all().len(),
            RUNS.load(Ordering::Relaxed),
            started.elapsed().as_secs_f64()
        );
        if std::env::var_os("WOW_STORE_TIMES").is_some() {
            let times = TIMES.lock().expect("no panic under the lock").clone();
            let mut times: Vec<_> = times.into_iter().collect();
            times.sort_by_key(|(_, (_, total))| *total);
            for (what, (runs, total)) in times.iter().rev().take(60) {
                eprintln!("{:8.2} s {runs:5} runs  {what}", total.as_secs_f64());
            }
        }
    }
    conclusion.exit_code()
}

fn none(what: &str, found: impl Iterator<Item = String>) -> Result<(), Failed> {
    let found: Vec<String> = found.collect();
    if found.is_empty() { Ok(()) } else { Err(format!("{what}:\n  {}", found.join("\n  ")).into()) }
}

/// Whether a mutant is rejected by exactly the cases that it names.
fn check(spec: MutantSpec) -> Result<(), String> {
    let every_pair = std::env::var("WOW_STORE_MUTANTS").is_ok_and(|pairs| pairs == "all");
    let mut problems = Vec::new();
    for case in cases() {
        let declared = spec.rejected_by.contains(&case.name);
        if case.is_heavy && !declared && !every_pair {
            continue;
        }
        let met = match right_runs().get(case.name) {
            Some(Ok(consulted)) => consulted.contains(&spec.fault),
            Some(Err(_)) | None => true,
        };
        if !met && !every_pair {
            if declared {
                problems.push(format!("{} never meets the fault", case.name));
            }
            continue;
        }
        let backend = MutantBackend { fault: Some(spec.fault), ..MutantBackend::default() };
        match (verdict(case, backend), declared) {
            (Ok(()), true) => problems.push(format!("{} does not reject it", case.name)),
            (Err(why), false) => problems.push(format!("{} rejects it too: {why}", case.name)),
            (Ok(()), false) | (Err(_), true) => {}
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{} ({}):\n  {}", spec.name, spec.what.trim(), problems.join("\n  "))),
    }
}

/// Whether `docs/coverage.md` says what is; written anew if `WOW_STORE_BLESS` is set.
fn table_is_up_to_date() -> Result<(), Failed> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/coverage.md");
    let page = coverage::page(random::caught());
    if std::env::var_os("WOW_STORE_BLESS").is_some() {
        return std::fs::write(path, page).map_err(|error| format!("{path}: {error}").into());
    }
    match std::fs::read_to_string(path) {
        Ok(written) if written == page => Ok(()),
        _ => Err("docs/coverage.md is out of date: set WOW_STORE_BLESS=1 to write it anew, and look at what changes".into()),
    }
}

/// Runs something in which panics are expected.
pub(super) fn quietly<T>(run: impl FnOnce() -> T) -> T {
    QUIET.set(true);
    let result = run();
    QUIET.set(false);
    result
}

/// A runtime of one thread whose clock jumps.
pub(super) fn runtime() -> Runtime {
    let builder = &mut Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime for one run")
}

/// Every case on a right store: which faults it asks about, or why it fails.
fn right_runs() -> &'static BTreeMap<&'static str, Result<BTreeSet<Fault>, String>> {
    static RIGHT_RUNS: OnceLock<BTreeMap<&'static str, Result<BTreeSet<Fault>, String>>> = OnceLock::new();
    RIGHT_RUNS.get_or_init(|| {
        let waiting = Mutex::new(cases());
        let done = Mutex::new(BTreeMap::new());
        let next = || waiting.lock().expect("no panic under the lock").pop();
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(case) = next() {
                        let backend = MutantBackend::default();
                        let consulted = Arc::clone(&backend.consulted);
                        let run = verdict(case, backend);
                        let faults = consulted.lock().expect("no panic under the lock").clone();
                        let run = run.map(|()| faults);
                        done.lock().expect("no panic under the lock").insert(case.name, run);
                    }
                });
            }
        });
        done.into_inner().expect("no panic under the lock")
    })
}

/// Runs one case.
fn verdict(case: Case, backend: impl Backend) -> Result<(), String> {
    RUNS.fetch_add(1, Ordering::Relaxed);
    let (send, receive) = mpsc::channel();
    let run = move || {
        QUIET.set(true);
        let runtime = runtime();
        let verdict = runtime.block_on(run_case(case, &backend));
        runtime.shutdown_background();
        send.send(verdict).unwrap_or_default();
    };
    let started = Instant::now();
    thread::Builder::new().spawn(run).expect("a thread for one run");
    let verdict = receive.recv_timeout(WATCHDOG);
    took(case.name, started.elapsed());
    match verdict {
        Ok(verdict) => verdict,
        Err(_) => panic!("{} never ends, and does not even sleep", case.name),
    }
}
