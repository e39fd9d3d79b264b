//! What the coders of tiles share: the result, and how levels are weighed.

use crate::Error;
use crate::bits::Bits;
use crate::entropy::model::{ESCAPE, cost_q12};
use crate::entropy::rans::{LANES, Starts};
use crate::format::trinity::plan::Plan;
use crate::stage::transform::Transformer;
use crate::stage::trellis::{Code, Costs, MAX_TARGET, UNIT};

/// What an encoded tile is and how it came out.
#[derive(Debug, Clone, Default)]
pub struct Coded {
    pub bytes: Vec<u8>,
    /// The error of values that a sample may have; of a larger tile, not of all.
    pub squared_error: f64,
    pub bits: Bits,
    /// Sum of distances from the nominal points in steps, and how many, by
    /// quantizer and magnitude as in [`crate::stage::trellis::Centroids`].
    pub drift: [[(f64, u64); 3]; 2],
}

/// λ · bits of the sixteen symbols of a context with their signs.
pub fn symbol_costs(starts: &Starts, lambda: f32) -> Costs {
    std::array::from_fn(|symbol| {
        let bits = cost_q12(starts.range(symbol).1) as f32 / 4096.0;
        let beside = match symbol {
            0 => 0.0,
            // The least that an escape takes.
            ESCAPE => 6.0,
            _ => 1.0,
        };
        ((bits + beside) * lambda * UNIT).min(16_384.0) as u32
    })
}

/// The magnitude of a residual in 1/64 step.
#[inline(always)]
pub fn target(residual: f32) -> i32 {
    let magnitude = (residual.abs() * 64.0 + 0.5).min(MAX_TARGET as f32);
    // SAFETY: `min` leaves no NaN, and a number from 0 to 2^29. A conversion that looks at that again goes value by value.
    #[allow(unsafe_code)]
    unsafe {
        magnitude.to_int_unchecked::<i32>()
    }
}

/// Remembers where values lie in their intervals, for the next pass.
#[inline(always)]
pub fn note_drift(
    code: &Code,
    mut lanes: [u8; LANES],
    magnitudes: &[u32],
    residuals: &[f32],
    drift: &mut [[(f64, u64); 3]; 2],
) {
    for (i, (&magnitude, residual)) in magnitudes.iter().zip(residuals).enumerate() {
        let state = &mut lanes[i % LANES];
        if magnitude != 0 {
            let quantizer = *state & 1;
            let (sum, count) = &mut drift[usize::from(quantizer)][magnitude.min(3) as usize - 1];
            *sum += f64::from(residual.abs() - (2 * magnitude - u32::from(quantizer)) as f32);
            *count += 1;
        }
        *state = code.next(*state, magnitude);
    }
}

/// Values of a coded row over `cols` columns.
pub fn coded_width(plan: &Plan, cols: usize) -> usize {
    cols.next_multiple_of(plan.transform.width()) * plan.transform.height()
}

/// The values of `count` coded rows over `cols` columns, the coefficients of each as `read` leaves them.
pub fn rows_of(
    plan: &Plan,
    cols: usize,
    count: usize,
    mut read: impl FnMut(&mut [f32]) -> Result<(), Error>,
) -> Result<Vec<f32>, Error> {
    let width = coded_width(plan, cols);
    let mut transformer = Transformer::new(plan.transform, 1, cols.next_multiple_of(plan.transform.width()));
    let (mut coefficients, mut values) = (vec![0.0; width], vec![0.0; count * width]);
    for values in values.chunks_exact_mut(width) {
        read(&mut coefficients)?;
        transformer.inverse(&coefficients, values);
    }
    Ok(values)
}
