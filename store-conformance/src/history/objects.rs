//! Leases, reservations and timers, as one client alone would see them: time stands still, nothing expires.

use std::collections::BTreeMap;

use uuid::Uuid;
use wow_store_api::{MemberId, OwnerId, ReservationKey, TimerId};

use super::linear::Object;

/// What is known of an answer: `None` is an unknown outcome.
pub(super) type Known<T> = Option<T>;

/// A call on the lease of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeaseCall {
    /// Answered with who has it then, under which epoch, and whether it was got.
    Acquire(MemberId, Known<(bool, Option<MemberId>, u64)>),
    /// Answered with whether it was renewed.
    Renew(MemberId, u64, Known<bool>),
    /// Answered with whether it was given back.
    Release(MemberId, u64, Known<bool>),
    /// Answered with the last owner and the epoch.
    Look(Option<(Option<MemberId>, u64)>),
}

/// The lease of one partition: who has it, and its epoch.
#[derive(Debug)]
pub(super) struct LeaseObject;

impl Object for LeaseObject {
    type State = (Option<MemberId>, u64);
    type Call = LeaseCall;

    fn begin(&self) -> Self::State {
        (None, 0)
    }

    fn step(&self, state: &Self::State, call: &LeaseCall) -> Option<Self::State> {
        let (owner, epoch) = state;
        let is_owners = |member: &MemberId, of: u64| owner.as_ref() == Some(member) && *epoch == of;
        match call {
            LeaseCall::Acquire(member, answer) => {
                let after = match owner {
                    Some(_) => state.clone(),
                    None => (Some(member.clone()), epoch + 1),
                };
                let right = (owner.is_none(), after.0.clone(), after.1);
                answer.as_ref().is_none_or(|answer| *answer == right).then_some(after)
            }
            LeaseCall::Renew(member, of, answer) => {
                answer.is_none_or(|answer| answer == is_owners(member, *of)).then(|| state.clone())
            }
            LeaseCall::Release(member, of, answer) => {
                let mine = is_owners(member, *of);
                let after = if mine { (None, *epoch) } else { state.clone() };
                answer.is_none_or(|answer| answer == mine).then_some(after)
            }
            LeaseCall::Look(found) => {
                let right = (*epoch > 0).then(|| state.clone());
                (*found == right).then(|| state.clone())
            }
        }
    }

    fn never_changes(&self, call: &LeaseCall) -> bool {
        match call {
            LeaseCall::Acquire(_, answer) => matches!(answer, Some((false, ..))),
            LeaseCall::Release(_, _, answer) => *answer == Some(false),
            LeaseCall::Renew(..) | LeaseCall::Look(_) => true,
        }
    }
}

/// What became of a change of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reserved {
    Held(ReservationKey),
    Released,
    Taken(OwnerId),
    NotHeld,
}

/// A call on the reservations of one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReservationCall {
    Reserve(ReservationKey, OwnerId, Known<Reserved>),
    Confirm(ReservationKey, OwnerId, Known<Reserved>),
    Release(ReservationKey, OwnerId, Known<Reserved>),
    Swap(ReservationKey, ReservationKey, OwnerId, Known<Reserved>),
    Look(ReservationKey, Option<OwnerId>),
}

/// The reservations of one scope: who holds which key.
#[derive(Debug)]
pub(super) struct ScopeObject;

impl Object for ScopeObject {
    type State = BTreeMap<ReservationKey, OwnerId>;
    type Call = ReservationCall;

