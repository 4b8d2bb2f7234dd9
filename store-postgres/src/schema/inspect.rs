//! What the database has, compared with what it should have.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    fault::Fault,
    macros::args,
    names::Schema,
    pool::{Conn, Sql},
    schema::tables::{Index, IndexKind, Table},
    value::Cells as _,
};

/// A function that should be there, with this text between its dollar quotes.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) body: String,
}

impl Function {
    /// From the statement that creates it.
    pub(crate) fn of(name: String, create: &str) -> Self {
        let body = create.split("$wow$").nth(1).unwrap_or_default().to_owned();
        Self { name, body }
    }
}

#[derive(Debug, Default)]
struct FoundTable {
    /// It survives a crash of the server.
    durable: bool,
    columns: BTreeMap<String, FoundColumn>,
}

#[derive(Debug)]
struct FoundColumn {
    kind: String,
    not_null: bool,
    collation: String,
    filled: bool,
}

#[derive(Debug)]
struct FoundIndex {
    table: String,
    unique: bool,
    primary: bool,
    valid: bool,
    partial: bool,
    /// A violation is told at once, not at the end of the transaction.
    immediate: bool,
    columns: Vec<String>,
}

/// Whether the schema is there.
pub(crate) async fn schema_exists(conn: &mut Conn, schema: &Schema) -> Result<bool, Fault> {
    let sql = Sql::from("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1");
    Ok(conn.row(&sql, args![schema.name()]).await?.is_some())
}

/// The tables of the schema that are called like this.
pub(crate) async fn existing_tables(
    conn: &mut Conn,
    schema: &Schema,
    names: &[String],
) -> Result<BTreeSet<String>, Fault> {
    let sql = Sql::from(
        "SELECT c.relname::text FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = ANY($2::name[]) AND c.relkind IN ('r', 'p')",
    );
    let rows = conn.rows(&sql, args![schema.name(), names]).await?;
    rows.iter().map(|row| row.cell::<String>(0)).collect()
}

/// One line for everything that is missing or different.
pub(crate) async fn problems(
    conn: &mut Conn,
    schema: &Schema,
    tables: &[Table],
    functions: &[Function],
) -> Result<Vec<String>, Fault> {
    if !schema_exists(conn, schema).await? {
        return Ok(vec![format!("schema {} is missing", schema.quoted())]);
    }
    let names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
    let columns = columns(conn, schema, &names).await?;
    let indexes = indexes(conn, schema, tables).await?;
    let mut problems = Vec::new();
    for table in tables {
        match columns.get(&table.name) {
            Some(found) => {
                if !found.durable {
                    problems.push(format!("table {} is unlogged or temporary: set it logged", table.name));
                }
                compare_columns(table, &found.columns, &mut problems);
                for index in &table.indexes {
                    compare_index(table, index, indexes.get(&index.name), &mut problems);
                }
            }
            None => problems.push(format!("table {} is missing", table.name)),
        }
    }
    let bodies = bodies(conn, schema, functions).await?;
    for function in functions {
        match bodies.get(&function.name) {
            Some(body) if *body == function.body => {}
            Some(_) => problems.push(format!("function {} is not the one of this version", function.name)),
            None => problems.push(format!("function {} is missing", function.name)),
        }
    }
    Ok(problems)
}

async fn columns(
    conn: &mut Conn,
    schema: &Schema,
    names: &[String],
) -> Result<BTreeMap<String, FoundTable>, Fault> {
    let sql = Sql::from(
        "SELECT c.relname::text, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, \
                coalesce(o.collname::text, ''), a.atthasdef OR a.attidentity <> '', \
                c.relpersistence = 'p' \
         FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid \
         LEFT JOIN pg_catalog.pg_collation AS o ON o.oid = a.attcollation \
         WHERE n.nspname = $1 AND c.relname = ANY($2::name[]) AND c.relkind IN ('r', 'p') \
               AND a.attnum > 0 AND NOT a.attisdropped",
    );
    let mut found: BTreeMap<String, FoundTable> = BTreeMap::new();
    for row in conn.rows(&sql, args![schema.name(), names]).await? {
        let column = FoundColumn {
            kind: row.cell(2)?,
            not_null: row.cell(3)?,
            collation: row.cell(4)?,
            filled: row.cell(5)?,
        };
        let table = found.entry(row.cell(0)?).or_default();
        table.durable = row.cell(6)?;
        table.columns.insert(row.cell(1)?, column);
    }
    Ok(found)
}

