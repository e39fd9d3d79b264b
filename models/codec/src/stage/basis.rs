//! A PCA basis by reference: learned once from a sample, kept by both sides,
//! named in a stream by its hash.
//!
//! Rows are rotated by it before any other stage and back after the last, in
//! groups of columns. Orthonormal, so errors stay what they are. Knows values;
//! knows nothing of how they are coded.

use crate::Error;
use crate::format::trinity::bytes::{Reader, put_varint};
use crate::stage::combine::combine_rows;
use crate::stage::klt::principal_axes;
use trinity_numeric::square::transposed;

/// First bytes of a basis in a file.
const MAGIC: [u8; 3] = *b"TB\x01";

/// Rotations of groups of neighbouring columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Basis {
    cols: usize,
    group: usize,
    /// Square matrices of one group after the other; row `k` is basis vector `k`.
    synthesis: Vec<f32>,
    /// The basis, transposed.
    analysis: Vec<f32>,
}

impl Basis {
    /// Columns of a group, at most.
    pub const MAX_GROUP: usize = 128;

    /// The principal axes of a sample's columns, `group` at a time.
    pub fn learn(sample: &[f32], cols: usize, group: usize) -> Result<Self, Error> {
        if cols == 0 || sample.is_empty() || !sample.len().is_multiple_of(cols) {
            return Err(Error::Basis { what: "a sample is some rows of columns".into() });
        }
        if !(1..=Self::MAX_GROUP).contains(&group) {
            return Err(Error::Basis { what: format!("groups have 1 to {} columns", Self::MAX_GROUP) });
        }
        if sample.iter().any(|v| !v.is_finite()) {
            return Err(Error::Basis { what: "the sample is not finite".into() });
        }
        Ok(Self::new(cols, group, principal_axes(sample, cols, group)))
    }

    pub(crate) fn new(cols: usize, group: usize, synthesis: Vec<f32>) -> Self {
        let mut basis = Self { cols, group, analysis: Vec::with_capacity(synthesis.len()), synthesis };
        for (at, size) in basis.groups().map(|(_, size, at)| (at, size)).collect::<Vec<_>>() {
            basis.analysis.extend(transposed(&basis.synthesis[at..][..size * size], size));
        }
        basis
    }

    /// First column, columns, and place of the matrix of every group.
    fn groups(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (cols, group) = (self.cols, self.group);
        (0..cols).step_by(group).map(move |first| (first, group.min(cols - first), first * group))
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Columns that change basis together, at most.
    pub fn group(&self) -> usize {
        self.group.min(self.cols)
    }

    /// The name of these very numbers: of the bytes of their file.
    pub fn hash(&self) -> u64 {
        Self::hash_of(&self.to_bytes())
    }

    /// The name of a file (FNV-1a, 64 bits).
    pub fn hash_of(file: &[u8]) -> u64 {
        trinity_numeric::hash::fnv1a(file.iter().copied())
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put_varint(&mut bytes, self.cols as u64);
        put_varint(&mut bytes, self.group as u64);
        self.synthesis.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let bad = |what: &str| Error::Basis { what: what.into() };
        let mut reader = Reader::new(bytes);
        if reader.array("basis")? != MAGIC {
            return Err(bad("these bytes are no basis"));
        }
        let (cols, group) = (reader.varint("basis")?, reader.varint("basis")?);
        if cols == 0 || cols > reader.left() as u64 || !(1..=Self::MAX_GROUP as u64).contains(&group) {
            return Err(bad("its shape is out of range"));
        }
        let (values, rest) = reader.rest().as_chunks::<4>();
        let synthesis: Vec<f32> = values.iter().map(|&b| f32::from_le_bytes(b)).collect();
        let basis =
            Self { cols: cols as usize, group: group as usize, synthesis: Vec::new(), analysis: Vec::new() };
        let expected = basis.groups().last().map_or(0, |(_, size, at)| at + size * size);
        if !rest.is_empty() || synthesis.len() != expected || synthesis.iter().any(|v| !v.is_finite()) {
            return Err(bad("its matrices are not complete"));
        }
        Ok(Self::new(basis.cols, basis.group, synthesis))
    }

    /// Coefficients of whole rows.
    pub(crate) fn rebased(&self, rows: &[f32]) -> Vec<f32> {
        self.rotate(&self.analysis, rows)
    }

    /// The rows of coefficients, in place.
    pub(crate) fn inverse(&self, values: &mut Vec<f32>) {
        *values = self.rotate(&self.synthesis, values);
    }

    fn rotate(&self, matrices: &[f32], values: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; values.len()];
        for (first, size, at) in self.groups().filter(|_| !values.is_empty()) {
            let matrix = &matrices[at..][..size * size];
            combine_rows(&values[first..], matrix, size, self.cols, &mut out[first..]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_truncated_file_is_an_error_and_the_whole_comes_back() {
        let sample: Vec<f32> = (0..60 * 21).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect();
        let basis = Basis::learn(&sample, 21, 8).unwrap();
        let bytes = basis.to_bytes();
        assert_eq!(Basis::from_bytes(&bytes).unwrap(), basis);
        for length in 0..bytes.len() {
            assert!(Basis::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let mut values = basis.rebased(&sample);
        basis.inverse(&mut values);
        let worst = values.iter().zip(&sample).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-4, "{worst}");
    }
}
