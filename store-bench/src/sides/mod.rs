//! The sides: each appends the same items durably, in the best way that it has.

pub(crate) mod bare;
pub(crate) mod cqrs;
pub(crate) mod node;
pub(crate) mod sierra;
pub(crate) mod sqlite;
pub(crate) mod store;

use twox_hash::XxHash3_64;

/// Partitions of a context, on every side that has such.
pub(crate) const PARTITIONS: u32 = 16;
/// Where the aggregates are.
pub(crate) const CONTEXT: &str = "shop";
/// What the aggregates are.
pub(crate) const AGGREGATE: &str = "order";

/// The partition of an aggregate, as the store has it.
pub(crate) fn partition_of(id: &str) -> u32 {
    let bytes = [AGGREGATE.as_bytes(), &[0, 0], id.as_bytes()].concat();
    let slot = XxHash3_64::oneshot(&bytes) % u64::from(PARTITIONS);
    u32::try_from(slot).unwrap_or_default()
}
