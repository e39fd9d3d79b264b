//! Kinds of kernels, their number formats, and the device they run on.

use std::fmt;

/// Number format of one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Format {
    Bf16,
    /// One scale for each token and channel.
    Fp8,
    /// One scale for each block of 128 values, as DeepSeek-V3 has them.
    Fp8Block,
    Nvfp4,
    /// Weights of four bits, products in bf16.
    Int4Weights,
    /// Weights of MXFP4, products in bf16.
    Mxfp4Weights,
    /// Weights of MXFP4, activations of MXFP8.
    Mxfp4Mxfp8,
}

impl Format {
    pub const ALL: [Self; 7] = [
        Self::Bf16,
        Self::Fp8,
        Self::Fp8Block,
        Self::Nvfp4,
        Self::Int4Weights,
        Self::Mxfp4Weights,
        Self::Mxfp4Mxfp8,
    ];

    /// What files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8-block",
            Self::Nvfp4 => "nvfp4",
            Self::Int4Weights => "int4-weights",
            Self::Mxfp4Weights => "mxfp4-weights",
            Self::Mxfp4Mxfp8 => "mxfp4-mxfp8",
        }
    }

    /// Bytes that one weight takes, its scale included.
    pub fn weight_bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Fp8Block => 1.0,
            Self::Nvfp4 => 0.5625,
            Self::Int4Weights => 0.5,
            Self::Mxfp4Weights | Self::Mxfp4Mxfp8 => 0.53125,
        }
    }

    pub(super) fn flops(self, device: &Device) -> f64 {
        match self {
            Self::Bf16 | Self::Int4Weights | Self::Mxfp4Weights => device.bf16_flops,
            Self::Fp8 | Self::Fp8Block | Self::Mxfp4Mxfp8 => device.fp8_flops,
            Self::Nvfp4 => device.fp4_flops,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Datasheet figures of the GPU that was measured. Formats without units of
/// their own have the rate of the next wider one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    pub bf16_flops: f64,
    pub fp8_flops: f64,
    pub fp4_flops: f64,
    pub memory_bytes_per_s: f64,
    /// The rate of the links to other GPUs of a node, one direction.
    pub link_bytes_per_s: f64,
    pub sms: f64,
}

/// Formats of a latent-attention block, by operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MlaFormats {
    pub attention: Format,
    pub kv: Format,
    pub products: Format,
}

/// Collectives that were timed inside a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Collective {
    AllGather,
    AllReduce,
    AllToAll,
    ReduceScatter,
    /// vLLM's one- and two-shot all-reduce, launched from a CUDA graph.
    CustomAllReduce,
}

impl Collective {
    pub const ALL: [Self; 5] =
        [Self::AllGather, Self::AllReduce, Self::AllToAll, Self::ReduceScatter, Self::CustomAllReduce];

    /// What files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all-gather",
            Self::AllReduce => "all-reduce",
            Self::AllToAll => "all-to-all",
            Self::ReduceScatter => "reduce-scatter",
            Self::CustomAllReduce => "custom-all-reduce",
        }
    }
}

/// A kind of kernel: what one curve is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    Matmul(Format),
    /// Attention of prompts, by the format of the cache; the arithmetic is in bf16.
    ContextAttention(Format),
    GenerationAttention(Format),
    Moe(Format),
    MlaContext(Format),
    MlaGeneration(Format),
    MlaContextModule(MlaFormats),
    MlaGenerationModule(MlaFormats),
    Collective(Collective),
}

impl Kind {
    /// What kinds of the same sizes have in common.
    pub fn family(self) -> &'static str {
        match self {
            Self::Matmul(_) => "matmul",
            Self::ContextAttention(_) => "context-attention",
            Self::GenerationAttention(_) => "generation-attention",
            Self::Moe(_) => "moe",
            Self::MlaContext(_) => "mla-context",
            Self::MlaGeneration(_) => "mla-generation",
            Self::MlaContextModule(_) => "mla-context-module",
            Self::MlaGenerationModule(_) => "mla-generation-module",
            Self::Collective(_) => "collective",
        }
    }

    /// Every kind there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        let three = Format::ALL.iter().flat_map(|&attention| {
            Format::ALL.iter().flat_map(move |&kv| {
                Format::ALL.iter().map(move |&products| MlaFormats { attention, kv, products })
            })
        });
        Self::but_modules().chain(three.flat_map(Self::modules))
    }

    fn but_modules() -> impl Iterator<Item = Self> {
        let formats = Format::ALL.iter().flat_map(|&format| {
            [
                Self::Matmul(format),
                Self::ContextAttention(format),
                Self::GenerationAttention(format),
                Self::Moe(format),
                Self::MlaContext(format),
                Self::MlaGeneration(format),
            ]
        });
        formats.chain(Collective::ALL.into_iter().map(Self::Collective))
    }

    fn modules(formats: MlaFormats) -> [Self; 2] {
        [Self::MlaContextModule(formats), Self::MlaGenerationModule(formats)]
    }

    /// The kind that files call by a family and a variant such as `fp8` or `bf16/fp8/nvfp4`.
    pub fn named(family: &str, variant: &str) -> Option<Self> {
        let format = |name: &str| Format::ALL.into_iter().find(|format| format.name() == name);
        let formats: Option<Vec<Format>> = variant.split('/').map(format).collect();
        let module = match formats.as_deref() {
            Some(&[attention, kv, products]) => Some(MlaFormats { attention, kv, products }),
            _ => None,
        };
        let mut all = Self::but_modules().chain(module.into_iter().flat_map(Self::modules));
        all.find(|kind| kind.family() == family && kind.variant() == variant)
    }

    /// What tells kinds of one family apart.
    pub fn variant(self) -> String {
        match self {
            Self::Matmul(format)
            | Self::ContextAttention(format)
            | Self::GenerationAttention(format)
            | Self::Moe(format)
            | Self::MlaContext(format)
            | Self::MlaGeneration(format) => format.name().into(),
            Self::MlaContextModule(formats) | Self::MlaGenerationModule(formats) => {
                format!("{}/{}/{}", formats.attention, formats.kv, formats.products)
            }
            Self::Collective(op) => op.name().into(),
        }
    }

    /// Names of the coordinates, in the order of [`Coordinates::log2`].
    pub fn coordinates(self) -> &'static [&'static str] {
        match self {
            Self::Matmul(_) => &["m", "n", "k", "ragged", "waves-128", "waves-256"],
            Self::ContextAttention(_) => &[
                "tokens",
                "sequence-heads",
                "heads",
                "group",
                "head-dim",
                "windows",
                "batch",
                "windowed",
                "waves",
            ],
            Self::GenerationAttention(_) => &[
                "length",
                "batch",
                "kv-heads",
                "group",
                "head-dim",
                "windows",
                "sequence-kv-heads",
                "cache-bytes",
                "window-heads",
            ],
            Self::Moe(_) => &[
                "tokens-per-expert",
                "local-experts",
                "inter",
                "hidden",
                "top-k",
                "skew",
                "tokens",
                "expert-parallel",
                "experts",
            ],
            Self::MlaContext(_)
            | Self::MlaGeneration(_)
            | Self::MlaContextModule(_)
            | Self::MlaGenerationModule(_) => &["length", "batch", "heads", "sequence-heads"],
            Self::Collective(_) => &["bytes", "ranks"],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.family(), self.variant())
    }
}
