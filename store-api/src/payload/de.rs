//! From canonical text straight to a `Deserialize` type.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserialize, Expected, Unexpected, Visitor};

use super::de_access::{Elements, Members, Raw, Variant, VariantName};
use super::exact::{Guard, Shown};
use super::read::Reader;
use super::refusal::push_front;
use super::ser::MAX_WRAPPERS;
use super::{DecodeError, MAX_DEPTH, NUMBER_NAME, SERDE_JSON_RAW};

/// Decodes a whole document.
pub(super) fn decode<'de, T: Deserialize<'de>>(text: &'de Arc<str>) -> Result<T, DecodeError> {
    let mut deserializer =
        Deserializer { reader: Reader::new(text), source: text, depth: 0, wrappers: 0, guard: None };
    let first = deserializer.document::<T>();
    let Some(guard) = deserializer.guard.take_if(|guard| guard.is_shared()) else {
        return first.map_err(Fail::into_error);
    };
    // Two spellings of one double: see `exact`. The first result may hold the wrong one, or be an error
    // because of it.
    guard.start_probe();
    deserializer.guard = Some(guard);
    let _ = deserializer.document::<T>();
    if let Some(guard) = &deserializer.guard {
        guard.start_final();
    }
    let last = deserializer.document();
    match (first, last) {
        (_, Ok(value)) if !deserializer.guard.as_ref().is_some_and(Guard::is_shared) => Ok(value),
        // Wrong in some other way too, most likely the same way in all passes.
        (Err(_), Err(fail)) => Err(fail.into_error()),
        _ => Err(DecodeError {
            pointer: String::new(),
            message: "ambiguous number: several spellings of one double meet in a tagged, untagged or flattened \
                      part, and not all of them are read as exact decimals; decode it without flatten and with \
                      externally tagged enums"
                .to_owned(),
        }),
    }
}

/// The error while decoding. A type of its own, by which the decimal helper knows that a number comes from
/// here.
pub(super) struct Fail(Box<DecodeError>);

impl Fail {
    #[cold]
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(Box::new(DecodeError { pointer: String::new(), message: message.into() }))
    }

    #[cold]
    pub(super) fn under(mut self, segment: &str) -> Self {
        push_front(&mut self.0.pointer, segment);
        self
    }

    #[cold]
    fn into_error(self) -> DecodeError {
        *self.0
    }
}

impl From<&'static str> for Fail {
    #[cold]
    fn from(damage: &'static str) -> Self {
        Self::new(format!("text is not canonical, or a type ignored an error: {damage}"))
    }
}

impl fmt::Debug for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Fail {}

/// serde's own wording quotes the value that was met; ours names its kind.
impl de::Error for Fail {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid type: {}, expected {expected}", kind(&unexpected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("invalid value: {}, expected {expected}", kind(&unexpected)))
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown variant, expected one of: {}", expected.join(", ")))
    }
}

fn kind<'a>(unexpected: &Unexpected<'a>) -> &'a str {
    match *unexpected {
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
        Unexpected::Float(_) => "number with a fraction",
        Unexpected::Char(_) => "character",
        Unexpected::Str(_) => "string",
        Unexpected::Bytes(_) => "byte array",
        Unexpected::Unit => "null",
        Unexpected::Option => "optional value",
        Unexpected::NewtypeStruct => "newtype struct",
        Unexpected::Seq => "array",
        Unexpected::Map => "object",
        Unexpected::Enum => "enum",
        Unexpected::UnitVariant => "unit variant",
        Unexpected::NewtypeVariant => "newtype variant",
        Unexpected::TupleVariant => "tuple variant",
        Unexpected::StructVariant => "struct variant",
        Unexpected::Other(other) => other,
    }
}

#[derive(Debug)]
pub(super) struct Deserializer<'de> {
    pub(super) reader: Reader<'de>,
    source: &'de Arc<str>,
    depth: usize,
    wrappers: usize,
    guard: Option<Guard>,
}

