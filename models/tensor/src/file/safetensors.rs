//! safetensors: 8 bytes of header length, a JSON header, then raw values.
//!
//! Parsed here rather than by the `safetensors` crate because that one wants
//! the whole file as a slice and reports no byte offsets.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::atomic::AtomicFile;
use super::contents::{CARRIED_KEY, TensorFile};
use super::entry::{Carried, Entry, count};
use super::source::{Plain, Source};
use crate::{Class, Dtype, Error};

const FORMAT: &str = "safetensors";
/// Longest header accepted, as in the reference implementation.
const MAX_HEADER: u64 = 100_000_000;

/// True when the file may be safetensors: no magic number exists, so a header
/// that starts like JSON, or one whose announced length cannot be right.
pub(super) fn plausible(source: &Source) -> bool {
    let mut start = [0; 9];
    match source.len() {
        0..8 => false,
        8 => true,
        _ => source.read_at(0, &mut start).is_ok() && matches!(start[8], b'{' | b' '),
    }
}

pub(super) fn parse(source: &Source) -> Result<TensorFile, Error> {
    let malformed = |offset, problem: String| Error::malformed(FORMAT, offset, problem);
    let length_bytes = source.bytes(FORMAT, 0, 8)?;
    let header_len = u64::from_le_bytes(length_bytes.try_into().unwrap_or_default());
    if header_len > MAX_HEADER {
        return Err(malformed(0, format!("a header of {header_len} bytes, more than {MAX_HEADER}")));
    }
    let bytes = source.bytes(FORMAT, 8, header_len)?;
    let header: Header = serde_json::from_slice(&bytes)
        .map_err(|error| malformed(8 + json_offset(&bytes, &error), error.to_string()))?;

    let data_start = 8 + header_len;
    let data_len = source.len() - data_start;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for (name, info) in header.tensors {
        let place = || 8 + locate(&bytes, &name);
        let [begin, end] = info.data_offsets;
        if begin > end || end > data_len {
            let problem = format!("tensor `{name}` spans bytes {begin} to {end} of {data_len} bytes of data");
            return Err(malformed(place(), problem));
        }
        let shape = info.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
        let payload = Arc::new(Plain { source: source.clone(), offset: data_start + begin });
        let Some(dtype) = dtype(&info.dtype) else {
            let size = usize::try_from(end - begin).unwrap_or(usize::MAX);
            let carried = Carried { dtype: info.dtype, shape: shape.unwrap_or_default() };
            let entry = Entry::carried_as(name, carried, size, data_start + begin, payload)?;
            tensors.push((begin, end, entry));
            continue;
        };
        let size = shape.as_deref().ok().and_then(count).and_then(|values| values.checked_mul(dtype.bytes()));
        if size.map(|size| size as u64) != Some(end - begin) {
            let problem = format!(
                "tensor `{name}`: shape {:?} of {dtype} does not take the {} bytes it spans",
                info.shape,
                end - begin
            );
            return Err(malformed(place(), problem));
        }
        let entry = Entry::new(name, dtype, shape.unwrap_or_default(), data_start + begin, payload)?;
        tensors.push((begin, end, entry));
    }

    // Ranges must tile the data: the format allows neither overlaps nor holes.
    tensors.sort_by_key(|&(begin, end, _)| (begin, end));
    let mut covered = 0;
    for (begin, end, entry) in &tensors {
        if *begin != covered {
            let what =
                if *begin < covered { "overlaps the tensor before it" } else { "leaves a hole before it" };
            return Err(malformed(data_start + begin, format!("tensor `{}` {what}", entry.name())));
        }
        covered = *end;
    }
    if covered != data_len {
        let problem = format!("{} bytes after the last tensor belong to none", data_len - covered);
        return Err(malformed(data_start + covered, problem));
    }
    TensorFile::new(FORMAT, tensors.into_iter().map(|(_, _, entry)| entry).collect(), header.metadata)
}

fn dtype(name: &str) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|&dtype| dtype_name(dtype) == name)
}

fn dtype_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F64 => "F64",
        Dtype::F32 => "F32",
        Dtype::F16 => "F16",
        Dtype::Bf16 => "BF16",
        Dtype::F8e4m3 => "F8_E4M3",
        Dtype::F8e5m2 => "F8_E5M2",
        Dtype::I8 => "I8",
        Dtype::U8 => "U8",
        Dtype::I16 => "I16",
        Dtype::I32 => "I32",
        Dtype::I64 => "I64",
    }
}

