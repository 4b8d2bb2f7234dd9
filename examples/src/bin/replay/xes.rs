//! A small streaming reader of XES event logs (IEEE 1849): one trace in memory at a time.
//!
//! It reads traces, their events, and the attributes of both; values stay exact, numbers never pass through a float.
//! Attributes inside attributes, lists and containers are left out and counted. What precedes the traces (extensions,
//! globals, classifiers, attributes of the log) is passed over.

use std::{
    error::Error,
    fmt,
    io::{self, BufRead, BufReader, Read},
};

use flate2::bufread::MultiGzDecoder;
use quick_xml::{
    Reader, XmlVersion,
    events::{BytesStart, Event as XmlEvent},
};
use serde::Serialize;
use wow_store_api::payload::{Number, Reason};

/// What is wrong with the file, in which line, and what to do.
#[derive(Debug)]
pub(crate) struct XesError {
    /// From 1; `None` if it is about the file as a whole.
    line: Option<u64>,
    reason: String,
}

impl XesError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { line: None, reason: reason.into() }
    }

    pub(crate) fn at(line: u64, reason: impl Into<String>) -> Self {
        Self { line: Some(line), reason: reason.into() }
    }

    pub(crate) fn line(&self) -> Option<u64> {
        self.line
    }
}

impl fmt::Display for XesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl Error for XesError {}

type Result<T> = std::result::Result<T, XesError>;

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// A string, a date, an id: as it is written.
    Text(String),
    Number(Number),
    Bool(bool),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) key: String,
    pub(crate) value: Value,
}

/// One case: its own attributes, and those of its events in their order.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Where it begins.
    pub(crate) line: u64,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) events: Vec<Vec<Attribute>>,
}

/// An XML element that is opened here, or the end of one.
enum Token {
    Open(Element),
    Close,
    Eof,
}

struct Element {
    name: String,
    key: Option<String>,
    value: Option<String>,
}

pub(crate) struct XesReader {
    xml: Reader<Lines<Box<dyn BufRead + Send>>>,
    buffer: Vec<u8>,
    place: Place,
    left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Inside,
    After,
}

impl XesReader {
    /// Reads XES from `input`, gzipped or not: its first bytes tell.
    pub(crate) fn new(input: impl Read + Send + 'static) -> Result<Self> {
        let mut input = BufReader::with_capacity(64 * 1024, input);
        let start = input.fill_buf().map_err(|error| XesError::new(format!("it cannot be read: {error}")))?;
        let plain: Box<dyn BufRead + Send> = match start {
            [] => return Err(XesError::new("the file is empty: give the path of a log, e.g. LOG.xes.gz")),
            [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(64 * 1024, MultiGzDecoder::new(input))),
            [b'<' | b' ' | b'\t' | b'\r' | b'\n' | 0xef, ..] => Box::new(input),
            _ => {
                return Err(XesError::new(
                    "this is neither gzip nor XML: give the path of an XES log, e.g. LOG.xes.gz",
                ));
            }
        };
        let mut xml = Reader::from_reader(Lines { inner: plain, line: 1 });
        xml.config_mut().expand_empty_elements = true;
        Ok(Self { xml, buffer: Vec::new(), place: Place::Before, left_out: 0 })
    }

