//! The suite under test: every case against every wrong store.

use std::process::ExitCode;

fn main() -> ExitCode {
    wow_store_conformance::run_mutants()
}
