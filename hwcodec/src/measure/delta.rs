//! The sparse-delta pipeline: chunks of indices and values, zstd on the CPU,
//! a copy, a scatter-add; one after the other, then overlapped, then all on
//! the GPU: by nvCOMP where it is installed, and by the line-rate codec.

use super::bench::{Bench, repeat};
use super::chunk::{Chunk, Scratch, longest};
use super::delta_gpu::OnGpu;
use super::delta_line::{Sparse, dense};
use crate::Error;
use crate::error::During;
use crate::gpu::Gpu;
use crate::kernels::{self, grid};
use crate::recording::{DeltaDecoder, DeltaPoint, LeftOut, Recording};
use crate::stats::wall_s;
use cudarc::driver::{CudaEvent, CudaFunction, CudaSlice, CudaStream, PinnedHostSlice, PushKernelArg};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use trinity_numeric::random::Lcg;

/// A tensor of 64 Mi f32 values, 2 % of them changed: a light fine-tune.
const ELEMENTS: usize = 64 << 20;
const EVERY: usize = 50;
const CHUNKS: usize = 32;
/// Chunks on their way to the GPU, beside those being decompressed.
const RING: usize = 2;
const THREADS: [usize; 4] = [1, 2, 4, 8];
const LEVEL: i32 = 3;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let (points, left_out) = points(bench.gpu, bench.plan.repeats, recording.device.host_threads)?;
    recording.delta.extend(points);
    recording.left_out.extend(left_out);
    Ok(())
}

/// Sparse deltas under every decoder that is here, and what is not.
pub(super) fn points(
    gpu: &Gpu,
    repeats: usize,
    host_threads: usize,
) -> Result<(Vec<DeltaPoint>, Vec<LeftOut>), Error> {
    gpu.require_memory(ELEMENTS * 4 + (256 << 20), "sparse deltas")?;
    let stream = gpu.stream()?;
    let scatter = gpu.compile(kernels::SCATTER_ADD, "scatter_add")?;
    let (chunks, expected) = make()?;
    let mut pipe = Pipe {
        scatter,
        tensor: stream.alloc_zeros::<f32>(ELEMENTS).during("cuMemAlloc")?,
        indices: stream.alloc_zeros::<u32>(longest(&chunks)).during("cuMemAlloc")?,
        values: stream.alloc_zeros::<f32>(longest(&chunks)).during("cuMemAlloc")?,
        stream,
    };
    let synchronous_s = repeat(repeats, || pipe.synchronous(&chunks))?;
    let mut scratch = Scratch::new(longest(&chunks))?;
    let (mut indices, mut values) = (vec![0u32; longest(&chunks)], vec![0f32; longest(&chunks)]);
    let mut decompress =
        || chunks.iter().try_for_each(|chunk| chunk.decompress(&mut scratch, &mut indices, &mut values));
    let decompress_s = repeat(repeats, || wall_s(&mut decompress))?;
    let zstd_bytes = chunks.iter().map(|c| (c.indices.len() + c.values.len()) as u64).sum();
    let mut on_gpu = OnGpu::new(gpu, &pipe.stream, &chunks);
    let mut line = Sparse::new(gpu, &pipe.stream, &chunks);
    let threads = THREADS.into_iter().filter(|&t| t <= host_threads).map(|t| (DeltaDecoder::Cpu, t));
    let devices = [(DeltaDecoder::Nvcomp, on_gpu.is_ok()), (DeltaDecoder::Line, line.is_ok())];
    let devices = devices.into_iter().filter(|&(_, there)| there).map(|(decoder, _)| (decoder, 0));
    let mut points = Vec::new();
    for (decoder, threads) in threads.chain(devices) {
        let mut once = |pipe: &mut Pipe| match (decoder, &mut on_gpu, &mut line) {
            (DeltaDecoder::Nvcomp, Ok(on_gpu), _) => on_gpu.apply(&mut pipe.tensor),
            (DeltaDecoder::Line, _, Ok(line)) => line.apply(&mut pipe.tensor),
            _ => pipe.pipelined(gpu, &chunks, threads),
        };
        let pipelined_s = repeat(repeats, || once(&mut pipe))?;
        // The runs above added the delta many times over; a fresh pass is held against the truth.
        pipe.stream.memset_zeros(&mut pipe.tensor).during("cuMemset")?;
        once(&mut pipe)?;
        let result = pipe.stream.clone_dtoh(&pipe.tensor).during("cuMemcpyDtoH")?;
        let line_bytes = line.as_ref().map_or(0, Sparse::coded_bytes) as u64;
        points.push(DeltaPoint {
            threads: threads as u32,
            decoder: Some(decoder),
            elements: ELEMENTS as u64,
            changed: chunks.iter().map(|c| c.count as u64).sum(),
            chunks: chunks.len() as u32,
            compressed_bytes: if decoder == DeltaDecoder::Line { line_bytes } else { zstd_bytes },
            synchronous_s,
            pipelined_s,
            decompress_s: decompress_s.median,
            copy_and_scatter_s: synchronous_s.median - decompress_s.median,
            exact: result == expected,
        });
    }
    let mut left_out = Vec::new();
    let mut leave = |what: &str, error: Error| left_out.push(LeftOut::new(what, &error));
    match on_gpu {
        Ok(on_gpu) => on_gpu.check()?,
        Err(error) => leave("sparse deltas decompressed on the GPU", error),
    }
    match line {
        Ok(line) => line.check()?,
        Err(error) => leave("sparse deltas decoded by the line-rate codec", error),
    }
    match dense(gpu, &pipe.stream, repeats) {
        Ok(point) => points.push(point),
        Err(error) if error.is_fatal() => return Err(error),
        Err(error) => leave("a dense delta decoded by the line-rate codec", error),
    }
    Ok((points, left_out))
}

