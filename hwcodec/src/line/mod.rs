//! The line-rate codec on the GPU: tensors stay on the device.
//!
//! Kernels are compiled with NVRTC for the kind of plan at hand, run on the
//! caller's stream, allocate nothing and wait for nothing: the caller brings
//! values, room for the stream and a workspace whose size is stated ahead.
//! They write the bytes that `trinity-codec` writes on a CPU and read whatever
//! it reads, tile by tile; a damaged tile is reported and harms no other. Many
//! tensors of one plan go in one launch.
//!
//! Plans are chosen on the host; this module must not know how. A plan is kept for
//! tensors of other scales: their steps are found on the device.

mod decode;
mod device;
mod encode;
mod image;
mod places;

pub use decode::{Decoder, Lengths};
pub use device::Cuda;
pub(crate) use device::{Decoding, Encoding};
pub use encode::{Batch, Encoder, Room};
pub use places::Places;

use crate::error::{During, Error};
use crate::gpu::{Gpu, require_nvrtc};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, result, sys};
use cudarc::nvrtc;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use trinity_codec::line::{MAX_CLASS, Plan, Transform, numbers};

/// The kernels, in CUDA C++.
const ENCODING: &str = concat!(
    include_str!("common.cu"),
    include_str!("encode/trellis.cu"),
    include_str!("encode/near.cu"),
    include_str!("encode/push.cu"),
    include_str!("encode/coding.cu"),
    include_str!("encode/quick.cu"),
    include_str!("encode/tiles.cu"),
    include_str!("encode/steps.cu"),
    include_str!("assemble.cu")
);
const DECODING: &str = concat!(include_str!("common.cu"), include_str!("decode.cu"));

/// A device address, as the driver counts them.
pub type Address = u64;

/// Threads of a block at most. A multiprocessor holds one block, so that the
/// blocks of a launch are the multiprocessors it takes.
const THREADS: u32 = 1024;

/// Shared memory beyond which a multiprocessor of any GPU with CUDA 13 holds
/// no second block.
const LONELY_BYTES: u32 = 116 << 10;

/// What a row adds to the class of a column, and the classes of both before they are clamped: what a row adds lies
/// within these, and what comes of both is clamped by the table.
const LEAST_FROM: i32 = -128;
const MOST_FROM: i32 = 183;
const SPAN: usize = (MOST_FROM - LEAST_FROM + 2 * MAX_CLASS + 1) as usize;

/// Tensors that one launch is told of one by one, at most.
const MOST_LISTED: usize = 1024;

/// Bytes before a stream in a room, which say how many of it count.
pub const HEAD_BYTES: usize = 16;

/// Columns of a row that is coded together at most.
const MOST_KEPT: usize = 512;

/// How values lie in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    F32,
    Bf16,
    F16,
    F8E4M3,
    F8E5M2,
}

impl Format {
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::F8E4M3 | Self::F8E5M2 => 1,
        }
    }
}

/// Which way a module's kernels go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `within_budgets`: coarser steps where a tile has a budget.
    Encode {
        within_budgets: bool,
    },
    Decode,
}

/// What a compiled module is made for: the less it must provide for, the
/// sooner it is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    pub direction: Direction,
    /// Every step of every tile has a column for each of 32 lanes.
    pub whole_steps: bool,
    /// Steps of a row that an encoder codes together: it keeps them in registers or looks their costs up; 0: none.
    pub row_steps: usize,
    pub log2_lanes: u32,
    pub log2_states: u32,
    /// Columns of a transform's group; 0: none.
    pub size: usize,
    pub predicts: bool,
    pub means: bool,
    pub row_classes: bool,
    pub transposed: bool,
    pub format: Format,
    /// Tensors lie each at its own address.
    pub listed: bool,
    /// An encoder reads each tensor's step on the device.
    pub steps: bool,
}

impl Variant {
    pub fn of(plan: &Plan, format: Format, direction: Direction) -> Self {
        let cols = plan.coded_shape().1;
        let whole_steps = plan.lanes() == 32 && cols.is_multiple_of(32) && plan.tile_cols.is_multiple_of(32);
        let predicts = plan.above.iter().any(|&above| above != 0);
        let means = plan.means.iter().any(|&mean| mean != 0);
        let row_classes = plan.row_table.is_some();
        // A search looks costs up where a value depends on nothing but itself.
        let plain = plan.log2_states == 0 || (!means && plan.transform == Transform::None);
        let keeps = whole_steps
            && !predicts
            && plain
            && direction != Direction::Decode
            && plan.tile_cols <= MOST_KEPT
            && plan.tile_cols.is_multiple_of(128);
        Self {
            direction,
            whole_steps,
            row_steps: if keeps { plan.tile_cols / 32 } else { 0 },
            log2_lanes: plan.log2_lanes,
            log2_states: plan.log2_states,
            size: if plan.transform == Transform::None { 0 } else { plan.transform.size() },
            predicts,
            means,
            row_classes,
            transposed: plan.transposed,
            format,
            listed: false,
            steps: false,
        }
    }

