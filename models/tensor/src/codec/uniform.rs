//! The baseline the paper left out: one uniform step for the whole tensor and
//! an adaptive arithmetic coder.
//!
//! At two bits and more, a uniform quantizer with ideal entropy coding stands
//! a quarter of a bit from the rate–distortion bound of any smooth law, which
//! on near-Gaussian weights is closer than H.265 comes.

use super::arith::{Decoder, Encoder, Tree};
use super::lossy::{bits_at, goal_db, normalize};
use super::rate::{Trial, finest_within};
use super::{Matrix, MatrixCodec, MetricSums, Target};
use crate::stats::entropy;
use crate::{Error, Tensor};

/// `uniform+ac`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uniform;

/// Finest step, as a power of two of the largest magnitude.
const FINEST: f64 = 28.0;
/// Symbol that announces an integer too large for the tree.
const ESCAPE: u8 = 255;
/// Integers from −127 to 127 have symbols of their own.
const CENTRE: i64 = 127;
/// Bytes before the coded symbols: the step, and how many low bits go raw.
const HEADER: usize = 5;

impl MatrixCodec for Uniform {
    fn name(&self) -> String {
        "uniform+ac".into()
    }

    /// Minus the step's logarithm: one more is one more bit.
    fn knobs(&self, _matrix: &Matrix) -> (f64, f64) {
        (-1.0, FINEST)
    }

    fn guess(&self, matrix: &Matrix, bits: f64) -> Option<f64> {
        // Entropy of a Gaussian at step Δ: log2(σ √(2πe) / Δ).
        let energy: f64 = matrix.values.iter().map(|&value| f64::from(value).powi(2)).sum();
        let rms = (energy / matrix.values.len() as f64).sqrt();
        Some(bits - 2.05 - rms.log2())
    }

    fn encode(&self, matrix: &Matrix, knob: f64) -> Result<Vec<u8>, Error> {
        let step = 2f64.powf(-knob) as f32;
        let inverse = 1.0 / f64::from(step);
        let integers: Vec<i64> = matrix
            .values
            .iter()
            .map(|&value| (f64::from(value) * inverse).round_ties_even() as i64)
            .collect();
        let mean =
            integers.iter().map(|integer| integer.unsigned_abs() as f64).sum::<f64>() / integers.len() as f64;
        // Beyond a few dozen levels either side, low bits are as good as random.
        let raw_bits = (mean / 32.0).max(1.0).log2().ceil() as u32;
        let mut bytes = step.to_le_bytes().to_vec();
        bytes.push(raw_bits as u8);
        let mut encoder = Encoder::default();
        let mut tree = Tree::new(8);
        for integer in integers {
            put(&mut encoder, &mut tree, integer, raw_bits);
        }
        bytes.extend(encoder.finish());
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let (header, coded) =
            bytes.split_first_chunk::<HEADER>().ok_or_else(|| Error::corrupt(0, "the header is cut"))?;
        let step = f64::from(f32::from_le_bytes([header[0], header[1], header[2], header[3]]));
        let raw_bits = u32::from(header[4]);
        if !step.is_finite() || raw_bits > 31 {
            return Err(Error::corrupt(0, "no such step"));
        }
        let mut decoder = Decoder::new(coded);
        let mut tree = Tree::new(8);
        let values =
            (0..rows * cols).map(|_| (get(&mut decoder, &mut tree, raw_bits) as f64 * step) as f32).collect();
        decoder.check()?;
        Ok(values)
    }
}

/// The reference line: the empirical order-0 entropy of uniformly quantized
/// values, and their error. No coder of these integers with one table for all
/// beats it; an adaptive one may, where a tensor's spread drifts.
pub fn order0(tensor: &Tensor, target: Target) -> Result<(f64, MetricSums), Error> {
    let Some((matrix, exponent)) = normalize(tensor)? else {
        let mut sums = MetricSums::default();
        sums.add_tensors(tensor, tensor);
        return Ok((0.0, sums));
    };
    let unreachable = |_| Error::Unreachable {
        name: tensor.name().to_owned(),
        codec: "order-0 entropy".into(),
        target: target.to_string(),
        obstacle: target.obstacle(),
        reason: "no step comes there".into(),
    };
    // Errors in the tensor's own units.
    let unit = 2f64.powi(exponent.into());
    let measure = |knob: f64| {
        let inverse = 2f64.powf(knob);
        let mut integers: Vec<i64> = matrix
            .values
            .iter()
            .map(|&value| (f64::from(value) * inverse).round_ties_even() as i64)
            .collect();
        let mut sums = MetricSums::default();
        for (values, integers) in matrix.values.chunks(1024).zip(integers.chunks(1024)) {
            let wide: Vec<f64> = values.iter().map(|&value| f64::from(value) * unit).collect();
            let rounded: Vec<f64> = integers.iter().map(|&integer| integer as f64 / inverse * unit).collect();
            sums.add(&wide, &rounded);
        }
        integers.sort_unstable();
        let counts: Vec<u64> = integers.chunk_by(|a, b| a == b).map(|run| run.len() as u64).collect();
        (entropy(&counts), sums)
    };
    let knobs = Uniform.knobs(&matrix);
    match target {
        Target::Bits(bits) => finest_within(
            bits,
            knobs,
            |bits| Uniform.guess(&matrix, bits),
            |knob| {
                let (cost, sums) = measure(knob);
                Ok(Trial { cost, result: (cost, sums) })
            },
        )?
        .map_err(unreachable),
        Target::Nmse(nmse) => {
            let model = |cost: f64| Uniform.guess(&matrix, bits_at(1.0 / cost)).map(|knob| -knob);
            finest_within(1.0 / goal_db(nmse), (-knobs.1, -knobs.0), model, |knob| {
                let (bits, sums) = measure(-knob);
                let snr_db = sums.finish().snr_db;
                let cost = if snr_db > 0.0 { 1.0 / snr_db } else { f64::MAX };
                Ok(Trial { cost, result: (bits, sums) })
            })?
            .map_err(unreachable)
        }
        Target::Qp(_) | Target::Lossless => Err(unreachable(0.0)),
    }
}

fn put(encoder: &mut Encoder, tree: &mut Tree, integer: i64, raw_bits: u32) {
    let high = integer >> raw_bits;
    if (-CENTRE..=CENTRE).contains(&high) {
        tree.put(encoder, (high + CENTRE) as u8);
    } else {
        tree.put(encoder, ESCAPE);
        encoder.raw(u32::from(high < 0), 1);
        // Exp-Golomb: the number of bits, then the bits.
        let excess = high.unsigned_abs();
        let bits = 64 - excess.leading_zeros();
        encoder.raw(bits, 6);
        encoder.raw((excess >> 32) as u32, bits.saturating_sub(32));
        encoder.raw(excess as u32, bits.min(32));
    }
    encoder.raw((integer & ((1 << raw_bits) - 1)) as u32, raw_bits);
}

fn get(decoder: &mut Decoder<'_>, tree: &mut Tree, raw_bits: u32) -> i64 {
    let high = match tree.get(decoder) {
        ESCAPE => {
            let negative = decoder.raw(1) == 1;
            let bits = decoder.raw(6);
            let top = u64::from(decoder.raw(bits.saturating_sub(32)));
            let magnitude = (top << 32 | u64::from(decoder.raw(bits.min(32)))) as i64;
            if negative { magnitude.wrapping_neg() } else { magnitude }
        }
        symbol => i64::from(symbol) - CENTRE,
    };
    high.wrapping_shl(raw_bits) | i64::from(decoder.raw(raw_bits))
}
