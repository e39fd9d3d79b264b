//! Pictures through the same pipeline: planes are matrices of samples.
//!
//! The paper's profile writes a plain H.264 stream that any player opens; the
//! others a stream of their own whose planes are matrices. All-intra: every
//! frame stands alone.

use trinity_coding::{Chroma, Frame, Plane};
use trinity_h264::Rate;

use crate::bytes::{Reader, put_varint};
use crate::encode::{Target, encode_lossy};
use crate::paper::{h264_error, params};
use crate::profile::{Pipeline, Profile};
use crate::stream::{Kind, MAGIC, put_magic, read_magic};
use crate::{Error, lossless};

/// How a frame may refer to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    /// Not at all.
    #[default]
    Intra,
    /// By motion; modelled in silicon, refused here.
    Inter,
}

/// A stream of pictures and what it decodes to.
#[derive(Debug, Clone)]
pub struct EncodedFrames {
    pub bytes: Vec<u8>,
    pub recon: Vec<Frame>,
}

/// Encodes frames, each on its own.
///
/// Targets count bits per sample and squared error over squared samples.
pub fn encode_frames(
    frames: &[Frame],
    profile: &Profile,
    target: Target,
    coding: Coding,
) -> Result<EncodedFrames, Error> {
    if coding == Coding::Inter {
        return Err(Error::Unsupported {
            tool: "inter prediction",
            reason: "motion search is modelled in silicon only; encode all-intra",
        });
    }
    if profile.pipeline == Pipeline::Paper {
        return encode_h264(frames, profile, target);
    }
    let exact = profile.pipeline == Pipeline::Lossless || target == Target::Lossless;
    let pictures = profile.for_pictures();
    let mut bytes = Vec::new();
    put_magic(&mut bytes, Kind::Picture);
    put_varint(&mut bytes, frames.len() as u64);
    let mut recon = Vec::with_capacity(frames.len());
    for frame in frames {
        bytes.push(frame.chroma.idc() as u8 | u8::from(exact) << 4);
        bytes.push(frame.depth as u8);
        bytes.push(frame.chroma_depth as u8);
        let mut planes = Vec::with_capacity(frame.planes.len());
        for (index, plane) in frame.planes.iter().enumerate() {
            let depth = if index == 0 { frame.depth } else { frame.chroma_depth };
            let (stream, decoded) = if exact {
                (exact_plane(plane)?, plane.clone())
            } else {
                lossy_plane(plane, depth, &pictures, target)?
            };
            put_varint(&mut bytes, stream.len() as u64);
            bytes.extend_from_slice(&stream);
            planes.push(decoded);
        }
        recon.push(Frame { planes, ..frame.clone() });
    }
    Ok(EncodedFrames { bytes, recon })
}

fn encode_h264(frames: &[Frame], profile: &Profile, target: Target) -> Result<EncodedFrames, Error> {
    let energy: f64 =
        frames.iter().flat_map(|f| &f.planes).flat_map(|p| &p.samples).map(|&s| f64::from(s).powi(2)).sum();
    let samples: usize = frames.iter().flat_map(|f| &f.planes).map(|p| p.samples.len()).sum();
    let rate = match target {
        Target::Bits(bits) => Rate::Bits(bits),
        Target::Nmse(nmse) => Rate::Mse(nmse * energy / samples.max(1) as f64),
        Target::Step(step) => Rate::Qp((4.0 + 6.0 * step.log2()).round().clamp(0.0, 51.0) as i32),
        Target::Lossless => Rate::Lossless,
    };
    let coded = trinity_h264::encode(frames, &params(profile.paper, rate)).map_err(h264_error)?;
    Ok(EncodedFrames { bytes: coded.stream, recon: coded.recon })
}

fn lossy_plane(
    plane: &Plane,
    depth: u32,
    profile: &Profile,
    target: Target,
) -> Result<(Vec<u8>, Plane), Error> {
    let values: Vec<f32> = plane.samples.iter().map(|&s| f32::from(s)).collect();
    let encoded = encode_lossy(&values, plane.height, plane.width, profile, target)?;
    Ok((encoded.bytes, to_samples(&encoded.recon, plane.width, plane.height, depth)))
}

