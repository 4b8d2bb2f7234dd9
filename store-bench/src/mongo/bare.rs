//! What the database does on its own: the same documents and unique indexes as the store's log, and nothing looked at.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result, ensure};
use mongodb::{
    Client, Collection, IndexModel,
    bson::{Bson, DateTime, Decimal128, Document, RawDocumentBuf, doc},
    options::IndexOptions,
};
use serde_json::Value;

use crate::load::{Body, EVENT, Item};

/// Documents as they go over the wire.
pub(crate) type Log = Collection<RawDocumentBuf>;

/// The database of the settings of `url`.
pub(crate) async fn client(url: &str) -> Result<Client> {
    Ok(Client::with_uri_str(format!("{url}&w=majority&journal=true&readConcernLevel=majority")).await?)
}

/// An empty log with its indexes.
pub(crate) async fn log(client: &Client) -> Result<Log> {
    let log: Log = client.default_database().context("a database in the URL")?.collection("bare");
    for last in ["version", "command_id"] {
        let unique = IndexOptions::builder().unique(true).build();
        let keys = doc! { "tenant": 1, "id": 1, last: 1 };
        log.create_index(IndexModel::builder().keys(keys).options(unique).build()).await?;
    }
    Ok(log)
}

/// A body as the store writes it.
fn body(value: &Value) -> Result<Bson> {
    Ok(match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| Ok((name.clone(), body(value)?)));
            Bson::Document(fields.collect::<Result<Document>>()?)
        }
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Bson::Int64(integer),
            None => Bson::Decimal128(number.to_string().parse::<Decimal128>()?),
        },
        Value::String(text) => Bson::String(text.clone()),
        other => anyhow::bail!("no body holds {other}"),
    })
}

/// Gives one document after the other out.
#[derive(Debug)]
pub(crate) struct Documents(Bson);

impl Documents {
    pub(crate) fn new(of: &Body) -> Result<Self> {
        Ok(Self(body(&of.value)?))
    }

    fn document(&self, place: (i32, i64), id: &str, version: i64, command: &str) -> Result<RawDocumentBuf> {
        let (partition, position) = place;
        let document = doc! {
            "_id": { "partition": partition, "position": position },
            "tenant": "",
            "id": id,
            "version": version,
            "command_id": command,
            "committed_at": DateTime::now(),
            "events": [{ "name": EVENT, "revision": 1, "body": self.0.clone() }],
        };
        Ok(RawDocumentBuf::try_from(&document)?)
    }

    pub(crate) fn of(&self, position: i64, item: &Item) -> Result<RawDocumentBuf> {
        self.document((0, position), &item.id, i64::try_from(item.expected)? + 1, &item.command)
    }

    pub(crate) fn batch(&self, partition: i32, rows: usize) -> Result<Vec<RawDocumentBuf>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        (0..rows)
            .map(|_| {
                let number = NEXT.fetch_add(1, Ordering::Relaxed);
                let id = format!("turn-{}-{}", number % 64, number / 640);
                let version = i64::try_from(number / 64 % 10)? + 1;
                let command = format!("command-{}", number / 64);
                self.document((partition, i64::try_from(number)?), &id, version, &command)
            })
            .collect()
    }
}

/// Whether a document of the store's log has the fields, and the types of them, that the bare ones have: a comparison is
/// worth nothing otherwise.
pub(crate) fn check_same(stored: &RawDocumentBuf, body: &Arc<Body>) -> Result<()> {
    let types = |document: &RawDocumentBuf| -> Result<BTreeMap<String, String>> {
        document
            .iter()
            .map(|element| {
                let (name, value) = element?;
                Ok((name.to_string(), format!("{:?}", value.element_type())))
            })
            .collect()
    };
    let bare = Documents::new(body)?.document((0, 1), "id", 1, "command")?;
    ensure!(types(stored)? == types(&bare)?, "the bare documents are not what the store writes");
    Ok(())
}
