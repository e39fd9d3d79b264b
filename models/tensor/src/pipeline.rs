//! Whole files through a codec, slab by slab.
//!
//! Memory holds a few slabs for each thread, whatever the tensors' sizes; slabs are
//! coded in parallel and written in order, so the bytes do not depend on the
//! number of threads.

mod ahead;
mod parted;
mod scan;
mod shared;

use std::io::{Seek, Write};
use std::path::Path;

pub use ahead::{CodedAhead, code_ahead};
pub use parted::join_coded;
pub use scan::first_non_finite;

use rayon::prelude::*;
use serde::Serialize;
use trinity_codec::line::in_turn;

use crate::blocks::BlockPlan;
pub use crate::blocks::SLAB_VALUES;
use crate::codec::{Basis, Encoded, Inputs, MetricSums, Metrics, Moments, Rate, TensorCodec, codec};
use crate::file::{Spec, TIED_KEY, TriWriter, ValueStream};
use crate::sums::Sums;
use crate::{Class, Entry, Error, LimitingFactor, Tensor, TensorFile};

/// Slabs read for each of several threads before any is coded: a search for a rate takes
/// longer on some, and the threads that are done find others to code.
const SLABS_PER_THREAD: usize = 2;
/// Smaller tensors are stored losslessly: a lossy codec's header would outweigh
/// what it saves.
pub const SMALL_TENSOR: usize = 256;
/// The codec of small tensors, and of what is kept exact.
pub const EXACT_CODEC: &str = "zstd";
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

impl Summary {
    /// Of so many values of a tensor that take so many bytes.
    pub(crate) fn of(
        entry: &Entry,
        codec: String,
        (values, bytes): (usize, u64),
        exact: Option<String>,
        metrics: Metrics,
    ) -> Self {
        let (tensor, class) = (entry.name().to_owned(), entry.class());
        let bits_per_value = 8.0 * bytes as f64 / values.max(1) as f64;
        Self { tensor, class, codec, values, bytes, bits_per_value, exact, metrics }
    }
}

/// A file that was encoded.
#[derive(Debug, Clone)]
pub struct EncodedFile {
    pub tensors: Vec<Summary>,
    /// The container's size.
    pub bytes: u64,
    /// Over the values of all tensors that were coded: what is kept to the bit
    /// would hide their error behind its energy. Over all where none was coded.
    pub metrics: Metrics,
}

/// What is to become of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Treatment {
    /// It goes through a codec.
    Coded {
        codec: String,
        target: Rate,
        /// Whether its rate is its own, beside the budget that the others share.
        apart: bool,
    },
    /// Every bit is kept.
    Exact {
        why: String,
        /// Whether the others' budget does not pay for it.
        apart: bool,
    },
    /// It holds what the tensor of that name holds, and refers to it.
    Tied { to: String },
}

impl From<(String, Rate)> for Treatment {
    fn from((codec, target): (String, Rate)) -> Self {
        if target == Rate::Lossless && codec == EXACT_CODEC {
            return Self::Exact { why: "kept as it is".into(), apart: false };
        }
        Self::Coded { codec, target, apart: false }
    }
}

/// Why a tensor is kept to the bit although a loss was asked for.
#[derive(Debug, Clone, PartialEq)]
enum Exact {
    /// Too small to gain.
    Small,
    /// The caller asks for it, and says why.
    Asked { why: String, apart: bool },
    /// Lossy codecs have no place for this value.
    NonFinite { index: usize, value: f64 },
    /// A number format that is carried and not understood.
    Carried(String),
}

impl Exact {
    /// Whether others pay for its bits: those that nobody could code lossily
    /// are beside a budget, not within it.
    fn is_budgeted(&self) -> bool {
        matches!(self, Self::Small | Self::Asked { apart: false, .. })
    }
}

impl std::fmt::Display for Exact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Small => write!(f, "fewer than {SMALL_TENSOR} values"),
            Self::Asked { why, .. } => f.write_str(why),
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

/// A tensor's description, as writers want it.
pub fn spec(entry: &Entry) -> Spec {
    Spec {
        name: entry.name().to_owned(),
        class: entry.class(),
        dtype: entry.dtype(),
        shape: entry.shape().to_vec(),
    }
}

/// Slabs that a tensor is coded in; one where it has no value.
pub fn slabs(entry: &Entry) -> usize {
    entry.plan().len().max(1)
}

