//! Overlap: decode beside matrix products, decode beside copies.
//!
//! Both jobs are sized to take about as long alone, where overlap has most to
//! give and is hardest to reach.

use super::{Bench, typical};
use crate::Error;
use crate::error::During;
use crate::gemm::Gemm;
use crate::nvdec::{Session, Standard};
use crate::recording::{OverlapPoint, Recording};
use crate::stats::Spread;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

/// How long each job runs alone, about.
const JOB_S: f64 = 0.25;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let engines = recording.device.nvdec_engines.max(1);
    for standard in [Standard::H264, Standard::Hevc] {
        let stream = bench.stream(typical(standard, 1024, 2))?;
        let packets = stream.packets();
        let mut gemm = Gemm::new(bench.gpu, 8192)?;
        let products = count_for(JOB_S, |n| products_s(&mut gemm, n))?;
        let point = together(bench, standard, &packets, engines, "gemm", || products_s(&mut gemm, products))?;
        recording.overlap.push(point);

        let context = &bench.gpu.context;
        let bytes = 64 << 20;
        let copy_stream = bench.gpu.stream()?;
        // SAFETY: u8 has no invalid values; filled just below.
        let mut pinned = unsafe { context.alloc_pinned::<u8>(bytes) }.during("cuMemHostAlloc")?;
        pinned.as_mut_slice().during("cuMemHostAlloc")?.fill(0x5a);
        let mut device = copy_stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc")?;
        let mut copies_s = |n: usize| {
            let start = Instant::now();
            for _ in 0..n {
                copy_stream.memcpy_htod(&pinned, &mut device).during("cuMemcpyHtoD")?;
            }
            copy_stream.synchronize().during("cuStreamSynchronize")?;
            Ok(start.elapsed().as_secs_f64())
        };
        let copies = count_for(JOB_S, &mut copies_s)?;
        recording.overlap.push(together(bench, standard, &packets, engines, "copy", || copies_s(copies))?);
    }
    Ok(())
}

fn products_s(gemm: &mut Gemm, n: usize) -> Result<f64, Error> {
    let start = Instant::now();
    for _ in 0..n {
        gemm.launch()?;
    }
    gemm.wait()?;
    Ok(start.elapsed().as_secs_f64())
}

/// How many units make a job of about `target_s`.
fn count_for(target_s: f64, mut job: impl FnMut(usize) -> Result<f64, Error>) -> Result<usize, Error> {
    job(4)?;
    let unit_s = job(8)? / 8.0;
    Ok(((target_s / unit_s) as usize).max(1))
}

/// Times decode alone, `other` alone, and both.
fn together(
    bench: &Bench<'_>,
    standard: Standard,
    packets: &[&[u8]],
    sessions: u32,
    name: &str,
    mut other: impl FnMut() -> Result<f64, Error> + Send,
) -> Result<OverlapPoint, Error> {
    let cuvid = bench.gpu.cuvid()?;
    // One more than asked for: the first sets the length of the job.
    let repeats = bench.plan.repeats + 1;
    // Decode passes are gated so that sessions stay open (and warm) across all three phases.
    let gate = Barrier::new(sessions as usize + 1);
    let phases = 1 + 2 * repeats;
    let length = AtomicUsize::new(packets.len() * 8);
    // Seconds the slowest session took in the pass that just ended.
    let slowest = Mutex::new(0.0f64);
    let (length, slowest) = (&length, &slowest);
    std::thread::scope(|scope| {
        let (gate, cuvid, gpu) = (&gate, &cuvid, bench.gpu);
        let workers: Vec<_> = (0..sessions)
            .map(|_| {
                scope.spawn(move || -> Result<(), Error> {
                    let mut session = Session::new(gpu, cuvid, standard);
                    let mut outcome = Ok(());
                    for _ in 0..phases {
                        gate.wait();
                        let count = length.load(Ordering::SeqCst);
                        let looped: Vec<&[u8]> = packets.iter().copied().cycle().take(count).collect();
                        let start = Instant::now();
                        if let (Ok(session), Ok(())) = (&mut session, &outcome) {
                            outcome = session.decode(&looped, &mut |_, _| Ok(())).map(|_| ());
                        }
                        if let Ok(mut slowest) = slowest.lock() {
                            *slowest = slowest.max(start.elapsed().as_secs_f64());
                        }
                        gate.wait();
                    }
                    session?;
                    outcome
                })
            })
            .collect();
        let decode_pass = || {
            gate.wait();
            let start = Instant::now();
            gate.wait();
            start.elapsed().as_secs_f64()
        };
        // The warm-up pass opens decoders; the first timed pass sets the job's length.
        decode_pass();
        let (mut alone, mut others, mut parallel) = (Vec::new(), Vec::new(), Vec::new());
        let (mut slow_decode, mut slow_other) = (Vec::new(), Vec::new());
        let mut failure = None;
        for repeat in 0..repeats {
            let seconds = decode_pass();
            if repeat == 0 {
                let now = length.load(Ordering::SeqCst);
                let scaled = (now as f64 * JOB_S / seconds).max(packets.len() as f64);
                length.store(scaled as usize, Ordering::SeqCst);
                // This pass had another length: not a sample. Keep the count of passes equal with a joint pass.
                gate.wait();
                gate.wait();
                continue;
            }
            alone.push(seconds);
            match other() {
                Ok(s) => others.push(s),
                Err(e) => failure = Some(e),
            }
            if let Ok(mut slowest) = slowest.lock() {
                *slowest = 0.0;
            }
            gate.wait();
            let start = Instant::now();
            let beside = other();
            gate.wait();
            parallel.push(start.elapsed().as_secs_f64());
            slow_decode.push(slowest.lock().map_or(f64::NAN, |s| *s));
            match beside {
                Ok(s) => slow_other.push(s),
                Err(e) => failure = Some(e),
            }
        }
        for worker in workers {
            worker.join().map_err(|_| Error::CorruptStream { what: "a decode thread panicked".into() })??;
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let spread = |values: &[f64]| {
            Spread::of(values).ok_or(Error::Fit { what: "overlap".into(), reason: "no repetitions".into() })
        };
        let (first_s, second_s, parallel_s) = (spread(&alone)?, spread(&others)?, spread(&parallel)?);
        Ok(OverlapPoint {
            what: format!("{} decode ∥ {name}", standard.name()),
            first_slowdown: spread(&slow_decode)?.median / first_s.median,
            second_slowdown: spread(&slow_other)?.median / second_s.median,
            first_s,
            second_s,
            parallel_s,
        })
    })
}
