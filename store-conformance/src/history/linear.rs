//! Whether a concurrent history can be explained: is there an order of the calls, each between its begin and its end,
//! in which one client alone would have been given the same answers? (Wing and Gong's search, with a memory of what was
//! tried.)

use std::{collections::HashSet, fmt::Debug, hash::Hash};

/// Most steps of a search.
const MAX_STEPS: usize = 1_000_000;

/// What an object does, one call after the other.
pub(super) trait Object {
    type State: Clone + Eq + Hash + Debug;
    type Call: Debug;

    fn begin(&self) -> Self::State;

    /// The state after the call, if the call can be answered as it was in this state. A call whose answer is not known
    /// can always be: it does what it does.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;
}

/// A call on an object.
#[derive(Debug)]
pub(super) struct Timed<C> {
    pub(super) begun: u64,
    /// `None`: its outcome is unknown. It takes effect at any time after its begin, or never.
    pub(super) ended: Option<u64>,
    pub(super) call: C,
}

struct Search<'a, O: Object> {
    object: &'a O,
    calls: &'a [Timed<O::Call>],
    done: Vec<bool>,
    seen: HashSet<(Vec<u64>, O::State)>,
    steps: usize,
    longest: Vec<usize>,
    order: Vec<usize>,
}

/// Whether the calls can be explained.
///
/// # Errors
/// The longest explanation that was found, and what could not follow it.
pub(super) fn explain<O: Object>(object: &O, calls: &[Timed<O::Call>]) -> Result<(), String> {
    let mut search = Search {
        object,
        calls,
        done: vec![false; calls.len()],
        seen: HashSet::new(),
        steps: 0,
        longest: Vec::new(),
        order: Vec::new(),
    };
    match search.go(object.begin()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(search.told()),
        Err(()) => Err(format!("no explanation of {} calls found in {MAX_STEPS} steps", calls.len())),
    }
}

impl<O: Object> Search<'_, O> {
    /// Depth first, without recursion: histories may be long.
    fn go(&mut self, begin: O::State) -> Result<bool, ()> {
        let mut path: Vec<(O::State, usize)> = vec![(begin, 0)];
        while let Some((state, from)) = path.last().cloned() {
            if self.is_explained() {
                return Ok(true);
            }
            match self.next(&state, from) {
                Some((index, after)) => {
                    if let Some(top) = path.last_mut() {
                        top.1 = index + 1;
                    }
                    self.steps += 1;
                    if self.steps > MAX_STEPS {
                        return Err(());
                    }
                    self.done[index] = true;
                    if self.seen.insert((self.bits(), after.clone())) {
                        self.order.push(index);
                        if self.order.len() > self.longest.len() {
                            self.longest.clone_from(&self.order);
                        }
                        path.push((after, 0));
                    } else {
                        self.done[index] = false;
                    }
                }
                None => {
                    path.pop();
                    if let Some(index) = self.order.pop() {
                        self.done[index] = false;
                    }
                }
            }
        }
        Ok(false)
    }

    fn is_explained(&self) -> bool {
        self.calls.iter().zip(&self.done).all(|(call, done)| *done || call.ended.is_none())
    }

    /// The next call, from this index on, that may come now and can be answered as it was.
    fn next(&self, state: &O::State, from: usize) -> Option<(usize, O::State)> {
        let waiting = || self.calls.iter().enumerate().filter(|(index, _)| !self.done[*index]);
        // Whoever ended before a call was begun comes before it.
        let first_end = waiting().filter_map(|(_, call)| call.ended).min().unwrap_or(u64::MAX);
        waiting()
            .filter(|(index, call)| *index >= from && call.begun < first_end)
            .find_map(|(index, call)| Some((index, self.object.step(state, &call.call)?)))
    }

    fn bits(&self) -> Vec<u64> {
        self.done
            .chunks(64)
            .map(|chunk| chunk.iter().rev().fold(0, |bits, done| bits << 1 | u64::from(*done)))
            .collect()
    }

    fn told(&self) -> String {
        let mut told = String::from("cannot be explained by any order of the calls; explained were");
        let mut state = self.object.begin();
        for index in &self.longest {
            let call = &self.calls[*index];
            if let Some(after) = self.object.step(&state, &call.call) {
                state = after;
            }
            told += &format!("\n    {}..{:?} {:?}", call.begun, call.ended, call.call);
        }
        told += &format!("\n  which leads to {state:?}; not explained were");
        for (index, call) in self.calls.iter().enumerate() {
            if !self.longest.contains(&index) {
                told += &format!("\n    {}..{:?} {:?}", call.begun, call.ended, call.call);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that is read and written.
    struct Register;

    #[derive(Debug)]
    enum Use {
        Write(u8),
        Read(u8),
    }

    impl Object for Register {
        type State = u8;
        type Call = Use;

        fn begin(&self) -> u8 {
            0
        }

        fn step(&self, state: &u8, call: &Use) -> Option<u8> {
            match call {
                Use::Write(value) => Some(*value),
                Use::Read(value) => (value == state).then_some(*state),
            }
        }
    }

    fn timed(begun: u64, ended: u64, call: Use) -> Timed<Use> {
        Timed { begun, ended: Some(ended), call }
    }

    #[test]
    fn explains_what_overlaps_in_any_order() {
        let calls = [timed(0, 5, Use::Write(1)), timed(1, 2, Use::Read(0)), timed(3, 4, Use::Read(1))];
        assert_eq!(explain(&Register, &calls), Ok(()), "the write took effect between the reads");
    }

    #[test]
    fn refuses_to_go_back_in_time() {
        let calls = [timed(0, 1, Use::Write(1)), timed(2, 3, Use::Read(0))];
        assert!(explain(&Register, &calls).is_err(), "the write had ended before the read began");
        let calls = [timed(0, 9, Use::Write(1)), timed(1, 2, Use::Read(1)), timed(3, 4, Use::Read(0))];
        assert!(explain(&Register, &calls).is_err(), "what was read once cannot be unread");
    }

    #[test]
    fn an_unknown_call_took_effect_late_or_never() {
        let lost = || Timed { begun: 0, ended: None, call: Use::Write(1) };
        let read = |value| timed(4, 5, Use::Read(value));
        assert_eq!(explain(&Register, &[lost(), timed(2, 3, Use::Read(0)), read(1)]), Ok(()), "late");
        assert_eq!(explain(&Register, &[lost(), timed(2, 3, Use::Read(0)), read(0)]), Ok(()), "never");
        assert!(explain(&Register, &[lost(), timed(2, 3, Use::Read(1)), read(0)]).is_err(), "but only once");
    }

    #[test]
    fn searches_far() {
        let calls: Vec<_> = (0..200)
            .map(|n| timed(2 * n, 2 * n + 9, Use::Write(u8::try_from(n % 7).expect("small"))))
            .collect();
        assert_eq!(explain(&Register, &calls), Ok(()), "many overlapping calls");
    }
}
