//! slice_segment_header() (H.265 clause 7.3.6) of intra slices.

use trinity_bits::{BitReader, BitWriter, invalid};

use super::range::in_range;
use super::{BitstreamError, DeblockingControl, NalType, Pps, ShortTermRefPicSet, Sps};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SliceType {
    B,
    P,
    #[default]
    I,
}

/// The header of an independent slice segment, or of a dependent one with the
/// fields of the slice it continues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SliceHeader {
    pub first_slice_segment_in_pic: bool,
    pub no_output_of_prior_pics: bool,
    pub pps_id: u8,
    pub dependent: bool,
    /// slice_segment_address, in CTBs in raster order.
    pub segment_address: u32,
    /// SliceAddrRs: where the slice, not this segment of it, starts.
    pub slice_address: u32,
    pub slice_type: SliceType,
    pub pic_output: bool,
    pub colour_plane_id: u8,
    pub poc_lsb: u32,
    pub sao: [bool; 2],
    /// SliceQpY.
    pub qp: i32,
    /// slice_cb_qp_offset and slice_cr_qp_offset.
    pub chroma_qp_offset: [i32; 2],
    pub cu_chroma_qp_offset_enabled: bool,
    /// The picture's, or the slice's own.
    pub deblocking: DeblockingControl,
    pub loop_filter_across_slices: bool,
    /// entry_point_offset_minus1 + 1 of each substream but the last.
    pub entry_points: Vec<u32>,
}

impl SliceHeader {
    /// first_slice_segment_in_pic_flag and the PPS the slice refers to, which
    /// reading the rest of the header depends on.
    pub fn peek(rbsp: &[u8], nal_type: NalType) -> Result<(bool, u8), BitstreamError> {
        let mut r = BitReader::new(rbsp);
        let first = r.flag()?;
        if nal_type.is_irap() {
            r.skip(1)?;
        }
        Ok((first, in_range("slice_pic_parameter_set_id", r.ue()?, 0..=63)? as u8))
    }

    /// Reads a header from the RBSP after the NAL unit header. `previous` is
    /// the segment before it in the same picture. Returns the header and the
    /// byte where slice_segment_data() starts.
    pub fn parse(
        rbsp: &[u8],
        nal_type: NalType,
        sps: &Sps,
        pps: &Pps,
        previous: Option<&Self>,
    ) -> Result<(Self, usize), BitstreamError> {
        let r = &mut BitReader::new(rbsp);
        let mut header = Self { first_slice_segment_in_pic: r.flag()?, ..Self::default() };
        if nal_type.is_irap() {
            header.no_output_of_prior_pics = r.flag()?;
        }
        header.pps_id = in_range("slice_pic_parameter_set_id", r.ue()?, 0..=63)? as u8;
        if !header.first_slice_segment_in_pic {
            header.dependent = pps.dependent_slice_segments_enabled && r.flag()?;
            let (columns, rows) = sps.size_in_ctbs();
            let ctbs = columns * rows;
            let bits = u32::BITS - (ctbs - 1).leading_zeros();
            header.segment_address = r.bits(bits)?;
            // Where planes are coded apart, each has a slice that starts at 0.
            let least = u32::from(!sps.separate_colour_plane);
            in_range("slice_segment_address", header.segment_address, least..=ctbs - 1)?;
        }
        if header.dependent {
            let Some(slice) = previous else {
                return invalid("a dependent slice segment has no slice to continue");
            };
            header = Self {
                first_slice_segment_in_pic: false,
                dependent: true,
                segment_address: header.segment_address,
                ..slice.clone()
            };
        } else {
            header.slice_address = header.segment_address;
            header.parse_independent(r, nal_type, sps, pps)?;
        }
        header.entry_points.clear();
        if pps.tiles.is_some() || pps.entropy_coding_sync_enabled {
            header.parse_entry_points(r, sps)?;
        }
        if pps.slice_header_extension_present {
            let length = in_range("slice_segment_header_extension_length", r.ue()?, 0..=256)?;
            r.skip(8 * length)?;
        }
        // byte_alignment()
        r.skip(1)?;
        r.align();
        Ok((header, (r.position() / 8) as usize))
    }

