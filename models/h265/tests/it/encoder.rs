//! The encoder's promise: what it says a stream decodes to is what every
//! decoder makes of it.
//!
//! A quick part of the grid runs always, all of it (several hundred cases)
//! with `TRINITY_GRID=full`. ffmpeg and libde265 are asked where installed.

use std::process::Command;
use trinity_bits::{Chroma, Frame};
use trinity_h265::{Params, Preset, Rate, decode, encode};
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

pub const CONTENTS: [Content; 8] = [
    Content::Noise,
    Content::Flat,
    Content::Gradient,
    Content::Text,
    Content::Weights,
    Content::Natural,
    Content::Captured,
    Content::Islands,
];

/// A small generator; the tests must not depend on anyone's version of one.
struct Random(Lcg);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.bits31()
    }

    fn gaussian(&mut self) -> f64 {
        (0..12).map(|_| self.next() as f64 / f64::from(1u32 << 31)).sum::<f64>() - 6.0
    }
}

/// Bytes of a captured key cache, a bf16 a pair; none without the shared data.
fn captured() -> Option<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captured/kv_cache.safetensors");
    let bytes = std::fs::read(path).ok()?;
    Some(bytes[1 << 16..1 << 20].to_vec())
}

pub fn frame(content: Content, width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
    let mut random = Random(Lcg(width as u64 * 7919 + height as u64 * 104_729 + u64::from(depth)));
    let limit = f64::from((1u32 << depth) - 1);
    let columns: Vec<f64> = (0..width).map(|_| (0.35 * random.gaussian()).exp()).collect();
    let real = if content == Content::Captured { captured() } else { None };
    let mut frame = Frame::filled(width, height, chroma, depth, 0);
    for (c, plane) in frame.planes.iter_mut().enumerate() {
        for i in 0..plane.samples.len() {
            let (x, y) = (i % plane.width, i / plane.width);
            let value = match content {
                Content::Noise => random.next() as f64 % (limit + 1.0),
                Content::Islands => {
                    // In samples of luma, so that all planes are busy in the same place.
                    let (sx, sy) = if c == 0 { (0, 0) } else { chroma.shift() };
                    let busy = (x << sx) & 63 >= 32 && (y << sy) & 63 >= 32;
                    let tile = ((x << sx) / 16 * 7 + (y << sy) / 16 * 3) % 5;
                    let noise = if busy { 0.15 * random.gaussian() } else { 0.0 };
                    limit * (0.3 + noise + 0.01 * tile as f64)
                }
                Content::Flat => (limit / 3.0).floor() + c as f64,
                Content::Gradient => (x * 3 + y * 5 + c * 40) as f64 * limit / 2048.0,
                Content::Text => {
                    if (x / 3 * 7 + y / 5 * 11 + x * y / 17) % 5 < 2 {
                        0.0
                    } else {
                        limit
                    }
                }
                Content::Natural => {
                    let (u, v) = (x as f64 / 23.0, y as f64 / 17.0);
                    let edge = if (u.sin() + v.cos()) > 0.3 { 0.3 } else { 0.0 };
                    limit * (0.4 + 0.2 * (u * 0.7 + v).sin() + edge + 0.02 * random.gaussian())
                }
                Content::Captured | Content::Weights => match &real {
                    Some(bytes) => {
                        let pair = [bytes[2 * i % bytes.len()], bytes[(2 * i + 1) % bytes.len()]];
                        let value = f32::from_bits(u32::from(u16::from_le_bytes(pair)) << 16);
                        limit / 2.0 + f64::from(value.clamp(-8.0, 8.0)) * limit / 16.0
                    }
                    None => {
                        let outlier = if random.next().is_multiple_of(1000) { 5.0 } else { 1.0 };
                        limit / 2.0 + random.gaussian() * columns[x] * outlier * limit / 14.0
                    }
                },
            };
            plane.samples[i] = value.clamp(0.0, limit) as u16;
        }
    }
    frame
}

/// Runs a decoder on `stream` and returns what it writes, if it is installed.
fn outside(program: &str, arguments: &[&str], stream: &[u8], name: &str, case: &str) -> Option<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("trinity-h265-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("in.265"), stream).unwrap();
    let run = Command::new(program).args(arguments).current_dir(&folder).output();
    let out = std::fs::read(folder.join("out.yuv"));
    std::fs::remove_dir_all(&folder).unwrap();
    match run {
        Ok(output) => Some(
            out.unwrap_or_else(|_| panic!("{program}, {case}: {}", String::from_utf8_lossy(&output.stderr))),
        ),
        Err(_) => {
            eprintln!("SKIPPED: {program} is not installed");
            None
        }
    }
}

