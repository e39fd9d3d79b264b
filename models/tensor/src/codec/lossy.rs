//! From a codec of normalized matrices to a codec of tensors with a target.

use trinity_codec::line::Values;

use super::contract::missed;
use super::rate::{Trial, finest_within};
use super::{Encoded, MetricSums, Metrics, Rate, TensorCodec};
use crate::sums::Sums;
use crate::{Dtype, Error, Tensor};

pub use trinity_codec::Matrix;

/// Bytes for a matrix of finite values in [−1, 1] at one setting of a knob.
pub trait MatrixCodec: std::fmt::Debug + Send + Sync {
    /// The name it has in the registry.
    fn name(&self) -> String;

    /// Coarsest and finest useful setting for this matrix.
    fn knobs(&self, matrix: &Matrix) -> (f64, f64);

    /// Whether there is but one setting.
    fn has_one_rate(&self) -> bool {
        false
    }

    /// A setting that may come near so many bits per value.
    fn guess(&self, _matrix: &Matrix, _bits: f64) -> Option<f64> {
        None
    }

    /// The setting that stands for a quantization parameter.
    fn qp_knob(&self, _qp: f64) -> Option<f64> {
        None
    }

    /// A choice that holds at every setting, such as an orientation, made once.
    fn choose(&self, _matrix: &Matrix) -> Result<u8, Error> {
        Ok(0)
    }

    /// The same choice under which settings map to streams in another way, for
    /// a target that falls into a jump of the first.
    fn other_choice(&self, _choice: u8) -> Option<u8> {
        None
    }

    /// Codes the matrix, with the choice already made; all that decoding needs but its size is in the bytes.
    fn encode(&self, matrix: &Matrix, knob: f64, choice: u8) -> Result<Vec<u8>, Error>;

    /// What the bytes stand for: rows × cols values.
    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error>;
}

/// Any [`MatrixCodec`] as a [`TensorCodec`].
#[derive(Debug)]
pub struct Lossy<C>(pub C);

/// Bytes before the codec's own: the exponent that normalizes values. A tensor
/// of zeros has no bytes at all.
pub(crate) const HEADER: usize = 2;

/// So many bits per value, less those of the header.
pub(crate) fn behind_header(bits: f64, tensor: &Tensor) -> Rate {
    Rate::Bits((bits - 8.0 * HEADER as f64 / tensor.len().max(1) as f64).max(1e-6))
}

impl Encoded {
    /// What `coded` makes of a tensor's normalized values, behind their exponent; zeros have no bytes.
    pub(crate) fn of_normalized(
        tensor: &Tensor,
        coded: impl FnOnce(Matrix) -> Result<Vec<u8>, Error>,
    ) -> Result<Self, Error> {
        let Some((matrix, exponent)) = normalize(tensor)? else { return Ok(Self::like(tensor, Vec::new())) };
        Ok(Self::behind(tensor, exponent, &coded(matrix)?))
    }

    /// A stream behind the exponent that normalizes its values.
    pub(crate) fn behind(tensor: &Tensor, exponent: i16, stream: &[u8]) -> Self {
        Self::like(tensor, [&exponent.to_le_bytes(), stream].concat())
    }
}

/// The bytes found, or the least cost there is.
type Found = Result<Result<Vec<u8>, f64>, Error>;

impl<C: MatrixCodec> Lossy<C> {
    /// The better of two searches, the second made only where the first stays
    /// more than a per cent off; `share` is what part of the goal was used.
    fn nearest(&self, choice: u8, search: impl Fn(u8) -> Found, share: impl Fn(&[u8]) -> f64) -> Found {
        let first = search(choice)?;
        match (&first, self.0.other_choice(choice)) {
            (Ok(bytes), Some(other)) if share(bytes) < 0.99 => match search(other)? {
                Ok(second) if share(&second) > share(bytes) => Ok(Ok(second)),
                _ => Ok(first),
            },
            _ => Ok(first),
        }
    }
}

