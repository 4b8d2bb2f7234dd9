//! A bare group-commit loop on fjall: what an embedded store could reach at best on that engine.
//!
//! It writes what the store writes (the same keys, values of the same length, as many items in a batch) with the same
//! settings of fjall, and does nothing else: no look at versions or command ids, no checksums, no clock, no mark, no
//! wake-ups. One thread drains a channel, writes one batch with one sync, and answers. That it does write the same is
//! checked in each run: `embedded::same_keys`.

use std::{collections::BTreeMap, path::Path, sync::Arc, thread::JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Slice,
    compaction::Leveled,
    config::{BlockSizePolicy, CompressionPolicy},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    load::{Appends, EVENT, Item, Side},
    sides::{AGGREGATE, CONTEXT, partition_of},
};

type Message = (Item, oneshot::Sender<Result<()>>);

/// Items in a batch, and in the channel.
const BATCH: usize = 1024;
const QUEUE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Bare {
    queue: mpsc::Sender<Message>,
    writer: JoinHandle<()>,
}

struct Spaces {
    log: Keyspace,
    stream: Keyspace,
    command: Keyspace,
    state: Keyspace,
}

struct Writer {
    database: Database,
    spaces: Spaces,
    queue: mpsc::Receiver<Message>,
    heads: BTreeMap<u32, u64>,
    batch: u64,
}

impl Appends for Bare {
    async fn append(&self, item: Item) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.queue.send((item, reply)).await.ok().context("the writer has ended")?;
        answer.await?
    }
}

impl Side for Bare {
    const NAME: &'static str = "bare fjall loop";

    async fn open(directory: &Path) -> Result<Self> {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let path = directory.to_path_buf();
        let writer = tokio::task::spawn_blocking(move || Writer::open(&path, receiver)).await??;
        let writer = std::thread::Builder::new().spawn(move || writer.run())?;
        Ok(Self { queue, writer })
    }

    async fn close(self) -> Result<()> {
        drop(self.queue);
        tokio::task::spawn_blocking(move || self.writer.join())
            .await?
            .map_err(|_| anyhow!("the writer panicked"))
    }
}

impl Writer {
    fn open(directory: &Path, queue: mpsc::Receiver<Message>) -> Result<Self> {
        let database = Database::builder(directory)
            .cache_size(64 * 1024 * 1024)
            .worker_threads(2)
            .max_journaling_size(512 * 1024 * 1024)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .open()?;
        let open = |name, block, memtable| {
            database.keyspace(name, || {
                KeyspaceCreateOptions::default()
                    .manual_journal_persist(true)
                    .max_memtable_size(memtable)
                    .data_block_size_policy(BlockSizePolicy::all(block))
                    .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                    .compaction_strategy(Arc::new(Leveled::default()))
            })
        };
        let spaces = Spaces {
            log: open("log", 16 * 1024, 64 * 1024 * 1024)?,
            stream: open("stream", 16 * 1024, 64 * 1024 * 1024)?,
            command: open("command", 4 * 1024, 32 * 1024 * 1024)?,
            state: open("state", 4 * 1024, 16 * 1024 * 1024)?,
        };
        Ok(Self { database, spaces, queue, heads: BTreeMap::new(), batch: 0 })
    }

    fn run(mut self) {
        let (mut incoming, mut replies) = (Vec::new(), Vec::new());
        while self.queue.blocking_recv_many(&mut incoming, BATCH) > 0 {
            let written = self.write(&mut incoming, &mut replies);
            for reply in replies.drain(..) {
                let told = match &written {
                    Ok(()) => Ok(()),
                    Err(error) => Err(anyhow!("{error:#}")),
                };
                let _: std::result::Result<(), _> = reply.send(told);
            }
        }
    }

