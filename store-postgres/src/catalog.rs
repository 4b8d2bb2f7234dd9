//! What this node knows of contexts and aggregate types: how many partitions, which tables. Nothing here is ever
//! forgotten by the database, so what is known once stays true.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wow_store_api::{AggregateName, AggregateType, ContextName, PartitionCount};

use crate::{
    attempts::Kind,
    config::Ddl,
    fault::Fault,
    macros::{args, attempt},
    names,
    pool::{Conn, Sql},
    schema::{self, Part, inspect},
    store::Inner,
    value::{Cells as _, integer},
};

#[derive(Default)]
pub(crate) struct Catalog {
    known: Mutex<Known>,
    /// Held while tables are made, so that this node does it once.
    making: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    partitions: HashMap<ContextName, PartitionCount>,
    /// Types whose log can be appended to.
    logs: HashSet<AggregateType>,
    /// The types of each context that reads go through, in order.
    read: HashMap<ContextName, Arc<BTreeSet<AggregateName>>>,
    snapshots: HashMap<AggregateType, u32>,
    timers: HashSet<ContextName>,
}

impl Catalog {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions of a context that was used before.
    pub(crate) fn partitions(&self, context: &ContextName) -> Option<PartitionCount> {
        self.known().partitions.get(context).copied()
    }

    /// What the schema was found to lack: it is looked for again at the next use.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }
}

impl Inner {
    /// The partitions of a context if it was ever used.
    pub(crate) async fn partitions_if_used(
        &self,
        conn: &mut Conn,
        context: &ContextName,
    ) -> Result<Option<PartitionCount>, Fault> {
        if let Some(count) = self.catalog.known().partitions.get(context).copied() {
            return Ok(Some(count));
        }
        let sql = Sql::from(format!("SELECT count(*) FROM {}", self.schema.at(&names::counter(context))));
        let count = match conn.row(&sql, args![]).await {
            Ok(Some(row)) => row.counter(0)?,
            Ok(None) => 0,
            Err(fault) if fault.is_missing() => 0,
            Err(fault) => return Err(fault),
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count == 0 {
            return Ok(None);
        }
        let count = PartitionCount::new(count)?;
        self.catalog.known().partitions.insert(context.clone(), count);
        Ok(Some(count))
    }

    /// The partitions of a context; this is its first use if it had none.
    pub(crate) async fn use_context(&self, context: &ContextName) -> wow_store_api::Result<PartitionCount> {
        if let Some(count) = self.catalog.known().partitions.get(context).copied() {
            return Ok(count);
        }
        attempt!(self, Kind::Schema, "partitions", |conn| {
            let _making = self.catalog.making.lock().await;
            match self.partitions_if_used(conn, context).await? {
                Some(count) => Ok(count),
                None => self.first_use(conn, context).await,
            }
        })
    }

    async fn first_use(&self, conn: &mut Conn, context: &ContextName) -> Result<PartitionCount, Fault> {
        Part::context(context).ensure(conn, &self.schema, self.config.ddl).await?;
        // Whoever inserts the first partition inserts all of them, in one statement.
        let sql = Sql::from(
            "WITH first AS (
                 INSERT INTO {counter} (partition, position, committed_at) VALUES (0, 0, 'epoch')
                 ON CONFLICT (partition) DO NOTHING RETURNING 1
             )
             INSERT INTO {counter} (partition, position, committed_at)
             SELECT n, 0, 'epoch' FROM pg_catalog.generate_series(1, $1::integer - 1) AS n
             WHERE EXISTS (SELECT 1 FROM first)"
                .replace("{counter}", &self.schema.at(&names::counter(context))),
        );
        conn.execute(&sql, args![integer(self.config.partitions.get())]).await?;
        let count = self.partitions_if_used(conn, context).await?;
        count.ok_or_else(Fault::overtaken)
    }

    /// Sees to it that an aggregate type's log can be appended to (L10).
    pub(crate) async fn use_log(
        &self,
        aggregate_type: &AggregateType,
    ) -> wow_store_api::Result<PartitionCount> {
        let known = {
            let known = self.catalog.known();
            let count = known.partitions.get(aggregate_type.context()).copied();
            count.filter(|_| known.logs.contains(aggregate_type))
        };
        if let Some(count) = known {
            return Ok(count);
        }
        let count = self.use_context(aggregate_type.context()).await?;
        attempt!(self, Kind::Schema, "append", |conn| {
            let _making = self.catalog.making.lock().await;
            if self.catalog.known().logs.contains(aggregate_type) {
                return Ok(count);
            }
            self.make_log(conn, aggregate_type).await?;
            self.catalog.known().logs.insert(aggregate_type.clone());
            Ok(count)
        })
    }

