//! A GPU as serving sees it: measured kernels, memory, and the way to others.
//!
//! Kernels answer with their measured curves ([`crate::kernels`]); what an
//! engine adds to them comes later, in [`super::step`].

use super::shape::Format;
use crate::kernels::{
    Collective, CollectiveShape, ContextAttention, Device, Error, Format as KernelFormat,
    GenerationAttention, Kernels, Kind, Matmul, Mla, MlaFormats, MlaModule, Moe, Timed,
};
use crate::serving::ServingError;

/// One message between GPUs of two nodes (NCCL over InfiniBand, small sizes).
const NETWORK_LATENCY_S: f64 = 15e-6;

/// Which launch recipes apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    Hopper,
    Blackwell,
}

/// A GPU as serving sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accelerator {
    pub name: &'static str,
    pub generation: Generation,
    pub memory_bytes: f64,
    /// The rate to workers outside its NVLink domain.
    pub network_bytes_per_s: f64,
    /// The rate to host memory.
    pub host_bytes_per_s: f64,
    /// GPUs of an NVLink domain.
    pub domain_gpus: u32,
    pub kernels: &'static Kernels,
}

impl Accelerator {
    pub(super) fn device(&self) -> &Device {
        self.kernels.device()
    }

    fn answer(&self, timed: Result<Timed, Error>) -> Result<f64, ServingError> {
        let gpu = self.name;
        timed
            .map(|timed| timed.s)
            .map_err(|error| ServingError::Unmeasured { gpu: gpu.to_owned(), why: error.to_string() })
    }

    /// A product of `m` × `k` by `k` × `n`.
    pub(super) fn product_s(&self, format: Format, m: f64, n: f64, k: f64) -> Result<f64, ServingError> {
        let own = |format| self.kernels.matmul_s(&Matmul { m, n: n.max(1.0), k: k.max(1.0), format });
        self.fastest(format, Kind::Matmul, own)
    }

    /// Routed experts of one layer on one GPU.
    pub(super) fn experts_s(&self, format: Format, shape: Moe) -> Result<f64, ServingError> {
        self.fastest(format, Kind::Moe, |format| self.kernels.moe_s(&Moe { format, ..shape }))
    }

    /// The fastest of the kernels that were measured for `format`: engines
    /// choose theirs by the clock.
    fn fastest(
        &self,
        format: Format,
        kind: fn(KernelFormat) -> Kind,
        time: impl Fn(KernelFormat) -> Result<Timed, Error>,
    ) -> Result<f64, ServingError> {
        let (first, second) = match format {
            Format::Bf16 => (KernelFormat::Bf16, None),
            Format::Fp8 => (KernelFormat::Fp8Block, Some(KernelFormat::Fp8)),
            Format::Nvfp4 => (KernelFormat::Nvfp4, None),
            Format::Int4 => (KernelFormat::Int4Weights, None),
            Format::Mxfp4 => (KernelFormat::Mxfp4Weights, Some(KernelFormat::Mxfp4Mxfp8)),
        };
        match second.filter(|second| self.kernels.knows(kind(*second))) {
            None => self.answer(time(first)),
            Some(second) if !self.kernels.knows(kind(first)) => self.answer(time(second)),
            Some(second) => Ok(self.answer(time(first))?.min(self.answer(time(second))?)),
        }
    }

    fn cache_format(kv_value_bytes: f64) -> KernelFormat {
        if kv_value_bytes > 1.0 { KernelFormat::Bf16 } else { KernelFormat::Fp8 }
    }

    /// Attention of one new token of each of `batch` sequences.
    pub(super) fn decode_attention_s(
        &self,
        shape: GenerationAttention,
        kv_value_bytes: f64,
    ) -> Result<f64, ServingError> {
        let kv = Self::cache_format(kv_value_bytes);
        self.answer(self.kernels.generation_attention_s(&GenerationAttention { kv, ..shape }))
    }

    /// Attention of whole prompts.
    pub(super) fn prompt_attention_s(
        &self,
        shape: ContextAttention,
        kv_value_bytes: f64,
    ) -> Result<f64, ServingError> {
        let kv = Self::cache_format(kv_value_bytes);
        self.answer(self.kernels.context_attention_s(&ContextAttention { kv, ..shape }))
    }

