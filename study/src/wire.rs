//! What a NIC and a codec cost together where a wire has to carry so many
//! uncompressed bits a second (LLM.265 Figure 15).
//!
//! Joins the bits that codecs took of tensors with the silicon that is known
//! of them. A codec whose silicon nobody has stated is counted without any:
//! its sums are what it would cost at least. Knows nothing of how a tensor is
//! coded or of the cluster around the wire.

use crate::config::{NicFile, OriginName};
use crate::explore::{Block, EXPLORATION, Silicon, choices, stated};
use crate::{Error, Progress};
use serde::Serialize;
use trinity_config::{Checked, DataRate};
use trinity_sim::Nic;
use trinity_tensor::Class;
use trinity_tensor::compare::{ClassLine, GAUSSIAN, ORDER0};

/// Bits of a value that is not coded.
const UNCODED_BITS: f64 = 16.0;

/// Measured bits, and the wire that they are sent over.
#[derive(Debug, Clone)]
pub struct WireRequest<'a> {
    pub classes: &'a [ClassLine],
    /// The rate of values of 16 bits, before they are coded.
    pub rate: DataRate,
    /// A file of `configs/nics`, or one of the asker's.
    pub nic: String,
}

/// One codec on one wire; the fields are the columns of `wire.csv`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WireRow {
    pub class: Class,
    pub target: String,
    /// The silicon, or the tensor codec where none is stated.
    pub codec: String,
    /// The tensor codec whose bits it takes.
    pub coder: String,
    pub bits_per_value: f64,
    pub nic_mm2: f64,
    /// Encoder and decoder for that rate; none where it is not stated.
    pub codec_mm2: Option<f64>,
    pub area_mm2: f64,
    /// Energy of an uncompressed bit on the wire.
    pub nic_pj_per_bit: f64,
    /// Energy of a bit by the column that the codec's file chooses.
    pub codec_pj_per_bit: Option<f64>,
    pub pj_per_bit: f64,
    /// Energy of a bit with the codec's power over its throughput instead.
    pub pj_per_bit_by_power: f64,
    /// Where the codec's figures come from.
    pub origin: Option<OriginName>,
}

/// Every codec of every class at every target, the smallest sum of areas first.
/// Fails where the NIC or a codec's file is wrong, pointing at it, or the rate
/// is zero.
pub fn rows(request: &WireRequest<'_>, progress: &dyn Progress) -> Result<Vec<WireRow>, Error> {
    let rate_gbps = request.rate.gbit_per_s();
    if rate_gbps <= 0.0 {
        return Err(Error::input("a wire of no rate carries nothing", "give a rate such as \"100 Gbit/s\""));
    }
    let wire = Wire { rate_gbps, nic: NicFile::load(&request.nic)?.resolve() };
    let silicon = stated(&choices(EXPLORATION)?.candidates)?;
    let mut rows: Vec<WireRow> = Vec::new();
    let alike = |a: &&ClassLine, b: &&ClassLine| (a.class, &a.target) == (b.class, &b.target);
    // Bounds are no codecs, and a codec's silicon holds no precondition.
    let coded =
        |line: &&ClassLine| line.precondition == "none" && line.codec != ORDER0 && line.codec != GAUSSIAN;
    let lines: Vec<&ClassLine> = request.classes.iter().filter(coded).collect();
    for lines in lines.chunk_by(alike) {
        progress.check()?;
        let first = rows.len();
        rows.extend(lines.first().map(|line| wire.row(line, "uncompressed", UNCODED_BITS, None)));
        for line in lines {
            let known = silicon.iter().filter(|silicon| silicon.coder == line.codec);
            let known =
                known.map(|silicon| wire.row(line, &silicon.candidate, line.bits_per_value, Some(silicon)));
            let before = rows.len();
            rows.extend(known);
            if rows.len() == before {
                rows.push(wire.row(line, &line.codec, line.bits_per_value, None));
            }
        }
        rows[first..].sort_by(|a, b| a.area_mm2.total_cmp(&b.area_mm2));
    }
    Ok(rows)
}

/// A NIC, and the uncompressed rate it has to reach.
struct Wire {
    rate_gbps: f64,
    nic: Nic,
}

