//! Faults of queries (Q1, Q3): what filters mean. Those of order, pages and waiting are in [`super::query_pages`].

use async_trait::async_trait;
use wow_store_api::{
    AggregateType, Error, EventLog as _, MemoryStore, Queries, Result, Timestamp,
    payload::Number,
    query::{EventPage, EventQuery, Field, Filter, Path, Scalar, SnapshotPage, SnapshotQuery},
};

use super::{Mutant, mutants};

mutants! { QueryFault in "query":
    /// A string equals the number that it spells.
    TextEqualsNumber => ["query::eq_needs_kind_and_value"],
    /// An array equals what it holds.
    ArrayEqualsElement => ["query::eq_needs_kind_and_value"],
    /// What is missing equals null.
    MissingEqualsNull => ["query::eq_needs_kind_and_value"],
    /// What is missing is not unequal to anything.
    NeNeedsAValue => [
        "query::ne_is_all_the_rest",
        "query::envelope_of_snapshots",
    ],
    /// A range of numbers finds strings too.
    RangesMixKinds => [
        "query::ranges_of_numbers_go_by_value",
        "query::not_and_or_combine",
    ],
    /// A range of strings takes in its end.
    RangesTakeInTheirEnd => [
        "query::ranges_of_strings_go_by_bytes",
        "query::envelope_of_snapshots",
        "query::instants_are_compared_as_instants",
    ],
    /// Numbers that are compared with go through floats.
    NumbersThroughFloats => [
        "query::eq_needs_kind_and_value",
        "query::long_numbers_are_exact",
    ],
    /// One of none is all.
    InOfNothingIsAll => ["query::in_is_any_of_them"],
    /// Only the first of a list counts.
    InTakesTheFirst => [
        "query::in_is_any_of_them",
        "query::envelope_of_snapshots",
        "query::instants_are_compared_as_instants",
    ],
    /// A string contains only itself.
    ContainsIsEqual => [
        "query::contains_looks_into_arrays_and_strings",
        "query::text_that_looks_like_code_is_data",
        "query::envelope_of_snapshots",
    ],
    /// A `%` in a part that is looked for stands for anything.
    ContainsReadsPatterns => [
        "query::contains_looks_into_arrays_and_strings",
        "query::text_that_looks_like_code_is_data",
    ],
    /// The case of a prefix does not count.
    PrefixIgnoresCase => [
        "query::starts_with_looks_at_bytes",
        "query::text_that_looks_like_code_is_data",
        "query::envelope_of_events",
    ],
    /// A `%` or `_` in a prefix stands for anything.
    PrefixReadsPatterns => ["query::starts_with_looks_at_bytes"],
    /// A null is as good as nothing.
    NullDoesNotExist => [
        "query::exists_sees_nulls",
        "query::envelope_of_snapshots",
        "query::envelope_of_events",
    ],
    /// A filter turned round does not hold where the value is missing.
    NotNeedsAValue => [
        "query::eq_needs_kind_and_value",
        "query::ranges_of_numbers_go_by_value",
        "query::ranges_of_strings_go_by_bytes",
        "query::in_is_any_of_them",
        "query::contains_looks_into_arrays_and_strings",
        "query::starts_with_looks_at_bytes",
    ],
    /// Any of no filters holds.
    OrOfNothingHolds => ["query::not_and_or_combine"],
    /// A string that starts with `$` is read as the name of a field.
    DollarIsAField => ["query::text_that_looks_like_code_is_data"],
    /// Dots in keys are steps.
    DotsAreSteps => ["query::keys_are_data"],
    /// Keys that start with `$` are never found.
    DollarKeysAreMissing => ["query::keys_are_data"],
    /// Numbers lead into arrays.
    StepsIntoArrays => ["query::steps_into_arrays_lead_nowhere"],
    /// Where there is no tenant, there is an empty one.
    NoTenantIsEmpty => [
        "query::envelope_of_snapshots",
        "query::envelope_of_events",
    ],
    /// Instants of whole seconds are compared by a text without milliseconds.
    InstantsAsText => ["query::instants_are_compared_as_instants"],
    /// The metadata cannot be asked for.
    MetadataIsMissing => ["query::metadata_of_events"],
    /// A commit is found whole.
    FindsWholeCommits => [
        "query::envelope_of_events",
        "query::events_are_found_one_by_one",
    ],
    /// An item does not say when it was stored.
    ForgetsWhen => [
        "query::envelope_of_snapshots",
        "query::envelope_of_events",
    ],
    /// An event does not say which tenant's it is.
    ForgetsTheTenant => ["query::envelope_of_events"],
    /// The case of a type does not count.
    TypesIgnoreCase => ["query::other_types_are_not_seen"],
    /// The revision does not count.
    FindsAnyRevision => [
        "query::only_the_revision_asked_for",
        "query_pages::largest_page_is_fine",
    ],
    /// A snapshot that lags behind its log is not found.
    HidesLagging => ["query::snapshots_are_found_as_they_are"],
    /// A type that was never used is refused.
    UnusedIsRefused => ["query::unused_type_is_empty"],
    /// Opened again, nothing is found.
    ForgetsAtReopen => [
        "query::survives_reopen",
        "snapshot::ahead_of_a_restored_log_is_not_used",
    ],
}

