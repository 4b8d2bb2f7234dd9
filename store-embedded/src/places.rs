//! Where each thing is stored: keyspace and key.
//!
//! Keys sort as their parts do, which is the order in which lists are given out. Every key is told apart from all
//! others of its keyspace: texts end with a zero byte, which no name and no id contains, and where a keyspace holds
//! several kinds of things the kind comes first.

use wow_store_api::{
    AggregateId, AggregateType, CommandId, ContextName, MemberId, PartitionId, Position, ReservationKey,
    ReservationScope, SubscriptionName, TimerId, Timestamp, Version,
};

use crate::engine::{keys::Key, space::Space};

/// The kinds of the state keyspace; 0 is the engine's own.
mod state {
    pub(super) const FORMAT: u8 = 1;
    pub(super) const CONTEXT: u8 = 2;
    pub(super) const TYPE: u8 = 3;
    pub(super) const HEAD: u8 = 4;
    pub(super) const LEASE: u8 = 5;
    pub(super) const MEMBER: u8 = 6;
    pub(super) const CHECKPOINT: u8 = 7;
}

/// The kinds of the record keyspace.
mod record {
    pub(super) const FAILURE: u8 = 1;
    pub(super) const DISCARDED: u8 = 2;
    pub(super) const RESERVATION: u8 = 3;
    pub(super) const TIMER: u8 = 4;
    pub(super) const TIMER_FREE: u8 = 5;
    pub(super) const TIMER_CLAIMED: u8 = 6;
}

/// A key and the keyspace that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) key: Key,
}

fn partition_part(key: Key, partition: &PartitionId) -> Key {
    key.text(partition.context().as_str()).u32(partition.index())
}

fn type_part(key: Key, aggregate_type: &AggregateType) -> Key {
    key.text(aggregate_type.context().as_str()).text(aggregate_type.name().as_str())
}

/// No tenant is the empty text: a tenant has at least one byte.
fn aggregate_part(key: Key, id: &AggregateId) -> Key {
    type_part(key, id.aggregate_type()).text(id.tenant().unwrap_or_default()).text(id.id())
}

fn state(kind: u8) -> Key {
    Key::new().u8(kind)
}

fn record(kind: u8) -> Key {
    Key::new().u8(kind)
}

/// All commits of a partition.
pub(crate) fn log(partition: &PartitionId) -> Key {
    partition_part(Key::new(), partition)
}

/// A commit in its partition.
pub(crate) fn log_at(partition: &PartitionId, position: Position) -> Key {
    log(partition).u64(position)
}

/// All commits, all receipts, or the snapshot of an aggregate, each in its own keyspace.
pub(crate) fn aggregate(id: &AggregateId) -> Key {
    aggregate_part(Key::new(), id)
}

/// All commits, or snapshots, of an aggregate type.
pub(crate) fn of_type(aggregate_type: &AggregateType) -> Key {
    type_part(Key::new(), aggregate_type)
}

/// A commit in its aggregate.
pub(crate) fn stream_at(id: &AggregateId, version: Version) -> Key {
    aggregate(id).u64(version)
}

/// The receipt of a command.
pub(crate) fn command(id: &AggregateId, command_id: &CommandId) -> Key {
    aggregate(id).text(command_id.as_str())
}

pub(crate) fn receipt(id: &AggregateId, command_id: &CommandId) -> Place {
    Place { space: Space::Command, key: command(id, command_id) }
}

pub(crate) fn snapshot(id: &AggregateId) -> Place {
    Place { space: Space::Snapshot, key: aggregate(id) }
}

pub(crate) fn formats() -> Place {
    Place { space: Space::State, key: state(state::FORMAT) }
}

pub(crate) fn format(structure: &str) -> Place {
    Place { space: Space::State, key: formats().key.text(structure) }
}

/// How many partitions a context has.
pub(crate) fn context(context: &ContextName) -> Place {
    Place { space: Space::State, key: state(state::CONTEXT).text(context.as_str()) }
}

pub(crate) fn aggregate_types() -> Place {
    Place { space: Space::State, key: state(state::TYPE) }
}

