//! What postgres-es asks for: its tables, and an aggregate, of which only the name is used.

use std::convert::Infallible;

use cqrs_es::{Aggregate, DomainEvent, event_sink::EventSink};
use serde::{Deserialize, Serialize};

use crate::{load::EVENT, sides::AGGREGATE};

/// As its `db/init.sql` has them.
pub(crate) const TABLES: &str = "
    CREATE TABLE events (
        aggregate_type text NOT NULL,
        aggregate_id text NOT NULL,
        sequence bigint CHECK (sequence >= 0) NOT NULL,
        event_type text NOT NULL,
        event_version text NOT NULL,
        payload json NOT NULL,
        metadata json NOT NULL,
        PRIMARY KEY (aggregate_type, aggregate_id, sequence)
    );
";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Happened;

impl DomainEvent for Happened {
    fn event_type(&self) -> String {
        EVENT.to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}

impl Aggregate for Order {
    const TYPE: &'static str = AGGREGATE;
    type Command = ();
    type Event = Happened;
    type Error = Infallible;
    type Services = ();

    async fn handle(&mut self, (): (), (): &(), _: &EventSink<Self>) -> Result<(), Infallible> {
        Ok(())
    }

    fn apply(&mut self, _: Happened) {}
}
