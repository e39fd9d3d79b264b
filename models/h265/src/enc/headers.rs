//! Parameter sets, slice headers and the picture hash (H.265 clauses 7.3.2,
//! 7.3.6, Annex A and D.3.19), as bits.
//!
//! Turns the encoder's choices into what a decoder must be told, profile and
//! level included. Chooses no tools itself.

use super::residual::ResidualTools;
use md5::{Digest, Md5};
use trinity_coding::{BitWriter, Chroma, Colour, Plane, nal, vui};

const VPS_NUT: u32 = 32;
const SPS_NUT: u32 = 33;
const PPS_NUT: u32 = 34;
const IDR_N_LP: u32 = 20;
const SUFFIX_SEI_NUT: u32 = 40;

/// Everything the parameter sets say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The picture the user sees.
    pub width: usize,
    pub height: usize,
    pub chroma: Chroma,
    pub depth: u32,
    pub log2_ctb: u32,
    pub max_transform_depth: u32,
    pub tools: ResidualTools,
    pub strong_intra_smoothing: bool,
    pub lossless: bool,
    pub cu_qp_delta: bool,
    pub wavefront: bool,
    pub deblock: bool,
    pub sao: bool,
    pub colour: Colour,
}

/// Luma samples are coded in whole 8×8 blocks, the smallest coding block.
pub const LOG2_MIN_CB: u32 = 3;

impl Sequence {
    /// pic_width_in_luma_samples and pic_height_in_luma_samples.
    pub fn coded_size(&self) -> (usize, usize) {
        let unit = 1 << LOG2_MIN_CB;
        (self.width.next_multiple_of(unit), self.height.next_multiple_of(unit))
    }

    /// What a decoder shows: the conformance window moves in chroma samples,
    /// so odd sizes of subsampled pictures grow by one.
    pub fn shown_size(&self) -> (usize, usize) {
        let (sx, sy) = self.chroma.shift();
        (self.width.next_multiple_of(1 << sx), self.height.next_multiple_of(1 << sy))
    }

    fn uses_range_extensions(&self) -> bool {
        self.tools.persistent_rice
            || self.tools.transform_skip_context
            || self.tools.extended_range.is_some()
            || self.tools.log2_max_transform_skip > 2
    }
}

/// A NAL unit's two header bytes, then its RBSP.
fn start_unit(nal_unit_type: u32) -> BitWriter {
    let mut w = BitWriter::new();
    w.bits(nal_unit_type << 9 | 1, 16);
    w
}

fn end_unit(stream: &mut Vec<u8>, mut w: BitWriter) {
    w.trailing_bits();
    nal::write_unit(stream, &w.into_bytes());
}

/// Appends VPS, SPS and PPS.
pub fn write_parameter_sets(stream: &mut Vec<u8>, sequence: &Sequence) {
    write_vps(stream, sequence);
    write_sps(stream, sequence);
    write_pps(stream, sequence);
}

fn write_vps(stream: &mut Vec<u8>, sequence: &Sequence) {
    let mut w = start_unit(VPS_NUT);
    w.bits(0, 4); // vps_video_parameter_set_id
    w.bits(0b11, 2); // base layer internal and available
    w.bits(0, 6); // vps_max_layers_minus1
    w.bits(0, 3); // vps_max_sub_layers_minus1
    w.flag(true); // vps_temporal_id_nesting_flag
    w.bits(0xffff, 16);
    write_profile_tier_level(&mut w, sequence);
    w.flag(true); // vps_sub_layer_ordering_info_present_flag
    write_buffering(&mut w);
    w.bits(0, 6); // vps_max_layer_id
    w.ue(0); // vps_num_layer_sets_minus1
    w.flag(false); // vps_timing_info_present_flag
    w.flag(false); // vps_extension_flag
    end_unit(stream, w);
}

/// One picture, no reordering, no latency limit.
fn write_buffering(w: &mut BitWriter) {
    w.ue(0);
    w.ue(0);
    w.ue(0);
}

