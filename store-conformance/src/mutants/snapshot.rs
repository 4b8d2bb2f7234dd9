//! Faults of snapshots (S1 to S4).

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, AggregateType, Commit, EventLog as _, MAX_REVISION, Payload, Result, SaveSnapshot, Snapshot,
    SnapshotSaved, Snapshots, Timestamp, Version,
};

use super::{Mutant, mutants};

mutants! { SnapshotFault in "snapshot":
    /// Where there is none, an empty one is returned.
    AbsentIsEmpty => [
        "snapshot::absent_one_is_none",
        "snapshot::another_revision_is_not_returned",
        "snapshot::higher_revision_replaces_at_any_version",
        "snapshot::delete_drops_one",
        "snapshot::drop_takes_all_of_one_type",
        "snapshot::dropped_one_is_rebuilt_at_any_version",
        "snapshot::ahead_of_a_restored_log_is_not_used",
    ],
    /// A snapshot does not say when it was saved.
    ForgetsWhen => [
        "snapshot::saved_one_comes_back",
        "query::envelope_of_snapshots",
    ],
    /// The first one of an aggregate stays.
    FirstStays => [
        "snapshot::newer_one_replaces",
        "snapshot::same_version_is_replaced",
        "snapshot::latest_wins_whatever_the_order",
        "snapshot::latest_wins_under_concurrent_saves",
        "snapshot::version_decides_within_one_instant",
        "snapshot::higher_revision_replaces_at_any_version",
        "snapshot::ahead_of_the_log_is_refused",
        "snapshot::version_and_revision_have_bounds",
        "snapshot::dropped_one_is_rebuilt_at_any_version",
        "query::snapshots_are_found_as_they_are",
        "query_pages::waits_for_a_snapshot",
        "snapshot::ahead_of_a_restored_log_is_not_used",
        "snapshot::state_comes_back_exactly",
    ],
    /// An older one of the same revision replaces a newer one.
    OlderReplaces => [
        "snapshot::older_one_is_kept_out",
        "snapshot::latest_wins_whatever_the_order",
        "snapshot::latest_wins_under_concurrent_saves",
        "snapshot::version_decides_within_one_instant",
        "snapshot::survives_reopen",
    ],
    /// One of the same version does not replace the stored one.
    SameIsKept => [
        "snapshot::same_version_is_replaced",
        "snapshot::latest_wins_under_concurrent_saves",
    ],
    /// Whether the stored one is older is looked at first, and the new one is written then.
    LooksThenWrites => [
        "snapshot::latest_wins_under_concurrent_saves",
        "snapshot::ahead_of_the_log_is_refused",
    ],
    /// One that was saved later is newer, whatever its version.
    TimeDecides => ["snapshot::version_decides_within_one_instant"],
    /// It does not say that an older one was kept out.
    KeptLooksSaved => [
        "snapshot::older_one_is_kept_out",
        "snapshot::lower_revision_is_kept_out",
        "snapshot::survives_reopen",
    ],
    /// The revision is not looked at when one is read.
    ReturnsAnyRevision => [
        "snapshot::another_revision_is_not_returned",
        "snapshot::higher_revision_replaces_at_any_version",
    ],
    /// A higher revision replaces a lower one only at a higher version.
    RevisionNeedsVersion => ["snapshot::higher_revision_replaces_at_any_version"],
    /// A lower revision replaces a higher one.
    LowerRevisionReplaces => ["snapshot::lower_revision_is_kept_out"],
    /// One that is ahead of the log is taken as one of its last version.
    TakesWhatIsAhead => [
        "snapshot::ahead_of_the_log_is_refused",
        "snapshot::version_and_revision_have_bounds",
    ],
    /// Version and revision are moved into their bounds.
    MovesIntoBounds => ["snapshot::version_and_revision_have_bounds"],
    /// Revision 0 is refused.
    RefusesRevisionZero => [
        "snapshot::version_and_revision_have_bounds",
        "snapshot::dropped_one_is_rebuilt_at_any_version",
        "query::only_the_revision_asked_for",
    ],
    /// The numbers of a state go through floats.
    StateThroughFloats => [
        "snapshot::state_comes_back_exactly",
        "query::eq_needs_kind_and_value",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::projection_keeps_only_what_is_asked_for",
    ],
    /// The tenant is not part of the key.
    TenantsShare => [
        "snapshot::aggregates_and_tenants_are_separate",
        "snapshot::delete_drops_one",
        "snapshot::drop_takes_all_of_one_type",
        "query::envelope_of_snapshots",
        "query_pages::ties_go_by_tenant_and_id",
    ],
    /// The case of an id does not count.
    IdsIgnoreCase => [
        "snapshot::aggregates_and_tenants_are_separate",
        "query::envelope_of_snapshots",
        "query_pages::ties_go_by_tenant_and_id",
    ],
    /// Deleting says that there was one, whether there was or not.
    DeleteSaysYes => [
        "snapshot::absent_one_is_none",
        "snapshot::version_and_revision_have_bounds",
        "snapshot::delete_drops_one",
    ],
    /// Deleting one deletes all of its type.
    DeletesAllOfTheType => [
        "snapshot::delete_drops_one",
        "query::snapshots_are_found_as_they_are",
        "query_pages::cursor_goes_behind_an_item_that_is_gone",
    ],
    /// Deleting does nothing.
    DeleteDoesNothing => [
        "snapshot::delete_drops_one",
        "snapshot::dropped_one_is_rebuilt_at_any_version",
        "query::snapshots_are_found_as_they_are",
    ],
    /// Dropping takes those of other types of the context too.
    DropsTheContext => ["snapshot::drop_takes_all_of_one_type"],
    /// Dropping tells of one at most.
    DropCountsOne => ["snapshot::drop_takes_all_of_one_type"],
    /// What was dropped still keeps older ones out.
    DroppedStillCounts => ["snapshot::dropped_one_is_rebuilt_at_any_version"],
    /// Saving a snapshot appends to the log.
    SavingAppends => [
        "snapshot::ahead_of_the_log_is_refused",
        "snapshot::saving_leaves_the_log_alone",
        "query::eq_needs_kind_and_value",
        "query::ne_is_all_the_rest",
        "query::ranges_of_numbers_go_by_value",
        "query::ranges_of_strings_go_by_bytes",
        "query::in_is_any_of_them",
        "query::contains_looks_into_arrays_and_strings",
        "query::starts_with_looks_at_bytes",
        "query::exists_sees_nulls",
        "query::not_and_or_combine",
        "query::instants_are_compared_as_instants",
        "query::other_types_are_not_seen",
        "query::unused_type_is_empty",
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::events_are_sorted_by_body_and_envelope",
        "query_pages::next_cursor_only_if_there_is_more",
        "query_pages::projection_keeps_only_what_is_asked_for",
        "query_pages::waits_for_nothing_that_is_there",
        "snapshot::ahead_of_a_restored_log_is_not_used",
    ],
    /// One that is ahead of its log is returned.
    AheadIsReturned => ["snapshot::ahead_of_a_restored_log_is_not_used"],
    /// One that is ahead of its log keeps others out.
    AheadKeepsOthersOut => ["snapshot::ahead_of_a_restored_log_is_not_used"],
    /// Opened again, the store knows of no snapshot.
    ForgetsAtReopen => [
        "snapshot::survives_reopen",
        "snapshot::ahead_of_a_restored_log_is_not_used",
    ],
}

