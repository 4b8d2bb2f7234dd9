//! How a store is opened.

use std::{fmt, str::FromStr as _, sync::Arc, time::Duration};

use sqlx::postgres::PgConnectOptions;
use wow_store_api::{Error, ErrorKind, ManualClock, PartitionCount, ReadPreference, Result};

/// What the store does about tables that are missing or differ (D1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ddl {
    /// Creates what is missing. The role needs to own the schema, nothing more; where all is there, not even that.
    #[default]
    Auto,
    /// Creates nothing and names everything that is missing or different when the store is opened.
    Validate,
    /// Creates nothing and looks at nothing but the formats.
    None,
}

/// Whether a connection pooler stands between the store and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooler {
    /// Looks when the store is opened.
    #[default]
    Detect,
    /// None, or one that keeps a server connection for each client connection.
    Direct,
    /// One that hands out server connections by transaction, as PgBouncer does in transaction mode: no statement is
    /// prepared by name, no session is configured, and nothing is listened for.
    Transaction,
}

/// How a [`PostgresStore`](crate::PostgresStore) is opened. Only the address is required.
///
/// ```
/// use wow_store_postgres::{Ddl, PostgresConfig};
///
/// let config = PostgresConfig::new("postgres://shop:secret@db.example.org/shop")?
///     .with_schema("events")
///     .with_ddl(Ddl::Validate);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until a store is opened with it"]
pub struct PostgresConfig {
    pub(crate) options: PgConnectOptions,
    pub(crate) replicas: Vec<PgConnectOptions>,
    pub(crate) name: Arc<str>,
    pub(crate) schema: String,
    pub(crate) partitions: PartitionCount,
    pub(crate) ddl: Ddl,
    pub(crate) pooler: Pooler,
    pub(crate) push: bool,
    pub(crate) max_connections: u32,
    pub(crate) transaction_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) read_preference: ReadPreference,
    pub(crate) clock: Option<ManualClock>,
}

impl PostgresConfig {
    /// Where it is, for errors.
    pub(crate) fn place(&self) -> String {
        let (host, port) = (self.options.get_host(), self.options.get_port());
        let server = match self.options.get_socket() {
            Some(socket) => format!("socket {}, port {port}", socket.display()),
            None => format!("server {host}:{port}"),
        };
        match self.options.get_database() {
            Some(database) => format!("{server}, database {database}"),
            None => server,
        }
    }

    /// The server at a URL, e.g. `postgres://user:password@host:5432/database?sslmode=verify-full`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if it cannot be read; the URL is not shown.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self::from_options(parse(url)?))
    }

    /// A server with the driver's own options.
    pub fn from_options(options: PgConnectOptions) -> Self {
        Self {
            options,
            replicas: Vec::new(),
            name: Arc::from("postgres"),
            schema: "public".to_owned(),
            partitions: PartitionCount::DEFAULT,
            ddl: Ddl::Auto,
            pooler: Pooler::Detect,
            push: true,
            max_connections: 10,
            transaction_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            poll_interval: Duration::from_secs(1),
            read_preference: ReadPreference::Primary,
            clock: None,
        }
    }

    /// The name of the store; `postgres` unless set. It is recorded in the schema, and a store of another name is
    /// refused there (N2).
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The schema; `public` unless set. Any name of up to 63 bytes.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// How many partitions a context gets when it is first used.
    pub fn with_partitions(mut self, partitions: PartitionCount) -> Self {
        self.partitions = partitions;
        self
    }

    /// What to do about missing tables (D1).
    pub fn with_ddl(mut self, ddl: Ddl) -> Self {
        self.ddl = ddl;
        self
    }

    /// Whether there is a pooler in between.
    pub fn with_pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self
    }

    /// Whether other nodes are told of new commits by LISTEN and NOTIFY. Without it they find them by polling.
    pub fn with_push(mut self, push: bool) -> Self {
        self.push = push;
        self
    }

    /// Most connections in use at a time, at least 1; 10 unless set. The one that listens comes on top.
    pub fn with_max_connections(mut self, max_connections: u32) -> Self {
        self.max_connections = max_connections.max(1);
        self
    }

    /// How long a write may take, retries included (L6); 5 s unless set.
    pub fn with_transaction_timeout(mut self, timeout: Duration) -> Self {
        self.transaction_timeout = timeout;
        self
    }

    /// How long one read may take; 60 s unless set.
    pub fn with_read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// How often the heads of watched contexts are looked at, whether or not notifications arrive (T3); 1 s unless
    /// set.
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// Who answers queries that do not say who may (Q2); the primary unless set.
    pub fn with_read_preference(mut self, preference: ReadPreference) -> Self {
        self.read_preference = preference;
        self
    }

    /// For tests: this clock instead of the server's. Every store in the schema must be opened with a clone of it.
    ///
    /// Expiry and due times can then be tried at the very instant. It costs one more round trip for each statement.
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// A replica that queries may be sent to (Q2). Called again, it adds one.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] as for [`PostgresConfig::new`].
    pub fn with_replica(mut self, url: &str) -> Result<Self> {
        self.replicas.push(parse(url)?);
        Ok(self)
    }
}

