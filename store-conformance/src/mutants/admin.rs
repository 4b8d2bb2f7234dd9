//! Faults of the store itself (D3, N3): its formats, its clock, its end.

use std::sync::Arc;

use async_trait::async_trait;
use wow_store_api::{Format, Result, StoreAdmin, Timestamp};

use super::{Mutant, mutants};

mutants! { AdminFault in "admin": }

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl StoreAdmin for Mutant {
    fn name(&self) -> &Arc<str> {
        self.store().name()
    }

    fn backend(&self) -> &'static str {
        self.store().backend()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.store().now().await
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        self.store().formats().await
    }

    async fn close(&self) -> Result<()> {
        self.store().close().await
    }
}