    /// How many attributes were left out so far, as they are inside others, or lists or containers.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Reads up to the element that makes it a log.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.place != Place::Before {
            return Ok(());
        }
        match self.next()? {
            Token::Open(element) if element.name == "log" => {
                self.place = Place::Inside;
                Ok(())
            }
            Token::Open(element) => {
                Err(self
                    .error(format!("the root element is <{}>, not <log>: this is no XES log", element.name)))
            }
            Token::Close | Token::Eof => Err(self.error("there is no <log> element: this is no XES log")),
        }
    }

    /// The next trace; `None` once the whole file was read and found to be well-formed.
    pub(crate) fn next_trace(&mut self) -> Result<Option<Trace>> {
        self.begin()?;
        loop {
            match (self.place, self.next()?) {
                (Place::Inside, Token::Open(element)) if element.name == "trace" => {
                    return self.trace().map(Some);
                }
                (Place::Inside, Token::Open(element)) => {
                    self.skip(&element.name)?;
                }
                (Place::Inside, Token::Close) => self.place = Place::After,
                (Place::Inside, Token::Eof) => return Err(self.cut_off("log")),
                // Read to the end all the same: only there does gzip say whether its checksum is right.
                (Place::Before | Place::After, Token::Eof) => return Ok(None),
                (Place::Before | Place::After, Token::Open(_) | Token::Close) => {
                    return Err(self.error("there is something after </log>: is it two files in one?"));
                }
            }
        }
    }

    fn trace(&mut self) -> Result<Trace> {
        let mut trace = Trace { line: self.line(), attributes: Vec::new(), events: Vec::new() };
        loop {
            match self.next()? {
                Token::Open(element) if element.name == "event" => trace.events.push(self.event()?),
                Token::Open(element) => self.attribute(element, &mut trace.attributes)?,
                Token::Close => return Ok(trace),
                Token::Eof => return Err(self.cut_off("trace")),
            }
        }
    }

    fn event(&mut self) -> Result<Vec<Attribute>> {
        let mut attributes = Vec::with_capacity(8);
        loop {
            match self.next()? {
                Token::Open(element) => self.attribute(element, &mut attributes)?,
                Token::Close => return Ok(attributes),
                Token::Eof => return Err(self.cut_off("event")),
            }
        }
    }

    /// Takes an attribute whose start tag was just read, up to its end tag.
    fn attribute(&mut self, element: Element, attributes: &mut Vec<Attribute>) -> Result<()> {
        let Element { name, key, value } = element;
        match name.as_str() {
            "string" | "date" | "id" | "int" | "float" | "boolean" => {}
            _ => {
                self.left_out += 1 + self.skip(&name)?;
                return Ok(());
            }
        }
        let (Some(key), Some(text)) = (key, value) else {
            return Err(self.error(format!("a <{name}> attribute needs a `key` and a `value`")));
        };
        let value = match name.as_str() {
            "int" | "float" => self.number(&key, text)?,
            "boolean" => match text.trim() {
                "true" | "1" => Value::Bool(true),
                "false" | "0" => Value::Bool(false),
                _ => return Err(self.error(format!("{key:?} is {text:?}: a boolean is `true` or `false`"))),
            },
            _ => Value::Text(text),
        };
        if attributes.iter().any(|known| known.key == key) {
            return Err(
                self.error(format!("{key:?} stands here twice: a key may occur once in a trace or event"))
            );
        }
        attributes.push(Attribute { key, value });
        self.left_out += self.skip(&name)?;
        Ok(())
    }

    /// The exact number of a text; what floats have beside numbers stays text.
    fn number(&self, key: &str, text: String) -> Result<Value> {
        let trimmed = text.trim();
        if matches!(trimmed.trim_start_matches('-'), "NaN" | "INF" | "Infinity") {
            return Ok(Value::Text(text));
        }
        match trimmed.strip_prefix('+').unwrap_or(trimmed).parse() {
            Ok(number) => Ok(Value::Number(number)),
            Err(Reason::NotJson { .. }) => {
                Err(self.error(format!("{key:?} is {text:?}: a number looks like 1, -2.50 or 1.5E3")))
            }
            Err(reason) => {
                Err(self.error(format!("{key:?} is {text:?}, which cannot be stored exactly: {reason}")))
            }
        }
    }

    /// Passes over everything up to the end tag; how many elements that were.
    fn skip(&mut self, name: &str) -> Result<u64> {
        let (mut depth, mut elements) = (0_u64, 0);
        loop {
            match self.next()? {
                Token::Open(_) => {
                    depth += 1;
                    elements += 1;
                }
                Token::Close if depth == 0 => return Ok(elements),
                Token::Close => depth -= 1,
                Token::Eof => return Err(self.cut_off(name)),
            }
        }
    }

    /// The next start or end tag; comments and the like are passed over. Empty elements give both.
    fn next(&mut self) -> Result<Token> {
        loop {
            self.buffer.clear();
            let event = match self.xml.read_event_into(&mut self.buffer) {
                Ok(event) => event,
                Err(error) => return Err(XesError::at(self.xml.get_ref().line, describe(&error))),
            };
            let line = self.xml.get_ref().line;
            match event {
                XmlEvent::Start(start) | XmlEvent::Empty(start) => {
                    return element(&start, line).map(Token::Open);
                }
                XmlEvent::End(_) => return Ok(Token::Close),
                XmlEvent::Eof => return Ok(Token::Eof),
                XmlEvent::Text(text) if text.trim_ascii().is_empty() => {}
                XmlEvent::Text(_) | XmlEvent::CData(_) | XmlEvent::GeneralRef(_) => {
                    return Err(XesError::at(line, "there is text between the elements, where XES has none"));
                }
                XmlEvent::Decl(declaration) => match declaration.encoding() {
                    Some(Ok(encoding)) if !is_utf8(&encoding) => {
                        return Err(XesError::at(
                            line,
                            format!("the encoding is {encoding}: convert the file to UTF-8"),
                        ));
                    }
                    _ => {}
                },
                XmlEvent::Comment(_) | XmlEvent::PI(_) | XmlEvent::DocType(_) => {}
            }
        }
    }

    /// The line that was read last.
    pub(crate) fn line(&self) -> u64 {
        self.xml.get_ref().line
    }

    fn error(&self, reason: impl Into<String>) -> XesError {
        XesError::at(self.line(), reason)
    }

    fn cut_off(&self, element: &str) -> XesError {
        self.error(format!("the file ends inside <{element}>: it is cut off, get it again"))
    }
}

