//! Measured kernels as shapes and seconds: what each table's columns mean.

use super::table::{Error, Table};
use std::path::Path;
use trinity_sim::kernels::{
    Collective, CollectiveShape, ContextAttention, Coordinates, Device, Format, GenerationAttention, Kind,
    Matmul, Mla, MlaFormats, MlaModule, Moe, Routing,
};

/// One measured kernel.
pub struct KernelRow {
    pub kind: Kind,
    pub at: Coordinates,
    pub seconds: f64,
    /// Whether the fit may not see it: a fifth of all configurations.
    pub held_out: bool,
}

/// A table and how its rows are read.
struct Source {
    file: &'static str,
    columns: &'static str,
    row: fn(&Columns, usize, &Device) -> Option<(Kind, Coordinates)>,
}

const ATTENTION: &str =
    "batch_size,isl,num_heads,num_key_value_heads,head_dim,window_size,kv_cache_dtype,step,attn_dtype";
const MLA: &str = "batch_size,isl,num_heads,step,mla_dtype,kv_cache_dtype";
const MLA_MODULE: &str = "batch_size,isl,num_heads,step,mla_dtype,kv_cache_dtype,gemm_type";
const MOE: &str =
    "num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,moe_dtype,distribution";

const SOURCES: &[Source] = &[
    Source { file: "gemm", columns: "m,n,k,gemm_dtype", row: matmul },
    Source { file: "context_attention", columns: ATTENTION, row: context_attention },
    Source { file: "generation_attention", columns: ATTENTION, row: generation_attention },
    Source { file: "moe", columns: MOE, row: moe },
    Source { file: "context_mla", columns: MLA, row: mla_context },
    Source { file: "generation_mla", columns: MLA, row: mla_generation },
    Source { file: "mla_context_module", columns: MLA_MODULE, row: mla_context_module },
    Source { file: "mla_generation_module", columns: MLA_MODULE, row: mla_generation_module },
    Source { file: "nccl", columns: "op_name,num_gpus,message_size,nccl_dtype", row: nccl },
    Source {
        file: "custom_allreduce",
        columns: "kernel_source,num_gpus,message_size",
        row: custom_all_reduce,
    },
];

/// The columns of one table that tell its kernels apart.
struct Columns<'a> {
    whole: Vec<(&'a str, &'a [i64])>,
    text: Vec<(&'a str, &'a [String])>,
}

impl Columns<'_> {
    /// The size in a row; a column that is not there says nothing.
    fn size(&self, name: &str, row: usize) -> Option<f64> {
        let (_, values) = self.whole.iter().find(|(known, _)| *known == name)?;
        // Sizes of kernels are far below 2^53.
        Some(values[row] as f64)
    }

    fn word(&self, name: &str, row: usize) -> Option<&str> {
        let (_, values) = self.text.iter().find(|(known, _)| *known == name)?;
        Some(&values[row])
    }

    fn format(&self, name: &str, row: usize) -> Option<Format> {
        match self.word(name, row)? {
            "bfloat16" => Some(Format::Bf16),
            "fp8" => Some(Format::Fp8),
            "fp8_block" => Some(Format::Fp8Block),
            "nvfp4" => Some(Format::Nvfp4),
            "int4_wo" => Some(Format::Int4Weights),
            "w4a16_mxfp4" => Some(Format::Mxfp4Weights),
            "w4a8_mxfp4_mxfp8" => Some(Format::Mxfp4Mxfp8),
            _ => None,
        }
    }

    /// FNV-1a of the configuration, whose remainder decides who is held out.
    fn hash(&self, file: &str, row: usize) -> u64 {
        let mut hash = trinity_numeric::hash::Fnv1a::default();
        let mut take = |bytes: &[u8]| hash.add(bytes.iter().chain(b"|").copied());
        take(file.as_bytes());
        for (name, values) in &self.whole {
            take(name.as_bytes());
            take(values[row].to_string().as_bytes());
        }
        for (name, values) in &self.text {
            take(name.as_bytes());
            take(values[row].as_bytes());
        }
        // The lowest bits of FNV mix least.
        hash.fold(32);
        hash.finish()
    }
}

