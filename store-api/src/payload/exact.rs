//! Exact numbers through serde's buffers.
//!
//! For internally tagged, adjacently tagged and untagged enums and for flattened fields serde reads a value into a buffer of its own before it knows the
//! type. A number other than `i64` or `u64` gets into that buffer as an `f64` or not at all: anything else would break fields that *are* `f64`.
//! So while one [`Payload`](super::Payload) is decoded, this module remembers which double came from which place in the text, and
//! whoever wants the exact number asks by the double.
//!
//! One double may stand for several spellings (`1.10` and `1.1`). If such a double is asked for, the document is decoded twice more:
//! 1. *Probe*: each place of a shared double shows as a NaN that carries the place, so that it comes out which places are asked for.
//!    The result is thrown away.
//! 2. *Final*: the places found are buffered as bytes that name the place, which nothing but an asker accepts; all others as plain doubles.
//!
//! What is then still shared is an error. An exact number, or an error: never a rounded one, never the wrong scale.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;

thread_local! {
    /// The documents being decoded on this thread, innermost last. A document is entered with the first double it hands out.
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// First byte of the bytes that name a place. Never found in UTF-8, so that no string target accepts them.
const PLACE: u8 = 0xff;
/// A quiet NaN; the bits below it carry a place.
const NAN: u64 = 0x7ff8_0000_0000_0000;
const NAN_PAYLOAD: u64 = 0x0007_ffff_ffff_ffff;

#[derive(Debug)]
struct Scope {
    text: Arc<str>,
    /// By the bits of a double: where it was first seen, and whether another spelling was seen since.
    seen: HashMap<u64, Seen>,
    /// A shared double was asked for in this pass.
    shared: bool,
    pass: Pass,
    /// The places that were asked for in the probe.
    wanted: HashSet<usize>,
}

#[derive(Debug)]
struct Seen {
    place: usize,
    shared: bool,
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
        // Nothing of the user's runs inside, so the list is never borrowed here; a thread that is ending has no list any more.
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
        let seen = self.seen.entry(bits).or_insert(Seen { place, shared: false });
        seen.shared |= seen.place != place && spelling_at(&self.text, seen.place) != spelling;
        if self.pass == Pass::Probe && seen.shared {
            let payload = u64::try_from(place).unwrap_or(0) & NAN_PAYLOAD;
            return Shown::Double(f64::from_bits(NAN | payload));
        }
        Shown::Double(double)
    }

    fn place_of(&mut self, double: f64) -> Option<usize> {
        if double.is_nan() {
            let place = usize::try_from(double.to_bits() & NAN_PAYLOAD).ok()?;
            self.wanted.insert(place);
            return (self.pass == Pass::Probe).then_some(place);
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

/// Calls `use_text` with the spelling of the number that was handed out as `double`; `None` if the innermost document handed out no such double.
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
    SCOPES.with_borrow(|scopes| Some(use_text(spelling_at(&scopes.last()?.text, place))))
}
