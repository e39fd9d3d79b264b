//! The line-rate codec as a tensor codec: `trinity-lite`.
//!
//! Finds a step for the target, and says what its stages did. Where a uniform
//! quantizer with an arithmetic coder does as well (small tensors, kernels of a
//! few values), its bytes are stored instead, so that no tensor takes more than
//! with `uniform+ac`; a tag in front says whose they are ([`tag`]). Whether it may do as well is estimated on
//! strips of a large tensor. Also reads what 0.1.0 stored under the
//! name, streams of the Trinity codec.

use std::sync::Arc;

use rayon::prelude::*;
use trinity_codec::Basis;
use trinity_codec::line::{
    CodedTile, Cpu, Device, Effort, Family, Fixed, Options, Plan, Settings, Stream, Transform, Values,
    encode_observed, encode_on, planned,
};
use trinity_numeric::simd::{Kernel, Width, with_width};

use super::contract::{in_words, missed};
use super::device::{DECODED, ENCODED, count, device};
use super::lossy::{
    Decoded, HEADER, behind_header, decoded, denormalize, denormalized, differences, differences_of,
    measured_as, normalize, normalized_in_place,
};
use super::rate::within_after_rounding;
use super::tag::{self, Kind, Slab};
use super::trinity::{Trinity, folded};
use super::uniform::{Uniform, estimated_bits, step_for};
use super::{Encoded, Lossy, MetricSums, Rate, StageCost, TensorCodec};
use crate::{Dtype, Error, LimitingFactor, Tensor, memory};

/// The line-rate codec at one effort.
#[derive(Debug)]
pub(crate) struct Line {
    name: String,
    options: Options,
    /// Bytes that no tile may exceed.
    tile_budget: Option<usize>,
    /// For streams of 0.1.0 that name one.
    basis: Option<Arc<Basis>>,
}

/// Names, and what they may choose from.
const NAMES: [(&str, Effort, u32); 4] = [
    ("trinity-lite", Effort::Best, 3),
    ("line-fast", Effort::Fast, 3),
    ("line-uniform", Effort::Fast, 0),
    (OTHER_NAME, Effort::Best, 3),
];
/// What an encoder of models/silicon/rtl can do, by the states of its trellis, its transform and
/// whether it predicts from the row above: 32 lanes, tiles that fit, analysis in integers. Beside the
/// figures of its netlists. The last is how pictures are coded, a plane of samples as a matrix.
const GATES: [(&str, u32, Family, bool); 6] = [
    ("line-rtl", 3, Family::None, false),
    ("line-rtl-4", 2, Family::None, false),
    ("line-rtl-1", 0, Family::None, false),
    ("line-rtl-hadamard", 3, Family::Hadamard, false),
    ("line-rtl-dct", 3, Family::Dct, false),
    ("line-rtl-picture", 0, Family::Dct, true),
];
/// `trinity-lite` by its stream's name.
const OTHER_NAME: &str = "line";
/// Tensors of at most so many values are coded both ways and the better is kept.
const SMALL: usize = 1 << 16;
/// Larger ones where a uniform quantizer with an arithmetic coder is estimated to take at most this
/// much more for the same error: the estimate errs by less ([`estimated_bits`]).
const CLOSE: f64 = 0.01;
/// Without trellis, where it is estimated to take so many bits per value less: lanes and tiles that are
/// coded side by side cost up to that, which is what `line-uniform` is asked for.
const MARGIN: f64 = 0.05;
/// Values of the strips that are estimated, about, at least, and their least share of all.
const ESTIMATED: usize = 1 << 17;
const ESTIMATED_SHARE: usize = 8;

