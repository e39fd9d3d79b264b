//! libnvcomp 6: general-purpose compressors on the GPU, many chunks at once.
//!
//! What the line-rate codec is measured against, and what decompresses
//! Zstandard frames of sparse deltas. All methods share one calling
//! convention, so one table of functions serves them.

use crate::Error;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The name the dynamic linker knows it by; earlier versions pass other arguments.
pub const LIBRARY: &str = "libnvcomp.so.6";

/// Each chunk, compressed or not, starts on a multiple of this many bytes.
pub const ALIGNMENT: usize = 16;

/// A compressor of nvCOMP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// rANS over bytes.
    Ans,
    Bitcomp,
    Zstd,
}

impl Method {
    /// As nvCOMP's documentation writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ans => "ANS",
            Self::Bitcomp => "Bitcomp",
            Self::Zstd => "Zstd",
        }
    }

    /// `nvcompBatched…CompressDefaultOpts`: all zeros but for Bitcomp's data type, bytes.
    const fn compress_options(self) -> Options {
        let mut bytes = [0; 64];
        if matches!(self, Self::Bitcomp) {
            bytes[4] = 1;
        }
        Options(bytes)
    }

    /// `nvcompBatched…DecompressDefaultOpts`: all zeros but for ANS's data type, which the stream tells.
    const fn decompress_options(self) -> Options {
        let mut bytes = [0; 64];
        if matches!(self, Self::Ans) {
            bytes[4] = 0xff;
        }
        Options(bytes)
    }
}

/// `nvcompBatched…Opts_t` of any method: 64 bytes, passed by value.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct Options([u8; 64]);

/// Chunks, longest chunk, options, answer, all bytes, stream.
type TempSize = unsafe extern "C" fn(usize, usize, Options, *mut usize, usize, *mut c_void) -> c_int;

/// Longest chunk, options, answer.
type MaxOutput = unsafe extern "C" fn(usize, Options, *mut usize) -> c_int;

/// Chunks and their sizes, longest chunk, count, scratch and its size, places
/// and sizes of what comes out, options, statuses, stream. Arrays are on the
/// device.
type Compress = unsafe extern "C" fn(
    *const *const c_void,
    *const usize,
    usize,
    usize,
    *mut c_void,
    usize,
    *const *mut c_void,
    *mut usize,
    Options,
    *mut c_int,
    *mut c_void,
) -> c_int;

/// Compressed chunks and sizes, sizes of the buffers, sizes found, count,
/// scratch and its size, buffers, options, statuses, stream.
type Decompress = unsafe extern "C" fn(
    *const *const c_void,
    *const usize,
    *const usize,
    *mut usize,
    usize,
    *mut c_void,
    usize,
    *const *mut c_void,
    Options,
    *mut c_int,
    *mut c_void,
) -> c_int;

/// Chunks on the device: arrays of `count` entries each.
#[derive(Debug, Clone, Copy)]
pub struct Chunks {
    pub count: usize,
    /// Longest uncompressed chunk, bytes.
    pub longest: usize,
    /// Uncompressed chunks and their sizes.
    pub plain: u64,
    pub plain_bytes: u64,
    /// Compressed chunks and their sizes.
    pub packed: u64,
    pub packed_bytes: u64,
    /// Sizes that decompression found, and one status a chunk.
    pub found_bytes: u64,
    pub statuses: u64,
    pub scratch: u64,
    pub scratch_bytes: usize,
}

/// One method's functions.
#[derive(Debug, Clone)]
pub struct Nvcomp {
    method: Method,
    compress_temp: TempSize,
    compress_bound: MaxOutput,
    compress: Compress,
    decompress_temp: TempSize,
    decompress: Decompress,
    _library: Arc<libloading::Library>,
}

