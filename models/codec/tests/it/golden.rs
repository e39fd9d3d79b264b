//! Streams stay as they are: every profile's and chain's, pinned by hash, and
//! stored ones of every kind that must decode to what they always did.

use std::collections::BTreeMap;
use std::path::PathBuf;
use trinity_numeric::random::Lcg;

use trinity_bits::{Chroma, Colour, Frame};
use trinity_codec::{
    Basis, Coding, Pictures, Profile, Rate, decode, decode_frames, decode_with_basis, decode_words, encode,
    encode_frames, encode_with_basis, encode_words,
};

use crate::{CHAINS, pins, profile};

const ROWS: usize = 96;
const COLS: usize = 80;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/trinity").join(name)
}

fn profiles() -> impl Iterator<Item = (String, Profile)> {
    let built_in = Profile::names().map(|name| (name.to_owned(), profile(name)));
    let chains = CHAINS.iter().filter(|(name, _)| *name != "rdoq");
    built_in.chain(chains.map(|(name, _)| (format!("chain {name}"), profile(name))))
}

/// About Gaussian, with columns of their own scales that have something in
/// common; out of integers, so the same on every machine.
fn values() -> Vec<f32> {
    let mut lcg = Lcg(7);
    let row = |_| {
        let shared = lcg.gaussian();
        (0..COLS).map(|x| (lcg.gaussian() + shared) * (1 + x % 5) as f32 / 64.0).collect::<Vec<f32>>()
    };
    (0..ROWS).flat_map(row).collect()
}