    /// Options for NVRTC. Products and sums are rounded one by one, as on the host.
    pub fn options(&self, compute: (i32, i32)) -> Vec<String> {
        let define = |name: &str, value: usize| format!("-D{name}={value}");
        let within_budgets = self.direction == Direction::Encode { within_budgets: true };
        vec![
            define("WHOLE_STEPS", usize::from(self.whole_steps)),
            define("ROW_STEPS", self.row_steps),
            define("WITHIN_BUDGETS", usize::from(within_budgets)),
            format!("--gpu-architecture=compute_{}{}", compute.0, compute.1),
            "--std=c++17".into(),
            "--fmad=false".into(),
            define("LOG2_LANES", self.log2_lanes as usize),
            define("LOG2_STATES", self.log2_states as usize),
            define("SIZE", self.size),
            define("PREDICTS", usize::from(self.predicts)),
            define("MEANS", usize::from(self.means)),
            define("ROW_CLASSES", usize::from(self.row_classes)),
            define("TRANSPOSED", usize::from(self.transposed)),
            define("FORMAT", self.format as usize),
            define("LISTED", usize::from(self.listed)),
            define("STEPS", usize::from(self.steps)),
            define("THREADS", THREADS as usize),
        ]
    }
}

/// The codec on one GPU, with what was compiled so far, which clones share.
#[derive(Debug, Clone)]
pub struct LineCodec {
    context: Arc<CudaContext>,
    multiprocessors: u32,
    /// Shared memory that a block can have at most.
    shared_bytes: u32,
    compiled: Arc<Mutex<HashMap<Variant, Arc<CudaModule>>>>,
}

impl LineCodec {
    /// The codec on `gpu`. Nothing is compiled yet.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        use sys::CUdevice_attribute as Of;
        let ask = |what| gpu.context.attribute(what).during("cuDeviceGetAttribute").map(|found| found as u32);
        let multiprocessors = ask(Of::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_bytes = ask(Of::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        Ok(Self { context: gpu.context.clone(), multiprocessors, shared_bytes, compiled: Arc::default() })
    }

    /// Multiprocessors of the GPU: what an encoder or decoder takes unless told otherwise.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// A variant's module, compiled at its first use; others can be looked up meanwhile.
    fn module(&self, variant: Variant) -> Result<Arc<CudaModule>, Error> {
        let compiled = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = compiled().get(&variant) {
            return Ok(module.clone());
        }
        let compute = self.context.compute_capability().during("cuDeviceGetAttribute")?;
        let module = self.context.load_module(compile(variant, compute)?).during("cuModuleLoadData")?;
        Ok(compiled().entry(variant).or_insert(module).clone())
    }
}

fn function(module: &Arc<CudaModule>, name: &str) -> Result<CudaFunction, Error> {
    module.load_function(name).during("cuModuleGetFunction")
}

/// A function that takes as much shared memory as there is: functions are shared by plans, and one
/// plan must not lower the limit for another.
fn wide_function(codec: &LineCodec, module: &Arc<CudaModule>, name: &str) -> Result<CudaFunction, Error> {
    let function = function(module, name)?;
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function.set_attribute(attribute, codec.shared_bytes as i32).during("cuFuncSetAttribute")?;
    Ok(function)
}

/// What is made at first use and kept.
fn kept<T>(place: &OnceLock<T>, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    if let Some(made) = place.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(place.get_or_init(|| made))
}

/// What kernels are told of numbers, in CUDA C++: the format's ([`trinity_codec::line::numbers`]) and this module's.
fn prelude() -> String {
    let signed = numbers::SIGNED.into_iter().chain([("LEAST_FROM", LEAST_FROM), ("MOST_FROM", MOST_FROM)]);
    let unsigned =
        numbers::UNSIGNED.into_iter().chain([("MOST_LISTED", MOST_LISTED as u32), ("SPAN", SPAN as u32)]);
    signed
        .map(|(name, number)| format!("constexpr int {name} = {number};\n"))
        .chain(unsigned.map(|(name, number)| format!("constexpr unsigned {name} = {number};\n")))
        .collect()
}

/// Compiles the kernels for a variant; needs NVRTC, but no GPU.
pub fn compile(variant: Variant, compute: (i32, i32)) -> Result<nvrtc::Ptx, Error> {
    require_nvrtc()?;
    let options = nvrtc::CompileOptions { options: variant.options(compute), ..Default::default() };
    let kernels = if variant.direction == Direction::Decode { DECODING } else { ENCODING };
    let source = prelude() + kernels;
    nvrtc::compile_ptx_with_opts(source, options)
        .map_err(|e| Error::Kernel { kernel: "line", log: format!("{e:?}") })
}

/// What the kernels found wrong with a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
#[non_exhaustive]
pub enum Fault {
    Directory,
    Head,
    Exceptions,
    Length,
    End,
    Overflow,
    Budget,
    Header,
    Step,
    Unknown(u32),
}

/// Faults by the code that kernels give, from 1 on, and what is wrong, as streams' errors say it.
const FAULTS: [(Fault, &str); 9] = [
    (Fault::Directory, "the directory does not fit it"),
    (Fault::Head, "its first word is unknown"),
    (Fault::Exceptions, "its exceptions are out of order"),
    (Fault::Length, "its words do not end with its values"),
    (Fault::End, "a lane does not end where it must"),
    (Fault::Overflow, "it takes more than the bits per value that were provided for"),
    (Fault::Budget, "it does not fit its budget at any step"),
    (Fault::Header, "its stream begins with another plan"),
    (Fault::Step, "its tensor has a value that is not finite, or none that a step could be found for"),
];

impl Fault {
    fn reason(self) -> &'static str {
        let known = FAULTS.iter().find(|(fault, _)| *fault == self);
        known.map_or("the kernel gave an unknown code", |&(_, reason)| reason)
    }

