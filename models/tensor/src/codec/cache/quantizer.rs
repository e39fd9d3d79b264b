//! What quantizers of caches have in common: which lines of a matrix share scales, and what they are asked for.

use super::super::grouped::transposed;
use super::super::lossy::Matrix;
use crate::Error;

/// What a cache holds: papers treat keys, whose channels differ, unlike values, whose tokens do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Keys,
    Values,
}

impl Side {
    /// By a tensor's name: `layers.3.k_cache`, `k`, `past_key`; values where it says nothing of keys.
    pub(super) fn of(name: &str) -> Self {
        let is_key = |word: &str| word == "k" || word.starts_with("key");
        match name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| is_key(&word.to_ascii_lowercase()))
        {
            true => Self::Keys,
            false => Self::Values,
        }
    }

    pub(super) fn byte(self) -> u8 {
        u8::from(self == Self::Keys)
    }

    pub(super) fn from_byte(byte: u8) -> Result<Self, Error> {
        match byte {
            0 => Ok(Self::Values),
            1 => Ok(Self::Keys),
            _ => Err(Error::corrupt(0, "neither keys nor values")),
        }
    }

    /// How many lines share scales, and how long they are: channels of keys, tokens of values.
    pub(super) fn lines(self, rows: usize, cols: usize) -> (usize, usize) {
        match self {
            Self::Keys => (cols, rows),
            Self::Values => (rows, cols),
        }
    }

    /// Values line by line.
    pub(super) fn in_lines(self, matrix: &Matrix) -> Vec<f32> {
        match self {
            Self::Keys => transposed(&matrix.values, matrix.cols),
            Self::Values => matrix.values.clone(),
        }
    }

    /// Values row by row again.
    pub(super) fn in_rows(self, values: Vec<f32>, rows: usize) -> Vec<f32> {
        match self {
            Self::Keys => transposed(&values, rows),
            Self::Values => values,
        }
    }
}

/// Why a matrix is not coded.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It takes at least so many bytes.
    Bytes(usize),
    /// Rows of more values than are planned for.
    Wide(usize),
}

/// A quantizer of normalized matrices.
pub(super) trait Quantizer: std::fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// The finest bytes of at most so many.
    fn encode(&self, matrix: &Matrix, side: Side, most: usize) -> Result<Vec<u8>, Refusal>;

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error>;
}
