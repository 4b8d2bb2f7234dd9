//! Reading canonical text. A text that is not canonical (a backend handed over something else) gives errors,
//! never a panic.

use std::borrow::Cow;

use super::sink::{encoded_size, find_escape};
use super::{MAX_DEPTH, Number, Value, number};

/// What is wrong with a text that should have been canonical.
pub(super) type Damage = &'static str;

/// A place in a text.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, pos: 0 }
    }

    pub(super) fn at(text: &'a str, pos: usize) -> Self {
        Self { text, pos }
    }

    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    /// Steps over `byte` if it is next.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        self.pos += usize::from(next);
        next
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.pos..).unwrap_or_default()
    }

    fn slice(&self, from: usize, to: usize) -> Result<&'a str, Damage> {
        self.text.get(from..to).ok_or("damaged text")
    }

    pub(super) fn literal(&mut self, word: &str) -> Result<(), Damage> {
        if self.rest().starts_with(word.as_bytes()) {
            self.pos += word.len();
            Ok(())
        } else {
            Err("damaged literal")
        }
    }

    /// The spelling of the number that is next.
    pub(super) fn number(&mut self) -> Result<&'a str, Damage> {
        let start = self.pos;
        let rest = self.rest();
        self.pos +=
            rest.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'-')).unwrap_or(rest.len());
        if self.pos == start { Err("expected a value") } else { self.slice(start, self.pos) }
    }

    /// The string that is next; borrowed if it has no escapes.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>, Damage> {
        if !self.take(b'"') {
            return Err("expected a string");
        }
        let start = self.pos;
        let rest = self.rest();
        self.pos += find_escape(rest).ok_or("unterminated string")?;
        let plain = self.slice(start, self.pos)?;
        if self.take(b'"') {
            return Ok(Cow::Borrowed(plain));
        }
        let mut owned = String::from(plain);
        loop {
            if self.take(b'"') {
                return Ok(Cow::Owned(owned));
            }
            if !self.take(b'\\') {
                return Err("control character in a string");
            }
            owned.push(self.escape()?);
            let start = self.pos;
            let rest = self.rest();
            self.pos += find_escape(rest).ok_or("unterminated string")?;
            owned.push_str(self.slice(start, self.pos)?);
        }
    }

    /// The canonical escapes: the only `\u` ones are those of control characters.
    fn escape(&mut self) -> Result<char, Damage> {
        let letter = self.peek().ok_or("unterminated string")?;
        self.pos += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let digits = self.slice(self.pos, self.pos + 4)?;
                self.pos += 4;
                u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).ok_or("damaged escape")?
            }
            _ => return Err("damaged escape"),
        })
    }

    /// Steps over a string without looking at its escapes.
    fn skip_string(&mut self) -> Result<(), Damage> {
        self.pos += 1;
        loop {
            let rest = self.rest();
            self.pos +=
                rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).ok_or("unterminated string")?;
            if self.take(b'"') {
                return Ok(());
            }
            self.pos += 2;
        }
    }

    /// Steps over the value that is next and returns its text.
    pub(super) fn skip(&mut self) -> Result<&'a str, Damage> {
        let start = self.pos;
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or("unexpected end")? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.pos += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1).ok_or("expected a value")?;
                    self.pos += 1;
                }
                b',' | b':' if depth == 0 => return Err("expected a value"),
                b',' | b':' => self.pos += 1,
                _ => {
                    let rest = self.rest();
                    self.pos += rest
                        .iter()
                        .position(|byte| matches!(byte, b',' | b']' | b'}' | b':' | b'"'))
                        .unwrap_or(rest.len());
                }
            }
            if depth == 0 {
                return self.slice(start, self.pos);
            }
        }
    }

    /// The value that is next, as a tree.
    pub(super) fn value(&mut self, depth: usize) -> Result<Value, Damage> {
        Ok(match self.peek().ok_or("unexpected end")? {
            b'n' => {
                self.literal("null")?;
                Value::Null
            }
            b't' => {
                self.literal("true")?;
                Value::Bool(true)
            }
            b'f' => {
                self.literal("false")?;
                Value::Bool(false)
            }
            b'"' => Value::String(self.string()?.into_owned()),
            b'[' => {
                let mut items = Vec::new();
                self.container(b']', depth, |reader| {
                    items.push(reader.value(depth + 1)?);
                    Ok(())
                })?;
                Value::Array(items)
            }
            b'{' => {
                let mut members = Vec::new();
                self.container(b'}', depth, |reader| {
                    let key = reader.key()?.into_owned();
                    members.push((key, reader.value(depth + 1)?));
                    Ok(())
                })?;
                Value::Object(members)
            }
            _ => Value::Number(Number::from_canonical(self.number()?)),
        })
    }

    /// A key and its colon.
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, Damage> {
        let key = self.string()?;
        if self.take(b':') { Ok(key) } else { Err("expected a colon") }
    }

    /// Steps over a container, calling `item` at each of its items; `depth` counts the containers around it.
    fn container(
        &mut self,
        close: u8,
        depth: usize,
        mut item: impl FnMut(&mut Self) -> Result<(), Damage>,
    ) -> Result<(), Damage> {
        if depth >= MAX_DEPTH {
            return Err("too many levels");
        }
        self.pos += 1;
        if self.take(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.take(close) {
                return Ok(());
            }
            if !self.take(b',') {
                return Err("expected a comma or the end of the container");
            }
        }
    }

    /// Moves to the value of member or element `segment` of the container that is next; `None` if there is
    /// none.
    pub(super) fn descend(&mut self, segment: &str) -> Result<Option<()>, Damage> {
        let close = match self.peek() {
            Some(b'{') => b'}',
            Some(b'[') => b']',
            _ => return Ok(None),
        };
        self.pos += 1;
        let wanted = canonical_index(segment);
        let mut index = 0_usize;
        while self.peek().is_some_and(|byte| byte != close) {
            let here = if close == b'}' { self.key()? == segment } else { wanted == Some(index) };
            if here {
                return Ok(Some(()));
            }
            self.skip()?;
            index += 1;
            if !self.take(b',') {
                break;
            }
        }
        Ok(None)
    }

    /// The BSON size of the value that is next.
    fn bson_size(&mut self, depth: usize) -> Result<usize, Damage> {
        Ok(match self.peek().ok_or("unexpected end")? {
            b'n' => {
                self.literal("null")?;
                0
            }
            b't' => {
                self.literal("true")?;
                1
            }
            b'f' => {
                self.literal("false")?;
                1
            }
            b'"' => 5 + self.string()?.len(),
            b'[' => {
                let (mut size, mut index) = (5, 0_usize);
                self.container(b']', depth, |reader| {
                    let index_len =
                        index.checked_ilog10().map_or(1, |log| usize::try_from(log).unwrap_or(0) + 1);
                    index += 1;
                    size += 2 + index_len + reader.bson_size(depth + 1)?;
                    Ok(())
                })?;
                size
            }
            b'{' => {
                let mut size = 5;
                self.container(b'}', depth, |reader| {
                    size += 2 + reader.key()?.len();
                    size += reader.bson_size(depth + 1)?;
                    Ok(())
                })?;
                size
            }
            _ if number::is_integer_i64(self.number()?) => 8,
            _ => 16,
        })
    }
}

