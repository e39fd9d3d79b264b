//! Every example of every `--help` is run as it stands there.
//!
//! Each runs in a folder of its own that holds the files examples speak of. One
//! that is still at work after some seconds has read its arguments and its
//! files, and is stopped; one that ends must have done what was asked.

use crate::support::{self, all, floats, pgm, trinity_in};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// How long an example may run before it is stopped; by default long enough to refuse what is wrong with it.
fn seconds() -> &'static str {
    if all() { "10" } else { "0.3" }
}

/// What cannot be run everywhere, and why.
const LEFT_OUT: [(&str, &str); 7] = [
    ("trinity measure", "it needs a GPU"),
    ("trinity validate --runs", "it needs recorded training runs"),
    ("trinity validate --serving", "it needs measured services"),
    ("trinity validate --kernels", "it needs tables of measured kernels"),
    ("trinity eval small.tri", "it needs what an example of `encode` writes"),
    ("trinity sweep bench", "it measures for as long as it is told to"),
    ("trinity web -o", "a build may be without the page as one file; see web.rs"),
];

/// Every example: the lines of a help text that begin with the command.
fn examples() -> Vec<String> {
    let mut found = Vec::new();
    for path in crate::help::commands() {
        let help = crate::help::help_of(&path);
        // Behind a gap stands what the example shows.
        let commands = help
            .lines()
            .filter_map(|line| line.strip_prefix("  ").filter(|line| line.starts_with("trinity ")))
            .map(|line| line.split("   ").next().unwrap_or_default().trim().to_string())
            .filter(|line| line.split(' ').nth(1).is_some_and(|word| !word.is_empty()));
        for command in commands {
            if !found.contains(&command) {
                found.push(command);
            }
        }
    }
    found
}

/// A safetensors file of f32 tensors with `columns` columns and as many rows.
fn safetensors(path: &Path, names: &[&str], columns: usize, scale: f32) {
    let value = |at: usize| ((at * 37 % 101) as f32 - 50.0) * scale;
    let (sides, size) = ([columns, columns], columns * columns);
    let tensors = names.iter().enumerate();
    let tensors = tensors.map(|(tensor, name)| floats(name, &sides, move |at| value(size * tensor + at)));
    support::safetensors(path, &tensors.collect::<Vec<_>>());
}

/// The files that examples speak of.
pub fn furnish(folder: &Path) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let at = |name: &str| folder.join(name);
    let run = |args: &str| drop(trinity_in(folder, args.split(' ')).ok());
    std::os::unix::fs::symlink(repository.join("validation").canonicalize().unwrap(), at("validation"))
        .unwrap();
    fs::create_dir(at("captured")).unwrap();
    fs::copy(repository.join("models/lm/data/tiny.safetensors"), at("small.safetensors")).unwrap();
    fs::copy(repository.join("models/lm/data/tiny.json"), at("small.json")).unwrap();
    fs::copy(repository.join("models/lm/data/eval.txt"), at("eval.txt")).unwrap();
    fs::copy(repository.join("validation/data/h200/runs.csv"), at("h200_runs.csv")).unwrap();
    fs::copy(repository.join("configs/profiles/trinity-static.toml"), at("my-design.toml")).unwrap();
    let trained = r#"{"seed": 1, "valid_bits_per_byte": 1.7, "bits_per_value": 1.4, "activation_bits": 0, "gradient_bits": 0,
        "encode_values_per_s": 2e9, "decode_values_per_s": 3e9, "choices": {"text": 0.5}}"#;
    fs::create_dir_all(at("runs/coded")).unwrap();
    fs::write(at("runs/coded/summary.json"), trained).unwrap();
    fs::write(at("requests.csv"), "arrival_s,prompt_tokens,output_tokens\n0,1000,200\n1.5,800,300\n")
        .unwrap();
    fs::write(at("my-cluster.toml"), "extends = \"clusters/rtx3090-cx5\"\n").unwrap();
    let study = "extends = \"sweeps/llama-7b\"\ntitle = \"mine\"\naxes = [{ path = \"job.parallelism.data\", values = [8, 16] }]\n[study.job.parallelism]\npipeline = 8\n";
    for name in ["my-study.toml", "big.toml", "study.toml"] {
        fs::write(at(name), study).unwrap();
    }
    let layers = ["layers.0.k_proj.weight", "layers.6.k_proj.weight"];
    for (name, scale) in
        [("model", 0.01), ("weights", 0.01), ("base", 0.01), ("tuned", 0.0101), ("captured/a", 0.02)]
    {
        safetensors(&at(&format!("{name}.safetensors")), &layers, 64, scale);
    }
    for name in ["monday", "kv"] {
        safetensors(&at(&format!("{name}.safetensors")), &["0.k_cache", "1.k_cache"], 64, 0.03);
    }
    let index = r#"{"weight_map":{"layers.0.k_proj.weight":"model.safetensors","layers.6.k_proj.weight":"model.safetensors"}}"#;
    fs::write(at("model.safetensors.index.json"), index).unwrap();
    safetensors(&at("one.safetensors"), &["kv"], 64, 0.05);
    run("encode one.safetensors --lossless -o one.tri");
    for name in ["kv.npy", "tuesday.npy"] {
        run(&format!("decode one.tri -o {name}"));
    }
    fs::write(at("scan.pgm"), pgm(64, 64, |at| (at * 7 % 251) as u8)).unwrap();
    run("encode scan.pgm --bits 2 -o photo.trp");
    run("decode photo.trp -o photo.png");
    fs::write(at("weights.gray"), vec![7; 1024 * 1024]).unwrap();
    fs::write(at("clip.yuv"), vec![1; 352 * 288 * 3]).unwrap();
    for standard in ["264", "265"] {
        run(&format!("h{standard} encode scan.pgm --qp 30 -o clip.{standard}"));
        let stream = fs::read(at(&format!("clip.{standard}"))).unwrap();
        let damaged = [&stream[..], &stream[..stream.len() / 2]].concat();
        fs::write(at(&format!("damaged.{standard}")), damaged).unwrap();
    }
    run("tensors basis monday.safetensors --tensor k_cache -o k.basis");
    fs::copy(at("k.basis"), at("kv.basis")).unwrap();
    run("encode tuesday.npy --bits 2.5 --basis k.basis -o tuesday.tri");
    fs::copy(at("tuesday.tri"), at("kv.tri")).unwrap();
    run("encode model.safetensors --bits 2.9 -o model.tri");
    run("delta make base.safetensors tuned.safetensors -o delta.tri");
    fs::copy(repository.join("models/tensor/tests/data/gguf_blocks.gguf"), at("smollm2.gguf")).unwrap();
    run("encode smollm2.gguf --lossless -o smollm2.tri");
    run("sweep big.toml --out out/big --shard 0/1 -q");
}

