//! libnvcomp 5: Zstandard frames decompressed on the GPU, many at once.

use crate::Error;
use std::ffi::{c_int, c_void};

/// The name the dynamic linker knows it by; earlier versions pass other arguments.
pub const LIBRARY: &str = "libnvcomp.so.5";

/// Each compressed chunk starts on a multiple of this many bytes.
pub const ALIGNMENT: usize = 8;

/// `nvcompBatchedZstdDecompressOpts_t`, passed by value. All zeros: nvCOMP chooses how.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DecompressOpts {
    pub backend: c_int,
    pub reserved: [u8; 60],
}

impl Default for DecompressOpts {
    fn default() -> Self {
        Self { backend: 0, reserved: [0; 60] }
    }
}

/// `nvcompBatchedZstdDecompressGetTempSizeAsync`: chunks, longest chunk, options, answer, all bytes.
pub type GetTempSize = unsafe extern "C" fn(usize, usize, DecompressOpts, *mut usize, usize) -> c_int;

/// `nvcompBatchedZstdDecompressAsync`: compressed chunks and sizes, sizes of the
/// buffers, sizes found, chunks, scratch and its size, buffers, options,
/// statuses, stream. Arrays are on the device.
pub type Decompress = unsafe extern "C" fn(
    *const *const c_void,
    *const usize,
    *const usize,
    *mut usize,
    usize,
    *mut c_void,
    usize,
    *const *mut c_void,
    DecompressOpts,
    *mut c_int,
    *mut c_void,
) -> c_int;

/// The two functions we call.
#[derive(Debug)]
pub struct Nvcomp {
    pub get_temp_size: GetTempSize,
    pub decompress: Decompress,
    _library: libloading::Library,
}

impl Nvcomp {
    /// Loads nvCOMP where it is installed.
    pub fn load() -> Result<Self, Error> {
        // SAFETY: libnvcomp's initialisers have no preconditions.
        let library = unsafe { libloading::Library::new(LIBRARY) }
            .map_err(|e| Error::NoNvcomp { library: LIBRARY, reason: e.to_string() })?;
        let missing = |e: libloading::Error| Error::NoNvcomp { library: LIBRARY, reason: e.to_string() };
        // SAFETY: the types are those zstd.h of nvCOMP 5 declares; the symbols
        // outlive the table because the table owns the library.
        let (get_temp_size, decompress) = unsafe {
            (
                *library.get(b"nvcompBatchedZstdDecompressGetTempSizeAsync\0").map_err(missing)?,
                *library.get(b"nvcompBatchedZstdDecompressAsync\0").map_err(missing)?,
            )
        };
        Ok(Self { get_temp_size, decompress, _library: library })
    }
}

/// A status as an error; 0 is success.
pub fn check(status: c_int, call: &'static str) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::Nvcomp { call, status }) }
}
