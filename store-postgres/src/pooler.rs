//! Whether a pooler in transaction mode stands in between, which gives the same session to one and then to another.

use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, Row as _,
    postgres::{PgConnectOptions, PgConnection},
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{fault::Fault, pool::Sessions};

/// A setting of our own, which a session gets with its start.
const MARK: &str = "wow_store.session";

/// How often sessions are compared where something stands in between: others that use it at the same time may hide
/// what is looked for.
const ROUNDS: u32 = 10;

/// Looks how sessions are kept.
pub(crate) async fn detect(
    options: &PgConnectOptions,
    deadline: Instant,
) -> Result<Sessions, wow_store_api::Error> {
    let options = options.clone().disable_statement_logging().extra_float_digits(None);
    let looking = timeout_at(deadline, look(&options)).await;
    let found = looking.unwrap_or_else(|_| Err(Fault::too_late()));
    found.map_err(|fault| fault.before_commit().error)
}

async fn look(options: &PgConnectOptions) -> Result<Sessions, Fault> {
    let rounds = if is_marked(options).await? { 1 } else { ROUNDS };
    let mut one = options.connect().await.map_err(Fault::connecting)?;
    let mut other = options.connect().await.map_err(Fault::connecting)?;
    let mut shared = false;
    for _ in 0..rounds {
        shared = shared || meet(&mut one, &mut other).await?;
    }
    let _ = one.close().await;
    let _ = other.close().await;
    if shared {
        tracing::warn!(
            "a connection pooler in transaction mode is in between: new commits of other nodes are found by polling, \
             and every statement takes more round trips; connect to the server directly, or to a pool in session mode"
        );
        return Ok(Sessions::ByTransaction);
    }
    Ok(Sessions::Kept)
}

/// Whether a session has what its connection was started with: a pooler refuses that, or leaves it out.
async fn is_marked(options: &PgConnectOptions) -> Result<bool, Fault> {
    let mark = Uuid::new_v4().to_string();
    let mut connection = match options.clone().options([(MARK, &mark)]).connect().await {
        Ok(connection) => connection,
        // If it is for another reason, connecting without it says so.
        Err(sqlx::Error::Database(_)) => return Ok(false),
        Err(error) => return Err(Fault::connecting(error)),
    };
    let sql = "SELECT coalesce(pg_catalog.current_setting('wow_store.session', true), '')";
    let row = connection.fetch_one(sqlx::raw_sql(sql)).await?;
    let seen: String = row.try_get(0)?;
    let _ = connection.close().await;
    Ok(seen == mark)
}

/// Whether two connections meet each other's sessions. In a transaction the other one keeps its session, so `one` has
/// to get another if it has none of its own. The simple protocol only: behind a pooler, anything prepared may be lost.
async fn meet(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, Fault> {
    let before = session(one).await?;
    other.execute(sqlx::raw_sql("BEGIN")).await?;
    let others = session(other).await?;
    // Where there is a single session, asking once more would be waiting for the other one to end.
    let shared = before == others || session(one).await? != before;
    other.execute(sqlx::raw_sql("ROLLBACK")).await?;
    Ok(shared)
}

async fn session(connection: &mut PgConnection) -> Result<i32, Fault> {
    Ok(connection.fetch_one(sqlx::raw_sql("SELECT pg_catalog.pg_backend_pid()")).await?.try_get(0)?)
}
