//! The database, and nothing of the driver that could read or write another way: all reads are of what a majority has,
//! from the primary; all writes wait for a majority and its journal. What the address says about that does not count.

use std::ops::ControlFlow;

use futures_util::TryStreamExt as _;
use mongodb::{
    Client, ClientSession, Collection, Database,
    bson::{Bson, Document, RawDocument, RawDocumentBuf, doc},
    change_stream::{ChangeStream, event::ChangeStreamEvent},
    options::{
        Acknowledgment, ClientOptions, DatabaseOptions, Hint, ReadConcern, ReadPreference, ReturnDocument,
        SelectionCriteria, WriteConcern,
    },
};
use tokio::time::{sleep, timeout};
use wow_store_api::{Error, query};

use crate::{
    attempts::{GRACE, back_off},
    document::{Fields as _, Writer},
    ending::Endings,
    fault::Fault,
};

/// A document as it comes off the wire.
pub(crate) type Raw = RawDocumentBuf;

/// Most bytes of documents in one command: below the server's 16 MiB.
const MAX_COMMAND_BYTES: usize = 12 * 1024 * 1024;

fn durable() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

fn preference(preference: query::ReadPreference) -> ReadPreference {
    let options = None;
    match preference {
        query::ReadPreference::Primary => ReadPreference::Primary,
        query::ReadPreference::PrimaryPreferred => ReadPreference::PrimaryPreferred { options },
        query::ReadPreference::Secondary => ReadPreference::Secondary { options },
        query::ReadPreference::SecondaryPreferred => ReadPreference::SecondaryPreferred { options },
        query::ReadPreference::Nearest => ReadPreference::Nearest { options },
    }
}

/// What to find.
#[derive(Debug, Clone, Default)]
pub(crate) struct Find {
    pub(crate) filter: Document,
    pub(crate) sort: Document,
    pub(crate) limit: i64,
    pub(crate) projection: Option<Document>,
    /// The name of the index to go by.
    pub(crate) hint: Option<String>,
}

impl Find {
    pub(crate) fn new(filter: Document) -> Self {
        Self { filter, ..Self::default() }
    }

    pub(crate) fn sorted(mut self, sort: Document) -> Self {
        self.sort = sort;
        self
    }

    pub(crate) fn limited(mut self, limit: usize) -> Self {
        self.limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self
    }

    pub(crate) fn only(mut self, projection: Document) -> Self {
        self.projection = Some(projection);
        self
    }
}

/// The database.
pub(crate) struct Db {
    client: Client,
    primary: Database,
    endings: Endings,
}

impl Db {
    pub(crate) fn connect(options: ClientOptions, name: &str) -> Result<Self, Fault> {
        let client = Client::with_options(options)?;
        let primary = database(&client, name, query::ReadPreference::Primary);
        Ok(Self { client, primary, endings: Endings::default() })
    }

    pub(crate) fn name(&self) -> &str {
        self.primary.name()
    }

