//! Physical models of what was measured, with an error on every coefficient.
//!
//! One engine: `seconds a picture = fixed + (samplesᵒ + bitsᵒ)^(1/o)`, what the
//! engine does once, for all samples and for all coded bits. The exponent says
//! how far the last two overlap: 1, one after the other (the plain sum); 2 to
//! 4, in part; above, only the longer one shows.
//! Several: `n / (1 + contention · (n − 1))` engines' worth, up to the engines there are.

use crate::Error;
use crate::nvdec::Standard;
use crate::recording::{EnginePoint, Recording};
use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

/// Bit rates closer than this factor count as one when a fit is tried on what it has not seen.
const SAME_RATE: f64 = 1.2;

/// A value and its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Coefficient {
    pub value: f64,
    pub error: f64,
}

/// Throughput of NVDEC or NVENC for one standard (4:2:0, 8 bit).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineModel {
    pub standard: Standard,
    /// Once a picture.
    pub fixed_s: Coefficient,
    /// Luma samples a second were nothing else to do; 0 = costs nothing.
    pub seconds_per_value: Coefficient,
    /// Coded bits.
    pub seconds_per_bit: Coefficient,
    /// How far work on samples and work on bits overlap: 1 not at all, large entirely.
    pub overlap: f64,
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

impl EngineModel {
    /// Seconds one engine takes for a picture.
    pub fn picture_s(&self, values: f64, bits: f64) -> f64 {
        let coefficients = [self.fixed_s, self.seconds_per_value, self.seconds_per_bit];
        Engine { coefficients: coefficients.map(|c| c.value), overlap: self.overlap }.picture_s(values, bits)
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

/// NVDEC: every standard a recording has points for.
pub fn decode_models(recording: &Recording) -> Result<Vec<EngineModel>, Error> {
    engine_models(&recording.decode, recording.device.nvdec_engines, "decode")
}

/// NVENC: the same, and nothing where there is no encoder.
pub fn encode_models(recording: &Recording) -> Result<Vec<EngineModel>, Error> {
    engine_models(&recording.encode, recording.device.nvenc_engines, "encode")
}

fn engine_models(points: &[EnginePoint], engines: u32, what: &str) -> Result<Vec<EngineModel>, Error> {
    [Standard::H264, Standard::Hevc]
        .into_iter()
        .filter(|&s| points.iter().any(|p| p.standard == s && p.sessions == 1))
        .map(|standard| engine_model(points, engines, standard, what))
        .collect()
}

fn engine_model(
    points: &[EnginePoint],
    engines: u32,
    standard: Standard,
    what: &str,
) -> Result<EngineModel, Error> {
    let ours: Vec<&EnginePoint> =
        points.iter().filter(|p| p.standard == standard && p.chroma_idc == 1 && p.depth == 8).collect();
    let single: Vec<&EnginePoint> = ours.iter().copied().filter(|p| p.sessions == 1).collect();
    let what = format!("{} {what}", standard.name());
    let all = regress(&single, &what)?;
    let held_out: Vec<f64> = unseen(&single, &what)
        .into_iter()
        .map(|unseen| (unseen.predicted_s / unseen.point.seconds_per_picture.median - 1.0).abs())
        .collect();
    let errors: Vec<f64> = single.iter().map(|p| all.engine.residual(p).abs()).collect();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
    Ok(EngineModel {
        standard,
        fixed_s: all.coefficients[0],
        seconds_per_value: all.coefficients[1],
        seconds_per_bit: all.coefficients[2],
        overlap: all.engine.overlap,
        engines,
        contention: contention(&ours, engines),
        points: single.len(),
        mean_error: mean(&errors),
        held_out_points: held_out.len(),
        held_out_mean_error: mean(&held_out),
        held_out_worst_error: held_out.iter().copied().fold(0.0, f64::max),
    })
}

/// A point and what a fit that never saw its picture size or bit rate says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Unseen {
    pub point: EnginePoint,
    pub predicted_s: f64,
}

/// NVDEC, one session: each point predicted from those of another picture size
/// and another bit rate.
pub fn decode_unseen(recording: &Recording) -> Vec<Unseen> {
    let of = |standard: Standard| {
        let single: Vec<&EnginePoint> = recording
            .decode
            .iter()
            .filter(|p| p.standard == standard && p.chroma_idc == 1 && p.depth == 8 && p.sessions == 1)
            .collect();
        unseen(&single, standard.name())
    };
    [Standard::H264, Standard::Hevc].into_iter().flat_map(of).collect()
}

fn unseen(points: &[&EnginePoint], what: &str) -> Vec<Unseen> {
    let apart = |p: &EnginePoint, q: &EnginePoint| {
        let ratio = p.bits_per_value / q.bits_per_value;
        (p.width, p.height) != (q.width, q.height) && !(1.0 / SAME_RATE..SAME_RATE).contains(&ratio)
    };
    let predict = |point: &&EnginePoint| {
        let kept: Vec<&EnginePoint> = points.iter().copied().filter(|q| apart(point, q)).collect();
        let predicted_s = regress(&kept, what).ok()?.engine.picture_s(point.values(), point.bits());
        Some(Unseen { point: (*point).clone(), predicted_s })
    };
    points.iter().filter_map(predict).collect()
}

/// The law of one engine: fixed, per value, per bit, and how the last two overlap.
#[derive(Debug, Clone, Copy)]
struct Engine {
    coefficients: [f64; 3],
    overlap: f64,
}

impl Engine {
    fn picture_s(&self, values: f64, bits: f64) -> f64 {
        let [fixed, value, bit] = self.coefficients;
        fixed + norm(value * values, bit * bits, self.overlap)
    }

