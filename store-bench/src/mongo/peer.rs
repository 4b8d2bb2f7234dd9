//! mongo-es 0.4.1: what its `persist` and `get_events` do, with its collection, its index and the driver that it uses. It
//! does not build together with the store: both need version 3 of the driver, each with another version of `bson`.

use anyhow::{Context as _, Result};
use cqrs_es::persist::SerializedEvent;
use mongodb::{
    Client, Collection, IndexModel,
    bson::{self, Document, doc},
    options::IndexOptions,
};

use crate::{
    load::{Appends, Item},
    sides::{AGGREGATE, cqrs},
};

pub(crate) struct Peer {
    client: Client,
    events: Collection<Document>,
}

impl Peer {
    pub(crate) async fn open(client: Client) -> Result<Self> {
        let events: Collection<Document> =
            client.default_database().context("a database in the URL")?.collection("events");
        let unique = IndexOptions::builder().unique(true).build();
        let keys = doc! { "aggregate_id": 1, "sequence": 1 };
        events.create_index(IndexModel::builder().keys(keys).options(unique).build()).await?;
        Ok(Self { client, events })
    }

    pub(crate) async fn get_events(&self, id: &str) -> Result<Vec<SerializedEvent>> {
        let filter = doc! { "aggregate_type": AGGREGATE, "aggregate_id": id };
        let mut cursor = self.events.find(filter).await?;
        let mut events = Vec::new();
        while cursor.advance().await? {
            let document = cursor.deserialize_current()?;
            let text = |field: &str| Ok::<_, anyhow::Error>(document.get_str(field)?.to_owned());
            let value = |field: &str| {
                let value = document.get(field).cloned().context("a field is missing")?;
                Ok::<_, anyhow::Error>(bson::deserialize_from_bson(value)?)
            };
            events.push(SerializedEvent {
                aggregate_id: text("aggregate_id")?,
                sequence: usize::try_from(document.get_i64("sequence")?)?,
                aggregate_type: text("aggregate_type")?,
                event_type: text("event_type")?,
                event_version: text("event_version")?,
                payload: value("payload")?,
                metadata: value("metadata")?,
            });
        }
        Ok(events)
    }
}

impl Appends for Peer {
    async fn append(&self, item: Item) -> Result<()> {
        let event = cqrs::event(item)?;
        let document = doc! {
            "aggregate_id": event.aggregate_id,
            "aggregate_type": event.aggregate_type,
            "sequence": i64::try_from(event.sequence)?,
            "event_type": event.event_type,
            "event_version": event.event_version,
            "payload": bson::serialize_to_bson(&event.payload)?,
            "metadata": bson::serialize_to_bson(&event.metadata)?,
        };
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        self.events.insert_many([document]).session(&mut session).await?;
        session.commit_transaction().await?;
        Ok(())
    }
}
