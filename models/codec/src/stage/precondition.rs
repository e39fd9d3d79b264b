//! Preconditioning: an orthonormal change of basis along the rows of a matrix,
//! before all other stages and undone after them.
//!
//! The randomized Hadamard transform needs nothing but its size; a PCA basis
//! ([`crate::stage::basis`]) is a file that both sides have; signalled matrices
//! ([`crate::stage::signalled`]) are in the stream. Energy stays what it is.
//! Knows rows of values; knows nothing of how they are coded.

use crate::matrix::Matrix;
use crate::stage::basis::Basis;

/// A change of basis along rows, or stated along columns, before all else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(into = "String", try_from = "String")]
#[schemars(extend("pattern" = "^(none|hadamard-(4|8|16|32|64|128|256|512|1024|2048|4096)|stated-(columns-)?(8|16|32|64|128))$"))]
pub enum Preconditioning {
    None,
    /// Random signs, then Walsh–Hadamard over groups of 2^`log2_size` columns.
    Hadamard {
        log2_size: u32,
    },
    /// Matrices of 2^`log2_size` columns that the stream states, along rows or columns.
    Signalled {
        log2_size: u32,
        columns: bool,
    },
    /// A basis by the hash of its file; it is given to the encoder, not listed in a profile.
    Basis {
        hash: u64,
    },
}

pub const HADAMARD_LOG2: std::ops::RangeInclusive<u32> = 2..=12;
pub const SIGNALLED_LOG2: std::ops::RangeInclusive<u32> = 3..=7;

impl std::fmt::Display for Preconditioning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Hadamard { log2_size } => write!(f, "hadamard-{}", 1 << log2_size),
            Self::Signalled { log2_size, columns: false } => write!(f, "stated-{}", 1 << log2_size),
            Self::Signalled { log2_size, columns: true } => write!(f, "stated-columns-{}", 1 << log2_size),
            Self::Basis { hash } => write!(f, "basis {hash:016x}"),
        }
    }
}

impl From<Preconditioning> for String {
    fn from(preconditioning: Preconditioning) -> Self {
        preconditioning.to_string()
    }
}

impl TryFrom<String> for Preconditioning {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (name, size) = text.rsplit_once('-').unwrap_or((&text, ""));
        let log2_size = size.parse().ok().filter(|size: &u32| size.is_power_of_two()).map(u32::ilog2);
        match (name, log2_size) {
            ("none", None) if text == "none" => Ok(Self::None),
            ("hadamard", Some(log2_size)) if HADAMARD_LOG2.contains(&log2_size) => {
                Ok(Self::Hadamard { log2_size })
            }
            ("stated" | "stated-columns", Some(log2_size)) if SIGNALLED_LOG2.contains(&log2_size) => {
                Ok(Self::Signalled { log2_size, columns: name != "stated" })
            }
            _ => Err(format!(
                "unknown preconditioning `{text}`: there are none, hadamard-4 to hadamard-4096, stated-8 to \
                 stated-128 and stated-columns-8 to stated-columns-128 by powers of two; a basis is given with \
                 the matrix"
            )),
        }
    }
}

impl Preconditioning {
    /// Changes the basis of a matrix in place; `basis` is the one it names or states.
    pub fn forward(self, matrix: &mut Matrix, basis: Option<&Basis>) {
        match (self, basis) {
            (Self::Hadamard { log2_size }, _) => {
                for row in matrix.values.chunks_exact_mut(matrix.cols.max(1)) {
                    flip(row);
                    hadamard(row, 1 << log2_size);
                }
            }
            (_, Some(basis)) => self.along(matrix, false, |values| *values = basis.rebased(values)),
            _ => {}
        }
    }

