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

/// Reads `node` as a type; where that fails, every mistake is reported, not
/// the first alone.
pub(crate) fn read<T: DeserializeOwned>(node: &Node) -> Result<T, Diagnostic> {
    let trouble = match T::deserialize(node).or_place(&node.place) {
        Ok(value) => return Ok(value),
        Err(trouble) => trouble,
    };
    let mut mistakes = Vec::new();
    let mut left = Repair { root: node.clone(), removed: Vec::new() };
    let mut next = Some(trouble);
    while let Some(trouble) = next.take() {
        if !left.explains(&trouble) {
            mistakes.push(trouble.diagnostic.as_ref().clone());
        }
        if mistakes.len() >= MOST || !left.mend(&trouble) {
            break;
        }
        next = T::deserialize(&left.root).or_place(&node.place).err();
    }
    Err(Diagnostic::of_all(mistakes).unwrap_or_else(|| Diagnostic::new("this cannot be read")))
}

/// More mistakes than this are one mistake: the file is of another kind.
const MOST: usize = 20;

/// A configuration without what was found to be wrong, so that what comes
/// after it can be read. What is missing then may be our own doing.
struct Repair {
    root: Node,
    /// The table that something was taken from, and the key it had there.
    removed: Vec<(Place, String)>,
}

impl Repair {
    /// Whether a trouble is no mistake of the file's but follows from what was
    /// removed.
    fn explains(&self, trouble: &Trouble) -> bool {
        let Some(node) = node_at(&self.root, &trouble.path) else { return false };
        if matches!(node.value, Value::StandIn) {
            return true;
        }
        let mut here = self.removed.iter().filter(|(place, _)| *place == node.place);
        match trouble.missing {
            Some(field) => here.any(|(_, key)| key == field),
            None => !trouble.is_key && here.next().is_some(),
        }
    }

    /// Makes way for what comes after a trouble; false where there is no way.
    fn mend(&mut self, trouble: &Trouble) -> bool {
        let Some(field) = trouble.missing else { return self.remove(&trouble.path) };
        let Some(node) = node_at_mut(&mut self.root, &trouble.path) else { return false };
        let place = node.place.clone();
        match &mut node.value {
            Value::Table(entries) if entries.iter().all(|entry| entry.key != field) => {
                let stand_in = Node { value: Value::StandIn, place: place.clone(), citation: None };
                entries.push(Entry { key: field.to_string(), key_place: place, node: stand_in });
                true
            }
            _ => self.remove(&trouble.path),
        }
    }

    /// Takes out what a path leads to; false where it is the whole document.
    /// What no stand-in can be read for takes its table with it.
    fn remove(&mut self, path: &[Step]) -> bool {
        let stands_in = node_at(&self.root, path).is_some_and(|node| matches!(node.value, Value::StandIn));
        let path = if stands_in { path.get(1..).unwrap_or_default() } else { path };
        let Some((last, above)) = path.split_first() else { return false };
        let Some(parent) = node_at_mut(&mut self.root, above) else { return false };
        let removed = match (&mut parent.value, last) {
            (Value::Table(entries), Step::Key(key)) => {
                let at = entries.iter().position(|entry| entry.key == *key);
                at.map(|at| entries.remove(at).key)
            }
            (Value::Array(items), Step::Item(index)) if *index < items.len() => {
                items.remove(*index);
                Some(index.to_string())
            }
            _ => None,
        };
        let place = parent.place.clone();
        removed.map(|key| self.removed.push((place, key))).is_some()
    }
}

/// The node a path leads to; paths have their innermost step first.
fn node_at<'a>(root: &'a Node, path: &[Step]) -> Option<&'a Node> {
    path.iter().rev().try_fold(root, |node, step| match (&node.value, step) {
        (Value::Table(_), Step::Key(key)) => node.entry(key).map(|entry| &entry.node),
        (Value::Array(items), Step::Item(index)) => items.get(*index),
        _ => None,
    })
}

fn node_at_mut<'a>(root: &'a mut Node, path: &[Step]) -> Option<&'a mut Node> {
    path.iter().rev().try_fold(root, |node, step| match (&mut node.value, step) {
        (Value::Table(entries), Step::Key(key)) => {
            entries.iter_mut().find(|entry| entry.key == *key).map(|entry| &mut entry.node)
        }
        (Value::Array(items), Step::Item(index)) => items.get_mut(*index),
        _ => None,
    })
}

#[derive(Debug)]
enum Step {
    Key(String),
    Item(usize),
}

