//! A piece of a sparse delta, as the CPU and the GPU both take it.

use crate::Error;

/// One chunk: gaps between indices and values, each compressed.
pub(super) struct Chunk {
    pub count: usize,
    /// Index the first gap is counted from.
    pub base: u32,
    pub indices: Vec<u8>,
    pub values: Vec<u8>,
}

impl Chunk {
    /// Decompresses into the front of two buffers, turning gaps into indices.
    pub fn decompress(
        &self,
        scratch: &mut Scratch,
        indices: &mut [u32],
        values: &mut [f32],
    ) -> Result<(), Error> {
        let bad = |e: std::io::Error| Error::CorruptStream { what: format!("delta chunk: {e}") };
        let word = |b: &[u8]| [b[0], b[1], b[2], b[3]];
        scratch.zstd.decompress_to_buffer(&self.indices, &mut scratch.bytes).map_err(bad)?;
        let mut index = self.base;
        for (out, gap) in indices.iter_mut().zip(scratch.bytes.chunks_exact(4)) {
            index = index.wrapping_add(u32::from_le_bytes(word(gap)));
            *out = index;
        }
        scratch.zstd.decompress_to_buffer(&self.values, &mut scratch.bytes).map_err(bad)?;
        for (out, value) in values.iter_mut().zip(scratch.bytes.chunks_exact(4)) {
            *out = f32::from_le_bytes(word(value));
        }
        Ok(())
    }
}

/// What decompression reuses from chunk to chunk.
pub(super) struct Scratch {
    zstd: zstd::bulk::Decompressor<'static>,
    bytes: Vec<u8>,
}

impl Scratch {
    pub fn new(longest: usize) -> Result<Self, Error> {
        let zstd = zstd::bulk::Decompressor::new()
            .map_err(|e| Error::CorruptStream { what: format!("zstd: {e}") })?;
        Ok(Self { zstd, bytes: Vec::with_capacity(longest * 4) })
    }
}

pub(super) fn longest(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|c| c.count).max().unwrap_or(1)
}
