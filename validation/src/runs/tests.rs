//! One row at a time: what its columns become, and what is said of one that cannot be read.

use super::*;
use crate::csv::tests::one_row;

/// Columns beside the needed ones that sources fill in.
const MORE: &str = "sequence_parallel,measured_iter_s,measured_tflops_per_gpu,iter_s_effective,notes";

/// A run of a table of 2021 that took two seconds, with some columns as they are told.
fn read(changed: &[(&str, &str)]) -> Result<Result<Run, Problem>, Problem> {
    let plain = |name: &str| match name {
        "source" => "Narayanan2021-T1",
        "model" => "GPT-1.7B",
        "layers" => "24",
        "hidden" => "2304",
        "heads" => "24",
        "seq" => "2048",
        "vocab" => "51200",
        "gpu" => "A100-80GB-SXM",
        "n_gpus" | "dp" => "32",
        "tp" | "pp" | "interleave" => "1",
        "microbatch" => "16",
        "global_batch" => "512",
        "recompute" => "full",
        "iter_s_effective" => "2",
        _ => "",
    };
    let columns = format!("{COLUMNS},{MORE}");
    Runs::parse("t.csv", &one_row(&columns, plain, changed), true).unwrap().only()
}

fn run(changed: &[(&str, &str)]) -> Run {
    read(changed).unwrap().unwrap()
}

#[test]
fn a_row_is_the_study_that_its_columns_say() {
    let run = run(&[("tp", "8"), ("pp", "2"), ("dp", "2"), ("sequence_parallel", "1")]);
    assert_eq!((run.set, run.seconds), (Set::NarayananT1, Some(2.0)));
    for line in [
        "extends = \"clusters/dgx-a100\"",
        "gpus = 32",
        "layers = 24",
        "tensor = 8",
        "sequence-parallel = true",
        "pipeline = 2",
        "data = 2",
        "recompute = \"full\"",
        "mlp = \"gelu\"",
        "ffn = 9216",
        "math = \"fp16\"",
    ] {
        assert!(run.text.lines().any(|own| own.contains(line)), "{line} is not in\n{}", run.text);
    }
    let (cluster, job) = run.resolve(Calibrations::built_in()).unwrap();
    assert_eq!(cluster.gpus, 32);
    assert_eq!((job.parallelism.tensor, job.parallelism.pipeline, job.parallelism.data), (8, 2, 2));
    assert_eq!(run.describe(), "GPT-1.7B on 32 A100-80GB-SXM: tp8 pp2 dp2 mb16 gb512");
}

#[test]
fn what_cannot_be_read_names_its_column_and_what_says_too_little_is_left_out() {
    for (column, value, message) in [
        ("recompute", "some", "recompute: expected none, selective or full, found `some`"),
        ("sequence_parallel", "2", "sequence_parallel: expected 0 or 1, found `2`"),
        ("source", "", "source: expected a name, found nothing"),
        ("layers", "", "layers: expected a whole number, found nothing"),
        ("heads", "1.5", "heads: expected a whole number, found 1.5"),
        ("iter_s_effective", "-1", "iter_s_effective: expected a positive number, found -1"),
    ] {
        let problem = read(&[(column, value)]).unwrap_err();
        assert_eq!((problem.line, problem.message.as_str()), (2, message));
    }
    for (changed, message) in [
        (&[("iter_s_effective", "")][..], "iter_s_effective: no time to compare with"),
        (&[("global_batch", "")], "global_batch: the source does not say"),
        (&[("dp", "16")], "n_gpus: tp × pp × dp × cp is 16, but there are 32 GPUs"),
        (&[("gpu", "TPU")], "gpu: no cluster of `TPU` is known"),
    ] {
        assert_eq!(read(changed).unwrap().unwrap_err().message, message);
    }
    // Ranks that share a sequence are in remarks alone.
    assert_eq!(run(&[("dp", "16"), ("notes", "CP=2 of 32")]).context, 2);
}

#[test]
fn a_time_is_the_effective_one_the_measured_one_or_follows_from_operations() {
    assert_eq!(run(&[("measured_iter_s", "3")]).seconds, Some(2.0));
    assert_eq!(run(&[("iter_s_effective", ""), ("measured_iter_s", "3")]).seconds, Some(3.0));
    let told = run(&[("iter_s_effective", ""), ("measured_tflops_per_gpu", "137")]);
    let (_, job) = told.resolve(Calibrations::built_in()).unwrap();
    let flops_per_s = job.model_flops() / told.seconds.unwrap();
    assert!((flops_per_s / (32.0 * 137e12) - 1.0).abs() < 1e-12, "{flops_per_s}");
}

