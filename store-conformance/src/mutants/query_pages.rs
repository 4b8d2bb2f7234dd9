//! Faults of queries (Q1, Q3): order, pages, counts, projection and waiting.

use std::{future::Future, time::Duration};

use tokio::time::Instant;
use wow_store_api::{
    ErrorKind, EventLog as _, Queries as _, Result,
    query::{
        AtLeast, Cursor, EventPage, EventQuery, Field, Filter, MAX_SORT_FIELDS, Path, SnapshotPage,
        SnapshotQuery, Sort, TieBreaker,
    },
};

use super::{Mutant, mutants};

mutants! { QueryPageFault in "query_pages":
    /// What has no value to sort by is left out.
    SortLeavesOutMissing => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::order_by_several_fields",
        "query_pages::projection_keeps_only_what_is_asked_for",
        "query_pages::largest_page_is_fine",
    ],
    /// Numbers are sorted by their text.
    SortsNumbersByText => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::pages_give_each_item_once",
    ],
    /// Only the first field of a sort counts.
    SortsByTheFirst => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::order_by_several_fields",
        "query_pages::events_are_sorted_by_body_and_envelope",
    ],
    /// The direction of a sort does not count.
    SortsOneWay => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::order_by_several_fields",
        "query_pages::events_are_sorted_by_body_and_envelope",
        "query_pages::pages_give_each_item_once",
        "query_pages::pages_hold_under_concurrent_writes",
    ],
    /// What ties goes by id, then tenant.
    TiesByIdFirst => [
        "query_pages::ties_go_by_tenant_and_id",
        "query_pages::cursor_goes_behind_an_item_that_is_gone",
        "query_pages::filter_may_change_between_pages",
        "query_pages::largest_page_is_fine",
    ],
    /// Events without a sort go by the ids of their aggregates.
    EventsGoById => [
        "query_pages::events_come_in_the_order_of_the_log",
        "query_pages::next_cursor_only_if_there_is_more",
        "query_pages::count_is_of_all_pages",
    ],
    /// A page starts with the item that the one before ended with.
    CursorRepeats => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::order_by_several_fields",
        "query_pages::ties_go_by_tenant_and_id",
        "query_pages::pages_give_each_item_once",
        "query_pages::pages_hold_under_concurrent_writes",
        "query_pages::filter_may_change_between_pages",
        "query_pages::cursor_of_another_query_is_refused",
    ],
    /// A page leaves out the item behind the cursor.
    CursorSkips => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::order_by_several_fields",
        "query_pages::ties_go_by_tenant_and_id",
        "query_pages::events_come_in_the_order_of_the_log",
        "query_pages::events_are_sorted_by_body_and_envelope",
        "query_pages::pages_give_each_item_once",
        "query_pages::cursor_goes_behind_an_item_that_is_gone",
        "query_pages::pages_hold_under_concurrent_writes",
        "query_pages::filter_may_change_between_pages",
        "query_pages::cursor_of_another_query_is_refused",
    ],
    /// A cursor is the number of items before it.
    CursorIsANumber => [
        "query_pages::cursor_goes_behind_an_item_that_is_gone",
        "query_pages::pages_hold_under_concurrent_writes",
        "query_pages::filter_may_change_between_pages",
    ],
    /// A short page that comes last is not offered.
    ForgetsTheLastPage => [
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::ties_go_by_tenant_and_id",
        "query_pages::pages_give_each_item_once",
        "query_pages::next_cursor_only_if_there_is_more",
        "query_pages::pages_hold_under_concurrent_writes",
    ],
    /// Whether there is more is asked without the filter.
    MoreIgnoresTheFilter => ["query_pages::next_cursor_only_if_there_is_more"],
    /// A cursor of another query is not looked at.
    CursorIsNotChecked => ["query_pages::cursor_of_another_query_is_refused"],
    /// A count is of one page.
    CountsOnePage => ["query_pages::count_is_of_all_pages"],
    /// A projection is not looked at.
    ProjectionIsIgnored => ["query_pages::projection_keeps_only_what_is_asked_for"],
    /// Dots in projected keys are steps.
    ProjectionReadsDots => ["query_pages::projection_keeps_only_what_is_asked_for"],
    /// What cannot be asked finds nothing.
    BadFindsNothing => [
        "query_pages::cursor_of_another_query_is_refused",
        "query_pages::bad_requests_are_refused",
    ],
    /// The most fields to sort by are refused.
    RefusesTheMost => ["query_pages::largest_page_is_fine"],
    /// Nothing is waited for.
    DoesNotWait => [
        "query_pages::waits_for_a_snapshot",
        "query_pages::waits_for_an_event",
        "query_pages::wait_times_out",
    ],
    /// A wait is over at once.
    GivesUpAtOnce => [
        "query_pages::waits_for_a_snapshot",
        "query_pages::waits_for_an_event",
        "query_pages::wait_times_out",
    ],
    /// A wait for what is there waits all the same.
    WaitsForWhatIsThere => ["query_pages::waits_for_nothing_that_is_there"],
    /// A wait for a snapshot waits for the log only.
    WaitsForTheLogOnly => [
        "query_pages::waits_for_a_snapshot",
        "query_pages::wait_times_out",
    ],
}

