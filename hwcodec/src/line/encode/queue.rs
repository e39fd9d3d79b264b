//! The launches of one encoding, on the caller's stream.

use crate::error::Error;
use crate::line::image::PlanArguments;
use crate::line::places::Group;
use crate::line::{Address, Launch};
use cudarc::driver::{CudaFunction, sys};
use std::ffi::c_void;

#[derive(Debug)]
pub(super) struct Functions {
    pub encode: CudaFunction,
    pub directory: CudaFunction,
    pub gather: CudaFunction,
    /// Directory and gather in one.
    pub gather_few: CudaFunction,
    pub settle: CudaFunction,
    pub measure: CudaFunction,
    pub steps: CudaFunction,
}

/// Tiles of a tensor whose lengths every warp can sum up.
const FEW_TILES: usize = 1024;

/// `PARTS` of `encode/steps.cu`: a tensor is measured in so many parts.
pub(super) const PARTS: usize = 64;

/// `Front` of `assemble.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Front {
    header: Address,
    header_bytes: u32,
    step_at: u32,
    steps: Address,
    lengths: Address,
}

/// `Pace` of `assemble.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Pace {
    room_bytes: u64,
    steps: Address,
    gains: Address,
    coarser: f32,
    fuller: f32,
    finer: f32,
    values: f32,
}

/// Where parts of a workspace begin.
pub(super) struct Parts {
    pub faults: u64,
    pub lengths: u64,
    pub row_classes: u64,
    pub rooms: u64,
    pub steps: u64,
    pub measured: u64,
    /// What it took in the end, where the caller has no place for it.
    pub taken: u64,
    pub scratch: u64,
    pub end: u64,
}

/// A share of the room below which the next tensor is coded finer, and what steps are multiplied by then.
/// As `trinity.torch` has it on a CPU.
const FULLER: f32 = 0.95;
const FINER: f32 = 0.97;

/// Threads of the kernels that measure and that sum up.
const MEASURE_THREADS: u32 = 512;
const BLOCK: u32 = 1024;

/// One group of tensors on its way.
pub(super) struct Queue<'a> {
    pub plan: &'a PlanArguments,
    pub launch: Launch,
    /// Of a warp.
    pub scratch_bytes: usize,
    /// Steps are so many roots of each tensor's mean square; nothing: the plan's.
    pub relative_step: Option<f32>,
    pub functions: &'a Functions,
    pub group: &'a Group,
    pub parts: Parts,
    pub lengths: Address,
    pub stream: sys::CUstream,
}

/// A pointer to an argument.
fn of<T>(argument: &mut T) -> *mut c_void {
    (&raw mut *argument).cast()
}

