//! Frames to encode, made on the spot: the same every time. Tests of both standards' codecs include
//! this file by its path.

use trinity_bits::{Chroma, Frame, Rate};
use trinity_numeric::random::Lcg;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    Noise,
    Flat,
    Gradient,
    Text,
    /// Gaussian with row and column scales and a few outliers.
    Weights,
    /// Smooth shapes with texture and edges.
    Natural,
    /// A tensor captured from a training run, where the shared data is there.
    Captured,
    /// Faint tiles, with noise in the last quarter of each CTU: its first levels come late,
    /// and blocks without any differ by little, which the deblocking filter sees.
    Islands,
}

/// About Gaussian, with unit variance.
fn gaussian(random: &mut Lcg) -> f64 {
    (0..12).map(|_| random.bits31() as f64 / f64::from(1u32 << 31)).sum::<f64>() - 6.0
}

/// Bytes of a captured key cache, a bf16 a pair; none without the shared data.
fn captured() -> Option<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captured/kv_cache.safetensors");
    let bytes = std::fs::read(path).ok()?;
    Some(bytes[1 << 16..1 << 20].to_vec())
}

impl Content {
    pub const ALL: [Self; 8] = [
        Self::Noise,
        Self::Flat,
        Self::Gradient,
        Self::Text,
        Self::Weights,
        Self::Natural,
        Self::Captured,
        Self::Islands,
    ];

    pub fn frame(self, width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
        let mut random = Lcg(width as u64 * 7919 + height as u64 * 104_729 + u64::from(depth));
        let limit = f64::from((1u32 << depth) - 1);
        let columns: Vec<f64> = (0..width).map(|_| (0.35 * gaussian(&mut random)).exp()).collect();
        let real = if self == Self::Captured { captured() } else { None };
        let mut frame = Frame::filled(width, height, chroma, depth, 0);
        for (c, plane) in frame.planes.iter_mut().enumerate() {
            for i in 0..plane.samples.len() {
                let (x, y) = (i % plane.width, i / plane.width);
                let value = match self {
                    Self::Noise => random.bits31() as f64 % (limit + 1.0),
                    Self::Islands => {
                        // In samples of luma, so that all planes are busy in the same place.
                        let (sx, sy) = if c == 0 { (0, 0) } else { chroma.shift() };
                        let busy = (x << sx) & 63 >= 32 && (y << sy) & 63 >= 32;
                        let tile = ((x << sx) / 16 * 7 + (y << sy) / 16 * 3) % 5;
                        let noise = if busy { 0.15 * gaussian(&mut random) } else { 0.0 };
                        limit * (0.3 + noise + 0.01 * tile as f64)
                    }
                    Self::Flat => (limit / 3.0).floor() + c as f64,
                    Self::Gradient => (x * 3 + y * 5 + c * 40) as f64 * limit / 2048.0,
                    Self::Text => {
                        if (x / 3 * 7 + y / 5 * 11 + x * y / 17) % 5 < 2 {
                            0.0
                        } else {
                            limit
                        }
                    }
                    Self::Natural => {
                        let (u, v) = (x as f64 / 23.0, y as f64 / 17.0);
                        let edge = if (u.sin() + v.cos()) > 0.3 { 0.3 } else { 0.0 };
                        limit * (0.4 + 0.2 * (u * 0.7 + v).sin() + edge + 0.02 * gaussian(&mut random))
                    }
                    Self::Captured | Self::Weights => match &real {
                        Some(bytes) => {
                            let pair = [bytes[2 * i % bytes.len()], bytes[(2 * i + 1) % bytes.len()]];
                            let value = f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16);
                            limit / 2.0 + f64::from(value.clamp(-8.0, 8.0)) * limit / 16.0
                        }
                        None => {
                            let outlier = if random.bits31().is_multiple_of(1000) { 5.0 } else { 1.0 };
                            limit / 2.0 + gaussian(&mut random) * columns[x] * outlier * limit / 14.0
                        }
                    },
                };
                plane.samples[i] = value.clamp(0.0, limit) as u16;
            }
        }
        frame
    }
}

/// Ways to ask for a rate, the number turning through what is asked for.
pub fn rates(turn: usize, depth: u32, bits: [f64; 5]) -> [Rate; 4] {
    let qp = [-4.0, 9.0, 22.0, 30.0, 37.0, 45.0, 51.0f64][turn % 7];
    let scale = f64::from(1u32 << (2 * (depth - 8)));
    let mse = [0.3, 3.0, 11.0, 45.0, 200.0][turn % 5] * scale;
    let qp = if depth == 8 { qp.max(0.0) } else { qp };
    [Rate::Qp(qp), Rate::Bits(bits[turn % 5]), Rate::Mse(mse), Rate::Lossless]
}
