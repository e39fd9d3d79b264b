//! Energy of a decoded bit, by the difference of power: busy engines less idle ones.

use super::{Bench, decode, typical};
use crate::Error;
use crate::nvdec::Standard;
use crate::recording::{EnergyPoint, LeftOut, Recording};
use std::time::{Duration, Instant};

/// Long enough for the power sensor's own averaging.
const WINDOW: Duration = Duration::from_millis(2500);

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let engines = recording.device.nvdec_engines.max(1);
    let Some(device) = bench.nvml.as_ref().and_then(|nvml| nvml.device_by_index(0).ok()) else {
        recording.left_out.push(LeftOut { what: "energy".into(), why: "NVML does not answer".into() });
        return Ok(());
    };
    // The counter is the integral of power in mJ; a sampled reading would miss the ramps.
    let counter = || device.total_energy_consumption().ok();
    for standard in [Standard::H264, Standard::Hevc] {
        let stream = bench.stream(typical(standard, 1024, 2))?;
        // One pass first: clocks up, context warm. Idle is then measured in the same state.
        decode::measure(bench.gpu, &stream, engines, 1, || None)?;
        let (Some(before), start) = (counter(), Instant::now()) else {
            recording
                .left_out
                .push(LeftOut { what: "energy".into(), why: "this GPU has no energy counter".into() });
            return Ok(());
        };
        std::thread::sleep(WINDOW);
        let idle_w = counter().map_or(0.0, |now| (now - before) as f64 / 1e3 / start.elapsed().as_secs_f64());
        let (before, start) = (counter().unwrap_or(0), Instant::now());
        let mut values = 0.0;
        let mut passes = Vec::new();
        while start.elapsed() < WINDOW {
            let point = decode::measure(bench.gpu, &stream, engines, 3, || None)?;
            // Three timed passes and the warm-up.
            values += point.values() * point.pictures as f64 * 4.0;
            passes.push(point);
        }
        let seconds = start.elapsed().as_secs_f64();
        let busy_w = (counter().unwrap_or(before) - before) as f64 / 1e3 / seconds;
        recording.energy.push(EnergyPoint {
            what: format!("{} decode, {engines} sessions", standard.name()),
            idle_w,
            busy_w,
            sample_bits_per_s: values * 8.0 / seconds,
            coded_bits_per_s: values * stream.bits_per_value() / seconds,
        });
    }
    Ok(())
}
