//! Matrix products over a grid of shapes: bf16 in full, other operands and
//! the layouts of the backward pass where they tell something.

use super::blas::Product;
use super::lab::Lab;
use super::points::{Compute, Layout, Operand, ProductPoint};
use crate::Error;

const ROWS: [usize; 15] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const COLUMNS: [usize; 12] = [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768];
const DEPTHS: [usize; 7] = [512, 1024, 2048, 3072, 4096, 8192, 16384];
/// Squares for what is not measured over the whole grid.
const SQUARES: [usize; 6] = [512, 1024, 2048, 4096, 8192, 12288];
/// One timing takes about this long where a product is shorter.
const WINDOW_S: f64 = 1e-3;

pub(super) fn run(lab: &Lab, compute: &mut Compute) -> Result<(), Error> {
    let thin = |index: usize| !lab.quick || index.is_multiple_of(3);
    for (i, m) in ROWS.into_iter().enumerate().filter(|&(i, _)| thin(i)) {
        for (_, n) in COLUMNS.into_iter().enumerate().filter(|&(j, _)| thin(i + j)) {
            for k in DEPTHS {
                push(lab, compute, Operand::Bf16, Layout::Forward, (m, n, k))?;
            }
        }
    }
    for layout in [Layout::InputGradient, Layout::WeightGradient] {
        for n in [1024, 2048, 4096, 12288] {
            for m in [1024, 4096, 16384] {
                for k in [1024, 4096, 16384] {
                    push(lab, compute, Operand::Bf16, layout, (m, n, k))?;
                }
            }
        }
    }
    // A chip that lacks an operand type refuses it at the first product: no point, no harm.
    for operand in [Operand::Fp16, Operand::Tf32, Operand::Fp8] {
        for size in SQUARES {
            if push(lab, compute, operand, Layout::Forward, (size, size, size)).is_err() {
                break;
            }
        }
    }
    Ok(())
}

fn push(
    lab: &Lab,
    compute: &mut Compute,
    operand: Operand,
    layout: Layout,
    (m, n, k): (usize, usize, usize),
) -> Result<(), Error> {
    let width = operand.bytes();
    // Activations and results keep their place (a network's come from the cache);
    // weights move on, so that every one is read from memory.
    let up = |bytes: usize| bytes.next_multiple_of(4096);
    let (x_bytes, y_bytes, w_bytes) = (up(m * k * width), up(m * n * width.max(2)), up(n * k * width));
    let first = x_bytes;
    let sets = ((super::lab::POOL_BYTES - first.min(super::lab::POOL_BYTES)) / w_bytes).clamp(1, 4096);
    let flop = 2.0 * (m * n * k) as f64;
    let likely_s = (flop / 6e14).max((x_bytes + y_bytes + w_bytes) as f64 / 3.5e12).max(4e-6);
    let count = ((WINDOW_S / likely_s) as usize).clamp(1, 200);
    let mut launch = |i: usize| {
        let (x, y) = (lab.at(0, x_bytes)?, lab.result_at(0, y_bytes)?);
        let w = lab.at(first + i % sets * w_bytes, w_bytes)?;
        lab.blas.launch(&Product { operand, layout, m, n, k, batch: 1, x, w, y })
    };
    let seconds = lab.chained_s(count, &mut launch)?;
    lab.rest(seconds.median * count as f64 * super::lab::REPEATS as f64);
    let [m, n, k] = [m, n, k].map(|v| v as u32);
    compute.products.push(ProductPoint { operand, layout, m, n, k, seconds });
    Ok(())
}