impl Queue<'_> {
    fn values_at(&self) -> *mut c_void {
        self.group.sources.as_ptr().cast_mut().cast()
    }

    fn out_at(&self) -> *mut c_void {
        self.group.targets.as_ptr().cast_mut().cast()
    }

    fn all_tiles(&self) -> usize {
        self.plan.tiles as usize * self.group.count
    }

    fn tensor_values(&self) -> u64 {
        let plan = self.plan;
        u64::from(plan.rows) * u64::from(plan.cols)
    }

    fn front(&self) -> Front {
        let plan = self.plan;
        let steps = if self.relative_step.is_some() { self.parts.steps } else { 0 };
        Front {
            header: plan.header,
            header_bytes: plan.header_bytes,
            step_at: plan.step_at,
            steps,
            lengths: self.lengths,
        }
    }

    /// Steps of all tensors, where the encoder follows them; `gains` may be none.
    ///
    /// # Safety
    ///
    /// As `Encoder::encode_many`.
    pub unsafe fn follow(&self, gains: Address) -> Result<(), Error> {
        let Some(mut relative) = self.relative_step else { return Ok(()) };
        let mut count = self.group.count as u32;
        let mut values = self.tensor_values();
        let (mut measured, mut steps, mut gains) = (self.parts.measured, self.parts.steps, gains);
        let blocks = (count * PARTS as u32).min(4 * self.launch.blocks);
        let launch = Launch { blocks, threads: MEASURE_THREADS, shared_bytes: 0 };
        let mut arguments = [self.values_at(), of(&mut count), of(&mut values), of(&mut measured)];
        // SAFETY: the arguments are `line_measure`'s; the caller promised the rest.
        unsafe { launch.run(&self.functions.measure, self.stream, &mut arguments)? };
        let launch = Launch { blocks: count.div_ceil(BLOCK / 32), threads: BLOCK, shared_bytes: 0 };
        let mut arguments =
            [of(&mut measured), of(&mut gains), of(&mut count), of(&mut relative), of(&mut steps)];
        // SAFETY: the arguments are `line_steps`'.
        unsafe { launch.run(&self.functions.steps, self.stream, &mut arguments) }
    }

    /// Tiles into their rooms.
    ///
    /// # Safety
    ///
    /// As `Encoder::encode_many`.
    pub unsafe fn encode(&self) -> Result<(), Error> {
        let parts = &self.parts;
        let mut plan = *self.plan;
        let mut count = self.group.count as u32;
        let (mut steps, mut rooms, mut lengths) = (parts.steps, parts.rooms, parts.lengths);
        let (mut row_classes, mut scratch, mut faults) = (parts.row_classes, parts.scratch, parts.faults);
        let mut scratch_bytes = self.scratch_bytes as u64;
        let mut arguments = [
            of(&mut plan),
            self.values_at(),
            of(&mut count),
            of(&mut steps),
            of(&mut rooms),
            of(&mut lengths),
            of(&mut row_classes),
            of(&mut scratch),
            of(&mut scratch_bytes),
            of(&mut faults),
        ];
        let launch = self.launch.spread(self.all_tiles());
        // SAFETY: the arguments are `line_encode`'s; the caller promised the rest.
        unsafe { launch.run(&self.functions.encode, self.stream, &mut arguments) }
    }

    /// Header, directory and words of every stream into their places.
    ///
    /// # Safety
    ///
    /// As `Encoder::encode_many`.
    pub unsafe fn assemble(&self) -> Result<(), Error> {
        let mut tiles = self.plan.tiles;
        let mut front = self.front();
        let mut lengths = self.parts.lengths;
        if self.plan.tiles as usize > FEW_TILES {
            let mut arguments = [of(&mut lengths), of(&mut tiles), of(&mut front), self.out_at()];
            let launch = Launch { blocks: self.group.count as u32, threads: BLOCK, shared_bytes: 0 };
            // SAFETY: the arguments are `line_directory`'s.
            unsafe { launch.run(&self.functions.directory, self.stream, &mut arguments)? };
            // SAFETY: tiles end within their rooms, which the places of streams hold.
            return unsafe { self.gather(0) };
        }
        let (mut rooms, mut count) = (self.parts.rooms, self.group.count as u32);
        let mut capacity = self.plan.capacity;
        let mut arguments = [
            of(&mut rooms),
            of(&mut lengths),
            of(&mut tiles),
            of(&mut count),
            of(&mut capacity),
            of(&mut front),
            self.out_at(),
        ];
        // SAFETY: the arguments are `line_gather_few`'s.
        unsafe { self.gathering().run(&self.functions.gather_few, self.stream, &mut arguments) }
    }

    /// Blocks that copy words: as many multiprocessors as encode.
    fn gathering(&self) -> Launch {
        Launch { shared_bytes: 0, ..self.launch.spread(self.all_tiles()) }
    }

    /// What an attempt comes to: header, directory and head where it fits its room.
    ///
    /// # Safety
    ///
    /// As `Encoder::encode_within`.
    pub unsafe fn settle(&self, room_bytes: usize, gains: Address, coarser: f32) -> Result<(), Error> {
        let mut tiles = self.plan.tiles;
        let mut front = self.front();
        let (mut lengths, mut faults) = (self.parts.lengths, self.parts.faults);
        let mut head = crate::line::HEAD_BYTES as u32;
        let mut pace = Pace {
            room_bytes: room_bytes as u64,
            steps: self.parts.steps,
            gains,
            coarser,
            fuller: FULLER,
            finer: FINER,
            values: self.tensor_values() as f32,
        };
        let mut arguments = [
            of(&mut lengths),
            of(&mut faults),
            of(&mut tiles),
            of(&mut front),
            self.out_at(),
            of(&mut head),
            of(&mut pace),
        ];
        let launch = Launch { blocks: self.group.count as u32, threads: BLOCK, shared_bytes: 0 };
        // SAFETY: the arguments are `line_settle`'s.
        unsafe { launch.run(&self.functions.settle, self.stream, &mut arguments) }
    }

    /// Words to where the directory says.
    ///
    /// # Safety
    ///
    /// As `Encoder::encode_many`, after what wrote the directory.
    pub unsafe fn gather(&self, head: u32) -> Result<(), Error> {
        let (mut rooms, mut lengths, mut head) = (self.parts.rooms, self.parts.lengths, head);
        let (mut tiles, mut count) = (self.plan.tiles, self.group.count as u32);
        let mut capacity = self.plan.capacity;
        let mut front = self.front();
        let mut arguments = [
            of(&mut rooms),
            of(&mut lengths),
            of(&mut tiles),
            of(&mut count),
            of(&mut capacity),
            of(&mut front),
            self.out_at(),
            of(&mut head),
        ];
        // SAFETY: the arguments are `line_gather`'s.
        unsafe { self.gathering().run(&self.functions.gather, self.stream, &mut arguments) }
    }
}
