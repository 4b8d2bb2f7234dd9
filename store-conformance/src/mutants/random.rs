//! Whether the random tests find what is wrong with a mutant: the proof that they look at something.

use std::{
    sync::{Arc, OnceLock},
    thread,
};

use super::{
    Fault, MutantBackend,
    meta::{quietly, runtime},
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

const SEEDS: u64 = 3;

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
                    scope.spawn(|| part.iter().map(|spec| try_to_catch(Some(spec.fault))).collect::<Vec<_>>())
                })
                .collect();
            parts.into_iter().flat_map(|part| part.join().expect("no panic gets out")).collect()
        })
    })
}

/// What the random tests make of a store with this fault.
pub(super) fn try_to_catch(fault: Option<Fault>) -> Caught {
    let backend = || -> Arc<dyn Backend> { Arc::new(MutantBackend { fault, ..MutantBackend::default() }) };
    let differs = |theme: &Theme| {
        let runtime = runtime();
        let differs = model::compare(*theme, &backend(), &runtime, Seed::of(1), EFFORT).is_err();
        runtime.shutdown_background();
        differs
    };
    let does_not_fit = |plan: &Plan| {
        (1..=SEEDS).any(|seed| {
            let runtime = runtime();
            let told = runtime.block_on(history::once(*plan, &backend(), Seed::of(seed)));
            runtime.shutdown_background();
            told.is_err()
        })
    };
    quietly(|| Caught {
        by_model: Theme::ALL.iter().any(differs),
        by_history: PLANS.iter().any(does_not_fit),
    })
}