/// Asks as the store does, but waits on the clock of the run: `ask` with no time to wait, until there is an answer or
/// the time that the query gave is over.
async fn patiently<T, F>(within: Option<Duration>, ask: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = within.map(|within| Instant::now() + within);
    loop {
        let answer = ask().await;
        let may_come = deadline.is_some_and(|deadline| Instant::now() < deadline);
        match &answer {
            Err(error) if may_come && *error.kind() == ErrorKind::Timeout => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            _ => return answer,
        }
    }
}

/// A place in an order that counts items.
fn place(cursor: &Cursor) -> String {
    format!("behind {cursor}")
}

impl Mutant {
    /// The query as it is run; `None` if it finds nothing.
    pub(super) fn checked_snapshot_query(&self, mut query: SnapshotQuery) -> Result<Option<SnapshotQuery>> {
        if query.check().is_err() && query.after.is_some() && self.is(QueryPageFault::CursorIsNotChecked) {
            query.after = None;
        }
        if query.check().is_err() && self.is(QueryPageFault::BadFindsNothing) {
            return Ok(None);
        }
        if query.sort.len() == MAX_SORT_FIELDS && self.is(QueryPageFault::RefusesTheMost) {
            query.sort.push(Sort::ascending(Field::Id));
        }
        query.check()?;
        query.projection = self.faulty_projection(query.projection);
        Ok(Some(query))
    }

    /// The query as it is run; `None` if it finds nothing.
    pub(super) fn checked_event_query(&self, mut query: EventQuery) -> Result<Option<EventQuery>> {
        if query.check().is_err() && query.after.is_some() && self.is(QueryPageFault::CursorIsNotChecked) {
            query.after = None;
        }
        if query.check().is_err() && self.is(QueryPageFault::BadFindsNothing) {
            return Ok(None);
        }
        query.check()?;
        query.projection = self.faulty_projection(query.projection);
        Ok(Some(query))
    }

    fn faulty_projection(&self, projection: Option<Vec<Path>>) -> Option<Vec<Path>> {
        let paths = projection.filter(|_| !self.is(QueryPageFault::ProjectionIsIgnored))?;
        let has_dot = |path: &Path| path.segments().iter().any(|segment| segment.contains('.'));
        if paths.iter().any(has_dot) && self.is(QueryPageFault::ProjectionReadsDots) {
            let steps = |path: Path| {
                let steps: Vec<String> =
                    path.segments().iter().flat_map(|it| it.split('.')).map(str::to_owned).collect();
                Path::new(steps).expect("a valid path")
            };
            return Some(paths.into_iter().map(steps).collect());
        }
        Some(paths)
    }

    pub(super) fn counted(&self, found: usize, limit: usize) -> Result<u64> {
        let counted = match found > limit && self.is(QueryPageFault::CountsOnePage) {
            true => limit,
            false => found,
        };
        Ok(u64::try_from(counted).unwrap_or(u64::MAX))
    }

