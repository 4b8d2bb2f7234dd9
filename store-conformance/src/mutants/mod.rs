//! Deliberately wrong stores: the proof that the suite rejects what it should.
//!
//! A [`Mutant`] is the in-memory store with one [`Fault`] switched on. Each topic's file holds that topic's trait for
//! the mutant, plain delegation but for its faults, and lists them with [`mutants!`]:
//!
//! ```text
//! mutants! { LogFault in "log":
//!     /// The expected version is not looked at.
//!     IgnoresExpectedVersion => ["log::append_rejects_every_other_expected_version"],
//! }
//!
//! async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
//!     let commit = self.stored_commit(commit); // the faults of payloads and names
//!     if self.is(LogFault::IgnoresExpectedVersion) {
//!         let commit = rewrite(&commit, |parts| parts.expected = ExpectedVersion::Any);
//!         return self.store().append_checked(commit).await;
//!     }
//!     self.store().append_checked(commit).await
//! }
//! ```
//!
//! [`run`] gives every mutant to every case: it must be rejected by exactly the cases that it names.
//!
//! What a fault is made of:
//!
//! - [`Mutant::is`] asks whether a fault is switched on. Ask as late as possible: a case that never gets to the
//!   question cannot tell the mutant from a right store, and is not run against it.
//! - [`Mutant::store`] is the right store underneath; [`Mutant::spare`] is another, empty one, of the same clock: for
//!   what goes to the wrong place.
//! - [`Mutant::reopened`] and [`Mutant::is_second`] tell the handles on one place apart: for what is forgotten when a
//!   store is opened again, or not seen by another node. [`Mutant::shared`] is what all handles know,
//!   [`Mutant::own`] what this one knows.
//! - [`at_another_time`](mutant::at_another_time) runs an operation of the store beside the clock: for an expiry that is a millisecond off.
//! - [`rewrite`](fn@rewrite::rewrite) changes a commit on its way in; a [`RecordedCommit`](wow_store_api::RecordedCommit) on its way out
//!   has public fields.
//! - `tokio::task::yield_now().await` between looking and writing makes a race. Everything runs on one thread, so the
//!   order of things is the same every time.

mod admin;
mod append_all;
mod checkpoint;
mod fence;
mod lease;
mod ledger;
mod log;
mod member;
mod meta;
mod mutant;
mod names;
mod nothing;
mod payload;
mod query;
mod query_pages;
mod race;
mod random;
mod read;
mod reservation;
mod rewrite;
mod riders;
mod snapshot;
mod tail;
mod timer;

pub use meta::run;
pub(crate) use mutant::{Mutant, MutantBackend};

use self::{
    admin::AdminFault, append_all::AppendAllFault, checkpoint::CheckpointFault, fence::FenceFault,
    lease::LeaseFault, ledger::LedgerFault, log::LogFault, member::MemberFault, names::NameFault,
    payload::PayloadFault, query::QueryFault, query_pages::QueryPageFault, race::RaceFault, read::ReadFault,
    reservation::ReservationFault, riders::RiderFault, snapshot::SnapshotFault, tail::TailFault,
    timer::TimerFault,
};

/// A wrong store, and the cases that reject it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MutantSpec {
    /// `<topic>::<fault>`.
    pub(crate) name: &'static str,
    /// What is wrong with it.
    pub(crate) what: &'static str,
    /// The fault that is switched on.
    pub(crate) fault: Fault,
    /// The names of the cases that reject it, all of them.
    pub(crate) rejected_by: &'static [&'static str],
}

/// Lists the faults of a topic, each with what is wrong and which cases reject it: declares the enum and `MUTANTS`.
macro_rules! mutants {
    ($faults:ident in $topic:literal: $(
        $(#[doc = $what:literal])+ $fault:ident => [$($case:literal),+ $(,)?]
    ),* $(,)?) => {
        /// What can be wrong with this topic.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $faults { $($(#[doc = $what])+ $fault),* }

        /// The mutants of this topic.
        pub(super) const MUTANTS: &[$crate::mutants::MutantSpec] = &[$($crate::mutants::MutantSpec {
            name: concat!($topic, "::", stringify!($fault)),
            what: concat!($($what),+),
            fault: $faults::$fault.fault(),
            rejected_by: &[$($case),+],
        }),*];
    };
}
use mutants;

macro_rules! topics {
    ($($topic:ident($fault:ident)),+ $(,)?) => {
        /// What is wrong with a store.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Fault { $($topic($fault)),+ }

        $(impl $fault {
            const fn fault(self) -> Fault {
                Fault::$topic(self)
            }
        }

        impl From<$fault> for Fault {
            fn from(fault: $fault) -> Self {
                fault.fault()
            }
        })+
    };
}

topics! {
    Log(LogFault),
    Read(ReadFault),
    AppendAll(AppendAllFault),
    Race(RaceFault),
    Tail(TailFault),
    Payload(PayloadFault),
    Names(NameFault),
    Checkpoint(CheckpointFault),
    Lease(LeaseFault),
    Member(MemberFault),
    Fence(FenceFault),
    Snapshot(SnapshotFault),
    Ledger(LedgerFault),
    Reservation(ReservationFault),
    Timer(TimerFault),
    Rider(RiderFault),
    Query(QueryFault),
    QueryPage(QueryPageFault),
    Admin(AdminFault),
}

/// Every mutant, in the order of the topics.
pub(crate) fn all() -> Vec<MutantSpec> {
    let topics: &[&[MutantSpec]] = &[
        log::MUTANTS,
        read::MUTANTS,
        append_all::MUTANTS,
        race::MUTANTS,
        tail::MUTANTS,
        payload::MUTANTS,
        names::MUTANTS,
        checkpoint::MUTANTS,
        lease::MUTANTS,
        member::MUTANTS,
        fence::MUTANTS,
        snapshot::MUTANTS,
        ledger::MUTANTS,
        reservation::MUTANTS,
        timer::MUTANTS,
        riders::MUTANTS,
        query::MUTANTS,
        query_pages::MUTANTS,
        admin::MUTANTS,
    ];
    topics.concat()
}
