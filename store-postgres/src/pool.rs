//! Connections.
//!
//! A pool of its own, as the driver's asks the server for a sign of life whenever a connection is given back: one more
//! round trip for every statement. Here the most recently used connection is taken first, so that its prepared
//! statements are warm, and one that was dropped in the middle of something is closed instead of being reused.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::TryStreamExt as _;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Postgres,
    postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow},
    query::Query,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use wow_store_api::{Clock as _, ManualClock};

use crate::{
    fault::{Again, Fault},
    names,
};

/// A connection that was idle for longer is asked for a sign of life first.
const TRUSTED_IDLE: Duration = Duration::from_secs(15);
/// One that was idle for longer is closed.
const MAX_IDLE: Duration = Duration::from_secs(10 * 60);
/// One that is older is closed when it is given back.
const MAX_AGE: Duration = Duration::from_secs(30 * 60);
/// How long a sign of life may take.
const PING: Duration = Duration::from_secs(1);

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 500;

/// A statement.
pub(crate) type Sql = Arc<str>;

/// How sessions are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// A connection keeps its session: it is configured once, and statements are prepared once.
    Kept,
    /// Every transaction may meet another session, so each brings its settings along and prepares nothing by name.
    ByTransaction,
}

/// What every session of the store needs, wherever it is set: read committed (locks first, then looks), plans that use
/// the indexes whatever the statistics of a young table say, and commits that are on disk.
const SETTINGS: [(&str, &str); 8] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    ("timezone", "UTC"),
];

/// Turns asynchronous commit off where it is on, and leaves any stricter setting alone.
fn durable(local: bool) -> String {
    format!(
        "SELECT pg_catalog.set_config('synchronous_commit', 'on', {local}) \
         WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
    )
}

pub(crate) struct Pool {
    options: PgConnectOptions,
    sessions: Sessions,
    lock_timeout: Duration,
    permits: Arc<Semaphore>,
    idle: Mutex<VecDeque<Idle>>,
    closed: AtomicBool,
    /// In tests: what the time is, told to the session before every statement.
    clock: Option<ManualClock>,
    /// The time of the last round trips, in microseconds; 0 if there was none.
    distance: AtomicU64,
}

