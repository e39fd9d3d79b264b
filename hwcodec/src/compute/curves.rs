//! Curves out of the compute measurements: what `calibration.toml` carries of
//! them, each with its spread. A curve is the measured points themselves;
//! power and the layouts of the backward pass are fits of few numbers.

use super::points::{AttentionPoint, Compute, Framework, Layout, LoadPoint, Operand, OperationPoint};
use crate::stats::{Measured, Spread};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeModel {
    pub multiprocessors: u32,
    pub power_limit_w: f64,
    pub max_sm_clock_mhz: u32,
    /// Time of the gradients' products over the forward layout's, shape by shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_gradient: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_gradient: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_launch_us: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eager_launch_us: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<Measured>,
    /// Of products, how fast a copy from the host is beside them, over alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_copy_beside_products: Option<f64>,
    pub products: ProductGrid,
    pub streams: Points,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerModel>,
    /// Best rate of each operand type over squares.
    #[serde(default)]
    pub operands: Vec<OperandRate>,
    #[serde(default)]
    pub attention: Vec<AttentionRates>,
    #[serde(default)]
    pub caches: Vec<CacheTimes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<FrameworkModel>,
}

/// Microseconds of bf16 products `[m×k]·[k×n]`, depth fastest, then column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductGrid {
    pub rows: Vec<u32>,
    pub columns: Vec<u32>,
    pub depths: Vec<u32>,
    pub microseconds: Vec<f64>,
    /// Mean half interval of a timing, relative.
    pub spread: f64,
}

/// A curve by its points.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    pub bytes: Vec<f64>,
    pub microseconds: Vec<f64>,
    /// Mean half interval of a timing, relative.
    pub spread: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperandRate {
    pub operand: Operand,
    pub tflops: f64,
}

/// Causal attention of one head size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionRates {
    /// `framework` or `batched products`.
    pub kernel: String,
    pub head_dim: u32,
    pub tokens: Vec<u32>,
    /// Operations of the forward pass that the mask leaves, by pass.
    pub forward_tflops: Vec<f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backward_tflops: Vec<f64>,
}

/// One query a sequence on a cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheTimes {
    pub head_dim: u32,
    pub group: u32,
    pub times: Points,
}

/// Joules and watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerModel {
    pub idle_w: f64,
    /// Kernels running that do nothing.
    pub active_w: f64,
    /// Energy of an operation at the top clock.
    pub pj_per_flop: Measured,
    pub pj_per_byte: Measured,
    /// Energy of an operation falls with the clock to this power.
    pub clock_exponent: Measured,
    /// Mean absolute error over the loads it was fitted on.
    pub mean_error: f64,
}

/// What the framework's operations cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrameworkModel {
    pub name: String,
    pub version: String,
    /// Microseconds of the host for one operation, by operation and pass.
    pub dispatch: Vec<Named>,
    /// Microseconds of a small operation in a graph.
    pub floors: Vec<Named>,
    /// Time over that of our stream kernel for the same bytes.
    pub operations: Vec<Named>,
}

/// A value with the operation it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    pub operation: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pass: String,
    pub value: f64,
}

impl ComputeModel {
    pub fn of(compute: &Compute) -> Self {
        let launch = |how: &str| {
            let point = compute.launches.iter().find(|l| l.how == how)?;
            Some(point.seconds.map(|s| s * 1e6).into())
        };
        let streams = streams(compute);
        Self {
            multiprocessors: compute.multiprocessors,
            power_limit_w: compute.power_limit_w,
            max_sm_clock_mhz: compute.max_sm_clock_mhz,
            input_gradient: layout_ratio(compute, Layout::InputGradient),
            weight_gradient: layout_ratio(compute, Layout::WeightGradient),
            graph_launch_us: launch("graph"),
            eager_launch_us: launch("eager"),
            round_trip_us: launch("round trip"),
            host_copy_beside_products: host_copies(compute),
            products: grid(compute),
            power: power(&compute.loads),
            operands: operands(compute),
            attention: attention(&compute.attention),
            caches: caches(&compute.attention),
            framework: compute.framework.as_ref().map(|framework| framework_model(framework, &streams)),
            streams,
        }
    }
}

/// Four digits: more than a timing has.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    if n > 0.0 { sum / n } else { 0.0 }
}

/// Each value once, in order.
fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    BTreeSet::from_iter(values).into_iter().collect()
}

