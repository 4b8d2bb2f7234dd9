//! SierraDB as a library, with all its defaults. Its checks of versions are on; command ids ride as metadata, as it has
//! none.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use sierradb::{
    StreamId,
    database::{Database, DatabaseBuilder, ExpectedVersion, NewEvent, Transaction},
    id::{uuid_to_partition_hash, uuid_v7_with_partition_hash},
};
use smallvec::smallvec;
use twox_hash::XxHash3_64;
use uuid::Uuid;

use crate::{
    load::{Appends, EVENT, Item, Side},
    sides::{AGGREGATE, partition_of},
};

pub(crate) struct Sierra(Database);

impl Appends for Sierra {
    async fn append(&self, item: Item) -> Result<()> {
        // All events of a stream have the same partition key.
        let hash = XxHash3_64::oneshot(item.id.as_bytes());
        let key = Uuid::from_u64_pair(hash, hash.rotate_left(32));
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let event = NewEvent {
            event_id: uuid_v7_with_partition_hash(uuid_to_partition_hash(key)),
            stream_id: StreamId::new(format!("{AGGREGATE}/{}", item.id))?,
            stream_version: match item.expected.checked_sub(1) {
                Some(last) => ExpectedVersion::Exact(last),
                None => ExpectedVersion::Empty,
            },
            event_name: EVENT.to_owned(),
            timestamp: u64::try_from(now.as_nanos())?,
            metadata: item.command.into_bytes(),
            payload: item.body.json.clone().into_bytes(),
        };
        let partition = u16::try_from(partition_of(&item.id))?;
        self.0.append_events(Transaction::new(key, partition, smallvec![event])?).await?;
        Ok(())
    }
}

impl Side for Sierra {
    const NAME: &'static str = "SierraDB 0.3.1 (defaults)";

    async fn open(directory: &Path) -> Result<Self> {
        let directory = directory.to_path_buf();
        let database = tokio::task::spawn_blocking(move || DatabaseBuilder::new().open(directory)).await??;
        Ok(Self(database))
    }

    async fn close(self) -> Result<()> {
        self.0.shutdown().await;
        Ok(())
    }
}
