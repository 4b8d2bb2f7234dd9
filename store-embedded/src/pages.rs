//! Pages of the log and of one aggregate: each from one snapshot, bounded in size, and never with a hole.

use std::{fmt, ops::Bound, sync::Arc};

use wow_store_api::{
    AggregateId, CommitFilter, Error, Page, PartitionCount, ReadPage, RecordedCommit, Result, Version,
    VersionRange,
};

use crate::{
    access::Records as _,
    append::version_of,
    codec::Head,
    commit::Reader,
    engine::{keys::after_prefix, space::Space, view::View},
    places,
};

/// How much one page takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    commits: usize,
    bytes: usize,
}

impl Limits {
    /// Read in place.
    pub(crate) const SMALL: Self = Self { commits: 32, bytes: 32 * 1024 };
    /// Read on a thread that may block.
    pub(crate) const LARGE: Self = Self { commits: 1_024, bytes: 2 * 1024 * 1024 };
}

/// Bytes of commits that one page looks at when the filter lets few through: then it goes on with the next.
const LOOKED_AT_BYTES: usize = 16 * 1024 * 1024;

/// Whether a commit is still to be delivered; the first that is not ends it.
pub(crate) type Keep = Arc<dyn Fn(&RecordedCommit) -> bool + Send + Sync>;

/// What to load of an aggregate.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) id: AggregateId,
    pub(crate) versions: VersionRange,
    pub(crate) keep: Keep,
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Load").field("id", &self.id).field("versions", &self.versions).finish_non_exhaustive()
    }
}

/// A page of an aggregate.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) commits: Vec<RecordedCommit>,
    /// Where to go on; `None` if there was nothing more.
    pub(crate) next: Option<Version>,
}

impl Load {
    /// The commits from `first` (inclusive) on.
    pub(crate) fn page(&self, view: &View, first: Version, limits: Limits) -> Result<Loaded> {
        let mut found = Loaded { commits: Vec::new(), next: None };
        if first > self.versions.last {
            return Ok(found);
        }
        let from = places::stream_at(&self.id, first);
        let to = places::stream_at(&self.id, self.versions.last);
        let range = (Bound::Included(from.as_slice()), Bound::Included(to.as_slice()));
        let mut reader = Reader::new(self.id.context().clone());
        let (mut expected, mut bytes) = (first, 0_usize);
        let everything = CommitFilter::all();
        for entry in view.range(Space::Stream, range) {
            if found.commits.len() >= limits.commits || bytes >= limits.bytes {
                found.next = Some(expected);
                break;
            }
            let (key, value) = entry?;
            let version = version_of(&key);
            if version != expected {
                let reason = format!("version {expected} is missing, there is version {version}");
                return Err(Error::corrupt(format!("stream of {}", self.id), reason));
            }
            let commit = reader.read(&key, &value, &everything).map_err(|reason| {
                Error::corrupt(format!("stream of {}, version {version}", self.id), reason)
            })?;
            let Some(commit) = commit.filter(|commit| (self.keep)(commit)) else { break };
            found.commits.push(commit);
            bytes = bytes.saturating_add(value.len());
            expected = expected.saturating_add(1);
        }
        Ok(found)
    }
}

/// How long reading a page takes.
#[derive(Debug)]
pub(crate) enum Pace {
    /// There is nothing to read.
    Done(Page),
    /// About a block.
    Short,
    /// It may be a lot.
    Long,
}

/// Looks at a request for a page.
pub(crate) fn pace(view: &View, page: &ReadPage) -> Result<Pace> {
    Ok(match head(view, page)? {
        head if head <= page.after_position => Pace::Done(Page::empty(page.after_position)),
        head if head - page.after_position <= 16 => Pace::Short,
        _ => Pace::Long,
    })
}

/// The last position of the partition; checks that the context has it.
fn head(view: &View, page: &ReadPage) -> Result<u64> {
    let partition = &page.partition;
    let count: Option<PartitionCount> = view.record(&places::context(partition.context()))?;
    match count.map(PartitionCount::get) {
        None => Ok(0),
        Some(count) if partition.index() >= count => Err(Error::invalid_input(format!(
            "partition {partition} does not exist: the context has {count}, counted from 0"
        ))),
        Some(_) => {
            let head: Option<Head> = view.record(&places::head(partition))?;
            Ok(head.map_or(0, |head| head.position))
        }
    }
}

/// One page of a partition.
pub(crate) fn read(view: &View, page: &ReadPage) -> Result<Page> {
    let head = head(view, page)?;
    let mut found = Page::empty(page.after_position);
    if head <= page.after_position {
        return Ok(found);
    }
    let partition = &page.partition;
    let from = places::log_at(partition, page.after_position.saturating_add(1));
    let end = after_prefix(places::log(partition).as_slice());
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let max_commits = page.max_commits.clamp(1, ReadPage::LIMIT_MAX_COMMITS);
    let missing = |position: u64| {
        let reason = format!("it is missing, the log goes to {head}");
        Error::corrupt(format!("log of {partition}, position {position}"), reason)
    };
    let mut reader = Reader::new(partition.context().clone());
    let (mut bytes, mut looked_at) = (0_usize, 0_usize);
    for entry in view.range(Space::Log, (Bound::Included(from.as_slice()), end)) {
        let (key, value) = entry?;
        let position = version_of(&key);
        if position != found.through.saturating_add(1) {
            return Err(missing(found.through.saturating_add(1)));
        }
        let commit = reader
            .read(&key, &value, &page.filter)
            .map_err(|reason| Error::corrupt(format!("log of {partition}, position {position}"), reason))?;
        found.through = position;
        looked_at = looked_at.saturating_add(value.len());
        if let Some(commit) = commit {
            let body_bytes = commit.events.iter().map(|event| event.body.as_json().len());
            bytes = body_bytes.fold(bytes, usize::saturating_add);
            found.commits.push(commit);
        }
        found.more = position < head;
        let is_full = found.commits.len() >= max_commits || bytes >= page.max_bytes.max(1);
        if !found.more || is_full || looked_at >= LOOKED_AT_BYTES {
            return Ok(found);
        }
    }
    Err(missing(found.through.saturating_add(1)))
}
