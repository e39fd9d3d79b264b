//! Sparse deltas with everything on the GPU: the compressed chunks are copied,
//! nvCOMP decompresses them, one kernel sums the gaps and adds the values.

use super::chunk::{Chunk, longest, on_device};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::kernels::{self, grid};
use crate::stats::wall_s;
use crate::sys::nvcomp::{ALIGNMENT, Chunks, Method, Nvcomp, check};
use cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, PinnedHostSlice, PushKernelArg,
};
use std::sync::Arc;

/// Threads of the kernel's blocks, one block a chunk.
const THREADS: u32 = 1024;

/// A delta's chunks, ready to go to the GPU, and room for them there.
pub(super) struct OnGpu {
    nvcomp: Nvcomp,
    stream: Arc<CudaStream>,
    add: CudaFunction,
    host: PinnedHostSlice<u8>,
    compressed: CudaSlice<u8>,
    /// Gaps of all chunks, then values of all chunks, each in `stride` words.
    words: CudaSlice<u32>,
    stride: usize,
    chunks: usize,
    bases: CudaSlice<u32>,
    counts: CudaSlice<u32>,
    /// What nvCOMP wants to know of each frame: place and size, before and after.
    from: CudaSlice<u64>,
    from_bytes: CudaSlice<u64>,
    into: CudaSlice<u64>,
    into_bytes: CudaSlice<u64>,
    found_bytes: CudaSlice<u64>,
    statuses: CudaSlice<i32>,
    scratch: CudaSlice<u8>,
}

impl OnGpu {
    /// Fails with a sentence where nvCOMP is not installed.
    pub fn new(gpu: &Gpu, stream: &Arc<CudaStream>, chunks: &[Chunk]) -> Result<Self, Error> {
        let nvcomp = Nvcomp::load(Method::Zstd)?;
        let add = gpu.compile(kernels::ADD_GAPS, "add_gaps")?;
        let longest = longest(chunks);
        // Whole multiples of the alignment, in words.
        let stride = longest.next_multiple_of(ALIGNMENT / 4);
        let frames: Vec<(&[u8], usize)> = chunks
            .iter()
            .map(|c| (c.indices.as_slice(), c.count))
            .chain(chunks.iter().map(|c| (c.values.as_slice(), c.count)))
            .collect();
        let offsets: Vec<usize> = frames
            .iter()
            .scan(0usize, |at, (bytes, _)| {
                let here = *at;
                *at += bytes.len().next_multiple_of(ALIGNMENT);
                Some(here)
            })
            .collect();
        let total = offsets.last().map_or(0, |&at| at + frames.last().map_or(0, |f| f.0.len()));
        // SAFETY: u8 has no invalid values; filled just below.
        let mut host =
            unsafe { gpu.context.alloc_pinned_with_flags::<u8>(total, 0) }.during("cuMemHostAlloc")?;
        let bytes = host.as_mut_slice().during("cuMemHostAlloc")?;
        bytes.fill(0);
        for ((frame, _), &at) in frames.iter().zip(&offsets) {
            bytes[at..at + frame.len()].copy_from_slice(frame);
        }
        let compressed = stream.alloc_zeros::<u8>(total).during("cuMemAlloc")?;
        let words = stream.alloc_zeros::<u32>(2 * stride * chunks.len()).during("cuMemAlloc")?;
        let up = |values: &[u64]| stream.clone_htod(values).during("cuMemcpyHtoD");
        let (source, into) = (compressed.device_ptr(stream).0, words.device_ptr(stream).0);
        let pointers: Vec<u64> = offsets.iter().map(|&at| source + at as u64).collect();
        let targets: Vec<u64> = (0..frames.len()).map(|n| into + (4 * n * stride) as u64).collect();
        let sizes: Vec<u64> = frames.iter().map(|(bytes, _)| bytes.len() as u64).collect();
        let room: Vec<u64> = frames.iter().map(|&(_, count)| 4 * count as u64).collect();
        let scratch_bytes = nvcomp.scratch_bytes(frames.len(), 4 * longest)?;
        let [bases, counts] = on_device(stream, chunks)?;
        Ok(Self {
            add,
            host,
            stride,
            chunks: chunks.len(),
            bases,
            counts,
            from: up(&pointers)?,
            from_bytes: up(&sizes)?,
            into: up(&targets)?,
            into_bytes: up(&room)?,
            found_bytes: stream.alloc_zeros(frames.len()).during("cuMemAlloc")?,
            statuses: stream.alloc_zeros(frames.len()).during("cuMemAlloc")?,
            scratch: stream.alloc_zeros(scratch_bytes.max(1)).during("cuMemAlloc")?,
            compressed,
            words,
            nvcomp,
            stream: stream.clone(),
        })
    }

    /// Adds the delta to `tensor`; returns the seconds it took.
    pub fn apply(&mut self, tensor: &mut CudaSlice<f32>) -> Result<f64, Error> {
        wall_s(|| {
            self.stream.memcpy_htod(&self.host, &mut self.compressed).during("cuMemcpyHtoD")?;
            self.decompress()?;
            let half = self.stride * self.chunks;
            let (gaps, values) = self.words.split_at(half);
            let stride = self.stride as u32;
            let mut launch = self.stream.launch_builder(&self.add);
            launch.arg(tensor).arg(&gaps).arg(&values).arg(&self.bases).arg(&self.counts).arg(&stride);
            // SAFETY: the kernel reads `counts[b]` words of chunk b, which `stride` holds, and
            // chunks were made so that every index they reach is inside the tensor.
            unsafe { launch.launch(grid(self.chunks as u32, THREADS)) }.during("cuLaunchKernel")?;
            self.stream.synchronize().during("cuStreamSynchronize")
        })
    }

    fn decompress(&mut self) -> Result<(), Error> {
        let stream = &self.stream;
        let chunks = Chunks {
            count: 2 * self.chunks,
            longest: 4 * self.stride,
            plain: self.into.device_ptr(stream).0,
            plain_bytes: self.into_bytes.device_ptr(stream).0,
            packed: self.from.device_ptr(stream).0,
            packed_bytes: self.from_bytes.device_ptr(stream).0,
            found_bytes: self.found_bytes.device_ptr_mut(stream).0,
            statuses: self.statuses.device_ptr_mut(stream).0,
            scratch_bytes: self.scratch.len(),
            scratch: self.scratch.device_ptr_mut(stream).0,
        };
        // SAFETY: every array has one entry a frame on the device, each pointing to a chunk or to
        // room for it; all of them live as long as `self`, which outlives the synchronize below.
        unsafe { self.nvcomp.decompress(&chunks, stream.cu_stream().cast()) }
    }

    /// Whether every frame of the last run came out whole.
    pub fn check(&self) -> Result<(), Error> {
        let statuses = self.stream.clone_dtoh(&self.statuses).during("cuMemcpyDtoH")?;
        statuses.iter().try_for_each(|&status| check(status, "nvCOMP, a frame"))
    }
}
