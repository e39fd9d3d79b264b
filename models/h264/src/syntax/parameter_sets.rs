//! Sequence and picture parameter sets (clauses 7.3.2.1, 7.3.2.2, E.1).
//!
//! Reads them and derives what the rest of the decoder asks for; the encoder
//! writes its own few fields in `encoder/headers.rs`.

use crate::bitstream_error::invalid;
use crate::quant::{ScalingLists, read_lists};
use trinity_bits::BitstreamError;
use trinity_bits::vui::Start;
use trinity_bits::{BitReader, Chroma, Presentation};

/// Macroblocks of the largest frame any level allows (MaxFS of level 6.2).
const MAX_FRAME_MBS: u32 = 139_264;

/// seq_parameter_set_data().
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sps {
    pub id: u32,
    pub profile_idc: u32,
    /// constraint_set0_flag in bit 7 down to constraint_set5_flag in bit 2.
    pub constraint_flags: u32,
    pub level_idc: u32,
    /// chroma_format_idc as transmitted; see [`Sps::chroma_array_type`].
    pub chroma: Chroma,
    pub separate_colour_plane: bool,
    pub bit_depth_luma: u32,
    pub bit_depth_chroma: u32,
    pub qpprime_y_zero_transform_bypass: bool,
    pub scaling: Option<ScalingLists>,
    pub log2_max_frame_num: u32,
    pub poc: PocType,
    pub max_num_ref_frames: u32,
    pub gaps_in_frame_num_allowed: bool,
    pub width_mbs: u32,
    /// PicHeightInMapUnits.
    pub height_map_units: u32,
    pub frame_mbs_only: bool,
    pub mb_adaptive_frame_field: bool,
    pub direct_8x8_inference: bool,
    /// Left, right, top, bottom in units of [`Sps::crop_units`].
    pub crop: [u32; 4],
    /// max_num_reorder_frames of the VUI, where it is present.
    pub max_num_reorder_frames: Option<u32>,
    /// max_dec_frame_buffering of the VUI, where it is present.
    pub max_dec_frame_buffering: Option<u32>,
    /// matrix_coefficients of the VUI, where it is present.
    pub matrix_coefficients: Option<u8>,
    /// How the VUI says that pictures are to be shown.
    pub shown: Presentation,
}

/// How picture order count is coded (clause 8.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PocType {
    /// Type 0: its low bits in each slice header.
    Lsb { log2_max: u32 },
    /// Type 1: from frame_num and a cycle of offsets.
    Cycle {
        delta_always_zero: bool,
        offset_for_non_ref_pic: i32,
        offset_for_top_to_bottom: i32,
        offsets_for_ref_frame: Vec<i32>,
    },
    /// Type 2: output order is decoding order.
    DecodingOrder,
}

impl Sps {
    /// Reads the RBSP after the NAL unit header.
    pub(crate) fn read(r: &mut BitReader) -> Result<Self, BitstreamError> {
        let profile_idc = r.bits(8)?;
        let constraint_flags = r.bits(8)?;
        let level_idc = r.bits(8)?;
        let id = r.ue()?;
        if id > 31 {
            return invalid(format!("seq_parameter_set_id {id} is above 31"));
        }
        let mut sps = Self {
            id,
            profile_idc,
            constraint_flags,
            level_idc,
            chroma: Chroma::C420,
            separate_colour_plane: false,
            bit_depth_luma: 8,
            bit_depth_chroma: 8,
            qpprime_y_zero_transform_bypass: false,
            scaling: None,
            log2_max_frame_num: 0,
            poc: PocType::DecodingOrder,
            max_num_ref_frames: 0,
            gaps_in_frame_num_allowed: false,
            width_mbs: 0,
            height_map_units: 0,
            frame_mbs_only: true,
            mb_adaptive_frame_field: false,
            direct_8x8_inference: false,
            crop: [0; 4],
            max_num_reorder_frames: None,
            max_dec_frame_buffering: None,
            matrix_coefficients: None,
            shown: Presentation::default(),
        };
        if matches!(profile_idc, 100 | 110 | 122 | 244 | 44 | 83 | 86 | 118 | 128 | 138 | 139 | 134 | 135) {
            sps.read_chroma_and_depth(r)?;
        }
        sps.log2_max_frame_num = r.ue()?.saturating_add(4);
        if sps.log2_max_frame_num > 16 {
            return invalid(format!("log2_max_frame_num {} is above 16", sps.log2_max_frame_num));
        }
        sps.poc = read_poc_type(r)?;
        sps.max_num_ref_frames = r.ue()?;
        sps.gaps_in_frame_num_allowed = r.flag()?;
        sps.read_size(r)?;
        sps.direct_8x8_inference = r.flag()?;
        if r.flag()? {
            for side in &mut sps.crop {
                *side = r.ue()?;
            }
        }
        sps.check_crop()?;
        // A truncated or odd VUI must not cost the pictures: it only refines output order.
        if r.flag()? {
            let mut refined = sps.clone();
            if refined.read_vui(r).is_ok() {
                sps = refined;
            }
        }
        Ok(sps)
    }