    fn parse_independent(
        &mut self,
        r: &mut BitReader<'_>,
        nal_type: NalType,
        sps: &Sps,
        pps: &Pps,
    ) -> Result<(), BitstreamError> {
        r.skip(pps.num_extra_slice_header_bits)?;
        self.slice_type = match r.ue()? {
            0 => return Err(BitstreamError::Unsupported("inter prediction (a B slice)")),
            1 => return Err(BitstreamError::Unsupported("inter prediction (a P slice)")),
            2 => SliceType::I,
            other => return invalid(format!("slice_type is {other}, outside 0 to 2")),
        };
        self.pic_output = if pps.output_flag_present { r.flag()? } else { true };
        if sps.separate_colour_plane {
            self.colour_plane_id = in_range("colour_plane_id", r.bits(2)?, 0..=2)? as u8;
        }
        if !nal_type.is_idr() {
            self.parse_references(r, sps)?;
        }
        if sps.sao_enabled {
            self.sao[0] = r.flag()?;
            if sps.chroma_array().planes() > 1 {
                self.sao[1] = r.flag()?;
            }
        }
        self.qp = pps.init_qp + in_range("slice_qp_delta", r.se()?, -200..=200)?;
        in_range("SliceQpY", self.qp, -6 * (sps.bit_depth as i32 - 8)..=51)?;
        if pps.slice_chroma_qp_offsets_present {
            for (offset, of_pps) in self.chroma_qp_offset.iter_mut().zip(pps.chroma_qp_offset) {
                *offset = in_range("slice chroma QP offset", r.se()?, -12..=12)?;
                in_range("chroma QP offset of PPS and slice", of_pps + *offset, -12..=12)?;
            }
        }
        if pps.range.chroma_qp_offsets.is_some() {
            self.cu_chroma_qp_offset_enabled = r.flag()?;
        }
        self.deblocking = pps.deblocking.unwrap_or_default();
        if self.deblocking.override_enabled && r.flag()? {
            let names = ["slice_beta_offset_div2", "slice_tc_offset_div2"];
            self.deblocking = self.deblocking.parse_filter(r, names)?;
        }
        self.loop_filter_across_slices = pps.loop_filter_across_slices;
        let filtered = self.sao[0] || self.sao[1] || !self.deblocking.disabled;
        if pps.loop_filter_across_slices && filtered {
            self.loop_filter_across_slices = r.flag()?;
        }
        Ok(())
    }

    /// POC and reference picture sets, which intra slices carry all the same.
    fn parse_references(&mut self, r: &mut BitReader<'_>, sps: &Sps) -> Result<(), BitstreamError> {
        self.poc_lsb = r.bits(sps.log2_max_poc_lsb)?;
        let sets = &sps.short_term_ref_pic_sets;
        if !r.flag()? {
            ShortTermRefPicSet::parse(r, sets, true)?;
        } else if sets.is_empty() {
            return invalid("the slice picks a reference picture set and the SPS has none");
        } else {
            r.skip(u32::BITS - (sets.len() as u32 - 1).leading_zeros())?;
        }
        if sps.long_term_ref_pics_present {
            let listed = sps.num_long_term_ref_pics;
            let from_sps = if listed > 0 { in_range("num_long_term_sps", r.ue()?, 0..=33)? } else { 0 };
            let own = in_range("num_long_term_pics", r.ue()?, 0..=33)?;
            for picture in 0..from_sps + own {
                if picture >= from_sps {
                    r.skip(sps.log2_max_poc_lsb + 1)?;
                } else if listed > 1 {
                    r.skip(u32::BITS - (listed - 1).leading_zeros())?;
                }
                if r.flag()? {
                    r.ue()?; // delta_poc_msb_cycle_lt
                }
            }
        }
        if sps.temporal_mvp_enabled {
            r.skip(1)?;
        }
        Ok(())
    }

    fn parse_entry_points(&mut self, r: &mut BitReader<'_>, sps: &Sps) -> Result<(), BitstreamError> {
        let (columns, rows) = sps.size_in_ctbs();
        let count = in_range("num_entry_point_offsets", r.ue()?, 0..=columns * rows)?;
        if count == 0 {
            return Ok(());
        }
        let bits = in_range("offset_len_minus1", r.ue()?, 0..=31)? + 1;
        if u64::from(count) * u64::from(bits) > r.remaining() {
            return invalid("the entry points do not fit the slice header");
        }
        for _ in 0..count {
            self.entry_points.push(r.bits(bits)?.saturating_add(1));
        }
        Ok(())
    }

