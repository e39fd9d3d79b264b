//! NVENC: frames in, all-intra Annex B out.
//!
//! A ring of input and bitstream buffers keeps the engine fed: up to
//! [`RING`] pictures are submitted before the oldest is collected. Every
//! picture is an IDR picture with its parameter sets, so that a stream can be
//! cut anywhere, as ours can.

use crate::error::Error;
use crate::nvdec::Standard;
use crate::sys::nvenc::{self as api, Nvenc, check};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use trinity_bits::{Chroma, Frame, Rate};

/// Pictures in flight.
pub const RING: usize = 4;

/// How an NVENC stream is to be coded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    pub standard: Standard,
    pub width: u32,
    pub height: u32,
    pub chroma: Chroma,
    pub depth: u32,
    pub rate: Rate,
}

/// What NVENC says it can do for one standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Capabilities {
    pub engines: i32,
    pub max_width: i32,
    pub max_height: i32,
    pub monochrome: bool,
    pub yuv444: bool,
    pub lossless: bool,
    pub ten_bit: bool,
}

pub struct Session {
    nvenc: Arc<Nvenc>,
    encoder: *mut c_void,
    ring: Option<Ring>,
    gpu: String,
}

struct Ring {
    settings: Settings,
    format: u32,
    free: Vec<Slot>,
    in_flight: VecDeque<Slot>,
    submitted: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    input: *mut c_void,
    output: *mut c_void,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

/// Calls one function of the table, or says which one the driver lacks.
macro_rules! call {
    ($session:expr, $function:ident, $($arg:expr),*) => {{
        let function = $session.nvenc.functions.$function.ok_or(Error::OldDriver {
            library: api::LIBRARY,
            function: stringify!($function),
        })?;
        // SAFETY: the function comes from the table NVENC filled for this
        // version; pointers are to live values of the declared layout.
        check(unsafe { function($($arg),*) }, stringify!($function))
    }};
}

impl Session {
    /// Opens a session on the GPU whose CUDA context is `context`.
    ///
    /// # Safety
    /// `context` must be a live `CUcontext` (or what the loaded library takes
    /// for one) for as long as the session lives.
    pub unsafe fn open(nvenc: &Arc<Nvenc>, context: *mut c_void, gpu: &str) -> Result<Self, Error> {
        let mut session =
            Self { nvenc: nvenc.clone(), encoder: std::ptr::null_mut(), ring: None, gpu: gpu.into() };
        let mut params = api::OpenSessionParams {
            version: api::struct_version(1),
            deviceType: api::DEVICE_CUDA,
            device: context,
            reserved: std::ptr::null_mut(),
            apiVersion: api::API_VERSION,
            reserved1: [0; 253],
            reserved2: [0; 64],
        };
        let mut encoder = std::ptr::null_mut();
        let opened = call!(session, nvEncOpenEncodeSessionEx, &mut params, &mut encoder);
        // Kept even on failure: NVENC wants a failed session destroyed too.
        session.encoder = encoder;
        match opened {
            Err(Error::Nvenc { code: api::NO_ENCODE_DEVICE | api::UNSUPPORTED_DEVICE, meaning, .. }) => {
                Err(Error::NoEncoder { gpu: gpu.into(), meaning: meaning.into() })
            }
            other => other.map(|()| session),
        }
    }

    pub fn capabilities(&self, standard: Standard) -> Result<Capabilities, Error> {
        let ask = |what: u32| -> Result<i32, Error> {
            let mut param =
                api::CapsParam { version: api::struct_version(1), capsToQuery: what, reserved: [0; 62] };
            let mut value = 0;
            call!(self, nvEncGetEncodeCaps, self.encoder, codec_guid(standard), &mut param, &mut value)?;
            Ok(value)
        };
        Ok(Capabilities {
            engines: ask(api::CAPS_ENGINES)?,
            max_width: ask(api::CAPS_WIDTH_MAX)?,
            max_height: ask(api::CAPS_HEIGHT_MAX)?,
            monochrome: ask(api::CAPS_MONOCHROME)? != 0,
            yuv444: ask(api::CAPS_YUV444)? != 0,
            lossless: ask(api::CAPS_LOSSLESS)? != 0,
            ten_bit: ask(api::CAPS_10BIT)? != 0,
        })
    }

