//! The rules of the contract as pure functions: *what is there* and *what is asked* in, *what to write* and *what to
//! answer* out. For authors of backends that read, decide and write under a lock or in a transaction; a backend that
//! decides in the database states the same rules in its own language.

pub mod append;
pub mod checkpoint;
pub mod fence;
pub mod heads;
pub mod lease;
pub mod ledger;
pub mod queue;
pub mod reservation;
pub mod snapshot;
pub mod timer;
