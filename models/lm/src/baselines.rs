//! Post-training quantizers that codecs are held against, written from their
//! papers: GPTQ and AWQ with groups of 128, NF4, NVFP4, and GGUF's K-quants.
//!
//! Each replaces a weight by what its format holds and answers the bits of
//! that format, scales and zero points included.

mod k_quants;

use crate::calibrate::InputMoments;
use k_quants::{KQuant, as_f16};
use nalgebra::DMatrix;
use trinity_tensor::codec::{NF4_BLOCK, NF4_LEVELS};

/// Values that share a scale in GPTQ and AWQ.
const GROUP: usize = 128;

/// A quantizer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// Frantar et al. 2023: columns in turn, each error spread over those after it.
    Gptq { width: u32 },
    /// Lin et al. 2024: salient channels scaled up by a power of their activations.
    Awq { width: u32 },
    /// Dettmers et al. 2023: 16 quantiles of a normal distribution, blocks of 64.
    Nf4,
    /// NVIDIA 2025: E2M1 under an E4M3 scale for 16 values and an f32 for all.
    Nvfp4,
    /// llama.cpp's, as GGUF files have them.
    KQuant(KQuant),
}

impl Baseline {
    /// The quantizer of that name at so many bits, if there is one.
    pub fn find(name: &str, bits: f64) -> Option<Result<Self, String>> {
        let whole = || {
            let ok = bits.fract() == 0.0 && (2.0..=8.0).contains(&bits);
            if ok { Ok(bits as u32) } else { Err(format!("{name} has whole bits from 2 to 8, not {bits}")) }
        };
        Some(match name {
            "gptq-128g" => whole().map(|width| Self::Gptq { width }),
            "awq-128g" => whole().map(|width| Self::Awq { width }),
            "nf4" => Ok(Self::Nf4),
            "nvfp4" => Ok(Self::Nvfp4),
            "q2_k" => Ok(Self::KQuant(KQuant::Q2)),
            "q3_k" => Ok(Self::KQuant(KQuant::Q3)),
            "q4_k" => Ok(Self::KQuant(KQuant::Q4)),
            _ => return None,
        })
    }

    /// Whether the rate is the format's own, whatever is asked for.
    pub fn has_one_rate(self) -> bool {
        matches!(self, Self::Nf4 | Self::Nvfp4 | Self::KQuant(_))
    }

    /// Whether it cannot do without moments of the input.
    pub fn needs_moments(self) -> bool {
        matches!(self, Self::Gptq { .. } | Self::Awq { .. })
    }

    /// Quantizes rows of `cols` values in place; answers the bits they take.
    pub fn apply(
        self,
        cols: usize,
        values: &mut [f32],
        moments: Option<InputMoments<'_>>,
    ) -> Result<u64, String> {
        match (self, moments) {
            (Self::Gptq { width }, Some(moments)) => gptq(width, cols, values, moments),
            (Self::Awq { width }, Some(moments)) => Ok(awq(width, cols, values, moments)),
            (Self::Nf4, _) => Ok(nf4(values)),
            (Self::Nvfp4, _) => Ok(nvfp4(values)),
            (Self::KQuant(format), _) => Ok(format.apply(values)),
            _ => Err("it needs a text to calibrate on; give one with --calibrate".into()),
        }
    }
}

/// Scale and zero point of a group: asymmetric, from least to largest.
#[derive(Clone, Copy)]
struct Grid {
    scale: f32,
    zero: f32,
    top: f32,
}

impl Grid {
    fn of(values: impl Iterator<Item = f32>, width: u32) -> Self {
        let (low, high) = values.fold((0.0f32, 0.0f32), |(low, high), v| (low.min(v), high.max(v)));
        let top = ((1u32 << width) - 1) as f32;
        let scale = as_f16((high - low) / top).max(f32::MIN_POSITIVE);
        Self { scale, zero: (-low / scale).round().clamp(0.0, top), top }
    }

    fn round(self, value: f32) -> f32 {
        ((value / self.scale + self.zero).round().clamp(0.0, self.top) - self.zero) * self.scale
    }
}

/// Bits of integers with an f16 scale and a zero point for every group.
fn grouped_bits(width: u32, cols: usize, count: usize) -> u64 {
    let groups = count / cols.max(1) * cols.div_ceil(GROUP);
    count as u64 * u64::from(width) + groups as u64 * (16 + u64::from(width))
}

fn round_groups(width: u32, cols: usize, values: &mut [f32]) {
    for row in values.chunks_mut(cols) {
        for group in row.chunks_mut(GROUP) {
            let grid = Grid::of(group.iter().copied(), width);
            group.iter_mut().for_each(|v| *v = grid.round(*v));
        }
    }
}

fn gptq(width: u32, cols: usize, values: &mut [f32], moments: InputMoments<'_>) -> Result<u64, String> {
    let n = moments.inputs();
    let mean = (0..n).map(|i| f64::from(moments.values()[i * (n + 1)])).sum::<f64>() / n.max(1) as f64;
    let damped = DMatrix::from_fn(n, n, |i, j| {
        f64::from(moments.values()[i * n + j]) + if i == j { 0.01 * mean } else { 0.0 }
    });
    // The upper Cholesky factor of the inverse, as the paper's algorithm has it.
    let inverse = damped.cholesky().ok_or("its moments have no inverse")?.inverse();
    let upper = inverse.cholesky().ok_or("its moments have no inverse")?.l().transpose();
    let upper: Vec<f32> = (0..n * n).map(|i| upper[(i / n, i % n)] as f32).collect();
    for row in values.chunks_exact_mut(cols) {
        let mut grid = Grid { scale: 1.0, zero: 0.0, top: 1.0 };
        for j in 0..cols {
            if j % GROUP == 0 {
                // From the weights as they are by now.
                grid = Grid::of(row[j..(j + GROUP).min(cols)].iter().copied(), width);
            }
            let rounded = grid.round(row[j]);
            let error = (row[j] - rounded) / upper[j * n + j];
            row[j] = rounded;
            let shares = &upper[j * n..][j + 1..n];
            row[j + 1..].iter_mut().zip(shares).for_each(|(v, share)| *v -= error * share);
        }
    }
    Ok(grouped_bits(width, cols, values.len()))
}

