//! Names in profiles: read as strings, checked where they are read. Knows no
//! name itself, so that every stage can be named.

use serde::Deserializer;

/// What a name stands for. Read as a string, checked while it is read: errors
/// know their place in the text.
pub fn by_name<'de, D: Deserializer<'de>, T: TryFrom<String, Error = String>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct Name<T>(std::marker::PhantomData<T>);

    impl<T: TryFrom<String, Error = String>> serde::de::Visitor<'_> for Name<T> {
        type Value = T;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a name")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            T::try_from(text.to_owned()).map_err(E::custom)
        }
    }

    deserializer.deserialize_str(Name(std::marker::PhantomData))
}