impl<'de> Deserializer<'de> {
    fn document<T: Deserialize<'de>>(&mut self) -> Result<T, Fail> {
        self.reader = Reader::new(self.source);
        (self.depth, self.wrappers) = (0, 0);
        let value = T::deserialize(&mut *self)?;
        if self.reader.peek().is_some() { Err("expected the end of the document".into()) } else { Ok(value) }
    }

    /// Something else than `expected` is next.
    #[cold]
    fn mismatch(&mut self, expected: &dyn Expected) -> Fail {
        let unexpected = match self.reader.peek() {
            Some(b'n') => Unexpected::Unit,
            Some(b't' | b'f') => Unexpected::Bool(true),
            Some(b'"') => Unexpected::Str(""),
            Some(b'[') => Unexpected::Seq,
            Some(b'{') => Unexpected::Map,
            Some(b'-' | b'0'..=b'9') => match self.reader.number() {
                Ok(text) if text.contains('.') => Unexpected::Float(0.0),
                _ => Unexpected::Signed(0),
            },
            Some(_) => return "expected a value".into(),
            None => return "unexpected end".into(),
        };
        de::Error::invalid_type(unexpected, expected)
    }

    fn is_number(&self) -> bool {
        matches!(self.reader.peek(), Some(b'-' | b'0'..=b'9'))
    }

    /// The spelling of the number that is next, if one is.
    fn number(&mut self, expected: &dyn Expected) -> Result<&'de str, Fail> {
        if self.is_number() { Ok(self.reader.number()?) } else { Err(self.mismatch(expected)) }
    }

    /// Hands a number to a visitor that wants an integer.
    fn integer<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fail> {
        let text = self.number(&visitor)?;
        match integer(text) {
            Some(Integer::Signed(value)) => visitor.visit_i64(value),
            Some(Integer::Unsigned(value)) => visitor.visit_u64(value),
            None => Err(not_integer(text, &visitor)),
        }
    }

    /// Hands a number to a visitor that takes anything.
    fn any_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fail> {
        let place = self.reader.pos();
        let text = self.reader.number()?;
        match integer(text) {
            Some(Integer::Signed(value)) => return visitor.visit_i64(value),
            Some(Integer::Unsigned(value)) => return visitor.visit_u64(value),
            None => {}
        }
        let guard = self.guard.get_or_insert_with(|| Guard::enter(self.source));
        match guard.note(place, double(text)?) {
            Shown::Double(double) => visitor.visit_f64(double),
            Shown::Place(bytes) => visitor.visit_bytes(&bytes),
        }
    }

    fn string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fail> {
        if self.reader.peek() != Some(b'"') {
            return Err(self.mismatch(&visitor));
        }
        match self.reader.string()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn enter(&mut self) -> Result<(), Fail> {
        if self.depth >= MAX_DEPTH {
            return Err("too many levels".into());
        }
        self.depth += 1;
        Ok(())
    }

    fn array<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fail> {
        self.enter()?;
        self.reader.take(b'[');
        let value = visitor.visit_seq(Elements::new(self))?;
        self.leave(b']', "array has more elements than expected")?;
        Ok(value)
    }

    fn object<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, Fail> {
        self.enter()?;
        self.reader.take(b'{');
        let value = visitor.visit_map(Members::new(self))?;
        self.leave(b'}', "object has more members than expected")?;
        Ok(value)
    }

    fn leave(&mut self, close: u8, surplus: &'static str) -> Result<(), Fail> {
        self.depth -= 1;
        if self.reader.take(close) { Ok(()) } else { Err(Fail::new(surplus)) }
    }

    /// Newtypes and options add no level to the document, yet each takes stack; a recursive one would never
    /// end.
    fn wrapped<T>(&mut self, visit: impl FnOnce(&mut Self) -> Result<T, Fail>) -> Result<T, Fail> {
        if self.wrappers >= MAX_WRAPPERS {
            return Err(Fail::new("type nests too many newtypes and options"));
        }
        self.wrappers += 1;
        let value = visit(self)?;
        self.wrappers -= 1;
        Ok(value)
    }
}

enum Integer {
    Signed(i64),
    Unsigned(u64),
}

/// The integer that a spelling stands for, if it has no fraction and fits 64 bits.
fn integer(text: &str) -> Option<Integer> {
    if text.starts_with('-') {
        text.parse().ok().map(Integer::Signed)
    } else {
        text.parse().ok().map(Integer::Unsigned)
    }
}

