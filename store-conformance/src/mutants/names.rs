//! Faults of names and ids: folded, cut, mixed up.

use wow_store_api::{AggregateId, CommandId};

use super::{Mutant, mutants};

mutants! { NameFault in "names": }

impl Mutant {
    /// The id that an aggregate is stored under.
    pub(super) fn stored_id(&self, aggregate_id: &AggregateId) -> AggregateId {
        aggregate_id.clone()
    }

    /// The id that a command is stored under.
    pub(super) fn stored_command_id(&self, command_id: &CommandId) -> CommandId {
        command_id.clone()
    }
}
