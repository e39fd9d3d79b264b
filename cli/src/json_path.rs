//! Paths in JSON and in names of work: every byte of them, text or not.
//!
//! A file system keeps bytes, JSON keeps text. A path that is text is a string,
//! as anyone expects; any other is an object of the nearest `text` and its
//! `bytes`. Knows nothing of what lies at a path.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeStruct};
use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A path that JSON can say, and say back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(PathBuf);

impl<P: Into<PathBuf>> From<P> for JsonPath {
    fn from(path: P) -> Self {
        Self(path.into())
    }
}

impl Deref for JsonPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Serialize for JsonPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => {
                let mut said = serializer.serialize_struct("path", 2)?;
                said.serialize_field("text", &self.0.to_string_lossy())?;
                said.serialize_field("bytes", self.0.as_os_str().as_encoded_bytes())?;
                said.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for JsonPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Said {
            Text(String),
            Bytes { bytes: Vec<u8> },
        }
        Ok(Self(match Said::deserialize(deserializer)? {
            Said::Text(text) => text.into(),
            Said::Bytes { bytes } => of_bytes(bytes).into(),
        }))
    }
}

#[cfg(unix)]
fn of_bytes(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn of_bytes(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// A path in words that no other path has: as it is, or with its bytes spelled.
pub fn spelled(path: &Path) -> String {
    path.to_str().map_or_else(|| format!("{:?}", path.as_os_str()), str::to_owned)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn json_says_every_path_and_says_it_back() {
        for (bytes, said) in [
            (&b"out/m.tri"[..], "\"out/m.tri\""),
            (b"m\xff.tri", "{\"text\":\"m\u{fffd}.tri\",\"bytes\":[109,255,46,116,114,105]}"),
        ] {
            let path = JsonPath::from(Path::new(OsStr::from_bytes(bytes)));
            assert_eq!(serde_json::to_string(&path).unwrap(), said);
            assert_eq!(serde_json::from_str::<JsonPath>(said).unwrap(), path);
        }
    }

    #[test]
    fn no_two_paths_are_spelled_alike() {
        let [one, other] = [b"m\xff".as_slice(), b"m\xfe"].map(|bytes| Path::new(OsStr::from_bytes(bytes)));
        assert_ne!(spelled(one), spelled(other));
        assert_eq!(spelled(Path::new("m é")), "m é");
    }
}
