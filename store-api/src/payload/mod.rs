//! Payloads: JSON documents that every backend stores and returns exactly.
//!
//! # The portable profile
//!
//! What one backend accepts every backend accepts, so a document is checked here, before anything is written,
//! and refused with [`Unrepresentable`] if it is outside:
//!
//! | what | rule |
//! |---|---|
//! | numbers | at most [`MAX_DIGITS`] significant digits, and in the range of Decimal128 (1E-6176 to 9.99…E6144). NaN and infinities are refused |
//! | strings, keys | any Unicode text without U+0000. An escaped half of a surrogate pair is refused. A key may be empty, start with `$`, hold dots |
//! | objects | no key twice, compared after unescaping |
//! | nesting | at most [`MAX_DEPTH`] arrays and objects |
//! | size | at most [`MAX_PAYLOAD_BYTES`], see [`Payload::size`] |
//!
//! # Canonical form
//!
//! An accepted document is brought into one form, which is what is stored, hashed and returned. Doing it
//! again changes nothing.
//!
//! - No insignificant white space. Keys stay in the order in which they were written.
//! - Numbers in plain notation: `1E2` becomes `100`, `1.50E1` becomes `15.0`. Their scale is kept: `1.10`
//!   stays `1.10`, and `1.0` is not `1`. A zero loses its minus sign (`-0.0` becomes `0.0`) and keeps at most
//!   6176 fraction digits. Of a fraction with more than 34 digits, which must then end in zeros, just enough
//!   zeros are dropped to leave 34.
//! - Strings with the escapes JSON requires and no other: `\"`, `\\`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u00XX`
//!   for the other control characters.
//!
//! # Types
//!
//! [`Payload::from_serialize`] lays types out as serde_json does. An `f64` or `f32` becomes its shortest
//! decimal that reads back as the same float, always with a fraction (`1.0`) unless that has more than 34
//! digits. Map keys are strings, characters, integers, floats, booleans or unit variants.
//!
//! Exact decimals need the helper [`decimal`], or the type [`Number`]. A `serde_json::Value` or
//! `serde_json::Number` serialises exactly; as the *target* of [`Payload::decode`] it holds the nearest
//! double for a number that is not a 64-bit integer, as serde has nothing better to offer it; `RawValue` is
//! exact both ways. None of this depends on serde_json's features `arbitrary_precision` and `raw_value`.

mod de;
mod de_access;
mod de_key;
pub mod decimal;
mod digits;
mod document;
mod exact;
mod number;
mod read;
mod refusal;
mod scan;
mod ser;
mod ser_text;
mod serde_number;
mod sink;
mod value;

pub use document::Payload;
pub use number::{Number, Parts};
pub use refusal::{DecodeError, Reason, Unrepresentable};
pub use value::Value;

/// How many arrays and objects may be nested in a document. MongoDB allows 100, of which the envelope takes
/// some.
pub const MAX_DEPTH: usize = 64;
/// How many significant digits a number may have: those of Decimal128.
pub const MAX_DIGITS: usize = 34;
/// The largest [`Payload::size`], included: 8 MiB.
pub const MAX_PAYLOAD_BYTES: usize = 8 * 1024 * 1024;

/// The name of a newtype around the spelling of an exact number.
const NUMBER_NAME: &str = "$wow_store::payload::Number";
/// The name of the struct that serde_json makes of a number under `arbitrary_precision`, and of its only field.
const SERDE_JSON_NUMBER: &str = "$serde_json::private::Number";
/// The name of the struct that serde_json makes of a `RawValue`, and of its only field.
const SERDE_JSON_RAW: &str = "$serde_json::private::RawValue";
