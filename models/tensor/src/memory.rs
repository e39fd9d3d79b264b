//! Buffers that may not fit, and hashes of what they hold.
//!
//! A slab is the largest thing this crate asks memory for. Where there is none
//! left, that is an error with a sentence and not the end of the process.

use crate::Error;
use crate::blocks::SLAB_VALUES;
use trinity_numeric::hash::Fnv1a;

/// A buffer of `len` zeros.
pub(crate) fn zeroed<T: Copy + Default>(len: usize) -> Result<Vec<T>, Error> {
    let mut buffer = Vec::new();
    grow(&mut buffer, len)?;
    Ok(buffer)
}

/// Makes a buffer longer by `more` zeros.
pub(crate) fn grow<T: Copy + Default>(buffer: &mut Vec<T>, more: usize) -> Result<(), Error> {
    let bytes = (buffer.len().saturating_add(more) as u64).saturating_mul(size_of::<T>() as u64);
    buffer.try_reserve(more).map_err(|_| Error::OutOfMemory { bytes })?;
    buffer.resize(buffer.len() + more, T::default());
    Ok(())
}

thread_local! {
    /// What a thread needs for every slab and would else ask of the system each time, page by page.
    static KEPT: std::cell::Cell<Vec<f32>> = const { std::cell::Cell::new(Vec::new()) };
}

/// A buffer for values that this thread used before, if it has one to spare; what it holds is of no meaning.
pub(crate) fn kept() -> Vec<f32> {
    KEPT.take()
}

/// Keeps a buffer for the thread's next slab; those of larger matrices go back.
pub(crate) fn keep(buffer: Vec<f32>) {
    if buffer.capacity() <= SLAB_VALUES {
        KEPT.set(buffer);
    }
}

/// A hash of contents: FNV-1a over words of eight bytes: quick beside any codec, and enough to
/// tell contents apart that nobody chose to collide.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContentHash(Fnv1a);

impl ContentHash {
    /// Adds bytes and their number, so that two pieces differ from their sum.
    pub fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        rest.iter().for_each(|&byte| self.word(u64::from(byte)));
        self.word(bytes.len() as u64);
    }

    fn word(&mut self, word: u64) {
        self.0.add_word(word);
        // A product carries upward only; what is high must come down again.
        self.0.fold(32);
    }

    /// The hash of what was added.
    pub fn finish(self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(matches!(zeroed::<u64>(usize::MAX / 16), Err(Error::OutOfMemory { .. })));
        assert_eq!(zeroed::<u8>(3).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn every_bit_counts() {
        let hash = |bytes: &[u8]| {
            let mut hash = ContentHash::default();
            hash.add(bytes);
            hash.finish()
        };
        let bytes: Vec<u8> = (0..37).collect();
        let mut seen = std::collections::HashSet::from([hash(&bytes), hash(&bytes[..36])]);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(hash(&flipped)), "bit {bit}");
        }
    }
}