/// Exponents that AWQ tries, from none to all of the activations' size.
const AWQ_STEPS: usize = 20;

fn awq(width: u32, cols: usize, values: &mut [f32], moments: InputMoments<'_>) -> u64 {
    let n = moments.inputs();
    let sizes: Vec<f32> = (0..n).map(|i| moments.values()[i * (n + 1)].max(1e-12).sqrt()).collect();
    let mut best: Option<(f64, Vec<f32>)> = None;
    for step in 0..AWQ_STEPS {
        let exponent = step as f32 / AWQ_STEPS as f32;
        let mut scales: Vec<f32> = sizes.iter().map(|s| s.powf(exponent).max(1e-4)).collect();
        let bounds = scales.iter().fold((f32::MAX, 0f32), |(low, high), s| (low.min(*s), high.max(*s)));
        let middle = (bounds.0 * bounds.1).sqrt();
        scales.iter_mut().for_each(|s| *s /= middle);
        let mut tried = values.to_vec();
        let times = |values: &mut [f32], of: fn(f32, f32) -> f32| {
            values.chunks_exact_mut(cols).for_each(|row| {
                row.iter_mut().zip(&scales).for_each(|(v, s)| *v = of(*v, *s));
            });
        };
        times(&mut tried, |v, s| v * s);
        round_groups(width, cols, &mut tried);
        times(&mut tried, |v, s| v / s);
        let errors: Vec<f32> = tried.iter().zip(&*values).map(|(a, b)| a - b).collect();
        let error = moments.output_error(&errors);
        if best.as_ref().is_none_or(|(least, _)| error < *least) {
            best = Some((error, tried));
        }
    }
    if let Some((_, found)) = best {
        values.copy_from_slice(&found);
    }
    grouped_bits(width, cols, values.len())
}

fn nearest(levels: &[f32], value: f32) -> f32 {
    levels.iter().copied().min_by(|a, b| (a - value).abs().total_cmp(&(b - value).abs())).unwrap_or(0.0)
}

fn nf4(values: &mut [f32]) -> u64 {
    let mut bits = 0;
    for block in values.chunks_mut(NF4_BLOCK) {
        let top = as_f16(block.iter().fold(0f32, |m, v| m.max(v.abs())));
        block
            .iter_mut()
            .for_each(|v| *v = if top > 0.0 { nearest(&NF4_LEVELS, *v / top) * top } else { 0.0 });
        bits += 4 * block.len() as u64 + 16;
    }
    bits
}

/// Magnitudes of E2M1 (OCP Microscaling 1.0).
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
const NVFP4_BLOCK: usize = 16;
const LARGEST_E4M3: f32 = 448.0;

fn nvfp4(values: &mut [f32]) -> u64 {
    let top = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    if top == 0.0 {
        return 32;
    }
    // One f32 brings the largest block scale to the largest E4M3.
    let whole = top / (6.0 * LARGEST_E4M3);
    let mut bits = 32;
    for block in values.chunks_mut(NVFP4_BLOCK) {
        let own = block.iter().fold(0f32, |m, v| m.max(v.abs())) / 6.0 / whole;
        let mut bytes = Vec::new();
        trinity_tensor::Dtype::F8e4m3.extend_from_f32(&[own], &mut bytes);
        let mut stored = [0.0];
        trinity_tensor::Dtype::F8e4m3.to_f32(&bytes, &mut stored);
        let scale = stored[0] * whole;
        let round =
            |v: f32| if scale > 0.0 { nearest(&E2M1, v.abs() / scale).copysign(v) * scale } else { 0.0 };
        block.iter_mut().for_each(|v| *v = round(*v));
        bits += 4 * block.len() as u64 + 8;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(count: usize) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * 1.7).sin() + 0.3 * (i as f32 * 0.31).cos()).collect()
    }

    #[test]
    fn number_formats_take_what_they_say_and_come_close() {
        for (baseline, bits, most) in [(Baseline::Nf4, 4.25, 0.02), (Baseline::Nvfp4, 4.5, 0.02)] {
            let original = wave(4096);
            let mut coded = original.clone();
            let spent = baseline.apply(64, &mut coded, None).unwrap();
            assert!((spent as f64 / 4096.0 - bits).abs() < 0.01, "{baseline:?}");
            let error: f32 = original.iter().zip(&coded).map(|(a, b)| (a - b).powi(2)).sum();
            let energy: f32 = original.iter().map(|a| a * a).sum();
            assert!(error / energy < most, "{baseline:?}: {}", error / energy);
        }
        assert!(Baseline::Gptq { width: 4 }.apply(64, &mut wave(128), None).is_err());
        assert!(matches!(Baseline::find("gptq-128g", 3.5), Some(Err(_))));
        assert!(Baseline::find("h265", 3.0).is_none());
    }
}
