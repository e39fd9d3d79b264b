//! Any bytes as an H.264 or H.265 stream: no panic, no hang, no allocation that
//! the length of the stream does not justify.

use crate::RunOutcome;
use trinity_bits::{Chroma, Frame, Preset, Rate};

/// A ramp with an edge and some noise.
fn frame(width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
    let mut frame = Frame::filled(width, height, chroma, depth, 0);
    for plane in &mut frame.planes {
        for i in 0..plane.samples.len() {
            let (x, y) = (i % plane.width, i / plane.width);
            let noise = ((i as u32).wrapping_mul(2_654_435_761) >> 28) as usize;
            plane.samples[i] = (4 * x + 3 * y + noise + if x > y { 60 } else { 0 }) as u16 & 255;
        }
    }
    frame
}

/// Frames and rates that between them use every tool of an encoder.
fn material() -> Vec<(Frame, Rate, Preset)> {
    vec![
        (frame(33, 18, Chroma::C400, 8), Rate::Qp(24.0), Preset::Fast),
        (frame(24, 40, Chroma::C420, 8), Rate::Qp(34.0), Preset::Best),
        (frame(16, 32, Chroma::C444, 10), Rate::Qp(12.0), Preset::Slow),
        (frame(40, 17, Chroma::C400, 8), Rate::Lossless, Preset::Medium),
    ]
}

pub fn h264_seeds() -> Vec<Vec<u8>> {
    use trinity_h264::{Entropy, Params, encode};
    let mut seeds = Vec::new();
    for (frame, rate, preset) in material() {
        for (entropy, deblock, slices) in [(Entropy::Cavlc, false, 1), (Entropy::Cabac, true, 2)] {
            let params = Params { rate, preset, entropy, deblock, slices, threads: 1, ..Params::default() };
            let coded = encode(std::slice::from_ref(&frame), &params);
            seeds.push(coded.map(|coded| coded.stream).unwrap_or_default());
        }
    }
    seeds
}

pub fn h265_seeds() -> Vec<Vec<u8>> {
    use trinity_h265::{Params, encode};
    let mut seeds = Vec::new();
    for (frame, rate, preset) in material() {
        for plain in [true, false] {
            let params = Params {
                rate,
                preset,
                deblock: plain,
                sao: plain && rate != Rate::Lossless,
                range_extensions: !plain,
                wavefront: !plain,
                threads: 1,
                ..Params::default()
            };
            let coded = encode(std::slice::from_ref(&frame), &params);
            seeds.push(coded.map(|coded| coded.stream).unwrap_or_default());
        }
    }
    seeds
}

/// Accepted: frames and no error. Reached: at least one frame.
fn outcome<E>(frames: impl Iterator<Item = Result<Frame, E>>) -> RunOutcome {
    let mut outcome = RunOutcome::Refused;
    for decoded in frames {
        let Ok(frame) = decoded else { return outcome.min(RunOutcome::Reached) };
        assert_eq!(frame.planes.len(), frame.chroma.planes());
        assert!(frame.planes.iter().all(|plane| plane.samples.len() == plane.width * plane.height));
        outcome = RunOutcome::Accepted;
    }
    outcome
}

pub fn h264(input: &[u8]) -> RunOutcome {
    outcome(trinity_h264::frames(input))
}

pub fn h265(input: &[u8]) -> RunOutcome {
    outcome(trinity_h265::frames(input).map(|decoded| decoded.map(|decoded| decoded.frame)))
}
