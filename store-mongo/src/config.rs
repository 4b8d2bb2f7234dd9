//! How a store is opened.

use std::{fmt, sync::Arc, time::Duration};

use mongodb::options::ClientOptions;
use wow_store_api::{Error, ErrorKind, ManualClock, PartitionCount, ReadPreference, Result};

use crate::names;

/// How often servers are asked how they are, unless the driver's options say otherwise: as often as it allows.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// What the store does about collections and indexes that are missing or differ (D1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ddl {
    /// Creates what is missing.
    #[default]
    Auto,
    /// Creates nothing and names everything that is missing or different when the store is opened.
    Validate,
    /// Creates nothing and looks at nothing but the formats.
    None,
}

/// How a [`MongoStore`](crate::MongoStore) is opened. Only the address is required.
///
/// What the address says about read concern, write concern and read preference does not count: the store always reads
/// what a majority has from the primary, and writes to a majority with its journal. (Queries may be sent elsewhere with
/// [`MongoConfig::with_read_preference`].)
///
/// ```
/// use wow_store_mongo::{Ddl, MongoConfig};
///
/// let config = MongoConfig::new("mongodb://shop:secret@db.example.org/shop?replicaSet=rs0")?
///     .with_ddl(Ddl::Validate);
/// assert!(!format!("{config:?}").contains("secret"));
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a configuration does nothing until a store is opened with it"]
pub struct MongoConfig {
    pub(crate) address: Address,
    pub(crate) database: Option<String>,
    pub(crate) name: Arc<str>,
    pub(crate) partitions: PartitionCount,
    pub(crate) ddl: Ddl,
    pub(crate) push: bool,
    pub(crate) transaction_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) read_preference: ReadPreference,
    pub(crate) clock: Option<ManualClock>,
}

/// Where the servers are.
#[derive(Clone)]
pub(crate) enum Address {
    /// Parsed when the store is opened, as that may ask the DNS.
    Url(String),
    Options(Box<ClientOptions>),
}

impl MongoConfig {
    /// The replica set at a URL, e.g. `mongodb://user:password@host1,host2/database?replicaSet=rs0`.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if it is none; the URL is not shown.
    pub fn new(url: &str) -> Result<Self> {
        if !url.starts_with("mongodb://") && !url.starts_with("mongodb+srv://") {
            return Err(unreadable());
        }
        Ok(Self::at(Address::Url(url.to_owned())))
    }

    /// A replica set with the driver's own options.
    pub fn from_options(options: ClientOptions) -> Self {
        Self::at(Address::Options(Box::new(options)))
    }

    fn at(address: Address) -> Self {
        Self {
            address,
            database: None,
            name: Arc::from("mongo"),
            partitions: PartitionCount::DEFAULT,
            ddl: Ddl::Auto,
            push: true,
            transaction_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            poll_interval: Duration::from_secs(1),
            read_preference: ReadPreference::Primary,
            clock: None,
        }
    }

    /// The name of the store; `mongo` unless set. It is recorded in the database, and a store of another name is
    /// refused there (N2).
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The database; the one that the address names unless set.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`] if no database can be called so.
    pub fn with_database(mut self, database: impl Into<String>) -> Result<Self> {
        let database = database.into();
        names::check_database(&database)?;
        self.database = Some(database);
        Ok(self)
    }

    /// How many partitions a context gets when it is first used.
    pub fn with_partitions(mut self, partitions: PartitionCount) -> Self {
        self.partitions = partitions;
        self
    }

    /// What to do about missing collections and indexes (D1).
    pub fn with_ddl(mut self, ddl: Ddl) -> Self {
        self.ddl = ddl;
        self
    }

    /// Whether other nodes' commits are heard of by a change stream. Without it they are found by polling.
    pub fn with_push(mut self, push: bool) -> Self {
        self.push = push;
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

    /// For tests: this clock instead of the server's. Every store in the database must be opened with a clone of it.
    pub fn with_clock(mut self, clock: ManualClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The driver's options and the name of the database.
    /// Where it is, for errors: hosts with their ports, and the path if there is one.
    pub(crate) fn place(&self) -> String {
        match &self.database {
            Some(database) => format!("servers {:?}, database {database}", self.address),
            None => format!("servers {:?}", self.address),
        }
    }

    pub(crate) async fn resolve(&self) -> Result<(ClientOptions, String)> {
        let mut options = match &self.address {
            // The driver's error may quote the URL, so it is not kept.
            Address::Url(url) => ClientOptions::parse(url).await.map_err(|_| unreadable())?,
            Address::Options(options) => ClientOptions::clone(options),
        };
        let database = self.database.clone().or_else(|| options.default_database.clone());
        let database = database.unwrap_or_default();
        names::check_database(&database)?;
        options.app_name.get_or_insert_with(|| "wow-store".to_owned());
        // A server that said it was going away is asked again so soon that appends outlast it.
        options.heartbeat_freq.get_or_insert(HEARTBEAT);
        // So that it is the driver that says that nothing was sent.
        let patience = options.server_selection_timeout.unwrap_or(self.transaction_timeout);
        options.server_selection_timeout = Some(patience.min(self.transaction_timeout));
        Ok((options, database))
    }
}

fn unreadable() -> Error {
    Error::not_applied(ErrorKind::Misconfigured {
        reason: "the address of the database cannot be read: write it like \
                 mongodb://user:password@host1,host2/database?replicaSet=rs0"
            .to_owned(),
    })
}

/// Without credentials.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                let place = url.split_once("://").map_or("", |(_, place)| place);
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                f.write_str(place.split_once('?').map_or(place, |(place, _)| place))
            }
            Self::Options(options) => {
                let hosts = options.hosts.iter().map(ToString::to_string);
                f.write_str(&hosts.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl fmt::Debug for MongoConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoConfig")
            .field("servers", &self.address)
            .field("database", &self.database)
            .field("name", &self.name)
            .field("partitions", &self.partitions)
            .field("ddl", &self.ddl)
            .field("push", &self.push)
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

    #[tokio::test]
    async fn no_credential_is_shown() {
        let url = "mongodb://user:pa55word@localhost/shop?authMechanismProperties=x:pa55word";
        let config = MongoConfig::new(url).unwrap();
        assert!(!format!("{config:?}").contains("pa55word"), "debug output");
        for url in
            ["mongodb://user:pa55word@local host:port/shop?x", "postgres://user:pa55word@localhost/shop"]
        {
            let refused = match MongoConfig::new(url) {
                Ok(config) => config.resolve().await.map(drop),
                Err(error) => Err(error),
            };
            let refused = refused.unwrap_err();
            assert!(!format!("{refused:?} {refused}").contains("pa55word"), "errors");
        }
    }
}