/// Chunks of a delta, and the tensor they make out of zeros.
fn make() -> Result<(Vec<Chunk>, Vec<f32>), Error> {
    let mut dense = vec![0f32; ELEMENTS];
    let mut lcg = Lcg(1);
    let mut next = || lcg.bits31();
    let per_chunk = ELEMENTS / CHUNKS;
    let mut chunks = Vec::with_capacity(CHUNKS);
    for c in 0..CHUNKS {
        let (mut gaps, mut values) = (Vec::new(), Vec::new());
        let base = (c * per_chunk) as u32;
        let mut at = base as usize;
        loop {
            let gap = 1 + (next() % (2 * EVERY as u64 - 1)) as usize;
            if at + gap >= (c + 1) * per_chunk {
                break;
            }
            at += gap;
            // A bf16 difference: few distinct values, as real deltas have.
            let value = ((next() % 255) as f32 - 127.0) / 8192.0;
            gaps.extend_from_slice(&(gap as u32).to_le_bytes());
            values.extend_from_slice(&value.to_le_bytes());
            dense[at] = value;
        }
        let pack = |bytes: &[u8]| {
            zstd::bulk::compress(bytes, LEVEL)
                .map_err(|e| Error::Encode { what: "delta chunk".into(), reason: e.to_string() })
        };
        chunks.push(Chunk { count: gaps.len() / 4, base, indices: pack(&gaps)?, values: pack(&values)? });
    }
    Ok((chunks, dense))
}

/// One slot of the ring between the decompressor and the GPU.
struct Buffers {
    /// Changes it holds.
    count: usize,
    indices: PinnedHostSlice<u32>,
    values: PinnedHostSlice<f32>,
    /// The event at which the GPU has read them.
    copied: Option<CudaEvent>,
}

impl Buffers {
    fn fill(&mut self, chunk: &Chunk, scratch: &mut Scratch) -> Result<(), Error> {
        if let Some(copied) = self.copied.take() {
            copied.synchronize().during("cuEventSynchronize")?;
        }
        let indices = self.indices.as_mut_slice().during("cuMemHostAlloc")?;
        let values = self.values.as_mut_slice().during("cuMemHostAlloc")?;
        self.count = chunk.count;
        chunk.decompress(scratch, indices, values)
    }
}

