//! What kind of parameter a tensor is: the one policy of what is coded and what
//! is kept to the bit.
//!
//! Goes by class, number format, shape and name, and by nothing else, so that a
//! model is treated alike whether it comes as a file, a folder or a dictionary.

use serde::Serialize;
use trinity_tensor::allocate::Curve;
use trinity_tensor::pipeline::SMALL_TENSOR;
use trinity_tensor::{Class, Entry};

/// A vector longer than this is data rather than a parameter of its own, such
/// as a bias over a large vocabulary.
const LONG_VECTOR: usize = 1 << 19;

/// Bits per value by which embeddings and output layers are kept finer than
/// linear weights where nothing else is known of a model: half of the binary
/// logarithm of what a relative error costs per value, beside linear weights.
/// SmolLM2-135M, tied, KL divergence under noise of one NMSE: 0.12 to 0.21 at
/// the errors of 3 to 5 bits (docs/language_models.md).
pub const FINER_BITS: f64 = 0.15;

/// A kind of parameter, or of other tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A matrix that inputs are multiplied with.
    Linear,
    /// Matrices of several experts in one tensor.
    Experts,
    Convolution,
    /// A row for every token or position.
    Embedding,
    /// From the last layer to a vocabulary.
    Output,
    /// A KV cache, an activation or a gradient: none of a model's own.
    Data,
    Norm,
    Bias,
    Vector,
    Integer,
    /// Fewer values than a lossy codec's header is worth.
    Small,
    /// In a number format that no codec knows.
    Carried,
}

impl Kind {
    /// The kind of a tensor.
    pub fn of(entry: &Entry) -> Self {
        if entry.carried().is_some() {
            return Self::Carried;
        }
        if entry.len() < SMALL_TENSOR {
            return Self::Small;
        }
        if !entry.dtype().is_float() {
            return Self::Integer;
        }
        if !matches!(entry.class(), Class::Weight | Class::Other) {
            return Self::Data;
        }
        let name = entry.name().to_ascii_lowercase();
        let sides = entry.shape().iter().filter(|&&side| side > 1).count();
        let short = entry.len() <= LONG_VECTOR;
        match entry.shape().len() {
            0..=2 if short && name.ends_with("bias") => Self::Bias,
            0..=2 if short && is_norm(&name) => Self::Norm,
            _ if short && sides <= 1 => Self::Vector,
            2 => of_matrix(&name),
            _ if name.contains("expert") => Self::Experts,
            3.. => Self::Convolution,
            _ => Self::Linear,
        }
    }

    /// Why tensors of this kind are kept to the bit although a loss is asked
    /// for; `None` where they are coded.
    pub fn kept_because(self) -> Option<&'static str> {
        match self {
            Self::Norm => Some("a norm"),
            Self::Bias => Some("a bias"),
            Self::Vector => Some("a vector"),
            Self::Integer => Some("integers"),
            Self::Small => Some("fewer than 256 values"),
            Self::Carried => Some("a number format that no codec knows"),
            _ => None,
        }
    }

    /// Bits per value by which tensors of this kind are kept finer.
    pub fn finer_bits(self) -> f64 {
        if self.is_table() { FINER_BITS } else { 0.0 }
    }

    /// Bits per value that tensors of this kind get at least where slopes share out `bits` of each value: no
    /// embedding or output layer is coarser than its file. SmolLM2's tied embedding alone costs 0.70 nats at 2 bits,
    /// which is what all linear weights cost that are calibrated at that rate (docs/language_models.md).
    pub fn floor_bits(self, bits: f64) -> f64 {
        if self.is_table() { bits } else { Curve::LEAST_BITS }
    }

    fn is_table(self) -> bool {
        matches!(self, Self::Embedding | Self::Output)
    }

    /// The word for it in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Experts => "experts",
            Self::Convolution => "convolution",
            Self::Embedding => "embedding",
            Self::Output => "output",
            Self::Data => "data",
            Self::Norm => "norm",
            Self::Bias => "bias",
            Self::Vector => "vector",
            Self::Integer => "integer",
            Self::Small => "small",
            Self::Carried => "carried",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The last part of a parameter's name but for `weight`.
fn module(name: &str) -> &str {
    let own = name.strip_suffix(".weight").unwrap_or(name);
    own.rsplit('.').next().unwrap_or(own)
}

fn is_norm(name: &str) -> bool {
    let module = module(name);
    module.ends_with("norm") || module.contains("layernorm") || module.contains("layer_norm")
}

fn of_matrix(name: &str) -> Kind {
    let module = module(name);
    // GGUF and Llama's own checkpoints call the last layer `output`; BERT has many of that name.
    let is_output = ["lm_head", "embed_out"].contains(&module) || name == "output.weight";
    // `shared` is T5's.
    let is_table = ["wte", "wpe", "token_embd", "shared"].contains(&module) || module.contains("embed");
    match () {
        () if is_output => Kind::Output,
        () if is_table => Kind::Embedding,
        () if name.contains("expert") => Kind::Experts,
        () => Kind::Linear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trinity_tensor::Dtype;

    fn kind(name: &str, dtype: Dtype, shape: &[usize]) -> Kind {
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        let entry = Entry::in_memory(name, dtype, shape.to_vec(), Arc::new(vec![0u8; bytes])).unwrap();
        Kind::of(&entry)
    }

    #[test]
    fn names_of_common_models_have_the_kind_that_their_authors_meant() {
        use Kind::{Bias, Convolution, Embedding, Experts, Linear, Norm, Output, Small, Vector};
        for (name, shape, expected) in [
            ("model.layers.3.self_attn.q_proj.weight", &[64, 64][..], Linear),
            ("model.embed_tokens.weight", &[512, 64], Embedding),
            ("token_embd.weight", &[512, 64], Embedding),
            ("transformer.wpe.weight", &[512, 64], Embedding),
            ("bert.embeddings.position_embeddings.weight", &[512, 64], Embedding),
            ("lm_head.weight", &[512, 64], Output),
            ("output.weight", &[512, 64], Output),
            ("encoder.layer.0.attention.output.dense.weight", &[64, 64], Linear),
            ("blk.0.attn_output.weight", &[64, 64], Linear),
            ("model.layers.0.block_sparse_moe.experts.gate_up_proj", &[4, 64, 64], Experts),
            ("model.layers.0.mlp.experts.3.w1.weight", &[64, 64], Experts),
            ("conv1.weight", &[16, 3, 7, 7], Convolution),
            ("transformer.h.0.attn.c_attn.weight", &[64, 192], Linear),
            ("transformer.h.0.attn.c_attn.bias", &[768], Bias),
            ("model.layers.0.input_layernorm.weight", &[512], Norm),
            ("transformer.h.0.ln_1.weight", &[512], Vector),
            ("rotary.inv_freq", &[32], Small),
        ] {
            assert_eq!(kind(name, Dtype::F32, shape), expected, "{name}");
        }
        assert_eq!(kind("position_ids", Dtype::I64, &[1, 512]), Kind::Integer);
        assert_eq!(kind("layers.0.k_cache", Dtype::F16, &[4, 64, 64]), Kind::Data);
    }
}