impl<C: MatrixCodec> TensorCodec for Lossy<C> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn has_one_rate(&self) -> bool {
        self.0.has_one_rate()
    }

    fn encode(&self, tensor: &Tensor, target: Rate) -> Result<Encoded, Error> {
        let Some((matrix, exponent)) = normalize(tensor)? else {
            return Ok(Encoded::like(tensor, Vec::new()));
        };
        let choice = self.0.choose(&matrix)?;
        let attempt = |knob: f64, choice: u8| -> Result<Vec<u8>, Error> {
            let stream = self.0.encode(&matrix, knob, choice)?;
            Ok([&exponent.to_le_bytes()[..], &stream].concat())
        };
        let (coarse, fine) = self.0.knobs(&matrix);
        let unreachable = |reason: String| missed(target, tensor, self.name(), reason);
        let bytes = match target {
            Rate::Bits(goal) => {
                let bits = |bytes: &[u8]| 8.0 * bytes.len() as f64 / tensor.len() as f64;
                let model = |bits: f64| self.0.guess(&matrix, bits);
                let search = |choice| {
                    finest_within(goal, (coarse, fine), model, |knob| {
                        let bytes = attempt(knob, choice)?;
                        Ok(Trial { cost: bits(&bytes), result: bytes })
                    })
                };
                self.nearest(choice, search, |bytes| bits(bytes) / goal)?
                    .map_err(|least| unreachable(format!("it needs at least {least:.3} bits/value here")))?
            }
            Rate::Nmse(goal) => {
                let goal_db = goal_db(goal);
                let snr = |bytes: &[u8]| -> Result<f64, Error> {
                    let decoded = self.decode(&Encoded::like(tensor, bytes.to_vec()))?;
                    Ok(Metrics::between(tensor, &decoded).snr_db)
                };
                // In decibels, upside down: less SNR is less effort.
                let search = |choice| {
                    let model = |cost: f64| self.0.guess(&matrix, bits_at(1.0 / cost)).map(|knob| -knob);
                    finest_within(1.0 / goal_db, (-fine, -coarse), model, |knob| {
                        let bytes = attempt(-knob, choice)?;
                        let snr = snr(&bytes)?;
                        Ok(Trial { cost: if snr > 0.0 { 1.0 / snr } else { f64::MAX }, result: bytes })
                    })
                };
                self.nearest(choice, search, |bytes| snr(bytes).map_or(0.0, |snr| goal_db / snr))?.map_err(
                    |least| unreachable(format!("its least NMSE here is {:.3e}", 10f64.powf(-0.1 / least))),
                )?
            }
            Rate::Qp(qp) => {
                let knob = self.0.qp_knob(qp);
                attempt(knob.ok_or_else(|| unreachable("it has no quantization parameter".into()))?, choice)?
            }
            Rate::Lossless => return Err(unreachable("it is lossy; `zstd` is lossless".into())),
            Rate::Mse(_) | Rate::Step(_) => {
                return Err(unreachable("it works to bits, an NMSE or a QP".into()));
            }
        };
        Ok(Encoded::like(tensor, bytes))
    }

    fn decode(&self, encoded: &Encoded) -> Result<Tensor, Error> {
        restored(encoded, |bytes, rows, cols| self.0.decode(bytes, rows, cols))
    }

    fn measure(&self, tensor: &Tensor, encoded: &Encoded) -> Result<MetricSums, Error> {
        measured(tensor, encoded, |bytes, rows, cols| self.0.decode(bytes, rows, cols))
    }
}

/// The tensor behind a normalizing exponent and what a codec made of the
/// normalized values, which `decode` turns back for a number of rows and columns.
pub(crate) fn restored(
    encoded: &Encoded,
    decode: impl FnOnce(&[u8], usize, usize) -> Result<Vec<f32>, Error>,
) -> Result<Tensor, Error> {
    // Decoded first: what lies about its size fails there, and not for want of memory.
    denormalized(encoded, normalized(encoded, decode)?)
}

/// As [`restored`], where a stream may hold scales that take values beyond all numbers.
pub(crate) fn restored_finite(
    encoded: &Encoded,
    decode: impl FnOnce(&[u8], usize, usize) -> Result<Vec<f32>, Error>,
) -> Result<Tensor, Error> {
    restored(encoded, |bytes, rows, cols| {
        let values = decode(bytes, rows, cols)?;
        if values.iter().all(|value| value.is_finite()) {
            return Ok(values);
        }
        Err(Error::corrupt(HEADER, "scales beyond all numbers"))
    })
}

/// The tensor of a coded one's normalized values.
pub(crate) fn denormalized(encoded: &Encoded, normalized: Decoded) -> Result<Tensor, Error> {
    let mut data = crate::memory::zeroed(encoded.values() * encoded.dtype.bytes())?;
    if let Some((values, exponent)) = normalized {
        denormalize(&values, exponent, encoded.dtype, &mut data);
    }
    Tensor::new(encoded.name.clone(), encoded.class, encoded.dtype, encoded.shape.clone(), data)
}

