//! Streams stay as they are: every preset's, pinned by hash, and stored ones
//! that must decode to what they always did.

use trinity_bits::{Chroma, Frame};
use trinity_h265::{Params, Preset, Rate, decode, encode};

#[path = "../../../bits/tests/support/streams.rs"]
mod streams;
use streams::{Case, RATES, frame};

/// Streams of today that stay readable.
const STORED: [(&str, &str); 7] = [
    ("medium qp 22", "grey.265"),
    ("best 444 10 bit", "444-10bit.265"),
    ("fast lossless", "lossless.265"),
    ("wavefront", "wavefront-420.265"),
    ("sao", "sao-420.265"),
    ("deblock", "deblock-420.265"),
    ("islands deblock mse 40", "deblock-mse.265"),
];

/// Every preset at every kind of rate, every chroma format, and each option on its own.
fn cases() -> Vec<Case<Params>> {
    let mut cases = Vec::new();
    let mut add = |name: String, frame: Frame, params: Params| {
        cases.push((name, vec![frame], Params { threads: 1, ..params }));
    };
    for preset in Preset::ALL {
        for (rate_name, rate) in RATES {
            let name = format!("{} {rate_name}", preset.name());
            add(name, frame(80, 72, Chroma::C400, 8), Params { rate, preset, ..Params::default() });
        }
        for (chroma_name, chroma) in [("420", Chroma::C420), ("444", Chroma::C444)] {
            let params = Params { preset, rate: Rate::Qp(30.0), ..Params::default() };
            add(format!("{} {chroma_name} 10 bit", preset.name()), frame(48, 40, chroma, 10), params);
        }
    }
    let base = Params { preset: Preset::Medium, rate: Rate::Qp(30.0), ..Params::default() };
    let odd = || frame(67, 51, Chroma::C420, 8);
    add("deblock".into(), odd(), Params { deblock: true, ..base.clone() });
    add("sao".into(), odd(), Params { sao: true, ..base.clone() });
    add("wavefront".into(), odd(), Params { wavefront: true, ..base.clone() });
    add("version 1 tools".into(), odd(), Params { range_extensions: false, ..base.clone() });
    add("no hash".into(), odd(), Params { picture_hash: false, ..base.clone() });
    // Loop filters where QPs change from CTU to CTU, and inside some.
    for (name, rate) in [("bits 0.3", Rate::Bits(0.3)), ("mse 40", Rate::Mse(40.0))] {
        for (options, sao, wavefront) in
            [("deblock", false, false), ("deblock sao", true, false), ("deblock wavefront", false, true)]
        {
            let params = Params { rate, preset: Preset::Fast, deblock: true, sao, wavefront, ..base.clone() };
            add(format!("islands {options} {name}"), islands(200, 136), params);
        }
    }
    cases
}

/// Flat but for the last quarter of each CTU.
fn islands(width: usize, height: usize) -> Frame {
    let mut busy = frame(width, height, Chroma::C420, 8);
    for (c, plane) in busy.planes.iter_mut().enumerate() {
        let half = if c == 0 { 32 } else { 16 };
        for (i, sample) in plane.samples.iter_mut().enumerate() {
            let (x, y) = (i % plane.width, i / plane.width);
            if x & half == 0 || y & half == 0 {
                *sample = 90 + 2 * ((x / (half / 2) * 7 + y / (half / 2) * 3) % 5) as u16;
            }
        }
    }
    busy
}

#[test]
fn no_stream_changes_by_a_byte() {
    streams::hold_streams(cases(), &STORED, encode, decode);
}

#[test]
fn stored_streams_decode_to_what_they_always_did() {
    streams::hold_files("265", decode);
}
