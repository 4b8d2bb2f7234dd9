//! Timers (M1, M2). The fence is checked first, with [`super::fence::check`].

use std::time::Duration;

use uuid::Uuid;

use crate::{
    error::{Error, ErrorKind, Result},
    lease::expiry,
    time::Timestamp,
    timer::{ClaimTimers, ScheduleTimer, Timer, TimerClaim, TimerScheduled, TimerToken},
};

/// Schedules: what is [`TimerScheduled::Scheduled`] is to be stored.
#[must_use]
pub fn schedule(schedule: ScheduleTimer, known: Option<&Timer>, now: Timestamp) -> TimerScheduled {
    match known.filter(|_| !schedule.replace) {
        Some(known) => TimerScheduled::Exists(known.clone()),
        None => TimerScheduled::Scheduled(schedule.into_timer(now)),
    }
}

/// What an outcome means for the append that the timer rides in (R5).
///
/// # Errors
/// [`ErrorKind::TimerExists`].
pub fn ride(outcome: TimerScheduled) -> Result<Timer> {
    match outcome {
        TimerScheduled::Scheduled(timer) => Ok(timer),
        TimerScheduled::Exists(timer) => Err(Error::not_applied(ErrorKind::TimerExists { id: timer.id })),
    }
}

/// Claims a timer if it can be claimed now: the timer to store and return.
#[must_use]
pub fn claim(claim: &ClaimTimers, timer: &Timer, now: Timestamp) -> Option<Timer> {
    (timer.claimable_at() <= now).then(|| Timer {
        attempts: timer.attempts.saturating_add(1),
        claim: Some(TimerClaim {
            member: claim.member.clone(),
            claim: Uuid::new_v4(),
            expires_at: expiry(now, claim.ttl),
        }),
        ..timer.clone()
    })
}

/// Whether the token is of the timer's last claim.
#[must_use]
pub fn is_claimed_by(token: &TimerToken, timer: &Timer) -> bool {
    timer.claim.as_ref().is_some_and(|claim| claim.claim == token.claim)
}

/// Gives a timer back: the timer to store; `None` if the claim is not its last.
#[must_use]
pub fn release(token: &TimerToken, timer: &Timer, retry_in: Duration, now: Timestamp) -> Option<Timer> {
    is_claimed_by(token, timer).then(|| Timer {
        claim: None,
        due_at: if retry_in.is_zero() { timer.due_at } else { expiry(now, retry_in) },
        ..timer.clone()
    })
}
