//! Reservations (R1 to R5).

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, doc};
use wow_store_api::{
    ListReservations, Reservation, ReservationKey, ReservationOp, ReservationOutcome, ReservationScope,
    Reservations, Result,
    rules::{self, reservation::Write},
};

use super::{limit, starting_with};
use crate::{
    attempts::Kind,
    db::{Find, Work},
    document::{Fields as _, Writer},
    fault::Fault,
    macros::{attempt, transaction},
    names,
    store::{Inner, MongoStore},
};

pub(crate) fn id(scope: &ReservationScope, key: &ReservationKey) -> Document {
    doc! { "scope": scope.as_str(), "key": key.as_str() }
}

/// The keys that an operation looks at.
pub(crate) fn keys_of(op: &ReservationOp) -> Vec<(ReservationScope, ReservationKey)> {
    let keys = match op {
        ReservationOp::Reserve { key, .. }
        | ReservationOp::Confirm { key, .. }
        | ReservationOp::Release { key, .. } => vec![key],
        ReservationOp::Swap { from, to, .. } => vec![from, to],
    };
    keys.into_iter().map(|key| (op.scope().clone(), key.clone())).collect()
}

pub(crate) fn read(found: &RawDocument) -> Result<Reservation, Fault> {
    let id = found.part("_id")?;
    Ok(Reservation {
        scope: id.name("scope")?,
        key: id.name("key")?,
        owner: found.name("owner")?,
        expires_at: found.instant_or_none("expires_at")?,
        reserved_at: found.instant("reserved_at")?,
    })
}

pub(crate) async fn put(work: &mut Work<'_>, reservation: &Reservation) -> Result<(), Fault> {
    let mut to = Writer::new();
    to.begin_document("_id");
    to.text("scope", reservation.scope.as_str());
    to.text("key", reservation.key.as_str());
    to.close();
    to.text("owner", reservation.owner.as_str());
    if let Some(expires_at) = reservation.expires_at {
        to.instant("expires_at", expires_at);
    }
    to.instant("reserved_at", reservation.reserved_at);
    work.put(names::RESERVATION, to.finish()?).await
}

pub(crate) async fn delete(
    work: &mut Work<'_>,
    scope: &ReservationScope,
    key: &ReservationKey,
) -> Result<(), Fault> {
    work.delete(names::RESERVATION, doc! { "_id": id(scope, key) }).await.map(drop)
}

impl Inner {
    async fn reserve_in(&self, work: &mut Work<'_>, op: &ReservationOp) -> Result<ReservationOutcome, Fault> {
        let mut stored = Vec::new();
        for (scope, key) in keys_of(op) {
            let found = work.find_one(names::RESERVATION, doc! { "_id": id(&scope, &key) }).await?;
            stored.push((key, found.map(|found| read(&found)).transpose()?));
        }
        let now = self.now_in(work).await?;
        let (writes, outcome) = rules::reservation::decide(op, now, |key| {
            Ok(stored.iter().find(|(it, _)| it == key).and_then(|(_, reservation)| reservation.clone()))
        })?;
        for write in writes {
            match write {
                Write::Put(reservation) => put(work, &reservation).await?,
                Write::Delete(key) => delete(work, op.scope(), &key).await?,
            }
        }
        Ok(outcome)
    }
}

/// Not expired, by this clock.
fn is_live(now: mongodb::bson::Bson) -> Document {
    doc! { "$or": [
        { "$eq": [{ "$type": "$expires_at" }, "missing"] },
        { "$gt": ["$expires_at", now] },
    ] }
}

#[async_trait]
impl Reservations for MongoStore {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        const OPERATION: &str = "reserve";
        self.check_open(OPERATION)?;
        let inner = &self.inner;
        op.check().map_err(|error| inner.named(OPERATION, error))?;
        // To reserve or confirm twice is to do it once; a release or a swap that is repeated finds nothing to do.
        let kind = match op {
            ReservationOp::Reserve { .. } | ReservationOp::Confirm { .. } => Kind::Repeatable,
            ReservationOp::Release { .. } | ReservationOp::Swap { .. } => Kind::Once,
        };
        transaction!(inner, kind, OPERATION, |work| inner.reserve_in(work, &op).await)
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        self.check_open("reservation")?;
        attempt!(self.inner, Kind::Read, "reservation", {
            let filter = doc! { "_id": id(scope, key), "$expr": is_live(self.inner.now()) };
            let found = self.inner.db.find_one(names::RESERVATION, Find::new(filter)).await?;
            found.map(|found| read(&found)).transpose()
        })
    }

    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>> {
        self.check_open("reservations")?;
        if list.limit == 0 {
            return Ok(Vec::new());
        }
        attempt!(self.inner, Kind::Read, "reservations", {
            let mut conditions = vec![doc! { "$expr": is_live(self.inner.now()) }];
            if let Some(scope) = &list.scope {
                conditions.push(starting_with(&doc! { "scope": scope.as_str() }, "key"));
            }
            if let Some((scope, key)) = &list.after {
                conditions.push(doc! { "_id": { "$gt": id(scope, key) } });
            }
            let find = Find::new(doc! { "$and": conditions }).sorted(doc! { "_id": 1 });
            let found = self.inner.db.find(names::RESERVATION, find.limited(limit(list.limit))).await?;
            found.iter().map(|found| read(found)).collect()
        })
    }
}