    /// The sort as it is run. Cursors are made anew for it, so those of one page fit the next.
    fn faulty_sort(&self, mut sort: Vec<Sort>, is_event: bool) -> Vec<Sort> {
        if is_event && sort.is_empty() && self.is(QueryPageFault::EventsGoById) {
            return vec![Sort::ascending(Field::Id)];
        }
        if sort.len() > 1 && self.is(QueryPageFault::SortsByTheFirst) {
            sort.truncate(1);
        }
        if sort.iter().any(|sort| sort.descending) && self.is(QueryPageFault::SortsOneWay) {
            sort.iter_mut().for_each(|sort| sort.descending = false);
        }
        if !is_event && self.is(QueryPageFault::TiesByIdFirst) {
            sort.push(Sort::ascending(Field::Id));
        }
        sort
    }

    fn faulty_found(&self, filter: Filter, sort: &[Sort]) -> Filter {
        match sort.first() {
            Some(first) if self.is(QueryPageFault::SortLeavesOutMissing) => {
                filter.and(Filter::Exists(first.field.clone()))
            }
            _ => filter,
        }
    }

    /// How a query waits: what is left to the store, and how long to ask again.
    async fn faulty_wait(&self, at_least: &mut Option<AtLeast>, is_event: bool) -> Result<Option<Duration>> {
        let Some(wait) = at_least.as_mut() else { return Ok(None) };
        let within = std::mem::take(&mut wait.within);
        if self.is(QueryPageFault::DoesNotWait) {
            *at_least = None;
            return Ok(None);
        }
        if !within.is_zero() && self.is(QueryPageFault::GivesUpAtOnce) {
            return Ok(None);
        }
        if within.is_zero() && self.is(QueryPageFault::WaitsForWhatIsThere) {
            wait.version = wow_store_api::MAX_COUNTER;
            return Ok(None);
        }
        let has_it = self.store().head(&wait.aggregate_id).await? >= wait.version;
        if !is_event && has_it && self.is(QueryPageFault::WaitsForTheLogOnly) {
            *at_least = None;
            return Ok(None);
        }
        Ok(Some(within))
    }

    /// A page of snapshots.
    pub(super) async fn query_snapshot_page(&self, mut query: SnapshotQuery) -> Result<SnapshotPage> {
        let within = self.faulty_wait(&mut query.at_least, false).await?;
        let asked = query.clone();
        query.filter = self.faulty_found(query.filter, &query.sort);
        query.sort = self.faulty_sort(query.sort, false);
        let is_changed = query.sort != asked.sort;
        if is_changed {
            // A cursor of the order that was asked for means the same place in this one.
            query.after = None;
            query.limit = 1_000;
        }
        if let Some(after) = &asked.after
            && self.is(QueryPageFault::CursorIsANumber)
        {
            query.after = None;
            query.limit = 1_000;
            let mut page = self.queried().query_snapshots(query.clone()).await?;
            let before: usize = self.shared().get(&place(after)).unwrap_or_default();
            page.items.drain(..before.min(page.items.len()));
            let more = page.items.len() > asked.limit;
            page.items.truncate(asked.limit);
            page.next = match page.items.last() {
                Some(last) if more => self.cursor_behind_snapshot(&asked, last.aggregate_id.clone()).await?,
                _ => None,
            };
            if let Some(next) = &page.next {
                self.shared().put(place(next), before + asked.limit);
            }
            return Ok(page);
        }
        let mut page = patiently(within, || self.queried().query_snapshots(query.clone())).await?;
        if is_changed {
            return self.snapshots_in_another_order(&asked, page).await;
        }
        if let Some(next) = &page.next {
            self.shared().put(place(next), asked.limit);
        }
        self.faulty_snapshot_page(&asked, &mut page).await?;
        Ok(page)
    }