/// As [`restored`], over the bytes of as many values.
pub(crate) fn restored_into(
    encoded: &Encoded,
    out: &mut [u8],
    decode: impl FnOnce(&[u8], usize, usize) -> Result<Vec<f32>, Error>,
) -> Result<(), Error> {
    encoded.fits(out)?;
    match normalized(encoded, decode)? {
        None => out.fill(0),
        Some((values, exponent)) => denormalize(&values, exponent, encoded.dtype, out),
    }
    Ok(())
}

/// Normalized values of a coded tensor and their exponent; nothing for zeros.
pub(crate) type Decoded = Option<(Vec<f32>, i16)>;

/// The normalized values that `decode` makes of a coded tensor.
fn normalized(
    encoded: &Encoded,
    decode: impl FnOnce(&[u8], usize, usize) -> Result<Vec<f32>, Error>,
) -> Result<Decoded, Error> {
    if encoded.bytes.is_empty() {
        return Ok(None);
    }
    let (rows, cols) = match encoded.shape.split_last() {
        Some((&cols, outer)) => (outer.iter().product(), cols),
        None => (1, 1),
    };
    let (header, rest) =
        encoded.bytes.split_first_chunk::<HEADER>().ok_or_else(|| Error::corrupt(0, "the header is cut"))?;
    let values = decode(rest, rows, cols)?;
    decoded(encoded, values, i16::from_le_bytes(*header))
}

/// Normalized values and their exponent, or an error where they are not as many as the shape has.
pub(crate) fn decoded(encoded: &Encoded, values: Vec<f32>, exponent: i16) -> Result<Decoded, Error> {
    if values.len() != encoded.values() {
        return Err(Error::corrupt(HEADER, "another number of values than the shape has"));
    }
    Ok(Some((values, exponent)))
}

/// How far what [`restored`] gives is from a tensor, without the whole of it in memory.
pub(crate) fn measured(
    tensor: &Tensor,
    encoded: &Encoded,
    decode: impl FnOnce(&[u8], usize, usize) -> Result<Vec<f32>, Error>,
) -> Result<MetricSums, Error> {
    measured_as(tensor, encoded, normalized(encoded, decode)?)
}

/// How far a coded tensor's normalized values are from a tensor.
pub(crate) fn measured_as(
    tensor: &Tensor,
    encoded: &Encoded,
    normalized: Decoded,
) -> Result<MetricSums, Error> {
    match normalized {
        Some((values, exponent)) if !tensor.dtype().is_wide() => {
            Ok(differences(tensor, 0, &values, exponent))
        }
        // Formats of more digits than the kernel's, and what is zeros, as tensors.
        normalized => Ok(MetricSums::between(tensor, &denormalized(encoded, normalized)?)),
    }
}

/// How far normalized values, rounded to a tensor's format, are from the tensor's from the place `first` on; its
/// format is one that f32 holds.
pub(crate) fn differences(tensor: &Tensor, first: usize, values: &[f32], exponent: i16) -> MetricSums {
    let (mut sums, dtype) = (MetricSums::default(), tensor.dtype());
    let stored = &tensor.data()[first * dtype.bytes()..];
    if dtype == Dtype::F32 && is_of_f32(exponent.into()) {
        let (factor, largest) = (2f32.powi(exponent.into()), dtype.largest_f32());
        let original = |bytes: [u8; 4]| f64::from(f32::from_le_bytes(bytes));
        let decoded = |value: f32| f64::from((value * factor).clamp(-largest, largest));
        for (values, stored) in values.chunks(CHUNK).zip(stored.as_chunks().0.chunks(CHUNK)) {
            sums.add_by::<false, _, _>(stored, values, (original, decoded));
        }
        return sums;
    }
    let (mut original, mut decoded) = ([0f32; CHUNK], [0f32; CHUNK]);
    let mut bytes = Vec::new();
    for (values, stored) in values.chunks(CHUNK).zip(stored.chunks(CHUNK * dtype.bytes())) {
        let (original, decoded) = (&mut original[..values.len()], &mut decoded[..values.len()]);
        dtype.to_f32(stored, original);
        decoded.copy_from_slice(values);
        denormalize_chunk(decoded, exponent.into(), dtype);
        if dtype != Dtype::F32 {
            bytes.clear();
            dtype.extend_from_f32(decoded, &mut bytes);
            dtype.to_f32(&bytes, decoded);
        }
        sums.add(original, decoded);
    }
    sums
}

