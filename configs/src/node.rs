//! A TOML document in which every value remembers where it was written.
//!
//! Reading, merging and the reserved keys (`value`/`source`, `extends`) live
//! here; what a value means does not.

use crate::diagnostic::{Diagnostic, Place, Source, nearest};
use std::{ops::Range, sync::Arc};
use toml::de::{DeTable, DeValue};

/// A value and where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Place,
    /// The paper, table or datasheet the value was taken from.
    pub citation: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
    /// What a missing key is read as while the mistakes after it are looked for;
    /// never in a document that anyone else sees.
    StandIn,
}

/// A key of a table, in the order of the file.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub key: String,
    pub key_place: Place,
    pub node: Node,
}

/// `over` inside a table for each key.
pub(crate) fn nested(keys: &[(String, Place)], over: Node) -> Node {
    keys.iter().rev().fold(over, |node, (key, place)| {
        let entry = Entry { key: key.clone(), key_place: place.clone(), node };
        Node { value: Value::Table(vec![entry]), place: place.clone(), citation: None }
    })
}

impl Node {
    /// Reads a whole TOML text.
    pub fn parse(source: &Arc<Source>) -> Result<Self, Diagnostic> {
        let (table, errors) = DeTable::parse_recoverable(&source.text);
        if let Some(mistakes) = Diagnostic::of_all(errors.iter().map(|error| syntax(error, source))) {
            return Err(mistakes);
        }
        let place = Place { source: source.clone(), span: 0..0 };
        Self::table(table.get_ref(), place)
    }

    /// Reads one value, as after the `=` of a `--set`.
    pub fn parse_value(text: &str, source: &Arc<Source>, start: usize) -> Result<Self, Diagnostic> {
        let place = Place { source: source.clone(), span: start..start + text.len() };
        match DeValue::parse(text) {
            // Spans inside a composite are relative to `text`; point at all of it.
            Ok(value) => Self::value(value.get_ref(), place.clone()).map(|node| node.moved_to(&place)),
            Err(_) => Ok(Self { value: Value::Text(text.into()), place, citation: None }),
        }
    }

    fn moved_to(mut self, place: &Place) -> Self {
        self.place = place.clone();
        match &mut self.value {
            Value::Array(items) => {
                *items = std::mem::take(items).into_iter().map(|item| item.moved_to(place)).collect();
            }
            Value::Table(entries) => {
                for entry in entries.iter_mut() {
                    entry.key_place = place.clone();
                    entry.node = entry.node.clone().moved_to(place);
                }
            }
            _ => {}
        }
        self
    }

    fn value(value: &DeValue<'_>, place: Place) -> Result<Self, Diagnostic> {
        let plain = |value| Ok(Self { value, place: place.clone(), citation: None });
        match value {
            DeValue::String(text) => plain(Value::Text(text.to_string())),
            DeValue::Boolean(flag) => plain(Value::Boolean(*flag)),
            DeValue::Integer(integer) => {
                let digits = integer.as_str().replace('_', "");
                match i64::from_str_radix(&digits, integer.radix()) {
                    Ok(integer) => plain(Value::Integer(integer)),
                    Err(_) => Err(Diagnostic::new(format!("{digits} does not fit 64 bits"))
                        .at(&place)
                        .label("expected a smaller integer")),
                }
            }
            DeValue::Float(float) => match float.as_str().replace('_', "").parse() {
                Ok(float) => plain(Value::Float(float)),
                Err(_) => Err(Diagnostic::new("not a number").at(&place).label("expected a number")),
            },
            DeValue::Datetime(datetime) => plain(Value::Text(datetime.to_string())),
            DeValue::Array(items) => {
                let items: Result<Vec<_>, _> =
                    items.iter().map(|item| Self::value(item.get_ref(), at(&place, item.span()))).collect();
                plain(Value::Array(items?))
            }
            DeValue::Table(table) => Self::table(table, place),
        }
    }

