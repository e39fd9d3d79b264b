//! What `trinity measure --compute` found, a line a quantity.

use crate::table::{Table, sig3};
use trinity_hwcodec::calibration::{Calibration, Measured};
use trinity_hwcodec::compute::curves::{ComputeModel, ProductGrid};

/// Empty where compute was not measured.
pub fn table(calibration: &Calibration) -> Table {
    let mut table = Table::new(["compute", "value", "unit", "95 % interval"]);
    let Some(model) = &calibration.compute else { return table };
    let mut row = |what: String, value: f64, unit: &str, spread: String| {
        table.row([what, sig3(value), unit.into(), spread]);
    };
    for operand in &model.operands {
        row(format!("{} products, best", operand.operand.name()), operand.tflops, "TFLOP/s", String::new());
    }
    for m in [1, 64, 2048, 16384] {
        if let Some((tflops, us)) = product(&model.products, m, 4096, 4096) {
            row(format!("bf16 product {m}×4096×4096, {} µs", sig3(us)), tflops, "TFLOP/s", String::new());
        }
    }
    if let (Some(bytes), Some(us)) = (model.streams.bytes.last(), model.streams.microseconds.last()) {
        row("device memory, streaming".into(), bytes / us / 1e3, "GB/s", String::new());
    }
    for (what, measured) in [
        ("kernel in a graph", model.graph_launch_us),
        ("kernel launched by the host", model.eager_launch_us),
        ("launch and wait", model.round_trip_us),
    ] {
        if let Some(measured) = measured {
            row(what.into(), measured.value, "µs", interval(&measured));
        }
    }
    for (what, measured) in
        [("input gradient", model.input_gradient), ("weight gradient", model.weight_gradient)]
    {
        if let Some(measured) = measured {
            row(format!("product of the {what}, over forward"), measured.value, "×", interval(&measured));
        }
    }
    for rates in &model.attention {
        let at = rates.tokens.iter().position(|&t| t == 4096).unwrap_or(0);
        if let Some(forward) = rates.forward_tflops.get(at) {
            let what = format!(
                "attention ({}), heads of {}, {} tokens",
                rates.kernel, rates.head_dim, rates.tokens[at]
            );
            row(what, *forward, "TFLOP/s", String::new());
        }
    }
    framework(model, &mut row);
    if let Some(power) = &model.power {
        row("power, idle".into(), power.idle_w, "W", String::new());
        row(
            "energy of an operation".into(),
            power.pj_per_flop.value,
            "pJ/FLOP",
            interval(&power.pj_per_flop),
        );
        row("energy of a byte".into(), power.pj_per_byte.value, "pJ/B", interval(&power.pj_per_byte));
        let exponent = power.clock_exponent;
        row("energy against clock, exponent".into(), exponent.value, "", interval(&exponent));
        row("power model, mean error".into(), 100.0 * power.mean_error, "%", String::new());
    }
    table
}

fn framework(model: &ComputeModel, row: &mut dyn FnMut(String, f64, &str, String)) {
    let Some(framework) = &model.framework else { return };
    for named in framework.dispatch.iter().filter(|n| n.operation == "linear" || n.operation == "mixture") {
        let what =
            format!("{} {}: host, {} {}", framework.name, framework.version, named.operation, named.pass);
        row(what, named.value, "µs", String::new());
    }
}

fn interval(measured: &Measured) -> String {
    format!("{} to {}", sig3(measured.low), sig3(measured.high))
}

/// TFLOP/s and µs of a shape of the grid.
fn product(grid: &ProductGrid, m: u32, n: u32, k: u32) -> Option<(f64, f64)> {
    let at = |axis: &[u32], wanted: u32| axis.iter().position(|&v| v == wanted);
    let (row, column, depth) = (at(&grid.rows, m)?, at(&grid.columns, n)?, at(&grid.depths, k)?);
    let us = *grid.microseconds.get((row * grid.columns.len() + column) * grid.depths.len() + depth)?;
    Some((2.0 * f64::from(m) * f64::from(n) * f64::from(k) / us / 1e6, us))
}
