//! Sequence and picture parameter sets (clauses 7.3.2.1, 7.3.2.2, E.1).
//!
//! Reads them and derives what the rest of the decoder asks for; the encoder
//! writes its own few fields in `encoder/headers.rs`.

use crate::quant::{ScalingLists, read_lists};
use trinity_bits::vui::Start;
use trinity_bits::{BitReader, BitstreamError, Chroma, Presentation, invalid};

/// Macroblocks of the largest frame any level allows (MaxFS of level 6.2).
const MAX_FRAME_MBS: u32 = 139_264;

/// seq_parameter_set_data().
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    #[default]
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
            bit_depth_luma: 8,
            bit_depth_chroma: 8,
            ..Self::default()
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
        let (nal_hrd, vcl_hrd) = (skip_hrd(r)?, skip_hrd(r)?);
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

/// Whether there are hrd_parameters(), which are read over.
fn skip_hrd(r: &mut BitReader) -> Result<bool, BitstreamError> {
    if !r.flag()? {
        return Ok(false);
    }
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
    Ok(true)
}

/// pic_parameter_set_rbsp().
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
        let mut pps = Self {
            id,
            sps_id,
            entropy_coding_mode_cabac: r.flag()?,
            bottom_field_pic_order_in_frame_present: r.flag()?,
            slice_groups: r.ue()?.saturating_add(1),
            scaling: sps.scaling.clone(),
            ..Self::default()
        };
        if pps.slice_groups > 1 {
            return Err(BitstreamError::Unsupported("flexible macroblock ordering (several slice groups)"));
        }
        pps.num_ref_idx_default = [r.ue()?.saturating_add(1), r.ue()?.saturating_add(1)];
        pps.weighted_pred = r.flag()?;
        pps.weighted_bipred_idc = r.bits(2)?;
        pps.pic_init_qp = r.se()?.saturating_add(26);
        r.se()?; // pic_init_qs_minus26
        pps.chroma_qp_index_offset = [r.se()?; 2];
        pps.deblocking_filter_control_present = r.flag()?;
        pps.constrained_intra_pred = r.flag()?;
        pps.redundant_pic_cnt_present = r.flag()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_bits::BitWriter;

    /// What a sequence's set says, field by field as it stands in the stream.
    #[derive(Debug, Clone, Copy)]
    struct Written {
        profile: u32,
        constraints: u32,
        level: u32,
        id: u32,
        chroma: u32,
        depths: [u32; 2],
        log2_frame_num: u32,
        order: u32,
        size: [u32; 2],
        interlaced: bool,
        crop: Option<[u32; 4]>,
    }

    const HIGH: Written = Written {
        profile: 100,
        constraints: 0,
        level: 30,
        id: 3,
        chroma: 1,
        depths: [0, 0],
        log2_frame_num: 2,
        order: 2,
        size: [19, 14],
        interlaced: false,
        crop: None,
    };

    impl Written {
        fn read(&self) -> Result<Sps, BitstreamError> {
            self.read_with(|w| w.flag(false))
        }

        /// With what `vui` writes at the end.
        fn read_with(&self, vui: impl Fn(&mut BitWriter)) -> Result<Sps, BitstreamError> {
            let mut w = BitWriter::new();
            [self.profile, self.constraints, self.level].iter().for_each(|&field| w.bits(field, 8));
            w.ue(self.id);
            if self.profile >= 100 {
                w.ue(self.chroma);
                if self.chroma == 3 {
                    w.flag(true); // separate_colour_plane_flag
                }
                self.depths.iter().for_each(|&depth| w.ue(depth));
                w.bits(0, 2);
            }
            w.ue(self.log2_frame_num);
            w.ue(self.order);
            match self.order {
                0 => w.ue(2),
                1 => {
                    w.flag(true);
                    w.se(-3);
                    w.se(1);
                    w.ue(2);
                    w.se(4);
                    w.se(-6);
                }
                _ => {}
            }
            w.ue(4);
            w.flag(true);
            self.size.iter().for_each(|&side| w.ue(side));
            w.flag(!self.interlaced);
            if self.interlaced {
                w.flag(true); // mb_adaptive_frame_field_flag
            }
            w.flag(true);
            w.flag(self.crop.is_some());
            self.crop.iter().flatten().for_each(|&side| w.ue(side));
            vui(&mut w);
            w.trailing_bits();
            Sps::read(&mut BitReader::new(&w.into_bytes()))
        }
    }

    #[test]
    fn a_sequence_is_what_its_fields_say() {
        let sps = HIGH.read().unwrap();
        assert_eq!((sps.id, sps.profile_idc, sps.level_idc), (3, 100, 30));
        assert_eq!((sps.log2_max_frame_num, sps.max_num_ref_frames), (6, 4));
        assert_eq!((sps.width_mbs, sps.height_mbs(), sps.crop_units()), (20, 15, (2, 2)));
        assert!(sps.gaps_in_frame_num_allowed && sps.frame_mbs_only && sps.direct_8x8_inference);
        let plain = Written { profile: 66, ..HIGH }.read().unwrap();
        assert_eq!((plain.chroma, plain.bit_depth_luma), (Chroma::C420, 8));
        let deep = Written { depths: [2, 6], chroma: 2, profile: 244, ..HIGH }.read().unwrap();
        assert_eq!((deep.bit_depth_luma, deep.bit_depth_chroma, deep.crop_units()), (10, 14, (2, 1)));
        // Three planes on their own are three grey pictures; a field has every other row.
        let planes = Written { chroma: 3, interlaced: true, crop: Some([1, 2, 3, 4]), ..HIGH };
        let planes = planes.read().unwrap();
        assert_eq!((planes.chroma, planes.chroma_array_type()), (Chroma::C444, Chroma::C400));
        assert_eq!((planes.height_mbs(), planes.crop_units(), planes.crop), (30, (1, 2), [1, 2, 3, 4]));
        assert!(planes.mb_adaptive_frame_field);
        assert_eq!(Written { order: 0, ..HIGH }.read().unwrap().poc, PocType::Lsb { log2_max: 6 });
        let cycle = PocType::Cycle {
            delta_always_zero: true,
            offset_for_non_ref_pic: -3,
            offset_for_top_to_bottom: 1,
            offsets_for_ref_frame: vec![4, -6],
        };
        assert_eq!(Written { order: 1, ..HIGH }.read().unwrap().poc, cycle);
    }

    #[test]
    fn fields_that_no_sequence_may_have_are_named() {
        for (written, word) in [
            (Written { id: 32, ..HIGH }, "seq_parameter_set_id 32"),
            (Written { chroma: 4, ..HIGH }, "chroma_format_idc 4"),
            (Written { depths: [7, 0], ..HIGH }, "15 (luma)"),
            (Written { depths: [0, 7], ..HIGH }, "15 (chroma)"),
            (Written { log2_frame_num: 13, ..HIGH }, "log2_max_frame_num 17"),
            (Written { order: 3, ..HIGH }, "pic_order_cnt_type 3"),
            (Written { size: [400, 400], ..HIGH }, "401×401"),
            // Twenty macroblocks are 320 samples, 160 pairs of them.
            (Written { crop: Some([80, 80, 0, 0]), ..HIGH }, "cropping"),
            (Written { crop: Some([0, 0, 119, 1]), ..HIGH }, "cropping"),
        ] {
            let said = written.read().unwrap_err();
            assert!(
                matches!(&said, BitstreamError::Invalid(what) if what.contains(word)),
                "{said:?}: {word}"
            );
        }
        assert!(Written { crop: Some([80, 79, 0, 0]), ..HIGH }.read().is_ok());
    }

    /// Clause C.4.5.3: the VUI says it, or the profile, or the buffer that the level has.
    #[test]
    fn frames_wait_for_output_as_long_as_the_sequence_says() {
        let waits = |written: Written| written.read().unwrap().reorder_frames();
        assert_eq!(waits(HIGH), 0, "output is decoding order");
        let by_bits = Written { order: 0, ..HIGH };
        // Level 3: 8,100 macroblocks; a frame has 300.
        assert_eq!(waits(by_bits), 16);
        assert_eq!(waits(Written { size: [44, 35], ..by_bits }), 5);
        assert_eq!(waits(Written { size: [44, 35], level: 21, ..by_bits }), 2);
        assert_eq!(waits(Written { constraints: 0x10, ..by_bits }), 0, "intra alone");
        let stated = by_bits.read_with(|w| {
            w.flag(true);
            w.bits(0, 4); // no aspect ratio, overscan, video signal, chroma location
            w.bits(0, 4); // no timing, no buffers, no structure of pictures
            w.flag(true);
            w.flag(true);
            [0, 0, 10, 10, 2, 3].iter().for_each(|&field| w.ue(field));
        });
        let stated = stated.unwrap();
        assert_eq!((stated.max_num_reorder_frames, stated.max_dec_frame_buffering), (Some(2), Some(3)));
        assert_eq!(stated.reorder_frames(), 2);
        // A VUI that is cut short is as none.
        let cut = by_bits.read_with(|w| {
            w.flag(true);
            w.bits(0, 8);
            w.flag(true);
        });
        assert_eq!(cut.unwrap(), by_bits.read().unwrap());
    }

    fn pps(sps: &Sps, groups: u32, offsets: [i32; 2], lists: bool) -> Result<Pps, BitstreamError> {
        let mut w = BitWriter::new();
        w.ue(7);
        w.ue(3);
        w.bits(0b10, 2);
        w.ue(groups - 1);
        w.ue(0);
        w.ue(1);
        w.flag(false);
        w.bits(2, 2);
        w.se(-6);
        w.se(0);
        w.se(offsets[0]);
        w.bits(0b100, 3);
        w.flag(true); // transform_8x8_mode_flag
        w.flag(lists);
        if lists {
            (0..8).for_each(|_| w.flag(false));
        }
        w.se(offsets[1]);
        w.trailing_bits();
        Pps::read(&mut BitReader::new(&w.into_bytes()), sps)
    }

    #[test]
    fn a_picture_takes_from_its_sequence_what_it_does_not_say() {
        let sps = HIGH.read().unwrap();
        let plain = pps(&sps, 1, [-2, 3], false).unwrap();
        assert_eq!((plain.id, plain.sps_id, plain.pic_init_qp), (7, 3, 20));
        assert_eq!((plain.num_ref_idx_default, plain.weighted_bipred_idc), ([1, 2], 2));
        assert_eq!((plain.chroma_qp_index_offset, plain.scaling.is_none()), ([-2, 3], true));
        assert!(plain.entropy_coding_mode_cabac && plain.transform_8x8_mode);
        assert!(plain.deblocking_filter_control_present && !plain.constrained_intra_pred);
        let own = ScalingLists { lists_4x4: [[7; 16]; 6], lists_8x8: [[9; 64]; 6] };
        let listed = Sps { scaling: Some(own.clone()), ..sps };
        assert_eq!(pps(&listed, 1, [0, 0], false).unwrap().scaling, Some(own.clone()));
        assert_eq!(pps(&listed, 1, [0, 0], true).unwrap().scaling, Some(own), "lists left out fall back");
        let said = pps(&listed, 2, [0, 0], false).unwrap_err();
        assert!(
            matches!(said, BitstreamError::Unsupported(what) if what.contains("slice groups")),
            "{said:?}"
        );
        for offsets in [[13, 0], [0, -13]] {
            let said = pps(&listed, 1, offsets, false).unwrap_err();
            assert!(format!("{said:?}").contains("chroma_qp_index_offset"), "{said:?}");
        }
    }
}
