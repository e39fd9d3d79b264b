//! Streaming kernels over sizes, each reading what the one before wrote: from
//! the cost of any kernel at all, through the cache, to the memory's rate.

use super::lab::Lab;
use super::points::{Compute, StreamPoint};
use crate::Error;

/// Bytes of one operand: 4 KiB to 1 GiB.
const LOG2_SIZES: std::ops::RangeInclusive<u32> = 12..=30;

pub(super) fn run(lab: &Lab, compute: &mut Compute) -> Result<(), Error> {
    for log2 in LOG2_SIZES.filter(|log2| !lab.quick || log2 % 3 == 0) {
        let size = 1usize << log2;
        let [a, b, c] = [lab.at(0, size)?, lab.result_at(0, size)?, lab.at(size, size)?];
        let words = (size / 16) as u64;
        let count = ((2 << 30) / size).clamp(2, 200) / 2 * 2;
        for (kernel, function, operands) in [("copy", &lab.copy, 2), ("triad", &lab.triad, 3)] {
            let mut launch = |i: usize| {
                // There and back again: the pool ends as it was.
                let addresses = if i.is_multiple_of(2) { [a, b, c] } else { [b, a, c] };
                lab.launch_stream(function, addresses, words)
            };
            let seconds = lab.chained_s(count, &mut launch)?;
            lab.rest(seconds.median * count as f64);
            compute.streams.push(StreamPoint {
                kernel: kernel.into(),
                bytes: (operands * size) as u64,
                seconds,
            });
        }
    }
    Ok(())
}
