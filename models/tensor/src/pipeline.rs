//! Whole files through a codec, slab by slab.
//!
//! Memory holds a few slabs for each thread, whatever the tensors' sizes; slabs are
//! coded in parallel and written in order, so the bytes do not depend on the
//! number of threads.

use std::io::{Seek, Write};
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::blocks::BlockPlan;
use crate::codec::{Basis, Encoded, MetricSums, Metrics, Target, TensorCodec, codec};
use crate::file::{Spec, TriWriter, ValueStream};
use crate::{Class, Entry, Error, Obstacle, Tensor, TensorFile};

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
    /// Why the tensor is kept to the bit although a loss was asked for.
    pub exact: Option<String>,
    /// What coding did to the values, measured on what decoding gives.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// A file that was encoded.
#[derive(Debug, Clone)]
pub struct EncodedFile {
    pub tensors: Vec<Summary>,
    /// The container's size.
    pub bytes: u64,
    /// Over the values of all tensors that are not carried as bytes.
    pub metrics: Metrics,
}

/// Why a tensor is kept to the bit although a loss was asked for.
#[derive(Debug, Clone, PartialEq)]
enum Exact {
    /// Too small to gain.
    Small,
    /// The caller asks for it.
    Asked,
    /// Lossy codecs have no place for this value.
    NonFinite { index: usize, value: f64 },
    /// A number format that is carried and not understood.
    Carried(String),
}

impl Exact {
    /// Whether others pay for its bits: those that nobody could code lossily
    /// are beside a budget, not within it.
    fn is_budgeted(&self) -> bool {
        matches!(self, Self::Small | Self::Asked)
    }
}

impl std::fmt::Display for Exact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Small => write!(f, "fewer than {SMALL_TENSOR} values"),
            Self::Asked => f.write_str("kept as it is"),
            Self::NonFinite { index, value } => write!(f, "value {index} is {value}"),
            Self::Carried(dtype) => write!(f, "{dtype}, carried as it is"),
        }
    }
}

/// What to do with a tensor that holds NaN or an infinity, where a loss is
/// asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNonFinite {
    /// Keep that tensor to the bit.
    KeepExact,
    Refuse,
}

/// The first value of a tensor that is NaN or infinite.
pub fn first_non_finite(entry: &Entry) -> Result<Option<(usize, f64)>, Error> {
    if !entry.dtype().is_float() {
        return Ok(None);
    }
    let plan = plan(entry);
    if rayon::current_num_threads() > 1 && plan.len() > 1 && entry.stream_at(0).is_some() {
        let of_slab = |index| match entry.stream_at(plan.values(index).start) {
            Some(mut stream) => non_finite_within(entry, plan.values(index), stream.as_mut()),
            None => Ok(None),
        };
        let found: Vec<_> = (0..plan.len()).into_par_iter().map(of_slab).collect::<Result<_, _>>()?;
        return Ok(found.into_iter().flatten().next());
    }
    non_finite_within(entry, 0..entry.len(), entry.stream()?.as_mut())
}

/// Values looked at together: they stay in the cache.
const SCANNED_VALUES: usize = 1 << 14;

