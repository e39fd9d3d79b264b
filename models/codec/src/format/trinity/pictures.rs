//! Pictures through the same pipeline: planes are matrices of samples.
//!
//! The paper's profile writes a plain H.264 stream that any player opens; the
//! others a stream of their own whose planes are matrices. All-intra: every
//! frame stands alone.

use trinity_bits::search::{self, Trial, Tried};
use trinity_bits::{Chroma, Colour, Frame, Plane, nal};
use trinity_h264::{Params, Rate};

use crate::Error;
use crate::format::trinity::bytes::{Reader, put_varint};
use crate::format::trinity::paper::{h264_error, params};
use crate::format::trinity::stream::{Kind, MAGIC, put_magic, read_magic};
use crate::format::trinity::{decoder, lossless};
use crate::search::lossy;
use crate::search::profile::{Pipeline, Profile};

/// How a frame may refer to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    /// Not at all.
    #[default]
    Intra,
    /// Frames refer by motion; modelled in silicon, refused here.
    Inter,
}

/// Frames, and what their planes stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pictures {
    pub frames: Vec<Frame>,
    pub colour: Colour,
}

impl Pictures {
    fn planes(&self) -> impl Iterator<Item = &Plane> {
        self.frames.iter().flat_map(|frame| &frame.planes)
    }

    pub fn samples(&self) -> usize {
        self.planes().map(|plane| plane.samples.len()).sum()
    }

    fn energy(&self) -> f64 {
        self.planes().flat_map(|plane| &plane.samples).map(|&s| f64::from(s).powi(2)).sum()
    }
}

#[derive(Debug, Clone)]
pub struct EncodedFrames {
    pub bytes: Vec<u8>,
    pub recon: Vec<Frame>,
}

impl EncodedFrames {
    /// Over the samples that were given: streams may show a row or column more.
    pub fn squared_error(&self, pictures: &Pictures) -> f64 {
        let frames = pictures.frames.iter().zip(&self.recon);
        frames.map(|(frame, recon)| trinity_bits::squared_error(frame, recon)).sum::<u64>() as f64
    }
}

/// The bit of a frame's chroma format that says that samples are exact.
const EXACT: u8 = 1 << 4;
/// The bit of the same byte that says that planes are green, blue and red.
const GBR: u8 = 1 << 5;
/// Bytes of the CRC-32 of all that follows it.
const CHECKSUM: usize = 4;
/// Passes of the search for a step, and log2 of the steps it may take.
const PASSES: usize = 12;
const LOG2_STEPS: std::ops::RangeInclusive<f64> = -4.0..=17.0;

/// Encodes pictures, each on its own.
///
/// Targets count bits per sample and squared error over squared samples, of
/// all planes of all frames together.
pub fn encode_frames(
    pictures: &Pictures,
    profile: &Profile,
    target: Rate,
    coding: Coding,
) -> Result<EncodedFrames, Error> {
    if coding == Coding::Inter {
        return Err(Error::Unsupported {
            tool: "inter prediction",
            reason: "motion search is modelled in silicon only; encode all-intra",
        });
    }
    if profile.pipeline == Pipeline::Paper {
        return encode_h264(pictures, profile, target);
    }
    let exact = profile.pipeline == Pipeline::Lossless || target == Rate::Lossless;
    if exact {
        return write(pictures, EXACT, |plane, _| Ok((exact_plane(plane)?, plane.clone())));
    }
    let profile = profile.for_pictures();
    let with_step =
        |step: f64| write(pictures, 0, |plane, depth| lossy_plane(plane, depth, &profile, Rate::Step(step)));
    match target {
        Rate::Step(step) => with_step(step),
        Rate::Bits(bits) => {
            let spent = |coded: &EncodedFrames| 8.0 * coded.bytes.len() as f64 / pictures.samples() as f64;
            // A step twice as large saves a bit per sample.
            search(with_step, |coded| {
                let over = spent(coded) - bits;
                Verdict { keeps: over <= 0.0, near: over > -0.01 * bits, shift: over }
            })?
            .map_err(|coarsest| Error::RateUnreachable { target: bits, least: spent(&coarsest) })
        }
        Rate::Nmse(nmse) => {
            let energy = pictures.energy().max(f64::MIN_POSITIVE);
            let lost = |coded: &EncodedFrames| coded.squared_error(pictures) / energy;
            // The error grows with the square of the step.
            search(with_step, |coded| {
                let over = lost(coded) / nmse;
                Verdict { keeps: over <= 1.0, near: over > 0.98, shift: -0.5 * over.max(1e-6).log2() }
            })?
            .map_err(|finest| Error::ErrorUnreachable { target: nmse, least: lost(&finest) })
        }
        // The quantizer's step that H.264 and H.265 have at this QP.
        Rate::Qp(qp) => with_step(((qp - 4.0) / 6.0).exp2()),
        Rate::Mse(_) | Rate::Lossless => {
            Err(Error::BadTarget { what: format!("{target} is none of this profile") })
        }
    }
}

