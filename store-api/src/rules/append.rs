//! The decision about one append (L2, L3).

use crate::{
    commit::{CheckedCommit, Receipt},
    error::{Error, ErrorKind, Result},
    log::{MAX_COUNTER, Position, Version},
    partition::PartitionId,
    time::Timestamp,
};

/// Whether a commit may be stored on an aggregate at version `head`; returns the version it gets.
///
/// To be asked after the command id (a replay) and the fence.
///
/// # Errors
/// [`ErrorKind::VersionConflict`], [`ErrorKind::Exhausted`].
pub fn next_version(commit: &CheckedCommit, head: Version) -> Result<Version> {
    if !commit.expected().is_met_by(head) {
        return Err(Error::not_applied(ErrorKind::VersionConflict {
            aggregate_id: commit.aggregate_id().clone(),
            expected: commit.expected(),
            actual: head,
        }));
    }
    next("versions", commit.aggregate_id(), head)
}

/// The position after `head`.
///
/// # Errors
/// [`ErrorKind::Exhausted`].
pub fn next_position(partition: &PartitionId, head: Position) -> Result<Position> {
    next("positions", partition, head)
}

fn next(what: &'static str, of: impl std::fmt::Display, head: u64) -> Result<u64> {
    if head >= MAX_COUNTER {
        return Err(Error::not_applied(ErrorKind::Exhausted { what }).with_context(of));
    }
    Ok(head + 1)
}

/// The instant of a commit: the clock's, but never before the last commit of its partition.
#[must_use]
pub fn committed_at(now: Timestamp, last: Option<Timestamp>) -> Timestamp {
    last.map_or(now, |last| now.max(last))
}

/// The receipt of a commit that is stored now.
#[must_use]
pub fn receipt(
    partition: PartitionId,
    version: Version,
    position: Position,
    committed_at: Timestamp,
) -> Receipt {
    Receipt { version, partition, position, committed_at, replayed: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ContextName;

    #[test]
    fn positions_go_up_to_the_last_and_no_further() {
        let partition = PartitionId::new(ContextName::new("shop").unwrap(), 0);
        let edges = [0, (1 << 31) - 1, u64::from(u32::MAX), 1 << 53, MAX_COUNTER - 1];
        for head in edges {
            assert_eq!(next_position(&partition, head).unwrap(), head + 1, "one more than {head}");
        }
        for head in [MAX_COUNTER, u64::MAX] {
            let error = next_position(&partition, head).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Exhausted { .. }), "no wrapping: {error:?}");
        }
    }
}
