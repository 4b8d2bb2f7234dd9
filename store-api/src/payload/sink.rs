//! Where canonical text is put together: the one place that spells values, counts sizes and depth and looks
//! for duplicate keys.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;

use super::digits::{self, Token};
use super::{MAX_DEPTH, MAX_PAYLOAD_BYTES, Reason};

/// Up to this many keys of an object are compared one by one, which is faster than hashing them and allocates
/// nothing.
const FEW_KEYS: usize = 16;

/// Canonical text in the making.
#[derive(Debug)]
pub(super) struct Sink {
    out: String,
    /// The size of the BSON that the text so far becomes.
    bson: usize,
    depth: usize,
    /// Where the first few keys of all open objects are in `out`; each [`Frame`] owns a stretch at the end.
    keys: Vec<Range<usize>>,
}

/// One open array or object.
#[derive(Debug)]
pub(super) struct Frame {
    items: usize,
    first_key: usize,
    last_key: Range<usize>,
    many: Option<HashSet<Box<str>>>,
}

impl Sink {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes), bson: 0, depth: 0, keys: Vec::new() }
    }

    /// The text and its encoded size.
    pub(super) fn finish(self) -> Result<(String, usize), Reason> {
        let size = encoded_size(&self.out, self.bson);
        if size > MAX_PAYLOAD_BYTES {
            return Err(Reason::TooLarge { size, limit: MAX_PAYLOAD_BYTES });
        }
        Ok((self.out, size))
    }

    /// Counts BSON bytes, and checks the limit against what there is by now.
    fn charge(&mut self, bson: usize) -> Result<(), Reason> {
        self.bson += bson;
        self.check(self.out.len().max(self.bson))
    }

    fn check(&self, size: usize) -> Result<(), Reason> {
        if size > MAX_PAYLOAD_BYTES {
            return Err(Reason::TooLarge { size, limit: MAX_PAYLOAD_BYTES });
        }
        Ok(())
    }

    pub(super) fn null(&mut self) -> Result<(), Reason> {
        self.out.push_str("null");
        self.charge(0)
    }

    pub(super) fn bool(&mut self, value: bool) -> Result<(), Reason> {
        self.out.push_str(if value { "true" } else { "false" });
        self.charge(1)
    }

    pub(super) fn integer(&mut self, value: i64) -> Result<(), Reason> {
        // Writing to a string does not fail.
        let _ = write!(self.out, "{value}");
        self.charge(8)
    }

    pub(super) fn number(&mut self, token: &Token<'_>) -> Result<(), Reason> {
        let small = digits::canonical(token, &mut self.out)?;
        self.charge(if small { 8 } else { 16 })
    }

    pub(super) fn string(&mut self, value: &str) -> Result<(), Reason> {
        // Checked before copying: a single string may be larger than memory allows twice.
        self.check(self.out.len().saturating_add(value.len()))?;
        self.quoted(value)?;
        self.charge(4 + value.len() + 1)
    }

    /// A string that is known to need no escapes.
    pub(super) fn plain_string(&mut self, value: &str) -> Result<(), Reason> {
        self.check(self.out.len().saturating_add(value.len()))?;
        self.out.push('"');
        self.out.push_str(value);
        self.out.push('"');
        self.charge(4 + value.len() + 1)
    }

    fn open(&mut self, bracket: char) -> Result<Frame, Reason> {
        if self.depth >= MAX_DEPTH {
            return Err(Reason::TooDeep);
        }
        self.depth += 1;
        self.out.push(bracket);
        self.charge(5)?;
        Ok(Frame { items: 0, first_key: self.keys.len(), last_key: 0..0, many: None })
    }

    fn close(&mut self, bracket: char) {
        self.out.push(bracket);
        self.depth = self.depth.saturating_sub(1);
    }

    pub(super) fn open_array(&mut self) -> Result<Frame, Reason> {
        self.open('[')
    }

    /// Before each element.
    pub(super) fn element(&mut self, frame: &mut Frame) -> Result<(), Reason> {
        if frame.items > 0 {
            self.out.push(',');
        }
        // BSON spells the index of each element as its key.
        let index_len = frame.items.checked_ilog10().map_or(1, |log| usize::try_from(log).unwrap_or(0) + 1);
        frame.items += 1;
        self.charge(2 + index_len)
    }

    pub(super) fn close_array(&mut self) {
        self.close(']');
    }

    pub(super) fn open_object(&mut self) -> Result<Frame, Reason> {
        self.open('{')
    }

    /// Before each value of an object.
    pub(super) fn key(&mut self, frame: &mut Frame, name: &str) -> Result<(), Reason> {
        self.check(self.out.len().saturating_add(name.len()))?;
        if frame.items > 0 {
            self.out.push(',');
        }
        frame.items += 1;
        let start = self.out.len();
        self.quoted(name)?;
        frame.last_key = start..self.out.len();
        self.out.push(':');
        self.charge(2 + name.len())?;
        self.check_duplicate(frame)
    }

    pub(super) fn close_object(&mut self, frame: &Frame) {
        self.keys.truncate(frame.first_key);
        self.close('}');
    }

    /// The canonical spelling of a key is unique, so keys are compared as they stand in the text.
    fn check_duplicate(&mut self, frame: &mut Frame) -> Result<(), Reason> {
        let text = |range: &Range<usize>| self.out.get(range.clone()).unwrap_or_default();
        let key = text(&frame.last_key);
        if let Some(many) = &mut frame.many {
            return if many.insert(key.into()) { Ok(()) } else { Err(Reason::DuplicateKey) };
        }
        let earlier = self.keys.get(frame.first_key..).unwrap_or_default();
        if earlier.iter().any(|range| text(range) == key) {
            return Err(Reason::DuplicateKey);
        }
        if earlier.len() < FEW_KEYS {
            self.keys.push(frame.last_key.clone());
        } else {
            let mut many: HashSet<Box<str>> = earlier.iter().map(|range| text(range).into()).collect();
            many.insert(key.into());
            frame.many = Some(many);
        }
        Ok(())
    }

    /// The key before the value that is being written, for a pointer.
    #[cold]
    pub(super) fn current_key(&self, frame: &Frame) -> String {
        super::read::Reader::at(&self.out, frame.last_key.start)
            .string()
            .map_or_else(|_| String::new(), Into::into)
    }

    fn quoted(&mut self, value: &str) -> Result<(), Reason> {
        self.out.push('"');
        let mut rest = value;
        while let Some(at) = find_escape(rest.as_bytes()) {
            let (plain, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
            self.out.push_str(plain);
            let mut tail = tail.chars();
            match tail.next() {
                Some('\0') => return Err(Reason::NulCharacter),
                Some('"') => self.out.push_str("\\\""),
                Some('\\') => self.out.push_str("\\\\"),
                Some('\n') => self.out.push_str("\\n"),
                Some('\r') => self.out.push_str("\\r"),
                Some('\t') => self.out.push_str("\\t"),
                Some('\u{8}') => self.out.push_str("\\b"),
                Some('\u{c}') => self.out.push_str("\\f"),
                Some(control) => {
                    let _ = write!(self.out, "\\u{:04x}", u32::from(control));
                }
                None => {}
            }
            rest = tail.as_str();
        }
        self.out.push_str(rest);
        self.out.push('"');
        Ok(())
    }
}

