//! Whether the bare loop writes what the store writes: a comparison is worth nothing otherwise.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use fjall::{Database, KeyspaceCreateOptions};

use crate::{
    load::{Body, Side, Until, write},
    sides::{bare::Bare, store::Store},
};

const COMMITS: usize = 100;
/// The keyspaces that commits go to.
const SPACES: [&str; 4] = ["log", "stream", "command", "state"];

/// Keys with the length of their values, by keyspace.
type Written = BTreeMap<(&'static str, Vec<u8>), usize>;

/// Lets both append the same commits, and compares what they left.
pub(crate) async fn check(scratch: &Path) -> Result<()> {
    let directory = tempfile::tempdir_in(scratch)?;
    let (ours, theirs) = (directory.path().join("store"), directory.path().join("bare"));
    append::<Store>(&ours).await?;
    append::<Bare>(&theirs).await?;
    let ours = written(&ours.join("db"))?;
    let theirs = written(&theirs)?;
    // What the store keeps about itself, once for all, is not there.
    for (key, length) in &theirs {
        ensure!(
            ours.get(key) == Some(length),
            "the bare loop does not write what the store writes: see {}, {:02x?}",
            key.0,
            key.1
        );
    }
    let commits = |written: &Written| written.keys().filter(|(space, _)| *space != "state").count();
    ensure!(
        commits(&ours) == commits(&theirs) && commits(&theirs) == COMMITS * 3,
        "the bare loop writes {} items, the store {}",
        commits(&theirs),
        commits(&ours)
    );
    let bytes: usize = theirs.iter().map(|((_, key), value)| key.len() + value).sum();
    println!("store and bare loop write the same keys: 3 items, {} bytes a commit", bytes / COMMITS);
    Ok(())
}

async fn append<S: Side>(directory: &Path) -> Result<()> {
    let side = Arc::new(S::open(directory).await?);
    write(&side, &Body::new()?, "same", 1, Until::Commits(COMMITS)).await?;
    Arc::into_inner(side).context("a writer still runs")?.close().await
}

fn written(database: &Path) -> Result<Written> {
    let database = Database::builder(database).open()?;
    let mut written = Written::new();
    for space in SPACES {
        let keyspace = database.keyspace(space, KeyspaceCreateOptions::default)?;
        for entry in keyspace.iter() {
            let (key, value) = entry.into_inner()?;
            written.insert((space, key.to_vec()), value.len());
        }
    }
    Ok(written)
}
