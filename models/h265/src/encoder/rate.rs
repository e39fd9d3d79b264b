//! Rate targets: finds the fractional QP that meets bits or error, by whole
//! encodes of all frames.

use std::convert::Infallible;

use crate::Error;
use crate::encoder::headers::{self, Sequence};
use crate::encoder::params::Params;
use crate::encoder::picture::{self, CodedPicture, PictureQp};
use crate::encoder::preset::Effort;
use trinity_bits::search::{self, Trial, Tried};
use trinity_bits::{Coded, Frame, Rate};
use trinity_numeric::threads;

/// Frames with everything decided but the QP.
pub struct Job<'a> {
    pub frames: &'a [Frame],
    pub params: &'a Params,
    pub sequence: Sequence,
    pub effort: Effort,
}

pub fn encode(job: &Job<'_>) -> Result<Coded, Error> {
    let depth = job.sequence.depth;
    if let Some(qp) = job.params.rate.picture_qp(depth)? {
        return Ok(at_qp(job, qp.into()));
    }
    let lowest = -6 * (depth as i32 - 8);
    match job.params.rate {
        Rate::Bits(bits) if bits > 0.0 && bits.is_finite() => Ok(search(job, lowest)),
        Rate::Mse(mse) if mse >= 0.0 && mse.is_finite() => Ok(search(job, lowest)),
        Rate::Bits(_) | Rate::Mse(_) => {
            Err(Error::BadInput { what: format!("{} is no target", job.params.rate) })
        }
        _ => Ok(at_qp(job, 0.0)),
    }
}

/// Within this many QP under the target an encode is good enough: 0.003 bit a
/// sample, or half a percent of the error.
const CLOSE: f64 = 0.02;

/// Whole encodes at most.
const MAX_RUNS: usize = 12;

/// Finds the QP by bracketing and interpolation. Always ends on an encode that
/// was really made, and never on one over the target when one under it was.
fn search(job: &Job<'_>, lowest: i32) -> Coded {
    let (low, high) = (f64::from(lowest), 51.0);
    let rate = job.params.rate;
    let first = match rate {
        // Half a bit above the entropy of uniform noise at this step.
        Rate::Bits(bits) => 4.0 + 6.0 * (5.3 - bits),
        Rate::Mse(mse) => 4.0 + 3.0 * (12.0 * mse.max(1e-6)).log2() + f64::from(lowest),
        _ => low,
    }
    .clamp(low, high);
    // By how much an encode misses its target, in QP: positive when it has too many bits or too much error. A bit is
    // six steps of QP, a factor of four in error is, too.
    let excess = |coded: &Coded| match rate {
        Rate::Bits(bits) => 6.0 * (coded.bits_per_sample(job.frames) - bits),
        Rate::Mse(mse) => 3.0 * (coded.mse.max(1e-9) / mse.max(1e-9)).log2(),
        _ => 0.0,
    };
    // Which way the QP must go when there is an excess.
    let direction = if matches!(rate, Rate::Bits(_)) { 1.0 } else { -1.0 };
    let attempt = |qp: f64| -> Result<_, Infallible> {
        let coded = at_qp(job, qp);
        let excess = excess(&coded);
        let over = excess > 0.0;
        Ok(Trial {
            cost: excess,
            over,
            close: (-CLOSE..=0.0).contains(&excess),
            rank: (over, excess.abs()),
            result: coded,
        })
    };
    let next = |tried: &Tried<f64>| {
        let (qp, excess) = tried.last;
        let next = match (tried.over, tried.under) {
            (Some((from, more)), Some((to, less))) => {
                let share = (more + CLOSE / 2.0) / (more - less);
                from + (to - from) * share.clamp(0.02, 0.98)
            }
            // Far from the target the step may be misjudged, not its direction.
            _ => qp + direction * (excess + 0.25 * excess.signum()),
        }
        .clamp(low, high);
        (PictureQp::from_fraction(next) != PictureQp::from_fraction(qp)).then_some(next)
    };
    let Ok(found) = search::search(first, MAX_RUNS, attempt, next);
    match found.best {
        Some(((false, _), coded)) => coded,
        // Only what misses the target was tried: the last QP decides whether any meets it.
        _ => at_qp(job, if direction > 0.0 { high } else { low }),
    }
}

/// Encodes all frames at one QP. Frames share the threads; what is left over
/// goes to wavefronts inside each.
fn at_qp(job: &Job<'_>, qp: f64) -> Coded {
    let threads = threads::granted(job.params.threads);
    let picture_qp = PictureQp::from_fraction(qp);
    let row_threads = (threads / job.frames.len()).max(1);
    let one = |frame: &Frame| {
        picture::encode(frame, &job.sequence, &job.effort, picture_qp, row_threads, job.params.picture_hash)
    };
    let coded: Vec<CodedPicture> =
        if threads == 1 { job.frames.iter().map(one).collect() } else { threads::map(job.frames, one) };

    let mut stream = Vec::new();
    headers::write_parameter_sets(&mut stream, &job.sequence);
    let samples: usize = job.frames.iter().map(Frame::samples).sum();
    let squared_error: u64 = coded.iter().map(|c| c.squared_error).sum();
    let mut recon = Vec::with_capacity(coded.len());
    for picture in coded {
        stream.extend_from_slice(&picture.bytes);
        recon.push(picture.recon);
    }
    let qp = f64::from(picture_qp.base) + f64::from(picture_qp.coarser) / 64.0;
    let mse = squared_error as f64 / samples as f64;
    Coded { stream, recon, qp, mse, lossless: job.sequence.lossless }
}