    fn begin(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, call: &ReservationCall) -> Option<Self::State> {
        let mut after = state.clone();
        // Who else than the owner holds the key, or that nobody does.
        let not_mine = |key: &ReservationKey| match state.get(key) {
            Some(other) => Reserved::Taken(other.clone()),
            None => Reserved::NotHeld,
        };
        let is_mine = |key: &ReservationKey, owner: &OwnerId| state.get(key) == Some(owner);
        let (right, answer) = match call {
            ReservationCall::Reserve(key, owner, answer) => {
                match state.get(key).filter(|held| *held != owner) {
                    Some(other) => (Reserved::Taken(other.clone()), answer),
                    None => {
                        after.insert(key.clone(), owner.clone());
                        (Reserved::Held(key.clone()), answer)
                    }
                }
            }
            ReservationCall::Confirm(key, owner, answer) if is_mine(key, owner) => {
                (Reserved::Held(key.clone()), answer)
            }
            ReservationCall::Release(key, owner, answer) if is_mine(key, owner) => {
                after.remove(key);
                (Reserved::Released, answer)
            }
            ReservationCall::Confirm(key, _, answer) | ReservationCall::Release(key, _, answer) => {
                (not_mine(key), answer)
            }
            ReservationCall::Swap(from, to, owner, answer) => match (is_mine(from, owner), state.get(to)) {
                (false, _) => (not_mine(from), answer),
                (true, Some(other)) if other != owner => (Reserved::Taken(other.clone()), answer),
                (true, _) => {
                    after.remove(from);
                    after.insert(to.clone(), owner.clone());
                    (Reserved::Held(to.clone()), answer)
                }
            },
            ReservationCall::Look(key, found) => {
                return (state.get(key) == found.as_ref()).then_some(after);
            }
        };
        answer.as_ref().is_none_or(|answer| *answer == right).then_some(after)
    }

    fn never_changes(&self, call: &ReservationCall) -> bool {
        match call {
            ReservationCall::Reserve(_, _, answer)
            | ReservationCall::Release(_, _, answer)
            | ReservationCall::Swap(_, _, _, answer) => {
                matches!(answer, Some(Reserved::Taken(_) | Reserved::NotHeld))
            }
            ReservationCall::Confirm(..) | ReservationCall::Look(..) => true,
        }
    }
}

/// A call on the timers of one context. All are due, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TimerCall {
    /// Answered with whether it was scheduled; `false`: it exists.
    Schedule(TimerId, Known<bool>),
    Cancel(TimerId, Known<bool>),
    /// Claims so many. Answered with which timers, and the ids of the claims.
    Claim(usize, Known<Vec<(TimerId, Uuid)>>),
    Complete(TimerId, Uuid, Known<bool>),
    Release(TimerId, Uuid, Known<bool>),
}

/// A claim as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Claim {
    Free,
    By(Uuid),
    /// By a call that was never answered: nobody has its token.
    Lost,
}

/// The timers of one context, and the claims on them.
#[derive(Debug)]
pub(super) struct TimersObject;

impl Object for TimersObject {
    type State = BTreeMap<TimerId, Claim>;
    type Call = TimerCall;

    fn begin(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, call: &TimerCall) -> Option<Self::State> {
        let mut after = state.clone();
        let is_claimed_by =
            |id: &TimerId, claim: &Uuid| matches!(state.get(id), Some(Claim::By(by)) if by == claim);
        let (right, answer) = match call {
            TimerCall::Schedule(id, answer) => {
                let new = !state.contains_key(id);
                if new {
                    after.insert(id.clone(), Claim::Free);
                }
                (new, *answer)
            }
            TimerCall::Cancel(id, answer) => (after.remove(id).is_some(), *answer),
            TimerCall::Claim(limit, answer) => {
                let free = state.iter().filter(|(_, claim)| **claim == Claim::Free).map(|(id, _)| id);
                let due: Vec<&TimerId> = free.take(*limit).collect();
                match answer {
                    Some(claimed) => {
                        if !claimed.iter().map(|(id, _)| id).eq(due.iter().copied()) {
                            return None;
                        }
                        after.extend(claimed.iter().map(|(id, claim)| (id.clone(), Claim::By(*claim))));
                    }
                    None => after.extend(due.into_iter().map(|id| (id.clone(), Claim::Lost))),
                }
                return Some(after);
            }
            TimerCall::Complete(id, claim, answer) => {
                let mine = is_claimed_by(id, claim);
                if mine {
                    after.remove(id);
                }
                (mine, *answer)
            }
            TimerCall::Release(id, claim, answer) => {
                let mine = is_claimed_by(id, claim);
                if mine {
                    after.insert(id.clone(), Claim::Free);
                }
                (mine, *answer)
            }
        };
        answer.is_none_or(|answer| answer == right).then_some(after)
    }

    fn never_changes(&self, call: &TimerCall) -> bool {
        match call {
            TimerCall::Claim(_, answer) => answer.as_ref().is_some_and(Vec::is_empty),
            TimerCall::Schedule(_, answer)
            | TimerCall::Cancel(_, answer)
            | TimerCall::Complete(_, _, answer)
            | TimerCall::Release(_, _, answer) => *answer == Some(false),
        }
    }
}
