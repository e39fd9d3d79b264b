//! Results follow from what was asked, and say so where they do not.

use crate::support::{self, Desk, floats, npy, pgm};
use std::{fs, path::Path, process::Command};

/// An f32 npy of `rows` by 64 values that `value` gives.
fn matrix(path: &Path, rows: usize, value: impl Fn(usize) -> f32) {
    npy(path, (rows, 64), value);
}

/// Numbers that look random and are the same every time.
fn noise(at: usize) -> f32 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 40) as f32 / (1 << 24) as f32 - 0.5) * (1.0 + (at % 7) as f32)
}

#[test]
fn a_comparison_goes_on_only_with_what_follows_from_the_same_file() {
    let desk = Desk::new();
    matrix(&desk.at("a/m.npy"), 32, noise);
    matrix(&desk.at("b/m.npy"), 32, |at| noise(at + 7919).powi(3));
    let compare = |file: &str, out: &str| {
        desk.json(format!("compare {file} --codecs rtn,uniform+ac --bits 3 --out {out} --force --json"))
    };
    let (first, second) = (compare("a/m.npy", "c"), compare("b/m.npy", "c"));
    assert_ne!(first[0]["nmse"], second[0]["nmse"], "the second prints the first one's numbers");
    assert_eq!(second[0]["nmse"], compare("b/m.npy", "alone")[0]["nmse"]);
    assert_eq!(second[0]["file"], "b/m.npy");
    // What is the same is not computed again, also under another name.
    fs::copy(desk.at("b/m.npy"), desk.at("b/same.npy")).unwrap();
    let again = compare("b/same.npy", "c");
    assert_eq!(again[0]["encode_mb_s"], second[0]["encode_mb_s"]);
    assert_eq!((&again[0]["file"], &again[0]["tensor"]), (&"b/same.npy".into(), &"same".into()));
}

#[test]
fn a_codec_profile_that_changed_is_another_codec() {
    let desk = Desk::new();
    matrix(&desk.at("m.npy"), 32, noise);
    let profile =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/profiles/trinity-static.toml"));
    desk.write("mine.toml", profile.unwrap());
    let key = || desk.json("compare m.npy --codecs mine.toml --bits 3 --out c --json")[0]["key"].clone();
    let before = key();
    assert_eq!(before, key());
    desk.write("mine.toml", desk.text("mine.toml") + "\n# another\n");
    assert_ne!(before, key());
}

#[test]
fn targets_that_are_not_met_are_rows_with_a_reason() {
    let desk = Desk::new();
    matrix(&desk.at("m.npy"), 1, noise);
    let rows = desk.json("compare m.npy --codecs h265,rtn --bits 0.01 --out c --json");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4, "two codecs and two references: {rows:?}");
    assert!(rows[0]["missed"].is_string() && rows[0]["nmse"].is_null(), "{}", rows[0]);
    assert_eq!(rows[0]["obstacle"], "rate");
    let csv = desk.text("c/compare.csv");
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let keys: Vec<&String> = rows[0].as_object().unwrap().keys().collect();
    assert_eq!(header, keys, "the columns are the keys of the JSON");
    assert_eq!(csv.lines().count(), 5, "{csv}");
}

#[test]
fn an_empty_choice_of_tensors_says_why() {
    let desk = Desk::new();
    matrix(&desk.at("weights.npy"), 2, noise);
    let stderr = desk.refused("compare weights.npy --tensor wieghts");
    assert!(stderr.contains("no tensor's name contains") && stderr.contains("`weights`"), "{stderr}");
    matrix(&desk.at("empty.npy"), 0, noise);
    let stderr = desk.refused("compare empty.npy");
    assert!(stderr.contains("empty [0, 64]"), "{stderr}");
}

