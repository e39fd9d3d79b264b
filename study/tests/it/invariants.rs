//! What holds of every answer, asked of the clusters that come with the project
//! through the path of `trinity estimate`, fitted constants and all: nothing is
//! slower for having more, and nobody gains more than was added.

use crate::{asked, estimated, says};
use trinity_study::estimate::Study;

/// Sixty-four GPUs, cut in all the ways that have a wire of their own.
const JOBS: [(&str, &str); 5] = [
    (
        "tensor, pipeline and data",
        "llm = { extends = \"llms/llama-3-70b\" }\nparallelism = { tensor = 8, pipeline = 4, data = 2, zero = 1, sequence-parallel = true }\n",
    ),
    (
        "interleaved",
        "llm = { extends = \"llms/llama-3-70b\" }\nparallelism = { tensor = 4, pipeline = 8, interleave = 2, data = 2, zero = 2, sequence-parallel = true }\n",
    ),
    (
        "sharded",
        "llm = { extends = \"llms/llama-3-8b\" }\nparallelism = { data = 64, zero = 3 }\nframework = { extends = \"frameworks/fsdp\" }\n",
    ),
    (
        "context",
        "llm = { extends = \"llms/llama-3-70b\" }\nparallelism = { tensor = 8, context = 4, data = 2, zero = 1, sequence-parallel = true }\n",
    ),
    (
        "experts",
        "llm = { extends = \"llms/deepseek-v3\" }\nparallelism = { pipeline = 4, data = 16, expert = 16, expert-tensor = 1, zero = 1 }\n",
    ),
];

const CLUSTERS: [&str; 4] = ["dgx-a100", "dgx-h100", "dgx-b200", "mi300x"];

fn study(cluster: &str, job: &str, sets: &[String]) -> Study {
    let text = format!("phase = \"training\"\nsequence = 8192\nglobal-batch = 64\n{job}");
    let room = "cluster.gpu.memory=\"100 TB\"";
    let sets: Vec<&str> = [room].into_iter().chain(sets.iter().map(String::as_str)).collect();
    asked(&format!("clusters/{cluster}"), &text, &sets).unwrap_or_else(|error| panic!("{cluster}: {error}"))
}

fn seconds(cluster: &str, job: &str, sets: &[String]) -> f64 {
    study(cluster, job, sets)
        .outcome()
        .unwrap_or_else(|error| panic!("{cluster}: {error}"))
        .estimate
        .iteration_s
}

/// Each from little to much.
fn more(cluster: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut list = vec![
        (
            "cluster.nic.bandwidth",
            vec!["\"50 Gbit/s\"", "\"200 Gbit/s\"", "\"400 Gbit/s\"", "\"1600 Gbit/s\""],
        ),
        ("cluster.nics-per-gpu", vec!["0.125", "0.5", "1.0", "4.0"]),
        ("cluster.intra.bandwidth", vec!["\"60 GB/s\"", "\"300 GB/s\"", "\"900 GB/s\"", "\"3600 GB/s\""]),
        ("cluster.gpu.memory-bandwidth", vec!["\"1 TB/s\"", "\"2 TB/s\"", "\"8 TB/s\"", "\"32 TB/s\""]),
        (
            "cluster.gpu.fp16",
            vec!["\"200 TFLOP/s\"", "\"400 TFLOP/s\"", "\"989 TFLOP/s\"", "\"4000 TFLOP/s\""],
        ),
        ("cluster.gpu.power", vec!["\"400 W\"", "\"700 W\"", "\"1000 W\"", "\"1400 W\""]),
        ("cluster.gpu.efficiency-factor", vec!["0.5", "0.8", "1.0"]),
    ];
    if cluster != "mi300x" {
        list.push(("cluster.gpus-per-node", vec!["1", "2", "4", "8", "16", "32"]));
        list.push(("cluster.network.tiers.0.oversubscription", vec!["32", "8", "2", "1"]));
    }
    list
}

#[test]
fn more_of_anything_is_never_slower_on_a_cluster_as_it_is_answered_for() {
    let mut moved = 0;
    for cluster in CLUSTERS {
        for (name, job) in JOBS {
            for (path, values) in more(cluster) {
                let times: Vec<f64> =
                    values.iter().map(|value| seconds(cluster, job, &[format!("{path}={value}")])).collect();
                for (pair, value) in times.windows(2).zip(&values[1..]) {
                    assert!(
                        pair[1] <= pair[0] * (1.0 + 1e-9),
                        "{cluster}, {name}: {path}={value} takes {} s after {} s",
                        pair[1],
                        pair[0]
                    );
                }
                moved += usize::from(times.first() > times.last());
            }
        }
    }
    // Most of what is turned does something.
    assert!(moved > 60, "{moved}");
}

