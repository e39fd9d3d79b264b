//! NVDEC: Annex B streams in, pictures out, through the cuvid parser.
//!
//! A [`Session`] is one parser and one decoder; the driver spreads sessions
//! over the engines, so several sessions on several threads keep several
//! engines busy. Knows streams and surfaces; what the samples mean is the
//! caller's business.

use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::sys::cuvid::{self, Cuvid};
use cudarc::driver::{CudaStream, sys};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use trinity_bits::{Chroma, Frame, Plane, nal};

/// A standard NVDEC decodes and we encode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standard {
    H264,
    Hevc,
}

impl Standard {
    /// `cudaVideoCodec`.
    pub(crate) fn cuvid(self) -> c_int {
        match self {
            Self::H264 => cuvid::CODEC_H264,
            Self::Hevc => cuvid::CODEC_HEVC,
        }
    }

    /// The name used in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::H264 => "h264",
            Self::Hevc => "hevc",
        }
    }
}

/// Pictures the parser may hold back, so that the engine always has the next one queued.
const DISPLAY_DELAY: u32 = 4;
/// Decode surfaces beyond the stream's own need, for the same reason.
const EXTRA_SURFACES: u8 = 6;
/// Surfaces that may be mapped at once.
const OUTPUT_SURFACES: u64 = 2;

/// A decoded picture on the GPU, valid inside the sink only.
#[derive(Debug, Clone, Copy)]
pub struct Surface {
    /// Device address of luma; chroma follows after `pitch * rows`.
    pub address: u64,
    /// Bytes a row.
    pub pitch: usize,
    /// Rows luma takes in memory (the coded height).
    pub rows: usize,
    pub chroma: Chroma,
    pub depth: u32,
    /// The cropping window in luma samples: left, top, width, height.
    pub window: (usize, usize, usize, usize),
}

impl Surface {
    pub fn sample_bytes(&self) -> usize {
        if self.depth > 8 { 2 } else { 1 }
    }

    /// Copies the visible samples to the host, planar.
    pub fn to_frame(&self, stream: &CudaStream) -> Result<Frame, Error> {
        let (left, top, width, height) = self.window;
        let mut frame = Frame::filled(width, height, self.chroma, self.depth, 0);
        let plane_bytes = (self.pitch * self.rows) as u64;
        // Deep samples sit in the high bits of 16-bit words.
        let shift = if self.depth > 8 { 16 - self.depth } else { 0 };
        match self.chroma {
            Chroma::C444 => {
                for c in 0..3 {
                    let rows = self.rows_to_host(stream, plane_bytes * c, left, top, width, height)?;
                    self.unpack(&rows, shift, 1, 0, &mut frame.planes[c as usize]);
                }
            }
            Chroma::C420 => {
                let luma = self.rows_to_host(stream, 0, left, top, width, height)?;
                self.unpack(&luma, shift, 1, 0, &mut frame.planes[0]);
                let (w, h) = (width.div_ceil(2), height.div_ceil(2));
                let interleaved = self.rows_to_host(stream, plane_bytes, left & !1, top / 2, w * 2, h)?;
                for c in 1..3 {
                    self.unpack(&interleaved, shift, 2, c - 1, &mut frame.planes[c]);
                }
            }
            Chroma::C400 | Chroma::C422 => {
                return Err(Error::CorruptStream {
                    what: format!("no surface layout for {:?}", self.chroma),
                });
            }
        }
        Ok(frame)
    }

    /// A window of one plane, `width` samples a row, rows without gaps.
    fn rows_to_host(
        &self,
        stream: &CudaStream,
        plane: u64,
        left: usize,
        top: usize,
        width: usize,
        height: usize,
    ) -> Result<Vec<u8>, Error> {
        let row_bytes = width * self.sample_bytes();
        let mut host = vec![0u8; row_bytes * height];
        let copy = sys::CUDA_MEMCPY2D_st {
            srcXInBytes: left * self.sample_bytes(),
            srcY: top,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: self.address + plane,
            srcArray: std::ptr::null_mut(),
            srcPitch: self.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: host.as_mut_ptr().cast(),
            dstDevice: 0,
            dstArray: std::ptr::null_mut(),
            dstPitch: row_bytes,
            WidthInBytes: row_bytes,
            Height: height,
        };
        // SAFETY: the surface is mapped while the sink runs; `host` holds
        // row_bytes × height bytes and outlives the synchronize below.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream.cu_stream()) }.result().during("cuMemcpy2DAsync")?;
        stream.synchronize().during("cuStreamSynchronize")?;
        Ok(host)
    }

