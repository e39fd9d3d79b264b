//! Matrices of numbers for comparisons: captured ones, and sources of known
//! statistics; and the same as samples of a picture.

use crate::files;
use std::path::Path;

/// A matrix in row order.
#[derive(Debug, Clone)]
pub struct Matrix {
    pub name: String,
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

impl Matrix {
    /// Keeps the first rows.
    pub fn crop(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.values.truncate(self.rows * self.cols);
    }

    /// Raw little-endian values.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let bytes: Vec<u8> = self.values.iter().flat_map(|v| v.to_le_bytes()).collect();
        files::write(path, bytes)
    }

    /// Sum of squares.
    pub fn energy(&self) -> f64 {
        self.values.iter().map(|&v| f64::from(v).powi(2)).sum()
    }

    pub fn rms(&self) -> f64 {
        (self.energy() / self.values.len().max(1) as f64).sqrt()
    }

    /// Largest magnitude.
    pub fn largest(&self) -> f64 {
        f64::from(self.values.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs())))
    }

    /// A name for these very values (FNV-1a).
    pub fn fingerprint(&self) -> u64 {
        let bytes = self.values.iter().flat_map(|v| v.to_le_bytes());
        crate::numeric::hash::fnv1a(bytes)
    }

    /// Squared error of a reconstruction over the energy.
    pub fn nmse(&self, recon: impl Iterator<Item = f64>) -> f64 {
        let error: f64 = self.values.iter().zip(recon).map(|(&v, r)| (f64::from(v) - r).powi(2)).sum();
        error / self.energy()
    }

    /// The values as samples of `depth` bits, the largest magnitude at the end
    /// of their range: bytes, or 16-bit little-endian words beyond eight bits.
    pub fn samples(&self, depth: u32) -> Vec<u8> {
        let unit = self.unit(depth);
        let centre = f64::from(1u32 << (depth - 1));
        let sample = |v: &f32| ((f64::from(*v) / unit).round() + centre) as u16;
        if depth == 8 {
            self.values.iter().map(|v| sample(v) as u8).collect()
        } else {
            self.values.iter().flat_map(|v| sample(v).to_le_bytes()).collect()
        }
    }

    /// What one step of a sample stands for.
    fn unit(&self, depth: u32) -> f64 {
        self.largest() / f64::from((1u32 << (depth - 1)) - 1)
    }

    /// Error of samples that were [`Matrix::samples`] of more than eight bits
    /// before a codec changed them.
    pub fn nmse_of_samples(&self, samples: &[u8], depth: u32) -> Result<f64, String> {
        if samples.len() < 2 * self.values.len() {
            return Err(format!("{} bytes of samples for {} values", samples.len(), self.values.len()));
        }
        let (unit, centre) = (self.unit(depth), f64::from(1u32 << (depth - 1)));
        let value = |b: &[u8; 2]| (f64::from(u16::from_le_bytes(*b)) - centre) * unit;
        Ok(self.nmse(samples.as_chunks().0.iter().map(value)))
    }
}

/// The matrices of a safetensors file of bf16.
pub fn matrices(path: &Path) -> Result<Vec<Matrix>, String> {
    let bytes = files::bytes(path)?;
    let wrong = |what: &str| format!("{}: {what}", path.display());
    let length =
        bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b) as usize).ok_or(wrong("too short"))?;
    let header =
        bytes.get(8..8 + length).and_then(|b| std::str::from_utf8(b).ok()).ok_or(wrong("bad header"))?;
    // Some writers put a space after colons.
    let header = header.replace(": ", ":");
    let data = &bytes[8 + length..];
    let mut found = Vec::new();
    // {"name":{"dtype":"BF16","shape":[r,c],"data_offsets":[a,b]},…
    for (at, _) in header.match_indices("\"dtype\":\"BF16\"") {
        let name = header[..at].rsplit('"').nth(1).unwrap_or("tensor").to_string();
        let rest = &header[at..];
        let numbers = |key: &str| -> Vec<usize> {
            let list = rest.split_once(key).map_or("", |(_, after)| after);
            let list = list.split_once(']').map_or("", |(list, _)| list);
            list.split(',')
                .filter_map(|n| n.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok())
                .collect()
        };
        let (shape, offsets) = (numbers("\"shape\":["), numbers("\"data_offsets\":["));
        let (&[rows, cols], &[start, end]) = (&shape[..], &offsets[..]) else { continue };
        let values = data
            .get(start..end)
            .ok_or(wrong("offsets beyond the end"))?
            .chunks_exact(2)
            .map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16))
            .collect();
        found.push(Matrix { name, rows, cols, values });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::random::SplitMix64;

    #[test]
    fn samples_that_no_codec_changed_have_the_error_of_rounding() {
        let mut random = SplitMix64(4);
        let values = (0..4096).map(|_| random.gaussian() as f32).collect();
        let matrix = Matrix { name: "x".into(), rows: 64, cols: 64, values };
        let nmse = matrix.nmse_of_samples(&matrix.samples(12), 12).unwrap();
        let rounding = matrix.unit(12).powi(2) / 12.0 / matrix.rms().powi(2);
        assert!((nmse / rounding - 1.0).abs() < 0.1, "{nmse} {rounding}");
    }
}
