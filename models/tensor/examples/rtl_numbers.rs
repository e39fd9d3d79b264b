//! Writes what the test bench of models/silicon/rtl/line_widen.sv drives and
//! expects: `cargo run -p trinity-tensor --example rtl_numbers -- FILE`.
//!
//! Numbers of 32 bits, little-endian: format, scale, eight codes, eight numbers as
//! fp32 bits. Every code of the short formats, those that share a scale under
//! every scale; every sample; fp32 and bf16 as they come. Subnormals are 0 and NaNs have an empty payload, as
//! that module says.

use std::process::ExitCode;

use trinity_tensor::Dtype;
use trinity_tensor::codec::{Element, MxBlock};

/// Formats in the module's order: those without, then those with a scale.
const PLAIN: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];
const SCALED: [Element; 5] = [Element::E4m3, Element::E5m2, Element::E3m2, Element::E2m3, Element::E2m1];

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: rtl_numbers FILE");
        return ExitCode::from(2);
    };
    let mut out = Vec::new();
    for (format, dtype) in PLAIN.into_iter().enumerate() {
        for chunk in codes(dtype).chunks(8) {
            let bytes: Vec<u8> =
                chunk.iter().flat_map(|code| code.to_le_bytes().into_iter().take(dtype.bytes())).collect();
            let mut numbers = [0f32; 8];
            dtype.to_f32(&bytes, &mut numbers);
            let kept = dtype != Dtype::F16;
            let numbers = numbers.map(|n| if kept { n.to_bits() } else { flushed(n) });
            record(&mut out, format as u32, 0, chunk, numbers);
        }
    }
    for (index, element) in SCALED.into_iter().enumerate() {
        let all: Vec<u32> = (0..1 << element.bits()).collect();
        for scale in 0..=u8::MAX {
            for chunk in all.chunks(8) {
                let numbers = std::array::from_fn(|i| flushed(scaled(element, scale, chunk[i] as u8)));
                record(&mut out, (PLAIN.len() + index) as u32, scale, chunk, numbers);
            }
        }
    }
    // Samples of up to ten bits, under the format after all others.
    for chunk in (0..1024).collect::<Vec<u32>>().chunks(8) {
        let numbers = std::array::from_fn(|i| (chunk[i] as f32).to_bits());
        record(&mut out, (PLAIN.len() + SCALED.len()) as u32, 0, chunk, numbers);
    }
    match std::fs::write(&path, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write {path}: {error}");
            ExitCode::from(2)
        }
    }
}

/// All codes of 16 bits; of fp32 some of every exponent.
fn codes(dtype: Dtype) -> Vec<u32> {
    if dtype.bytes() == 2 {
        (0..1 << 16).collect()
    } else {
        (0..1 << 16).map(|i: u32| i.wrapping_mul(0x0001_0dcd)).collect()
    }
}

/// An element's number, of the codes that are none in FP8 as well.
fn scaled(element: Element, scale: u8, code: u8) -> f32 {
    let alone = match element {
        Element::E4m3 => Some(Dtype::F8e4m3),
        Element::E5m2 => Some(Dtype::F8e5m2),
        _ => None,
    };
    let mut number = [0f32];
    alone.into_iter().for_each(|dtype| dtype.to_f32(&[code], &mut number));
    if number[0].is_finite() {
        let found = MxBlock::decode(scale, &[code], element).next().unwrap_or(f32::NAN);
        let negative = code >> (element.bits() - 1) == 1;
        // Of a NaN scale: the sign of the code.
        return if found.is_nan() { f32::NAN.copysign(if negative { -1.0 } else { 1.0 }) } else { found };
    }
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let magnitude = if scale == u8::MAX || number[0].is_nan() { f32::NAN } else { f32::INFINITY };
    magnitude.copysign(sign)
}

/// Bits without subnormals and without a NaN's payload; signs stay.
fn flushed(number: f32) -> u32 {
    let sign = number.to_bits() & 0x8000_0000;
    match number {
        _ if number.is_nan() => sign | 0x7fc0_0000,
        _ if number.is_subnormal() => sign,
        _ => number.to_bits(),
    }
}

fn record(out: &mut Vec<u8>, format: u32, scale: u8, codes: &[u32], numbers: [u32; 8]) {
    let words = [format, scale.into()].into_iter().chain(codes.iter().copied()).chain(numbers);
    words.for_each(|word| out.extend(word.to_le_bytes()));
}
