//! The one error type of this crate.

/// Why bits could not be read or a frame could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the data ends at bit {bit} inside a syntax element")]
    EndOfData { bit: u64 },
    #[error("Exp-Golomb code at bit {bit} is longer than any valid code")]
    BadExpGolomb { bit: u64 },
    /// More reflections than coordinates, or one out of range.
    #[error("no reflection of a matrix at bit {bit}")]
    BadReflection { bit: u64 },
    /// Code lengths that no prefix code has, or bits that are no code of it.
    #[error("no Huffman code at bit {bit}")]
    BadHuffman { bit: u64 },
    #[error("frame: {what}")]
    BadFrame { what: String },
}
