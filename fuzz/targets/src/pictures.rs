//! Any bytes as a stream of pictures (`.trp`), and damage to streams that the
//! writer made.

use std::sync::LazyLock;

use trinity_bits::{Chroma, Colour, Frame};
use trinity_codec::{Coding, Pictures, Profile, Rate, decode_frames, encode_frames};

use crate::RunOutcome;
use crate::damage::{bytes_of, crc, seeds_of};

static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut streams = Vec::new();
    for (chroma, depth, colour) in [
        (Chroma::C400, 8, Colour::Unstated),
        (Chroma::C420, 10, Colour::Unstated),
        (Chroma::C444, 8, Colour::Gbr),
    ] {
        let mut frame = Frame::filled(24, 16, chroma, depth, 0);
        for plane in &mut frame.planes {
            for i in 0..plane.samples.len() {
                let noise = ((i as u32).wrapping_mul(2_654_435_761) >> 28) as usize;
                plane.samples[i] = (5 * (i % plane.width) + 3 * (i / plane.width) + noise) as u16 & 255;
            }
        }
        let pictures = Pictures { frames: vec![frame; 2], colour };
        for name in ["trinity", "trinity-static", "lossless"] {
            let target = if name == "lossless" { Rate::Lossless } else { Rate::Nmse(0.002) };
            let coded = Profile::named(name)
                .and_then(|profile| encode_frames(&pictures, &profile, target, Coding::Intra));
            streams.push(coded.map(|coded| coded.bytes).unwrap_or_default());
        }
    }
    streams
});

pub fn seeds() -> Vec<Vec<u8>> {
    seeds_of(&STREAMS)
}

pub fn run(input: &[u8]) -> RunOutcome {
    read(&bytes_of(input, &STREAMS))
}

fn read(bytes: &[u8]) -> RunOutcome {
    // A checksum put right lets damage through to the decoder.
    let mut bytes = bytes.to_vec();
    if let Some((head, checked)) =
        bytes.split_at_mut_checked(7).filter(|(head, _)| head.starts_with(b"TC\x24"))
    {
        head[3..].copy_from_slice(&crc(checked).to_le_bytes());
    }
    let bytes = &bytes[..];
    // Other bytes are taken for H.264, which has a target of its own.
    if !bytes.starts_with(b"TC") {
        return RunOutcome::Refused;
    }
    match decode_frames(bytes) {
        Ok(_) => RunOutcome::Accepted,
        Err(trinity_codec::Error::NotTrinity { .. }) => RunOutcome::Refused,
        Err(_) => RunOutcome::Reached,
    }
}
