//! The codec on a GPU for callers whose values are on the host: copies there and back.
//!
//! Stands in for the CPU under any plan ([`trinity_codec::line::Device`]), one stream
//! at a time. Whoever has values on the device uses [`Encoder`] and [`Decoder`].

use super::{Decoder, Encoder, Fault, Faulty, Format, LineCodec};
use crate::error::{During, Error};
use crate::gpu::{Gpu, require_nvrtc};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, ValidAsZeroBits};
use std::sync::{Arc, Mutex, PoisonError};
use trinity_codec::line::{Analysis, Device, Plan, Settings, Stream, Transform, check_density};

/// Bits per value that tiles have room for at first, and where that was too little.
const ROOM_BITS: [f64; 2] = [12.0, 80.0];

/// An encoder with values and all it needs beside them on the device.
pub(crate) struct Encoding<T> {
    pub stream: Arc<CudaStream>,
    encoder: Encoder,
    values: CudaSlice<T>,
    coded: CudaSlice<u8>,
    length: CudaSlice<u64>,
    workspace: CudaSlice<u8>,
}

impl<T: DeviceRepr> Encoding<T> {
    pub fn new(encoder: Encoder, stream: &Arc<CudaStream>, values: &[T]) -> Result<Self, Error> {
        let room = |bytes: usize| stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc");
        Ok(Self {
            values: stream.clone_htod(values).during("cuMemcpyHtoD")?,
            coded: room(encoder.bound_bytes())?,
            length: stream.alloc_zeros::<u64>(1).during("cuMemAlloc")?,
            workspace: room(encoder.workspace_bytes_of(1))?,
            encoder,
            stream: stream.clone(),
        })
    }

    pub fn queue(&mut self) -> Result<(), Error> {
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

    /// What the last encoding made, or which tiles it could not.
    pub fn finish(&self) -> Result<Result<Vec<u8>, Vec<Faulty>>, Error> {
        let workspace = self.workspace.device_ptr(&self.stream).0;
        // SAFETY: the workspace that was encoded with.
        let faults = unsafe { self.encoder.faults_of(1, workspace, self.stream.cu_stream())? };
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        let length = self.stream.clone_dtoh(&self.length).during("cuMemcpyDtoH")?[0] as usize;
        let made = self.coded.slice(..length.min(self.coded.len()));
        Ok(Ok(self.stream.clone_dtoh(&made).during("cuMemcpyDtoH")?))
    }
}

/// A decoder with a stream, and room for its values, on the device.
pub(crate) struct Decoding<T> {
    stream: Arc<CudaStream>,
    decoder: Decoder,
    pub source: CudaSlice<u8>,
    workspace: CudaSlice<u8>,
    pub values: CudaSlice<T>,
}

impl<T: DeviceRepr + ValidAsZeroBits> Decoding<T> {
    pub fn new(decoder: Decoder, stream: &Arc<CudaStream>, coded: &[u8]) -> Result<Self, Error> {
        Ok(Self {
            source: stream.clone_htod(coded).during("cuMemcpyHtoD")?,
            workspace: stream.alloc_zeros(decoder.workspace_bytes_of(1)).during("cuMemAlloc")?,
            values: stream.alloc_zeros(decoder.output_bytes() / size_of::<T>()).during("cuMemAlloc")?,
            decoder,
            stream: stream.clone(),
        })
    }

    pub fn queue(&mut self) -> Result<(), Error> {
        let stream = &self.stream;
        // SAFETY: `source` is the stream the decoder was made of, the others have the sizes it
        // stated; all live with `self`, whose owner waits for the stream.
        unsafe {
            self.decoder.decode(
                self.source.device_ptr(stream).0,
                self.source.len(),
                self.values.device_ptr_mut(stream).0,
                self.workspace.device_ptr_mut(stream).0,
                stream.cu_stream(),
            )
        }
    }

    /// The tiles that the last decoding found damaged.
    pub fn faults(&self) -> Result<Vec<Faulty>, Error> {
        let workspace = self.workspace.device_ptr(&self.stream).0;
        // SAFETY: the workspace that was decoded with.
        unsafe { self.decoder.faults_of(1, workspace, self.stream.cu_stream()) }
    }

    /// What came of the last decoding, and the tiles that it found damaged.
    pub fn finish(&self) -> Result<(Vec<T>, Vec<Faulty>), Error> {
        let faults = self.faults()?;
        Ok((self.stream.clone_dtoh(&self.values).during("cuMemcpyDtoH")?, faults))
    }
}

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
        let encoder =
            Encoder::on(&self.codec, plan, settings, Format::F32, room_bits, self.codec.multiprocessors())?;
        let mut encoding = Encoding::new(encoder, &self.gpu.stream()?, values)?;
        encoding.queue()?;
        encoding.finish()
    }

    fn try_decode(&self, coded: &[u8]) -> Result<(Vec<f32>, Vec<Faulty>), Error> {
        let decoder = Decoder::on(&self.codec, coded, Format::F32, self.codec.multiprocessors())?;
        let mut decoding = Decoding::new(decoder, &self.gpu.stream()?, coded)?;
        decoding.queue()?;
        decoding.finish()
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
                    reason = faults[0].to_string();
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
