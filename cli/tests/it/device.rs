//! `--device cuda`: the CPU's bytes where there is a GPU, a sentence where there is none.

use std::path::Path;

use crate::support::{Run, trinity};

fn sample() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/captured/sample.safetensors");
    path.to_string_lossy().into_owned()
}

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
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = |name: &str| at(name).to_string_lossy().into_owned();
    let sample = sample();
    let lite = ["--codec", "trinity-lite", "--bits", "3"];
    let encode = |extra: &[&str], name: &str| {
        let path = text(name);
        trinity(["encode", &sample, "-o", &path].into_iter().chain(lite).chain(extra.iter().copied()))
    };
    encode(&[], "cpu.tri").ok();
    // Whatever machine this is, auto finds a way, and says which.
    let auto = encode(&["--device", "auto", "--json"], "auto.tri");
    let kind = if auto.ok().contains("\"kind\": \"cuda\"") { "cuda" } else { "cpu" };
    assert_eq!(std::fs::read(at("auto.tri")).unwrap(), std::fs::read(at("cpu.tri")).unwrap(), "{kind}");
    assert!(kind == "cuda" || auto.stderr().contains("coding on the CPU: "), "{}", auto.stderr());
    let on_gpu = encode(&["--device", "cuda"], "gpu.tri");
    if coded(&on_gpu, &at("gpu.tri")) {
        assert_eq!(std::fs::read(at("gpu.tri")).unwrap(), std::fs::read(at("cpu.tri")).unwrap());
    }
    let (from, one, other) = (text("cpu.tri"), text("a.safetensors"), text("b.safetensors"));
    trinity(["decode", &from, "-o", &one]).ok();
    let on_gpu = trinity(["decode", &from, "-o", &other, "--device", "cuda"]);
    if coded(&on_gpu, &at("b.safetensors")) {
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
    }
}

#[test]
fn codecs_without_kernels_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("x.tri");
    let (sample, path) = (sample(), output.to_string_lossy().into_owned());
    let said = trinity(["encode", &sample, "--bits", "3", "-o", &path, "--device", "cuda"]).refused();
    assert!(said.contains("trinity has no kernels") && said.contains("trinity-lite"), "{said}");
    assert!(!output.exists());
    let said = trinity(["compare", &sample, "--codecs", "h265,rtn", "--device", "cuda"]).refused();
    assert!(said.contains("h265, rtn have no kernels"), "{said}");
    let said = trinity(["eval", "--weights", "rtn@4", "--device", "cuda"]).refused();
    assert!(said.contains("rtn has no kernels"), "{said}");
    let said = trinity(["compare", &sample, "--ablate", "--device", "cuda"]).refused();
    assert!(said.contains("no kernels"), "{said}");
    let said = trinity(["encode", &sample, "--bits", "3", "--device", "tpu"]).refused();
    assert!(said.contains("cpu") && said.contains("auto"), "{said}");
}
