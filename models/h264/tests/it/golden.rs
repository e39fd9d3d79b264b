//! Streams stay as they are: every preset's, pinned by hash, and stored ones
//! that must decode to what they always did.

use std::collections::BTreeMap;
use std::path::PathBuf;

use trinity_coding::{Chroma, Frame};
use trinity_h264::{Entropy, Params, Preset, Rate, decode, encode};

#[path = "../../../coding/tests/support/pins.rs"]
mod pins;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Streams of today that stay readable.
const STORED: [(&str, &str); 5] = [
    ("medium cabac qp 22", "grey.264"),
    ("best cavlc 444 10 bit", "444-10bit-cavlc.264"),
    ("fast cabac lossless", "lossless.264"),
    ("three slices", "slices-420.264"),
    ("deblock", "deblock-420.264"),
];

/// A ramp, an edge and some noise, out of integers alone: the same on every machine.
fn frame(width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
    let mut frame = Frame::filled(width, height, chroma, depth, 0);
    let top = (1u32 << depth) - 1;
    for (c, plane) in frame.planes.iter_mut().enumerate() {
        for i in 0..plane.samples.len() {
            let (x, y) = ((i % plane.width) as u32, (i / plane.width) as u32);
            let noise = (i as u32 + 977 * c as u32).wrapping_mul(2_654_435_761) >> 27;
            let ramp = (3 * x + 2 * y + 20 * c as u32) % 200 + noise;
            let edge = if (x / 9 + y / 13).is_multiple_of(3) { 60 } else { 0 };
            plane.samples[i] = ((ramp + edge) * top / 300).min(top) as u16;
        }
    }
    frame
}

/// Every preset at every kind of rate and with either entropy coder, every chroma format, and
/// each option on its own.
fn cases() -> Vec<(String, Vec<Frame>, Params)> {
    let mut cases = Vec::new();
    let mut add = |name: String, frame: Frame, params: Params| {
        cases.push((name, vec![frame], Params { threads: 1, ..params }));
    };
    for preset in Preset::ALL {
        for (coder, entropy) in [("cavlc", Entropy::Cavlc), ("cabac", Entropy::Cabac)] {
            let base = Params { preset, entropy, ..Params::default() };
            let rates = [("qp 22", Rate::Qp(22)), ("qp 37", Rate::Qp(37)), ("bits 2", Rate::Bits(2.0))];
            let more = [("mse 30", Rate::Mse(30.0)), ("lossless", Rate::Lossless)];
            for (rate_name, rate) in rates.into_iter().chain(more) {
                let name = format!("{} {coder} {rate_name}", preset.name());
                add(name, frame(80, 72, Chroma::C400, 8), Params { rate, ..base.clone() });
            }
            for (chroma_name, chroma) in [("420", Chroma::C420), ("444", Chroma::C444)] {
                let name = format!("{} {coder} {chroma_name} 10 bit", preset.name());
                add(name, frame(48, 40, chroma, 10), Params { rate: Rate::Qp(30), ..base.clone() });
            }
        }
    }
    let base = Params { rate: Rate::Qp(30), ..Params::default() };
    let odd = || frame(67, 51, Chroma::C420, 8);
    add("deblock".into(), odd(), Params { deblock: true, ..base.clone() });
    add("three slices".into(), odd(), Params { slices: 3, ..base.clone() });
    add("second of a stream".into(), odd(), Params { first_index: 1, ..base });
    cases
}

#[test]
fn no_stream_changes_by_a_byte() {
    let found: BTreeMap<String, String> = cases()
        .into_iter()
        .map(|(name, frames, params)| {
            let coded = encode(&frames, &params).unwrap();
            assert_eq!(decode(&coded.stream).unwrap(), coded.recon, "{name}");
            for (_, file) in STORED.iter().filter(|(stored, _)| *stored == name) {
                pins::store(&golden(file), &coded.stream);
            }
            (name, pins::fingerprint(&coded.stream))
        })
        .collect();
    pins::hold(&golden("streams.txt"), &found);
}

#[test]
fn stored_streams_decode_to_what_they_always_did() {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(golden("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "264") {
            let mut raw = Vec::new();
            decode(&std::fs::read(&path).unwrap())
                .unwrap()
                .iter()
                .for_each(|frame| frame.write_raw(&mut raw));
            found.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), pins::fingerprint(&raw));
        }
    }
    assert!(found.len() >= 4, "{found:?}");
    pins::hold(&golden("files.txt"), &found);
}
