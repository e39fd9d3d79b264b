//! Streams cut short or with bytes changed: an error that names the place, or
//! the frames that are whole; never a panic.

use crate::content::Content;
use trinity_bits::Chroma;
use trinity_h264::{Entropy, Error, Params, Preset, Rate, decode, decode_keep_going, encode};
use trinity_numeric::random::Lcg;

fn streams() -> Vec<Vec<u8>> {
    [Entropy::Cabac, Entropy::Cavlc]
        .into_iter()
        .map(|entropy| {
            let frames = [
                Content::Natural.frame(48, 32, Chroma::C420, 8),
                Content::Text.frame(48, 32, Chroma::C420, 8),
            ];
            let params = Params { rate: Rate::Qp(24.0), preset: Preset::Fast, entropy, ..Params::default() };
            encode(&frames, &params).unwrap().stream
        })
        .collect()
}

#[test]
fn every_truncation_is_an_error_or_whole_frames() {
    for stream in streams() {
        let whole = decode(&stream).unwrap();
        let second = stream.windows(5).rposition(|w| w == [0, 0, 0, 1, 0x65]).unwrap();
        for length in 0..stream.len() {
            let (frames, error) = decode_keep_going(&stream[..length]);
            assert!(frames.len() < whole.len() && frames[..] == whole[..frames.len()], "cut at {length}");
            // Between the pictures, and inside the next start code, the cut leaves a whole stream.
            let between = (second..second + 5).contains(&length);
            assert_eq!(error.is_none(), between && frames.len() == 1, "cut at {length}: {error:?}");
            if let Some(Error::Invalid { offset, .. }) = error {
                assert!(offset <= length as u64);
            }
        }
    }
}

#[test]
fn changed_bytes_never_panic() {
    let mut random = Lcg(5);
    for stream in streams() {
        for _ in 0..300 {
            let mut broken = stream.clone();
            for _ in 0..1 + random.bits31() % 4 {
                let at = random.bits31() as usize % broken.len();
                broken[at] = random.bits31() as u8;
            }
            let _ = decode_keep_going(&broken);
        }
    }
}

#[test]
fn unsupported_tools_are_named_with_their_nal_unit() {
    // A P slice: slice_type 0 right after first_mb_in_slice 0.
    let mut stream = streams().remove(0);
    let slice = stream.windows(5).position(|w| w == [0, 0, 0, 1, 0x65]).unwrap() + 5;
    stream[slice] = 0b1110_0000;
    match decode(&stream) {
        Err(Error::Unsupported { tool, nal: 2, offset }) => {
            assert!(tool.contains("P slice"), "{tool}");
            assert_eq!(offset, slice as u64 - 1);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_frame_before_a_damaged_one_is_kept() {
    for stream in streams() {
        let whole = decode(&stream).unwrap();
        let second = stream.windows(5).rposition(|w| w == [0, 0, 0, 1, 0x65]).unwrap();
        // A slice of a kind that is not decoded; a parameter set that is not there; a data partition.
        for (at, byte) in [(second + 5, 0b1110_0000), (second + 6, 0b0100_0000), (second + 4, 0x62)] {
            let mut broken = stream.clone();
            broken[at] = byte;
            let (frames, error) = decode_keep_going(&broken);
            assert!(error.is_some(), "byte {at} as {byte:#x}");
            assert_eq!(frames, whole[..1], "byte {at} as {byte:#x}: {error:?}");
        }
    }
}