    fn of(code: u32) -> Option<Self> {
        let at = (code as usize).checked_sub(1)?;
        Some(FAULTS.get(at).map_or(Self::Unknown(code), |&(fault, _)| fault))
    }
}

/// A tile, counted through all tensors of a launch, and what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("tile {tile}: {fault}")]
pub struct Faulty {
    pub tile: usize,
    pub fault: Fault,
}

impl Faulty {
    /// The first of the tiles as an error.
    pub(crate) fn refuse(faults: &[Self]) -> Result<(), Error> {
        faults.first().map_or(Ok(()), |faulty| Err(Error::CorruptStream { what: faulty.to_string() }))
    }
}

/// Reads the fault of every tile; waits for the stream.
///
/// # Safety
///
/// `faults` points to `tiles` words on the device, and `stream` is a live
/// stream of the current context.
unsafe fn read_faults(faults: Address, tiles: usize, stream: sys::CUstream) -> Result<Vec<Faulty>, Error> {
    let mut codes = vec![0u32; tiles];
    // SAFETY: the caller's promise; the copy has ended before `codes` is read.
    unsafe {
        result::memcpy_dtoh_async(&mut codes, faults, stream).during("cuMemcpyDtoH")?;
        result::stream::synchronize(stream).during("cuStreamSynchronize")?;
    }
    let faulty = |(tile, &code): (usize, &u32)| Fault::of(code).map(|fault| Faulty { tile, fault });
    Ok(codes.iter().enumerate().filter_map(faulty).collect())
}

/// Blocks and their shared memory.
#[derive(Debug, Clone, Copy)]
struct Launch {
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
}

impl Launch {
    /// On at most so many multiprocessors, a block each.
    fn on(multiprocessors: u32, tables_bytes: usize, warp_bytes: usize) -> Self {
        // All threads help to load tables, also where there are fewer tiles than warps.
        let warps = THREADS / 32;
        let wanted = (tables_bytes + warps as usize * warp_bytes) as u32;
        Self { blocks: multiprocessors.max(1), threads: 32 * warps, shared_bytes: wanted.max(LONELY_BYTES) }
    }

    /// A warp for each of `tiles`, as far as they go.
    fn spread(self, tiles: usize) -> Self {
        Self { blocks: tiles.clamp(1, self.blocks as usize) as u32, ..self }
    }

    /// Warps that have one of `tiles`.
    fn warps(&self, tiles: usize) -> usize {
        ((self.blocks * self.threads / 32) as usize).min(tiles)
    }

    /// Queues `function` with pointers to its arguments.
    ///
    /// # Safety
    ///
    /// The arguments are those the kernel declares, and what they point to on
    /// the device lives until the stream has run.
    unsafe fn run(
        &self,
        function: &CudaFunction,
        stream: sys::CUstream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (self.blocks, 1, 1),
                (self.threads, 1, 1),
                self.shared_bytes,
                stream,
                arguments,
            )
        }
        .during("cuLaunchKernel")
    }
}
