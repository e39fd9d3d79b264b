//! The start of vui_parameters(), which both standards write alike (Annex E).
//! What follows differs, and lives in their own crates.

use crate::{BitWriter, Colour};

/// Writes vui_parameters_present_flag and, where there is something to say,
/// everything up to the colour description; says whether there was.
pub fn write_start(w: &mut BitWriter, colour: Colour) -> bool {
    let code_points = colour.code_points();
    w.flag(code_points.is_some()); // vui_parameters_present_flag
    let Some(code_points) = code_points else { return false };
    write_signal_type(w, true, Some(code_points));
    true
}

/// Writes everything from aspect_ratio_info_present_flag to the colour description.
pub fn write_signal_type(w: &mut BitWriter, full_range: bool, code_points: Option<[u8; 3]>) {
    w.flag(false); // aspect_ratio_info_present_flag
    w.flag(false); // overscan_info_present_flag
    w.flag(true); // video_signal_type_present_flag
    w.bits(5, 3); // video_format: unspecified
    w.flag(full_range); // video_full_range_flag
    w.flag(code_points.is_some()); // colour_description_present_flag
    for code in code_points.into_iter().flatten() {
        w.bits(u32::from(code), 8);
    }
}
