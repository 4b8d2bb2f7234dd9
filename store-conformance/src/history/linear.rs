//! Whether a concurrent history can be explained: is there an order of the calls, each between its begin and its end,
//! in which one client alone would have been given the same answers? (Wing and Gong's search, with a memory of what was
//! tried.)
//!
//! The search is bounded in time and memory by a number of [situations](Budget). Three things keep it far below that
//! for histories of a right store, and most wrong ones:
//!
//! - A call that, answered as it was, changes nothing in [any](Object::never_changes) state comes as soon as it fits: it
//!   stands in nobody's way. (One that only happens to change nothing now might later.)
//! - A call of unknown outcome that would change nothing is left out: that it never took effect explains as much.
//! - A situation is remembered as a few numbers: which calls are behind it, and the number of the state that they led to.
//!
//! A search that ends at its bound has decided nothing, and says so: [`Verdict::Undecided`] is not a pass.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    hash::Hash,
};

/// Most situations that a search looks at before it gives up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget(pub(super) usize);

impl Default for Budget {
    /// A few seconds and some tens of megabytes. Histories of right stores take a few hundred situations.
    fn default() -> Self {
        Self(100_000)
    }
}

/// What an object does, one call after the other.
pub(super) trait Object {
    type State: Clone + Eq + Hash + Debug;
    type Call: Debug;

    fn begin(&self) -> Self::State;

    /// The state after the call, if the call can be answered as it was in this state. A call whose answer is not known
    /// can always be: it does what it does.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;

    /// Whether the call, answered as it was, changes no state whatever: it looked, or was refused.
    fn never_changes(&self, call: &Self::Call) -> bool;
}

/// A call on an object.
#[derive(Debug)]
pub(super) struct Timed<C> {
    pub(super) begun: u64,
    /// `None`: its outcome is unknown. It takes effect at any time after its begin, or never.
    pub(super) ended: Option<u64>,
    pub(super) call: C,
}

/// What a search comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is such an order.
    Explained,
    /// There is none: the longest that was found, and what could not follow it.
    Inexplicable(String),
    /// The search ended at its bound.
    Undecided(String),
}

/// Which calls are behind: all before the first number, and those with a bit after it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Behind(usize, Vec<u64>);

/// Where the search is: what may come next, and how to take back what led here.
#[derive(Debug)]
struct Place {
    /// Calls that may come next, with the state that they lead to.
    choices: std::vec::IntoIter<(usize, usize)>,
    /// How many calls were done when the search came here.
    order: usize,
}

struct Search<'a, O: Object> {
    object: &'a O,
    /// In the order of their begin.
    calls: Vec<&'a Timed<O::Call>>,
    done: Vec<bool>,
    /// All before this one are done.
    first: usize,
    states: Vec<O::State>,
    numbers: HashMap<O::State, usize>,
    seen: HashSet<(Behind, usize)>,
    order: Vec<usize>,
    longest: Vec<usize>,
}

/// Whether the calls can be explained.
pub(super) fn explain<O: Object>(object: &O, calls: &[Timed<O::Call>], budget: Budget) -> Verdict {
    let mut calls: Vec<_> = calls.iter().collect();
    calls.sort_by_key(|call| call.begun);
    let mut search = Search {
        object,
        done: vec![false; calls.len()],
        calls,
        first: 0,
        states: Vec::new(),
        numbers: HashMap::new(),
        seen: HashSet::new(),
        order: Vec::new(),
        longest: Vec::new(),
    };
    match search.go(budget) {
        Ok(true) => Verdict::Explained,
        Ok(false) => Verdict::Inexplicable(search.told()),
        Err(()) => Verdict::Undecided(format!(
            "not decided within {} situations of {} calls whether any order explains them: no pass",
            budget.0,
            search.calls.len()
        )),
    }
}

