//! Credentials are nowhere to be seen (N3): in no error, no debug output, no log.

use std::{
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::set_default,
};
use wow_store_api::prelude::*;
use wow_store_postgres::{PostgresConfig, PostgresStore};

use crate::support::{Role, Schema, commit, order, url_as};

const SECRET: &str = Role::PASSWORD;

/// Writes everything that is logged into a text.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0.lock().unwrap(), "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn nothing_that_is_shown_or_logged_holds_a_password() {
    let log = Log::default();
    let _logging = set_default(log.clone());
    tracing::info!("the log of the test hears this");
    let schema = Schema::fresh();
    let mut shown = String::new();
    let url = |place: &str| format!("postgres://nobody-of-that-name:{SECRET}@{place}?pasword={SECRET}");
    for place in ["127.0.0.1:1/shop", "no-such-host.invalid/shop", "127.0.0.1:port/shop", "[::1/shop"] {
        match PostgresConfig::new(&url(place)) {
            Ok(config) => {
                let config = config.with_transaction_timeout(Duration::from_millis(100));
                let _ = write!(shown, "{config:?}");
                let refused = PostgresStore::open(config).await.unwrap_err();
                let _ = write!(shown, "{refused} {refused:?}");
                let mut source = std::error::Error::source(&refused);
                while let Some(error) = source {
                    let _ = write!(shown, "{error} {error:?}");
                    source = error.source();
                }
            }
            Err(refused) => {
                let _ = write!(shown, "{refused} {refused:?}");
            }
        }
    }
    // A server that is there: an unknown user, an unknown database, and one who is let in.
    let unknown = url_as(schema.url(), "nobody-of-that-name", SECRET);
    let server = schema.url().rsplit_once('/').unwrap().0;
    let elsewhere = format!("{server}/no-such-database");
    for url in [unknown, elsewhere] {
        if let Err(refused) = PostgresStore::open(PostgresConfig::new(&url).unwrap()).await {
            let _ = write!(shown, "{refused} {refused:?}");
        }
    }
    for place in ["127.0.0.1:1, database shop", "no-such-host.invalid:5432", "database no-such-database"] {
        assert!(shown.contains(place), "it is told where that was: {shown}");
    }
    let role = Role::fresh(&schema).await;
    schema.execute(&format!("CREATE SCHEMA {} AUTHORIZATION {}", schema.quoted(), role.name())).await;
    let config = PostgresConfig::new(&role.url()).unwrap().with_schema(schema.name());
    let store = PostgresStore::open(config.with_replica(&role.url()).unwrap()).await.unwrap();
    store.append(commit(&order("1"), "c")).await.unwrap();
    let _ = write!(shown, "{store:?}");
    let logged = log.0.lock().unwrap().clone();
    assert!(logged.contains("hears this"), "the log was listened to");
    assert!(!shown.contains(SECRET) && !logged.contains(SECRET), "shown: {shown}\nlogged: {logged}");
}
