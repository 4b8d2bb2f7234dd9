//! A commit from its document, one pass over its fields.

use mongodb::bson::{RawArray, RawBsonRef, RawDocument};
use wow_store_api::{
    AggregateId, AggregateType, CommandId, Error, Event, EventName, RecordedCommit, Timestamp,
};

use crate::{
    document::{Fields as _, integer, payload},
    fault::Fault,
};

fn damaged(aggregate_type: &AggregateType) -> Fault {
    Fault::from(Error::corrupt(
        format!("the log of {aggregate_type}"),
        "a document in it is not one that was written",
    ))
}

/// The aggregate of a document with `tenant` and `id`.
pub(crate) fn aggregate_id(
    found: &RawDocument,
    aggregate_type: &AggregateType,
) -> Result<AggregateId, Fault> {
    let id = AggregateId::of(aggregate_type.clone(), found.text("id")?)?;
    match found.text("tenant")? {
        "" => Ok(id),
        tenant => Ok(id.with_tenant(tenant)?),
    }
}

/// A commit, and the bytes of its events' bodies.
pub(crate) fn read(
    found: &RawDocument,
    aggregate_type: &AggregateType,
    aggregate_id: Option<&AggregateId>,
) -> Result<(RecordedCommit, usize), Fault> {
    parts(found, aggregate_type, aggregate_id).ok_or_else(|| damaged(aggregate_type))
}

fn parts(
    found: &RawDocument,
    aggregate_type: &AggregateType,
    aggregate_id: Option<&AggregateId>,
) -> Option<(RecordedCommit, usize)> {
    let (mut partition, mut position, mut tenant, mut id) = (None, None, None, None);
    let (mut version, mut command_id, mut committed_at, mut metadata) = (None, None, None, None);
    let mut events = None;
    for element in found.iter() {
        let (key, value) = element.ok()?;
        let key: &str = key.as_ref();
        match (key, value) {
            ("_id", RawBsonRef::Document(key)) => {
                partition = Some(u32::try_from(integer(key.get("partition").ok()??)?).ok()?);
                position = Some(u64::try_from(integer(key.get("position").ok()??)?).ok()?);
            }
            ("tenant", RawBsonRef::String(text)) => tenant = Some(text),
            ("id", RawBsonRef::String(text)) => id = Some(text),
            ("version", value) => version = Some(u64::try_from(integer(value)?).ok()?),
            ("command_id", RawBsonRef::String(text)) => command_id = Some(CommandId::new(text).ok()?),
            ("committed_at", RawBsonRef::DateTime(at)) => {
                committed_at = Some(Timestamp::from_millis(at.timestamp_millis()).ok()?);
            }
            ("metadata", value) => metadata = Some(payload(value)?),
            ("events", RawBsonRef::Array(list)) => events = Some(read_events(list)?),
            // Written by a later version.
            _ => {}
        }
    }
    let aggregate_id = match aggregate_id {
        Some(aggregate_id) => aggregate_id.clone(),
        None => {
            let of_type = AggregateId::of(aggregate_type.clone(), id?).ok()?;
            match tenant? {
                "" => of_type,
                tenant => of_type.with_tenant(tenant).ok()?,
            }
        }
    };
    let (events, bytes) = events?;
    let commit = RecordedCommit {
        aggregate_id,
        version: version?,
        command_id: command_id?,
        partition: partition?,
        position: position?,
        committed_at: committed_at?,
        metadata,
        events,
    };
    Some((commit, bytes))
}

/// The events, at least one.
fn read_events(list: &RawArray) -> Option<(Vec<Event>, usize)> {
    let mut events = Vec::new();
    let mut bytes = 0;
    for element in list {
        let RawBsonRef::Document(found) = element.ok()? else { return None };
        let (mut name, mut revision, mut body) = (None, None, None);
        for element in found.iter() {
            let (key, value) = element.ok()?;
            let key: &str = key.as_ref();
            match (key, value) {
                ("name", RawBsonRef::String(text)) => name = Some(EventName::new(text).ok()?),
                ("revision", value) => revision = Some(u32::try_from(integer(value)?).ok()?),
                ("body", value) => body = Some(payload(value)?),
                _ => {}
            }
        }
        let event = Event { name: name?, revision: revision?, body: body? };
        bytes += event.body.as_json().len();
        events.push(event);
    }
    (!events.is_empty()).then_some((events, bytes))
}