    /// Every `step`-th sample from `first` on, into `plane`.
    fn unpack(&self, bytes: &[u8], shift: u32, step: usize, first: usize, plane: &mut Plane) {
        if self.sample_bytes() == 1 {
            let picked = bytes.iter().skip(first).step_by(step);
            plane.samples.iter_mut().zip(picked).for_each(|(out, &b)| *out = u16::from(b));
        } else {
            let picked = bytes.chunks_exact(2).skip(first).step_by(step);
            plane
                .samples
                .iter_mut()
                .zip(picked)
                .for_each(|(out, b)| *out = u16::from_le_bytes([b[0], b[1]]) >> shift);
        }
    }
}

/// What happens to each decoded picture. Runs on the session's thread, with
/// the session's stream; an error stops the session.
pub type Sink<'s> = dyn FnMut(&Surface, &Arc<CudaStream>) -> Result<(), Error> + 's;

/// One parser and one decoder on a GPU. Lives on the thread that made it.
pub struct Session {
    parser: cuvid::CUvideoparser,
    /// Boxed: the parser keeps its address.
    state: Box<State>,
}

/// What the parser's callbacks need.
struct State {
    cuvid: Arc<Cuvid>,
    context: Arc<cudarc::driver::CudaContext>,
    stream: Arc<CudaStream>,
    gpu_name: String,
    standard: Standard,
    decoder: cuvid::CUvideodecoder,
    format: Option<Format>,
    /// Set only while `decode` runs.
    sink: Option<*mut Sink<'static>>,
    error: Option<Error>,
    pictures: u64,
}

/// What a sequence header asked for: a change means another decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    coded: (u32, u32),
    window: (usize, usize, usize, usize),
    chroma: Chroma,
    depth: u32,
    surfaces: u8,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("standard", &self.state.standard).finish_non_exhaustive()
    }
}

impl Session {
    /// A session for streams of one standard.
    pub fn new(gpu: &Gpu, cuvid: &Arc<Cuvid>, standard: Standard) -> Result<Self, Error> {
        gpu.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mut state = Box::new(State {
            cuvid: cuvid.clone(),
            context: gpu.context.clone(),
            stream: gpu.stream()?,
            gpu_name: gpu.name.clone(),
            standard,
            decoder: std::ptr::null_mut(),
            format: None,
            sink: None,
            error: None,
            pictures: 0,
        });
        let mut params = cuvid::CUVIDPARSERPARAMS {
            CodecType: standard.cuvid(),
            ulMaxNumDecodeSurfaces: 1,
            ulClockRate: 0,
            // Damaged pictures are refused rather than concealed.
            ulErrorThreshold: 0,
            ulMaxDisplayDelay: DISPLAY_DELAY,
            flags: 0,
            uReserved1: [0; 4],
            pUserData: (&raw mut *state).cast(),
            pfnSequenceCallback: Some(on_sequence),
            pfnDecodePicture: Some(on_decode),
            pfnDisplayPicture: Some(on_display),
            pfnGetOperatingPoint: std::ptr::null_mut(),
            pvReserved2: [std::ptr::null_mut(); 6],
            pExtVideoInfo: std::ptr::null_mut(),
        };
        let mut parser = std::ptr::null_mut();
        // SAFETY: both pointers are to live values of the declared layout;
        // `state` is boxed and outlives the parser (see Drop).
        let code = unsafe { (cuvid.create_video_parser)(&mut parser, &mut params) };
        check(code, "cuvidCreateVideoParser")?;
        Ok(Self { parser, state })
    }

