//! Bits, error and speed of profiles on one matrix of raw `f32`, one thread.
//!
//! ```text
//! cargo run --release -p trinity-codec --example measure -- \
//!     FILE ROWS COLS PROFILE[,PROFILE…] TARGET[,TARGET…] [REPEATS]
//! ```
//! A target is `b3` (bits per value), `n0.01` (NMSE) or `s0.1` (step over the
//! root mean square). Each line: profile, target, bits per value, NMSE, passes,
//! encoding and decoding seconds of CPU time (least of the repeats), and what
//! was chosen.

// Its lines are its result.
#![allow(clippy::print_stdout)]

use std::time::Instant;
use trinity_codec::{Profile, Rate, decode, encode};

/// Nanoseconds this process has spent on a core; by the clock where the
/// kernel does not tell.
fn cpu_ns(start: Instant) -> u64 {
    std::fs::read_to_string("/proc/self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| start.elapsed().as_nanos() as u64)
}

/// Seconds that are measured at a time: the kernel's own count moves in steps.
const AT_LEAST_S: f64 = 0.1;

/// The result of `work`, and the least CPU seconds it took in `repeats` measurements.
fn timed<T>(repeats: usize, work: impl Fn() -> T) -> (T, f64) {
    let start = Instant::now();
    let measure = || {
        let (before, since) = (cpu_ns(start), Instant::now());
        let mut runs = 1;
        let mut result = work();
        while repeats > 1 && since.elapsed().as_secs_f64() < AT_LEAST_S {
            result = work();
            runs += 1;
        }
        (result, (cpu_ns(start) - before) as f64 * 1e-9 / f64::from(runs))
    };
    (1..repeats).fold(measure(), |(result, least), _| (result, measure().1.min(least)))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, rows, cols, profiles, targets, rest @ ..] = args.as_slice() else {
        return Err("expected: FILE ROWS COLS PROFILES TARGETS [REPEATS]".into());
    };
    let repeats = rest.first().map_or(Ok(1), |n| n.parse())?;
    let (rows, cols) = (rows.parse()?, cols.parse()?);
    let values: Vec<f32> =
        std::fs::read(file)?.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let energy: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
    let rms = (energy / values.len() as f64).sqrt();
    for name in profiles.split(',') {
        let profile = match std::fs::read_to_string(name) {
            Ok(text) => Profile::parse(&text)?,
            Err(_) => Profile::named(name)?,
        };
        for word in targets.split(',') {
            let (kind, number) = word.split_at_checked(1).ok_or("a target is a letter and a number")?;
            let number: f64 = number.parse()?;
            let target = match kind {
                "b" => Rate::Bits(number),
                "n" => Rate::Nmse(number),
                "s" => Rate::Step(number * rms),
                _ => return Err(format!("`{word}` is no target").into()),
            };
            let (encoded, encode_s) = timed(repeats, || encode(&values, rows, cols, &profile, target));
            let encoded = encoded?;
            let (decoded, decode_s) = timed(repeats, || decode(&encoded.bytes));
            let decoded = decoded?.values;
            if decoded.iter().zip(&encoded.recon).any(|(a, b)| a.to_bits() != b.to_bits()) {
                return Err(format!("{name} at {word}: the decoder disagrees").into());
            }
            let error: f64 =
                values.iter().zip(&decoded).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
            let bits = 8.0 * encoded.bytes.len() as f64 / values.len() as f64;
            println!(
                "{name} {word} {bits:.4} {:.5e} {} {encode_s:.4} {decode_s:.4} {:?}",
                error / energy,
                encoded.report.passes,
                encoded.report.plan
            );
        }
    }
    Ok(())
}
