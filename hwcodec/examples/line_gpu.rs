//! The line-rate codec on this machine's GPU: checked against the CPU, then timed.
//!
//! `cargo run --release -p trinity-hwcodec --example line_gpu`
#![allow(clippy::print_stdout)]

use trinity_hwcodec::line::LineCodec;
use trinity_hwcodec::measure::line::{Speed, check, nvcomp, speeds};
use trinity_hwcodec::sys::nvcomp::Method;
use trinity_hwcodec::{Error, Gpu};

fn main() -> Result<(), Error> {
    let gpu = Gpu::open(0)?;
    let codec = LineCodec::new(&gpu)?;
    let rows = check(&gpu, &codec)?;
    let wrong: Vec<_> = rows.iter().filter(|row| !row.agrees()).collect();
    println!("{} of {} cases equal on CPU and GPU", rows.len() - wrong.len(), rows.len());
    for row in wrong.iter().take(40) {
        println!("  {}: {}", row.name, row.outcome);
    }
    let all = codec.multiprocessors();
    let counts: Vec<u32> = (0..).map(|n| 1 << n).take_while(|&n| n < all).chain([all]).collect();
    let mut table: Vec<Speed> = Vec::new();
    for log2_states in [0, 2, 3] {
        table.extend(speeds(&gpu, &codec, 512, log2_states, if log2_states == 2 { &counts[counts.len() - 1..] } else { &counts })?);
        table.extend(speeds(&gpu, &codec, 4, log2_states, &[all])?);
    }
    let nmse = table.iter().find(|row| row.what.contains("8 states")).map_or(0.01, |row| row.nmse);
    for method in [Method::Ans, Method::Bitcomp, Method::Zstd] {
        match nvcomp(&gpu, method, 512, nmse) {
            Ok(row) => table.push(row),
            Err(e) => println!("nvCOMP {}: {e}", method.name()),
        }
    }
    println!("{:<28} {:>4} {:>8} {:>9} {:>9} {:>7} {:>9}", "codec", "SMs", "MiB", "enc GB/s", "dec GB/s", "bits", "NMSE");
    for row in &table {
        println!(
            "{:<28} {:>4} {:>8} {:>9.1} {:>9.1} {:>7.3} {:>9.6}",
            row.what,
            row.multiprocessors,
            row.input_bytes >> 20,
            row.encode_gb_per_s(),
            row.decode_gb_per_s(),
            row.bits_per_value(),
            row.nmse
        );
    }
    Ok(())
}
