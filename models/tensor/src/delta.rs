//! Deltas: what fine-tuning changed, small enough to ship beside the base.
//!
//! Lossless: each slab holds either the indices and new values of what changed
//! or the exclusive-or of all bytes, whichever is smaller under Zstandard;
//! applying it gives the tuned tensor to the bit. Lossy: the difference goes
//! through any tensor codec and is added back.
//!
//! A delta is a `.tri` container whose codecs are named `delta` (lossless) or
//! `delta/CODEC`; it cannot be decoded without its base. A text for each tensor,
//! `trinity.delta.base.NAME`, holds the hash of the values it was made against,
//! and no others are taken; deltas of before that have none and are believed.

use std::path::Path;
use trinity_numeric::hash::Fnv1a;

use crate::codec::{Encoded, MetricSums, Rate, TensorCodec, codec, decoder};
use crate::file::{SafetensorsWriter, Spec, TriWriter};
use crate::pipeline::{SLAB_VALUES, Summary, first_non_finite, spec};
use crate::{Dtype, Entry, Error, Tensor, TensorFile};

/// How a difference is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Mode {
    Lossless,
    Lossy { codec: String, target: Rate },
}

const LOSSLESS: &str = "delta";
const LEVEL: i32 = 9;
/// Start of the keys that hold the hashes of bases.
const BASE_KEY: &str = "trinity.delta.base.";
/// Kinds of lossless slab.
const SPARSE: u8 = 0;
const XOR: u8 = 1;

/// The name that a base and a tuned tensor share.
fn key(name: &str) -> &str {
    name.strip_suffix(".base").or_else(|| name.strip_suffix(".tuned")).unwrap_or(name)
}

/// Pairs tensors by name, without the suffixes `.base` and `.tuned`.
fn pairs<'a>(base: &'a TensorFile, tuned: &'a TensorFile) -> Result<Vec<(&'a Entry, &'a Entry)>, Error> {
    let tuned = tuned.entries().iter().filter(|entry| !entry.name().ends_with(".base"));
    tuned
        .map(|tuned| {
            let base = find_base(base, key(tuned.name()))?;
            if (base.shape(), base.dtype()) != (tuned.shape(), tuned.dtype()) {
                return Err(Error::SizeMismatch {
                    name: tuned.name().to_owned(),
                    shape: tuned.shape().to_vec(),
                    dtype: tuned.dtype(),
                    expected: format!("those of its base, {:?} of {},", base.shape(), base.dtype()),
                    found: (tuned.len() * tuned.dtype().bytes()) as u64,
                });
            }
            Ok((base, tuned))
        })
        .collect()
}

fn find_base<'a>(base: &'a TensorFile, wanted: &str) -> Result<&'a Entry, Error> {
    base.entries()
        .iter()
        .find(|entry| !entry.name().ends_with(".tuned") && key(entry.name()) == wanted)
        .ok_or_else(|| Error::NoSuchTensor { name: wanted.to_owned() })
}

/// 64-bit FNV-1a of a tensor's bytes, eight at a time.
#[derive(Debug, Clone, Copy)]
struct Hash(Fnv1a);

impl Hash {
    /// The hash of a tensor's number format and shape, before any value.
    fn of(entry: &Entry) -> Self {
        let mut hash = Self(Fnv1a::default());
        hash.update(entry.dtype().name().as_bytes());
        entry.shape().iter().for_each(|&dim| hash.update(&(dim as u64).to_le_bytes()));
        hash
    }

    fn update(&mut self, bytes: &[u8]) {
        // Words instead of bytes: a base is read at the speed of the disk.
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0.add_word(u64::from_le_bytes(word));
            self.0.fold(29);
        }
    }
}

/// What [`apply`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub tensors: usize,
    /// Whether the delta says which base it was made against.
    pub base_checked: bool,
}