/// As [`differences`], of normalized values and what they became, all of them finite; these are changed on the way.
pub(crate) fn differences_of(
    original: &[f32],
    decoded: &mut [f32],
    exponent: i16,
    dtype: Dtype,
) -> MetricSums {
    let (mut sums, exponent) = (MetricSums::default(), i32::from(exponent));
    if dtype == Dtype::F32 && is_of_f32(exponent) {
        // A power of two changes no digit of any of them.
        sums.add_finite(original, decoded);
        return sums.scaled(2f64.powi(exponent));
    }
    let mut bytes = [0; 8 * CHUNK];
    let mut scaled = [0f32; CHUNK];
    for (original, decoded) in original.chunks(CHUNK).zip(decoded.chunks_mut(CHUNK)) {
        let (bytes, scaled) = (&mut bytes[..dtype.bytes() * decoded.len()], &mut scaled[..original.len()]);
        denormalize_chunk(decoded, exponent, dtype);
        dtype.store_f32(decoded, bytes);
        dtype.to_f32(bytes, decoded);
        scaled.copy_from_slice(original);
        scale(scaled, exponent);
        sums.add(scaled, decoded);
    }
    sums
}

/// The decibels of an NMSE to meet. An error as large as the values, or larger,
/// is met by anything better than zeros.
pub(crate) fn goal_db(nmse: f64) -> f64 {
    const LEAST_DB: f64 = 0.01;
    (-10.0 * nmse.log10()).max(LEAST_DB)
}

/// Bits per value that a uniform quantizer takes for so many decibels.
pub(crate) fn bits_at(snr_db: f64) -> f64 {
    (snr_db / 6.02 + 0.25).max(0.1)
}

/// Values over the power of two that brings the largest into [1/2, 1), and its
/// exponent; `None` for a tensor of zeros or of nothing.
pub(crate) fn normalize(tensor: &Tensor) -> Result<Option<(Matrix, i16)>, Error> {
    let (rows, cols) = tensor.matrix();
    let wide = tensor.dtype().is_wide();
    let normalized = if wide { normalize_wide(tensor)? } else { normalize_narrow(tensor)? };
    Ok(normalized.map(|(values, exponent)| (Matrix { rows, cols, values }, exponent as i16)))
}

type Normalized = Result<Option<(Vec<f32>, i32)>, Error>;

/// Normalized values as they lie in a tensor, for who reads them there; nothing for formats and magnitudes that take
/// more than a product, and for zeros.
pub(crate) fn normalized_in_place(tensor: &Tensor) -> Result<Option<(Values<'_>, i16)>, Error> {
    let dtype = tensor.dtype();
    if !matches!(dtype, Dtype::F32 | Dtype::Bf16) {
        return Ok(None);
    }
    let Some(exponent) = exponent_above(largest_finite(tensor)?.into()).filter(|&found| is_of_f32(-found))
    else {
        return Ok(None);
    };
    let factor = 2f32.powi(-exponent);
    let values = match dtype {
        Dtype::F32 => Values::F32(tensor.data().as_chunks().0, factor),
        _ => Values::Bf16(tensor.data().as_chunks().0, factor),
    };
    Ok(Some((values, exponent as i16)))
}

/// The largest magnitude of a format that f32 holds, in single precision.
fn largest_finite(tensor: &Tensor) -> Result<f32, Error> {
    if let Some(largest) = tensor.known_sums().and_then(Sums::largest_finite) {
        return Ok(largest);
    }
    let largest = tensor.dtype().largest_magnitude(tensor.data());
    if largest.is_finite() {
        return Ok(largest);
    }
    let values = tensor.to_f32();
    Err(not_finite(tensor, values.iter().map(|&value| value.into())))
}

/// Formats that f32 holds: a pass for the largest magnitude and one to scale, in chunks that stay in the cache.
fn normalize_narrow(tensor: &Tensor) -> Normalized {
    let dtype = tensor.dtype();
    let mut chunk = [0f32; CHUNK];
    let Some(exponent) = exponent_above(largest_finite(tensor)?.into()) else { return Ok(None) };
    let mut values = crate::memory::kept();
    values.clear();
    values.reserve(tensor.len());
    if dtype == Dtype::F32 && is_of_f32(-exponent) {
        // Read, scaled and written once.
        let factor = 2f32.powi(-exponent);
        values.extend(tensor.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes) * factor));
        return Ok(Some((values, exponent)));
    }
    for bytes in tensor.data().chunks(CHUNK * dtype.bytes()) {
        let chunk = &mut chunk[..bytes.len() / dtype.bytes()];
        dtype.to_f32(bytes, chunk);
        scale(chunk, -exponent);
        values.extend_from_slice(chunk);
    }
    Ok(Some((values, exponent)))
}

