//! Frames to encode, made on the spot: the same every time.

use trinity_bits::{Chroma, Frame};

/// A small generator; the tests need no better.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// About Gaussian, with unit variance.
    pub fn gauss(&mut self) -> f64 {
        (0..12).map(|_| f64::from(self.next()) / f64::from(u32::MAX)).sum::<f64>() - 6.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Gaussian times a scale for each column, as weights are.
    Weights,
    /// Every value as likely as any.
    Noise,
    Flat,
    Gradient,
    /// Hard black and white edges.
    Text,
    /// Smooth shapes with a little noise.
    Natural,
}

impl Content {
    pub const ALL: [Self; 6] =
        [Self::Weights, Self::Noise, Self::Flat, Self::Gradient, Self::Text, Self::Natural];

    pub fn frame(self, width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
        let mut random = Random::new(width as u64 * 31 + height as u64 * 7 + u64::from(depth));
        let mut frame = Frame::filled(width, height, chroma, depth, 0);
        let top = f64::from((1u32 << depth) - 1);
        for (c, plane) in frame.planes.iter_mut().enumerate() {
            let scales: Vec<f64> = (0..plane.width).map(|_| 0.06 * (0.3 * random.gauss()).exp()).collect();
            for y in 0..plane.height {
                for x in 0..plane.width {
                    let (fx, fy) = (x as f64, y as f64 + 3.0 * c as f64);
                    let value = match self {
                        Self::Weights => 0.5 + scales[x] * random.gauss(),
                        Self::Noise => f64::from(random.next()) / f64::from(u32::MAX),
                        Self::Flat => 0.3,
                        Self::Gradient => (fx * 0.011 + fy * 0.007) % 1.0,
                        Self::Text => f64::from(u8::from((x / 3 + y / 5 * 7 + x * y / 11) % 4 == 0)),
                        Self::Natural => {
                            0.5 + 0.3 * (fx * 0.09).sin() * (fy * 0.05).cos()
                                + if (fx - 30.0).hypot(fy - 20.0) < 15.0 { 0.2 } else { 0.0 }
                                + 0.01 * random.gauss()
                        }
                    };
                    plane.samples[y * plane.width + x] = (value * top).round().clamp(0.0, top) as u16;
                }
            }
        }
        frame
    }
}
