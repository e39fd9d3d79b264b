//! pic_parameter_set_rbsp() (H.265 clause 7.3.2.3).

use trinity_bits::{BitReader, BitWriter};

use super::range::in_range;
use super::{BitstreamError, ScalingList};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiles {
    pub columns: u32,
    pub rows: u32,
    /// Widths and heights in CTBs of all but the last column and row; `None`
    /// when evenly spaced.
    pub sizes: Option<(Vec<u32>, Vec<u32>)>,
    pub loop_filter_across: bool,
}

/// deblocking_filter_control_present_flag and what it brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeblockingControl {
    pub override_enabled: bool,
    pub disabled: bool,
    pub beta_offset_div2: i32,
    pub tc_offset_div2: i32,
}

/// chroma_qp_offset_list_enabled_flag and what it brings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChromaQpOffsets {
    pub diff_cu_chroma_qp_offset_depth: u32,
    /// cb_qp_offset_list and cr_qp_offset_list, one to six pairs.
    pub list: Vec<[i32; 2]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PpsRangeExtension {
    pub log2_max_transform_skip_size: u32,
    pub cross_component_prediction_enabled: bool,
    pub chroma_qp_offsets: Option<ChromaQpOffsets>,
    /// log2_sao_offset_scale of luma and chroma.
    pub log2_sao_offset_scale: [u32; 2],
}