    /// Relative error at a point; a timing's noise grows with it.
    fn residual(&self, point: &EnginePoint) -> f64 {
        self.picture_s(point.values(), point.bits()) / point.seconds_per_picture.median - 1.0
    }

    fn loss(&self, points: &[&EnginePoint]) -> f64 {
        points.iter().map(|p| self.residual(p).powi(2)).sum()
    }

    /// The residual's derivative by each coefficient.
    fn slope(&self, point: &EnginePoint) -> [f64; 3] {
        let seconds = point.seconds_per_picture.median;
        let (v, b) = (point.values(), point.bits());
        let terms = [self.coefficients[1] * v, self.coefficients[2] * b];
        let whole = norm(terms[0], terms[1], self.overlap);
        let share = |term: f64| if whole > 0.0 { (term / whole).powf(self.overlap - 1.0) } else { 1.0 };
        [1.0 / seconds, share(terms[0]) * v / seconds, share(terms[1]) * b / seconds]
    }
}

/// `(aᵒ + bᵒ)^(1/o)` of two terms that are not negative, without overflow.
fn norm(a: f64, b: f64, o: f64) -> f64 {
    let (large, small) = (a.max(b), a.min(b));
    if large <= 0.0 { 0.0 } else { large * (1.0 + (small / large).powf(o)).powf(1.0 / o) }
}

/// Overlaps tried beside the plain sum; between them the loss is flat.
const OVERLAPS: [f64; 5] = [1.5, 2.0, 3.0, 4.0, 6.0];

struct Regression {
    engine: Engine,
    coefficients: [Coefficient; 3],
}

/// The overlap whose best coefficients leave the least.
fn regress(points: &[&EnginePoint], what: &str) -> Result<Regression, Error> {
    // The plain sum is linear and needs no start; each further overlap starts where the last one ended.
    let mut best = least_squares(points, Engine { coefficients: [0.0; 3], overlap: 1.0 }, what)?;
    let mut start = best.engine.coefficients;
    for overlap in OVERLAPS {
        // Points that one term explains alone cannot tell overlaps apart: the simpler law stays.
        let Ok(tried) = least_squares(points, Engine { coefficients: start, overlap }, what) else {
            continue;
        };
        start = tried.engine.coefficients;
        // A clear gain only: with few rates every overlap fits, and the simpler law extrapolates better.
        if tried.engine.loss(points) < 0.8 * best.engine.loss(points) - 1e-12 {
            best = tried;
        }
    }
    Ok(best)
}

/// Gauss–Newton on relative errors, with no coefficient below zero: time cannot
/// be given back. A term whose step leads below zero is dropped.
fn least_squares(points: &[&EnginePoint], mut engine: Engine, what: &str) -> Result<Regression, Error> {
    let fit_error = |reason: String| Error::Fit { what: what.into(), reason };
    let mut active = vec![0usize, 1, 2];
    for _ in 0..100 {
        if points.len() <= active.len() {
            return Err(fit_error(format!("{} points for {} coefficients", points.len(), active.len())));
        }
        let slopes: Vec<[f64; 3]> = points.iter().map(|p| engine.slope(p)).collect();
        // Columns differ by nine orders of magnitude: scale them before inverting.
        let scale: Vec<f64> = active
            .iter()
            .map(|&c| slopes.iter().map(|s| s[c].abs()).fold(f64::MIN_POSITIVE, f64::max))
            .collect();
        let design = DMatrix::from_fn(points.len(), active.len(), |r, c| slopes[r][active[c]] / scale[c]);
        let target = DVector::from_iterator(points.len(), points.iter().map(|p| -engine.residual(p)));
        let inverse = (design.transpose() * &design).try_inverse().ok_or_else(|| {
            fit_error("the points do not tell the terms apart: vary picture size and bit rate".into())
        })?;
        let step = &inverse * design.transpose() * &target;
        let before = engine;
        // A step that makes things worse is halved; at the optimum, none makes them better.
        let least = before.loss(points);
        for halvings in 0..30 {
            engine = before;
            for (i, &c) in active.iter().enumerate() {
                engine.coefficients[c] += 0.5f64.powi(halvings) * step[i] / scale[i];
            }
            if engine.coefficients.iter().all(|&c| c >= 0.0) && engine.loss(points) > least {
                continue;
            }
            break;
        }
        let negative = active
            .iter()
            .copied()
            .filter(|&c| engine.coefficients[c] < 0.0)
            .min_by(|&a, &b| engine.coefficients[a].total_cmp(&engine.coefficients[b]));
        if let Some(worst) = negative {
            active.retain(|&c| c != worst);
            engine = before;
            engine.coefficients[worst] = 0.0;
            continue;
        }
        if step.amax() < 1e-7 {
            let variance = engine.loss(points) / (points.len() - active.len()) as f64;
            let mut coefficients = [Coefficient { value: 0.0, error: 0.0 }; 3];
            for (i, &c) in active.iter().enumerate() {
                coefficients[c] = Coefficient {
                    value: engine.coefficients[c],
                    error: (variance * inverse[(i, i)]).sqrt() / scale[i],
                };
            }
            return Ok(Regression { engine, coefficients });
        }
    }
    Err(fit_error("did not settle in a hundred steps".into()))
}

/// Contention out of points that differ only in sessions: `1/s − 1/n` is
/// linear in it, where s is the speed-up of n sessions.
fn contention(points: &[&EnginePoint], engines: u32) -> Coefficient {
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
        overlapped(Engine { coefficients: [fixed, per_value, per_bit], overlap: 1.0 }, contention)
    }

