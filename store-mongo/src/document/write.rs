//! From JSON to BSON, straight into bytes: a payload is canonical, so its text is read once and never made a tree.

use mongodb::bson::RawDocumentBuf;
use wow_store_api::{Error, Payload, Timestamp, payload::Number};

use super::decimal;
use crate::fault::Fault;

/// What ends a document.
const END: u8 = 0;
const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
/// The subtype of binary.
const UUID: u8 = 0x04;
const BOOLEAN: u8 = 0x08;
const INSTANT: u8 = 0x09;
const NULL: u8 = 0x0a;
const INT32: u8 = 0x10;
const INT64: u8 = 0x12;
const DECIMAL: u8 = 0x13;

/// A document in the making. Keys hold no U+0000: that is checked where they come from outside.
#[derive(Debug)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// Where the documents that are open begin.
    open: Vec<usize>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self::with_capacity(256)
    }

    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(capacity), open: Vec::new() };
        writer.begin();
        writer
    }

    fn begin(&mut self) {
        self.open.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn end(&mut self) {
        self.bytes.push(END);
        if let Some(start) = self.open.pop() {
            let length = self.bytes.len() - start;
            let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
            if let Some(place) = self.bytes.get_mut(start..start + 4) {
                place.copy_from_slice(&length);
            }
        }
    }

    fn element(&mut self, kind: u8, key: &str) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.push(0);
    }

    /// How many bytes there are so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn begin_document(&mut self, key: &str) {
        self.element(DOCUMENT, key);
        self.begin();
    }

    pub(crate) fn begin_array(&mut self, key: &str) {
        self.element(ARRAY, key);
        self.begin();
    }

    /// Ends what was begun last.
    pub(crate) fn close(&mut self) {
        self.end();
    }

    pub(crate) fn text(&mut self, key: &str, text: &str) {
        self.element(STRING, key);
        let length = u32::try_from(text.len() + 1).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    pub(crate) fn int32(&mut self, key: &str, number: i32) {
        self.element(INT32, key);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn int64(&mut self, key: &str, number: i64) {
        self.element(INT64, key);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn instant(&mut self, key: &str, instant: Timestamp) {
        self.element(INSTANT, key);
        self.bytes.extend_from_slice(&instant.as_millis().to_le_bytes());
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) {
        self.element(BOOLEAN, key);
        self.bytes.push(u8::from(value));
    }

    pub(crate) fn uuid(&mut self, key: &str, uuid: uuid::Uuid) {
        self.element(BINARY, key);
        self.bytes.extend_from_slice(&16_u32.to_le_bytes());
        self.bytes.push(UUID);
        self.bytes.extend_from_slice(uuid.as_bytes());
    }

    fn null(&mut self, key: &str) {
        self.element(NULL, key);
    }

    fn number(&mut self, key: &str, text: &str) -> Option<()> {
        if !text.contains('.')
            && let Ok(integer) = text.parse::<i64>()
        {
            self.int64(key, integer);
            return Some(());
        }
        let number: Number = text.parse().ok()?;
        self.element(DECIMAL, key);
        self.bytes.extend_from_slice(&decimal::encode(&number).bytes());
        Some(())
    }

    /// A document that is made already.
    pub(crate) fn raw(&mut self, key: &str, document: &RawDocumentBuf) {
        self.element(DOCUMENT, key);
        self.bytes.extend_from_slice(document.as_bytes());
    }

    /// A payload.
    ///
    /// # Errors
    /// [`wow_store_api::ErrorKind::Internal`] if its text is not canonical, which no payload's is.
    pub(crate) fn payload(&mut self, key: &str, payload: &Payload) -> Result<(), Fault> {
        let mut json = Json { text: payload.as_json(), at: 0 };
        let written = json.value(self, key).filter(|()| json.at == json.text.len());
        written.ok_or_else(|| Fault::from(Error::internal("a payload that is not canonical")))
    }

    /// # Errors
    /// [`wow_store_api::ErrorKind::Internal`] if what was begun was not ended.
    pub(crate) fn finish(mut self) -> Result<RawDocumentBuf, Fault> {
        self.end();
        RawDocumentBuf::from_bytes(self.bytes)
            .map_err(|_| Fault::from(Error::internal("a document that was not put together right")))
    }
}

/// A reader of canonical JSON.
struct Json<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Json<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// One value. Nesting is bounded by the profile of payloads.
    fn value(&mut self, to: &mut Writer, key: &str) -> Option<()> {
        match self.peek()? {
            b'{' => {
                self.at += 1;
                to.begin_document(key);
                if self.take(b'}').is_none() {
                    loop {
                        let name = self.string()?;
                        self.take(b':')?;
                        self.value(to, &name)?;
                        if self.take(b',').is_none() {
                            break;
                        }
                    }
                    self.take(b'}')?;
                }
                to.close();
            }
            b'[' => {
                self.at += 1;
                to.begin_array(key);
                if self.take(b']').is_none() {
                    let mut index = 0_u32;
                    loop {
                        self.value(to, &index.to_string())?;
                        index += 1;
                        if self.take(b',').is_none() {
                            break;
                        }
                    }
                    self.take(b']')?;
                }
                to.close();
            }
            b'"' => {
                let text = self.string()?;
                to.text(key, &text);
            }
            b't' => {
                self.word("true")?;
                to.bool(key, true);
            }
            b'f' => {
                self.word("false")?;
                to.bool(key, false);
            }
            b'n' => {
                self.word("null")?;
                to.null(key);
            }
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'.')) {
                    self.at += 1;
                }
                to.number(key, self.text.get(start..self.at)?)?;
            }
        }
        Some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let end = self.at + word.len();
        (self.text.get(self.at..end)? == word).then(|| self.at = end)
    }

    fn string(&mut self) -> Option<std::borrow::Cow<'a, str>> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => {
                    let plain = self.text.get(start..self.at)?;
                    self.at += 1;
                    return Some(plain.into());
                }
                b'\\' => break,
                _ => self.at += 1,
            }
        }
        let mut text = self.text.get(start..self.at)?.to_owned();
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(text.into());
                }
                b'\\' => {
                    self.at += 1;
                    let escape = self.peek()?;
                    self.at += 1;
                    text.push(match escape {
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'u' => {
                            let code = self.text.get(self.at..self.at + 4)?;
                            self.at += 4;
                            char::from_u32(u32::from_str_radix(code, 16).ok()?)?
                        }
                        other => char::from(other),
                    });
                }
                _ => {
                    let start = self.at;
                    while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\') {
                        self.at += 1;
                    }
                    text.push_str(self.text.get(start..self.at)?);
                }
            }
        }
    }
}