fn compare_columns(table: &Table, found: &BTreeMap<String, FoundColumn>, problems: &mut Vec<String>) {
    let at = &table.name;
    for column in table.columns {
        let name = column.name;
        let Some(found) = found.get(name) else {
            problems.push(format!("column {at}.{name} is missing"));
            continue;
        };
        if found.kind != column.kind {
            problems.push(format!("column {at}.{name} is {}, it should be {}", found.kind, column.kind));
        }
        if found.not_null == column.nullable {
            let wanted = if column.nullable { "allow nulls" } else { "be NOT NULL" };
            problems.push(format!("column {at}.{name} should {wanted}"));
        }
        if column.is_text() && found.collation != "C" {
            problems.push(format!(
                "column {at}.{name} has collation {:?}, it should have \"C\"",
                found.collation
            ));
        }
        if column.identity && !found.filled {
            problems.push(format!("column {at}.{name} should be an identity column"));
        }
    }
    for (name, found) in found {
        let known = table.columns.iter().any(|column| column.name == name);
        if !known && found.not_null && !found.filled {
            problems.push(format!("column {at}.{name} is not known and has to be filled: drop it"));
        }
    }
}

async fn indexes(
    conn: &mut Conn,
    schema: &Schema,
    tables: &[Table],
) -> Result<BTreeMap<String, FoundIndex>, Fault> {
    let names: Vec<String> =
        tables.iter().flat_map(|table| table.indexes.iter().map(|index| index.name.clone())).collect();
    let sql = Sql::from(
        "SELECT i.relname::text, t.relname::text, x.indisunique, x.indisprimary, x.indisvalid, \
                x.indpred IS NOT NULL, x.indimmediate, \
                ARRAY(SELECT coalesce(a.attname::text, '') \
                      FROM unnest(x.indkey::smallint[]) WITH ORDINALITY AS k(number, place) \
                      LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = k.number \
                      ORDER BY k.place) \
         FROM pg_catalog.pg_class AS i \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = i.relnamespace \
         JOIN pg_catalog.pg_index AS x ON x.indexrelid = i.oid \
         JOIN pg_catalog.pg_class AS t ON t.oid = x.indrelid \
         WHERE n.nspname = $1 AND i.relname = ANY($2::name[])",
    );
    let mut found = BTreeMap::new();
    for row in conn.rows(&sql, args![schema.name(), names]).await? {
        let index = FoundIndex {
            table: row.cell(1)?,
            unique: row.cell(2)?,
            primary: row.cell(3)?,
            valid: row.cell(4)?,
            partial: row.cell(5)?,
            immediate: row.cell(6)?,
            columns: row.cell(7)?,
        };
        found.insert(row.cell::<String>(0)?, index);
    }
    Ok(found)
}

fn compare_index(table: &Table, index: &Index, found: Option<&FoundIndex>, problems: &mut Vec<String>) {
    let (what, at) = match index.kind {
        IndexKind::Primary => ("primary key", &index.name),
        IndexKind::Unique => ("unique constraint", &index.name),
        IndexKind::Plain => ("index", &index.name),
    };
    let Some(found) = found else {
        problems.push(format!("{what} {at} on {} is missing", table.name));
        return;
    };
    if found.table != table.name {
        problems.push(format!("{what} {at} is on {}, it should be on {}", found.table, table.name));
        return;
    }
    if index.kind == IndexKind::Primary && !found.primary {
        problems.push(format!("{at} on {} is not a primary key", table.name));
    }
    if index.kind == IndexKind::Unique && !found.unique {
        problems.push(format!("{at} on {} is not unique", table.name));
    }
    if found.columns != index.columns {
        problems.push(format!(
            "{what} {at} is on ({}), it should be on ({})",
            found.columns.join(", "),
            index.columns.join(", ")
        ));
    }
    if found.partial {
        problems.push(format!("{what} {at} has a condition, it should have none"));
    }
    if !found.immediate {
        problems.push(format!("{what} {at} is deferrable, it should not be"));
    }
    if !found.valid {
        problems.push(format!("{what} {at} is not valid: drop it and build it again"));
    }
}

async fn bodies(
    conn: &mut Conn,
    schema: &Schema,
    functions: &[Function],
) -> Result<BTreeMap<String, String>, Fault> {
    if functions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names: Vec<String> = functions.iter().map(|function| function.name.clone()).collect();
    let sql = Sql::from(
        "SELECT p.proname::text, p.prosrc FROM pg_catalog.pg_proc AS p \
         JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace \
         WHERE n.nspname = $1 AND p.proname = ANY($2::name[])",
    );
    let rows = conn.rows(&sql, args![schema.name(), names]).await?;
    rows.iter().map(|row| Ok((row.cell::<String>(0)?, row.cell::<String>(1)?))).collect()
}