    /// vui_parameters(): colour, and how far output lags behind decoding.
    fn read_vui(&mut self, r: &mut BitReader) -> Result<(), BitstreamError> {
        let start = Start::parse(r)?;
        self.matrix_coefficients = start.colour.map(|[_, _, matrix]| matrix);
        let mut frame_rate = None;
        if r.flag()? {
            let (ticks, scale) = (r.bits(32)?, r.bits(32)?);
            // A tick is a field's time: half a frame's.
            frame_rate = match scale % 2 {
                0 => Some((scale / 2, ticks)),
                _ => ticks.checked_mul(2).map(|ticks| (scale, ticks)),
            };
            r.flag()?; // fixed_frame_rate_flag
        }
        self.shown = start.presentation(frame_rate);
        let nal_hrd = r.flag()?;
        if nal_hrd {
            skip_hrd(r)?;
        }
        let vcl_hrd = r.flag()?;
        if vcl_hrd {
            skip_hrd(r)?;
        }
        if nal_hrd || vcl_hrd {
            r.flag()?; // low_delay_hrd_flag
        }
        r.flag()?; // pic_struct_present_flag
        if !r.flag()? {
            return Ok(());
        }
        r.flag()?; // motion_vectors_over_pic_boundaries_flag
        for _ in 0..4 {
            r.ue()?; // max_bytes_per_pic_denom to log2_max_mv_length_vertical
        }
        self.max_num_reorder_frames = Some(r.ue()?.min(16));
        self.max_dec_frame_buffering = Some(r.ue()?.min(16));
        Ok(())
    }

    fn read_chroma_and_depth(&mut self, r: &mut BitReader) -> Result<(), BitstreamError> {
        let idc = r.ue()?;
        let Some(chroma) = Chroma::from_idc(idc) else {
            return invalid(format!("chroma_format_idc {idc} is above 3"));
        };
        self.chroma = chroma;
        if chroma == Chroma::C444 {
            self.separate_colour_plane = r.flag()?;
        }
        self.bit_depth_luma = r.ue()?.saturating_add(8);
        self.bit_depth_chroma = r.ue()?.saturating_add(8);
        if self.bit_depth_luma > 14 || self.bit_depth_chroma > 14 {
            return invalid(format!(
                "bit depth {} (luma) or {} (chroma) is above 14",
                self.bit_depth_luma, self.bit_depth_chroma
            ));
        }
        self.qpprime_y_zero_transform_bypass = r.flag()?;
        if r.flag()? {
            let count = if chroma == Chroma::C444 { 12 } else { 8 };
            self.scaling = Some(read_lists(r, count, None)?);
        }
        Ok(())
    }

    fn read_size(&mut self, r: &mut BitReader) -> Result<(), BitstreamError> {
        self.width_mbs = r.ue()?.saturating_add(1);
        self.height_map_units = r.ue()?.saturating_add(1);
        self.frame_mbs_only = r.flag()?;
        if !self.frame_mbs_only {
            self.mb_adaptive_frame_field = r.flag()?;
        }
        let (width, height) = (u64::from(self.width_mbs), u64::from(self.height_mbs()));
        if width * height > u64::from(MAX_FRAME_MBS) {
            return invalid(format!("a frame of {width}×{height} macroblocks is above every level's limit"));
        }
        Ok(())
    }

