//! libnvidia-encode: the interface of NVENC (Video Codec SDK 11.1; later
//! drivers take older clients).

use crate::Error;
use std::ffi::{c_int, c_void};

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guid(pub u32, pub u16, pub u16, pub [u8; 8]);

pub const CODEC_H264: Guid =
    Guid(0x6bc82762, 0x4e63, 0x4ca4, [0xaa, 0x85, 0x1e, 0x50, 0xf3, 0x21, 0xf6, 0xbf]);
pub const CODEC_HEVC: Guid =
    Guid(0x790cdc88, 0x4522, 0x4d7b, [0x94, 0x25, 0xbd, 0xa9, 0x97, 0x5f, 0x76, 0x03]);
pub const PROFILE_AUTOSELECT: Guid =
    Guid(0xbfd6f8e7, 0x233c, 0x4341, [0x8b, 0x3e, 0x48, 0x18, 0x52, 0x38, 0x03, 0xf4]);
pub const PROFILE_H264_HIGH: Guid =
    Guid(0xe7cbc309, 0x4f7a, 0x4b89, [0xaf, 0x2a, 0xd5, 0x37, 0xc9, 0x2b, 0xe3, 0x10]);
pub const PROFILE_H264_HIGH_444: Guid =
    Guid(0x7ac663cb, 0xa598, 0x4960, [0xb8, 0x44, 0x33, 0x9b, 0x26, 0x1a, 0x7d, 0x52]);
pub const PROFILE_HEVC_MAIN: Guid =
    Guid(0xb514c39a, 0xb55b, 0x40fa, [0x87, 0x8f, 0xf1, 0x25, 0x3b, 0x4d, 0xfd, 0xec]);
pub const PROFILE_HEVC_MAIN10: Guid =
    Guid(0xfa4d2b6c, 0x3a5b, 0x411a, [0x80, 0x18, 0x0a, 0x3f, 0x5e, 0x3c, 0x9b, 0xe5]);
pub const PROFILE_HEVC_FREXT: Guid =
    Guid(0x51ec32b5, 0x1b4c, 0x453c, [0x9c, 0xbd, 0xb6, 0x16, 0xbd, 0x62, 0x13, 0x41]);
pub const PRESET_P4: Guid =
    Guid(0x90a7b826, 0xdf06, 0x4862, [0xb9, 0xd2, 0xcd, 0x6d, 0x73, 0xa0, 0x86, 0x81]);

/// `NVENCAPI_VERSION`: major, and minor in the top byte.
pub const API_VERSION: u32 = 11 | 1 << 24;

/// `NVENCAPI_STRUCT_VERSION`.
pub const fn struct_version(version: u32) -> u32 {
    API_VERSION | version << 16 | 7 << 28
}

/// A struct's version with bit 31, for structs that say so.
pub const fn struct_version_high(version: u32) -> u32 {
    struct_version(version) | 1 << 31
}

pub const DEVICE_CUDA: u32 = 1;
pub const TUNING_HIGH_QUALITY: u32 = 1;
pub const TUNING_LOSSLESS: u32 = 4;
pub const RC_CONSTQP: u32 = 0;
pub const RC_CBR: u32 = 2;
pub const FORMAT_NV12: u32 = 0x1;
pub const FORMAT_YUV444: u32 = 0x1000;
pub const FORMAT_YUV420_10: u32 = 0x10000;
pub const FORMAT_YUV444_10: u32 = 0x100000;
pub const PIC_STRUCT_FRAME: u32 = 1;
pub const PIC_FLAG_FORCEIDR: u32 = 2;
pub const PIC_FLAG_OUTPUT_SPSPPS: u32 = 4;
pub const PIC_FLAG_EOS: u32 = 8;

/// `NV_ENC_CAPS` members we ask for.
pub const CAPS_MONOCHROME: u32 = 3;
pub const CAPS_WIDTH_MAX: u32 = 16;
pub const CAPS_HEIGHT_MAX: u32 = 17;
pub const CAPS_YUV444: u32 = 33;
pub const CAPS_LOSSLESS: u32 = 34;
pub const CAPS_10BIT: u32 = 39;
pub const CAPS_ENGINES: u32 = 49;

