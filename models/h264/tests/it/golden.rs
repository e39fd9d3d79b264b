//! Streams stay as they are: every preset's, pinned by hash, and stored ones
//! that must decode to what they always did.

use trinity_bits::{Chroma, Frame};
use trinity_h264::{Entropy, Params, Preset, Rate, decode, encode};

#[path = "../../../bits/tests/support/streams.rs"]
mod streams;
use streams::{Case, RATES, frame};

/// Streams of today that stay readable.
const STORED: [(&str, &str); 6] = [
    ("medium cabac qp 22", "grey.264"),
    ("best cavlc 444 10 bit", "444-10bit-cavlc.264"),
    ("fast cabac lossless", "lossless.264"),
    ("three slices", "slices-420.264"),
    ("deblock", "deblock-420.264"),
    ("deblock bits 0.7", "deblock-bits.264"),
];

/// Every preset at every kind of rate and with either entropy coder, every chroma format, and
/// each option on its own.
fn cases() -> Vec<Case<Params>> {
    let mut cases = Vec::new();
    let mut add = |name: String, frame: Frame, params: Params| {
        cases.push((name, vec![frame], Params { threads: 1, ..params }));
    };
    for preset in Preset::ALL {
        for (coder, entropy) in [("cavlc", Entropy::Cavlc), ("cabac", Entropy::Cabac)] {
            let base = Params { preset, entropy, ..Params::default() };
            for (rate_name, rate) in RATES {
                let name = format!("{} {coder} {rate_name}", preset.name());
                add(name, frame(80, 72, Chroma::C400, 8), Params { rate, ..base.clone() });
            }
            for (chroma_name, chroma) in [("420", Chroma::C420), ("444", Chroma::C444)] {
                let name = format!("{} {coder} {chroma_name} 10 bit", preset.name());
                add(name, frame(48, 40, chroma, 10), Params { rate: Rate::Qp(30.0), ..base.clone() });
            }
        }
    }
    let base = Params { rate: Rate::Qp(30.0), ..Params::default() };
    let odd = || frame(67, 51, Chroma::C420, 8);
    add("deblock".into(), odd(), Params { deblock: true, ..base.clone() });
    add("three slices".into(), odd(), Params { slices: 3, ..base.clone() });
    add("second of a stream".into(), odd(), Params { first_index: 1, ..base.clone() });
    // The loop filter where QPs change from macroblock to macroblock.
    for (name, rate) in [("bits 0.7", Rate::Bits(0.7)), ("mse 30", Rate::Mse(30.0))] {
        for (options, entropy, slices) in
            [("deblock", Entropy::Cabac, 1), ("deblock cavlc three slices", Entropy::Cavlc, 3)]
        {
            let params = Params { rate, entropy, slices, deblock: true, ..base.clone() };
            add(format!("{options} {name}"), frame(80, 72, Chroma::C420, 8), params);
        }
    }
    cases
}

#[test]
fn no_stream_changes_by_a_byte() {
    streams::hold_streams(cases(), &STORED, encode, decode);
}

#[test]
fn stored_streams_decode_to_what_they_always_did() {
    streams::hold_files("264", decode);
}
