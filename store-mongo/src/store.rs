//! The store itself: opened, closed, asked for the time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use mongodb::{
    Client,
    bson::{Bson, doc},
};
use tokio::time::Instant;
use wow_store_api::{
    AggregateType, Clock as _, Error, ErrorKind, Format, Result, StoreAdmin, Timestamp, Wakeups,
    rules::heads::Heads,
};

use crate::{
    append::Queues,
    attempts::{GRACE, Kind},
    catalog::Catalog,
    config::{Ddl, MongoConfig},
    db::Db,
    document::{Fields as _, instant},
    election::Election,
    fault::Fault,
    macros::attempt,
    push::{self, Push, PushState},
    schema::{self, collections, formats},
};

/// The wire version of MongoDB 5.0, the first with `$getField` and with plain keys that start with `$`.
const WIRE_VERSION: i32 = 13;

/// A store on MongoDB.
///
/// A handle is cheap to clone; clones are the same store. It needs a tokio runtime. How each guarantee is kept stands
/// in the [crate's documentation](crate).
#[derive(Clone)]
pub struct MongoStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: MongoConfig,
    pub(crate) db: Db,
    pub(crate) catalog: Catalog,
    pub(crate) queues: Queues,
    pub(crate) heads: Heads,
    pub(crate) wakeups: Wakeups,
    pub(crate) push: Push,
    pub(crate) election: Election,
    closed: AtomicBool,
    /// Closed, and everything that was under way is done.
    shut: AtomicBool,
}

