//! The baseline the paper left out: one uniform step for the whole tensor and
//! an adaptive arithmetic coder.
//!
//! At two bits and more, a uniform quantizer with ideal entropy coding stands
//! a quarter of a bit from the rate–distortion bound of any smooth law, which
//! on near-Gaussian weights is closer than H.265 comes.

use trinity_numeric::simd::{Kernel, Width, with_width};

use super::arith::{Decoder, Encoder, Tree};
use super::contract::missed;
use super::lossy::{bits_at, goal_db, normalize};
use super::rate::{Trial, finest_within};
use super::{Matrix, MatrixCodec, MetricSums, Rate};
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

    fn encode(&self, matrix: &Matrix, knob: f64, _choice: u8) -> Result<Vec<u8>, Error> {
        let step = 2f64.powf(-knob) as f32;
        let integers = rounded(&matrix.values, 1.0 / f64::from(step));
        let mean =
            integers.iter().map(|integer| integer.unsigned_abs() as f64).sum::<f64>() / integers.len() as f64;
        let raw_bits = raw_bits(mean);
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

/// Values in steps, of which one has `inverse`, to the nearest.
fn rounded(values: &[f32], inverse: f64) -> Vec<i64> {
    values.iter().map(|&value| (f64::from(value) * inverse).round_ties_even() as i64).collect()
}

/// The reference line: the empirical order-0 entropy of uniformly quantized
/// values, and their error. No coder of these integers with one table for all
/// beats it; an adaptive one may, where a tensor's spread drifts.
pub fn order0(tensor: &Tensor, target: Rate) -> Result<(f64, MetricSums), Error> {
    let Some((matrix, exponent)) = normalize(tensor)? else {
        return Ok((0.0, MetricSums::between(tensor, tensor)));
    };
    let unreachable = |_| missed(target, tensor, "order-0 entropy".into(), "no step comes there");
    // Errors in the tensor's own units.
    let unit = 2f64.powi(exponent.into());
    let measure = |knob: f64| {
        let inverse = 2f64.powf(knob);
        let mut integers = rounded(&matrix.values, inverse);
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
        Rate::Bits(bits) => finest_within(
            bits,
            knobs,
            |bits| Uniform.guess(&matrix, bits),
            |knob| {
                let (cost, sums) = measure(knob);
                Ok(Trial { cost, result: (cost, sums) })
            },
        )?
        .map_err(unreachable),
        Rate::Nmse(nmse) => {
            let model = |cost: f64| Uniform.guess(&matrix, bits_at(1.0 / cost)).map(|knob| -knob);
            finest_within(1.0 / goal_db(nmse), (-knobs.1, -knobs.0), model, |knob| {
                let (bits, sums) = measure(-knob);
                let snr_db = sums.finish().snr_db;
                let cost = if snr_db > 0.0 { 1.0 / snr_db } else { f64::MAX };
                Ok(Trial { cost, result: (bits, sums) })
            })?
            .map_err(unreachable)
        }
        _ => Err(unreachable(0.0)),
    }
}

/// Values over which a coder that adapts is taken to know their law and no other: about its memory.
const SETTLED: usize = 2048;

/// The step at which runs of values have a squared error, within a thousandth or so.
pub(crate) fn step_for(runs: &[&[f32]], squared: f64) -> f64 {
    let count: usize = runs.iter().map(|run| run.len()).sum();
    let noise = |step: f64| {
        let of_run = |run: &&[f32]| with_width(Width::widest(), Noise { values: run, step });
        runs.iter().map(of_run).sum::<f64>()
    };
    // Errors of fine steps are a twelfth of their squares; those of coarse ones, less.
    let mut step = (12.0 * squared / count as f64).sqrt().max(f64::from(f32::MIN_POSITIVE));
    for _ in 0..6 {
        let ratio = squared / noise(step).max(f64::MIN_POSITIVE);
        step *= ratio.sqrt().clamp(0.5, 2.0);
        if (ratio - 1.0).abs() < 1e-3 {
            break;
        }
    }
    step
}

/// The sum of magnitudes of values in steps.
struct Magnitudes<'a> {
    values: &'a [f32],
    inverse: f32,
}

