//! Deltas that the line-rate codec decodes on the GPU.
//!
//! Sparse ones to the bit: gaps and values are whole numbers, and a uniform
//! quantizer whose points are those numbers gives them back. Dense ones at a
//! loss, about three bits for every value.

use super::bench::repeat;
use super::chunk::{Chunk, Scratch, longest, on_device};
use super::made_up::{chosen, coded_as, refused, weights};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::kernels::{self, grid};
use crate::line::{Decoder, Decoding, Faulty, Format, LineCodec};
use crate::recording::{DeltaDecoder, DeltaPoint};
use crate::stats::wall_s;
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, PinnedHostSlice, PushKernelArg};
use std::sync::Arc;
use std::time::Instant;
use trinity_codec::line::{Analysis, Effort, Options, Settings};

/// Columns of the matrices that numbers are laid out in.
const COLUMNS: usize = 256;
/// Subtracted from gaps, so that they lie around zero.
const CENTRE: f32 = 50.0;
/// Values of a delta are multiples of this.
const GRID: f32 = 1.0 / 8192.0;
/// Rounds to the nearest level: what lies on one stays there.
const NEAREST: Settings =
    Settings { lambda: 0.0, rounding: 16, tile_budget: None, analysis: Analysis::Single };
/// The dense delta: 64 Mi values.
const DENSE: (usize, usize) = (16384, 4096);

/// A stream on the host, where copies are fast, and what decodes it on the device.
struct Coded {
    host: PinnedHostSlice<u8>,
    decoding: Decoding<f32>,
}

impl Coded {
    fn new(gpu: &Gpu, codec: &LineCodec, stream: &Arc<CudaStream>, coded: &[u8]) -> Result<Self, Error> {
        // SAFETY: u8 has no invalid values; filled just below.
        let mut host =
            unsafe { gpu.context.alloc_pinned_with_flags::<u8>(coded.len(), 0) }.during("cuMemHostAlloc")?;
        host.as_mut_slice().during("cuMemHostAlloc")?.copy_from_slice(coded);
        let decoder = Decoder::on(codec, coded, Format::F32, codec.multiprocessors())?;
        Ok(Self { host, decoding: Decoding::new(decoder, stream, coded)? })
    }

    fn queue(&mut self, stream: &Arc<CudaStream>) -> Result<(), Error> {
        stream.memcpy_htod(&self.host, &mut self.decoding.source).during("cuMemcpyHtoD")?;
        self.decoding.queue()
    }

    /// Whether every tile of the last decoding was whole.
    fn check(&self) -> Result<(), Error> {
        Faulty::refuse(&self.decoding.faults()?)
    }
}

/// The stream of numbers that are multiples of `grid`, every one of which it gives back.
fn exact(numbers: &[f32], grid: f32) -> Result<Vec<u8>, Error> {
    let options =
        Options { effort: Effort::Fast, log2_states: 0, rounding: NEAREST.rounding, ..Options::default() };
    let mut plan = chosen("delta", numbers, COLUMNS, grid / 2.0, &options)?;
    // A mean or a prediction between two numbers would put them beside the quantizer's points.
    plan.means.iter_mut().chain(&mut plan.above).for_each(|number| *number = 0);
    trinity_codec::line::encode(&plan, numbers, &NEAREST).map_err(refused("delta"))
}

/// A sparse delta's chunks, gaps and values each as one stream.
pub(super) struct Sparse {
    stream: Arc<CudaStream>,
    add: CudaFunction,
    gaps: Coded,
    values: Coded,
    chunks: usize,
    stride: usize,
    bases: CudaSlice<u32>,
    counts: CudaSlice<u32>,
}

impl Sparse {
    pub fn new(gpu: &Gpu, stream: &Arc<CudaStream>, chunks: &[Chunk]) -> Result<Self, Error> {
        let codec = LineCodec::new(gpu)?;
        let add = gpu.compile(kernels::ADD_GAPS, "add_whole_gaps")?;
        let stride = longest(chunks).next_multiple_of(COLUMNS);
        let (mut gaps, mut values) = (vec![0f32; chunks.len() * stride], vec![0f32; chunks.len() * stride]);
        let mut scratch = Scratch::new(stride)?;
        let (mut indices, mut numbers) = (vec![0u32; stride], vec![0f32; stride]);
        for (at, chunk) in chunks.iter().enumerate() {
            chunk.decompress(&mut scratch, &mut indices, &mut numbers)?;
            let (mut before, rows) = (chunk.base, at * stride..at * stride + chunk.count);
            for (gap, &index) in gaps[rows.clone()].iter_mut().zip(&indices) {
                *gap = (index - before) as f32 - CENTRE;
                before = index;
            }
            values[rows].copy_from_slice(&numbers[..chunk.count]);
        }
        let [bases, counts] = on_device(stream, chunks)?;
        Ok(Self {
            add,
            gaps: Coded::new(gpu, &codec, stream, &exact(&gaps, 1.0)?)?,
            values: Coded::new(gpu, &codec, stream, &exact(&values, GRID)?)?,
            chunks: chunks.len(),
            stride,
            bases,
            counts,
            stream: stream.clone(),
        })
    }