impl Line {
    /// One name for each.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, ..)| *name).filter(|&name| name != OTHER_NAME)
    }

    /// The codec of that name, or of a name with a byte budget for each tile behind
    /// it: `trinity-lite:4096`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let (plain, tile_budget) = match name.split_once(':') {
            Some((plain, budget)) => (plain, Some(budget.parse().ok().filter(|&budget| budget > 0)?)),
            None => (name, None),
        };
        let gates = GATES.iter().find(|(own, ..)| *own == plain);
        let (effort, log2_states, fixed) = match gates {
            Some(&(_, log2_states, family, predicts)) => {
                let (transform, predicts) = (Some(family), Some(predicts));
                let fixed = Fixed { transform, predicts, gates: true, ..Fixed::default() };
                (Effort::Best, log2_states, fixed)
            }
            None => {
                let &(_, effort, log2_states) = NAMES.iter().find(|(own, ..)| *own == plain)?;
                (effort, log2_states, Fixed::default())
            }
        };
        let budgeted = tile_budget.is_some();
        let options = Options { effort, log2_states, budgeted, fixed, ..Options::default() };
        Some(Self { name: name.to_owned(), options, tile_budget, basis: None })
    }

    /// The same with a basis for streams of 0.1.0.
    pub(crate) fn with_basis(self, basis: Arc<Basis>) -> Self {
        Self { basis: Some(basis), ..self }
    }

    /// The stream of a matrix, as it is folded, and where the encoder is to be watched what it did to every tile.
    fn attempt(
        &self,
        tensor: &Tensor,
        matrix: &Normalized<'_>,
        target: Rate,
        watch: Option<&Watch>,
    ) -> Result<Observed, Error> {
        use trinity_codec::line::Error as LineError;
        let shape = folded(matrix.rows, matrix.cols);
        let settings = Settings { tile_budget: self.tile_budget, ..Settings::default() };
        let (values, options) = (matrix.values, &self.options);
        let coded = match watch {
            Some(watch) => {
                let observe = |tile: &CodedTile<'_>| watch.see(tile);
                encode_observed(values, shape, target, options, &settings, &observe)
                    .map(|(stream, tiles)| (stream, Some(tiles)))
            }
            None => encode_on(device(), &values.numbers(), shape, target, options, &settings)
                .map(|stream| (stream, None)),
        };
        let (stream, tiles) = coded.map_err(|error| {
            let factor = match (&error, target) {
                (LineError::Device { .. }, _) => return damaged(error),
                (LineError::Unreachable { .. }, Rate::Bits(_)) => LimitingFactor::Rate,
                (LineError::Unreachable { .. }, Rate::Nmse(_)) => LimitingFactor::Error,
                _ => LimitingFactor::Shape,
            };
            Error::unreachable(tensor.name(), self.name(), in_words(target), factor, error.to_string())
        })?;
        let bytes = [&tag::tagged(tag::LINE, matrix.exponent)[..], &stream].concat();
        Ok((Encoded::like(tensor, bytes), tiles))
    }

    /// This codec's own stream.
    fn encode_line(
        &self,
        tensor: &Tensor,
        normalized: &Normalized<'_>,
        target: Rate,
        measured: bool,
    ) -> Result<Observed, Error> {
        match target {
            Rate::Bits(bits) => {
                let asked = behind_header(bits, tensor);
                let watch =
                    Watch { dtype: tensor.dtype(), exponent: normalized.exponent, values: tensor.len() };
                let watch = Some(&watch).filter(|_| measured && is_watched(tensor));
                let (encoded, tiles) = self.attempt(tensor, normalized, asked, watch)?;
                Ok((encoded.within(target, self.name(), "it needs at least")?, tiles))
            }
            Rate::Nmse(goal) => within_after_rounding(self, tensor, goal, |asked| {
                Ok(self.attempt(tensor, normalized, Rate::Nmse(asked), None)?.0)
            })
            .map(|encoded| (encoded, None)),
            Rate::Lossless => {
                Err(self.refused(tensor, target, "values are normalized first; `zstd` is lossless"))
            }
            _ => Err(self.refused(tensor, target, "it has no quantization parameter")),
        }
    }

    fn error(&self, tensor: &Tensor, encoded: &Encoded) -> Result<f64, Error> {
        Ok(self.measure(tensor, encoded)?.finish().nmse)
    }

    /// Whether a uniform quantizer may do as well as the stream that was found: on strips of it, at their own error.
    /// What the encoder was seen to do to tiles is not decoded again.
    fn may_be_plain(
        &self,
        matrix: &Normalized<'_>,
        ours: &Encoded,
        tiles: Option<&[TileError]>,
    ) -> Result<bool, Error> {
        if matrix.values.len() <= SMALL {
            return Ok(true);
        }
        let stream = Stream::open(&ours.bytes[HEADER..]).map_err(damaged)?;
        let strips = stream.strips();
        let (mut places, mut squared, mut bytes) = (Vec::new(), 0.0, 0);
        for strip in estimated(strips, matrix.values.len()) {
            for tile in stream.strip_tiles(strip) {
                // Tile by tile either way, so that the sum has the same digits.
                squared += match tiles {
                    Some(tiles) => tiles[tile].squared,
                    None => {
                        let original = stream.originals(tile, matrix.values).map_err(damaged)?;
                        squared_error(&original, &stream.tile(tile).map_err(damaged)?)
                    }
                };
            }
            places.push(stream.strip_place(strip));
            bytes += stream.strip_bytes(strip);
        }
        let values: usize = places.iter().map(|place| place.len()).sum();
        let mut originals = memory::kept();
        originals.resize(values, 0.0);
        let (mut runs, mut rest) = (Vec::new(), &mut originals[..]);
        for place in places {
            let (run, others) = std::mem::take(&mut rest).split_at_mut(place.len());
            matrix.values.copy_to(place.start, run);
            runs.push(&*run);
            rest = others;
        }
        let header = ours.bytes.len() - stream.tile_bytes();
        let bits = 8.0 * (bytes as f64 / values as f64 + header as f64 / matrix.values.len() as f64);
        let plain = estimated_bits(&runs, step_for(&runs, squared));
        drop(runs);
        memory::keep(originals);
        Ok(if self.options.log2_states > 0 { plain <= (1.0 + CLOSE) * bits } else { plain < bits - MARGIN })
    }

    fn refused(&self, tensor: &Tensor, target: Rate, reason: &str) -> Error {
        missed(target, tensor, self.name(), reason)
    }
}

