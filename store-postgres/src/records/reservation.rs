//! Reservations (R1 to R5).

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use wow_store_api::{
    ListReservations, Reservation, ReservationKey, ReservationOp, ReservationOutcome, ReservationScope,
    Reservations, Result,
    rules::{self, reservation::Write},
};

use super::limit;
use crate::{
    attempts::Kind,
    fault::Fault,
    macros::{args, attempt},
    pool::Conn,
    store::{Inner, PostgresStore},
    value::{Cells as _, Instant},
};

fn reservation(row: &PgRow) -> Result<Reservation, Fault> {
    Ok(Reservation {
        scope: row.name(0)?,
        key: row.name(1)?,
        owner: row.name(2)?,
        expires_at: row.instant_or_none(3)?,
        reserved_at: row.instant(4)?,
    })
}

impl Inner {
    /// What is stored under a key, live or expired, locked until the end of the transaction. A free key is locked by a
    /// row that holds its place, and is to be put or deleted.
    pub(crate) async fn lock_reservation(
        &self,
        conn: &mut Conn,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>, Fault> {
        loop {
            let place = args![scope.as_str(), key.as_str()];
            if conn.execute(&self.statements.reservation_place, place).await? > 0 {
                return Ok(None);
            }
            let lock = args![scope.as_str(), key.as_str()];
            if let Some(row) = conn.row(&self.statements.reservation_lock, lock).await? {
                return Ok(Some(reservation(&row)?));
            }
        }
    }

    /// Stores a reservation whose key is locked.
    pub(crate) async fn put_reservation(&self, conn: &mut Conn, put: &Reservation) -> Result<(), Fault> {
        let arguments = args![
            put.scope.as_str(),
            put.key.as_str(),
            put.owner.as_str(),
            put.expires_at.map(Instant),
            Instant(put.reserved_at),
        ];
        conn.execute(&self.statements.reservation_put, arguments).await?;
        Ok(())
    }

    pub(crate) async fn delete_reservation(
        &self,
        conn: &mut Conn,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<(), Fault> {
        conn.execute(&self.statements.reservation_delete, args![scope.as_str(), key.as_str()]).await?;
        Ok(())
    }

    async fn reserve_in(&self, conn: &mut Conn, op: &ReservationOp) -> Result<ReservationOutcome, Fault> {
        let scope = op.scope();
        let mut keys: Vec<&ReservationKey> = match op {
            ReservationOp::Reserve { key, .. }
            | ReservationOp::Confirm { key, .. }
            | ReservationOp::Release { key, .. } => vec![key],
            ReservationOp::Swap { from, to, .. } => vec![from, to],
        };
        keys.sort();
        keys.dedup();
        conn.begin().await?;
        let mut stored = Vec::new();
        for key in keys {
            stored.push((key, self.lock_reservation(conn, scope, key).await?));
        }
        let now = self.now_in(conn).await?;
        let (writes, outcome) = rules::reservation::decide(op, now, |key| {
            let found = stored.iter().find(|(it, _)| *it == key);
            Ok(found.and_then(|(_, reservation)| reservation.clone()))
        })?;
        if writes.is_empty() {
            // Takes the rows back that held the place of free keys.
            conn.rollback().await;
            return Ok(outcome);
        }
        for write in &writes {
            match write {
                Write::Put(put) => self.put_reservation(conn, put).await?,
                Write::Delete(key) => self.delete_reservation(conn, scope, key).await?,
            }
        }
        conn.commit().await?;
        Ok(outcome)
    }
}

#[async_trait]
impl Reservations for PostgresStore {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        self.check_open("reserve")?;
        op.check().map_err(|error| self.inner.named("reserve", error))?;
        attempt!(self.inner, Kind::Once, "reserve", |conn| self.inner.reserve_in(conn, &op).await)
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        self.check_open("reservation")?;
        attempt!(self.inner, Kind::Read, "reservation", |conn| {
            let arguments = args![scope.as_str(), key.as_str()];
            let row = conn.row(&self.inner.statements.reservation, arguments).await?;
            row.as_ref().map(reservation).transpose()
        })
    }

    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>> {
        self.check_open("reservations")?;
        attempt!(self.inner, Kind::Read, "reservations", |conn| {
            let (after_scope, after_key) = match &list.after {
                Some((scope, key)) => (Some(scope.as_str()), Some(key.as_str())),
                None => (None, None),
            };
            let scope = list.scope.as_ref().map(ReservationScope::as_str);
            let arguments = args![scope, after_scope, after_key, limit(list.limit)];
            let rows = conn.rows(&self.inner.statements.reservations, arguments).await?;
            rows.iter().map(reservation).collect()
        })
    }
}
