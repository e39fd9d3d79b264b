//! Sweeps whose labels would lie, or whose words mean nothing, do not start.

use crate::says;
use trinity_config::{Diagnostic, Document};
use trinity_study::config::SweepFile;

const SWEEP: &str = r#"
title = "a study"
[[axes]]
path = "job.parallelism.pipeline"
values = [2, 4]
[[axes]]
path = "job.parallelism.data"
values = [2, 4]
[[scenarios]]
name = "plain"
[[scenarios]]
name = "coded"
set = ["cluster.codec.extends=codecs/three-in-one"]
[study]
cluster = { extends = "clusters/rtx3090-cx5" }
[study.job]
phase = "training"
sequence = 2048
replica-batch = 8
recompute = "full"
llm = { extends = "llms/llama-2-7b" }
compression = { activations = 3.5 }
"#;

fn check(text: &str) -> Result<(), Diagnostic> {
    Document::parse("study.toml", text)?.checked::<SweepFile>().map(drop)
}

/// What is said of [`SWEEP`] with more lines at its front or its end.
#[track_caller]
fn refused(text: &str, parts: &[&str]) -> String {
    let said = check(text).expect_err("this sweep must not start").to_string();
    says(&said, parts);
    said
}

fn with_axis(axis: &str) -> String {
    SWEEP.replacen("[[scenarios]]", &format!("[[axes]]\n{axis}\n[[scenarios]]"), 1)
}

#[test]
fn the_sweep_itself_is_sound() {
    check(SWEEP).unwrap();
}

#[test]
fn two_axes_of_one_path_are_refused_with_both_places() {
    let text = with_axis("path = \"job.parallelism.data\"\nvalues = [8, 16]");
    refused(&text, &["two axes vary `job.parallelism.data`", "study.toml:7:8", "study.toml:10:8"]);
    // In scenarios of their own they do not meet.
    let apart = text
        .replace("values = [2, 4]\n[[axes]]\npath = \"job.parallelism.data\"\nvalues = [8", "values = [2, 4]\nonly = [\"plain\"]\n[[axes]]\npath = \"job.parallelism.data\"\nonly = [\"coded\"]\nvalues = [8");
    assert_ne!(apart, text);
    check(&apart).unwrap();
}

#[test]
fn an_axis_that_undoes_another_is_refused() {
    // The second replaces the whole GPU, and the first with it.
    let over = with_axis(
        "path = \"cluster.gpu.power\"\nvalues = [\"300 W\", \"400 W\"]\n[[axes]]\npath = \"cluster.gpu.extends\"\nvalues = [\"gpus/h100\", \"gpus/h200\"]",
    );
    refused(&over, &["`cluster.gpu.power`", "`cluster.gpu.extends`", "sets over", "study.toml:10:8"]);
    // Both go into one number: encoder and decoder share an area.
    let area = "values = [\"1 mm2\", \"2 mm2\"]\nonly = [\"coded\"]";
    let shared = with_axis(&format!(
        "path = \"cluster.codec.encoder.area\"\n{area}\n[[axes]]\npath = \"cluster.codec.decoder.area\"\n{area}"
    ));
    refused(&shared, &["computed into the same value"]);
    // The other way round both say the truth.
    let under = with_axis(
        "path = \"cluster.gpu.extends\"\nvalues = [\"gpus/h100\", \"gpus/h200\"]\n[[axes]]\npath = \"cluster.gpu.power\"\nvalues = [\"300 W\", \"400 W\"]",
    );
    check(&under).unwrap();
}

#[test]
fn names_that_clash_or_name_nothing_are_refused() {
    refused(
        &SWEEP.replace("\"coded\"", "\"plain\""),
        &["two scenarios are named `plain`", "study.toml:10:8"],
    );
    let only = with_axis("path = \"job.microbatch\"\nvalues = [1, 2]\nonly = [\"codde\"]");
    refused(&only, &["there is no scenario `codde`", "study.toml:12:9", "did you mean `coded`?"]);
    let assumption = "[[assumptions]]\nname = \"x\"\npath = \"job.replica-bach\"\nlow = 1\nhigh = 2\n";
    refused(
        &format!("{SWEEP}{assumption}"),
        &["unknown key `replica-bach`", "did you mean `replica-batch`?"],
    );
}

#[test]
fn a_typo_in_the_path_of_an_axis_points_at_the_path() {
    let text = with_axis("path = \"job.microbach\"\nvalues = [1, 2]");
    let said = refused(&text, &["study.toml:10:8: unknown key `microbach`", "did you mean `microbatch`?"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    let negative = with_axis("path = \"job.microbatch\"\nvalues = [1, -2]");
    refused(&negative, &["study.toml:11:14: integer `-2`", "a whole number from 0"]);
    let set = SWEEP.replace("codecs/three-in-one", "codecs/three-in-on");
    refused(&set, &["study.toml:13:", "did you mean `codecs/three-in-one`?"]);
}

#[test]
fn all_mistakes_of_a_sweep_are_said_at_once() {
    let text = with_axis(
        "path = \"job.microbatch\"\nvalues = [-1, 2, -3]\n[[axes]]\npath = \"job.sequense\"\nvalues = [1]",
    );
    let said = refused(&text, &["`-1`", "`-3`", "`sequense`"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    let checks = SWEEP.replace("sequence = 2048", "sequence = 0\nmicrobatch = 0");
    assert_eq!(refused(&checks, &["`sequence`", "`microbatch`"]).lines().count(), 2);
}

#[test]
fn a_codec_with_nothing_to_compress_is_warned_of() {
    let warnings = |text: &str| {
        let document = Document::parse("study.toml", text).unwrap();
        document.read::<SweepFile>().unwrap().warnings(&document).unwrap()
    };
    assert!(warnings(SWEEP).is_empty());
    let raw = SWEEP.replace("compression = { activations = 3.5 }\n", "");
    let said = warnings(&raw);
    assert_eq!(said.len(), 1, "{said:?}");
    says(&said[0], &["`coded`", "job.compression.weight-gradients", "job.compression.kv"]);
    // An axis may bring what the study leaves out.
    let varied = raw.replacen(
        "[[scenarios]]",
        "[[axes]]\npath = \"job.compression.activations\"\nvalues = [2, 3]\n[[scenarios]]",
        1,
    );
    assert!(warnings(&varied).is_empty());
}
