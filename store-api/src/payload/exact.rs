//! Exact numbers through serde's buffers.
//!
//! For internally tagged, adjacently tagged and untagged enums and for flattened fields serde reads a value
//! into a buffer of its own before it knows the type. A number other than `i64` or `u64` gets into that
//! buffer as an `f64` or not at all: anything else would break fields that *are* `f64`. So while one
//! [`Payload`](super::Payload) is decoded, this module remembers which double came from which place in the
//! text, and whoever wants the exact number asks by the double.
//!
//! One double may stand for several spellings (`1.10` and `1.1`). If such a double is asked for, the document
//! is decoded twice more:
//! 1. *Probe*: each place of a shared double shows as a double of its own close by, so that it comes out
//!    which places are asked for. The result is thrown away.
//! 2. *Final*: the places found are buffered as bytes that name the place, which nothing but an asker
//!    accepts; all others as plain doubles.
//!
//! What is then still shared is an error. An exact number, or an error: never a rounded one, never the wrong
//! scale.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;

thread_local! {
    /// The documents being decoded on this thread, innermost last. A document is entered with the first
    /// double it hands out.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// First byte of the bytes that name a place. Never found in UTF-8, so that no string target accepts them.
const PLACE: u8 = 0xff;

#[derive(Debug)]
struct Scope {
    text: Arc<str>,
    /// By the bits of a double: where it was first seen, and whether another spelling was seen since.
    seen: HashMap<u64, Seen>,
    /// A shared double was asked for in this pass.
    shared: bool,
    pass: Pass,
    /// By the bits of the doubles shown in the probe: the place each one stands for.
    probes: HashMap<u64, usize>,
    /// The places that were asked for in the probe.
    wanted: HashSet<usize>,
}

#[derive(Debug)]
struct Seen {
    place: usize,
    shared: bool,
    /// The last double that was shown for it in the probe.
    probe: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    First,
    Probe,
    Final,
}

/// How a number is to be shown to a visitor that takes any type.
#[derive(Debug)]
pub(super) enum Shown {
    Double(f64),
    Place([u8; 9]),
}

/// Keeps a document entered. Leaves it when dropped, so also when a `Deserialize` panics.
#[derive(Debug)]
pub(super) struct Guard {
    /// How many documents are around it.
    depth: usize,
    /// The document belongs to this thread's list.
    not_send: PhantomData<*const ()>,
}

impl Guard {
    pub(super) fn enter(text: &Arc<str>) -> Self {
        let scope = Scope {
            text: Arc::clone(text),
            seen: HashMap::new(),
            shared: false,
            pass: Pass::First,
            probes: HashMap::new(),
            wanted: HashSet::new(),
        };
        let depth = SCOPES.with_borrow_mut(|scopes| {
            scopes.push(scope);
            scopes.len() - 1
        });
        Self { depth, not_send: PhantomData }
    }

    fn with<T>(&self, use_scope: impl FnOnce(&mut Scope) -> T) -> Option<T> {
        SCOPES.with_borrow_mut(|scopes| scopes.get_mut(self.depth).map(use_scope))
    }

    /// Notes that the number at `place` is about to be handed out as `double`.
    pub(super) fn note(&self, place: usize, double: f64) -> Shown {
        self.with(|scope| scope.note(place, double)).unwrap_or(Shown::Double(double))
    }

    /// Whether a shared double was asked for in this pass.
    pub(super) fn is_shared(&self) -> bool {
        self.with(|scope| scope.shared).unwrap_or(false)
    }

    pub(super) fn start_probe(&self) {
        self.with(|scope| scope.pass = Pass::Probe);
    }

    pub(super) fn start_final(&self) {
        self.with(|scope| {
            scope.pass = Pass::Final;
            scope.shared = false;
        });
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Nothing of the user's runs inside, so the list is never borrowed here; a thread that is ending has
        // no list any more.
        let _ = SCOPES.try_with(|scopes| {
            if let Ok(mut scopes) = scopes.try_borrow_mut() {
                scopes.truncate(self.depth);
            }
        });
    }
}

impl Scope {
    fn note(&mut self, place: usize, double: f64) -> Shown {
        let bits = double.to_bits();
        if self.pass == Pass::Final && self.wanted.contains(&place) {
            return Shown::Place(place_bytes(place));
        }
        let spelling = spelling_at(&self.text, place);
        let seen = self.seen.entry(bits).or_insert(Seen { place, shared: false, probe: double });
        seen.shared |= seen.place != place && spelling_at(&self.text, seen.place) != spelling;
        if self.pass == Pass::Probe && seen.shared {
            let mut probe = seen.probe.next_up();
            while self.seen.contains_key(&probe.to_bits()) || self.probes.contains_key(&probe.to_bits()) {
                probe = probe.next_up();
            }
            // Without a finite double left the place stays unknown, and the final pass an error.
            if probe.is_finite() {
                self.probes.insert(probe.to_bits(), place);
                if let Some(seen) = self.seen.get_mut(&bits) {
                    seen.probe = probe;
                }
                return Shown::Double(probe);
            }
        }
        Shown::Double(double)
    }

    fn place_of(&mut self, double: f64) -> Option<usize> {
        if self.pass == Pass::Probe
            && let Some(place) = self.probes.get(&double.to_bits())
        {
            self.wanted.insert(*place);
            return Some(*place);
        }
        let seen = self.seen.get(&double.to_bits())?;
        // The value is provisional then: this pass does not count.
        self.shared |= seen.shared;
        Some(seen.place)
    }
}

fn place_bytes(place: usize) -> [u8; 9] {
    let [a, b, c, d, e, f, g, h] = u64::try_from(place).unwrap_or(0).to_be_bytes();
    [PLACE, a, b, c, d, e, f, g, h]
}

fn spelling_at(text: &str, place: usize) -> &str {
    super::read::Reader::at(text, place).number().unwrap_or_default()
}

/// Calls `use_text` with the spelling of the number that was handed out as `double`; `None` if the innermost
/// document handed out no such double.
pub(super) fn by_double<T>(double: f64, use_text: impl FnOnce(&str) -> T) -> Option<T> {
    SCOPES.with_borrow_mut(|scopes| {
        let scope = scopes.last_mut()?;
        let place = scope.place_of(double)?;
        Some(use_text(spelling_at(&scope.text, place)))
    })
}

/// As [`by_double`], for the bytes that name a place.
pub(super) fn by_bytes<T>(bytes: &[u8], use_text: impl FnOnce(&str) -> T) -> Option<T> {
    let (first, place) = bytes.split_first()?;
    if *first != PLACE {
        return None;
    }
    let place = usize::try_from(u64::from_be_bytes(place.try_into().ok()?)).ok()?;
    SCOPES.with_borrow(|scopes| {
        let scope = scopes.last()?;
        scope.wanted.contains(&place).then(|| use_text(spelling_at(&scope.text, place)))
    })
}