    fn check_crop(&self) -> Result<(), BitstreamError> {
        let (unit_x, unit_y) = self.crop_units();
        let sides = self.crop.map(u64::from);
        let width = u64::from(self.width_mbs) * 16;
        let height = u64::from(self.height_mbs()) * 16;
        if (sides[0] + sides[1]) * u64::from(unit_x) >= width
            || (sides[2] + sides[3]) * u64::from(unit_y) >= height
        {
            return invalid("cropping leaves no sample");
        }
        Ok(())
    }

    /// FrameHeightInMbs.
    pub fn height_mbs(&self) -> u32 {
        self.height_map_units.saturating_mul(if self.frame_mbs_only { 1 } else { 2 })
    }

    /// CropUnitX and CropUnitY (equations 7-19 to 7-22).
    pub fn crop_units(&self) -> (u32, u32) {
        let (sx, sy) = self.chroma_array_type().shift();
        (1 << sx, (1 << sy) * if self.frame_mbs_only { 1 } else { 2 })
    }

    /// ChromaArrayType: 4:0:0 where the three planes are coded on their own.
    pub fn chroma_array_type(&self) -> Chroma {
        if self.separate_colour_plane { Chroma::C400 } else { self.chroma }
    }

    /// How many frames may wait for output before the first of them must go.
    pub fn reorder_frames(&self) -> usize {
        if let Some(frames) = self.max_num_reorder_frames {
            return frames as usize;
        }
        let intra_profile =
            self.constraint_flags & 0x10 != 0 && matches!(self.profile_idc, 44 | 86 | 100 | 110 | 122 | 244);
        if intra_profile || self.poc == PocType::DecodingOrder {
            return 0;
        }
        self.max_dec_frame_buffering.map_or_else(|| self.max_dpb_frames(), |frames| frames as usize)
    }

    /// MaxDpbFrames (clause A.3.1, h), MaxDpbMbs from Table A-1.
    fn max_dpb_frames(&self) -> usize {
        let max_dpb_mbs = match self.level_idc {
            9 | 10 => 396,
            11 if self.constraint_flags & 0x10 != 0 && matches!(self.profile_idc, 66 | 77 | 88) => 396,
            11 => 900,
            12 | 13 | 20 => 2_376,
            21 => 4_752,
            22 | 30 => 8_100,
            31 => 18_000,
            32 => 20_480,
            40 | 41 => 32_768,
            42 => 34_816,
            50 => 110_400,
            51 | 52 => 184_320,
            _ => 696_320,
        };
        ((max_dpb_mbs / (self.width_mbs * self.height_mbs()).max(1)) as usize).min(16)
    }
}

fn read_poc_type(r: &mut BitReader) -> Result<PocType, BitstreamError> {
    match r.ue()? {
        0 => {
            let log2_max = r.ue()?.saturating_add(4);
            if log2_max > 16 {
                return invalid(format!("log2_max_pic_order_cnt_lsb {log2_max} is above 16"));
            }
            Ok(PocType::Lsb { log2_max })
        }
        1 => {
            let delta_always_zero = r.flag()?;
            let offset_for_non_ref_pic = r.se()?;
            let offset_for_top_to_bottom = r.se()?;
            let count = r.ue()?;
            if count > 255 {
                return invalid(format!("num_ref_frames_in_pic_order_cnt_cycle {count} is above 255"));
            }
            let offsets_for_ref_frame = (0..count).map(|_| r.se()).collect::<Result<_, _>>()?;
            Ok(PocType::Cycle {
                delta_always_zero,
                offset_for_non_ref_pic,
                offset_for_top_to_bottom,
                offsets_for_ref_frame,
            })
        }
        2 => Ok(PocType::DecodingOrder),
        other => invalid(format!("pic_order_cnt_type {other} is above 2")),
    }
}

