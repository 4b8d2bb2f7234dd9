//! From BSON to JSON, straight into text: also what other clients wrote (Int32, Double, Decimal128 in any spelling).

use std::fmt::Write as _;

use mongodb::bson::{RawArray, RawBsonRef, RawDocument};
use wow_store_api::{Payload, payload::Number};

use super::decimal;

/// How deep a stored document may be: as a payload, and a little more for what others wrote.
const MAX_DEPTH: usize = 100;

/// A payload; `None` if the value is one that JSON does not have, or damaged.
pub(crate) fn payload(value: RawBsonRef<'_>) -> Option<Payload> {
    let mut text = String::with_capacity(match value {
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::Array(array) => array.as_bytes().len(),
        _ => 32,
    });
    write(&mut text, value, 0)?;
    Some(Payload::from_stored(text))
}

fn write(text: &mut String, value: RawBsonRef<'_>, depth: usize) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    match value {
        RawBsonRef::Null => text.push_str("null"),
        RawBsonRef::Boolean(value) => text.push_str(if value { "true" } else { "false" }),
        RawBsonRef::Int32(value) => write!(text, "{value}").ok()?,
        RawBsonRef::Int64(value) => write!(text, "{value}").ok()?,
        RawBsonRef::Decimal128(value) => text.push_str(decimal::decode(value)?.as_str()),
        RawBsonRef::Double(value) => text.push_str(double(value)?.as_str()),
        RawBsonRef::String(value) => string(text, value)?,
        RawBsonRef::Document(document) => object(text, document, depth)?,
        RawBsonRef::Array(elements) => array(text, elements, depth)?,
        _ => return None,
    }
    Some(())
}

/// As a double becomes a payload: the shortest digits that read back as the same, with a fraction.
fn double(value: f64) -> Option<Number> {
    if !value.is_finite() {
        return None;
    }
    let mut text = format!("{value:?}");
    if !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text.parse().ok()
}

fn object(text: &mut String, document: &RawDocument, depth: usize) -> Option<()> {
    text.push('{');
    for (index, element) in document.iter().enumerate() {
        let (key, value) = element.ok()?;
        if index > 0 {
            text.push(',');
        }
        string(text, key.as_ref())?;
        text.push(':');
        write(text, value, depth + 1)?;
    }
    text.push('}');
    Some(())
}

fn array(text: &mut String, elements: &RawArray, depth: usize) -> Option<()> {
    text.push('[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write(text, element.ok()?, depth + 1)?;
    }
    text.push(']');
    Some(())
}

/// A string in canonical form; U+0000 is none.
fn string(text: &mut String, value: &str) -> Option<()> {
    text.push('"');
    let mut rest = value;
    while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        text.push_str(rest.get(..at)?);
        match *rest.as_bytes().get(at)? {
            0 => return None,
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            0x08 => text.push_str("\\b"),
            0x0c => text.push_str("\\f"),
            other => write!(text, "\\u{other:04x}").ok()?,
        }
        rest = rest.get(at + 1..)?;
    }
    text.push_str(rest);
    text.push('"');
    Some(())
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, DateTime, RawDocumentBuf, doc, oid::ObjectId};

    use super::*;
    use crate::document::Writer;

    fn read(document: &RawDocumentBuf) -> Option<String> {
        let value = document.get("v").unwrap().unwrap();
        payload(value).map(|payload| payload.as_json().to_owned())
    }

    #[test]
    fn payloads_come_back_as_they_were() {
        for text in [
            "null",
            "true",
            "\"\"",
            "1.10",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775809",
            "[]",
            "{}",
            "[1,[2.50,{}],null]",
            r#"{"":{"":[]},"$set":{"$gt":1},"a.b":{"b":2},"a":{"b":3},"$":"$x","_id":7}"#,
            r#"{"k\"\\\n\u0001é😀":"v\"\\\/\n\r\t\b\f\u0001é😀"}"#,
        ] {
            let payload = Payload::from_json(text).unwrap();
            let mut writer = Writer::new();
            writer.payload("v", &payload).unwrap();
            assert_eq!(read(&writer.finish().unwrap()).as_deref(), Some(payload.as_json()), "{text}");
        }
    }

    #[test]
    fn what_other_clients_write_is_read() {
        let value = |value: Bson| read(&RawDocumentBuf::try_from(&doc! { "v": value }).unwrap());
        let found = |bson: Bson| value(bson).unwrap();
        assert_eq!(found(Bson::Int32(-7)), "-7");
        assert_eq!(found(Bson::Double(1.5)), "1.5");
        assert_eq!(found(Bson::Double(3.0)), "3.0");
        assert_eq!(found(Bson::Double(-0.0)), "0.0");
        assert_eq!(found(Bson::Double(1e300)), Number::from_parts(one_e300()).unwrap().as_str());
        assert_eq!(found(Bson::Decimal128("1.10E+3".parse().unwrap())), "1100");
        assert_eq!(value(Bson::Double(f64::NAN)), None, "not a number");
        assert_eq!(value(Bson::Decimal128("Infinity".parse().unwrap())), None, "infinite");
        assert_eq!(value(Bson::DateTime(DateTime::from_millis(0))), None, "no kind of JSON");
        assert_eq!(value(Bson::ObjectId(ObjectId::from_bytes([7; 12]))), None, "no kind of JSON");
        assert_eq!(value(Bson::String("\0".into())), None, "no string of a payload");
    }

    fn one_e300() -> wow_store_api::payload::Parts {
        wow_store_api::payload::Parts { negative: false, coefficient: 1, exponent: 300 }
    }
}
