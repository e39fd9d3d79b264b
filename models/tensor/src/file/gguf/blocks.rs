//! Block formats of GGUF: how many values a block holds, how many bytes it
//! takes, and its values as a stream of f32.
//!
//! Three families, a file each: the plain ones here, [`super::k_quants`] and
//! [`super::i_quants`]. Knows blocks; knows nothing of headers or names.

use super::super::entry::{BLOCK_BYTES, Payload, ValueStream};
use super::super::source::Source;
use super::k_quants::half;
use super::{i_quants, k_quants};
use crate::{Dtype, Error};

/// Values of the largest block.
const MAX_VALUES: usize = 256;

/// A block format, by the name it has in GGUF files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub enum Block {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Iq1S,
    Iq1M,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
}

/// Number in files, format, name, values and bytes of a block.
const FORMATS: [(u32, Block, &str, usize, usize); 21] = [
    (2, Block::Q4_0, "q4_0", 32, 2 + 16),
    (3, Block::Q4_1, "q4_1", 32, 4 + 16),
    (6, Block::Q5_0, "q5_0", 32, 2 + 4 + 16),
    (7, Block::Q5_1, "q5_1", 32, 4 + 4 + 16),
    (8, Block::Q8_0, "q8_0", 32, 2 + 32),
    (10, Block::Q2_K, "q2_k", 256, 16 + 64 + 4),
    (11, Block::Q3_K, "q3_k", 256, 32 + 64 + 12 + 2),
    (12, Block::Q4_K, "q4_k", 256, 4 + 12 + 128),
    (13, Block::Q5_K, "q5_k", 256, 4 + 12 + 32 + 128),
    (14, Block::Q6_K, "q6_k", 256, 128 + 64 + 16 + 2),
    (15, Block::Q8_K, "q8_k", 256, 4 + 256 + 32),
    (16, Block::Iq2Xxs, "iq2_xxs", 256, 2 + 64),
    (17, Block::Iq2Xs, "iq2_xs", 256, 2 + 64 + 8),
    (18, Block::Iq3Xxs, "iq3_xxs", 256, 2 + 64 + 32),
    (19, Block::Iq1S, "iq1_s", 256, 2 + 32 + 16),
    (20, Block::Iq4Nl, "iq4_nl", 32, 2 + 16),
    (21, Block::Iq3S, "iq3_s", 256, 2 + 64 + 8 + 32 + 4),
    (22, Block::Iq2S, "iq2_s", 256, 2 + 64 + 8 + 8),
    (23, Block::Iq4Xs, "iq4_xs", 256, 2 + 2 + 4 + 128),
    (29, Block::Iq1M, "iq1_m", 256, 32 + 16 + 8),
    (39, Block::Mxfp4, "mxfp4", 32, 1 + 16),
];

impl Block {
    /// The format that a tensor description's number names.
    pub fn from_id(id: u32) -> Option<Self> {
        FORMATS.iter().find(|format| format.0 == id).map(|format| format.1)
    }

    fn format(self) -> (u32, &'static str, usize, usize) {
        // Every variant has a row; a test looks.
        FORMATS.iter().find(|format| format.1 == self).map_or((0, "", 1, 1), |f| (f.0, f.2, f.3, f.4))
    }

    /// Its number in a tensor's description.
    pub fn id(self) -> u32 {
        self.format().0
    }

