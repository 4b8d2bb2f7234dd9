//! Fencing (L7, C2): the highest epoch known of each lease decides.

use crate::{
    error::{Error, ErrorKind, Result},
    lease::{Fence, Lease},
    log::MAX_COUNTER,
    time::Timestamp,
};

/// Whether a fenced write may go on, given the lease as it is known. Returns the lease to store if the fence is newer
/// than anything known: the lease is held in another store, and this store must remember the epoch.
///
/// The lease's record must be locked until the write is committed, so that no acquire overtakes it unseen.
///
/// # Errors
/// [`ErrorKind::Fenced`]; [`ErrorKind::InvalidInput`] for an epoch beyond [`MAX_COUNTER`].
pub fn check(fence: &Fence, known: Option<&Lease>) -> Result<Option<Lease>> {
    if fence.epoch > MAX_COUNTER {
        return Err(Error::invalid_input("the epoch is beyond the last possible one"));
    }
    let current = known.map_or(0, |lease| lease.epoch);
    if fence.epoch < current {
        return Err(Error::not_applied(ErrorKind::Fenced {
            group: fence.group.clone(),
            partition: fence.partition.clone(),
            epoch: fence.epoch,
            current,
        }));
    }
    if fence.epoch == current {
        return Ok(None);
    }
    Ok(Some(Lease {
        group: fence.group.clone(),
        partition: fence.partition.clone(),
        owner: None,
        epoch: fence.epoch,
        expires_at: Timestamp::UNIX_EPOCH,
    }))
}
