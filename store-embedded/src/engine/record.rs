//! The bytes of a stored value.
//!
//! ```text
//! format: u8 | fields … | xxh3-64 of key, format and fields: u64 LE
//! ```
//!
//! Integers are little-endian, byte strings and texts have a `u32` length before them. The checksum takes in the
//! key, so that a value found under a key it was not written to is refused like a damaged one.

use twox_hash::XxHash3_64;

const CHECKSUM_BYTES: usize = 8;

fn checksum(key: &[u8], body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(key), body).to_le_bytes()
}

/// Writes one value.
#[derive(Debug)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn new(format: u8, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity.saturating_add(1 + CHECKSUM_BYTES));
        bytes.push(format);
        Self(bytes)
    }

    /// Fields without a format.
    pub(crate) fn part(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(crate) fn into_part(self) -> Vec<u8> {
        self.0
    }

    /// Puts the format and the fields of another one in the place of as many bytes at the beginning.
    pub(crate) fn begin_with(&mut self, other: &Self) {
        for (to, from) in self.0.iter_mut().zip(&other.0) {
            *to = *from;
        }
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A byte string. Values are bounded far below 4 GiB before they come here; one that is not would be cut by the
    /// length prefix, so it is stored as an impossible length that no decoder accepts.
    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn optional_text(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.u8(1).text(value),
            None => self.u8(0),
        }
    }

    /// The finished value for `key`. Can be called again for another key.
    pub(crate) fn seal(&mut self, key: &[u8]) -> fjall::Slice {
        let sum = checksum(key, &self.0);
        let length = self.0.len();
        self.0.extend_from_slice(&sum);
        let value = fjall::Slice::from(self.0.as_slice());
        self.0.truncate(length);
        value
    }
}

/// Reads one value. Every method says what is wrong with the bytes, never panics and never reads past them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Checks the checksum and gives the format and the fields.
    pub(crate) fn open(key: &[u8], value: &'a [u8]) -> Result<(u8, Self), String> {
        let Some((body, sum)) = value.split_last_chunk::<CHECKSUM_BYTES>() else {
            return Err(format!("value of {} bytes is too short", value.len()));
        };
        if checksum(key, body) != *sum {
            return Err("checksum does not match".to_owned());
        }
        match body.split_first() {
            Some((format, fields)) => Ok((*format, Self(fields))),
            None => Err("value without a format".to_owned()),
        }
    }

    /// Fields that were checked elsewhere.
    pub(crate) fn of(fields: &'a [u8]) -> Self {
        Self(fields)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let Some((head, rest)) = self.0.split_at_checked(count) else {
            return Err(format!("field of {count} bytes where {} are left", self.0.len()));
        };
        self.0 = rest;
        Ok(head)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let head = self.take(N)?;
        head.try_into().map_err(|_| "field of the wrong size".to_owned())
    }

    pub(crate) fn u8(&mut self) -> Result<u8, String> {
        self.chunk().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, String> {
        self.chunk().map(i64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.u32()?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()?).map_err(|e| format!("text is not UTF-8: {e}"))
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<&'a str>, String> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.text().map(Some),
            other => Err(format!("presence byte is {other}")),
        }
    }

    /// Whether every byte was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that every byte was read.
    pub(crate) fn end(self) -> Result<(), String> {
        if self.is_at_end() { Ok(()) } else { Err(format!("{} bytes after the last field", self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"key";

    fn sample() -> fjall::Slice {
        let mut encoder = Encoder::new(1, 64);
        encoder
            .u8(7)
            .u32(8)
            .u64(9)
            .i64(-10)
            .text("text")
            .optional_text(None)
            .optional_text(Some("x"))
            .bytes(&[0, 1]);
        encoder.seal(KEY)
    }

    fn decode(key: &[u8], value: &[u8]) -> Result<(), String> {
        let (format, mut fields) = Decoder::open(key, value)?;
        assert_eq!(format, 1);
        assert_eq!(fields.u8()?, 7);
        assert_eq!(fields.u32()?, 8);
        assert_eq!(fields.u64()?, 9);
        assert_eq!(fields.i64()?, -10);
        assert_eq!(fields.text()?, "text");
        assert_eq!(fields.optional_text()?, None);
        assert_eq!(fields.optional_text()?, Some("x"));
        assert_eq!(fields.bytes()?, [0, 1]);
        fields.end()
    }

    #[test]
    fn fields_come_back() {
        assert_eq!(decode(KEY, &sample()), Ok(()));
    }

    #[test]
    fn every_damaged_byte_is_found() {
        let value = sample();
        for at in 0..value.len() {
            for bit in 0..8 {
                let mut damaged = value.to_vec();
                damaged[at] ^= 1 << bit;
                assert!(decode(KEY, &damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn every_cut_is_found() {
        let value = sample();
        for length in 0..value.len() {
            assert!(decode(KEY, &value[..length]).is_err(), "cut to {length}");
        }
        let mut longer = value.to_vec();
        longer.push(0);
        assert!(decode(KEY, &longer).is_err());
    }

    #[test]
    fn value_under_a_wrong_key_is_found() {
        assert!(decode(b"kez", &sample()).is_err());
    }

    #[test]
    fn wrong_lengths_are_errors() {
        let mut encoder = Encoder::new(1, 8);
        encoder.u32(u32::MAX);
        let value = encoder.seal(KEY);
        let (_, mut fields) = Decoder::open(KEY, &value).unwrap();
        assert!(fields.bytes().is_err());
        let (_, fields) = Decoder::open(KEY, &value).unwrap();
        assert!(fields.end().is_err());
    }
}