    pub fn name(self) -> &'static str {
        self.format().1
    }

    /// Values of a block.
    pub fn values(self) -> usize {
        self.format().2
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        self.format().3
    }

    /// Dequantizes one block of [`Block::bytes`] into [`Block::values`].
    pub fn decode(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => {
                self.decode_plain(bytes, values)
            }
            Self::Q2_K => k_quants::q2(bytes, values),
            Self::Q3_K => k_quants::q3(bytes, values),
            Self::Q4_K => k_quants::q4(bytes, values),
            Self::Q5_K => k_quants::q5(bytes, values),
            Self::Q6_K => k_quants::q6(bytes, values),
            Self::Q8_K => k_quants::q8(bytes, values),
            Self::Iq2Xxs => i_quants::iq2_xxs(bytes, values),
            Self::Iq2Xs => i_quants::iq2_xs(bytes, values),
            Self::Iq2S => i_quants::iq2_s(bytes, values),
            Self::Iq3Xxs => i_quants::iq3_xxs(bytes, values),
            Self::Iq3S => i_quants::iq3_s(bytes, values),
            Self::Iq1S => i_quants::iq1_s(bytes, values),
            Self::Iq1M => i_quants::iq1_m(bytes, values),
            Self::Iq4Nl => i_quants::iq4_nl(bytes, values),
            Self::Iq4Xs => i_quants::iq4_xs(bytes, values),
            Self::Mxfp4 => i_quants::mxfp4(bytes, values),
        }
    }

    /// 32 values that share an f16 scale, the `_1` kinds an f16 minimum too.
    fn decode_plain(self, bytes: &[u8], values: &mut [f32]) {
        let scale = half(bytes, 0);
        // Low nibbles are the first half of the block, high ones the second.
        let nibble = |from: usize, i: usize| (bytes[from + i % 16] >> (4 * (i / 16))) & 15;
        let fifth = |from: usize, i: usize| ((bytes[from + i / 8] >> (i % 8)) & 1) << 4;
        for (i, value) in values.iter_mut().enumerate() {
            *value = match self {
                Self::Q4_0 => (f32::from(nibble(2, i)) - 8.0) * scale,
                Self::Q4_1 => f32::from(nibble(4, i)) * scale + half(bytes, 2),
                Self::Q5_0 => (f32::from(nibble(6, i) | fifth(2, i)) - 16.0) * scale,
                Self::Q5_1 => f32::from(nibble(8, i) | fifth(4, i)) * scale + half(bytes, 2),
                _ => f32::from(bytes[2 + i] as i8) * scale,
            };
        }
    }
}

/// A tensor's blocks in a file.
#[derive(Debug)]
pub struct Blocks {
    pub source: Source,
    pub offset: u64,
    pub block: Block,
}

impl Payload for Blocks {
    fn open(&self) -> Result<Box<dyn ValueStream + '_>, Error> {
        Ok(Box::new(BlockStream {
            blocks: self,
            position: self.offset,
            raw: Vec::new(),
            decoded: Vec::new(),
            taken: 0,
        }))
    }
}

struct BlockStream<'a> {
    blocks: &'a Blocks,
    position: u64,
    raw: Vec<u8>,
    decoded: Vec<u8>,
    taken: usize,
}

impl ValueStream for BlockStream<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let mut filled = 0;
        while filled < bytes.len() {
            if self.taken == self.decoded.len() {
                // As many blocks as the caller still wants, at most a mebibyte.
                let block_bytes = 4 * self.blocks.block.values();
                let wanted = (bytes.len() - filled).min(BLOCK_BYTES).div_ceil(block_bytes);
                self.decode_blocks(wanted)?;
            }
            let step = (bytes.len() - filled).min(self.decoded.len() - self.taken);
            bytes[filled..filled + step].copy_from_slice(&self.decoded[self.taken..self.taken + step]);
            self.taken += step;
            filled += step;
        }
        Ok(())
    }
}

impl BlockStream<'_> {
    fn decode_blocks(&mut self, blocks: usize) -> Result<(), Error> {
        let block = self.blocks.block;
        self.raw.resize(blocks * block.bytes(), 0);
        self.blocks.source.read_at(self.position, &mut self.raw)?;
        self.position += self.raw.len() as u64;
        self.decoded.clear();
        self.taken = 0;
        let mut values = [0f32; MAX_VALUES];
        let values = &mut values[..block.values()];
        for bytes in self.raw.chunks_exact(block.bytes()) {
            block.decode(bytes, values);
            Dtype::F32.extend_from_f32(values, &mut self.decoded);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_reads_all_of_its_block_and_nothing_else() {
        for (id, block, name, values, bytes) in FORMATS {
            assert_eq!((Block::from_id(id), block.name()), (Some(block), name));
            let mut out = [f32::NAN; MAX_VALUES];
            // Zero bytes make finite values everywhere, whatever the format.
            block.decode(&vec![0; bytes], &mut out[..values]);
            assert!(out[..values].iter().all(|v| v.is_finite()), "{name}");
            assert!(out[values..].iter().all(|v| v.is_nan()), "{name}");
        }
    }
}
