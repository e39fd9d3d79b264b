//! What the encoder's streams say ahead of their pictures (H.265 Annex A for
//! profile and level).
//!
//! Fills in the parameter sets, slice headers and picture hashes that
//! [`crate::syntax`] writes. Chooses no tools itself.

use crate::encoder::tree::LOG2_CTB;
use crate::entropy::residual::ResidualTools;
use crate::syntax::{
    DeblockingControl, NalType, Pps, PpsRangeExtension, ProfileTierLevel, SliceHeader, Sps,
    SpsRangeExtension, Vps, Vui, Window, picture_hash,
};
use trinity_bits::vui::Start;
use trinity_bits::{Chroma, Colour, Plane, Presentation, nal};

/// Everything the parameter sets say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence {
    /// The picture the user sees.
    pub width: usize,
    pub height: usize,
    pub chroma: Chroma,
    pub depth: u32,
    pub tools: ResidualTools,
    pub lossless: bool,
    pub cu_qp_delta: bool,
    pub wavefront: bool,
    pub deblock: bool,
    pub sao: bool,
    pub colour: Colour,
    pub shown: Presentation,
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

    fn vps(&self) -> Vps {
        Vps { id: 0, max_layers: 1, max_sub_layers: 1, profile: self.profile(), ..Vps::default() }
    }

    fn sps(&self) -> Sps {
        let (coded, shown) = (self.coded_size(), self.shown_size());
        let (sx, sy) = self.chroma.shift();
        Sps {
            profile: self.profile(),
            conformance_window: Window {
                right: ((coded.0 - shown.0) >> sx) as u32,
                bottom: ((coded.1 - shown.1) >> sy) as u32,
                ..Window::default()
            },
            log2_ctb: LOG2_CTB,
            sao_enabled: self.sao,
            strong_intra_smoothing_enabled: true,
            vui: self.vui(),
            range: SpsRangeExtension {
                transform_skip_context_enabled: self.tools.transform_skip_context,
                extended_precision_processing: self.tools.extended_range.is_some(),
                persistent_rice_adaptation_enabled: self.tools.persistent_rice,
                ..SpsRangeExtension::default()
            },
            // Chroma depth must equal luma depth even in 4:0:0, or ffmpeg rejects the SPS.
            ..Sps::new(coded.0 as u32, coded.1 as u32, self.chroma, self.depth)
        }
    }

    /// What is said of how pictures are to be shown, if anything.
    fn vui(&self) -> Option<Vui> {
        let start = Start::new(self.colour, &self.shown);
        let timing = self.shown.frame_rate.map(|(frames, seconds)| (seconds, frames));
        let said = !start.is_empty() || timing.is_some();
        said.then(|| Vui { start, timing, ..Vui::default() })
    }

    fn deblocking(&self) -> DeblockingControl {
        DeblockingControl { disabled: !self.deblock, ..DeblockingControl::default() }
    }

    fn pps(&self) -> Pps {
        let transform_skip = self.tools.log2_max_transform_skip;
        Pps {
            sign_data_hiding_enabled: self.tools.sign_data_hiding,
            init_qp: INIT_QP,
            transform_skip_enabled: transform_skip > 0,
            // One QP per CTU.
            cu_qp_delta_depth: self.cu_qp_delta.then_some(0),
            transquant_bypass_enabled: self.lossless,
            entropy_coding_sync_enabled: self.wavefront,
            loop_filter_across_slices: true,
            deblocking: Some(self.deblocking()),
            range: PpsRangeExtension {
                log2_max_transform_skip_size: transform_skip.max(2),
                ..PpsRangeExtension::default()
            },
            ..Pps::default()
        }
    }

    /// Annex A.3 and A.4.
    fn profile(&self) -> ProfileTierLevel {
        let extended = self.uses_range_extensions();
        let version_1 = self.chroma == Chroma::C420 && self.depth <= 10 && !extended;
        let profile_idc = match (version_1, self.depth) {
            (true, 8) => 1,
            (true, _) => 2,
            (false, _) => 4,
        };
        let level_idc = level_idc(self.coded_size());
        // general_progressive_source_flag and general_frame_only_constraint_flag, first of 48 bits.
        let frames = 0b1001 << 44;
        let constraints = if profile_idc == 4 { self.range_extension_constraints(extended) << 35 } else { 0 };
        ProfileTierLevel {
            profile_space: 0,
            // The High tier, where there is one.
            high_tier: (120..=186).contains(&level_idc),
            profile_idc,
            // A Main stream also plays on Main 10.
            compatibility: 1 << (31 - profile_idc) | if profile_idc == 1 { 1 << 29 } else { 0 },
            constraints: frames | constraints,
            level_idc,
        }
    }

    /// The nine bits from general_max_12bit_constraint_flag on.
    fn range_extension_constraints(&self, extended: bool) -> u64 {
        // The 4:4:4 profiles hold every tool; without range extension tools
        // the narrower ones do.
        let not_444 = !extended && self.chroma != Chroma::C444;
        let not_422 = not_444 && self.chroma != Chroma::C422;
        // There is no 4:2:0 profile of 16 bits.
        let monochrome = not_422 && self.chroma == Chroma::C400;
        // Deeper than 12 bits only Monochrome 16 and 4:4:4 16 Intra remain.
        let deep = self.depth > 12;
        let flags = [
            self.depth <= 12,
            self.depth <= 10,
            self.depth <= 8,
            if deep { monochrome } else { not_444 }, // general_max_422chroma_constraint_flag
            if deep { monochrome } else { not_422 }, // general_max_420chroma_constraint_flag
            monochrome,                              // general_max_monochrome_constraint_flag
            true,                                    // general_intra_constraint_flag
            false,                                   // general_one_picture_only_constraint_flag
            false,                                   // general_lower_bit_rate_constraint_flag
        ];
        flags.into_iter().fold(0, |bits, flag| bits << 1 | u64::from(flag))
    }
}

