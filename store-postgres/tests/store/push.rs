//! What is listened on (T4).

use std::sync::Arc;

use futures::future::join_all;
use wow_store_api::{AggregateId, TailRequest, prelude::*};
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore};

use crate::support::{Schema, commit, eventually, next, url_with};

/// The sessions of a store that listen, and tell others.
async fn listeners(schema: &Schema, application: &str) -> i64 {
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{application}'");
    schema.value(&format!("{sessions} AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_listens_on_one_connection_however_many_tails_it_has() {
    const TAILS: usize = 12;
    let schema = Schema::fresh();
    let name = format!("listens {} {}", std::process::id(), next());
    let url = url_with(schema.url(), &format!("application_name={name}"));
    let config = PostgresConfig::new(&url).unwrap().with_schema(schema.name()).with_pooler(Pooler::Direct);
    let store = Arc::new(PostgresStore::open(config).await.unwrap());
    let contexts = ["shop", "bank", "mail"];
    let mut tails = Vec::new();
    for context in contexts.iter().cycle().take(TAILS) {
        tails.push(store.tail(TailRequest::new((*context).try_into().unwrap())).await.unwrap());
    }
    eventually("somebody listens", async || listeners(&schema, &name).await > 0).await;
    for context in contexts {
        let id = AggregateId::new(context, "order", "1").unwrap();
        store.append(commit(&id, "a")).await.unwrap();
    }
    for batch in join_all(tails.iter_mut().map(|tail| tail.next())).await {
        assert_eq!(batch.unwrap().commits.len(), 1, "each hears of what is in its context");
    }
    assert_eq!(listeners(&schema, &name).await, 1, "one session listens for all of them");
}