impl Mutant {
    fn snapshot_id(&self, id: &AggregateId) -> AggregateId {
        let plain = |text: &str| AggregateId::of(id.aggregate_type().clone(), text).expect("a valid id");
        if id.tenant().is_some() && self.is(SnapshotFault::TenantsShare) {
            return plain(id.id());
        }
        let lower = id.tenant().map(str::to_lowercase);
        match lower {
            Some(lower) if Some(&*lower) != id.tenant() && self.is(SnapshotFault::IdsIgnoreCase) => {
                plain(id.id()).with_tenant(lower).expect("a valid tenant")
            }
            _ => id.clone(),
        }
    }

    /// Revision and version of what is stored, if it can be used.
    fn known_snapshot(&self, id: &AggregateId) -> Option<(u32, Version, Timestamp)> {
        self.shared().get::<Option<(u32, Version, Timestamp)>>(&format!("snapshot of {id}")).flatten()
    }

    fn note_snapshot(&self, id: &AggregateId, known: Option<(u32, Version, Timestamp)>) {
        self.shared().put(format!("snapshot of {id}"), known);
    }

    fn faulty_state(&self, state: Payload) -> Payload {
        if !state.as_json().contains(|c: char| c.is_ascii_digit())
            || !self.is(SnapshotFault::StateThroughFloats)
        {
            return state;
        }
        through_floats(&state)
    }

