//! The decoder against our own encoder, against other encoders where they are
//! installed, and against damage.

use proptest::prelude::*;
use std::path::Path;
use trinity_bits::{Chroma, Frame};
use trinity_h265::HashCheck;
use trinity_h265::{Coded, Error, Params, Preset, Rate};

/// A frame with smooth, striped and noisy regions.
fn textured(width: usize, height: usize, chroma: Chroma, depth: u32, seed: u32) -> Frame {
    let mut frame = Frame::filled(width, height, chroma, depth, 0);
    let mut state = seed | 1;
    for plane in &mut frame.planes {
        let width = plane.width;
        for (at, sample) in plane.samples.iter_mut().enumerate() {
            let (x, y) = (at % width, at / width);
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = match (x / 16 + y / 16) % 3 {
                0 => x * 3 + y * 2,
                1 => (x / 3 % 2) * 150,
                _ => (state >> 24) as usize,
            };
            *sample = (value * (1 << depth) / 256 % (1 << depth)) as u16;
        }
    }
    frame
}

/// Circles around a corner, another place in each plane: edges of every direction.
fn rings(width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
    let mut frame = Frame::filled(width, height, chroma, depth, 0);
    let (sx, sy) = chroma.shift();
    for (c, plane) in frame.planes.iter_mut().enumerate() {
        let (sx, sy) = if c == 0 { (0, 0) } else { (sx, sy) };
        let width = plane.width;
        for (at, sample) in plane.samples.iter_mut().enumerate() {
            let (x, y) = ((at % width) << sx, (at / width) << sy);
            let radius = (((x + 3).pow(2) + (y + 9).pow(2)) as f64).sqrt();
            *sample = ((0.5 + 0.45 * (radius / 5.0 + c as f64).sin()) * f64::from(1u32 << depth)) as u16;
        }
    }
    frame
}

fn fast(rate: Rate) -> Params {
    Params { rate, preset: Preset::Fast, threads: 1, ..Params::default() }
}

fn two_frames() -> (Vec<Frame>, Vec<u8>) {
    let frames: Vec<_> = (0..2).map(|seed| textured(72, 40, Chroma::C420, 8, seed)).collect();
    let coded = trinity_h265::encode(&frames, &fast(Rate::Qp(30.0))).unwrap();
    (coded.recon, coded.stream)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_we_encode_we_decode_to_the_last_sample(
        width in 1usize..90,
        height in 1usize..70,
        chroma in prop_oneof![Just(Chroma::C400), Just(Chroma::C420), Just(Chroma::C444)],
        depth in 8u32..=16,
        qp in prop_oneof![Just(None), (0i32..51).prop_map(Some)],
        seed in any::<u32>(),
        wavefront in any::<bool>(),
        deblock in any::<bool>(),
    ) {
        let frame = textured(width, height, chroma, depth, seed);
        let rate = qp.map_or(Rate::Lossless, |qp| Rate::Qp(qp.into()));
        let params = Params { wavefront, deblock, ..fast(rate) };
        let coded = trinity_h265::encode(std::slice::from_ref(&frame), &params).unwrap();
        let decoded: Vec<_> = trinity_h265::frames(&coded.stream).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(decoded.len(), 1);
        prop_assert_eq!(decoded[0].hash, HashCheck::Match);
        prop_assert_eq!(&decoded[0].frame, &coded.recon[0]);
    }
}