impl Kernel for Magnitudes<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        // Side by side: one sum alone would wait for every addition.
        let mut sums = [0f64; 8];
        let (eights, rest) = self.values.as_chunks::<8>();
        for eight in eights {
            for lane in 0..8 {
                sums[lane] += f64::from((eight[lane] * self.inverse).abs());
            }
        }
        rest.iter().for_each(|value| sums[0] += f64::from((value * self.inverse).abs()));
        sums.iter().sum()
    }
}

/// The squared error of values rounded to multiples of a step.
struct Noise<'a> {
    values: &'a [f32],
    step: f64,
}

impl Kernel for Noise<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let (step, inverse) = (self.step as f32, (1.0 / self.step) as f32);
        let mut total = 0.0;
        for chunk in self.values.chunks(256) {
            let mut sums = [0f32; 8];
            let (eights, rest) = chunk.as_chunks::<8>();
            for eight in eights {
                for lane in 0..8 {
                    let error = eight[lane] - (eight[lane] * inverse).round_ties_even() * step;
                    sums[lane] += error * error;
                }
            }
            for &value in rest {
                let error = value - (value * inverse).round_ties_even() * step;
                sums[0] += error * error;
            }
            total += f64::from(sums.iter().sum::<f32>());
        }
        total
    }
}

/// Bits per value that [`Uniform`] takes for runs of values at a step: within a hundredth (a test holds it to that), or
/// fewer where their law changes at once. The sum of the entropies of [`SETTLED`] values after the other, and what it costs to learn each anew.
pub(crate) fn estimated_bits(runs: &[&[f32]], step: f64) -> f64 {
    let inverse = (1.0 / step) as f32;
    let count: usize = runs.iter().map(|run| run.len()).sum();
    let magnitudes = |run: &&[f32]| with_width(Width::widest(), Magnitudes { values: run, inverse });
    let mean = runs.iter().map(magnitudes).sum::<f64>() / count as f64;
    let raw_bits = raw_bits(mean);
    let scale = inverse / (1u64 << raw_bits) as f32;
    let mut bits = 0.0;
    let mut symbols = [0u8; SETTLED];
    let surprise = |count: u32, total: u32| f64::from(count) * (f64::from(count) / f64::from(total)).log2();
    // Of whole blocks, which nearly all are.
    let whole: Vec<f64> = (0..=SETTLED as u32).map(|count| surprise(count, SETTLED as u32)).collect();
    for block in runs.iter().flat_map(|run| run.chunks(SETTLED)) {
        let symbols = &mut symbols[..block.len()];
        bits += with_width(Width::widest(), Symbols { values: block, scale, symbols }) as f64;
        // Four tables, so that equal neighbours do not wait for each other.
        let mut counts = [[0u32; 256]; 4];
        let (fours, rest) = symbols.as_chunks::<4>();
        for four in fours {
            (0..4).for_each(|lane| counts[lane][usize::from(four[lane])] += 1);
        }
        rest.iter().for_each(|&symbol| counts[0][usize::from(symbol)] += 1);
        let mut used = 0;
        let total = block.len() as u32;
        let (low, high) = symbols.iter().fold((u8::MAX, 0), |(low, high), &s| (low.min(s), high.max(s)));
        for symbol in usize::from(low)..=usize::from(high) {
            let count: u32 = counts.iter().map(|counts| counts[symbol]).sum();
            if count > 0 {
                bits -= if block.len() == SETTLED { whole[count as usize] } else { surprise(count, total) };
                used += 1;
            }
        }
        // The entropy of few values falls short of their law's by half a nat for each symbol but one, and
        // an estimate that follows them costs about as much again.
        bits += f64::from(used - 1) / std::f64::consts::LN_2;
    }
    f64::from(raw_bits) + bits / count as f64
}

/// The symbols of values without their raw bits; returns the bits behind escapes.
struct Symbols<'a> {
    values: &'a [f32],
    scale: f32,
    symbols: &'a mut [u8],
}

