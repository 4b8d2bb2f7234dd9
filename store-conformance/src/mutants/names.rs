//! Faults of names and ids: folded, cut, mixed up.

use wow_store_api::{AggregateId, CommandId, Error, ErrorKind, Event, EventName, Result};

use super::{Mutant, mutants};

mutants! { NameFault in "names":
    /// Contexts that differ only in case are one.
    FoldsContexts => [
        "log::contexts_have_logs_of_their_own",
        "names::names_differ_by_case_and_by_their_separators",
        "names::names_that_mean_something_elsewhere_work",
    ],
    /// Aggregate types that differ only in case are one.
    FoldsTypes => [
        "log::aggregate_types_appear_with_their_first_commit",
        "names::names_differ_by_case_and_by_their_separators",
        "names::names_that_mean_something_elsewhere_work",
        "query::other_types_are_not_seen",
    ],
    /// Context and aggregate name are put together with one underscore.
    JoinsNames => [
        "names::names_differ_by_case_and_by_their_separators",
        "names::names_that_mean_something_elsewhere_work",
    ],
    /// A hyphen in a name is taken for an underscore.
    HyphensAreUnderscores => [
        "read::aggregates_of_several_types_are_merged_by_position",
        "names::names_differ_by_case_and_by_their_separators",
    ],
    /// Names are cut after forty bytes together.
    CutsNames => ["names::the_longest_names_are_kept_whole"],
    /// Contexts that start with `system` are refused.
    ReservesSystem => ["names::names_that_mean_something_elsewhere_work"],
    /// A context `con` is refused.
    ReservesDevices => ["names::names_that_mean_something_elsewhere_work"],
    /// Ids that differ only in case are one.
    FoldsIds => [
        "names::ids_are_compared_by_bytes",
        "names::strange_ids_come_back_as_they_were",
        "names::the_longest_ids_are_kept_whole",
        "ledger::list_pages_by_aggregate",
        "query::eq_needs_kind_and_value",
        "query::ne_is_all_the_rest",
        "query::ranges_of_numbers_go_by_value",
        "query::ranges_of_strings_go_by_bytes",
        "query::in_is_any_of_them",
        "query::contains_looks_into_arrays_and_strings",
        "query::starts_with_looks_at_bytes",
        "query::exists_sees_nulls",
        "query::not_and_or_combine",
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::ties_go_by_tenant_and_id",
    ],
    /// Blanks around an id are cut off.
    TrimsIds => [
        "names::ids_are_compared_by_bytes",
        "names::strange_ids_come_back_as_they_were",
        "snapshot::aggregates_and_tenants_are_separate",
    ],
    /// Ids are normalised.
    NormalisesIds => ["names::ids_are_compared_by_bytes"],
    /// Ids are cut after 63 bytes.
    CutsIds => ["names::the_longest_ids_are_kept_whole"],
    /// Quotes are taken out of ids.
    UnquotesIds => ["names::strange_ids_come_back_as_they_were"],
    /// An id is a path.
    IdsArePaths => ["names::strange_ids_come_back_as_they_were"],
    /// The tenant does not count.
    IgnoresTenants => [
        "log::a_command_id_belongs_to_its_aggregate",
        "log::recorded_commit_is_what_was_appended",
        "names::strange_ids_come_back_as_they_were",
        "names::the_longest_ids_are_kept_whole",
        "names::a_tenant_is_part_of_the_identity",
        "snapshot::aggregates_and_tenants_are_separate",
        "snapshot::delete_drops_one",
        "snapshot::drop_takes_all_of_one_type",
        "ledger::list_pages_by_aggregate",
        "query::envelope_of_snapshots",
        "query::envelope_of_events",
        "query_pages::ties_go_by_tenant_and_id",
    ],
    /// Tenants that differ only in case are one.
    FoldsTenants => [
        "names::strange_ids_come_back_as_they_were",
        "names::the_longest_ids_are_kept_whole",
        "names::a_tenant_is_part_of_the_identity",
        "snapshot::aggregates_and_tenants_are_separate",
        "query::envelope_of_snapshots",
        "query_pages::ties_go_by_tenant_and_id",
    ],
    /// Tenant and id are put together with a slash.
    JoinsTenantAndId => ["names::a_tenant_is_part_of_the_identity"],
    /// Commands that differ only in case are one.
    FoldsCommands => [
        "names::command_ids_are_compared_by_bytes",
        "names::the_longest_ids_are_kept_whole",
    ],
    /// Blanks around a command id are cut off.
    TrimsCommands => ["names::command_ids_are_compared_by_bytes"],
    /// Command ids are cut after 63 bytes.
    CutsCommands => ["names::the_longest_ids_are_kept_whole"],
    /// Blanks around an event's name are cut off.
    TrimsEvents => ["names::strange_event_names_come_back_as_they_were"],
    /// Event names are cut after 63 bytes.
    CutsEvents => ["names::the_longest_ids_are_kept_whole"],
    /// Event names are escaped once too often.
    EscapesEvents => ["names::strange_event_names_come_back_as_they_were"],
}

/// The text up to a number of bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

