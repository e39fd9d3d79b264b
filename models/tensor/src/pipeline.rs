//! Whole files through a codec, slab by slab.
//!
//! Memory holds a few slabs for each thread, whatever the tensors' sizes; slabs are
//! coded in parallel and written in order, so the bytes do not depend on the
//! number of threads.

use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::blocks::BlockPlan;
use crate::codec::{Basis, Encoded, MetricSums, Metrics, Target, TensorCodec, codec};
use crate::file::{Spec, TriWriter};
use crate::{Class, Entry, Error, Tensor, TensorFile};

/// Values in a slab: enough to learn statistics from, small beside memory.
pub const SLAB_VALUES: usize = 1 << 21;
/// Slabs read for each thread before any is coded: a search for a rate takes
/// longer on some, and the threads that are done find others to code.
const SLABS_PER_THREAD: usize = 2;
/// Smaller tensors are stored losslessly: a lossy codec's header would outweigh
/// what it saves.
pub const SMALL_TENSOR: usize = 256;
/// The codec of small tensors, and of what is kept exact.
pub const EXACT_CODEC: &str = "zstd";
/// A vector longer than this is data rather than a parameter of its own, such
/// as a bias over a large vocabulary.
const LONG_VECTOR: usize = 1 << 19;

/// Whether a tensor is a norm, a bias, another vector, or a table of indices:
/// few values that a model feels each of, which lossy coding leaves alone
/// unless told otherwise.
pub fn is_precious(entry: &Entry) -> bool {
    if !matches!(entry.class(), Class::Weight | Class::Other) {
        return false;
    }
    let vector = entry.shape().iter().filter(|&&dim| dim > 1).count() <= 1;
    let name = entry.name().to_ascii_lowercase();
    let last = name.strip_suffix(".weight").unwrap_or(&name);
    let norm = last.ends_with("norm") || last.contains("layernorm") || last.contains("layer_norm");
    let named = norm || name.ends_with("bias");
    let short = entry.len() <= LONG_VECTOR;
    entry.dtype() == crate::Dtype::I64 || short && (vector || named && entry.shape().len() <= 2)
}

/// What became of one tensor.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub tensor: String,
    pub class: Class,
    pub codec: String,
    pub values: usize,
    pub bytes: u64,
    pub bits_per_value: f64,
}

/// A tensor's description, as writers want it.
pub fn spec(entry: &Entry) -> Spec {
    Spec {
        name: entry.name().to_owned(),
        class: entry.class(),
        dtype: entry.dtype(),
        shape: entry.shape().to_vec(),
    }
}

fn plan(entry: &Entry) -> BlockPlan {
    let (rows, cols) = entry.matrix();
    BlockPlan::new(rows, cols, SLAB_VALUES)
}

/// How a tensor is to be coded.
type Choice = (Box<dyn TensorCodec>, Target);

