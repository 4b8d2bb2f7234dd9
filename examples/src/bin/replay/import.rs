//! From the file to the log: one task reads, many append.

use std::{fs::File, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use tokio::{sync::mpsc, task::JoinSet};
use wow_store_api::{ContextName, EventStore};
use wow_store_examples::progress::{Progress, Unit};

use crate::{
    case::{Case, Cases},
    totals::Totals,
    xes::{XesError, XesReader},
};

/// What an import came to.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    /// What is in the file.
    pub(crate) totals: Totals,
    /// Attributes that the reader does not take.
    pub(crate) left_out: u64,
    /// Commits that were stored now.
    pub(crate) stored: u64,
    /// Commits that had been stored by an earlier run.
    pub(crate) found: u64,
}

/// Opens the file and reads up to its root: what is no log at all is refused before there is a store.
pub(crate) fn open(path: &Path) -> Result<XesReader> {
    let file = File::open(path).map_err(|error| {
        XesError::new(format!("it cannot be opened: {error}; give the path of a log, e.g. LOG.xes.gz"))
    })?;
    let size = file.metadata()?.len();
    let mut reader = XesReader::new(Progress::new("reading", size, Unit::Bytes).reading(file))?;
    // A line is only named where the cases before it are stored.
    reader.begin().map_err(|error| XesError::new(error.to_string()))?;
    Ok(reader)
}

/// Stores every case of the file. At most `in_flight` cases are appended at a time: each append waits for the disk, and
/// the store takes all that wait to it in one go.
pub(crate) async fn import(
    store: &Arc<dyn EventStore>,
    reader: XesReader,
    context: &ContextName,
    in_flight: usize,
) -> Result<Imported> {
    let cases = Cases::new(context)?;
    // Bounded: a slow store holds back the reader, not memory.
    let (sender, mut receiver) = mpsc::channel(64);
    let reading = tokio::task::spawn_blocking(move || read(reader, cases, &sender));

    let mut imported = Imported::default();
    let mut tasks = JoinSet::new();
    while let Some(case) = receiver.recv().await {
        if tasks.len() >= in_flight
            && let Some(done) = tasks.join_next().await
        {
            imported.add(done??);
        }
        tasks.spawn(store_case(Arc::clone(store), case));
    }
    while let Some(done) = tasks.join_next().await {
        imported.add(done??);
    }
    // Only now: what comes before an error in the file is whole, and stored.
    (imported.totals, imported.left_out) = reading.await??;
    Ok(imported)
}

fn read(mut reader: XesReader, mut cases: Cases, sender: &mpsc::Sender<Case>) -> Result<(Totals, u64)> {
    while let Some(trace) = reader.next_trace()? {
        if sender.blocking_send(cases.case(trace)?).is_err() {
            break; // an append has failed, and says so itself
        }
    }
    if cases.totals.cases == 0 {
        return Err(XesError::at(
            reader.line(),
            "the log ends here and has no <trace>: is it the right file?",
        )
        .into());
    }
    Ok((cases.totals, reader.left_out()))
}

struct Stored {
    now: u64,
    before: u64,
}

impl Imported {
    fn add(&mut self, stored: Stored) {
        self.stored += stored.now;
        self.found += stored.before;
    }
}

/// Stores what is not there yet of a case, event by event.
async fn store_case(store: Arc<dyn EventStore>, case: Case) -> Result<Stored> {
    // Versions are dense and a case is stored in order: what is there is its beginning.
    let mut before = store.head(&case.id).await?;
    let events = u64::try_from(case.commits.len())?;
    ensure!(
        before <= events,
        "{} has {before} commits in the store and {events} in the file: the store holds another version of this log; \
         choose another --data or --context",
        case.id
    );
    let mut now = 0;
    for commit in case.commits.into_iter().skip(usize::try_from(before)?) {
        let receipt = store.append_checked(commit).await.context("a case could not be stored")?;
        if receipt.is_replayed() {
            before += 1; // somebody else is storing the same log
        } else {
            now += 1;
        }
    }
    Ok(Stored { now, before })
}