    fn write(
        &mut self,
        incoming: &mut Vec<Message>,
        replies: &mut Vec<oneshot::Sender<Result<()>>>,
    ) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        let mut touched = BTreeMap::new();
        let mut buffer = Vec::with_capacity(1024);
        for (item, reply) in incoming.drain(..) {
            replies.push(reply);
            let partition = partition_of(&item.id);
            let position = self.heads.entry(partition).or_insert(0);
            *position += 1;
            touched.insert(partition, *position);
            let version = item.expected + 1;
            let commit = commit(&mut buffer, &item, version, partition, *position);
            batch.insert(&self.spaces.log, log_key(&mut buffer, partition, *position), commit.clone());
            let aggregate = aggregate_key(&mut buffer, &item.id);
            buffer.extend_from_slice(&version.to_be_bytes());
            batch.insert(&self.spaces.stream, Slice::from(buffer.as_slice()), commit);
            buffer.truncate(aggregate);
            text(&mut buffer, &item.command);
            let command = Slice::from(buffer.as_slice());
            batch.insert(&self.spaces.command, command, receipt(&mut buffer, version, partition, *position));
        }
        for (partition, position) in touched {
            let key = head_key(&mut buffer, partition);
            batch.insert(&self.spaces.state, key, head(&mut buffer, partition, position));
        }
        self.batch += 1;
        batch.insert(&self.spaces.state, "\0batch", last_batch(&mut buffer, self.batch));
        Ok(batch.commit()?)
    }
}

/// In place of a checksum.
const NO_CHECKSUM: [u8; 8] = [0; 8];
/// In place of an instant.
const NO_INSTANT: [u8; 8] = [0; 8];
const FORMAT: u8 = 1;

fn text(key: &mut Vec<u8>, text: &str) {
    key.extend_from_slice(text.as_bytes());
    key.push(0);
}

fn log_key(buffer: &mut Vec<u8>, partition: u32, position: u64) -> Slice {
    buffer.clear();
    text(buffer, CONTEXT);
    buffer.extend_from_slice(&partition.to_be_bytes());
    buffer.extend_from_slice(&position.to_be_bytes());
    Slice::from(buffer.as_slice())
}

/// Gives its length: more is put behind it.
fn aggregate_key(buffer: &mut Vec<u8>, id: &str) -> usize {
    buffer.clear();
    text(buffer, CONTEXT);
    text(buffer, AGGREGATE);
    text(buffer, "");
    text(buffer, id);
    buffer.len()
}

fn head_key(buffer: &mut Vec<u8>, partition: u32) -> Slice {
    buffer.clear();
    buffer.push(4);
    text(buffer, CONTEXT);
    buffer.extend_from_slice(&partition.to_be_bytes());
    Slice::from(buffer.as_slice())
}

fn bytes(value: &mut Vec<u8>, bytes: &[u8]) {
    value.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    value.extend_from_slice(bytes);
}

fn place(value: &mut Vec<u8>, version: u64, partition: u32, position: u64) {
    value.clear();
    value.push(FORMAT);
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&partition.to_le_bytes());
    value.extend_from_slice(&position.to_le_bytes());
    value.extend_from_slice(&NO_INSTANT);
}

fn commit(buffer: &mut Vec<u8>, item: &Item, version: u64, partition: u32, position: u64) -> Slice {
    place(buffer, version, partition, position);
    bytes(buffer, AGGREGATE.as_bytes());
    buffer.push(0);
    bytes(buffer, item.id.as_bytes());
    bytes(buffer, item.command.as_bytes());
    buffer.push(0);
    buffer.extend_from_slice(&1_u32.to_le_bytes());
    bytes(buffer, EVENT.as_bytes());
    buffer.extend_from_slice(&1_u32.to_le_bytes());
    bytes(buffer, item.body.json.as_bytes());
    buffer.extend_from_slice(&NO_CHECKSUM);
    Slice::from(buffer.as_slice())
}

fn receipt(buffer: &mut Vec<u8>, version: u64, partition: u32, position: u64) -> Slice {
    place(buffer, version, partition, position);
    buffer.extend_from_slice(&NO_CHECKSUM);
    Slice::from(buffer.as_slice())
}

fn head(buffer: &mut Vec<u8>, partition: u32, position: u64) -> Slice {
    buffer.clear();
    buffer.push(FORMAT);
    buffer.extend_from_slice(&partition.to_le_bytes());
    buffer.extend_from_slice(&position.to_le_bytes());
    buffer.extend_from_slice(&NO_INSTANT);
    buffer.extend_from_slice(&NO_CHECKSUM);
    Slice::from(buffer.as_slice())
}

fn last_batch(buffer: &mut Vec<u8>, batch: u64) -> Slice {
    buffer.clear();
    buffer.push(FORMAT);
    buffer.extend_from_slice(&batch.to_le_bytes());
    buffer.extend_from_slice(&NO_CHECKSUM);
    Slice::from(buffer.as_slice())
}
