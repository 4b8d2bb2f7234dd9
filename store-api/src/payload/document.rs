//! The document itself.

use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::read::{self, Reader};
use super::sink::Sink;
use super::{DecodeError, Reason, Unrepresentable, Value, de, scan, ser};

/// A JSON document inside the [portable profile](super), in canonical form. Cheap to clone.
///
/// Two payloads are equal if they are equal in value: the order of keys and the scale of numbers (`1.10`,
/// `1.1`) do not count.
///
/// [`Debug`](fmt::Debug) shows the size and nothing of the content.
///
/// ```
/// # use wow_store_api::payload::{Payload, Reason};
/// let payload = Payload::from_json(r#" {"qty": 1E2, "price": 1.10} "#)?;
/// assert_eq!(payload.as_json(), r#"{"qty":100,"price":1.10}"#);
/// assert_eq!(payload, Payload::from_json(r#"{"price":1.1,"qty":100}"#)?);
///
/// let refusal = Payload::from_json(r#"{"a":[{"b":1,"b":2}]}"#).unwrap_err();
/// assert_eq!(refusal.pointer(), "/a/0/b");
/// assert_eq!(*refusal.reason(), Reason::DuplicateKey);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Payload {
    text: Arc<str>,
    size: OnceLock<usize>,
}

impl Payload {
    /// The document that `value` serialises to.
    ///
    /// # Errors
    /// [`Unrepresentable`] if it is outside the profile, or its `Serialize` fails.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, Unrepresentable> {
        ser::to_canonical(value).map(Self::known)
    }

    /// The document of a JSON text, white space around it allowed.
    ///
    /// # Errors
    /// [`Unrepresentable`] if it is not JSON or outside the profile.
    pub fn from_json(text: &str) -> Result<Self, Unrepresentable> {
        let mut sink = Sink::with_capacity(text.len().min(super::MAX_PAYLOAD_BYTES));
        scan::scan(text, &mut sink)?;
        Ok(Self::known(sink.finish()?))
    }

    /// As [`from_json`](Self::from_json), for bytes that should be UTF-8.
    ///
    /// # Errors
    /// [`Unrepresentable`] if they are not UTF-8, not JSON or outside the profile.
    pub fn from_json_bytes(bytes: &[u8]) -> Result<Self, Unrepresentable> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Reason::NotJson { at: error.valid_up_to(), problem: "invalid UTF-8" })?;
        Self::from_json(text)
    }

    /// The document of a tree.
    ///
    /// # Errors
    /// [`Unrepresentable`] if it is outside the profile.
    pub fn from_value(value: &Value) -> Result<Self, Unrepresentable> {
        Self::from_serialize(value)
    }

    /// For backends: the payload whose [`as_json`](Self::as_json) was stored and has now been read back.
    ///
    /// The text is **not** checked again; a backend vouches for it, with a checksum if need be. With any
    /// other text, decoding gives an error or a value of that text, [`to_value`](Self::to_value) may be
    /// [`Value::Null`]; nothing panics.
    #[must_use]
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), size: OnceLock::new() }
    }

    /// `{}`
    #[must_use]
    pub fn empty_object() -> Self {
        Self::from_stored("{}")
    }

    /// `null`
    #[must_use]
    pub fn null() -> Self {
        Self::from_stored("null")
    }

    fn known((text, size): (String, usize)) -> Self {
        Self { text: text.into(), size: OnceLock::from(size) }
    }

    /// The canonical text.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.text
    }

    /// The canonical text, shared.
    #[must_use]
    pub fn to_shared_json(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Reads a `T`. Strings without escapes are borrowed from the payload.
    ///
    /// Numbers are exact or an error, with one exception: a float target takes the nearest float. `1.0` is
    /// not an integer. See [`decimal`](super::decimal) for exact fractions, and the [module](super) for the
    /// types of serde_json.
    ///
    /// The `Deserialize` of `T` may run up to three times, see [`decimal`](super::decimal).
    ///
    /// # Errors
    /// [`DecodeError`] if the document does not have the shape of `T`.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DecodeError> {
        de::decode(&self.text)
    }

    /// The encoded size in bytes that the limits count: the larger of the canonical text and of the BSON that
    /// it becomes. In BSON an integer that fits an `i64` takes 8 bytes, every other number 16; a scalar
    /// document counts as the only element of a BSON document with a one-letter key.
    #[must_use]
    pub fn size(&self) -> usize {
        *self.size.get_or_init(|| read::size_of(&self.text))
    }

    /// The document as a tree.
    #[must_use]
    pub fn to_value(&self) -> Value {
        tree(&self.text).unwrap_or(Value::Null)
    }

    /// The value at the end of `path`: keys of objects, and indexes of arrays as decimal digits; `None` if
    /// there is none. The empty path is the whole document. Reads no further than it must.
    ///
    /// ```
    /// # use wow_store_api::payload::{Payload, Value};
    /// let payload = Payload::from_json(r#"{"lines":[{"sku":"a"},{"sku":"b"}]}"#)?;
    /// assert_eq!(payload.at(["lines", "1", "sku"]), Some(Value::String("b".into())));
    /// assert_eq!(payload.at(["lines", "2"]), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn at<S: AsRef<str>>(&self, path: impl IntoIterator<Item = S>) -> Option<Value> {
        let mut reader = Reader::new(&self.text);
        let mut depth = 0;
        for segment in path {
            reader.descend(segment.as_ref()).ok()??;
            depth += 1;
        }
        reader.value(depth).ok()
    }
}

/// The tree of a text, if it is canonical.
fn tree(text: &str) -> Option<Value> {
    let mut reader = Reader::new(text);
    let value = reader.value(0).ok()?;
    reader.peek().is_none().then_some(value)
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
            || tree(&self.text).is_some_and(|left| tree(&other.text).is_some_and(|right| left == right))
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("size", &self.size()).finish_non_exhaustive()
    }
}
