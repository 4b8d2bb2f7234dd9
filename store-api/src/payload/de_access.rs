//! The parts of containers, as serde visits them.

use std::borrow::Cow;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer as _, Unexpected, Visitor};

use super::SERDE_JSON_RAW;
use super::de::{Deserializer, Fail};
use super::de_key::KeyDeserializer;
use super::read::Reader;

/// The elements of an array.
#[derive(Debug)]
pub(super) struct Elements<'a, 'de> {
    de: &'a mut Deserializer<'de>,
    index: usize,
}

impl<'a, 'de> Elements<'a, 'de> {
    pub(super) fn new(de: &'a mut Deserializer<'de>) -> Self {
        Self { de, index: 0 }
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Fail;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fail> {
        if self.de.reader.peek() == Some(b']') {
            return Ok(None);
        }
        if self.index > 0 && !self.de.reader.take(b',') {
            return Err("expected a comma or the end of the array".into());
        }
        let value = seed.deserialize(&mut *self.de).map_err(|fail| fail.under(&self.index.to_string()))?;
        self.index += 1;
        Ok(Some(value))
    }
}

/// The members of an object.
#[derive(Debug)]
pub(super) struct Members<'a, 'de> {
    de: &'a mut Deserializer<'de>,
    first: bool,
    /// Before the key of the current member, to come back to when its name is wanted for a pointer.
    key: Reader<'de>,
}

impl<'a, 'de> Members<'a, 'de> {
    pub(super) fn new(de: &'a mut Deserializer<'de>) -> Self {
        let key = de.reader.clone();
        Self { de, first: true, key }
    }

    #[cold]
    fn located(&mut self, fail: Fail) -> Fail {
        let key = self.key.string().unwrap_or_default();
        fail.under(&key)
    }
}

impl<'de> de::MapAccess<'de> for Members<'_, 'de> {
    type Error = Fail;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fail> {
        if self.de.reader.peek() == Some(b'}') {
            return Ok(None);
        }
        if !std::mem::take(&mut self.first) && !self.de.reader.take(b',') {
            return Err("expected a comma or the end of the object".into());
        }
        self.key = self.de.reader.clone();
        let key = self.de.reader.key()?;
        seed.deserialize(KeyDeserializer::new(key)).map(Some).map_err(|fail| self.located(fail))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fail> {
        seed.deserialize(&mut *self.de).map_err(|fail| self.located(fail))
    }
}

/// An enum variant with content: the only member of an object.
#[derive(Debug)]
pub(super) struct Variant<'a, 'de> {
    de: &'a mut Deserializer<'de>,
    name: Cow<'de, str>,
}

impl<'a, 'de> Variant<'a, 'de> {
    pub(super) fn new(de: &'a mut Deserializer<'de>) -> Self {
        Self { de, name: Cow::Borrowed("") }
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Fail;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Fail> {
        self.name = self.de.reader.key()?;
        let variant = seed.deserialize(KeyDeserializer::new(self.name.clone()))?;
        Ok((variant, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Fail;

    fn unit_variant(self) -> Result<(), Fail> {
        de::Deserialize::deserialize(&mut *self.de).map_err(|fail: Fail| fail.under(&self.name))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fail> {
        seed.deserialize(&mut *self.de).map_err(|fail| fail.under(&self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fail> {
        self.de.deserialize_seq(visitor).map_err(|fail| fail.under(&self.name))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fail> {
        self.de.deserialize_struct("", fields, visitor).map_err(|fail| fail.under(&self.name))
    }
}

/// An enum variant without content: a string.
#[derive(Debug)]
pub(super) struct VariantName<'de>(Cow<'de, str>);

impl<'de> VariantName<'de> {
    pub(super) fn new(name: Cow<'de, str>) -> Self {
        Self(name)
    }
}

impl<'de> de::EnumAccess<'de> for VariantName<'de> {
    type Error = Fail;
    type Variant = Unit;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Unit), Fail> {
        Ok((seed.deserialize(KeyDeserializer::new(self.0))?, Unit))
    }
}

/// No content.
#[derive(Debug)]
pub(super) struct Unit;

impl<'de> de::VariantAccess<'de> for Unit {
    type Error = Fail;

    fn unit_variant(self) -> Result<(), Fail> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Fail> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &"newtype variant"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fail> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &"tuple variant"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Fail> {
        Err(de::Error::invalid_type(Unexpected::UnitVariant, &"struct variant"))
    }
}

/// What serde_json's `RawValue` asks for: an object whose only member is the text.
#[derive(Debug)]
pub(super) struct Raw<'de>(Option<&'de str>);

impl<'de> Raw<'de> {
    pub(super) fn new(text: &'de str) -> Self {
        Self(Some(text))
    }
}

impl<'de> de::MapAccess<'de> for Raw<'de> {
    type Error = Fail;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fail> {
        match self.0 {
            Some(_) => seed.deserialize(BorrowedStrDeserializer::new(SERDE_JSON_RAW)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fail> {
        let text = self.0.take().ok_or("raw value read twice")?;
        seed.deserialize(BorrowedStrDeserializer::new(text))
    }
}