/// Calls `work` with each slab of a tensor, one in memory at a time.
pub(crate) fn each_slab(
    entry: &Entry,
    mut work: impl FnMut(&Tensor) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stream = entry.stream()?;
    let plan = entry.plan();
    let mut buffer = Vec::new();
    for index in 0..plan.len() {
        let slab = slab(entry, &plan, index, stream.as_mut(), buffer)?;
        work(&slab)?;
        buffer = slab.into_data();
    }
    Ok(())
}

/// The next slab of a tensor, in a buffer that may have held another.
fn slab(
    entry: &Entry,
    plan: &BlockPlan,
    index: usize,
    stream: &mut (dyn ValueStream + '_),
    mut data: Vec<u8>,
) -> Result<Tensor, Error> {
    let bytes = plan.values(index).len() * entry.dtype().bytes();
    data.truncate(bytes);
    let more = bytes - data.len();
    crate::memory::grow(&mut data, more)?;
    stream.fill(&mut data)?;
    entry.as_slab(data)
}

/// How a tensor is to be coded.
struct Choice {
    codec: Box<dyn TensorCodec>,
    target: Rate,
    exact: Option<Exact>,
    /// Whether its rate is its own.
    apart: bool,
    /// The tensor that it refers to.
    tied: Option<String>,
    /// Sums over each slab's values, where a loss is asked for and they were taken.
    sums: Vec<Sums>,
}

impl Choice {
    fn new(entry: &Entry, encoding: &Encoding<'_>) -> Result<Self, Error> {
        let treatment = (encoding.treatment)(entry);
        if let Some(carried) = entry.carried().filter(|_| !matches!(treatment, Treatment::Tied { .. })) {
            return Self::exact(Exact::Carried(carried.dtype.clone()));
        }
        match treatment {
            Treatment::Exact { why, apart } => Self::exact(Exact::Asked { why, apart }),
            Treatment::Tied { to } => Ok(Self { tied: Some(to), ..Self::exact(Exact::Small)? }),
            Treatment::Coded { codec: name, target, apart } => {
                let sums = match target {
                    Rate::Lossless => Ok(Vec::new()),
                    _ if entry.len() < SMALL_TENSOR => Err(Exact::Small),
                    _ => finite(entry, encoding.on_non_finite)?,
                };
                let sums = match sums {
                    Ok(sums) => sums,
                    Err(exact) => return Self::exact(exact),
                };
                let codec = match encoding.basis {
                    // Turning values by a basis would not bring them back to the bit.
                    Some(basis) if target != Rate::Lossless || name != EXACT_CODEC => basis.codec(&name)?,
                    _ => codec(&name)?,
                };
                Ok(Self { codec, target, exact: None, apart, tied: None, sums })
            }
        }
    }

    fn exact(why: Exact) -> Result<Self, Error> {
        let (codec, target) = (codec(EXACT_CODEC)?, Rate::Lossless);
        Ok(Self { codec, target, exact: Some(why), apart: false, tied: None, sums: Vec::new() })
    }

    /// The target, less what a budget in bits pays for beside the tensors.
    fn within_budget(&self, entry: &Entry, overhead_bits_per_value: f64) -> Result<Rate, Error> {
        match self.target {
            Rate::Bits(bits) if !self.apart && bits <= overhead_bits_per_value => {
                let reason = format!(
                    "the container's index and checksums alone take {overhead_bits_per_value:.2} bits per value"
                );
                let codec = self.codec.name();
                Err(Error::unreachable(entry.name(), codec, self.target, LimitingFactor::Rate, reason))
            }
            Rate::Bits(bits) if !self.apart => Ok(Rate::Bits(bits - overhead_bits_per_value)),
            other => Ok(other),
        }
    }

    /// How the slabs of a tensor are coded.
    fn settled<'c, 'a: 'c>(
        &'c self,
        entry: &Entry,
        target: Rate,
        encoding: &Encoding<'a>,
    ) -> Result<Settled<'c>, Error> {
        let (plan, own) = (entry.plan(), self.codec.as_ref());
        // What one tensor is coded with by a rule of its own may take no calibration.
        let known = (encoding.calibrated)(entry.name());
        let known = known.filter(|_| self.exact.is_none() && own.takes_moments());
        let ahead = (encoding.ahead)(entry.name()).filter(|_| self.exact.is_none());
        // Choices that slabs share are the same whoever has which.
        let shared = match (known, ahead) {
            (None, None) => shared::settled(entry, &plan, own, target)?,
            _ => None,
        };
        Ok(Settled { plan, own, shared, target, known, ahead })
    }
}

