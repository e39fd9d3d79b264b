//! The line-rate codec on this GPU: whether it agrees with the CPU (`check`),
//! and how fast it is beside what else there is (`speed`).

mod check;
mod many;
mod speed;
mod video;

pub use super::made_up::weights;
pub use crate::recording::{Beside, Energy, Recorded, Speed};
pub use check::check;
pub use speed::{beside, measure, measure_alone};

use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::line::{Decoder, Encoder, Faulty, Format, LineCodec};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trinity_codec::line::{Plan, Settings};

/// A tensor that the check runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    pub name: String,
    pub values: usize,
    pub coded_bytes: usize,
    pub outcome: String,
}

impl Checked {
    /// Whether both sides agreed.
    pub fn agrees(&self) -> bool {
        self.outcome == "equal"
    }
}

/// One encoder and decoder with their buffers.
pub struct Bench {
    stream: Arc<CudaStream>,
    values: CudaSlice<u8>,
    coded: CudaSlice<u8>,
    length: CudaSlice<u64>,
    workspace: CudaSlice<u8>,
    encoder: Encoder,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("encoder", &self.encoder).finish_non_exhaustive()
    }
}

/// Runs of which the median counts.
const RUNS: usize = 7;

/// Bits per value that tiles have room for in measurements.
const ROOM_BITS: f64 = 20.0;

impl Bench {
    /// Copies `values`, as they lie in memory, to the GPU.
    pub fn new(
        gpu: &Gpu,
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        values: &[u8],
    ) -> Result<Self, Error> {
        Self::on(gpu, codec, plan, settings, format, values, codec.multiprocessors())
    }

    /// [`Bench::new`] with an encoder on so many multiprocessors.
    pub fn on(
        gpu: &Gpu,
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        values: &[u8],
        multiprocessors: u32,
    ) -> Result<Self, Error> {
        Self::queued(gpu.stream()?, codec, plan, settings, format, values, multiprocessors)
    }

    /// [`Bench::on`] a stream.
    fn queued(
        stream: Arc<CudaStream>,
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        values: &[u8],
        multiprocessors: u32,
    ) -> Result<Self, Error> {
        let encoder = Encoder::on(codec, plan, settings, format, ROOM_BITS, multiprocessors)?;
        let room = |bytes: usize| stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc");
        Ok(Self {
            values: stream.clone_htod(values).during("cuMemcpyHtoD")?,
            coded: room(encoder.bound_bytes())?,
            length: stream.alloc_zeros::<u64>(1).during("cuMemAlloc")?,
            workspace: room(encoder.workspace_bytes())?,
            encoder,
            stream,
        })
    }

    /// Encodes once and says what it made, or which tiles it could not.
    pub fn encode(&mut self) -> Result<Result<Vec<u8>, Vec<Faulty>>, Error> {
        self.queue_encode()?;
        let workspace = self.workspace.device_ptr(&self.stream).0;
        // SAFETY: the workspace that was just encoded with.
        let faults = unsafe { self.encoder.faults(workspace, self.stream.cu_stream())? };
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        let length = self.stream.clone_dtoh(&self.length).during("cuMemcpyDtoH")?[0] as usize;
        let view = self.coded.slice(..length.min(self.coded.len()));
        Ok(Ok(self.stream.clone_dtoh(&view).during("cuMemcpyDtoH")?))
    }

    fn queue_encode(&mut self) -> Result<(), Error> {
        let stream = &self.stream;
        // SAFETY: buffers of the sizes the encoder stated, on this stream, and alive with `self`.
        unsafe {
            self.encoder.encode(
                self.values.device_ptr(stream).0,
                self.coded.device_ptr_mut(stream).0,
                self.length.device_ptr_mut(stream).0,
                self.workspace.device_ptr_mut(stream).0,
                stream.cu_stream(),
            )
        }
    }

    /// Seconds an encoding takes.
    pub fn encode_s(&mut self) -> Result<f64, Error> {
        let stream = self.stream.clone();
        median_s(&stream, || self.queue_encode())
    }

    /// A decoder of `coded` on so many multiprocessors, with its buffers.
    fn decoder(&self, codec: &LineCodec, coded: &[u8], multiprocessors: u32) -> Result<Ready, Error> {
        let decoder = Decoder::on(codec, coded, Format::Bf16, multiprocessors)?;
        let room = |bytes: usize| self.stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc");
        Ok(Ready {
            source: self.stream.clone_htod(coded).during("cuMemcpyHtoD")?,
            workspace: room(decoder.workspace_bytes())?,
            decoded: room(decoder.output_bytes())?,
            decoder,
        })
    }

    /// Seconds a decoding of `coded` takes on so many multiprocessors, what
    /// comes out, and which tiles are damaged.
    pub fn decode(
        &mut self,
        codec: &LineCodec,
        coded: &[u8],
        multiprocessors: u32,
    ) -> Result<(f64, Vec<u8>, Vec<Faulty>), Error> {
        let ready = self.decoder(codec, coded, multiprocessors)?;
        let stream = self.stream.clone();
        let seconds = median_s(&stream, || ready.queue(self))?;
        // SAFETY: the workspace that was just decoded with.
        let faults =
            unsafe { ready.decoder.faults(ready.workspace.device_ptr(&stream).0, stream.cu_stream())? };
        let values = stream.clone_dtoh(&ready.decoded).during("cuMemcpyDtoH")?;
        Ok((seconds, values, faults))
    }
}

/// A decoder with a stream and room on the device.
struct Ready {
    decoder: Decoder,
    source: CudaSlice<u8>,
    workspace: CudaSlice<u8>,
    decoded: CudaSlice<u8>,
}

impl Ready {
    fn queue(&self, bench: &Bench) -> Result<(), Error> {
        let stream = &bench.stream;
        // SAFETY: `source` is the stream the decoder was made of, the others have the sizes it
        // stated; all live with `self`, whose owner waits for the stream.
        unsafe {
            self.decoder.decode(
                self.source.device_ptr(stream).0,
                self.source.len(),
                self.decoded.device_ptr(stream).0,
                self.workspace.device_ptr(stream).0,
                stream.cu_stream(),
            )
        }
    }
}

/// Median of a few runs between events, after one to warm up.
fn median_s(stream: &Arc<CudaStream>, mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let mut seconds = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let start = stream.record_event(timed).during("cuEventRecord")?;
        work()?;
        let end = stream.record_event(timed).during("cuEventRecord")?;
        stream.synchronize().during("cuStreamSynchronize")?;
        seconds.push(f64::from(start.elapsed_ms(&end).during("cuEventElapsedTime")?) / 1e3);
    }
    seconds.sort_unstable_by(f64::total_cmp);
    Ok(seconds[RUNS / 2])
}

fn to_bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half::bf16::from_f32(value).to_le_bytes()).collect()
}

fn from_bf16(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b).or((a.len() != b.len()).then_some(a.len().min(b.len())))
}

/// Energy of the first and of the difference.
fn energies(original: &[u8], other: &[u8]) -> (f64, f64) {
    let value = |b: &[u8]| f64::from(half::bf16::from_le_bytes([b[0], b[1]]).to_f32());
    original.chunks_exact(2).zip(other.chunks_exact(2)).fold((0.0, 0.0), |(signal, noise), (a, b)| {
        let (a, b) = (value(a), value(b));
        (signal + a * a, noise + (a - b) * (a - b))
    })
}