/// Writes the difference of two files.
pub fn make(base: &TensorFile, tuned: &TensorFile, mode: &Mode, path: &Path) -> Result<Vec<Summary>, Error> {
    let mut writer = TriWriter::create(path, &tuned.texts()?)?;
    let mut summaries = Vec::new();
    for (base, tuned) in pairs(base, tuned)? {
        let kept = kept_exact(base, tuned, mode)?;
        let (name, inner) = match mode {
            Mode::Lossy { codec: name, target } if kept.is_none() => {
                let inner = codec(name)?;
                (format!("{LOSSLESS}/{}", inner.name()), Some((inner, *target)))
            }
            _ => (LOSSLESS.to_owned(), None),
        };
        writer.begin(&spec(tuned), &name, SLAB_VALUES)?;
        let (mut bytes, mut sums) = (0, MetricSums::default());
        let plan = tuned.plan();
        let (mut old_stream, mut new_stream) = (base.stream()?, tuned.stream()?);
        let mut hash = Hash::of(base);
        for index in 0..plan.len() {
            let range = plan.values(index);
            let mut old = vec![0; range.len() * tuned.dtype().bytes()];
            let mut new = old.clone();
            old_stream.fill(&mut old)?;
            hash.update(&old);
            new_stream.fill(&mut new)?;
            let slab = match &inner {
                None => exact(&old, &new, tuned.dtype().bytes())?,
                Some((codec, target)) => {
                    let difference = difference(tuned, &old, &new)?;
                    codec.encode(&difference, *target).map_err(|error| error.shifted(range.start))?.bytes
                }
            };
            let mut applied = if inner.is_some() { old.clone() } else { new.clone() };
            if let Some((codec, _)) = &inner {
                Change::difference(codec.as_ref(), tuned, slab.clone(), range.len())?
                    .scatter(&mut applied, tuned.dtype())?;
            }
            measure(tuned.dtype(), &old, [&new, &applied], &mut sums);
            bytes += slab.len() as u64;
            writer.slab(&slab)?;
        }
        writer.text(format!("{BASE_KEY}{}", tuned.name()), format!("{:016x}", hash.0.finish()));
        summaries.push(Summary::of(tuned, name, (tuned.len(), bytes), kept, sums.finish()));
    }
    writer.finish()?;
    Ok(summaries)
}

/// Why a tensor's difference is kept to the bit although a loss was asked for.
fn kept_exact(base: &Entry, tuned: &Entry, mode: &Mode) -> Result<Option<String>, Error> {
    if *mode == Mode::Lossless {
        return Ok(None);
    }
    if let Some(carried) = tuned.carried() {
        return Ok(Some(format!("{}, carried as it is", carried.dtype)));
    }
    if !tuned.dtype().is_float() {
        return Ok(Some("integers".into()));
    }
    for (which, entry) in [("the base", base), ("the tuned tensor", tuned)] {
        if let Some((index, value)) = first_non_finite(entry)? {
            return Ok(Some(format!("value {index} of {which} is {value}")));
        }
    }
    Ok(None)
}

/// Adds what the change found differs from the one wanted to some sums: errors
/// are relative to the change, as targets are, and not to the tensor.
fn measure(dtype: Dtype, base: &[u8], [wanted, found]: [&[u8]; 2], sums: &mut MetricSums) {
    const STEP: usize = 1024;
    let bytes = STEP * dtype.bytes();
    let (mut from, mut to, mut reached) = ([0f64; STEP], [0f64; STEP], [0f64; STEP]);
    for ((base, wanted), found) in base.chunks(bytes).zip(wanted.chunks(bytes)).zip(found.chunks(bytes)) {
        let len = wanted.len() / dtype.bytes();
        dtype.to_f64(base, &mut from[..len]);
        dtype.to_f64(wanted, &mut to[..len]);
        dtype.to_f64(found, &mut reached[..len]);
        for i in 0..len {
            (to[i], reached[i]) = (to[i] - from[i], reached[i] - from[i]);
        }
        sums.add(&to[..len], &reached[..len]);
    }
}

/// Writes base plus delta as safetensors; nothing where the base is another.
pub fn apply(base: &TensorFile, delta: &TensorFile, path: &Path) -> Result<Applied, Error> {
    apply_some(base, delta, &delta.entries().iter().collect::<Vec<_>>(), path)
}

/// As [`apply`], of some of the delta's tensors: a shard of them.
pub fn apply_some(
    base: &TensorFile,
    delta: &TensorFile,
    entries: &[&Entry],
    path: &Path,
) -> Result<Applied, Error> {
    let specs: Vec<Spec> = entries.iter().map(|entry| spec(entry)).collect();
    let mut texts = delta.metadata().clone();
    texts.retain(|key, _| !key.starts_with(BASE_KEY));
    let mut writer = SafetensorsWriter::create(path, &specs, &texts)?;
    let mut base_checked = true;
    for &entry in entries {
        let base = find_base(base, key(entry.name()))?;
        if (base.shape(), base.dtype()) != (entry.shape(), entry.dtype()) {
            return Err(Error::NoSuchTensor {
                name: format!("{} of {:?} {}", entry.name(), entry.shape(), entry.dtype()),
            });
        }
        let found = apply_entry(base, entry, &mut writer)?;
        match needed(delta, entry)? {
            Some(needed) if needed != found => {
                return Err(Error::OtherBase { name: base.name().to_owned(), needed, found });
            }
            Some(_) => {}
            None => base_checked = false,
        }
    }
    writer.finish()?;
    Ok(Applied { tensors: specs.len(), base_checked })
}

