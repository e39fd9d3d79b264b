//! Streams to measure with: weight-like frames through our own encoders.
//!
//! NVDEC has no 4:0:0, so luma carries the tensor and chroma is neutral, as a
//! tensor codec on this hardware would have it; 4:4:4 carries three.

use crate::Error;
use crate::nvdec::{self, Standard};
use trinity_bits::{Chroma, Frame};

/// Which stream to make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spec {
    pub standard: Standard,
    pub chroma: Chroma,
    pub depth: u32,
    pub width: usize,
    pub height: usize,
    pub qp: i32,
    /// Distinct pictures; a measurement repeats them.
    pub pictures: usize,
}

impl Spec {
    /// Two pictures in what every NVDEC takes: 4:2:0, 8 bit.
    pub fn plain(standard: Standard, (width, height): (usize, usize), qp: i32) -> Self {
        Self { standard, chroma: Chroma::C420, depth: 8, width, height, qp, pictures: 2 }
    }
}

/// Formats beyond 8-bit 4:2:0 that NVDEC takes of H.265.
pub const DEEPER: [(Chroma, u32); 5] =
    [(Chroma::C420, 10), (Chroma::C420, 12), (Chroma::C444, 8), (Chroma::C444, 10), (Chroma::C444, 12)];

/// A coded stream, cut into pictures, and what it must decode to.
#[derive(Debug)]
pub struct TestStream {
    pub spec: Spec,
    pub bytes: Vec<u8>,
    pub reconstruction: Vec<Frame>,
    /// CPU seconds our encoder took, all pictures.
    pub encode_s: f64,
}

impl TestStream {
    /// One packet a picture.
    pub fn packets(&self) -> Vec<&[u8]> {
        nvdec::access_units(&self.bytes, self.spec.standard)
    }

    /// Coded bits a value: luma samples, or those of all three planes in 4:4:4.
    pub fn bits_per_value(&self) -> f64 {
        let planes = if self.spec.chroma == Chroma::C444 { 3 } else { 1 };
        let values = self.spec.width * self.spec.height * self.spec.pictures * planes;
        self.bytes.len() as f64 * 8.0 / values as f64
    }
}

/// Frames like an aligned weight matrix: Gaussian with row and column scales.
pub fn weight_like(spec: &Spec, seed: u64) -> Vec<Frame> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let middle = f64::from(1u32 << (spec.depth - 1));
    // absmax = 14 σ fills the range, as 8-bit alignment of real weights does.
    let sigma = middle / 14.0;
    (0..spec.pictures)
        .map(|_| {
            let columns: Vec<f64> = (0..spec.width).map(|_| (0.35 * random.gaussian()).exp()).collect();
            let mut frame = Frame::filled(spec.width, spec.height, spec.chroma, spec.depth, middle as u16);
            let carriers = if spec.chroma == Chroma::C444 { 3 } else { 1 };
            for plane in frame.planes.iter_mut().take(carriers) {
                for y in 0..plane.height {
                    let row = (0.25 * random.gaussian()).exp() * sigma;
                    for (sample, column) in plane.row_mut(y).iter_mut().zip(&columns) {
                        let value = middle + row * column * random.gaussian();
                        *sample = value.round().clamp(0.0, 2.0 * middle - 1.0) as u16;
                    }
                }
            }
            frame
        })
        .collect()
}

/// xorshift64*, and a Gaussian by the sum of uniforms: good enough for load, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn gaussian(&mut self) -> f64 {
        let word = self.next();
        let sum: u64 = (0..4).map(|i| word >> (16 * i) & 0xffff).sum();
        // Four uniforms of variance 65536²/12.
        (sum as f64 - 2.0 * 65535.0) / (65536.0 * (4.0f64 / 12.0).sqrt())
    }
}

/// Something that turns frames into an Annex B stream and the reconstruction.
pub type Encoder<'e> = dyn Fn(&Spec, &[Frame]) -> Result<(Vec<u8>, Vec<Frame>), String> + Sync + 'e;

pub fn make(spec: Spec, seed: u64, encoder: &Encoder<'_>) -> Result<TestStream, Error> {
    let frames = weight_like(&spec, seed);
    let start = std::time::Instant::now();
    let (bytes, reconstruction) = encoder(&spec, &frames).map_err(|reason| Error::Encode {
        what: format!("{} {}×{}", spec.standard.name(), spec.width, spec.height),
        reason,
    })?;
    Ok(TestStream { spec, bytes, reconstruction, encode_s: start.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn frames_are_the_same_everywhere_and_carry_a_tensor_in_luma_or_in_three_planes() {
        for (chroma, depth, carriers) in [(Chroma::C420, 8, 1), (Chroma::C444, 10, 3)] {
            let spec = Spec { chroma, depth, ..Spec::plain(Standard::Hevc, (64, 48), 20) };
            let frames = weight_like(&spec, 7);
            assert_eq!((frames.len(), &frames), (2, &weight_like(&spec, 7)));
            assert_ne!(frames[0], frames[1], "pictures of a stream differ");
            assert_ne!(frames, weight_like(&spec, 8));
            let middle = 1u16 << (depth - 1);
            for (at, plane) in frames[0].planes.iter().enumerate() {
                let samples: Vec<u16> = (0..plane.height).flat_map(|y| plane.row(y).to_vec()).collect();
                if at >= carriers {
                    assert!(samples.iter().all(|&sample| sample == middle), "plane {at} is neutral");
                    continue;
                }
                let mean = samples.iter().map(|&s| f64::from(s)).sum::<f64>() / samples.len() as f64;
                let off = |&s: &u16| (f64::from(s) - f64::from(middle)).powi(2);
                let deviation = (samples.iter().map(off).sum::<f64>() / samples.len() as f64).sqrt();
                // A fourteenth of half the range, times what scales of rows and columns make of it.
                let sigma = f64::from(middle) / 14.0;
                assert!((mean - f64::from(middle)).abs() < 0.3 * sigma, "plane {at}: {mean}");
                assert!((0.8..1.8).contains(&(deviation / sigma)), "plane {at}: {deviation} of {sigma}");
            }
        }
    }

    #[test]
    fn a_stream_s_rate_is_of_the_values_it_carries_and_a_failed_encoder_is_named() {
        let encoder = |_: &Spec, frames: &[Frame]| Ok((vec![0u8; 768], frames.to_vec()));
        let plain = Spec::plain(Standard::H264, (32, 16), 20);
        assert_eq!(make(plain, 1, &encoder).unwrap().bits_per_value(), 6.0);
        let three = Spec { chroma: Chroma::C444, ..plain };
        let stream = make(three, 1, &encoder).unwrap();
        assert_eq!((stream.bits_per_value(), stream.reconstruction), (2.0, weight_like(&three, 1)));
        let failing = |_: &Spec, _: &[Frame]| Err("no room".to_string());
        let error = make(plain, 1, &failing).unwrap_err().to_string();
        assert_eq!(error, "encoding the test stream h264 32×16: no room");
    }
}
