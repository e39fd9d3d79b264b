//! Number formats, and their conversion to and from f32 and f64.

use half::{bf16, f16};
use trinity_numeric::simd::{Kernel, Width, with_width};

use crate::float8::{E4M3, E5M2, to_e4m3, to_e5m2};
use serde::{Deserialize, Serialize};

/// A number format a tensor file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
    /// OCP FP8 E4M3 (finite and NaN only).
    F8e4m3,
    /// OCP FP8 E5M2.
    F8e5m2,
    I8,
    U8,
    I16,
    I32,
    I64,
}

impl Dtype {
    /// Every format.
    pub const ALL: [Self; 11] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::F8e4m3,
        Self::F8e5m2,
        Self::I8,
        Self::U8,
        Self::I16,
        Self::I32,
        Self::I64,
    ];

    /// Bytes a value takes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 | Self::I16 => 2,
            Self::F8e4m3 | Self::F8e5m2 | Self::I8 | Self::U8 => 1,
        }
    }

    /// Whether it has numbers that f32 does not hold.
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::F64 | Self::I32 | Self::I64)
    }

    /// True where the format has NaN, so a codec must look for it.
    pub fn is_float(self) -> bool {
        !matches!(self, Self::I8 | Self::U8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Little-endian `bytes` as f32: exact but for f64, i32 and i64, which
    /// round.
    /// Bytes beyond the last whole value, or beyond `values`, are left alone.
    pub fn to_f32(self, bytes: &[u8], values: &mut [f32]) {
        match self {
            Self::F64 => each(bytes, values, |b: [u8; 8]| f64::from_le_bytes(b) as f32),
            Self::I32 => each(bytes, values, |b: [u8; 4]| i32::from_le_bytes(b) as f32),
            Self::I64 => each(bytes, values, |b: [u8; 8]| i64::from_le_bytes(b) as f32),
            _ => self.narrow(bytes, values),
        }
    }

    /// Little-endian `bytes` as f64: exact but for i64 beyond 2^53, which rounds.
    pub fn to_f64(self, bytes: &[u8], values: &mut [f64]) {
        match self {
            Self::F64 => each(bytes, values, f64::from_le_bytes),
            Self::I32 => each(bytes, values, |b: [u8; 4]| f64::from(i32::from_le_bytes(b))),
            Self::I64 => each(bytes, values, |b: [u8; 8]| i64::from_le_bytes(b) as f64),
            _ => self.narrow(bytes, values),
        }
    }

    /// Values of a format that f32 holds.
    fn narrow<T: From<f32>>(self, bytes: &[u8], values: &mut [T]) {
        match self {
            Self::F16 => each(bytes, values, |b: [u8; 2]| widen_f16(u16::from_le_bytes(b)).into()),
            Self::Bf16 => each(bytes, values, |b: [u8; 2]| widen_bf16(u16::from_le_bytes(b)).into()),
            Self::I16 => each(bytes, values, |b: [u8; 2]| f32::from(i16::from_le_bytes(b)).into()),
            Self::F8e4m3 => each(bytes, values, |[b]: [u8; 1]| E4M3[usize::from(b)].into()),
            Self::F8e5m2 => each(bytes, values, |[b]: [u8; 1]| E5M2[usize::from(b)].into()),
            Self::I8 => each(bytes, values, |[b]: [u8; 1]| f32::from(b as i8).into()),
            Self::U8 => each(bytes, values, |[b]: [u8; 1]| f32::from(b).into()),
            _ => each(bytes, values, |b: [u8; 4]| f32::from_le_bytes(b).into()),
        }
    }

    /// Appends `values` in this format: nearest, ties to even. Integers and
    /// 8-bit floats saturate; NaN becomes integer zero.
    pub fn extend_from_f32(self, values: &[f32], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.bytes() * values.len(), 0);
        self.store_f32(values, &mut bytes[start..]);
    }

    /// As [`Dtype::extend_from_f32`], over bytes that are there.
    pub(crate) fn store_f32(self, values: &[f32], bytes: &mut [u8]) {
        match self {
            Self::F64 => store(bytes, values, |v| f64::from(v).to_le_bytes()),
            Self::F32 => store(bytes, values, f32::to_le_bytes),
            Self::F16 => store(bytes, values, |v| f16::from_f32(v).to_le_bytes()),
            Self::Bf16 => store(bytes, values, |v| bf16::from_f32(v).to_le_bytes()),
            Self::F8e4m3 => store(bytes, values, |v| [to_e4m3(v)]),
            Self::F8e5m2 => store(bytes, values, |v| [to_e5m2(v)]),
            Self::I8 => store(bytes, values, |v| (v.round_ties_even() as i8).to_le_bytes()),
            Self::U8 => store(bytes, values, |v| [v.round_ties_even() as u8]),
            Self::I16 => store(bytes, values, |v| (v.round_ties_even() as i16).to_le_bytes()),
            Self::I32 => store(bytes, values, |v| (v.round_ties_even() as i32).to_le_bytes()),
            Self::I64 => store(bytes, values, |v| (v.round_ties_even() as i64).to_le_bytes()),
        }
    }

    /// Appends `values` in this format, as [`Dtype::extend_from_f32`] does from
    /// f32, but with all digits of f64, i32 and i64; what is finite stays finite.
    pub fn extend_from_f64(self, values: &[f64], bytes: &mut Vec<u8>) {
        match self {
            Self::F64 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Self::I32 => {
                bytes.extend(values.iter().flat_map(|v| (v.round_ties_even() as i32).to_le_bytes()));
            }
            Self::I64 => {
                bytes.extend(values.iter().flat_map(|v| (v.round_ties_even() as i64).to_le_bytes()));
            }
            _ => {
                let largest = self.largest_f32();
                let held = |&value: &f64| match value as f32 {
                    near if value.is_finite() => near.clamp(-largest, largest),
                    other => other,
                };
                let narrow: Vec<f32> = values.iter().map(held).collect();
                self.extend_from_f32(&narrow, bytes);
            }
        }
    }

    /// The largest magnitude among values of a format that f32 holds; infinite or no number where one of them is.
    pub(crate) fn largest_magnitude(self, bytes: &[u8]) -> f32 {
        if self == Self::F32 {
            return with_width(
                Width::widest(),
                Largest { values: bytes.as_chunks().0, value: f32::from_le_bytes },
            );
        }
        let mut chunk = [0f32; 1024];
        let mut largest = 0u32;
        for bytes in bytes.chunks(1024 * self.bytes()) {
            let values = &mut chunk[..bytes.len() / self.bytes()];
            self.to_f32(bytes, values);
            let own = with_width(Width::widest(), Largest { values, value: |value: f32| value });
            largest = largest.max(own.to_bits());
        }
        f32::from_bits(largest)
    }

    /// The largest finite value, where f32 holds it; f32's own where it does
    /// not, or where the format saturates.
    pub(crate) fn largest_f32(self) -> f32 {
        match self {
            Self::F16 => f16::MAX.to_f32(),
            Self::Bf16 => bf16::MAX.to_f32(),
            _ => f32::MAX,
        }
    }

    /// The name used in tables and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8e4m3 => "f8e4m3",
            Self::F8e5m2 => "f8e5m2",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            format!("`{name}` is no number format; expected one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

fn each<const N: usize, T>(bytes: &[u8], values: &mut [T], decode: impl Fn([u8; N]) -> T) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (value, chunk) in values.iter_mut().zip(chunks) {
        *value = decode(*chunk);
    }
}

/// bf16 to f32: its upper half.
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f16 to f32 without a branch, so that loops over it vectorize.
fn widen_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Scaling by 2^112 moves the exponent bias from 15 to 127 and normalizes
    // subnormals on the way.
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let special = magnitude | 0x7f80_0000;
    f32::from_bits(sign | if bits & 0x7c00 == 0x7c00 { special } else { finite })
}

