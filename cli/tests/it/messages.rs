//! What is said where something is wrong: whose fault it is, and what to do.

use crate::support::{self, Desk, floats, pgm};
use std::path::Path;

/// A safetensors file of f32 tensors, each of 32 by 32 values times `scale`.
fn safetensors(path: &Path, names: &[&str], scale: f32) {
    let value = |at: usize| ((at * 37 % 101) as f32 - 50.0) * scale + 8.0;
    let tensors = names.iter().enumerate();
    let tensors = tensors.map(|(tensor, name)| floats(name, &[32, 32], move |at| value(1024 * tensor + at)));
    support::safetensors(path, &tensors.collect::<Vec<_>>());
}

#[track_caller]
fn refused(desk: &Desk, command: &str, parts: &[&str]) {
    let said = desk.refused(command);
    for part in parts {
        assert!(said.contains(part), "{command}: `{part}` is missing in {said}");
    }
}

#[test]
fn deltas_say_which_file_is_to_blame() {
    let desk = Desk::new();
    safetensors(&desk.at("base.safetensors"), &["a"], 0.01);
    safetensors(&desk.at("tuned.safetensors"), &["a", "b"], 0.011);
    let make = "delta make base.safetensors tuned.safetensors -o d.tri";
    refused(&desk, make, &["tuned.safetensors has a tensor `b`, and base.safetensors has none"]);
    refused(
        &desk,
        "delta apply base.safetensors tuned.safetensors -o t.safetensors",
        &["tuned.safetensors is no delta", "delta make"],
    );
    desk.ok("encode base.safetensors --bits 4 -o b.tri");
    refused(&desk, "delta apply base.safetensors b.tri -o t.safetensors", &["b.tri is no delta"]);
    assert!(!desk.at("t.safetensors").exists());
}

#[test]
fn a_deltas_error_is_said_as_it_was_asked_for() {
    let desk = Desk::new();
    safetensors(&desk.at("base.safetensors"), &["a"], 0.01);
    safetensors(&desk.at("tuned.safetensors"), &["a"], 0.0101);
    // The change is a thousandth of the values: relative to them, the error would be next to nothing.
    let command = "delta make base.safetensors tuned.safetensors --codec rtn --nmse 0.01 -o d.tri --json";
    let said = desk.json(command);
    let nmse = said[0]["nmse"].as_f64().unwrap();
    assert!(nmse > 0.0001 && nmse <= 0.0101, "{said}");
}

#[test]
fn streams_and_pictures_that_are_something_else_are_named() {
    let desk = Desk::new();
    desk.write("p.pgm", pgm(32, 32, |at| (at % 251) as u8));
    desk.ok("h265 encode p.pgm --qp 30 -o p.265");
    refused(&desk, "decode p.265", &["stream of H.265", "trinity h265 decode"]);
    for format in ["C444alpha", "C420unheardof"] {
        let mut y4m = format!("YUV4MPEG2 W16 H16 F25:1 {format}\nFRAME\n").into_bytes();
        y4m.extend([7; 1024]);
        desk.write("a.y4m", y4m);
        refused(&desk, "h265 encode a.y4m --qp 30 -o a.265", &[format]);
    }
    for qp in ["1e9", "nan", "-101"] {
        refused(&desk, &format!("encode p.pgm --qp {qp} -o p.trp"), &["expected a number from -100 to 100"]);
    }
}

#[test]
fn raw_frames_from_stdin_are_what_the_help_says() {
    let desk = Desk::new();
    let help = desk.ok("h265 encode --help");
    assert!(help.contains("[default: 400 for .gray, else 420]"), "{help}");
    let frames = |bytes: usize| {
        let line = "h265 encode - --size 16x16 --qp 30 -o out.265 --force --json";
        let output = desk.piped(line, &vec![7; bytes]);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).ok().map(|said| said["frames"].clone())
    };
    assert_eq!(frames(2 * 384), Some(2.into()), "two frames of 4:2:0");
}

#[test]
fn a_machine_without_a_gpu_is_a_failed_run() {
    let desk = Desk::new();
    let listed = desk.ok("measure --list");
    if !listed.contains("no NVIDIA driver") {
        eprintln!("SKIPPED: this machine has a GPU");
        return;
    }
    let run = desk.run("measure --quick");
    assert_eq!(run.code(), 1, "{}", run.stderr());
    assert!(run.stderr().contains("--replay"), "{}", run.stderr());
}

#[test]
fn a_number_format_that_the_gpu_lacks_is_named_wherever_it_is_asked_for() {
    let desk = Desk::new();
    for (line, format) in [
        ("estimate dgx-a100 llama-3-8b --set job.precision.math=fp8", "fp8"),
        ("sweep sweeps/llama-7b --points none --set study.job.precision.math=fp8", "fp8"),
        ("sweep sweeps/llama-7b --points none --set study.job.precision.attention=fp4", "fp4"),
        ("explore --draws 48 --cells 3 --set study.job.precision.math=fp4", "fp4"),
    ] {
        refused(&desk, line, &[&format!("the matrix units of the GPU have no {format}")]);
    }
}