/// The full grid of bf16 products; a shape that is missing leaves its row out.
fn grid(compute: &Compute) -> ProductGrid {
    let points: Vec<_> = compute
        .products
        .iter()
        .filter(|p| p.operand == Operand::Bf16 && p.layout == Layout::Forward)
        .collect();
    let axis = |of: fn(&super::ProductPoint) -> u32| distinct(points.iter().map(|p| of(p)));
    let (rows, columns, depths) = (axis(|p| p.m), axis(|p| p.n), axis(|p| p.k));
    let at = |m: u32, n: u32, k: u32| {
        points.iter().find(|p| (p.m, p.n, p.k) == (m, n, k)).map(|p| rounded(p.seconds.median * 1e6))
    };
    let whole = |m: u32| -> Option<Vec<f64>> {
        columns.iter().flat_map(|&n| depths.iter().map(move |&k| (n, k))).map(|(n, k)| at(m, n, k)).collect()
    };
    let (mut kept, mut microseconds) = (Vec::new(), Vec::new());
    for &m in &rows {
        if let Some(row) = whole(m) {
            kept.push(m);
            microseconds.extend(row);
        }
    }
    let spread = rounded(mean(points.iter().map(|p| p.seconds.relative())));
    ProductGrid { rows: kept, columns, depths, microseconds, spread }
}

fn layout_ratio(compute: &Compute, layout: Layout) -> Option<Measured> {
    let ratios: Vec<f64> = compute
        .products
        .iter()
        .filter(|p| p.layout == layout && p.operand == Operand::Bf16)
        .filter_map(|p| {
            let forward = compute.products.iter().find(|f| {
                f.layout == Layout::Forward
                    && f.operand == Operand::Bf16
                    && (f.m, f.n, f.k) == (p.m, p.n, p.k)
            })?;
            Some(p.seconds.median / forward.seconds.median)
        })
        .collect();
    Spread::of(&ratios).map(Measured::from)
}

