//! SQLite with the write-ahead log and a sync at every commit of a transaction, on the best group commit that it can
//! be given: one connection, whose thread puts whatever has queued into one transaction. A transaction for each append
//! would be far slower, so that is not what is compared with.
//!
//! Versions and command ids are kept apart by unique indexes; that a version follows the last one is not looked at.

use std::{collections::BTreeMap, path::Path, thread::JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use crate::{
    load::{Appends, Item, Side},
    sides::{AGGREGATE, partition_of},
};

type Message = (Item, oneshot::Sender<Result<()>>);

const BATCH: usize = 1024;
const QUEUE: usize = 4096;

/// The position is the row's number, with the partition in its upper bits: the table itself is the log.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE log (
        position INTEGER PRIMARY KEY,
        aggregate TEXT NOT NULL,
        version INTEGER NOT NULL,
        command TEXT NOT NULL,
        event TEXT NOT NULL,
        revision INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (aggregate, version),
        UNIQUE (aggregate, command)
    );
";
const INSERT: &str = "
    INSERT INTO log (position, aggregate, version, command, event, revision, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
";

#[derive(Debug)]
pub(crate) struct Sqlite {
    queue: mpsc::Sender<Message>,
    writer: JoinHandle<()>,
}

struct Writer {
    connection: Connection,
    queue: mpsc::Receiver<Message>,
    heads: BTreeMap<u32, i64>,
}

impl Appends for Sqlite {
    async fn append(&self, item: Item) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.queue.send((item, reply)).await.ok().context("the writer has ended")?;
        answer.await?
    }
}

impl Side for Sqlite {
    const NAME: &'static str = "SQLite (group commit)";

    async fn open(directory: &Path) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let connection = Connection::open(directory.join("log.sqlite"))?;
        connection.execute_batch(SCHEMA)?;
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        anyhow::ensure!(mode == "wal", "SQLite journals as {mode}, not with a write-ahead log");
        let (queue, receiver) = mpsc::channel(QUEUE);
        let writer = Writer { connection, queue: receiver, heads: BTreeMap::new() };
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
    fn run(mut self) {
        let mut incoming = Vec::new();
        while self.queue.blocking_recv_many(&mut incoming, BATCH) > 0 {
            let written = self.write(&incoming);
            for (_, reply) in incoming.drain(..) {
                let told = match &written {
                    Ok(()) => Ok(()),
                    Err(error) => Err(anyhow!("{error:#}")),
                };
                let _: std::result::Result<(), _> = reply.send(told);
            }
        }
    }

    fn write(&mut self, incoming: &[Message]) -> Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(INSERT)?;
            for (item, _) in incoming {
                let partition = partition_of(&item.id);
                let position = self.heads.entry(partition).or_insert(0);
                *position += 1;
                let aggregate = format!("{AGGREGATE}/{}", item.id);
                let version = i64::try_from(item.expected + 1)?;
                let place = (i64::from(partition) << 48) | *position;
                let event = &item.body.event;
                insert.execute(params![
                    place,
                    aggregate,
                    version,
                    item.command,
                    event.name.as_str(),
                    event.revision,
                    item.body.json
                ])?;
            }
        }
        Ok(transaction.commit()?)
    }
}