/// Puts every filter in a filter through `change`, from the inside out.
fn map(filter: &Filter, change: &impl Fn(Filter) -> Filter) -> Filter {
    let all = |filters: &[Filter]| filters.iter().map(|filter| map(filter, change)).collect();
    change(match filter {
        Filter::Not(inner) => Filter::Not(Box::new(map(inner, change))),
        Filter::And(filters) => Filter::And(all(filters)),
        Filter::Or(filters) => Filter::Or(all(filters)),
        other => other.clone(),
    })
}

fn nothing() -> Filter {
    Filter::Or(Vec::new())
}

fn text(scalar: &Scalar) -> Option<&str> {
    match scalar {
        Scalar::String(text) => Some(text),
        _ => None,
    }
}

fn field(filter: &Filter) -> Option<&Field> {
    match filter {
        Filter::Eq(field, _)
        | Filter::Ne(field, _)
        | Filter::Lt(field, _)
        | Filter::Le(field, _)
        | Filter::Gt(field, _)
        | Filter::Ge(field, _)
        | Filter::In(field, _)
        | Filter::Contains(field, _)
        | Filter::StartsWith(field, _)
        | Filter::Exists(field) => Some(field),
        Filter::All | Filter::Not(_) | Filter::And(_) | Filter::Or(_) => None,
    }
}

fn with_field(filter: Filter, field: Field) -> Filter {
    match filter {
        Filter::Eq(_, scalar) => Filter::Eq(field, scalar),
        Filter::Ne(_, scalar) => Filter::Ne(field, scalar),
        Filter::Lt(_, scalar) => Filter::Lt(field, scalar),
        Filter::Le(_, scalar) => Filter::Le(field, scalar),
        Filter::Gt(_, scalar) => Filter::Gt(field, scalar),
        Filter::Ge(_, scalar) => Filter::Ge(field, scalar),
        Filter::In(_, scalars) => Filter::In(field, scalars),
        Filter::Contains(_, scalar) => Filter::Contains(field, scalar),
        Filter::StartsWith(_, prefix) => Filter::StartsWith(field, prefix),
        Filter::Exists(_) => Filter::Exists(field),
        other => other,
    }
}

fn through_float(scalar: Scalar) -> Scalar {
    match &scalar {
        Scalar::Number(number) => {
            let float = format!("{:e}", number.to_f64_lossy());
            float.parse::<Number>().map_or(scalar, Scalar::Number)
        }
        _ => scalar,
    }
}

