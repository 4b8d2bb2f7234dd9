//! The schema: what it should be, whether it is, and making it so (D1 to D4, N2).

pub(crate) mod formats;
pub(crate) mod inspect;
pub(crate) mod tables;

use wow_store_api::{AggregateType, ContextName, Error, ErrorKind};

use crate::{
    config::Ddl,
    fault::Fault,
    names::{self, Schema},
    pool::Conn,
};

use self::{inspect::Function, tables::Table};

/// Tables and functions that belong together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    pub(crate) tables: Vec<Table>,
    functions: Vec<(Function, String)>,
}

impl Part {
    /// What every store has.
    pub(crate) fn base() -> Self {
        Self { tables: tables::base(), functions: Vec::new() }
    }

    /// The counters of a context.
    pub(crate) fn context(context: &ContextName) -> Self {
        Self { tables: vec![tables::counter(context)], functions: Vec::new() }
    }

    /// The log of an aggregate type.
    pub(crate) fn log(schema: &Schema, aggregate_type: &AggregateType) -> Self {
        let create = tables::append_function(schema, aggregate_type);
        let function = Function::of(names::append_function(aggregate_type), &create);
        Self { tables: vec![tables::log(aggregate_type)], functions: vec![(function, create)] }
    }

    /// The snapshots of an aggregate type.
    pub(crate) fn snapshots(aggregate_type: &AggregateType) -> Self {
        Self { tables: vec![tables::snapshot(aggregate_type)], functions: Vec::new() }
    }

    /// The timers of a context.
    pub(crate) fn timers(context: &ContextName) -> Self {
        Self { tables: vec![tables::timer(context)], functions: Vec::new() }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.tables.extend(other.tables);
        self.functions.extend(other.functions);
        self
    }

    /// Everything that is missing or different.
    pub(crate) async fn problems(&self, conn: &mut Conn, schema: &Schema) -> Result<Vec<String>, Fault> {
        let functions: Vec<Function> = self.functions.iter().map(|(function, _)| function.clone()).collect();
        inspect::problems(conn, schema, &self.tables, &functions).await
    }

    /// What creates it, statement by statement.
    pub(crate) fn create(&self, schema: &Schema) -> String {
        let tables = self.tables.iter().map(|table| table.create(schema));
        let functions = self.functions.iter().map(|(_, create)| create.clone());
        tables.chain(functions).collect::<Vec<_>>().join("\n")
    }

    /// Sees to it that it is there: looks, and creates what is missing if that is allowed.
    pub(crate) async fn ensure(&self, conn: &mut Conn, schema: &Schema, ddl: Ddl) -> Result<(), Fault> {
        let problems = self.problems(conn, schema).await?;
        if problems.is_empty() {
            return Ok(());
        }
        match ddl {
            Ddl::Auto => self.make(conn, schema).await?,
            Ddl::Validate | Ddl::None => return Err(mismatch(problems)),
        }
        let problems = self.problems(conn, schema).await?;
        if problems.is_empty() { Ok(()) } else { Err(mismatch(problems)) }
    }

    /// Creates what is missing, in one transaction. All nodes take the same lock for it, which ends with the
    /// transaction; it is waited for as long as the session's `lock_timeout` says.
    async fn make(&self, conn: &mut Conn, schema: &Schema) -> Result<(), Fault> {
        let exists = inspect::schema_exists(conn, schema).await?;
        let key = schema.lock_key("schema");
        conn.begin().await?;
        conn.batch(format!("SELECT pg_catalog.pg_advisory_xact_lock({key});")).await?;
        if !exists {
            conn.batch(format!("CREATE SCHEMA IF NOT EXISTS {};", schema.quoted())).await.map_err(raced)?;
        }
        conn.batch(self.create(schema)).await.map_err(raced)?;
        conn.commit().await
    }
}

/// A statement that failed as somebody without our lock did the same: it is done, or can be done now.
fn raced(fault: Fault) -> Fault {
    if fault.is_made_already() { Fault::overtaken() } else { fault }
}

pub(crate) fn mismatch(problems: Vec<String>) -> Fault {
    Fault::from(Error::not_applied(ErrorKind::SchemaMismatch { problems }))
}

/// The statements that create a store's schema with the tables of these aggregate types and of their contexts: for
/// roles that may not create anything, and for reviews.
///
/// # Errors
/// [`ErrorKind::Misconfigured`] for the schema's name.
pub fn schema_sql(schema: &str, aggregate_types: &[AggregateType]) -> wow_store_api::Result<String> {
    let schema = Schema::new(schema)?;
    let mut part = Part::base();
    let mut contexts: Vec<&ContextName> = aggregate_types.iter().map(AggregateType::context).collect();
    contexts.sort();
    contexts.dedup();
    for context in contexts {
        part = part.and(Part::context(context)).and(Part::timers(context));
    }
    for aggregate_type in aggregate_types {
        part = part.and(Part::log(&schema, aggregate_type)).and(Part::snapshots(aggregate_type));
    }
    Ok(format!("CREATE SCHEMA IF NOT EXISTS {};\n{}\n", schema.quoted(), part.create(&schema)))
}
