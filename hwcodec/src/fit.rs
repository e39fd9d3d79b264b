//! Physical models of what was measured, with an error on every coefficient.
//!
//! One engine: `seconds a picture = fixed + values / value rate + bits / bit rate`
//! (what the engine does once, for each sample, and for each coded bit).
//! Several: `n / (1 + contention · (n − 1))` engines' worth, up to the engines there are.

use crate::Error;
use crate::nvdec::Standard;
use crate::recording::{DecodePoint, Recording};
use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

/// A value and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Coefficient {
    pub value: f64,
    pub error: f64,
}

/// Decode throughput of one standard (4:2:0, 8 bit).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecodeModel {
    pub standard: Standard,
    /// Once a picture.
    pub fixed_s: Coefficient,
    /// Luma samples a second were nothing else to do; 0 = costs nothing.
    pub seconds_per_value: Coefficient,
    /// Coded bits.
    pub seconds_per_bit: Coefficient,
    pub engines: u32,
    /// Share of one engine each further engine costs the others.
    pub contention: Coefficient,
    /// Points fitted on, and the mean absolute error on them.
    pub points: usize,
    pub mean_error: f64,
    /// Mean and worst absolute error at picture sizes and bit rates left out of the fit.
    pub held_out_points: usize,
    pub held_out_mean_error: f64,
    pub held_out_worst_error: f64,
}

impl DecodeModel {
    /// Seconds one engine takes for a picture.
    pub fn picture_s(&self, values: f64, bits: f64) -> f64 {
        self.fixed_s.value + values * self.seconds_per_value.value + bits * self.seconds_per_bit.value
    }

    /// Values a second with `sessions` running.
    pub fn values_per_s(&self, values: f64, bits: f64, sessions: u32) -> f64 {
        let n = f64::from(sessions.min(self.engines).max(1));
        values / self.picture_s(values, bits) * n / (1.0 + self.contention.value * (n - 1.0))
    }

    /// What bounds a picture: the largest of the three terms.
    pub fn bound_by(&self, values: f64, bits: f64) -> &'static str {
        let terms = [
            (self.fixed_s.value, "the fixed cost of a picture (host and start-up)"),
            (values * self.seconds_per_value.value, "samples"),
            (bits * self.seconds_per_bit.value, "coded bits"),
        ];
        terms.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("nothing", |t| t.1)
    }
}

/// Fits every standard a recording has points for.
pub fn decode_models(recording: &Recording) -> Result<Vec<DecodeModel>, Error> {
    [Standard::H264, Standard::Hevc]
        .into_iter()
        .filter(|&s| recording.decode.iter().any(|p| p.standard == s && p.sessions == 1))
        .map(|standard| decode_model(recording, standard))
        .collect()
}