    /// The stream this session's copies and kernels run on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.state.stream
    }

    /// Decodes a whole Annex B stream, `packets` as [`access_units`] cut it.
    /// Answers how many pictures came out.
    pub fn decode(&mut self, packets: &[&[u8]], sink: &mut Sink<'_>) -> Result<u64, Error> {
        self.state.context.bind_to_thread().during("cuCtxSetCurrent")?;
        self.state.pictures = 0;
        self.state.error = None;
        // SAFETY: only the lifetime is erased; the pointer is cleared before
        // `sink` goes out of scope, and callbacks run only inside `parse`.
        let sink: *mut Sink<'static> = unsafe { std::mem::transmute(sink as *mut Sink<'_>) };
        self.state.sink = Some(sink);
        let outcome = packets
            .iter()
            .try_for_each(|packet| self.parse(packet, cuvid::PKT_ENDOFPICTURE))
            .and_then(|()| self.parse(&[], cuvid::PKT_ENDOFSTREAM));
        self.state.sink = None;
        outcome?;
        Ok(self.state.pictures)
    }

    pub fn decode_to_frames(&mut self, stream: &[u8]) -> Result<Vec<Frame>, Error> {
        let packets = access_units(stream, self.state.standard);
        let mut frames = Vec::new();
        self.decode(&packets, &mut |surface, stream| {
            frames.push(surface.to_frame(stream)?);
            Ok(())
        })?;
        Ok(frames)
    }

    fn parse(&mut self, payload: &[u8], flags: std::ffi::c_ulong) -> Result<(), Error> {
        let mut packet = cuvid::CUVIDSOURCEDATAPACKET {
            flags,
            payload_size: payload.len() as std::ffi::c_ulong,
            payload: if payload.is_empty() { std::ptr::null() } else { payload.as_ptr() },
            timestamp: 0,
        };
        // SAFETY: the parser is alive; the packet points at `payload` for the call only.
        let code = unsafe { (self.state.cuvid.parse_video_data)(self.parser, &mut packet) };
        if let Some(error) = self.state.error.take() {
            return Err(error);
        }
        check(code, "cuvidParseVideoData")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.state.context.bind_to_thread();
        // SAFETY: parser and decoder were created by the same library and are
        // destroyed once; the parser first, since its callbacks use the state.
        unsafe {
            (self.state.cuvid.destroy_video_parser)(self.parser);
            if !self.state.decoder.is_null() {
                (self.state.cuvid.destroy_decoder)(self.state.decoder);
            }
        }
    }
}

impl State {
    /// Makes (or keeps) a decoder for a sequence; answers how many surfaces the parser may use.
    fn sequence(&mut self, format: &cuvid::CUVIDEOFORMAT) -> Result<c_int, Error> {
        let depth = u32::from(format.bit_depth_luma_minus8) + 8;
        let unsupported =
            |what: String| Error::Unsupported { engine: "NVDEC", gpu: self.gpu_name.clone(), what };
        let chroma = Chroma::from_idc(format.chroma_format as u32)
            .ok_or_else(|| unsupported(format!("chroma format {}", format.chroma_format)))?;
        let area = format.display_area;
        let wanted = Format {
            coded: (format.coded_width, format.coded_height),
            window: (
                area.left as usize,
                area.top as usize,
                (area.right - area.left).max(0) as usize,
                (area.bottom - area.top).max(0) as usize,
            ),
            chroma,
            depth,
            surfaces: format.min_num_decode_surfaces.saturating_add(EXTRA_SURFACES),
        };
        if self.format == Some(wanted) {
            return Ok(c_int::from(wanted.surfaces));
        }
        let caps = capabilities(&self.cuvid, self.standard, chroma, depth)?;
        if !caps.supported {
            return Err(unsupported(format!("{} {chroma:?} at {depth} bit", self.standard.name())));
        }
        let (width, height) = wanted.coded;
        let Capabilities { min_width, min_height, max_width, max_height, max_macroblocks, .. } = caps;
        if !(min_width..=max_width).contains(&width)
            || !(min_height..=max_height).contains(&height)
            || width.div_ceil(16) * height.div_ceil(16) > max_macroblocks
        {
            let limits = format!("{min_width}×{min_height} to {max_width}×{max_height}");
            return Err(unsupported(format!(
                "{width}×{height} pictures ({limits}, at most {max_macroblocks} macroblocks)"
            )));
        }
        self.create(wanted)
    }

