//! The three-in-one codec cut into its parts (LLM.265 Figure 13), and shared
//! out between video and tensors.

use crate::cost::InstanceRate;
use crate::stages::{Design, Technology, XK264};
use crate::table3::THREE_IN_ONE_ENCODER;

/// Share of the encoder that tensors, images and video have in common (§7).
pub const SHARED_FRACTION: f64 = 0.8;
/// Values in a cycle that the alignment unit converts, and gates of one
/// converter: 100 Gb/s of FP16 is 6.25 values a cycle at 1 GHz. An estimate;
/// the paper gives no figure for the unit alone.
const ALIGNMENT_LANES: f64 = 8.0;
const ALIGNMENT_KGE_PER_LANE: f64 = 2.0;

/// The most video the codec is built for: one 8K60 stream, 4:2:0, 8 bit.
pub fn video_capacity_gbps() -> f64 {
    InstanceRate::Paper4k60.gbps() * 4.0
}

/// One direction of the three-in-one codec, by part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThreeInOne {
    /// (a): conversion and alignment of number formats.
    pub alignment_mm2: f64,
    /// (b): prediction, transform, entropy coding.
    pub shared_mm2: f64,
    /// (c): motion, deblocking; idle while tensors are coded.
    pub video_only_mm2: f64,
}

impl ThreeInOne {
    /// The encoder.
    pub fn encoder() -> Self {
        let area_mm2 = THREE_IN_ONE_ENCODER.area_mm2;
        let alignment_mm2 = ALIGNMENT_LANES * ALIGNMENT_KGE_PER_LANE * 1e3 * Technology::ASAP7.gate_um2
            / Technology::ASAP7.utilization
            / 1e6;
        let shared_mm2 = SHARED_FRACTION * area_mm2;
        Self { alignment_mm2, shared_mm2, video_only_mm2: area_mm2 - shared_mm2 - alignment_mm2 }
    }

    /// Everything together.
    pub fn area_mm2(&self) -> f64 {
        self.alignment_mm2 + self.shared_mm2 + self.video_only_mm2
    }
}

/// What the stage model says of part (c): the inter stages of the four
/// instances that one 8K60 stream needs, scaled as Table 3 scales the sum.
pub fn video_only_by_stages(technology: &Technology, area_ratio: f64) -> f64 {
    let whole = Design::new(&XK264, InstanceRate::Paper4k60);
    let inter = whole.cost(technology).area_mm2 - whole.intra_only().cost(technology).area_mm2;
    4.0 * inter / area_ratio
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::reconcile;
    use crate::table3::H264_ENCODER;

    #[test]
    fn the_parts_add_up_and_four_fifths_are_shared() {
        let encoder = ThreeInOne::encoder();
        assert!((encoder.area_mm2() - 0.70).abs() < 1e-12);
        assert!((encoder.shared_mm2 / encoder.area_mm2() - 0.8).abs() < 1e-12);
        assert!(encoder.video_only_mm2 > 0.0);
    }

    #[test]
    fn the_stage_model_agrees_on_the_video_only_part() {
        let technology = Technology::ASAP7;
        let design = Design::new(&XK264, InstanceRate::Paper4k60);
        let ratio = reconcile(&design, &technology, &H264_ENCODER).area_ratio;
        let by_stages = video_only_by_stages(&technology, ratio);
        let by_paper = ThreeInOne::encoder().video_only_mm2;
        assert!((by_stages / by_paper - 1.0).abs() < 0.25, "{by_stages} {by_paper}");
    }
}