impl Mutant {
    fn faulty_equal(&self, filter: Filter) -> Filter {
        match filter {
            Filter::Eq(field, scalar) => {
                let number = text(&scalar).and_then(|text| text.parse::<Number>().ok());
                let equal = Filter::Eq(field.clone(), scalar.clone());
                if let Some(number) = number
                    && matches!(field, Field::Body(_))
                    && self.is(QueryFault::TextEqualsNumber)
                {
                    return equal.or(Filter::Eq(field, Scalar::Number(number)));
                }
                if scalar == Scalar::Null && self.is(QueryFault::MissingEqualsNull) {
                    return equal.or(Filter::Not(Box::new(Filter::Exists(field))));
                }
                if matches!(field, Field::Body(_))
                    && text(&scalar).is_none()
                    && self.is(QueryFault::ArrayEqualsElement)
                {
                    return equal.or(Filter::Contains(field, scalar));
                }
                equal
            }
            Filter::Ne(field, scalar) if self.is(QueryFault::NeNeedsAValue) => {
                Filter::And(vec![Filter::Exists(field.clone()), Filter::Ne(field, scalar)])
            }
            Filter::In(_, scalars) if scalars.is_empty() && self.is(QueryFault::InOfNothingIsAll) => {
                Filter::All
            }
            Filter::In(field, scalars) if scalars.len() > 1 && self.is(QueryFault::InTakesTheFirst) => {
                Filter::In(field, scalars.into_iter().take(1).collect())
            }
            other => other,
        }
    }

    fn wrong_query_range(&self, filter: Filter) -> Filter {
        let is_text = |scalar: &Scalar| text(scalar).is_some();
        match filter {
            Filter::Gt(field, scalar)
                if matches!(field, Field::Body(_))
                    && !is_text(&scalar)
                    && self.is(QueryFault::RangesMixKinds) =>
            {
                Filter::Gt(field.clone(), scalar).or(Filter::StartsWith(field, String::new()))
            }
            Filter::Gt(Field::At, Scalar::String(text)) => {
                let whole = text.strip_suffix(".000Z").map(|second| format!("{second}.999Z"));
                match whole {
                    Some(last) if self.is(QueryFault::InstantsAsText) => Filter::Gt(Field::At, last.into()),
                    _ => Filter::Gt(Field::At, text.into()),
                }
            }
            Filter::Gt(field, scalar) if is_text(&scalar) && self.is(QueryFault::RangesTakeInTheirEnd) => {
                Filter::Ge(field, scalar)
            }
            Filter::Lt(field, scalar) if is_text(&scalar) && self.is(QueryFault::RangesTakeInTheirEnd) => {
                Filter::Le(field, scalar)
            }
            other => other,
        }
    }

    fn faulty_text(&self, filter: Filter) -> Filter {
        match filter {
            Filter::Contains(field, scalar)
                if text(&scalar).is_some() && self.is(QueryFault::ContainsIsEqual) =>
            {
                Filter::Eq(field, scalar)
            }
            Filter::Contains(field, Scalar::String(part))
                if part.contains('%') && self.is(QueryFault::ContainsReadsPatterns) =>
            {
                Filter::Contains(field, part.replace(['%', '_'], "").into())
            }
            Filter::StartsWith(field, prefix) if self.is(QueryFault::PrefixIgnoresCase) => {
                let lower = Filter::StartsWith(field.clone(), prefix.to_lowercase());
                lower.or(Filter::StartsWith(field, prefix.to_uppercase()))
            }
            Filter::StartsWith(field, prefix)
                if prefix.starts_with(['%', '_']) && self.is(QueryFault::PrefixReadsPatterns) =>
            {
                Filter::StartsWith(field, String::new())
            }
            Filter::Exists(Field::Tenant) if self.is(QueryFault::NoTenantIsEmpty) => Filter::All,
            Filter::Exists(field) if self.is(QueryFault::NullDoesNotExist) => {
                Filter::And(vec![Filter::Exists(field.clone()), Filter::Ne(field, Scalar::Null)])
            }
            other => other,
        }
    }