impl Frame {
    /// The index of the element that is being written, for a pointer.
    #[cold]
    pub(super) fn current_index(&self) -> String {
        self.items.saturating_sub(1).to_string()
    }
}

/// What JSON does not take as it is inside quotes.
fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Where the first byte is that JSON does not take as it is inside quotes.
pub(super) fn find_escape(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGHS: u64 = ONES << 7;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Sets the high bit of every byte looked for. A borrow may set it in the next byte too, never in one
        // before: the lowest is right.
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let below = (word.wrapping_sub(ONES * 0x20) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash);
        let found = below & HIGHS;
        if found != 0 {
            let byte = usize::try_from(found.trailing_zeros() / 8).unwrap_or(0);
            return Some(index * 8 + byte);
        }
    }
    let done = bytes.len() - rest.len();
    rest.iter().position(|byte| needs_escape(*byte)).map(|at| done + at)
}

/// The larger of the text and its BSON; a scalar counts as the only element of a document with a one-letter
/// key.
pub(super) fn encoded_size(text: &str, bson: usize) -> usize {
    let bson = if text.starts_with(['{', '[']) { bson } else { bson + 8 };
    text.len().max(bson)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_minimal() {
        let mut sink = Sink::with_capacity(0);
        sink.string("é\"\\/\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}\u{2028}😀").unwrap();
        assert_eq!(sink.finish().unwrap().0, "\"é\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}\u{2028}😀\"");
    }

    #[test]
    fn many_keys_are_checked_across_the_switch_to_a_set() {
        for repeated in [0, 14, 15, 16, 17, 40] {
            let mut sink = Sink::with_capacity(0);
            let mut frame = sink.open_object().unwrap();
            for key in 0..41 {
                sink.key(&mut frame, &key.to_string()).unwrap();
                sink.null().unwrap();
            }
            assert_eq!(sink.key(&mut frame, &repeated.to_string()), Err(Reason::DuplicateKey), "{repeated}");
        }
    }

    #[test]
    fn the_first_byte_to_escape_is_found() {
        for filler in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0x82, 0xa2, 0xdc, 0xff] {
            for special in [0, 1, 0x1f, b'"', b'\\'] {
                for len in 0..20 {
                    let mut bytes = vec![filler; len];
                    assert_eq!(find_escape(&bytes), None);
                    for at in (0..len).rev() {
                        bytes[at] = special;
                        assert_eq!(find_escape(&bytes), Some(at));
                    }
                }
            }
        }
    }

    #[test]
    fn inner_objects_do_not_see_outer_keys() {
        let mut sink = Sink::with_capacity(0);
        let mut outer = sink.open_object().unwrap();
        sink.key(&mut outer, "a").unwrap();
        let mut inner = sink.open_object().unwrap();
        sink.key(&mut inner, "a").unwrap();
        sink.null().unwrap();
        sink.close_object(&inner);
        sink.key(&mut outer, "b").unwrap();
        sink.null().unwrap();
        assert_eq!(sink.key(&mut outer, "a"), Err(Reason::DuplicateKey));
    }
}
