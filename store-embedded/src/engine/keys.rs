//! Keys that sort as their parts do: integers big-endian, texts ended by a zero byte (no id contains one).

use fjall::Slice;

const SIGN: u64 = 1 << 63;

/// Builds one key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    #[must_use]
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    #[must_use]
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    #[must_use]
    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A signed number: negative ones first.
    #[must_use]
    pub(crate) fn i64(self, value: i64) -> Self {
        self.u64(value.cast_unsigned() ^ SIGN)
    }

    /// A text followed by a terminator, so that no text is a prefix of another.
    #[must_use]
    pub(crate) fn text(mut self, value: &str) -> Self {
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(0);
        self
    }

    /// This key with one more part.
    pub(crate) fn and_u64(&mut self, value: u64) -> Slice {
        let length = self.0.len();
        self.0.extend_from_slice(&value.to_be_bytes());
        let key = Slice::from(self.0.as_slice());
        self.0.truncate(length);
        key
    }

    pub(crate) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Key> for Slice {
    fn from(key: Key) -> Self {
        Self::new(&key.0)
    }
}

/// Takes a key apart again. Every method gives `None` where the key does not have such a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyParts<'a>(&'a [u8]);

impl<'a> KeyParts<'a> {
    pub(crate) fn new(key: &'a [u8]) -> Self {
        Self(key)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.u64().map(|value| (value ^ SIGN).cast_signed())
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let (head, rest) = self.0.split_at_checked(end)?;
        self.0 = rest.get(1..)?;
        std::str::from_utf8(head).ok()
    }

    /// `Some` if nothing is left.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// The first key after all keys that start with `prefix`; `None` if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    let byte = end.last_mut()?;
    *byte = byte.saturating_add(1);
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        let key = Key::new().text("tenant").text("").u64(9).i64(-1);
        let mut parts = KeyParts::new(key.as_slice());
        assert_eq!(parts.text(), Some("tenant"));
        assert_eq!(parts.text(), Some(""));
        assert_eq!(parts.u64(), Some(9));
        assert_eq!(parts.i64(), Some(-1));
        assert_eq!(parts.end(), Some(()));
        assert_eq!(parts.u64(), None);
    }

    #[test]
    fn keys_sort_as_their_parts() {
        let key = |id: &str, version: u64| Key::new().text(id).u64(version).0;
        assert!(key("a", u64::MAX) < key("aa", 0));
        assert!(key("a", 255) < key("a", 256));
        assert!(key("a\u{1}", 0) > key("a", u64::MAX));
        let signed = |value: i64| Key::new().i64(value).0;
        assert!(signed(i64::MIN) < signed(-1) && signed(-1) < signed(0) && signed(0) < signed(i64::MAX));
        assert_eq!(KeyParts::new(&signed(-7)).i64(), Some(-7));
    }

    #[test]
    fn prefix_end_is_tight() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(after_prefix(&[255]), None);
        assert_eq!(after_prefix(b""), None);
    }
}