    /// For the caller's own work beside the store's.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn shut_down(&self) {
        // What was given up must not keep others waiting. A server that cannot be told ends it by itself.
        let _ = timeout(GRACE, self.endings.finish()).await;
        self.client.clone().shutdown().immediate(true).await;
    }

    fn collection(&self, name: &str) -> Collection<Raw> {
        self.primary.collection(name)
    }

    /// A command that neither reads nor writes documents.
    pub(crate) async fn command(&self, command: Document) -> Result<Document, Fault> {
        Ok(self.primary.run_command(command).await?)
    }

    /// Those of these collections that are there, with their options.
    pub(crate) async fn list_collections(&self, names: &[&str]) -> Result<Vec<Document>, Fault> {
        let command = doc! { "listCollections": 1, "filter": { "name": { "$in": names } } };
        let cursor = self.primary.run_cursor_command(command).await?;
        Ok(cursor.try_collect().await?)
    }

    /// The indexes of a collection; none if it is not there.
    pub(crate) async fn list_indexes(&self, collection: &str) -> Result<Vec<Document>, Fault> {
        let cursor = self.primary.run_cursor_command(doc! { "listIndexes": collection }).await;
        match cursor.map_err(Fault::from) {
            Ok(cursor) => Ok(cursor.try_collect().await?),
            Err(fault) if fault.is_missing() => Ok(Vec::new()),
            Err(fault) => Err(fault),
        }
    }

    pub(crate) async fn find_one(&self, collection: &str, find: Find) -> Result<Option<Raw>, Fault> {
        let mut found = None;
        self.each(collection, find.limited(1), |document| {
            found = Some(document.to_owned());
            Ok(ControlFlow::Break(()))
        })
        .await?;
        Ok(found)
    }

    /// Shows what is found to `visit`, one by one, until it breaks.
    pub(crate) async fn each(
        &self,
        collection: &str,
        find: Find,
        mut visit: impl FnMut(&RawDocument) -> Result<ControlFlow<()>, Fault> + Send,
    ) -> Result<(), Fault> {
        let collection = self.collection(collection);
        let mut action = collection.find(find.filter);
        if !find.sort.is_empty() {
            action = action.sort(find.sort);
        }
        if find.limit > 0 {
            // All in one reply, as far as that goes.
            action = action.limit(find.limit).batch_size(batch(find.limit));
        }
        if let Some(projection) = find.projection {
            action = action.projection(projection);
        }
        if let Some(hint) = find.hint {
            action = action.hint(Hint::Name(hint));
        }
        let mut cursor = action.await?;
        while cursor.advance().await? {
            if visit(cursor.current())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn find(&self, collection: &str, find: Find) -> Result<Vec<Raw>, Fault> {
        let mut found = Vec::new();
        self.each(collection, find, |document| {
            found.push(document.to_owned());
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(found)
    }

    pub(crate) async fn aggregate(
        &self,
        collection: &str,
        pipeline: Vec<Document>,
    ) -> Result<Vec<Raw>, Fault> {
        let mut cursor = self.collection(collection).aggregate(pipeline).await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.current().to_owned());
        }
        Ok(found)
    }

    /// Those that may answer queries (Q2), asked in one causal order.
    pub(crate) async fn nodes(&self, from: query::ReadPreference) -> Result<Nodes, Fault> {
        let session = self.client.start_session().causal_consistency(true).await?;
        Ok(Nodes { database: database(&self.client, self.name(), from), session })
    }

    /// Changes one document in one step; what it is then. `None` if the filter finds none and none is to be made.
    pub(crate) async fn modify(
        &self,
        collection: &str,
        filter: Document,
        update: Vec<Document>,
        upsert: bool,
    ) -> Result<Option<Raw>, Fault> {
        let collection = self.collection(collection);
        let action = collection.find_one_and_update(filter, update).upsert(upsert);
        action.return_document(ReturnDocument::After).await.map_err(Fault::of_write)
    }

    /// The same by operators instead of a pipeline: says how many documents were found or made.
    pub(crate) async fn update(
        &self,
        collection: &str,
        filter: Document,
        update: Document,
        upsert: bool,
    ) -> Result<u64, Fault> {
        let done = self.collection(collection).update_one(filter, update).upsert(upsert).await;
        let done = done.map_err(Fault::of_write)?;
        Ok(done.matched_count + u64::from(done.upserted_id.is_some()))
    }

    pub(crate) async fn insert(&self, collection: &str, document: Document) -> Result<(), Fault> {
        let done = self.primary.collection::<Document>(collection).insert_one(document).await;
        done.map(drop).map_err(Fault::of_write)
    }

    pub(crate) async fn delete(&self, collection: &str, filter: Document) -> Result<Option<Raw>, Fault> {
        self.collection(collection).find_one_and_delete(filter).await.map_err(Fault::of_write)
    }

    pub(crate) async fn delete_all(&self, collection: &str) -> Result<u64, Fault> {
        Ok(self.collection(collection).delete_many(doc! {}).await?.deleted_count)
    }

    /// What changes from now on.
    pub(crate) async fn watch(
        &self,
        pipeline: Vec<Document>,
    ) -> Result<ChangeStream<ChangeStreamEvent<Document>>, Fault> {
        Ok(self.primary.watch().pipeline(pipeline).await?)
    }

    /// A transaction: reads as of one moment, writes that become durable together.
    pub(crate) async fn begin(&self) -> Result<Transaction<'_>, Fault> {
        let mut session =
            self.client.start_session().await.map_err(|error| Fault::from(error).before_commit())?;
        let action =
            session.start_transaction().read_concern(ReadConcern::snapshot()).write_concern(durable());
        action.selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary)).await?;
        Ok(Transaction { db: self, session: Some(session) })
    }

    /// Reads that each see what the ones before it saw, also across a change of the primary.
    pub(crate) async fn reads(&self) -> Result<Reads<'_>, Fault> {
        Ok(Reads { db: self, session: self.client.start_session().causal_consistency(true).await? })
    }

    /// Work inside the caller's own transaction.
    pub(crate) fn work<'a>(&'a self, session: &'a mut ClientSession) -> Work<'a> {
        Work { db: self, session }
    }
}