impl TensorCodec for Line {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let (encoded, _) = self.encode_best(tensor, target, false)?;
        count(&ENCODED, is_ours(&encoded));
        Ok(encoded)
    }

    fn encode_measured(&self, tensor: &Tensor, target: Rate) -> Result<(Encoded, MetricSums), Error> {
        let (encoded, sums) = self.encode_best(tensor, target, true)?;
        count(&ENCODED, is_ours(&encoded));
        let sums = sums.map_or_else(|| self.measure(tensor, &encoded), Ok)?;
        Ok((encoded, sums))
    }

    fn shares_choices(&self) -> bool {
        let Fixed { transform, transposed, .. } = self.options.fixed;
        self.options.effort == Effort::Best && (transform.is_none() || transposed.is_none())
    }

    fn chosen_on(&self, sample: &Tensor, target: Rate) -> Option<Box<dyn TensorCodec>> {
        let (Rate::Bits(_) | Rate::Nmse(_)) = target else { return None };
        // What is wrong with a value is said of the slab that has it.
        let (matrix, _) = normalize(sample).ok()??;
        let shape = folded(matrix.rows, matrix.cols);
        let plan = planned(&matrix.values, shape, target, &self.options);
        memory::keep(matrix.values);
        let options = Options { fixed: self.options.fixed.like(&plan?), ..self.options };
        Some(Box::new(Self { name: self.name.clone(), options, basis: self.basis.clone(), ..*self }))
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        let decoded = self.decode_any(encoded)?;
        count(&DECODED, is_ours(encoded));
        Ok(decoded)
    }

    fn decode_into(&self, encoded: &Encoded, out: &mut [u8]) -> Result<(), Error> {
        encoded.fits(out)?;
        if is_ours(encoded) == Some(true) && device().kind() == Cpu.kind() {
            decoded_by_strips(encoded, out)?;
            count(&DECODED, Some(true));
        } else {
            out.copy_from_slice(self.decode(encoded)?.data());
        }
        Ok(())
    }

    fn measure(&self, tensor: &Tensor, encoded: &Encoded) -> Result<MetricSums, Error> {
        match is_ours(encoded) {
            Some(true) if is_watched(tensor) => measured_by_strips(tensor, encoded),
            Some(true) => measured_as(tensor, encoded, normalized(encoded)?),
            _ => Ok(MetricSums::between(tensor, &self.decode_any(encoded)?)),
        }
    }

    fn stages(&self, tensor: &Tensor, target: Rate) -> Result<Vec<StageCost>, Error> {
        let (Rate::Bits(_) | Rate::Nmse(_)) = target else { return Ok(Vec::new()) };
        let encoded = self.encode(tensor, target)?;
        let Some(slab) = Slab::open(&encoded.bytes)? else { return Ok(Vec::new()) };
        if slab.kind == Kind::Uniform {
            // A product and a rounding, then eight decisions of an adaptive coder for each value, one
            // value after the other.
            return Ok(vec![
                stage_cost("quantization", "uniform", 0.0, (2.0, 1.0), 1),
                stage_cost("entropy", "adaptive", encoded.bits_per_value(), (48.0, 8.0), encoded.values()),
            ]);
        }
        let (plan, header) = Plan::read(slab.stream).map_err(damaged)?;
        Ok(stages(&plan, header + HEADER, encoded.bytes.len(), tensor.len()))
    }
}