fn ffmpeg_format(chroma: Chroma, depth: u32) -> Option<String> {
    let base = match chroma {
        Chroma::C400 => "gray",
        Chroma::C420 => "yuv420p",
        _ => "yuv444p",
    };
    match depth {
        8 => Some(base.to_string()),
        10 | 12 => Some(format!("{base}{depth}le")),
        // ffmpeg refuses 16 bit.
        _ => None,
    }
}

/// Encodes, and compares our decoder's and the others' pictures with the reconstruction.
pub fn recon_equals_every_decoder(frames: &[Frame], params: &Params, others: bool, name: &str) {
    let coded = encode(frames, params).unwrap();
    let case = || format!("{name}: {params:?}");
    assert_eq!(decode(&coded.stream).unwrap(), coded.recon, "our decoder, {}", case());
    if params.rate == Rate::Lossless {
        for (source, recon) in frames.iter().zip(&coded.recon) {
            for (a, b) in source.planes.iter().zip(&recon.planes) {
                assert!((0..a.height).all(|y| a.row(y) == &b.row(y)[..a.width]), "lossless, {}", case());
            }
        }
    }
    if !others {
        return;
    }
    let mut raw = Vec::new();
    coded.recon.iter().for_each(|frame| frame.write_raw(&mut raw));
    let (chroma, depth) = (frames[0].chroma, frames[0].depth);
    if let Some(format) = ffmpeg_format(chroma, depth) {
        let arguments =
            ["-loglevel", "error", "-i", "in.265", "-pix_fmt", &format, "-f", "rawvideo", "out.yuv"];
        // ffmpeg's tables of a QP's sixths end at 73; libde265 and ours agree (docs/decoders.md).
        let beyond_ffmpeg = depth == 12 && coded.qp > 49.0 && params.rate != Rate::Lossless;
        if !beyond_ffmpeg && let Some(out) = outside("ffmpeg", &arguments, &coded.stream, name, &case()) {
            assert!(out == raw, "ffmpeg, {}", case());
        }
        let arguments = ["-q", "-c", "in.265", "-o", "out.yuv"];
        // dec265 1.0.11 aborts when it writes deep pictures without chroma that
        // the conformance window crops; ffmpeg and ours agree.
        let cropped = !frames[0].width().is_multiple_of(8) || !frames[0].height().is_multiple_of(8);
        let cropped_grey = depth > 8 && chroma == Chroma::C400 && cropped;
        // It also loses Rice statistics between rows of a wavefront; ffmpeg and ours agree.
        let beyond_libde265 = cropped_grey || params.wavefront && params.range_extensions;
        if !beyond_libde265
            && let Some(out) = outside("libde265-dec265", &arguments, &coded.stream, name, &case())
        {
            assert!(out == raw, "libde265, {}", case());
        }
    }
}

pub fn lowest_qp(depth: u32) -> i32 {
    -6 * (depth as i32 - 8)
}

#[test]
fn recon_equals_every_decoder_on_the_grid() {
    let full = std::env::var("TRINITY_GRID").is_ok_and(|v| v == "full");
    let sizes: &[(usize, usize)] =
        if full { &[(1, 1), (7, 5), (64, 64), (130, 70), (1000, 700)] } else { &[(1, 1), (7, 5), (72, 64)] };
    let mut cases = 0;
    for (s, &(width, height)) in sizes.iter().enumerate() {
        for (d, depth) in [8, 10, 12, 16].into_iter().enumerate() {
            for (k, chroma) in [Chroma::C400, Chroma::C420, Chroma::C444].into_iter().enumerate() {
                for (p, preset) in Preset::ALL.into_iter().enumerate() {
                    let low = lowest_qp(depth);
                    let rates = [
                        Rate::Qp(low.into()),
                        Rate::Qp(12.0),
                        Rate::Qp(27.0),
                        Rate::Qp(40.0),
                        Rate::Qp(51.0),
                        Rate::Lossless,
                    ];
                    let count = if full { 2 } else { 1 };
                    for r in 0..count {
                        // Content and rate turn through all their values as the rest does.
                        let turn = s * 5 + d * 3 + k * 11 + p * 7 + r * 3;
                        let (content, rate) = (CONTENTS[turn % CONTENTS.len()], rates[turn % rates.len()]);
                        let frames = [frame(content, width, height, chroma, depth)];
                        let params = Params { rate, preset, threads: 2, ..Params::default() };
                        let others = full || (p == 0 && width > 8);
                        let name = format!("{content:?}-{width}x{height}-{chroma:?}-{depth}-{p}-{r}");
                        recon_equals_every_decoder(&frames, &params, others, &name);
                        cases += 1;
                    }
                }
            }
        }
    }
    assert!(cases >= if full { 400 } else { 140 }, "{cases} cases");
}