struct Idle {
    connection: PgConnection,
    born: Instant,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(
        options: PgConnectOptions,
        sessions: Sessions,
        max_connections: u32,
        lock_timeout: Duration,
    ) -> Self {
        // Old poolers refuse a start-up parameter that they do not know.
        let options = options.disable_statement_logging().extra_float_digits(None);
        // Each aggregate type has statements of its own.
        let options = options.statement_cache_capacity(STATEMENTS);
        let permits = usize::try_from(max_connections).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            options,
            sessions,
            lock_timeout,
            permits: Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS))),
            idle: Mutex::default(),
            closed: AtomicBool::new(false),
            clock: None,
            distance: AtomicU64::new(0),
        }
    }

    /// With the clock of a test.
    pub(crate) fn with_clock(mut self, clock: Option<ManualClock>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    pub(crate) fn sessions(&self) -> Sessions {
        self.sessions
    }

    /// How far away the server is; who was not asked yet comes first.
    pub(crate) fn distance(&self) -> u64 {
        self.distance.load(Ordering::Relaxed)
    }

    /// Notes a round trip: a quarter of the news, three of what was known.
    pub(crate) fn measured(&self, time: Duration) {
        let now = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4).max(1);
        let known = self.distance();
        let mean = if known == 0 { now } else { known.saturating_mul(3).saturating_add(now) / 4 };
        self.distance.store(mean.max(1), Ordering::Relaxed);
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, before the deadline.
    pub(crate) async fn take(self: &Arc<Self>, deadline: Instant) -> Result<Conn, Fault> {
        let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| Fault::too_late())?.map_err(|_| Fault::closed())?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Fault::closed());
        }
        loop {
            let newest = self.idle().pop_back();
            let Some(mut idle) = newest else { break };
            let trusted = idle.since.elapsed() < TRUSTED_IDLE;
            if trusted || matches!(timeout(PING, idle.connection.ping()).await, Ok(Ok(()))) {
                return Ok(self.conn(idle.connection, idle.born, permit));
            }
        }
        let connecting = timeout_at(deadline, self.connect());
        let connection = connecting.await.map_err(|_| Fault::too_late())?.map_err(Fault::before_commit)?;
        Ok(self.conn(connection, Instant::now(), permit))
    }

    /// A new connection with the store's settings that is not counted: the one that listens, or tries something out.
    pub(crate) async fn connect(&self) -> Result<PgConnection, Fault> {
        let mut connection = self.options.connect().await.map_err(Fault::connecting)?;
        if self.sessions == Sessions::Kept {
            let mut setup = String::from(
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;",
            );
            for (name, value) in SETTINGS {
                setup.push_str(&format!("SET {name} = '{value}';"));
            }
            setup.push_str(&format!("SET lock_timeout = {};", self.lock_timeout.as_millis()));
            setup.push_str(&durable(false));
            connection.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await?;
        }
        Ok(connection)
    }

    fn conn(self: &Arc<Self>, connection: PgConnection, born: Instant, permit: OwnedSemaphorePermit) -> Conn {
        Conn {
            connection: Some(connection),
            born,
            pool: Arc::clone(self),
            busy: false,
            stage: Stage::Outside,
            _permit: permit,
        }
    }

    /// Closes connections that nobody needed for long.
    pub(crate) fn tidy(&self) {
        let mut idle = self.idle();
        while idle.front().is_some_and(|idle| idle.since.elapsed() > MAX_IDLE) {
            idle.pop_front();
        }
    }

    /// Closes all that are idle: what broke one connection has most likely broken them all, and nobody is to find that
    /// out one by one.
    fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.idle());
        drop(idle);
    }

    /// Waits for connections in use until the deadline, then closes all.
    pub(crate) async fn close(&self, deadline: Instant, max_connections: u32) {
        self.closed.store(true, Ordering::SeqCst);
        let all = self.permits.acquire_many(max_connections);
        let _ = timeout_at(deadline, all).await;
        self.permits.close();
        let idle: Vec<Idle> = self.idle().drain(..).collect();
        for idle in idle {
            let _ = timeout(PING, idle.connection.close()).await;
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Outside,
    Inside,
    Committing,
}

/// A connection in use. Dropped while idle it goes back to the pool; dropped in the middle of anything it is closed.
pub(crate) struct Conn {
    connection: Option<PgConnection>,
    born: Instant,
    pool: Arc<Pool>,
    busy: bool,
    stage: Stage,
    _permit: OwnedSemaphorePermit,
}

/// A statement for the driver: prepared by name where the session is kept.
fn query(sql: &Sql, arguments: PgArguments, sessions: Sessions) -> Query<'static, Postgres, PgArguments> {
    sqlx::query_with(AssertSqlSafe(Arc::clone(sql)), arguments).persistent(sessions == Sessions::Kept)
}

impl Conn {
    fn connection(&mut self) -> Result<&mut PgConnection, Fault> {
        self.connection.as_mut().ok_or_else(Fault::closed)
    }

    /// Notes how a statement ended.
    fn settle<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, Fault> {
        self.busy = false;
        result.map_err(|error| {
            let fault = Fault::from(error);
            if fault.breaks_connection() {
                self.connection = None;
            }
            if fault.again == Again::Lost {
                self.pool.close_idle();
            }
            if self.stage == Stage::Inside { fault.before_commit() } else { fault }
        })
    }

    /// Tells the session what the time is, if that is a test's to say.
    async fn tell_time(&mut self) -> Result<(), Fault> {
        let Some(clock) = &self.pool.clock else { return Ok(()) };
        let sql = format!("SET {} = '{}'", names::CLOCK_SETTING, clock.now());
        self.batch(sql).await
    }

    /// Whether a single statement needs a transaction around it: behind a pooler, so that the parts of the protocol
    /// meet the same session.
    fn needs_transaction(&self) -> bool {
        self.stage == Stage::Outside && self.pool.sessions == Sessions::ByTransaction
    }

    /// Ends the transaction around a single statement, as the statement ended.
    async fn end<T>(&mut self, done: Result<T, Fault>) -> Result<T, Fault> {
        match done {
            Ok(done) => self.commit().await.map(|()| done),
            Err(fault) => {
                self.rollback().await;
                Err(fault)
            }
        }
    }

    /// The rows of a statement that will hardly be asked again, inside a transaction.
    pub(crate) async fn rows_once(&mut self, sql: &Sql, arguments: PgArguments) -> Result<Vec<PgRow>, Fault> {
        let statement = query(sql, arguments, Sessions::ByTransaction);
        self.busy = true;
        let result = self.connection()?.fetch_all(statement).await;
        self.settle(result)
    }

