//! Which kernels of a replica under a load lie outside what was measured.
//!
//! Tables of steps answer there all the same, by rooflines that go on; whoever
//! shows an answer says so by this.

use super::accelerator::Accelerator;
use super::shape::{Placement, Transformer};
use crate::kernels::{
    Collective, CollectiveShape, ContextAttention, Error, Format, GenerationAttention, Mla, Timed,
};

/// The sizes of a load that kernels follow from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Sequences of a decoding step.
    pub batch: f64,
    /// Tokens of a prompt, and of a sequence at its end.
    pub prompt: f64,
    pub length: f64,
}

impl Accelerator {
    /// Kernels that a load of these sizes needs beyond the measured ones, in words.
    pub fn extrapolated(
        &self,
        model: &Transformer,
        placement: &Placement,
        sizes: &Sizes,
        kv_value_bytes: f64,
    ) -> Vec<String> {
        let kv = if kv_value_bytes > 1.0 { Format::Bf16 } else { Format::Fp8 };
        let (batch, length) = (sizes.batch.max(1.0), sizes.length.max(1.0));
        let prompt = sizes.prompt.max(1.0);
        let heads = model.heads / f64::from(placement.tensor);
        let (reads, decodes) = if model.latent.is_some() {
            let latent = |batch, length| Mla { batch, length, heads, kv };
            (
                self.kernels.mla_context_s(&latent(1.0, prompt)),
                self.kernels.mla_generation_s(&latent(batch, length)),
            )
        } else {
            let kv_heads = model.kv_heads_per_gpu(placement);
            let head_dim = model.head_dim;
            let read = ContextAttention {
                batch: 1.0,
                tokens: prompt,
                prefix: 0.0,
                heads,
                kv_heads,
                head_dim,
                window: None,
                kv,
            };
            let decode = GenerationAttention { batch, length, heads, kv_heads, head_dim, window: None, kv };
            (self.kernels.context_attention_s(&read), self.kernels.generation_attention_s(&decode))
        };
        // What was never measured at all is refused elsewhere.
        let beyond = |timed: Result<Timed, Error>| timed.is_ok_and(|timed| timed.extrapolated);
        let mut found = Vec::new();
        if beyond(reads) {
            found.push(format!("attention of a prompt of {prompt:.0} tokens"));
        }
        if beyond(decodes) {
            found.push(format!("attention over {length:.0} tokens, {batch:.0} at a time"));
        }
        let ranks = f64::from(placement.tensor).min(f64::from(self.domain_gpus));
        let bytes = 2.0 * batch * model.hidden;
        let reduce = CollectiveShape { op: Collective::AllReduce, bytes, ranks };
        if placement.tensor > 1 && beyond(self.kernels.collective_s(&reduce)) {
            found.push(format!("all-reduce of {bytes:.0} bytes among {ranks:.0} GPUs"));
        }
        found
    }
}
