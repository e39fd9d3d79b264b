//! Decode throughput: by standard, picture size, bit rate, format and number of sessions.

use super::{Bench, TYPICAL_QP};
use crate::Error;
use crate::gpu::Gpu;
use crate::nvdec::{Session, Standard};
use crate::recording::{DecodePoint, LeftOut, Recording};
use crate::stats::Spread;
use crate::streams::{self, Spec, TestStream};
use rayon::prelude::*;
use std::sync::Barrier;
use std::time::Instant;
use trinity_coding::Chroma;

/// Samples a repetition decodes at least: long against every start-up cost.
const SAMPLES_PER_REPEAT: usize = 48 << 20;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let engines = recording.device.nvdec_engines.max(1);
    (bench.progress)("encoding the streams to decode");
    let plan = plan(bench.plan.quick, engines);
    // All cores encode first; nothing else runs while decoding is timed.
    let made: Vec<_> = plan.par_iter().map(|&(spec, _)| streams::make(spec, 1, bench.encoder)).collect();
    for ((spec, sessions), stream) in plan.into_iter().zip(made) {
        (bench.progress)(&format!(
            "decode {} {}×{} {:?} {} bit, QP {}",
            spec.standard.name(),
            spec.width,
            spec.height,
            spec.chroma,
            spec.depth,
            spec.qp
        ));
        let stream = stream?;
        for count in sessions {
            match measure(bench.gpu, &stream, count, bench.plan.repeats, || bench.power()) {
                Ok(point) => recording.decode.push(point),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => recording.left_out.push(LeftOut {
                    what: format!("decode {} {}×{}", spec.standard.name(), spec.width, spec.height),
                    why: error.to_string(),
                }),
            }
        }
    }
    Ok(())
}

/// Which streams, and with how many sessions each.
fn plan(quick: bool, engines: u32) -> Vec<(Spec, Vec<u32>)> {
    let mut points = Vec::new();
    for standard in [Standard::H264, Standard::Hevc] {
        let spec = |width, height, qp| Spec {
            standard,
            chroma: Chroma::C420,
            depth: 8,
            width,
            height,
            qp,
            pictures: 2,
        };
        let every: Vec<u32> = (1..=engines).chain([engines + 1, 2 * engines]).collect();
        points.push((spec(1024, 1024, TYPICAL_QP), every.clone()));
        points.push((spec(3840, 2160, TYPICAL_QP), vec![1, engines]));
        if quick {
            continue;
        }
        for (width, height) in
            [(256, 256), (512, 512), (1024, 1024), (1920, 1080), (2048, 2048), (3840, 2160), (4096, 4096)]
        {
            for qp in [8, 14, TYPICAL_QP, 32] {
                if (width, height, qp) != (1024, 1024, TYPICAL_QP)
                    && (width, height, qp) != (3840, 2160, TYPICAL_QP)
                {
                    points.push((spec(width, height, qp), vec![1]));
                }
            }
        }
    }
    if !quick {
        for (chroma, depth) in [
            (Chroma::C420, 10),
            (Chroma::C420, 12),
            (Chroma::C444, 8),
            (Chroma::C444, 10),
            (Chroma::C444, 12),
        ] {
            let spec = Spec {
                standard: Standard::Hevc,
                chroma,
                depth,
                width: 1024,
                height: 1024,
                qp: TYPICAL_QP,
                pictures: 2,
            };
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
) -> Result<DecodePoint, Error> {
    let packets = stream.packets();
    let samples: usize = stream.spec.width * stream.spec.height;
    let loops = (SAMPLES_PER_REPEAT / (samples * packets.len())).clamp(4, 512);
    let pictures = (packets.len() * loops) as u64 * u64::from(sessions);
    let looped: Vec<&[u8]> = packets.iter().copied().cycle().take(packets.len() * loops).collect();
    let mut reading = None;
    let (times, host_s) = in_parallel(gpu, stream.spec.standard, &looped, sessions, repeats, || {
        reading = power();
    })?;
    let per_picture: Vec<f64> = times.iter().map(|t| t / pictures as f64).collect();
    Ok(DecodePoint {
        standard: stream.spec.standard,
        chroma_idc: stream.spec.chroma.idc(),
        depth: stream.spec.depth,
        width: stream.spec.width as u32,
        height: stream.spec.height as u32,
        bits_per_value: stream.bits_per_value(),
        sessions,
        pictures,
        seconds_per_picture: Spread::of(&per_picture)
            .ok_or(Error::Fit { what: "decode".into(), reason: "no repetitions".into() })?,
        host_seconds_per_picture: host_s / looped.len() as f64,
        power: reading,
    })
}

/// Wall seconds of each repetition (all sessions start together, the last one
/// ends it), and CPU seconds the first session's thread spent on the last.
fn in_parallel(
    gpu: &Gpu,
    standard: Standard,
    packets: &[&[u8]],
    sessions: u32,
    repeats: usize,
    mut while_busy: impl FnMut(),
) -> Result<(Vec<f64>, f64), Error> {
    let cuvid = gpu.cuvid()?;
    let gate = Barrier::new(sessions as usize + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..sessions)
            .map(|_| {
                let (gate, cuvid) = (&gate, &cuvid);
                scope.spawn(move || -> Result<f64, Error> {
                    // Every worker passes every gate, so that an error in one cannot hang the rest.
                    let mut session = Session::new(gpu, cuvid, standard);
                    let mut outcome = Ok(());
                    let mut host_s = 0.0;
                    for _ in 0..=repeats {
                        gate.wait();
                        let before = thread_cpu_s();
                        if let (Ok(session), Ok(())) = (&mut session, &outcome) {
                            outcome = session.decode(packets, &mut |_, _| Ok(())).and_then(|count| {
                                if count == packets.len() as u64 {
                                    return Ok(());
                                }
                                Err(Error::CorruptStream {
                                    what: format!("{} pictures in, {count} out", packets.len()),
                                })
                            });
                        }
                        host_s = thread_cpu_s() - before;
                        gate.wait();
                    }
                    session?;
                    outcome.map(|()| host_s)
                })
            })
            .collect();
        let mut times = Vec::with_capacity(repeats);
        for repeat in 0..=repeats {
            gate.wait();
            let start = Instant::now();
            if repeat == repeats {
                while_busy();
            }
            gate.wait();
            if repeat > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        let mut host_s = 0.0f64;
        for worker in workers {
            let spent = worker
                .join()
                .map_err(|_| Error::CorruptStream { what: "a decode thread panicked".into() })??;
            host_s = host_s.max(spent);
        }
        Ok((times, host_s))
    })
}

/// CPU seconds of this thread, from the kernel's accounting; 0 where there is none.
fn thread_cpu_s() -> f64 {
    let Ok(text) = std::fs::read_to_string("/proc/thread-self/schedstat") else { return 0.0 };
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).map_or(0.0, |ns| ns / 1e9)
}
