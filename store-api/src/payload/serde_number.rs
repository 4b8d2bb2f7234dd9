//! How an exact number passes through serde, which knows none.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use rust_decimal::Decimal;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

use super::de::Fail;
use super::{NUMBER_NAME, Number, SERDE_JSON_NUMBER, exact, number};

/// A number that is made of its exact spelling.
pub(super) trait ExactNumber: Sized + fmt::Display {
    /// Fails with the reason.
    fn from_text(text: &str) -> Result<Self, &'static str>;
    fn from_integer(value: i128) -> Result<Self, &'static str>;
}

const TOO_WIDE: &str = "number does not fit a decimal exactly";

impl ExactNumber for Decimal {
    fn from_text(text: &str) -> Result<Self, &'static str> {
        // Foreign texts may be spelled with an exponent; ours are not.
        match number::parse_decimal(text) {
            Some(value) => Ok(value),
            None => Number::from_text(text)?.to_decimal().ok_or(TOO_WIDE),
        }
    }

    fn from_integer(value: i128) -> Result<Self, &'static str> {
        Self::try_from_i128_with_scale(value, 0).map_err(|_| TOO_WIDE)
    }
}

impl ExactNumber for Number {
    fn from_text(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| "not a number that is kept exactly")
    }

    fn from_integer(value: i128) -> Result<Self, &'static str> {
        Self::from_text(&value.to_string())
    }
}

/// A number as an element of something.
#[derive(Debug)]
pub(super) struct Exact<T>(pub(super) T);

impl<T: ExactNumber> Serialize for Exact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de, T: ExactNumber> Deserialize<'de> for Exact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

/// Writes the spelling, under a name by which our serializer knows that it spells a number. Any other
/// serializer sees a newtype around a string.
pub(super) fn serialize<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    struct Spelling<'a, T>(&'a T);

    impl<T: fmt::Display> Serialize for Spelling<'_, T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self.0)
        }
    }

    serializer.serialize_newtype_struct(NUMBER_NAME, &Spelling(value))
}

pub(super) fn deserialize<'de, T: ExactNumber, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_newtype_struct(NUMBER_NAME, NumberVisitor(PhantomData))
}

/// Whether an error is that of our own deserializer, so that the value comes from a payload, be it through
/// serde's buffers.
///
/// serde's buffers keep the error type of the deserializer that filled them; it is private to this crate, so
/// nothing else has it. Were two names ever not distinct, the answer would decide between two errors, or
/// about a double that no payload handed out.
fn is_ours<E>() -> bool {
    type_name::<E>() == type_name::<Fail>()
}

struct NumberVisitor<T>(PhantomData<T>);

impl<'de, T: ExactNumber> Visitor<'de> for NumberVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an exact number")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        T::from_integer(value.into()).map_err(E::custom)
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<T, E> {
        T::from_integer(value).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        T::from_integer(value.into()).map_err(E::custom)
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<T, E> {
        T::from_text(&value.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        let exact = if is_ours::<E>() { exact::by_double(value, T::from_text) } else { None };
        match exact {
            Some(exact) => exact.map_err(E::custom),
            None => Err(E::custom("a double may already be rounded; the exact number is not at hand here")),
        }
    }

    /// The spelling of a number in a payload, or where to find it.
    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        if is_ours::<E>()
            && let Some(exact) = exact::by_bytes(bytes, T::from_text)
        {
            return exact.map_err(E::custom);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => T::from_text(text).map_err(E::custom),
            Err(_) => Err(E::invalid_type(Unexpected::Bytes(bytes), &self)),
        }
    }

    /// What other formats make of a number.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        if is_ours::<E>() {
            return Err(E::invalid_type(Unexpected::Str(text), &self));
        }
        T::from_text(text).map_err(E::custom)
    }

    /// What serde_json makes of a number under `arbitrary_precision`.
    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<T, A::Error> {
        struct Text<T>(T);

        impl<'de, T: ExactNumber> Deserialize<'de> for Text<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TextVisitor<T>(PhantomData<T>);

                impl<T: ExactNumber> Visitor<'_> for TextVisitor<T> {
                    type Value = Text<T>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("the spelling of a number")
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<T>, E> {
                        T::from_text(text).map(Text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(TextVisitor(PhantomData))
            }
        }

        if is_ours::<A::Error>() || access.next_key::<String>()?.as_deref() != Some(SERDE_JSON_NUMBER) {
            return Err(de::Error::invalid_type(Unexpected::Map, &self));
        }
        access.next_value().map(|Text(value)| value)
    }
}
