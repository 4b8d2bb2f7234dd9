//! The store itself: opened, closed, asked for the time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use tokio::{sync::mpsc, time::Instant};
use wow_store_api::{Error, ErrorKind, Format, Result, StoreAdmin, Timestamp, Wakeups};

use crate::{
    append::{Known, Queues},
    attempts::{GRACE, Kind},
    catalog::Catalog,
    config::{Ddl, Pooler, PostgresConfig},
    fault::Fault,
    macros::attempt,
    names::Schema,
    pool::{Pool, Sessions},
    pooler,
    push::{self, Push, PushState},
    query::Turn,
    schema::{self, Part, formats, inspect},
    statements::Statements,
};

/// A store on PostgreSQL.
///
/// A handle is cheap to clone; clones are the same store. It needs a tokio runtime. How each guarantee is kept stands
/// in the [crate's documentation](crate).
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: PostgresConfig,
    pub(crate) schema: Schema,
    pub(crate) statements: Statements,
    pub(crate) pool: Arc<Pool>,
    pub(crate) replicas: Vec<Arc<Pool>>,
    pub(crate) catalog: Catalog,
    pub(crate) queues: Queues,
    pub(crate) known: Known,
    pub(crate) wakeups: Wakeups,
    pub(crate) push: Push,
    pub(crate) turn: Turn,
    closed: AtomicBool,
}

impl PostgresStore {
    /// Opens the store: connects, looks at what is there, and creates what is missing if that is allowed.
    ///
    /// Any number of nodes may open one store at once, also on an empty database (D4).
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`]: the address or credentials are refused, or the schema belongs to a store of
    /// another name (N2). [`ErrorKind::SchemaMismatch`]: what is missing or different, one line for each (D1).
    /// [`ErrorKind::FormatUnsupported`]: it was written by a newer version (D3). [`ErrorKind::Unavailable`],
    /// [`ErrorKind::Timeout`]: the server cannot be reached.
    pub async fn open(config: PostgresConfig) -> Result<Self> {
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

    pub(crate) fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.inner.is_closed() {
            let closed = Error::not_applied(ErrorKind::Closed);
            return Err(closed.with_operation(operation).with_store(&self.inner.config.name));
        }
        Ok(())
    }
}

impl Inner {
    async fn open(config: PostgresConfig) -> Result<Arc<Self>> {
        let schema = Schema::new(&config.schema)?.with_clock(config.clock.is_some());
        let deadline = Instant::now() + config.transaction_timeout.max(std::time::Duration::from_secs(10));
        let sessions = match config.pooler {
            Pooler::Direct => Sessions::Kept,
            Pooler::Transaction => Sessions::ByTransaction,
            Pooler::Detect => pooler::detect(&config.options, deadline).await?,
        };
        let pool_of = |options: &PgConnectOptions| {
            let pool =
                Pool::new(options.clone(), sessions, config.max_connections, config.transaction_timeout);
            Arc::new(pool.with_clock(config.clock.clone()))
        };
        let (tell, told) = mpsc::unbounded_channel();
        let inner = Arc::new(Self {
            pool: pool_of(&config.options),
            replicas: config.replicas.iter().map(pool_of).collect(),
            statements: Statements::new(&schema),
            schema,
            catalog: Catalog::default(),
            queues: Queues::default(),
            known: Known::default(),
            wakeups: Wakeups::new(),
            push: Push::new(tell),
            turn: Turn::default(),
            closed: AtomicBool::new(false),
            config,
        });
        inner.prepare().await?;
        push::start(&inner, told);
        Ok(inner)
    }

    /// Formats, owner and tables (D1, D3, N2).
    async fn prepare(&self) -> Result<()> {
        let (schema, ddl) = (&self.schema, self.config.ddl);
        attempt!(self, Kind::Schema, "open", |conn| {
            // What a newer version wrote is not even looked at.
            formats::check(conn, schema, &self.config.name).await?;
            match ddl {
                Ddl::Auto => Part::base().ensure(conn, schema, ddl).await?,
                Ddl::Validate => self.validate(conn).await?,
                Ddl::None => {}
            }
            formats::record(conn, schema, &self.config.name).await
        })
    }

    /// Everything that there should be by now: the tables of every store, and those of each type that is registered.
    async fn validate(&self, conn: &mut crate::pool::Conn) -> Result<(), Fault> {
        let schema = &self.schema;
        let mut problems = Part::base().problems(conn, schema).await?;
        let types = match self.registered_types(conn).await {
            Ok(types) => types,
            Err(fault) if fault.is_missing() => return Err(schema::mismatch(problems)),
            Err(fault) => return Err(fault),
        };
        let mut part = Part::default();
        for (context, names) in &types {
            part = part.and(Part::context(context));
            for name in names {
                let aggregate_type = wow_store_api::AggregateType::from_names(context.clone(), name.clone())?;
                part = part.and(Part::log(schema, &aggregate_type));
                // Tables that come with their first use are looked at once they are there.
                for late in [Part::snapshots(&aggregate_type), Part::timers(context)] {
                    let names: Vec<String> = late.tables.iter().map(|table| table.name.clone()).collect();
                    if !inspect::existing_tables(conn, schema, &names).await?.is_empty() {
                        part = part.and(late);
                    }
                }
            }
        }
        problems.extend(part.problems(conn, schema).await?);
        problems.dedup();
        if problems.is_empty() { Ok(()) } else { Err(schema::mismatch(problems)) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// An error of an operation, with what is known here.
    pub(crate) fn named(&self, operation: &'static str, error: Error) -> Error {
        error.with_operation(operation).with_store(&self.config.name)
    }
}

#[async_trait]
impl StoreAdmin for PostgresStore {
    fn name(&self) -> &Arc<str> {
        &self.inner.config.name
    }

    fn backend(&self) -> &'static str {
        "postgres"
    }

    async fn now(&self) -> Result<Timestamp> {
        self.check_open("now")?;
        attempt!(self.inner, Kind::Read, "now", |conn| self.inner.now_in(conn).await)
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        self.check_open("formats")?;
        attempt!(self.inner, Kind::Read, "formats", |conn| formats::read(conn, &self.inner.schema).await)
    }

    async fn close(&self) -> Result<()> {
        let inner = &self.inner;
        if inner.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let deadline = Instant::now() + inner.config.transaction_timeout + GRACE;
        inner.queues.finish(deadline).await;
        inner.wakeups.close();
        inner.push.stop();
        inner.pool.close(deadline, inner.config.max_connections).await;
        for replica in &inner.replicas {
            replica.close(deadline, inner.config.max_connections).await;
        }
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

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