    /// Undoes the change of basis of a matrix that comes as it is or `transposed`, and leaves it as it is.
    pub fn inverse(self, matrix: &mut Matrix, transposed: bool, basis: Option<&Basis>) {
        match (self, basis) {
            (Self::Hadamard { log2_size }, _) => {
                self.along(matrix, transposed, |_| ());
                for row in matrix.values.chunks_exact_mut(matrix.cols.max(1)) {
                    hadamard(row, 1 << log2_size);
                    flip(row);
                }
            }
            (_, Some(basis)) => self.along(matrix, transposed, |values| basis.inverse(values)),
            (_, None) => self.along(matrix, transposed, |_| ()),
        }
    }

    /// Applies a change of basis to rows, or to columns where it is along those. The matrix comes as it
    /// is or `transposed`, which may be how the change is applied, and leaves as it is.
    pub fn along(self, matrix: &mut Matrix, transposed: bool, change: impl FnOnce(&mut Vec<f32>)) {
        let columns = match self {
            Self::Basis { .. } | Self::Signalled { columns: false, .. } => false,
            Self::Signalled { columns: true, .. } => true,
            Self::None | Self::Hadamard { .. } => transposed,
        };
        if transposed != columns {
            *matrix = matrix.transposed();
        }
        if matches!(self, Self::Basis { .. } | Self::Signalled { .. }) {
            change(&mut matrix.values);
        }
        if columns {
            *matrix = matrix.transposed();
        }
    }
}

/// Flips the sign of every other column, about: without that, a constant would
/// gather in one column of each group.
fn flip(row: &mut [f32]) {
    for (column, value) in row.iter_mut().enumerate() {
        let mixed = (column as u32 + 1).wrapping_mul(0x9e37_79b1);
        let sign = (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77) & 1 << 31;
        *value = f32::from_bits(value.to_bits() ^ sign);
    }
}

/// Orthonormal Walsh–Hadamard transforms of groups of `size` columns, a power
/// of two; its own inverse. Columns that fill no group form smaller ones.
///
/// The signs that go before it are each stream's own: those of this crate's
/// streams are made from 32 bits of a column's number, those of tensor codecs
/// under `hadamard/` from 64, and what was written must stay readable.
pub fn hadamard(row: &mut [f32], size: usize) {
    let mut rest = row;
    let mut size = size;
    while !rest.is_empty() {
        while size > rest.len() {
            size /= 2;
        }
        let (group, after) = rest.split_at_mut(size);
        let mut half = 1;
        while half < size {
            for pair in group.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            half *= 2;
        }
        let scale = 1.0 / (size as f32).sqrt();
        group.iter_mut().for_each(|value| *value *= scale);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_keep_their_energy_and_come_back() {
        for (cols, log2_size) in [(1, 2), (3, 12), (64, 4), (100, 5), (777, 12)] {
            let values: Vec<f32> = (0..2 * cols).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect();
            let energy = |values: &[f32]| values.iter().map(|v| v * v).sum::<f32>();
            let change = Preconditioning::Hadamard { log2_size };
            let mut rebased = Matrix { rows: 2, cols, values: values.clone() };
            change.forward(&mut rebased, None);
            assert!((energy(&rebased.values) / energy(&values) - 1.0).abs() < 1e-4, "{cols}");
            change.inverse(&mut rebased, false, None);
            assert!(rebased.values.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-4), "{cols}");
        }
    }

    #[test]
    fn an_outlier_and_a_constant_are_both_spread() {
        let mut outlier = vec![0.0; 256];
        outlier[77] = 16.0;
        for values in [outlier, vec![1.0; 256]] {
            let mut row = Matrix { rows: 1, cols: 256, values };
            Preconditioning::Hadamard { log2_size: 8 }.forward(&mut row, None);
            let largest = row.values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            assert!(largest < 5.0, "{largest}");
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["none", "hadamard-4", "hadamard-4096", "stated-64", "stated-columns-8"] {
            assert_eq!(Preconditioning::try_from(name.to_owned()).unwrap().to_string(), name);
        }
        for name in ["hadamard", "hadamard-2", "hadamard-12", "pca", "none-8", "stated-256", "stated-rows-8"]
        {
            assert!(Preconditioning::try_from(name.to_owned()).unwrap_err().contains("hadamard-4096"));
        }
    }
}
