//! The encoder against two decoders: its reconstruction equals what our
//! decoder and ffmpeg (where it is installed) make of the stream.

use crate::content::Content;
use crate::decoders::{assert_lossless, outside, raw};
use trinity_bits::{Chroma, Frame};
use trinity_h264::{Coded, Entropy, Params, Preset, Rate, decode, encode};

/// One case, printed when it fails.
#[derive(Debug, Clone)]
pub struct Case {
    pub content: Content,
    pub size: (usize, usize),
    pub chroma: Chroma,
    pub depth: u32,
    pub params: Params,
}

/// What ffmpeg decodes, luma alone for 4:0:0, which it shows as 4:2:0.
fn ffmpeg(coded: &Coded, case: &str) -> Option<Vec<u8>> {
    let arguments = ["-v", "error", "-threads", "1", "-f", "h264", "-i", "in", "-fps_mode", "passthrough"];
    let arguments = [&arguments[..], &["-f", "rawvideo", "out.yuv"]].concat();
    let shown = outside("ffmpeg", &arguments, &coded.stream, case)?;
    let first = &coded.recon[0];
    if first.chroma != Chroma::C400 {
        return Some(shown);
    }
    let luma = first.samples() * if first.depth > 8 { 2 } else { 1 };
    Some(shown.chunks(shown.len() / coded.recon.len()).flat_map(|frame| frame[..luma].to_vec()).collect())
}

pub fn check(case: &Case) {
    let frames = [case.content.frame(case.size.0, case.size.1, case.chroma, case.depth)];
    let coded = encode(&frames, &case.params).unwrap();
    assert_eq!(decode(&coded.stream).unwrap(), coded.recon, "our decoder: {case:?}");
    if case.params.rate == Rate::Lossless {
        assert_lossless(&frames, &coded.recon, &format!("{case:?}"));
    }
    // ffmpeg has no pixel format for these.
    let foreign = matches!(case.depth, 11 | 13) || case.chroma == Chroma::C400 && case.depth > 10;
    if !foreign && let Some(shown) = ffmpeg(&coded, &format!("{case:?}")) {
        assert!(shown == raw(&coded.recon), "ffmpeg: {case:?}");
    }
}

/// Every content, size, depth, chroma format, entropy coder and preset, at QPs
/// from the lowest to the highest, walked so that each pair meets.
pub fn cases() -> Vec<Case> {
    let sizes = [(1, 1), (7, 5), (16, 16), (64, 64), (33, 50), (90, 24)];
    let formats = [
        (Chroma::C400, 8),
        (Chroma::C420, 8),
        (Chroma::C444, 8),
        (Chroma::C400, 10),
        (Chroma::C420, 10),
        (Chroma::C444, 12),
        (Chroma::C420, 14),
        (Chroma::C400, 12),
    ];
    let mut cases = Vec::new();
    for (i, content) in Content::ALL.into_iter().enumerate() {
        for (j, size) in sizes.into_iter().enumerate() {
            for (k, (chroma, depth)) in formats.into_iter().enumerate() {
                let at = (i * sizes.len() + j) * formats.len() + k;
                let lowest = -6 * (depth as i32 - 8);
                let rate = match at % 7 {
                    0 => Rate::Lossless,
                    1 => Rate::Qp(lowest.into()),
                    2 => Rate::Qp(51.0),
                    step => Rate::Qp((7 * step + i) as f64),
                };
                let entropy = if (at / 3) % 2 == 0 { Entropy::Cabac } else { Entropy::Cavlc };
                let preset = Preset::ALL[(at / 2 + i) % 4];
                let params = Params {
                    rate,
                    preset,
                    threads: 1,
                    entropy,
                    deblock: at % 5 == 4,
                    slices: 1 + at % 3,
                    ..Params::default()
                };
                cases.push(Case { content, size, chroma, depth, params });
            }
        }
    }
    cases
}

#[test]
fn reconstruction_equals_every_decoder_over_the_grid() {
    let cases = cases();
    assert!(cases.len() >= 200, "{} cases", cases.len());
    let all = std::env::var_os("TRINITY_TEST_ALL").is_some();
    // Half of them, out of step with every period in which settings come round.
    for (_, case) in cases.iter().enumerate().filter(|(at, _)| all || at * 37 % 101 < 50) {
        check(case);
    }
}

#[test]
fn a_large_frame_equals_every_decoder() {
    let params = Params { rate: Rate::Qp(28.0), preset: Preset::Fast, threads: 1, ..Params::default() };
    let case = Case { content: Content::Natural, size: (1000, 700), chroma: Chroma::C400, depth: 8, params };
    check(&case);
}

#[test]
fn bytes_do_not_depend_on_threads() {
    let frames: Vec<Frame> =
        Content::ALL[..3].iter().map(|content| content.frame(80, 64, Chroma::C420, 8)).collect();
    let run = |threads| {
        let params = Params { rate: Rate::Qp(22.0), threads, slices: 2, ..Params::default() };
        encode(&frames, &params).unwrap()
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(5));
    assert_eq!(decode(&one.stream).unwrap(), one.recon);
}

#[test]
fn rate_targets_are_met_between_whole_qps() {
    let frame = Content::Weights.frame(160, 160, Chroma::C400, 8);
    for target in [1.7, 2.345, 3.21] {
        let params =
            Params { rate: Rate::Bits(target), preset: Preset::Fast, threads: 1, ..Params::default() };
        let coded = encode(std::slice::from_ref(&frame), &params).unwrap();
        let bits = coded.stream.len() as f64 * 8.0 / frame.samples() as f64;
        assert!((bits / target - 1.0).abs() < 0.01, "{bits} bits per value, asked for {target}");
    }
    let params = Params { rate: Rate::Mse(3.0), preset: Preset::Fast, threads: 1, ..Params::default() };
    let coded = encode(std::slice::from_ref(&frame), &params).unwrap();
    let error = trinity_bits::mean_squared_error(std::slice::from_ref(&frame), &coded.recon);
    assert!((error / 3.0 - 1.0).abs() < 0.02, "mean squared error {error}, asked for 3");
}

#[test]
fn bad_frames_and_settings_are_refused() {
    let frame = Frame::filled(16, 16, Chroma::C400, 8, 1);
    let refuse = |frames: &[Frame], rate| encode(frames, &Params { rate, ..Params::default() }).unwrap_err();
    refuse(&[], Rate::Qp(20.0));
    refuse(std::slice::from_ref(&frame), Rate::Qp(52.0));
    refuse(std::slice::from_ref(&frame), Rate::Qp(-1.0));
    refuse(std::slice::from_ref(&frame), Rate::Bits(f64::NAN));
    refuse(&[frame.clone(), Frame::filled(32, 16, Chroma::C400, 8, 1)], Rate::Qp(20.0));
    refuse(&[Frame::filled(16, 16, Chroma::C400, 8, 256)], Rate::Qp(20.0));
    refuse(&[Frame::filled(16, 16, Chroma::C422, 8, 1)], Rate::Qp(20.0));
    refuse(&[Frame::filled(16, 16, Chroma::C400, 16, 1)], Rate::Qp(20.0));
}