/// Formats of more digits, or of larger numbers, than f32.
fn normalize_wide(tensor: &Tensor) -> Normalized {
    let wide = tensor.to_f64();
    if !wide.iter().all(|value| value.is_finite()) {
        return Err(not_finite(tensor, wide.into_iter()));
    }
    let largest = wide.iter().fold(0f64, |largest, value| largest.max(value.abs()));
    let Some(exponent) = exponent_above(largest) else { return Ok(None) };
    let scaled = scaling(-exponent);
    Ok(Some((wide.iter().map(|&value| scaled(value) as f32).collect(), exponent)))
}

/// An error that names the first value that is no number.
fn not_finite(tensor: &Tensor, mut values: impl Iterator<Item = f64> + Clone) -> Error {
    let index = values.clone().position(|value| !value.is_finite()).unwrap_or(0);
    Error::NonFinite { name: tensor.name().to_owned(), index, value: values.nth(index).unwrap_or(f64::NAN) }
}

/// The exponent of the least power of two above a magnitude; none above zero.
fn exponent_above(largest: f64) -> Option<i32> {
    if largest == 0.0 {
        return None;
    }
    let mut exponent = largest.log2().floor() as i32 + 1;
    // The logarithm of a subnormal, or of a value next to a power of two, may
    // be off by one.
    while scaling(-exponent)(largest) >= 1.0 {
        exponent += 1;
    }
    Some(exponent)
}

/// Values denormalized at a time: their floats stay in the cache.
const CHUNK: usize = 4096;

/// Normalized values as a format has them, over bytes for as many.
pub(crate) fn denormalize(normalized: &[f32], exponent: i16, dtype: Dtype, out: &mut [u8]) {
    let exponent = i32::from(exponent);
    let scaled = scaling(exponent);
    let wide = normalized.iter().map(|&value| scaled(f64::from(value)));
    match dtype {
        Dtype::F64 => place(out, wide.map(f64::to_le_bytes)),
        Dtype::I32 => place(out, wide.map(|value| (value.round_ties_even() as i32).to_le_bytes())),
        Dtype::I64 => place(out, wide.map(|value| (value.round_ties_even() as i64).to_le_bytes())),
        Dtype::F32 if is_of_f32(exponent) => {
            // Read, scaled and written once.
            let (factor, largest) = (2f32.powi(exponent), dtype.largest_f32());
            place(
                out,
                normalized.iter().map(|value| (value * factor).clamp(-largest, largest).to_le_bytes()),
            );
        }
        _ => {
            let mut chunk = [0f32; CHUNK];
            for (values, out) in normalized.chunks(CHUNK).zip(out.chunks_mut(CHUNK * dtype.bytes())) {
                let chunk = &mut chunk[..values.len()];
                chunk.copy_from_slice(values);
                denormalize_chunk(chunk, exponent, dtype);
                dtype.store_f32(chunk, out);
            }
        }
    }
}

fn place<const N: usize>(out: &mut [u8], values: impl Iterator<Item = [u8; N]>) {
    out.as_chunks_mut::<N>().0.iter_mut().zip(values).for_each(|(place, value)| *place = value);
}

/// Values that a format is to hold, not yet rounded to it.
fn denormalize_chunk(chunk: &mut [f32], exponent: i32, dtype: Dtype) {
    // A quantizer may overshoot the format's largest finite value.
    let largest = dtype.largest_f32();
    scale(chunk, exponent);
    chunk.iter_mut().for_each(|value| *value = value.clamp(-largest, largest));
}

/// Whether f32 holds that power of two.
fn is_of_f32(exponent: i32) -> bool {
    (-126..=127).contains(&exponent)
}

/// Multiplies by 2^`exponent` with one rounding.
fn scale(values: &mut [f32], exponent: i32) {
    if is_of_f32(exponent) {
        let factor = 2f32.powi(exponent);
        values.iter_mut().for_each(|value| *value *= factor);
    } else {
        let scaled = scaling(exponent);
        values.iter_mut().for_each(|value| *value = scaled(f64::from(*value)) as f32);
    }
}

/// Multiplies by 2^`exponent`, in two steps so that no intermediate overflows.
fn scaling(exponent: i32) -> impl Fn(f64) -> f64 {
    let half = exponent / 2;
    let (first, second) = (2f64.powi(half), 2f64.powi(exponent - half));
    move |value| value * first * second
}
