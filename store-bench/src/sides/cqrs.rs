//! cqrs-es, whose event repositories are compared with: an aggregate, of which only the name is used, and its events.

use std::convert::Infallible;

use anyhow::Result;
use cqrs_es::{Aggregate, DomainEvent, event_sink::EventSink, persist::SerializedEvent};
use serde::{Deserialize, Serialize};

use crate::{
    load::{EVENT, Item},
    sides::AGGREGATE,
};

/// As they are given to a repository.
pub(crate) fn event(item: Item) -> Result<SerializedEvent> {
    Ok(SerializedEvent::new(
        item.id,
        usize::try_from(item.expected)? + 1,
        AGGREGATE.to_owned(),
        EVENT.to_owned(),
        "1".to_owned(),
        item.body.value.clone(),
        serde_json::Value::Object(serde_json::Map::new()),
    ))
}

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