/// Annex A.3 and A.4.
fn write_profile_tier_level(w: &mut BitWriter, sequence: &Sequence) {
    let extended = sequence.uses_range_extensions();
    let (chroma, depth) = (sequence.chroma, sequence.depth);
    let version_1 = chroma == Chroma::C420 && depth <= 10 && !extended;
    let profile = match (version_1, depth) {
        (true, 8) => 1,
        (true, _) => 2,
        (false, _) => 4,
    };
    let level = level_idc(sequence.coded_size());
    w.bits(0, 2); // general_profile_space
    w.flag((120..=186).contains(&level)); // general_tier_flag: high, where there is one
    w.bits(profile, 5);
    // A Main stream also plays on Main 10.
    let compatible = (1u32 << (31 - profile)) | if profile == 1 { 1 << 29 } else { 0 };
    w.bits(compatible, 32);
    w.bits(0b1001, 4); // progressive, frames only
    if profile == 4 {
        // The 4:4:4 profiles hold every tool; without range extension tools
        // the narrower ones do.
        let narrow = !extended;
        let not_444 = narrow && chroma != Chroma::C444;
        let not_422 = not_444 && chroma != Chroma::C422;
        // There is no 4:2:0 profile of 16 bits.
        let monochrome = not_422 && chroma == Chroma::C400;
        let limits = match depth {
            0..=8 => [true, true, true],
            9..=10 => [true, true, false],
            11..=12 => [true, false, false],
            _ => [false, false, false],
        };
        // Deeper than 12 bits only Monochrome 16 and 4:4:4 16 Intra remain.
        let deep = depth > 12;
        for limit in limits {
            w.flag(limit);
        }
        w.flag(if deep { monochrome } else { not_444 }); // general_max_422chroma_constraint_flag
        w.flag(if deep { monochrome } else { not_422 }); // general_max_420chroma_constraint_flag
        w.flag(monochrome); // general_max_monochrome_constraint_flag
        w.flag(true); // general_intra_constraint_flag
        w.flag(false); // general_one_picture_only_constraint_flag
        w.flag(false); // general_lower_bit_rate_constraint_flag
        w.bits(0, 32);
        w.bits(0, 2);
    } else {
        w.bits(0, 32);
        w.bits(0, 11);
    }
    w.flag(false); // general_inbld_flag
    w.bits(level, 8);
}

/// Table A.8: the lowest level whose MaxLumaPs holds the picture, 8.5 (no
/// limits) when none does.
fn level_idc((width, height): (usize, usize)) -> u32 {
    const LEVELS: [(u32, usize); 8] = [
        (30, 36_864),
        (60, 122_880),
        (63, 245_760),
        (90, 552_960),
        (93, 983_040),
        (120, 2_228_224),
        (150, 8_912_896),
        (180, 35_651_584),
    ];
    LEVELS
        .iter()
        .find(|&&(_, limit)| {
            let side = ((8 * limit) as f64).sqrt() as usize;
            width.saturating_mul(height) <= limit && width <= side && height <= side
        })
        .map_or(255, |&(level, _)| level)
}

