//! Faults of payloads: documents that come back different, or are taken though they cannot be kept.

use wow_store_api::{CheckedCommit, Payload, RecordedCommit, Result};

use super::{Mutant, mutants};

mutants! { PayloadFault in "payload": }

impl Mutant {
    /// A document on its way in: an event's body, metadata, a snapshot's state, a timer's body.
    pub(super) fn stored_payload(&self, payload: Payload) -> Payload {
        payload
    }

    /// A document on its way out.
    pub(super) fn served_payload(&self, payload: Payload) -> Payload {
        payload
    }

    /// A commit on its way in: its names and its documents.
    pub(super) fn stored_commit(&self, commit: CheckedCommit) -> CheckedCommit {
        commit
    }

    /// What becomes of commits on their way out.
    pub(super) fn serving(
        &self,
    ) -> impl Fn(Result<RecordedCommit>) -> Result<RecordedCommit> + Send + Sync + use<> {
        |commit| commit
    }
}
