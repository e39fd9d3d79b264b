//! Canonical Huffman codes over an alphabet of at most 256 symbols.
//!
//! Only code lengths travel; the codes follow from them. Lengths stop at 15
//! bits, so a length fits in four bits and a decoder's table stays small.

use crate::{BitReader, BitWriter, Error};

pub const MAX_LENGTH: u32 = 15;

/// A prefix code: a length for each symbol, zero for symbols that never occur.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    lengths: Vec<u8>,
    codes: Vec<u16>,
}

impl Code {
    /// The best code for these counts (within the length limit).
    pub fn from_counts(counts: &[u64]) -> Self {
        let mut weights = counts.to_vec();
        loop {
            let lengths = lengths(&weights);
            if lengths.iter().all(|&length| u32::from(length) <= MAX_LENGTH) {
                return Self::from_lengths(lengths);
            }
            // Flattening the counts shortens the longest codes; rare symbols
            // are what a limit is for.
            weights.iter_mut().filter(|weight| **weight > 0).for_each(|weight| *weight = *weight / 2 + 1);
        }
    }

    fn from_lengths(lengths: Vec<u8>) -> Self {
        let mut counts = [0u16; MAX_LENGTH as usize + 1];
        lengths.iter().filter(|&&length| length > 0).for_each(|&length| counts[usize::from(length)] += 1);
        // The first code of each length follows the last one of the length before.
        let mut next = [0u16; MAX_LENGTH as usize + 1];
        for length in 1..next.len() {
            next[length] = (next[length - 1] + counts[length - 1]) << 1;
        }
        let mut codes = vec![0; lengths.len()];
        for (code, &length) in codes.iter_mut().zip(&lengths) {
            if length > 0 {
                *code = next[usize::from(length)];
                next[usize::from(length)] = code.wrapping_add(1);
            }
        }
        Self { lengths, codes }
    }

    /// Bits a symbol takes; zero for one that never occurs.
    pub fn length(&self, symbol: u8) -> u32 {
        self.lengths.get(usize::from(symbol)).copied().map_or(0, u32::from)
    }

    /// Writes the lengths: first and last used symbol, then four bits each.
    pub fn write(&self, writer: &mut BitWriter) {
        let first = self.lengths.iter().position(|&length| length > 0).unwrap_or(0);
        let last = self.lengths.iter().rposition(|&length| length > 0).unwrap_or(0);
        writer.bits(first as u32, 8);
        writer.bits(last as u32, 8);
        for &length in self.lengths.get(first..=last).unwrap_or_default() {
            writer.bits(length.into(), 4);
        }
    }

    /// Reads what [`Code::write`] wrote; an error when no code has such lengths.
    pub fn read(reader: &mut BitReader<'_>) -> Result<Self, Error> {
        let (first, last) = (reader.bits(8)? as usize, reader.bits(8)? as usize);
        let mut lengths = vec![0; 256];
        for symbol in first..=last {
            lengths[symbol] = reader.bits(4)? as u8;
        }
        // Kraft's inequality: more codes than the tree has leaves cannot be told apart.
        let leaves: u32 = lengths
            .iter()
            .filter(|&&length| length > 0)
            .map(|&length| 1 << (MAX_LENGTH - u32::from(length)))
            .sum();
        if leaves > 1 << MAX_LENGTH {
            return Err(Error::BadHuffman { bit: reader.position() });
        }
        Ok(Self::from_lengths(lengths))
    }

    pub fn put(&self, writer: &mut BitWriter, symbol: u8) {
        let symbol = usize::from(symbol);
        writer.bits(self.codes[symbol].into(), self.lengths[symbol].into());
    }

    pub fn decoder(&self) -> Decoder {
        let mut table = vec![(0, 0); 1 << MAX_LENGTH];
        for (symbol, (&length, &code)) in self.lengths.iter().zip(&self.codes).enumerate() {
            if length > 0 {
                let shift = MAX_LENGTH - u32::from(length);
                let start = usize::from(code) << shift;
                table[start..start + (1 << shift)].fill((symbol as u8, length));
            }
        }
        Decoder { table }
    }
}

