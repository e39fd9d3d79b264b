//! Plain machines and jobs that the promises are checked on.
use trinity_sim::collective::{Algorithm, Topology};
use trinity_sim::{
    Attention, AttentionKernel, Cluster, Codec, Compression, Curve, Gpu, Job, Levels, Llm, Mlp, Nic, Overlap,
    Parallelism, PeakFlops, Phase, Precision, Recompute, Software, Tier, Tuning, Vocabulary,
};

/// An A100-like GPU, eight to a node, one 200 Gb/s NIC each.
pub fn cluster(gpus: u32) -> Cluster {
    let intra = Tier {
        bytes_per_s: 300e9,
        latency_s: 3e-6,
        launch_s: 0.0,
        efficiency: 0.8,
        topology: Topology::Switch,
        all_reduce: Algorithm::Ring,
        idle_power_w: 0.0,
        energy_j_per_bit: 8e-12,
    };
    Cluster {
        gpu: Gpu {
            die: None,
            peak_flops: PeakFlops { fp32: 19.5e12, fp16: 312e12, fp8: 312e12, fp4: 0.0, vector: 19.5e12 },
            memory_bytes: 80e9,
            reserved_bytes: 2e9,
            memory_bytes_per_s: 2.0e12,
            gemm_efficiency: Curve::through(&[(1e9, 0.2), (1e11, 0.7), (1e12, 0.8)]).unwrap(),
            attention_efficiency: Curve::constant(0.4),
            memory_efficiency: Curve::constant(0.8),
            software: Software::PLAIN,
            kernels: None,
            area_mm2: 826.0,
            power_w: 400.0,
            idle_power_w: 60.0,
        },
        gpus,
        gpus_per_node: 8,
        intra,
        nic: Nic {
            bytes_per_s: 25e9,
            latency_s: 2e-6,
            area_mm2: 169.7,
            idle_power_w: 10.0,
            energy_j_per_bit: 5120e-12,
        },
        nics_per_gpu: 1.0,
        inter_efficiency: 0.9,
        inter_latency_s: 3e-6,
        inter_topology: Topology::Switch,
        inter_all_reduce: Algorithm::Ring,
        levels: Levels::NONE,
        host: Tier { bytes_per_s: 32e9, latency_s: 5e-6, energy_j_per_bit: 10e-12, ..intra },
        launch_s: 5e-6,
        layer_launch_s: 0.0,
        exchange_s: 0.0,
        codec: Codec::FREE,
        codecs_per_gpu: 0.0,
    }
}

/// GPT with two-matrix feed-forward blocks and tied vocabulary.
pub fn gpt(layers: u32, hidden: u32, heads: u32) -> Llm {
    Llm {
        layers,
        hidden,
        heads,
        kv_heads: heads,
        head_dim: hidden / heads,
        ffn: 4 * hidden,
        mlp: Mlp::Gelu,
        vocab: 51200,
        vocabulary: Vocabulary::Tied,
        positions: 2048,
        biases: true,
        attention: Attention::Grouped,
        window: None,
        mamba: None,
        moe: None,
        next_token_layers: 0,
    }
}

pub fn llama3_70b() -> Llm {
    Llm {
        kv_heads: 8,
        ffn: 28672,
        mlp: Mlp::SwiGlu,
        vocab: 128_256,
        vocabulary: Vocabulary::Untied,
        positions: 0,
        biases: false,
        ..gpt(80, 8192, 64)
    }
}

/// A training step cut tensor × pipeline × data.
pub fn training(llm: Llm, tensor: u32, pipeline: u32, data: u32, batch: u32) -> Job {
    Job {
        llm,
        phase: Phase::Training,
        tuning: Tuning::All,
        sequence: 2048,
        global_batch: batch,
        microbatch: 1,
        parallelism: Parallelism { tensor, pipeline, data, ..Parallelism::SINGLE },
        precision: Precision::MIXED,
        recompute: Recompute::Full,
        attention: AttentionKernel::Materialized,
        overlap: Overlap::NONE,
        compression: Compression::NONE,
        kv_spill: 0.0,
        kv_transfer: 0.0,
        expert_imbalance: 1.0,
    }
}
