//! Matrix products: the compute the codec engines run beside.

use super::bench::Bench;
use crate::Error;
use crate::gemm::Gemm;
use crate::recording::{GemmPoint, Recording};
use std::time::Instant;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    for size in [1024, 2048, 4096, 8192] {
        let mut gemm = Gemm::new(bench.gpu, size)?;
        let batch = (20 * (8192 / size)).min(200);
        let seconds = bench.repeat(|| {
            let start = Instant::now();
            for _ in 0..batch {
                gemm.launch()?;
            }
            gemm.wait()?;
            Ok(start.elapsed().as_secs_f64() / batch as f64)
        })?;
        let power = bench.power();
        recording.gemm.push(GemmPoint {
            size: size as u32,
            flop_per_s: seconds.map(|s| gemm.flop() / s),
            power,
        });
    }
    Ok(())
}
