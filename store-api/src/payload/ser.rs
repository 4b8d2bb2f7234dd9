//! From a `Serialize` type straight to canonical text.

use std::fmt::{self, Write as _};

use serde::ser::{self, Serialize};

use super::ser_text::{KeySerializer, TextKind, TextSerializer};
use super::sink::{Frame, Sink};
use super::{NUMBER_NAME, Reason, SERDE_JSON_NUMBER, SERDE_JSON_RAW, Unrepresentable, digits};

/// How many newtypes and `Some`s may be nested: they add no level to the document, yet each takes stack.
pub(super) const MAX_WRAPPERS: usize = 256;

/// The text of `value` and its encoded size.
pub(super) fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<(String, usize), Unrepresentable> {
    let mut writer = Writer { sink: Sink::with_capacity(256), wrappers: 0, failed: None };
    value.serialize(&mut writer)?;
    match writer.failed {
        Some(refusal) => Err(refusal),
        None => Ok(writer.sink.finish()?),
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) sink: Sink,
    wrappers: usize,
    /// The first refusal of an element. A `Serialize` that ignores the error of an element leaves half a
    /// value behind, so the document stays refused.
    failed: Option<Unrepresentable>,
}

type Done = Result<(), Unrepresentable>;

impl Writer {
    /// Writes a number from its JSON spelling.
    pub(super) fn number(&mut self, text: &str) -> Done {
        let token = digits::read(text).map_err(|(at, problem)| Reason::NotJson { at, problem })?;
        if token.text.len() < text.len() {
            return Err(
                Reason::NotJson { at: token.text.len(), problem: "expected the end of the number" }.into()
            );
        }
        Ok(self.sink.number(&token)?)
    }

    fn float(&mut self, finite: bool, shortest: &dyn fmt::Display) -> Done {
        if !finite {
            return Err(Reason::NotFinite.into());
        }
        let mut text = String::with_capacity(24);
        let _ = write!(text, "{shortest}");
        // A float stays one: without a fraction it would be stored as an integer.
        if !text.contains('.') {
            text.push_str(".0");
        }
        self.number(&text)
    }

