//! Reservations (R1 to R5).

use std::ops::Bound;

use async_trait::async_trait;
use wow_store_api::{
    ListReservations, Reservation, ReservationKey, ReservationOp, ReservationOutcome, ReservationScope,
    Reservations, Result, rules, rules::reservation::Write,
};

use crate::{
    access::{Records as _, behind},
    engine::view::Tx,
    places,
    store::EmbeddedStore,
};

/// Makes one change, alone or riding in an append.
pub(crate) fn change(tx: &mut Tx<'_>, op: &ReservationOp) -> Result<ReservationOutcome> {
    let scope = op.scope();
    let (writes, outcome) =
        rules::reservation::decide(op, tx.now(), |key| tx.record(&places::reservation(scope, key)))?;
    for write in writes {
        match write {
            Write::Put(put) => tx.store(places::reservation(scope, &put.key), &put),
            Write::Delete(key) => tx.remove(places::reservation(scope, &key)),
        }
    }
    Ok(outcome)
}

#[async_trait]
impl Reservations for EmbeddedStore {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        self.write("reserve", 0, move |tx| change(tx, &op)).await
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        let now = self.clock_now();
        self.read("reservation", |view| {
            let stored: Option<Reservation> = view.record(&places::reservation(scope, key))?;
            Ok(stored.filter(|reservation| reservation.is_live(now)))
        })
    }

    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>> {
        let now = self.clock_now();
        self.scan("reservations", move |view| {
            let under = places::reservations(list.scope.as_ref());
            let after = list.after.as_ref().map(|(scope, key)| behind(&places::reservation(scope, key).key));
            // The later of both: a list may go on from a scope before the one that is asked for.
            let from = after.as_deref().unwrap_or_default().max(under.key.as_slice());
            let is_live = |it: &Result<Reservation>| it.as_ref().map_or(true, |it| it.is_live(now));
            view.records_from(&under, Bound::Included(from)).filter(is_live).take(list.limit).collect()
        })
        .await
    }
}