    fn faulty_operands(&self, filter: Filter) -> Filter {
        let has_dollar = |scalar: &Scalar| text(scalar).is_some_and(|text| text.starts_with('$'));
        let number = |scalar: &Scalar| matches!(scalar, Scalar::Number(_));
        match filter {
            Filter::Eq(_, ref scalar) if has_dollar(scalar) && self.is(QueryFault::DollarIsAField) => {
                nothing()
            }
            Filter::Eq(field, scalar) if number(&scalar) && self.is(QueryFault::NumbersThroughFloats) => {
                Filter::Eq(field, through_float(scalar))
            }
            Filter::Gt(field, scalar) if number(&scalar) && self.is(QueryFault::NumbersThroughFloats) => {
                Filter::Gt(field, through_float(scalar))
            }
            other => other,
        }
    }

    fn faulty_path(&self, filter: Filter) -> Filter {
        let path = match field(&filter) {
            Some(Field::Metadata(_)) if self.is(QueryFault::MetadataIsMissing) => return nothing(),
            Some(Field::Body(path)) => path.clone(),
            _ => return filter,
        };
        let segments = path.segments();
        if segments.iter().any(|segment| segment.starts_with('$'))
            && self.is(QueryFault::DollarKeysAreMissing)
        {
            return nothing();
        }
        if segments.iter().any(|segment| segment.contains('.')) && self.is(QueryFault::DotsAreSteps) {
            let steps = segments.iter().flat_map(|segment| segment.split('.'));
            let steps = Path::new(steps).expect("a valid path");
            return with_field(filter, Field::Body(steps));
        }
        if segments.last().is_some_and(|segment| segment == "0")
            && segments.len() > 1
            && self.is(QueryFault::StepsIntoArrays)
        {
            let array = Path::new(segments[..segments.len() - 1].to_vec()).expect("a valid path");
            return filter.or(Filter::Contains(Field::Body(array), "a".into()));
        }
        filter
    }

    fn faulty_combination(&self, filter: Filter) -> Filter {
        match filter {
            Filter::Or(filters) if filters.is_empty() && self.is(QueryFault::OrOfNothingHolds) => Filter::All,
            Filter::Not(inner) => match field(&inner).cloned() {
                Some(field)
                    if !matches!(*inner, Filter::Exists(_)) && self.is(QueryFault::NotNeedsAValue) =>
                {
                    Filter::And(vec![Filter::Exists(field), Filter::Not(inner)])
                }
                _ => Filter::Not(inner),
            },
            other => other,
        }
    }

    fn wrong_query_filter(&self, filter: &Filter) -> Filter {
        // One after the other: what one makes is not looked at by the next.
        let filter = map(filter, &|filter| self.faulty_path(filter));
        let filter = map(&filter, &|filter| self.faulty_operands(filter));
        let filter = map(&filter, &|filter| self.wrong_query_range(filter));
        let filter = map(&filter, &|filter| self.faulty_text(filter));
        let filter = map(&filter, &|filter| self.faulty_equal(filter));
        map(&filter, &|filter| self.faulty_combination(filter))
    }

    pub(super) fn queried(&self) -> &MemoryStore {
        match self.reopened() > 0 && self.is(QueryFault::ForgetsAtReopen) {
            true => self.spare(),
            false => self.store(),
        }
    }

    async fn check_used(&self, aggregate_type: &AggregateType) -> Result<()> {
        let used = self.store().aggregate_types().await?.contains(aggregate_type);
        match !used && self.is(QueryFault::UnusedIsRefused) {
            true => Err(Error::invalid_input("there is no such type")),
            false => Ok(()),
        }
    }

    /// The types that a query of one runs over.
    async fn queried_types(&self, asked: &AggregateType) -> Result<Vec<AggregateType>> {
        let mut types = self.store().aggregate_types().await?;
        types.retain(|it| it != asked && it.to_string().eq_ignore_ascii_case(&asked.to_string()));
        let others = !types.is_empty() && self.is(QueryFault::TypesIgnoreCase);
        let mut queried = vec![asked.clone()];
        queried.extend(types.into_iter().filter(|_| others));
        Ok(queried)
    }