/// What all slabs of a tensor are coded with, whoever codes which.
struct Settled<'a> {
    plan: BlockPlan,
    own: &'a dyn TensorCodec,
    /// The codec with choices that slabs share.
    shared: Option<Box<dyn TensorCodec>>,
    target: Rate,
    known: Option<&'a Calibrated>,
    ahead: Option<&'a [Vec<u8>]>,
}

impl Settled<'_> {
    fn codec(&self) -> &dyn TensorCodec {
        self.shared.as_deref().unwrap_or(self.own)
    }

    /// Codes a slab that begins with value `first`.
    fn encode(&self, slab: &Tensor, first: usize) -> Result<Encoded, Error> {
        match (self.known, self.ahead) {
            (_, Some(ahead)) => ahead::of_slab(ahead, &self.plan, slab, first),
            (Some(known), None) => {
                let own = known.slab(slab, first)?;
                self.codec().encode_weighted(&own, self.target, known.moments(slab, first))
            }
            (None, None) => self.codec().encode(slab, self.target),
        }
    }
}

/// Sums of a tensor's slabs, or why its values keep it from being coded with a loss.
fn finite(entry: &Entry, on_non_finite: OnNonFinite) -> Result<Result<Vec<Sums>, Exact>, Error> {
    match scan::sums_of_slabs(entry)? {
        Err((index, value)) if on_non_finite == OnNonFinite::Refuse => {
            Err(Error::NonFinite { name: entry.name().to_owned(), index, value })
        }
        found => Ok(found.map_err(|(index, value)| Exact::NonFinite { index, value })),
    }
}

/// What a calibration says of a weight.
#[derive(Debug, Clone)]
pub struct Calibrated {
    /// What is coded in its place, row by row; the weight itself where nothing is.
    pub values: Option<Vec<f32>>,
    /// Second moments of the inputs that it is multiplied with, inputs × inputs.
    pub moments: std::sync::Arc<Vec<f32>>,
    /// Whether its rows are those inputs, and not its columns.
    pub by_rows: bool,
}

/// What is left to whoever encodes a file.
#[derive(Clone, Copy)]
pub struct Encoding<'a> {
    /// What is to become of each tensor.
    pub treatment: &'a dyn Fn(&Entry) -> Treatment,
    /// What values are turned by first.
    pub basis: Option<&'a Basis>,
    pub on_non_finite: OnNonFinite,
    /// Whether the error of what decodes is measured; where not,
    /// errors are NaN unless every bit is kept.
    pub measure: bool,
    /// What a calibration says of the tensor of a name, if anything.
    pub calibrated: &'a dyn Fn(&str) -> Option<&'a Calibrated>,
    /// Slabs of the tensor of a name that [`code_ahead`] coded at its target, if it did.
    pub ahead: &'a dyn Fn(&str) -> Option<&'a [Vec<u8>]>,
    /// Which slabs, by the position of their tensor and their own in it, go into the
    /// container; a budget in bits is that of all of them.
    pub takes: &'a dyn Fn(usize, usize) -> bool,
    /// Bits per value that every tensor of the budget gives up for what is beside
    /// it, where somebody who saw the whole file has found them.
    pub overhead_bits_per_value: Option<f64>,
    /// Hears of values done, and may refuse to go on.
    pub progress: &'a (dyn Fn(usize) -> Result<(), Error> + Sync),
}

impl<'a> Encoding<'a> {
    /// All slabs of all tensors, measured, with nothing known of them ahead.
    pub fn new(
        treatment: &'a dyn Fn(&Entry) -> Treatment,
        progress: &'a (dyn Fn(usize) -> Result<(), Error> + Sync),
    ) -> Self {
        Self {
            treatment,
            basis: None,
            on_non_finite: OnNonFinite::Refuse,
            measure: true,
            calibrated: &|_| None,
            ahead: &|_| None,
            takes: &|_, _| true,
            overhead_bits_per_value: None,
            progress,
        }
    }
}