pub(crate) fn aggregate_type(aggregate_type: &AggregateType) -> Place {
    Place { space: Space::State, key: type_part(aggregate_types().key, aggregate_type) }
}

pub(crate) fn heads(context: &ContextName) -> Place {
    Place { space: Space::State, key: state(state::HEAD).text(context.as_str()) }
}

pub(crate) fn head(partition: &PartitionId) -> Place {
    Place { space: Space::State, key: partition_part(state(state::HEAD), partition) }
}

pub(crate) fn leases(group: &SubscriptionName, context: &ContextName) -> Place {
    Place { space: Space::State, key: state(state::LEASE).text(group.as_str()).text(context.as_str()) }
}

pub(crate) fn lease(group: &SubscriptionName, partition: &PartitionId) -> Place {
    Place { space: Space::State, key: leases(group, partition.context()).key.u32(partition.index()) }
}

pub(crate) fn members(group: &SubscriptionName) -> Place {
    Place { space: Space::State, key: state(state::MEMBER).text(group.as_str()) }
}

pub(crate) fn member(group: &SubscriptionName, member: &MemberId) -> Place {
    Place { space: Space::State, key: members(group).key.text(member.as_str()) }
}

pub(crate) fn checkpoints(context: &ContextName) -> Place {
    Place { space: Space::State, key: state(state::CHECKPOINT).text(context.as_str()) }
}

pub(crate) fn checkpoint(subscription: &SubscriptionName, partition: &PartitionId) -> Place {
    Place {
        space: Space::State,
        key: checkpoints(partition.context()).key.text(subscription.as_str()).u32(partition.index()),
    }
}

pub(crate) fn failures(subscription: &SubscriptionName) -> Place {
    Place { space: Space::Record, key: record(record::FAILURE).text(subscription.as_str()) }
}

pub(crate) fn failure(subscription: &SubscriptionName, id: &AggregateId) -> Place {
    Place { space: Space::Record, key: aggregate_part(failures(subscription).key, id) }
}

pub(crate) fn discards(subscription: &SubscriptionName) -> Place {
    Place { space: Space::Record, key: record(record::DISCARDED).text(subscription.as_str()) }
}

/// The discards of a subscription count from 1.
pub(crate) fn discarded(subscription: &SubscriptionName, number: u64) -> Place {
    Place { space: Space::Record, key: discards(subscription).key.u64(number) }
}

pub(crate) fn reservations(scope: Option<&ReservationScope>) -> Place {
    let all = record(record::RESERVATION);
    Place {
        space: Space::Record,
        key: match scope {
            Some(scope) => all.text(scope.as_str()),
            None => all,
        },
    }
}

pub(crate) fn reservation(scope: &ReservationScope, key: &ReservationKey) -> Place {
    Place { space: Space::Record, key: reservations(Some(scope)).key.text(key.as_str()) }
}

pub(crate) fn timers(context: &ContextName) -> Place {
    Place { space: Space::Record, key: record(record::TIMER).text(context.as_str()) }
}

pub(crate) fn timer(context: &ContextName, id: &TimerId) -> Place {
    Place { space: Space::Record, key: timers(context).key.text(id.as_str()) }
}

/// The timers that nobody has claimed, the one due first first.
pub(crate) fn free_timers(context: &ContextName) -> Place {
    Place { space: Space::Record, key: record(record::TIMER_FREE).text(context.as_str()) }
}

pub(crate) fn free_timer(context: &ContextName, due_at: Timestamp, id: &TimerId) -> Place {
    Place { space: Space::Record, key: free_timers(context).key.i64(due_at.as_millis()).text(id.as_str()) }
}

/// The timers that are claimed, the one that can be claimed again first first.
pub(crate) fn claimed_timers(context: &ContextName) -> Place {
    Place { space: Space::Record, key: record(record::TIMER_CLAIMED).text(context.as_str()) }
}

pub(crate) fn claimed_timer(context: &ContextName, claimable_at: Timestamp, id: &TimerId) -> Place {
    Place {
        space: Space::Record,
        key: claimed_timers(context).key.i64(claimable_at.as_millis()).text(id.as_str()),
    }
}