/// Takes the few letters for the same that the cases use.
fn normalised(text: &str) -> String {
    let composed = [("a\u{301}", "á"), ("e\u{301}", "é"), ("a\u{30a}", "å"), ("\u{212b}", "å"), ("ﬁ", "fi")];
    composed.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The id with its names and its texts changed; as it was if it would be none.
fn changed(
    id: &AggregateId,
    names: impl Fn(&str, &str) -> (String, String),
    texts: impl Fn(Option<&str>, &str) -> (Option<String>, String),
) -> AggregateId {
    let (context, aggregate) = names(id.context().as_str(), id.aggregate_type().name().as_str());
    let (tenant, text) = texts(id.tenant(), id.id());
    let made = AggregateId::new(context, aggregate, text).and_then(|id| match tenant {
        Some(tenant) => id.with_tenant(tenant),
        None => Ok(id),
    });
    made.unwrap_or_else(|_| id.clone())
}

impl Mutant {
    /// The names that an aggregate is stored under.
    fn stored_names(&self, id: &AggregateId) -> AggregateId {
        let keep = |tenant: Option<&str>, id: &str| (tenant.map(str::to_owned), id.to_owned());
        let names = |change: &dyn Fn(&str, &str) -> (String, String)| changed(id, change, keep);
        let (context, aggregate) = (id.context().as_str(), id.aggregate_type().name().as_str());
        let upper = |text: &str| text.contains(|c: char| c.is_ascii_uppercase());
        if upper(context) && self.is(NameFault::FoldsContexts) {
            return names(&|context, aggregate| (context.to_lowercase(), aggregate.to_owned()));
        }
        if upper(aggregate) && self.is(NameFault::FoldsTypes) {
            return names(&|context, aggregate| (context.to_owned(), aggregate.to_lowercase()));
        }
        if context.contains('_') && self.is(NameFault::JoinsNames) {
            return names(&|context, aggregate| {
                let joined = format!("{context}_{aggregate}");
                let (context, aggregate) = joined.split_once('_').unwrap_or_default();
                (context.to_owned(), aggregate.to_owned())
            });
        }
        let hyphen = context.contains('-') || aggregate.contains('-');
        if hyphen && self.is(NameFault::HyphensAreUnderscores) {
            return names(&|context, aggregate| (context.replace('-', "_"), aggregate.replace('-', "_")));
        }
        if context.len() + aggregate.len() > 40 && self.is(NameFault::CutsNames) {
            return names(&|context, aggregate| {
                let left = 40_usize.saturating_sub(context.len()).max(1);
                (cut(context, 39).to_owned(), cut(aggregate, left).to_owned())
            });
        }
        id.clone()
    }

    /// The id that an aggregate is stored under.
    pub(super) fn stored_id(&self, id: &AggregateId) -> AggregateId {
        let keep = |context: &str, aggregate: &str| (context.to_owned(), aggregate.to_owned());
        let ids = |change: &dyn Fn(&str) -> String| {
            changed(id, keep, |tenant, id| (tenant.map(str::to_owned), change(id)))
        };
        let text = id.id();
        if text != text.to_lowercase() && self.is(NameFault::FoldsIds) {
            return ids(&str::to_lowercase);
        }
        if text != text.trim() && self.is(NameFault::TrimsIds) {
            return ids(&|text| text.trim().to_owned());
        }
        if text != normalised(text) && self.is(NameFault::NormalisesIds) {
            return ids(&normalised);
        }
        if text.len() > 63 && self.is(NameFault::CutsIds) {
            return ids(&|text| cut(text, 63).to_owned());
        }
        if text.contains('\'') && self.is(NameFault::UnquotesIds) {
            return ids(&|text| text.replace('\'', ""));
        }
        if text.contains("..") && self.is(NameFault::IdsArePaths) {
            return ids(&|text| text.trim_start_matches("../").to_owned());
        }
        if let Some(tenant) = id.tenant() {
            if self.is(NameFault::IgnoresTenants) {
                return changed(id, keep, |_, id| (None, id.to_owned()));
            }
            if tenant != tenant.to_lowercase() && self.is(NameFault::FoldsTenants) {
                return changed(id, keep, |_, id| (Some(tenant.to_lowercase()), id.to_owned()));
            }
            if text.contains('/') && self.is(NameFault::JoinsTenantAndId) {
                return changed(id, keep, |_, id| {
                    let joined = format!("{tenant}/{id}");
                    let (tenant, id) = joined.rsplit_once('/').unwrap_or_default();
                    (Some(tenant.to_owned()), id.to_owned())
                });
            }
        }
        self.stored_names(id)
    }

    /// Refuses a name that is fine.
    pub(super) fn refused_name(&self, id: &AggregateId) -> Result<()> {
        let context = id.context().as_str();
        let refused = (context.starts_with("system") && self.is(NameFault::ReservesSystem))
            || (context == "con" && self.is(NameFault::ReservesDevices));
        if refused {
            let reason = "is reserved".to_owned();
            return Err(Error::not_applied(ErrorKind::InvalidName { what: "context name", reason }));
        }
        Ok(())
    }

    /// The id that a command is stored under.
    pub(super) fn stored_command_id(&self, command_id: &CommandId) -> CommandId {
        let text = command_id.as_str();
        let stored = if text != text.to_lowercase() && self.is(NameFault::FoldsCommands) {
            text.to_lowercase()
        } else if text != text.trim() && self.is(NameFault::TrimsCommands) {
            text.trim().to_owned()
        } else if text.len() > 63 && self.is(NameFault::CutsCommands) {
            cut(text, 63).to_owned()
        } else {
            return command_id.clone();
        };
        CommandId::new(stored).unwrap_or_else(|_| command_id.clone())
    }

    /// The name that an event is stored under.
    pub(super) fn stored_event(&self, event: &mut Event) {
        let text = event.name.as_str();
        let stored = if text != text.trim() && self.is(NameFault::TrimsEvents) {
            text.trim().to_owned()
        } else if text.len() > 63 && self.is(NameFault::CutsEvents) {
            cut(text, 63).to_owned()
        } else if text.contains('\\') && self.is(NameFault::EscapesEvents) {
            text.replace('\\', "\\\\")
        } else {
            return;
        };
        if let Ok(name) = EventName::new(stored) {
            event.name = name;
        }
    }
}
