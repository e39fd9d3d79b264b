//! Values on the device to streams on the device.

mod queue;

use super::image::Image;
use super::places::{self, Group};
use super::{
    Address, Direction, Faulty, Format, HEAD_BYTES, Launch, LineCodec, Places, SPAN, THREADS, Variant,
    function, kept, read_faults, wide_function,
};
use crate::error::{During, Error};
use cudarc::driver::sys;
use queue::{Functions, PARTS, Parts, Queue};
use std::sync::OnceLock;
use trinity_codec::line::{Coder, MAGNITUDES, Plan, Quantizer, Settings, TAIL};

/// `NEAR` of `encode/near.cu`: magnitudes of targets whose costs and levels are looked up, and bytes of each.
const NEAR: usize = 512;
const NEAR_BYTES: usize = 20;

/// `NOTED` of `encode/near.cu`: steps whose decisions lie below costs.
const NOTED: usize = 4;

/// What a level may cost at most there: sums over a row stay far from overflowing.
const MOST_COST: i32 = 1 << 14;

/// `SYMBOLS` of `encode/push.cu`: entries of a table by sign.
const SYMBOLS: usize = 2 * MAGNITUDES;

/// Encodes tensors under one plan.
#[derive(Debug)]
pub struct Encoder {
    codec: LineCodec,
    image: Image,
    /// For tensors that lie evenly, and for those that are listed.
    functions: [OnceLock<Functions>; 2],
    launch: Launch,
    variant: Variant,
    scratch_bytes: usize,
    /// Steps are so many roots of each tensor's mean square; nothing: the plan's.
    relative_step: Option<f32>,
}

/// What an attempt's step is of the one before at least, in a room. The second follows from what the first
/// took; the last fits whatever the plan can code at its rate, since hardly a value is not zero then.
const COARSER: [f32; 2] = [1.03, 16.0];

/// Tensors to encode, and where their streams go.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub values: Places<'a>,
    pub out: Places<'a>,
    /// Eight bytes for each tensor: how long its stream became.
    pub lengths: Address,
}

/// Rooms of one size that streams are kept within.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes of a room: a head of [`HEAD_BYTES`] and the stream. The head's first eight bytes are
    /// the stream's length, or all ones where there is none: a value was not finite, or it did not fit.
    pub bytes: usize,
    /// A number in single precision for each tensor's place, 1 at first and kept from one call to the next:
    /// steps are multiplied by it, and it follows from what a tensor took of its room.
    pub gains: Address,
}

impl Encoder {
    /// An encoder for `plan`, on so many multiprocessors, with room for `most_bits` per
    /// value in every tile (48 are always enough); a tile that takes more is a fault.
    pub fn on(
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        most_bits: f64,
        multiprocessors: u32,
    ) -> Result<Self, Error> {
        let refused = |what: String| Error::Encode { what: "on the GPU".into(), reason: what };
        let coder = Coder::new(plan.clone()).map_err(|e| refused(e.to_string()))?;
        let quantizer = Quantizer::new(&coder, settings.lambda, settings.rounding)
            .ok_or_else(|| refused("a stated matrix has no inverse".into()))?;
        let direction = Direction::Encode { within_budgets: settings.tile_budget.is_some() };
        let mut variant = Variant::of(plan, format, direction);
        // Decisions lie below costs in one word.
        let dear = |&cost: &i32| !(0..=MOST_COST).contains(&cost);
        if variant.log2_states != 0 && quantizer.costs.iter().flatten().any(dear) {
            variant.row_steps = 0;
        }
        let upload = codec.context.new_stream().during("cuStreamCreate")?;
        let mut header = Vec::new();
        plan.write(&mut header);
        let mut image = Image::new(&coder, &header, Some(&quantizer), &upload)?;
        let tile_values = plan.tile_rows * plan.tile_cols;
        let words = (tile_values as f64 * most_bits.clamp(1.0, 80.0) / 16.0).ceil() as usize;
        image.arguments.capacity = (words + 2 * plan.lanes() + 64).next_multiple_of(8) as u32;
        image.arguments.budget = settings.tile_budget.unwrap_or(0) as u32;
        let tables_bytes = 8 * image.tables * SYMBOLS + 4 * (image.tables + 1) * MAGNITUDES + 4 * SPAN;
        // `OWN` of `encode/push.cu`.
        let warp_bytes = 4 * (TAIL * 32 + image.group.next_multiple_of(2) + 2);
        let searches = variant.row_steps != 0 && plan.log2_states != 0;
        let looked_up = if searches { 16 + NEAR * NEAR_BYTES * plan.tables.len() / 2 } else { 0 };
        let fits =
            tables_bytes + looked_up + THREADS as usize / 32 * warp_bytes <= codec.shared_bytes as usize;
        let tables_bytes = if fits { tables_bytes + looked_up } else { tables_bytes };
        if searches && !fits {
            variant.row_steps = 0;
        }
        let launch = Launch::on(multiprocessors, tables_bytes, warp_bytes);
        let scratch_bytes = scratch_bytes(plan, &variant);
        let functions = Default::default();
        let codec = codec.clone();
        let made = Self { codec, image, functions, launch, variant, scratch_bytes, relative_step: None };
        made.functions(false)?;
        Ok(made)
    }