fn to_samples(values: &[f32], width: usize, height: usize, depth: u32) -> Plane {
    let limit = ((1u32 << depth.min(16)) - 1) as f32;
    let samples = values.iter().map(|v| (v + 0.5).floor().clamp(0.0, limit) as u16).collect();
    Plane { width, height, samples }
}

/// Median of left, above, and the plane through the three neighbours.
fn predict(samples: &[u16], width: usize, x: usize, y: usize) -> i32 {
    let at = |x: usize, y: usize| i32::from(samples[y * width + x]);
    match (x, y) {
        (0, 0) => 0,
        (_, 0) => at(x - 1, 0),
        (0, _) => at(0, y - 1),
        _ => {
            let (left, above, corner) = (at(x - 1, y), at(x, y - 1), at(x - 1, y - 1));
            (left + above - corner).clamp(left.min(above), left.max(above))
        }
    }
}

/// Differences from the prediction, as words.
fn exact_plane(plane: &Plane) -> Result<Vec<u8>, Error> {
    let words: Vec<u32> = (0..plane.samples.len())
        .map(|i| {
            let difference = i32::from(plane.samples[i])
                - predict(&plane.samples, plane.width, i % plane.width, i / plane.width);
            (difference as f32).to_bits()
        })
        .collect();
    lossless::encode_words(&words, plane.height, plane.width)
}

fn decode_exact_plane(bytes: &[u8]) -> Result<Plane, Error> {
    let words = crate::decode_words(bytes)?;
    let mut plane =
        Plane { width: words.cols, height: words.rows, samples: Vec::with_capacity(words.words.len()) };
    for (i, &word) in words.words.iter().enumerate() {
        let difference = f32::from_bits(word);
        let predicted = predict(&plane.samples, plane.width, i % plane.width, i / plane.width);
        let sample = predicted as f32 + difference;
        if !(0.0..=65535.0).contains(&sample) {
            return Err(Error::Damaged { what: "a sample is out of range" });
        }
        plane.samples.push(sample as u16);
    }
    Ok(plane)
}

/// Decodes frames of any profile: a stream of ours, or H.264.
pub fn decode_frames(bytes: &[u8]) -> Result<Vec<Frame>, Error> {
    if bytes.get(..2) != Some(&MAGIC[..2]) {
        return trinity_h264::decode(bytes).map_err(h264_error);
    }
    let mut reader = Reader::new(bytes);
    if read_magic(&mut reader)? != Kind::Picture {
        return Err(Error::NotTrinity { what: "a matrix where pictures were expected".into() });
    }
    let count = reader.varint("frames")?;
    let mut frames = Vec::new();
    for _ in 0..count {
        let [format, depth, chroma_depth] = reader.array("frame")?;
        let chroma = Chroma::from_idc(u32::from(format & 15))
            .ok_or(Error::Damaged { what: "unknown chroma format" })?;
        let depths = [depth, chroma_depth].map(u32::from);
        if depths.iter().any(|d| !(1..=16).contains(d)) {
            return Err(Error::Damaged { what: "samples have 1 to 16 bits" });
        }
        let mut planes = Vec::with_capacity(chroma.planes());
        for index in 0..chroma.planes() {
            let length = reader.varint("plane")?;
            let stream = reader.slice(length, "plane")?;
            planes.push(if format & 16 != 0 {
                decode_exact_plane(stream)?
            } else {
                let matrix = crate::decode(stream)?;
                to_samples(&matrix.values, matrix.cols, matrix.rows, depths[index.min(1)])
            });
        }
        let expected: Vec<_> =
            (0..planes.len()).map(|c| chroma.plane_size(c, planes[0].width, planes[0].height)).collect();
        if planes.iter().zip(&expected).any(|(p, &size)| (p.width, p.height) != size) {
            return Err(Error::Damaged { what: "planes do not fit their chroma format" });
        }
        frames.push(Frame { chroma, depth: depths[0], chroma_depth: depths[1], planes });
    }
    if reader.left() != 0 {
        return Err(Error::Damaged { what: "bytes after the last frame" });
    }
    Ok(frames)
}