/// The largest magnitude of values.
struct Largest<'a, T, F> {
    values: &'a [T],
    value: F,
}

impl<T: Copy, F: Fn(T) -> f32> Kernel for Largest<'_, T, F> {
    type Output = f32;

    #[inline(always)]
    fn run(self) -> f32 {
        // Without their sign, the bits of floats are in the order of what they
        // stand for, infinity and NaN last.
        let mut largest = 0i32;
        for &value in self.values {
            largest = largest.max(((self.value)(value).to_bits() & (u32::MAX >> 1)) as i32);
        }
        f32::from_bits(largest as u32)
    }
}

fn store<const N: usize>(bytes: &mut [u8], values: &[f32], convert: impl Fn(f32) -> [u8; N]) {
    for (place, &value) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *place = convert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_widens_as_the_reference_does() {
        for bits in 0..=u16::MAX {
            let reference = f16::from_bits(bits).to_f32();
            let ours = widen_f16(bits);
            assert!(
                ours == reference || ours.is_nan() && reference.is_nan(),
                "{bits:#x}: {ours} {reference}"
            );
        }
    }

    #[test]
    fn the_largest_magnitude_is_found_and_what_is_no_number_is_larger_still() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            for (at, value) in [(0, -9.0), (2999, 7.5), (1024, f32::INFINITY), (77, f32::NAN)] {
                let mut values: Vec<f32> = (0..3000).map(|at| (at as f32 * 0.7).sin()).collect();
                values[at] = value;
                let mut bytes = Vec::new();
                dtype.extend_from_f32(&values, &mut bytes);
                let found = dtype.largest_magnitude(&bytes);
                assert!(found == value.abs() || found.is_nan() && value.is_nan(), "{dtype} {at}: {found}");
            }
        }
    }

    #[test]
    fn what_is_finite_stays_finite_in_every_format() {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            let mut bytes = Vec::new();
            dtype.extend_from_f64(&[1e39, -6.8e38, 0.5], &mut bytes);
            let mut values = [0f64; 3];
            dtype.to_f64(&bytes, &mut values);
            assert!(values[0].is_finite() && values[1] < -1e2 && values[1].is_finite(), "{dtype} {values:?}");
            assert_eq!(values[2], 0.5, "{dtype}");
        }
        // Digits that f32 has no place for.
        let mut bytes = Vec::new();
        Dtype::I32.extend_from_f64(&[16_777_217.0], &mut bytes);
        assert_eq!(bytes, 16_777_217i32.to_le_bytes());
    }

    #[test]
    fn every_code_of_a_short_format_survives_f32() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::I16, Dtype::F8e4m3, Dtype::F8e5m2, Dtype::I8, Dtype::U8]
        {
            let codes = 1usize << (8 * dtype.bytes());
            let bytes: Vec<u8> =
                (0..codes).flat_map(|code| code.to_le_bytes().into_iter().take(dtype.bytes())).collect();
            let mut values = vec![0f32; codes];
            dtype.to_f32(&bytes, &mut values);
            let mut back = Vec::new();
            dtype.extend_from_f32(&values, &mut back);
            for ((value, was), is) in
                values.iter().zip(bytes.chunks(dtype.bytes())).zip(back.chunks(dtype.bytes()))
            {
                assert!(value.is_nan() || was == is, "{dtype} {value}: {was:?} became {is:?}");
            }
        }
    }
}
