//! Servers for tests: a test asks for a database server and gets one, or fails and says how to get one.
//!
//! Tried in order, unless `WOW_TEST_SERVERS` names one of them (`url`, `container`, `local`):
//!
//! | | what | settings |
//! |---|---|---|
//! | `url` | a server that is running | `WOW_TEST_POSTGRES_URL` (its role may create schemas and roles), `WOW_TEST_MONGO_URL` (a replica set) |
//! | `container` | a container, where a Docker Engine answers | `WOW_TEST_POSTGRES_IMAGE`, `WOW_TEST_MONGO_IMAGE`: other images than the official `postgres:17` and `mongo:7` |
//! | `local` | the server's own binaries, started in a temporary directory | `WOW_TEST_POSTGRES_BIN`, `WOW_TEST_MONGO_BIN`: where they are, if not in a usual place. `mongod` is fetched once into the build directory if there is none |
//!
//! Tests that change, stop or kill their server ask for one of their own. A URL cannot give that: it is started in a
//! container or from binaries, also where the other tests have a URL. Replica sets of several members are always started
//! from binaries.
//!
//! A server that was started here is stopped and what it wrote removed when its handle is dropped, and also when the
//! test panics, is killed or aborts: a watching process outlives the test and notices.

mod container;
mod local;
mod mongo;
mod mongo_binary;
mod mongo_wire;
mod postgres;
mod postgres_local;
mod watch;

use std::env;

pub use local::LocalServer;
pub use mongo::{MongoServer, MongoStart};
pub use postgres::{PostgresServer, Spare};

/// Which kind of server to take.
const CHOICE: &str = "WOW_TEST_SERVERS";

/// Where a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Url,
    Container,
    Local,
}

/// The source that was chosen; none if any will do.
///
/// # Panics
/// If `WOW_TEST_SERVERS` names none of them.
fn choice() -> Option<Source> {
    match env::var(CHOICE).as_deref() {
        Err(_) | Ok("") => None,
        Ok("url") => Some(Source::Url),
        Ok("container") => Some(Source::Container),
        Ok("local") => Some(Source::Local),
        Ok(other) => panic!("{CHOICE}={other}: choose url, container or local"),
    }
}

/// A variable that is set to something.
fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