/// init_qp_minus26 + 26.
const INIT_QP: i32 = 26;

/// Table A.8: the lowest level whose MaxLumaPs holds the picture, 8.5 (no
/// limits) when none does.
fn level_idc((width, height): (usize, usize)) -> u8 {
    const LEVELS: [(u8, usize); 8] = [
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

fn write_unit(stream: &mut Vec<u8>, nal_type: NalType, rbsp: &[u8]) {
    nal::write_unit(stream, &[&nal_type.header(), rbsp].concat());
}

/// Appends VPS, SPS and PPS.
pub fn write_parameter_sets(stream: &mut Vec<u8>, sequence: &Sequence) {
    write_unit(stream, NalType::VPS, &sequence.vps().write());
    write_unit(stream, NalType::SPS, &sequence.sps().write());
    write_unit(stream, NalType::PPS, &sequence.pps().write());
}

/// Appends one picture as one slice: header, then its substreams (a single
/// one without wavefronts).
pub fn write_slice(stream: &mut Vec<u8>, sequence: &Sequence, slice_qp: i32, substreams: &[Vec<u8>]) {
    let header = SliceHeader {
        first_slice_segment_in_pic: true,
        sao: [sequence.sao; 2],
        qp: slice_qp,
        deblocking: sequence.deblocking(),
        loop_filter_across_slices: true,
        entry_points: substreams[..substreams.len() - 1].iter().map(|bytes| escaped_length(bytes)).collect(),
        ..SliceHeader::default()
    };
    let mut rbsp = header.write(NalType::IDR_N_LP, &sequence.sps(), &sequence.pps());
    substreams.iter().for_each(|substream| rbsp.extend_from_slice(substream));
    write_unit(stream, NalType::IDR_N_LP, &rbsp);
}

/// Bytes of a substream in its NAL unit, emulation prevention included. Every
/// substream ends in a non-zero byte, so each can be measured alone.
fn escaped_length(bytes: &[u8]) -> u32 {
    let mut escaped = Vec::with_capacity(bytes.len() + 8);
    nal::write_unit(&mut escaped, bytes);
    (escaped.len() - 4) as u32
}

/// Appends the MD5 of the decoded planes (before cropping), so that every
/// decoder can check itself.
pub fn write_picture_hash(stream: &mut Vec<u8>, planes: &[Plane], depth: u32) {
    write_unit(stream, NalType::SUFFIX_SEI, &picture_hash::md5_message(planes, depth));
}
