//! The device that codes streams of the line-rate codec in the processor's place.
//!
//! Codecs are found by name wherever one is needed, and the bytes do not depend on
//! who codes: as with worker threads, a program chooses once, at its start.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use trinity_codec::line::{Cpu, Device};

static CHOSEN: OnceLock<Arc<dyn Device>> = OnceLock::new();
/// Streams by who coded them: the processor, the device.
pub(super) type Counts = [AtomicUsize; 2];
pub(super) static ENCODED: Counts = [const { AtomicUsize::new(0) }; 2];
pub(super) static DECODED: Counts = [const { AtomicUsize::new(0) }; 2];

/// Has streams of the line-rate codec coded by a device from here on; the one
/// that was chosen before, if any, stays, and is given back as an error.
pub fn use_device(device: Arc<dyn Device>) -> Result<(), Arc<dyn Device>> {
    CHOSEN.set(device)
}

/// Who codes streams of the line-rate codec.
pub(super) fn device() -> &'static dyn Device {
    CHOSEN.get().map_or(&Cpu, AsRef::as_ref)
}

/// Streams so far under names of the line-rate codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamCounts {
    /// Streams that the device coded or decoded.
    pub on_device: usize,
    /// By the processor: those that an arithmetic coder made, and streams of 0.1.0.
    pub on_cpu: usize,
}

pub fn encoded_counts() -> StreamCounts {
    snapshot(&ENCODED)
}

/// What was decoded so far, to measure what was encoded too.
pub fn decoded_counts() -> StreamCounts {
    snapshot(&DECODED)
}

fn snapshot(counts: &Counts) -> StreamCounts {
    let [on_cpu, on_device] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    StreamCounts { on_device, on_cpu }
}

/// Counts a stream of the device or of the processor; zeros have none.
pub(super) fn count(counts: &Counts, on_device: Option<bool>) {
    on_device.map(|on_device| counts[usize::from(on_device)].fetch_add(1, Ordering::Relaxed));
}
