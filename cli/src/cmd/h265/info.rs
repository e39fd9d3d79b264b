//! `trinity h265 info`: parameter sets, slice types and where the bits went.

use super::video;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, sig3};
use serde::Serialize;
use std::path::PathBuf;
use trinity_bits::nal;
use trinity_h265::BitCounts;
use trinity_h265::syntax::{NalHeader, NalType, Pps, SliceType, Sps, Vps};

/// Show parameter sets, slice types and where the bits of a stream went
///
/// Shares are counted while decoding: prediction modes, residual, and side
/// information (headers, splits, coded-block flags, QP changes, SAO).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity h265 info clip.265
  trinity h265 info clip.265 --json")]
pub struct Args {
    /// The stream, Annex B (`.265`, `.hevc`, `.bit`)
    input: PathBuf,
}

/// What is shown, and what `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Info {
    parameter_sets: Vec<ParameterSet>,
    frames: Vec<FrameInfo>,
}

#[derive(Debug, Serialize)]
struct ParameterSet {
    kind: &'static str,
    id: u8,
    nal: usize,
    facts: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FrameInfo {
    poc: i32,
    slices: String,
    picture_hash: &'static str,
    bits: u64,
    bits_per_sample: f64,
    prediction_bits: u64,
    residual_bits: u64,
    side_bits: u64,
    pcm_bits: u64,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let stream = video::read("h265", &args.input)?;
    let mut info = Info { parameter_sets: parameter_sets(&stream), ..Info::default() };
    let mut failure = None;
    for decoded in trinity_h265::frames(&stream) {
        match decoded {
            Ok(decoded) => info.frames.push(frame_info(&decoded)),
            Err(error) => {
                let frames = info.frames.len();
                failure = Some(video::undecodable("h265", &args.input, &error.to_string(), frames));
            }
        }
    }
    ctx.show(&info, || render(&info, ctx.colour))?;
    failure.map_or(Ok(()), Err)
}

fn frame_info(decoded: &trinity_h265::Decoded) -> FrameInfo {
    let BitCounts { prediction, residual, side, pcm } = decoded.bits;
    let bits = decoded.bits.total();
    FrameInfo {
        poc: decoded.poc,
        slices: slice_summary(&decoded.slices),
        picture_hash: match decoded.hash {
            trinity_h265::HashCheck::Absent => "none",
            trinity_h265::HashCheck::Match => "agrees",
            trinity_h265::HashCheck::Mismatch { .. } => "differs",
        },
        bits,
        bits_per_sample: bits as f64 / decoded.frame.samples() as f64,
        prediction_bits: prediction,
        residual_bits: residual,
        side_bits: side,
        pcm_bits: pcm,
    }
}

/// `I` or `3 × I`.
fn slice_summary(slices: &[SliceType]) -> String {
    match slices.len() {
        1 => format!("{:?}", slices[0]),
        count => format!("{count} × {:?}", slices.first().copied().unwrap_or_default()),
    }
}

fn parameter_sets(stream: &[u8]) -> Vec<ParameterSet> {
    let mut sets = Vec::new();
    for (nal, unit) in nal::units(stream).enumerate() {
        let Some(header) = NalHeader::parse(unit.bytes).filter(|header| header.layer_id == 0) else {
            continue;
        };
        let rbsp = nal::unescape(&unit.bytes[2..]);
        let set = match header.nal_type {
            NalType::VPS => Vps::parse(&rbsp).map(|vps| ("VPS", vps.id, vps_facts(&vps))),
            NalType::SPS => Sps::parse(&rbsp).map(|sps| ("SPS", sps.id, sps_facts(&sps))),
            NalType::PPS => Pps::parse(&rbsp).map(|pps| ("PPS", pps.id, pps_facts(&pps))),
            _ => continue,
        };
        sets.push(match set {
            Ok((kind, id, facts)) => ParameterSet { kind, id, nal, facts },
            Err(flaw) => ParameterSet {
                kind: header.nal_type.name(),
                id: 0,
                nal,
                facts: vec![flaw.at(nal, unit.offset as u64).to_string()],
            },
        });
    }
    sets
}

fn vps_facts(vps: &Vps) -> Vec<String> {
    vec![
        format!("{} layers, {} sub-layers", vps.max_layers, vps.max_sub_layers),
        format!("{} profile, level {}", vps.profile.name(), f64::from(vps.profile.level_idc) / 30.0),
    ]
}

fn sps_facts(sps: &Sps) -> Vec<String> {
    let window = sps.conformance_window;
    let (sx, sy) = sps.chroma.shift();
    let shown =
        (sps.width - ((window.left + window.right) << sx), sps.height - ((window.top + window.bottom) << sy));
    let tier = if sps.profile.high_tier { "High" } else { "Main" };
    let mut facts = vec![
        format!(
            "{} profile, level {}, {tier} tier",
            sps.profile.name(),
            f64::from(sps.profile.level_idc) / 30.0
        ),
        format!("{}×{} shown of {}×{} coded", shown.0, shown.1, sps.width, sps.height),
        format!("{:?}, {} bit luma, {} bit chroma", sps.chroma, sps.bit_depth, sps.chroma_bit_depth),
        format!("CTB {}, CB from {}", 1 << sps.log2_ctb, 1 << sps.log2_min_cb),
        format!(
            "TB {} to {}, intra depth {}",
            1 << sps.log2_min_tb,
            1 << sps.log2_max_tb,
            sps.max_transform_hierarchy_depth_intra
        ),
    ];
    let range = &sps.range;
    let tools = [
        (sps.sao_enabled, "SAO"),
        (sps.strong_intra_smoothing_enabled, "strong intra smoothing"),
        (sps.scaling_list_enabled, "scaling lists"),
        (sps.pcm.is_some(), "PCM"),
        (range.transform_skip_rotation_enabled, "transform skip rotation"),
        (range.transform_skip_context_enabled, "transform skip context"),
        (range.implicit_rdpcm_enabled, "implicit RDPCM"),
        (range.explicit_rdpcm_enabled, "explicit RDPCM"),
        (range.extended_precision_processing, "extended precision"),
        (range.intra_smoothing_disabled, "no intra smoothing"),
        (range.persistent_rice_adaptation_enabled, "persistent Rice adaptation"),
        (range.cabac_bypass_alignment_enabled, "CABAC bypass alignment"),
        (sps.screen_content.palette_mode, "palette mode"),
    ];
    facts.extend(named("tools", &tools));
    facts
}

fn pps_facts(pps: &Pps) -> Vec<String> {
    let mut facts = vec![format!("refers to SPS {}, QP {}", pps.sps_id, pps.init_qp)];
    if pps.chroma_qp_offset != [0, 0] {
        facts.push(format!("chroma QP offsets {:?}", pps.chroma_qp_offset));
    }
    if let Some(tiles) = &pps.tiles {
        facts.push(format!("{}×{} tiles", tiles.columns, tiles.rows));
    }
    if let Some(depth) = pps.cu_qp_delta_depth {
        facts.push(format!("QP may change down to depth {depth}"));
    }
    let tools = [
        (pps.sign_data_hiding_enabled, "sign data hiding"),
        (pps.transform_skip_enabled, "transform skip"),
        (pps.transquant_bypass_enabled, "lossless coding units"),
        (pps.constrained_intra_pred, "constrained intra prediction"),
        (pps.entropy_coding_sync_enabled, "wavefront"),
        (pps.dependent_slice_segments_enabled, "dependent slices"),
        (pps.deblocking.is_some_and(|control| control.disabled), "no deblocking"),
        (pps.scaling_list.is_some(), "scaling lists"),
        (pps.range.cross_component_prediction_enabled, "cross-component prediction"),
        (pps.range.chroma_qp_offsets.is_some(), "chroma QP offset lists"),
    ];
    facts.extend(named("tools", &tools));
    facts
}

/// `tools: a, b`, or nothing where none is on.
fn named(label: &str, tools: &[(bool, &str)]) -> Option<String> {
    let on: Vec<_> = tools.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    (!on.is_empty()).then(|| format!("{label}: {}", on.join(", ")))
}

fn render(info: &Info, colour: bool) -> String {
    let mut text = String::new();
    for set in &info.parameter_sets {
        text.push_str(&format!("{} {} (NAL unit {})\n", set.kind, set.id, set.nal));
        for fact in &set.facts {
            text.push_str(&format!("  {fact}\n"));
        }
    }
    if info.frames.is_empty() {
        return text;
    }
    let share =
        |frame: &FrameInfo, bits: u64| format!("{:.1}", 100.0 * bits as f64 / frame.bits.max(1) as f64);
    let table = Table::of(info.frames.iter().enumerate())
        .column("frame", |(at, _)| at)
        .column("POC", |(_, frame)| frame.poc)
        .column("slices", |(_, frame)| &frame.slices)
        .column("hash", |(_, frame)| frame.picture_hash)
        .column("bits", |(_, frame)| frame.bits)
        .column("bits/sample", |(_, frame)| sig3(frame.bits_per_sample))
        .column("prediction %", |(_, frame)| share(frame, frame.prediction_bits))
        .column("residual %", |(_, frame)| share(frame, frame.residual_bits))
        .column("side %", |(_, frame)| share(frame, frame.side_bits))
        .column("PCM %", |(_, frame)| share(frame, frame.pcm_bits))
        .end();
    text.push('\n');
    text.push_str(&table.render(colour));
    text
}
