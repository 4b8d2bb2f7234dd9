//! What the database does on its own: the columns (events as `jsonb`, which the store has as `json`) and unique indexes of
//! the store's log, and nothing looked at.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use sqlx::PgConnection;

use crate::load::{Body, EVENT, Item};

pub(crate) const TABLES: &str = "
    CREATE TABLE bare (
        partition integer NOT NULL,
        position bigint NOT NULL,
        tenant text COLLATE \"C\" NOT NULL,
        id text COLLATE \"C\" NOT NULL,
        version bigint NOT NULL,
        command_id text COLLATE \"C\" NOT NULL,
        committed_at timestamptz NOT NULL,
        size integer NOT NULL,
        metadata jsonb,
        events jsonb NOT NULL,
        PRIMARY KEY (partition, position),
        UNIQUE (tenant, id, version),
        UNIQUE (tenant, id, command_id)
    );
    CREATE TABLE bare_counter (partition integer PRIMARY KEY, position bigint NOT NULL);
    INSERT INTO bare_counter SELECT n, 0 FROM generate_series(0, 15) AS n;
";

const INSERT: &str = "
    INSERT INTO bare (partition, position, tenant, id, version, command_id, committed_at, size, metadata, events)
    VALUES (0, $1, '', $2, $3, $4, now(), $5, NULL, $6::text::jsonb)";

const BATCH: &str = "
    WITH counted AS (
        UPDATE bare_counter SET position = position + $2 WHERE partition = $1 RETURNING position - $2 AS before
    )
    INSERT INTO bare (partition, position, tenant, id, version, command_id, committed_at, size, metadata, events)
    SELECT $1, c.before + a.ord, '', a.id, a.version, a.command_id, now(), a.size, NULL, a.events::jsonb
    FROM counted AS c, ROWS FROM (unnest($3::text[]), unnest($4::bigint[]), unnest($5::text[]), unnest($6::integer[]),
                                  unnest($7::text[])) WITH ORDINALITY AS a(id, version, command_id, size, events, ord)";

/// The events of a commit, as the store writes them.
fn events(body: &Body) -> String {
    format!(r#"[{{"name":"{EVENT}","revision":1,"body":{}}}]"#, body.json)
}

pub(crate) async fn insert(connection: &mut PgConnection, position: i64, item: &Item) -> Result<()> {
    sqlx::query(INSERT)
        .bind(position)
        .bind(&item.id)
        .bind(i64::try_from(item.expected)? + 1)
        .bind(&item.command)
        .bind(i32::try_from(item.body.json.len())?)
        .bind(events(&item.body))
        .execute(connection)
        .await?;
    Ok(())
}

/// Rows that are stored together, in as many columns of arrays.
#[derive(Debug)]
pub(crate) struct Batch {
    partition: i32,
    ids: Vec<String>,
    versions: Vec<i64>,
    commands: Vec<String>,
    sizes: Vec<i32>,
    events: Vec<String>,
}

impl Batch {
    pub(crate) fn new(partition: i32, rows: usize, body: &Arc<Body>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut batch = Self {
            partition,
            ids: Vec::new(),
            versions: Vec::new(),
            commands: Vec::new(),
            sizes: Vec::new(),
            events: Vec::new(),
        };
        for _ in 0..rows {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            batch.ids.push(format!("turn-{}-{}", number % 64, number / 640));
            batch.versions.push(i64::try_from(number / 64 % 10).unwrap_or(0) + 1);
            batch.commands.push(format!("command-{}", number / 64));
            batch.sizes.push(i32::try_from(body.json.len()).unwrap_or(i32::MAX));
            batch.events.push(events(body));
        }
        batch
    }

    pub(crate) async fn insert(&self, connection: &mut PgConnection) -> Result<()> {
        sqlx::query(BATCH)
            .bind(self.partition)
            .bind(i64::try_from(self.ids.len())?)
            .bind(&self.ids)
            .bind(&self.versions)
            .bind(&self.commands)
            .bind(&self.sizes)
            .bind(&self.events)
            .execute(connection)
            .await?;
        Ok(())
    }
}
