//! Faults of reservations (R1 to R5).

use async_trait::async_trait;
use wow_store_api::{
    ListReservations, Reservation, ReservationKey, ReservationOp, ReservationOutcome, ReservationScope,
    Reservations, Result,
};

use super::{Mutant, mutants};

mutants! { ReservationFault in "reservation": }

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Reservations for Mutant {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        self.store().reserve(op).await
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        self.store().reservation(scope, key).await
    }

    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>> {
        self.store().reservations(list).await
    }
}