/// A diagnostic on its way up; boxed, since most reads succeed.
#[derive(Debug)]
pub(crate) struct Trouble {
    diagnostic: Box<Diagnostic>,
    /// Where it happened, the innermost step first.
    path: Vec<Step>,
    /// The key that is missing, where that is the trouble.
    missing: Option<&'static str>,
    /// Whether the key is at fault, not its value.
    is_key: bool,
}

trait OrPlace {
    fn or_place(self, place: &Place) -> Self;
    fn within(self, step: impl FnOnce() -> Step) -> Self;
}

impl<T> OrPlace for Result<T, Trouble> {
    fn or_place(self, place: &Place) -> Self {
        self.map_err(|mut trouble| {
            trouble.diagnostic.place.get_or_insert_with(|| place.clone());
            trouble
        })
    }

    fn within(self, step: impl FnOnce() -> Step) -> Self {
        self.map_err(|mut trouble| {
            trouble.path.push(step());
            trouble
        })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.diagnostic.fmt(f)
    }
}

impl std::error::Error for Trouble {}

impl From<Diagnostic> for Trouble {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { diagnostic: Box::new(diagnostic), path: Vec::new(), missing: None, is_key: false }
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
        Diagnostic::new(message).label(expectation(expected)).into()
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Diagnostic::new(format!("{found} cannot stand here")).label(expectation(expected)).into()
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Diagnostic::new(format!("{length} items stand here")).label(expectation(expected)).into()
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        unknown("key", field, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        unknown("value", variant, expected)
    }

    fn missing_field(field: &'static str) -> Self {
        let diagnostic = Diagnostic::new(format!("the key `{field}` is missing"))
            .label(format!("expected `{field}` in this table"));
        Self { missing: Some(field), ..diagnostic.into() }
    }
}

/// A key that is none of `expected`.
pub(crate) fn unknown_key(key: &str, expected: &[&str]) -> Diagnostic {
    unknown_word("key", key, expected)
}

/// What was expected, in the words of who writes a file: a visitor of Rust's
/// own numbers names its type.
fn expectation(expected: &dyn Expected) -> String {
    let said = expected.to_string();
    let plain = match said.as_str() {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number, not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "string" | "str" => "a text in quotes",
        "a sequence" => "a list in brackets",
        other => other.strip_prefix("struct ").map_or(other, |_| "a table"),
    };
    format!("expected {plain}")
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

/// The example in quotes that a visitor's expectation ends with, or any text.
fn example(expectation: &str) -> String {
    expectation.split('"').nth(1).unwrap_or("text").to_string()
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Trouble;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        let result = match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(integer) => visitor.visit_i64(*integer),
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Boolean(flag) => visitor.visit_bool(*flag),
            Value::Array(items) => visitor.visit_seq(Items(items.iter().enumerate())),
            Value::Table(entries) => visitor.visit_map(Members { entries: entries.iter(), current: None }),
            Value::StandIn => visitor.visit_i64(1),
        };
        result.or_place(&self.place)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        match self.value {
            Value::StandIn => visitor.visit_bool(true).or_place(&self.place),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        match self.value {
            Value::StandIn => visitor.visit_f64(1.0).or_place(&self.place),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        match self.value {
            Value::StandIn => {
                let example = example(&(&visitor as &dyn Expected).to_string());
                visitor.visit_str(&example).or_place(&self.place)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        match self.value {
            Value::StandIn => visitor.visit_seq(Items([].iter().enumerate())).or_place(&self.place),
            _ => self.deserialize_any(visitor),
        }
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
            Value::StandIn => visitor.visit_enum(variants.first().copied().unwrap_or("").into_deserializer()),
            Value::Text(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            Value::Table(entries) => match entries.as_slice() {
                [entry] => visitor.visit_enum(Variant(entry)).within(|| Step::Key(entry.key.clone())),
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
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf
        unit unit_struct tuple tuple_struct map struct identifier ignored_any
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
        let key = seed.deserialize(key).map(Some).or_place(&entry.key_place);
        key.map_err(|trouble| Trouble { is_key: true, ..trouble }).within(|| Step::Key(entry.key.clone()))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Trouble> {
        match self.current.take() {
            Some(entry) => seed
                .deserialize(&entry.node)
                .or_place(&entry.node.place)
                .within(|| Step::Key(entry.key.clone())),
            None => Err(Trouble::custom("a value was asked for before its key")),
        }
    }
}

struct Items<'de>(std::iter::Enumerate<std::slice::Iter<'de, Node>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Trouble;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Trouble> {
        let Some((index, node)) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).or_place(&node.place).within(|| Step::Item(index))
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
