//! The table of guarantees, cases and mutants, as it stands in `docs/coverage.md`.

use std::fmt::Write as _;

use crate::{
    cases,
    guarantee::{GUARANTEES, Status},
    mutants::{self, MutantSpec},
};

/// What random tests make of a mutant.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caught {
    /// The model test finds a difference.
    pub(crate) by_model: bool,
    /// A concurrent history does not fit.
    pub(crate) by_history: bool,
}

/// The whole page. `caught` tells of each mutant, in order, which random tests catch it.
pub(crate) fn page(caught: &[Caught]) -> String {
    let (cases, mutants) = (cases(), mutants::all());
    let by = |what: fn(&Caught) -> bool| caught.iter().filter(|it| what(it)).count();
    let mut page = String::from(HEAD);
    let _ = writeln!(
        page,
        "{} guarantees, {} cases, {} mutants. Of the mutants the cases reject all, the model test {}, concurrent \
         histories {}.\n",
        GUARANTEES.len(),
        cases.len(),
        mutants.len(),
        by(|it| it.by_model),
        by(|it| it.by_history)
    );
    page += "## Guarantees\n\n| guarantee | case | mutants that it rejects |\n|---|---|---|\n";
    for guarantee in GUARANTEES {
        let name = format!("**{}** {}", guarantee.id, guarantee.claim);
        match guarantee.status {
            Status::Suite => {}
            Status::Elsewhere { by } => {
                let _ = writeln!(page, "| {name} | *{by}* | *elsewhere* |");
                continue;
            }
            Status::NotYet { what } => {
                let _ = writeln!(page, "| {name} | *{what}* | *not yet* |");
                continue;
            }
        }
        for case in cases.iter().filter(|case| case.guarantees.contains(&guarantee.id)) {
            let rejects = mutants.iter().filter(|mutant| mutant.rejected_by.contains(&case.name));
            let rejects = list(rejects.map(|mutant| mutant.name));
            let _ = writeln!(page, "| {name} | `{}` | {rejects} |", case.name);
        }
    }
    page += "\n## Mutants\n\n| mutant | what is wrong | cases that reject it | also caught by |\n|---|---|---|---|\n";
    for (mutant, caught) in mutants.iter().zip(caught) {
        let MutantSpec { name, what, rejected_by, .. } = mutant;
        let also = match (caught.by_model, caught.by_history) {
            (true, true) => "model, histories",
            (true, false) => "model",
            (false, true) => "histories",
            (false, false) => "–",
        };
        let what = what.trim().replace('|', "\\|");
        let _ = writeln!(page, "| `{name}` | {what} | {} | {also} |", list(rejected_by.iter().copied()));
    }
    page
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What is missing from the table: guarantees without a case, cases without a mutant.
pub(crate) fn gaps() -> Vec<String> {
    let (cases, mutants) = (cases(), mutants::all());
    let mut gaps = Vec::new();
    for guarantee in GUARANTEES.iter().filter(|guarantee| guarantee.status == Status::Suite) {
        if cases.iter().all(|case| !case.guarantees.contains(&guarantee.id)) {
            gaps.push(format!("{} has no case", guarantee.id));
        }
    }
    for case in &cases {
        for id in case.guarantees {
            if GUARANTEES.iter().all(|guarantee| guarantee.id != *id) {
                gaps.push(format!("{} names {id}, which is no guarantee", case.name));
            }
        }
        if mutants.iter().all(|mutant| !mutant.rejected_by.contains(&case.name)) {
            gaps.push(format!("{} rejects no mutant", case.name));
        }
    }
    gaps
}

const HEAD: &str = "\
# What the suite covers

Generated, not written: `WOW_STORE_BLESS=1 cargo test -p wow-store-conformance --test mutants` writes it anew, and the
same without the variable fails where it is out of date.

A *mutant* is the store in memory with one fault. Every case is run against every mutant that could make a difference to
it, and each mutant must be rejected by exactly the cases that it names.

";