#[test]
fn every_truncation_is_an_error_that_leaves_the_frames_before_it() {
    let (recon, stream) = two_frames();
    let mut seen = [0; 3];
    for length in 0..stream.len() {
        let (frames, error) = trinity_h265::decode_keep_going(&stream[..length]);
        assert_eq!(frames[..], recon[..frames.len()], "{length}");
        seen[frames.len()] += 1;
        match error {
            Some(Error::Invalid { offset, .. }) => assert!(offset <= length as u64, "{length}: {offset}"),
            Some(Error::NoPicture { bytes }) => assert_eq!(bytes, length),
            Some(other) => panic!("{length}: {other}"),
            // Cut between two pictures, or within what follows the last slice.
            None => assert!(!frames.is_empty(), "{length}"),
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn the_frame_before_a_damaged_one_is_kept() {
    let (frames, stream) = two_frames();
    let whole = trinity_h265::decode(&stream).unwrap();
    assert_eq!(whole.len(), frames.len());
    let starts: Vec<usize> = (0..stream.len() - 4).filter(|&at| stream[at..at + 3] == [0, 0, 1]).collect();
    let is_slice = |at: &usize| (16..=21).contains(&(stream[at + 3] >> 1 & 63));
    let second = starts.into_iter().filter(is_slice).nth(1).unwrap();
    // A header that is none; one that continues a picture; one whose parameter set is missing.
    for (at, byte) in [(second + 3, 0x80 | stream[second + 3]), (second + 5, 0x2f), (second + 5, 0x81)] {
        let mut broken = stream.clone();
        broken[at] = byte;
        let (good, error) = trinity_h265::decode_keep_going(&broken);
        assert!(error.is_some(), "byte {at} as {byte:#x}");
        assert_eq!(good, whole[..1], "byte {at} as {byte:#x}: {error:?}");
    }
}

#[test]
fn flipped_bits_never_panic() {
    let (_, stream) = two_frames();
    for at in 0..stream.len() {
        let mut damaged = stream.clone();
        damaged[at] ^= 1 << (at % 8);
        let _ = trinity_h265::decode_keep_going(&damaged);
    }
}

#[test]
fn a_picture_that_differs_from_its_hash_is_reported() {
    let (_, mut stream) = two_frames();
    // The last byte but the trailing bits belongs to the last MD5.
    let at = stream.len() - 2;
    stream[at] ^= 1;
    let checks: Vec<_> = trinity_h265::frames(&stream).map(|decoded| decoded.unwrap().hash).collect();
    assert_eq!(checks, [HashCheck::Match, HashCheck::Mismatch { component: 2 }]);
}

#[test]
fn no_picture_is_an_error() {
    assert_eq!(trinity_h265::decode(&[]).unwrap_err(), Error::NoPicture { bytes: 0 });
    assert_eq!(trinity_h265::decode(b"not a stream").unwrap_err(), Error::NoPicture { bytes: 12 });
}

#[test]
fn a_huge_picture_in_few_bytes_is_refused_before_it_is_allocated() {
    use trinity_bits::nal;
    use trinity_h265::syntax::{NalType, Pps, SliceHeader, Sps};
    let sps = Sps::new(8192, 8192, Chroma::C444, 16);
    let pps = Pps { init_qp: 26, ..Pps::default() };
    let header = SliceHeader { first_slice_segment_in_pic: true, qp: 26, ..SliceHeader::default() };
    let mut stream = Vec::new();
    for (kind, body) in [
        (NalType::SPS, sps.write()),
        (NalType::PPS, pps.write()),
        (NalType::IDR_N_LP, header.write(NalType::IDR_N_LP, &sps, &pps)),
    ] {
        nal::write_unit(&mut stream, &[&kind.header()[..], &body].concat());
    }
    let error = trinity_h265::decode(&stream).unwrap_err().to_string();
    assert!(error.contains("8192×8192 picture cannot be coded"), "{error}");
}

/// What x265 makes of a frame, all intra, with some options; said aloud where it is missing or does not take them.
fn x265(frame: &Frame, format: &str, options: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.yuv"), folder.path().join("out.265"));
    let mut raw = Vec::new();
    frame.write_raw(&mut raw);
    std::fs::write(&input, &raw).unwrap();
    let (size, depth) = (format!("{}x{}", frame.width(), frame.height()), frame.depth.to_string());
    let encoded = std::process::Command::new("x265")
        .args(["--log-level", "none", "--fps", "25", "--keyint", "1"])
        .args(options.split(' '))
        .args(["--input-res", &size, "--input-csp", format])
        .args(["--input-depth", &depth, "--output-depth", &depth])
        .args([Path::new("--input"), &input, Path::new("-o"), &output])
        .output();
    if !encoded.is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: x265 is missing or does not do {depth} bit {format}");
        return None;
    }
    Some(std::fs::read(&output).unwrap())
}

/// x265 writes all three kinds of picture hash, slices, and its own choice of
/// tools; each picture must agree with the hash sent with it.
#[test]
fn streams_of_x265_agree_with_their_picture_hashes() {
    // CRC on luma alone: x265 3.5 sends wrong ones for chroma, as libde265 finds too.
    let cases = [
        (1, 8, "i420", "--qp 22"),
        (1, 8, "i422", "--qp 22"),
        (1, 12, "i422", "--qp 22"),
        (2, 8, "i400", "--qp 22"),
        (2, 10, "i400", "--qp 22"),
        (3, 8, "i444", "--qp 22"),
        (3, 10, "i420", "--qp 22"),
        // Where ffmpeg or libde265 differ (docs/decoders.md), the encoder's hash decides.
        (1, 8, "i444", "--qp 51 --ipratio 1"),
        (1, 12, "i444", "--qp 51 --ipratio 1"),
        (1, 8, "i444", "--qp 32 --tskip --scaling-list default"),
        (1, 12, "i444", "--qp 32 --tskip --scaling-list default"),
        // Quantization groups smaller than a CTU, chroma offsets, coding units without loss.
        (1, 8, "i420", "--crf 30 --aq-mode 3 --cbqpoffs 5 --crqpoffs -4 --qg-size 16"),
        (1, 10, "i420", "--qp 20 --cu-lossless --tskip --rd 6"),
    ];
    for (hash, depth, chroma, options) in cases {
        let format = match chroma {
            "i400" => Chroma::C400,
            "i420" => Chroma::C420,
            "i422" => Chroma::C422,
            _ => Chroma::C444,
        };
        let options = format!("--preset medium --slices 1 --hash {hash} {options}");
        let Some(stream) = x265(&rings(136, 72, format, depth), chroma, &options) else { continue };
        let checks: Vec<_> = trinity_h265::frames(&stream).map(|decoded| decoded.unwrap().hash).collect();
        assert_eq!(checks, [HashCheck::Match], "{depth} bit, {chroma}, {options}");
    }
}

/// Found by fuzzing: blocks below a slice that never came asked for its deblocking settings.
#[test]
fn a_lost_slice_is_an_error() {
    let frame = textured(128, 512, Chroma::C420, 8, 5);
    let options = "--qp 22 --preset ultrafast --slices 4 --ctu 32";
    let Some(stream) = x265(&frame, "i420", options) else { return };
    let units: Vec<_> = trinity_bits::nal::units(&stream).map(|unit| unit.bytes).collect();
    // nal_unit_type below 32 is a slice segment.
    let slices: Vec<usize> = (0..units.len()).filter(|&n| units[n][0] >> 1 < 32).collect();
    assert!(slices.len() >= 3, "x265 made {} slices", slices.len());
    for &lost in &slices {
        let kept = units.iter().enumerate().filter(|&(n, _)| n != lost);
        let rest: Vec<u8> = kept.flat_map(|(_, unit)| [&[0, 0, 1], *unit].concat()).collect();
        assert!(trinity_h265::decode(&rest).is_err(), "slice {lost} lost");
    }
}

/// Three pictures of luma alone as the colour planes of one (no encoder at
/// hand writes separate_colour_plane_flag).
fn with_separate_planes(planes: &[Coded]) -> Vec<u8> {
    use trinity_bits::nal;
    use trinity_h265::syntax::{NalHeader, NalType, Pps, SliceHeader, Sps};
    let mut stream = Vec::new();
    let (mut sps, mut pps) = (None, None);
    for (plane, coded) in planes.iter().enumerate() {
        for unit in nal::units(&coded.stream) {
            let kind = NalHeader::parse(unit.bytes).unwrap().nal_type;
            let rbsp = nal::unescape(&unit.bytes[2..]);
            let mut out = unit.bytes[..2].to_vec();
            if kind.is_slice() {
                let (alone, pps): (&Sps, &Pps) = (sps.as_ref().unwrap(), pps.as_ref().unwrap());
                let (mut header, start) = SliceHeader::parse(&rbsp, kind, alone, pps, None).unwrap();
                header.first_slice_segment_in_pic = plane == 0;
                header.colour_plane_id = plane as u8;
                out.extend(header.write(kind, &together(alone), pps));
                out.extend(&rbsp[start..]);
            } else if plane > 0 {
                continue;
            } else if kind == NalType::SPS {
                let alone = Sps::parse(&rbsp).unwrap();
                out.extend(together(&alone).write());
                sps = Some(alone);
            } else {
                if kind == NalType::PPS {
                    pps = Some(Pps::parse(&rbsp).unwrap());
                }
                out.extend(rbsp);
            }
            nal::write_unit(&mut stream, &out);
        }
    }
    stream
}

fn together(alone: &trinity_h265::syntax::Sps) -> trinity_h265::syntax::Sps {
    trinity_h265::syntax::Sps { chroma: Chroma::C444, separate_colour_plane: true, ..alone.clone() }
}

#[test]
fn colour_planes_coded_apart_make_one_picture() {
    for (rate, size) in [(Rate::Qp(24.0), (72, 40)), (Rate::Lossless, (200, 130))] {
        let planes: Vec<_> = (0..3)
            .map(|seed| {
                let frame = textured(size.0, size.1, Chroma::C400, 8, 7 + seed);
                let params = Params { picture_hash: false, ..fast(rate) };
                trinity_h265::encode(&[frame], &params).unwrap()
            })
            .collect();
        let stream = with_separate_planes(&planes);
        let decoded = trinity_h265::decode(&stream).unwrap();
        assert_eq!(decoded.len(), 1);
        assert_eq!(decoded[0].chroma, Chroma::C444);
        for (plane, coded) in decoded[0].planes.iter().zip(&planes) {
            assert!(plane == &coded.recon[0].planes[0], "a plane differs at {rate:?}");
        }
        let cut = trinity_h265::decode(&stream[..stream.len() - stream.len() / 4]);
        assert!(cut.is_err(), "a picture without its last plane is complete at {rate:?}");
    }
}