    fn create(&mut self, wanted: Format) -> Result<c_int, Error> {
        if !self.decoder.is_null() {
            // SAFETY: created below, destroyed once.
            check(unsafe { (self.cuvid.destroy_decoder)(self.decoder) }, "cuvidDestroyDecoder")?;
            self.decoder = std::ptr::null_mut();
        }
        let (width, height) = (u64::from(wanted.coded.0), u64::from(wanted.coded.1));
        let whole = cuvid::RectI16 { left: 0, top: 0, right: width as i16, bottom: height as i16 };
        let mut info = cuvid::CUVIDDECODECREATEINFO {
            ulWidth: width,
            ulHeight: height,
            ulNumDecodeSurfaces: u64::from(wanted.surfaces),
            CodecType: self.standard.cuvid(),
            ChromaFormat: wanted.chroma.idc() as c_int,
            ulCreationFlags: cuvid::CREATE_PREFER_CUVID,
            bitDepthMinus8: u64::from(wanted.depth - 8),
            ulIntraDecodeOnly: 1,
            ulMaxWidth: width,
            ulMaxHeight: height,
            Reserved1: 0,
            // The whole coded picture: cropping is ours, so that a surface's layout stays simple.
            display_area: whole,
            OutputFormat: match (wanted.chroma, wanted.depth > 8) {
                (Chroma::C444, false) => cuvid::SURFACE_YUV444,
                (Chroma::C444, true) => cuvid::SURFACE_YUV444_16,
                (_, false) => cuvid::SURFACE_NV12,
                (_, true) => cuvid::SURFACE_P016,
            },
            DeinterlaceMode: 0,
            ulTargetWidth: width,
            ulTargetHeight: height,
            ulNumOutputSurfaces: OUTPUT_SURFACES,
            vidLock: std::ptr::null_mut(),
            target_rect: cuvid::RectI16::default(),
            enableHistogram: 0,
            Reserved2: [0; 4],
        };
        // SAFETY: both pointers are to live values of the declared layout.
        check(unsafe { (self.cuvid.create_decoder)(&mut self.decoder, &mut info) }, "cuvidCreateDecoder")?;
        self.format = Some(wanted);
        Ok(c_int::from(wanted.surfaces))
    }

    fn display(&mut self, info: &cuvid::CUVIDPARSERDISPINFO) -> Result<(), Error> {
        let Some(format) = self.format else {
            return Err(Error::CorruptStream { what: "a picture before any sequence header".into() });
        };
        let mut params = cuvid::CUVIDPROCPARAMS {
            progressive_frame: info.progressive_frame,
            second_field: info.repeat_first_field + 1,
            top_field_first: info.top_field_first,
            unpaired_field: c_int::from(info.repeat_first_field < 0),
            reserved_flags: 0,
            reserved_zero: 0,
            raw_input_dptr: 0,
            raw_input_pitch: 0,
            raw_input_format: 0,
            raw_output_dptr: 0,
            raw_output_pitch: 0,
            Reserved1: 0,
            output_stream: self.stream.cu_stream().cast(),
            Reserved: [0; 46],
            histogram_dptr: std::ptr::null_mut(),
            Reserved2: [std::ptr::null_mut()],
        };
        let (mut address, mut pitch) = (0u64, 0u32);
        // SAFETY: the decoder is alive and the picture index came from its parser.
        let code = unsafe {
            (self.cuvid.map_video_frame)(
                self.decoder,
                info.picture_index,
                &mut address,
                &mut pitch,
                &mut params,
            )
        };
        check(code, "cuvidMapVideoFrame64")?;
        let mut status = cuvid::CUVIDGETDECODESTATUS {
            decodeStatus: 0,
            reserved: [0; 31],
            pReserved: [std::ptr::null_mut(); 8],
        };
        // SAFETY: as above; `status` has the declared layout.
        let code = unsafe { (self.cuvid.get_decode_status)(self.decoder, info.picture_index, &mut status) };
        let damaged =
            code == 0 && matches!(status.decodeStatus, cuvid::STATUS_ERROR | cuvid::STATUS_ERROR_CONCEALED);
        let surface = Surface {
            address,
            pitch: pitch as usize,
            rows: format.coded.1.next_multiple_of(2) as usize,
            chroma: format.chroma,
            depth: format.depth,
            window: format.window,
        };
        let outcome = if damaged {
            Err(Error::CorruptStream { what: format!("NVDEC reports an error in picture {}", self.pictures) })
        } else if let Some(sink) = self.sink {
            // SAFETY: set by `decode` for as long as the parser may call back, on this thread.
            unsafe { (*sink)(&surface, &self.stream) }
        } else {
            Ok(())
        };
        // SAFETY: mapped above, unmapped once. The driver waits for work on output_stream.
        let code = unsafe { (self.cuvid.unmap_video_frame)(self.decoder, address) };
        outcome?;
        check(code, "cuvidUnmapVideoFrame64")?;
        self.pictures += 1;
        Ok(())
    }

