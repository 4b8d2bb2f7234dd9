//! What these tests share: a database, and who watches it.

use std::{sync::Arc, time::Duration};

use wow_store_api::EventStore;
use wow_store_conformance::{
    server::MongoServer,
    witness::{Follower, Load, Plan, Tally, Witness},
};
use wow_store_mongo::{MongoConfig, MongoStore};

use crate::{
    state,
    support::{Database, PATIENCE, shop},
};

/// How often these stores poll.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// What is allowed on top of a bound: these tests share the machine with others.
pub(crate) const GRACE: Duration = Duration::from_secs(4);

/// A database of a test's own, and who watches it.
pub(crate) struct Scene {
    pub(crate) database: Database,
    pub(crate) witness: Arc<Witness>,
}

impl Scene {
    pub(crate) fn on(server: Arc<MongoServer>) -> Self {
        Self { database: Database::on(server), witness: Witness::new(shop()) }
    }

    /// A node as it is by default.
    pub(crate) fn config(&self) -> MongoConfig {
        self.database.config().with_poll_interval(POLL)
    }

    pub(crate) fn load(&self, stores: &[Arc<dyn EventStore>], tag: &str) -> Load {
        Load::start(&self.witness, stores, Plan::default(), tag)
    }

    /// So many more commands are acknowledged soon; if not, it is told how the servers are.
    pub(crate) async fn acknowledges(&self, more: usize) {
        self.witness.acknowledges_or(more, PATIENCE, state::of(self.database.server())).await;
    }

    /// Everything is as it was told, and the followers have all of it in time.
    pub(crate) async fn check(&self, store: &Arc<dyn EventStore>, followers: &[&Follower]) -> Tally {
        let heads = store.heads(&shop()).await.expect("the server is back");
        for follower in followers {
            follower.reaches(&heads, POLL + GRACE).await;
        }
        self.witness.check(store, followers).await
    }
}

/// Opens a store.
pub(crate) async fn open(config: MongoConfig) -> Arc<dyn EventStore> {
    Arc::new(MongoStore::open(config).await.expect("the store opens"))
}

/// Does something that takes a while, away from what else goes on.
pub(crate) async fn blocking<T: Send + 'static>(
    server: &Arc<MongoServer>,
    work: impl FnOnce(&MongoServer) -> T + Send + 'static,
) -> T {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || work(&server)).await.expect("the server does as it is told")
}

/// The member that is the primary, once there is one.
pub(crate) async fn primary(server: &Arc<MongoServer>) -> usize {
    let mut found = None;
    crate::support::eventually("there is a primary", || {
        let server = Arc::clone(server);
        let place = &mut found;
        *place = server.primary();
        let is_there = place.is_some();
        async move { is_there }
    })
    .await;
    found.expect("it was found")
}
