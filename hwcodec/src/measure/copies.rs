//! Copy bandwidth: host to device and back, pinned and pageable, and on the device.

use super::bench::Bench;
use crate::Error;
use crate::error::During;
use crate::recording::{CopyPoint, Recording};
use crate::stats::wall_s;

const SIZES: [usize; 3] = [1 << 20, 16 << 20, 256 << 20];

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    let stream = bench.gpu.stream()?;
    bench.gpu.require_memory(2 * SIZES[2], "copies")?;
    for bytes in SIZES {
        let mut device = stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc")?;
        let mut other = stream.alloc_zeros::<u8>(bytes).during("cuMemAlloc")?;
        let mut pinned = bench.gpu.pinned(bytes)?;
        let mut pageable = vec![0x5au8; bytes];
        // Small copies are timed in a batch: one is shorter than the clock is good for.
        let batch = (64 << 20) / bytes.min(64 << 20);
        let mut time = |direction: &str, pinned, copy: &mut dyn FnMut() -> Result<(), Error>| {
            let spread = bench.repeat(|| {
                let seconds = wall_s(|| {
                    (0..batch).try_for_each(|_| copy())?;
                    stream.synchronize().during("cuStreamSynchronize")
                })?;
                Ok(seconds / batch as f64)
            })?;
            let bytes_per_s = spread.map(|s| bytes as f64 / s);
            let direction = direction.into();
            recording.copies.push(CopyPoint { direction, pinned, bytes: bytes as u64, bytes_per_s });
            Ok::<_, Error>(())
        };
        let (up, down) = ("host-to-device", "device-to-host");
        time(up, true, &mut || stream.memcpy_htod(&pinned, &mut device).during("cuMemcpyHtoD"))?;
        time(up, false, &mut || stream.memcpy_htod(&pageable, &mut device).during("cuMemcpyHtoD"))?;
        time(down, true, &mut || stream.memcpy_dtoh(&device, &mut pinned).during("cuMemcpyDtoH"))?;
        time(down, false, &mut || stream.memcpy_dtoh(&device, &mut pageable).during("cuMemcpyDtoH"))?;
        let mut on_device = || stream.memcpy_dtod(&device, &mut other).during("cuMemcpyDtoD");
        time("device-to-device", true, &mut on_device)?;
    }
    Ok(())
}