fn skip_hrd(r: &mut BitReader) -> Result<(), BitstreamError> {
    let count = r.ue()?;
    if count > 31 {
        return invalid(format!("cpb_cnt_minus1 {count} is above 31"));
    }
    r.bits(8)?;
    for _ in 0..=count {
        r.ue()?;
        r.ue()?;
        r.flag()?;
    }
    r.bits(20)?;
    Ok(())
}

/// pic_parameter_set_rbsp().
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pps {
    pub id: u32,
    pub sps_id: u32,
    pub entropy_coding_mode_cabac: bool,
    pub bottom_field_pic_order_in_frame_present: bool,
    pub slice_groups: u32,
    pub num_ref_idx_default: [u32; 2],
    pub weighted_pred: bool,
    pub weighted_bipred_idc: u32,
    /// 26 + pic_init_qp_minus26.
    pub pic_init_qp: i32,
    /// chroma_qp_index_offset and second_chroma_qp_index_offset.
    pub chroma_qp_index_offset: [i32; 2],
    pub deblocking_filter_control_present: bool,
    pub constrained_intra_pred: bool,
    pub redundant_pic_cnt_present: bool,
    pub transform_8x8_mode: bool,
    /// The lists in force for pictures that use this set: its own, else the sequence's.
    pub scaling: Option<ScalingLists>,
}

impl Pps {
    /// pic_parameter_set_id and seq_parameter_set_id, all that can be read
    /// without the sequence parameter set.
    pub(crate) fn read_ids(r: &mut BitReader) -> Result<(u32, u32), BitstreamError> {
        let (id, sps_id) = (r.ue()?, r.ue()?);
        if id > 255 || sps_id > 31 {
            return invalid(format!(
                "pic_parameter_set_id {id} or seq_parameter_set_id {sps_id} is too large"
            ));
        }
        Ok((id, sps_id))
    }

    /// Reads the RBSP after the NAL unit header, with the set it refers to.
    pub(crate) fn read(r: &mut BitReader, sps: &Sps) -> Result<Self, BitstreamError> {
        let (id, sps_id) = Self::read_ids(r)?;
        let entropy_coding_mode_cabac = r.flag()?;
        let bottom_field_pic_order_in_frame_present = r.flag()?;
        let slice_groups = r.ue()?.saturating_add(1);
        if slice_groups > 1 {
            return Err(BitstreamError::Unsupported("flexible macroblock ordering (several slice groups)"));
        }
        let num_ref_idx_default = [r.ue()?.saturating_add(1), r.ue()?.saturating_add(1)];
        let weighted_pred = r.flag()?;
        let weighted_bipred_idc = r.bits(2)?;
        let pic_init_qp = r.se()?.saturating_add(26);
        r.se()?; // pic_init_qs_minus26
        let offset = r.se()?;
        let mut pps = Self {
            id,
            sps_id,
            entropy_coding_mode_cabac,
            bottom_field_pic_order_in_frame_present,
            slice_groups,
            num_ref_idx_default,
            weighted_pred,
            weighted_bipred_idc,
            pic_init_qp,
            chroma_qp_index_offset: [offset; 2],
            deblocking_filter_control_present: r.flag()?,
            constrained_intra_pred: r.flag()?,
            redundant_pic_cnt_present: r.flag()?,
            transform_8x8_mode: false,
            scaling: sps.scaling.clone(),
        };
        if r.more_rbsp_data() {
            pps.transform_8x8_mode = r.flag()?;
            if r.flag()? {
                let lists_8x8 = if sps.chroma == Chroma::C444 { 6 } else { 2 };
                let count = 6 + if pps.transform_8x8_mode { lists_8x8 } else { 0 };
                pps.scaling = Some(read_lists(r, count, sps.scaling.as_ref())?);
            }
            pps.chroma_qp_index_offset[1] = r.se()?;
        }
        if pps.chroma_qp_index_offset.iter().any(|offset| !(-12..=12).contains(offset)) {
            return invalid("chroma_qp_index_offset is outside -12 to 12");
        }
        Ok(pps)
    }
}
