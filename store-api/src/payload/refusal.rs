//! Why a document is refused, and where in it.

use std::fmt;

/// What is wrong with a document, in [`Unrepresentable`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A number needs more than [`MAX_DIGITS`](super::MAX_DIGITS) significant digits.
    TooManyDigits {
        /// The significant digits it has, leading and trailing zeros not counted.
        digits: usize,
    },
    /// A number is larger or smaller than Decimal128 can hold exactly.
    ExponentOutOfRange,
    /// A floating-point number is NaN or infinite.
    NotFinite,
    /// A string or a key holds U+0000.
    NulCharacter,
    /// A string or a key escapes half a surrogate pair.
    LoneSurrogate,
    /// A key occurs twice in one object.
    DuplicateKey,
    /// More than [`MAX_DEPTH`](super::MAX_DEPTH) containers are nested.
    TooDeep,
    /// The encoded size is over the limit.
    TooLarge {
        /// The size reached when the limit was passed: exact if the whole document was seen, else a lower
        /// bound.
        size: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The text is not JSON.
    NotJson {
        /// The byte offset of the offence in the text (or in the raw fragment at the pointer).
        at: usize,
        /// What was expected or found there; never a piece of the text.
        problem: &'static str,
    },
    /// A map key is not a string and has no agreed spelling as one.
    KeyNotString,
    /// The value's own `Serialize` gave up, with this message.
    Custom(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyDigits { digits } => {
                write!(
                    f,
                    "number has {digits} significant digits, at most {} are kept exactly",
                    super::MAX_DIGITS
                )
            }
            Self::ExponentOutOfRange => f.write_str("number is outside the range of a 128-bit decimal"),
            Self::NotFinite => f.write_str("number is not finite"),
            Self::NulCharacter => f.write_str("string or key holds the character U+0000"),
            Self::LoneSurrogate => f.write_str("string or key holds half a surrogate pair"),
            Self::DuplicateKey => f.write_str("key occurs twice in one object"),
            Self::TooDeep => write!(f, "more than {} levels are nested", super::MAX_DEPTH),
            Self::TooLarge { size, limit } => {
                write!(f, "encoded size of {size} bytes is over the limit of {limit}")
            }
            Self::NotJson { at, problem } => write!(f, "not JSON at byte {at}: {problem}"),
            Self::KeyNotString => f.write_str("map key is not a string"),
            Self::Custom(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Reason {}

/// A document that the portable profile refuses: nothing of it was stored.
///
/// Holds the [JSON pointer](Self::pointer) and the [reason](Self::reason). No value of the document is in it,
/// only the keys on the way to the place.
#[derive(Clone, PartialEq, Eq)]
pub struct Unrepresentable(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    pointer: String,
    reason: Reason,
}

impl Unrepresentable {
    /// The place, as an RFC 6901 pointer; empty for the document as a whole.
    ///
    /// A duplicate key points to its second occurrence. A key with a lone surrogate shows U+FFFD in its stead.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.0.pointer
    }

    /// What is wrong there.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// The same refusal, one level further out: below `segment` of the enclosing container.
    #[cold]
    pub(super) fn under(mut self, segment: &str) -> Self {
        // Size is a property of the whole document, wherever the scan happened to stop.
        if !matches!(self.0.reason, Reason::TooLarge { .. }) {
            push_front(&mut self.0.pointer, segment);
        }
        self
    }
}

impl From<Reason> for Unrepresentable {
    /// A refusal of the document as a whole.
    #[cold]
    fn from(reason: Reason) -> Self {
        Self(Box::new(Inner { pointer: String::new(), reason }))
    }
}

impl fmt::Debug for Unrepresentable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unrepresentable")
            .field("pointer", &self.0.pointer)
            .field("reason", &self.0.reason)
            .finish()
    }
}

impl fmt::Display for Unrepresentable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "payload cannot be stored exactly")?;
        write_place(f, &self.0.pointer)?;
        write!(f, ": {}", self.0.reason)
    }
}

impl std::error::Error for Unrepresentable {}

impl serde::ser::Error for Unrepresentable {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Reason::Custom(message.to_string()).into()
    }
}

/// A payload that does not have the shape of the type asked for.
///
/// Messages that this crate writes name kinds ("string", "floating point"), never values, so that a payload
/// does not leak into a log. A type's own `Deserialize` may word its errors as it likes.
#[derive(Clone, PartialEq, Eq)]
pub struct DecodeError {
    pub(super) pointer: String,
    pub(super) message: String,
}

impl DecodeError {
    /// The place, as an RFC 6901 pointer; empty for the document as a whole.
    ///
    /// Inside a value that serde buffers (internally tagged, adjacently tagged and untagged enums, flattened
    /// fields) it is the place of the buffered value.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What is wrong there.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Debug for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeError").field("pointer", &self.pointer).field("message", &self.message).finish()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("payload does not decode")?;
        write_place(f, &self.pointer)?;
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for DecodeError {}

/// Puts one reference token before an RFC 6901 pointer.
pub(super) fn push_front(pointer: &mut String, segment: &str) {
    let escaped = segment.replace('~', "~0").replace('/', "~1");
    pointer.insert_str(0, &escaped);
    pointer.insert(0, '/');
}

/// Writes ` at "<pointer>"`, shortened and with control characters escaped: a key is the user's and may be
/// anything.
fn write_place(f: &mut fmt::Formatter<'_>, pointer: &str) -> fmt::Result {
    const SHOWN: usize = 256;
    if pointer.is_empty() {
        return Ok(());
    }
    let cut = pointer.char_indices().nth(SHOWN).map_or(pointer.len(), |(at, _)| at);
    let shown = pointer.get(..cut).unwrap_or_default();
    let more = if cut < pointer.len() { "…" } else { "" };
    write!(f, " at \"{}{more}\"", shown.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_is_built_from_the_inside_out_and_escaped() {
        let refusal = Unrepresentable::from(Reason::NotFinite).under("a/b~c").under("0").under("");
        assert_eq!(refusal.pointer(), "//0/a~1b~0c");
        assert_eq!(
            refusal.to_string(),
            "payload cannot be stored exactly at \"//0/a~1b~0c\": number is not finite"
        );
    }

    #[test]
    fn display_escapes_and_shortens_keys() {
        let refusal = Unrepresentable::from(Reason::NulCharacter).under("a\0b");
        assert!(refusal.to_string().contains(r#"at "/a\0b""#), "{refusal}");
        let refusal = Unrepresentable::from(Reason::TooDeep).under(&"é".repeat(1_000));
        assert!(refusal.to_string().len() < 700);
        assert_eq!(refusal.pointer().len(), 2_001);
    }

    #[test]
    fn size_is_a_property_of_the_whole_document() {
        let refusal = Unrepresentable::from(Reason::TooLarge { size: 9, limit: 8 }).under("a");
        assert_eq!(refusal.pointer(), "");
    }
}
