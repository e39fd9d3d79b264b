//! Setters: what a path such as `job.parallelism.data` puts where.
//!
//! An axis of a sweep names one place of a study and gives it many values. The
//! way to that place is found once, through the types; each value is then read
//! on its own and stored, and no document is cloned or read again. Laying a
//! table over a struct sets the members it names, as laying it over the
//! document would.

use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use trinity_config::{
    Area, DataRate, DataSize, Diagnostic, Duration, EnergyPerBit, FlopRate, Fraction, Fragment, Frequency,
    Place, Power, Ratio,
};

/// A key and where it was written.
pub type Key = (String, Place);

/// Puts a value into a `T`.
pub type Setter<T> = Box<dyn Fn(&mut T, Fragment<'_>) -> Result<(), Diagnostic> + Send + Sync>;

/// A type whose parts can be set by the keys of its file.
pub trait Settable: Sized + 'static {
    /// The setter of what `keys` lead to. Fails where the keys lead nowhere,
    /// pointing at the first that does not.
    fn setter(keys: &[Key]) -> Result<Setter<Self>, Diagnostic>;
}

/// The setter of a field, given how to find the field and how to set it.
pub fn through<T: 'static, F: 'static>(field: fn(&mut T) -> &mut F, inner: Setter<F>) -> Setter<T> {
    Box::new(move |whole, value| inner(field(whole), value))
}

/// The setter of a whole struct: the members that a table names, each by its
/// own setter.
pub fn members<T: Settable + DeserializeOwned>() -> Setter<T> {
    Box::new(|whole, value| match value.members() {
        Some(members) => {
            for (key, member) in members {
                T::setter(&[key])?(whole, member)?;
            }
            Ok(())
        }
        // No table: reading says what was expected.
        None => value.read().map(|read| *whole = read),
    })
}

/// Whether a key of a file is the name of a field.
pub fn names(key: &str, field: &str) -> bool {
    key.len() == field.len() && key.bytes().zip(field.bytes()).all(|(k, f)| k == f || (k, f) == (b'-', b'_'))
}

/// The keys of a file for the names of fields, for a complaint.
pub fn unknown(key: &Key, fields: &[&str]) -> Diagnostic {
    let keys: Vec<String> = fields.iter().map(|field| field.replace('_', "-")).collect();
    Diagnostic::unknown_key(&key.0, &key.1, &keys.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Makes a struct settable by the names of its fields, all of them: a field
/// that is left out does not compile.
macro_rules! settable {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {$(
        impl $crate::config::setter::Settable for $name {
            fn setter(
                keys: &[$crate::config::setter::Key],
            ) -> Result<$crate::config::setter::Setter<Self>, trinity_config::Diagnostic> {
                use $crate::config::setter::{members, names, through, unknown};
                let _every_field = |Self { $($field: _),+ }: &Self| ();
                let Some((key, rest)) = keys.split_first() else { return Ok(members()) };
                $(if names(&key.0, stringify!($field)) {
                    let inner = $crate::config::setter::Settable::setter(rest)?;
                    return Ok(through(|whole: &mut Self| &mut whole.$field, inner));
                })+
                Err(unknown(key, &[$(stringify!($field)),+]))
            }
        }
    )+};
}
pub(super) use settable;

/// A value without parts: read whole. Keys that go on beyond it are read as
/// the tables they are, which the type refuses.
macro_rules! values {
    ($($value:ty),+ $(,)?) => {$(
        impl $crate::config::setter::Settable for $value {
            fn setter(
                keys: &[$crate::config::setter::Key],
            ) -> Result<$crate::config::setter::Setter<Self>, trinity_config::Diagnostic> {
                let keys = keys.to_vec();
                Ok(Box::new(move |place, value| value.read_under(&keys).map(|read| *place = read)))
            }
        }
    )+};
}
pub(super) use values;

values! {
    bool, u8, u32, f64, String, Area, DataRate, DataSize, Duration, EnergyPerBit, FlopRate, Fraction, Frequency,
    Power, Ratio, (f64, f64),
}

/// What is not there yet is read whole; what is there is set in part.
impl<T: Settable + DeserializeOwned> Settable for Option<T> {
    fn setter(keys: &[Key]) -> Result<Setter<Self>, Diagnostic> {
        let inner = T::setter(keys)?;
        let keys = keys.to_vec();
        Ok(Box::new(move |place, value| match place {
            Some(there) => inner(there, value),
            None => value.read_under(&keys).map(|read| *place = Some(read)),
        }))
    }
}

/// A list is replaced whole, or one of its items is set by number.
impl<T: Settable + DeserializeOwned> Settable for Vec<T> {
    fn setter(keys: &[Key]) -> Result<Setter<Self>, Diagnostic> {
        let Some((key, rest)) = keys.split_first() else {
            return Ok(Box::new(|place, value| value.read().map(|read| *place = read)));
        };
        let (inner, key) = (T::setter(rest)?, key.clone());
        Ok(Box::new(move |list, value| {
            let count = list.len();
            match key.0.parse().ok().and_then(|index: usize| list.get_mut(index)) {
                Some(item) => inner(item, value),
                None => Err(Diagnostic::no_item(&key.0, &key.1, count)),
            }
        }))
    }
}

/// Entries by name; a table laid over them adds and replaces.
impl<T: Settable + DeserializeOwned> Settable for BTreeMap<String, T> {
    fn setter(keys: &[Key]) -> Result<Setter<Self>, Diagnostic> {
        let Some((key, rest)) = keys.split_first() else {
            return Ok(Box::new(|map, value| value.read().map(|read: Self| map.extend(read))));
        };
        let (inner, key, rest) = (T::setter(rest)?, key.0.clone(), rest.to_vec());
        Ok(Box::new(move |map, value| match map.get_mut(&key) {
            Some(there) => inner(there, value),
            None => value.read_under(&rest).map(|read| drop(map.insert(key.clone(), read))),
        }))
    }
}
