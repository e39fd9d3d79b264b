//! Copies between host and device, alone and while products run.

use super::blas::Product;
use super::lab::{Lab, REPEATS};
use super::points::{Compute, HostCopyPoint, Layout, Operand};
use crate::error::{During, Error};
use crate::stats::Spread;
use std::time::Instant;

const BYTES: usize = 256 << 20;

pub(super) fn run(lab: &Lab, compute: &mut Compute) -> Result<(), Error> {
    let copies = lab.gpu.stream()?;
    let mut pinned = lab.gpu.pinned(BYTES)?;
    let mut device = copies.alloc_zeros::<u8>(BYTES).during("cuMemAlloc")?;
    let size = 8192;
    let bytes = size * size * 2;
    let (operand, layout) = (Operand::Bf16, Layout::Forward);
    let (x, w, y) = (lab.at(0, bytes)?, lab.at(bytes, bytes)?, lab.result_at(0, bytes)?);
    let product = Product { operand, layout, m: size, n: size, k: size, batch: 1, x, w, y };
    for beside_products in [false, true] {
        for to_device in [true, false] {
            let mut times = Vec::new();
            for _ in 0..REPEATS {
                // Some 25 ms of products: longer than the copy.
                for _ in 0..if beside_products { 15 } else { 0 } {
                    lab.blas.launch(&product)?;
                }
                let start = Instant::now();
                match to_device {
                    true => copies.memcpy_htod(&pinned, &mut device).during("cuMemcpyHtoD")?,
                    false => copies.memcpy_dtoh(&device, &mut pinned).during("cuMemcpyDtoH")?,
                }
                copies.synchronize().during("cuStreamSynchronize")?;
                times.push(start.elapsed().as_secs_f64());
                lab.stream().synchronize().during("cuStreamSynchronize")?;
            }
            let Some(seconds) = Spread::of(&times) else { continue };
            compute.host_copies.push(HostCopyPoint {
                direction: if to_device { "host-to-device" } else { "device-to-host" }.into(),
                beside_products,
                bytes: BYTES as u64,
                bytes_per_s: seconds.map(|s| BYTES as f64 / s),
            });
        }
    }
    Ok(())
}