impl Line {
    /// This codec's own stream, or that of an arithmetic coder where it is better; what it did to the values, too, where
    /// that was asked for and is known.
    fn encode_best(
        &self,
        tensor: &Tensor,
        target: Rate,
        measured: bool,
    ) -> Result<(Encoded, Option<MetricSums>), Error> {
        let (rows, cols) = tensor.matrix();
        // An encoder that is watched reads tile by tile.
        let by_tiles = measured && matches!(target, Rate::Bits(_)) && is_watched(tensor);
        if by_tiles && let Some((values, exponent)) = normalized_in_place(tensor)? {
            return self.best_of(tensor, &Normalized { rows, cols, values, exponent }, target, measured);
        }
        let Some((matrix, exponent)) = normalize(tensor)? else {
            return Ok((Encoded::like(tensor, Vec::new()), None));
        };
        let values = Values::Numbers(&matrix.values);
        let best = self.best_of(tensor, &Normalized { rows, cols, values, exponent }, target, measured);
        memory::keep(matrix.values);
        best
    }

    fn best_of(
        &self,
        tensor: &Tensor,
        matrix: &Normalized<'_>,
        target: Rate,
        measured: bool,
    ) -> Result<(Encoded, Option<MetricSums>), Error> {
        let (ours, tiles) = match self.encode_line(tensor, matrix, target, measured) {
            Ok((ours, tiles)) => (Ok(ours), tiles),
            Err(error) => (Err(error), None),
        };
        // In the order of tiles, whoever finished first.
        let sums = || Some(MetricSums::merged(tiles.as_ref()?.iter().map(|tile| &tile.sums)));
        let tried = match &ours {
            // An arithmetic coder knows no tiles, and gates have none.
            _ if self.tile_budget.is_some() || self.options.fixed.gates => false,
            Ok(ours) => !ours.bytes.is_empty() && self.may_be_plain(matrix, ours, tiles.as_deref())?,
            Err(Error::Unreachable { .. }) => matches!(target, Rate::Bits(_) | Rate::Nmse(_)),
            Err(_) => false,
        };
        if !tried {
            return Ok((ours?, sums()));
        }
        match (ours, Lossy(Uniform).encode(tensor, target)) {
            (Ok(ours), Ok(plain)) => {
                let plain = tagged(plain);
                let better = match target {
                    Rate::Bits(_) => self.error(tensor, &plain)? < self.error(tensor, &ours)?,
                    _ => plain.bytes.len() < ours.bytes.len(),
                };
                Ok(if better { (plain, None) } else { (ours, sums()) })
            }
            (Err(_), Ok(plain)) => Ok((tagged(plain), None)),
            (ours, Err(_)) => Ok((ours?, sums())),
        }
    }

    /// What is stored, whatever it is.
    fn decode_any(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        match Slab::open(&encoded.bytes)? {
            Some(slab) if slab.kind == Kind::Trinity => {
                Trinity::of_stored(&self.name, self.basis.clone()).decode(encoded)
            }
            Some(slab) if slab.kind == Kind::Uniform => {
                Lossy(Uniform).decode(&headed(encoded.clone(), |_| slab.exponent.to_le_bytes()))
            }
            _ => denormalized(encoded, normalized(encoded)?),
        }
    }
}

/// A tensor's values over the power of two of this exponent: a copy of them, or where they lie.
struct Normalized<'a> {
    rows: usize,
    cols: usize,
    values: Values<'a>,
    exponent: i16,
}

/// Whether an encoder can be watched, and streams measured strip by strip: on this CPU, for formats that f32 holds.
fn is_watched(tensor: &Tensor) -> bool {
    !tensor.dtype().is_wide() && device().kind() == Cpu.kind()
}

/// The strips of which it is estimated what a uniform quantizer would take.
fn estimated(strips: usize, values: usize) -> impl Iterator<Item = usize> {
    let wanted = (ESTIMATED * strips).div_ceil(values).max(strips.div_ceil(ESTIMATED_SHARE)).min(strips);
    (0..wanted).map(move |share| (2 * share + 1) * strips / (2 * wanted))
}

/// A coded tensor, and what coding did to each tile where that was watched.
type Observed = (Encoded, Option<Vec<TileError>>);

/// What is to be told of tiles while they are coded.
struct Watch {
    dtype: Dtype,
    exponent: i16,
    /// Values of the tensor.
    values: usize,
}

/// What coding did to a tile.
struct TileError {
    /// The sum of squared differences of normalized values, in strips that are estimated.
    squared: f64,
    /// Of values in their own format.
    sums: MetricSums,
}