/// What a tensor was before its bytes were carried, taken out of the texts.
fn carried(spec: &Spec, texts: &mut BTreeMap<String, String>) -> Result<Option<Carried>, Error> {
    let Some(text) = texts.remove(&format!("{CARRIED_KEY}.{}", spec.name)) else { return Ok(None) };
    let unsupported = |what: String| Error::unsupported(FORMAT, 0, what);
    let carried: Carried =
        text.parse().map_err(|_| unsupported(format!("tensor `{}` as `{text}`", spec.name)))?;
    if spec.dtype != Dtype::U8 || dtype(&carried.dtype).is_some() {
        return Ok(None);
    }
    if let Some(format) = carried.dtype.strip_prefix("npy:") {
        let name = &spec.name;
        return Err(unsupported(format!(
            "number format {format} of tensor `{name}`, which has no name there,"
        )));
    }
    Ok(Some(carried))
}

/// Where in the header a JSON error was found.
fn json_offset(header: &[u8], error: &serde_json::Error) -> u64 {
    let lines = header.split_inclusive(|&byte| byte == b'\n').take(error.line().saturating_sub(1));
    let before: usize = lines.map(<[u8]>::len).sum();
    (before + error.column().saturating_sub(1)) as u64
}

/// Where in the header a tensor is described.
fn locate(header: &[u8], name: &str) -> u64 {
    let quoted = serde_json::to_vec(name).unwrap_or_default();
    header.windows(quoted.len().max(1)).position(|window| window == quoted).unwrap_or(0) as u64
}

struct Header {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, Info)>,
}

#[derive(Deserialize)]
struct Info {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: BTreeMap::new(), tensors: Vec::new() };
                let mut seen = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(serde::de::Error::custom(format!("`{name}` appears twice")));
                    }
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// A tensor about to be written.
#[derive(Debug, Clone)]
pub struct Spec {
    pub name: String,
    pub class: Class,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
}

/// Writes safetensors front to back: the header first, since every size is
/// known, then the values as they come.
#[derive(Debug)]
pub struct SafetensorsWriter {
    file: AtomicFile,
    left: u64,
}

impl SafetensorsWriter {
    /// Starts a file of these tensors, in this order. Classes that a name does
    /// not tell by itself are kept as metadata.
    pub fn create(path: &Path, specs: &[Spec], metadata: &BTreeMap<String, String>) -> Result<Self, Error> {
        let mut texts = metadata.clone();
        // What a container keeps of another file says nothing of this one.
        texts.retain(|key, _| !key.starts_with(super::ORIGIN_KEY));
        let mut header = serde_json::Map::new();
        let mut end = 0u64;
        for spec in specs {
            let bytes = count(&spec.shape).and_then(|values| values.checked_mul(spec.dtype.bytes()));
            let next = bytes
                .and_then(|bytes| end.checked_add(bytes as u64))
                .ok_or_else(|| Error::too_large(&spec.name, &spec.shape, spec.dtype))?;
            let carried = carried(spec, &mut texts)?;
            let (name, shape) = match &carried {
                Some(carried) => (carried.dtype.as_str(), &carried.shape),
                None => (dtype_name(spec.dtype), &spec.shape),
            };
            let info = serde_json::json!({ "dtype": name, "shape": shape, "data_offsets": [end, next] });
            if header.insert(spec.name.clone(), info).is_some() {
                return Err(Error::DuplicateName { name: spec.name.clone() });
            }
            if Class::from_name(&spec.name) != spec.class {
                texts.insert(format!("{}.{}", super::CLASS_KEY, spec.name), spec.class.name().to_owned());
            }
            end = next;
        }
        if !texts.is_empty() {
            header.shift_insert(0, "__metadata__".into(), serde_json::json!(texts));
        }
        let mut text = serde_json::Value::Object(header).to_string();
        // Values start on a multiple of 8, for readers that map the file.
        text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
        let mut file = AtomicFile::create(path)?;
        file.write_all(&(text.len() as u64).to_le_bytes())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|source| Error::Write { doing: "writing the header", source }.in_file(path))?;
        Ok(Self { file, left: end })
    }

    /// Appends values, in the order of the specs.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let beyond = || Error::malformed(FORMAT, 0, "more values written than the header announces");
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(beyond)?;
        self.file.write_all(bytes).map_err(Error::write("writing values"))
    }

    /// Makes the file appear; an error when values are missing.
    pub fn finish(self) -> Result<(), Error> {
        if self.left != 0 {
            let problem = format!("{} bytes announced in the header were never written", self.left);
            return Err(Error::malformed(FORMAT, 0, problem));
        }
        self.file.commit()
    }
}