    /// A block of latent attention with its projections, which take
    /// `products_s` where they are kernels of their own: by the faster of the
    /// two ways that were measured.
    pub(super) fn latent_s(
        &self,
        (format, prompts): (Format, bool),
        (batch, length, heads): (f64, f64, f64),
        kv_value_bytes: f64,
        products_s: f64,
    ) -> Result<f64, ServingError> {
        let products = match format {
            Format::Bf16 | Format::Int4 | Format::Mxfp4 => KernelFormat::Bf16,
            Format::Fp8 => KernelFormat::Fp8Block,
            Format::Nvfp4 => KernelFormat::Nvfp4,
        };
        let kv = Self::cache_format(kv_value_bytes);
        let formats = MlaFormats { attention: KernelFormat::Bf16, kv, products };
        let module = MlaModule { batch, length, heads, formats };
        let alone = Mla { batch, length, heads, kv };
        let (module, kind, alone) = match prompts {
            true => (
                self.kernels.mla_context_module_s(&module),
                Kind::MlaContext(kv),
                self.kernels.mla_context_s(&alone),
            ),
            false => (
                self.kernels.mla_generation_module_s(&module),
                Kind::MlaGeneration(kv),
                self.kernels.mla_generation_s(&alone),
            ),
        };
        let module_s = self.answer(module)?;
        if !self.kernels.knows(kind) {
            return Ok(module_s);
        }
        Ok(module_s.min(self.answer(alone)? + products_s))
    }

    /// An all-reduce of `bytes` among `gpus`, by the faster of the two ways
    /// that were measured. Beyond an NVLink domain each GPU sums its part with
    /// its peers of the other domains over the network.
    pub(super) fn all_reduce_s(&self, bytes: f64, gpus: f64) -> Result<f64, ServingError> {
        let inside = gpus.min(f64::from(self.domain_gpus));
        let away_s = self.between_domains_s(2.0 * bytes / inside, gpus);
        let time = |op| self.answer(self.kernels.collective_s(&CollectiveShape { op, bytes, ranks: inside }));
        let plain_s = time(Collective::AllReduce)?;
        let inside_s = match self.kernels.knows(Kind::Collective(Collective::CustomAllReduce)) {
            true => time(Collective::CustomAllReduce)?.min(plain_s),
            false => plain_s,
        };
        Ok(inside_s + away_s)
    }

    /// Time of `bytes` that each of `gpus` sends and receives, as far as its
    /// peers lie in other NVLink domains.
    fn between_domains_s(&self, bytes: f64, gpus: f64) -> f64 {
        let domains = (gpus / f64::from(self.domain_gpus)).ceil();
        if domains <= 1.0 {
            return 0.0;
        }
        let hops = domains.log2().ceil();
        2.0 * hops * NETWORK_LATENCY_S + bytes * (domains - 1.0) / domains / self.network_bytes_per_s
    }

    /// Activations of `bytes` in each of `copies` of attention go to `gpus` that
    /// hold experts and come back: all of them gathered and scattered, or each
    /// token sent to those of its `top_k` experts' GPUs, whichever is sooner.
    pub(super) fn exchange_s(
        &self,
        bytes: f64,
        copies: f64,
        top_k: f64,
        gpus: f64,
    ) -> Result<f64, ServingError> {
        let inside = gpus.min(f64::from(self.domain_gpus));
        let time =
            |op, bytes| self.answer(self.kernels.collective_s(&CollectiveShape { op, bytes, ranks: inside }));
        let all = bytes * copies;
        let gathered_s = time(Collective::AllGather, all)? + time(Collective::ReduceScatter, all)?;
        if !self.kernels.knows(Kind::Collective(Collective::AllToAll)) {
            return Ok(gathered_s + self.between_domains_s(2.0 * all, gpus));
        }
        let met = gpus * (1.0 - (1.0 - 1.0 / gpus).powf(top_k));
        let sent_s = 2.0 * time(Collective::AllToAll, bytes * met)?;
        let gathered_s = gathered_s + self.between_domains_s(2.0 * all, gpus);
        Ok(gathered_s.min(sent_s + self.between_domains_s(2.0 * bytes * met, gpus)))
    }
}
