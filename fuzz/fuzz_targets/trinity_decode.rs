//! Any bytes as a stream of the Trinity codec (matrices, words, pictures) and
//! as a basis; and damage to streams of every chain of stages, since an input
//! would hardly guess a header.
#![no_main]

use std::sync::LazyLock;

use trinity_codec::{Profile, Target, encode};

/// Stages of chains beyond the profiles that come with the codec.
const CHAINS: [&str; 9] = [
    "entropy = [\"binary\"]",
    "entropy = [\"raw\"]\ntransform = [\"dct-8x8\"]\nprediction = [\"row-mean\"]",
    "prediction = [\"row-and-column-mean\"]",
    "prediction = [\"column-mean\"]\nentropy = [\"static\"]\nquantization = \"rdoq\"",
    "prediction = [\"above-12\"]\nquantization = \"dead-zone\"",
    "transform = [\"klt-16\"]",
    "prediction = [\"intra\"]\ntransform = [\"dct-8x8\"]",
    "prediction = [\"intra\"]\ntransform = [\"dst-4x4\"]\nquantization = \"rdoq\"",
    "preconditioning = [\"hadamard-32\"]\ntransform = [\"hadamard-16\"]",
];
const ROWS: usize = 40;
const COLS: usize = 48;

static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let values: Vec<f32> = (0..(ROWS * COLS) as u32)
        .map(|i| (i as f32 * 0.11).sin() + (i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65536.0)
        .collect();
    let head = "name = \"chain\"\ndescription = \"\"\npipeline = \"trinity\"\n[stages]\n";
    let built_in = Profile::names().map(|name| Profile::named(name).unwrap());
    let chains = CHAINS.iter().map(|stages| Profile::parse(&format!("{head}{stages}")).unwrap());
    built_in
        .chain(chains)
        .map(|profile| encode(&values, ROWS, COLS, &profile, Target::Nmse(0.03)).unwrap().bytes)
        .collect()
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    read(input);
    if let [which, changes @ ..] = input {
        read(&damaged(&STREAMS[usize::from(*which) % STREAMS.len()], changes));
    }
});

fn read(bytes: &[u8]) {
    let _ = trinity_codec::decode(bytes);
    let _ = trinity_codec::decode_words(bytes);
    let _ = trinity_codec::Basis::from_bytes(bytes);
    if bytes.starts_with(b"TC") {
        let _ = trinity_codec::decode_frames(bytes);
    }
}

/// A stream with every three bytes of an input as one change: a place, then
/// bits to flip.
fn damaged(whole: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut stream = whole.to_vec();
    for &[low, high, value] in changes.as_chunks::<3>().0 {
        let place = usize::from(u16::from_le_bytes([low, high])) % stream.len();
        if value == 0 {
            stream.truncate(place.max(1));
        } else {
            stream[place] ^= value;
        }
    }
    stream
}