#[test]
fn n_times_the_gpus_are_never_more_than_n_times_as_fast_under_any_calibration() {
    for cluster in CLUSTERS {
        for framework in ["megatron-core", "fsdp", "megatron-lm"] {
            let speed = |data: u32| {
                let job = format!(
                    "llm = {{ extends = \"llms/llama-3-8b\" }}\nframework = {{ extends = \"frameworks/{framework}\" }}\n\
                     parallelism = {{ tensor = 2, data = {data}, zero = 1, sequence-parallel = true }}\n"
                );
                let sets = [format!("job.global-batch={}", 4 * data), "job.replica-batch=4".to_owned()];
                study(cluster, &job, &sets).outcome().unwrap().estimate.tokens_per_s
            };
            let one = speed(1);
            for data in [2, 4, 8, 64, 512] {
                let many = speed(data);
                // Ranks share the optimizer's step, which is some hundredths of the time of one.
                assert!(many <= one * f64::from(data) * 1.05, "{cluster}, {framework}: {data} ranks");
            }
        }
    }
}

#[test]
fn energy_is_at_least_what_idling_takes_everywhere() {
    for cluster in CLUSTERS {
        for (name, job) in JOBS {
            let study = study(cluster, job, &[]);
            let idle_w = study.point.cluster.gpu.idle_power_w;
            let estimate = study.outcome().unwrap().estimate;
            let idle_j = f64::from(study.point.cluster.gpus) * idle_w * estimate.iteration_s;
            assert!(idle_j > 0.0 && estimate.energy_j >= idle_j, "{cluster}, {name}");
        }
    }
}

/// Frameworks hide what they say they hide, and say what they cannot do.
#[test]
fn a_framework_decides_what_runs_beside_compute() {
    let experts = "llm = { extends = \"llms/deepseek-v3\" }\n";
    let piped = "parallelism = { pipeline = 4, data = 16, expert = 16, expert-tensor = 1, zero = 1 }\n";
    let with = |framework: &str| {
        let job = format!("{experts}{piped}framework = {{ extends = \"frameworks/{framework}\" }}\n");
        study("dgx-h100", &job, &["job.global-batch=512".to_owned()])
    };
    let deepseek = with("deepseek").outcome().unwrap().estimate;
    let plain = with("megatron-lm").outcome().unwrap().estimate;
    assert!(deepseek.breakdown.bubble_s < 0.5 * plain.breakdown.bubble_s, "DualPipe fills from both ends");
    let shown = |e: &trinity_sim::Estimate| e.breakdown.expert.exposed_s / e.breakdown.expert.total_s;
    assert!(shown(&plain) > 0.99 && shown(&deepseek) < 0.5, "{} {}", shown(&plain), shown(&deepseek));
    // Twice the stages on each GPU.
    assert!(deepseek.memory.weights_bytes > 1.9 * plain.memory.weights_bytes);
    // What a job states goes before what its framework does.
    let stated = with("megatron-lm");
    assert_eq!(stated.point.job.overlap.expert, 0.0);
    let job = format!(
        "{experts}{piped}framework = {{ extends = \"frameworks/megatron-lm\" }}\noverlap = {{ expert = 0.25 }}\n"
    );
    assert_eq!(study("dgx-h100", &job, &[]).point.job.overlap.expert, 0.25);
}

#[test]
fn what_a_framework_cannot_do_is_refused_in_its_sentence() {
    let refused = |text: &str| {
        let text = format!(
            "phase = \"training\"\nsequence = 8192\nglobal-batch = 64\nllm = {{ extends = \"llms/llama-3-8b\" }}\n{text}"
        );
        estimated("clusters/dgx-h100", &text, &[]).unwrap_err().to_string()
    };
    let interleaved = "parallelism = { pipeline = 4, interleave = 2, data = 2 }\n";
    says(
        refused(&format!("framework = {{ extends = \"frameworks/nanotron\" }}\n{interleaved}")),
        &["does not interleave 2 chunks", "job:6"],
    );
    says(refused("framework = { calibration = \"tpu\" }\n"), &["there is no calibration `tpu`"]);
    says(refused("framework = { schedule = \"gpipe\" }\n"), &["1f1b", "dual-pipe"]);
    says(refused("expert-imbalance = 0.5\n"), &["less than the mean"]);
    let odd = "parallelism = { pipeline = 8, data = 1 }\nframework = { extends = \"frameworks/deepseek\" }\n";
    says(refused(&odd.replace("data = 1", "data = 8")), &["DualPipe needs an even number of stages"]);
}

#[test]
fn a_busier_rank_of_experts_is_waited_for() {
    let job = JOBS[4].1;
    let times: Vec<f64> = ["1", "1.5", "3"]
        .iter()
        .map(|value| seconds("dgx-h100", job, &[format!("job.expert-imbalance={value}")]))
        .collect();
    assert!(times[0] < times[1] && times[1] < times[2], "{times:?}");
}

#[test]
fn a_router_that_looks_at_nodes_sends_less() {
    let job = "llm = { extends = \"llms/deepseek-v3\" }\nparallelism = { data = 64, expert = 64, expert-tensor = 1, zero = 1 }\n";
    let sent = |nodes: u32| {
        let study = study("dgx-h100", job, &[format!("job.llm.moe.most-nodes={nodes}")]);
        study.outcome().unwrap().estimate.breakdown.expert.total_s
    };
    assert!(sent(2) < sent(4) && sent(4) < sent(0), "{} {} {}", sent(2), sent(4), sent(0));
    assert_eq!(sent(8), sent(0), "eight nodes are all there are");
}