impl Wire {
    fn row(&self, line: &ClassLine, codec: &str, bits_per_value: f64, silicon: Option<&Silicon>) -> WireRow {
        let share = bits_per_value / UNCODED_BITS;
        let nic_mm2 = self.nic.area_mm2 * self.rate_gbps * share / (8e-9 * self.nic.bytes_per_s);
        let nic_pj_per_bit = 1e12 * self.nic.energy_j_per_bit * share;
        let blocks = silicon.map(|silicon| [silicon.encoder, silicon.decoder]);
        let sum = |of: &dyn Fn(&Block) -> f64| blocks.map(|blocks| blocks.iter().map(of).sum());
        let codec_mm2: Option<f64> = sum(&|block| block.area_mm2 * self.rate_gbps / block.throughput_gbps);
        let codec_pj_per_bit: Option<f64> = sum(&|block| block.pj_per_bit);
        let by_power: Option<f64> = sum(&|block| 1e3 * block.power_w / block.throughput_gbps);
        WireRow {
            class: line.class,
            target: line.target.clone(),
            codec: codec.to_owned(),
            coder: if bits_per_value == UNCODED_BITS { "none".into() } else { line.codec.clone() },
            bits_per_value,
            nic_mm2,
            codec_mm2,
            area_mm2: nic_mm2 + codec_mm2.unwrap_or(0.0),
            nic_pj_per_bit,
            codec_pj_per_bit,
            pj_per_bit: nic_pj_per_bit + codec_pj_per_bit.unwrap_or(0.0),
            pj_per_bit_by_power: nic_pj_per_bit + by_power.unwrap_or(0.0),
            origin: silicon.map(|silicon| silicon.origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use trinity_tensor::compare::ClassLine;

    fn line(codec: &str, bits_per_value: f64) -> ClassLine {
        ClassLine {
            class: Class::WeightGradient,
            codec: codec.into(),
            precondition: "none".into(),
            target: "NMSE 0.01".into(),
            tensors: 1,
            bits_per_value,
            nmse: 0.01,
            snr_db: 20.0,
            mae: 0.0,
            max_abs_error: 0.0,
            encode_mb_s: 1.0,
            decode_mb_s: 1.0,
            gap_bits: 0.0,
        }
    }

    fn found(rate: &str, lines: &[ClassLine]) -> Vec<WireRow> {
        let rate = rate.parse().expect("a rate");
        let request = WireRequest { classes: lines, rate, nic: "nics/cx5-llm265".into() };
        rows(&request, &Silent).expect("rows")
    }

    #[test]
    fn areas_and_energies_are_those_of_table_3_and_the_nic() {
        let rows = found("100 Gbit/s", &[line("h264", 4.0), line("int+cabac", 4.0)]);
        let of = |codec: &str| rows.iter().find(|row| row.codec == codec).expect(codec);
        assert_eq!(of("uncompressed").area_mm2, 169.7);
        assert!((of("h264").area_mm2 - (169.7 / 4.0 + 0.96 + 0.97)).abs() < 1e-9);
        assert!((of("three-in-one").pj_per_bit - (5120.0 / 4.0 + 97.8 + 63.5)).abs() < 1e-9);
        assert!((of("three-in-one").pj_per_bit_by_power - (5120.0 / 4.0 + 13.6)).abs() < 1e-9);
        // Nobody has stated what the baseline's silicon costs: it counts as nothing, and says so.
        assert_eq!((of("int+cabac").codec_mm2, of("int+cabac").area_mm2), (None, 169.7 / 4.0));
        let order: Vec<&str> = rows.iter().map(|row| row.codec.as_str()).collect();
        assert_eq!(order, ["int+cabac", "three-in-one", "h264", "uncompressed"]);
    }

    #[test]
    fn twice_the_rate_takes_twice_the_area_and_the_same_energy_a_bit() {
        let lines = [line("h265", 3.0)];
        for (one, two) in found("100 Gbit/s", &lines).iter().zip(found("200 Gbit/s", &lines)) {
            assert!((two.area_mm2 - 2.0 * one.area_mm2).abs() < 1e-9 && two.pj_per_bit == one.pj_per_bit);
        }
    }

    #[test]
    fn a_wire_of_no_rate_and_an_unknown_nic_are_refused() {
        let ask = |rate: &str, nic: &str| {
            let request = WireRequest {
                classes: &[line("h264", 3.0)],
                rate: rate.parse().expect("rate"),
                nic: nic.into(),
            };
            rows(&request, &Silent).expect_err("refused").to_string()
        };
        assert!(ask("0 Gbit/s", "nics/cx5").contains("no rate"));
        assert!(ask("1 Gbit/s", "nics/cx55").contains("cx55"));
    }
}
