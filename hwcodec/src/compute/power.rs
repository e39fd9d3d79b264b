//! Power of steady loads, by NVML's energy counter: nothing, launches, memory,
//! products; the latter two also with pauses, where clocks stay up. Together
//! they give joules for each operation and byte, and what a power limit does.

use super::blas::Product;
use super::lab::Lab;
use super::points::{Compute, Layout, LoadPoint, Operand};
use crate::error::{During, Error};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use std::time::{Duration, Instant};

/// Long enough for the counter's steps.
const WINDOW: Duration = Duration::from_millis(1200);
/// Until power and clocks have settled.
const SETTLE: Duration = Duration::from_millis(400);
const BURST_S: f64 = 4e-3;

/// What one launch of a load does.
struct Load<'l> {
    what: &'l str,
    flop: f64,
    bytes: f64,
    /// Share of the time to run.
    duty: f64,
    launch: &'l mut dyn FnMut(usize) -> Result<(), Error>,
}

pub(super) fn run(lab: &Lab, compute: &mut Compute) -> Result<(), Error> {
    let missing =
        || Error::Fit { what: "power".into(), reason: "NVML gives no energy counter for this GPU".into() };
    let nvml = lab.nvml.as_ref().ok_or_else(missing)?;
    let device = nvml.device_by_index(0).map_err(|_| missing())?;
    device.total_energy_consumption().map_err(|_| missing())?;
    compute.loads.push(idle(&device));
    let size = 1usize << 30;
    let [a, b] = [lab.at(0, size)?, lab.result_at(0, size)?];
    let tiny = &mut |_| lab.launch_stream(&lab.tiny, [a; 3], 1);
    compute.loads.push(hold(
        lab,
        &device,
        Load { what: "launches", flop: 0.0, bytes: 0.0, duty: 1.0, launch: tiny },
    )?);
    for duty in [1.0, 0.5] {
        let launch = &mut |_| lab.launch_stream(&lab.copy, [a, b, a], (size / 16) as u64);
        let load = Load { what: "copy", flop: 0.0, bytes: 2.0 * size as f64, duty, launch };
        compute.loads.push(hold(lab, &device, load)?);
    }
    let shapes =
        [(8192, 8192, 8192), (4096, 4096, 4096), (8192, 1024, 1024), (1, 8192, 8192), (64, 8192, 8192)];
    for (m, n, k) in shapes {
        for duty in [1.0, 0.5, 0.25] {
            if duty < 1.0 && m < 4096 {
                continue;
            }
            let load = product_load(lab, (m, n, k))?;
            let what = format!("product {m}×{n}×{k}");
            let (flop, bytes) = (2.0 * (m * n * k) as f64, 2.0 * (m * k + n * k + m * n) as f64);
            let launch = &mut |i: usize| lab.blas.launch(&load[i % load.len()]);
            compute.loads.push(hold(lab, &device, Load { what: &what, flop, bytes, duty, launch })?);
        }
    }
    Ok(())
}

/// Products over weights that take turns.
fn product_load(lab: &Lab, (m, n, k): (usize, usize, usize)) -> Result<Vec<Product>, Error> {
    let (x_bytes, y_bytes, w_bytes) = (m * k * 2, m * n * 2, n * k * 2);
    let (operand, layout) = (Operand::Bf16, Layout::Forward);
    let (x, y) = (lab.at(0, x_bytes)?, lab.result_at(0, y_bytes)?);
    let product = |i| {
        let w = lab.at(x_bytes + i * w_bytes, w_bytes)?;
        Ok(Product { operand, layout, m, n, k, batch: 1, x, w, y })
    };
    (0..8).map(product).collect()
}

fn idle(device: &Device<'_>) -> LoadPoint {
    std::thread::sleep(SETTLE);
    let (before, start) = (joules(device), Instant::now());
    std::thread::sleep(WINDOW);
    let seconds = start.elapsed().as_secs_f64();
    LoadPoint {
        what: "idle".into(),
        duty: 0.0,
        seconds,
        flop_per_s: 0.0,
        bytes_per_s: 0.0,
        power_w: (joules(device) - before) / seconds,
        sm_clock_mhz: clock(device),
    }
}

fn hold(lab: &Lab, device: &Device<'_>, load: Load<'_>) -> Result<LoadPoint, Error> {
    let each_s = lab.chained_s(8, load.launch)?.median;
    let count = ((BURST_S / each_s) as usize).clamp(1, 4000);
    let burst = lab.captured(count, load.launch)?;
    let pause = BURST_S.max(each_s * count as f64) * (1.0 / load.duty - 1.0);
    let mut bursts = 0usize;
    let mut clocks = Vec::new();
    let mut run_for = |window: Duration, count_them: bool| -> Result<f64, Error> {
        let start = Instant::now();
        while start.elapsed() < window {
            // Two queued at a time, so that no gap shows at full duty.
            for _ in 0..2 {
                burst.launch().during("cuGraphLaunch")?;
            }
            lab.stream().synchronize().during("cuStreamSynchronize")?;
            if count_them {
                bursts += 2;
                if bursts.is_multiple_of(16) {
                    clocks.push(clock(device));
                }
            }
            if pause > 0.0 {
                std::thread::sleep(Duration::from_secs_f64(2.0 * pause));
            }
        }
        Ok(start.elapsed().as_secs_f64())
    };
    run_for(SETTLE, false)?;
    let before = joules(device);
    let seconds = run_for(WINDOW, true)?;
    let power_w = (joules(device) - before) / seconds;
    let launches = (bursts * count) as f64;
    std::thread::sleep(Duration::from_millis(100));
    Ok(LoadPoint {
        what: load.what.into(),
        duty: load.duty,
        seconds,
        flop_per_s: launches * load.flop / seconds,
        bytes_per_s: launches * load.bytes / seconds,
        power_w,
        sm_clock_mhz: clocks.iter().sum::<f64>() / clocks.len().max(1) as f64,
    })
}

fn joules(device: &Device<'_>) -> f64 {
    device.total_energy_consumption().map_or(f64::NAN, |mj| mj as f64 / 1e3)
}

fn clock(device: &Device<'_>) -> f64 {
    device.clock_info(Clock::SM).map_or(f64::NAN, f64::from)
}
