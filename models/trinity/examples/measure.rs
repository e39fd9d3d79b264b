//! Measures a profile on matrices of single-precision values.
//!
//! ```text
//! measure PROFILE TARGET FILE@ROWSxCOLS.f32…
//! ```
//! TARGET is `bits=3`, `nmse=0.02` or `step=0.01`. Prints one line of CSV for
//! each file: name, bits per value, NMSE, encode and decode seconds of CPU
//! time, passes, and the plan. `cargo xtask peers tensor` runs it.

use std::time::Instant;
use trinity_codec::{Profile, Target, decode, encode};

/// CPU seconds of this process, or wall seconds where that is not known.
fn cpu_s(since: Instant) -> f64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match schedule.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) => ns * 1e-9,
        None => since.elapsed().as_secs_f64(),
    }
}

#[allow(clippy::print_stdout)] // its one purpose
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [profile, target, files @ ..] = arguments.as_slice() else {
        return Err("usage: measure PROFILE TARGET FILE@ROWSxCOLS.f32…".into());
    };
    let profile = match std::fs::read_to_string(profile) {
        Ok(text) => Profile::parse(&text)?,
        Err(_) => Profile::named(profile)?,
    };
    let (kind, number) = target.split_once('=').ok_or("TARGET is kind=number")?;
    let number: f64 = number.parse()?;
    let target = match kind {
        "bits" => Target::Bits(number),
        "nmse" => Target::Nmse(number),
        "step" => Target::Step(number),
        _ => return Err("TARGET is bits=, nmse= or step=".into()),
    };
    for file in files {
        let stem = std::path::Path::new(file).file_stem().and_then(|s| s.to_str()).ok_or("file name")?;
        let (name, shape) = stem.rsplit_once('@').ok_or("files are named NAME@ROWSxCOLS.f32")?;
        let (rows, cols) = shape.split_once('x').ok_or("files are named NAME@ROWSxCOLS.f32")?;
        let (rows, cols) = (rows.parse()?, cols.parse()?);
        let values: Vec<f32> = std::fs::read(file)?
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let t0 = cpu_s(started);
        let encoded = encode(&values, rows, cols, &profile, target)?;
        let t1 = cpu_s(started);
        let decoded = decode(&encoded.bytes)?;
        let t2 = cpu_s(started);
        assert!(decoded.values == encoded.recon, "{name}: decoder and encoder disagree");
        let bits = 8.0 * encoded.bytes.len() as f64 / values.len() as f64;
        let report = &encoded.report;
        println!(
            "{name},{bits:.5},{:.6e},{:.4},{:.4},{},{:?}",
            report.nmse,
            t1 - t0,
            t2 - t1,
            report.passes,
            report.plan,
        );
    }
    Ok(())
}