fn decode_model(recording: &Recording, standard: Standard) -> Result<DecodeModel, Error> {
    let ours: Vec<&DecodePoint> = recording
        .decode
        .iter()
        .filter(|p| p.standard == standard && p.chroma_idc == 1 && p.depth == 8)
        .collect();
    let single: Vec<&DecodePoint> = ours.iter().copied().filter(|p| p.sessions == 1).collect();
    let what = format!("{} decode", standard.name());
    let all = regress(&single, &what)?;
    // Held out: every picture size in turn, predicted from the others.
    let mut sizes: Vec<(u32, u32)> = single.iter().map(|p| (p.width, p.height)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut held_out = Vec::new();
    for &size in &sizes {
        let (out, kept): (Vec<&DecodePoint>, Vec<&DecodePoint>) =
            single.iter().partition(|p| (p.width, p.height) == size);
        if let Ok(fit) = regress(&kept, &what) {
            held_out.extend(out.iter().map(|p| fit.error_at(p)));
        }
    }
    let errors: Vec<f64> = single.iter().map(|p| all.error_at(p)).collect();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    Ok(DecodeModel {
        standard,
        fixed_s: all.coefficients[0],
        seconds_per_value: all.coefficients[1],
        seconds_per_bit: all.coefficients[2],
        engines: recording.device.nvdec_engines,
        contention: contention(&ours, recording.device.nvdec_engines),
        points: single.len(),
        mean_error: mean(&errors),
        held_out_points: held_out.len(),
        held_out_mean_error: mean(&held_out),
        held_out_worst_error: held_out.iter().copied().fold(0.0, f64::max),
    })
}

struct Regression {
    coefficients: [Coefficient; 3],
}

impl Regression {
    fn error_at(&self, point: &DecodePoint) -> f64 {
        let [fixed, value, bit] = self.coefficients.map(|c| c.value);
        let predicted = fixed + point.values() * value + point.bits() * bit;
        (predicted / point.seconds_per_picture.median - 1.0).abs()
    }
}

/// Least squares on relative errors (a timing's noise grows with it), with no
/// coefficient below zero: time cannot be given back. Terms that would be
/// negative are dropped and the rest fitted again.
fn regress(points: &[&DecodePoint], what: &str) -> Result<Regression, Error> {
    let mut active = vec![0usize, 1, 2];
    loop {
        if points.len() <= active.len() {
            return Err(Error::Fit {
                what: what.into(),
                reason: format!("{} points for {} coefficients", points.len(), active.len()),
            });
        }
        let row = |p: &DecodePoint| {
            let seconds = p.seconds_per_picture.median;
            [1.0 / seconds, p.values() / seconds, p.bits() / seconds]
        };
        // Columns differ by nine orders of magnitude: scale them before inverting.
        let scale: Vec<f64> = active
            .iter()
            .map(|&c| points.iter().map(|p| row(p)[c].abs()).fold(f64::MIN_POSITIVE, f64::max))
            .collect();
        let design =
            DMatrix::from_fn(points.len(), active.len(), |r, c| row(points[r])[active[c]] / scale[c]);
        let target = DVector::from_element(points.len(), 1.0);
        let normal = design.transpose() * &design;
        let inverse = normal.try_inverse().ok_or_else(|| Error::Fit {
            what: what.into(),
            reason: "the points do not tell the terms apart: vary picture size and bit rate".into(),
        })?;
        let solution = &inverse * design.transpose() * &target;
        let negative = (0..active.len())
            .filter(|&i| solution[i] < 0.0)
            .min_by(|&a, &b| solution[a].total_cmp(&solution[b]));
        if let Some(worst) = negative {
            active.remove(worst);
            continue;
        }
        let residual = (&design * &solution - &target).norm_squared();
        let variance = residual / (points.len() - active.len()) as f64;
        let mut coefficients = [Coefficient { value: 0.0, error: 0.0 }; 3];
        for (i, &c) in active.iter().enumerate() {
            coefficients[c] = Coefficient {
                value: solution[i] / scale[i],
                error: (variance * inverse[(i, i)]).sqrt() / scale[i],
            };
        }
        return Ok(Regression { coefficients });
    }
}

/// Contention out of points that differ only in sessions: `1/s − 1/n` is
/// linear in it, where s is the speed-up of n sessions.
fn contention(points: &[&DecodePoint], engines: u32) -> Coefficient {
    let mut estimates = Vec::new();
    for point in points.iter().filter(|p| p.sessions > 1 && p.sessions <= engines) {
        let alone = points.iter().find(|p| {
            p.sessions == 1
                && (p.width, p.height) == (point.width, point.height)
                && (p.bits_per_value - point.bits_per_value).abs() < 1e-9
        });
        if let Some(alone) = alone {
            let n = f64::from(point.sessions);
            let speed_up = alone.seconds_per_picture.median / point.seconds_per_picture.median;
            estimates.push((n / speed_up - 1.0) / (n - 1.0));
        }
    }
    if estimates.is_empty() {
        return Coefficient { value: 0.0, error: 0.0 };
    }
    let n = estimates.len() as f64;
    let mean = estimates.iter().sum::<f64>() / n;
    let variance = estimates.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    Coefficient { value: mean.max(0.0), error: (variance / n).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Device;
    use crate::stats::Spread;

    fn synthetic(fixed: f64, per_value: f64, per_bit: f64, contention: f64) -> Recording {
        let mut decode = Vec::new();
        for (w, h) in [(256u32, 256u32), (512, 512), (1024, 1024), (1920, 1080), (3840, 2160)] {
            for bits_per_value in [1.0, 2.9, 5.0] {
                for sessions in [1u32, 4, 7] {
                    let values = f64::from(w) * f64::from(h);
                    let one = fixed + values * per_value + values * bits_per_value * per_bit;
                    let n = f64::from(sessions);
                    let seconds = one * (1.0 + contention * (n - 1.0)) / n;
                    decode.push(DecodePoint {
                        standard: Standard::Hevc,
                        chroma_idc: 1,
                        depth: 8,
                        width: w,
                        height: h,
                        bits_per_value,
                        sessions,
                        pictures: 8,
                        seconds_per_picture: Spread { median: seconds, low: seconds, high: seconds, n: 5 },
                        host_seconds_per_picture: 0.0,
                        power: None,
                    });
                }
            }
        }
        Recording {
            format: crate::recording::FORMAT,
            device: Device {
                gpu: "made up".into(),
                driver: "1".into(),
                cuda: "13.0".into(),
                date: "2026-01-01".into(),
                nvdec_engines: 7,
                nvenc_engines: 0,
                memory_mib: 1,
                host_threads: 1,
                idle: None,
            },
            decode,
            encode: vec![],
            copies: vec![],
            gemm: vec![],
            overlap: vec![],
            energy: vec![],
            delta: vec![],
            wires: vec![],
            verify: None,
            left_out: vec![],
        }
    }

    #[test]
    fn a_fit_finds_the_constants_the_points_were_made_with() {
        let models = decode_models(&synthetic(50e-6, 1.2e-9, 0.4e-9, 0.03)).unwrap();
        let model = &models[0];
        assert!((model.fixed_s.value / 50e-6 - 1.0).abs() < 1e-6);
        assert!((model.seconds_per_value.value / 1.2e-9 - 1.0).abs() < 1e-6);
        assert!((model.seconds_per_bit.value / 0.4e-9 - 1.0).abs() < 1e-6);
        assert!((model.contention.value - 0.03).abs() < 1e-9);
        assert!(model.held_out_worst_error < 1e-6 && model.held_out_points == 15);
    }

    #[test]
    fn a_term_that_costs_nothing_is_zero_not_negative() {
        let models = decode_models(&synthetic(0.0, 0.0, 0.5e-9, 0.0)).unwrap();
        assert!(models[0].seconds_per_value.value >= 0.0 && models[0].seconds_per_value.value < 1e-15);
        assert_eq!(models[0].bound_by(1e6, 3e6), "coded bits");
    }

    #[test]
    fn too_few_points_are_an_error_that_says_so() {
        let mut recording = synthetic(1e-6, 1e-9, 1e-9, 0.0);
        recording.decode.truncate(2);
        assert!(matches!(decode_models(&recording), Err(Error::Fit { .. })));
    }

    #[test]
    fn recordings_replay_exactly() {
        let recording = synthetic(1e-6, 1e-9, 1e-9, 0.1);
        let replayed = Recording::parse(&recording.to_json().unwrap()).unwrap();
        assert!(replayed == recording, "JSON does not keep every bit of a recording");
        assert!(Recording::parse("{}").is_err());
    }
}
