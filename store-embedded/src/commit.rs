//! A commit as bytes: the same in the log and in its aggregate's stream, but for the checksum, which takes in the key.
//!
//! ```text
//! format: u8 | version: u64 | partition: u32 | position: u64 | committed at: i64
//!            | aggregate | tenant? | id | command id | metadata? | events: u32 | (name | revision: u32 | body) …
//!            | checksum: u64
//! ```

use fjall::Slice;
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, CommitFilter, ContextName, Event, EventName,
    Payload, Receipt, RecordedCommit,
};

use crate::{
    codec::{Result, checked, read_instant},
    engine::record::{Decoder, Encoder},
};

const FORMAT: u8 = 1;

/// The bytes of a commit, made on the caller's thread, with room for where it goes.
#[derive(Debug)]
pub(crate) struct Body {
    bytes: Encoder,
}

impl Body {
    pub(crate) fn new(commit: &CheckedCommit) -> Self {
        let mut to = Encoder::new(FORMAT, commit.encoded_size().saturating_add(256));
        to.u64(0).u32(0).u64(0).i64(0);
        let id = commit.aggregate_id();
        to.text(id.aggregate_type().name().as_str()).optional_text(id.tenant()).text(id.id());
        to.text(commit.command_id().as_str());
        to.optional_text(commit.metadata().map(Payload::as_json));
        to.u32(u32::try_from(commit.events().len()).unwrap_or(u32::MAX));
        for event in commit.events() {
            to.text(event.name.as_str()).u32(event.revision).text(event.body.as_json());
        }
        Self { bytes: to }
    }

    /// Puts in where it goes.
    pub(crate) fn place(&mut self, receipt: &Receipt) {
        let mut head = Encoder::new(FORMAT, 28);
        head.u64(receipt.version).u32(receipt.partition.index()).u64(receipt.position);
        head.i64(receipt.committed_at.as_millis());
        self.bytes.begin_with(&head);
    }

    /// The value for one of its keys.
    pub(crate) fn seal(&mut self, key: &[u8]) -> Slice {
        self.bytes.seal(key)
    }
}

/// Reads commits of one context. Names that come again are shared, not made again.
#[derive(Debug)]
pub(crate) struct Reader {
    context: ContextName,
    aggregate_type: Option<AggregateType>,
    aggregate_id: Option<AggregateId>,
    events: Vec<EventName>,
}

/// Event names that are remembered: as many as one aggregate type usually has.
const EVENT_NAMES: usize = 16;

impl Reader {
    pub(crate) fn new(context: ContextName) -> Self {
        Self { context, aggregate_type: None, aggregate_id: None, events: Vec::new() }
    }

    /// The commit in these bytes, if the filter lets it through.
    pub(crate) fn read(
        &mut self,
        key: &[u8],
        value: &Slice,
        filter: &CommitFilter,
    ) -> Result<Option<RecordedCommit>> {
        let (format, mut fields) = Decoder::open(key, value)?;
        if format != FORMAT {
            return Err(format!("unknown format {format}"));
        }
        let (version, partition, position) = (fields.u64()?, fields.u32()?, fields.u64()?);
        let committed_at = read_instant(&mut fields)?;
        let aggregate = fields.text()?;
        let (tenant, id) = (fields.optional_text()?, fields.text()?);
        if filter.aggregates().is_some_and(|names| !names.contains(aggregate)) {
            return Ok(None);
        }
        let command_id = fields.text()?;
        let metadata = fields.optional_text()?;
        let count = fields.u32()?;
        if !passes(filter, fields, count)? {
            return Ok(None);
        }
        let aggregate_id = self.aggregate_id(aggregate, tenant, id)?;
        let mut events = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(1024));
        for _ in 0..count {
            let name = self.event_name(fields.text()?)?;
            let revision = fields.u32()?;
            events.push(Event { name, revision, body: Payload::from_stored(fields.text()?) });
        }
        fields.end()?;
        Ok(Some(RecordedCommit {
            aggregate_id,
            version,
            command_id: checked(CommandId::new(command_id))?,
            partition,
            position,
            committed_at,
            metadata: metadata.map(Payload::from_stored),
            events,
        }))
    }

    fn aggregate_id(&mut self, aggregate: &str, tenant: Option<&str>, id: &str) -> Result<AggregateId> {
        if let Some(last) = &self.aggregate_id
            && last.id() == id
            && last.tenant() == tenant
            && last.aggregate_type().name() == aggregate
        {
            return Ok(last.clone());
        }
        let aggregate_type = match &self.aggregate_type {
            Some(last) if last.name() == aggregate => last.clone(),
            Some(_) | None => checked(AggregateType::new(&self.context, aggregate))?,
        };
        let made = checked(AggregateId::of(aggregate_type.clone(), id))?;
        let made = match tenant {
            Some(tenant) => checked(made.with_tenant(tenant))?,
            None => made,
        };
        self.aggregate_type = Some(aggregate_type);
        self.aggregate_id = Some(made.clone());
        Ok(made)
    }

    fn event_name(&mut self, name: &str) -> Result<EventName> {
        if let Some(known) = self.events.iter().find(|known| *known == name) {
            return Ok(known.clone());
        }
        let made = checked(EventName::new(name))?;
        if self.events.len() < EVENT_NAMES {
            self.events.push(made.clone());
        }
        Ok(made)
    }
}

/// Whether the filter wants one of the events.
fn passes(filter: &CommitFilter, mut events: Decoder<'_>, count: u32) -> Result<bool> {
    let Some(names) = filter.events() else { return Ok(true) };
    for _ in 0..count {
        if names.contains(events.text()?) {
            return Ok(true);
        }
        events.u32()?;
        events.bytes()?;
    }
    Ok(false)
}