    /// Prepares the encoder and its ring for one kind of picture.
    pub fn start(&mut self, settings: Settings) -> Result<(), Error> {
        let caps = self.capabilities(settings.standard)?;
        self.refuse_unsupported(&settings, &caps)?;
        let mut config = self.preset(&settings)?;
        configure(&mut config, &settings);
        let mut params = initialize_params(&settings, &mut config);
        call!(self, nvEncInitializeEncoder, self.encoder, &mut params)?;
        let format = buffer_format(&settings);
        let mut ring = Ring { settings, format, free: Vec::new(), in_flight: VecDeque::new(), submitted: 0 };
        for _ in 0..RING {
            ring.free.push(self.slot(&settings, format)?);
        }
        self.ring = Some(ring);
        Ok(())
    }

    /// Encodes frames of the kind `start` was told; answers one Annex B piece a frame.
    pub fn encode(&mut self, frames: &[Frame]) -> Result<Vec<Vec<u8>>, Error> {
        let mut pieces = Vec::with_capacity(frames.len());
        self.encode_each(frames, |piece| pieces.push(piece.to_vec()))?;
        Ok(pieces)
    }

    /// The same, piece by piece as they come, in order.
    pub fn encode_each<'f>(
        &mut self,
        frames: impl IntoIterator<Item = &'f Frame>,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let none = refused("encode", 11, "encoder not initialized: call start first");
        let mut ring = self.ring.take().ok_or(none)?;
        let outcome = self.encode_in(&mut ring, frames, &mut sink);
        self.ring = Some(ring);
        outcome
    }

