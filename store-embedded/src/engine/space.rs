//! The keyspaces of a store directory.

use std::path::Path;
use std::sync::Arc;

use fjall::compaction::Leveled;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};

use crate::engine::error::OpenError;

/// Names a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Commits by context, partition and position.
    Log,
    /// Commits by aggregate and version.
    Stream,
    /// Receipts by aggregate and command id.
    Command,
    /// Snapshots by aggregate.
    Snapshot,
    /// Failures, reservations and timers.
    Record,
    /// What is small and asked for often: heads, leases, checkpoints.
    State,
}

impl Space {
    pub(crate) const ALL: [Self; 6] =
        [Self::Log, Self::Stream, Self::Command, Self::Snapshot, Self::Record, Self::State];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Stream => "stream",
            Self::Command => "command",
            Self::Snapshot => "snapshot",
            Self::Record => "record",
            Self::State => "state",
        }
    }

    /// How it is laid out; fixed when it is made.
    fn options(self, memtable_bytes: u64) -> KeyspaceCreateOptions {
        // Commits are read in ranges and never overwritten; receipts and state are read by key.
        let (block, memtable) = match self {
            Self::Log | Self::Stream => (16 * 1024, memtable_bytes),
            Self::Snapshot => (16 * 1024, memtable_bytes / 2),
            Self::Command => (4 * 1024, memtable_bytes / 2),
            Self::Record | Self::State => (4 * 1024, memtable_bytes / 4),
        };
        KeyspaceCreateOptions::default()
            .manual_journal_persist(true)
            .max_memtable_size(memtable)
            .data_block_size_policy(BlockSizePolicy::all(block))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .compaction_strategy(Arc::new(Leveled::default()))
    }
}

/// One value per keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PerSpace<T> {
    log: T,
    stream: T,
    command: T,
    snapshot: T,
    record: T,
    state: T,
}

impl<T> PerSpace<T> {
    pub(crate) fn get(&self, space: Space) -> &T {
        match space {
            Space::Log => &self.log,
            Space::Stream => &self.stream,
            Space::Command => &self.command,
            Space::Snapshot => &self.snapshot,
            Space::Record => &self.record,
            Space::State => &self.state,
        }
    }

    pub(crate) fn get_mut(&mut self, space: Space) -> &mut T {
        match space {
            Space::Log => &mut self.log,
            Space::Stream => &mut self.stream,
            Space::Command => &mut self.command,
            Space::Snapshot => &mut self.snapshot,
            Space::Record => &mut self.record,
            Space::State => &mut self.state,
        }
    }
}

impl PerSpace<Keyspace> {
    pub(crate) fn open(
        database: &Database,
        directory: &Path,
        memtable_bytes: u64,
    ) -> Result<Self, OpenError> {
        let open = |space: Space| {
            database
                .keyspace(space.name(), || space.options(memtable_bytes))
                .map_err(OpenError::database("open a keyspace", directory))
        };
        Ok(Self {
            log: open(Space::Log)?,
            stream: open(Space::Stream)?,
            command: open(Space::Command)?,
            snapshot: open(Space::Snapshot)?,
            record: open(Space::Record)?,
            state: open(Space::State)?,
        })
    }
}
