//! How both standards' codecs pin their streams, and the frames they pin.
//! Their tests include this file by its path.

use std::collections::BTreeMap;
use std::path::Path;

use trinity_bits::{Chroma, CodecError, Coded, Frame, Rate};

#[path = "pins.rs"]
mod pins;

/// A ramp, an edge and some noise, out of integers alone: the same on every machine.
pub fn frame(width: usize, height: usize, chroma: Chroma, depth: u32) -> Frame {
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

/// Kinds of rate that every preset is pinned at.
pub const RATES: [(&str, Rate); 5] = [
    ("qp 22", Rate::Qp(22.0)),
    ("qp 37", Rate::Qp(37.0)),
    ("bits 2", Rate::Bits(2.0)),
    ("mse 30", Rate::Mse(30.0)),
    ("lossless", Rate::Lossless),
];

/// Of the crate whose tests these are.
fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))
}

/// One encode of a codec: its name, its frames, and how they are asked for.
pub type Case<P> = (String, Vec<Frame>, P);

/// A decoder of whole streams.
type Decode = fn(&[u8]) -> Result<Vec<Frame>, CodecError>;

/// Every case's stream decodes to its reconstruction and is the one that is
/// pinned; `stored` are those kept as files, by the case's name.
pub fn hold_streams<P>(
    cases: Vec<Case<P>>,
    stored: &[(&str, &str)],
    encode: fn(&[Frame], &P) -> Result<Coded, CodecError>,
    decode: Decode,
) {
    let found: BTreeMap<String, String> = cases
        .into_iter()
        .map(|(name, frames, params)| {
            let coded = encode(&frames, &params).unwrap();
            assert_eq!(decode(&coded.stream).unwrap(), coded.recon, "{name}");
            for (_, file) in stored.iter().filter(|(stored, _)| *stored == name) {
                pins::store(&folder().join(file), &coded.stream);
            }
            (name, pins::fingerprint(&coded.stream))
        })
        .collect();
    pins::hold(&folder().join("streams.txt"), &found);
}

/// Every stored stream decodes to what it always did.
pub fn hold_files(ending: &str, decode: Decode) {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|found| found == ending) {
            let mut raw = Vec::new();
            decode(&std::fs::read(&path).unwrap())
                .unwrap()
                .iter()
                .for_each(|frame| frame.write_raw(&mut raw));
            found.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), pins::fingerprint(&raw));
        }
    }
    assert!(found.len() >= 4, "{found:?}");
    pins::hold(&folder().join("files.txt"), &found);
}
