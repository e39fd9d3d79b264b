//! `--verify`: streams of ours on NVDEC, every sample compared with our reconstruction.

use crate::Error;
use crate::gpu::Gpu;
use crate::nvdec::{Session, Standard};
use crate::recording::VerifySummary;
use crate::streams::{self, DEEPER, Encoder, Spec};
use rayon::prelude::*;
use trinity_bits::{Chroma, Frame};

/// The grid: both standards, every format NVDEC may take, many sizes and QPs.
pub fn grid() -> Vec<Spec> {
    let sizes = [(144, 144), (160, 152), (256, 192), (333, 217), (512, 512), (1000, 700), (1024, 1024)];
    let mut specs = Vec::new();
    for (width, height) in sizes {
        for qp in [1, 6, 12, 18, 24, 30, 38, 48] {
            let spec =
                |standard, chroma, depth| Spec { standard, chroma, depth, width, height, qp, pictures: 1 };
            specs.push(spec(Standard::H264, Chroma::C420, 8));
            specs.push(spec(Standard::Hevc, Chroma::C420, 8));
            if qp % 12 == 6 || qp == 48 {
                for (chroma, depth) in DEEPER {
                    specs.push(spec(Standard::Hevc, chroma, depth));
                }
            }
        }
    }
    specs
}

enum Verdict {
    Equal,
    Refused,
    Differs(String),
}

/// Runs the grid, a stream a thread: opening a session takes the driver longer than decoding. Kinds the hardware
/// refuses are counted apart; a difference is named, not hidden, and it is the first in the grid's order.
pub fn run(
    specs: &[Spec],
    encoder: &Encoder<'_>,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<VerifySummary, Error> {
    let gpu = Gpu::open(0)?;
    let cuvid = gpu.cuvid()?;
    let judged: Vec<Result<Verdict, Error>> = specs
        .par_iter()
        .enumerate()
        .map(|(seed, &spec)| {
            let stream = streams::make(spec, seed as u64, encoder)?;
            progress(&describe(&spec));
            // A session a stream: a decoder must start from nothing, as a user's would.
            match Session::new(&gpu, &cuvid, spec.standard)?.decode_to_frames(&stream.bytes) {
                Ok(frames) => Ok(first_difference(&stream.reconstruction, &frames)
                    .map_or(Verdict::Equal, Verdict::Differs)),
                Err(Error::Unsupported { .. }) => Ok(Verdict::Refused),
                Err(error) if error.is_fatal() => Err(error),
                Err(error) => Ok(Verdict::Differs(error.to_string())),
            }
        })
        .collect();
    let mut summary =
        VerifySummary { streams: specs.len() as u32, equal: 0, refused: 0, first_difference: None };
    for (spec, verdict) in specs.iter().zip(judged) {
        match verdict? {
            Verdict::Equal => summary.equal += 1,
            Verdict::Refused => summary.refused += 1,
            Verdict::Differs(difference) => {
                summary.first_difference.get_or_insert(format!("{}: {difference}", describe(spec)));
            }
        }
    }
    Ok(summary)
}

fn describe(spec: &Spec) -> String {
    let Spec { standard, chroma, depth, width, height, qp, .. } = spec;
    format!("{} {chroma:?} {depth} bit {width}×{height} QP {qp}", standard.name())
}

pub fn first_difference(ours: &[Frame], theirs: &[Frame]) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("{} pictures expected, {} decoded", ours.len(), theirs.len()));
    }
    ours.iter().zip(theirs).enumerate().find_map(|(n, (a, b))| {
        let ((width, height), found) = ((a.width(), a.height()), (b.width(), b.height()));
        if (width, height) != found {
            return Some(format!("picture {n}: {width}×{height} expected, {}×{} decoded", found.0, found.1));
        }
        a.planes.iter().zip(&b.planes).enumerate().find_map(|(c, (p, q))| {
            let at = p.samples.iter().zip(&q.samples).position(|(x, y)| x != y)?;
            let (x, y) = (at % p.width, at / p.width);
            let (ours, theirs) = (p.samples[at], q.samples[at]);
            Some(format!("picture {n} plane {c} at ({x}, {y}): {ours} expected, {theirs} decoded"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_at_least_150_streams_of_both_standards() {
        let specs = grid();
        assert!(specs.len() >= 150, "{}", specs.len());
        assert!(specs.iter().filter(|s| s.standard == Standard::H264).count() >= 50);
    }

    #[test]
    fn one_wrong_sample_is_found_and_placed() {
        let a = Frame::filled(8, 4, Chroma::C420, 8, 128);
        let mut b = a.clone();
        assert_eq!(first_difference(std::slice::from_ref(&a), std::slice::from_ref(&b)), None);
        b.planes[1].samples[5] = 127;
        let found = first_difference(&[a], &[b]).unwrap();
        assert!(found.contains("plane 1 at (1, 1)"), "{found}");
    }
}
