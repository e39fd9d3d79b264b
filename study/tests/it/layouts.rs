//! A study may leave its parallelism to be chosen: the answer says what it took.

use crate::{estimated, says};
use trinity_config::Document;
use trinity_study::Silent;
use trinity_study::config::{ParallelismFile, Settable, StudyFile, SweepFile};
use trinity_study::estimate::EstimateOutcome;
use trinity_study::sweep;

const JOB: &str = "phase = \"training\"\nsequence = 4096\nglobal-batch = 128\n\
                   llm = { extends = \"llms/llama-3-70b\" }\nparallelism = \"best\"\n";

const DGX: &str = "clusters/dgx-h100";

#[test]
fn the_best_is_no_straw_man_and_says_what_it_is() {
    let best = estimated(DGX, JOB, &["cluster.gpus=64"]).unwrap();
    let layout = best.estimate.chosen.unwrap();
    assert!(best.lines.iter().any(|line| line.group == "layout" && line.name == "tensor"));
    for (tensor, pipeline, data) in [(8, 1, 8), (4, 4, 4), (8, 8, 1), (2, 8, 4)] {
        let stated = format!(
            "job.parallelism={{ tensor = {tensor}, pipeline = {pipeline}, data = {data}, zero = 1, \
             sequence-parallel = true }}"
        );
        let Ok(plain) = estimated(DGX, JOB, &["cluster.gpus=64", &stated]) else { continue };
        assert!(plain.estimate.chosen.is_none());
        assert!(plain.estimate.tokens_per_s <= best.estimate.tokens_per_s, "{layout}");
    }
    let json = serde_json::to_value(&best).unwrap();
    assert_eq!(json["estimate"]["chosen"]["tensor"], layout.parallelism.tensor);
}

#[test]
fn a_part_that_is_stated_is_kept() {
    let text = JOB.replace("\"best\"", "{ choose = \"best\", tensor = 2, interleave = 1 }");
    let best = estimated(DGX, &text, &["cluster.gpus=64", "job.microbatch=1"]).unwrap();
    let layout = best.estimate.chosen.unwrap();
    assert_eq!((layout.parallelism.tensor, layout.microbatch), (2, 1));
    assert_eq!(layout.parallelism.schedule.chunks(), 1);
}

#[test]
fn gpus_that_nobody_counted_are_asked_for() {
    says(estimated(DGX, JOB, &[]).unwrap_err(), &["the best parallelism of how many GPUs?"]);
    says(
        estimated(DGX, &JOB.replace("best", "bset"), &["cluster.gpus=8"]).unwrap_err(),
        &["there is no parallelism `bset`", "job:5:15"],
    );
    says(estimated(DGX, JOB, &["cluster.gpus=8"]).unwrap_err(), &["no layout over 8 GPUs fits in memory"]);
}

/// What decodes with 64 sequences is not what decodes with one.
#[test]
fn decoding_takes_the_batch_it_is_given() {
    let decode = "phase = \"decode\"\nsequence = 2048\nllm = { extends = \"llms/llama-3-8b\" }\n";
    let rate = |set: &[&str]| estimated(DGX, decode, set).unwrap().estimate.tokens_per_s;
    let (one, many) = (rate(&["job.global-batch=1"]), rate(&["job.global-batch=64"]));
    assert!(many > 20.0 * one, "{one} tokens/s for one, {many} for 64");
    assert_eq!(many, rate(&["job.global-batch=64", "job.microbatch=64"]));
    // Stages decode in turns.
    let piped = ["job.global-batch=64", "job.parallelism.pipeline=4", "job.parallelism.data=2"];
    assert_eq!(rate(&piped), rate(&[&piped[..], &["job.microbatch=8"]].concat()));
}

fn sweep_text(parallelism: &str, axis: &str) -> String {
    format!(
        "title = \"a study\"\naxes = [{{ {axis} }}, {{ path = \"cluster.nic.bandwidth\", values = [\"100 Gbit/s\", \"400 Gbit/s\"] }}]\n\
         scenarios = [{{ name = \"plain\" }}]\n[study]\ncluster = {{ extends = \"clusters/dgx-h100\", gpus = 32 }}\n\
         [study.job]\nphase = \"training\"\nsequence = 4096\nglobal-batch = 64\n\
         llm = {{ extends = \"llms/llama-3-8b\" }}\nparallelism = {parallelism}\n"
    )
}