/// `NVENCSTATUS` members we act on.
pub const SUCCESS: u32 = 0;
pub const NO_ENCODE_DEVICE: u32 = 1;
pub const UNSUPPORTED_DEVICE: u32 = 2;
pub const NEED_MORE_INPUT: u32 = 17;

/// `NVENCSTATUS` in words, in the header's order.
pub const STATUS: [&str; 26] = [
    "success",
    "no encode device",
    "unsupported device",
    "invalid encoder device",
    "invalid device",
    "device does not exist",
    "invalid pointer",
    "invalid event",
    "invalid parameter",
    "invalid call",
    "out of memory",
    "encoder not initialized",
    "unsupported parameter",
    "lock busy",
    "not enough buffer",
    "invalid version",
    "map failed",
    "need more input",
    "encoder busy",
    "event not registered",
    "generic error",
    "incompatible client key",
    "unimplemented",
    "resource register failed",
    "resource not registered",
    "resource not mapped",
];

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OpenSessionParams {
    pub version: u32,
    pub deviceType: u32,
    pub device: *mut c_void,
    pub reserved: *mut c_void,
    pub apiVersion: u32,
    pub reserved1: [u32; 253],
    pub reserved2: [u64; 64],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CapsParam {
    pub version: u32,
    pub capsToQuery: u32,
    pub reserved: [u32; 62],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CreateInputBuffer {
    pub version: u32,
    pub width: u32,
    pub height: u32,
    pub memoryHeap: u32,
    pub bufferFmt: u32,
    pub reserved: u32,
    pub inputBuffer: *mut c_void,
    pub pSysMemBuffer: *mut c_void,
    pub reserved1: [u32; 57],
    pub reserved2: [u64; 63],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CreateBitstreamBuffer {
    pub version: u32,
    pub size: u32,
    pub memoryHeap: u32,
    pub reserved: u32,
    pub bitstreamBuffer: *mut c_void,
    pub bitstreamBufferPtr: *mut c_void,
    pub reserved1: [u32; 58],
    pub reserved2: [u64; 64],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RcParams {
    pub version: u32,
    pub rateControlMode: u32,
    /// QP of P, B and intra pictures.
    pub constQP: [u32; 3],
    pub averageBitRate: u32,
    pub maxBitRate: u32,
    pub vbvBufferSize: u32,
    pub vbvInitialDelay: u32,
    /// `enableMinQP`, … `enableAQ` (bit 3), … `enableTemporalAQ` (bit 8).
    pub flags: u32,
    pub rest: [u32; 22],
}

/// `NV_ENC_CONFIG`. The codec's own part is a union: words, with the few we
/// set named by the constants below.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub version: u32,
    pub profileGUID: Guid,
    pub gopLength: u32,
    pub frameIntervalP: i32,
    pub monoChromeEncoding: u32,
    pub frameFieldMode: u32,
    pub mvPrecision: u32,
    pub rcParams: RcParams,
    pub codec: CodecConfig,
    pub reserved: [u32; 278],
    pub reserved2: [u64; 64],
}

/// `NV_ENC_CODEC_CONFIG`: aligned as the pointers inside are.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct CodecConfig(pub [u32; 448]);

/// Words of `NV_ENC_CONFIG_H264`.
pub const H264_FLAGS: usize = 0;
pub const H264_IDR_PERIOD: usize = 2;
pub const H264_DISABLE_DEBLOCKING: usize = 4;
pub const H264_CHROMA_FORMAT: usize = 48;
/// `repeatSPSPPS` and `qpPrimeYZeroTransformBypassFlag`.
pub const H264_REPEAT_SPSPPS: u32 = 1 << 12;
pub const H264_LOSSLESS: u32 = 1 << 15;
/// Words of `NV_ENC_CONFIG_HEVC`.
pub const HEVC_FLAGS: usize = 4;
pub const HEVC_IDR_PERIOD: usize = 5;
/// `repeatSPSPPS`, `chromaFormatIDC : 2` and `pixelBitDepthMinus8 : 3`.
pub const HEVC_REPEAT_SPSPPS: u32 = 1 << 7;
pub const HEVC_CHROMA_SHIFT: u32 = 9;
pub const HEVC_DEPTH_SHIFT: u32 = 11;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PresetConfig {
    pub version: u32,
    pub presetCfg: Config,
    pub reserved1: [u32; 255],
    pub reserved2: [u64; 64],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct InitializeParams {
    pub version: u32,
    pub encodeGUID: Guid,
    pub presetGUID: Guid,
    pub encodeWidth: u32,
    pub encodeHeight: u32,
    pub darWidth: u32,
    pub darHeight: u32,
    pub frameRateNum: u32,
    pub frameRateDen: u32,
    pub enableEncodeAsync: u32,
    pub enablePTD: u32,
    pub flags: u32,
    pub privDataSize: u32,
    pub privData: *mut c_void,
    pub encodeConfig: *mut Config,
    pub maxEncodeWidth: u32,
    pub maxEncodeHeight: u32,
    pub maxMEHintCountsPerBlock: [[u32; 4]; 2],
    pub tuningInfo: u32,
    pub bufferFormat: u32,
    pub reserved: [u32; 287],
    pub reserved2: [u64; 64],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PicParams {
    pub version: u32,
    pub inputWidth: u32,
    pub inputHeight: u32,
    pub inputPitch: u32,
    pub encodePicFlags: u32,
    pub frameIdx: u32,
    pub inputTimeStamp: u64,
    pub inputDuration: u64,
    pub inputBuffer: *mut c_void,
    pub outputBitstream: *mut c_void,
    pub completionEvent: *mut c_void,
    pub bufferFmt: u32,
    pub pictureStruct: u32,
    pub pictureType: u32,
    pub codecPicParams: [u64; 192],
    pub meHintCountsPerBlock: [[u32; 4]; 2],
    pub meExternalHints: *mut c_void,
    pub reserved1: [u32; 6],
    pub reserved2: [u64; 2],
    pub qpDeltaMap: *mut i8,
    pub qpDeltaMapSize: u32,
    pub reservedBitFields: u32,
    pub meHintRefPicDist: [u16; 2],
    pub alphaBuffer: *mut c_void,
    pub reserved3: [u32; 286],
    pub reserved4: [u64; 59],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LockBitstream {
    pub version: u32,
    pub flags: u32,
    pub outputBitstream: *mut c_void,
    pub sliceOffsets: *mut u32,
    pub frameIdx: u32,
    pub hwEncodeStatus: u32,
    pub numSlices: u32,
    pub bitstreamSizeInBytes: u32,
    pub outputTimeStamp: u64,
    pub outputDuration: u64,
    pub bitstreamBufferPtr: *mut c_void,
    pub rest: [u32; 242],
    pub reserved2: [u64; 64],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LockInputBuffer {
    pub version: u32,
    pub flags: u32,
    pub inputBuffer: *mut c_void,
    pub bufferDataPtr: *mut c_void,
    pub pitch: u32,
    pub reserved1: [u32; 251],
    pub reserved2: [u64; 64],
}

type Pointer = *mut c_void;
type Call<T> = Option<unsafe extern "C" fn(Pointer, *mut T) -> u32>;
type Give = Option<unsafe extern "C" fn(Pointer, Pointer) -> u32>;

/// `NV_ENCODE_API_FUNCTION_LIST`; functions we do not call are plain pointers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FunctionList {
    pub version: u32,
    pub reserved: u32,
    pub unused_a: [Pointer; 7],
    pub nvEncGetEncodeCaps: Option<unsafe extern "C" fn(Pointer, Guid, *mut CapsParam, *mut c_int) -> u32>,
    pub unused_b: [Pointer; 3],
    pub nvEncInitializeEncoder: Call<InitializeParams>,
    pub nvEncCreateInputBuffer: Call<CreateInputBuffer>,
    pub nvEncDestroyInputBuffer: Give,
    pub nvEncCreateBitstreamBuffer: Call<CreateBitstreamBuffer>,
    pub nvEncDestroyBitstreamBuffer: Give,
    pub nvEncEncodePicture: Call<PicParams>,
    pub nvEncLockBitstream: Call<LockBitstream>,
    pub nvEncUnlockBitstream: Give,
    pub nvEncLockInputBuffer: Call<LockInputBuffer>,
    pub nvEncUnlockInputBuffer: Give,
    pub unused_c: [Pointer; 6],
    pub nvEncDestroyEncoder: Option<unsafe extern "C" fn(Pointer) -> u32>,
    pub unused_d: Pointer,
    pub nvEncOpenEncodeSessionEx: Option<unsafe extern "C" fn(*mut OpenSessionParams, *mut Pointer) -> u32>,
    pub unused_e: [Pointer; 9],
    pub nvEncGetEncodePresetConfigEx:
        Option<unsafe extern "C" fn(Pointer, Guid, Guid, u32, *mut PresetConfig) -> u32>,
    pub unused_f: Pointer,
    pub reserved2: [Pointer; 277],
}

/// libnvidia-encode, loaded, with its functions.
#[derive(Debug)]
pub struct Nvenc {
    pub functions: FunctionList,
    _library: libloading::Library,
}

// SAFETY: the table holds code addresses only; NVENC's functions may be called from any thread,
// and sessions (which may not be shared) are not part of it.
unsafe impl Send for Nvenc {}
// SAFETY: as above; the table is never written after `load`.
unsafe impl Sync for Nvenc {}

/// The name the dynamic linker knows NVENC's library by.
pub const LIBRARY: &str = "libnvidia-encode.so.1";

impl Nvenc {
    /// Loads a library that speaks NVENC's interface.
    pub fn load(path: &str) -> Result<Self, Error> {
        // SAFETY: the library's initialisers have no preconditions.
        let library = unsafe { libloading::Library::new(path) }.map_err(|e| Error::NoLibrary {
            library: LIBRARY,
            package: "encode",
            reason: e.to_string(),
        })?;
        type MaxVersion = unsafe extern "C" fn(*mut u32) -> u32;
        type CreateInstance = unsafe extern "C" fn(*mut FunctionList) -> u32;
        // SAFETY: the types are the ones nvEncodeAPI.h declares.
        let max_version: libloading::Symbol<'_, MaxVersion> = unsafe {
            library.get(b"NvEncodeAPIGetMaxSupportedVersion\0")
        }
        .map_err(|_| Error::OldDriver { library: LIBRARY, function: "NvEncodeAPIGetMaxSupportedVersion" })?;
        let mut supported = 0;
        // SAFETY: a live u32.
        check(unsafe { max_version(&mut supported) }, "NvEncodeAPIGetMaxSupportedVersion")?;
        // The driver answers major << 4 | minor.
        if supported < (API_VERSION & 0xff) << 4 | API_VERSION >> 24 {
            return Err(Error::OldDriver { library: LIBRARY, function: "interface version 11.1" });
        }
        // SAFETY: as above.
        let create: libloading::Symbol<'_, CreateInstance> =
            unsafe { library.get(b"NvEncodeAPICreateInstance\0") }
                .map_err(|_| Error::OldDriver { library: LIBRARY, function: "NvEncodeAPICreateInstance" })?;
        // SAFETY: all-zero is a valid FunctionList (null pointers, None).
        let mut functions: FunctionList = unsafe { std::mem::zeroed() };
        functions.version = struct_version(2);
        // SAFETY: a live table of the declared layout and version.
        check(unsafe { create(&mut functions) }, "NvEncodeAPICreateInstance")?;
        Ok(Self { functions, _library: library })
    }
}

/// An `NVENCSTATUS` as ours.
pub fn check(code: u32, call: &'static str) -> Result<(), Error> {
    match code {
        SUCCESS => Ok(()),
        code => {
            Err(Error::Nvenc { call, code, meaning: STATUS.get(code as usize).unwrap_or(&"unknown status") })
        }
    }
}
