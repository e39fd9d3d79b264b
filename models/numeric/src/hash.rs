//! FNV-1a, 64 bits: the workspace's one hash of contents.
//!
//! It names things that nobody chose to collide: plans, files, pins. Stands on
//! nothing, so that build scripts and `xtask` include this file as it is.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// A hash that grows with what is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(OFFSET_BASIS)
    }
}

impl Fnv1a {
    pub fn add(&mut self, bytes: impl IntoIterator<Item = u8>) {
        bytes.into_iter().for_each(|byte| self.add_word(u64::from(byte)));
    }

    /// Adds a word as if it were one byte: an eighth of the multiplications.
    pub fn add_word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(PRIME);
    }

    /// Folds the upper bits into the lower ones, which words alone leave as they are.
    pub fn fold(&mut self, shift: u32) {
        self.0 ^= self.0 >> shift;
    }

    pub fn finish(self) -> u64 {
        self.0
    }
}

pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mut hash = Fnv1a::default();
    hash.add(bytes);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the reference's list of test vectors (draft-eastlake-fnv).
    #[test]
    fn known_texts_have_their_hashes() {
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
    }
}