    fn wrapped<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        if self.wrappers >= MAX_WRAPPERS {
            return Err(Reason::TooDeep.into());
        }
        self.wrappers += 1;
        let done = value.serialize(&mut *self);
        self.wrappers -= 1;
        done
    }

    fn fail(&mut self, refusal: Unrepresentable) -> Unrepresentable {
        self.failed.get_or_insert_with(|| refusal.clone());
        refusal
    }

    /// Opens the object around the content of an enum variant.
    fn variant(&mut self, variant: &'static str) -> Result<Frame, Unrepresentable> {
        let mut frame = self.sink.open_object()?;
        self.sink.key(&mut frame, variant).map_err(|reason| Unrepresentable::from(reason).under(variant))?;
        Ok(frame)
    }

    fn array(&mut self, outer: Option<(Frame, &'static str)>) -> Result<Compound<'_>, Unrepresentable> {
        let opened = self.sink.open_array().map_err(Unrepresentable::from);
        self.compound(opened, Shape::Array, outer)
    }

    fn object(&mut self, outer: Option<(Frame, &'static str)>) -> Result<Compound<'_>, Unrepresentable> {
        let opened = self.sink.open_object().map_err(Unrepresentable::from);
        self.compound(opened, Shape::Object { pending: false }, outer)
    }

    fn compound(
        &mut self,
        opened: Result<Frame, Unrepresentable>,
        shape: Shape,
        outer: Option<(Frame, &'static str)>,
    ) -> Result<Compound<'_>, Unrepresentable> {
        match (opened, outer) {
            (Ok(frame), outer) => Ok(Compound { writer: self, frame: Some(frame), shape, outer }),
            (Err(refusal), Some((_, variant))) => Err(refusal.under(variant)),
            (Err(refusal), None) => Err(refusal),
        }
    }
}

/// An array or object in the making.
#[derive(Debug)]
pub(super) struct Compound<'a> {
    writer: &'a mut Writer,
    /// None for the two private structs of serde_json, which stand for a scalar.
    frame: Option<Frame>,
    shape: Shape,
    /// The object around an enum variant's content, and the variant.
    outer: Option<(Frame, &'static str)>,
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Array,
    /// `pending`: a key is written and its value is not.
    Object {
        pending: bool,
    },
    /// One field holds the text of a whole value.
    Text {
        kind: TextKind,
        written: bool,
    },
}

impl Compound<'_> {
    fn located(&mut self, refusal: Unrepresentable, segment: &str) -> Unrepresentable {
        let refusal = refusal.under(segment);
        let refusal = match &self.outer {
            Some((_, variant)) => refusal.under(variant),
            None => refusal,
        };
        self.writer.fail(refusal)
    }

    fn misuse(&mut self, what: &str) -> Unrepresentable {
        self.writer.fail(ser::Error::custom(what))
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        let Some(frame) = &mut self.frame else { return Err(self.misuse("element outside an array")) };
        let done = match self.writer.sink.element(frame) {
            Ok(()) => value.serialize(&mut *self.writer),
            Err(reason) => Err(reason.into()),
        };
        done.map_err(|refusal| {
            let index = self.frame.as_ref().map(Frame::current_index).unwrap_or_default();
            self.located(refusal, &index)
        })
    }

    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        match (&mut self.shape, &mut self.frame) {
            (Shape::Object { pending: pending @ false }, Some(frame)) => {
                *pending = true;
                let done = key.serialize(KeySerializer { sink: &mut self.writer.sink, frame, wrappers: 0 });
                // A key that fails has added its own segment to the pointer, as only it knows its spelling.
                done.map_err(|refusal| {
                    let refusal = match &self.outer {
                        Some((_, variant)) => refusal.under(variant),
                        None => refusal,
                    };
                    self.writer.fail(refusal)
                })
            }
            _ => Err(self.misuse("map key out of turn")),
        }
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        match &mut self.shape {
            Shape::Object { pending: pending @ true } => *pending = false,
            _ => return Err(self.misuse("map value without a key")),
        }
        value.serialize(&mut *self.writer).map_err(|refusal| {
            let key =
                self.frame.as_ref().map(|frame| self.writer.sink.current_key(frame)).unwrap_or_default();
            self.located(refusal, &key)
        })
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        match &mut self.shape {
            Shape::Text { kind, written: written @ false } => {
                *written = true;
                let kind = *kind;
                value
                    .serialize(TextSerializer { writer: &mut *self.writer, kind })
                    .map_err(|refusal| self.writer.fail(refusal))
            }
            Shape::Object { .. } => {
                self.key(name)?;
                self.value(value)
            }
            Shape::Array | Shape::Text { .. } => Err(self.misuse("field outside a struct")),
        }
    }

    fn finish(mut self) -> Done {
        match self.shape {
            Shape::Array => self.writer.sink.close_array(),
            Shape::Object { pending: false } => {
                if let Some(frame) = &self.frame {
                    self.writer.sink.close_object(frame);
                }
            }
            Shape::Object { pending: true } => return Err(self.misuse("map key without a value")),
            Shape::Text { written: true, .. } => {}
            Shape::Text { written: false, .. } => return Err(self.misuse("struct of one field without it")),
        }
        if let Some((frame, _)) = &self.outer {
            self.writer.sink.close_object(frame);
        }
        Ok(())
    }
}

impl<'a> ser::Serializer for &'a mut Writer {
    type Ok = ();
    type Error = Unrepresentable;
    type SerializeSeq = Compound<'a>;
    type SerializeTuple = Compound<'a>;
    type SerializeTupleStruct = Compound<'a>;
    type SerializeTupleVariant = Compound<'a>;
    type SerializeMap = Compound<'a>;
    type SerializeStruct = Compound<'a>;
    type SerializeStructVariant = Compound<'a>;

    fn serialize_bool(self, value: bool) -> Done {
        Ok(self.sink.bool(value)?)
    }

    fn serialize_i8(self, value: i8) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Done {
        Ok(self.sink.integer(value)?)
    }

    fn serialize_i128(self, value: i128) -> Done {
        match i64::try_from(value) {
            Ok(value) => self.serialize_i64(value),
            Err(_) => self.number(&value.to_string()),
        }
    }

    fn serialize_u8(self, value: u8) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Done {
        self.serialize_i64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Done {
        self.serialize_u128(value.into())
    }

    fn serialize_u128(self, value: u128) -> Done {
        match i64::try_from(value) {
            Ok(value) => self.serialize_i64(value),
            Err(_) => self.number(&value.to_string()),
        }
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
        Ok(self.sink.string(value)?)
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        let mut array = self.array(None)?;
        for byte in value {
            array.element(byte)?;
        }
        array.finish()
    }

    fn serialize_none(self) -> Done {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        self.wrapped(value)
    }

    fn serialize_unit(self) -> Done {
        Ok(self.sink.null()?)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Done {
        if name == NUMBER_NAME {
            return value.serialize(TextSerializer { writer: self, kind: TextKind::Number });
        }
        self.wrapped(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        let frame = self.variant(variant)?;
        value.serialize(&mut *self).map_err(|refusal| refusal.under(variant))?;
        self.sink.close_object(&frame);
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Compound<'a>, Unrepresentable> {
        self.array(None)
    }

    fn serialize_tuple(self, _: usize) -> Result<Compound<'a>, Unrepresentable> {
        self.array(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Compound<'a>, Unrepresentable> {
        self.array(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, Unrepresentable> {
        let frame = self.variant(variant)?;
        self.array(Some((frame, variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Compound<'a>, Unrepresentable> {
        self.object(None)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Compound<'a>, Unrepresentable> {
        let kind = match name {
            SERDE_JSON_NUMBER => TextKind::Number,
            SERDE_JSON_RAW => TextKind::Json,
            _ => return self.object(None),
        };
        Ok(Compound { writer: self, frame: None, shape: Shape::Text { kind, written: false }, outer: None })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Compound<'a>, Unrepresentable> {
        let frame = self.variant(variant)?;
        self.object(Some((frame, variant)))
    }
}

/// The seven compound traits differ in names only.
macro_rules! compound {
    ($($trait:ident: $method:ident($($argument:ident: $type:ty),*) => $call:ident;)*) => {$(
        impl ser::$trait for Compound<'_> {
            type Ok = ();
            type Error = Unrepresentable;

            fn $method<T: Serialize + ?Sized>(&mut self, $($argument: $type,)* value: &T) -> Done {
                self.$call($($argument,)* value)
            }

            fn end(self) -> Done {
                self.finish()
            }
        }
    )*};
}

compound! {
    SerializeSeq: serialize_element() => element;
    SerializeTuple: serialize_element() => element;
    SerializeTupleStruct: serialize_field() => element;
    SerializeTupleVariant: serialize_field() => element;
    SerializeStruct: serialize_field(name: &'static str) => field;
    SerializeStructVariant: serialize_field(name: &'static str) => field;
}

impl ser::SerializeMap for Compound<'_> {
    type Ok = ();
    type Error = Unrepresentable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.value(value)
    }

    fn end(self) -> Done {
        self.finish()
    }
}
