//! A scale map that encoder and decoder both know: values are coded over it, and
//! nothing of it is in the stream.
//!
//! For gradients under Adam, say, where each value counts by the root of the
//! second moment that every rank holds already: steps then follow the map. One
//! division on the way in and one product on the way out, each rounded; the stream
//! is one like any other, and rate and error are those of what is coded.

use crate::format::line::error::Error;
use crate::format::line::stream::{Settings, decode};
use crate::search::line::options::Options;
use crate::search::line::rate::encode_under;
use trinity_bits::Rate;

/// What both sides know of values' scales.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale<'a> {
    Rows(&'a [f32]),
    /// One for each value, row by row.
    Values(&'a [f32]),
}

impl Scale<'_> {
    /// The map suits the shape, and every scale is a positive number that can
    /// divide and multiply without loss of range.
    fn check(&self, rows: usize, cols: usize) -> Result<(), Error> {
        let (given, expected, what) = match self {
            Self::Rows(scales) => (*scales, rows, "rows"),
            Self::Values(scales) => (*scales, rows * cols, "values"),
        };
        if given.len() != expected {
            let what = format!("{} scales for {expected} {what}", given.len());
            return Err(Error::Mismatch { what });
        }
        let bad = given.iter().position(|scale| !scale.is_normal() || *scale < 0.0);
        bad.map_or(Ok(()), |at| {
            Err(Error::Mismatch { what: format!("scale {at} is {}: no positive number", given[at]) })
        })
    }

    /// Does `work` on every finite value with its scale; others stay as they are.
    fn apply(&self, values: &mut [f32], cols: usize, work: impl Fn(f32, f32) -> f32) {
        let (scales, each) = match self {
            Self::Rows(scales) => (scales, cols),
            Self::Values(scales) => (scales, 1),
        };
        for (values, &scale) in values.chunks_mut(each).zip(*scales) {
            let finite = values.iter_mut().filter(|value| value.is_finite());
            finite.for_each(|value| *value = work(*value, scale));
        }
    }
}

/// As [`encode_under`], of values over their scales.
pub fn encode_scaled(
    values: &[f32],
    (rows, cols): (usize, usize),
    scale: Scale<'_>,
    target: Rate,
    options: &Options,
    settings: &Settings,
) -> Result<Vec<u8>, Error> {
    if values.len() != rows * cols {
        return Err(Error::Mismatch { what: format!("{} values for {rows} × {cols}", values.len()) });
    }
    scale.check(rows, cols)?;
    let mut scaled = values.to_vec();
    scale.apply(&mut scaled, cols.max(1), |value, scale| value / scale);
    // A number must not become infinity, which would come back as such.
    if let Some(at) =
        scaled.iter().zip(values).position(|(scaled, value)| scaled.is_finite() != value.is_finite())
    {
        return Err(Error::Mismatch {
            what: format!("value {at} over its scale is beyond single precision"),
        });
    }
    encode_under(&scaled, rows, cols, target, options, settings)
}

/// Decodes a stream of values over their scales: rows, columns and values.
pub fn decode_scaled(bytes: &[u8], scale: Scale<'_>) -> Result<(usize, usize, Vec<f32>), Error> {
    let (rows, cols, mut values) = decode(bytes)?;
    scale.check(rows, cols)?;
    scale.apply(&mut values, cols, |value, scale| value * scale);
    Ok((rows, cols, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_follow_the_map_and_nothing_of_it_is_sent() {
        let (rows, cols) = (64, 96);
        let noise = |at: usize| ((at.wrapping_mul(2_654_435_761) >> 7) % 2001) as f32 / 1000.0 - 1.0;
        let by_value: Vec<f32> = (0..rows * cols).map(|at| (2f32).powi((at % 13) as i32 - 6)).collect();
        let by_row: Vec<f32> = (0..rows).map(|row| 0.1 + row as f32).collect();
        let options = Options::default();
        for scale in [Scale::Values(&by_value), Scale::Rows(&by_row)] {
            let of = |at: usize| match scale {
                Scale::Values(scales) => scales[at],
                Scale::Rows(scales) => scales[at / cols],
            };
            let mut values: Vec<f32> = (0..rows * cols).map(|at| noise(at) * of(at)).collect();
            (values[7], values[300]) = (f32::NAN, f32::INFINITY);
            let target = Rate::Bits(4.0);
            let shape = (rows, cols);
            let bytes = encode_scaled(&values, shape, scale, target, &options, &Settings::default()).unwrap();
            assert!(8 * bytes.len() <= 4 * values.len());
            let (_, _, decoded) = decode_scaled(&bytes, scale).unwrap();
            assert!(decoded[7].is_nan() && decoded[300] == f32::INFINITY);
            for at in (0..values.len()).filter(|at| ![7, 300].contains(at)) {
                let error = (values[at] - decoded[at]).abs() / of(at);
                assert!(error < 0.5, "{at}: {} became {}", values[at], decoded[at]);
            }
            // Without the map it is another matrix.
            assert!(decode(&bytes).unwrap().2.iter().zip(&decoded).any(|(a, b)| a != b));
        }
    }

    #[test]
    fn a_map_that_does_not_suit_is_refused() {
        let code_all = |value: f32, scale: Scale<'_>| {
            let (target, options, settings) = (Rate::Step(0.1), Options::default(), Settings::default());
            encode_scaled(&[value; 12], (3, 4), scale, target, &options, &settings)
        };
        let code = |scale: Scale<'_>| code_all(1.0, scale);
        assert!(code(Scale::Rows(&[1.0; 3])).is_ok());
        for bad in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-42] {
            assert!(code(Scale::Rows(&[1.0, bad, 1.0])).is_err(), "{bad}");
        }
        assert!(code(Scale::Rows(&[1.0; 4])).is_err());
        assert!(code(Scale::Values(&[1.0; 3])).is_err());
        let bytes = code(Scale::Values(&[2.0; 12])).unwrap();
        assert!(decode_scaled(&bytes, Scale::Rows(&[1.0; 2])).is_err());
        let large = code_all(1e30, Scale::Values(&[1e-37; 12]));
        assert!(large.unwrap_err().to_string().contains("beyond"));
    }
}
