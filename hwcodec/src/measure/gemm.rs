//! Matrix products: the compute the codec engines run beside.

use super::bench::Bench;
use crate::Error;
use crate::gemm::Gemm;
use crate::recording::{GemmPoint, Recording};

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    for size in [1024, 2048, 4096, 8192] {
        let gemm = Gemm::new(bench.gpu, size)?;
        let batch = (20 * (8192 / size)).min(200);
        let seconds = bench.repeat(|| Ok(gemm.products_s(batch)? / batch as f64))?;
        let power = bench.power();
        recording.gemm.push(GemmPoint {
            size: size as u32,
            flop_per_s: seconds.map(|s| gemm.flop() / s),
            power,
        });
    }
    Ok(())
}