fn batch(limit: i64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

fn database(client: &Client, name: &str, from: query::ReadPreference) -> Database {
    let options = DatabaseOptions::builder()
        .read_concern(ReadConcern::majority())
        .write_concern(durable())
        .selection_criteria(SelectionCriteria::ReadPreference(preference(from)));
    client.database_with_options(name, options.build())
}

/// Nodes that answer queries: also secondaries, and only here.
pub(crate) struct Nodes {
    database: Database,
    session: ClientSession,
}

impl Nodes {
    pub(crate) async fn aggregate(
        &mut self,
        collection: &str,
        pipeline: Vec<Document>,
    ) -> Result<Vec<Raw>, Fault> {
        let collection = self.database.collection::<Raw>(collection);
        let action = collection.aggregate(pipeline).allow_disk_use(true);
        let mut cursor = action.session(&mut self.session).await?;
        let mut found = Vec::new();
        while cursor.advance(&mut self.session).await? {
            found.push(cursor.current().to_owned());
        }
        Ok(found)
    }
}

/// Reads in one causal order.
pub(crate) struct Reads<'a> {
    db: &'a Db,
    session: ClientSession,
}

impl Reads<'_> {
    pub(crate) async fn each(
        &mut self,
        collection: &str,
        find: Find,
        mut visit: impl FnMut(&RawDocument) -> Result<ControlFlow<()>, Fault> + Send,
    ) -> Result<(), Fault> {
        let collection = self.db.collection(collection);
        let mut action = collection.find(find.filter).sort(find.sort);
        if find.limit > 0 {
            action = action.limit(find.limit).batch_size(batch(find.limit));
        }
        let mut cursor = action.session(&mut self.session).await?;
        while cursor.advance(&mut self.session).await? {
            if visit(cursor.current())?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn find_one(
        &mut self,
        collection: &str,
        filter: Document,
    ) -> Result<Option<Raw>, Fault> {
        Ok(self.db.collection(collection).find_one(filter).session(&mut self.session).await?)
    }
}

/// A transaction of the store's own. If it is dropped before it is known how it ended, it is [ended](crate::ending).
pub(crate) struct Transaction<'a> {
    db: &'a Db,
    /// None once it has ended.
    session: Option<ClientSession>,
}

impl Transaction<'_> {
    pub(crate) fn work(&mut self) -> Result<Work<'_>, Fault> {
        Ok(Work { db: self.db, session: self.session.as_mut().ok_or_else(strange)? })
    }

    /// Commits. Where the result is unknown the commit, and only that, is asked for again; callers limit how long.
    pub(crate) async fn commit(mut self) -> Result<(), Fault> {
        let session = self.session.as_mut().ok_or_else(strange)?;
        let mut tries = 0;
        loop {
            let Err(error) = session.commit_transaction().await else { break };
            let fault = Fault::from(error);
            if !fault.commit_again {
                self.ended_with(&fault);
                return Err(fault);
            }
            sleep(back_off(tries)).await;
            tries += 1;
        }
        self.session = None;
        Ok(())
    }

    /// Ends it without a trace. Where the server is gone there is nobody to wait for.
    pub(crate) async fn abort(mut self, fault: &Fault) {
        let Some(session) = &mut self.session else { return };
        // What was locked is free when this returns.
        if fault.is_refusal() && timeout(GRACE, session.abort_transaction()).await.is_ok() {
            self.session = None;
        } else {
            self.ended_with(fault);
        }
    }

    /// One that a server refused something is aborted there already.
    fn ended_with(&mut self, fault: &Fault) {
        if fault.is_of_server() {
            self.session = None;
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.db.endings.start(self.db.primary.clone(), session);
        }
    }
}

