//! vui_parameters() and hrd_parameters() (H.265 Annex E).
//!
//! Read over to reach what follows them in the SPS; a few fields are kept to
//! be shown.

use trinity_bits::vui::Start;
use trinity_bits::{BitReader, BitWriter};

use super::range::in_range;
use super::{BitstreamError, Window};

/// The fields of a VUI that describe the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vui {
    /// Everything up to the chroma sample locations.
    pub start: Start,
    /// Each picture is a field.
    pub field_seq: bool,
    /// A suggestion for display; does not crop decoded output.
    pub default_display_window: Option<Window>,
    /// vui_num_units_in_tick and vui_time_scale.
    pub timing: Option<(u32, u32)>,
}

impl Vui {
    /// Reads vui_parameters() of an SPS with `sub_layers` temporal sub-layers.
    pub fn parse(r: &mut BitReader<'_>, sub_layers: u32) -> Result<Self, BitstreamError> {
        let mut vui = Self { start: Start::parse(r)?, ..Self::default() };
        r.skip(1)?; // neutral_chroma_indication_flag
        vui.field_seq = r.flag()?;
        r.skip(1)?; // frame_field_info_present_flag
        if r.flag()? {
            vui.default_display_window = Some(Window::parse(r)?);
        }
        if r.flag()? {
            vui.timing = Some((r.bits(32)?, r.bits(32)?));
            if r.flag()? {
                r.ue()?; // vui_num_ticks_poc_diff_one_minus1
            }
            if r.flag()? {
                skip_hrd(r, sub_layers)?;
            }
        }
        if r.flag()? {
            r.skip(3)?; // tiles_fixed_structure_flag … restricted_ref_pic_lists_flag
            for _ in 0..5 {
                r.ue()?; // min_spatial_segmentation_idc … log2_max_mv_length_vertical
            }
        }
        Ok(vui)
    }

    /// Writes vui_parameters(), without hypothetical reference decoder or restrictions.
    pub fn write(&self, w: &mut BitWriter) {
        self.start.write(w);
        w.flag(false); // neutral_chroma_indication_flag
        w.flag(self.field_seq);
        w.flag(false); // frame_field_info_present_flag
        w.flag(self.default_display_window.is_some());
        if let Some(window) = &self.default_display_window {
            window.write(w);
        }
        w.flag(self.timing.is_some());
        if let Some((units, scale)) = self.timing {
            w.bits(units, 32);
            w.bits(scale, 32);
            w.flag(false); // vui_poc_proportional_to_timing_flag
            w.flag(false); // vui_hrd_parameters_present_flag
        }
        w.flag(false); // bitstream_restriction_flag
    }
}

/// hrd_parameters( 1, sub_layers − 1 ).
fn skip_hrd(r: &mut BitReader<'_>, sub_layers: u32) -> Result<(), BitstreamError> {
    let nal = r.flag()?;
    let vcl = r.flag()?;
    let mut sub_pic = false;
    if nal || vcl {
        sub_pic = r.flag()?;
        if sub_pic {
            r.skip(8 + 5 + 1 + 5)?;
        }
        r.skip(4 + 4)?; // bit_rate_scale, cpb_size_scale
        if sub_pic {
            r.skip(4)?; // cpb_size_du_scale
        }
        r.skip(5 + 5 + 5)?;
    }
    for _ in 0..sub_layers {
        let fixed_general = r.flag()?;
        let fixed_within_cvs = if fixed_general { true } else { r.flag()? };
        let mut low_delay = false;
        if fixed_within_cvs {
            r.ue()?; // elemental_duration_in_tc_minus1
        } else {
            low_delay = r.flag()?;
        }
        let mut cpbs = 1;
        if !low_delay {
            cpbs = in_range("cpb_cnt_minus1", r.ue()?, 0..=31)? + 1;
        }
        for _ in 0..u32::from(nal) + u32::from(vcl) {
            for _ in 0..cpbs {
                r.ue()?; // bit_rate_value_minus1
                r.ue()?; // cpb_size_value_minus1
                if sub_pic {
                    r.ue()?;
                    r.ue()?;
                }
                r.skip(1)?; // cbr_flag
            }
        }
    }
    Ok(())
}