/// The hash of the base's tensor, where the delta has it.
fn needed(delta: &TensorFile, entry: &Entry) -> Result<Option<u64>, Error> {
    let Some(text) = delta.metadata().get(&format!("{BASE_KEY}{}", entry.name())) else { return Ok(None) };
    u64::from_str_radix(text, 16)
        .map(Some)
        .map_err(|_| Error::corrupt(0, format!("`{text}` is no hash of a base")))
}

/// Writes one tensor; returns the hash of its base.
fn apply_entry(base: &Entry, delta: &Entry, writer: &mut SafetensorsWriter) -> Result<u64, Error> {
    let inner = match delta.stored() {
        LOSSLESS => None,
        other => match other.strip_prefix("delta/") {
            Some(name) => Some(decoder(name, None)?),
            None => {
                let what = format!("tensor `{}` is coded with `{other}`, which is no delta", delta.name());
                return Err(Error::unsupported("delta", delta.offset(), what));
            }
        },
    };
    let plan = delta.plan();
    let width = delta.dtype().bytes();
    let mut stream = base.stream()?;
    let mut hash = Hash::of(base);
    let unpack = |index: usize| -> Result<Option<Change>, Error> {
        if index >= plan.len() {
            return Ok(None);
        }
        let bytes = delta.coded_slab(index)?;
        let range = plan.values(index);
        match &inner {
            None => Change::exact(&bytes, range.len() * width).map(Some),
            Some(codec) => Change::difference(codec.as_ref(), delta, bytes, range.len()).map(Some),
        }
    };
    let mut change = unpack(0)?;
    for index in 0..plan.len() {
        let mut slab = vec![0; plan.values(index).len() * width];
        stream.fill(&mut slab)?;
        hash.update(&slab);
        // The next chunk is decompressed while this one is scattered.
        let (scattered, next) = rayon::join(
            || change.as_ref().map_or(Ok(()), |change| change.scatter(&mut slab, delta.dtype())),
            || unpack(index + 1),
        );
        scattered?;
        writer.write(&slab)?;
        change = next?;
    }
    Ok(hash.0.finish())
}

/// The shape of so many values of a tensor: whole rows, or a part of one.
fn shape(like: &Entry, values: usize) -> Vec<usize> {
    let cols = like.matrix().1.min(values);
    vec![values / cols.max(1), cols]
}

fn difference(like: &Entry, old: &[u8], new: &[u8]) -> Result<Tensor, Error> {
    let count = new.len() / like.dtype().bytes();
    let (mut from, mut to) = (vec![0f64; count], vec![0f64; count]);
    like.dtype().to_f64(old, &mut from);
    like.dtype().to_f64(new, &mut to);
    let values: Vec<f64> = from.iter().zip(&to).map(|(from, to)| to - from).collect();
    let mut data = Vec::new();
    Dtype::F32.extend_from_f64(&values, &mut data);
    Tensor::new(like.name(), like.class(), Dtype::F32, shape(like, count), data)
}

/// A lossless slab: its kind, the length unpacked, and the smaller of two forms.
fn exact(old: &[u8], new: &[u8], width: usize) -> Result<Vec<u8>, Error> {
    let forms = [(SPARSE, sparse(old, new, width)), (XOR, xor(old, new, width))];
    let mut best: Option<Vec<u8>> = None;
    for (kind, raw) in forms {
        let mut slab = vec![kind];
        slab.extend((raw.len() as u32).to_le_bytes());
        slab.extend(crate::zstandard::compress(&raw, LEVEL).map_err(Error::io("compressing"))?);
        if best.as_ref().is_none_or(|best| slab.len() < best.len()) {
            best = Some(slab);
        }
    }
    Ok(best.unwrap_or_default())
}

/// Gaps between changed values as LEB128, then the new values, byte plane by
/// byte plane.
fn sparse(old: &[u8], new: &[u8], width: usize) -> Vec<u8> {
    let pairs = old.chunks_exact(width).zip(new.chunks_exact(width)).enumerate();
    let changed: Vec<usize> = pairs.filter(|(_, (a, b))| a != b).map(|(i, _)| i).collect();
    let mut raw = (changed.len() as u32).to_le_bytes().to_vec();
    let mut next = 0;
    for &index in &changed {
        let mut gap = index - next;
        while gap >= 0x80 {
            raw.push(gap as u8 | 0x80);
            gap >>= 7;
        }
        raw.push(gap as u8);
        next = index + 1;
    }
    for plane in 0..width {
        raw.extend(changed.iter().map(|&index| new[index * width + plane]));
    }
    raw
}

