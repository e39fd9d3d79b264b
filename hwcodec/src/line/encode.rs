//! Values on the device to streams on the device.

use super::image::Image;
use super::{Address, Direction, Faulty, Format, Launch, LineCodec, SPAN, Variant, function, read_faults};
use crate::error::{During, Error};
use cudarc::driver::{CudaFunction, CudaModule, CudaSlice, DevicePtr, sys};
use std::ffi::c_void;
use std::sync::Arc;
use trinity_codec::line::{Coder, MAGNITUDES, Plan, Quantizer, Settings, TAIL};

/// `SYMBOLS` of `encode.cu`: entries of a table by sign.
const SYMBOLS: usize = 2 * MAGNITUDES;

/// Encodes tensors under one plan.
#[derive(Debug)]
pub struct Encoder {
    image: Image,
    functions: Functions,
    launch: Launch,
    variant: Variant,
    header: CudaSlice<u8>,
    header_bytes: usize,
    scratch_bytes: usize,
}

/// The kernels, in the order they run.
#[derive(Debug)]
struct Functions {
    encode: CudaFunction,
    /// Nothing where the next writes the directory, too.
    directory: Option<CudaFunction>,
    gather: CudaFunction,
}

/// Tiles that one block can sum up at once.
const FEW_TILES: usize = 1024;

impl Functions {
    fn of(module: &Arc<CudaModule>, tiles: usize) -> Result<Self, Error> {
        let few = tiles <= FEW_TILES;
        let directory = (!few).then(|| function(module, "line_directory")).transpose()?;
        let gather = if few { "line_gather_few" } else { "line_gather" };
        Ok(Self { encode: function(module, "line_encode")?, directory, gather: function(module, gather)? })
    }
}

/// `Front` of `assemble.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Front {
    header: Address,
    header_bytes: u64,
    out: Address,
    length: Address,
}

/// Where parts of a workspace begin.
struct Parts {
    faults: u64,
    lengths: u64,
    row_classes: u64,
    rooms: u64,
    scratch: u64,
    end: u64,
}

impl Encoder {
    /// An encoder for `plan` with room for `most_bits` per value in every tile
    /// (48 are always enough); a tile that takes more is a fault.
    pub fn new(
        codec: &LineCodec,
        plan: &Plan,
        settings: &Settings,
        format: Format,
        most_bits: f64,
    ) -> Result<Self, Error> {
        Self::on(codec, plan, settings, format, most_bits, codec.multiprocessors())
    }

