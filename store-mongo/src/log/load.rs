//! The commits of one aggregate.

use std::ops::ControlFlow;

use futures_util::stream::{self, StreamExt as _};
use mongodb::bson::{Document, doc};
use wow_store_api::{
    AggregateId, CommitStream, Error, RecordedCommit, Result, Timestamp, Version, VersionRange,
};

use super::commit;
use crate::{
    attempts::Kind,
    db::Find,
    document::{instant, long},
    fault::Fault,
    macros::attempt,
    names,
    store::{Inner, MongoStore},
};

/// Commits in a page.
const PAGE_COMMITS: usize = 2_000;
/// Bytes of bodies in a page, about.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// One page, and where the next one starts.
type LoadedPage = (Vec<RecordedCommit>, Option<Version>);

/// What finds the commits of an aggregate.
pub(super) fn of_aggregate(aggregate_id: &AggregateId) -> Document {
    doc! { "tenant": aggregate_id.tenant().unwrap_or_default(), "id": aggregate_id.id() }
}

impl Inner {
    async fn load_page(
        &self,
        id: &AggregateId,
        versions: VersionRange,
        as_of: Option<Timestamp>,
    ) -> Result<LoadedPage, Fault> {
        let mut filter = of_aggregate(id);
        filter.insert("version", doc! { "$gte": long(versions.first), "$lte": long(versions.last) });
        if let Some(as_of) = as_of {
            filter.insert("committed_at", doc! { "$lte": instant(as_of) });
        }
        let collection = names::log(id.aggregate_type());
        let find =
            Find::new(filter).sorted(doc! { "tenant": 1, "id": 1, "version": 1 }).limited(PAGE_COMMITS);
        let mut commits: Vec<RecordedCommit> = Vec::new();
        let (mut version, mut bytes) = (versions.first, 0);
        self.db
            .each(&collection, find, |found| {
                let (commit, size) = commit::read(found, id.aggregate_type(), Some(id))?;
                if commit.version != version {
                    return Err(Fault::from(Error::corrupt(
                        format!("{id}, version {version}"),
                        format!("it is missing: version {} comes next", commit.version),
                    )));
                }
                version = version.saturating_add(1);
                bytes += size;
                commits.push(commit);
                Ok(if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })
            .await?;
        if let Some(last) = commits.last() {
            self.heads.seen(id, last.version);
        }
        // A page that is neither full nor heavy ended where the aggregate did.
        let more = (commits.len() >= PAGE_COMMITS || bytes >= PAGE_BYTES) && version <= versions.last;
        Ok((commits, more.then_some(version)))
    }
}

impl MongoStore {
    pub(super) async fn stream(
        &self,
        aggregate_id: &AggregateId,
        versions: VersionRange,
        as_of: Option<Timestamp>,
    ) -> Result<CommitStream> {
        // A range that was put together by hand may start before the first version.
        let versions = VersionRange { first: versions.first.max(1), ..versions };
        if versions.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let first = self.load(aggregate_id, versions, as_of).await?;
        let (store, aggregate_id) = (self.clone(), aggregate_id.clone());
        let pages = stream::unfold(Some(Ok(first)), move |page: Option<Result<LoadedPage>>| {
            let (store, aggregate_id) = (store.clone(), aggregate_id.clone());
            async move {
                match page? {
                    Ok((commits, next)) => {
                        let items: Vec<Result<RecordedCommit>> = commits.into_iter().map(Ok).collect();
                        let next = match next {
                            Some(first) => {
                                let rest = VersionRange { first, ..versions };
                                Some(store.load(&aggregate_id, rest, as_of).await)
                            }
                            None => None,
                        };
                        Some((items, next))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Ok(pages.flat_map(stream::iter).boxed())
    }

    async fn load(
        &self,
        aggregate_id: &AggregateId,
        versions: VersionRange,
        as_of: Option<Timestamp>,
    ) -> Result<LoadedPage> {
        self.check_open("load")?;
        attempt!(self.inner, Kind::Read, "load", self.inner.load_page(aggregate_id, versions, as_of).await)
    }
}
