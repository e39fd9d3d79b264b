//! Streams on the device to values on the device.

use super::image::Image;
use super::places::{self, Group};
use super::{
    Address, Direction, Faulty, Format, HEAD_BYTES, Launch, LineCodec, Places, SPAN, Variant, kept,
    read_faults, wide_function,
};
use crate::error::{During, Error};
use cudarc::driver::{CudaFunction, sys};
use std::ffi::c_void;
use std::sync::OnceLock;
use trinity_codec::line::{SCALE, TAIL};

/// Decodes streams of one plan, whatever their steps.
#[derive(Debug)]
pub struct Decoder {
    codec: LineCodec,
    image: Image,
    /// For tensors that lie evenly, and for those that are listed.
    functions: [OnceLock<CudaFunction>; 2],
    launch: Launch,
    variant: Variant,
}

/// How much there is of every stream of a launch.
#[derive(Debug, Clone, Copy)]
pub enum Lengths<'a> {
    /// Room for so many bytes each; where it ends is found in the stream.
    Room(usize),
    /// The same, after a head of [`HEAD_BYTES`] that counts in it: a tensor without a stream becomes NaN.
    Headed(usize),
    /// Bytes of each.
    Each(&'a [usize]),
}

impl Lengths<'_> {
    fn of(&self, item: usize) -> usize {
        match self {
            Self::Room(bytes) => *bytes,
            Self::Headed(bytes) => bytes.saturating_sub(HEAD_BYTES),
            Self::Each(bytes) => bytes.get(item).copied().unwrap_or(0),
        }
    }
}

impl Decoder {
    /// For streams that begin with the header at the start of `stream_bytes` (the
    /// header alone will do), on so many multiprocessors.
    pub fn on(
        codec: &LineCodec,
        stream_bytes: &[u8],
        format: Format,
        multiprocessors: u32,
    ) -> Result<Self, Error> {
        let corrupt = |e: trinity_codec::line::Error| Error::CorruptStream { what: e.to_string() };
        let (plan, header) = trinity_codec::line::Plan::read(stream_bytes).map_err(corrupt)?;
        let coder = trinity_codec::line::Coder::new(plan).map_err(corrupt)?;
        let variant = Variant::of(&coder.plan, format, Direction::Decode);
        let upload = codec.context.new_stream().during("cuStreamCreate")?;
        let image = Image::new(&coder, &stream_bytes[..header], None, &upload)?;
        // For each class a table's place and, in eight bytes, its raw bits.
        let tables_bytes = 8 * image.tables * SCALE as usize + 12 * SPAN;
        let warp_bytes = 4 * (TAIL * 32 + image.group);
        let launch = Launch::on(multiprocessors, tables_bytes, warp_bytes);
        let made = Self { codec: codec.clone(), image, functions: Default::default(), launch, variant };
        made.function(false)?;
        Ok(made)
    }

    /// The kernel, compiled at its first use.
    fn function(&self, listed: bool) -> Result<&CudaFunction, Error> {
        kept(&self.functions[usize::from(listed)], || {
            let module = self.codec.module(Variant { listed, ..self.variant })?;
            wide_function(&self.codec, &module, "line_decode")
        })
    }

    /// Values that come out, and the bytes they take.
    pub fn output_bytes(&self) -> usize {
        let arguments = &self.image.arguments;
        arguments.rows as usize * arguments.cols as usize * self.variant.format.bytes()
    }

    /// Rows and columns of what comes out.
    pub fn shape(&self) -> (usize, usize) {
        self.image.shape
    }

    pub fn workspace_bytes_of(&self, count: usize) -> usize {
        self.parts(count).2
    }

    /// Where row classes and the scratch of warps begin, and the end. Faults come first.
    fn parts(&self, count: usize) -> (usize, usize, usize) {
        let arguments = &self.image.arguments;
        let tiles = self.image.tiles * count;
        let rows = (4 * tiles).next_multiple_of(16);
        let row_bytes = if self.variant.row_classes { 2 * arguments.tile_rows as usize } else { 0 };
        let scratch = (rows + tiles * row_bytes).next_multiple_of(16);
        let column_bytes = if self.variant.predicts { 4 * arguments.tile_cols as usize } else { 0 };
        (rows, scratch, scratch + self.launch.warps(tiles) * column_bytes + 16)
    }

