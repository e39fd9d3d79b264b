//! A piece of a sparse delta, as the CPU and the GPU both take it.

use crate::error::{During, Error};
use cudarc::driver::{CudaSlice, CudaStream};
use std::sync::Arc;

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
        let whole = |bytes: &[u8]| match bytes.len() == 4 * self.count {
            true => Ok(()),
            false => {
                Err(bad(std::io::Error::other(format!("{} bytes for {} changes", bytes.len(), self.count))))
            }
        };
        scratch.zstd.decompress_to_buffer(&self.indices, &mut scratch.bytes).map_err(bad)?;
        whole(&scratch.bytes)?;
        let mut index = self.base;
        for (out, gap) in indices.iter_mut().zip(scratch.bytes.chunks_exact(4)) {
            index = index.wrapping_add(u32::from_le_bytes(word(gap)));
            *out = index;
        }
        scratch.zstd.decompress_to_buffer(&self.values, &mut scratch.bytes).map_err(bad)?;
        whole(&scratch.bytes)?;
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

/// First indices and counts of chunks, for kernels.
pub(super) fn on_device(stream: &Arc<CudaStream>, chunks: &[Chunk]) -> Result<[CudaSlice<u32>; 2], Error> {
    let up = |number: fn(&Chunk) -> u32| {
        stream.clone_htod(&chunks.iter().map(number).collect::<Vec<_>>()).during("cuMemcpyHtoD")
    };
    Ok([up(|c| c.base)?, up(|c| c.count as u32)?])
}

pub(super) fn longest(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|c| c.count).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn packed(words: &[[u8; 4]]) -> Vec<u8> {
        zstd::bulk::compress(&words.concat(), 3).unwrap()
    }

    fn chunk(gaps: &[u32], values: &[f32], base: u32) -> Chunk {
        let gap_bytes: Vec<_> = gaps.iter().map(|gap| gap.to_le_bytes()).collect();
        let value_bytes: Vec<_> = values.iter().map(|value| value.to_le_bytes()).collect();
        Chunk { count: gaps.len(), base, indices: packed(&gap_bytes), values: packed(&value_bytes) }
    }

    #[test]
    fn gaps_become_indices_from_the_base_on_and_buffers_serve_the_next_chunk() {
        let chunks = [chunk(&[1, 4, 2], &[0.5, -1.0, 2.0], 100), chunk(&[7], &[3.0], 0)];
        assert_eq!((longest(&chunks), longest(&[])), (3, 1));
        let mut scratch = Scratch::new(longest(&chunks)).unwrap();
        let (mut indices, mut values) = ([9; 3], [9.0; 3]);
        chunks[0].decompress(&mut scratch, &mut indices, &mut values).unwrap();
        assert_eq!((indices, values), ([101, 105, 107], [0.5, -1.0, 2.0]));
        // A shorter one leaves what is behind it.
        chunks[1].decompress(&mut scratch, &mut indices, &mut values).unwrap();
        assert_eq!((indices, values), ([7, 105, 107], [3.0, -1.0, 2.0]));
    }

    #[test]
    fn what_is_cut_or_too_long_is_an_error_and_no_panic() {
        let whole = chunk(&[1, 4, 2], &[0.5, -1.0, 2.0], u32::MAX);
        let (mut indices, mut values) = ([0; 3], [0.0; 3]);
        let mut scratch = Scratch::new(3).unwrap();
        // Indices beyond the last number go round: the kernel's bounds are of the tensor.
        whole.decompress(&mut scratch, &mut indices, &mut values).unwrap();
        assert_eq!(indices, [0, 4, 6]);
        for at in 0..whole.values.len() {
            let (indices_of, values_of) = (whole.indices.clone(), whole.values[..at].to_vec());
            let cut = Chunk { indices: indices_of, values: values_of, ..whole };
            let error = cut.decompress(&mut scratch, &mut indices, &mut values).unwrap_err();
            assert!(error.to_string().starts_with("corrupt stream: delta chunk"), "{at}: {error}");
        }
        let mut short = Scratch::new(2).unwrap();
        assert!(
            whole.decompress(&mut short, &mut indices, &mut values).is_err(),
            "more than there is room for"
        );
    }
}
