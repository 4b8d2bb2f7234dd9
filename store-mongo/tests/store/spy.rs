//! What a store sends to its server.

use std::sync::{Arc, Mutex, PoisonError};

use mongodb::{
    bson::Document,
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};
use wow_store_mongo::MongoConfig;

use crate::support::Database;

/// Keeps the commands of one store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spy(Arc<Mutex<Vec<Document>>>);

impl Spy {
    /// A store that sends what is asked of it and nothing else.
    pub(crate) async fn config(&self, database: &Database) -> MongoConfig {
        let mut options = ClientOptions::parse(database.url()).await.unwrap();
        let seen = Arc::clone(&self.0);
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(started.command);
            }
        }));
        let config = MongoConfig::from_options(options).with_push(false);
        config.with_poll_interval(std::time::Duration::from_secs(3600))
    }

    /// The commands since the last time.
    pub(crate) fn take(&self) -> Vec<Document> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Their names.
    pub(crate) fn take_names(&self) -> Vec<String> {
        let name = |command: &Document| command.keys().next().cloned().unwrap_or_default();
        self.take().iter().map(name).collect()
    }
}