/// What a bound says of an encoding.
struct Verdict {
    keeps: bool,
    /// It keeps the bound, and hardly any better would.
    near: bool,
    /// By how much log2 of the step should change.
    shift: f64,
}

/// One step for every plane of every frame is the best way to share bits out:
/// finds the one that just keeps a bound, or returns the nearest that does not.
fn search(
    encode: impl Fn(f64) -> Result<EncodedFrames, Error>,
    judge: impl Fn(&EncodedFrames) -> Verdict,
) -> Result<Result<EncodedFrames, EncodedFrames>, Error> {
    let (low, high) = LOG2_STEPS.into_inner();
    let mut passes = 0i32;
    let attempt = |at: f64| -> Result<_, Error> {
        let coded = encode(at.exp2())?;
        let verdict = judge(&coded);
        // Bounds close in, so that the latest on either side is the nearest.
        passes -= 1;
        let (over, close) = (!verdict.keeps, verdict.keeps && verdict.near);
        Ok(Trial { cost: verdict.shift, over, close, rank: (over, passes), result: coded })
    };
    let mut reach = 1.2;
    let next = |tried: &Tried<f64>| {
        let (at, shift) = tried.last;
        // At low rates a step has to grow by more than the bound tells.
        let mut next = (at + reach * shift).clamp(low, high);
        if let (Some((a, _)), Some((b, _))) = (tried.under, tried.over) {
            // The guess of the slope overshot: halve what is left.
            let (a, b) = (a.min(b), a.max(b));
            let margin = 0.05 * (b - a);
            if !(a + margin..=b - margin).contains(&next) {
                next = (a + b) / 2.0;
            }
        } else {
            reach *= 2.0;
        }
        (next != at).then_some(next)
    };
    let found = search::search(1.0f64, PASSES, attempt, next)?;
    Ok(match found.best {
        Some(((false, _), coded)) => Ok(coded),
        Some(((true, _), coded)) => Err(coded),
        None => return Err(Error::BadTarget { what: "no step was tried".into() }),
    })
}

/// Writes what every plane becomes, and collects what it decodes to.
fn write(
    pictures: &Pictures,
    flags: u8,
    code: impl Fn(&Plane, u32) -> Result<(Vec<u8>, Plane), Error>,
) -> Result<EncodedFrames, Error> {
    let flags = flags | if pictures.colour == Colour::Gbr { GBR } else { 0 };
    let mut bytes = Vec::new();
    put_magic(&mut bytes, Kind::CheckedPicture);
    let checksum_at = bytes.len();
    bytes.extend([0; CHECKSUM]);
    put_varint(&mut bytes, pictures.frames.len() as u64);
    let mut recon = Vec::with_capacity(pictures.frames.len());
    for frame in &pictures.frames {
        bytes.push(frame.chroma.idc() as u8 | flags);
        bytes.push(frame.depth as u8);
        bytes.push(frame.chroma_depth as u8);
        let mut planes = Vec::with_capacity(frame.planes.len());
        for (index, plane) in frame.planes.iter().enumerate() {
            let depth = if index == 0 { frame.depth } else { frame.chroma_depth };
            let (stream, decoded) = code(plane, depth)?;
            put_varint(&mut bytes, stream.len() as u64);
            bytes.extend_from_slice(&stream);
            planes.push(decoded);
        }
        recon.push(Frame { planes, ..frame.clone() });
    }
    let (head, checked) = bytes.split_at_mut(checksum_at + CHECKSUM);
    head[checksum_at..].copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
    Ok(EncodedFrames { bytes, recon })
}

