//! Reservations (R1 to R5).

use crate::{
    error::{Error, ErrorKind, Result},
    lease::expiry,
    name::ReservationKey,
    reservation::{Reservation, ReservationOp, ReservationOutcome},
    time::Timestamp,
};

/// A change of one stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Store this.
    Put(Reservation),
    /// Remove this key of the operation's scope.
    Delete(ReservationKey),
}

/// Decides a change. `stored` gives what is stored under a key of the operation's scope, live or expired; the keys it
/// is asked for must be locked until the writes are committed. Nothing is to be written unless the answer is
/// [`ReservationOutcome::Held`] or [`ReservationOutcome::Released`].
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for the expiry; what `stored` returns.
pub fn decide(
    op: &ReservationOp,
    now: Timestamp,
    mut stored: impl FnMut(&ReservationKey) -> Result<Option<Reservation>>,
) -> Result<(Vec<Write>, ReservationOutcome)> {
    op.check()?;
    let mut live = |key: &ReservationKey| -> Result<Option<Reservation>> {
        Ok(stored(key)?.filter(|reservation| reservation.is_live(now)))
    };
    match op {
        ReservationOp::Reserve { scope, key, owner, expires_in } => {
            let wanted = expires_in.map(|ttl| expiry(now, ttl));
            let held = live(key)?;
            if let Some(taken) = held.as_ref().filter(|held| held.owner != *owner) {
                return Ok((Vec::new(), ReservationOutcome::Taken(taken.clone())));
            }
            let reservation = Reservation {
                scope: scope.clone(),
                key: key.clone(),
                owner: owner.clone(),
                expires_at: held.as_ref().map_or(wanted, |held| later(held.expires_at, wanted)),
                reserved_at: held.map_or(now, |held| held.reserved_at),
            };
            Ok((vec![Write::Put(reservation.clone())], ReservationOutcome::Held(reservation)))
        }
        ReservationOp::Confirm { key, owner, .. } => match live(key)? {
            Some(held) if held.owner == *owner => {
                let confirmed = Reservation { expires_at: None, ..held };
                Ok((vec![Write::Put(confirmed.clone())], ReservationOutcome::Held(confirmed)))
            }
            other => Ok((Vec::new(), not_held(other))),
        },
        ReservationOp::Release { key, owner, .. } => match live(key)? {
            Some(held) if held.owner == *owner => {
                Ok((vec![Write::Delete(key.clone())], ReservationOutcome::Released))
            }
            other => Ok((Vec::new(), not_held(other))),
        },
        ReservationOp::Swap { scope, from, to, owner } => {
            let held = match live(from)? {
                Some(held) if held.owner == *owner => held,
                other => return Ok((Vec::new(), not_held(other))),
            };
            if from == to {
                return Ok((Vec::new(), ReservationOutcome::Held(held)));
            }
            let target = live(to)?;
            if let Some(taken) = target.as_ref().filter(|target| target.owner != *owner) {
                return Ok((Vec::new(), ReservationOutcome::Taken(taken.clone())));
            }
            let swapped = Reservation {
                scope: scope.clone(),
                key: to.clone(),
                owner: owner.clone(),
                expires_at: target
                    .as_ref()
                    .map_or(held.expires_at, |target| later(target.expires_at, held.expires_at)),
                reserved_at: target.map_or(now, |target| target.reserved_at),
            };
            let writes = vec![Write::Delete(from.clone()), Write::Put(swapped.clone())];
            Ok((writes, ReservationOutcome::Held(swapped)))
        }
    }
}

/// The later of two expiries; never (`None`) is the latest.
fn later(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (None, _) | (_, None) => None,
    }
}

fn not_held(live: Option<Reservation>) -> ReservationOutcome {
    live.map_or(ReservationOutcome::NotHeld, ReservationOutcome::Taken)
}

/// What an outcome means for the append that the change rides in (R5): anything but success refuses it.
///
/// # Errors
/// [`ErrorKind::ReservationTaken`], [`ErrorKind::ReservationNotHeld`].
pub fn ride(op: &ReservationOp, outcome: ReservationOutcome) -> Result<()> {
    match outcome {
        ReservationOutcome::Held(_) | ReservationOutcome::Released => Ok(()),
        ReservationOutcome::Taken(by) => Err(Error::not_applied(ErrorKind::ReservationTaken {
            scope: by.scope,
            key: by.key,
            owner: by.owner,
        })),
        ReservationOutcome::NotHeld => {
            let key = match op {
                ReservationOp::Reserve { key, .. }
                | ReservationOp::Confirm { key, .. }
                | ReservationOp::Release { key, .. } => key,
                ReservationOp::Swap { from, .. } => from,
            };
            Err(Error::not_applied(ErrorKind::ReservationNotHeld {
                scope: op.scope().clone(),
                key: key.clone(),
            }))
        }
    }
}
