//! A value on its way into a configuration: what a `--set` or an axis says,
//! before it is laid over anything.
//!
//! A consumer that has read a configuration into a type can put such a value
//! into the type itself, without reading the whole configuration again. Where
//! the value belongs is the type's affair; here is what it says and where that
//! was written.

use crate::de;
use crate::diagnostic::{Diagnostic, Place};
use crate::node::{Entry, Node, Value, nested};
use serde::de::DeserializeOwned;

/// Keys that lead to a value, and the value.
#[derive(Debug, Clone)]
pub struct Assignment {
    pub(crate) keys: Vec<(String, Place)>,
    pub(crate) over: Node,
}

impl Assignment {
    /// The keys, outermost first, each with the place it was written at.
    pub fn keys(&self) -> &[(String, Place)] {
        &self.keys
    }

    /// The value.
    pub fn value(&self) -> Fragment<'_> {
        Fragment(&self.over)
    }
}

/// A part of a configuration that is not read yet.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a>(&'a Node);

impl<'a> Fragment<'a> {
    /// The fragment as a type of the caller's. Fails where the type refuses it,
    /// with the place it was written at.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Diagnostic> {
        de::read(self.0)
    }

    /// The fragment as what keys lead to: a table within a table for each.
    /// Fails where the type refuses it, with the place it was written at.
    pub fn read_under<T: DeserializeOwned>(self, keys: &[(String, Place)]) -> Result<T, Diagnostic> {
        de::read(&nested(keys, self.0.clone()))
    }

    /// The members of a table, each key with its place; none of anything else.
    pub fn members(self) -> Option<impl Iterator<Item = ((String, Place), Fragment<'a>)>> {
        let Value::Table(entries) = &self.0.value else { return None };
        let member = |entry: &'a Entry| ((entry.key.clone(), entry.key_place.clone()), Fragment(&entry.node));
        Some(entries.iter().map(member))
    }
}

impl Diagnostic {
    /// A key that a table does not have, where it was written.
    pub fn unknown_key(key: &str, place: &Place, known: &[&str]) -> Self {
        de::unknown_key(key, known).at(place)
    }

    /// A number that no item of a list has, where it was written.
    pub fn no_item(key: &str, place: &Place, count: usize) -> Self {
        Self::new(format!("there is no item `{key}`"))
            .at(place)
            .label(format!("expected a number below {count}"))
    }
}
