//! What `trinity measure --line` found: speeds, what runs beside, energy.

use crate::table::{Table, sig3};
use trinity_hwcodec::calibration::Calibration;
use trinity_hwcodec::recording::Recording;

/// Empty where the codec was not measured.
pub fn table(recording: &Recording) -> Table {
    let mut table =
        Table::new(["line-rate codec", "SMs", "MiB", "encode GB/s", "decode GB/s", "bits", "NMSE"]);
    let Some(line) = &recording.line else { return table };
    for speed in &line.speeds {
        table.row([
            speed.what.clone(),
            if speed.multiprocessors == 0 { "all".into() } else { speed.multiprocessors.to_string() },
            (speed.input_bytes >> 20).to_string(),
            sig3(speed.encode_gb_per_s()),
            sig3(speed.decode_gb_per_s()),
            format!("{:.3}", speed.bits_per_value()),
            format!("{:.5}", speed.nmse),
        ]);
    }
    for beside in &line.beside {
        let slower = |alone: f64, beside: f64| format!("{:.2} ×", beside / alone);
        table.row([
            format!("{}: product and coding take longer by", beside.what),
            beside.multiprocessors.to_string(),
            "64".into(),
            slower(beside.product_alone_s, beside.product_beside_s),
            slower(beside.codec_alone_s, beside.codec_beside_s),
            String::new(),
            String::new(),
        ]);
    }
    for energy in &line.energy {
        table.row([
            format!("energy, {}: {} J/GB above idle", energy.what, sig3(energy.j_per_gb())),
            line.multiprocessors.to_string(),
            "256".into(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]);
    }
    table
}

/// Multiprocessors for the rates that wires have; empty where it was not measured.
pub fn needed(calibration: &Calibration) -> Table {
    let mut table = Table::new(["GB/s of bf16", "SMs that encode it", "SMs that decode it"]);
    let Some(codec) = &calibration.software else { return table };
    let count = |count: Option<u32>| count.map_or_else(|| "more than there are".into(), |n| n.to_string());
    for gb_per_s in [12.5, 50.0, 100.0, 400.0] {
        let (encode, decode) = codec.multiprocessors_for(gb_per_s);
        table.row([gb_per_s.to_string(), count(encode), count(decode)]);
    }
    table
}