fn is_utf8(encoding: &str) -> bool {
    ["UTF-8", "UTF8", "US-ASCII"].iter().any(|name| encoding.eq_ignore_ascii_case(name))
}

fn element(start: &BytesStart<'_>, line: u64) -> Result<Element> {
    let mut element = Element { name: start.local_name().as_ref().to_owned(), key: None, value: None };
    for attribute in start.attributes() {
        let attribute =
            attribute.map_err(|error| XesError::at(line, format!("<{}>: {error}", element.name)))?;
        let slot = match attribute.key.as_ref() {
            "key" => &mut element.key,
            "value" => &mut element.value,
            _ => continue,
        };
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| XesError::at(line, format!("<{}>: {error}", element.name)))?;
        *slot = Some(value.into_owned());
    }
    Ok(element)
}

fn describe(error: &quick_xml::Error) -> String {
    let quick_xml::Error::Io(io) = error else {
        return format!("this is not well-formed XML: {error}");
    };
    match io.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the gzip data ends early: the file is cut off, get it again".to_owned()
        }
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            format!("the gzip data is damaged ({io}): get the file again")
        }
        _ => format!("it cannot be read: {io}"),
    }
}

/// Counts the lines that were read.
struct Lines<R> {
    inner: R,
    line: u64,
}