/// One look-up a symbol.
#[derive(Debug)]
pub struct Decoder {
    table: Vec<(u8, u8)>,
}

impl Decoder {
    pub fn get(&self, reader: &mut BitReader<'_>) -> Result<u8, Error> {
        let (symbol, length) = self.table[reader.peek(MAX_LENGTH) as usize];
        if length == 0 {
            return Err(Error::BadHuffman { bit: reader.position() });
        }
        reader.skip(length.into())?;
        Ok(symbol)
    }
}

/// Code lengths by Huffman's algorithm; a lone symbol gets one bit.
fn lengths(weights: &[u64]) -> Vec<u8> {
    let mut lengths = vec![0u8; weights.len()];
    let mut heap: std::collections::BinaryHeap<_> = (0..weights.len())
        .filter(|&symbol| weights[symbol] > 0)
        .map(|symbol| std::cmp::Reverse((weights[symbol], symbol)))
        .collect();
    if heap.len() == 1 {
        heap.drain().for_each(|std::cmp::Reverse((_, symbol))| lengths[symbol] = 1);
        return lengths;
    }
    // Nodes above the leaves remember their children.
    let mut children: Vec<(usize, usize)> = Vec::new();
    while let (Some(std::cmp::Reverse((light, left))), Some(std::cmp::Reverse((heavy, right)))) =
        (heap.pop(), heap.pop())
    {
        children.push((left, right));
        let node = weights.len() + children.len() - 1;
        if heap.is_empty() {
            descend(node, 0, &children, &mut lengths);
            break;
        }
        heap.push(std::cmp::Reverse((light + heavy, node)));
    }
    lengths
}

fn descend(node: usize, depth: u8, children: &[(usize, usize)], lengths: &mut [u8]) {
    match node.checked_sub(lengths.len()) {
        None => lengths[node] = depth,
        Some(inner) => {
            let (left, right) = children[inner];
            descend(left, depth.saturating_add(1), children, lengths);
            descend(right, depth.saturating_add(1), children, lengths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entropy(counts: &[u64]) -> f64 {
        let total = counts.iter().sum::<u64>() as f64;
        counts.iter().filter(|&&n| n > 0).map(|&n| -(n as f64 / total) * (n as f64 / total).log2()).sum()
    }

    proptest! {
        #[test]
        fn symbols_survive_and_length_is_within_a_bit_of_the_entropy(symbols in prop::collection::vec(0u8..40, 1..600)) {
            let mut counts = [0u64; 256];
            symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 1);
            let code = Code::from_counts(&counts);
            let mut writer = BitWriter::new();
            code.write(&mut writer);
            let start = writer.position();
            symbols.iter().for_each(|&symbol| code.put(&mut writer, symbol));
            let mean = (writer.position() - start) as f64 / symbols.len() as f64;
            let entropy = entropy(&counts);
            prop_assert!(mean >= entropy - 1e-9 && mean <= entropy + 1.0, "{mean} for an entropy of {entropy}");
            let bytes = writer.into_bytes();
            let mut reader = BitReader::new(&bytes);
            let read = Code::read(&mut reader).unwrap();
            let decoder = read.decoder();
            for &symbol in &symbols {
                prop_assert_eq!(decoder.get(&mut reader).unwrap(), symbol);
            }
        }

        #[test]
        fn any_bytes_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = BitReader::new(&bytes);
            if let Ok(code) = Code::read(&mut reader) {
                let decoder = code.decoder();
                while decoder.get(&mut reader).is_ok() {}
            }
        }
    }

    #[test]
    fn steep_counts_stay_within_the_length_limit() {
        let mut counts = [0u64; 256];
        for (i, count) in counts.iter_mut().take(60).enumerate() {
            *count = 1 << i.min(50);
        }
        let code = Code::from_counts(&counts);
        assert!((0..=255).all(|symbol| code.length(symbol) <= MAX_LENGTH));
    }
}