#[test]
fn a_misspelt_codec_gets_the_nearest_right_one() {
    let desk = Desk::new();
    matrix(&desk.at("m.npy"), 2, noise);
    for (wrong, right) in [
        ("trinty", "trinity"),
        ("hadamard/h256", "hadamard/h265"),
        ("int+huffmann", "int+huffman"),
        ("gptq-128", "gptq-128g"),
        ("q4k", "q4_k"),
    ] {
        for line in ["compare m.npy --codecs", "encode m.npy --bits 3 --codec"] {
            let stderr = desk.refused(format!("{line} {wrong}"));
            assert!(stderr.contains(&format!("did you mean `{right}`?")), "{stderr}");
        }
    }
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let desk = Desk::new();
    assert!(Command::new("mkfifo").arg(desk.at("pipe")).status().unwrap().success());
    for line in ["tensors info pipe", "compare pipe", "encode pipe --bits 3"] {
        let run = Command::new("timeout")
            .args(["20", env!("CARGO_BIN_EXE_trinity")])
            .args(line.split(' '))
            .current_dir(desk.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("pipe or a device"), "{line}: {said}");
    }
}

#[test]
fn a_sweep_that_would_not_end_asks_first() {
    let desk = Desk::new();
    let plain = "
title = \"huge\"
scenarios = [{ name = \"plain\" }]
study = { cluster = { extends = \"clusters/rtx3090-cx5\" }, job = { phase = \"training\", sequence = 2048, llm = { extends = \"llms/llama-2-7b\" } } }
axes = [{ path = \"job.parallelism.data\" }, { path = \"job.global-batch\" }, { path = \"job.sequence\" }, { path = \"job.microbatch\" }]
";
    let mut text = plain.to_string();
    for path in ["job.parallelism.data", "job.global-batch", "job.sequence", "job.microbatch"] {
        let values = (1..=600).map(|value| value.to_string()).collect::<Vec<_>>().join(", ");
        text = text.replace(&format!("\"{path}\" }}"), &format!("\"{path}\", values = [{values}] }}"));
    }
    desk.write("huge.toml", text);
    let stderr = desk.refused("sweep huge.toml --points none");
    for part in ["129,600,000,000 points", "about", "--yes", "--shard"] {
        assert!(stderr.contains(part), "{part} is missing: {stderr}");
    }
    assert!(!desk.at("out").exists());
}

#[test]
fn a_codec_without_compression_is_warned_of_and_the_papers_column_stays_the_papers() {
    let desk = Desk::new();
    let text = "
extends = \"sweeps/llama-7b\"
title = \"mine\"
axes = [{ path = \"job.parallelism.data\", values = [2, 4, 8] }, { path = \"job.parallelism.pipeline\", values = [8] }]
";
    desk.write("mine.toml", text);
    let run = desk.run("sweep mine.toml --points none");
    let stdout = run.ok();
    assert!(stdout.contains("headline") && !stdout.contains("paper"), "{stdout}");
    let bare = text.replace("extends = \"sweeps/llama-7b\"\n", "")
        + "[[scenarios]]\nname = \"plain\"\n[[scenarios]]\nname = \"coded\"\nset = [\"cluster.codec.extends=codecs/three-in-one\"]\n[study]\ncluster = { extends = \"clusters/rtx3090-cx5\" }\n[study.job]\nphase = \"training\"\nsequence = 2048\nreplica-batch = 4\nrecompute = \"full\"\nllm = { extends = \"llms/llama-2-7b\" }\nparallelism = { zero = 1 }\n";
    desk.write("bare.toml", bare);
    let run = desk.run("sweep bare.toml --json --out bare");
    let result = run.json();
    for said in [run.stderr(), result["warnings"][0].to_string()] {
        assert!(said.contains("`coded`") && said.contains("job.compression.weight-gradients"), "{said}");
    }
    // Axis values are what they are.
    assert_eq!(result["top"][0]["job.parallelism.pipeline"], 8);
}

#[test]
fn a_sweep_goes_on_only_with_what_its_files_still_say() {
    let desk = Desk::new();
    let gpu = |power: &str| {
        let text = format!("extends = \"gpus/h100\"\npower = \"{power} W\"\n");
        desk.write("mine.toml", text);
    };
    let text = "
title = \"files\"
axes = [{ path = \"cluster.gpu.extends\", values = [\"mine.toml\"] }, { path = \"job.parallelism.data\", values = [8, 16] }]
scenarios = [{ name = \"plain\" }]
[study]
cluster = { extends = \"clusters/rtx3090-cx5\" }
job = { phase = \"training\", sequence = 2048, replica-batch = 4, recompute = \"full\", llm = { extends = \"llms/llama-2-7b\" } }
";
    desk.write("study.toml", text);
    let shard = || desk.run("sweep study.toml --out out --shard 0/1");
    gpu("350");
    assert!(!shard().stderr().contains("going on"));
    assert!(shard().stderr().contains("going on"));
    gpu("700");
    let stderr = shard().stderr();
    assert!(!stderr.contains("going on"), "the label is the same, what it names is not: {stderr}");
}

#[test]
fn errors_are_one_object_with_json() {
    let desk = Desk::new();
    desk.write("bad.toml", "title = 1\ncolour = 2\n");
    let object = |line: &str| -> serde_json::Value {
        let run = desk.run(format!("{line} --json"));
        let said = run.refused();
        assert_eq!(run.stdout(), "", "{line}");
        let object: serde_json::Value =
            serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}"));
        for key in ["error", "place", "help"] {
            assert!(object.get(key).is_some(), "{line}: {key} is missing: {object}");
        }
        object
    };
    let config = object("config check bad.toml --kind sweeps");
    assert_eq!(config["place"]["file"], "bad.toml");
    assert!(config["others"].as_array().unwrap().len() >= 2, "{config}");
    let misused = object("sweep --no-such-option");
    assert!(misused["error"].as_str().unwrap().contains("--no-such-option"), "{misused}");
    for command in [
        "tensors info none.npy",
        "compare none.npy",
        "encode none.npy --bits 3",
        "decode none.tri",
        "delta apply none.npy none.tri -o x",
        "eval none.json",
        "h264 info none.264",
        "h265 info none.265",
        "sweep none.toml",
        "sweep explain 0 none.toml",
        "sweep merge none",
        "config show none",
    ] {
        object(command);
    }
}

#[test]
fn memory_that_runs_out_is_a_failed_run() {
    let desk = Desk::new();
    matrix(&desk.at("m.npy"), 1 << 15, noise);
    let limited = |kilobytes: u32, args: &str| {
        let script = format!("ulimit -v {kilobytes}; exec {} {args}", env!("CARGO_BIN_EXE_trinity"));
        Command::new("bash").args(["-c", &script]).current_dir(desk.path()).output().unwrap()
    };
    let compare = "compare m.npy --codecs uniform+ac,rtn --bits 3 --threads 2 -q";
    // The command itself is mapped, too, which takes more where it is not optimized.
    let own = fs::metadata(env!("CARGO_BIN_EXE_trinity")).unwrap().len() / 1000;
    for kilobytes in [30_000, 40_000, 60_000, 100_000].map(|beyond| own as u32 + beyond) {
        let run = limited(kilobytes, compare);
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert!(matches!(run.status.code(), Some(0 | 1)), "{kilobytes} kB: {:?}, {stderr}", run.status);
        assert!(run.status.success() || stderr.contains("memory") || stderr.contains("threads"), "{stderr}");
    }
}

/// A safetensors file of so many tensors of two million f32 values, one slab each.
fn safetensors(path: &Path, tensors: usize) {
    let names: Vec<String> = (0..tensors).map(|at| format!("t{at}")).collect();
    let own = names
        .iter()
        .enumerate()
        .map(|(tensor, name)| floats(name, &[1024, 2048], move |at| noise(at + 7919 * tensor)));
    support::safetensors(path, &own.collect::<Vec<_>>());
}

#[test]
fn memory_does_not_grow_with_the_file() {
    // What a child took at most is the operating system's to say, and Python's to ask for.
    if !Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success()) {
        eprintln!("SKIPPED: no python3 to read a child's peak memory with");
        return;
    }
    let desk = Desk::new();
    let peak_kib = |tensors: usize| -> u64 {
        safetensors(&desk.at("m.safetensors"), tensors);
        let script = format!(
            "import resource, subprocess\n\
             args = 'compare m.safetensors --codecs rtn --bits 4 --threads 1 -q'.split()\n\
             subprocess.run(['{}', *args], check=True, stdout=subprocess.DEVNULL)\n\
             print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)",
            env!("CARGO_BIN_EXE_trinity")
        );
        let run = Command::new("python3").args(["-c", &script]).current_dir(desk.path()).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        said.trim().parse().unwrap_or_else(|_| panic!("{said} {}", String::from_utf8_lossy(&run.stderr)))
    };
    // 16 MiB and 64 MiB: three times the larger would not fit into what is allowed here.
    let (small, large) = (peak_kib(2), peak_kib(8));
    assert!(large < small + 16 * 1024, "{small} KiB for 2 slabs, {large} KiB for 8");
}

#[test]
fn a_stream_of_the_other_standard_is_named() {
    let desk = Desk::new();
    desk.write("p.pgm", pgm(16, 16, |at| at as u8));
    for (own, other) in [("h264", "h265"), ("h265", "h264")] {
        desk.ok(format!("{own} encode p.pgm --qp 30 -o {own}"));
        for line in [format!("{other} info {own}"), format!("{other} decode {own} --md5")] {
            let stderr = desk.refused(line);
            assert!(stderr.contains(&format!("trinity {own} reads it")), "{stderr}");
        }
    }
}

#[test]
fn a_delta_is_named_where_tensors_are_wanted() {
    let desk = Desk::new();
    matrix(&desk.at("a/m.npy"), 4, noise);
    matrix(&desk.at("b/m.npy"), 4, |at| noise(at) * 1.01);
    matrix(&desk.at("other.npy"), 4, noise);
    desk.ok("delta make a/m.npy b/m.npy -o d.tri");
    for line in ["decode d.tri", "tensors info d.tri", "compare d.tri"] {
        let stderr = desk.refused(line);
        assert!(stderr.contains("delta apply") && !stderr.contains("uniform+ac"), "{stderr}");
    }
    let stderr = desk.refused("delta apply other.npy d.tri -o x.safetensors");
    assert!(stderr.contains("other.npy: no tensor `m`"), "the base lacks it: {stderr}");
}

#[test]
fn a_tensor_that_is_not_finite_is_left_out_by_name() {
    let desk = Desk::new();
    matrix(&desk.at("good.npy"), 8, noise);
    matrix(&desk.at("bad.npy"), 8, |at| if at == 77 { f32::NAN } else { noise(at) });
    let compare = "compare good.npy bad.npy --codecs rtn --bits 4";
    let run = desk.run(compare);
    run.ok();
    assert!(run.stderr().contains("`bad`: value 77 is NaN"), "{}", run.stderr());
    let encode = "encode bad.npy --bits 4 -o bad.tri";
    for line in [compare, encode] {
        assert!(desk.refused(format!("{line} --strict")).contains("value 77"));
    }
    let stdout = desk.ok(encode);
    assert!(stdout.contains("value 77 is NaN") && stdout.contains("every value as it was"), "{stdout}");
    let stdout = desk.ok("encode good.npy --bits 4 -o good.tri");
    assert!(stdout.contains("SNR") && stdout.contains("worst is `good`"), "{stdout}");
}

#[test]
fn ctrl_c_says_where_the_work_goes_on() {
    let desk = Desk::new();
    let mut running = desk
        .command("sweep sweeps/llama-7b-wide --points none --threads 1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let state = desk.at("out/sweep/llama-7b-wide/shard-00000-of-00001.json");
    while !state.exists() && running.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("goes on where this one is"), "{stderr}");
}