    async fn find_snapshots(&self, mut query: SnapshotQuery) -> Result<SnapshotPage> {
        query.filter = self.wrong_query_filter(&query.filter);
        let mut page = self.query_snapshot_page(query.clone()).await?;
        for other in self.queried_types(&query.aggregate_type).await?.into_iter().skip(1) {
            let query = SnapshotQuery { aggregate_type: other, at_least: None, after: None, ..query.clone() };
            page.items.extend(self.queried().query_snapshots(query).await?.items);
        }
        for revision in (0..4).filter(|revision| *revision != query.revision) {
            let query = SnapshotQuery { revision, at_least: None, after: None, ..query.clone() };
            let items = self.queried().query_snapshots(query).await?.items;
            if !items.is_empty() && self.is(QueryFault::FindsAnyRevision) {
                page.items.extend(items);
            }
        }
        for item in std::mem::take(&mut page.items) {
            let lags = self.store().head(&item.aggregate_id).await? > item.version;
            if !(lags && self.is(QueryFault::HidesLagging)) {
                page.items.push(item);
            }
        }
        for item in &mut page.items {
            item.state = self.served_payload(item.state.clone());
            if self.is(QueryFault::ForgetsWhen) {
                item.saved_at = Timestamp::UNIX_EPOCH;
            }
        }
        Ok(page)
    }

    async fn find_events(&self, mut query: EventQuery) -> Result<EventPage> {
        query.filter = self.wrong_query_filter(&query.filter);
        let mut page = self.query_event_page(query.clone()).await?;
        for other in self.queried_types(&query.aggregate_type).await?.into_iter().skip(1) {
            let query = EventQuery { aggregate_type: other, at_least: None, after: None, ..query.clone() };
            page.items.extend(self.queried().query_events(query).await?.items);
        }
        if query.filter != Filter::All && self.is(QueryFault::FindsWholeCommits) {
            let all = EventQuery { filter: Filter::All, after: None, limit: 1_000, at_least: None, ..query };
            let found = std::mem::take(&mut page.items);
            page.items = self.store().query_events(all).await?.items;
            page.items.retain(|item| {
                found.iter().any(|it| (it.partition, it.position) == (item.partition, item.position))
            });
        }
        for item in &mut page.items {
            item.body = self.served_payload(item.body.clone());
            item.metadata = item.metadata.take().map(|metadata| self.served_payload(metadata));
            if self.is(QueryFault::ForgetsWhen) {
                item.committed_at = Timestamp::UNIX_EPOCH;
            }
            if item.aggregate_id.tenant().is_some() && self.is(QueryFault::ForgetsTheTenant) {
                let (of, id) = (item.aggregate_id.aggregate_type().clone(), item.aggregate_id.id());
                item.aggregate_id = wow_store_api::AggregateId::of(of, id)?;
            }
        }
        Ok(page)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Queries for Mutant {
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage> {
        let Some(query) = self.checked_snapshot_query(query)? else {
            return Ok(SnapshotPage { items: Vec::new(), next: None });
        };
        self.check_used(&query.aggregate_type).await?;
        self.find_snapshots(query).await
    }

    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64> {
        let Some(query) = self.checked_snapshot_query(query)? else { return Ok(0) };
        self.check_used(&query.aggregate_type).await?;
        let all = SnapshotQuery { limit: 1_000, after: None, sort: Vec::new(), ..query.clone() };
        let found = self.find_snapshots(all).await?.items.len();
        self.counted(found, query.limit)
    }

    async fn query_events(&self, query: EventQuery) -> Result<EventPage> {
        let Some(query) = self.checked_event_query(query)? else {
            return Ok(EventPage { items: Vec::new(), next: None });
        };
        self.check_used(&query.aggregate_type).await?;
        self.find_events(query).await
    }

    async fn count_events(&self, query: EventQuery) -> Result<u64> {
        let Some(query) = self.checked_event_query(query)? else { return Ok(0) };
        self.check_used(&query.aggregate_type).await?;
        let all = EventQuery { limit: 1_000, after: None, sort: Vec::new(), ..query.clone() };
        let found = self.find_events(all).await?.items.len();
        self.counted(found, query.limit)
    }
}
