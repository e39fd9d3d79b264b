//! Copy bandwidth: host to device and back, pinned and pageable, and on the device.

use super::bench::Bench;
use crate::Error;
use crate::error::During;
use crate::recording::{CopyPoint, Recording};
use std::time::Instant;

const SIZES: [usize; 3] = [1 << 20, 16 << 20, 256 << 20];

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let context = &bench.gpu.context;
    let stream = bench.gpu.stream()?;
    bench.gpu.require_memory(2 * SIZES[2], "copies")?;
    for bytes in SIZES {
        let mut device = stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc")?;
        let mut other = stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc")?;
        // SAFETY: u8 has no invalid values; filled just below.
        let mut pinned = unsafe { context.alloc_pinned::<u8>(bytes) }.during("cuMemHostAlloc")?;
        pinned.as_mut_slice().during("cuMemHostAlloc")?.fill(0x5a);
        let mut pageable = vec![0x5au8; bytes];
        // Small copies are timed in a batch: one is shorter than the clock is good for.
        let batch = (64 << 20) / bytes.min(64 << 20);
        let time = |what: &mut dyn FnMut() -> Result<(), Error>| {
            let spread = bench.repeat(|| {
                let start = Instant::now();
                for _ in 0..batch {
                    what()?;
                }
                stream.synchronize().during("cuStreamSynchronize")?;
                Ok(start.elapsed().as_secs_f64() / batch as f64)
            })?;
            Ok::<_, Error>(spread.map(|s| bytes as f64 / s))
        };
        let rows = [
            (
                "host-to-device",
                true,
                time(&mut || stream.memcpy_htod(&pinned, &mut device).during("cuMemcpyHtoD"))?,
            ),
            (
                "host-to-device",
                false,
                time(&mut || stream.memcpy_htod(&pageable, &mut device).during("cuMemcpyHtoD"))?,
            ),
            (
                "device-to-host",
                true,
                time(&mut || stream.memcpy_dtoh(&device, &mut pinned).during("cuMemcpyDtoH"))?,
            ),
            (
                "device-to-host",
                false,
                time(&mut || stream.memcpy_dtoh(&device, &mut pageable).during("cuMemcpyDtoH"))?,
            ),
            (
                "device-to-device",
                true,
                time(&mut || stream.memcpy_dtod(&device, &mut other).during("cuMemcpyDtoD"))?,
            ),
        ];
        recording.copies.extend(rows.into_iter().map(|(direction, pinned, bytes_per_s)| CopyPoint {
            direction: direction.into(),
            pinned,
            bytes: bytes as u64,
            bytes_per_s,
        }));
    }
    Ok(())
}
