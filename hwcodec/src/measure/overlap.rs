//! Overlap: decode and encode beside matrix products, decode beside copies.
//!
//! Both jobs are sized to take about as long alone, where overlap has most to
//! give and is hardest to reach.

use super::bench::{Bench, typical};
use super::pool::{Lane, with_pool};
use super::{decode, encode};
use crate::error::During;
use crate::gemm::Gemm;
use crate::nvdec::Standard;
use crate::recording::{OverlapPoint, Recording};
use crate::stats::{Spread, wall_s};
use crate::{Error, discover, streams};
use cudarc::driver::{CudaSlice, CudaStream, PinnedHostSlice};
use std::sync::Arc;

/// How long each job runs alone, about.
const JOB_S: f64 = 0.25;
/// Pictures a session takes to find out how long one is.
const FIRST_PICTURES: usize = 16;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let gemm = Gemm::new(bench.gpu, 8192)?;
    let products = count_for(JOB_S, |n| gemm.products_s(n))?;
    let sessions = recording.device.nvdec_engines.max(1);
    let cuvid = bench.gpu.cuvid()?;
    for standard in [Standard::H264, Standard::Hevc] {
        let stream = bench.stream(typical(standard, 1024, 2))?;
        let packets = stream.packets();
        let open = || decode::lane(bench.gpu, &cuvid, standard, &packets);
        let what = |other: &str| format!("{} decode ∥ {other}", standard.name());
        let beside_products = || gemm.products_s(products);
        recording.overlap.push(together(bench, what("gemm"), sessions, &open, beside_products)?);

        let mut copier = Copier::new(bench)?;
        let copies = count_for(JOB_S, |n| copier.copies_s(n))?;
        recording.overlap.push(together(bench, what("copy"), sessions, &open, || copier.copies_s(copies))?);
    }
    if recording.device.nvenc_engines == 0 {
        return Ok(());
    }
    for standard in [Standard::H264, Standard::Hevc] {
        let spec = typical(standard, 1024, 2);
        let frames = streams::weight_like(&spec, 1);
        let open = || encode::lane(discover::open_encoder(bench.gpu)?, decode::settings(&spec), &frames);
        let what = format!("{} encode ∥ gemm", standard.name());
        let beside = || gemm.products_s(products);
        let point = together(bench, what, recording.device.nvenc_engines, &open, beside)?;
        recording.overlap.push(point);
    }
    Ok(())
}

/// Pinned memory, and where it goes.
struct Copier {
    stream: Arc<CudaStream>,
    pinned: PinnedHostSlice<u8>,
    device: CudaSlice<u8>,
}

impl Copier {
    fn new(bench: &Bench<'_>) -> Result<Self, Error> {
        let bytes = 64 << 20;
        let stream = bench.gpu.stream()?;
        let device = stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc")?;
        Ok(Self { pinned: bench.gpu.pinned(bytes)?, stream, device })
    }

    fn copies_s(&mut self, n: usize) -> Result<f64, Error> {
        wall_s(|| {
            for _ in 0..n {
                self.stream.memcpy_htod(&self.pinned, &mut self.device).during("cuMemcpyHtoD")?;
            }
            self.stream.synchronize().during("cuStreamSynchronize")
        })
    }
}

/// How many units make a job of about `target_s`.
fn count_for(target_s: f64, mut job: impl FnMut(usize) -> Result<f64, Error>) -> Result<usize, Error> {
    job(4)?;
    let unit_s = job(8)? / 8.0;
    Ok(((target_s / unit_s) as usize).max(1))
}

/// Times an engine's sessions alone, `other` alone, and both.
fn together<'l>(
    bench: &Bench<'_>,
    what: String,
    sessions: u32,
    open: &(dyn Fn() -> Result<Lane<'l>, Error> + Sync),
    mut other: impl FnMut() -> Result<f64, Error>,
) -> Result<OverlapPoint, Error> {
    with_pool(sessions, open, |pool| {
        // The first pass opens and warms, the second tells how long a picture takes.
        pool.pass(FIRST_PICTURES, || ())?;
        let (pass, ()) = pool.pass(FIRST_PICTURES, || ())?;
        let pictures = ((FIRST_PICTURES as f64 * JOB_S / pass.wall_s) as usize).max(1);
        let (mut alone, mut others, mut parallel) = (Vec::new(), Vec::new(), Vec::new());
        let (mut slow_engine, mut slow_other) = (Vec::new(), Vec::new());
        for _ in 0..bench.plan.repeats {
            alone.push(pool.pass(pictures, || ())?.0.wall_s);
            others.push(other()?);
            let (pass, beside) = pool.pass(pictures, &mut other)?;
            parallel.push(pass.wall_s);
            slow_engine.push(pass.slowest_s);
            slow_other.push(beside?);
        }
        let spread = |values: &[f64]| Spread::timed("overlap", values);
        let (first_s, second_s, parallel_s) = (spread(&alone)?, spread(&others)?, spread(&parallel)?);
        Ok(OverlapPoint {
            what,
            first_slowdown: spread(&slow_engine)?.median / first_s.median,
            second_slowdown: spread(&slow_other)?.median / second_s.median,
            first_s,
            second_s,
            parallel_s,
        })
    })
}