    /// The rows of a statement.
    pub(crate) async fn rows(&mut self, sql: &Sql, arguments: PgArguments) -> Result<Vec<PgRow>, Fault> {
        self.each(sql, arguments, Ok).await
    }

    /// Makes something of each row of a statement as it comes, while the server is still busy with the next ones.
    pub(crate) async fn each<T: Send>(
        &mut self,
        sql: &Sql,
        arguments: PgArguments,
        make: impl FnMut(PgRow) -> Result<T, Fault> + Send,
    ) -> Result<Vec<T>, Fault> {
        if self.needs_transaction() {
            self.begin().await?;
            let made = self.each_here(sql, arguments, make).await;
            return self.end(made).await;
        }
        self.each_here(sql, arguments, make).await
    }

    async fn each_here<T: Send>(
        &mut self,
        sql: &Sql,
        arguments: PgArguments,
        mut make: impl FnMut(PgRow) -> Result<T, Fault> + Send,
    ) -> Result<Vec<T>, Fault> {
        self.tell_time().await?;
        let statement = query(sql, arguments, self.pool.sessions);
        self.busy = true;
        let mut rows = self.connection()?.fetch(statement);
        let mut made = Ok(Vec::new());
        let result = loop {
            match rows.try_next().await {
                Ok(Some(row)) => {
                    // Read to the end, whatever is found on the way: the connection goes on being used.
                    if let Ok(all) = &mut made {
                        match make(row) {
                            Ok(one) => all.push(one),
                            Err(fault) => made = Err(fault),
                        }
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(rows);
        self.settle(result)?;
        made
    }

    /// The only row of a statement, if there is one.
    pub(crate) async fn row(&mut self, sql: &Sql, arguments: PgArguments) -> Result<Option<PgRow>, Fault> {
        Ok(self.rows(sql, arguments).await?.into_iter().next())
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&mut self, sql: &Sql, arguments: PgArguments) -> Result<u64, Fault> {
        if self.needs_transaction() {
            self.begin().await?;
            let done = self.execute_here(sql, arguments).await;
            return self.end(done).await;
        }
        self.execute_here(sql, arguments).await
    }

    async fn execute_here(&mut self, sql: &Sql, arguments: PgArguments) -> Result<u64, Fault> {
        self.tell_time().await?;
        let statement = query(sql, arguments, self.pool.sessions);
        self.busy = true;
        let result = self.connection()?.execute(statement).await;
        Ok(self.settle(result)?.rows_affected())
    }

    /// Statements without parameters, in one round trip.
    pub(crate) async fn batch(&mut self, sql: String) -> Result<(), Fault> {
        self.busy = true;
        let result = self.connection()?.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await;
        self.settle(result).map(|_| ())
    }

    /// Starts a transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), Fault> {
        self.begin_with("").await
    }

    /// Starts a transaction with more settings.
    pub(crate) async fn begin_with(&mut self, settings: &str) -> Result<(), Fault> {
        let mut sql = String::from("BEGIN ISOLATION LEVEL READ COMMITTED;");
        if self.pool.sessions == Sessions::ByTransaction {
            for (name, value) in SETTINGS {
                sql.push_str(&format!("SET LOCAL {name} = '{value}';"));
            }
            sql.push_str(&format!("SET LOCAL lock_timeout = {};", self.pool.lock_timeout.as_millis()));
            sql.push_str(&durable(true));
            sql.push(';');
        }
        sql.push_str(settings);
        // Whatever fails here, nothing was changed.
        self.stage = Stage::Inside;
        self.batch(sql).await
    }

    /// Commits.
    pub(crate) async fn commit(&mut self) -> Result<(), Fault> {
        self.stage = Stage::Committing;
        self.batch("COMMIT".to_owned()).await?;
        self.stage = Stage::Outside;
        Ok(())
    }

    /// Gives a transaction up, if there is one.
    pub(crate) async fn rollback(&mut self) {
        if self.stage != Stage::Outside && self.connection.is_some() {
            match self.batch("ROLLBACK".to_owned()).await {
                Ok(()) => self.stage = Stage::Outside,
                Err(_) => self.connection = None,
            }
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let reusable = !self.busy && self.stage == Stage::Outside && self.born.elapsed() < MAX_AGE;
        if reusable && !self.pool.closed.load(Ordering::SeqCst) {
            let idle = Idle { connection, born: self.born, since: Instant::now() };
            self.pool.idle().push_back(idle);
        }
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("stage", &self.stage).finish_non_exhaustive()
    }
}