#[test]
fn every_point_of_a_sweep_has_a_best_of_its_own() {
    let text = sweep_text("\"best\"", "path = \"cluster.gpus\", values = [8, 16, 32]");
    let request = sweep::SweepRequest { sweep: "study".into(), text: Some(text), sets: Vec::new(), top: 10 };
    let study = sweep::Study::load(&request).unwrap();
    let outcome = sweep::run(&study, &Silent).unwrap();
    assert_eq!((outcome.points, outcome.feasible), (6, 6));
    for found in &outcome.top {
        // Points share what one GPU does; each must be what it is alone.
        let alone = study.plan.space.point(found.index).estimate().unwrap();
        assert_eq!(alone, found.estimate);
        let layout = found.estimate.chosen.unwrap();
        let gpus: u64 = found.axes[0].1.parse().unwrap();
        assert_eq!(layout.parallelism.gpus(), gpus);
    }
    let csv = String::from_utf8(sweep::points_csv(&study)).unwrap();
    says(csv.lines().next().unwrap(), &[",layout,"]);
    assert!(csv.lines().skip(1).all(|line| line.matches("DP ").count() == 1), "{csv}");
}

#[test]
fn an_axis_over_part_of_the_word_is_refused_and_over_the_table_is_not() {
    let axis = "path = \"job.parallelism.tensor\", values = [1, 2, 4]";
    let check = |parallelism: &str| {
        let document = Document::parse("study.toml", &sweep_text(parallelism, axis)).unwrap();
        document.checked::<SweepFile>()
    };
    says(
        check("\"best\"").unwrap_err(),
        &["varies a part of `parallelism = \"best\"`", "choose = \"best\"", "study.toml:2:18"],
    );
    check("{ choose = \"best\" }").unwrap();
}

#[test]
fn the_word_is_set_like_any_other_value() {
    let document =
        Document::parse("study.toml", &sweep_text("{ data = 32 }", "path = \"cluster.gpus\", values = [32]"))
            .unwrap();
    let file: SweepFile = document.read().unwrap();
    let set = |file: &StudyFile, text: &str| {
        let assignment = document.assignment(&format!("study.{text}")).unwrap();
        let mut study = file.clone();
        StudyFile::setter(&assignment.keys()[1..]).unwrap()(&mut study, assignment.value()).unwrap();
        study
    };
    let best = set(&file.study, "job.parallelism=best");
    assert!(matches!(best.job.parallelism, ParallelismFile::Word(_)));
    let stated = set(&best, "job.parallelism.data=4");
    assert!(!stated.job.search().on && stated.job.parallelism.resolve(0).data == 4);
}

/// 70B on 64 GB300 with two sequences together keeps more than there is.
const CROWDED: &str = "phase = \"training\"\nsequence = 8192\nglobal-batch = 256\nmicrobatch = 2\n\
     llm = { extends = \"llms/llama-3-70b\" }\nprecision = { math = \"fp8\" }\n\
     parallelism = { pipeline = 4, data = 16 }\nframework = { extends = \"frameworks/megatron-bridge\" }\n";

fn crowded(overrides: &[&str]) -> Result<EstimateOutcome, trinity_study::Error> {
    estimated("clusters/gb300-nvl72", CROWDED, overrides)
}

#[test]
fn the_least_recomputation_that_fits_is_taken_where_a_framework_leaves_it_open() {
    let least = crowded(&[]).unwrap();
    let layout = least.estimate.chosen.unwrap();
    assert_eq!((layout.parallelism.pipeline, layout.parallelism.zero.stage()), (4, 1));
    let said = least.lines.iter().find(|line| line.group == "layout").unwrap();
    assert!(said.formula.contains("the least that fits"), "{}", said.formula);
    for stated in ["none", "selective", "full"] {
        let Ok(found) = crowded(&[&format!("job.recompute={stated}")]) else { continue };
        assert!(found.estimate.iteration_s >= least.estimate.iteration_s, "{stated} fits and is faster");
    }
    says(crowded(&["job.recompute=none"]).unwrap_err(), &["GB a GPU of", "activations"]);
}

#[test]
fn a_framework_says_how_states_are_kept_and_a_job_goes_before_it() {
    let gb = |overrides: &[&str], name: &str| {
        let outcome = crowded(overrides).unwrap();
        outcome.lines.iter().find(|line| line.group == "memory" && line.name == name).unwrap().value
    };
    let own = gb(&[], "gradients");
    assert!((gb(&["job.precision.gradients=32"], "gradients") / own - 2.0).abs() < 1e-9);
    assert!(
        gb(&["job.parallelism.zero=0", "job.parallelism.pipeline=8", "job.parallelism.data=8"], "optimizer")
            > gb(&[], "optimizer")
    );
    says(crowded(&["job.framework.zero=4"]).unwrap_err(), &["there is no ZeRO stage 4"]);
}
