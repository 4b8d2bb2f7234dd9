//! What several of these tests need: reading a store as a whole, and checking that its parts agree.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use futures_util::TryStreamExt as _;
use wow_store_api::{
    AggregateId, AggregateType, CommandId, Commit, ContextName, EventLog as _, PartitionId, ReadPage,
    RecordedCommit, Result, StoreExt as _,
};
use wow_store_embedded::EmbeddedStore;

pub fn context(name: &str) -> ContextName {
    ContextName::new(name).unwrap()
}

pub fn order(id: impl AsRef<str>) -> AggregateId {
    AggregateId::new("shop", "order", id).unwrap()
}

/// A commit with one event that holds `bytes` bytes of text.
pub fn commit(id: &AggregateId, command: impl Into<String>, bytes: usize) -> Commit {
    Commit::new(id.clone(), command)
        .event("Happened", 1, &serde_json::json!({ "amount": 19.90, "text": "x".repeat(bytes) }))
        .unwrap()
}

/// Everything of a context's log, by partition.
pub async fn whole_log(store: &EmbeddedStore, context: &ContextName) -> Result<Vec<Vec<RecordedCommit>>> {
    let heads = store.heads(context).await?;
    let mut log = Vec::new();
    for (index, head) in (0..).zip(heads) {
        let mut commits: Vec<RecordedCommit> = Vec::new();
        let mut after = 0;
        loop {
            let partition = PartitionId::new(context.clone(), index);
            let page = store.read(ReadPage::new(partition, after).with_max_commits(500)).await?;
            after = page.through;
            commits.extend(page.commits);
            if !page.more {
                break;
            }
        }
        let positions: Vec<u64> = commits.iter().map(|commit| commit.position).collect();
        assert_eq!(positions, (1..=head).collect::<Vec<_>>(), "the log is gapless up to its head");
        assert!(commits.is_sorted_by_key(|commit| commit.committed_at), "instants never fall");
        log.push(commits);
    }
    Ok(log)
}

/// Reads everything of a context and checks that all indexes agree with its log. Returns the commits by aggregate and
/// command.
pub async fn check_context(
    store: &EmbeddedStore,
    context: &ContextName,
) -> Result<BTreeMap<(AggregateId, CommandId), RecordedCommit>> {
    let count = store.partitions(context).await?;
    let mut streams: BTreeMap<AggregateId, Vec<RecordedCommit>> = BTreeMap::new();
    let mut commands = BTreeMap::new();
    for (index, commits) in (0..).zip(whole_log(store, context).await?) {
        for commit in commits {
            assert_eq!(commit.partition, index);
            assert_eq!(
                count.partition_of(&commit.aggregate_id).index(),
                index,
                "a commit is where it belongs"
            );
            let receipt = store.receipt(&commit.aggregate_id, &commit.command_id).await?;
            assert_eq!(receipt, Some(commit.receipt().replay()), "the receipt says where the commit is");
            let key = (commit.aggregate_id.clone(), commit.command_id.clone());
            streams.entry(commit.aggregate_id.clone()).or_default().push(commit.clone());
            assert!(commands.insert(key, commit).is_none(), "a command is stored once");
        }
    }
    let mut types: BTreeSet<AggregateType> = BTreeSet::new();
    for (id, commits) in streams {
        let versions: Vec<u64> = commits.iter().map(|commit| commit.version).collect();
        let last = u64::try_from(versions.len()).unwrap();
        assert_eq!(versions, (1..=last).collect::<Vec<_>>(), "versions are dense");
        assert_eq!(store.head(&id).await?, last, "the head is the last version");
        let loaded: Vec<RecordedCommit> = store.load(&id, ..).await?.try_collect().await?;
        assert_eq!(loaded, commits, "the aggregate's stream is the log's");
        types.insert(id.aggregate_type().clone());
    }
    let stored = store.aggregate_types().await?.into_iter();
    let stored: BTreeSet<AggregateType> = stored.filter(|it| it.context() == context).collect();
    assert_eq!(stored, types, "the types are those of the commits");
    Ok(commands)
}

/// Copies a directory with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
