//! Encode throughput on GPUs that have NVENC: by standard, picture size, QP and sessions.

use super::bench::{Bench, TYPICAL_QP};
use super::decode::{pictures_a_repeat, point, settings};
use super::pool::{Lane, throughput, with_pool};
use crate::nvdec::Standard;
use crate::nvenc::{Session, Settings};
use crate::recording::{EnginePoint, LeftOut, Recording};
use crate::streams::{self, Spec};
use crate::{Error, discover};
use trinity_bits::{Chroma, Frame};

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    // A GPU without the engine answers here, in a sentence.
    drop(discover::open_encoder(bench.gpu)?);
    for (spec, sessions) in plan(bench.plan.quick, recording.device.nvenc_engines.max(1)) {
        let what = format!("encode {} {}×{}, QP {}", spec.standard.name(), spec.width, spec.height, spec.qp);
        (bench.progress)(&what);
        let frames = streams::weight_like(&spec, 1);
        let open = || discover::open_encoder(bench.gpu);
        for count in sessions {
            match measure(&open, settings(&spec), &frames, count, bench.plan.repeats) {
                Ok(mut point) => {
                    point.power = bench.power();
                    recording.encode.push(point);
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => recording.left_out.push(LeftOut::new(&what, &error)),
            }
        }
    }
    Ok(())
}

/// Which frames, and with how many sessions each; as for decoding, fewer sizes.
fn plan(quick: bool, engines: u32) -> Vec<(Spec, Vec<u32>)> {
    let mut points = Vec::new();
    for standard in [Standard::H264, Standard::Hevc] {
        let spec = |size, qp| Spec::plain(standard, size, qp);
        points.push((spec((1024, 1024), TYPICAL_QP), (1..=engines + 1).collect()));
        points.push((spec((3840, 2160), TYPICAL_QP), vec![1, engines]));
        if quick {
            continue;
        }
        for size in [(512, 512), (1024, 1024), (1920, 1080), (3840, 2160)] {
            for qp in [8, 32] {
                points.push((spec(size, qp), vec![1]));
            }
        }
    }
    points
}

/// Encodes `frames` over and over on `sessions` threads, each with a session `open` gives it.
pub fn measure(
    open: &(dyn Fn() -> Result<Session, Error> + Sync),
    settings: Settings,
    frames: &[Frame],
    sessions: u32,
    repeats: usize,
) -> Result<EnginePoint, Error> {
    let values = f64::from(settings.width) * f64::from(settings.height);
    let mut coded_bytes = 0;
    let mut first = open()?;
    first.start(settings)?;
    first.encode_each(frames, |piece| coded_bytes += piece.len())?;
    drop(first);
    let count = pictures_a_repeat(values as usize, frames.len().max(1));
    let open = || lane(open()?, settings, frames);
    let timed = with_pool(sessions, &open, |pool| throughput(pool, count, repeats, || ()))?;
    let planes = if settings.chroma == Chroma::C444 { 3.0 } else { 1.0 };
    let bits_per_value = 8.0 * coded_bytes as f64 / (values * planes * frames.len() as f64);
    Ok(point(settings, bits_per_value, sessions, count, timed))
}

/// A started encode session that goes round and round the frames.
pub(super) fn lane<'l>(
    mut session: Session,
    settings: Settings,
    frames: &'l [Frame],
) -> Result<Lane<'l>, Error> {
    session.start(settings)?;
    Ok(Box::new(move |pictures| session.encode_each(frames.iter().cycle().take(pictures), |_| ())))
}