    /// Queues the decoding of the stream at `source` into `values`.
    ///
    /// # Safety
    ///
    /// `source` holds `source_bytes` of a stream with this decoder's header,
    /// on a multiple of four bytes; `values` has room for
    /// [`Decoder::output_bytes`] and `workspace` for
    /// [`Decoder::workspace_bytes_of`] one; all live on the device until `stream`, a
    /// stream of the codec's context, has run.
    pub unsafe fn decode(
        &self,
        source: Address,
        source_bytes: usize,
        values: Address,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let (sources, lengths) = (Places::one(source), Lengths::Room(source_bytes));
        // SAFETY: the caller's promise, of one tensor.
        unsafe { self.decode_many(sources, lengths, Places::one(values), workspace, stream) }
    }

    /// Queues the decoding of many streams, in one launch for every 1024 of them. The first time that they
    /// do not lie evenly compiles a kernel.
    ///
    /// # Safety
    ///
    /// As [`Decoder::decode`] for each of them, with [`Decoder::workspace_bytes_of`] as many; streams with a
    /// head lie on multiples of eight bytes.
    pub unsafe fn decode_many(
        &self,
        sources: Places<'_>,
        lengths: Lengths<'_>,
        values: Places<'_>,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let words_at = self.image.arguments.header_bytes as usize + 4 * self.image.tiles;
        let count = sources.count();
        if let Some(bytes) = (0..count).map(|item| lengths.of(item)).find(|&bytes| bytes < words_at) {
            let what = format!("{bytes} bytes, but header and directory take {words_at}");
            return Err(Error::CorruptStream { what });
        }
        u32::try_from(count * self.image.tiles).map_err(|_| Error::CorruptStream {
            what: format!("{count} tensors are more than one launch takes"),
        })?;
        let each = matches!(lengths, Lengths::Each(_)) && count > 1;
        let addresses: Vec<Address>;
        let sources = if each && !sources.is_listed() {
            addresses = (0..count).map(|item| sources.at(item)).collect();
            Places::Listed(&addresses)
        } else {
            sources
        };
        let (listed, groups) = places::groups(&sources, &values)?;
        let words = |item: usize| ((lengths.of(item) - words_at) / 2).min(u32::MAX as usize) as u32;
        let head = if matches!(lengths, Lengths::Headed(_)) { HEAD_BYTES as u32 } else { 0 };
        for group in &groups {
            let counts = places::counts(listed, group, words);
            // SAFETY: the caller's promise.
            unsafe { self.launch_group(listed, group, &counts, head, (workspace, count), stream)? };
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`Decoder::decode_many`]; `workspace` comes with the count that it was made for.
    unsafe fn launch_group(
        &self,
        listed: bool,
        group: &Group,
        counts: &[u32],
        head: u32,
        (workspace, all): (Address, usize),
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let tiles = self.image.tiles;
        let (rows, scratch, _) = self.parts(all);
        let row_bytes =
            if self.variant.row_classes { 2 * self.image.arguments.tile_rows as usize } else { 0 };
        let before = group.first * tiles;
        let mut plan = self.image.arguments;
        let (mut head, mut count) = (head, group.count as u32);
        let mut row_classes = workspace + (rows + before * row_bytes) as u64;
        let mut scratch = workspace + scratch as u64;
        let mut faults = workspace + 4 * before as u64;
        let mut arguments: [*mut c_void; 9] = [
            (&raw mut plan).cast(),
            group.sources.as_ptr().cast_mut().cast(),
            counts.as_ptr().cast_mut().cast(),
            (&raw mut head).cast(),
            group.targets.as_ptr().cast_mut().cast(),
            (&raw mut count).cast(),
            (&raw mut row_classes).cast(),
            (&raw mut scratch).cast(),
            (&raw mut faults).cast(),
        ];
        // SAFETY: the arguments are `line_decode`'s; the caller promised the rest.
        unsafe { self.launch.spread(tiles * group.count).run(self.function(listed)?, stream, &mut arguments) }
    }

    /// The tiles that the last decoding with `workspace` found damaged. Waits
    /// for `stream`.
    ///
    /// # Safety
    ///
    /// `workspace` is the one that so many tensors were decoded with.
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
