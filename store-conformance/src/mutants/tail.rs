//! Faults of the tail (T1 to T5): of reading a partition and of waking its readers.

use wow_store_api::{ContextName, EventLog as _, Page, ReadPage, Result, Watcher};

use super::{Mutant, mutants};

mutants! { TailFault in "tail": }

impl Mutant {
    /// What [`EventLog::read`](wow_store_api::EventLog::read) does.
    pub(super) async fn read_page(&self, page: ReadPage) -> Result<Page> {
        self.store().read(page).await
    }

    /// What [`EventLog::watch`](wow_store_api::EventLog::watch) does.
    pub(super) async fn watch_context(&self, context: &ContextName) -> Result<Watcher> {
        self.store().watch(context).await
    }
}
