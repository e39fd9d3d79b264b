//! The bench of the compute measurements: a GPU with cuBLAS, random values to
//! read, room for results, our streaming kernels, and the two ways of timing.

use super::blas::{Blas, random_bf16};
use super::points::Compute;
use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::kernels::{self, grid};
use crate::stats::Spread;
use cudarc::driver::sys::CUstreamCaptureMode;
use cudarc::driver::sys::{CUdevice_attribute_enum as Attribute, CUevent_flags, CUgraphInstantiate_flags};
use cudarc::driver::{CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, PushKernelArg};
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use std::sync::Arc;
use std::time::Duration;

/// Device memory that weights are taken from in turn: many times the cache.
pub(super) const POOL_BYTES: usize = 3 << 30;
/// The largest result, with room for scores.
const SCRATCH_BYTES: usize = 5 << 28;
/// Random bytes that the pool repeats.
const PATTERN_BYTES: usize = 64 << 20;
/// Timings of one point; the median counts.
pub(super) const REPEATS: usize = 5;

/// What the measurements need of the machine.
pub(crate) struct Lab {
    pub gpu: Gpu,
    pub blas: Blas,
    /// Read, never changed: random values.
    pool: CudaSlice<u8>,
    /// Where results go.
    scratch: CudaSlice<u8>,
    pub copy: CudaFunction,
    pub triad: CudaFunction,
    pub tiny: CudaFunction,
    pub nvml: Option<Nvml>,
    pub quick: bool,
}

impl Lab {
    pub(super) fn open(quick: bool) -> Result<Self, Error> {
        let gpu = Gpu::open(0)?;
        gpu.require_memory(POOL_BYTES + SCRATCH_BYTES + (256 << 20), "compute measurements")?;
        let blas = Blas::open(&gpu, gpu.stream()?)?;
        let pool = pool(&blas.stream)?;
        let scratch = blas.stream.alloc_zeros::<u8>(SCRATCH_BYTES).during("cuMemAlloc")?;
        let compiled = |kernel| gpu.compile(kernels::STREAMS, kernel);
        let (copy, triad, tiny) = (compiled("copy")?, compiled("triad")?, compiled("tiny")?);
        Ok(Self { gpu, blas, pool, scratch, copy, triad, tiny, nvml: Nvml::init().ok(), quick })
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.blas.stream
    }

    pub(super) fn describe(&self) -> Result<Compute, Error> {
        let attribute = |which| self.gpu.context.attribute(which).during("cuDeviceGetAttribute");
        let device = self.nvml.as_ref().and_then(|nvml| nvml.device_by_index(0).ok());
        Ok(Compute {
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
            l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
            power_limit_w: device
                .as_ref()
                .and_then(|d| d.enforced_power_limit().ok())
                .map_or(0.0, |mw| f64::from(mw) / 1e3),
            max_sm_clock_mhz: device.as_ref().and_then(|d| d.max_clock_info(Clock::SM).ok()).unwrap_or(0),
            ..Compute::default()
        })
    }

    /// The address `offset` bytes into the pool, which must hold `bytes` there.
    pub(super) fn at(&self, offset: usize, bytes: usize) -> Result<u64, Error> {
        self.address(&self.pool, offset, bytes)
    }

    pub(super) fn result_at(&self, offset: usize, bytes: usize) -> Result<u64, Error> {
        self.address(&self.scratch, offset, bytes)
    }

    pub(super) fn address(&self, buffer: &CudaSlice<u8>, offset: usize, bytes: usize) -> Result<u64, Error> {
        if offset + bytes > buffer.len() {
            return Err(Error::OutOfMemory {
                call: "compute measurements",
                needed_mib: ((offset + bytes) >> 20) as u64,
                free_mib: (buffer.len() >> 20) as u64,
            });
        }
        let (address, _keep) = buffer.device_ptr(self.stream());
        Ok(address + offset as u64)
    }

    /// Queues `copy` or `triad` over `values` 16-byte words, or one idle thread.
    pub(super) fn launch_stream(
        &self,
        kernel: &CudaFunction,
        addresses: [u64; 3],
        words: u64,
    ) -> Result<(), Error> {
        let mut launch = self.stream().launch_builder(kernel);
        launch.arg(&addresses[0]).arg(&addresses[1]).arg(&addresses[2]).arg(&words);
        let blocks = words.div_ceil(256).clamp(1, u64::from(u32::MAX / 2));
        // SAFETY: the addresses come from `at`, which checked their room; the
        // argument list is the kernels'.
        unsafe { launch.launch(grid(blocks as u32, 256)) }.during("streaming kernel")?;
        Ok(())
    }

    /// Captures `count` launches into a graph.
    pub(super) fn captured(
        &self,
        count: usize,
        launch: &mut dyn FnMut(usize) -> Result<(), Error>,
    ) -> Result<CudaGraph, Error> {
        let stream = self.stream();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).during("cuStreamBeginCapture")?;
        let queued = (0..count).try_for_each(&mut *launch);
        // The capture must end even where a launch failed.
        let graph = stream.end_capture(CUgraphInstantiate_flags(0)).during("cuStreamEndCapture");
        queued?;
        graph?.ok_or(Error::Cuda {
            call: "cuStreamEndCapture",
            code: 901,
            meaning: "no graph came of the capture".into(),
        })
    }

    /// Seconds of each of `count` launches that follow each other in a graph.
    pub(super) fn chained_s(
        &self,
        count: usize,
        launch: &mut dyn FnMut(usize) -> Result<(), Error>,
    ) -> Result<Spread, Error> {
        // Outside of a capture first: libraries load their kernels lazily.
        launch(0)?;
        let graph = self.captured(count, launch)?;
        graph.launch().during("cuGraphLaunch")?;
        self.stream().synchronize().during("cuStreamSynchronize")?;
        let times = (0..REPEATS)
            .map(|_| Ok(self.timed_s(&mut || graph.launch().during("cuGraphLaunch"))? / count as f64))
            .collect::<Result<Vec<_>, Error>>()?;
        Spread::timed("timing", &times)
    }

    /// Seconds on the device between two events around what `queue` queues.
    pub(super) fn timed_s(&self, queue: &mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error> {
        let event =
            || self.gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).during("cuEventCreate");
        let (start, end) = (event()?, event()?);
        start.record(self.stream()).during("cuEventRecord")?;
        queue()?;
        end.record(self.stream()).during("cuEventRecord")?;
        let milliseconds = start.elapsed_ms(&end).during("cuEventElapsedTime")?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Lets the chip rest as long as it worked.
    pub(super) fn rest(&self, busy_s: f64) {
        if busy_s > 1e-3 {
            std::thread::sleep(Duration::from_secs_f64(busy_s.min(0.2)));
        }
    }
}

/// Random bf16 values, over and over.
fn pool(stream: &Arc<CudaStream>) -> Result<CudaSlice<u8>, Error> {
    let pattern: Vec<u8> = random_bf16(PATTERN_BYTES / 2, 1).into_iter().flat_map(u16::to_le_bytes).collect();
    let mut pool = stream.alloc_zeros::<u8>(POOL_BYTES).during("cuMemAlloc")?;
    for start in (0..POOL_BYTES).step_by(PATTERN_BYTES) {
        let mut part = pool.slice_mut(start..start + PATTERN_BYTES);
        stream.memcpy_htod(&pattern, &mut part).during("cuMemcpyHtoD")?;
    }
    stream.synchronize().during("cuStreamSynchronize")?;
    Ok(pool)
}