/// The GPU's end.
struct Pipe {
    scatter: CudaFunction,
    tensor: CudaSlice<f32>,
    indices: CudaSlice<u32>,
    values: CudaSlice<f32>,
    stream: Arc<CudaStream>,
}

impl Pipe {
    /// Decompress, copy, add, wait; next chunk.
    fn synchronous(&mut self, chunks: &[Chunk]) -> Result<f64, Error> {
        let mut scratch = Scratch::new(longest(chunks))?;
        let (mut indices, mut values) = (vec![0u32; longest(chunks)], vec![0f32; longest(chunks)]);
        let start = Instant::now();
        for chunk in chunks {
            chunk.decompress(&mut scratch, &mut indices, &mut values)?;
            let mut device_indices = self.indices.slice_mut(..chunk.count);
            self.stream.memcpy_htod(&indices[..chunk.count], &mut device_indices).during("cuMemcpyHtoD")?;
            let mut device_values = self.values.slice_mut(..chunk.count);
            self.stream.memcpy_htod(&values[..chunk.count], &mut device_values).during("cuMemcpyHtoD")?;
            self.add(chunk.count)?;
            self.stream.synchronize().during("cuStreamSynchronize")?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Threads decompress the next chunks into pinned memory while the GPU takes those that
    /// are ready. Chunks hold disjoint indices, so their order does not matter.
    fn pipelined(&mut self, gpu: &Gpu, chunks: &[Chunk], threads: usize) -> Result<f64, Error> {
        let context = &gpu.context;
        let most = longest(chunks);
        let ring = threads + RING;
        let (empty_in, empty) = sync_channel::<Buffers>(ring);
        for _ in 0..ring {
            // Cached, not write-combined: the decompressor writes word by word.
            // SAFETY: plain numbers have no invalid values; filled before any copy reads them.
            let pair = unsafe {
                (context.alloc_pinned_with_flags(most, 0), context.alloc_pinned_with_flags(most, 0))
            };
            let buffers = Buffers {
                count: 0,
                indices: pair.0.during("cuMemHostAlloc")?,
                values: pair.1.during("cuMemHostAlloc")?,
                copied: None,
            };
            let _ = empty_in.send(buffers);
        }
        let (empty, next) = (&Mutex::new(empty), &AtomicUsize::new(0));
        let start = Instant::now();
        std::thread::scope(|scope| {
            let (full_in, full) = sync_channel::<Result<Buffers, Error>>(ring);
            for _ in 0..threads {
                let full_in = full_in.clone();
                let mut scratch = Scratch::new(most)?;
                scope.spawn(move || {
                    while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // Closed: the other end met an error and has said so.
                        let Some(Ok(mut buffers)) = empty.lock().ok().map(|e| e.recv()) else { return };
                        let filled = buffers.fill(chunk, &mut scratch).map(|()| buffers);
                        if full_in.send(filled).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(full_in);
            for buffers in full {
                let mut buffers = buffers?;
                let count = buffers.count;
                self.stream.memcpy_htod(&buffers.indices, &mut self.indices).during("cuMemcpyHtoD")?;
                self.stream.memcpy_htod(&buffers.values, &mut self.values).during("cuMemcpyHtoD")?;
                buffers.copied = Some(self.stream.record_event(None).during("cuEventRecord")?);
                self.add(count)?;
                let _ = empty_in.send(buffers);
            }
            self.stream.synchronize().during("cuStreamSynchronize")?;
            Ok(start.elapsed().as_secs_f64())
        })
    }

    fn add(&mut self, count: usize) -> Result<(), Error> {
        let n = count as u32;
        let mut launch = self.stream.launch_builder(&self.scatter);
        launch.arg(&mut self.tensor).arg(&self.indices).arg(&self.values).arg(&n);
        // SAFETY: the kernel reads n indices and values, which the buffers hold,
        // and every index is below ELEMENTS by construction.
        unsafe { launch.launch(grid(n.div_ceil(256), 256)) }.during("cuLaunchKernel")?;
        Ok(())
    }
}
