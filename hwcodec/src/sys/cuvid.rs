//! libnvcuvid: the parser and decoder behind NVDEC (Video Codec SDK 11.1 and later).

use crate::Error;
use std::ffi::{c_int, c_uint, c_ulong, c_void};

pub type CUvideoparser = *mut c_void;
pub type CUvideodecoder = *mut c_void;

/// `cudaVideoCodec` values we use.
pub const CODEC_H264: c_int = 4;
pub const CODEC_HEVC: c_int = 8;

/// `cudaVideoSurfaceFormat`.
pub const SURFACE_NV12: c_int = 0;
pub const SURFACE_P016: c_int = 1;
pub const SURFACE_YUV444: c_int = 2;
pub const SURFACE_YUV444_16: c_int = 3;

/// `cudaVideoCreate_PreferCUVID`.
pub const CREATE_PREFER_CUVID: c_ulong = 4;

/// `CUvideopacketflags`.
pub const PKT_ENDOFSTREAM: c_ulong = 1;
pub const PKT_ENDOFPICTURE: c_ulong = 8;

/// `cuvidDecodeStatus`: an error the decoder could not, or could, conceal.
pub const STATUS_ERROR: c_int = 8;
pub const STATUS_ERROR_CONCEALED: c_int = 9;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUVIDDECODECAPS {
    pub eCodecType: c_int,
    pub eChromaFormat: c_int,
    pub nBitDepthMinus8: c_uint,
    pub reserved1: [c_uint; 3],
    pub bIsSupported: u8,
    pub nNumNVDECs: u8,
    pub nOutputFormatMask: u16,
    pub nMaxWidth: c_uint,
    pub nMaxHeight: c_uint,
    pub nMaxMBCount: c_uint,
    pub nMinWidth: u16,
    pub nMinHeight: u16,
    pub bIsHistogramSupported: u8,
    pub nCounterBitDepth: u8,
    pub nMaxHistogramBins: u16,
    pub reserved3: [c_uint; 10],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct RectI16 {
    pub left: i16,
    pub top: i16,
    pub right: i16,
    pub bottom: i16,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDDECODECREATEINFO {
    pub ulWidth: c_ulong,
    pub ulHeight: c_ulong,
    pub ulNumDecodeSurfaces: c_ulong,
    pub CodecType: c_int,
    pub ChromaFormat: c_int,
    pub ulCreationFlags: c_ulong,
    pub bitDepthMinus8: c_ulong,
    pub ulIntraDecodeOnly: c_ulong,
    pub ulMaxWidth: c_ulong,
    pub ulMaxHeight: c_ulong,
    pub Reserved1: c_ulong,
    pub display_area: RectI16,
    pub OutputFormat: c_int,
    pub DeinterlaceMode: c_int,
    pub ulTargetWidth: c_ulong,
    pub ulTargetHeight: c_ulong,
    pub ulNumOutputSurfaces: c_ulong,
    pub vidLock: *mut c_void,
    pub target_rect: RectI16,
    pub enableHistogram: c_ulong,
    pub Reserved2: [c_ulong; 4],
}

/// The parser fills this in and the decoder reads it; we only pass it on and
/// look at `CurrPicIdx`. The codec-specific part stays opaque.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDPICPARAMS {
    pub PicWidthInMbs: c_int,
    pub FrameHeightInMbs: c_int,
    pub CurrPicIdx: c_int,
    pub field_pic_flag: c_int,
    pub bottom_field_flag: c_int,
    pub second_field: c_int,
    pub nBitstreamDataLen: c_uint,
    pub pBitstreamData: *const u8,
    pub nNumSlices: c_uint,
    pub pSliceDataOffsets: *const c_uint,
    pub ref_pic_flag: c_int,
    pub intra_pic_flag: c_int,
    pub Reserved: [c_uint; 30],
    pub CodecSpecific: [u64; 512],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDPROCPARAMS {
    pub progressive_frame: c_int,
    pub second_field: c_int,
    pub top_field_first: c_int,
    pub unpaired_field: c_int,
    pub reserved_flags: c_uint,
    pub reserved_zero: c_uint,
    pub raw_input_dptr: u64,
    pub raw_input_pitch: c_uint,
    pub raw_input_format: c_uint,
    pub raw_output_dptr: u64,
    pub raw_output_pitch: c_uint,
    pub Reserved1: c_uint,
    pub output_stream: *mut c_void,
    pub Reserved: [c_uint; 46],
    pub histogram_dptr: *mut u64,
    pub Reserved2: [*mut c_void; 1],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDGETDECODESTATUS {
    pub decodeStatus: c_int,
    pub reserved: [c_uint; 31],
    pub pReserved: [*mut c_void; 8],
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Rational {
    pub numerator: c_uint,
    pub denominator: c_uint,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct RectI32 {
    pub left: c_int,
    pub top: c_int,
    pub right: c_int,
    pub bottom: c_int,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUVIDEOFORMAT {
    pub codec: c_int,
    pub frame_rate: Rational,
    pub progressive_sequence: u8,
    pub bit_depth_luma_minus8: u8,
    pub bit_depth_chroma_minus8: u8,
    pub min_num_decode_surfaces: u8,
    pub coded_width: c_uint,
    pub coded_height: c_uint,
    pub display_area: RectI32,
    pub chroma_format: c_int,
    pub bitrate: c_uint,
    pub display_aspect_ratio: [c_int; 2],
    pub video_signal_description: [u8; 4],
    pub seqhdr_data_length: c_uint,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDSOURCEDATAPACKET {
    pub flags: c_ulong,
    pub payload_size: c_ulong,
    pub payload: *const u8,
    pub timestamp: i64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDPARSERDISPINFO {
    pub picture_index: c_int,
    pub progressive_frame: c_int,
    pub top_field_first: c_int,
    pub repeat_first_field: c_int,
    pub timestamp: i64,
}

pub type SequenceCallback = unsafe extern "C" fn(*mut c_void, *mut CUVIDEOFORMAT) -> c_int;
pub type DecodeCallback = unsafe extern "C" fn(*mut c_void, *mut CUVIDPICPARAMS) -> c_int;
pub type DisplayCallback = unsafe extern "C" fn(*mut c_void, *mut CUVIDPARSERDISPINFO) -> c_int;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUVIDPARSERPARAMS {
    pub CodecType: c_int,
    pub ulMaxNumDecodeSurfaces: c_uint,
    pub ulClockRate: c_uint,
    pub ulErrorThreshold: c_uint,
    pub ulMaxDisplayDelay: c_uint,
    /// `bAnnexb : 1`, the rest reserved.
    pub flags: c_uint,
    pub uReserved1: [c_uint; 4],
    pub pUserData: *mut c_void,
    pub pfnSequenceCallback: Option<SequenceCallback>,
    pub pfnDecodePicture: Option<DecodeCallback>,
    pub pfnDisplayPicture: Option<DisplayCallback>,
    pub pfnGetOperatingPoint: *mut c_void,
    pub pvReserved2: [*mut c_void; 6],
    pub pExtVideoInfo: *mut c_void,
}

/// Declares the table of functions we call and how to fill it from the library.
macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// libnvcuvid, loaded. Every function answers a `CUresult` (0 is success).
        #[derive(Debug)]
        pub struct Cuvid {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> c_int,)*
            _library: libloading::Library,
        }

        impl Cuvid {
            /// Loads a library that speaks libnvcuvid's interface.
            pub fn load(path: &str) -> Result<Self, Error> {
                // SAFETY: libnvcuvid's initialisers have no preconditions.
                let library = unsafe { libloading::Library::new(path) }.map_err(|e| Error::NoLibrary {
                    library: "libnvcuvid.so.1",
                    package: "decode",
                    reason: e.to_string(),
                })?;
                $(
                    // SAFETY: the type is the one nvcuvid.h declares; the symbol outlives
                    // the table because the table owns the library.
                    let $field = *unsafe { library.get(concat!($symbol, "\0").as_bytes()) }
                        .map_err(|_| Error::OldDriver { library: "libnvcuvid.so.1", function: $symbol })?;
                )*
                Ok(Self { $($field,)* _library: library })
            }
        }
    };
}

functions! {
    get_decoder_caps = "cuvidGetDecoderCaps": fn(*mut CUVIDDECODECAPS);
    create_decoder = "cuvidCreateDecoder": fn(*mut CUvideodecoder, *mut CUVIDDECODECREATEINFO);
    destroy_decoder = "cuvidDestroyDecoder": fn(CUvideodecoder);
    decode_picture = "cuvidDecodePicture": fn(CUvideodecoder, *mut CUVIDPICPARAMS);
    get_decode_status = "cuvidGetDecodeStatus": fn(CUvideodecoder, c_int, *mut CUVIDGETDECODESTATUS);
    map_video_frame = "cuvidMapVideoFrame64": fn(CUvideodecoder, c_int, *mut u64, *mut c_uint, *mut CUVIDPROCPARAMS);
    unmap_video_frame = "cuvidUnmapVideoFrame64": fn(CUvideodecoder, u64);
    create_video_parser = "cuvidCreateVideoParser": fn(*mut CUvideoparser, *mut CUVIDPARSERPARAMS);
    parse_video_data = "cuvidParseVideoData": fn(CUvideoparser, *mut CUVIDSOURCEDATAPACKET);
    destroy_video_parser = "cuvidDestroyVideoParser": fn(CUvideoparser);
}
