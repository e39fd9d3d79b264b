//! slice_header() of I slices (clause 7.3.3), and where a new picture begins.

use crate::syntax::parameter_sets::{PocType, Pps, Sps};
use trinity_bits::{BitReader, BitstreamError, invalid};

/// What nal_unit() says before the slice header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NalHeader {
    pub ref_idc: u32,
    pub unit_type: u32,
}

impl NalHeader {
    pub fn new(byte: u8) -> Self {
        Self { ref_idc: u32::from(byte >> 5 & 3), unit_type: u32::from(byte & 31) }
    }

    /// IdrPicFlag.
    pub fn is_idr(self) -> bool {
        self.unit_type == 5
    }
}

/// Frame, or which field of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Structure {
    #[default]
    Frame,
    TopField,
    BottomField,
}

/// disable_deblocking_filter_idc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deblocking {
    #[default]
    On,
    Off,
    /// Edges between slices stay as they are.
    WithinSlice,
}

/// The header of an I slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SliceHeader {
    pub nal: NalHeader,
    /// first_mb_in_slice: a macroblock, or with MBAFF a pair.
    pub first_mb: u32,
    pub pps_id: u32,
    pub colour_plane: usize,
    pub frame_num: u32,
    pub structure: Structure,
    pub idr_pic_id: u32,
    pub pic_order_cnt_lsb: u32,
    pub delta_pic_order_cnt_bottom: i32,
    pub delta_pic_order_cnt: [i32; 2],
    pub redundant_pic_cnt: u32,
    /// A memory_management_control_operation equal to 5 is present.
    pub resets_memory: bool,
    /// SliceQPY.
    pub qp: i32,
    pub deblocking: Deblocking,
    /// FilterOffsetA and FilterOffsetB.
    pub filter_offset: [i32; 2],
}

impl SliceHeader {
    /// first_mb_in_slice, slice_type and pic_parameter_set_id, which say what
    /// is needed to read the rest.
    pub(crate) fn read_pps_id(r: &mut BitReader) -> Result<u32, BitstreamError> {
        r.ue()?;
        match r.ue()? {
            2 | 7 => {}
            0 | 5 => return Err(BitstreamError::Unsupported("inter prediction (a P slice)")),
            1 | 6 => return Err(BitstreamError::Unsupported("inter prediction (a B slice)")),
            3 | 8 => return Err(BitstreamError::Unsupported("inter prediction (an SP slice)")),
            4 | 9 => return Err(BitstreamError::Unsupported("the Extended profile (an SI slice)")),
            other => return invalid(format!("slice_type {other} is above 9")),
        }
        Ok(r.ue()?)
    }

    /// Reads the whole header; `r` stands at its first bit.
    pub(crate) fn read(
        r: &mut BitReader,
        nal: NalHeader,
        sps: &Sps,
        pps: &Pps,
    ) -> Result<Self, BitstreamError> {
        let first_mb = r.ue()?;
        r.ue()?; // slice_type, checked by read_pps_id
        let pps_id = r.ue()?;
        let colour_plane = if sps.separate_colour_plane { r.bits(2)? as usize } else { 0 };
        if colour_plane > 2 {
            return invalid("colour_plane_id 3 does not exist");
        }
        let frame_num = r.bits(sps.log2_max_frame_num)?;
        let structure = if sps.frame_mbs_only || !r.flag()? {
            Structure::Frame
        } else if r.flag()? {
            Structure::BottomField
        } else {
            Structure::TopField
        };
        let mut header = Self {
            nal,
            first_mb,
            pps_id,
            colour_plane,
            frame_num,
            structure,
            idr_pic_id: if nal.is_idr() { r.ue()? } else { 0 },
            ..Self::default()
        };
        header.read_order(r, sps, pps)?;
        if pps.redundant_pic_cnt_present {
            header.redundant_pic_cnt = r.ue()?;
        }
        if nal.ref_idc != 0 {
            header.resets_memory = read_ref_pic_marking(r, nal.is_idr())?;
        }
        header.qp = pps.pic_init_qp.saturating_add(r.se()?);
        if !(-6 * (sps.bit_depth_luma as i32 - 8)..=51).contains(&header.qp) {
            return invalid(format!("SliceQPY {} is out of range", header.qp));
        }
        if pps.deblocking_filter_control_present {
            header.read_deblocking(r)?;
        }
        Ok(header)
    }

    fn read_order(&mut self, r: &mut BitReader, sps: &Sps, pps: &Pps) -> Result<(), BitstreamError> {
        let both_fields = pps.bottom_field_pic_order_in_frame_present && self.structure == Structure::Frame;
        match &sps.poc {
            PocType::Lsb { log2_max } => {
                self.pic_order_cnt_lsb = r.bits(*log2_max)?;
                if both_fields {
                    self.delta_pic_order_cnt_bottom = r.se()?;
                }
            }
            PocType::Cycle { delta_always_zero: false, .. } => {
                self.delta_pic_order_cnt[0] = r.se()?;
                if both_fields {
                    self.delta_pic_order_cnt[1] = r.se()?;
                }
            }
            PocType::Cycle { .. } | PocType::DecodingOrder => {}
        }
        Ok(())
    }

    fn read_deblocking(&mut self, r: &mut BitReader) -> Result<(), BitstreamError> {
        self.deblocking = match r.ue()? {
            0 => Deblocking::On,
            1 => Deblocking::Off,
            2 => Deblocking::WithinSlice,
            other => return invalid(format!("disable_deblocking_filter_idc {other} is above 2")),
        };
        if self.deblocking != Deblocking::Off {
            for offset in &mut self.filter_offset {
                let half = r.se()?;
                if !(-6..=6).contains(&half) {
                    return invalid(format!("deblocking offset {half} is outside -6 to 6"));
                }
                *offset = 2 * half;
            }
        }
        Ok(())
    }

    /// First slice of a new primary coded picture (clause 7.4.1.2.4), given
    /// the last slice before it.
    pub fn begins_picture_after(&self, last: &Self) -> bool {
        self.frame_num != last.frame_num
            || self.pps_id != last.pps_id && self.first_mb == 0 && self.colour_plane == 0
            || self.structure != last.structure
            || (self.nal.ref_idc == 0) != (last.nal.ref_idc == 0)
            || self.nal.is_idr() != last.nal.is_idr()
            || self.idr_pic_id != last.idr_pic_id
            || self.pic_order_cnt_lsb != last.pic_order_cnt_lsb
            || self.delta_pic_order_cnt_bottom != last.delta_pic_order_cnt_bottom
            || self.delta_pic_order_cnt != last.delta_pic_order_cnt
    }
}

/// dec_ref_pic_marking(); whether it resets everything, as an IDR picture does.
fn read_ref_pic_marking(r: &mut BitReader, idr: bool) -> Result<bool, BitstreamError> {
    if idr {
        r.bits(2)?; // no_output_of_prior_pics_flag, long_term_reference_flag
        return Ok(false);
    }
    let mut resets = false;
    if r.flag()? {
        loop {
            match r.ue()? {
                0 => break,
                1 | 2 | 4 | 6 => {
                    r.ue()?;
                }
                3 => {
                    r.ue()?;
                    r.ue()?;
                }
                5 => resets = true,
                other => return invalid(format!("memory_management_control_operation {other} is above 6")),
            }
        }
    }
    Ok(resets)
}