    /// Keeps the first error; 0 tells the parser to stop.
    fn keep(&mut self, outcome: Result<c_int, Error>) -> c_int {
        outcome.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            0
        })
    }
}

unsafe extern "C" fn on_sequence(user: *mut c_void, format: *mut cuvid::CUVIDEOFORMAT) -> c_int {
    // SAFETY: `user` is the boxed State of a live Session on this thread; the parser passes a valid format.
    let (state, format) = unsafe { (&mut *user.cast::<State>(), &*format) };
    let outcome = state.sequence(format);
    state.keep(outcome)
}

unsafe extern "C" fn on_decode(user: *mut c_void, picture: *mut cuvid::CUVIDPICPARAMS) -> c_int {
    // SAFETY: as in `on_sequence`.
    let state = unsafe { &mut *user.cast::<State>() };
    if state.decoder.is_null() {
        return state.keep(Err(Error::CorruptStream { what: "a slice before any sequence header".into() }));
    }
    // SAFETY: the decoder is alive; `picture` is the parser's own.
    let code = unsafe { (state.cuvid.decode_picture)(state.decoder, picture) };
    let outcome = check(code, "cuvidDecodePicture").map(|()| 1);
    state.keep(outcome)
}

unsafe extern "C" fn on_display(user: *mut c_void, info: *mut cuvid::CUVIDPARSERDISPINFO) -> c_int {
    if info.is_null() {
        return 1; // end of stream
    }
    // SAFETY: as in `on_sequence`.
    let (state, info) = unsafe { (&mut *user.cast::<State>(), &*info) };
    let outcome = state.display(info).map(|()| 1);
    state.keep(outcome)
}

/// What NVDEC says it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Capabilities {
    pub supported: bool,
    pub engines: u32,
    pub min_width: u32,
    pub min_height: u32,
    pub max_width: u32,
    pub max_height: u32,
    pub max_macroblocks: u32,
}

/// Asks NVDEC about one standard × chroma × depth. The context must be current.
pub(crate) fn capabilities(
    cuvid: &Cuvid,
    standard: Standard,
    chroma: Chroma,
    depth: u32,
) -> Result<Capabilities, Error> {
    let mut caps = cuvid::CUVIDDECODECAPS {
        eCodecType: standard.cuvid(),
        eChromaFormat: chroma.idc() as c_int,
        nBitDepthMinus8: depth - 8,
        ..Default::default()
    };
    // SAFETY: a live value of the declared layout.
    check(unsafe { (cuvid.get_decoder_caps)(&mut caps) }, "cuvidGetDecoderCaps")?;
    Ok(Capabilities {
        supported: caps.bIsSupported != 0,
        engines: u32::from(caps.nNumNVDECs),
        min_width: u32::from(caps.nMinWidth),
        min_height: u32::from(caps.nMinHeight),
        max_width: caps.nMaxWidth,
        max_height: caps.nMaxHeight,
        max_macroblocks: caps.nMaxMBCount,
    })
}