/// Encodes every tensor of a file into a `.tri` container. A target of bits
/// holds for the file as a whole, index and checksums included, but for the
/// basis, if values are turned by one; `progress` hears of values done.
pub fn encode_file(
    file: &TensorFile,
    codec_for: &dyn Fn(&Entry) -> (String, Target),
    basis: Option<&Basis>,
    path: &Path,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<(Vec<Summary>, u64), Error> {
    let choose = |entry: &Entry| {
        let (name, target) = codec_for(entry);
        let small = entry.len() < SMALL_TENSOR && target != Target::Lossless;
        // Turning values by a basis would not bring them back to the bit.
        let exact = name == EXACT_CODEC && target == Target::Lossless;
        Ok(match basis {
            _ if small || exact => (codec(EXACT_CODEC)?, Target::Lossless),
            Some(basis) => (basis.codec(&name)?, target),
            None => (codec(&name)?, target),
        })
    };
    let chosen: Vec<Choice> = file.entries().iter().map(choose).collect::<Result<_, Error>>()?;
    let overhead_bits_per_value = overhead_bits_per_value(file, &chosen)?;
    let mut writer = TriWriter::create(path, file.metadata())?;
    let mut summaries = Vec::new();
    for (entry, (codec, target)) in file.entries().iter().zip(&chosen) {
        let target = match *target {
            Target::Bits(bits) if bits <= overhead_bits_per_value => {
                return Err(Error::Unreachable {
                    name: entry.name().to_owned(),
                    codec: codec.name(),
                    target: target.to_string(),
                    reason: format!(
                        "the container's index and checksums alone take {overhead_bits_per_value:.2} bits per value"
                    ),
                });
            }
            Target::Bits(bits) => Target::Bits(bits - overhead_bits_per_value),
            other => other,
        };
        writer.begin(&spec(entry), &codec.name(), SLAB_VALUES)?;
        let mut bytes = 0;
        encode_entry(entry, codec.as_ref(), target, &mut |_, encoded| {
            bytes += encoded.bytes.len() as u64;
            progress(encoded.values());
            writer.slab(&encoded.bytes)
        })?;
        summaries.push(Summary {
            tensor: entry.name().to_owned(),
            class: entry.class(),
            codec: codec.name(),
            values: entry.len(),
            bytes,
            bits_per_value: 8.0 * bytes as f64 / entry.len().max(1) as f64,
        });
    }
    let size = writer.finish()?;
    Ok((summaries, size))
}

/// Bits per value that tensors with a bit budget pay for what has none: the
/// index, the checksums, and tensors kept exact beyond their share.
fn overhead_bits_per_value(file: &TensorFile, chosen: &[Choice]) -> Result<f64, Error> {
    let described = file
        .entries()
        .iter()
        .zip(chosen)
        .map(|(entry, (codec, _))| (spec(entry), codec.name(), plan(entry).len()));
    let mut bits = 8.0 * TriWriter::overhead(file.metadata(), described) as f64;
    let mut budgeted = 0;
    let budget = chosen
        .iter()
        .find_map(|(_, target)| if let Target::Bits(bits) = target { Some(*bits) } else { None });
    for (entry, (codec, target)) in file.entries().iter().zip(chosen) {
        if matches!(target, Target::Bits(_)) {
            budgeted += entry.len();
        } else if *target == Target::Lossless && budget.is_some() {
            let stored = codec.encode(&entry.read()?, Target::Lossless)?.bytes.len();
            bits += 8.0 * stored as f64 - budget.unwrap_or(0.0) * entry.len() as f64;
        }
    }
    Ok(bits / budgeted.max(1) as f64)
}

/// Encodes one tensor slab by slab; `sink` gets each slab and its coded form,
/// in order.
pub fn encode_entry(
    entry: &Entry,
    codec: &dyn TensorCodec,
    target: Target,
    sink: &mut dyn FnMut(&Tensor, &Encoded) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stream = entry.stream()?;
    let plan = plan(entry);
    let cols = entry.matrix().1;
    let mut next = 0;
    while next < plan.len() {
        let batch = next..(next + SLABS_PER_THREAD * rayon::current_num_threads().max(1)).min(plan.len());
        let mut slabs = Vec::with_capacity(batch.len());
        for index in batch.clone() {
            let range = plan.values(index);
            let mut data = vec![0; range.len() * entry.dtype().bytes()];
            stream.fill(&mut data)?;
            let cols = cols.min(range.len());
            slabs.push(Tensor::new(
                entry.name(),
                entry.class(),
                entry.dtype(),
                vec![range.len() / cols.max(1), cols],
                data,
            )?);
        }
        let coded: Result<Vec<Encoded>, Error> = slabs
            .par_iter()
            .zip(batch.clone())
            .map(|(slab, index)| {
                codec.encode(slab, target).map_err(|error| error.shifted(plan.values(index).start))
            })
            .collect();
        let coded = coded?;
        for (slab, encoded) in slabs.iter().zip(&coded) {
            sink(slab, encoded)?;
        }
        next = batch.end;
    }
    Ok(())
}

/// What a codec does to one tensor.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Outcome {
    pub bits_per_value: f64,
    #[serde(flatten)]
    pub metrics: Metrics,
    pub encode_mb_s: f64,
    pub decode_mb_s: f64,
}

/// Encodes and decodes a tensor and measures both. Speeds are megabytes of the
/// tensor's own format per second of wall clock, rate control included.
pub fn evaluate(entry: &Entry, codec: &dyn TensorCodec, target: Target) -> Result<Outcome, Error> {
    let mut bytes = 0usize;
    let mut sums = MetricSums::default();
    let (mut total_s, mut decode_s) = (0.0, 0.0);
    let start = std::time::Instant::now();
    encode_entry(entry, codec, target, &mut |slab, encoded| {
        let start = std::time::Instant::now();
        let decoded = codec.decode(encoded)?;
        decode_s += start.elapsed().as_secs_f64();
        sums.add_tensors(slab, &decoded);
        total_s += start.elapsed().as_secs_f64();
        bytes += encoded.bytes.len();
        Ok(())
    })?;
    let encode_s = start.elapsed().as_secs_f64() - total_s;
    let megabytes = (entry.len() * entry.dtype().bytes()) as f64 / 1e6;
    Ok(Outcome {
        bits_per_value: 8.0 * bytes as f64 / entry.len().max(1) as f64,
        metrics: sums.finish(),
        encode_mb_s: megabytes / encode_s.max(1e-9),
        decode_mb_s: megabytes / decode_s.max(1e-9),
    })
}
