//! Energy of a decoded bit, by the difference of power: busy engines less idle ones.

use super::bench::{Bench, typical};
use super::decode;
use crate::Error;
use crate::nvdec::Standard;
use crate::recording::{EnergyPoint, LeftOut, Recording};
use crate::stats::Spread;
use std::time::{Duration, Instant};

/// Long enough for the counter's own steps.
const WINDOW: Duration = Duration::from_millis(1000);
/// Idle and busy windows alternate, so that drift (a chip warming up) falls on both.
const ROUNDS: usize = 4;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let engines = recording.device.nvdec_engines.max(1);
    let device = bench.nvml.as_ref().and_then(|nvml| nvml.device_by_index(0).ok());
    // The counter is the integral of power in mJ; a sampled reading would miss the ramps.
    let counter = || device.as_ref().and_then(|d| d.total_energy_consumption().ok());
    if counter().is_none() {
        let why = "NVML gives no energy counter for this GPU".into();
        recording.left_out.push(LeftOut { what: "energy".into(), why });
        return Ok(());
    }
    for standard in [Standard::H264, Standard::Hevc] {
        let stream = bench.stream(typical(standard, 1024, 2))?;
        let (mut idle, mut busy) = (Vec::new(), Vec::new());
        let (mut values, mut busy_s) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            // Past the tail of what ran before.
            std::thread::sleep(WINDOW / 2);
            let (before, start) = (counter(), Instant::now());
            std::thread::sleep(WINDOW);
            idle.extend(mean_power_w(before, counter(), start));
            let (before, start) = (counter(), Instant::now());
            while start.elapsed() < WINDOW {
                let point = decode::measure(bench.gpu, &stream, engines, 3, || None)?;
                // Three timed passes and the warm-up.
                values += point.values() * point.pictures as f64 * 4.0;
            }
            busy.extend(mean_power_w(before, counter(), start));
            busy_s += start.elapsed().as_secs_f64();
        }
        let (Some(idle), Some(busy)) = (Spread::of(&idle), Spread::of(&busy)) else { continue };
        recording.energy.push(EnergyPoint {
            what: format!("{} decode, {engines} sessions", standard.name()),
            idle_w: idle.median,
            busy_w: busy.median,
            sample_bits_per_s: values * 8.0 / busy_s,
            coded_bits_per_s: values * stream.bits_per_value() / busy_s,
        });
    }
    Ok(())
}

/// Joules between two readings over the time between them.
fn mean_power_w(before: Option<u64>, after: Option<u64>, start: Instant) -> Option<f64> {
    let joules = after?.checked_sub(before?)? as f64 / 1e3;
    Some(joules / start.elapsed().as_secs_f64())
}
