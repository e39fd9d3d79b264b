//! Every tool with every way to ask for a rate, at every depth and in every
//! chroma format, through our decoder, ffmpeg and libde265.
//!
//! A random part by default, which says its seed where it fails
//! (`TRINITY_SEED` runs it again); all of it with `TRINITY_GRID=full` or under
//! `cargo xtask test --all`.

use crate::content::{Content, rates};
use crate::draw::{drawn, is_whole_grid};
use crate::encoder::recon_equals_every_decoder;
use trinity_bits::{Chroma, Frame};
use trinity_h265::{Params, Preset, Rate};

struct Case {
    name: String,
    frames: Vec<Frame>,
    params: Params,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for tools in 0..16u32 {
        for depth in [8, 10, 12] {
            for chroma in [Chroma::C400, Chroma::C420, Chroma::C444] {
                for mode in 0..4 {
                    let turn = cases.len() * 5 / 3;
                    let rate = rates(turn, depth, [0.15, 0.6, 1.3, 2.4, 4.5])[mode];
                    let content = Content::ALL[turn % Content::ALL.len()];
                    let [deblock, sao, wavefront, plain] = [0, 1, 2, 3].map(|bit| tools >> bit & 1 == 1);
                    let preset = Preset::ALL[turn / 2 % 4];
                    let range_extensions = !plain;
                    let params = Params {
                        rate,
                        preset,
                        deblock,
                        sao,
                        wavefront,
                        range_extensions,
                        threads: 1,
                        ..Params::default()
                    };
                    let name = format!("tools-{}-{content:?}-{chroma:?}-{depth}", cases.len());
                    let frames = vec![content.frame(136, 80, chroma, depth)];
                    cases.push(Case { name, frames, params });
                }
            }
        }
    }
    cases
}

#[test]
fn every_tool_with_every_rate_keeps_every_decoder_in_step() {
    let cases = cases();
    assert_eq!(cases.len(), 16 * 3 * 3 * 4);
    for case in drawn(cases, 24) {
        recon_equals_every_decoder(&case.frames, &case.params, true, &case.name);
    }
}

/// A CTU is one quantization group: what precedes its first `cu_qp_delta` has
/// the QP of the CTU before, for the deblocking filter, too.
#[test]
fn units_before_the_first_coded_one_are_deblocked_with_the_predicted_qp() {
    for (at, chroma) in [Chroma::C400, Chroma::C420, Chroma::C444].into_iter().enumerate() {
        let frames = vec![Content::Islands.frame(328, 200, chroma, 8)];
        let rates = [Rate::Mse(60.0), Rate::Bits(0.4), Rate::Mse(15.0), Rate::Bits(0.2)];
        for &rate in &rates[..if is_whole_grid() { 4 } else { 2 }] {
            for (wavefront, sao) in [(false, false), (true, false), (false, true)] {
                let preset = Preset::ALL[at];
                let params =
                    Params { rate, preset, deblock: true, wavefront, sao, threads: 1, ..Params::default() };
                recon_equals_every_decoder(&frames, &params, false, &format!("islands-{chroma:?}"));
            }
        }
    }
}
