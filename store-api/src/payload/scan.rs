//! Checking JSON text against the profile, and bringing it into canonical form, in one pass.

use super::digits;
use super::sink::{Sink, find_escape};
use super::{Reason, Unrepresentable};

/// Reads a whole JSON text into `sink`, as a document or as a value inside one.
pub(super) fn scan(text: &str, sink: &mut Sink) -> Result<(), Unrepresentable> {
    let mut scanner = Scanner { text, pos: 0 };
    scanner.value(sink)?;
    match scanner.next() {
        None => Ok(()),
        Some(_) => Err(scanner.malformed("expected the end of the document")),
    }
}

struct Scanner<'a> {
    text: &'a str,
    pos: usize,
}

impl Scanner<'_> {
    /// The next byte that is not white space; not stepped over.
    fn next(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.pos..).unwrap_or_default();
        let blank = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.pos += blank.unwrap_or(rest.len());
        self.peek()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    #[cold]
    fn malformed(&self, problem: &'static str) -> Unrepresentable {
        Reason::NotJson { at: self.pos, problem }.into()
    }

    /// Recursion is bounded: the sink refuses to open the container after the last level.
    fn value(&mut self, sink: &mut Sink) -> Result<(), Unrepresentable> {
        match self.next() {
            Some(b'{') => self.object(sink),
            Some(b'[') => self.array(sink),
            Some(b'"') => match self.string()? {
                Text::Plain(text) => Ok(sink.plain_string(text)?),
                Text::Unescaped(text) => Ok(sink.string(&text)?),
            },
            Some(b'-' | b'0'..=b'9') => self.number(sink),
            Some(b'n') => self.literal("null").and_then(|()| Ok(sink.null()?)),
            Some(b't') => self.literal("true").and_then(|()| Ok(sink.bool(true)?)),
            Some(b'f') => self.literal("false").and_then(|()| Ok(sink.bool(false)?)),
            Some(_) => Err(self.malformed("expected a value")),
            None => Err(self.malformed("unexpected end of the document")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Unrepresentable> {
        if !self.text.as_bytes().get(self.pos..).unwrap_or_default().starts_with(word.as_bytes()) {
            return Err(self.malformed("expected a value"));
        }
        self.pos += word.len();
        Ok(())
    }

    fn number(&mut self, sink: &mut Sink) -> Result<(), Unrepresentable> {
        let rest = self.text.get(self.pos..).unwrap_or_default();
        let token =
            digits::read(rest).map_err(|(at, problem)| Reason::NotJson { at: self.pos + at, problem })?;
        self.pos += token.text.len();
        Ok(sink.number(&token)?)
    }

    fn array(&mut self, sink: &mut Sink) -> Result<(), Unrepresentable> {
        let mut frame = sink.open_array()?;
        self.pos += 1;
        if self.next() == Some(b']') {
            self.pos += 1;
            sink.close_array();
            return Ok(());
        }
        loop {
            sink.element(&mut frame)?;
            self.value(sink).map_err(|refusal| refusal.under(&frame.current_index()))?;
            match self.next() {
                Some(b',') => self.pos += 1,
                Some(b']') => {
                    self.pos += 1;
                    sink.close_array();
                    return Ok(());
                }
                _ => return Err(self.malformed("expected a comma or the end of the array")),
            }
        }
    }

    fn object(&mut self, sink: &mut Sink) -> Result<(), Unrepresentable> {
        let mut frame = sink.open_object()?;
        self.pos += 1;
        if self.next() == Some(b'}') {
            self.pos += 1;
            sink.close_object(&frame);
            return Ok(());
        }
        loop {
            if self.next() != Some(b'"') {
                return Err(self.malformed("expected a key"));
            }
            let start = self.pos;
            self.string()
                .and_then(|key| {
                    let key = match &key {
                        Text::Plain(text) => text,
                        Text::Unescaped(text) => text.as_str(),
                    };
                    Ok(sink.key(&mut frame, key)?)
                })
                .map_err(|refusal| self.at_key(refusal, start))?;
            if self.next() != Some(b':') {
                return Err(self.malformed("expected a colon").under(&sink.current_key(&frame)));
            }
            self.pos += 1;
            self.value(sink).map_err(|refusal| refusal.under(&sink.current_key(&frame)))?;
            match self.next() {
                Some(b',') => self.pos += 1,
                Some(b'}') => {
                    self.pos += 1;
                    sink.close_object(&frame);
                    return Ok(());
                }
                _ => return Err(self.malformed("expected a comma or the end of the object")),
            }
        }
    }

    /// A refusal of the key that starts at `start`. What is not even JSON has no key to point to.
    #[cold]
    fn at_key(&self, refusal: Unrepresentable, start: usize) -> Unrepresentable {
        if matches!(refusal.reason(), Reason::NotJson { .. }) {
            return refusal;
        }
        let mut again = Scanner { text: self.text, pos: start };
        let key = again.unescape(true).unwrap_or_default();
        refusal.under(&key)
    }
}

/// A string of the document without its quotes.
enum Text<'a> {
    /// Needs no escapes in canonical form either.
    Plain(&'a str),
    Unescaped(String),
}

impl<'a> Scanner<'a> {
    /// The string that starts here, with its opening quote.
    fn string(&mut self) -> Result<Text<'a>, Unrepresentable> {
        let start = self.pos + 1;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let stop = find_escape(rest);
        match stop.and_then(|at| rest.get(at).map(|byte| (start + at, *byte))) {
            Some((end, b'"')) => {
                self.pos = end + 1;
                Ok(Text::Plain(self.text.get(start..end).unwrap_or_default()))
            }
            _ => self.unescape(false).map(Text::Unescaped),
        }
    }

    /// As [`string`](Self::string), for any string. When `lossy`, lone surrogates become U+FFFD and NUL is
    /// let through: for pointers only.
    fn unescape(&mut self, lossy: bool) -> Result<String, Unrepresentable> {
        self.pos += 1;
        let mut unescaped = String::new();
        loop {
            let start = self.pos;
            let rest = self.text.as_bytes().get(start..).unwrap_or_default();
            let Some(at) = find_escape(rest) else {
                self.pos = self.text.len();
                return Err(self.malformed("unterminated string"));
            };
            self.pos += at;
            unescaped.push_str(self.text.get(start..self.pos).unwrap_or_default());
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(unescaped);
                }
                Some(b'\\') => match self.escape()? {
                    Ok('\0') if !lossy => return Err(Reason::NulCharacter.into()),
                    Ok(character) => unescaped.push(character),
                    Err(LoneSurrogate) if lossy => unescaped.push(char::REPLACEMENT_CHARACTER),
                    Err(LoneSurrogate) => return Err(Reason::LoneSurrogate.into()),
                },
                _ => return Err(self.malformed("control character in a string")),
            }
        }
    }

    /// The character that the escape here stands for.
    fn escape(&mut self) -> Result<Result<char, LoneSurrogate>, Unrepresentable> {
        self.pos += 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.malformed("unknown escape")),
        };
        self.pos += 1;
        Ok(Ok(character))
    }

    fn unicode(&mut self) -> Result<Result<char, LoneSurrogate>, Unrepresentable> {
        self.pos += 1;
        let first = self.hex()?;
        if let Some(character) = char::from_u32(first) {
            return Ok(Ok(character));
        }
        let low_follows = self.text.as_bytes().get(self.pos..).is_some_and(|rest| rest.starts_with(b"\\u"));
        if first >= 0xdc00 || !low_follows {
            return Ok(Err(LoneSurrogate));
        }
        let after_first = self.pos;
        self.pos += 2;
        let second = self.hex()?;
        if !(0xdc00..0xe000).contains(&second) {
            self.pos = after_first;
            return Ok(Err(LoneSurrogate));
        }
        let scalar = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        Ok(char::from_u32(scalar).ok_or(LoneSurrogate))
    }

    fn hex(&mut self) -> Result<u32, Unrepresentable> {
        let digits = self.text.as_bytes().get(self.pos..self.pos + 4).unwrap_or_default();
        let mut value = 0;
        for digit in digits {
            let digit = char::from(*digit)
                .to_digit(16)
                .ok_or_else(|| self.malformed("expected four hexadecimal digits"))?;
            value = value * 16 + digit;
        }
        if digits.len() < 4 {
            return Err(self.malformed("expected four hexadecimal digits"));
        }
        self.pos += 4;
        Ok(value)
    }
}

struct LoneSurrogate;
