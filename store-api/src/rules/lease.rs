//! Leases and members (E1, E2).

use std::time::Duration;

use crate::{
    error::{Error, ErrorKind, Result},
    lease::{
        AcquireLease, Heartbeat, Lease, LeaseAcquired, LeaseRenewed, LeaseToken, Member, check_ttl, expiry,
    },
    log::MAX_COUNTER,
    time::Timestamp,
};

/// Takes the lease unless it is live. What is acquired is to be stored.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for the time to live, [`ErrorKind::Exhausted`].
pub fn acquire(request: &AcquireLease, known: Option<&Lease>, now: Timestamp) -> Result<LeaseAcquired> {
    check_ttl("lease", request.ttl)?;
    if let Some(held) = known.filter(|lease| lease.live_owner(now).is_some()) {
        return Ok(LeaseAcquired::Held(held.clone()));
    }
    let epoch = known.map_or(0, |lease| lease.epoch);
    if epoch >= MAX_COUNTER {
        return Err(Error::not_applied(ErrorKind::Exhausted { what: "epochs of a lease" }));
    }
    Ok(LeaseAcquired::Acquired(Lease {
        group: request.group.clone(),
        partition: request.partition.clone(),
        owner: Some(request.member.clone()),
        epoch: epoch + 1,
        expires_at: expiry(now, request.ttl),
    }))
}

fn is_owners(token: &LeaseToken, known: &Lease) -> bool {
    known.epoch == token.epoch && known.owner.as_ref() == Some(&token.member)
}

/// Renews a live lease of its owner: the lease to store, if any, and the answer.
#[must_use]
pub fn renew(
    token: &LeaseToken,
    ttl: Duration,
    known: Option<&Lease>,
    now: Timestamp,
) -> (Option<Lease>, LeaseRenewed) {
    match known.filter(|lease| is_owners(token, lease) && lease.live_owner(now).is_some()) {
        Some(lease) => {
            let lease = Lease { expires_at: expiry(now, ttl), ..lease.clone() };
            let renewed = LeaseRenewed::Renewed(lease.expires_at);
            (Some(lease), renewed)
        }
        None => (None, LeaseRenewed::Lost),
    }
}

/// Gives a lease back: the lease to store, which keeps its epoch (E2); `None` if it is not this owner's.
#[must_use]
pub fn release(token: &LeaseToken, known: Option<&Lease>) -> Option<Lease> {
    known.filter(|lease| is_owners(token, lease)).map(|lease| Lease { owner: None, ..lease.clone() })
}

/// A sign of life: the member to store.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for the time to live.
pub fn heartbeat(heartbeat: &Heartbeat, known: Option<&Member>, now: Timestamp) -> Result<Member> {
    check_ttl("heartbeat", heartbeat.ttl)?;
    let joined_at = known.filter(|member| now < member.expires_at).map_or(now, |member| member.joined_at);
    Ok(Member {
        group: heartbeat.group.clone(),
        member: heartbeat.member.clone(),
        joined_at,
        expires_at: expiry(now, heartbeat.ttl),
    })
}
