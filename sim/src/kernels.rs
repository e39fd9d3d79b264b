//! How long a kernel takes, by measurement.
//!
//! A [`Kernels`] answers for one GPU type: matrix products, attention of both
//! phases, experts, latent attention, collectives inside a node. Each answer is
//! a roofline ([`shape`]) times a correction that was fitted on measured
//! kernels ([`curve`]); `cargo xtask kernels` distils both from tables of
//! millions of timings. Number formats belong to each operator, not to a run.
//!
//! Outside the measured sizes the correction is held at its border and the
//! roofline goes on; the answer then says `extrapolated`. A format that was
//! never measured on the GPU is an error, not a guess.
//!
//! The module knows no files and no frameworks: whoever reads a calibration
//! hands over [`Measured`] data.

mod curve;
mod digits;
mod error;
mod grid;
mod kind;
mod measured;
mod shape;
#[cfg(test)]
pub(crate) mod tests;

pub use curve::{Corner, Curve, MAX_CORNERS};
pub use digits::{Steps, quantize};
pub use error::Error;
pub use grid::{Axis, Term};
pub use kind::{Collective, Device, Format, Kind, MlaFormats};
pub use measured::{Measured, Timed};
pub use shape::{
    CollectiveShape, ContextAttention, Coordinates, GenerationAttention, MAX_COORDINATES, Matmul, Mla,
    MlaModule, Moe, Routing,
};

/// What kernels take on one GPU type.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    gpu: String,
    device: Device,
    /// Sorted by kind.
    curves: Vec<Curve>,
}

impl Kernels {
    /// Reads the curves of a GPU. Fails when one of them is not what its kind
    /// asks for.
    pub fn new(gpu: &str, device: Device, measured: &[Measured]) -> Result<Self, Error> {
        let mut curves = measured.iter().map(Curve::decode).collect::<Result<Vec<_>, _>>()?;
        curves.sort_by_key(|curve| curve.kind());
        if let Some(pair) = curves.windows(2).find(|pair| pair[0].kind() == pair[1].kind()) {
            return Err(Error::Damaged { kind: pair[0].kind(), why: "it is there twice".into() });
        }
        Ok(Self { gpu: gpu.into(), device, curves })
    }

    /// A GPU whose kernels all reach their rooflines: what a datasheet alone
    /// promises, for GPUs that nobody measured. Fails as [`Self::new`].
    pub fn at_rooflines(gpu: &str, device: Device) -> Result<Self, Error> {
        let count = |kind: Kind| kind.terms().iter().map(Term::len).sum::<usize>();
        let kinds: Vec<Kind> = Kind::all().collect();
        let zeros: Vec<(Steps, String)> =
            kinds.iter().map(|kind| quantize(&vec![0.0; count(*kind)])).collect();
        let measured: Vec<Measured> = kinds
            .iter()
            .zip(&zeros)
            .map(|(&kind, (steps, digits))| {
                let ranges = vec![(f64::MIN_POSITIVE, f64::MAX); kind.coordinates().len()];
                Measured { kind, ranges, steps: *steps, digits }
            })
            .collect();
        Self::new(gpu, device, &measured)
    }

    /// The GPU type, as its file names it.
    pub fn gpu(&self) -> &str {
        &self.gpu
    }

    /// The datasheet figures that rooflines are drawn with.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Kinds of kernels that were measured.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.curves.iter().map(Curve::kind)
    }

    /// Whether kernels of this kind were measured.
    pub fn knows(&self, kind: Kind) -> bool {
        self.curve(kind).is_some()
    }

    /// A product of `m` × `k` by `k` × `n` values. Fails as of every query: a
    /// format that was not measured, a size that is none.
    pub fn matmul_s(&self, matmul: &Matmul) -> Result<Timed, Error> {
        let timed = self.time_at(Kind::Matmul(matmul.format), &matmul.coordinates(&self.device)?)?;
        // A curve that is followed beyond its points may fall below what the units can do.
        let least_s = 2.0 * matmul.m * matmul.n * matmul.k / matmul.format.flops(&self.device);
        Ok(Timed { s: if timed.extrapolated { timed.s.max(least_s) } else { timed.s }, ..timed })
    }

    /// Attention of new tokens over themselves and a cached prefix.
    pub fn context_attention_s(&self, attention: &ContextAttention) -> Result<Timed, Error> {
        self.time_at(Kind::ContextAttention(attention.kv), &attention.coordinates(&self.device)?)
    }

    /// Attention of one new token of each sequence over its cache.
    pub fn generation_attention_s(&self, attention: &GenerationAttention) -> Result<Timed, Error> {
        self.time_at(Kind::GenerationAttention(attention.kv), &attention.coordinates(&self.device)?)
    }

    /// The routed experts of one layer on one GPU: both products, activation,
    /// permutation; no shared expert, no exchange.
    pub fn moe_s(&self, moe: &Moe) -> Result<Timed, Error> {
        self.time_at(Kind::Moe(moe.format), &moe.coordinates(&self.device)?)
    }

    /// Latent attention of new tokens, without its projections.
    pub fn mla_context_s(&self, mla: &Mla) -> Result<Timed, Error> {
        self.time_at(Kind::MlaContext(mla.kv), &mla.context(&self.device)?)
    }

    /// Latent attention of one new token of each sequence, without its projections.
    pub fn mla_generation_s(&self, mla: &Mla) -> Result<Timed, Error> {
        self.time_at(Kind::MlaGeneration(mla.kv), &mla.generation(&self.device)?)
    }

    /// A whole block of DeepSeek-V3's latent attention with its projections, of new tokens.
    pub fn mla_context_module_s(&self, module: &MlaModule) -> Result<Timed, Error> {
        self.time_at(Kind::MlaContextModule(module.formats), &module.context(&self.device)?)
    }

    /// A whole block of DeepSeek-V3's latent attention with its projections, of
    /// one new token of each sequence.
    pub fn mla_generation_module_s(&self, module: &MlaModule) -> Result<Timed, Error> {
        self.time_at(Kind::MlaGenerationModule(module.formats), &module.generation(&self.device)?)
    }

    /// A collective among GPUs of one node or NVLink domain.
    pub fn collective_s(&self, collective: &CollectiveShape) -> Result<Timed, Error> {
        self.time_at(Kind::Collective(collective.op), &collective.coordinates(&self.device)?)
    }

    /// A kernel whose coordinates are known already. Fails when the kind was
    /// not measured.
    pub fn time_at(&self, kind: Kind, at: &Coordinates) -> Result<Timed, Error> {
        if let Some(curve) = self.curve(kind) {
            return Ok(curve.time(at));
        }
        let of_family = self.kinds().filter(|known| known.family() == kind.family());
        let measured: Vec<String> = of_family.map(|known| known.to_string()).collect();
        let measured = if measured.is_empty() { "nothing of the kind".into() } else { measured.join(", ") };
        Err(Error::NotMeasured { kind, gpu: self.gpu.clone(), measured })
    }

    fn curve(&self, kind: Kind) -> Option<&Curve> {
        let at = self.curves.binary_search_by_key(&kind, Curve::kind).ok()?;
        Some(&self.curves[at])
    }
}