/// Work inside a transaction.
pub(crate) struct Work<'a> {
    db: &'a Db,
    session: &'a mut ClientSession,
}

impl Work<'_> {
    pub(crate) async fn find_one(
        &mut self,
        collection: &str,
        filter: Document,
    ) -> Result<Option<Raw>, Fault> {
        Ok(self.db.collection(collection).find_one(filter).session(&mut *self.session).await?)
    }

    pub(crate) async fn aggregate(
        &mut self,
        collection: &str,
        pipeline: Vec<Document>,
    ) -> Result<Vec<Raw>, Fault> {
        let collection = self.db.collection(collection);
        let mut cursor = collection.aggregate(pipeline).session(&mut *self.session).await?;
        let mut found = Vec::new();
        while cursor.advance(self.session).await? {
            found.push(cursor.current().to_owned());
        }
        Ok(found)
    }

    /// As [`Db::modify`].
    pub(crate) async fn modify(
        &mut self,
        collection: &str,
        filter: Document,
        update: Vec<Document>,
        upsert: bool,
    ) -> Result<Option<Raw>, Fault> {
        let collection = self.db.collection(collection);
        let action = collection.find_one_and_update(filter, update).upsert(upsert);
        Ok(action.return_document(ReturnDocument::After).session(&mut *self.session).await?)
    }

    /// Changes all that the filter finds.
    pub(crate) async fn update_all(
        &mut self,
        collection: &str,
        filter: Document,
        update: Vec<Document>,
    ) -> Result<(), Fault> {
        self.db.collection(collection).update_many(filter, update).session(&mut *self.session).await?;
        Ok(())
    }

    /// Many changes, each of one document; `$$NOW` is the same for all.
    pub(crate) async fn update_each(
        &mut self,
        collection: &str,
        updates: Vec<Document>,
    ) -> Result<(), Fault> {
        let command = doc! { "update": collection, "updates": updates };
        let done = self.db.primary.run_command(command).session(&mut *self.session).await?;
        match write_error(&done) {
            Some(code) => Err(Fault::of_code(code)),
            None => Ok(()),
        }
    }

    /// Stores a document in the place of the one with its `_id`.
    pub(crate) async fn put(&mut self, collection: &str, document: Raw) -> Result<(), Fault> {
        let id = document.value("_id")?.and_then(|id| Bson::try_from(id).ok());
        let id = id.unwrap_or(Bson::Null);
        let collection = self.db.collection(collection);
        let action = collection.replace_one(doc! { "_id": id }, &document).upsert(true);
        action.session(&mut *self.session).await?;
        Ok(())
    }

    pub(crate) async fn delete(&mut self, collection: &str, filter: Document) -> Result<bool, Fault> {
        let done = self.db.collection(collection).delete_one(filter).session(&mut *self.session).await?;
        Ok(done.deleted_count > 0)
    }

    /// Inserts documents in order, as they are.
    pub(crate) async fn insert(&mut self, collection: &str, documents: &[Raw]) -> Result<(), Fault> {
        let mut rest = documents;
        while !rest.is_empty() {
            let mut command = Writer::with_capacity(4096);
            command.text("insert", collection);
            command.begin_array("documents");
            let mut taken = 0;
            for document in rest {
                if taken > 0 && command.len() + document.as_bytes().len() > MAX_COMMAND_BYTES {
                    break;
                }
                command.raw(&taken.to_string(), document);
                taken += 1;
            }
            command.close();
            command.bool("ordered", true);
            let command = command.finish()?;
            let done = self.db.primary.run_raw_command(command).session(&mut *self.session).await?;
            if let Some(code) = write_error(&done) {
                return Err(Fault::of_code(code));
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }
}

/// The code of the first write error in a reply.
fn write_error(reply: &Document) -> Option<i32> {
    let errors = reply.get_array("writeErrors").ok()?;
    let error = errors.first()?.as_document()?;
    error.get_i32("code").ok()
}

/// A value that is data, whatever it looks like, where a pipeline expects an expression.
pub(crate) fn literal(value: impl Into<Bson>) -> Bson {
    Bson::Document(doc! { "$literal": value.into() })
}

/// What belongs to no document: a reply that is not what was asked for.
pub(crate) fn strange() -> Fault {
    Fault::from(Error::internal("the server gave an answer that does not belong to the question"))
}