impl Watch {
    fn see(&self, tile: &CodedTile<'_>) -> TileError {
        let mut decoded = memory::kept();
        tile.decoded(&mut decoded);
        let (own, strips) = tile.strip();
        let is_estimated = estimated(strips, self.values).any(|strip| strip == own);
        let error = TileError {
            squared: if is_estimated { squared_error(tile.values, &decoded) } else { 0.0 },
            sums: differences_of(tile.values, &mut decoded, self.exponent, self.dtype),
        };
        memory::keep(decoded);
        error
    }
}

/// The normalized values of a slab of this codec's own.
fn normalized(encoded: &Encoded) -> Result<Decoded, Error> {
    let Some(slab) = Slab::open(&encoded.bytes)? else { return Ok(None) };
    let (_, _, values) = device().decode(slab.stream).map_err(damaged)?;
    decoded(encoded, values, slab.exponent)
}

/// An error of the line-rate codec in a tensor's stream, or of the device that codes it.
fn damaged(error: trinity_codec::line::Error) -> Error {
    match error {
        trinity_codec::line::Error::Device { device, reason } => {
            Error::External { program: device, problem: reason }
        }
        error => Error::corrupt(HEADER, error.to_string()),
    }
}

/// The stream of so many values behind a normalizing exponent.
fn opened(encoded: &Encoded, values: usize) -> Result<(Stream<'_>, i16), Error> {
    let slab = Slab::open(&encoded.bytes)?.ok_or_else(|| Error::corrupt(0, "the header is cut"))?;
    let stream = Stream::open(slab.stream).map_err(damaged)?;
    if stream.plan().rows * stream.plan().cols != values {
        return Err(Error::corrupt(HEADER, "another number of values than the tensor has"));
    }
    Ok((stream, slab.exponent))
}

/// Decodes to bytes a strip at a time, which stays in the cache until it has its number format.
fn decoded_by_strips(encoded: &Encoded, out: &mut [u8]) -> Result<(), Error> {
    let (stream, exponent) = opened(encoded, encoded.values())?;
    let of_strip = |values: &mut Vec<f32>, (strip, out): (usize, &mut [u8])| {
        values.resize(stream.strip_place(strip).len(), 0.0);
        stream.strip_over(strip, values).map_err(damaged)?;
        denormalize(values, exponent, encoded.dtype, out);
        Ok(())
    };
    let strips = out.par_chunks_mut(stream.strip_values() * encoded.dtype.bytes());
    // The first error in order, whoever finished first.
    let done: Vec<Result<(), Error>> = strips.enumerate().map_init(Vec::new, of_strip).collect();
    done.into_iter().collect()
}

/// How far what a stream decodes to is from a tensor, a strip at a time: no more than that is in memory.
fn measured_by_strips(tensor: &Tensor, encoded: &Encoded) -> Result<MetricSums, Error> {
    let (stream, exponent) = opened(encoded, tensor.len())?;
    let of_strip = |values: &mut Vec<f32>, strip| -> Result<MetricSums, Error> {
        let place = stream.strip_place(strip);
        values.resize(place.len(), 0.0);
        stream.strip_over(strip, values).map_err(damaged)?;
        Ok(differences(tensor, place.start, values, exponent))
    };
    let parts: Vec<MetricSums> =
        (0..stream.strips()).into_par_iter().map_init(Vec::new, of_strip).collect::<Result<_, _>>()?;
    // In their order, whoever finished first.
    Ok(MetricSums::merged(&parts))
}

/// Whether a codec, or one that it is made of, is the line-rate codec under one of its names.
pub fn has_kernels(codec: &str) -> bool {
    codec.split('/').any(|part| Line::named(part).is_some())
}

/// The kind of device that codes under a codec's name.
pub fn device_of(codec: &str) -> &'static str {
    if has_kernels(codec) { device().kind() } else { Cpu.kind() }
}

/// Whether a slab is one that a device codes; zeros are none.
fn is_ours(encoded: &Encoded) -> Option<bool> {
    Some(Slab::open(&encoded.bytes).ok()??.kind == Kind::Line)
}

/// The exponent of a slab's values and their stream, where it is one of the line-rate codec.
pub fn line_stream(slab: &[u8]) -> Option<(i16, &[u8])> {
    let slab = Slab::open(slab).ok()??;
    (slab.kind == Kind::Line).then_some((slab.exponent, slab.stream))
}

/// What `uniform+ac` made, tagged as such; it has the exponent alone in front.
fn tagged(plain: Encoded) -> Encoded {
    headed(plain, |header| tag::tagged(tag::UNIFORM, i16::from_le_bytes(header)))
}

