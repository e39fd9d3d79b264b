//! Every tool with every way to ask for a rate, at every depth and in every
//! chroma format, through our decoder and ffmpeg.
//!
//! A random part by default, which says its seed where it fails
//! (`TRINITY_SEED` runs it again); all of it with `TRINITY_GRID=full` or under
//! `cargo xtask test --all`.

use crate::content::{Content, Random};
use crate::draw::{is_whole_grid, seed};
use crate::grid::{Case, check, ffmpeg_is_there};
use trinity_bits::Chroma;
use trinity_h264::{Entropy, Params, Preset, Rate};

/// Ways to ask for a rate, the number turning through what is asked for.
fn rates(turn: usize, depth: u32) -> [Rate; 4] {
    let qp = [-4.0, 9.0, 22.0, 30.0, 37.0, 45.0, 51.0f64][turn % 7];
    let bits = [0.4, 0.9, 1.3, 2.4, 4.5][turn % 5];
    let scale = f64::from(1u32 << (2 * (depth - 8)));
    let mse = [0.3, 3.0, 11.0, 45.0, 200.0][turn % 5] * scale;
    [Rate::Qp(if depth == 8 { qp.max(0.0) } else { qp }), Rate::Bits(bits), Rate::Mse(mse), Rate::Lossless]
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for tools in 0..8usize {
        for depth in [8, 10, 12, 14] {
            for chroma in [Chroma::C400, Chroma::C420, Chroma::C444] {
                for mode in 0..4 {
                    let turn = cases.len() * 5 / 3;
                    let content = Content::ALL[turn % Content::ALL.len()];
                    let params = Params {
                        rate: rates(turn, depth)[mode],
                        preset: Preset::ALL[turn / 2 % 4],
                        deblock: tools & 1 == 1,
                        entropy: if tools & 2 == 0 { Entropy::Cabac } else { Entropy::Cavlc },
                        slices: if tools & 4 == 0 { 1 } else { 3 },
                        threads: 1,
                        ..Params::default()
                    };
                    cases.push(Case { content, size: (68, 50), chroma, depth, params });
                }
            }
        }
    }
    cases
}

#[test]
fn every_tool_with_every_rate_keeps_every_decoder_in_step() {
    const PART: usize = 24;
    let mut cases = cases();
    assert_eq!(cases.len(), 8 * 4 * 3 * 4);
    if !is_whole_grid() {
        let seed = seed();
        println!("TRINITY_SEED={seed}");
        let mut random = Random::new(seed);
        for place in 0..PART {
            let other = place + random.next() as usize % (cases.len() - place);
            cases.swap(place, other);
        }
        cases.truncate(PART);
    }
    let (with_ffmpeg, folder) = (ffmpeg_is_there(), tempfile::tempdir().unwrap());
    for case in &cases {
        check(case, with_ffmpeg, folder.path());
    }
}