    /// [`Encoder::new`] on so many multiprocessors.
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
        let variant = Variant::of(plan, format, direction);
        let functions = Functions::of(&codec.module(variant)?, plan.tiles())?;
        let upload = codec.context.new_stream().during("cuStreamCreate")?;
        let mut image = Image::new(&coder, Some(&quantizer), &upload)?;
        let tile_values = plan.tile_rows * plan.tile_cols;
        let words = (tile_values as f64 * most_bits.clamp(1.0, 80.0) / 16.0).ceil() as usize;
        image.arguments.capacity = (words + 2 * plan.lanes() + 64).next_multiple_of(8) as u32;
        image.arguments.budget = settings.tile_budget.unwrap_or(0) as u32;
        let mut header = Vec::new();
        plan.write(&mut header);
        header.resize(header.len().next_multiple_of(4), 0);
        let header_bytes = header.len();
        let header = upload.clone_htod(&header).during("cuMemcpyHtoD")?;
        upload.synchronize().during("cuStreamSynchronize")?;
        let tables_bytes = 8 * image.tables * SYMBOLS + 4 * (image.tables + 1) * MAGNITUDES + 4 * SPAN;
        let warp_bytes = 4 * (TAIL * 32 + image.group);
        let launch =
            Launch::spread(codec, &functions.encode, image.tiles, multiprocessors, tables_bytes, warp_bytes)?;
        let scratch_bytes = scratch_bytes(plan, &variant);
        Ok(Self { image, functions, launch, variant, header, header_bytes, scratch_bytes })
    }

    /// Bytes of the values an encoding reads.
    pub fn input_bytes(&self) -> usize {
        let arguments = &self.image.arguments;
        arguments.rows as usize * arguments.cols as usize * self.variant.format.bytes()
    }

    /// Bytes of workspace that [`Encoder::encode`] wants.
    pub fn workspace_bytes(&self) -> usize {
        self.parts(0).end as usize
    }

    /// Most bytes a stream can take.
    pub fn bound_bytes(&self) -> usize {
        let words = self.image.tiles * self.image.arguments.capacity as usize;
        self.header_bytes + 4 * self.image.tiles + 2 * words
    }

    fn parts(&self, base: Address) -> Parts {
        let tiles = self.image.tiles as u64;
        let arguments = &self.image.arguments;
        let aligned = |at: u64| at.next_multiple_of(16);
        let faults = base;
        let lengths = aligned(faults + 4 * tiles);
        let row_classes = aligned(lengths + 8 * tiles);
        let rows = if self.variant.row_classes { u64::from(arguments.tile_rows) } else { 0 };
        let rooms = aligned(row_classes + 2 * rows * tiles);
        let scratch = aligned(rooms + 2 * u64::from(arguments.capacity) * tiles);
        // A warp beyond the last tile has nothing to keep.
        let warps = u64::from(self.launch.blocks * self.launch.threads / 32).min(tiles);
        let end = scratch + warps * self.scratch_bytes as u64 + 16;
        Parts { faults, lengths, row_classes, rooms, scratch, end }
    }

    /// Queues the encoding of `values` into `out`; the stream's length in
    /// bytes goes to `length`, eight bytes on the device.
    ///
    /// # Safety
    ///
    /// `values` holds [`Encoder::input_bytes`], `out` has room for
    /// [`Encoder::bound_bytes`] on a multiple of four bytes, `workspace` for
    /// [`Encoder::workspace_bytes`] on a multiple of sixteen; all live on the
    /// device until `stream`, a stream of the codec's context, has run.
    pub unsafe fn encode(
        &self,
        values: Address,
        out: Address,
        length: Address,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let parts = self.parts(workspace);
        let mut plan = self.image.arguments;
        let (mut values, mut rooms, mut lengths) = (values, parts.rooms, parts.lengths);
        let (mut row_classes, mut scratch, mut faults) = (parts.row_classes, parts.scratch, parts.faults);
        let mut scratch_bytes = self.scratch_bytes as u64;
        let mut arguments: [*mut c_void; 8] = [
            (&raw mut plan).cast(),
            (&raw mut values).cast(),
            (&raw mut rooms).cast(),
            (&raw mut lengths).cast(),
            (&raw mut row_classes).cast(),
            (&raw mut scratch).cast(),
            (&raw mut scratch_bytes).cast(),
            (&raw mut faults).cast(),
        ];
        // SAFETY: the arguments are `line_encode`'s; the caller promised the rest.
        unsafe { self.launch.run(&self.functions.encode, stream, &mut arguments)? };
        // SAFETY: the header is as long as it says and `out` begins with room for it.
        unsafe { self.assemble(&parts, out, length, stream) }
    }

    /// Header, directory and words into their places.
    ///
    /// # Safety
    ///
    /// As [`Encoder::encode`].
    unsafe fn assemble(
        &self,
        parts: &Parts,
        out: Address,
        length: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let header = self.header.device_ptr(self.header.stream()).0;
        let mut front = Front { header, header_bytes: self.header_bytes as u64, out, length };
        let mut lengths = parts.lengths;
        let mut tiles = self.image.arguments.tiles;
        if let Some(directory) = &self.functions.directory {
            let mut arguments: [*mut c_void; 3] =
                [(&raw mut lengths).cast(), (&raw mut tiles).cast(), (&raw mut front).cast()];
            let one = Launch { blocks: 1, threads: FEW_TILES as u32, shared_bytes: 0 };
            // SAFETY: the arguments are `line_directory`'s.
            unsafe { one.run(directory, stream, &mut arguments)? };
        }
        let mut rooms = parts.rooms;
        let mut capacity = self.image.arguments.capacity;
        let mut room_words = u64::from(tiles) * u64::from(capacity);
        let mut arguments: [*mut c_void; 6] = [
            (&raw mut rooms).cast(),
            (&raw mut lengths).cast(),
            (&raw mut tiles).cast(),
            (&raw mut capacity).cast(),
            (&raw mut room_words).cast(),
            (&raw mut front).cast(),
        ];
        let gather = Launch { shared_bytes: 0, ..self.launch };
        // SAFETY: the arguments are those of both kernels; tiles end within their rooms, which `out` holds.
        unsafe { gather.run(&self.functions.gather, stream, &mut arguments) }
    }

    /// The tiles that the last encoding with `workspace` could not hold. Waits
    /// for `stream`.
    ///
    /// # Safety
    ///
    /// `workspace` is the one that was encoded with.
    pub unsafe fn faults(&self, workspace: Address, stream: sys::CUstream) -> Result<Vec<Faulty>, Error> {
        // SAFETY: faults stand at the start of the workspace.
        unsafe { read_faults(workspace, self.image.tiles, stream) }
    }
}

/// Scratch of a warp: residuals or levels, deviations, decisions.
fn scratch_bytes(plan: &Plan, variant: &Variant) -> usize {
    let values = plan.tile_rows * plan.tile_cols;
    let targets = if variant.size != 0 || variant.predicts { 4 * values } else { 0 };
    let deviations = if variant.predicts { 4 * plan.tile_cols } else { 0 };
    let per_row = plan.tile_cols.div_ceil(plan.lanes());
    // `TOGETHER` of `encode.cu`: so many steps leave their decisions in one word of each lane.
    let together = 32 / ((1 << variant.log2_states) + 2);
    let words = if variant.predicts { per_row } else { per_row.div_ceil(together) * plan.tile_rows };
    let decisions = if variant.log2_states == 0 { 0 } else { 4 * 32 * words };
    (targets + deviations + decisions).next_multiple_of(16)
}
