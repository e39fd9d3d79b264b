//! Coders of symbol streams: what the paper pairs with each number format.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use trinity_bits::huffman::Code;
use trinity_bits::{BitReader, BitWriter};

use super::arith::{Decoder, Encoder, Tree};
use super::symbols::Layout;
use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolCoder {
    /// As many bits as the number format has.
    Packed,
    /// Canonical Huffman, its table counted.
    Huffman,
    /// LZ77 and Huffman (zlib's best level).
    Deflate,
    /// LZ77 without an entropy coder, over packed symbols.
    Lz4,
    /// Zstandard, level 19.
    Zstd,
    /// Context-adaptive binary arithmetic coding, order 0.
    Cabac,
}

/// The coders that combine with every number format, and their names.
pub const SYMBOL_CODERS: [(SymbolCoder, &str); 5] = [
    (SymbolCoder::Huffman, "huffman"),
    (SymbolCoder::Deflate, "deflate"),
    (SymbolCoder::Lz4, "lz4"),
    (SymbolCoder::Cabac, "cabac"),
    (SymbolCoder::Zstd, "zstd"),
];

/// zstd's level: near its best, still minutes below for a model.
const ZSTD_LEVEL: i32 = 19;

impl SymbolCoder {
    /// Whether symbols should use whole bits: nothing downstream models them.
    pub fn wants_whole_bits(self) -> bool {
        matches!(self, Self::Packed | Self::Lz4)
    }

    pub(crate) fn encode(self, codes: &[u8], layout: &Layout) -> Result<Vec<u8>, Error> {
        let io = Error::io("compressing");
        match self {
            Self::Packed => Ok(pack(codes, layout)),
            Self::Huffman => Ok(huffman(codes)),
            Self::Deflate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(codes).and_then(|()| encoder.finish()).map_err(io)
            }
            Self::Lz4 => Ok(lz4_flex::block::compress(&pack(codes, layout))),
            Self::Zstd => crate::zstandard::compress(codes, ZSTD_LEVEL).map_err(io),
            Self::Cabac => {
                let mut encoder = Encoder::default();
                let mut tree = Tree::new(8);
                codes.iter().for_each(|&code| tree.put(&mut encoder, code));
                Ok(encoder.finish())
            }
        }
    }

    /// Exactly `count` symbols, or an error.
    pub(crate) fn decode(self, bytes: &[u8], count: usize, layout: &Layout) -> Result<Vec<u8>, Error> {
        let io = |error: std::io::Error| Error::corrupt(0, error.to_string());
        let codes = match self {
            Self::Packed => unpack(bytes, count, layout)?,
            Self::Huffman => unhuffman(bytes, count).map_err(|error| Error::corrupt(0, error.to_string()))?,
            Self::Deflate => {
                let mut codes = Vec::new();
                DeflateDecoder::new(bytes).take(count as u64 + 1).read_to_end(&mut codes).map_err(io)?;
                codes
            }
            Self::Lz4 => {
                let packed = layout.packed_bytes(count);
                let packed = lz4_flex::block::decompress(bytes, packed)
                    .map_err(|error| Error::corrupt(0, error.to_string()))?;
                unpack(&packed, count, layout)?
            }
            Self::Zstd => crate::zstandard::decompress(bytes, count).map_err(io)?,
            Self::Cabac => {
                let mut decoder = Decoder::new(bytes);
                let mut tree = Tree::new(8);
                let codes = (0..count).map(|_| tree.get(&mut decoder)).collect();
                decoder.check()?;
                codes
            }
        };
        if codes.len() != count {
            return Err(Error::corrupt(0, format!("{} symbols, expected {count}", codes.len())));
        }
        Ok(codes)
    }
}

/// Symbols in as many bits as their group needs.
fn pack(codes: &[u8], layout: &Layout) -> Vec<u8> {
    let mut writer = BitWriter::new();
    for (codes, &width) in codes.chunks(layout.group).zip(&layout.widths) {
        let offset = layout.offset(width);
        for &code in codes {
            writer.bits(u32::from(code.wrapping_sub(offset)), width.into());
        }
    }
    writer.into_bytes()
}

fn unpack(bytes: &[u8], count: usize, layout: &Layout) -> Result<Vec<u8>, Error> {
    let mut reader = BitReader::new(bytes);
    let mut codes = Vec::with_capacity(count);
    for &width in &layout.widths {
        let offset = layout.offset(width);
        for _ in 0..layout.group.min(count - codes.len()) {
            let code =
                reader.bits(width.into()).map_err(|error| Error::corrupt(bytes.len(), error.to_string()))?;
            codes.push((code as u8).wrapping_add(offset));
        }
    }
    Ok(codes)
}

fn huffman(codes: &[u8]) -> Vec<u8> {
    let mut counts = [0u64; 256];
    codes.iter().for_each(|&code| counts[usize::from(code)] += 1);
    let code = Code::from_counts(&counts);
    let mut writer = BitWriter::new();
    code.write(&mut writer);
    codes.iter().for_each(|&symbol| code.put(&mut writer, symbol));
    writer.into_bytes()
}

fn unhuffman(bytes: &[u8], count: usize) -> Result<Vec<u8>, trinity_bits::Error> {
    let mut reader = BitReader::new(bytes);
    let decoder = Code::read(&mut reader)?.decoder();
    (0..count).map(|_| decoder.get(&mut reader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::entropy;
    use trinity_numeric::random::Lcg;

    /// Symbols of a bell-shaped law around 128 whose width drifts.
    fn symbols(count: u32) -> Vec<u8> {
        let mut lcg = Lcg(1);
        let mut uniform = || f64::from(lcg.uniform());
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        (0..count)
            .map(|i| (128.0 + normal() * (3.0 + f64::from(i) / f64::from(count))).round() as u8)
            .collect()
    }

    /// What an ideal coder takes that learns counts as it goes (Krichevsky and Trofimov).
    fn adaptive_order0_bits(codes: &[u8]) -> f64 {
        let mut counts = [0.5f64; 256];
        let mut total = 128.0;
        let mut bits = 0.0;
        for &code in codes {
            let count = &mut counts[usize::from(code)];
            bits -= (*count / total).log2();
            *count += 1.0;
            total += 1.0;
        }
        bits
    }

    fn bits_per_symbol(coder: SymbolCoder, codes: &[u8]) -> f64 {
        let layout = Layout { group: codes.len(), widths: vec![8], centre: 128 };
        8.0 * coder.encode(codes, &layout).unwrap().len() as f64 / codes.len() as f64
    }

    #[test]
    fn huffman_is_within_a_bit_of_the_entropy_and_never_below() {
        let codes = symbols(100_000);
        let mut counts = [0u64; 256];
        codes.iter().for_each(|&code| counts[usize::from(code)] += 1);
        let entropy = entropy(&counts);
        let huffman = bits_per_symbol(SymbolCoder::Huffman, &codes);
        assert!(huffman >= entropy && huffman < entropy + 1.0, "{huffman} for {entropy}");
        // One symbol: no entropy, a bit each.
        let constant = bits_per_symbol(SymbolCoder::Huffman, &[7; 10_000]);
        assert!((0.0..1.1).contains(&constant), "{constant}");
    }

    #[test]
    fn cabac_is_within_two_per_cent_of_adaptive_order_0() {
        for count in [20_000, 200_000] {
            let codes = symbols(count);
            let ideal = adaptive_order0_bits(&codes) / codes.len() as f64;
            let cabac = bits_per_symbol(SymbolCoder::Cabac, &codes);
            assert!((cabac / ideal - 1.0).abs() < 0.02, "{count}: {cabac} against {ideal}");
        }
    }
}