    fn encode_in<'f>(
        &self,
        ring: &mut Ring,
        frames: impl IntoIterator<Item = &'f Frame>,
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        for frame in frames {
            if ring.free.is_empty() {
                self.collect(ring, sink)?;
            }
            self.submit(ring, frame)?;
        }
        while !ring.in_flight.is_empty() {
            self.collect(ring, sink)?;
        }
        Ok(())
    }

    fn refuse_unsupported(&self, settings: &Settings, caps: &Capabilities) -> Result<(), Error> {
        let what = match settings {
            s if s.chroma == Chroma::C422 => "4:2:2",
            s if s.chroma == Chroma::C444 && !caps.yuv444 => "4:4:4",
            s if s.chroma == Chroma::C400 && !caps.monochrome => "4:0:0",
            s if !matches!(s.depth, 8 | 10) => "depths other than 8 and 10 bit",
            s if s.depth == 10 && (s.standard == Standard::H264 || !caps.ten_bit) => "10 bit",
            s if s.rate == Rate::Lossless && !caps.lossless => "lossless coding",
            s if !matches!(s.rate, Rate::Qp(_) | Rate::Bits(_) | Rate::Lossless) => "a bound on the error",
            s if s.width as i32 > caps.max_width || s.height as i32 > caps.max_height => {
                "pictures of this size"
            }
            _ => return Ok(()),
        };
        Err(Error::Unsupported {
            engine: "NVENC",
            gpu: self.gpu.clone(),
            what: format!("{} {what}", settings.standard.name()),
        })
    }

    fn preset(&self, settings: &Settings) -> Result<api::Config, Error> {
        // SAFETY: all-zero is valid for these plain C structs.
        let mut preset: api::PresetConfig = unsafe { std::mem::zeroed() };
        preset.version = api::struct_version_high(4);
        preset.presetCfg.version = api::struct_version_high(7);
        call!(
            self,
            nvEncGetEncodePresetConfigEx,
            self.encoder,
            codec_guid(settings.standard),
            api::PRESET_P4,
            tuning(settings),
            &mut preset
        )?;
        Ok(preset.presetCfg)
    }

    fn slot(&self, settings: &Settings, format: u32) -> Result<Slot, Error> {
        // SAFETY: all-zero is valid for these plain C structs.
        let (mut input, mut output): (api::CreateInputBuffer, api::CreateBitstreamBuffer) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        input.version = api::struct_version(1);
        input.width = settings.width;
        input.height = settings.height;
        input.bufferFmt = format;
        call!(self, nvEncCreateInputBuffer, self.encoder, &mut input)?;
        output.version = api::struct_version(1);
        if let Err(error) = call!(self, nvEncCreateBitstreamBuffer, self.encoder, &mut output) {
            call!(self, nvEncDestroyInputBuffer, self.encoder, input.inputBuffer)?;
            return Err(error);
        }
        Ok(Slot { input: input.inputBuffer, output: output.bitstreamBuffer })
    }

    fn submit(&self, ring: &mut Ring, frame: &Frame) -> Result<(), Error> {
        let settings = ring.settings;
        if (frame.width() as u32, frame.height() as u32) != (settings.width, settings.height)
            || frame.chroma != settings.chroma
            || frame.depth != settings.depth
        {
            return Err(refused("encode", 8, "a frame of another kind than started"));
        }
        let Some(slot) = ring.free.pop() else {
            return Err(refused("encode", 14, "not enough buffer"));
        };
        ring.in_flight.push_back(slot);
        // SAFETY: all-zero is valid for these plain C structs.
        let mut lock: api::LockInputBuffer = unsafe { std::mem::zeroed() };
        lock.version = api::struct_version(1);
        lock.inputBuffer = slot.input;
        call!(self, nvEncLockInputBuffer, self.encoder, &mut lock)?;
        let height = settings.height as usize;
        let rows = if settings.chroma == Chroma::C444 { height * 3 } else { height + height.div_ceil(2) };
        // SAFETY: NVENC maps `pitch` bytes for each row of every plane of the
        // format the buffer was created with, until it is unlocked below.
        let memory = unsafe {
            std::slice::from_raw_parts_mut(lock.bufferDataPtr.cast::<u8>(), lock.pitch as usize * rows)
        };
        fill(memory, lock.pitch as usize, frame);
        call!(self, nvEncUnlockInputBuffer, self.encoder, slot.input)?;
        // SAFETY: as above.
        let mut picture: api::PicParams = unsafe { std::mem::zeroed() };
        picture.version = api::struct_version_high(4);
        picture.inputWidth = settings.width;
        picture.inputHeight = settings.height;
        picture.inputPitch = lock.pitch;
        picture.encodePicFlags = api::PIC_FLAG_FORCEIDR | api::PIC_FLAG_OUTPUT_SPSPPS;
        picture.frameIdx = ring.submitted;
        picture.inputTimeStamp = u64::from(ring.submitted);
        picture.inputBuffer = slot.input;
        picture.outputBitstream = slot.output;
        picture.bufferFmt = ring.format;
        picture.pictureStruct = api::PIC_STRUCT_FRAME;
        ring.submitted += 1;
        match call!(self, nvEncEncodePicture, self.encoder, &mut picture) {
            // Without reordering this does not happen; if it did, the bitstream would never come.
            Err(Error::Nvenc { code: code @ api::NEED_MORE_INPUT, call, .. }) => {
                Err(refused(call, code, "need more input in an intra stream"))
            }
            other => other,
        }
    }

    /// Waits for the oldest picture in flight and hands its bits on.
    fn collect(&self, ring: &mut Ring, sink: &mut impl FnMut(&[u8])) -> Result<(), Error> {
        let Some(slot) = ring.in_flight.pop_front() else {
            return Err(refused("collect", 9, "nothing in flight"));
        };
        // SAFETY: as above.
        let mut lock: api::LockBitstream = unsafe { std::mem::zeroed() };
        lock.version = api::struct_version(1);
        lock.outputBitstream = slot.output;
        ring.free.push(slot);
        call!(self, nvEncLockBitstream, self.encoder, &mut lock)?;
        // SAFETY: valid for that many bytes until unlocked below.
        sink(unsafe {
            std::slice::from_raw_parts(
                lock.bitstreamBufferPtr.cast::<u8>(),
                lock.bitstreamSizeInBytes as usize,
            )
        });
        call!(self, nvEncUnlockBitstream, self.encoder, slot.output)
    }

    /// Ends the stream, gives buffers back. Errors while closing are reported by none: the session is gone either way.
    fn close(&mut self) -> Result<(), Error> {
        if let Some(mut ring) = self.ring.take() {
            // SAFETY: all-zero is valid for this plain C struct.
            let mut end: api::PicParams = unsafe { std::mem::zeroed() };
            end.version = api::struct_version_high(4);
            end.encodePicFlags = api::PIC_FLAG_EOS;
            call!(self, nvEncEncodePicture, self.encoder, &mut end)?;
            for slot in ring.free.drain(..).chain(ring.in_flight.drain(..)) {
                call!(self, nvEncDestroyInputBuffer, self.encoder, slot.input)?;
                call!(self, nvEncDestroyBitstreamBuffer, self.encoder, slot.output)?;
            }
        }
        if !self.encoder.is_null() {
            call!(self, nvEncDestroyEncoder, self.encoder)?;
            self.encoder = std::ptr::null_mut();
        }
        Ok(())
    }
}

