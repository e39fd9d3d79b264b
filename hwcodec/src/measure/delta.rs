//! The sparse-delta pipeline: chunks of indices and values, zstd on the CPU,
//! a copy, a scatter-add; one after the other, then overlapped.

use super::Bench;
use crate::Error;
use crate::error::During;
use crate::kernels;
use crate::recording::{DeltaPoint, LeftOut, Recording};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// A tensor of 64 Mi f32 values, 2 % of them changed: a light fine-tune.
const ELEMENTS: usize = 64 << 20;
const EVERY: usize = 50;
const CHUNKS: usize = 32;
/// Chunks in flight between the decompressor and the GPU.
const RING: usize = 3;
const LEVEL: i32 = 3;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    bench.gpu.require_memory(ELEMENTS * 4 + (256 << 20), "sparse deltas")?;
    let stream = bench.gpu.stream()?;
    let scatter = bench.gpu.compile(kernels::SCATTER_ADD, "scatter_add")?;
    let (chunks, expected) = make()?;
    let mut pipe = Pipe {
        scatter,
        tensor: stream.alloc_zeros::<f32>(ELEMENTS).during("cuMemAlloc")?,
        indices: stream.alloc_zeros::<u32>(longest(&chunks)).during("cuMemAlloc")?,
        values: stream.alloc_zeros::<f32>(longest(&chunks)).during("cuMemAlloc")?,
        stream,
    };
    let synchronous_s = bench.repeat(|| pipe.synchronous(&chunks))?;
    let pipelined_s = bench.repeat(|| pipe.pipelined(bench, &chunks))?;
    // Both runs above added the delta `repeats + 1` times each; a fresh pass is held against the truth.
    pipe.stream.memset_zeros(&mut pipe.tensor).during("cuMemset")?;
    pipe.pipelined(bench, &chunks)?;
    let result = pipe.stream.clone_dtoh(&pipe.tensor).during("cuMemcpyDtoH")?;
    let decompress_s = bench.repeat(|| {
        let start = Instant::now();
        for chunk in &chunks {
            chunk.decompress()?;
        }
        Ok(start.elapsed().as_secs_f64())
    })?;
    recording.delta.push(DeltaPoint {
        elements: ELEMENTS as u64,
        changed: chunks.iter().map(|c| c.count as u64).sum(),
        chunks: chunks.len() as u32,
        compressed_bytes: chunks.iter().map(|c| (c.indices.len() + c.values.len()) as u64).sum(),
        synchronous_s,
        pipelined_s,
        decompress_s: decompress_s.median,
        copy_and_scatter_s: synchronous_s.median - decompress_s.median,
        exact: result == expected,
    });
    // SAFETY: only tries to dlopen; nothing of it is called.
    let nvcomp = ["libnvcomp.so.5", "libnvcomp.so.4", "libnvcomp.so"]
        .iter()
        .any(|name| unsafe { libloading::Library::new(name) }.is_ok());
    recording.left_out.push(LeftOut {
        what: "sparse deltas decompressed on the GPU".into(),
        why: if nvcomp {
            "nvCOMP is here, but its interface differs by version and is not called".into()
        } else {
            "nvCOMP is not installed on this machine".into()
        },
    });
    Ok(())
}

/// One chunk: gaps between indices and values, each compressed.
struct Chunk {
    count: usize,
    /// Index the first gap is counted from.
    base: u32,
    indices: Vec<u8>,
    values: Vec<u8>,
}

impl Chunk {
    fn decompress(&self) -> Result<(Vec<u32>, Vec<f32>), Error> {
        let bad = |e: std::io::Error| Error::CorruptStream { what: format!("delta chunk: {e}") };
        let gaps = zstd::bulk::decompress(&self.indices, self.count * 4).map_err(bad)?;
        let values = zstd::bulk::decompress(&self.values, self.count * 4).map_err(bad)?;
        let mut index = self.base;
        let word = |b: &[u8]| [b[0], b[1], b[2], b[3]];
        let indices = gaps
            .chunks_exact(4)
            .map(|gap| {
                index = index.wrapping_add(u32::from_le_bytes(word(gap)));
                index
            })
            .collect();
        Ok((indices, values.chunks_exact(4).map(|b| f32::from_le_bytes(word(b))).collect()))
    }
}

fn longest(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|c| c.count).max().unwrap_or(1)
}

/// Chunks of a delta, and the tensor they make out of zeros.
fn make() -> Result<(Vec<Chunk>, Vec<f32>), Error> {
    let mut dense = vec![0f32; ELEMENTS];
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
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
        let start = Instant::now();
        for chunk in chunks {
            let (indices, values) = chunk.decompress()?;
            let mut device_indices = self.indices.slice_mut(..indices.len());
            self.stream.memcpy_htod(&indices, &mut device_indices).during("cuMemcpyHtoD")?;
            let mut device_values = self.values.slice_mut(..values.len());
            self.stream.memcpy_htod(&values, &mut device_values).during("cuMemcpyHtoD")?;
            self.add(indices.len())?;
            self.stream.synchronize().during("cuStreamSynchronize")?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// A thread decompresses chunk i+1 into pinned memory while the GPU takes chunk i.
    fn pipelined(&mut self, bench: &Bench<'_>, chunks: &[Chunk]) -> Result<f64, Error> {
        let context = &bench.gpu.context;
        let most = longest(chunks);
        let mut ring: Vec<(PinnedHostSlice<u32>, PinnedHostSlice<f32>)> = Vec::new();
        for _ in 0..RING {
            // SAFETY: plain numbers have no invalid values; filled before any copy reads them.
            let pair = unsafe { (context.alloc_pinned(most), context.alloc_pinned(most)) };
            ring.push((pair.0.during("cuMemHostAlloc")?, pair.1.during("cuMemHostAlloc")?));
        }
        let start = Instant::now();
        std::thread::scope(|scope| {
            let (full_in, full) = sync_channel::<Result<(Vec<u32>, Vec<f32>), Error>>(RING);
            scope.spawn(move || {
                for chunk in chunks {
                    if full_in.send(chunk.decompress()).is_err() {
                        break;
                    }
                }
            });
            for (i, chunk) in full.iter().enumerate() {
                let (indices, values) = chunk?;
                let (pinned_indices, pinned_values) = &mut ring[i % RING];
                // as_mut_slice waits for the copy that last used this buffer.
                pinned_indices.as_mut_slice().during("cuMemHostAlloc")?[..indices.len()]
                    .copy_from_slice(&indices);
                pinned_values.as_mut_slice().during("cuMemHostAlloc")?[..values.len()]
                    .copy_from_slice(&values);
                self.stream.memcpy_htod(pinned_indices, &mut self.indices).during("cuMemcpyHtoD")?;
                self.stream.memcpy_htod(pinned_values, &mut self.values).during("cuMemcpyHtoD")?;
                self.add(indices.len())?;
            }
            self.stream.synchronize().during("cuStreamSynchronize")?;
            Ok(start.elapsed().as_secs_f64())
        })
    }

    fn add(&mut self, count: usize) -> Result<(), Error> {
        let n = count as u32;
        let config =
            LaunchConfig { grid_dim: (n.div_ceil(256), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&self.scatter);
        launch.arg(&mut self.tensor).arg(&self.indices).arg(&self.values).arg(&n);
        // SAFETY: the kernel reads n indices and values, which the buffers hold,
        // and every index is below ELEMENTS by construction.
        unsafe { launch.launch(config) }.during("cuLaunchKernel")?;
        Ok(())
    }
}
