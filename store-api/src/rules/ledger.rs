//! The failure ledger (F1 to F3). The fence is checked first, with [`super::fence::check`].

use crate::{
    ledger::{Attempt, Discarded, Failure, FailureState, MAX_FAILURE_TEXT_BYTES, Park},
    log::Version,
    time::Timestamp,
};

fn new(attempt: &Attempt, state: FailureState, now: Timestamp) -> Failure {
    Failure {
        subscription: attempt.subscription.clone(),
        aggregate_id: attempt.aggregate_id.clone(),
        partition: attempt.partition.clone(),
        state,
        commit: attempt.commit.clone(),
        from_version: attempt.commit.version,
        attempts: 0,
        event: None,
        error: None,
        since: now,
        updated_at: now,
    }
}

/// Text cut at a character boundary so that it fits, with U+0000 left out: databases cannot store it, and an error
/// text must not keep an aggregate from being parked.
#[must_use]
pub fn cut(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().filter(|c| *c != '\0') {
        if kept.len() + c.len_utf8() > MAX_FAILURE_TEXT_BYTES {
            break;
        }
        kept.push(c);
    }
    kept
}

/// Counts an attempt: the entry to store and return. A parked one comes back unchanged.
#[must_use]
pub fn record_attempt(attempt: &Attempt, known: Option<&Failure>, now: Timestamp) -> Failure {
    match known {
        Some(parked) if parked.state == FailureState::Parked => parked.clone(),
        Some(known) => Failure {
            commit: attempt.commit.clone(),
            from_version: match known.state {
                FailureState::Trying | FailureState::Parked => attempt.commit.version,
                FailureState::Retrying => known.from_version,
            },
            attempts: known.attempts.saturating_add(1),
            updated_at: now,
            ..known.clone()
        },
        None => Failure { attempts: 1, ..new(attempt, FailureState::Trying, now) },
    }
}

/// Parks: the entry to store and return. One that is parked already comes back unchanged. One that is retrying keeps
/// what it still had to handle: parking at a later commit skips none before it (F2).
#[must_use]
pub fn park(park: &Park, known: Option<&Failure>, now: Timestamp) -> Failure {
    let known = known.cloned().unwrap_or_else(|| new(&park.attempt, FailureState::Trying, now));
    if known.state == FailureState::Parked {
        return known;
    }
    Failure {
        state: FailureState::Parked,
        commit: park.attempt.commit.clone(),
        from_version: match known.state {
            FailureState::Trying | FailureState::Parked => park.attempt.commit.version,
            FailureState::Retrying => known.from_version.min(park.attempt.commit.version),
        },
        event: park.event.as_deref().map(cut),
        error: Some(cut(&park.error)),
        updated_at: now,
        ..known
    }
}

/// Asks for a parked aggregate to be handled again: the entry to store; `None` if it is not parked or retrying.
#[must_use]
pub fn retry(known: Option<&Failure>, now: Timestamp) -> Option<Failure> {
    let known = known?;
    match known.state {
        FailureState::Parked => {
            Some(Failure { state: FailureState::Retrying, attempts: 0, updated_at: now, ..known.clone() })
        }
        FailureState::Retrying => Some(known.clone()),
        FailureState::Trying => None,
    }
}

/// Skips the failed commit: the entry to store and the record of the discard; `None` if it is not parked at this
/// version, or commits before it are still to be handled, which would be skipped with it (F2).
#[must_use]
pub fn discard(known: Option<&Failure>, version: Version, now: Timestamp) -> Option<(Failure, Discarded)> {
    let known = known.filter(|known| {
        known.state == FailureState::Parked
            && known.commit.version == version
            && known.from_version >= version
    })?;
    let discarded = Discarded {
        subscription: known.subscription.clone(),
        aggregate_id: known.aggregate_id.clone(),
        commit: known.commit.clone(),
        event: known.event.clone(),
        error: known.error.clone(),
        discarded_at: now,
    };
    let failure = Failure {
        state: FailureState::Retrying,
        from_version: version.saturating_add(1),
        attempts: 0,
        updated_at: now,
        ..known.clone()
    };
    Some((failure, discarded))
}

/// Notes that a commit of a retrying aggregate was handled: the entry to store; `None` if it is not retrying.
#[must_use]
pub fn advance(attempt: &Attempt, known: Option<&Failure>, now: Timestamp) -> Option<Failure> {
    let known = known.filter(|known| known.state == FailureState::Retrying)?;
    Some(Failure {
        from_version: known.from_version.max(attempt.commit.version.saturating_add(1)),
        attempts: 0,
        updated_at: now,
        ..known.clone()
    })
}

/// Whether the entry is to be removed: the aggregate has caught up with everything up to this attempt's commit.
#[must_use]
pub fn resolves(attempt: &Attempt, known: &Failure) -> bool {
    match known.state {
        FailureState::Parked => false,
        // The commit that was tried or failed last is one that must have been handled; and so must all before
        // `from_version`, where a retry has moved that.
        FailureState::Trying | FailureState::Retrying => {
            attempt.commit.version >= known.commit.version
                && attempt.commit.version.saturating_add(1) >= known.from_version
        }
    }
}
