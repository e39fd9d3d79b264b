//! Streams on the device to values on the device.

use super::image::Image;
use super::{Address, Direction, Faulty, Format, Launch, LineCodec, SPAN, Variant, function, read_faults};
use crate::error::{During, Error};
use cudarc::driver::{CudaFunction, result, sys};
use std::ffi::c_void;
use trinity_codec::line::{SCALE, TAIL};

/// Decodes streams of one plan.
#[derive(Debug)]
pub struct Decoder {
    image: Image,
    function: CudaFunction,
    launch: Launch,
    variant: Variant,
    directory_at: usize,
}

impl Decoder {
    /// For streams that begin with the header at the start of `stream_bytes`
    /// (the header alone will do).
    pub fn new(codec: &LineCodec, stream_bytes: &[u8], format: Format) -> Result<Self, Error> {
        Self::on(codec, stream_bytes, format, codec.multiprocessors())
    }

    /// [`Decoder::new`] on so many multiprocessors.
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
        let function = function(&codec.module(variant)?, "line_decode")?;
        let upload = codec.context.new_stream().during("cuStreamCreate")?;
        let image = Image::new(&coder, None, &upload)?;
        let tables_bytes = 8 * image.tables * SCALE as usize + 4 * SPAN;
        let warp_bytes = 4 * (TAIL * 32 + image.group);
        let launch =
            Launch::spread(codec, &function, image.tiles, multiprocessors, tables_bytes, warp_bytes)?;
        Ok(Self { image, function, launch, variant, directory_at: header.next_multiple_of(4) })
    }

    /// Values that come out, and the bytes they take.
    pub fn output_bytes(&self) -> usize {
        let arguments = &self.image.arguments;
        arguments.rows as usize * arguments.cols as usize * self.variant.format.bytes()
    }

    /// Bytes of workspace that [`Decoder::decode`] wants.
    pub fn workspace_bytes(&self) -> usize {
        self.parts().2
    }

    /// Where row classes and the scratch of warps begin, and the end. Faults come first.
    fn parts(&self) -> (usize, usize, usize) {
        let arguments = &self.image.arguments;
        let rows = (4 * self.image.tiles).next_multiple_of(16);
        let row_bytes = if self.variant.row_classes { 2 * arguments.tile_rows as usize } else { 0 };
        let scratch = (rows + self.image.tiles * row_bytes).next_multiple_of(16);
        let warps = ((self.launch.blocks * self.launch.threads / 32) as usize).min(self.image.tiles);
        let column_bytes = if self.variant.predicts { 4 * arguments.tile_cols as usize } else { 0 };
        (rows, scratch, scratch + warps * column_bytes + 16)
    }

    /// Queues the decoding of the stream at `source` into `values`.
    ///
    /// # Safety
    ///
    /// `source` holds `source_bytes` of a stream with this decoder's header,
    /// on a multiple of four bytes; `values` has room for
    /// [`Decoder::output_bytes`] and `workspace` for
    /// [`Decoder::workspace_bytes`]; all live on the device until `stream`, a
    /// stream of the codec's context, has run.
    pub unsafe fn decode(
        &self,
        source: Address,
        source_bytes: usize,
        values: Address,
        workspace: Address,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let words_at = self.directory_at + 4 * self.image.tiles;
        let Some(word_bytes) = source_bytes.checked_sub(words_at) else {
            let what = format!("{source_bytes} bytes, but header and directory take {words_at}");
            return Err(Error::CorruptStream { what });
        };
        let (rows, scratch, _) = self.parts();
        let mut plan = self.image.arguments;
        let mut ends = source + self.directory_at as u64;
        let mut words = source + words_at as u64;
        let mut word_count = word_bytes as u64 / 2;
        let mut output = values;
        let (mut row_classes, mut scratch) = (workspace + rows as u64, workspace + scratch as u64);
        let mut faults = workspace;
        let mut arguments: [*mut c_void; 8] = [
            (&raw mut plan).cast(),
            (&raw mut ends).cast(),
            (&raw mut words).cast(),
            (&raw mut word_count).cast(),
            (&raw mut output).cast(),
            (&raw mut row_classes).cast(),
            (&raw mut scratch).cast(),
            (&raw mut faults).cast(),
        ];
        // SAFETY: the arguments are `line_decode`'s; the caller promised the rest.
        unsafe { self.launch.run(&self.function, stream, &mut arguments) }
    }

    /// The tiles that the last decoding with `workspace` found damaged. Waits
    /// for `stream`.
    ///
    /// # Safety
    ///
    /// `workspace` is the one that was decoded with.
    pub unsafe fn faults(&self, workspace: Address, stream: sys::CUstream) -> Result<Vec<Faulty>, Error> {
        // SAFETY: faults stand at the start of the workspace.
        unsafe { read_faults(workspace, self.image.tiles, stream) }
    }

    /// Copies the head of a stream on the device, from which a decoder can be made. Waits.
    ///
    /// # Safety
    ///
    /// `source` holds `bytes` on the device.
    pub unsafe fn fetch_head(source: Address, bytes: usize, stream: sys::CUstream) -> Result<Vec<u8>, Error> {
        let mut head = vec![0u8; bytes];
        // SAFETY: the caller's promise; the copy has ended before `head` is read.
        unsafe {
            result::memcpy_dtoh_async(&mut head, source, stream).during("cuMemcpyDtoH")?;
            result::stream::synchronize(stream).during("cuStreamSynchronize")?;
        }
        Ok(head)
    }
}
