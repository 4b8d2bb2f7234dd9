//! Servers for tests: a test asks for a database server and gets one, or fails and says how to get one.
//!
//! Tried in order, unless `WOW_TEST_SERVERS` names one of them (`url`, `local`):
//!
//! | | what | settings |
//! |---|---|---|
//! | `url` | a server that is running | `WOW_TEST_POSTGRES_URL`, `WOW_TEST_MONGO_URL` (a replica set) |
//! | `local` | the server's own binaries, started in a temporary directory | `WOW_TEST_POSTGRES_BIN`, `WOW_TEST_MONGO_BIN`: where they are, if not in a usual place. `mongod` is fetched once into the build directory if there is none |
//!
//! A server that was started here is stopped and its directory removed when its handle is dropped, and also when the
//! test panics, is killed or aborts: a watching process outlives the test and notices.

mod local;
mod mongo;
mod mongo_binary;
mod mongo_wire;
mod postgres;

use std::env;

pub use mongo::MongoServer;
pub use postgres::PostgresServer;

/// Which kinds of servers to try.
const CHOICE: &str = "WOW_TEST_SERVERS";

/// Where a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Url,
    Local,
}

/// The sources to try, in order.
///
/// # Panics
/// If `WOW_TEST_SERVERS` names none of them.
fn sources() -> Vec<Source> {
    match env::var(CHOICE).as_deref() {
        Err(_) | Ok("") => vec![Source::Url, Source::Local],
        Ok("url") => vec![Source::Url],
        Ok("local") => vec![Source::Local],
        Ok(other) => panic!("{CHOICE}={other}: choose url or local"),
    }
}