#[cold]
fn not_integer(text: &str, expected: &dyn Expected) -> Fail {
    if text.contains('.') {
        return de::Error::invalid_type(Unexpected::Float(0.0), expected);
    }
    de::Error::invalid_value(Unexpected::Signed(0), expected)
}

fn double(text: &str) -> Result<f64, Fail> {
    match text.parse::<f64>() {
        Ok(double) if double.is_finite() => Ok(double),
        Ok(_) => Err(Fail::new("number is outside the range of a double")),
        Err(_) => Err("damaged number".into()),
    }
}

/// Integer targets of up to 64 bits.
macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
            self.integer(visitor)
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Deserializer<'de> {
    type Error = Fail;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        match self.reader.peek() {
            Some(b'n') => {
                self.reader.literal("null")?;
                visitor.visit_unit()
            }
            Some(b't' | b'f') => self.deserialize_bool(visitor),
            Some(b'"') => self.string(visitor),
            Some(b'[') => self.array(visitor),
            Some(b'{') => self.object(visitor),
            Some(b'-' | b'0'..=b'9') => self.any_number(visitor),
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        match self.reader.peek() {
            Some(b't') => {
                self.reader.literal("true")?;
                visitor.visit_bool(true)
            }
            Some(b'f') => {
                self.reader.literal("false")?;
                visitor.visit_bool(false)
            }
            _ => Err(self.mismatch(&visitor)),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        let text = self.number(&visitor)?;
        match text.parse() {
            Ok(value) => visitor.visit_i128(value),
            Err(_) => Err(not_integer(text, &visitor)),
        }
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        let text = self.number(&visitor)?;
        match text.parse() {
            Ok(value) => visitor.visit_u128(value),
            Err(_) => Err(not_integer(text, &visitor)),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        // Not by way of a double: that would round twice.
        match self.number(&visitor)?.parse::<f32>() {
            Ok(float) if float.is_finite() => visitor.visit_f32(float),
            Ok(_) => Err(Fail::new("number is outside the range of a single-precision float")),
            Err(_) => Err("damaged number".into()),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        let text = self.number(&visitor)?;
        visitor.visit_f64(double(text)?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.string(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.string(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        match self.reader.peek() {
            Some(b'[') => self.array(visitor),
            Some(b'"') => match self.reader.string()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_bytes(text.as_bytes()),
                Cow::Owned(text) => visitor.visit_byte_buf(text.into_bytes()),
            },
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        if self.reader.peek() == Some(b'n') {
            self.reader.literal("null")?;
            return visitor.visit_none();
        }
        self.wrapped(|inner| visitor.visit_some(inner))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        if self.reader.peek() != Some(b'n') {
            return Err(self.mismatch(&visitor));
        }
        self.reader.literal("null")?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fail> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fail> {
        if name == NUMBER_NAME && self.is_number() {
            // Bytes, so that the helper can tell a number from a string.
            return visitor.visit_borrowed_bytes(self.reader.number()?.as_bytes());
        }
        if name == SERDE_JSON_RAW {
            return visitor.visit_map(Raw::new(self.reader.skip()?));
        }
        self.wrapped(|inner| visitor.visit_newtype_struct(inner))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        if self.reader.peek() == Some(b'[') { self.array(visitor) } else { Err(self.mismatch(&visitor)) }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fail> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fail> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        if self.reader.peek() == Some(b'{') { self.object(visitor) } else { Err(self.mismatch(&visitor)) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fail> {
        if self.reader.peek() == Some(b'[') { self.array(visitor) } else { self.deserialize_map(visitor) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fail> {
        match self.reader.peek() {
            Some(b'"') => visitor.visit_enum(VariantName::new(self.reader.string()?)),
            Some(b'{') => {
                self.enter()?;
                self.reader.take(b'{');
                let value = visitor.visit_enum(Variant::new(self))?;
                self.leave(b'}', "enum has more than one variant")?;
                Ok(value)
            }
            _ => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.string(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.reader.skip()?;
        visitor.visit_unit()
    }
}
