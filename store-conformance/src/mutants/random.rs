//! Whether the random tests find what is wrong with a mutant: the proof that they look at something.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    thread,
    time::Instant,
};

use super::{
    Fault, MutantBackend,
    meta::{quietly, runtime, took},
};
use crate::{
    coverage::Caught,
    harness::Backend,
    history::{self, Plan},
    model::{self, Effort, Theme},
    seed::Seed,
};

const EFFORT: Effort = Effort { histories: 100, shrinks: 0 };

const PLANS: [Plan; 2] = [
    Plan { clients: 8, things: 60, handles: 2, faults: 0 },
    Plan { clients: 8, things: 40, handles: 2, faults: 5 },
];

const SEEDS: u64 = 2;

/// Which mutants are caught, in their order.
pub(super) fn caught() -> &'static [Caught] {
    static CAUGHT: OnceLock<Vec<Caught>> = OnceLock::new();
    CAUGHT.get_or_init(|| {
        let all = super::all();
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let share = all.len().div_ceil(workers).max(1);
        thread::scope(|scope| {
            let parts: Vec<_> = all
                .chunks(share)
                .map(|part| {
                    scope.spawn(|| part.iter().map(|spec| try_to_catch(spec.fault)).collect::<Vec<_>>())
                })
                .collect();
            parts.into_iter().flat_map(|part| part.join().expect("no panic gets out")).collect()
        })
    })
}

/// What the random tests have against a right store: nothing.
pub(super) fn against_a_right_store() -> Vec<String> {
    let effort = Effort { shrinks: 3_000, ..EFFORT };
    tests().filter_map(|test| test.run(&MutantBackend::default(), effort).err()).collect()
}

/// A random test, of one seed.
#[derive(Debug, Clone, Copy)]
enum Test {
    Model(Theme),
    History(Plan, u64),
}

fn tests() -> impl Iterator<Item = Test> {
    let histories = PLANS.iter().flat_map(|plan| (1..=SEEDS).map(|seed| Test::History(*plan, seed)));
    Theme::ALL.iter().copied().map(Test::Model).chain(histories)
}

impl Test {
    fn run(self, backend: &MutantBackend, effort: Effort) -> Result<(), String> {
        let backend: Arc<dyn Backend> = Arc::new(backend.clone());
        let runtime = runtime();
        let started = Instant::now();
        let told = match self {
            Self::Model(theme) => model::compare(theme, &backend, &runtime, Seed::of(1), effort),
            Self::History(plan, seed) => runtime.block_on(history::once(plan, &backend, Seed::of(seed))),
        };
        runtime.shutdown_background();
        took(&format!("{self:?}"), started.elapsed());
        told
    }
}

/// The tests, each with the faults that a right store was asked about. The others make no difference to it.
fn met() -> &'static [(Test, BTreeSet<Fault>)] {
    static MET: OnceLock<Vec<(Test, BTreeSet<Fault>)>> = OnceLock::new();
    MET.get_or_init(|| {
        let meets = |test: Test| {
            let backend = MutantBackend::default();
            // That a right store passes is another test.
            let _ = test.run(&backend, EFFORT);
            let faults = backend.consulted.lock().expect("no panic under the lock").clone();
            (test, faults)
        };
        tests().map(meets).collect()
    })
}

fn try_to_catch(fault: Fault) -> Caught {
    let backend = MutantBackend { fault: Some(fault), ..MutantBackend::default() };
    let mut caught = Caught::default();
    for (test, faults) in met() {
        let by = match test {
            Test::Model(_) => &mut caught.by_model,
            Test::History(..) => &mut caught.by_history,
        };
        if !*by && faults.contains(&fault) {
            *by = quietly(|| test.run(&backend, EFFORT)).is_err();
        }
    }
    caught
}