fn encode_h264(pictures: &Pictures, profile: &Profile, target: Rate) -> Result<EncodedFrames, Error> {
    let rate = match target {
        Rate::Nmse(nmse) => Rate::Mse(nmse * pictures.energy() / pictures.samples().max(1) as f64),
        Rate::Step(step) => Rate::Qp((4.0 + 6.0 * step.log2()).round().clamp(0.0, 51.0)),
        Rate::Qp(qp) => Rate::Qp(qp.round().clamp(0.0, 51.0)),
        Rate::Bits(_) | Rate::Mse(_) | Rate::Lossless => target,
    };
    let params = Params { colour: pictures.colour, ..params(profile.paper, rate) };
    let coded = trinity_h264::encode(&pictures.frames, &params).map_err(h264_error)?;
    Ok(EncodedFrames { bytes: coded.stream, recon: coded.recon })
}

fn decode_h264(bytes: &[u8]) -> Result<Pictures, Error> {
    let mut decoder = trinity_h264::Decoder::new(bytes.len());
    for unit in nal::units(bytes) {
        decoder.push(unit).map_err(h264_error)?;
    }
    decoder.finish().map_err(h264_error)?;
    let colour = decoder.colour();
    Ok(Pictures { frames: std::iter::from_fn(|| decoder.next_frame()).collect(), colour })
}

fn lossy_plane(
    plane: &Plane,
    depth: u32,
    profile: &Profile,
    target: Rate,
) -> Result<(Vec<u8>, Plane), Error> {
    let values: Vec<f32> = plane.samples.iter().map(|&s| f32::from(s)).collect();
    let encoded = lossy::encode(&values, plane.height, plane.width, profile, target, None)?;
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
    let words = decoder::decode_words(bytes)?;
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

/// Whether bytes start like something [`decode_frames`] takes.
pub fn starts_pictures(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || bytes.starts_with(&[0, 0, 1]) || bytes.starts_with(&[0, 0, 0, 1])
}

/// Decodes frames of any profile: a stream of ours, or H.264.
pub fn decode_frames(bytes: &[u8]) -> Result<Pictures, Error> {
    if bytes.get(..2) != Some(&MAGIC) {
        return decode_h264(bytes);
    }
    let mut reader = Reader::new(bytes);
    match read_magic(&mut reader)? {
        // Streams of before there was a checksum.
        Kind::Picture => {}
        Kind::CheckedPicture => {
            let signalled = u32::from_le_bytes(reader.array("checksum")?);
            if crc32fast::hash(reader.clone().rest()) != signalled {
                return Err(Error::Damaged { what: "the checksum does not match" });
            }
        }
        _ => return Err(Error::NotTrinity { what: "a matrix where pictures were expected".into() }),
    }
    let count = reader.varint("frames")?;
    let (mut frames, mut colour) = (Vec::new(), Colour::Unstated);
    for _ in 0..count {
        let [format, depth, chroma_depth] = reader.array("frame")?;
        let chroma = Chroma::from_idc(u32::from(format & 15))
            .ok_or(Error::Damaged { what: "unknown chroma format" })?;
        if format & GBR != 0 {
            colour = Colour::Gbr;
        }
        let depths = [depth, chroma_depth].map(u32::from);
        if depths.iter().any(|d| !(1..=16).contains(d)) {
            return Err(Error::Damaged { what: "samples have 1 to 16 bits" });
        }
        let mut planes = Vec::with_capacity(chroma.planes());
        for index in 0..chroma.planes() {
            let length = reader.varint("plane")?;
            let stream = reader.slice(length, "plane")?;
            planes.push(if format & EXACT != 0 {
                decode_exact_plane(stream)?
            } else {
                let matrix = decoder::decode(stream)?;
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
    Ok(Pictures { frames, colour })
}
