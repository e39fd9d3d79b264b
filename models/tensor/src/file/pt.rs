//! PyTorch's `.pt` and `.pth`: a zip archive of storages, and a pickle that
//! says which tensors lie where in them.
//!
//! The pickle is read by [`pickle`], which builds tensors, dictionaries, lists
//! and plain values and nothing else: no code of the file runs, and whatever
//! would need to is refused by its name. Nested dictionaries become names
//! joined by dots.

mod pickle;

use std::sync::Arc;

use pickle::{Built, FORMAT, Machine, Object, Storage, TensorRef, malformed, unsupported};

use super::contents::TensorFile;
use super::entry::{Entry, Payload, ValueStream, advance, count};
use super::npz::{Archive, Member};
use super::source::{Plain, Source};
use crate::Error;

/// Longest pickle accepted: a million tensors take less.
const MAX_PICKLE: u64 = 1 << 28;
/// Dictionaries in dictionaries deeper than this are refused.
const MAX_DEPTH: usize = 32;
/// What files of PyTorch before 1.6 start with, after the protocol.
const LEGACY_MAGIC: [u8; 12] = [0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// True for a zip archive with a `data.pkl`, which an npz has no use for.
pub(super) fn plausible(source: &Source) -> bool {
    Archive::open(FORMAT, source)
        .is_ok_and(|archive| archive.names().any(|name| name == "data.pkl" || name.ends_with("/data.pkl")))
}

/// The error for a pickle without a zip archive around it.
pub(super) fn bare_pickle(source: &Source) -> Error {
    let mut start = [0; 14];
    let known = source.len().min(14) as usize;
    let legacy = source.read_at(0, &mut start[..known]).is_ok() && start[2..] == LEGACY_MAGIC;
    if legacy {
        unsupported(0, "the format of PyTorch before 1.6 (load it and torch.save it again): it")
    } else {
        unsupported(0, "a bare pickle, which could run code when loaded: it")
    }
}

pub(super) fn parse(source: &Source, stem: &str) -> Result<TensorFile, Error> {
    let members = Members::read(source)?;
    let pickle = members.content("data.pkl", MAX_PICKLE)?;
    if members.find("byteorder").is_some() && members.content("byteorder", 16)? != b"little" {
        return Err(unsupported(0, "a file in big-endian byte order"));
    }
    let at = members.find("data.pkl").map_or(0, |member| member.start);
    let machine = Machine::run(&pickle, at)?;
    let mut found = Vec::new();
    collect(&machine, &machine.root, stem, &mut found)?;
    let entries = found.into_iter().map(|(name, tensor)| members.entry(name, tensor));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    if entries.is_empty() {
        return Err(malformed(at, "its pickle holds no tensor"));
    }
    TensorFile::new(FORMAT, entries, Default::default())
}

/// Every tensor under a value, named by the keys that lead to it.
fn collect<'m>(
    machine: &'m Machine,
    root: &'m Built,
    stem: &str,
    found: &mut Vec<(String, &'m TensorRef)>,
) -> Result<(), Error> {
    // A pickle can hold one list many times over; a file that would unfold to
    // more than it has objects, several times, is no checkpoint.
    let mut visits_left = 1000 + 16 * machine.objects.len();
    let mut stack = vec![(String::new(), root, 0)];
    while let Some((name, value, depth)) = stack.pop() {
        visits_left =
            visits_left.checked_sub(1).ok_or_else(|| malformed(0, "values that hold each other"))?;
        let join = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        match value {
            Built::Tensor(tensor) => {
                let name = if name.is_empty() { stem.to_owned() } else { name };
                found.push((name, tensor));
            }
            Built::Object(index) => {
                if depth == MAX_DEPTH {
                    return Err(malformed(0, format!("`{name}` is nested more than {MAX_DEPTH} deep")));
                }
                // Pushed from last to first, so that the first is next.
                match &machine.objects[*index] {
                    Object::List(items) => {
                        let named = items.iter().enumerate().rev();
                        stack.extend(named.map(|(i, item)| (join(&i.to_string()), item, depth + 1)));
                    }
                    Object::Dict(pairs) => {
                        let named = pairs.iter().rev();
                        stack.extend(named.map(|(key, item)| (join(&key.text()), item, depth + 1)));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The archive's members under the folder that holds `data.pkl`.
struct Members {
    source: Source,
    members: Vec<(String, Arc<Member>)>,
}

impl Members {
    fn read(source: &Source) -> Result<Self, Error> {
        let mut archive = Archive::open(FORMAT, source)?;
        let folder = archive
            .names()
            .find_map(|name| name.strip_suffix("data.pkl").filter(|f| f.is_empty() || f.ends_with('/')))
            .ok_or_else(|| malformed(0, "no data.pkl"))?
            .to_owned();
        let mut members = Vec::new();
        for index in 0..archive.len() {
            let found = archive.member(index, |name| name.strip_prefix(&folder))?;
            let Some((name, member)) = found else { continue };
            if !member.deflated && member.size != member.end - member.start {
                return Err(malformed(member.start, format!("member `{name}` is of two sizes")));
            }
            members.push((name, Arc::new(member)));
        }
        Ok(Self { source: source.clone(), members })
    }

    fn find(&self, name: &str) -> Option<&Arc<Member>> {
        self.members.iter().find(|(known, _)| known == name).map(|(_, member)| member)
    }

    /// A small member, whole.
    fn content(&self, name: &str, most: u64) -> Result<Vec<u8>, Error> {
        let member = self.find(name).ok_or_else(|| malformed(0, format!("no member `{name}`")))?;
        let at = member.start;
        if member.size > most {
            return Err(malformed(at, format!("member `{name}` of {} bytes", member.size)));
        }
        let bytes = member.content(FORMAT, name, member.size)?;
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        if bytes.len() as u64 != member.size || crc.sum() != member.crc {
            return Err(malformed(at, format!("member `{name}` does not match its checksum")));
        }
        Ok(bytes)
    }

    /// A tensor over its storage; everything the pickle says is checked here.
    fn entry(&self, name: String, tensor: &TensorRef) -> Result<Entry, Error> {
        let TensorRef { storage, offset, shape, stride } = tensor;
        let Storage { dtype, stored, key, .. } = storage;
        let member = self
            .find(&format!("data/{key}"))
            .ok_or_else(|| malformed(0, format!("tensor `{name}`: no storage `{key}`")))?;
        let width = dtype.bytes();
        let available = member.size / width as u64;
        let place = Span::new(*offset, shape, stride).filter(|span| span.end <= available);
        let Some(span) = place else {
            let problem = format!(
                "tensor `{name}`: shape {shape:?}, stride {stride:?} and offset {offset} do not fit the {available} values of its storage"
            );
            return Err(malformed(member.start, problem));
        };
        // An expanded tensor is larger than what it is stored in; a pickle may
        // claim any size that way.
        let values = count(shape).unwrap_or(usize::MAX);
        if values as u64 > available {
            let problem = format!("tensor `{name}`: {values} values out of a storage of {available}");
            return Err(malformed(member.start, problem));
        }
        let is_whole = span.contiguous && *offset == 0 && values as u64 == available;
        if member.deflated && values > 0 && !is_whole {
            return Err(unsupported(member.start, format!("a view `{name}` into a compressed storage")));
        }
        let begin = member.start + offset * width as u64;
        let payload: Arc<dyn Payload> = if is_whole {
            member.clone()
        } else if span.contiguous {
            Arc::new(Plain { source: self.source.clone(), offset: begin })
        } else {
            let (source, shape, stride) = (self.source.clone(), shape.clone(), stride.clone());
            Arc::new(Strided { source, begin, span: span.end - offset, width, shape, stride })
        };
        Ok(Entry::new(name, *dtype, shape.clone(), begin, payload)?.with_stored(*stored))
    }
}

/// The part of a storage that a tensor's values lie in.
struct Span {
    /// One past the last value.
    end: u64,
    /// Whether values lie one after the other.
    contiguous: bool,
}

impl Span {
    fn new(offset: u64, shape: &[usize], stride: &[u64]) -> Option<Self> {
        if shape.len() != stride.len() {
            return None;
        }
        if shape.contains(&0) {
            return Some(Self { end: 0, contiguous: true });
        }
        let mut last = offset;
        let mut dense = 1u64;
        let mut contiguous = true;
        for (&dim, &step) in shape.iter().zip(stride).rev() {
            last = last.checked_add((dim as u64 - 1).checked_mul(step)?)?;
            contiguous &= dim == 1 || step == dense;
            dense = dense.checked_mul(dim as u64)?;
        }
        Some(Self { end: last.checked_add(1)?, contiguous })
    }
}

/// A transposed or cut tensor, put in order as it is read.
#[derive(Debug)]
struct Strided {
    source: Source,
    begin: u64,
    /// Values from the first to the last, others between them included.
    span: u64,
    width: usize,
    shape: Vec<usize>,
    stride: Vec<u64>,
}

impl Payload for Strided {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        let span = self.source.bytes(FORMAT, self.begin, self.span * self.width as u64)?;
        Ok(Box::new(StridedStream { tensor: self, span, index: vec![0; self.shape.len()] }))
    }
}

struct StridedStream<'a> {
    tensor: &'a Strided,
    span: Vec<u8>,
    /// Indices of the next value.
    index: Vec<usize>,
}

impl ValueStream for StridedStream<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let Strided { shape, stride, width, .. } = self.tensor;
        for value in bytes.chunks_exact_mut(*width) {
            let place: u64 = self.index.iter().zip(stride).map(|(&i, &step)| i as u64 * step).sum();
            value.copy_from_slice(&self.span[place as usize * width..][..*width]);
            advance(&mut self.index, shape);
        }
        Ok(())
    }
}