/// A coded tensor with another header, where it has one.
fn headed(mut coded: Encoded, header: impl Fn([u8; HEADER]) -> [u8; HEADER]) -> Encoded {
    if let Some(own) = coded.bytes.first_chunk_mut::<HEADER>() {
        *own = header(*own);
    }
    coded
}

fn squared_error(original: &[f32], decoded: &[f32]) -> f64 {
    with_width(Width::widest(), SquaredError { original, decoded })
}

struct SquaredError<'a> {
    original: &'a [f32],
    decoded: &'a [f32],
}

impl Kernel for SquaredError<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let mut total = 0.0;
        for (a, b) in self.original.chunks(256).zip(self.decoded.chunks(256)) {
            let mut sums = [0f32; 16];
            let ((whole, rest), (whole_decoded, rest_decoded)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
            for (a, b) in whole.iter().zip(whole_decoded) {
                for lane in 0..16 {
                    sums[lane] += (a[lane] - b[lane]) * (a[lane] - b[lane]);
                }
            }
            for ((sum, a), b) in sums.iter_mut().zip(rest).zip(rest_decoded) {
                *sum += (a - b) * (a - b);
            }
            total += f64::from(sums.iter().sum::<f32>());
        }
        total
    }
}

/// One stage, with its operations and those of them that multiply, per value.
fn stage_cost(
    stage: &'static str,
    choice: impl Into<String>,
    bits_per_value: f64,
    (operations_per_value, multiplications_per_value): (f64, f64),
    serial_values: usize,
) -> StageCost {
    StageCost {
        stage,
        choice: choice.into(),
        bits_per_value,
        operations_per_value,
        multiplications_per_value,
        serial_values,
    }
}

