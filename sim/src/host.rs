//! One GPU under an eager framework, kernel by kernel.
//!
//! [`estimate`](crate::estimate()) is a closed form for sweeps of clusters.
//! This is the slow, close look at one device: the kernels a plain
//! implementation launches, each timed by curves that were measured on the
//! device, the host that launches them, the allocator's peak and the power
//! limit. Knows shapes and curves; not where the curves come from, and no
//! number that was fitted to a run.

mod allocator;
mod curves;
mod kernels;
mod network;
mod run;

pub use allocator::peak_bytes;
pub use curves::{
    AttentionCurve, CacheCurve, Dispatch, HostDevice, Interpolated, Layout, Operation, Power, Products,
};
pub use kernels::{Kernel, Pass, Work};
pub use network::{Launching, Network, Run};
pub use run::{Prediction, predict};