/// A `CUresult` as ours.
fn check(code: c_int, call: &'static str) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: cuGetErrorString takes any value and answers a static string or null.
    let named = unsafe {
        let result: sys::CUresult = std::mem::transmute::<i32, sys::CUresult>(known(code));
        sys::cuGetErrorString(result, &mut text) == sys::CUresult::CUDA_SUCCESS && !text.is_null()
    };
    let meaning = if named && known(code) == code {
        // SAFETY: a static, NUL-terminated string of the driver's.
        unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        format!("CUresult {code}")
    };
    Err(Error::cuda(call, code, meaning))
}

/// Codes that are members of cudarc's `CUresult`; anything else would be
/// undefined behaviour to transmute and is shown as CUDA_ERROR_UNKNOWN.
fn known(code: c_int) -> c_int {
    const KNOWN: [c_int; 22] =
        [1, 2, 3, 4, 46, 100, 101, 201, 205, 208, 209, 214, 219, 400, 401, 600, 700, 702, 719, 800, 801, 802];
    if KNOWN.contains(&code) { code } else { 999 }
}

/// Cuts an Annex B stream into access units, one picture each, so that the
/// parser need not search for the end of a picture.
pub fn access_units(stream: &[u8], standard: Standard) -> Vec<&[u8]> {
    let mut cuts = Vec::new();
    let mut has_picture = false;
    for unit in nal::units(stream) {
        let (is_slice, first_slice, starts_unit) = match standard {
            Standard::H264 => {
                let kind = unit.bytes[0] & 31;
                let slice = matches!(kind, 1..=5);
                // first_mb_in_slice is ue(v): a leading one bit means 0.
                let first = slice && unit.bytes.get(1).is_some_and(|b| b & 0x80 != 0);
                (slice, first, matches!(kind, 6..=9 | 14..=18))
            }
            Standard::Hevc => {
                let kind = unit.bytes[0] >> 1 & 63;
                let slice = kind < 32;
                let first = slice && unit.bytes.get(2).is_some_and(|b| b & 0x80 != 0);
                (slice, first, matches!(kind, 32..=35 | 39 | 41..=44 | 48..=55))
            }
        };
        // A four-byte start code belongs to the unit it opens.
        let zero_byte = unit.offset >= 4 && stream[unit.offset - 4] == 0;
        let start = unit.offset - if zero_byte { 4 } else { 3 };
        if cuts.is_empty() || (has_picture && (first_slice || starts_unit)) {
            cuts.push(start);
            has_picture = false;
        }
        has_picture |= is_slice;
    }
    let ends = cuts.iter().skip(1).copied().chain([stream.len()]);
    cuts.iter().zip(ends).map(|(&start, end)| &stream[start..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many NAL units each access unit has of a stream of such ones.
    fn counts(standard: Standard, units: &[&[u8]]) -> Vec<usize> {
        let mut stream = Vec::new();
        units.iter().for_each(|rbsp| nal::write_unit(&mut stream, rbsp));
        let found = access_units(&stream, standard);
        assert_eq!(found.concat(), stream);
        found.into_iter().map(|unit| nal::units(unit).count()).collect()
    }

    #[test]
    fn access_units_keep_parameter_sets_with_their_picture_and_slices_together() {
        let sets: [&[u8]; 2] = [&[0x67, 1], &[0x68, 1]];
        let slices: [&[u8]; 2] = [&[0x65, 0x80, 1], &[0x65, 0x40, 1]];
        let more: [&[u8]; 3] = [&[0x67, 1], &[0x65, 0x80, 2], &[0x65, 0x80, 3]];
        assert_eq!(counts(Standard::H264, &[&sets[..], &slices, &more].concat()), [4, 2, 1]);
        let sets: [&[u8]; 2] = [&[0x40, 1, 1], &[0x42, 1, 1]];
        let slices: [&[u8]; 2] = [&[0x26, 1, 0x80], &[0x26, 1, 0x10]];
        // The suffix SEI (0x50) stays with the picture it follows.
        let more: [&[u8]; 2] = [&[0x50, 1, 2], &[0x26, 1, 0x80]];
        assert_eq!(counts(Standard::Hevc, &[&sets[..], &slices, &more].concat()), [5, 1]);
    }

    #[test]
    fn empty_streams_have_no_access_units() {
        assert!(access_units(&[], Standard::H264).is_empty());
    }
}
