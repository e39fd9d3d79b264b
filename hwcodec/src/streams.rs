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

/// Makes a stream.
pub fn make(spec: Spec, seed: u64, encoder: &Encoder<'_>) -> Result<TestStream, Error> {
    let frames = weight_like(&spec, seed);
    let start = std::time::Instant::now();
    let (bytes, reconstruction) = encoder(&spec, &frames).map_err(|reason| Error::Encode {
        what: format!("{} {}×{}", spec.standard.name(), spec.width, spec.height),
        reason,
    })?;
    Ok(TestStream { spec, bytes, reconstruction, encode_s: start.elapsed().as_secs_f64() })
}