impl Calibrated {
    /// The moments of a slab's inputs; it begins with value `first`.
    fn moments(&self, slab: &Tensor, first: usize) -> Moments<'_> {
        let cols = slab.shape().last().copied().unwrap_or(1).max(1);
        let inputs = if self.by_rows { Inputs::Rows { first: first / cols } } else { Inputs::Columns };
        Moments { inputs, values: &self.moments }
    }

    /// What is coded in place of a slab that begins with value `first`.
    fn slab(&self, slab: &Tensor, first: usize) -> Result<Tensor, Error> {
        let Some(values) = &self.values else { return Ok(slab.clone()) };
        let Some(values) = values.get(first..first + slab.len()) else {
            let problem = format!("the calibration has {} values of {}", values.len(), slab.name());
            return Err(Error::corrupt(0, problem));
        };
        Tensor::of_f32(slab.name(), slab.class(), slab.dtype(), slab.shape().to_vec(), values)
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
    codec_for: &dyn Fn(&Entry) -> (String, Rate),
    basis: Option<&Basis>,
    on_non_finite: OnNonFinite,
    path: &Path,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<EncodedFile, Error> {
    let progress = |done| {
        progress(done);
        Ok(())
    };
    let treatment = |entry: &Entry| codec_for(entry).into();
    encode_to(file, &Encoding { basis, on_non_finite, ..Encoding::new(&treatment, &progress) }, path)
}

/// As [`encode_file`], by an [`Encoding`].
pub fn encode_to(file: &TensorFile, encoding: &Encoding<'_>, path: &Path) -> Result<EncodedFile, Error> {
    let writer = TriWriter::create(path, &file.texts()?)?;
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
    let chosen = choices(file, encoding)?;
    let overhead_bits_per_value = match encoding.overhead_bits_per_value {
        Some(known) => known,
        None => overhead_bits_per_value(file, &chosen)?,
    };
    let (mut tensors, mut coded, mut kept) = (Vec::new(), MetricSums::default(), MetricSums::default());
    for (at, (entry, choice)) in file.entries().iter().zip(&chosen).enumerate() {
        if let Some(to) = &choice.tied {
            // Only where the tensor that it refers to is.
            let place = file.entries().iter().position(|other| other.name() == to);
            if place.is_some_and(|place| (encoding.takes)(place, 0)) {
                writer.text(format!("{TIED_KEY}{}", entry.name()), to);
                tensors.push(tied(entry, to));
            }
            continue;
        }
        let own: Vec<usize> = (0..slabs(entry)).filter(|&slab| (encoding.takes)(at, slab)).collect();
        if own.is_empty() {
            continue;
        }
        let target = choice.within_budget(entry, overhead_bits_per_value)?;
        if own.len() < slabs(entry) {
            choice.encode_slabs((entry, &own), target, encoding, &mut writer)?;
            continue;
        }
        let (summary, sums) = encode_tensor(entry, choice, target, encoding, &mut writer)?;
        match choice.exact {
            None => coded.merge(&sums),
            Some(_) if entry.carried().is_none() => kept.merge(&sums),
            Some(_) => {}
        }
        tensors.push(summary);
    }
    let measured = encoding.measure || tensors.iter().all(|tensor| !tensor.metrics.nmse.is_nan());
    let of_coded = tensors.iter().any(|tensor| tensor.exact.is_none());
    let sums = if of_coded { coded } else { kept };
    let metrics = if measured { sums.finish() } else { Metrics::from_nmse(f64::NAN) };
    Ok((EncodedFile { tensors, bytes: 0, metrics }, writer))
}

fn choices(file: &TensorFile, encoding: &Encoding<'_>) -> Result<Vec<Choice>, Error> {
    file.entries().iter().map(|entry| Choice::new(entry, encoding)).collect()
}

/// Bits per value that the tensors of a budget give up for what is beside it:
/// what [`Encoding::overhead_bits_per_value`] wants where tensors are coded apart.
pub fn overhead_of(file: &TensorFile, encoding: &Encoding<'_>) -> Result<f64, Error> {
    overhead_bits_per_value(file, &choices(file, encoding)?)
}

/// What became of a tensor that refers to another.
fn tied(entry: &Entry, to: &str) -> Summary {
    Summary::of(entry, String::new(), (0, 0), Some(format!("tied to `{to}`")), Metrics::from_nmse(0.0))
}

/// One tensor of a file, slab by slab.
fn encode_tensor<W: Write + Seek>(
    entry: &Entry,
    choice: &Choice,
    target: Rate,
    encoding: &Encoding<'_>,
    writer: &mut TriWriter<W>,
) -> Result<(Summary, MetricSums), Error> {
    let Choice { codec, exact, .. } = choice;
    writer.begin(&spec(entry), &codec.name(), SLAB_VALUES)?;
    let (mut bytes, mut sums) = (0, MetricSums::default());
    let measure = encoding.measure;
    let settled = choice.settled(entry, target, encoding)?;
    let plan = &settled.plan;
    let encode = |slab: &Tensor, first: usize| {
        if let Some(&sums) = plan.beginning_with(first).and_then(|index| choice.sums.get(index)) {
            slab.know(sums);
        }
        if measure && target != Rate::Lossless && settled.known.is_none() && settled.ahead.is_none() {
            return settled.codec().encode_measured(slab, target);
        }
        let encoded = settled.encode(slab, first)?;
        let sums = match target {
            Rate::Lossless => MetricSums::between(slab, slab),
            _ if measure => settled.codec().measure(slab, &encoded)?,
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
    if rayon::current_num_threads() > 1 && plan.len() > 1 && entry.stream_at(0).is_some() {
        by_slabs_in_turn(entry, plan, &encode, &mut sink)?;
    } else {
        by_slabs(entry, plan, &encode, &mut sink)?;
    }
    let measured = measure || target == Rate::Lossless;
    let metrics = if measured { sums.finish() } else { Metrics::from_nmse(f64::NAN) };
    let exact = exact.as_ref().map(ToString::to_string);
    Ok((Summary::of(entry, codec.name(), (entry.stated_values(), bytes), exact, metrics), sums))
}

/// What became of the tensors of a file in a container that was made of it:
/// measured by decoding, where nobody did when it was made.
pub fn measure(file: &TensorFile, encoding: &Encoding<'_>, coded: &TensorFile) -> Result<EncodedFile, Error> {
    let (mut tensors, mut sums, mut kept) = (Vec::new(), MetricSums::default(), MetricSums::default());
    for (entry, choice) in file.entries().iter().zip(choices(file, encoding)?) {
        if let Some(to) = &choice.tied {
            tensors.push(tied(entry, to));
            continue;
        }
        let own = coded.entry(entry.name())?;
        let mut error = MetricSums::default();
        let mut decoded = own.stream()?;
        each_slab(entry, |slab| {
            let mut data = crate::memory::zeroed(slab.data().len())?;
            decoded.fill(&mut data)?;
            let shape = slab.shape().to_vec();
            error.add_tensors(slab, &Tensor::new(slab.name(), slab.class(), slab.dtype(), shape, data)?);
            (encoding.progress)(slab.len())
        })?;
        match choice.exact {
            None => sums.merge(&error),
            Some(_) if entry.carried().is_none() => kept.merge(&error),
            Some(_) => {}
        }
        let (_, slabs) = own.slabs().unwrap_or_default();
        let sizes = (0..slabs).map(|index| own.coded_slab(index).map(|slab| slab.len() as u64));
        let bytes = sizes.sum::<Result<u64, Error>>()?;
        let exact = choice.exact.as_ref().map(ToString::to_string);
        let codec = own.stored().to_owned();
        tensors.push(Summary::of(entry, codec, (entry.len(), bytes), exact, error.finish()));
    }
    let of_coded = tensors.iter().any(|tensor| tensor.exact.is_none());
    let metrics = if of_coded { sums.finish() } else { kept.finish() };
    Ok(EncodedFile { tensors, bytes: 0, metrics })
}

/// Copies the coded slabs of a tensor of a container as they are.
pub fn copy_coded<W: Write + Seek>(
    entry: &Entry,
    name: &str,
    writer: &mut TriWriter<W>,
) -> Result<(), Error> {
    let Some((slab_values, slabs)) = entry.slabs() else {
        return Err(Error::unsupported("tensor file", 0, "reading coded slabs"));
    };
    writer.begin(&Spec { name: name.to_owned(), ..spec(entry) }, entry.stored(), slab_values)?;
    (0..slabs).try_for_each(|index| writer.slab(&entry.coded_slab(index)?))
}

/// Bits per value that tensors with a bit budget pay for what has none: the
/// index, the checksums, and tensors kept exact beyond their share.
fn overhead_bits_per_value(file: &TensorFile, chosen: &[Choice]) -> Result<f64, Error> {
    let rated = file.entries().iter().zip(chosen);
    let (mut texts, mut described) = (file.texts()?, Vec::new());
    for (entry, choice) in rated.clone() {
        match &choice.tied {
            Some(to) => drop(texts.insert(format!("{TIED_KEY}{}", entry.name()), to.clone())),
            None => described.push((spec(entry), choice.codec.name(), entry.plan().len())),
        }
    }
    let mut bits = 8.0 * TriWriter::overhead(&texts, described.into_iter()) as f64;
    let mut budgeted = 0;
    let budget = mean_budget(file, chosen);
    for (entry, Choice { codec, target, exact, apart, tied, .. }) in rated {
        if tied.is_some() || *apart {
            continue;
        }
        if matches!(target, Rate::Bits(_)) {
            budgeted += entry.len();
        } else if budget.is_some() && exact.as_ref().is_some_and(Exact::is_budgeted) {
            let mut stored = 0;
            each_slab(entry, |slab| {
                stored += codec.encode(slab, Rate::Lossless)?.bytes.len();
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
        Rate::Bits(bits) if !choice.apart => Some((bits, entry.len() as f64)),
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
    target: Rate,
    sink: &mut dyn FnMut(&Tensor, &Encoded) -> Result<(), Error>,
) -> Result<(), Error> {
    let plan = entry.plan();
    let settled = shared::settled(entry, &plan, codec, target)?;
    let codec = settled.as_deref().unwrap_or(codec);
    by_slabs(entry, &plan, &|slab, _| codec.encode(slab, target), &mut |slab, encoded| sink(slab, &encoded))
}

/// Does `work` on the slabs of a tensor, told where each begins, several at once;
/// `sink` gets each slab and what came of it, in order.
fn by_slabs<T: Send>(
    entry: &Entry,
    plan: &BlockPlan,
    work: &(dyn Fn(&Tensor, usize) -> Result<T, Error> + Sync),
    sink: &mut dyn FnMut(&Tensor, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut stream = entry.stream()?;
    let mut next = 0;
    let mut buffers = Vec::new();
    let together = match rayon::current_num_threads() {
        // One slab at a time leaves the most room in caches.
        0 | 1 => 1,
        threads => SLABS_PER_THREAD * threads,
    };
    while next < plan.len() {
        let batch = next..(next + together).min(plan.len());
        let mut slabs = Vec::with_capacity(batch.len());
        for index in batch.clone() {
            slabs.push(slab(entry, plan, index, stream.as_mut(), buffers.pop().unwrap_or_default())?);
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
        buffers.extend(slabs.into_iter().map(Tensor::into_data));
        next = batch.end;
    }
    Ok(())
}

/// As [`by_slabs`], where threads read for themselves: as many slabs are under way as memory may hold, the next
/// begins when one has gone to `sink`, and nobody waits for a batch to end.
fn by_slabs_in_turn<T: Send>(
    entry: &Entry,
    plan: &BlockPlan,
    work: &(dyn Fn(&Tensor, usize) -> Result<T, Error> + Sync),
    sink: &mut dyn FnMut(&Tensor, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let one = |index: usize, buffer: Vec<u8>| {
        let first = plan.values(index).start;
        let from_middle = || Error::unsupported("tensor file", 0, "reading from the middle");
        let mut stream = entry.stream_at(first).ok_or_else(from_middle)?;
        let slab = slab(entry, plan, index, stream.as_mut(), buffer)?;
        // The last slabs are shared out, so that all threads end at once.
        let is_last = plan.len() - index <= rayon::current_num_threads();
        let work = || work(&slab, first).map_err(|error| error.shifted(first));
        let done = if is_last { work()? } else { in_turn(work)? };
        Ok((slab, done))
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    rayon::in_place_scope(|scope| {
        let begin = |index: usize, buffer: Vec<u8>| {
            let sender = sender.clone();
            scope.spawn(move |_| {
                // A panic is told, too, or whoever listens would wait for ever.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| one(index, buffer)));
                // Nobody listens any more where an earlier slab failed.
                drop(sender.send((index, done)));
            });
        };
        let ahead = SLABS_PER_THREAD * rayon::current_num_threads();
        (0..plan.len()).take(ahead).for_each(|index| begin(index, Vec::new()));
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
                begin(index + ahead, slab.into_data());
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
pub struct EvaluatedOutcome {
    pub bits_per_value: f64,
    #[serde(flatten)]
    pub metrics: Metrics,
    pub encode_mb_s: f64,
    pub decode_mb_s: f64,
}

/// Encodes and decodes a tensor and measures both. Speeds are megabytes of the
/// tensor's own format per second of wall clock, rate control included.
pub fn evaluate(entry: &Entry, codec: &dyn TensorCodec, target: Rate) -> Result<EvaluatedOutcome, Error> {
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
    Ok(EvaluatedOutcome {
        bits_per_value: 8.0 * bytes as f64 / entry.len().max(1) as f64,
        metrics: sums.finish(),
        encode_mb_s: megabytes / encode_s.max(1e-9),
        decode_mb_s: megabytes / decode_s.max(1e-9),
    })
}
