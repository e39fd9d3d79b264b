//! What is said where something is wrong: whose fault it is, and what to do.

use crate::support::trinity_in;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A safetensors file of f32 tensors, each of 32 by 32 values times `scale`.
fn safetensors(path: &Path, names: &[&str], scale: f32) {
    let mut header = serde_json::Map::new();
    for (at, name) in names.iter().enumerate() {
        let offsets = [at * 4096, (at + 1) * 4096];
        let info = serde_json::json!({ "dtype": "F32", "shape": [32, 32], "data_offsets": offsets });
        header.insert((*name).into(), info);
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    let values = (0..names.len() * 1024).map(|at| ((at * 37 % 101) as f32 - 50.0) * scale + 8.0);
    bytes.extend(values.flat_map(f32::to_le_bytes));
    fs::write(path, bytes).unwrap();
}

#[track_caller]
fn refused(folder: &Path, command: &str, parts: &[&str]) {
    let said = trinity_in(folder, command.split(' ')).refused();
    for part in parts {
        assert!(said.contains(part), "{command}: `{part}` is missing in {said}");
    }
}

#[test]
fn deltas_say_which_file_is_to_blame() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    safetensors(&folder.join("base.safetensors"), &["a"], 0.01);
    safetensors(&folder.join("tuned.safetensors"), &["a", "b"], 0.011);
    let make = "delta make base.safetensors tuned.safetensors -o d.tri";
    refused(folder, make, &["tuned.safetensors has a tensor `b`, and base.safetensors has none"]);
    refused(
        folder,
        "delta apply base.safetensors tuned.safetensors -o t.safetensors",
        &["tuned.safetensors is no delta", "delta make"],
    );
    trinity_in(folder, ["encode", "base.safetensors", "--bits", "4", "-o", "b.tri"]).ok();
    refused(folder, "delta apply base.safetensors b.tri -o t.safetensors", &["b.tri is no delta"]);
    assert!(!folder.join("t.safetensors").exists());
}

#[test]
fn a_deltas_error_is_said_as_it_was_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    safetensors(&folder.join("base.safetensors"), &["a"], 0.01);
    safetensors(&folder.join("tuned.safetensors"), &["a"], 0.0101);
    // The change is a thousandth of the values: relative to them, the error would be next to nothing.
    let command = "delta make base.safetensors tuned.safetensors --codec rtn --nmse 0.01 -o d.tri --json";
    let said: serde_json::Value = serde_json::from_str(&trinity_in(folder, command.split(' ')).ok()).unwrap();
    let nmse = said[0]["nmse"].as_f64().unwrap();
    assert!(nmse > 0.0001 && nmse <= 0.0101, "{said}");
}

#[test]
fn streams_and_pictures_that_are_something_else_are_named() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let picture: Vec<u8> =
        b"P5 32 32 255\n".iter().copied().chain((0..1024u32).map(|at| (at % 251) as u8)).collect();
    fs::write(folder.join("p.pgm"), picture).unwrap();
    trinity_in(folder, "h265 encode p.pgm --qp 30 -o p.265".split(' ')).ok();
    refused(folder, "decode p.265", &["stream of H.265", "trinity h265 decode"]);
    for format in ["C444alpha", "C420unheardof"] {
        let mut y4m = format!("YUV4MPEG2 W16 H16 F25:1 {format}\nFRAME\n").into_bytes();
        y4m.extend([7; 1024]);
        fs::write(folder.join("a.y4m"), y4m).unwrap();
        refused(folder, "h265 encode a.y4m --qp 30 -o a.265", &[format]);
    }
    for qp in ["1e9", "nan", "-101"] {
        refused(folder, &format!("encode p.pgm --qp {qp} -o p.trp"), &["expected a number from -100 to 100"]);
    }
}

#[test]
fn raw_frames_from_stdin_are_what_the_help_says() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let help = trinity_in(folder, ["h265", "encode", "--help"]).ok();
    assert!(help.contains("[default: 400 for .gray, else 420]"), "{help}");
    let frames = |bytes: usize| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trinity"))
            .args("h265 encode - --size 16x16 --qp 30 -o out.265 --force --json".split(' '))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&vec![7; bytes]).unwrap();
        let output = child.wait_with_output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).ok().map(|said| said["frames"].clone())
    };
    assert_eq!(frames(2 * 384), Some(2.into()), "two frames of 4:2:0");
}

#[test]
fn a_machine_without_a_gpu_is_a_failed_run() {
    let home = tempfile::tempdir().unwrap();
    let listed = trinity_in(home.path(), ["measure", "--list"]).ok();
    if !listed.contains("no NVIDIA driver") {
        eprintln!("SKIPPED: this machine has a GPU");
        return;
    }
    let run = trinity_in(home.path(), ["measure", "--quick"]);
    assert_eq!(run.code(), 1, "{}", run.stderr());
    assert!(run.stderr().contains("--replay"), "{}", run.stderr());
}

#[test]
fn a_number_format_that_the_gpu_lacks_is_named_wherever_it_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let said = ["the matrix units of the GPU have no fp8"];
    refused(folder, "estimate dgx-a100 llama-3-8b --set job.precision.math=fp8", &said);
    refused(folder, "sweep sweeps/llama-7b --points none --set study.job.precision.math=fp8", &said);
    refused(
        folder,
        "sweep sweeps/llama-7b --points none --set study.job.precision.attention=fp4",
        &["the matrix units of the GPU have no fp4"],
    );
    refused(
        folder,
        "explore --draws 48 --cells 3 --set study.job.precision.math=fp4",
        &["the matrix units of the GPU have no fp4"],
    );
}