impl Nvcomp {
    /// Loads nvCOMP where it is installed.
    pub fn load(method: Method) -> Result<Self, Error> {
        let missing = |e: libloading::Error| Error::NoNvcomp { library: LIBRARY, reason: e.to_string() };
        // SAFETY: libnvcomp's initialisers have no preconditions.
        let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(missing)?;
        let name = |function: &str| format!("nvcompBatched{}{function}\0", method.name());
        // SAFETY: the types are those that nvCOMP 6's headers declare for every method; the
        // symbols outlive the table because the table owns the library.
        unsafe {
            Ok(Self {
                method,
                compress_temp: *library.get(name("CompressGetTempSize").as_bytes()).map_err(missing)?,
                compress_bound: *library
                    .get(name("CompressGetMaxOutputChunkSize").as_bytes())
                    .map_err(missing)?,
                compress: *library.get(name("CompressAsync").as_bytes()).map_err(missing)?,
                decompress_temp: *library.get(name("DecompressGetTempSize").as_bytes()).map_err(missing)?,
                decompress: *library.get(name("DecompressAsync").as_bytes()).map_err(missing)?,
                _library: Arc::new(library),
            })
        }
    }

    /// Most bytes a chunk of `bytes` can take.
    pub fn bound(&self, bytes: usize) -> Result<usize, Error> {
        let mut answer = 0;
        // SAFETY: the declared function; the answer goes to a live number.
        let status = unsafe { (self.compress_bound)(bytes, self.method.compress_options(), &mut answer) };
        check(status, "nvCOMP, size of a chunk").map(|()| answer)
    }

    /// Scratch for compressing and decompressing `count` chunks of at most `longest` bytes.
    pub fn scratch_bytes(&self, count: usize, longest: usize) -> Result<usize, Error> {
        let (mut there, mut back) = (0, 0);
        let (all, stream) = (count * longest, std::ptr::null_mut());
        // SAFETY: as above; the null stream is the default one.
        let status = unsafe {
            (self.compress_temp)(count, longest, self.method.compress_options(), &mut there, all, stream)
        };
        check(status, "nvCOMP, scratch for compressing")?;
        // SAFETY: as above.
        let status = unsafe {
            (self.decompress_temp)(count, longest, self.method.decompress_options(), &mut back, all, stream)
        };
        check(status, "nvCOMP, scratch for decompressing").map(|()| there.max(back))
    }

    /// Queues compression on `stream`.
    ///
    /// # Safety
    ///
    /// Every array of `chunks` has `count` entries on the device; chunks,
    /// room for them and scratch stay alive until the stream has run.
    pub unsafe fn compress(&self, chunks: &Chunks, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let status = unsafe {
            (self.compress)(
                chunks.plain as *const *const c_void,
                chunks.plain_bytes as *const usize,
                chunks.longest,
                chunks.count,
                chunks.scratch as *mut c_void,
                chunks.scratch_bytes,
                chunks.packed as *const *mut c_void,
                chunks.packed_bytes as *mut usize,
                self.method.compress_options(),
                chunks.statuses as *mut c_int,
                stream,
            )
        };
        check(status, "nvCOMP, compressing")
    }

    /// Queues decompression on `stream`.
    ///
    /// # Safety
    ///
    /// As [`Nvcomp::compress`].
    pub unsafe fn decompress(&self, chunks: &Chunks, stream: *mut c_void) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let status = unsafe {
            (self.decompress)(
                chunks.packed as *const *const c_void,
                chunks.packed_bytes as *const usize,
                chunks.plain_bytes as *const usize,
                chunks.found_bytes as *mut usize,
                chunks.count,
                chunks.scratch as *mut c_void,
                chunks.scratch_bytes,
                chunks.plain as *const *mut c_void,
                self.method.decompress_options(),
                chunks.statuses as *mut c_int,
                stream,
            )
        };
        check(status, "nvCOMP, decompressing")
    }
}

/// A status as an error; 0 is success.
pub fn check(status: c_int, call: &'static str) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::Nvcomp { call, status }) }
}
