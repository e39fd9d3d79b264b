//! The two 8-bit floating-point formats of the OCP FP8 specification.
//!
//! Small enough that decoding is a table; encoding rounds to nearest, ties to
//! even, and saturates at the largest finite value (the specification's
//! saturating mode), so that a value just out of range never becomes NaN.

use std::sync::LazyLock;

/// Every f8e4m3 code as f32: bias 7, no infinity, `S.1111.111` is NaN.
pub(crate) static E4M3: LazyLock<[f32; 256]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let magnitude = if code & 0x7f == 0x7f { f32::NAN } else { minifloat(code & 0x7f, 3, 7) };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    })
});

/// Every f8e5m2 code as f32: bias 15, IEEE-like infinity and NaN.
pub(crate) static E5M2: LazyLock<[f32; 256]> = LazyLock::new(|| {
    std::array::from_fn(|code| {
        let magnitude = match code & 0x7f {
            0x7c => f32::INFINITY,
            nan if nan > 0x7c => f32::NAN,
            finite => minifloat(finite, 2, 15),
        };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    })
});

/// The value of a finite, unsigned minifloat code.
pub(crate) fn minifloat(code: usize, mantissa_bits: u32, bias: i32) -> f32 {
    let mantissa = (code & ((1 << mantissa_bits) - 1)) as f32;
    let exponent = (code >> mantissa_bits) as i32;
    let one = (1u32 << mantissa_bits) as f32;
    if exponent == 0 {
        mantissa / one * 2f32.powi(1 - bias)
    } else {
        (1.0 + mantissa / one) * 2f32.powi(exponent - bias)
    }
}

pub(crate) fn to_e4m3(value: f32) -> u8 {
    if value.is_nan() {
        return 0x7f | sign_bit(value);
    }
    round(value.abs(), 3, 7, 0x7e) | sign_bit(value)
}

pub(crate) fn to_e5m2(value: f32) -> u8 {
    if value.is_nan() {
        return 0x7e | sign_bit(value);
    }
    if value.is_infinite() {
        return 0x7c | sign_bit(value);
    }
    round(value.abs(), 2, 15, 0x7b) | sign_bit(value)
}

fn sign_bit(value: f32) -> u8 {
    if value.is_sign_negative() { 0x80 } else { 0 }
}

/// Nearest code of a non-negative value, ties to even, at most `largest`.
pub(crate) fn round(magnitude: f32, mantissa_bits: u32, bias: i32, largest: u8) -> u8 {
    // f64 keeps every f32 exact under the power-of-two scaling, subnormals included.
    let magnitude = f64::from(magnitude);
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let steps = (magnitude * 2f64.powi(mantissa_bits as i32 - exponent)).round_ties_even();
    // `steps` counts from zero of this binade; a carry into the next binade
    // lands on the right code because codes are consecutive.
    let code = steps + f64::from((exponent - (1 - bias)) << mantissa_bits);
    code.min(f64::from(largest)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_a_round_trip() {
        for code in 0..=255u8 {
            let e4m3 = E4M3[usize::from(code)];
            assert!(e4m3.is_nan() && code & 0x7f == 0x7f || to_e4m3(e4m3) == code, "e4m3 {code:#x}");
            let e5m2 = E5M2[usize::from(code)];
            assert!(e5m2.is_nan() && code & 0x7f > 0x7c || to_e5m2(e5m2) == code, "e5m2 {code:#x}");
        }
    }

    #[test]
    fn known_values_of_the_specification() {
        assert_eq!(E4M3[0x7e], 448.0);
        assert_eq!(E4M3[0x01], 2f32.powi(-9));
        assert_eq!(E5M2[0x7b], 57344.0);
        assert_eq!(E5M2[0x01], 2f32.powi(-16));
        assert_eq!(to_e4m3(1e30), 0x7e);
        assert_eq!(to_e5m2(-1e30), 0xfb);
    }

    #[test]
    fn every_value_goes_to_its_nearest_code() {
        for step in 0..40_000 {
            let value = step as f32 * 0.0117;
            let nearest =
                (0..0x7fu8).map(|code| (E4M3[usize::from(code)] - value).abs()).fold(f32::MAX, f32::min);
            assert_eq!((E4M3[usize::from(to_e4m3(value))] - value).abs(), nearest, "{value}");
        }
    }
}