/// What every stage chose, the bits it spends, and the operations of its encoder.
fn stages(plan: &Plan, header: usize, total: usize, values: usize) -> Vec<StageCost> {
    let bits = |bytes: usize| 8.0 * bytes as f64 / values.max(1) as f64;
    let lane_values = plan.tile_rows * plan.tile_cols / plan.lanes();
    let predicts = plan.above.iter().any(|&above| above > 0);
    let (size, transform) = match &plan.transform {
        Transform::None => (0, "none".to_owned()),
        Transform::Hadamard => (32, "hadamard-32".into()),
        Transform::Dct => (32, "dct-32".into()),
        Transform::Signalled { size, .. } => (*size, format!("stated-{size}")),
    };
    let states = 1usize << plan.log2_states;
    // A product by the scale and a rounding; a product and a sum for each coefficient; a product, a sum and two shifts for
    // the prediction; four squared distances and the way into each state; a division
    // by multiplication, and a look-up.
    let (trellis, squares) = if states == 1 { (4.0, 0.0) } else { (32.0 + 4.0 * states as f64, 4.0) };
    let path = if states == 1 {
        1
    } else if predicts {
        plan.tile_cols.div_ceil(plan.lanes())
    } else {
        lane_values
    };
    let quantization = if states == 1 { "dead-zone".to_owned() } else { format!("trellis-{states}") };
    let prediction = if predicts { "above by column" } else { "column means" };
    let (tables, before) = (format!("{} tables", plan.tables.len()), header + 4 * plan.tiles());
    let orientation = if plan.transposed { "columns" } else { "rows" };
    let tile_rows = if predicts { plan.tile_rows } else { 1 };
    vec![
        stage_cost("headers", tables, bits(before), (0.0, 0.0), 1),
        stage_cost("orientation", orientation, 0.0, (0.0, 0.0), 1),
        stage_cost("alignment", "one scale", 0.0, (3.0, 1.0), 1),
        stage_cost("prediction", prediction, 0.0, (4.0, 1.0), tile_rows),
        stage_cost("transform", transform, 0.0, (2.0 * size as f64, size as f64), 1),
        stage_cost("quantization", quantization, 0.0, (trellis, squares), path),
        stage_cost("entropy", "stated", bits(total - before), (10.0, 2.0), lane_values),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;
    use crate::codec::{Metrics, codec};
    use trinity_numeric::random::Lcg;

    fn weight(dtype: Dtype, shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::of_f32("t", Class::Weight, dtype, shape.to_vec(), values).unwrap()
    }

    /// Numbers without a pattern between −1 and 1.
    fn scattered(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect()
    }

    #[test]
    fn the_line_codec_alone_has_kernels() {
        for name in ["trinity-lite", "line", "line-uniform", "trinity-lite:4096", "hadamard/line-fast"] {
            assert!(has_kernels(name), "{name}");
        }
        for name in ["trinity", "h265", "uniform+ac", "zstd", "delta", "trinity-lite:x"] {
            assert!(!has_kernels(name), "{name}");
        }
        assert_eq!(device_of("trinity-lite"), "cpu");
    }

    #[test]
    fn every_effort_meets_its_target_and_names_its_stages() {
        let values: Vec<f32> = (0..64 * 96).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let tensor = weight(Dtype::F32, &[64, 96], &values);
        for name in Line::names() {
            let line = codec(name).unwrap();
            let encoded = line.encode(&tensor, Rate::Bits(4.0)).unwrap();
            // Noise: what has no trellis gains nothing over an arithmetic coder.
            let plain = is_ours(&encoded) == Some(false);
            assert!(plain || &encoded.bytes[HEADER..HEADER + 2] == b"TL", "{name}");
            assert!(!plain || name == "line-uniform", "{name}");
            assert!(encoded.bits_per_value() <= 4.0 && encoded.bits_per_value() > 3.8, "{name}");
            let stages = line.stages(&tensor, Rate::Bits(4.0)).unwrap();
            let bits: f64 = stages.iter().map(|stage| stage.bits_per_value).sum();
            assert!((bits - encoded.bits_per_value()).abs() < 0.01, "{name}: {bits}");
            assert!(line.encode(&tensor, Rate::Lossless).is_err());
            assert!(plain || line.decode(&encoded.cut(encoded.bytes.len() - 1)).is_err());
        }
    }

    #[test]
    fn what_gates_code_is_within_their_profile() {
        let values = scattered(300 * 700);
        for (shape, (name, states, family, predicts)) in
            [[300, 700], [64, 96], [30_000, 7], [120, 320], [120, 320], [90, 350]].into_iter().zip(GATES)
        {
            let tensor = weight(Dtype::Bf16, &shape, &values[..shape[0] * shape[1]]);
            let line = codec(name).unwrap();
            let encoded = line.encode(&tensor, Rate::Nmse(0.01)).unwrap();
            assert!(Metrics::between(&tensor, &line.decode(&encoded).unwrap()).nmse <= 0.01, "{name}");
            let (plan, _) = Plan::read(&encoded.bytes[HEADER..]).unwrap();
            let transform = match family {
                Family::Hadamard => Transform::Hadamard,
                Family::Dct => Transform::Dct,
                _ => Transform::None,
            };
            assert_eq!(
                (plan.log2_lanes, plan.log2_states, &plan.transform),
                (5, states, &transform),
                "{name}"
            );
            assert!(predicts || plan.above.iter().all(|&above| above == 0), "{name}");
            let steps = plan.tile_rows * plan.tile_cols.div_ceil(32);
            assert!(steps <= 512 && plan.tile_rows <= 1024 && plan.tile_cols <= 512, "{name} {steps}");
        }
    }

    /// Strips, of matrices upright and on their side, tell what decoding the whole tells.
    #[test]
    fn errors_by_strips_are_those_of_the_whole() {
        let mut lcg = Lcg(3);
        for (rows, cols, dtype) in [(700, 300, Dtype::F32), (90, 4000, Dtype::Bf16), (4000, 70, Dtype::F16)] {
            let scales: Vec<f32> = (0..rows).map(|_| lcg.uniform() + 0.01).collect();
            let values: Vec<f32> =
                (0..rows * cols).map(|at| (lcg.uniform() - 0.5) * scales[at / cols] * 40.0).collect();
            let tensor = weight(dtype, &[rows, cols], &values);
            let line = Line::named("trinity-lite").unwrap();
            let encoded = line.encode(&tensor, Rate::Bits(3.0)).unwrap();
            assert_eq!(is_ours(&encoded), Some(true));
            let found = measured_by_strips(&tensor, &encoded).unwrap().finish();
            let whole = Metrics::between(&tensor, &line.decode(&encoded).unwrap());
            assert!((found.nmse / whole.nmse - 1.0).abs() < 1e-12, "{found:?} {whole:?}");
            assert!((found.mae / whole.mae - 1.0).abs() < 1e-12, "{found:?} {whole:?}");
            assert_eq!(found.max_abs_error, whole.max_abs_error);
            assert!(measured_by_strips(&tensor, &encoded.cut(encoded.bytes.len() - 2)).is_err());
            assert!(measured_by_strips(&weight(dtype, &[cols], &vec![0.0; cols]), &encoded).is_err());
        }
    }

    /// A stream of gates is what integers give: coding its own plan again with that
    /// analysis gives its very bytes, in single precision others.
    #[test]
    fn transforms_of_gates_are_in_integers() {
        use trinity_codec::line::{Analysis, encode};
        let values = scattered(256 * 320);
        let tensor = weight(Dtype::F32, &[256, 320], &values);
        for name in ["line-rtl-hadamard", "line-rtl-dct"] {
            let encoded = codec(name).unwrap().encode(&tensor, Rate::Nmse(0.001)).unwrap();
            let (matrix, _) = normalize(&tensor).unwrap().unwrap();
            let (plan, _) = Plan::read(&encoded.bytes[HEADER..]).unwrap();
            let again = |analysis| {
                encode(&plan, &matrix.values, &Settings { analysis, ..Settings::default() }).unwrap()
            };
            assert_eq!(again(Analysis::Whole), encoded.bytes[HEADER..], "{name}");
            assert_ne!(again(Analysis::Single), encoded.bytes[HEADER..], "{name}");
        }
    }

    /// Kernels of 3 × 3 whose channels have scales of their own, small matrices,
    /// vectors, and values on a grid: never more than a uniform quantizer takes.
    #[test]
    fn no_tensor_takes_more_than_a_uniform_quantizer() {
        let mut lcg = Lcg(5);
        let mut uniform = || lcg.uniform() - 0.5;
        let mut plain = 0;
        for (shape, grid) in [
            (vec![96, 1, 3, 3], 0.0),
            (vec![300], 0.0),
            (vec![24, 24], 0.0),
            (vec![64, 64], 0.25),
            (vec![320, 256], 0.25),
            // Drifts from value to value, which a coder that adapts follows and an entropy does not show.
            (vec![70_001, 1], -1.0),
        ] {
            let count: usize = shape.iter().product();
            let values: Vec<f32> = (0..count)
                .map(|i| {
                    let value = (0..4).map(|_| uniform()).sum::<f32>() * (1 + i / 9 % 5) as f32;
                    let drift = if grid < 0.0 { (i as f32 / 1e4).exp() } else { 1.0 };
                    let value = value * drift;
                    if grid > 0.0 { (value / grid).round() * grid } else { value }
                })
                .collect();
            for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
                let tensor = weight(dtype, &shape, &values);
                let uniform = codec("uniform+ac").unwrap();
                for name in Line::names() {
                    let line = codec(name).unwrap();
                    let [ours, theirs] =
                        [&line, &uniform].map(|codec| codec.encode(&tensor, Rate::Nmse(0.01)).unwrap());
                    assert!(ours.bytes.len() <= theirs.bytes.len(), "{name} {shape:?} {dtype}");
                    let found = Metrics::between(&tensor, &line.decode(&ours).unwrap()).nmse;
                    assert!(found <= 0.01, "{name} {shape:?} {dtype}: {found}");
                    plain += usize::from(is_ours(&ours) == Some(false));
                    if is_ours(&ours) == Some(false) {
                        let stages = line.stages(&tensor, Rate::Nmse(0.01)).unwrap();
                        assert!(stages.iter().any(|stage| stage.choice == "adaptive"));
                    }
                }
            }
        }
        assert!(plain > 0, "nothing fell back");
    }

    #[test]
    fn a_byte_budget_holds_for_every_tile_and_travels_in_the_name() {
        let mut values = scattered(96 * 512);
        values[..16384].iter_mut().for_each(|value| *value *= 9.0);
        let tensor = weight(Dtype::Bf16, &[96, 512], &values);
        let (free, fixed) = (codec("line-fast").unwrap(), codec("line-fast:7000").unwrap());
        let sizes = |line: &dyn TensorCodec| -> Vec<usize> {
            let encoded = line.encode(&tensor, Rate::Bits(3.0)).unwrap();
            assert_eq!(line.decode(&encoded).unwrap().shape(), tensor.shape());
            let stream = Stream::open(&encoded.bytes[HEADER..]).unwrap();
            (0..stream.plan().tiles()).map(|tile| 2 * stream.words(tile).len()).collect()
        };
        let (unbound, bound) = (sizes(free.as_ref()), sizes(fixed.as_ref()));
        assert!(unbound.iter().any(|&size| size > 7000), "{unbound:?}");
        assert!(bound.iter().all(|&size| size <= 7000), "{bound:?}");
        assert_eq!(fixed.name(), "line-fast:7000");
        let refused = codec("trinity-lite:40").unwrap().encode(&tensor, Rate::Bits(3.0)).unwrap_err();
        assert!(refused.to_string().contains("40"), "{refused}");
        for name in ["trinity-lite:", "trinity-lite:0", "trinity-lite:x", "h265:5"] {
            assert!(codec(name).is_err(), "{name}");
        }
    }
}