impl<O: Object> Search<'_, O> {
    /// Depth first, without recursion: histories may be long.
    fn go(&mut self, budget: Budget) -> Result<bool, ()> {
        let begin = self.number(self.object.begin());
        let Some(place) = self.arrive(begin, 0) else { return Ok(true) };
        let mut path = vec![place];
        while let Some(place) = path.last_mut() {
            let Some((index, after)) = place.choices.next() else {
                let order = place.order;
                path.pop();
                self.take_back(order);
                continue;
            };
            let order = self.order.len();
            self.does(index);
            if !self.seen.insert((self.behind(), after)) {
                self.take_back(order);
                continue;
            }
            if self.seen.len() > budget.0 {
                return Err(());
            }
            match self.arrive(after, order) {
                Some(place) => path.push(place),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Does what changes nothing; then what may come next. `None` if all is explained.
    fn arrive(&mut self, state: usize, order: usize) -> Option<Place> {
        let choices = loop {
            let (same, choices) = self.next(state);
            if same.is_empty() {
                break choices;
            }
            same.into_iter().for_each(|index| self.does(index));
        };
        if self.order.len() > self.longest.len() {
            self.longest.clone_from(&self.order);
        }
        let waits = |index: usize| !self.done[index] && self.calls[index].ended.is_some();
        let is_explained = !(self.first..self.calls.len()).any(waits);
        (!is_explained).then(|| Place { choices: choices.into_iter(), order })
    }

    /// The calls that may come now and can be answered as they were: those that never change anything, and the others
    /// with the state that they lead to.
    fn next(&mut self, state: usize) -> (Vec<usize>, Vec<(usize, usize)>) {
        // Whoever ended before a call was begun comes before it.
        let mut first_end = u64::MAX;
        let mut may_come = Vec::new();
        for index in self.first..self.calls.len() {
            let call = self.calls[index];
            if call.begun >= first_end {
                break;
            }
            if !self.done[index] {
                may_come.push(index);
                first_end = first_end.min(call.ended.unwrap_or(u64::MAX));
            }
        }
        let (mut same, mut choices) = (Vec::new(), Vec::new());
        for index in may_come {
            let call = self.calls[index];
            let Some(after) = self.object.step(&self.states[state], &call.call) else { continue };
            let is_known = call.ended.is_some();
            if is_known && self.object.never_changes(&call.call) {
                same.push(index);
            } else if is_known || after != self.states[state] {
                let after = self.number(after);
                choices.push((index, after));
            }
        }
        // What was answered first most likely came first.
        choices.sort_by_key(|(index, _)| self.calls[*index].ended.unwrap_or(u64::MAX));
        (same, choices)
    }

    fn number(&mut self, state: O::State) -> usize {
        let next = self.states.len();
        let number = *self.numbers.entry(state.clone()).or_insert(next);
        if number == next {
            self.states.push(state);
        }
        number
    }

    fn does(&mut self, index: usize) {
        self.done[index] = true;
        self.order.push(index);
        while self.done.get(self.first) == Some(&true) {
            self.first += 1;
        }
    }

    fn take_back(&mut self, order: usize) {
        for index in self.order.drain(order..) {
            self.done[index] = false;
            self.first = self.first.min(index);
        }
    }

    fn behind(&self) -> Behind {
        let last = self.done.iter().rposition(|done| *done).map_or(self.first, |last| last + 1);
        let rest = self.done.get(self.first..last).unwrap_or_default();
        let bits = |chunk: &[bool]| chunk.iter().rev().fold(0, |bits, done| bits << 1 | u64::from(*done));
        Behind(self.first, rest.chunks(64).map(bits).collect())
    }

    fn told(&self) -> String {
        let mut told = String::from("cannot be explained by any order of the calls; explained were");
        let mut state = self.object.begin();
        for index in &self.longest {
            let call = self.calls[*index];
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

        fn never_changes(&self, call: &Use) -> bool {
            matches!(call, Use::Read(_))
        }
    }

    fn is_explained(calls: &[Timed<Use>]) -> bool {
        match explain(&Register, calls, Budget::default()) {
            Verdict::Explained => true,
            Verdict::Inexplicable(_) => false,
            Verdict::Undecided(why) => panic!("{why}"),
        }
    }

    fn timed(begun: u64, ended: u64, call: Use) -> Timed<Use> {
        Timed { begun, ended: Some(ended), call }
    }

    #[test]
    fn explains_what_overlaps_in_any_order() {
        let calls = [timed(0, 5, Use::Write(1)), timed(1, 2, Use::Read(0)), timed(3, 4, Use::Read(1))];
        assert!(is_explained(&calls), "the write took effect between the reads");
    }

    #[test]
    fn refuses_to_go_back_in_time() {
        let calls = [timed(0, 1, Use::Write(1)), timed(2, 3, Use::Read(0))];
        assert!(!is_explained(&calls), "the write had ended before the read began");
        let calls = [timed(0, 9, Use::Write(1)), timed(1, 2, Use::Read(1)), timed(3, 4, Use::Read(0))];
        assert!(!is_explained(&calls), "what was read once cannot be unread");
    }

    #[test]
    fn what_changes_nothing_now_may_come_later() {
        let calls = [
            timed(0, 1, Use::Write(1)),
            timed(2, 9, Use::Write(2)),
            timed(3, 10, Use::Write(1)),
            timed(11, 12, Use::Read(1)),
        ];
        assert!(is_explained(&calls), "the same value was written again after another");
    }

    #[test]
    fn an_unknown_call_took_effect_late_or_never() {
        let lost = || Timed { begun: 0, ended: None, call: Use::Write(1) };
        let read = |value| timed(4, 5, Use::Read(value));
        assert!(is_explained(&[lost(), timed(2, 3, Use::Read(0)), read(1)]), "late");
        assert!(is_explained(&[lost(), timed(2, 3, Use::Read(0)), read(0)]), "never");
        assert!(!is_explained(&[lost(), timed(2, 3, Use::Read(1)), read(0)]), "but only once");
    }

    #[test]
    fn searches_far() {
        let calls: Vec<_> = (0..200)
            .map(|n| timed(2 * n, 2 * n + 9, Use::Write(u8::try_from(n % 7).expect("small"))))
            .collect();
        assert!(is_explained(&calls), "many overlapping calls");
    }

    #[test]
    fn an_answered_call_that_changes_nothing_stands_in_nobodys_way() {
        let mut calls: Vec<_> = (0..300).map(|n| timed(n, 1_000 + n, Use::Read(0))).collect();
        calls.push(timed(300, 1_300, Use::Write(1)));
        assert_eq!(explain(&Register, &calls, Budget(2)), Verdict::Explained, "without trying their orders");
    }

    /// A purse that is paid into and never tells anything but what is in it.
    struct Purse;

    impl Object for Purse {
        type State = u64;
        type Call = (u64, Option<u64>);

        fn begin(&self) -> u64 {
            0
        }

        fn step(&self, state: &u64, (paid, found): &(u64, Option<u64>)) -> Option<u64> {
            let after = state + paid;
            found.is_none_or(|found| found == after).then_some(after)
        }

        fn never_changes(&self, (paid, _): &(u64, Option<u64>)) -> bool {
            *paid == 0
        }
    }

    #[test]
    fn what_is_not_decided_within_the_budget_is_no_pass_and_takes_bounded_time() {
        // Payments that may each have been made or not, of amounts of which any sum is another: 2^60 situations. And
        // somebody found what no sum makes.
        let lost = |n: u64| Timed { begun: n, ended: None, call: (1 << n, None) };
        let found = Timed { begun: 100, ended: Some(101), call: (0, Some(u64::MAX)) };
        let calls: Vec<_> = (0..60).map(lost).chain([found]).collect();
        for budget in [10, 1_000, 100_000] {
            let Verdict::Undecided(why) = explain(&Purse, &calls, Budget(budget)) else {
                panic!("a search of {budget} situations cannot know");
            };
            assert!(why.contains(&budget.to_string()), "it says how far it looked");
        }
    }
}