    /// The same plan for tensors of any scale: a tensor's step is `relative_step` times the root of its mean
    /// square, found on the device and stated in its stream. Bytes are those that a CPU writes under the plan with that step.
    pub fn following(self, relative_step: f32) -> Result<Self, Error> {
        let variant = Variant { steps: true, ..self.variant };
        let functions = Default::default();
        let made = Self { relative_step: Some(relative_step), variant, functions, ..self };
        made.functions(false)?;
        Ok(made)
    }

    /// The kernels, compiled at their first use.
    fn functions(&self, listed: bool) -> Result<&Functions, Error> {
        kept(&self.functions[usize::from(listed)], || {
            let module = self.codec.module(Variant { listed, ..self.variant })?;
            Ok(Functions {
                encode: wide_function(&self.codec, &module, "line_encode")?,
                directory: function(&module, "line_directory")?,
                gather: function(&module, "line_gather")?,
                gather_few: function(&module, "line_gather_few")?,
                settle: function(&module, "line_settle")?,
                measure: function(&module, "line_measure")?,
                steps: function(&module, "line_steps")?,
            })
        })
    }

    /// Bytes of the values an encoding reads.
    pub fn input_bytes(&self) -> usize {
        let arguments = &self.image.arguments;
        arguments.rows as usize * arguments.cols as usize * self.variant.format.bytes()
    }

    /// Rows and columns of what is read.
    pub fn shape(&self) -> (usize, usize) {
        self.image.shape
    }

    pub fn workspace_bytes_of(&self, count: usize) -> usize {
        self.parts(count, 0).end as usize
    }

    /// Most bytes a stream can take.
    pub fn bound_bytes(&self) -> usize {
        let words = self.image.tiles * self.image.arguments.capacity as usize;
        self.image.arguments.header_bytes as usize + 4 * self.image.tiles + 2 * words
    }

    fn parts(&self, count: usize, base: Address) -> Parts {
        let (tiles, items) = ((self.image.tiles * count) as u64, count as u64);
        let arguments = &self.image.arguments;
        let aligned = |at: u64| at.next_multiple_of(16);
        let faults = base;
        let lengths = aligned(faults + 4 * tiles);
        let row_classes = aligned(lengths + 8 * tiles);
        let rooms = aligned(row_classes + 2 * self.class_rows() as u64 * tiles);
        let steps = aligned(rooms + 2 * u64::from(arguments.capacity) * tiles);
        let measured = aligned(steps + 4 * items);
        let taken = aligned(measured + 4 * PARTS as u64 * items);
        let scratch = aligned(taken + 8 * items);
        // A warp beyond the last tile has nothing to keep.
        let warps = self.launch.warps(tiles as usize) as u64;
        let end = scratch + warps * self.scratch_bytes as u64 + 16;
        Parts { faults, lengths, row_classes, rooms, steps, measured, taken, scratch, end }
    }

    /// Rows of a tile that state a class.
    fn class_rows(&self) -> usize {
        if self.variant.row_classes { self.image.arguments.tile_rows as usize } else { 0 }
    }

    /// The parts that tensors from `first` on have of a workspace for `count`.
    fn parts_from(&self, first: usize, count: usize, base: Address) -> Parts {
        let all = self.parts(count, base);
        let (tiles, items) = ((self.image.tiles * first) as u64, first as u64);
        Parts {
            faults: all.faults + 4 * tiles,
            lengths: all.lengths + 8 * tiles,
            row_classes: all.row_classes + 2 * self.class_rows() as u64 * tiles,
            rooms: all.rooms + 2 * u64::from(self.image.arguments.capacity) * tiles,
            steps: all.steps + 4 * items,
            measured: all.measured + 4 * PARTS as u64 * items,
            taken: all.taken + 8 * items,
            ..all
        }
    }

    /// Queues the encoding of `values` into `out`; the stream's length in
    /// bytes goes to `length`, eight bytes on the device.
    ///
    /// # Safety
    ///
    /// `values` holds [`Encoder::input_bytes`], `out` has room for
    /// [`Encoder::bound_bytes`] on a multiple of four bytes, `workspace` for
    /// [`Encoder::workspace_bytes_of`] one on a multiple of sixteen; all live on the
    /// device until `stream`, a stream of the codec's context, has run.
    pub unsafe fn encode(
        &self,
        values: Address,
        out: Address,
        length: Address,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let batch = Batch { values: Places::one(values), out: Places::one(out), lengths: length };
        // SAFETY: the caller's promise, of one tensor.
        unsafe { self.encode_many(&batch, workspace, stream) }
    }

