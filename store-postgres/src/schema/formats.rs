//! The formats of what is stored, and whose it is (D3, N2).

use wow_store_api::{Error, ErrorKind, Format};

use crate::{
    fault::Fault,
    macros::args,
    names::{self, Schema},
    pool::{Conn, Sql},
    value::{Cells as _, integer},
};

/// What this version writes, and the newest that it reads.
const FORMATS: [(&str, u32); 7] = [
    ("checkpoint", 1),
    ("lease", 1),
    ("ledger", 1),
    ("log", 1),
    ("reservation", 1),
    ("snapshot", 1),
    ("timer", 1),
];

/// The row that says whose the schema is.
const STORE: &str = "store";
const STORE_FORMAT: u32 = 1;

/// What is recorded, and the owner. Empty where nothing is.
async fn recorded(conn: &mut Conn, schema: &Schema) -> Result<(Vec<Format>, Option<String>), Fault> {
    let sql = Sql::from(schema.sql("SELECT structure, version, owner FROM {wow_format} ORDER BY structure"));
    let (mut formats, mut owner) = (Vec::new(), None);
    for row in conn.rows(&sql, args![]).await? {
        let format = Format { structure: row.cell(0)?, version: row.number(1)? };
        if format.structure == STORE {
            owner = row.cell(2)?;
        }
        formats.push(format);
    }
    Ok((formats, owner))
}

/// The formats of what is stored.
pub(crate) async fn read(conn: &mut Conn, schema: &Schema) -> Result<Vec<Format>, Fault> {
    Ok(recorded(conn, schema).await?.0)
}

/// Refuses what this version cannot read, or what is another store's. Nothing recorded is fine.
pub(crate) async fn check(conn: &mut Conn, schema: &Schema, store: &str) -> Result<(), Fault> {
    match recorded(conn, schema).await {
        Ok((formats, owner)) => judge(&formats, owner.as_deref(), schema, store),
        Err(fault) if fault.is_missing() => Ok(()),
        Err(fault) => Err(fault),
    }
}

fn judge(formats: &[Format], owner: Option<&str>, schema: &Schema, store: &str) -> Result<(), Fault> {
    for format in formats {
        let known = FORMATS.iter().find(|(structure, _)| *structure == format.structure);
        let supported = match known {
            Some((_, version)) => *version,
            None if format.structure == STORE => STORE_FORMAT,
            // A structure of a later version.
            None => 0,
        };
        if format.version > supported {
            return Err(Fault::from(Error::not_applied(ErrorKind::FormatUnsupported {
                structure: format.structure.clone(),
                found: format.version,
                supported,
            })));
        }
    }
    match owner {
        Some(owner) if owner != store => Err(Fault::misconfigured(format!(
            "schema {} belongs to the store {owner:?}, this one is {store:?}: two stores cannot share a schema; give \
             this one a schema or a database of its own, or its old name",
            schema.name()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Records the formats and the owner where nothing is recorded yet, and checks again: somebody else may have been
/// faster.
pub(crate) async fn record(conn: &mut Conn, schema: &Schema, store: &str) -> Result<(), Fault> {
    let (formats, owner) = match recorded(conn, schema).await {
        Ok(recorded) => recorded,
        Err(fault) if fault.is_missing() => {
            return Err(super::mismatch(vec![format!("table {} is missing", names::FORMAT)]));
        }
        Err(fault) => return Err(fault),
    };
    judge(&formats, owner.as_deref(), schema, store)?;
    if owner.is_some() && FORMATS.iter().all(|(name, _)| formats.iter().any(|it| it.structure == *name)) {
        return Ok(());
    }
    let (mut structures, mut versions): (Vec<&str>, Vec<i32>) =
        FORMATS.iter().map(|(name, version)| (*name, integer(*version))).unzip();
    structures.push(STORE);
    versions.push(integer(STORE_FORMAT));
    let sql = Sql::from(schema.sql(
        "INSERT INTO {wow_format} (structure, version, owner, recorded_at) \
         SELECT f.structure, f.version, CASE WHEN f.structure = 'store' THEN $3 END, \
                {now} \
         FROM unnest($1::text[], $2::integer[]) AS f(structure, version) \
         ON CONFLICT (structure) DO NOTHING",
    ));
    conn.execute(&sql, args![structures, versions, store]).await?;
    let (formats, owner) = recorded(conn, schema).await?;
    judge(&formats, owner.as_deref(), schema, store)
}
