//! `trinity h264 info`: what a stream consists of and where its bits went.

use super::video;
use crate::context::Context;
use crate::failure::Failure;
use crate::table::Table;
use serde_json::json;
use std::path::PathBuf;
use trinity_h264::Inspection;

/// Show parameter sets, slices and where the bits went
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  trinity h264 info clip.264")]
pub struct Args {
    /// The stream, Annex B (`.264`, `.h264`, `.jsv`)
    input: PathBuf,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let stream = video::read("h264", &args.input)?;
    let seen = trinity_h264::inspect(&stream)
        .map_err(|error| Failure::input(format_args!("{}: {error}", args.input.display())))?;
    let share = |count: u64| format!("{:.1}", 100.0 * count as f64 / (seen.bytes as f64 * 8.0));
    let bits = Table::of(bit_rows(&seen))
        .column("bits", |(_, count)| count)
        .column("share %", |(_, count)| share(count))
        .column("what", |(what, _)| what)
        .end();
    let slices = Table::of(seen.slices.iter().enumerate())
        .column("slice", |(at, _)| at)
        .column("type", |(_, slice)| if slice.nal_unit_type == 5 { "I (IDR)" } else { "I" })
        .column("picture", |(_, slice)| format!("{:?}", slice.structure))
        .column("first MB", |(_, slice)| slice.first_mb)
        .column("PPS", |(_, slice)| slice.pps_id)
        .column("QP", |(_, slice)| slice.qp)
        .column("bytes", |(_, slice)| slice.bytes)
        .end();
    ctx.show(&to_json(&seen), || {
        format!(
            "{} frame{} of {}×{}, {} slices, {} bytes\n\n{}\n{}\n{}",
            seen.frames,
            if seen.frames == 1 { "" } else { "s" },
            seen.size.0,
            seen.size.1,
            seen.slices.len(),
            seen.bytes,
            parameter_sets(&seen),
            bits.render(ctx.colour),
            slices.render(ctx.colour)
        )
    })
}

fn bit_rows(seen: &Inspection) -> [(&'static str, u64); 3] {
    [
        ("prediction: modes, transform size, coded block patterns", seen.bit_use.prediction),
        ("residual: QP changes and levels", seen.bit_use.residual),
        ("side information: headers, parameter sets, macroblock types", seen.side_bits()),
    ]
}

fn parameter_sets(seen: &Inspection) -> String {
    let mut text = String::new();
    for sps in &seen.sps {
        text += &format!(
            "SPS {}: profile {}, level {:.1}, {:?}, {} bit, {}×{} macroblocks{}{}{}\n",
            sps.id,
            sps.profile_idc,
            f64::from(sps.level_idc) / 10.0,
            sps.chroma,
            sps.bit_depth_luma,
            sps.width_mbs,
            sps.height_mbs(),
            if sps.frame_mbs_only { "" } else { ", interlaced" },
            if sps.mb_adaptive_frame_field { ", MBAFF" } else { "" },
            if sps.qpprime_y_zero_transform_bypass { ", lossless at QP′ 0" } else { "" },
        );
    }
    for pps in &seen.pps {
        text += &format!(
            "PPS {}: SPS {}, {}, 8×8 transform {}, chroma QP offsets {} and {}, scaling lists {}\n",
            pps.id,
            pps.sps_id,
            if pps.entropy_coding_mode_cabac { "CABAC" } else { "CAVLC" },
            if pps.transform_8x8_mode { "on" } else { "off" },
            pps.chroma_qp_index_offset[0],
            pps.chroma_qp_index_offset[1],
            if pps.scaling.is_some() { "transmitted" } else { "flat" },
        );
    }
    text
}

fn to_json(seen: &Inspection) -> serde_json::Value {
    let [prediction, residual, side] = bit_rows(seen).map(|(_, bits)| bits);
    json!({
        "frames": seen.frames,
        "width": seen.size.0,
        "height": seen.size.1,
        "bytes": seen.bytes,
        "bits": { "prediction": prediction, "residual": residual, "side": side },
        "sps": seen.sps.iter().map(|sps| json!({
            "id": sps.id,
            "profile_idc": sps.profile_idc,
            "level_idc": sps.level_idc,
            "chroma_format_idc": sps.chroma.idc(),
            "bit_depth_luma": sps.bit_depth_luma,
            "bit_depth_chroma": sps.bit_depth_chroma,
            "width_mbs": sps.width_mbs,
            "height_mbs": sps.height_mbs(),
            "frame_mbs_only": sps.frame_mbs_only,
            "mbaff": sps.mb_adaptive_frame_field,
        })).collect::<Vec<_>>(),
        "pps": seen.pps.iter().map(|pps| json!({
            "id": pps.id,
            "sps_id": pps.sps_id,
            "entropy": if pps.entropy_coding_mode_cabac { "cabac" } else { "cavlc" },
            "transform_8x8_mode": pps.transform_8x8_mode,
            "chroma_qp_index_offset": pps.chroma_qp_index_offset,
        })).collect::<Vec<_>>(),
        "slices": seen.slices.iter().map(|slice| json!({
            "type": "I",
            "idr": slice.nal_unit_type == 5,
            "picture": format!("{:?}", slice.structure),
            "first_mb": slice.first_mb,
            "qp": slice.qp,
            "bytes": slice.bytes,
        })).collect::<Vec<_>>(),
    })
}
