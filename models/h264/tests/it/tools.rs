//! Every tool with every way to ask for a rate, at every depth and in every
//! chroma format, through our decoder and ffmpeg.
//!
//! A random part by default, which says its seed where it fails
//! (`TRINITY_SEED` runs it again); all of it with `TRINITY_GRID=full` or under
//! `cargo xtask test --all`.

use crate::content::{Content, rates};
use crate::draw::drawn;
use crate::grid::{Case, check};
use trinity_bits::Chroma;
use trinity_h264::{Entropy, Params, Preset};

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for tools in 0..8usize {
        for depth in [8, 10, 12, 14] {
            for chroma in [Chroma::C400, Chroma::C420, Chroma::C444] {
                for mode in 0..4 {
                    let turn = cases.len() * 5 / 3;
                    let content = Content::ALL[turn % Content::ALL.len()];
                    let params = Params {
                        rate: rates(turn, depth, [0.4, 0.9, 1.3, 2.4, 4.5])[mode],
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
    let cases = cases();
    assert_eq!(cases.len(), 8 * 4 * 3 * 4);
    drawn(cases, 24).iter().for_each(check);
}
