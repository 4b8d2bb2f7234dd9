//! Many nodes at once (D4, L10).

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::Barrier;
use wow_store_api::{AggregateId, ContextName, PartitionCount, ReadPage, prelude::*};
use wow_store_postgres::PostgresStore;

use crate::support::{Schema, commit, first_partition};

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_nodes_start_at_once_on_an_empty_database() {
    const NODES: usize = 16;
    let schema = Arc::new(Schema::fresh());
    let together = Arc::new(Barrier::new(NODES));
    let nodes: Vec<_> = (0..NODES)
        .map(|node| {
            let (schema, together) = (Arc::clone(&schema), Arc::clone(&together));
            tokio::spawn(async move {
                let config = schema.config().with_partitions(PartitionCount::new(1).unwrap());
                together.wait().await;
                let store = PostgresStore::open(config.with_max_connections(3)).await.unwrap();
                // A type that all of them are the first to use, and one of its own.
                let names = ["order".to_owned(), format!("order-{node}")];
                for name in names {
                    let id = AggregateId::new("shop", &name, format!("{node}")).unwrap();
                    store.append(commit(&id, format!("{node}"))).await.unwrap();
                }
                store
            })
        })
        .collect();
    let mut stores = Vec::new();
    for node in nodes {
        stores.push(node.await.unwrap());
    }
    for store in &stores {
        let page = store.read(ReadPage::new(first_partition(), 0)).await.unwrap();
        let positions: Vec<u64> = page.commits.iter().map(|commit| commit.position).collect();
        assert_eq!(
            positions,
            (1..).take(2 * NODES).collect::<Vec<_>>(),
            "every node sees all, without a hole"
        );
        let types: BTreeSet<_> = store.aggregate_types().await.unwrap().into_iter().collect();
        assert_eq!(types.len(), NODES + 1, "every node knows every type");
        let partitions = store.partitions(&ContextName::new("shop").unwrap()).await.unwrap();
        assert_eq!(partitions.get(), 1, "one of them has said how many partitions there are");
    }
}
