//! serde over [`Node`]s: whatever a consumer's type refuses is reported at the
//! place where it was written.
//!
//! An error is born without a place deep inside a visitor and gets one from the
//! innermost key or value that was being read.

use crate::{
    diagnostic::{Complaint, Diagnostic, Place},
    node::{Entry, Node, Value, did_you_mean},
};
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess,
        SeqAccess, Unexpected, VariantAccess, Visitor, value::StrDeserializer,
    },
    forward_to_deserialize_any,
};
use std::fmt;

pub(crate) fn read<T: DeserializeOwned>(node: &Node) -> Result<T, Diagnostic> {
    T::deserialize(node).or_place(&node.place).map_err(|trouble| *trouble.0)
}

/// A diagnostic on its way up; boxed, since most reads succeed.
#[derive(Debug)]
pub(crate) struct Trouble(Box<Diagnostic>);

trait OrPlace {
    fn or_place(self, place: &Place) -> Self;
}

impl<T> OrPlace for Result<T, Trouble> {
    fn or_place(self, place: &Place) -> Self {
        self.map_err(|mut trouble| {
            trouble.0.place.get_or_insert_with(|| place.clone());
            trouble
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Trouble {}

impl From<Diagnostic> for Trouble {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(Box::new(diagnostic))
    }
}

impl serde::de::Error for Trouble {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Complaint::split(&message.to_string()).into()
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let message = match found {
            Unexpected::Map => "a table stands here".to_string(),
            other => format!("{other} is of the wrong type"),
        };
        Diagnostic::new(message).label(format!("expected {expected}")).into()
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Diagnostic::new(format!("{found} cannot stand here")).label(format!("expected {expected}")).into()
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Diagnostic::new(format!("{length} items stand here")).label(format!("expected {expected}")).into()
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        unknown("key", field, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        unknown("value", variant, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Diagnostic::new(format!("the key `{field}` is missing"))
            .label(format!("expected `{field}` in this table"))
            .into()
    }
}

/// A key that is none of `expected`.
pub(crate) fn unknown_key(key: &str, expected: &[&str]) -> Diagnostic {
    unknown_word("key", key, expected)
}

fn unknown(what: &str, word: &str, expected: &[&str]) -> Trouble {
    unknown_word(what, word, expected).into()
}

fn unknown_word(what: &str, word: &str, expected: &[&str]) -> Diagnostic {
    let label = match expected {
        [] => "nothing may stand here".to_string(),
        [only] => format!("expected {only}"),
        several => format!("expected one of: {}", several.join(", ")),
    };
    Diagnostic::new(format!("unknown {what} `{word}`")).label(label).help(did_you_mean(word, expected))
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Trouble;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        let result = match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(entries) => visitor.visit_map(Members { entries: entries.iter(), current: None }),
        };
        result.or_place(&self.place)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        visitor.visit_some(self).or_place(&self.place)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        visitor.visit_newtype_struct(self).or_place(&self.place)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        let result = match &self.value {
            Value::Text(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Table(entries) => match entries.as_slice() {
                [entry] => visitor.visit_enum(Variant(entry)),
                _ => Err(Trouble::custom(
                    Complaint::new("a table with one key must stand here")
                        .expected(format_args!("one of: {}", variants.join(", "))),
                )),
            },
            _ => Err(Trouble::custom(
                Complaint::new("a name must stand here")
                    .expected(format_args!("one of: {}", variants.join(", "))),
            )),
        };
        result.or_place(&self.place)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The members of a table; remembers the entry between its key and its value.
struct Members<'de> {
    entries: std::slice::Iter<'de, Entry>,
    current: Option<&'de Entry>,
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Trouble;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Trouble> {
        self.current = self.entries.next();
        let Some(entry) = self.current else { return Ok(None) };
        let key: StrDeserializer<'de, Trouble> = entry.key.as_str().into_deserializer();
        seed.deserialize(key).map(Some).or_place(&entry.key_place)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Trouble> {
        match self.current.take() {
            Some(entry) => seed.deserialize(&entry.node).or_place(&entry.node.place),
            None => Err(Trouble::custom("a value was asked for before its key")),
        }
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Trouble;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Trouble> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).or_place(&node.place)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// `{ name = contents }` as the variant `name` of an enum.
struct Variant<'de>(&'de Entry);

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Trouble;
    type Variant = &'de Node;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, &'de Node), Trouble> {
        let name: StrDeserializer<'de, Trouble> = self.0.key.as_str().into_deserializer();
        Ok((seed.deserialize(name).or_place(&self.0.key_place)?, &self.0.node))
    }
}

impl<'de> VariantAccess<'de> for &'de Node {
    type Error = Trouble;

    fn unit_variant(self) -> Result<(), Trouble> {
        Err(Trouble::custom(Complaint::new("this name stands alone").expected("a string")))
            .or_place(&self.place)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Trouble> {
        seed.deserialize(self).or_place(&self.place)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Trouble> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        self.deserialize_any(visitor)
    }
}