/// Copy and triad together, by bytes moved; a longer stream never takes less.
fn streams(compute: &Compute) -> Points {
    let mut points: Vec<(f64, f64)> =
        compute.streams.iter().map(|s| (s.bytes as f64, s.seconds.median * 1e6)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut longest = 0.0f64;
    for point in &mut points {
        longest = longest.max(point.1);
        point.1 = rounded(longest);
    }
    Points {
        bytes: points.iter().map(|p| p.0).collect(),
        microseconds: points.iter().map(|p| p.1).collect(),
        spread: rounded(mean(compute.streams.iter().map(|s| s.seconds.relative()))),
    }
}

/// Microseconds of a stream of `bytes`, straight between the points.
fn stream_us(streams: &Points, bytes: f64) -> f64 {
    let after = streams.bytes.partition_point(|&b| b < bytes);
    let at = |i: usize| Some((*streams.bytes.get(i)?, *streams.microseconds.get(i)?));
    match (after.checked_sub(1).and_then(at), at(after)) {
        (Some(low), Some(high)) => low.1 + (bytes - low.0) / (high.0 - low.0) * (high.1 - low.1),
        (Some(last), None) => last.1 * bytes / last.0,
        (None, Some(first)) => first.1,
        (None, None) => f64::NAN,
    }
}

fn host_copies(compute: &Compute) -> Option<f64> {
    let rate = |beside: bool| {
        let found = compute
            .host_copies
            .iter()
            .find(|c| c.beside_products == beside && c.direction == "host-to-device")?;
        Some(found.bytes_per_s.median)
    };
    Some(rounded(rate(true)? / rate(false)?))
}

fn operands(compute: &Compute) -> Vec<OperandRate> {
    [Operand::Bf16, Operand::Fp16, Operand::Tf32, Operand::Fp8]
        .into_iter()
        .filter_map(|operand| {
            let best = compute
                .products
                .iter()
                .filter(|p| p.operand == operand)
                .map(|p| p.flop() / p.seconds.median / 1e12)
                .max_by(f64::total_cmp)?;
            Some(OperandRate { operand, tflops: rounded(best) })
        })
        .collect()
}

/// Curves of the framework's kernels, or of batched products where none was asked.
fn attention(points: &[AttentionPoint]) -> Vec<AttentionRates> {
    let framework = points.iter().any(|p| p.kernel == "framework" && p.queries > 1);
    let kernel = if framework { "framework" } else { "batched products" };
    let ours: Vec<&AttentionPoint> =
        points.iter().filter(|p| p.kernel == kernel && p.queries > 1 && p.heads == p.kv_heads).collect();
    distinct(ours.iter().map(|p| p.head_dim))
        .into_iter()
        .map(|head_dim| {
            let mut of: Vec<&&AttentionPoint> = ours.iter().filter(|p| p.head_dim == head_dim).collect();
            of.sort_by_key(|p| p.queries);
            AttentionRates {
                kernel: kernel.into(),
                head_dim,
                tokens: of.iter().map(|p| p.queries).collect(),
                forward_tflops: of.iter().map(|p| rounded(p.flop() / p.forward_s / 1e12)).collect(),
                backward_tflops: of
                    .iter()
                    .filter_map(|p| Some(rounded(p.flop() / p.backward_s? / 1e12)))
                    .collect(),
            }
        })
        .collect()
}

fn caches(points: &[AttentionPoint]) -> Vec<CacheTimes> {
    let single: Vec<&AttentionPoint> = points.iter().filter(|p| p.queries == 1).collect();
    let kind = |p: &AttentionPoint| (p.head_dim, p.heads / p.kv_heads.max(1));
    distinct(single.iter().map(|p| kind(p)))
        .into_iter()
        .map(|(head_dim, group)| {
            let mut of: Vec<(f64, f64)> = single
                .iter()
                .filter(|p| kind(p) == (head_dim, group))
                .map(|p| (p.kv_bytes(), p.forward_s * 1e6))
                .collect();
            of.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Several shapes of one size: their mean, so that the curve is one.
            let mut merged: Vec<(f64, f64, f64)> = Vec::new();
            for (bytes, us) in of {
                match merged.last_mut() {
                    Some(last) if last.0 == bytes => {
                        last.1 += us;
                        last.2 += 1.0;
                    }
                    _ => merged.push((bytes, us, 1.0)),
                }
            }
            CacheTimes {
                head_dim,
                group,
                times: Points {
                    bytes: merged.iter().map(|m| m.0).collect(),
                    microseconds: merged.iter().map(|m| rounded(m.1 / m.2)).collect(),
                    spread: 0.0,
                },
            }
        })
        .collect()
}

fn framework_model(framework: &Framework, streams: &Points) -> FrameworkModel {
    let named = |points: &[OperationPoint], value: &dyn Fn(&OperationPoint) -> f64| {
        let one = |o: &OperationPoint| Named {
            operation: o.operation.clone(),
            pass: String::new(),
            value: rounded(value(o)),
        };
        points.iter().map(one).collect()
    };
    FrameworkModel {
        name: framework.name.clone(),
        version: framework.version.clone(),
        dispatch: dispatch(framework),
        floors: named(&framework.floors, &|o| o.seconds * 1e6),
        operations: named(&framework.operations, &|o| o.seconds * 1e6 / stream_us(streams, o.bytes)),
    }
}

/// Each operation once: the mean over the hosts it was timed on.
fn dispatch(framework: &Framework) -> Vec<Named> {
    let mut list: Vec<Named> = Vec::new();
    for point in &framework.dispatch {
        if list.iter().any(|n| n.operation == point.operation && n.pass == point.pass) {
            continue;
        }
        let same =
            framework.dispatch.iter().filter(|d| d.operation == point.operation && d.pass == point.pass);
        list.push(Named {
            operation: point.operation.clone(),
            pass: point.pass.clone(),
            value: rounded(mean(same.map(|d| d.seconds * 1e6))),
        });
    }
    list
}

/// What each load draws, by what it does: idle and active from the loads that
/// do nothing, bytes from copies, operations from products with pauses (clocks
/// up), the exponent from products without.
fn power(loads: &[LoadPoint]) -> Option<PowerModel> {
    let named = |what: &str| loads.iter().find(|l| l.what == what && l.power_w.is_finite());
    let idle_w = named("idle")?.power_w;
    let active_w = named("launches")?.power_w;
    let floor = |load: &LoadPoint| idle_w + (active_w - idle_w) * load.duty;
    let per = |values: Vec<f64>| Spread::of(&values).map(Measured::from);
    let copies = loads.iter().filter(|l| l.what == "copy");
    let byte = per(copies.map(|l| (l.power_w - floor(l)) / l.bytes_per_s * 1e12).collect())?;
    let above = |l: &LoadPoint| l.power_w - floor(l) - byte.value * 1e-12 * l.bytes_per_s;
    let products = || loads.iter().filter(|l| l.what.starts_with("product") && l.flop_per_s > 1e13);
    let resting = products().filter(|l| l.duty < 1.0);
    let flop = per(resting.map(|l| above(l) / l.flop_per_s * 1e12).collect())?;
    let top = loads.iter().map(|l| l.sm_clock_mhz).fold(0.0, f64::max);
    let throttled = products().filter(|l| l.duty == 1.0 && l.sm_clock_mhz < 0.97 * top);
    let exponents = throttled
        .map(|l| (above(l) / l.flop_per_s * 1e12 / flop.value).ln() / (l.sm_clock_mhz / top).ln())
        .collect();
    let clock_exponent = per(exponents).unwrap_or(Measured { value: 1.0, low: 0.0, high: 2.0 });
    let predicted = |l: &LoadPoint| {
        let clock = (l.sm_clock_mhz / top).min(1.0).powf(clock_exponent.value);
        floor(l) + 1e-12 * (byte.value * l.bytes_per_s + clock * flop.value * l.flop_per_s)
    };
    let mean_error =
        mean(loads.iter().filter(|l| l.duty > 0.0).map(|l| (predicted(l) / l.power_w - 1.0).abs()));
    Some(PowerModel { idle_w, active_w, pj_per_flop: flop, pj_per_byte: byte, clock_exponent, mean_error })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn load(what: &str, duty: f64, flop_per_s: f64, bytes_per_s: f64, sm_clock_mhz: f64) -> LoadPoint {
        let clock = (sm_clock_mhz / 2000.0).powf(1.5);
        let power_w = 100.0 + 50.0 * duty + 0.5e-12 * clock * flop_per_s + 60e-12 * bytes_per_s;
        LoadPoint { what: what.into(), duty, seconds: 1.0, flop_per_s, bytes_per_s, power_w, sm_clock_mhz }
    }

    /// Loads that tell all but what a lower clock saves.
    fn at_top_clock() -> [LoadPoint; 4] {
        [
            load("idle", 0.0, 0.0, 0.0, 2000.0),
            load("launches", 1.0, 0.0, 0.0, 2000.0),
            load("copy", 1.0, 0.0, 4e12, 2000.0),
            load("product a", 0.5, 4e14, 1e11, 2000.0),
        ]
    }

    #[test]
    fn power_gives_back_what_made_the_loads() {
        let mut loads = at_top_clock().to_vec();
        loads.push(load("copy", 0.5, 0.0, 2e12, 2000.0));
        loads.push(load("product a", 1.0, 7e14, 2e11, 1600.0));
        let model = power(&loads).unwrap();
        assert!((model.pj_per_flop.value - 0.5).abs() < 1e-9, "{model:?}");
        assert!((model.pj_per_byte.value - 60.0).abs() < 1e-9);
        assert!((model.clock_exponent.value - 1.5).abs() < 1e-9);
        assert!(model.mean_error < 1e-9);
    }

    use super::super::ProductPoint;
    use super::super::points::{DispatchPoint, HostCopyPoint, LaunchPoint, OperationPoint, StreamPoint};

    fn timed(seconds: f64) -> Spread {
        Spread { median: seconds, low: 0.9 * seconds, high: 1.1 * seconds, n: 20 }
    }

    fn product(operand: Operand, layout: Layout, (m, n, k): (u32, u32, u32), us: f64) -> ProductPoint {
        ProductPoint { operand, layout, m, n, k, seconds: timed(us * 1e-6) }
    }

    #[test]
    fn a_grid_has_every_shape_of_its_rows_and_leaves_out_rows_that_lack_one() {
        let forward = |shape, us| product(Operand::Bf16, Layout::Forward, shape, us);
        let mut products = Vec::new();
        for (m, n, k) in [(64, 8, 16), (64, 8, 32), (64, 4, 16), (64, 4, 32), (128, 8, 16)] {
            products.push(forward((m, n, k), f64::from(m + n) + f64::from(k) / 100.0));
        }
        // Of another number format, and of another pass: not this grid's.
        products.push(product(Operand::Fp8, Layout::Forward, (256, 8, 16), 1.0));
        products.push(product(Operand::Bf16, Layout::InputGradient, (512, 8, 16), 1.0));
        let found = grid(&Compute { products, ..Compute::default() });
        assert_eq!((found.rows, found.columns, found.depths), (vec![64], vec![4, 8], vec![16, 32]));
        // Depth is fastest, then the column.
        assert_eq!(found.microseconds, [68.16, 68.32, 72.16, 72.32]);
        assert!((found.spread - 0.1).abs() < 1e-3);
    }

    #[test]
    fn gradients_are_told_beside_the_forward_product_of_their_shape() {
        let shapes = [(64, 64, 64), (128, 64, 64), (64, 128, 64)];
        let mut products = Vec::new();
        for (at, shape) in shapes.into_iter().enumerate() {
            products.push(product(Operand::Bf16, Layout::Forward, shape, 10.0));
            products.push(product(Operand::Bf16, Layout::InputGradient, shape, 10.0 + at as f64));
        }
        // Without a forward product to stand beside.
        products.push(product(Operand::Bf16, Layout::InputGradient, (9, 9, 9), 1000.0));
        let compute = Compute { products, ..Compute::default() };
        let ratio = layout_ratio(&compute, Layout::InputGradient).unwrap();
        assert!((ratio.value - 1.1).abs() < 1e-12 && (ratio.low - 1.0).abs() < 1e-12, "{ratio:?}");
        assert_eq!(layout_ratio(&compute, Layout::WeightGradient), None);
    }

    #[test]
    fn the_best_rate_of_an_operand_type_is_of_any_shape_and_pass() {
        let products = vec![
            product(Operand::Fp8, Layout::Forward, (1000, 1000, 1000), 4.0),
            product(Operand::Fp8, Layout::WeightGradient, (1000, 1000, 1000), 2.0),
            product(Operand::Tf32, Layout::Forward, (1000, 1000, 500), 2.0),
        ];
        let found = operands(&Compute { products, ..Compute::default() });
        let rates: Vec<_> = found.iter().map(|one| (one.operand, one.tflops)).collect();
        assert_eq!(rates, [(Operand::Tf32, 500.0), (Operand::Fp8, 1000.0)]);
    }

    #[test]
    fn a_longer_stream_never_takes_less_and_between_points_lies_what_is_between() {
        let point = |bytes, us: f64| StreamPoint { kernel: "copy".into(), bytes, seconds: timed(us * 1e-6) };
        let compute = Compute {
            streams: vec![point(4000, 8.0), point(1000, 3.0), point(2000, 2.0)],
            ..Compute::default()
        };
        let found = streams(&compute);
        assert_eq!((&found.bytes[..], &found.microseconds[..]), (&[1e3, 2e3, 4e3][..], &[3.0, 3.0, 8.0][..]));
        // Below the first as the first, above the last in proportion.
        let at = [10.0, 1500.0, 3000.0, 4000.0, 8000.0].map(|bytes| stream_us(&found, bytes));
        assert_eq!(at, [3.0, 3.0, 5.5, 8.0, 16.0]);
        assert!(stream_us(&Points::default(), 1.0).is_nan());
    }

    fn attended(
        kernel: &str,
        (heads, kv_heads): (u32, u32),
        (queries, keys): (u32, u32),
        s: f64,
    ) -> AttentionPoint {
        let backward_s = (queries > 1).then_some(2.0 * s);
        AttentionPoint {
            kernel: kernel.into(),
            batch: 1,
            heads,
            kv_heads,
            head_dim: 64,
            queries,
            keys,
            forward_s: s,
            backward_s,
        }
    }

    #[test]
    fn attention_is_the_framework_s_where_it_was_asked_and_else_of_products() {
        let products = vec![
            attended("batched products", (8, 8), (2048, 2048), 2e-3),
            attended("batched products", (8, 8), (1024, 1024), 1e-3),
        ];
        let found = attention(&products);
        assert_eq!(
            (found.len(), found[0].kernel.as_str(), &found[0].tokens[..]),
            (1, "batched products", &[1024, 2048][..])
        );
        let mut both = products.clone();
        both.push(attended("framework", (8, 8), (1024, 1024), 5e-4));
        // Grouped heads are another curve's.
        both.push(attended("framework", (8, 2), (4096, 4096), 5e-4));
        let found = attention(&both);
        assert_eq!((found[0].kernel.as_str(), &found[0].tokens[..]), ("framework", &[1024][..]));
        // Half of 4 · 8 heads · 1024² pairs · 64 channels in half a millisecond; backward takes twice that.
        assert_eq!((found[0].forward_tflops[0], found[0].backward_tflops[0]), (2.147, 1.074));
    }

    #[test]
    fn caches_of_one_size_are_one_point_by_head_and_group() {
        let points = [
            attended("framework", (8, 2), (1, 2048), 8e-6),
            attended("framework", (8, 2), (1, 1024), 4e-6),
            attended("framework", (8, 2), (1, 1024), 6e-6),
            attended("framework", (8, 8), (1, 256), 3e-6),
            attended("framework", (8, 8), (1024, 1024), 1.0),
        ];
        let found = caches(&points);
        let kinds: Vec<_> = found.iter().map(|one| (one.head_dim, one.group)).collect();
        assert_eq!(kinds, [(64, 1), (64, 4)]);
        assert_eq!(found[1].times.microseconds, [5.0, 8.0]);
        assert_eq!(found[1].times.bytes, [4.0 * 2.0 * 1024.0 * 64.0, 4.0 * 2.0 * 2048.0 * 64.0]);
    }

    #[test]
    fn a_framework_s_operations_are_told_in_streams_of_as_many_bytes() {
        let dispatch = |operation: &str, us: f64| DispatchPoint {
            operation: operation.into(),
            pass: "forward".into(),
            seconds: us * 1e-6,
        };
        let framework = Framework {
            name: "PyTorch".into(),
            version: "2".into(),
            // Timed on two hosts.
            dispatch: vec![dispatch("norm", 4.0), dispatch("norm", 6.0), dispatch("add", 2.0)],
            floors: vec![OperationPoint { operation: "norm".into(), bytes: 1.0, seconds: 2e-6 }],
            operations: vec![OperationPoint { operation: "norm".into(), bytes: 3000.0, seconds: 11e-6 }],
        };
        let curve = Points { bytes: vec![2e3, 4e3], microseconds: vec![3.0, 8.0], spread: 0.0 };
        let found = framework_model(&framework, &curve);
        let values = |list: &[Named]| list.iter().map(|one| one.value).collect::<Vec<_>>();
        assert_eq!(values(&found.dispatch), [5.0, 2.0]);
        assert_eq!((values(&found.floors), values(&found.operations)), (vec![2.0], vec![2.0]));
    }

    #[test]
    fn a_recording_s_curves_name_what_was_not_measured_as_nothing() {
        let launch = |how: &str, us: f64| LaunchPoint { how: how.into(), seconds: timed(us * 1e-6) };
        let copy = |beside_products, bytes_per_s| HostCopyPoint {
            direction: "host-to-device".into(),
            beside_products,
            bytes: 1 << 20,
            bytes_per_s: timed(bytes_per_s),
        };
        let compute = Compute {
            multiprocessors: 132,
            launches: vec![launch("eager", 4.0), launch("graph", 1.5)],
            host_copies: vec![copy(false, 50e9), copy(true, 40e9)],
            ..Compute::default()
        };
        let model = ComputeModel::of(&compute);
        assert_eq!(model.multiprocessors, 132);
        assert!((model.eager_launch_us.unwrap().value - 4.0).abs() < 1e-9);
        assert!((model.graph_launch_us.unwrap().low - 1.35).abs() < 1e-9);
        assert_eq!((model.round_trip_us, model.host_copy_beside_products), (None, Some(0.8)));
        assert_eq!((model.power, model.framework, model.input_gradient), (None, None, None));
        // A copy beside products alone says nothing.
        let alone = Compute { host_copies: vec![copy(true, 40e9)], ..Compute::default() };
        assert_eq!(ComputeModel::of(&alone).host_copy_beside_products, None);
    }

    #[test]
    fn power_is_not_guessed_where_a_load_is_missing() {
        let loads = at_top_clock();
        for missing in 0..loads.len() {
            let mut rest = loads.to_vec();
            rest.remove(missing);
            assert!(power(&rest).is_none(), "without {}", loads[missing].what);
        }
        // Clocks that never fell say nothing of the exponent: it is one, by as much as that is not known.
        let whole = power(&loads).unwrap();
        assert_eq!(
            (whole.clock_exponent.value, whole.clock_exponent.low, whole.clock_exponent.high),
            (1.0, 0.0, 2.0)
        );
    }
}