impl MongoStore {
    /// Opens the store: connects, looks at what is there, and creates what is missing if that is allowed.
    ///
    /// Any number of nodes may open one store at once, also on an empty database (D4).
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`]: the address or credentials are refused, the server is no member of a replica set
    /// (D5) or too old, or the database belongs to a store of another name (N2). [`ErrorKind::SchemaMismatch`]: what is
    /// missing or different, one line for each (D1). [`ErrorKind::FormatUnsupported`]: it was written by a newer
    /// version (D3). [`ErrorKind::Unavailable`], [`ErrorKind::Timeout`]: no server can be reached.
    pub async fn open(config: MongoConfig) -> Result<Self> {
        let (name, place) = (Arc::clone(&config.name), config.place());
        let inner = Inner::open(config).await;
        let inner =
            inner.map_err(|error| error.with_operation("open").with_store(&name).with_context(place))?;
        Ok(Self { inner })
    }

    /// Whether other nodes' commits are heard of at once, or found by polling.
    #[must_use]
    pub fn push_state(&self) -> PushState {
        self.inner.push.state()
    }

    /// The driver's client that the store uses: for the caller's own collections, and for the sessions that
    /// [`MongoStore::save_checkpoint_in`] takes. It ends when the store is closed.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.inner.db.client()
    }

    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.inner.is_closed() {
            let closed = Error::not_applied(ErrorKind::Closed);
            return Err(closed.with_operation(operation).with_store(&self.inner.config.name));
        }
        Ok(())
    }
}

impl Inner {
    async fn open(config: MongoConfig) -> Result<Arc<Self>> {
        let (options, database) = config.resolve().await?;
        let db = Db::connect(options, &database).map_err(|fault| fault.error)?;
        let inner = Arc::new(Self {
            db,
            catalog: Catalog::default(),
            queues: Queues::default(),
            heads: Heads::default(),
            wakeups: Wakeups::new(),
            push: Push::default(),
            election: Election::default(),
            closed: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            config,
        });
        inner.prepare().await?;
        push::start(&inner);
        Ok(inner)
    }

    /// The kind of server, formats, owner and collections (D1, D3, D5, N2).
    async fn prepare(&self) -> Result<()> {
        attempt!(self, Kind::Schema, "open", {
            self.check_server().await?;
            // What a newer version wrote is not even looked at.
            formats::check(&self.db, &self.config.name).await?;
            match self.config.ddl {
                Ddl::Auto => schema::ensure(&self.db, &collections::base(), Ddl::Auto).await?,
                Ddl::Validate => self.validate().await?,
                Ddl::None => {}
            }
            formats::record(&self.db, &self.config.name).await
        })
    }

    async fn check_server(&self) -> Result<(), Fault> {
        let hello = self.db.command(doc! { "hello": 1 }).await?;
        let in_set = hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
        if !in_set {
            return Err(Fault::misconfigured(
                "the server is no member of a replica set, so it has no transactions: start it with --replSet and run \
                 rs.initiate(), a set of one member will do",
            ));
        }
        self.election.seen(&hello);
        if hello.get_i32("maxWireVersion").unwrap_or_default() < WIRE_VERSION {
            return Err(Fault::misconfigured("the server is too old: use MongoDB 5.0 or later"));
        }
        Ok(())
    }

    /// Everything that there should be by now: the collections of every store, and those of each type that is
    /// registered.
    async fn validate(&self) -> Result<(), Fault> {
        let mut wanted = collections::base();
        let mut late = Vec::new();
        for (context, names) in self.registered_types().await? {
            wanted.push(collections::counter(&context));
            late.push(collections::timer(&context));
            for name in names {
                let aggregate_type = AggregateType::from_names(context.clone(), name)?;
                wanted.push(collections::log(&aggregate_type));
                late.push(collections::snapshot(&aggregate_type));
            }
        }
        // Collections that come with their first use are looked at once they are there.
        let names: Vec<&str> = late.iter().map(|collection| collection.name.as_str()).collect();
        let there = self.db.list_collections(&names).await?;
        late.retain(|it| there.iter().any(|found| found.get_str("name").is_ok_and(|name| name == it.name)));
        wanted.extend(late);
        let problems = schema::problems(&self.db, &wanted).await?;
        if problems.is_empty() { Ok(()) } else { Err(schema::mismatch(problems)) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    /// An error of an operation, with what is known here.
    pub(crate) fn named(&self, operation: &'static str, error: Error) -> Error {
        error.with_operation(operation).with_store(&self.config.name)
    }

    /// The instant now as an expression: the server's clock, or that of a test.
    pub(crate) fn now(&self) -> Bson {
        match &self.config.clock {
            Some(clock) => Bson::DateTime(instant(clock.now())),
            None => Bson::String("$$NOW".to_owned()),
        }
    }

    /// The instant now, as a server says it that needs no collection for that.
    pub(crate) async fn server_time(&self) -> Result<Timestamp, Fault> {
        if let Some(clock) = &self.config.clock {
            return Ok(clock.now());
        }
        let pipeline = vec![doc! { "$limit": 1 }, doc! { "$project": { "now": "$$NOW" } }];
        let found = self.db.aggregate(crate::names::FORMAT, pipeline).await?;
        found.first().ok_or_else(crate::db::strange)?.instant("now")
    }
}

#[async_trait]
impl StoreAdmin for MongoStore {
    fn name(&self) -> &Arc<str> {
        &self.inner.config.name
    }

    fn backend(&self) -> &'static str {
        "mongo"
    }

    async fn now(&self) -> Result<Timestamp> {
        self.check_open("now")?;
        attempt!(self.inner, Kind::Read, "now", self.inner.server_time().await)
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        self.check_open("formats")?;
        attempt!(self.inner, Kind::Read, "formats", formats::read(&self.inner.db).await)
    }

    async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        if inner.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let deadline = Instant::now() + inner.config.transaction_timeout + GRACE;
        inner.queues.finish(deadline).await;
        inner.shut.store(true, Ordering::SeqCst);
        inner.wakeups.close();
        inner.push.stop();
        inner.db.shut_down().await;
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The last handle is gone: nobody will wake these watchers again.
        self.wakeups.close();
        self.push.stop();
    }
}

impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoStore").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
