//! Codecs on the wire: what a ratio is worth once its silicon must keep up.
//!
//! A codec is known by its rates, its latency and its energy alone; how many
//! bits a tensor needs is the job's statement, per class of traffic. The
//! effective rate of a compressed stream is the slowest of encoder, wire and
//! decoder, plus the time to fill and drain the chunked pipeline.

use crate::link::Link;

/// One codec (an encoder and a decoder) on a GPU. Rates are in tensor values,
/// so that "100 Gb/s" must say once, in its configuration, how many bits of
/// input a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Codec {
    pub encode_values_per_s: f64,
    pub decode_values_per_s: f64,
    /// Depth of encoder and decoder together, once per message.
    pub latency_s: f64,
    /// Values handed from stage to stage at a time.
    pub chunk_values: f64,
    pub encode_j_per_value: f64,
    pub decode_j_per_value: f64,
    /// Power of encoder and decoder when clocked but idle.
    pub idle_power_w: f64,
    pub area_mm2: f64,
    /// Share of the GPU's own work that waits for each second of this codec's:
    /// 0 for silicon of its own, more for a codec of multiprocessors.
    pub gpu_share: f64,
}

impl Codec {
    /// A codec that costs nothing and is never in the way.
    pub const FREE: Self = Self {
        encode_values_per_s: f64::INFINITY,
        decode_values_per_s: f64::INFINITY,
        latency_s: 0.0,
        chunk_values: 1.0e6,
        encode_j_per_value: 0.0,
        decode_j_per_value: 0.0,
        idle_power_w: 0.0,
        area_mm2: 0.0,
        gpu_share: 0.0,
    };
}

/// What compression does to a sum over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Ring: decode, add, encode at every hop.
    PerHop,
    /// Every rank gathers the compressed pieces of its own shard from all the
    /// others, decodes, adds once, and the sums are gathered back.
    Gather,
}

/// Which wires carry compressed traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only wires that leave the node.
    BetweenNodes,
    Everywhere,
}

/// Whether the sender may leave a message as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Always,
    /// Compressed only where that is faster than raw.
    WhenFaster,
}

/// Bits a value after compression for each class of traffic; `None` leaves
/// the class as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compression {
    pub weight_bits: Option<f64>,
    pub weight_gradient_bits: Option<f64>,
    pub activation_bits: Option<f64>,
    pub activation_gradient_bits: Option<f64>,
    pub kv_bits: Option<f64>,
    pub reduction: Reduction,
    pub scope: Scope,
    pub policy: Policy,
}

impl Compression {
    /// Everything raw.
    pub const NONE: Self = Self {
        weight_bits: None,
        weight_gradient_bits: None,
        activation_bits: None,
        activation_gradient_bits: None,
        kv_bits: None,
        reduction: Reduction::PerHop,
        scope: Scope::BetweenNodes,
        policy: Policy::WhenFaster,
    };
}

/// A link together with what happens to the values that cross it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Channel {
    pub link: Link,
    /// Bits a value before the codec.
    pub raw_bits: f64,
    /// Bits a value on the wire.
    pub wire_bits: f64,
    pub encode_values_per_s: f64,
    pub decode_values_per_s: f64,
    pub codec_latency_s: f64,
    pub chunk_values: f64,
    pub reduction: Reduction,
}

impl Channel {
    /// A link without a codec.
    pub fn raw(link: Link, raw_bits: f64) -> Self {
        Self {
            link,
            raw_bits,
            wire_bits: raw_bits,
            encode_values_per_s: f64::INFINITY,
            decode_values_per_s: f64::INFINITY,
            codec_latency_s: 0.0,
            chunk_values: f64::INFINITY,
            reduction: Reduction::PerHop,
        }
    }

    /// A link with `codecs` of `codec` at both ends.
    pub fn coded(
        link: Link,
        raw_bits: f64,
        coded_bits: f64,
        codec: &Codec,
        codecs: f64,
        reduction: Reduction,
    ) -> Self {
        Self {
            link,
            raw_bits,
            wire_bits: coded_bits,
            encode_values_per_s: codec.encode_values_per_s * codecs,
            decode_values_per_s: codec.decode_values_per_s * codecs,
            codec_latency_s: codec.latency_s,
            chunk_values: codec.chunk_values,
            reduction,
        }
    }

    /// Whether values pass through a codec.
    pub fn is_coded(&self) -> bool {
        self.chunk_values.is_finite()
    }

    /// Seconds each of the three stages needs for `values`.
    pub fn stages(&self, values: f64) -> Stages {
        Stages {
            encode_s: values / self.encode_values_per_s,
            wire_s: values * self.wire_bits / 8.0 / self.link.bytes_per_s,
            decode_s: values / self.decode_values_per_s,
            chunks: (values / self.chunk_values).max(1.0),
        }
    }
}

/// Busy time of encoder, wire and decoder for one message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    pub encode_s: f64,
    pub wire_s: f64,
    pub decode_s: f64,
    /// Pieces the message is cut into.
    pub chunks: f64,
}

impl Stages {
    /// End to end, encoder to decoder: the slowest stage works all the time;
    /// the others show only while the pipeline fills and drains.
    pub fn pipelined_s(&self) -> f64 {
        let slowest = self.encode_s.max(self.wire_s).max(self.decode_s);
        let sum = self.encode_s + self.wire_s + self.decode_s;
        slowest + (sum - slowest) / self.chunks
    }

    /// A hop that forwards what is already encoded: wire and decoder only.
    pub fn forwarded_s(&self) -> f64 {
        let slowest = self.wire_s.max(self.decode_s);
        let sum = self.wire_s + self.decode_s;
        slowest + (sum - slowest) / self.chunks
    }
}
