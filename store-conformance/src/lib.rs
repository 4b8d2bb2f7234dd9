#![doc = include_str!("../README.md")]
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "this crate is test code: a panic is how a case says that the store broke the contract"
)]

mod case;
mod cases;
mod coverage;
mod env;
mod fault;
mod guarantee;
mod harness;
mod history;
mod model;
mod mutants;
mod run;
mod seed;
#[cfg(feature = "servers")]
pub mod server;
pub mod story;
pub mod witness;

pub use async_trait::async_trait;
pub use case::{Case, CaseFn};
pub use cases::all as cases;
pub use env::{Env, eventually};
pub use fault::{Faults, Faulty};
pub use guarantee::{GUARANTEES, Guarantee, Status};
pub use harness::{Backend, Exception, Place, Settings};
pub use mutants::run as run_mutants;
pub use run::run;

#[cfg(test)]
mod tests {
    #[test]
    fn the_listing_of_the_page_is_the_one_that_is_run() {
        let (page, listing) = (include_str!("../README.md"), include_str!("../tests/template.rs"));
        assert!(page.contains(listing), "copy `tests/template.rs` into the page");
    }
}
