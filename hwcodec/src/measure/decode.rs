//! Decode throughput: by standard, picture size, bit rate, format and number of sessions.

use super::bench::{Bench, TYPICAL_QP};
use super::pool::{Lane, throughput, with_pool};
use crate::Error;
use crate::gpu::Gpu;
use crate::nvdec::{Session, Standard};
use crate::nvenc::Settings;
use crate::recording::{EnginePoint, LeftOut, Recording};
use crate::stats::Spread;
use crate::streams::{self, DEEPER, Spec, TestStream};
use crate::sys::cuvid::Cuvid;
use rayon::prelude::*;
use std::sync::Arc;
use trinity_bits::Rate;

/// Samples a repetition decodes at least: long against every start-up cost.
const SAMPLES_PER_REPEAT: usize = 48 << 20;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let engines = recording.device.nvdec_engines.max(1);
    (bench.progress)("encoding the streams to decode");
    let plan = plan(bench.plan.quick, engines);
    // All cores encode first; nothing else runs while decoding is timed.
    let made: Vec<_> = plan.par_iter().map(|&(spec, _)| streams::make(spec, 1, bench.encoder)).collect();
    for ((spec, sessions), stream) in plan.into_iter().zip(made) {
        let Spec { standard, chroma, depth, width, height, qp, .. } = spec;
        let what = format!("decode {} {width}×{height}", standard.name());
        (bench.progress)(&format!("{what} {chroma:?} {depth} bit, QP {qp}"));
        let stream = stream?;
        for count in sessions {
            match measure(bench.gpu, &stream, count, bench.plan.repeats, || bench.power()) {
                Ok(point) => recording.decode.push(point),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => recording.left_out.push(LeftOut::new(&what, &error)),
            }
        }
    }
    Ok(())
}

/// Which streams, and with how many sessions each.
fn plan(quick: bool, engines: u32) -> Vec<(Spec, Vec<u32>)> {
    let mut points = Vec::new();
    for standard in [Standard::H264, Standard::Hevc] {
        let spec = |size, qp| Spec::plain(standard, size, qp);
        let every: Vec<u32> = (1..=engines).chain([engines + 1, 2 * engines]).collect();
        let known = [((1024, 1024), TYPICAL_QP), ((3840, 2160), TYPICAL_QP)];
        points.push((spec(known[0].0, TYPICAL_QP), every));
        points.push((spec(known[1].0, TYPICAL_QP), vec![1, engines]));
        let mut add = |size, qps: &[i32]| {
            for &qp in qps.iter().filter(|&&qp| !known.contains(&(size, qp))) {
                points.push((spec(size, qp), vec![1]));
            }
        };
        if quick {
            // Enough to tell the terms of the fit apart.
            add((512, 512), &[14, 29]);
            add((1920, 1080), &[14, 29]);
            continue;
        }
        for size in [(256, 256), (512, 512), (1920, 1080), (3840, 2160), (4096, 4096)] {
            add(size, &[14, TYPICAL_QP, 29]);
        }
        // All rates that tensors are coded at (0.7 to 5 bits a value), at two sizes.
        for size in [(1024, 1024), (2048, 2048)] {
            add(size, &[8, 11, 14, 17, TYPICAL_QP, 23, 26, 29, 31]);
        }
    }
    if !quick {
        for (chroma, depth) in DEEPER {
            let spec = Spec { chroma, depth, ..Spec::plain(Standard::Hevc, (1024, 1024), TYPICAL_QP) };
            points.push((spec, vec![1, engines]));
        }
    }
    points
}

/// Decodes `stream` over and over on `sessions` threads.
pub(super) fn measure(
    gpu: &Gpu,
    stream: &TestStream,
    sessions: u32,
    repeats: usize,
    power: impl Fn() -> Option<crate::discover::Power>,
) -> Result<EnginePoint, Error> {
    let packets = stream.packets();
    let count = pictures_a_repeat(stream.spec.width * stream.spec.height, packets.len());
    let cuvid = gpu.cuvid()?;
    let open = || lane(gpu, &cuvid, stream.spec.standard, &packets);
    let mut reading = None;
    let timed = with_pool(sessions, &open, |pool| throughput(pool, count, repeats, || reading = power()))?;
    let settings = settings(&stream.spec);
    Ok(EnginePoint { power: reading, ..point(settings, stream.bits_per_value(), sessions, count, timed) })
}

/// Settings for the picture and the QP that a stream of ours has.
pub(super) fn settings(spec: &Spec) -> Settings {
    Settings {
        standard: spec.standard,
        width: spec.width as u32,
        height: spec.height as u32,
        chroma: spec.chroma,
        depth: spec.depth,
        rate: Rate::Qp(spec.qp.into()),
    }
}

/// What `sessions` took that worked through `count` pictures each.
pub(super) fn point(
    settings: Settings,
    bits_per_value: f64,
    sessions: u32,
    count: usize,
    (seconds, host_s): (Spread, f64),
) -> EnginePoint {
    let pictures = count as u64 * u64::from(sessions);
    EnginePoint {
        standard: settings.standard,
        chroma_idc: settings.chroma.idc(),
        depth: settings.depth,
        width: settings.width,
        height: settings.height,
        bits_per_value,
        sessions,
        pictures,
        seconds_per_picture: seconds.map(|s| s / pictures as f64),
        host_seconds_per_picture: host_s / count as f64,
        power: None,
    }
}

/// Pictures one session works through in a repetition: whole rounds of those there are.
pub(super) fn pictures_a_repeat(samples: usize, distinct: usize) -> usize {
    distinct * (SAMPLES_PER_REPEAT / (samples * distinct)).clamp(4, 512)
}

/// A decode session that goes round and round the packets.
pub(super) fn lane<'l>(
    gpu: &Gpu,
    cuvid: &Arc<Cuvid>,
    standard: Standard,
    packets: &'l [&'l [u8]],
) -> Result<Lane<'l>, Error> {
    let mut session = Session::new(gpu, cuvid, standard)?;
    Ok(Box::new(move |pictures| {
        let looped: Vec<&[u8]> = packets.iter().copied().cycle().take(pictures).collect();
        let count = session.decode(&looped, &mut |_, _| Ok(()))?;
        if count != pictures as u64 {
            return Err(Error::CorruptStream { what: format!("{pictures} pictures in, {count} out") });
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_the_quick_plan_can_be_fitted() {
        for standard in [Standard::H264, Standard::Hevc] {
            let plan = plan(true, 7);
            let single = plan.iter().filter(|(spec, n)| spec.standard == standard && n.contains(&1));
            let sizes: std::collections::BTreeSet<_> =
                single.clone().map(|(spec, _)| (spec.width, spec.height)).collect();
            assert!(single.count() > 4 && sizes.len() > 2);
        }
    }
}