impl Kernel for Symbols<'_> {
    type Output = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        let mut escapes = 0;
        for (symbol, &value) in self.symbols.iter_mut().zip(self.values) {
            let level = (value * self.scale).round_ties_even();
            let near = level.abs() <= CENTRE as f32;
            escapes += u32::from(!near);
            *symbol = if near { (level as i32 + CENTRE as i32) as u8 } else { ESCAPE };
        }
        // A sign, the number of bits, and some twelve of those.
        19 * escapes
    }
}

/// Low bits that go raw: beyond a few dozen levels either side they are as good as random.
pub(super) fn raw_bits(mean_magnitude: f64) -> u32 {
    (mean_magnitude / 32.0).max(1.0).log2().ceil() as u32
}

/// Codes an integer of any size: its high part by what the tree has learnt, the rest as it is.
pub(super) fn put(encoder: &mut Encoder, tree: &mut Tree, integer: i64, raw_bits: u32) {
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

pub(super) fn get(decoder: &mut Decoder<'_>, tree: &mut Tree, raw_bits: u32) -> i64 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_numeric::random::Lcg;

    /// Laws whose coding an estimate has to tell: smooth, peaked, drifting, of few levels and of many.
    fn laws() -> Vec<(&'static str, Vec<f32>)> {
        let mut lcg = Lcg(9);
        let mut uniform = move || lcg.uniform();
        let mut gaussian = || (0..12).map(|_| uniform()).sum::<f32>() - 6.0;
        let count = 1 << 17;
        let smooth: Vec<f32> = (0..count).map(|_| gaussian() / 8.0).collect();
        let of =
            |law: &dyn Fn(usize, f32) -> f32| smooth.iter().enumerate().map(|(i, &v)| law(i, v)).collect();
        vec![
            ("peaked", of(&|_, v| 8.0 * v * v.abs())),
            ("drifting", of(&|i, v| v * (i as f32 / count as f32 * 5.0 - 5.0).exp())),
            ("alternating", of(&|i, v| if i / 4096 % 2 == 0 { v } else { v / 16.0 })),
            ("on a grid", of(&|_, v| (8.0 * v).round() / 8.0)),
            ("outliers", of(&|i, v| if i % 1000 == 0 { 0.9 } else { v / 50.0 })),
            ("smooth", smooth),
        ]
    }

    #[test]
    fn an_estimate_is_within_a_hundredth_of_the_bytes_and_the_step_within_that_of_the_error() {
        for (law, values) in laws() {
            let matrix = Matrix { rows: 256, cols: values.len() / 256, values };
            for knob in [2.0, 4.0, 6.0, 9.0] {
                let step = 2f64.powf(-knob);
                let bytes = Uniform.encode(&matrix, knob, 0).unwrap();
                let bits = 8.0 * bytes.len() as f64 / matrix.values.len() as f64;
                let estimate = estimated_bits(&[&matrix.values], step);
                let off = estimate - bits;
                // Never more, or a stream that takes more would be kept; less where a law changes at once, which
                // costs an attempt that is then compared by its bytes.
                let most = 0.01 * bits + 0.01;
                let least = if law == "alternating" { -0.2 * bits } else { -most };
                assert!((least..=most).contains(&off), "{law} at 2^-{knob}: {estimate} for {bits}");
                let decoded = Uniform.decode(&bytes, matrix.rows, matrix.cols).unwrap();
                let error = |values: &[f32]| -> f64 {
                    values.iter().zip(&matrix.values).map(|(a, b)| f64::from(a - b).powi(2)).sum()
                };
                let squared = error(&decoded);
                if ["smooth", "peaked", "drifting"].contains(&law) {
                    let found = trinity_numeric::simd::widest(Noise {
                        values: &matrix.values,
                        step: step_for(&[&matrix.values], squared),
                    });
                    assert!(
                        (found / squared - 1.0).abs() < 0.01,
                        "{law} at 2^-{knob}: {found} for {squared}"
                    );
                }
            }
        }
    }
}