/// The encoded size of a canonical text; of a damaged one its length.
pub(super) fn size_of(text: &str) -> usize {
    Reader::new(text).bson_size(0).map_or(text.len(), |bson| encoded_size(text, bson))
}

/// An array index as RFC 6901 writes it: digits without a leading zero.
pub(super) fn canonical_index(segment: &str) -> Option<usize> {
    let canonical = segment == "0" || !segment.starts_with(['0', '+']);
    canonical.then(|| segment.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_text_is_an_error() {
        for text in [
            "",
            "{",
            "[",
            "\"",
            "\"a",
            "\"\\",
            "\"\\u",
            "\"\\u12",
            "\"\\ud800\"",
            "\"\\x\"",
            "nul",
            "tru",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\" 1}",
            "[1",
            "[1 2]",
            "[1,",
            "}",
            "]",
            ",",
            ":",
            "[}",
            "\"a\n\"",
            "\u{feff}1",
            "{1:2}",
            "é",
        ] {
            assert!(Reader::new(text).value(0).is_err(), "{text:?}");
            // Nothing else may panic on it either.
            let _ = Reader::new(text).skip();
            let _ = Reader::new(text).descend("a");
            let _ = Reader::new(text).descend("1");
            assert_eq!(size_of(text), text.len());
        }
        let deep = "[".repeat(1_000_000);
        assert!(Reader::new(&deep).value(0).is_err());
        assert!(Reader::new(&deep).skip().is_err());
    }

    #[test]
    fn skip_returns_the_value_alone() {
        for value in
            ["null", "1.5", "\"a]\\\"}\"", "[1,{\"a\":[]},\"]\"]", "{\"a\":{\"}\":\"{\"}}", "[]", "{}"]
        {
            let text = format!("{value},7");
            assert_eq!(Reader::new(&text).skip(), Ok(value));
        }
    }
}
