//! Whether a pooler in transaction mode stands in between: a setting made on one connection is then seen on another,
//! or is lost on its own.

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _,
    postgres::{PgConnectOptions, PgConnection},
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{fault::Fault, pool::Sessions};

/// A setting of our own, which the server keeps for the session.
const MARK: &str = "wow_store.session";

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
    let mark = Uuid::new_v4().to_string();
    let (mut one, mut other) = (options.connect().await?, options.connect().await?);
    // The simple protocol only: behind a pooler, anything prepared may be lost at once.
    one.execute(sqlx::raw_sql(AssertSqlSafe(format!("SET {MARK} = '{mark}'")))).await?;
    // In a transaction the other one keeps its session, so `one` has to get another if it has none of its own. (A
    // pooler with a single session gives this very one, where the mark is seen.)
    other.execute(sqlx::raw_sql("BEGIN")).await?;
    let leaked = shown(&mut other).await? == mark;
    let kept = leaked || shown(&mut one).await? == mark;
    other.execute(sqlx::raw_sql("ROLLBACK")).await?;
    // Nothing is left behind in a session that others use.
    one.execute(sqlx::raw_sql(AssertSqlSafe(format!("RESET {MARK}")))).await?;
    let _ = one.close().await;
    let _ = other.close().await;
    if leaked || !kept {
        tracing::warn!(
            "a connection pooler in transaction mode is in between: new commits of other nodes are found by polling, \
             and every statement takes more round trips; connect to the server directly, or to a pool in session mode"
        );
        return Ok(Sessions::ByTransaction);
    }
    Ok(Sessions::Kept)
}

async fn shown(connection: &mut PgConnection) -> Result<String, Fault> {
    let sql = format!("SELECT coalesce(pg_catalog.current_setting('{MARK}', true), '')");
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
    Ok(row.try_get::<String, _>(0)?)
}