fn refused(call: &'static str, code: u32, meaning: &'static str) -> Error {
    Error::Nvenc { call, code, meaning }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn codec_guid(standard: Standard) -> api::Guid {
    match standard {
        Standard::H264 => api::CODEC_H264,
        Standard::Hevc => api::CODEC_HEVC,
    }
}

fn tuning(settings: &Settings) -> u32 {
    if settings.rate == Rate::Lossless { api::TUNING_LOSSLESS } else { api::TUNING_HIGH_QUALITY }
}

/// 4:0:0 is coded from NV12 with `monoChromeEncoding` on.
fn buffer_format(settings: &Settings) -> u32 {
    match (settings.chroma, settings.depth) {
        (Chroma::C444, 8) => api::FORMAT_YUV444,
        (Chroma::C444, _) => api::FORMAT_YUV444_10,
        (_, 8) => api::FORMAT_NV12,
        (_, _) => api::FORMAT_YUV420_10,
    }
}

fn configure(config: &mut api::Config, settings: &Settings) {
    config.gopLength = 1;
    config.frameIntervalP = 0;
    config.monoChromeEncoding = u32::from(settings.chroma == Chroma::C400);
    let yuv444 = settings.chroma == Chroma::C444;
    config.profileGUID = match (settings.standard, yuv444, settings.depth) {
        _ if settings.rate == Rate::Lossless => api::PROFILE_AUTOSELECT,
        (Standard::H264, false, _) => api::PROFILE_H264_HIGH,
        (Standard::H264, true, _) => api::PROFILE_H264_HIGH_444,
        (Standard::Hevc, true, _) => api::PROFILE_HEVC_FREXT,
        (Standard::Hevc, false, 8) => api::PROFILE_HEVC_MAIN,
        (Standard::Hevc, false, _) => api::PROFILE_HEVC_MAIN10,
    };
    let rc = &mut config.rcParams;
    // No adaptive quantization and no look-ahead: neither helps a tensor.
    rc.flags = 0;
    match settings.rate {
        Rate::Bits(bits) => {
            let luma = f64::from(settings.width) * f64::from(settings.height);
            let (right, down) = settings.chroma.shift();
            let chroma = (settings.chroma.planes() - 1) as f64 / f64::from(1 << (right + down));
            let per_second = bits * luma * (1.0 + chroma) * f64::from(FRAME_RATE);
            rc.rateControlMode = api::RC_CBR;
            rc.averageBitRate = per_second.min(f64::from(u32::MAX)) as u32;
            rc.maxBitRate = rc.averageBitRate;
            // One picture: every frame has the same budget.
            rc.vbvBufferSize = rc.averageBitRate / FRAME_RATE;
            rc.vbvInitialDelay = rc.vbvBufferSize;
        }
        rate => {
            rc.rateControlMode = api::RC_CONSTQP;
            rc.constQP = [if let Rate::Qp(qp) = rate { qp as u32 } else { 0 }; 3];
        }
    }
    let words = &mut config.codec.0;
    match settings.standard {
        Standard::H264 => {
            words[api::H264_FLAGS] |= api::H264_REPEAT_SPSPPS;
            if settings.rate == Rate::Lossless {
                words[api::H264_FLAGS] |= api::H264_LOSSLESS;
            }
            words[api::H264_IDR_PERIOD] = 1;
            words[api::H264_DISABLE_DEBLOCKING] = 1;
            words[api::H264_CHROMA_FORMAT] = if yuv444 { 3 } else { 1 };
        }
        Standard::Hevc => {
            let chroma = if yuv444 { 3 } else { 1 };
            let cleared =
                words[api::HEVC_FLAGS] & !(3 << api::HEVC_CHROMA_SHIFT | 7 << api::HEVC_DEPTH_SHIFT);
            words[api::HEVC_FLAGS] = cleared
                | api::HEVC_REPEAT_SPSPPS
                | chroma << api::HEVC_CHROMA_SHIFT
                | (settings.depth - 8) << api::HEVC_DEPTH_SHIFT;
            words[api::HEVC_IDR_PERIOD] = 1;
        }
    }
}

/// Only rate control sees it; tensors have no clock.
const FRAME_RATE: u32 = 30;

fn initialize_params(settings: &Settings, config: &mut api::Config) -> api::InitializeParams {
    // SAFETY: all-zero is valid for this plain C struct.
    let mut params: api::InitializeParams = unsafe { std::mem::zeroed() };
    params.version = api::struct_version_high(5);
    params.encodeGUID = codec_guid(settings.standard);
    params.presetGUID = api::PRESET_P4;
    params.encodeWidth = settings.width;
    params.encodeHeight = settings.height;
    params.darWidth = settings.width;
    params.darHeight = settings.height;
    params.frameRateNum = FRAME_RATE;
    params.frameRateDen = 1;
    params.enablePTD = 1;
    params.encodeConfig = config;
    params.tuningInfo = tuning(settings);
    params
}

/// Writes a frame into a mapped input buffer: NV12/P010-like, or planar 4:4:4.
/// 10-bit samples go to the high bits of 16-bit words.
fn fill(memory: &mut [u8], pitch: usize, frame: &Frame) {
    let deep = frame.depth > 8;
    let shift = 16 - frame.depth.max(9);
    let mut put = |row: usize, column: usize, sample: u16| {
        if deep {
            let at = row * pitch + column * 2;
            memory[at..at + 2].copy_from_slice(&(sample << shift).to_le_bytes());
        } else {
            memory[row * pitch + column] = sample as u8;
        }
    };
    let height = frame.height();
    let planes = if frame.chroma == Chroma::C444 { 3 } else { 1 };
    for (p, plane) in frame.planes.iter().take(planes).enumerate() {
        for y in 0..plane.height {
            for (x, &sample) in plane.row(y).iter().enumerate() {
                put(p * height + y, x, sample);
            }
        }
    }
    if planes == 1 {
        let (width, rows) = (frame.width().div_ceil(2), height.div_ceil(2));
        let neutral = 1u16 << (frame.depth - 1);
        for y in 0..rows {
            for x in 0..width {
                for c in 0..2 {
                    let sample = frame.planes.get(c + 1).map_or(neutral, |plane| plane.row(y)[x]);
                    put(height + y, 2 * x + c, sample);
                }
            }
        }
    }
}