    fn overlapped(engine: Engine, contention: f64) -> Recording {
        let mut decode = Vec::new();
        for (w, h) in [(256u32, 256u32), (512, 512), (1024, 1024), (1920, 1080), (3840, 2160)] {
            for bits_per_value in [0.7, 1.5, 2.9, 4.0, 5.5] {
                for sessions in [1u32, 4, 7] {
                    let values = f64::from(w) * f64::from(h);
                    let one = engine.picture_s(values, values * bits_per_value);
                    let n = f64::from(sessions);
                    let seconds = one * (1.0 + contention * (n - 1.0)) / n;
                    decode.push(EnginePoint {
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
            device: Device { gpu: "made up".into(), nvdec_engines: 7, ..Device::default() },
            decode,
            ..Recording::default()
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
        assert!(model.held_out_worst_error < 1e-6 && model.held_out_points == 25, "{model:?}");
    }

    #[test]
    fn a_fit_finds_that_work_on_samples_and_bits_overlaps() {
        let truth = Engine { coefficients: [80e-6, 0.7e-9, 0.6e-9], overlap: 4.0 };
        let model = &decode_models(&overlapped(truth, 0.0)).unwrap()[0];
        assert_eq!(model.overlap, 4.0);
        assert!((model.seconds_per_bit.value / 0.6e-9 - 1.0).abs() < 1e-6);
        assert!(model.held_out_worst_error < 1e-6, "{model:?}");
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