impl<R: BufRead> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Lines<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        // What is consumed was filled before, so this reads nothing new and cannot fail.
        if let Ok(filled) = self.inner.fill_buf() {
            let lines = filled.iter().take(amount).filter(|byte| **byte == b'\n').count();
            self.line += u64::try_from(lines).unwrap_or(0);
        }
        self.inner.consume(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(xes: &str) -> Result<Vec<Trace>> {
        let mut reader = XesReader::new(io::Cursor::new(xes.to_owned()))?;
        let mut traces = Vec::new();
        while let Some(trace) = reader.next_trace()? {
            traces.push(trace);
        }
        Ok(traces)
    }

    fn line_of_error(xes: &str) -> Option<u64> {
        read(xes).expect_err("the log is refused").line()
    }

    fn value(trace: &Trace, key: &str) -> Value {
        trace.attributes.iter().find(|attribute| attribute.key == key).expect("it is there").value.clone()
    }

    #[test]
    fn reads_values_exactly() {
        let traces = read(
            "<log>\n<trace>\
             <string key='text' value='a &amp; &#x42;&#10;'/><date key='date' value='2011-10-01T00:38:44.546+02:00'/>\
             <int key='int' value='18446744073709551615'/><float key='float' value='1.10'/>\
             <float key='small' value='+1.5E-3'/><float key='none' value='-INF'/><boolean key='bool' value='1'/>\
             </trace></log>\n<!-- the end -->\n",
        )
        .expect("it is well-formed");
        let number = |text: &str| Value::Number(text.parse().expect("a number"));
        // Escapes are resolved.
        assert_eq!(value(&traces[0], "text"), Value::Text("a & B\n".into()));
        // Dates keep their offset.
        assert_eq!(value(&traces[0], "date"), Value::Text("2011-10-01T00:38:44.546+02:00".into()));
        // Numbers never were floats: all digits and the scale are there.
        assert_eq!(value(&traces[0], "int"), number("18446744073709551615"));
        assert!(matches!(value(&traces[0], "float"), Value::Number(number) if number.as_str() == "1.10"));
        assert!(matches!(value(&traces[0], "small"), Value::Number(number) if number.as_str() == "0.0015"));
        // What is no number stays text.
        assert_eq!(value(&traces[0], "none"), Value::Text("-INF".into()));
        assert_eq!(value(&traces[0], "bool"), Value::Bool(true));
        // The trace begins in the second line.
        assert_eq!(traces[0].line, 2);
    }

    #[test]
    fn leaves_out_what_is_nested_and_counts_it() {
        let xes = "<log><trace><event><string key='a' value='1'><int key='b' value='2'/></string>\
                   <list key='l'><values><int key='c' value='3'/></values></list></event></trace></log>";
        let mut reader = XesReader::new(xes.as_bytes()).expect("it opens");
        let trace = reader.next_trace().expect("it is well-formed").expect("there is a trace");
        // Only the outer attribute is taken.
        assert_eq!(trace.events[0].len(), 1);
        // b, the list, its values, c.
        assert_eq!(reader.left_out(), 4);
    }

    #[test]
    fn refuses_what_is_malformed_and_says_where() {
        // No element at all.
        assert_eq!(line_of_error("\n\n"), Some(3));
        // Another root.
        assert_eq!(line_of_error("<html/>"), Some(1));
        // Cut off inside a trace.
        assert_eq!(line_of_error("<log>\n<trace>\n<event>\n"), Some(4));
        // Cut off inside a tag.
        assert_eq!(line_of_error("<log>\n<trace>\n<eve"), Some(3));
        // An end tag that does not match.
        assert_eq!(line_of_error("<log>\n<trace>\n</event>\n</log>"), Some(3));
        // An attribute without a value.
        assert_eq!(line_of_error("<log>\n<trace><string key='a'/></trace></log>"), Some(2));
        // A key twice: which one counts?
        assert_eq!(
            line_of_error("<log><trace><id key='a' value='1'/>\n<id key='a' value='1'/></trace></log>"),
            Some(2)
        );
        // No number.
        assert_eq!(line_of_error("<log>\n<trace><float key='a' value='1,5'/></trace></log>"), Some(2));
        // More digits than can be kept.
        let digits = "1".repeat(35);
        assert_eq!(
            line_of_error(&format!("<log><trace><int key='a' value='{digits}'/></trace></log>")),
            Some(1)
        );
        // No boolean.
        assert_eq!(line_of_error("<log><trace><boolean key='a' value='yes'/></trace></log>"), Some(1));
        // An entity that nobody defined.
        assert_eq!(line_of_error("<log><trace><string key='a' value='&x;'/></trace></log>"), Some(1));
        // Text where none belongs.
        assert_eq!(line_of_error("<log>\n<trace>hello</trace></log>"), Some(2));
        // A second document.
        assert_eq!(line_of_error("<log/>\n<log/>"), Some(2));
        // Another encoding.
        assert_eq!(line_of_error("<?xml version='1.0' encoding='ISO-8859-1'?><log/>"), Some(1));
    }

    #[test]
    fn refuses_bytes_that_are_no_text() {
        let mut reader = XesReader::new(&b"<log>\n<trace><string key='a' value='\xff'/></trace></log>"[..])
            .expect("it opens");
        assert!(reader.next_trace().is_err(), "invalid UTF-8 is an error");
    }
}
