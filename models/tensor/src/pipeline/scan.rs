//! One look at all values of a tensor before any is coded: whether they are numbers, and their sums.
//!
//! Reads pieces that stay in the cache; what sums are good for is the affair of codecs.

use std::ops::Range;

use rayon::prelude::*;

use crate::file::ValueStream;
use crate::sums::{Running, Sums};
use crate::{Dtype, Entry, Error};

/// The first value of a tensor that is NaN or infinite.
pub fn first_non_finite(entry: &Entry) -> Result<Option<(usize, f64)>, Error> {
    Ok(sums_of_slabs(entry)?.err())
}

/// Sums over the values of each slab, nothing where they are f64 or integers, which sums are not made for; or the
/// first value that is NaN or infinite.
pub(super) type SlabSums = Result<Vec<Sums>, (usize, f64)>;

pub(super) fn sums_of_slabs(entry: &Entry) -> Result<SlabSums, Error> {
    if !entry.dtype().is_float() {
        return Ok(Ok(Vec::new()));
    }
    let plan = entry.plan();
    let at_once = rayon::current_num_threads() > 1 && plan.len() > 1 && entry.stream_at(0).is_some();
    let found: Vec<_> = if at_once {
        let of_slab = |index| match entry.stream_at(plan.values(index).start) {
            Some(mut stream) => sums_within(entry, plan.values(index), stream.as_mut()),
            None => Ok(Ok(None)),
        };
        (0..plan.len()).into_par_iter().map(of_slab).collect::<Result<_, _>>()?
    } else {
        let mut stream = entry.stream()?;
        let mut found = Vec::new();
        for index in 0..plan.len() {
            found.push(sums_within(entry, plan.values(index), stream.as_mut())?);
            if found[index].is_err() {
                break;
            }
        }
        found
    };
    // The first in order that is no number, whoever found one first; else what all slabs have.
    let all: Result<Vec<Option<Sums>>, _> = found.into_iter().collect();
    Ok(all.map(|sums| sums.into_iter().collect::<Option<_>>().unwrap_or_default()))
}

/// Values looked at together: they stay in the cache.
const SCANNED_VALUES: usize = 1 << 14;

/// Sums over a range, or the first value of it that is NaN or infinite, out of a stream that begins there.
fn sums_within(
    entry: &Entry,
    range: Range<usize>,
    stream: &mut (dyn ValueStream + '_),
) -> Result<Result<Option<Sums>, (usize, f64)>, Error> {
    let (dtype, width) = (entry.dtype(), entry.dtype().bytes());
    let mut bytes = crate::memory::zeroed(SCANNED_VALUES.min(range.len()) * width)?;
    // Formats that f32 holds have their infinities there.
    let mut sums = Some(Running::new(dtype)).filter(|_| dtype != Dtype::F64);
    for start in range.clone().step_by(SCANNED_VALUES) {
        let bytes = &mut bytes[..SCANNED_VALUES.min(range.end - start) * width];
        stream.fill(bytes)?;
        if let Some(sums) = &mut sums {
            sums.add(bytes);
            if sums.is_finite() {
                continue;
            }
        }
        let mut values = vec![0f64; bytes.len() / width];
        dtype.to_f64(bytes, &mut values);
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Ok(Err((start + index, values[index])));
        }
    }
    Ok(Ok(sums.map(|sums| sums.finish())))
}