#[test]
fn sources_are_told_however_they_are_spelled() {
    for (source, set) in [
        ("Narayanan2021-T2", Set::NarayananT2),
        ("narayanan 2021, table 2", Set::NarayananT2),
        ("Korthikanti2022 Table 5", Set::KorthikantiT5),
        ("vTrain (multi-node)", Set::VtrainMulti),
        ("vTrain_single", Set::VtrainSingle),
        ("BigScience", Set::Bloom),
        ("Ultra-Scale playbook", Set::Nanotron),
        ("MT-NLG 530B", Set::MtNlg),
        ("Megatron-LM README 2020", Set::MegatronReadme2020),
        ("Megatron Core H100", Set::MegatronCoreH100),
        // Of more than one name the framework's counts.
        ("NeMo llama3 recipes", Set::Nemo),
        ("Megatron-Bridge llama3", Set::MegatronBridge),
        ("MLPerf Training 5.0", Set::MlperfTraining),
        ("mosaicml", Set::Mosaic),
        ("a blog", Set::Other),
    ] {
        assert_eq!(Set::of_source(source), set, "{source}");
    }
    for (at, set) in Set::all().into_iter().enumerate() {
        assert!(Set::all()[at + 1..].iter().all(|other| other.name() != set.name()), "{}", set.name());
        assert!(!set.name().is_empty(), "{set:?}");
    }
}

#[test]
fn remarks_say_formats_shards_and_memory() {
    for (notes, zero) in [
        ("FULL_SHARD", Some(3)),
        ("SHARD_GRAD_OP", Some(2)),
        ("FSDP=8", Some(3)),
        ("FSDP=0", None),
        ("ZeRO-1", Some(1)),
        ("peak mem 36.7 GB", None),
    ] {
        assert_eq!(zero_stage(notes), zero, "{notes}");
    }
    assert_eq!(peak_memory_gb("bf16; peak mem 36.7 GB"), Some(36.7));
    assert_eq!(peak_memory_gb("Mem 44GB"), Some(44.0));
    assert_eq!(["", "Mem ", "Mem 0"].map(peak_memory_gb), [None; 3]);
    let run = run(&[("source", "Llama3"), ("gpu", "H100"), ("notes", "FP8")]);
    assert!(run.fp8 && !run.fp4 && run.text.contains("math = \"fp8\""), "{}", run.text);
    // Optimizer states and gradients are sharded, whatever the row says.
    assert!(run.text.contains("zero = 2"), "{}", run.text);
}

#[test]
fn what_a_record_run_leaves_open_is_chosen_and_not_guessed() {
    let open = [("source", "Megatron-Core H100"), ("gpu", "H100"), ("microbatch", ""), ("recompute", "")];
    let own = run(&open);
    assert_eq!(own.unstated, Unstated { interleave: false, microbatch: true, recompute: true });
    assert!(own.text.contains("choose = \"best\""), "{}", own.text);
    assert!(!own.text.contains("microbatch =") && !own.text.contains("recompute ="), "{}", own.text);
    assert!(own.text.contains("interleave = 1"), "{}", own.text);
    // Sets that constants are fitted on take what a table leaves out as none.
    let fitted = run(&[("microbatch", ""), ("recompute", "")]);
    assert!(!fitted.text.contains("choose") && fitted.text.contains("microbatch = 1"), "{}", fitted.text);
}

#[test]
fn every_gpu_that_tables_name_has_its_cluster() {
    for (gpu, cluster) in [
        ("A100-40GB", "dgx-a100"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("B200", "dgx-b200"),
        ("MI355X", "mi355x"),
    ] {
        assert_eq!(machine_of(gpu), Some(cluster));
    }
    assert_eq!(machine_of("V100"), None);
    assert!(run(&[("gpu", "A100-40GB")]).text.contains("gpu.memory = \"40 GB\""));
    let old = run(&[("gpu", "V100-32GB")]);
    assert!(old.text.contains("gpus-per-node = 16") && old.text.contains("gpus/v100"), "{}", old.text);
}