fn write_sps(stream: &mut Vec<u8>, sequence: &Sequence) {
    let mut w = start_unit(SPS_NUT);
    w.bits(0, 4); // sps_video_parameter_set_id
    w.bits(0, 3); // sps_max_sub_layers_minus1
    w.flag(true); // sps_temporal_id_nesting_flag
    write_profile_tier_level(&mut w, sequence);
    w.ue(0); // sps_seq_parameter_set_id
    w.ue(sequence.chroma.idc());
    if sequence.chroma == Chroma::C444 {
        w.flag(false); // separate_colour_plane_flag
    }
    let (coded, shown) = (sequence.coded_size(), sequence.shown_size());
    w.ue(coded.0 as u32);
    w.ue(coded.1 as u32);
    w.flag(coded != shown);
    if coded != shown {
        let (sx, sy) = sequence.chroma.shift();
        w.ue(0);
        w.ue(((coded.0 - shown.0) >> sx) as u32);
        w.ue(0);
        w.ue(((coded.1 - shown.1) >> sy) as u32);
    }
    // Chroma depth must equal luma depth even in 4:0:0, or ffmpeg rejects the SPS.
    w.ue(sequence.depth - 8);
    w.ue(sequence.depth - 8);
    w.ue(4); // log2_max_pic_order_cnt_lsb_minus4
    w.flag(true); // sps_sub_layer_ordering_info_present_flag
    write_buffering(&mut w);
    w.ue(0); // log2_min_luma_coding_block_size_minus3
    w.ue(sequence.log2_ctb - LOG2_MIN_CB);
    w.ue(0); // log2_min_luma_transform_block_size_minus2
    w.ue(3); // log2_diff_max_min_luma_transform_block_size: up to 32
    w.ue(0); // max_transform_hierarchy_depth_inter
    w.ue(sequence.max_transform_depth);
    w.flag(false); // scaling_list_enabled_flag
    w.flag(false); // amp_enabled_flag
    w.flag(sequence.sao);
    w.flag(false); // pcm_enabled_flag
    w.ue(0); // num_short_term_ref_pic_sets
    w.flag(false); // long_term_ref_pics_present_flag
    w.flag(false); // sps_temporal_mvp_enabled_flag
    w.flag(sequence.strong_intra_smoothing);
    if vui::write_start(&mut w, sequence.colour) {
        // chroma_loc, neutral_chroma, field_seq, frame_field_info, default display
        // window, timing, bitstream_restriction
        w.bits(0, 7);
    }
    let range_extension = sequence.tools.persistent_rice
        || sequence.tools.transform_skip_context
        || sequence.tools.extended_range.is_some();
    w.flag(range_extension); // sps_extension_present_flag
    if range_extension {
        w.bits(0b1000_0000, 8); // sps_range_extension_flag alone
        w.flag(false); // transform_skip_rotation_enabled_flag
        w.flag(sequence.tools.transform_skip_context);
        w.flag(false); // implicit_rdpcm_enabled_flag
        w.flag(false); // explicit_rdpcm_enabled_flag
        w.flag(sequence.tools.extended_range.is_some());
        w.flag(false); // intra_smoothing_disabled_flag
        w.flag(false); // high_precision_offsets_enabled_flag
        w.flag(sequence.tools.persistent_rice);
        w.flag(false); // cabac_bypass_alignment_enabled_flag
    }
    end_unit(stream, w);
}

fn write_pps(stream: &mut Vec<u8>, sequence: &Sequence) {
    let mut w = start_unit(PPS_NUT);
    w.ue(0); // pps_pic_parameter_set_id
    w.ue(0); // pps_seq_parameter_set_id
    w.flag(false); // dependent_slice_segments_enabled_flag
    w.flag(false); // output_flag_present_flag
    w.bits(0, 3); // num_extra_slice_header_bits
    w.flag(sequence.tools.sign_data_hiding);
    w.flag(false); // cabac_init_present_flag
    w.ue(0); // num_ref_idx_l0_default_active_minus1
    w.ue(0); // num_ref_idx_l1_default_active_minus1
    w.se(0); // init_qp_minus26
    w.flag(false); // constrained_intra_pred_flag
    w.flag(sequence.tools.log2_max_transform_skip > 0);
    w.flag(sequence.cu_qp_delta);
    if sequence.cu_qp_delta {
        w.ue(0); // diff_cu_qp_delta_depth: one QP a CTU
    }
    w.se(0); // pps_cb_qp_offset
    w.se(0); // pps_cr_qp_offset
    w.flag(false); // pps_slice_chroma_qp_offsets_present_flag
    w.flag(false); // weighted_pred_flag
    w.flag(false); // weighted_bipred_flag
    w.flag(sequence.lossless); // transquant_bypass_enabled_flag
    w.flag(false); // tiles_enabled_flag
    w.flag(sequence.wavefront);
    w.flag(true); // pps_loop_filter_across_slices_enabled_flag
    w.flag(true); // deblocking_filter_control_present_flag
    w.flag(false); // deblocking_filter_override_enabled_flag
    w.flag(!sequence.deblock); // pps_deblocking_filter_disabled_flag
    if sequence.deblock {
        w.se(0); // pps_beta_offset_div2
        w.se(0); // pps_tc_offset_div2
    }
    w.flag(false); // pps_scaling_list_data_present_flag
    w.flag(false); // lists_modification_present_flag
    w.ue(0); // log2_parallel_merge_level_minus2
    w.flag(false); // slice_segment_header_extension_present_flag
    let range_extension = sequence.tools.log2_max_transform_skip > 2;
    w.flag(range_extension); // pps_extension_present_flag
    if range_extension {
        w.bits(0b1000_0000, 8); // pps_range_extension_flag alone
        w.ue(sequence.tools.log2_max_transform_skip - 2);
        w.flag(false); // cross_component_prediction_enabled_flag
        w.flag(false); // chroma_qp_offset_list_enabled_flag
        w.ue(0); // log2_sao_offset_scale_luma
        w.ue(0); // log2_sao_offset_scale_chroma
    }
    end_unit(stream, w);
}