/// Examples that show a check which does not hold: exit 1.
const FAILS: [&str; 1] = ["trinity validate --set a100.gpu.gemm-efficiency=0.6"];

/// Where an example writes, so that nothing of that name is in its way.
fn outputs(example: &str) -> Vec<&str> {
    let words: Vec<&str> = example.split_whitespace().collect();
    let options = words.windows(2).filter(|pair| ["-o", "--out", "--trace"].contains(&pair[0]));
    options.map(|pair| pair[1].trim_end_matches('/')).filter(|name| *name != "out/big").collect()
}

#[test]
fn every_example_of_every_help_does_what_it_says() {
    let examples = examples();
    assert!(examples.len() > 40, "{examples:?}");
    let template = tempfile::tempdir().unwrap();
    furnish(template.path());
    let binary = Path::new(env!("CARGO_BIN_EXE_trinity")).parent().unwrap().display().to_string();
    let path = format!("{binary}:{}", env::var("PATH").unwrap_or_default());
    let mut wrong = Vec::new();
    for example in &examples {
        if let Some((_, why)) = LEFT_OUT.iter().find(|(prefix, _)| example.starts_with(prefix)) {
            eprintln!("SKIPPED: {example}: {why}");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let copied = Command::new("cp").arg("-a").arg(template.path()).arg(&home).status().unwrap();
        assert!(copied.success());
        fs::create_dir_all(home.join(".local/share/bash-completion/completions")).unwrap();
        for output in outputs(example) {
            let _ = fs::remove_file(home.join(output));
        }
        // What a reader of the output does with it is not ours to test.
        let command = example.split(" | ").next().unwrap_or_default();
        let fails = FAILS.iter().any(|prefix| example.starts_with(prefix));
        // What must fail is waited for, however busy the machine is.
        let run = Command::new("timeout")
            .args([if fails { "120" } else { seconds() }, "bash", "-c", command])
            .current_dir(&home)
            .env("PATH", &path)
            .env("HOME", &home)
            // Nobody wants a window of every run.
            .env_remove("BROWSER")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .output()
            .unwrap();
        let expected = if fails { [Some(1), Some(1)] } else { [Some(0), Some(124)] };
        if !expected.contains(&run.status.code()) {
            wrong.push(format!(
                "{example}: {:?}\n{}",
                run.status.code(),
                String::from_utf8_lossy(&run.stderr)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