    async fn faulty_snapshot_page(&self, asked: &SnapshotQuery, page: &mut SnapshotPage) -> Result<()> {
        if let Some(TieBreaker::Snapshot { id, .. }) = asked.after.as_ref().map(Cursor::tie_breaker)
            && !page.items.is_empty()
        {
            if self.is(QueryPageFault::CursorRepeats) {
                let again = Filter::Eq(Field::Id, id.as_str().into());
                let again = SnapshotQuery { filter: again, after: None, at_least: None, ..asked.clone() };
                let items = self.queried().query_snapshots(again).await?.items;
                page.items.splice(0..0, items.into_iter().take(1));
                page.items.truncate(asked.limit);
            }
            if self.is(QueryPageFault::CursorSkips) {
                page.items.remove(0);
            }
        }
        let sorts_numbers = asked.sort.first().is_some_and(|sort| matches!(sort.field, Field::Body(_)));
        if sorts_numbers && page.items.len() > 9 && self.is(QueryPageFault::SortsNumbersByText) {
            page.items.sort_by(|a, b| a.state.as_json().cmp(b.state.as_json()));
        }
        if let Some(next) = page.next.clone()
            && self.is(QueryPageFault::ForgetsTheLastPage)
        {
            let rest = SnapshotQuery { after: Some(next), at_least: None, ..asked.clone() };
            if self.queried().query_snapshots(rest).await?.items.len() < asked.limit {
                page.next = None;
            }
        }
        if page.next.is_none()
            && asked.filter != Filter::All
            && page.items.len() == asked.limit
            && self.is(QueryPageFault::MoreIgnoresTheFilter)
        {
            let all = SnapshotQuery { filter: Filter::All, at_least: None, ..asked.clone() };
            page.next = self.queried().query_snapshots(all).await?.next;
        }
        Ok(())
    }

    /// The cursor behind an aggregate, in the order that was asked for.
    async fn cursor_behind_snapshot(
        &self,
        asked: &SnapshotQuery,
        id: wow_store_api::AggregateId,
    ) -> Result<Option<Cursor>> {
        let all = SnapshotQuery { after: None, at_least: None, limit: 1_000, ..asked.clone() };
        let items = self.queried().query_snapshots(all.clone()).await?.items;
        let Some(at) = items.iter().position(|item| item.aggregate_id == id) else { return Ok(None) };
        Ok(self.queried().query_snapshots(all.with_limit(at + 1)).await?.next)
    }

    /// A page of what came in another order than was asked for.
    async fn snapshots_in_another_order(
        &self,
        asked: &SnapshotQuery,
        mut page: SnapshotPage,
    ) -> Result<SnapshotPage> {
        if let Some(TieBreaker::Snapshot { id, tenant }) = asked.after.as_ref().map(Cursor::tie_breaker) {
            let at = page.items.iter().position(|item| {
                item.aggregate_id.id() == id && item.aggregate_id.tenant().unwrap_or_default() == tenant
            });
            page.items.drain(..at.map_or(0, |at| at + 1));
        }
        let more = page.items.len() > asked.limit;
        page.items.truncate(asked.limit);
        page.next = match page.items.last() {
            Some(last) if more => self.cursor_behind_snapshot(asked, last.aggregate_id.clone()).await?,
            _ => None,
        };
        Ok(page)
    }

    /// A page of events.
    pub(super) async fn query_event_page(&self, mut query: EventQuery) -> Result<EventPage> {
        let within = self.faulty_wait(&mut query.at_least, true).await?;
        let asked = query.clone();
        query.filter = self.faulty_found(query.filter, &query.sort);
        query.sort = self.faulty_sort(query.sort, true);
        if query.sort != asked.sort {
            // All on one page: the order shows there.
            query.after = None;
            query.limit = 1_000;
            let page = patiently(within, || self.queried().query_events(query.clone())).await?;
            return Ok(EventPage { items: page.items, next: None });
        }
        let mut page = patiently(within, || self.queried().query_events(query.clone())).await?;
        if asked.after.is_some() && !page.items.is_empty() && self.is(QueryPageFault::CursorSkips) {
            page.items.remove(0);
        }
        Ok(page)
    }
}