/// A table, and the engine and version that it was measured with.
pub type Origin = (&'static str, String);

/// Every kernel of the families we have curves of, from the tables of one GPU.
pub fn read(folder: &Path, device: &Device) -> Result<(Vec<KernelRow>, Vec<Origin>), Error> {
    let mut rows = Vec::new();
    let mut versions = Vec::new();
    for source in SOURCES {
        let path = folder.join(source.file).with_extension("parquet");
        if !path.exists() {
            continue;
        }
        let mut wanted: Vec<&str> = source.columns.split(',').collect();
        wanted.extend(["latency", "framework", "version"]);
        let table = Table::read(&path, &wanted)?;
        let latency = table.real("latency")?;
        let present = source.columns.split(',').filter(|name| table.has(name));
        let (text, whole): (Vec<&str>, Vec<&str>) = present.partition(|name| table.text(name).is_ok());
        let columns = Columns {
            whole: whole
                .into_iter()
                .map(|name| Ok((name, table.whole(name)?)))
                .collect::<Result<_, Error>>()?,
            text: text.into_iter().map(|name| Ok((name, table.text(name)?))).collect::<Result<_, Error>>()?,
        };
        if let (Some(framework), Some(version)) =
            (table.text("framework")?.first(), table.text("version")?.first())
        {
            let framework = if source.file == "nccl" { "NCCL" } else { framework };
            versions.push((source.file, format!("{framework} {version}")));
        }
        for row in 0..table.rows() {
            let Some((kind, at)) = (source.row)(&columns, row, device) else { continue };
            let held_out = columns.hash(source.file, row).is_multiple_of(5);
            rows.push(KernelRow { kind, at, seconds: latency[row] * 1e-3, held_out });
        }
    }
    Ok((rows, versions))
}

fn matmul(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let size = |name| columns.size(name, row);
    let format = columns.format("gemm_dtype", row)?;
    let shape = Matmul { m: size("m")?, n: size("n")?, k: size("k")?, format };
    Some((Kind::Matmul(format), shape.coordinates(device).ok()?))
}

/// Zero stands for no window; tables without the column have none.
fn window(columns: &Columns, row: usize) -> Option<f64> {
    columns.size("window_size", row).filter(|window| *window > 0.0)
}

fn context_attention(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let size = |name| columns.size(name, row);
    let kv = columns.format("kv_cache_dtype", row)?;
    let shape = ContextAttention {
        batch: size("batch_size")?,
        tokens: size("isl")?,
        prefix: size("step")?,
        heads: size("num_heads")?,
        kv_heads: size("num_key_value_heads")?,
        head_dim: size("head_dim")?,
        window: window(columns, row),
        kv,
    };
    Some((Kind::ContextAttention(kv), shape.coordinates(device).ok()?))
}

fn generation_attention(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let size = |name| columns.size(name, row);
    let kv = columns.format("kv_cache_dtype", row)?;
    let shape = GenerationAttention {
        batch: size("batch_size")?,
        length: size("step")? + 1.0,
        heads: size("num_heads")?,
        kv_heads: size("num_key_value_heads")?,
        head_dim: size("head_dim")?,
        window: window(columns, row),
        kv,
    };
    Some((Kind::GenerationAttention(kv), shape.coordinates(device).ok()?))
}

fn moe(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let size = |name| columns.size(name, row);
    let format = columns.format("moe_dtype", row)?;
    let routing = match columns.word("distribution", row)? {
        "balanced" => Routing::Balanced,
        "power_law_1.01" => Routing::PowerLaw101,
        "power_law_1.2" => Routing::PowerLaw120,
        _ => return None,
    };
    let shape = Moe {
        tokens: size("num_tokens")?,
        hidden: size("hidden_size")?,
        inter: size("inter_size")?,
        top_k: size("topk")?,
        experts: size("num_experts")?,
        tensor_parallel: size("moe_tp_size")?,
        expert_parallel: size("moe_ep_size")?,
        routing,
        format,
    };
    Some((Kind::Moe(format), shape.coordinates(device).ok()?))
}

fn latent(columns: &Columns, row: usize, length: f64) -> Option<Mla> {
    let size = |name| columns.size(name, row);
    let kv = columns.format("kv_cache_dtype", row)?;
    Some(Mla { batch: size("batch_size")?, length, heads: size("num_heads")?, kv })
}

fn mla_context(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let shape = latent(columns, row, columns.size("isl", row)?)?;
    Some((Kind::MlaContext(shape.kv), shape.context(device).ok()?))
}

fn mla_generation(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let shape = latent(columns, row, columns.size("step", row)? + 1.0)?;
    Some((Kind::MlaGeneration(shape.kv), shape.generation(device).ok()?))
}

fn module(columns: &Columns, row: usize, length: f64) -> Option<MlaModule> {
    let Mla { batch, length, heads, kv } = latent(columns, row, length)?;
    let attention = columns.format("mla_dtype", row)?;
    let products = columns.format("gemm_type", row)?;
    Some(MlaModule { batch, length, heads, formats: MlaFormats { attention, kv, products } })
}

fn mla_context_module(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let shape = module(columns, row, columns.size("isl", row)?)?;
    Some((Kind::MlaContextModule(shape.formats), shape.context(device).ok()?))
}

/// In this table `step` is the length of the cache itself.
fn mla_generation_module(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let shape = module(columns, row, columns.size("step", row)?)?;
    Some((Kind::MlaGenerationModule(shape.formats), shape.generation(device).ok()?))
}

fn nccl(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    let op = match columns.word("op_name", row)? {
        "all_gather" => Collective::AllGather,
        "all_reduce" => Collective::AllReduce,
        "alltoall" => Collective::AllToAll,
        "reduce_scatter" => Collective::ReduceScatter,
        _ => return None,
    };
    let element = if columns.word("nccl_dtype", row)? == "half" { 2.0 } else { 1.0 };
    let bytes = element * columns.size("message_size", row)?;
    let shape = CollectiveShape { op, bytes, ranks: columns.size("num_gpus", row)? };
    Some((Kind::Collective(op), shape.coordinates(device).ok()?))
}

fn custom_all_reduce(columns: &Columns, row: usize, device: &Device) -> Option<(Kind, Coordinates)> {
    if !columns.word("kernel_source", row)?.ends_with("_graph") {
        return None;
    }
    let bytes = 2.0 * columns.size("message_size", row)?;
    let op = Collective::CustomAllReduce;
    let shape = CollectiveShape { op, bytes, ranks: columns.size("num_gpus", row)? };
    Some((Kind::Collective(op), shape.coordinates(device).ok()?))
}
