//! The one place that knows which backends there are.

use std::sync::Arc;

use anyhow::{Result, bail};
use wow_store_api::{EventStore, MemoryStore};

/// Opens the store that `target` names: `memory` for one that ends with the program.
///
/// Everything else in the examples works with `dyn EventStore`: another backend is another target, not other code.
///
/// # Errors
/// If there is no such backend, or the store cannot be opened.
#[expect(clippy::unused_async, reason = "opening any other store waits for a disk or a server")]
pub async fn open_store(target: &str) -> Result<Arc<dyn EventStore>> {
    if target == "memory" {
        return Ok(Arc::new(MemoryStore::new()));
    }
    bail!("cannot open {target:?}: only `memory` is known")
}
