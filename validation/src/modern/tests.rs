//! One row at a time: what its columns become, and what of a model no column says.

use super::*;
use crate::csv::tests::one_row;
use trinity_study::config::software::Calibrations;

/// A dense run on sixteen GPUs, with some columns as they are told.
fn read(changed: &[(&str, &str)]) -> Result<Result<Run, Problem>, Problem> {
    let plain = |name: &str| match name {
        "source" => "Megatron-Bridge",
        "task" => "pretrain",
        "model" => "Llama-3.1-8B",
        "layers" | "heads" => "32",
        "hidden" => "4096",
        "kv_heads" | "dp" => "8",
        "head_dim" | "microbatch" => "128",
        "ffn" => "14336",
        "vocab" => "128256",
        "attn" => "gqa",
        "seq" => "8192",
        "gpu" => "H100",
        "n_gpus" => "16",
        "nvlink_domain" => "8",
        "tp" => "2",
        "pp" | "cp" => "1",
        "global_batch" => "1024",
        "precision" => "BF16",
        "release" => "26.06",
        "tokens_per_s_per_gpu" => "12000",
        "vp" | "moe_ffn" | "experts" | "topk" | "shared_ffn" | "dense_layers" | "ep" | "fsdp" => "0",
        _ => "",
    };
    Runs::parse_modern("t.csv", &one_row(COLUMNS, plain, changed)).unwrap().only()
}

fn text(changed: &[(&str, &str)]) -> String {
    read(changed).unwrap().unwrap().text
}

#[test]
fn a_step_takes_what_its_tokens_take() {
    let seconds = |changed| read(changed).unwrap().unwrap().seconds.unwrap();
    let tokens = 1024.0 * 8192.0;
    assert_eq!(seconds(&[]), tokens / (12_000.0 * 16.0));
    // Tokens that follow from TFLOP/s are exact, those that are printed rounded.
    assert_eq!(seconds(&[("tokens_from_tflops", "12034.5")]), tokens / (12_034.5 * 16.0));
    let missing = read(&[("tokens_per_s_per_gpu", "")]).unwrap().unwrap_err();
    assert_eq!(missing.message, "tokens_per_s_per_gpu: no speed to compare with");
}

#[test]
fn ranks_have_to_be_all_gpus_and_gpus_known() {
    let message = |changed| read(changed).unwrap().unwrap_err().message;
    assert_eq!(message(&[("cp", "2")]), "n_gpus: tp × pp × dp × cp is 32, but there are 16 GPUs");
    assert_eq!(message(&[("gpu", "T4")]), "gpu: no cluster of `T4` is known");
    assert_eq!(
        read(&[("head_dim", "")]).unwrap_err().message,
        "head_dim: expected a whole number, found nothing"
    );
}

#[test]
fn formats_and_releases_choose_arithmetic_and_site() {
    assert!(text(&[]).contains("math = \"fp16\", weights = 16"));
    assert!(text(&[("precision", "FP8-CS")]).contains("math = \"fp8\", weights = 16"));
    assert!(text(&[("precision", "NVFP4"), ("gpu", "B200")]).contains("math = \"fp4\""));
    assert!(text(&[("release", "26.06")]).contains("site = \"default\""));
    assert!(text(&[("release", "25.11")]).contains("site = \"before-26-06\""));
    // Of adapters alone the rest of the weights stay in the format of the products.
    let adapters = text(&[("task", "lora"), ("precision", "FP8-CS")]);
    assert!(adapters.contains("tuning = \"adapters\"") && adapters.contains("weights = 8"), "{adapters}");
    let deepseek = text(&[("source", "DeepSeek-V3 report"), ("gpu", "H800")]);
    assert!(deepseek.contains("frameworks/deepseek"), "{deepseek}");
}

#[test]
fn layers_beyond_the_columns_are_those_of_their_family() {
    let experts = [
        ("experts", "128"),
        ("topk", "8"),
        ("moe_ffn", "768"),
        ("shared_ffn", "1536"),
        ("dense_layers", "3"),
    ];
    let own = text(&experts);
    assert!(
        own.contains(
            "moe = { experts = 128, top-k = 8, shared-experts = 2, expert-ffn = 768, dense-layers = 3"
        ),
        "{own}"
    );
    let latent = text(&[("attn", "mla"), ("head_dim", "")]);
    assert!(latent.contains("kv-rank = 512") && latent.contains("head-dim = 128"), "{latent}");
    let hybrid = text(&[("attn", "hybrid-mamba"), ("layers", "52")]);
    assert!(
        hybrid.contains("mamba = { layers = 23, attention-layers = 6") && hybrid.contains("mlp = \"gelu\""),
        "{hybrid}"
    );
    let wide = text(&[("attn", "hybrid-mamba"), ("layers", "88")]);
    assert!(wide.contains("mamba = { layers = 40, attention-layers = 8"), "{wide}");
    let predicts = |quality| text(&[("arch_note", "1 MTP layer"), ("quality", quality)]);
    assert!(
        predicts("").contains("next-token-layers = 1")
            && predicts("w/o_MTP").contains("next-token-layers = 0")
    );
}

#[test]
fn a_model_that_fits_nowhere_else_is_sharded() {
    let plain = text(&[]);
    assert!(!plain.contains("zero = 3"), "{plain}");
    let large =
        [("layers", "80"), ("hidden", "8192"), ("heads", "64"), ("ffn", "28672"), ("microbatch", "1")];
    let sharded = text(&large);
    assert!(sharded.contains("zero = 3"), "{sharded}");
    // An expert group is no larger than the ranks of a stage.
    let run = read(&[("experts", "64"), ("topk", "2"), ("moe_ffn", "1024"), ("ep", "64")]).unwrap().unwrap();
    assert!(run.text.contains("expert = 16\n"), "{}", run.text);
    assert_eq!(run.resolve(Calibrations::built_in()).unwrap().1.parallelism.expert, 16);
}