#[test]
fn every_thread_count_gives_the_same_bytes() {
    let frames: Vec<Frame> = [Content::Weights, Content::Natural]
        .map(|content| frame(content, 200, 200, Chroma::C420, 8))
        .to_vec();
    for preset in Preset::ALL {
        let streams = [1, 2, 3, 8].map(|threads| {
            let params = Params { rate: Rate::Qp(24.0), preset, threads, ..Params::default() };
            encode(&frames, &params).unwrap().stream
        });
        assert!(streams.iter().all(|s| *s == streams[0]), "{preset:?}");
    }
}

#[test]
fn options_keep_decoders_in_step() {
    for chroma in [Chroma::C400, Chroma::C420, Chroma::C444] {
        let frames = [frame(Content::Natural, 150, 90, chroma, 8), frame(Content::Text, 150, 90, chroma, 8)];
        let base = Params { rate: Rate::Qp(33.0), preset: Preset::Slow, threads: 2, ..Params::default() };
        let deblocked = Params { deblock: true, ..base.clone() };
        recon_equals_every_decoder(&frames, &deblocked, true, &format!("deblock-{chroma:?}"));
        let both = Params { sao: true, deblock: true, ..base.clone() };
        recon_equals_every_decoder(&frames, &both, true, &format!("deblock-sao-{chroma:?}"));
        let sao = Params { sao: true, preset: Preset::Fast, rate: Rate::Bits(0.8), ..base.clone() };
        recon_equals_every_decoder(&frames, &sao, true, &format!("sao-{chroma:?}"));
        let plain = Params { range_extensions: false, wavefront: true, ..base.clone() };
        recon_equals_every_decoder(&frames, &plain, true, &format!("plain-{chroma:?}"));
        let wavefront = Params { wavefront: true, ..base };
        recon_equals_every_decoder(&frames, &wavefront, true, &format!("wavefront-{chroma:?}"));
    }
}

#[test]
fn rate_targets_are_met_closely_and_from_below() {
    let frames = [frame(Content::Weights, 192, 192, Chroma::C400, 8)];
    for bits in [1.5, 2.75, 3.9] {
        let params = Params { rate: Rate::Bits(bits), preset: Preset::Fast, ..Params::default() };
        let coded = encode(&frames, &params).unwrap();
        let reached = coded.bits_per_sample(&frames);
        assert!(reached <= bits && reached > bits * 0.985, "asked for {bits}, got {reached}");
        assert_eq!(decode(&coded.stream).unwrap(), coded.recon);
    }
    for mse in [2.0, 11.5, 60.0] {
        let params = Params { rate: Rate::Mse(mse), preset: Preset::Fast, ..Params::default() };
        let coded = encode(&frames, &params).unwrap();
        assert!(coded.mse <= mse && coded.mse > mse * 0.97, "asked for {mse}, got {}", coded.mse);
    }
}

#[test]
fn a_better_preset_spends_its_time_well() {
    let frames = [frame(Content::Natural, 192, 128, Chroma::C400, 8)];
    let cost = |preset| {
        let params = Params { rate: Rate::Qp(22.0), preset, ..Params::default() };
        let coded = encode(&frames, &params).unwrap();
        coded.bits_per_sample(&frames) + 0.5 * coded.mse.log2()
    };
    assert!(cost(Preset::Best) < cost(Preset::Fast));
}

#[test]
fn what_cannot_be_encoded_is_an_error() {
    let good = frame(Content::Flat, 16, 16, Chroma::C420, 8);
    let at = |rate| Params { rate, ..Params::default() };
    assert!(encode(&[], &Params::default()).is_err());
    assert!(encode(std::slice::from_ref(&good), &at(Rate::Qp(52.0))).is_err());
    assert!(encode(std::slice::from_ref(&good), &at(Rate::Qp(-1.0))).is_err());
    assert!(encode(std::slice::from_ref(&good), &at(Rate::Bits(0.0))).is_err());
    assert!(encode(std::slice::from_ref(&good), &at(Rate::Mse(f64::NAN))).is_err());
    let other = frame(Content::Flat, 24, 16, Chroma::C420, 8);
    assert!(encode(&[good.clone(), other], &Params::default()).is_err());
    let mut broken = good.clone();
    broken.planes[0].samples[3] = 256;
    assert!(encode(&[broken], &Params::default()).is_err());
    let mut short = good;
    short.planes[1].samples.pop();
    assert!(encode(&[short], &Params::default()).is_err());
}
