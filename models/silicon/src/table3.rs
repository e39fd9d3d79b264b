//! LLM.265 Table 3 and Figure 12 as printed, and what follows from them.

use crate::cost::{Cost, EnergyColumn};

/// One codec block of Table 3 (ASAP7, 7 nm, normalized to 100 Gb/s).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table3Row {
    pub name: &'static str,
    pub power_w: f64,
    pub area_mm2: f64,
    pub printed_pj_per_bit: f64,
}

/// Throughput all rows are normalized to.
pub const THROUGHPUT_GBPS: f64 = 100.0;
/// "NCCL End to End": one bit from GPU to GPU, as measured by the authors.
pub const NCCL_PJ_PER_BIT: f64 = 5120.0;

// The six rows, as `configs/codecs` states them: see `build.rs`.
include!(concat!(env!("OUT_DIR"), "/table3.rs"));

/// All rows, in the table's order.
pub const ROWS: [Table3Row; 6] =
    [H264_ENCODER, H264_DECODER, H265_ENCODER, H265_DECODER, THREE_IN_ONE_ENCODER, THREE_IN_ONE_DECODER];

impl Table3Row {
    /// Energy of one input bit.
    pub fn pj_per_bit(&self, column: EnergyColumn) -> f64 {
        match column {
            EnergyColumn::Printed => self.printed_pj_per_bit,
            EnergyColumn::PowerOverThroughput => self.cost().energy_pj_per_bit(),
        }
    }

    /// How far the two columns are apart.
    pub fn column_ratio(&self) -> f64 {
        self.printed_pj_per_bit / self.cost().energy_pj_per_bit()
    }

    /// The block as printed: 100 Gb/s.
    pub fn cost(&self) -> Cost {
        Cost { area_mm2: self.area_mm2, power_w: self.power_w, throughput_gbps: THROUGHPUT_GBPS }
    }
}

/// Die areas of Figure 12 that the text states, mm².
pub mod figure12 {
    /// RTX 3090 (GA102) in Samsung 8 nm.
    pub const RTX3090_MM2: f64 = 628.0;
    /// RTX 3090 scaled to 7 nm by the authors.
    pub const RTX3090_AT_7NM_MM2: f64 = 398.0;
}

/// The two energy headlines of §7.3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headlines {
    /// Energy of sending over energy of encoding and decoding.
    pub communication_over_codec: f64,
    /// Energy of sending raw over energy of sending compressed.
    pub raw_over_compressed: f64,
}

/// Headlines for a codec at a compression ratio.
pub fn headlines(encoder: &Table3Row, decoder: &Table3Row, ratio: f64, column: EnergyColumn) -> Headlines {
    let codec = encoder.pj_per_bit(column) + decoder.pj_per_bit(column);
    Headlines {
        communication_over_codec: NCCL_PJ_PER_BIT / codec,
        raw_over_compressed: NCCL_PJ_PER_BIT / (NCCL_PJ_PER_BIT / ratio + codec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headlines_follow_from_either_column() {
        let with = |column| headlines(&THREE_IN_ONE_ENCODER, &THREE_IN_ONE_DECODER, 5.0, column);
        let printed = with(EnergyColumn::Printed);
        assert!((printed.communication_over_codec - 31.7).abs() < 0.05, "{printed:?}");
        assert!((printed.raw_over_compressed - 4.32).abs() < 0.005, "{printed:?}");
        let derived = with(EnergyColumn::PowerOverThroughput);
        assert!((derived.communication_over_codec - 376.0).abs() < 0.6, "{derived:?}");
        assert!((derived.raw_over_compressed - 4.93).abs() < 0.005, "{derived:?}");
    }

    #[test]
    fn the_columns_disagree_by_11_to_16_times() {
        for row in ROWS {
            assert!((10.9..15.6).contains(&row.column_ratio()), "{row:?} {}", row.column_ratio());
        }
    }

    /// The paper divides by its rounded "less than 2 mm²", and comes to 199.
    #[test]
    fn an_h264_pair_is_199_times_smaller_than_the_gpu() {
        const { assert!(H264_ENCODER.area_mm2 + H264_DECODER.area_mm2 < 2.0) };
        assert_eq!(figure12::RTX3090_AT_7NM_MM2 / 2.0, 199.0);
    }

    /// A misprint anywhere in the table moves these sums.
    #[test]
    fn the_table_adds_up() {
        let sum = |f: fn(&Table3Row) -> f64| ROWS.iter().map(f).sum::<f64>();
        assert!((sum(|r| r.power_w) - 18.76).abs() < 1e-9);
        assert!((sum(|r| r.area_mm2) - 17.01).abs() < 1e-9);
        assert!((sum(|r| r.printed_pj_per_bit) - 2856.3).abs() < 1e-9);
    }
}