    pub fn coded_bytes(&self) -> usize {
        self.gaps.decoding.source.len() + self.values.decoding.source.len()
    }

    /// Adds the delta to `tensor`; returns the seconds it took.
    pub fn apply(&mut self, tensor: &mut CudaSlice<f32>) -> Result<f64, Error> {
        wall_s(|| {
            self.gaps.queue(&self.stream)?;
            self.values.queue(&self.stream)?;
            let stride = self.stride as u32;
            let mut launch = self.stream.launch_builder(&self.add);
            launch.arg(tensor).arg(&self.gaps.decoding.values).arg(&self.values.decoding.values);
            launch.arg(&self.bases).arg(&self.counts).arg(&stride).arg(&CENTRE);
            // SAFETY: the kernel reads `counts[b]` numbers of chunk b, which `stride` holds, and
            // chunks were made so that every index they reach is inside the tensor.
            unsafe { launch.launch(grid(self.chunks as u32, 1024)) }.during("cuLaunchKernel")?;
            self.stream.synchronize().during("cuStreamSynchronize")
        })
    }

    /// Whether every tile of the last run came out whole.
    pub fn check(&self) -> Result<(), Error> {
        self.gaps.check()?;
        self.values.check()
    }
}

/// A difference in every value of a tensor: coded at about three bits, decoded and
/// added on the GPU; beside it decoded on the CPU, copied and added.
pub(super) fn dense(gpu: &Gpu, stream: &Arc<CudaStream>, repeats: usize) -> Result<DeltaPoint, Error> {
    let (rows, cols) = DENSE;
    let codec = LineCodec::new(gpu)?;
    let add = gpu.compile(kernels::ADD_DENSE, "add_dense")?;
    let piece = weights(2048, cols, 23);
    let difference: Vec<f32> = piece.iter().copied().cycle().take(rows * cols).collect();
    let options = Options { effort: Effort::Fast, ..Options::default() };
    let coded = coded_as("delta", &piece, &difference, cols, &options)?.1;
    let mut on_gpu = Coded::new(gpu, &codec, stream, &coded)?;
    let mut tensor = stream.alloc_zeros::<f32>(rows * cols).during("cuMemAlloc")?;
    let mut copied = stream.alloc_zeros::<f32>(rows * cols).during("cuMemAlloc")?;
    let sum = |tensor: &mut CudaSlice<f32>, values: &CudaSlice<f32>| -> Result<(), Error> {
        let count = (rows * cols) as u32;
        let mut launch = stream.launch_builder(&add);
        launch.arg(tensor).arg(values).arg(&count);
        // SAFETY: both hold `count` values.
        unsafe { launch.launch(grid(count.div_ceil(256), 256)) }.during("cuLaunchKernel")?;
        stream.synchronize().during("cuStreamSynchronize")
    };
    let mut decompress_s = 0.0;
    let synchronous_s = repeat(repeats, || {
        let start = Instant::now();
        let values = trinity_codec::line::decode(&coded).map_err(refused("delta"))?.2;
        decompress_s = start.elapsed().as_secs_f64();
        stream.memcpy_htod(&values, &mut copied).during("cuMemcpyHtoD")?;
        sum(&mut tensor, &copied)?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    let mut on_device = || on_gpu.queue(stream).and_then(|()| sum(&mut tensor, &on_gpu.decoding.values));
    let pipelined_s = repeat(repeats, || wall_s(&mut on_device))?;
    on_gpu.check()?;
    let (ours, theirs) = (stream.clone_dtoh(&on_gpu.decoding.values), stream.clone_dtoh(&copied));
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    Ok(DeltaPoint {
        threads: 0,
        decoder: Some(DeltaDecoder::LineDense),
        elements: (rows * cols) as u64,
        changed: (rows * cols) as u64,
        chunks: 1,
        compressed_bytes: coded.len() as u64,
        synchronous_s,
        pipelined_s,
        decompress_s,
        copy_and_scatter_s: synchronous_s.median - decompress_s,
        exact: bits(ours.during("cuMemcpyDtoH")?) == bits(theirs.during("cuMemcpyDtoH")?),
    })
}