    async fn make_log(&self, conn: &mut Conn, aggregate_type: &AggregateType) -> Result<(), Fault> {
        let part = Part::log(&self.schema, aggregate_type);
        match self.config.ddl {
            Ddl::Auto | Ddl::Validate => part.ensure(conn, &self.schema, self.config.ddl).await?,
            Ddl::None => {
                let table = names::log(aggregate_type);
                let found =
                    inspect::existing_tables(conn, &self.schema, std::slice::from_ref(&table)).await?;
                if found.is_empty() {
                    return Err(schema::mismatch(vec![format!("table {table} is missing")]));
                }
            }
        }
        // A type is registered before its first commit can be: readers that see the commit see the type.
        let sql = Sql::from(self.schema.sql(
            "INSERT INTO {wow_log_aggregate} (context, aggregate, created_at) \
             VALUES ($1, $2, {now}) \
             ON CONFLICT (context, aggregate) DO NOTHING",
        ));
        let (context, name) = (aggregate_type.context().as_str(), aggregate_type.name().as_str());
        conn.execute(&sql, args![context, name]).await?;
        Ok(())
    }

    /// The types that reads of a context go through, as far as known.
    pub(crate) async fn types_of(
        &self,
        conn: &mut Conn,
        context: &ContextName,
    ) -> Result<Arc<BTreeSet<AggregateName>>, Fault> {
        let known = self.catalog.known().read.get(context).cloned();
        match known {
            Some(types) => Ok(types),
            None => self.refresh_types(conn, context).await,
        }
    }

    /// The same, as the database has it now.
    pub(crate) async fn refresh_types(
        &self,
        conn: &mut Conn,
        context: &ContextName,
    ) -> Result<Arc<BTreeSet<AggregateName>>, Fault> {
        let sql = Sql::from(self.schema.sql("SELECT aggregate FROM {wow_log_aggregate} WHERE context = $1"));
        let rows = conn.rows(&sql, args![context.as_str()]).await?;
        let types: BTreeSet<AggregateName> = rows.iter().map(|row| row.name(0)).collect::<Result<_, _>>()?;
        let types = Arc::new(types);
        self.catalog.known().read.insert(context.clone(), Arc::clone(&types));
        Ok(types)
    }

    /// Every registered type, by context.
    pub(crate) async fn registered_types(
        &self,
        conn: &mut Conn,
    ) -> Result<BTreeMap<ContextName, BTreeSet<AggregateName>>, Fault> {
        let sql = Sql::from(self.schema.sql("SELECT context, aggregate FROM {wow_log_aggregate}"));
        let mut types: BTreeMap<ContextName, BTreeSet<AggregateName>> = BTreeMap::new();
        for row in conn.rows(&sql, args![]).await? {
            types.entry(row.name(0)?).or_default().insert(row.name(1)?);
        }
        Ok(types)
    }

    /// Sees to it that snapshots of an aggregate type can be stored, and that its table's revision is recorded (S2).
    pub(crate) async fn use_snapshots(
        &self,
        aggregate_type: &AggregateType,
        revision: u32,
    ) -> wow_store_api::Result<()> {
        let known = self.catalog.known().snapshots.get(aggregate_type).copied();
        if known.is_some_and(|known| known >= revision) {
            return Ok(());
        }
        attempt!(self, Kind::Schema, "save_snapshot", |conn| {
            let _making = self.catalog.making.lock().await;
            Part::snapshots(aggregate_type).ensure(conn, &self.schema, self.config.ddl).await?;
            let sql = Sql::from(self.schema.sql(
                "INSERT INTO {wow_snapshot_table} AS t (context, aggregate, revision, created_at) \
                 VALUES ($1, $2, $3, {now}) \
                 ON CONFLICT (context, aggregate) DO UPDATE SET revision = EXCLUDED.revision \
                 WHERE t.revision < EXCLUDED.revision",
            ));
            let (context, name) = (aggregate_type.context().as_str(), aggregate_type.name().as_str());
            conn.execute(&sql, args![context, name, integer(revision)]).await?;
            self.catalog.known().snapshots.insert(aggregate_type.clone(), revision);
            Ok(())
        })
    }

    /// Sees to it that timers of a context can be stored.
    pub(crate) async fn use_timers(&self, context: &ContextName) -> wow_store_api::Result<()> {
        if self.catalog.known().timers.contains(context) {
            return Ok(());
        }
        attempt!(self, Kind::Schema, "schedule_timer", |conn| {
            let _making = self.catalog.making.lock().await;
            Part::timers(context).ensure(conn, &self.schema, self.config.ddl).await?;
            self.catalog.known().timers.insert(context.clone());
            Ok(())
        })
    }
}