fn xor(old: &[u8], new: &[u8], width: usize) -> Vec<u8> {
    let mut raw = Vec::with_capacity(new.len());
    for plane in 0..width {
        raw.extend(old.iter().zip(new).skip(plane).step_by(width).map(|(a, b)| a ^ b));
    }
    raw
}

/// A slab of a delta, unpacked.
#[derive(Debug)]
enum Change {
    Sparse(Vec<u8>),
    Xor(Vec<u8>),
    Difference(Vec<f32>),
}

impl Change {
    fn exact(slab: &[u8], bytes: usize) -> Result<Self, Error> {
        let Some(&[kind, a, b, c, d]) = slab.first_chunk() else {
            return Err(Error::corrupt(0, "a delta slab without a header"));
        };
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        // A changed value takes at most its own bytes and five of index.
        if len > 4 + 6 * bytes {
            return Err(Error::corrupt(1, "a delta slab longer than its tensor allows"));
        }
        let raw = crate::zstandard::decompress(&slab[5..], len)
            .map_err(|error| Error::corrupt(5, error.to_string()))?;
        match kind {
            SPARSE => Ok(Self::Sparse(raw)),
            XOR if raw.len() == bytes => Ok(Self::Xor(raw)),
            _ => Err(Error::corrupt(0, "a delta slab of no known kind")),
        }
    }

    fn difference(
        codec: &dyn TensorCodec,
        like: &Entry,
        bytes: Vec<u8>,
        values: usize,
    ) -> Result<Self, Error> {
        let (name, shape) = (like.name().to_owned(), shape(like, values));
        let encoded = Encoded { name, class: like.class(), dtype: Dtype::F32, shape, bytes };
        Ok(Self::Difference(codec.decode(&encoded)?.to_f32()))
    }

    /// Turns base values into tuned ones, in place.
    fn scatter(&self, values: &mut [u8], dtype: Dtype) -> Result<(), Error> {
        let width = dtype.bytes();
        match self {
            Self::Xor(raw) => {
                let count = values.len() / width;
                for (place, &flip) in raw.iter().enumerate() {
                    values[place % count * width + place / count] ^= flip;
                }
                Ok(())
            }
            Self::Sparse(raw) => scatter_sparse(raw, values, width),
            Self::Difference(difference) => {
                let mut wide = vec![0f64; difference.len()];
                dtype.to_f64(values, &mut wide);
                let sums: Vec<f64> =
                    wide.iter().zip(difference).map(|(base, add)| base + f64::from(*add)).collect();
                let mut bytes = Vec::with_capacity(values.len());
                dtype.extend_from_f64(&sums, &mut bytes);
                values.copy_from_slice(&bytes);
                Ok(())
            }
        }
    }
}

fn scatter_sparse(raw: &[u8], values: &mut [u8], width: usize) -> Result<(), Error> {
    let cut = || Error::corrupt(5, "a sparse delta that ends too early or points outside");
    let count = raw.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize).ok_or_else(cut)?;
    let planes_at = raw.len().checked_sub(count.checked_mul(width).ok_or_else(cut)?).ok_or_else(cut)?;
    let mut gaps = raw.get(4..planes_at).ok_or_else(cut)?.iter();
    let mut next = 0usize;
    for change in 0..count {
        let (mut gap, mut shift) = (0usize, 0);
        loop {
            let &byte = gaps.next().filter(|_| shift < 35).ok_or_else(cut)?;
            gap |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
        }
        let index = next + gap;
        let value = values.get_mut(index * width..).and_then(|rest| rest.get_mut(..width)).ok_or_else(cut)?;
        for (plane, byte) in value.iter_mut().enumerate() {
            *byte = raw[planes_at + plane * count + change];
        }
        next = index + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exact_deltas_are_exact(
            old in prop::collection::vec(any::<u8>(), 8..400),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
            which in 0usize..10,
        ) {
            let dtype = Dtype::ALL[which];
            let old = &old[..old.len() / 8 * 8];
            let mut new = old.to_vec();
            changes.iter().for_each(|(index, byte)| new[index.index(old.len())] = *byte);
            let slab = exact(old, &new, dtype.bytes()).unwrap();
            let mut values = old.to_vec();
            Change::exact(&slab, old.len()).unwrap().scatter(&mut values, dtype).unwrap();
            prop_assert_eq!(&values, &new);
            let mut values = old.to_vec();
            scatter_sparse(&sparse(old, &new, dtype.bytes()), &mut values, dtype.bytes()).unwrap();
            prop_assert_eq!(&values, &new);
        }

        #[test]
        fn damaged_sparse_deltas_never_panic(raw in prop::collection::vec(any::<u8>(), 0..100)) {
            scatter_sparse(&raw, &mut [0; 64], 2).ok();
            Change::exact(&raw, 64).ok();
        }
    }
}