    /// Queues the encoding of many tensors, in one launch of each kernel for every 1024 of them. The first
    /// time that they do not lie evenly compiles kernels.
    ///
    /// # Safety
    ///
    /// As [`Encoder::encode`] for each of them, with [`Encoder::workspace_bytes_of`] as many.
    pub unsafe fn encode_many(
        &self,
        batch: &Batch<'_>,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let count = self.countable(batch)?;
        let (listed, groups) = places::groups(&batch.values, &batch.out)?;
        for group in &groups {
            let lengths = batch.lengths + 8 * group.first as u64;
            let parts = self.parts_from(group.first, count, workspace);
            let queue = self.queue((listed, group), parts, lengths, stream)?;
            // SAFETY: the caller's promise.
            unsafe {
                queue.follow(0)?;
                queue.encode()?;
                queue.assemble()?;
            }
        }
        Ok(())
    }

    /// [`Encoder::encode_many`] into rooms of one size: what does not fit is tried again with coarser steps, and
    /// the device alone decides that it must be. The encoder is a [`Encoder::following`] one.
    ///
    /// # Safety
    ///
    /// As [`Encoder::encode_many`], but that `out` has places for [`Room::bytes`] on multiples of eight bytes.
    pub unsafe fn encode_within(
        &self,
        batch: &Batch<'_>,
        room: &Room,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let refused = |reason: String| Error::Encode { what: "within a room".into(), reason };
        if self.relative_step.is_none() {
            return Err(refused("steps must follow the tensors".into()));
        }
        let front = self.image.arguments.header_bytes as usize + 4 * self.image.tiles;
        let Some(room_bytes) = room.bytes.checked_sub(HEAD_BYTES).filter(|&bytes| bytes >= front) else {
            return Err(refused(format!(
                "{} bytes, of which head, header and directory take {}",
                room.bytes,
                front + HEAD_BYTES
            )));
        };
        let count = self.countable(batch)?;
        let (listed, groups) = places::groups(&batch.values, &batch.out)?;
        for group in &groups {
            let parts = self.parts_from(group.first, count, workspace);
            let lengths = parts.taken;
            let gains = room.gains + 4 * group.first as u64;
            let queue = self.queue((listed, group), parts, lengths, stream)?;
            // SAFETY: the caller's promise.
            unsafe {
                queue.follow(gains)?;
                for coarser in COARSER.into_iter().chain([0.0]) {
                    queue.encode()?;
                    queue.settle(room_bytes, gains, coarser)?;
                }
                queue.gather(HEAD_BYTES as u32)?;
            }
        }
        Ok(())
    }

    /// The launches of a group of tensors, listed or not.
    fn queue<'a>(
        &'a self,
        (listed, group): (bool, &'a Group),
        parts: Parts,
        lengths: Address,
        stream: sys::CUstream,
    ) -> Result<Queue<'a>, Error> {
        Ok(Queue {
            plan: &self.image.arguments,
            launch: self.launch,
            scratch_bytes: self.scratch_bytes,
            relative_step: self.relative_step,
            functions: self.functions(listed)?,
            group,
            parts,
            lengths,
            stream,
        })
    }

    /// The tensors of a batch, if one launch can count their tiles.
    fn countable(&self, batch: &Batch<'_>) -> Result<usize, Error> {
        let count = batch.values.count();
        u32::try_from(count * self.image.tiles).map_err(|_| Error::Encode {
            what: format!("{count} tensors"),
            reason: "they are more than one launch takes".into(),
        })?;
        Ok(count)
    }

    /// The tiles that the last encoding with `workspace` could not hold. Waits
    /// for `stream`.
    ///
    /// # Safety
    ///
    /// `workspace` is the one that so many tensors were encoded with.
    pub unsafe fn faults_of(
        &self,
        count: usize,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<Vec<Faulty>, Error> {
        // SAFETY: faults stand at the start of the workspace.
        unsafe { read_faults(workspace, self.image.tiles * count, stream) }
    }
}

/// Scratch of a warp: residuals or levels, deviations, decisions.
fn scratch_bytes(plan: &Plan, variant: &Variant) -> usize {
    let values = plan.tile_rows * plan.tile_cols;
    let targets = if variant.size != 0 || variant.predicts { 4 * values } else { 0 };
    let deviations = if variant.predicts { 4 * plan.tile_cols } else { 0 };
    let per_row = plan.tile_cols.div_ceil(plan.lanes());
    // `TOGETHER` of `encode/trellis.cu`: so many steps leave their decisions in one word of each lane.
    let together = 32 / ((1 << variant.log2_states) + 2);
    let of_row = per_row.div_ceil(together).max(per_row / NOTED + 1);
    let words = if variant.predicts { per_row } else { of_row * plan.tile_rows };
    let decisions = if variant.log2_states == 0 { 0 } else { 4 * 32 * words };
    (targets + deviations + decisions).next_multiple_of(16)
}
