//! `--device cuda`: the CPU's bytes where there is a GPU, a sentence where there is none.

use std::path::Path;

use crate::support::{Desk, Run};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/captured/sample.safetensors");

/// Whether a GPU coded; else it must have said that there is none, and left no file.
fn coded(run: &Run, output: &Path) -> bool {
    match run.code() {
        0 => {
            assert!(run.stderr().contains(" streams"), "{}", run.stderr());
            true
        }
        code => {
            let said = run.stderr();
            // No driver is the user's to mend; a driver without NVRTC is a run that failed.
            assert!(code == 2 && said.contains("no NVIDIA driver") || code == 1, "{code}: {said}");
            assert!(said.contains("--device cuda"), "{said}");
            assert!(!output.exists(), "a refusal left a file");
            false
        }
    }
}

#[test]
fn a_gpu_writes_the_bytes_of_the_cpu_or_there_is_none() {
    let desk = Desk::new();
    let encode = |more: &str| desk.run(format!("encode {SAMPLE} --codec trinity-lite --bits 3 {more}"));
    encode("-o cpu.tri").ok();
    // Whatever machine this is, auto finds a way, and says which.
    let auto = encode("-o auto.tri --device auto --json");
    let kind = if auto.ok().contains("\"kind\": \"cuda\"") { "cuda" } else { "cpu" };
    assert_eq!(desk.read("auto.tri"), desk.read("cpu.tri"), "{kind}");
    assert!(kind == "cuda" || auto.stderr().contains("coding on the CPU: "), "{}", auto.stderr());
    let on_gpu = encode("-o gpu.tri --device cuda");
    if coded(&on_gpu, &desk.at("gpu.tri")) {
        assert_eq!(desk.read("gpu.tri"), desk.read("cpu.tri"));
    }
    desk.ok("decode cpu.tri -o a.safetensors");
    let on_gpu = desk.run("decode cpu.tri -o b.safetensors --device cuda");
    if coded(&on_gpu, &desk.at("b.safetensors")) {
        assert_eq!(desk.read("a.safetensors"), desk.read("b.safetensors"));
    }
}

#[test]
fn codecs_without_kernels_are_refused_by_name() {
    let desk = Desk::new();
    for (line, parts) in [
        ("encode SAMPLE --bits 3 -o x.tri --device cuda", ["trinity has no kernels", "trinity-lite"]),
        ("compare SAMPLE --codecs h265,rtn --device cuda", ["h265, rtn have no kernels", ""]),
        ("eval --weights rtn@4 --device cuda", ["rtn has no kernels", ""]),
        ("compare SAMPLE --ablate --device cuda", ["no kernels", ""]),
        ("encode SAMPLE --bits 3 --device tpu", ["cpu", "auto"]),
    ] {
        let said = desk.refused(line.replace("SAMPLE", SAMPLE));
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!desk.at("x.tri").exists());
    }
}