/// Appends one picture as one slice: header, then its substreams (a single
/// one without wavefronts).
pub fn write_slice(stream: &mut Vec<u8>, sequence: &Sequence, slice_qp: i32, substreams: &[Vec<u8>]) {
    let mut w = start_unit(IDR_N_LP);
    w.flag(true); // first_slice_segment_in_pic_flag
    w.flag(false); // no_output_of_prior_pics_flag
    w.ue(0); // slice_pic_parameter_set_id
    w.ue(2); // slice_type: I
    if sequence.sao {
        w.flag(true); // slice_sao_luma_flag
        if sequence.chroma != Chroma::C400 {
            w.flag(true); // slice_sao_chroma_flag
        }
    }
    w.se(slice_qp - 26);
    if sequence.sao || sequence.deblock {
        w.flag(true); // slice_loop_filter_across_slices_enabled_flag
    }
    if sequence.wavefront {
        write_entry_points(&mut w, substreams);
    }
    w.flag(true); // byte_alignment()
    w.align_zero();
    for substream in substreams {
        w.extend(substream);
    }
    nal::write_unit(stream, &w.into_bytes());
}

/// Offsets count the bytes of the NAL unit, emulation prevention included.
/// Every substream ends in a non-zero byte, so each can be measured alone.
fn write_entry_points(w: &mut BitWriter, substreams: &[Vec<u8>]) {
    let sizes: Vec<u32> = substreams[..substreams.len() - 1]
        .iter()
        .map(|bytes| {
            let mut escaped = Vec::with_capacity(bytes.len() + 8);
            nal::write_unit(&mut escaped, bytes);
            (escaped.len() - 4) as u32
        })
        .collect();
    w.ue(sizes.len() as u32);
    if let Some(&largest) = sizes.iter().max() {
        let length = 32 - (largest - 1).leading_zeros().min(31);
        w.ue(length - 1);
        for size in sizes {
            w.bits(size - 1, length);
        }
    }
}

/// Appends the MD5 of the decoded planes (before cropping), so that every
/// decoder can check itself.
pub fn write_picture_hash(stream: &mut Vec<u8>, planes: &[Plane], depth: u32) {
    let mut w = start_unit(SUFFIX_SEI_NUT);
    w.bits(132, 8); // decoded_picture_hash
    w.bits(1 + 16 * planes.len() as u32, 8);
    w.bits(0, 8); // hash_type: MD5
    for plane in planes {
        w.extend(&plane_md5(plane, depth));
    }
    end_unit(stream, w);
}

fn plane_md5(plane: &Plane, depth: u32) -> [u8; 16] {
    let mut md5 = Md5::new();
    let mut bytes = Vec::with_capacity(2 * plane.width);
    for row in plane.samples.chunks_exact(plane.width) {
        bytes.clear();
        if depth <= 8 {
            bytes.extend(row.iter().map(|&s| s as u8));
        } else {
            bytes.extend(row.iter().flat_map(|s| s.to_le_bytes()));
        }
        md5.update(&bytes);
    }
    md5.finalize().into()
}
