//! Matrix products and copies measured on an H200 beside its parts: tiles,
//! waves, L2 and memory, at the clock a short product runs at.

use crate::Error;
use crate::engines;
use crate::score::Pair;
use trinity_config::Document;
use trinity_hwcodec::compute::{Layout, Operand};
use trinity_sim::Math;
use trinity_sim::die::Roofline;
use trinity_study::config::GpuFile;

/// Names of the sets.
pub const LARGE: &str = "H200 products from parts";
pub const SMALL: &str = "H200 products below 10 GFLOP";

/// Products above this are what the bar is for.
pub const LARGE_FLOPS: f64 = 1e10;

/// BF16 products of the recording beside the parts' prediction, large and
/// small; empty where the recording has none.
pub fn products() -> Result<(Vec<Pair>, Vec<Pair>), Error> {
    let gpu: GpuFile = Document::load("gpus/h200")?.read()?;
    let no_parts = || Error::Data { file: "h200/recording.json", why: "gpus/h200 lists no parts".into() };
    let roofline = Roofline::burst(&gpu.die().ok_or_else(no_parts)?);
    let measured = engines::recording()?.compute.map_or_else(Vec::new, |compute| compute.products);
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for product in measured.iter().filter(|p| p.operand == Operand::Bf16 && p.layout == Layout::Forward) {
        let (m, n, k) = (f64::from(product.m), f64::from(product.n), f64::from(product.k));
        let pair = Pair {
            what: format!("{m} × {n} × {k}"),
            predicted: roofline.gemm((1.0, m, n, k), 2.0, 2.0, Math::Fp16).time_s,
            measured: product.seconds.median,
        };
        if product.flop() > LARGE_FLOPS { large.push(pair) } else { small.push(pair) }
    }
    Ok((large, small))
}
