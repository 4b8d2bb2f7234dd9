//! Partitions: fixed slices of a context's log.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::{
    error::{Error, Result},
    name::{AggregateId, ContextName},
};

/// How many partitions a context has: 1 to [`PartitionCount::MAX`] (inclusive). Fixed when the context is first used
/// and recorded in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PartitionCount(NonZeroU32);

impl PartitionCount {
    /// The largest count. A partition is a unit of ownership, not of data: more of them than nodes can ever share
    /// only cost.
    pub const MAX: u32 = 4096;

    /// The count that a store uses unless it is configured otherwise.
    pub const DEFAULT: Self = match NonZeroU32::new(16) {
        Some(count) => Self(count),
        None => Self(NonZeroU32::MIN),
    };

    /// Checks the bounds.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] if it is 0 or above [`PartitionCount::MAX`].
    pub fn new(count: u32) -> Result<Self> {
        match NonZeroU32::new(count) {
            Some(nonzero) if count <= Self::MAX => Ok(Self(nonzero)),
            _ => Err(Error::invalid_input(format!(
                "{count} partitions: choose a number from 1 to {}",
                Self::MAX
            ))),
        }
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0.get()
    }

    /// The partition of an aggregate: `XXH3-64(bytes) mod count`, seed 0, where `bytes` are the aggregate's name, its
    /// tenant (empty if it has none) and its id in UTF-8, each but the last followed by one NUL byte. Names and ids
    /// hold no NUL, so no two aggregates give the same bytes. The context is left out: every context has a log of its
    /// own. (XXH3: <https://github.com/Cyan4973/xxHash>, specification of the stable 0.8 output.)
    ///
    /// It never changes: logs that are stored depend on it.
    ///
    /// ```
    /// use wow_store_api::{AggregateId, PartitionCount};
    ///
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// assert_eq!(PartitionCount::new(16)?.partition_of(&id).index(), 15);
    /// assert_eq!(PartitionCount::new(1)?.partition_of(&id).index(), 0);
    /// # Ok::<_, wow_store_api::Error>(())
    /// ```
    #[must_use]
    pub fn partition_of(self, id: &AggregateId) -> PartitionId {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(id.aggregate_type().name().as_str().as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(id.tenant().unwrap_or_default().as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(id.id().as_bytes());
        let slot = XxHash3_64::oneshot(&bytes) % u64::from(self.get());
        // The remainder is below a u32, so the conversion cannot fail.
        PartitionId::new(id.context().clone(), u32::try_from(slot).unwrap_or_default())
    }

    /// All partitions of a context, in order.
    pub fn partitions(self, context: &ContextName) -> impl Iterator<Item = PartitionId> + use<> {
        let context = context.clone();
        (0..self.get()).map(move |index| PartitionId::new(context.clone(), index))
    }
}

impl Default for PartitionCount {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for PartitionCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u32> for PartitionCount {
    type Error = Error;

    fn try_from(count: u32) -> Result<Self> {
        Self::new(count)
    }
}

impl From<PartitionCount> for u32 {
    fn from(count: PartitionCount) -> Self {
        count.get()
    }
}

/// One partition of a context's log. Its index counts from 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartitionId {
    context: ContextName,
    index: u32,
}

impl PartitionId {
    /// The partition with this index. Whether the context has so many is for the store to say.
    #[must_use]
    pub fn new(context: ContextName, index: u32) -> Self {
        Self { context, index }
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &ContextName {
        &self.context
    }

    /// The index, from 0 (inclusive) to the context's [`PartitionCount`] (exclusive).
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.context, self.index)
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
