//! How a store is opened.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use wow_store_api::{Clock, PartitionCount, SystemClock};

/// Bytes of commits that are gathered in memory unless set otherwise.
const DEFAULT_MEMTABLE_BYTES: u64 = 64 * 1024 * 1024;
/// Below this a store would write nothing but tables.
const MIN_MEMTABLE_BYTES: u64 = 64 * 1024;

/// Bytes of blocks kept in memory unless set otherwise.
const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// Where a store is and how it is used.
///
/// ```
/// use wow_store_api::PartitionCount;
/// use wow_store_embedded::EmbeddedConfig;
///
/// let config = EmbeddedConfig::new("data/shop").with_name("orders").with_partitions(PartitionCount::new(4)?);
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone)]
pub struct EmbeddedConfig {
    pub(crate) path: PathBuf,
    pub(crate) name: Arc<str>,
    pub(crate) partitions: PartitionCount,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
}

impl EmbeddedConfig {
    /// The store in this directory, which is made if it is not there. It must be empty or a store's.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            name: Arc::from("embedded"),
            partitions: PartitionCount::DEFAULT,
            clock: Arc::new(SystemClock),
            cache_bytes: DEFAULT_CACHE_BYTES,
            memtable_bytes: DEFAULT_MEMTABLE_BYTES,
        }
    }

    /// The name that errors and logs show; `embedded` unless set.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How many partitions a context gets when it is first used; [`PartitionCount::DEFAULT`] unless set. A context
    /// that is in the store keeps its count.
    #[must_use]
    pub fn with_partitions(mut self, partitions: PartitionCount) -> Self {
        self.partitions = partitions;
        self
    }

    /// The clock that the store judges everything by; the machine's unless set.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many bytes of what was read stay in memory; 64 MiB unless set. Writes need memory beside it.
    #[must_use]
    pub fn with_cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// How many bytes of commits are gathered in memory, twice (by position and by aggregate), before they are written
    /// to a table; 64 MiB unless set. Receipts and all else take less. Fixed when the store is made.
    #[must_use]
    pub fn with_memtable_bytes(mut self, bytes: u64) -> Self {
        self.memtable_bytes = bytes.max(MIN_MEMTABLE_BYTES);
        self
    }
}

impl fmt::Debug for EmbeddedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedConfig")
            .field("path", &self.path)
            .field("name", &self.name)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}