impl Default for PpsRangeExtension {
    fn default() -> Self {
        Self {
            log2_max_transform_skip_size: 2,
            cross_component_prediction_enabled: false,
            chroma_qp_offsets: None,
            log2_sao_offset_scale: [0, 0],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pps {
    pub id: u8,
    pub sps_id: u8,
    pub dependent_slice_segments_enabled: bool,
    pub output_flag_present: bool,
    pub num_extra_slice_header_bits: u32,
    pub sign_data_hiding_enabled: bool,
    pub cabac_init_present: bool,
    /// init_qp_minus26 + 26.
    pub init_qp: i32,
    pub constrained_intra_pred: bool,
    pub transform_skip_enabled: bool,
    /// diff_cu_qp_delta_depth where cu_qp_delta_enabled_flag is set.
    pub cu_qp_delta_depth: Option<u32>,
    /// pps_cb_qp_offset and pps_cr_qp_offset.
    pub chroma_qp_offset: [i32; 2],
    pub slice_chroma_qp_offsets_present: bool,
    pub transquant_bypass_enabled: bool,
    pub tiles: Option<Tiles>,
    pub entropy_coding_sync_enabled: bool,
    pub loop_filter_across_slices: bool,
    pub deblocking: Option<DeblockingControl>,
    pub scaling_list: Option<Box<ScalingList>>,
    pub lists_modification_present: bool,
    pub slice_header_extension_present: bool,
    pub range: PpsRangeExtension,
    /// A tool of pps_scc_extension() is on.
    pub screen_content: bool,
}

impl Pps {
    /// Reads an RBSP after its NAL unit header. Scaling lists are read as for
    /// 4:4:4, whose extra lists no other format looks at.
    pub fn parse(rbsp: &[u8]) -> Result<Self, BitstreamError> {
        let r = &mut BitReader::new(rbsp);
        let mut pps = Self {
            id: in_range("pps_pic_parameter_set_id", r.ue()?, 0..=63)? as u8,
            sps_id: in_range("pps_seq_parameter_set_id", r.ue()?, 0..=15)? as u8,
            dependent_slice_segments_enabled: r.flag()?,
            output_flag_present: r.flag()?,
            num_extra_slice_header_bits: r.bits(3)?,
            sign_data_hiding_enabled: r.flag()?,
            cabac_init_present: r.flag()?,
            ..Self::default()
        };
        r.ue()?; // num_ref_idx_l0_default_active_minus1
        r.ue()?; // num_ref_idx_l1_default_active_minus1
        pps.init_qp = in_range("init_qp_minus26", r.se()?, -74..=25)? + 26;
        pps.constrained_intra_pred = r.flag()?;
        pps.transform_skip_enabled = r.flag()?;
        if r.flag()? {
            pps.cu_qp_delta_depth = Some(in_range("diff_cu_qp_delta_depth", r.ue()?, 0..=3)?);
        }
        for offset in &mut pps.chroma_qp_offset {
            *offset = in_range("pps_cb_qp_offset or pps_cr_qp_offset", r.se()?, -12..=12)?;
        }
        pps.slice_chroma_qp_offsets_present = r.flag()?;
        r.skip(2)?; // weighted_pred_flag, weighted_bipred_flag
        pps.transquant_bypass_enabled = r.flag()?;
        let tiles = r.flag()?;
        pps.entropy_coding_sync_enabled = r.flag()?;
        if tiles {
            pps.tiles = Some(Tiles::parse(r)?);
        }
        pps.loop_filter_across_slices = r.flag()?;
        if r.flag()? {
            let control = DeblockingControl { override_enabled: r.flag()?, ..Default::default() };
            let names = ["pps_beta_offset_div2", "pps_tc_offset_div2"];
            pps.deblocking = Some(control.parse_filter(r, names)?);
        }
        if r.flag()? {
            pps.scaling_list = Some(Box::new(ScalingList::parse(r, 3)?));
        }
        pps.lists_modification_present = r.flag()?;
        r.ue()?; // log2_parallel_merge_level_minus2
        pps.slice_header_extension_present = r.flag()?;
        if r.flag()? {
            pps.parse_extensions(r)?;
        }
        Ok(pps)
    }

    fn parse_extensions(&mut self, r: &mut BitReader<'_>) -> Result<(), BitstreamError> {
        let (range, multilayer, three_d, screen_content) = (r.flag()?, r.flag()?, r.flag()?, r.flag()?);
        r.skip(4)?;
        if range {
            self.range = PpsRangeExtension::parse(r, self.transform_skip_enabled)?;
        }
        // Those two speak of other layers; what follows them is not looked for.
        if screen_content && !multilayer && !three_d {
            let (curr_pic_ref, colour_transform) = (r.flag()?, r.flag()?);
            self.screen_content = curr_pic_ref || colour_transform;
        }
        Ok(())
    }

    /// The RBSP after the NAL unit header.
    pub fn write(&self) -> Vec<u8> {
        let w = &mut BitWriter::new();
        w.ue(u32::from(self.id));
        w.ue(u32::from(self.sps_id));
        w.flag(self.dependent_slice_segments_enabled);
        w.flag(self.output_flag_present);
        w.bits(self.num_extra_slice_header_bits, 3);
        w.flag(self.sign_data_hiding_enabled);
        w.flag(self.cabac_init_present);
        w.ue(0); // num_ref_idx_l0_default_active_minus1
        w.ue(0);
        w.se(self.init_qp - 26);
        w.flag(self.constrained_intra_pred);
        w.flag(self.transform_skip_enabled);
        w.flag(self.cu_qp_delta_depth.is_some());
        if let Some(depth) = self.cu_qp_delta_depth {
            w.ue(depth);
        }
        w.se(self.chroma_qp_offset[0]);
        w.se(self.chroma_qp_offset[1]);
        w.flag(self.slice_chroma_qp_offsets_present);
        w.bits(0, 2); // weighted prediction
        w.flag(self.transquant_bypass_enabled);
        w.flag(self.tiles.is_some());
        w.flag(self.entropy_coding_sync_enabled);
        if let Some(tiles) = &self.tiles {
            tiles.write(w);
        }
        w.flag(self.loop_filter_across_slices);
        w.flag(self.deblocking.is_some());
        if let Some(control) = &self.deblocking {
            w.flag(control.override_enabled);
            control.write_filter(w);
        }
        w.flag(self.scaling_list.is_some());
        if let Some(list) = &self.scaling_list {
            list.write(w);
        }
        w.flag(self.lists_modification_present);
        w.ue(0); // log2_parallel_merge_level_minus2
        w.flag(self.slice_header_extension_present);
        let extended = self.range != PpsRangeExtension::default();
        w.flag(extended);
        if extended {
            w.bits(0b1000_0000, 8);
            self.range.write(w, self.transform_skip_enabled);
        }
        w.trailing_bits();
        std::mem::take(w).into_bytes()
    }
}

impl Tiles {
    fn parse(r: &mut BitReader<'_>) -> Result<Self, BitstreamError> {
        // No level allows more than 44 × 40 tiles; leave room beyond.
        let columns = in_range("num_tile_columns_minus1", r.ue()?, 0..=1023)? + 1;
        let rows = in_range("num_tile_rows_minus1", r.ue()?, 0..=1023)? + 1;
        let mut sizes = None;
        if !r.flag()? {
            let mut read = |count: u32| -> Result<Vec<u32>, BitstreamError> {
                (1..count).map(|_| Ok(in_range("tile size minus 1", r.ue()?, 0..=16_383)? + 1)).collect()
            };
            sizes = Some((read(columns)?, read(rows)?));
        }
        Ok(Self { columns, rows, sizes, loop_filter_across: r.flag()? })
    }

    fn write(&self, w: &mut BitWriter) {
        w.ue(self.columns - 1);
        w.ue(self.rows - 1);
        w.flag(self.sizes.is_none());
        if let Some((widths, heights)) = &self.sizes {
            for size in widths.iter().chain(heights) {
                w.ue(size - 1);
            }
        }
        w.flag(self.loop_filter_across);
    }
}

impl DeblockingControl {
    /// The filter of a picture or a slice: whether there is none, else its offsets by `names`.
    pub(super) fn parse_filter(
        self,
        r: &mut BitReader<'_>,
        names: [&str; 2],
    ) -> Result<Self, BitstreamError> {
        let mut control = Self { disabled: r.flag()?, ..self };
        if !control.disabled {
            control.beta_offset_div2 = in_range(names[0], r.se()?, -6..=6)?;
            control.tc_offset_div2 = in_range(names[1], r.se()?, -6..=6)?;
        }
        Ok(control)
    }

    pub(super) fn write_filter(&self, w: &mut BitWriter) {
        w.flag(self.disabled);
        if !self.disabled {
            w.se(self.beta_offset_div2);
            w.se(self.tc_offset_div2);
        }
    }
}

impl PpsRangeExtension {
    fn parse(r: &mut BitReader<'_>, transform_skip_enabled: bool) -> Result<Self, BitstreamError> {
        let mut range = Self::default();
        if transform_skip_enabled {
            range.log2_max_transform_skip_size =
                in_range("log2_max_transform_skip_block_size_minus2", r.ue()?, 0..=3)? + 2;
        }
        range.cross_component_prediction_enabled = r.flag()?;
        if r.flag()? {
            let depth = in_range("diff_cu_chroma_qp_offset_depth", r.ue()?, 0..=3)?;
            let count = in_range("chroma_qp_offset_list_len_minus1", r.ue()?, 0..=5)? + 1;
            let mut offsets = ChromaQpOffsets { diff_cu_chroma_qp_offset_depth: depth, list: Vec::new() };
            for _ in 0..count {
                let mut pair = [0; 2];
                for offset in &mut pair {
                    *offset = in_range("cb_qp_offset_list or cr_qp_offset_list", r.se()?, -12..=12)?;
                }
                offsets.list.push(pair);
            }
            range.chroma_qp_offsets = Some(offsets);
        }
        for scale in &mut range.log2_sao_offset_scale {
            *scale = in_range("log2_sao_offset_scale", r.ue()?, 0..=6)?;
        }
        Ok(range)
    }

    fn write(&self, w: &mut BitWriter, transform_skip_enabled: bool) {
        if transform_skip_enabled {
            w.ue(self.log2_max_transform_skip_size - 2);
        }
        w.flag(self.cross_component_prediction_enabled);
        w.flag(self.chroma_qp_offsets.is_some());
        if let Some(offsets) = &self.chroma_qp_offsets {
            w.ue(offsets.diff_cu_chroma_qp_offset_depth);
            w.ue(offsets.list.len() as u32 - 1);
            for offset in offsets.list.iter().flatten() {
                w.se(*offset);
            }
        }
        for scale in self.log2_sao_offset_scale {
            w.ue(scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pps_round_trips() {
        let pps = Pps {
            id: 3,
            sps_id: 2,
            dependent_slice_segments_enabled: true,
            sign_data_hiding_enabled: true,
            init_qp: -20,
            transform_skip_enabled: true,
            cu_qp_delta_depth: Some(2),
            chroma_qp_offset: [-12, 7],
            transquant_bypass_enabled: true,
            tiles: Some(Tiles {
                columns: 3,
                rows: 2,
                sizes: Some((vec![4, 5], vec![6])),
                loop_filter_across: true,
            }),
            entropy_coding_sync_enabled: true,
            loop_filter_across_slices: true,
            deblocking: Some(DeblockingControl {
                override_enabled: true,
                beta_offset_div2: -3,
                tc_offset_div2: 6,
                ..DeblockingControl::default()
            }),
            scaling_list: Some(Box::default()),
            range: PpsRangeExtension {
                log2_max_transform_skip_size: 5,
                cross_component_prediction_enabled: true,
                chroma_qp_offsets: Some(ChromaQpOffsets {
                    diff_cu_chroma_qp_offset_depth: 1,
                    list: vec![[1, -2], [3, -4]],
                }),
                log2_sao_offset_scale: [2, 1],
            },
            ..Pps::default()
        };
        assert_eq!(Pps::parse(&pps.write()).unwrap(), pps);
    }
}
