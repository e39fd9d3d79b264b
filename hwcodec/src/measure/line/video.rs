//! The same tensor on NVDEC: our H.264 and H.265 streams of it, at about as many bits.

use crate::error::Error;
use crate::gpu::Gpu;
use crate::measure::bench::TYPICAL_QP;
use crate::measure::decode;
use crate::nvdec::{Standard, capabilities};
use crate::recording::Speed;
use crate::streams::{Encoder, Spec, TestStream};
use std::time::Instant;
use trinity_bits::Frame;

/// Pictures of so many samples each way.
const SIZE: usize = 1024;
const PICTURES: usize = 4;
/// Half of the samples' range holds so many times the values' root mean square.
const RANGE: f64 = 6.0;
/// Bits per value that streams shall have, about.
const RATE: f64 = 3.0;
const REPEATS: usize = 5;

/// Encodes on the CPU and decodes on all engines; values count as bf16.
pub(super) fn nvdec(
    gpu: &Gpu,
    encoder: &Encoder<'_>,
    standard: Standard,
    (values, cols): (&[f32], usize),
) -> Result<Speed, Error> {
    let square = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / values.len() as f64;
    let scale = RANGE * square.sqrt() / 128.0;
    let spec = Spec { pictures: PICTURES, ..Spec::plain(standard, (SIZE, SIZE), 0) };
    let frames = pictures(&spec, values, cols, scale);
    let failed = |reason: String| Error::Encode { what: format!("weights as {}", standard.name()), reason };
    // Six of the parameter are a bit, about; one picture says where that starts.
    let (bytes, _) = encoder(&Spec { qp: TYPICAL_QP, pictures: 1, ..spec }, &frames[..1]).map_err(failed)?;
    let bits = 8.0 * bytes.len() as f64 / (SIZE * SIZE) as f64;
    let spec = Spec { qp: TYPICAL_QP + (6.0 * (bits - RATE)).round() as i32, ..spec };
    let start = Instant::now();
    let (bytes, reconstruction) = encoder(&spec, &frames).map_err(failed)?;
    let encode_s = start.elapsed().as_secs_f64();
    let nmse = error(&reconstruction, values, cols, scale);
    let stream = TestStream { spec, bytes, reconstruction, encode_s };
    let engines = capabilities(gpu.cuvid()?.as_ref(), standard, spec.chroma, spec.depth)?.engines.max(1);
    let point = decode::measure(gpu, &stream, engines, REPEATS, || None)?;
    Ok(Speed {
        what: format!("NVDEC, {} that a CPU encoded", standard.name()),
        multiprocessors: 0,
        input_bytes: 2 * SIZE * SIZE * PICTURES,
        coded_bytes: stream.bytes.len(),
        encode_s,
        decode_s: point.seconds_per_picture.median * PICTURES as f64,
        nmse,
    })
}

/// Squares of a matrix from its first row, side by side.
fn pictures(spec: &Spec, values: &[f32], cols: usize, scale: f64) -> Vec<Frame> {
    let middle = 128.0;
    let picture = |number: usize| {
        let mut frame = Frame::filled(SIZE, SIZE, spec.chroma, spec.depth, middle as u16);
        for y in 0..SIZE {
            let row = &values[y * cols + number * SIZE..][..SIZE];
            for (sample, &value) in frame.planes[0].row_mut(y).iter_mut().zip(row) {
                *sample = (f64::from(value) / scale + middle).round().clamp(0.0, 255.0) as u16;
            }
        }
        frame
    };
    (0..spec.pictures).map(picture).collect()
}

/// Noise over signal of what a decoder makes of the pictures.
fn error(reconstruction: &[Frame], values: &[f32], cols: usize, scale: f64) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for (number, frame) in reconstruction.iter().enumerate() {
        for y in 0..SIZE {
            let row = &values[y * cols + number * SIZE..][..SIZE];
            for (&sample, &value) in frame.planes[0].row(y).iter().zip(row) {
                let (value, found) = (f64::from(value), (f64::from(sample) - 128.0) * scale);
                signal += value * value;
                noise += (value - found) * (value - found);
            }
        }
    }
    noise / signal
}
