//! Kernels of a GPU as rooflines: the share of peak and bandwidth that each
//! kind of kernel reaches, and what starting it takes.
//!
//! Shares are distilled from measured kernels; an engine's own factors come
//! later, in [`super::step`].

use super::shape::Format;
use crate::serving::ServingError;

/// What a kind of kernel reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Efficiency {
    /// Share of the format's peak.
    pub compute: f64,
    /// Share of memory bandwidth.
    pub memory: f64,
    /// Time of an empty kernel.
    pub floor_s: f64,
}

/// An all-reduce inside a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllReduce {
    pub gpus: u32,
    pub bus_bytes_per_s: f64,
    pub floor_s: f64,
}

/// Which launch recipes and kernels apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    Hopper,
    Blackwell,
}

/// Attention kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShares {
    /// Share of BF16 peak over a prompt, heads of at least 128 values.
    pub prompt_wide: f64,
    /// The same for narrower heads.
    pub prompt_narrow: f64,
    /// Share of bandwidth when decoding with a 16-bit cache.
    pub decode_16bit: f64,
    /// The same with an 8-bit cache.
    pub decode_8bit: f64,
    pub floor_s: f64,
}

/// A GPU as serving sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Accelerator {
    pub name: String,
    pub generation: Generation,
    /// Dense BF16 operations per second.
    pub peak_flops: f64,
    pub bandwidth_bytes_per_s: f64,
    pub memory_bytes: f64,
    /// By [`Format`]; none where no such kernel was measured.
    pub products: [Option<Efficiency>; 5],
    pub experts: [Option<Efficiency>; 5],
    pub attention: AttentionShares,
    pub all_reduce: Vec<AllReduce>,
}

/// How sharply compute and memory time blend: their 2.5-norm, the exponent that
/// fits measured BF16 products of H100, H200 and B200 best (2.5 to 2.7).
const BLEND: f64 = 2.5;

pub(super) fn blend(a: f64, b: f64) -> f64 {
    (a.powf(BLEND) + b.powf(BLEND)).powf(1.0 / BLEND)
}

impl Accelerator {
    /// Shares of matrix products in `format`.
    pub(super) fn product(&self, format: Format) -> Result<Efficiency, ServingError> {
        self.products[format as usize].ok_or_else(|| self.unmeasured("matrix products", format))
    }

    /// Shares of routed experts in `format`.
    pub(super) fn expert(&self, format: Format) -> Result<Efficiency, ServingError> {
        self.experts[format as usize].ok_or_else(|| self.unmeasured("experts", format))
    }

    fn unmeasured(&self, kernel: &'static str, format: Format) -> ServingError {
        ServingError::Unmeasured { kernel, format: format.name(), gpu: self.name.clone() }
    }

    /// Seconds of `m` × `k` by `k` × `n`, without the floor.
    pub(super) fn product_s(&self, format: Format, m: f64, n: f64, k: f64) -> Result<f64, ServingError> {
        let reached = self.product(format)?;
        let flops_s = 2.0 * m * n * k / (self.peak_flops * format.speedup() * reached.compute);
        let bytes = format.bytes() * (n * k + m * k) + 2.0 * m * n;
        Ok(blend(flops_s, bytes / (self.bandwidth_bytes_per_s * reached.memory)))
    }

    /// The all-reduce among `gpus`; that of the widest group measured beyond.
    pub(super) fn link(&self, gpus: u32) -> Option<AllReduce> {
        if gpus <= 1 {
            return None;
        }
        let fits = self.all_reduce.iter().find(|link| link.gpus >= gpus);
        fits.or(self.all_reduce.last()).copied()
    }
}