    fn table(table: &DeTable<'_>, place: Place) -> Result<Self, Diagnostic> {
        let (mut entries, mut mistakes) = (Vec::new(), Vec::new());
        for (key, value) in table {
            let key_place = at(&place, key.span());
            match Self::value(value.get_ref(), at(&place, value.span())) {
                Ok(node) => entries.push(Entry { key: key.get_ref().to_string(), key_place, node }),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if let Some(mistakes) = Diagnostic::of_all(mistakes) {
            return Err(mistakes);
        }
        let mut node = Self { value: Value::Table(entries), place, citation: None };
        if node.entry("value").is_some() { node.cited() } else { node.cite_members().map(|()| node) }
    }

    /// `{ value = …, source = "…" }` is the value itself, with a citation.
    fn cited(self) -> Result<Self, Diagnostic> {
        let Value::Table(entries) = self.value else { return Ok(self) };
        let mut value = None;
        let mut citation = Vec::new();
        for entry in entries {
            match (entry.key.as_str(), entry.node.value) {
                ("value", inner) => value = Some(Self { value: inner, ..entry.node }),
                ("source" | "note", Value::Text(text)) => citation.push(text),
                ("source" | "note", _) => {
                    return Err(Diagnostic::new(format!("`{}` must be text", entry.key))
                        .at(&entry.node.place)
                        .label("expected a string such as \"LLM.265, Table 3\""));
                }
                (other, _) => {
                    return Err(Diagnostic::new(format!("unknown key `{other}`"))
                        .at(&entry.key_place)
                        .label("expected one of: value, source, note")
                        .help(did_you_mean(other, &["value", "source", "note"])));
                }
            }
        }
        let mut node =
            value.unwrap_or(Self { value: Value::Table(Vec::new()), place: self.place, citation: None });
        if !citation.is_empty() {
            node.citation = Some(citation.join("; "));
        }
        Ok(node)
    }

    /// A table's own `source = "…"` speaks for every value in it that has none.
    fn cite_members(&mut self) -> Result<(), Diagnostic> {
        let Some(entry) = self.take("source") else { return Ok(()) };
        let Value::Text(citation) = entry.node.value else {
            return Err(Diagnostic::new("`source` must be text")
                .at(&entry.node.place)
                .label("expected a string such as \"LLM.265, Table 3\""));
        };
        self.cite(&citation);
        Ok(())
    }

    fn cite(&mut self, citation: &str) {
        match &mut self.value {
            Value::Table(entries) => {
                // What a table extends has sources of its own.
                entries
                    .iter_mut()
                    .filter(|entry| entry.key != "extends")
                    .for_each(|entry| entry.node.cite(citation));
            }
            Value::Array(items) if items.iter().any(|item| matches!(item.value, Value::Table(_))) => {
                items.iter_mut().for_each(|item| item.cite(citation));
            }
            _ => self.citation = self.citation.take().or_else(|| Some(citation.to_string())),
        }
    }

    /// The entry under `key`, if this is a table that has it.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The member of a table or the item of an array.
    pub fn member(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Array(items) => key.parse().ok().and_then(|index: usize| items.get(index)),
            _ => self.entry(key).map(|entry| &entry.node),
        }
    }

    /// Removes and returns the entry under `key`.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        match &mut self.value {
            Value::Table(entries) => {
                let at = entries.iter().position(|entry| entry.key == key)?;
                Some(entries.remove(at))
            }
            _ => None,
        }
    }

    /// Lays `over` on top: tables merge key by key, anything else is replaced.
    pub fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (Value::Table(entries), Value::Table(over_entries)) => {
                for entry in over_entries {
                    match entries.iter_mut().find(|known| known.key == entry.key) {
                        Some(known) => {
                            known.key_place = entry.key_place;
                            known.node.merge(entry.node);
                        }
                        None => entries.push(entry),
                    }
                }
                self.place = over.place;
            }
            (value, over_value) => {
                *value = over_value;
                self.place = over.place;
                self.citation = over.citation;
            }
        }
    }
}

fn at(place: &Place, span: Range<usize>) -> Place {
    Place { source: place.source.clone(), span }
}

fn syntax(error: &toml::de::Error, source: &Arc<Source>) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    Diagnostic::new("this is not TOML").at(&Place { source: source.clone(), span }).label(error.message())
}

/// “did you mean …?”, if anything is near.
pub(crate) fn did_you_mean<S: AsRef<str>>(word: &str, candidates: &[S]) -> Option<String> {
    nearest(word, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}
