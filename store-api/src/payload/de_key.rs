//! Map keys: strings in the text, whatever they are in the type.

use std::borrow::Cow;

use serde::de::{self, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::NUMBER_NAME;
use super::de::Fail;
use super::de_access::VariantName;
use super::ser::MAX_WRAPPERS;

/// One key.
#[derive(Debug)]
pub(super) struct KeyDeserializer<'de> {
    key: Cow<'de, str>,
    wrappers: usize,
}

impl<'de> KeyDeserializer<'de> {
    pub(super) fn new(key: Cow<'de, str>) -> Self {
        Self { key, wrappers: 0 }
    }

    fn wrapped<T>(mut self, visit: impl FnOnce(Self) -> Result<T, Fail>) -> Result<T, Fail> {
        if self.wrappers >= MAX_WRAPPERS {
            return Err(Fail::new("type nests too many newtypes and options"));
        }
        self.wrappers += 1;
        visit(self)
    }
}

/// Numeric keys: the whole key is the number.
macro_rules! numeric_keys {
    ($($method:ident $visit:ident $type:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
            match self.key.parse::<$type>() {
                // Rust reads more than JSON writes: a plus sign, "-inf", "nan".
                Ok(value) if !self.key.starts_with('+') && self.key.ends_with(|last: char| last.is_ascii_digit()) => {
                    visitor.$visit(value)
                }
                _ => Err(de::Error::invalid_type(Unexpected::Str(""), &visitor)),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for KeyDeserializer<'de> {
    type Error = Fail;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        match self.key {
            Cow::Borrowed(key) => visitor.visit_borrowed_str(key),
            Cow::Owned(key) => visitor.visit_string(key),
        }
    }

    numeric_keys! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_i128 visit_i128 i128;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_u128 visit_u128 u128;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        match &*self.key {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(de::Error::invalid_type(Unexpected::Str(""), &visitor)),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        match self.key {
            Cow::Borrowed(key) => visitor.visit_borrowed_bytes(key.as_bytes()),
            Cow::Owned(key) => visitor.visit_byte_buf(key.into_bytes()),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fail> {
        self.wrapped(|inner| visitor.visit_some(inner))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fail> {
        if name == NUMBER_NAME {
            return self.deserialize_bytes(visitor);
        }
        self.wrapped(|inner| visitor.visit_newtype_struct(inner))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fail> {
        visitor.visit_enum(VariantName::new(self.key))
    }

    forward_to_deserialize_any! {
        char str string unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