/// The parameters of a URL that the driver knows.
const PARAMETERS: [&str; 17] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

/// The URL without parameters that the driver does not know: it would write them to the log, and one of them may be a
/// password with a slip in its name.
fn known(url: &str) -> String {
    let Some((place, parameters)) = url.split_once('?') else { return url.to_owned() };
    let is_known = |parameter: &&str| {
        let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
        PARAMETERS.contains(&name) || name.starts_with("options[")
    };
    let (known, unknown): (Vec<&str>, Vec<&str>) = parameters.split('&').partition(is_known);
    if !unknown.is_empty() {
        tracing::warn!("{} unknown parameters of the database's address are left out", unknown.len());
    }
    format!("{place}?{}", known.join("&"))
}

fn parse(url: &str) -> Result<PgConnectOptions> {
    // The driver's error may quote the URL, so it is not kept.
    PgConnectOptions::from_str(&known(url)).map_err(|_| {
        Error::not_applied(ErrorKind::Misconfigured {
            reason: "the address of the database cannot be read: write it like \
                     postgres://user:password@host:5432/database"
                .to_owned(),
        })
    })
}

/// A server without its credentials.
struct Address<'a>(&'a PgConnectOptions);

impl fmt::Debug for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.0.get_database().unwrap_or_default();
        match self.0.get_socket() {
            Some(socket) => write!(f, "{}/{database}", socket.display()),
            None => write!(f, "{}:{}/{database}", self.0.get_host(), self.0.get_port()),
        }
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("server", &Address(&self.options))
            .field("replicas", &self.replicas.iter().map(Address).collect::<Vec<_>>())
            .field("name", &self.name)
            .field("schema", &self.schema)
            .field("partitions", &self.partitions)
            .field("ddl", &self.ddl)
            .field("pooler", &self.pooler)
            .field("push", &self.push)
            .field("max_connections", &self.max_connections)
            .field("transaction_timeout", &self.transaction_timeout)
            .field("read_timeout", &self.read_timeout)
            .field("poll_interval", &self.poll_interval)
            .field("read_preference", &self.read_preference)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_is_shown() {
        let url = "postgres://user:pa55word@localhost/shop";
        let config = PostgresConfig::new(url).unwrap().with_replica(url).unwrap();
        assert!(!format!("{config:?}").contains("pa55word"), "debug output");
        let slip = known("postgres://localhost/shop?sslmode=require&pasword=pa55word&options[jit]=off");
        assert_eq!(
            slip, "postgres://localhost/shop?sslmode=require&options[jit]=off",
            "what the driver logs"
        );
        let refused = PostgresConfig::new("postgres://user:pa55word@localhost:port/shop").unwrap_err();
        assert!(!format!("{refused:?} {refused}").contains("pa55word"), "errors");
    }
}