    async fn save_known(
        &self,
        save: SaveSnapshot,
        (revision, version, at): (u32, Version, Timestamp),
    ) -> Result<SnapshotSaved> {
        let kept = Ok(SnapshotSaved::Kept { revision, version });
        let same = revision == save.revision;
        if self.is(SnapshotFault::FirstStays)
            || same && version == save.version && self.is(SnapshotFault::SameIsKept)
            || at > self.time().await && self.is(SnapshotFault::TimeDecides)
            || revision < save.revision
                && version > save.version
                && self.is(SnapshotFault::RevisionNeedsVersion)
        {
            return kept;
        }
        if same && version > save.version && self.is(SnapshotFault::OlderReplaces)
            || revision > save.revision && self.is(SnapshotFault::LowerRevisionReplaces)
            || same && version < save.version && self.is(SnapshotFault::LooksThenWrites)
        {
            tokio::task::yield_now().await;
            self.store().delete_snapshot(&save.aggregate_id).await?;
        }
        let saved = self.store().save_snapshot(save).await?;
        if saved != SnapshotSaved::Saved && self.is(SnapshotFault::KeptLooksSaved) {
            return Ok(SnapshotSaved::Saved);
        }
        Ok(saved)
    }
}

/// The document, its numbers as floats.
pub(super) fn through_floats(payload: &Payload) -> Payload {
    fn floats(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(number) => {
                *value = number.as_f64().map_or(serde_json::Value::Null, serde_json::Value::from);
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(floats),
            serde_json::Value::Object(entries) => entries.values_mut().for_each(floats),
            _ => {}
        }
    }
    let Ok(mut value) = serde_json::from_str(payload.as_json()) else { return payload.clone() };
    floats(&mut value);
    Payload::from_serialize(&value).unwrap_or_else(|_| payload.clone())
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Snapshots for Mutant {
    async fn save_snapshot(&self, mut save: SaveSnapshot) -> Result<SnapshotSaved> {
        save.state = self.stored_payload(save.state);
        save.state = self.faulty_state(save.state);
        let asked_for = save.aggregate_id.clone();
        save.aggregate_id = self.snapshot_id(&asked_for);
        let head = self.store().head(&save.aggregate_id).await?;
        if save.version > head && head > 0 && self.is(SnapshotFault::TakesWhatIsAhead) {
            save.version = head;
        }
        if save.check().is_err() && self.is(SnapshotFault::MovesIntoBounds) {
            save.version = save.version.clamp(1, head);
            save.revision = save.revision.min(MAX_REVISION);
        }
        if save.revision == 0 && self.is(SnapshotFault::RefusesRevisionZero) {
            save.revision = MAX_REVISION + 1;
        }
        let (id, new) = (save.aggregate_id.clone(), (save.revision, save.version, self.time().await));
        if let Some((revision, version, _)) = self.known_snapshot(&id)
            && version > head
            && self.is(SnapshotFault::AheadKeepsOthersOut)
        {
            return Ok(SnapshotSaved::Kept { revision, version });
        }
        let saved = match self.known_snapshot(&id) {
            Some(known) => self.save_known(save, known).await?,
            None => {
                let dropped = self.shared().get::<Version>(&format!("dropped {id}")).unwrap_or_default();
                if dropped > save.version && self.is(SnapshotFault::DroppedStillCounts) {
                    return Ok(SnapshotSaved::Kept { revision: save.revision, version: dropped });
                }
                self.store().save_snapshot(save).await?
            }
        };
        if saved == SnapshotSaved::Saved {
            self.note_snapshot(&id, Some(new));
            if self.is(SnapshotFault::SavingAppends) {
                let marker = Commit::new(id, format!("snapshot {}", self.shared().count("markers")));
                let marker = marker.event("Saved", 1, &0)?.check()?;
                self.store().append_checked(marker).await?;
            }
        }
        Ok(saved)
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        if self.reopened() > 0 && self.is(SnapshotFault::ForgetsAtReopen) {
            return Ok(None);
        }
        let id = self.snapshot_id(aggregate_id);
        let mut found = self.store().snapshot(&id, revision).await?;
        match self.known_snapshot(&id) {
            Some((other, ..)) if other != revision && self.is(SnapshotFault::ReturnsAnyRevision) => {
                found = self.store().snapshot(&id, other).await?;
            }
            _ => {}
        }
        if let Some((_, version, saved_at)) = self.known_snapshot(&id).filter(|(of, ..)| *of == revision)
            && found.is_none()
            && version > self.store().head(&id).await?
            && self.is(SnapshotFault::AheadIsReturned)
        {
            let (aggregate_id, state) = (id.clone(), Payload::empty_object());
            found = Some(Snapshot { aggregate_id, version, revision, state, saved_at });
        }
        if found.is_none() && self.is(SnapshotFault::AbsentIsEmpty) {
            let (version, state) = (0, Payload::empty_object());
            found = Some(Snapshot {
                aggregate_id: id,
                version,
                revision,
                state,
                saved_at: Timestamp::UNIX_EPOCH,
            });
        }
        Ok(found.map(|mut snapshot| {
            snapshot.state = self.served_payload(snapshot.state);
            snapshot.aggregate_id = aggregate_id.clone();
            if self.is(SnapshotFault::ForgetsWhen) {
                snapshot.saved_at = Timestamp::UNIX_EPOCH;
            }
            snapshot
        }))
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        let id = self.snapshot_id(aggregate_id);
        if let Some((_, version, _)) = self.known_snapshot(&id) {
            if self.is(SnapshotFault::DeleteDoesNothing) {
                return Ok(true);
            }
            if self.is(SnapshotFault::DeletesAllOfTheType) {
                return Ok(self.store().drop_snapshots(id.aggregate_type()).await? > 0);
            }
            self.shared().put(format!("dropped {id}"), version);
        }
        self.note_snapshot(&id, None);
        let deleted = self.store().delete_snapshot(&id).await?;
        Ok(deleted || self.is(SnapshotFault::DeleteSaysYes))
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        // What a fault remembers of an aggregate that is dropped with its type does not count any more.
        let types = self.store().aggregate_types().await?;
        let mut dropped = self.store().drop_snapshots(aggregate_type).await?;
        if dropped > 1 && self.is(SnapshotFault::DropCountsOne) {
            dropped = 1;
        }
        if dropped > 0 && self.is(SnapshotFault::DropsTheContext) {
            for other in types.iter().filter(|other| other.context() == aggregate_type.context()) {
                self.store().drop_snapshots(other).await?;
            }
        }
        Ok(dropped)
    }
}