/// The first value of a range that is NaN or infinite, out of a stream that begins there.
fn non_finite_within(
    entry: &Entry,
    range: std::ops::Range<usize>,
    stream: &mut (dyn ValueStream + '_),
) -> Result<Option<(usize, f64)>, Error> {
    let (dtype, width) = (entry.dtype(), entry.dtype().bytes());
    let mut bytes = crate::memory::zeroed(SCANNED_VALUES.min(range.len()) * width)?;
    let mut narrow = [0f32; 1024];
    for start in range.clone().step_by(SCANNED_VALUES) {
        let bytes = &mut bytes[..SCANNED_VALUES.min(range.end - start) * width];
        stream.fill(bytes)?;
        for (at, bytes) in bytes.chunks(1024 * width).enumerate() {
            // Formats that f32 holds have their infinities there: whether there is one at all is soon said.
            if dtype != crate::Dtype::F64 {
                let narrow = &mut narrow[..bytes.len() / width];
                dtype.to_f32(bytes, narrow);
                if !narrow.iter().fold(false, |any, value| any | !value.is_finite()) {
                    continue;
                }
            }
            let mut values = vec![0f64; bytes.len() / width];
            dtype.to_f64(bytes, &mut values);
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                return Ok(Some((start + 1024 * at + index, values[index])));
            }
        }
    }
    Ok(None)
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

/// Calls `work` with each slab of a tensor, one in memory at a time.
pub(crate) fn each_slab(
    entry: &Entry,
    mut work: impl FnMut(&Tensor) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stream = entry.stream()?;
    let plan = plan(entry);
    (0..plan.len()).try_for_each(|index| work(&slab(entry, &plan, index, stream.as_mut())?))
}

/// The next slab of a tensor.
fn slab(
    entry: &Entry,
    plan: &BlockPlan,
    index: usize,
    stream: &mut (dyn ValueStream + '_),
) -> Result<Tensor, Error> {
    let values = plan.values(index).len();
    let mut data = crate::memory::zeroed(values * entry.dtype().bytes())?;
    stream.fill(&mut data)?;
    let cols = entry.matrix().1.min(values);
    Tensor::new(entry.name(), entry.class(), entry.dtype(), vec![values / cols.max(1), cols], data)
}

/// How a tensor is to be coded.
struct Choice {
    codec: Box<dyn TensorCodec>,
    target: Target,
    exact: Option<Exact>,
}

impl Choice {
    fn new(
        entry: &Entry,
        (name, target): (String, Target),
        basis: Option<&Basis>,
        on_non_finite: OnNonFinite,
    ) -> Result<Self, Error> {
        let exact = match entry.carried() {
            Some(carried) => Some(Exact::Carried(carried.dtype.clone())),
            // Turning values by a basis would not bring them back to the bit.
            None if target == Target::Lossless => (name == EXACT_CODEC).then_some(Exact::Asked),
            None if entry.len() < SMALL_TENSOR => Some(Exact::Small),
            None => match first_non_finite(entry)? {
                Some((index, value)) if on_non_finite == OnNonFinite::Refuse => {
                    return Err(Error::NonFinite { name: entry.name().to_owned(), index, value });
                }
                found => found.map(|(index, value)| Exact::NonFinite { index, value }),
            },
        };
        let (codec, target) = match basis {
            _ if exact.is_some() => (codec(EXACT_CODEC)?, Target::Lossless),
            Some(basis) => (basis.codec(&name)?, target),
            None => (codec(&name)?, target),
        };
        Ok(Self { codec, target, exact })
    }

    /// The target, less what a budget in bits pays for beside the tensors.
    fn within_budget(&self, entry: &Entry, overhead_bits_per_value: f64) -> Result<Target, Error> {
        match self.target {
            Target::Bits(bits) if bits <= overhead_bits_per_value => Err(Error::Unreachable {
                name: entry.name().to_owned(),
                codec: self.codec.name(),
                target: self.target.to_string(),
                obstacle: Obstacle::Rate,
                reason: format!(
                    "the container's index and checksums alone take {overhead_bits_per_value:.2} bits per value"
                )
                .into(),
            }),
            Target::Bits(bits) => Ok(Target::Bits(bits - overhead_bits_per_value)),
            other => Ok(other),
        }
    }
}

/// What a calibration says of a weight.
#[derive(Debug, Clone)]
pub struct Calibrated {
    /// What is coded in its place, row by row.
    pub values: Vec<f32>,
    /// Second moments of the inputs that it is multiplied with, columns × columns.
    pub moments: std::sync::Arc<Vec<f32>>,
}

/// What is left to whoever encodes a file.
#[derive(Clone, Copy)]
pub struct Encoding<'a> {
    /// The codec and the target of each tensor.
    pub codec_for: &'a dyn Fn(&Entry) -> (String, Target),
    /// What values are turned by first.
    pub basis: Option<&'a Basis>,
    pub on_non_finite: OnNonFinite,
    /// Whether the error of what decodes is measured; where not,
    /// errors are NaN unless every bit is kept.
    pub measure: bool,
    /// What a calibration says of the tensor of a name, if anything.
    pub calibrated: &'a dyn Fn(&str) -> Option<&'a Calibrated>,
    /// Which tensors, by their position, go into the container; a budget in bits
    /// is that of all of them.
    pub takes: &'a dyn Fn(usize) -> bool,
    /// Hears of values done, and may refuse to go on.
    pub progress: &'a (dyn Fn(usize) -> Result<(), Error> + Sync),
}

impl Calibrated {
    /// What is coded in place of a slab that begins with value `first`.
    fn slab(&self, slab: &Tensor, first: usize) -> Result<Tensor, Error> {
        let Some(values) = self.values.get(first..first + slab.len()) else {
            let problem = format!("the calibration has {} values of {}", self.values.len(), slab.name());
            return Err(Error::Corrupt { offset: 0, problem });
        };
        let mut data = Vec::with_capacity(slab.data().len());
        slab.dtype().extend_from_f32(values, &mut data);
        Tensor::new(slab.name(), slab.class(), slab.dtype(), slab.shape().to_vec(), data)
    }
}

impl std::fmt::Debug for Encoding<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { on_non_finite, measure, .. } = self;
        write!(f, "Encoding {{ on_non_finite: {on_non_finite:?}, measure: {measure} }}")
    }
}

