//! Exact [`Decimal`] fields, for `#[serde(with = "wow_store_api::payload::decimal")]`.
//!
//! In a [`Payload`](super::Payload) the field is a JSON number in plain notation that keeps the scale: `1.10`
//! comes back as `1.10`. That holds everywhere: in structs, in enums of all four taggings, in flattened
//! structs, and below them. What is not a number, or does not fit a [`Decimal`] exactly (more than 28
//! fraction digits, a coefficient from 2^96), is an error. Nothing is rounded. A JSON string is refused.
//!
//! Where serde buffers a value before it knows its type (tagged and untagged enums, flattened fields), the
//! exact number is recovered by place in the text. If the same buffered part holds two spellings of one
//! double (`1.10` and `1.1`), the document is decoded three times instead of once; if one such number is read
//! both as a decimal and as something else (by two variants of an untagged enum, say), decoding is an error.
//!
//! **Other formats.** Outside a payload, in `serde_json::to_string` for instance, the field is a *string*
//! with the same digits, since serde has no exact number. Reading takes such a string, an integer, and the
//! exact numbers of serde_json's `arbitrary_precision`; it refuses a double, which may already be rounded. So
//! a `serde_json::Value` made of such a struct holds strings, and a payload made of that value does too: make
//! the payload of the struct.
//!
//! [`option`], [`vec`](mod@vec) and [`map`] do the same for `Option<Decimal>`, `Vec<Decimal>` and maps with
//! decimal values.
//!
//! ```
//! use rust_decimal::Decimal;
//! use serde::{Deserialize, Serialize};
//! use wow_store_api::payload::Payload;
//!
//! #[derive(Serialize, Deserialize)]
//! #[serde(tag = "type")]
//! enum Event {
//!     Priced {
//!         #[serde(with = "wow_store_api::payload::decimal")]
//!         price: Decimal,
//!     },
//! }
//!
//! let payload = Payload::from_serialize(&Event::Priced { price: Decimal::new(110, 2) })?;
//! assert_eq!(payload.as_json(), r#"{"type":"Priced","price":1.10}"#);
//! let Event::Priced { price } = payload.decode()?;
//! assert_eq!(price.to_string(), "1.10");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use rust_decimal::Decimal;
use serde::{Deserializer, Serializer};

use super::serde_number::{self, Exact};

/// Writes a decimal.
///
/// # Errors
/// Those of the serializer; none of its own.
pub fn serialize<S: Serializer>(value: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    serde_number::serialize(value, serializer)
}

/// Reads a decimal.
///
/// # Errors
/// If there is no number, or none that a [`Decimal`] holds exactly.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    serde_number::deserialize(deserializer)
}

/// For `Option<Decimal>`: `None` is `null`. Add `#[serde(default)]` where the field may be missing.
pub mod option {
    use super::{Decimal, Deserializer, Exact, Serializer};
    use serde::{Deserialize, Serialize};

    /// Writes a decimal or `null`.
    ///
    /// # Errors
    /// Those of the serializer; none of its own.
    pub fn serialize<S: Serializer>(value: &Option<Decimal>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Exact).serialize(serializer)
    }

    /// Reads a decimal or `null`.
    ///
    /// # Errors
    /// As [`deserialize`](super::deserialize).
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Decimal>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(|Exact(value)| value))
    }
}

/// For `Vec<Decimal>`.
pub mod vec {
    use super::{Decimal, Deserializer, Exact, Serializer};
    use serde::Deserialize;

    /// Writes an array of decimals.
    ///
    /// # Errors
    /// Those of the serializer; none of its own.
    pub fn serialize<S: Serializer>(values: &[Decimal], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| Exact(*value)))
    }

    /// Reads an array of decimals.
    ///
    /// # Errors
    /// As [`deserialize`](super::deserialize).
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Decimal>, D::Error> {
        let values = Vec::<Exact<Decimal>>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|Exact(value)| value).collect())
    }
}

/// For `HashMap<K, Decimal>`, `BTreeMap<K, Decimal>` and the like.
pub mod map {
    use std::fmt;
    use std::marker::PhantomData;

    use super::{Decimal, Deserializer, Exact, Serializer};
    use serde::de::{MapAccess, Visitor};
    use serde::{Deserialize, Serialize};

    /// Writes an object with decimal values.
    ///
    /// # Errors
    /// Those of the serializer; none of its own.
    pub fn serialize<'a, S, M, K>(values: &'a M, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        &'a M: IntoIterator<Item = (&'a K, &'a Decimal)>,
        K: Serialize + 'a,
    {
        serializer.collect_map(values.into_iter().map(|(key, value)| (key, Exact(*value))))
    }

    /// Reads an object with decimal values.
    ///
    /// # Errors
    /// As [`deserialize`](super::deserialize).
    pub fn deserialize<'de, D, M, K>(deserializer: D) -> Result<M, D::Error>
    where
        D: Deserializer<'de>,
        M: FromIterator<(K, Decimal)>,
        K: Deserialize<'de>,
    {
        struct Entries<M, K>(PhantomData<(M, K)>);

        impl<'de, M: FromIterator<(K, Decimal)>, K: Deserialize<'de>> Visitor<'de> for Entries<M, K> {
            type Value = M;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of decimals")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<M, A::Error> {
                std::iter::from_fn(|| access.next_entry::<K, Exact<Decimal>>().transpose())
                    .map(|entry| entry.map(|(key, Exact(value))| (key, value)))
                    .collect()
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}