    /// Writes the header of an intra slice up to and including
    /// byte_alignment(). The inverse of [`SliceHeader::parse`] for streams
    /// without long-term pictures and header extension.
    pub fn write(&self, nal_type: NalType, sps: &Sps, pps: &Pps) -> Vec<u8> {
        let w = &mut BitWriter::new();
        w.flag(self.first_slice_segment_in_pic);
        if nal_type.is_irap() {
            w.flag(self.no_output_of_prior_pics);
        }
        w.ue(u32::from(self.pps_id));
        if !self.first_slice_segment_in_pic {
            if pps.dependent_slice_segments_enabled {
                w.flag(self.dependent);
            }
            let (columns, rows) = sps.size_in_ctbs();
            w.bits(self.segment_address, u32::BITS - (columns * rows - 1).leading_zeros());
        }
        if !self.dependent {
            self.write_independent(w, nal_type, sps, pps);
        }
        if pps.tiles.is_some() || pps.entropy_coding_sync_enabled {
            w.ue(self.entry_points.len() as u32);
            if let Some(&longest) = self.entry_points.iter().max() {
                let bits = (u32::BITS - (longest - 1).leading_zeros()).max(1);
                w.ue(bits - 1);
                for offset in &self.entry_points {
                    w.bits(offset - 1, bits);
                }
            }
        }
        if pps.slice_header_extension_present {
            w.ue(0);
        }
        w.trailing_bits();
        std::mem::take(w).into_bytes()
    }

    fn write_independent(&self, w: &mut BitWriter, nal_type: NalType, sps: &Sps, pps: &Pps) {
        w.bits(0, pps.num_extra_slice_header_bits);
        w.ue(2); // slice_type I
        if pps.output_flag_present {
            w.flag(self.pic_output);
        }
        if sps.separate_colour_plane {
            w.bits(u32::from(self.colour_plane_id), 2);
        }
        if !nal_type.is_idr() {
            w.bits(self.poc_lsb, sps.log2_max_poc_lsb);
            w.flag(false); // short_term_ref_pic_set_sps_flag
            if !sps.short_term_ref_pic_sets.is_empty() {
                w.flag(false); // inter_ref_pic_set_prediction_flag
            }
            w.ue(0);
            w.ue(0);
            if sps.temporal_mvp_enabled {
                w.flag(false);
            }
        }
        if sps.sao_enabled {
            w.flag(self.sao[0]);
            if sps.chroma_array().planes() > 1 {
                w.flag(self.sao[1]);
            }
        }
        w.se(self.qp - pps.init_qp);
        if pps.slice_chroma_qp_offsets_present {
            w.se(self.chroma_qp_offset[0]);
            w.se(self.chroma_qp_offset[1]);
        }
        if pps.range.chroma_qp_offsets.is_some() {
            w.flag(self.cu_chroma_qp_offset_enabled);
        }
        let control = pps.deblocking.unwrap_or_default();
        if control.override_enabled {
            let overridden = self.deblocking != control;
            w.flag(overridden);
            if overridden {
                self.deblocking.write_filter(w);
            }
        }
        if pps.loop_filter_across_slices && (self.sao[0] || self.sao[1] || !self.deblocking.disabled) {
            w.flag(self.loop_filter_across_slices);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_bits::Chroma;

    #[test]
    fn headers_round_trip() {
        let mut sps = Sps::new(640, 384, Chroma::C420, 10);
        sps.sao_enabled = true;
        let pps = Pps {
            init_qp: 26,
            slice_chroma_qp_offsets_present: true,
            entropy_coding_sync_enabled: true,
            loop_filter_across_slices: true,
            ..Pps::default()
        };
        let header = SliceHeader {
            segment_address: 7,
            slice_address: 7,
            pic_output: true,
            poc_lsb: 200,
            sao: [true, false],
            qp: -12,
            chroma_qp_offset: [-3, 4],
            loop_filter_across_slices: true,
            entry_points: vec![1, 300, 77],
            ..SliceHeader::default()
        };
        let mut bytes = header.write(NalType::TRAIL_R, &sps, &pps);
        let length = bytes.len();
        bytes.extend([1, 2, 3]);
        let parsed = SliceHeader::parse(&bytes, NalType::TRAIL_R, &sps, &pps, None).unwrap();
        assert_eq!(parsed, (header, length));
    }
}