/// Encodes every tensor of a file into a `.tri` container. A target of bits
/// holds for the file as a whole, index and checksums included, but for the
/// basis, if values are turned by one, and for tensors that no loss can be
/// asked of; `progress` hears of values done.
pub fn encode_file(
    file: &TensorFile,
    codec_for: &dyn Fn(&Entry) -> (String, Target),
    basis: Option<&Basis>,
    on_non_finite: OnNonFinite,
    path: &Path,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<EncodedFile, Error> {
    let progress = |done| {
        progress(done);
        Ok(())
    };
    let encoding = Encoding {
        codec_for,
        basis,
        on_non_finite,
        measure: true,
        calibrated: &|_| None,
        takes: &|_| true,
        progress: &progress,
    };
    encode_to(file, &encoding, path)
}

/// As [`encode_file`], by an [`Encoding`].
pub fn encode_to(file: &TensorFile, encoding: &Encoding<'_>, path: &Path) -> Result<EncodedFile, Error> {
    let writer = TriWriter::create(path, file.metadata())?;
    let (mut encoded, writer) = encode_into(file, encoding, writer)?;
    encoded.bytes = writer.finish()?;
    Ok(encoded)
}

/// As [`encode_file`], into a container that the caller began with the file's
/// metadata and completes; its size is not known yet.
pub fn encode_into<W: Write + Seek>(
    file: &TensorFile,
    encoding: &Encoding<'_>,
    mut writer: TriWriter<W>,
) -> Result<(EncodedFile, TriWriter<W>), Error> {
    let choose = |entry: &Entry| {
        Choice::new(entry, (encoding.codec_for)(entry), encoding.basis, encoding.on_non_finite)
    };
    let chosen: Vec<Choice> = file.entries().iter().map(choose).collect::<Result<_, Error>>()?;
    let overhead_bits_per_value = overhead_bits_per_value(file, &chosen)?;
    let (mut tensors, mut all) = (Vec::new(), MetricSums::default());
    for (at, (entry, choice)) in file.entries().iter().zip(&chosen).enumerate() {
        if !(encoding.takes)(at) {
            continue;
        }
        let target = choice.within_budget(entry, overhead_bits_per_value)?;
        let (summary, sums) = encode_tensor(entry, choice, target, encoding, &mut writer)?;
        if entry.carried().is_none() {
            all.merge(&sums);
        }
        tensors.push(summary);
    }
    let measured = encoding.measure || tensors.iter().all(|tensor| !tensor.metrics.nmse.is_nan());
    let metrics = if measured { all.finish() } else { Metrics::from_nmse(f64::NAN) };
    Ok((EncodedFile { tensors, bytes: 0, metrics }, writer))
}

/// One tensor of a file, slab by slab.
fn encode_tensor<W: Write + Seek>(
    entry: &Entry,
    choice: &Choice,
    target: Target,
    encoding: &Encoding<'_>,
    writer: &mut TriWriter<W>,
) -> Result<(Summary, MetricSums), Error> {
    let Choice { codec, exact, .. } = choice;
    writer.begin(&spec(entry), &codec.name(), SLAB_VALUES)?;
    let (mut bytes, mut sums) = (0, MetricSums::default());
    let measure = encoding.measure;
    let known = (encoding.calibrated)(entry.name()).filter(|_| exact.is_none());
    let encode = |slab: &Tensor, first: usize| {
        let encoded = match known {
            Some(known) => codec.encode_weighted(&known.slab(slab, first)?, target, &known.moments)?,
            None if measure && target != Target::Lossless => return codec.encode_measured(slab, target),
            None => codec.encode(slab, target)?,
        };
        let sums = match target {
            Target::Lossless => {
                let mut sums = MetricSums::default();
                sums.add_tensors(slab, slab);
                sums
            }
            _ if measure => codec.measure(slab, &encoded)?,
            _ => MetricSums::default(),
        };
        Ok((encoded, sums))
    };
    let mut sink = |_: &Tensor, (encoded, own): (Encoded, MetricSums)| {
        bytes += encoded.bytes.len() as u64;
        sums.merge(&own);
        (encoding.progress)(encoded.values())?;
        writer.slab(&encoded.bytes)
    };
    let plan = plan(entry);
    if rayon::current_num_threads() > 1 && plan.len() > 1 && entry.stream_at(0).is_some() {
        by_slabs_in_turn(entry, &plan, &encode, &mut sink)?;
    } else {
        by_slabs(entry, &encode, &mut sink)?;
    }
    let measured = measure || target == Target::Lossless;
    let summary = Summary {
        tensor: entry.name().to_owned(),
        class: entry.class(),
        codec: codec.name(),
        values: entry.stated_values(),
        bytes,
        bits_per_value: 8.0 * bytes as f64 / entry.stated_values().max(1) as f64,
        exact: exact.as_ref().map(ToString::to_string),
        metrics: if measured { sums.finish() } else { Metrics::from_nmse(f64::NAN) },
    };
    Ok((summary, sums))
}

/// Copies the coded slabs of a tensor of a container as they are.
pub fn copy_coded<W: Write + Seek>(
    entry: &Entry,
    name: &str,
    writer: &mut TriWriter<W>,
) -> Result<(), Error> {
    let Some((slab_values, slabs)) = entry.slabs() else {
        let what = "reading coded slabs".into();
        return Err(Error::Unsupported { format: "tensor file", offset: 0, what });
    };
    writer.begin(&Spec { name: name.to_owned(), ..spec(entry) }, entry.stored(), slab_values)?;
    (0..slabs).try_for_each(|index| writer.slab(&entry.coded_slab(index)?))
}

/// Bits per value that tensors with a bit budget pay for what has none: the
/// index, the checksums, and tensors kept exact beyond their share.
fn overhead_bits_per_value(file: &TensorFile, chosen: &[Choice]) -> Result<f64, Error> {
    let described = file
        .entries()
        .iter()
        .zip(chosen)
        .map(|(entry, choice)| (spec(entry), choice.codec.name(), plan(entry).len()));
    let mut bits = 8.0 * TriWriter::overhead(file.metadata(), described) as f64;
    let mut budgeted = 0;
    let budget = mean_budget(file, chosen);
    for (entry, Choice { codec, target, exact }) in file.entries().iter().zip(chosen) {
        if matches!(target, Target::Bits(_)) {
            budgeted += entry.len();
        } else if budget.is_some() && exact.as_ref().is_some_and(Exact::is_budgeted) {
            let mut stored = 0;
            each_slab(entry, |slab| {
                stored += codec.encode(slab, Target::Lossless)?.bytes.len();
                Ok(())
            })?;
            bits += 8.0 * stored as f64 - budget.unwrap_or(0.0) * entry.len() as f64;
        }
    }
    Ok(bits / budgeted.max(1) as f64)
}

/// Bits per value of the tensors that have a rate, on average.
fn mean_budget(file: &TensorFile, chosen: &[Choice]) -> Option<f64> {
    let rates = file.entries().iter().zip(chosen).filter_map(|(entry, choice)| match choice.target {
        Target::Bits(bits) => Some((bits, entry.len() as f64)),
        _ => None,
    });
    let (first, _) = rates.clone().next()?;
    // From the first on, so that equal rates are their mean to the last bit.
    let (above, values) = rates
        .fold((0.0, 0.0), |(above, all), (bits, values)| (above + (bits - first) * values, all + values));
    Some(if values > 0.0 { first + above / values } else { first })
}

/// Encodes one tensor slab by slab; `sink` gets each slab and its coded form,
/// in order.
pub fn encode_entry(
    entry: &Entry,
    codec: &dyn TensorCodec,
    target: Target,
    sink: &mut dyn FnMut(&Tensor, &Encoded) -> Result<(), Error>,
) -> Result<(), Error> {
    by_slabs(entry, &|slab, _| codec.encode(slab, target), &mut |slab, encoded| sink(slab, &encoded))
}

/// Does `work` on the slabs of a tensor, told where each begins, several at
/// once; `sink` gets each slab and what came of it, in order.
fn by_slabs<T: Send>(
    entry: &Entry,
    work: &(dyn Fn(&Tensor, usize) -> Result<T, Error> + Sync),
    sink: &mut dyn FnMut(&Tensor, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stream = entry.stream()?;
    let plan = plan(entry);
    let mut next = 0;
    while next < plan.len() {
        let batch = next..(next + SLABS_PER_THREAD * rayon::current_num_threads().max(1)).min(plan.len());
        let mut slabs = Vec::with_capacity(batch.len());
        for index in batch.clone() {
            slabs.push(slab(entry, &plan, index, stream.as_mut())?);
        }
        let one = |(slab, index): (&Tensor, usize)| {
            let first = plan.values(index).start;
            work(slab, first).map_err(|error| error.shifted(first))
        };
        // Waking a thread takes longer than many a small tensor.
        let done: Result<Vec<T>, Error> = match slabs.as_slice() {
            [only] => one((only, batch.start)).map(|done| vec![done]),
            slabs => slabs.par_iter().zip(batch.clone()).map(one).collect(),
        };
        for (slab, done) in slabs.iter().zip(done?) {
            sink(slab, done)?;
        }
        next = batch.end;
    }
    Ok(())
}

/// As [`by_slabs`] where threads read for themselves: as many slabs are under way as memory may hold, the next
/// begins when one has gone to `sink`, and nobody waits for a batch to end.
fn by_slabs_in_turn<T: Send>(
    entry: &Entry,
    plan: &BlockPlan,
    work: &(dyn Fn(&Tensor, usize) -> Result<T, Error> + Sync),
    sink: &mut dyn FnMut(&Tensor, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let one = |index: usize| {
        let first = plan.values(index).start;
        let mut stream = entry.stream_at(first).ok_or(Error::Unsupported {
            format: "tensor file",
            offset: 0,
            what: "reading from the middle".into(),
        })?;
        let slab = slab(entry, plan, index, stream.as_mut())?;
        let done = work(&slab, first).map_err(|error| error.shifted(first))?;
        Ok((slab, done))
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    rayon::in_place_scope(|scope| {
        let begin = |index: usize| {
            let sender = sender.clone();
            scope.spawn(move |_| {
                // A panic is told, too, or whoever listens would wait for ever.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one(index)));
                // Nobody listens any more where an earlier slab failed.
                drop(sender.send((index, done)));
            });
        };
        let ahead = SLABS_PER_THREAD * rayon::current_num_threads();
        (0..ahead.min(plan.len())).for_each(begin);
        let mut early = std::collections::BTreeMap::new();
        for index in 0..plan.len() {
            let done = loop {
                if let Some(done) = early.remove(&index) {
                    break done;
                }
                if let Some((index, done)) = next_done(&receiver) {
                    early.insert(index, done);
                }
            };
            let (slab, done) = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sink(&slab, done)?;
            if index + ahead < plan.len() {
                begin(index + ahead);
            }
        }
        Ok(())
    })
}

/// The next message, if there is one by now. A thread of the pool works while it waits.
fn next_done<T>(receiver: &std::sync::mpsc::Receiver<T>) -> Option<T> {
    match rayon::yield_now() {
        None => receiver.recv().ok(),
        Some(rayon::Yield::Executed) => receiver.try_recv().ok(),
        Some(rayon::Yield::Idle) => receiver.recv_timeout(std::time::Duration::from_micros(200)).ok(),
    }
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
