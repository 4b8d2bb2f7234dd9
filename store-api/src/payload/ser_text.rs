//! Serializers for what is a single piece of text: a map key, and the spelling of a number or a raw fragment.

use std::fmt;

use serde::ser::{self, Impossible, Serialize};

use super::ser::{MAX_WRAPPERS, Writer};
use super::sink::{Frame, Sink};
use super::{Reason, Unrepresentable, scan};

type Done = Result<(), Unrepresentable>;
type Never = Impossible<(), Unrepresentable>;

/// What a [`TextSerializer`] makes of its text.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextKind {
    /// The spelling of a JSON number.
    Number,
    /// Any JSON value.
    Json,
}

/// Takes a string and writes what it spells.
#[derive(Debug)]
pub(super) struct TextSerializer<'a> {
    pub(super) writer: &'a mut Writer,
    pub(super) kind: TextKind,
}

/// Writes a map key. A refusal has the key in its pointer, if the key has a spelling at all.
#[derive(Debug)]
pub(super) struct KeySerializer<'a> {
    pub(super) sink: &'a mut Sink,
    pub(super) frame: &'a mut Frame,
    pub(super) wrappers: usize,
}

impl TextSerializer<'_> {
    fn refuse(&self) -> Unrepresentable {
        ser::Error::custom("expected a text that spells a value")
    }
}

impl KeySerializer<'_> {
    fn refuse(&self) -> Unrepresentable {
        Reason::KeyNotString.into()
    }

    fn wrapped<T: Serialize + ?Sized>(mut self, value: &T) -> Done {
        if self.wrappers >= MAX_WRAPPERS {
            return Err(Reason::TooDeep.into());
        }
        self.wrappers += 1;
        value.serialize(self)
    }

    fn float(self, finite: bool, shortest: &dyn fmt::Display) -> Done {
        if !finite {
            return Err(Reason::NotFinite.into());
        }
        let mut text = shortest.to_string();
        if !text.contains('.') {
            text.push_str(".0");
        }
        ser::Serializer::serialize_str(self, &text)
    }
}

/// Methods that refuse, for scalars.
macro_rules! refuse {
    ($($method:ident($($type:ty),*)),* $(,)?) => {$(
        fn $method(self, $(_: $type),*) -> Done {
            Err(self.refuse())
        }
    )*};
}

/// Methods that are the same in both serializers: nothing that has parts is a text.
macro_rules! no_parts {
    () => {
        type Ok = ();
        type Error = Unrepresentable;
        type SerializeSeq = Never;
        type SerializeTuple = Never;
        type SerializeTupleStruct = Never;
        type SerializeTupleVariant = Never;
        type SerializeMap = Never;
        type SerializeStruct = Never;
        type SerializeStructVariant = Never;

        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Done {
            Err(self.refuse())
        }

        fn serialize_seq(self, _: Option<usize>) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }

        fn serialize_tuple(self, _: usize) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }

        fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }

        fn serialize_tuple_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }

        fn serialize_map(self, _: Option<usize>) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }

        fn serialize_struct(self, _: &'static str, _: usize) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }

        fn serialize_struct_variant(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: usize,
        ) -> Result<Never, Unrepresentable> {
            Err(self.refuse())
        }
    };
}

impl ser::Serializer for TextSerializer<'_> {
    no_parts!();

    refuse! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64), serialize_f32(f32),
        serialize_f64(f64), serialize_char(char), serialize_bytes(&[u8]), serialize_none(), serialize_unit(),
        serialize_unit_struct(&'static str), serialize_unit_variant(&'static str, u32, &'static str),
    }

    fn serialize_str(self, value: &str) -> Done {
        match self.kind {
            TextKind::Number => self.writer.number(value),
            TextKind::Json => scan::scan(value, &mut self.writer.sink),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Done {
        Err(self.refuse())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Done {
        Err(self.refuse())
    }
}

/// Keys that are written as their `Display`.
macro_rules! display {
    ($($method:ident($type:ty)),* $(,)?) => {$(
        fn $method(self, value: $type) -> Done {
            self.serialize_str(&value.to_string())
        }
    )*};
}

impl ser::Serializer for KeySerializer<'_> {
    no_parts!();

    refuse! { serialize_bytes(&[u8]), serialize_none(), serialize_unit(), serialize_unit_struct(&'static str) }

    display! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_i128(i128), serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64),
        serialize_u128(u128),
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.float(value.is_finite(), &value)
    }

    fn serialize_f64(self, value: f64) -> Done {
        self.float(value.is_finite(), &value)
    }

    fn serialize_char(self, value: char) -> Done {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Done {
        self.sink.key(self.frame, value).map_err(|reason| Unrepresentable::from(reason).under(value))
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        self.wrapped(value)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        self.wrapped(value)
    }
}
