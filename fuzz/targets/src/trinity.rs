//! Any bytes as a stream of the Trinity codec (matrices, words) and as a
//! basis; and damage to streams of every chain of stages.

use std::sync::LazyLock;

use trinity_codec::{Basis, Profile, Rate, encode, encode_words};

use crate::RunOutcome;
use crate::damage::{bytes_of, seeds_of, values};

/// Stages of chains beyond the profiles that come with the codec.
const CHAINS: [&str; 11] = [
    "entropy = [\"binary\"]",
    "entropy = [\"raw\"]\ntransform = [\"dct-8x8\"]\nprediction = [\"row-mean\"]",
    "prediction = [\"row-and-column-mean\"]",
    "prediction = [\"column-mean\"]\nentropy = [\"static\"]\nquantization = \"rdoq\"",
    "prediction = [\"above-12\"]\nquantization = \"dead-zone\"",
    "transform = [\"klt-16\"]",
    "prediction = [\"intra\"]\ntransform = [\"dct-8x8\"]",
    "prediction = [\"intra\"]\ntransform = [\"dst-4x4\"]\nquantization = \"rdoq\"",
    "preconditioning = [\"hadamard-32\"]\ntransform = [\"hadamard-16\"]",
    "preconditioning = [\"stated-16\"]",
    "preconditioning = [\"stated-columns-8\"]\ntransform = [\"klt-16\"]",
];
const ROWS: usize = 40;
const COLS: usize = 48;

/// Profiles that come with the codec, and chains beyond them.
pub fn profiles() -> Vec<Profile> {
    let head = "name = \"chain\"\ndescription = \"\"\npipeline = \"trinity\"\n[stages]\n";
    let built_in = Profile::names().filter_map(|name| Profile::named(name).ok());
    let chains = CHAINS.iter().filter_map(|stages| Profile::parse(&format!("{head}{stages}")).ok());
    built_in.chain(chains).collect()
}

/// A stream of every profile, of words, of a constant, and a basis.
static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let values = values(ROWS * COLS);
    let code = |profile: &Profile| encode(&values, ROWS, COLS, profile, Rate::Nmse(0.03));
    let mut streams: Vec<Vec<u8>> =
        profiles().iter().map(|profile| code(profile).map(|coded| coded.bytes).unwrap_or_default()).collect();
    let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    streams.push(encode_words(&words, ROWS, COLS).unwrap_or_default());
    streams.push(Basis::learn(&values, COLS, 16).map(|basis| basis.to_bytes()).unwrap_or_default());
    streams
});

/// Every stream as it is, and by its number without damage.
pub fn seeds() -> Vec<Vec<u8>> {
    seeds_of(&STREAMS)
}

pub fn run(input: &[u8]) -> RunOutcome {
    read(&bytes_of(input, &STREAMS))
}

fn read(bytes: &[u8]) -> RunOutcome {
    let matrix = trinity_codec::decode(bytes).is_ok();
    let words = trinity_codec::decode_words(bytes).is_ok();
    let basis = Basis::from_bytes(bytes).is_ok();
    if matrix || words || basis {
        return RunOutcome::Accepted;
    }
    // Behind the magic and the version, whatever is wrong was found by a decoder.
    let known = [&b"TC\x20"[..], b"TC\x21", b"TC\x23", b"TB\x01"];
    if known.iter().any(|start| bytes.starts_with(start)) { RunOutcome::Reached } else { RunOutcome::Refused }
}
