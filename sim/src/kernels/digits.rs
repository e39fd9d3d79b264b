//! Corrections as text: one letter and a half for each value.
//!
//! A value is a natural logarithm, written as one of 256 equal steps of its
//! curve, in base64. Half a step is the most that is lost.

use std::fmt::Write;

/// What a digit stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// The value of digit 0.
    pub low: f64,
    pub step: f64,
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes `values` in 256 steps between the least and the greatest.
pub fn quantize(values: &[f64]) -> (Steps, String) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // Rounded outward, so that a file with six digits reads back as what was written.
    let low = (low * 1e4).floor() / 1e4;
    let step = ((high - low) / 255.0 * 1e6).ceil().max(1.0) / 1e6;
    let bytes: Vec<u8> =
        values.iter().map(|value| ((value - low) / step).round().clamp(0.0, 255.0) as u8).collect();
    (Steps { low, step }, base64(&bytes))
}

/// The values behind `text`; the reason where there are none.
pub(super) fn values(text: &str, steps: Steps) -> Result<Vec<f32>, String> {
    let mut values = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for (at, letter) in text.bytes().filter(|letter| !letter.is_ascii_whitespace()).enumerate() {
        let Some(six) = ALPHABET.iter().position(|known| *known == letter) else {
            return Err(format!("letter {} is not of base64", at + 1));
        };
        bits = bits << 6 | u32::try_from(six).unwrap_or(0);
        held += 6;
        if held >= 8 {
            held -= 8;
            let digit = bits >> held & 0xff;
            values.push((steps.low + steps.step * f64::from(digit)) as f32);
        }
    }
    Ok(values)
}

/// Base64 without padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 3 * 4 + 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for letter in 0..=chunk.len() {
            let six = word >> (18 - 6 * letter) & 63;
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", char::from(ALPHABET[six as usize]));
        }
    }
    text
}
