//! The codec on a GPU for callers whose values are on the host: copies there and back.
//!
//! Stands in for the CPU under any plan ([`trinity_codec::line::Device`]), one stream
//! at a time. Whoever has values on the device uses [`Encoder`] and [`Decoder`].

use super::{Decoder, Encoder, Fault, Faulty, Format, LineCodec, require_nvrtc};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use cudarc::driver::{DevicePtr, DevicePtrMut};
use std::sync::{Mutex, PoisonError};
use trinity_codec::line::{Analysis, Device, Plan, Settings, Stream, Transform, check_density};

/// Bits per value that tiles have room for at first, and where that was too little.
const ROOM_BITS: [f64; 2] = [12.0, 80.0];

/// One GPU, coding for the host.
#[derive(Debug)]
pub struct Cuda {
    gpu: Gpu,
    codec: LineCodec,
    /// Who codes now: memory of the device is taken for one stream at a time.
    turn: Mutex<()>,
}

impl Cuda {
    /// Opens GPU `ordinal`; a sentence where there is none, or no NVRTC.
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        let gpu = Gpu::open(ordinal)?;
        require_nvrtc()?;
        let codec = LineCodec::new(&gpu)?;
        Ok(Self { gpu, codec, turn: Mutex::new(()) })
    }

    /// A stream with room for so many bits per value, or what is wrong with tiles.
    fn try_encode(
        &self,
        plan: &Plan,
        values: &[f32],
        settings: &Settings,
        room_bits: f64,
    ) -> Result<Result<Vec<u8>, Vec<Faulty>>, Error> {
        let encoder = Encoder::new(&self.codec, plan, settings, Format::F32, room_bits)?;
        let stream = self.gpu.stream()?;
        let room = |bytes: usize| stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc");
        let values = stream.clone_htod(values).during("cuMemcpyHtoD")?;
        let mut coded = room(encoder.bound_bytes())?;
        let mut length = stream.alloc_zeros::<u64>(1).during("cuMemAlloc")?;
        let mut workspace = room(encoder.workspace_bytes())?;
        let workspace_at = workspace.device_ptr_mut(&stream).0;
        // SAFETY: buffers of the sizes the encoder stated, alive until the waits below.
        let faults = unsafe {
            encoder.encode(
                values.device_ptr(&stream).0,
                coded.device_ptr_mut(&stream).0,
                length.device_ptr_mut(&stream).0,
                workspace_at,
                stream.cu_stream(),
            )?;
            encoder.faults(workspace_at, stream.cu_stream())?
        };
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        let length = stream.clone_dtoh(&length).during("cuMemcpyDtoH")?[0] as usize;
        let made = coded.slice(..length.min(coded.len()));
        Ok(Ok(stream.clone_dtoh(&made).during("cuMemcpyDtoH")?))
    }

    fn try_decode(&self, coded: &[u8]) -> Result<(Vec<f32>, Vec<Faulty>), Error> {
        let decoder = Decoder::new(&self.codec, coded, Format::F32)?;
        let stream = self.gpu.stream()?;
        let source = stream.clone_htod(coded).during("cuMemcpyHtoD")?;
        let mut values =
            stream.alloc_zeros::<f32>(decoder.output_bytes() / Format::F32.bytes()).during("cuMemAlloc")?;
        let mut workspace = stream.alloc_zeros::<u8>(decoder.workspace_bytes()).during("cuMemAlloc")?;
        let workspace_at = workspace.device_ptr_mut(&stream).0;
        // SAFETY: as above.
        let faults = unsafe {
            decoder.decode(
                source.device_ptr(&stream).0,
                coded.len(),
                values.device_ptr_mut(&stream).0,
                workspace_at,
                stream.cu_stream(),
            )?;
            decoder.faults(workspace_at, stream.cu_stream())?
        };
        Ok((stream.clone_dtoh(&values).during("cuMemcpyDtoH")?, faults))
    }

    /// Makes this GPU the calling thread's and waits for whoever uses it.
    fn turn(&self) -> Result<std::sync::MutexGuard<'_, ()>, trinity_codec::line::Error> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.gpu.context.bind_to_thread().during("cuCtxSetCurrent").map_err(|e| self.failed(&e))?;
        Ok(turn)
    }

    fn failed(&self, error: &Error) -> trinity_codec::line::Error {
        trinity_codec::line::Error::Device { device: self.name(), reason: error.to_string() }
    }
}

impl Device for Cuda {
    fn kind(&self) -> &'static str {
        "cuda"
    }

    fn name(&self) -> String {
        self.gpu.name().to_owned()
    }

    fn encode(
        &self,
        plan: &Plan,
        values: &[f32],
        settings: &Settings,
    ) -> Result<Vec<u8>, trinity_codec::line::Error> {
        if values.len() != plan.rows * plan.cols {
            let what = format!("{} values for {} × {}", values.len(), plan.rows, plan.cols);
            return Err(trinity_codec::line::Error::Mismatch { what });
        }
        // Kernels analyse in single precision; what gates do is done here.
        if settings.analysis == Analysis::Whole && plan.transform != Transform::None {
            return trinity_codec::line::encode(plan, values, settings);
        }
        let _turn = self.turn()?;
        let mut reason = String::new();
        for room_bits in ROOM_BITS {
            match self.try_encode(plan, values, settings, room_bits).map_err(|e| self.failed(&e))? {
                Ok(stream) => {
                    check_density(values.len(), stream.len())?;
                    return Ok(stream);
                }
                Err(faults) => {
                    reason = format!("tile {}: {}", faults[0].tile, faults[0].fault);
                    // More room helps where the budget is not what was exceeded.
                    if faults.iter().any(|faulty| faulty.fault != Fault::Overflow) {
                        break;
                    }
                }
            }
        }
        Err(trinity_codec::line::Error::Device { device: self.name(), reason })
    }

    fn decode(&self, stream: &[u8]) -> Result<(usize, usize, Vec<f32>), trinity_codec::line::Error> {
        // Header and directory are read here, as on a CPU; the tiles on the GPU.
        let opened = Stream::open(stream)?;
        let (rows, cols) = (opened.plan().rows, opened.plan().cols);
        let _turn = self.turn()?;
        let (values, faults) = self.try_decode(stream).map_err(|e| self.failed(&e))?;
        match faults.first() {
            None => Ok((rows, cols, values)),
            Some(faulty) => Err(trinity_codec::line::Error::DamagedTile {
                tile: faulty.tile,
                what: faulty.fault.reason(),
            }),
        }
    }
}
