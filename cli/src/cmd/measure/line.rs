//! What `trinity measure --line` found: speeds, what runs beside, energy.

use crate::table::{Table, sig3};
use trinity_hwcodec::calibration::Calibration;
use trinity_hwcodec::recording::{DeltaDecoder, DeltaPoint, Recording};

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
        let priority = if beside.urgent { " of higher priority" } else { "" };
        table.row([
            format!("{}{priority}: product and coding take longer by", beside.what),
            beside.multiprocessors.to_string(),
            "64".into(),
            slower(beside.product_alone_s, beside.product_beside_s),
            slower(beside.codec_alone_s, beside.codec_beside_s),
            String::new(),
            String::new(),
        ]);
    }
    for point in &line.deltas {
        table.row([
            format!(
                "{}: {} ms, synchronous {} ms",
                delta(point),
                ms(point.pipelined_s.median),
                ms(point.synchronous_s.median)
            ),
            "all".into(),
            ((4 * point.elements) >> 20).to_string(),
            String::new(),
            sig3(4.0 * point.elements as f64 / point.pipelined_s.median / 1e9),
            format!("{:.3}", 8.0 * point.compressed_bytes as f64 / point.elements as f64),
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

fn ms(seconds: f64) -> String {
    sig3(1e3 * seconds)
}

/// What a delta was and who decompressed it.
pub fn delta(point: &DeltaPoint) -> String {
    let dense = point.decoder == Some(DeltaDecoder::LineDense);
    let decoder = match (point.decoder, point.threads) {
        (Some(DeltaDecoder::Line | DeltaDecoder::LineDense), _) => "trinity-lite on the GPU".into(),
        (_, 0) => "nvCOMP".into(),
        (_, 1) => "1 thread".into(),
        (_, threads) => format!("{threads} threads"),
    };
    format!(
        "{} delta, pipelined with {decoder} against synchronous ({})",
        if dense { "dense" } else { "sparse" },
        if point.exact { "exact" } else { "WRONG" }
    )
}

/// Multiprocessors for the rates that wires have; empty where it was not measured.
pub fn needed(calibration: &Calibration) -> Table {
    let count = |count: Option<u32>| count.map_or_else(|| "more than there are".into(), |n| n.to_string());
    let rows = calibration.software.iter().flat_map(|codec| {
        [12.5, 50.0, 100.0, 400.0].map(|gb_per_s| (gb_per_s, codec.multiprocessors_for(gb_per_s)))
    });
    Table::of(rows)
        .column("GB/s of bf16", |(gb_per_s, _)| gb_per_s)
        .column("SMs that encode it", |(_, (encode, _))| count(encode))
        .column("SMs that decode it", |(_, (_, decode))| count(decode))
        .end()
}