fn pictures(chroma: Chroma, depth: u32, colour: Colour, count: usize) -> Pictures {
    let mut frame = Frame::filled(48, 32, chroma, depth, 0);
    let top = (1u32 << depth) - 1;
    for (c, plane) in frame.planes.iter_mut().enumerate() {
        for i in 0..plane.samples.len() {
            let (x, y) = ((i % plane.width) as u32, (i / plane.width) as u32);
            let noise = (i as u32 + 977 * c as u32).wrapping_mul(2_654_435_761) >> 28;
            let edge = if x + y > 50 { 70 } else { 0 };
            plane.samples[i] = ((3 * x + 2 * y + edge + noise) * top / 320).min(top) as u16;
        }
    }
    Pictures { frames: vec![frame; count], colour }
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn basis() -> Basis {
    Basis::learn(&values(), COLS, 16).unwrap()
}

/// Every stream that is pinned, by name.
fn streams() -> BTreeMap<String, Vec<u8>> {
    let values = values();
    let mut streams = BTreeMap::new();
    for (name, profile) in profiles() {
        for (target_name, target) in [
            ("bits 2.5", Rate::Bits(2.5)),
            ("nmse 0.01", Rate::Nmse(0.01)),
            ("step 0.02", Rate::Step(0.02)),
            ("lossless", Rate::Lossless),
        ] {
            // Some chains cannot go so low; that stays so, too.
            let Ok(coded) = encode(&values, ROWS, COLS, &profile, target) else {
                streams.insert(format!("matrix {name} {target_name}"), Vec::new());
                continue;
            };
            assert_eq!(decode(&coded.bytes).unwrap().values, coded.recon, "{name}, {target_name}");
            streams.insert(format!("matrix {name} {target_name}"), coded.bytes);
        }
        for (what, pictures) in [
            ("grey", pictures(Chroma::C400, 8, Colour::Unstated, 1)),
            ("420 10 bit video", pictures(Chroma::C420, 10, Colour::Unstated, 2)),
            ("rgb", pictures(Chroma::C444, 8, Colour::Gbr, 1)),
        ] {
            for (target_name, target) in [("bits 2", Rate::Bits(2.0)), ("lossless", Rate::Lossless)] {
                let Ok(coded) = encode_frames(&pictures, &profile, target, Coding::Intra) else {
                    streams.insert(format!("pictures {name} {what} {target_name}"), Vec::new());
                    continue;
                };
                assert_eq!(decode_frames(&coded.bytes).unwrap().frames, coded.recon, "{name} {what}");
                streams.insert(format!("pictures {name} {what} {target_name}"), coded.bytes);
            }
        }
    }
    let words: Vec<u32> = (0..(ROWS * COLS) as u32).map(|i| ((i % 300) as f32 - 90.0).to_bits()).collect();
    streams.insert("words".into(), encode_words(&words, ROWS, COLS).unwrap());
    let profile = profile("trinity");
    let coded = encode_with_basis(&values, ROWS, COLS, &profile, Rate::Nmse(0.001), &basis()).unwrap();
    assert!(decode(&coded.bytes).is_err(), "the stream names its basis");
    streams.insert("matrix trinity with a basis".into(), coded.bytes);
    streams.insert("basis".into(), basis().to_bytes());
    let constant = encode(&[3.25; ROWS * COLS], ROWS, COLS, &profile, Rate::Bits(2.0)).unwrap();
    streams.insert("constant".into(), constant.bytes);
    streams
}

/// Streams of today that stay readable.
const STORED: [(&str, &str); 20] = [
    ("matrix trinity bits 2.5", "v2-matrix.tc"),
    ("matrix trinity-static bits 2.5", "v2-matrix-lite.tc"),
    ("matrix trinity-max nmse 0.01", "v2-matrix-max.tc"),
    ("matrix chain binary nmse 0.01", "v2-matrix-binary.tc"),
    ("matrix chain column-mean nmse 0.01", "v2-matrix-static.tc"),
    ("matrix chain klt nmse 0.01", "v2-matrix-klt.tc"),
    ("matrix chain intra nmse 0.01", "v2-matrix-intra.tc"),
    ("matrix chain turned nmse 0.01", "v2-matrix-hadamard.tc"),
    ("matrix chain stated nmse 0.01", "v2-matrix-stated.tc"),
    ("matrix chain stated-columns nmse 0.01", "v2-matrix-stated-columns.tc"),
    ("matrix trinity with a basis", "v2-matrix-basis.tc"),
    ("matrix paper bits 2.5", "v2-paper.tc"),
    ("matrix paper-cabac bits 2.5", "v2-paper-cabac.tc"),
    ("constant", "v2-constant.tc"),
    ("words", "v2-words.tc"),
    ("basis", "v1.basis"),
    ("pictures trinity grey bits 2", "v2-checked-grey.trp"),
    ("pictures trinity 420 10 bit video bits 2", "v2-checked-video.trp"),
    ("pictures lossless rgb lossless", "v2-checked-rgb-exact.trp"),
    ("pictures paper grey bits 2", "paper.264"),
];

#[test]
fn no_stream_changes_by_a_byte() {
    let streams = streams();
    for (name, file) in STORED {
        pins::store(&golden(file), streams.get(name).expect(name));
    }
    let found = streams.into_iter().map(|(name, bytes)| (name, pins::fingerprint(&bytes))).collect();
    pins::hold(&golden("streams.txt"), &found);
}

#[test]
fn stored_streams_decode_to_what_they_always_did() {
    let mut found = BTreeMap::new();
    let basis = Basis::from_bytes(&std::fs::read(golden("v1.basis")).unwrap()).unwrap();
    for entry in std::fs::read_dir(golden("")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let stream = std::fs::read(&path).unwrap();
        let decoded = match path.extension().unwrap().to_str().unwrap() {
            "tc" if name.contains("words") => {
                decode_words(&stream).unwrap().words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
            "tc" => bytes(&decode_with_basis(&stream, &basis).unwrap().values),
            "basis" => Basis::from_bytes(&stream).unwrap().to_bytes(),
            "trp" | "264" => {
                let pictures = decode_frames(&stream).unwrap();
                let mut raw = vec![u8::from(pictures.colour == Colour::Gbr)];
                pictures.frames.iter().for_each(|frame| frame.write_raw(&mut raw));
                raw
            }
            _ => continue,
        };
        found.insert(name, pins::fingerprint(&decoded));
    }
    assert!(found.len() >= STORED.len(), "{found:?}");
    pins::hold(&golden("files.txt"), &found);
}

/// Nothing writes tiles of this kind any more, so no other test damages them.
#[test]
fn a_stored_raw_stream_is_noticed_to_be_cut() {
    let whole = std::fs::read(golden("v2-matrix-raw-dct.tc")).unwrap();
    let (cuts, flips) = if std::env::var_os("TRINITY_TEST_ALL").is_some() { (1, 3) } else { (5, 23) };
    for length in (0..whole.len()).step_by(cuts).chain(whole.len().saturating_sub(64)..whole.len()) {
        assert!(decode(&whole[..length]).is_err(), "{length} of {} bytes", whole.len());
    }
    flipped(&whole, flips, |_, stream| _ = decode(stream));
}

/// Shows a stream with every `step`-th of its bits flipped, one at a time.
fn flipped(whole: &[u8], step: usize, see: impl Fn(usize, &[u8])) {
    for bit in (0..8 * whole.len()).step_by(step) {
        let mut flipped = whole.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        see(bit, &flipped);
    }
}

#[test]
fn no_flipped_bit_of_a_picture_goes_unnoticed() {
    let whole = std::fs::read(golden("v2-checked-grey.trp")).unwrap();
    let decoded = decode_frames(&whole).unwrap();
    flipped(&whole, 1, |bit, stream| {
        // Without its first bytes it is no stream of ours, and holds no frame of H.264 either.
        let other = decode_frames(stream).is_ok_and(|other| other != decoded && !other.frames.is_empty());
        assert!(!other, "bit {bit} makes another picture");
    });
}
