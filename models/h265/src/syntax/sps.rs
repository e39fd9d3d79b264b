//! seq_parameter_set_rbsp() (H.265 clause 7.3.2.2).

use trinity_bits::{BitReader, BitWriter, Chroma, invalid};

use super::range::in_range;
use super::{BitstreamError, ProfileTierLevel, ScalingList, Vui, Window};

/// What the decoded picture buffer must hold, for the highest sub-layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DpbLimits {
    pub max_dec_pic_buffering_minus1: u32,
    pub max_num_reorder_pics: u32,
    /// 0: no limit.
    pub max_latency_increase_plus1: u32,
}

impl DpbLimits {
    pub(super) fn parse(r: &mut BitReader<'_>, sub_layers: u32) -> Result<Self, BitstreamError> {
        let every_layer = r.flag()?;
        let mut limits = Self::default();
        for _ in if every_layer { 0 } else { sub_layers - 1 }..sub_layers {
            limits = Self {
                max_dec_pic_buffering_minus1: r.ue()?,
                max_num_reorder_pics: r.ue()?,
                max_latency_increase_plus1: r.ue()?,
            };
        }
        Ok(limits)
    }

    pub(super) fn write(&self, w: &mut BitWriter) {
        w.flag(true); // sub_layer_ordering_info_present_flag
        w.ue(self.max_dec_pic_buffering_minus1);
        w.ue(self.max_num_reorder_pics);
        w.ue(self.max_latency_increase_plus1);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pcm {
    pub bit_depth: u32,
    pub chroma_bit_depth: u32,
    pub log2_min_size: u32,
    pub log2_max_size: u32,
    pub loop_filter_disabled: bool,
}

/// As much of st_ref_pic_set() as reading further ones takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShortTermRefPicSet {
    /// NumDeltaPocs.
    pub pictures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpsRangeExtension {
    pub transform_skip_rotation_enabled: bool,
    pub transform_skip_context_enabled: bool,
    pub implicit_rdpcm_enabled: bool,
    pub explicit_rdpcm_enabled: bool,
    pub extended_precision_processing: bool,
    pub intra_smoothing_disabled: bool,
    pub high_precision_offsets_enabled: bool,
    pub persistent_rice_adaptation_enabled: bool,
    pub cabac_bypass_alignment_enabled: bool,
}

/// sps_scc_extension(): which screen-content tools a stream may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScreenContent {
    pub curr_pic_ref: bool,
    pub palette_mode: bool,
    /// motion_vector_resolution_control_idc is not 0.
    pub motion_vectors: bool,
    /// intra_boundary_filtering_disabled_flag.
    pub boundary_filters: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sps {
    pub vps_id: u8,
    pub max_sub_layers: u8,
    pub profile: ProfileTierLevel,
    pub id: u8,
    pub chroma: Chroma,
    pub separate_colour_plane: bool,
    /// pic_width_in_luma_samples.
    pub width: u32,
    /// pic_height_in_luma_samples.
    pub height: u32,
    pub conformance_window: Window,
    pub bit_depth: u32,
    pub chroma_bit_depth: u32,
    pub log2_max_poc_lsb: u32,
    pub dpb: DpbLimits,
    pub log2_min_cb: u32,
    pub log2_ctb: u32,
    pub log2_min_tb: u32,
    pub log2_max_tb: u32,
    pub max_transform_hierarchy_depth_inter: u32,
    pub max_transform_hierarchy_depth_intra: u32,
    /// Scaling lists are in use; without lists of its own the PPS's or the
    /// default ones apply.
    pub scaling_list_enabled: bool,
    pub scaling_list: Option<Box<ScalingList>>,
    pub amp_enabled: bool,
    pub sao_enabled: bool,
    pub pcm: Option<Pcm>,
    pub short_term_ref_pic_sets: Vec<ShortTermRefPicSet>,
    pub long_term_ref_pics_present: bool,
    pub num_long_term_ref_pics: u32,
    pub temporal_mvp_enabled: bool,
    pub strong_intra_smoothing_enabled: bool,
    pub vui: Option<Vui>,
    pub range: SpsRangeExtension,
    pub screen_content: ScreenContent,
}

impl Sps {
    /// The smallest legal SPS for a `width` × `height` picture: 64×64 CTBs,
    /// every tool off. `width` and `height` must be multiples of 8.
    pub fn new(width: u32, height: u32, chroma: Chroma, bit_depth: u32) -> Self {
        Self {
            max_sub_layers: 1,
            chroma,
            width,
            height,
            bit_depth,
            chroma_bit_depth: bit_depth,
            log2_max_poc_lsb: 8,
            log2_min_cb: 3,
            log2_ctb: 6,
            log2_min_tb: 2,
            log2_max_tb: 5,
            ..Self::default()
        }
    }

    /// The SPS each of three planes that are coded apart is decoded by, as if
    /// it were luma alone; none where they are coded together.
    pub fn coded_apart(&self) -> Option<Self> {
        let alone = || Self { chroma: Chroma::C400, separate_colour_plane: false, ..self.clone() };
        self.separate_colour_plane.then(alone)
    }

    /// ChromaArrayType as a format: 4:0:0 where planes are coded apart.
    pub fn chroma_array(&self) -> Chroma {
        if self.separate_colour_plane { Chroma::C400 } else { self.chroma }
    }

    /// PicWidthInCtbsY and PicHeightInCtbsY.
    pub fn size_in_ctbs(&self) -> (u32, u32) {
        let ctb = 1 << self.log2_ctb;
        (self.width.div_ceil(ctb), self.height.div_ceil(ctb))
    }

    pub fn depth(&self, c: usize) -> u32 {
        if c == 0 { self.bit_depth } else { self.chroma_bit_depth }
    }

    /// Reads an RBSP after its NAL unit header.
    pub fn parse(rbsp: &[u8]) -> Result<Self, BitstreamError> {
        let r = &mut BitReader::new(rbsp);
        let vps_id = r.bits(4)? as u8;
        let sub_layers = in_range("sps_max_sub_layers_minus1", r.bits(3)?, 0..=6)? + 1;
        r.skip(1)?; // sps_temporal_id_nesting_flag
        let profile = ProfileTierLevel::parse(r, sub_layers)?;
        let id = in_range("sps_seq_parameter_set_id", r.ue()?, 0..=15)? as u8;
        let chroma_format_idc = in_range("chroma_format_idc", r.ue()?, 0..=3)?;
        let chroma = Chroma::from_idc(chroma_format_idc).unwrap_or(Chroma::C400);
        let separate_colour_plane = chroma == Chroma::C444 && r.flag()?;
        let width = in_range("pic_width_in_luma_samples", r.ue()?, 1..=MAX_DIMENSION)?;
        let height = in_range("pic_height_in_luma_samples", r.ue()?, 1..=MAX_DIMENSION)?;
        let mut sps = Self::new(width, height, chroma, 8);
        (sps.vps_id, sps.max_sub_layers, sps.profile, sps.id) = (vps_id, sub_layers as u8, profile, id);
        sps.separate_colour_plane = separate_colour_plane;
        if r.flag()? {
            sps.conformance_window = Window::parse(r)?;
            sps.check_window()?;
        }
        sps.bit_depth = in_range("bit_depth_luma_minus8", r.ue()?, 0..=8)? + 8;
        sps.chroma_bit_depth = in_range("bit_depth_chroma_minus8", r.ue()?, 0..=8)? + 8;
        sps.log2_max_poc_lsb = in_range("log2_max_pic_order_cnt_lsb_minus4", r.ue()?, 0..=12)? + 4;
        sps.dpb = DpbLimits::parse(r, sub_layers)?;
        sps.parse_block_sizes(r)?;
        sps.scaling_list_enabled = r.flag()?;
        if sps.scaling_list_enabled && r.flag()? {
            sps.scaling_list = Some(Box::new(ScalingList::parse(r, chroma_format_idc)?));
        }
        sps.amp_enabled = r.flag()?;
        sps.sao_enabled = r.flag()?;
        if r.flag()? {
            sps.parse_pcm(r)?;
        }
        let sets = in_range("num_short_term_ref_pic_sets", r.ue()?, 0..=64)?;
        for _ in 0..sets {
            let set = ShortTermRefPicSet::parse(r, &sps.short_term_ref_pic_sets, false)?;
            sps.short_term_ref_pic_sets.push(set);
        }
        sps.long_term_ref_pics_present = r.flag()?;
        if sps.long_term_ref_pics_present {
            sps.num_long_term_ref_pics = in_range("num_long_term_ref_pics_sps", r.ue()?, 0..=32)?;
            for _ in 0..sps.num_long_term_ref_pics {
                r.skip(sps.log2_max_poc_lsb + 1)?;
            }
        }
        sps.temporal_mvp_enabled = r.flag()?;
        sps.strong_intra_smoothing_enabled = r.flag()?;
        if r.flag()? {
            sps.vui = Some(Vui::parse(r, sub_layers)?);
        }
        if r.flag()? {
            sps.parse_extensions(r)?;
        }
        Ok(sps)
    }

    fn check_window(&self) -> Result<(), BitstreamError> {
        let (sx, sy) = self.chroma.shift();
        let Window { left, right, top, bottom } = self.conformance_window;
        let across = (u64::from(left) + u64::from(right)) << sx;
        let down = (u64::from(top) + u64::from(bottom)) << sy;
        if across >= u64::from(self.width) || down >= u64::from(self.height) {
            return invalid("the conformance window leaves no picture");
        }
        Ok(())
    }

    fn parse_block_sizes(&mut self, r: &mut BitReader<'_>) -> Result<(), BitstreamError> {
        self.log2_min_cb = in_range("log2_min_luma_coding_block_size_minus3", r.ue()?, 0..=3)? + 3;
        let difference = in_range("log2_diff_max_min_luma_coding_block_size", r.ue()?, 0..=3)?;
        self.log2_ctb = in_range("CtbLog2SizeY", self.log2_min_cb + difference, 4..=6)?;
        let min_tb = r.ue()?;
        self.log2_min_tb = in_range("log2_min_luma_transform_block_size_minus2", min_tb, 0..=3)? + 2;
        if self.log2_min_tb >= self.log2_min_cb {
            return invalid("the smallest transform is not smaller than the smallest coding block");
        }
        let difference = in_range("log2_diff_max_min_luma_transform_block_size", r.ue()?, 0..=3)?;
        self.log2_max_tb = self.log2_min_tb + difference;
        in_range("MaxTbLog2SizeY", self.log2_max_tb, 2..=self.log2_ctb.min(5))?;
        let max_depth = self.log2_ctb - self.log2_min_tb;
        self.max_transform_hierarchy_depth_inter =
            in_range("max_transform_hierarchy_depth_inter", r.ue()?, 0..=max_depth)?;
        self.max_transform_hierarchy_depth_intra =
            in_range("max_transform_hierarchy_depth_intra", r.ue()?, 0..=max_depth)?;
        let min_cb = 1 << self.log2_min_cb;
        if !self.width.is_multiple_of(min_cb) || !self.height.is_multiple_of(min_cb) {
            let (width, height) = (self.width, self.height);
            let smallest = format!("no multiple of the smallest coding block {min_cb}");
            return invalid(format!("the picture is {width}×{height}, {smallest}"));
        }
        Ok(())
    }

    fn parse_pcm(&mut self, r: &mut BitReader<'_>) -> Result<(), BitstreamError> {
        let bit_depth = in_range("PcmBitDepthY", r.bits(4)? + 1, 1..=self.bit_depth)?;
        let chroma_bit_depth = r.bits(4)? + 1;
        if self.chroma != Chroma::C400 {
            in_range("PcmBitDepthC", chroma_bit_depth, 1..=self.chroma_bit_depth)?;
        }
        let log2_min_size = r.ue()?;
        let log2_min_size = in_range("log2_min_pcm_luma_coding_block_size_minus3", log2_min_size, 0..=2)? + 3;
        let difference = in_range("log2_diff_max_min_pcm_luma_coding_block_size", r.ue()?, 0..=2)?;
        let log2_max_size = in_range("Log2MaxIpcmCbSizeY", log2_min_size + difference, 3..=5)?;
        let loop_filter_disabled = r.flag()?;
        self.pcm =
            Some(Pcm { bit_depth, chroma_bit_depth, log2_min_size, log2_max_size, loop_filter_disabled });
        Ok(())
    }

    fn parse_extensions(&mut self, r: &mut BitReader<'_>) -> Result<(), BitstreamError> {
        let (range, multilayer, three_d, screen_content) = (r.flag()?, r.flag()?, r.flag()?, r.flag()?);
        r.skip(4)?;
        if range {
            self.range = SpsRangeExtension {
                transform_skip_rotation_enabled: r.flag()?,
                transform_skip_context_enabled: r.flag()?,
                implicit_rdpcm_enabled: r.flag()?,
                explicit_rdpcm_enabled: r.flag()?,
                extended_precision_processing: r.flag()?,
                intra_smoothing_disabled: r.flag()?,
                high_precision_offsets_enabled: r.flag()?,
                persistent_rice_adaptation_enabled: r.flag()?,
                cabac_bypass_alignment_enabled: r.flag()?,
            };
        }
        if multilayer {
            r.skip(1)?; // inter_view_mv_vert_constraint_flag
        }
        // 3D extensions speak of other layers; what follows them is not looked for.
        if screen_content && !three_d {
            self.screen_content.curr_pic_ref = r.flag()?;
            self.screen_content.palette_mode = r.flag()?;
            if self.screen_content.palette_mode {
                r.ue()?; // palette_max_size
                r.ue()?; // delta_palette_max_predictor_size
                if r.flag()? {
                    let entries = in_range("sps_num_palette_predictor_initializers", r.ue()?, 0..=127)? + 1;
                    for c in 0..self.chroma.planes() {
                        for _ in 0..entries {
                            r.skip(self.depth(c))?;
                        }
                    }
                }
            }
            self.screen_content.motion_vectors = r.bits(2)? != 0;
            self.screen_content.boundary_filters = r.flag()?;
        }
        Ok(())
    }

    /// The RBSP after the NAL unit header. Reference picture sets and screen
    /// content are not written: an all-intra stream has no use for them.
    pub fn write(&self) -> Vec<u8> {
        let w = &mut BitWriter::new();
        w.bits(u32::from(self.vps_id), 4);
        w.bits(0, 3); // sps_max_sub_layers_minus1
        w.flag(true); // sps_temporal_id_nesting_flag
        self.profile.write(w);
        w.ue(u32::from(self.id));
        w.ue(self.chroma.idc());
        if self.chroma == Chroma::C444 {
            w.flag(self.separate_colour_plane);
        }
        w.ue(self.width);
        w.ue(self.height);
        let window = self.conformance_window;
        let cropped = window != Window::default();
        w.flag(cropped);
        if cropped {
            window.write(w);
        }
        w.ue(self.bit_depth - 8);
        w.ue(self.chroma_bit_depth - 8);
        w.ue(self.log2_max_poc_lsb - 4);
        self.dpb.write(w);
        w.ue(self.log2_min_cb - 3);
        w.ue(self.log2_ctb - self.log2_min_cb);
        w.ue(self.log2_min_tb - 2);
        w.ue(self.log2_max_tb - self.log2_min_tb);
        w.ue(self.max_transform_hierarchy_depth_inter);
        w.ue(self.max_transform_hierarchy_depth_intra);
        w.flag(self.scaling_list_enabled);
        if self.scaling_list_enabled {
            w.flag(self.scaling_list.is_some());
            if let Some(list) = &self.scaling_list {
                list.write(w);
            }
        }
        w.flag(self.amp_enabled);
        w.flag(self.sao_enabled);
        w.flag(self.pcm.is_some());
        if let Some(pcm) = &self.pcm {
            w.bits(pcm.bit_depth - 1, 4);
            w.bits(pcm.chroma_bit_depth - 1, 4);
            w.ue(pcm.log2_min_size - 3);
            w.ue(pcm.log2_max_size - pcm.log2_min_size);
            w.flag(pcm.loop_filter_disabled);
        }
        w.ue(0); // num_short_term_ref_pic_sets
        w.flag(false); // long_term_ref_pics_present_flag
        w.flag(self.temporal_mvp_enabled);
        w.flag(self.strong_intra_smoothing_enabled);
        w.flag(self.vui.is_some());
        if let Some(vui) = &self.vui {
            vui.write(w);
        }
        let extended = self.range != SpsRangeExtension::default();
        w.flag(extended);
        if extended {
            w.bits(0b1000_0000, 8);
            let range = &self.range;
            for flag in [
                range.transform_skip_rotation_enabled,
                range.transform_skip_context_enabled,
                range.implicit_rdpcm_enabled,
                range.explicit_rdpcm_enabled,
                range.extended_precision_processing,
                range.intra_smoothing_disabled,
                range.high_precision_offsets_enabled,
                range.persistent_rice_adaptation_enabled,
                range.cabac_bypass_alignment_enabled,
            ] {
                w.flag(flag);
            }
        }
        w.trailing_bits();
        std::mem::take(w).into_bytes()
    }
}

/// The longest side any level allows (Table A.8: √(8 · 142 606 336), level 7.2).
const MAX_DIMENSION: u32 = 33_776;

impl ShortTermRefPicSet {
    /// Reads st_ref_pic_set() number `sets.len()` of an SPS, or the one of a
    /// slice header (`in_slice`), given the sets of the SPS before it.
    pub(super) fn parse(
        r: &mut BitReader<'_>,
        sets: &[Self],
        in_slice: bool,
    ) -> Result<Self, BitstreamError> {
        if !sets.is_empty() && r.flag()? {
            return Self::parse_predicted(r, sets, in_slice);
        }
        let negative = in_range("num_negative_pics", r.ue()?, 0..=16)?;
        let positive = in_range("num_positive_pics", r.ue()?, 0..=16)?;
        for _ in 0..negative + positive {
            r.ue()?; // delta_poc_minus1
            r.skip(1)?; // used_by_curr_pic
        }
        Ok(Self { pictures: negative + positive })
    }

    fn parse_predicted(r: &mut BitReader<'_>, sets: &[Self], in_slice: bool) -> Result<Self, BitstreamError> {
        let back = if in_slice { r.ue()? as usize } else { 0 };
        in_range("delta_idx_minus1", back, 0..=sets.len() - 1)?;
        r.skip(1)?; // delta_rps_sign
        r.ue()?; // abs_delta_rps_minus1
        let mut pictures = 0;
        for _ in 0..=sets[sets.len() - 1 - back].pictures {
            let used = r.flag()?;
            // use_delta_flag is only sent, and only matters, for unused ones.
            if used || r.flag()? {
                pictures += 1;
            }
        }
        Ok(Self { pictures: in_range("NumDeltaPocs", pictures, 0..=32)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_bits::vui::Start;

    #[test]
    fn a_full_sps_round_trips() {
        let mut sps = Sps::new(1000, 696, Chroma::C444, 16);
        sps.chroma_bit_depth = 12;
        sps.conformance_window = Window { left: 1, right: 2, top: 3, bottom: 4 };
        sps.profile =
            ProfileTierLevel { profile_idc: 4, constraints: 0x1234_5678_9abc, ..Default::default() };
        sps.scaling_list_enabled = true;
        sps.scaling_list = Some(Box::default());
        sps.pcm = Some(Pcm {
            bit_depth: 16,
            chroma_bit_depth: 7,
            log2_min_size: 3,
            log2_max_size: 5,
            loop_filter_disabled: true,
        });
        sps.sao_enabled = true;
        sps.vui = Some(Vui {
            start: Start { full_range: Some(true), colour: Some([1, 13, 0]), ..Start::default() },
            default_display_window: Some(Window { left: 4, ..Window::default() }),
            timing: Some((1, 60)),
            ..Vui::default()
        });
        sps.strong_intra_smoothing_enabled = true;
        sps.range.persistent_rice_adaptation_enabled = true;
        sps.range.cabac_bypass_alignment_enabled = true;
        assert_eq!(Sps::parse(&sps.write()).unwrap(), sps);
    }

    #[test]
    fn every_truncation_of_an_sps_is_an_error() {
        let bytes = Sps::new(64, 64, Chroma::C420, 8).write();
        for length in 0..bytes.len() - 1 {
            assert!(Sps::parse(&bytes[..length]).is_err(), "{length}");
        }
    }
}
