//! Every command, every input: none is lost to a result, whatever is forced.
//!
//! Each case runs once to see what it writes; then each input is put in the way
//! of a result under a second name, and must come through a forced run as it
//! was. The files that a configuration or a model leads to count as inputs. A
//! command or an option that no case has fails the test.

use crate::support::Desk;
use std::fs;
use std::path::{Path, PathBuf};

/// A command up to the name of its result, that name, and the files that it reads. A
/// result that is a folder has no ending.
type Case = (&'static str, &'static str, &'static str);

const CASES: [Case; 29] = [
    (
        "validate --runs published.csv --oom published.csv --collectives collectives.csv --host-runs h200_runs.csv \
         --recording recording.json --out",
        "r",
        "published.csv collectives.csv h200_runs.csv recording.json",
    ),
    ("validate --serving serving.csv --errors", "r.csv", "serving.csv"),
    (
        "explore five.safetensors --codecs line,uniform+ac=silicon.toml --study mine.toml --nmse 0.05 --draws 48 --cells 3 --out",
        "r",
        "five.safetensors silicon.toml mine.toml mine-base.toml",
    ),
    (
        "explore five.safetensors --codecs line --study mine.toml --nmse 0.05 --draws 48 --cells 3 --search --designs designs.toml --out e --save",
        "r.toml",
        "five.safetensors designs.toml mine-base.toml",
    ),
    ("sweep mine.toml --calibration summary.json --out", "r", "mine.toml mine-base.toml summary.json"),
    ("sweep mine.toml --shard 0/1 --out", "r", "mine.toml mine-base.toml"),
    ("sweep serving.toml --out", "r", "serving.toml trace.csv"),
    (
        "sweep merge out/big --out",
        "r",
        "big.toml out/big/shard-00000-of-00001.json out/big/shard-00000-of-00001.rows",
    ),
    ("sweep explain 0 mine.toml --calibration summary.json --trace", "r.json", "mine-base.toml summary.json"),
    ("sweep explain 0 mine.toml --report", "r.html", "mine.toml mine-base.toml"),
    ("figure 16b-bound --run --figures figures.toml --out", "r", "figures.toml"),
    ("measure --replay recording.json --out", "r", "recording.json"),
    (
        "compare kv.safetensors --codecs my-design.toml,rtn --bits 3 --wire 100Gbit/s --nic nic.toml --out",
        "r",
        "kv.safetensors my-design.toml nic.toml",
    ),
    (
        "compare model.safetensors.index.json --codecs rtn --bits 3 --out",
        "r",
        "model.safetensors.index.json model.safetensors",
    ),
    ("tensors info folder --out", "r", "folder/one.safetensors"),
    ("tensors basis monday.safetensors --tensor k_cache -o", "r.basis", "monday.safetensors"),
    (
        "eval small.safetensors --text eval.txt --weights my-design.toml@4 --windows 1 --out",
        "r",
        "small.safetensors small.json eval.txt my-design.toml",
    ),
    (
        "eval small --calibrate other.txt --weights rtn@4 --kv my-design.toml@4 --activations rtn@4 --windows 1 --out",
        "r",
        "small.safetensors small.json other.txt my-design.toml",
    ),
    ("eval --sweep 4 --codecs my-design.toml --windows 1 --out", "r", "my-design.toml"),
    ("encode tuesday.npy --bits 2.5 --basis k.basis -o", "r.tri", "tuesday.npy k.basis"),
    (
        "encode small.safetensors --bits 4 --codec rtn --calibrate other.txt -o",
        "r.tri",
        "small.safetensors small.json other.txt",
    ),
    ("encode kv.npy --bits 3 --codec my-design.toml -o", "r.tri", "kv.npy my-design.toml"),
    ("decode tuesday.tri --basis k.basis -o", "r.safetensors", "tuesday.tri k.basis"),
    (
        "delta make base.safetensors tuned.safetensors --codec my-design.toml --bits 3 -o",
        "r.tri",
        "base.safetensors tuned.safetensors my-design.toml",
    ),
    ("delta apply base.safetensors delta.tri -o", "r.safetensors", "base.safetensors delta.tri"),
    ("h264 encode scan.pgm --qp 30 -o s.264 --recon", "r.yuv", "scan.pgm"),
    ("h265 encode scan.pgm --qp 30 -o", "r.265", "scan.pgm"),
    ("h264 decode clip.264 -o", "r.yuv", "clip.264"),
    ("h265 decode clip.265 -o", "r.yuv", "clip.265"),
];

/// Cases that take minutes, for `cargo xtask test --all`.
const SLOW: [&str; 1] = ["eval small --calibrate"];

/// The files that cases speak of beyond those of examples.
fn furnish(folder: &Path) {
    crate::examples::furnish(folder);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let copy = |from: &str, to: &str| {
        fs::copy(repository.join(from), folder.join(to)).unwrap();
    };
    copy("validation/data/published_runs.csv", "published.csv");
    copy("validation/data/h200/recording.json", "recording.json");
    copy("study/data/tensors.safetensors", "five.safetensors");
    copy("configs/figures/llm265.toml", "figures.toml");
    fs::create_dir(folder.join("folder")).unwrap();
    fs::copy(folder.join("one.safetensors"), folder.join("folder/one.safetensors")).unwrap();
    fs::copy(folder.join("runs/coded/summary.json"), folder.join("summary.json")).unwrap();
    let text = fs::read(folder.join("eval.txt")).unwrap();
    fs::write(folder.join("other.txt"), &text[text.len() / 2..]).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let study = fs::read_to_string(folder.join("my-study.toml")).unwrap();
    write("mine-base.toml", &study);
    write("mine.toml", "extends = \"mine-base.toml\"\ntitle = \"mine\"\n");
    write("silicon.toml", "extends = \"codecs/three-in-one\"\n");
    write("nic.toml", "extends = \"nics/cx5\"\n");
    write(
        "designs.toml",
        "title = \"few\"\norientation = [\"rows\"]\npreconditioning = [\"none\"]\ntransform = [\"none\"]\nprediction = [\"none\"]\nquantization = [\"dead-zone\"]\nentropy = [\"adaptive\"]\ntile-values = [16384]\nsegment = [256]\n",
    );
    write(
        "collectives.csv",
        "source,gpu,fabric,op,n_gpus,gpus_per_node,bytes,time_us,algbw_GBps,busbw_GBps,notes\nvTrain-LUT,A100,NVSwitch node (8 GPU),all_reduce,2,2,1048576,44.21,23.718,23.718,\n",
    );
    write(
        "serving.csv",
        "id,backend,backend_version,model,model_family,system,mode,isl,osl,concurrency,precision_eff,tp_fix,dp_fix,moe_ep_fix,ttft_ms,tpot_ms,usable\na,vllm,0.12.0,x,Qwen3-32B,h100_sxm,agg,1024,512,32,bf16,2,1,,242,21,1\n",
    );
    let drawn = ", { path = \"serving.prompt.median\", values = [500, 1000] }";
    let serving = crate::serving::STUDY.replace("rate = 2\nrequests = 400\n", "trace = \"trace.csv\"\n");
    let serving = serving.replace(drawn, "");
    write("serving.toml", serving.split("prompt = {").next().unwrap());
    let arrivals: String = (0..50).map(|at| format!("{},{},{}\n", f64::from(at) * 0.5, 500, 100)).collect();
    write("trace.csv", &format!("arrival_s,prompt_tokens,output_tokens\n{arrivals}"));
}

/// The files of a folder of results.
fn written(result: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(result).into_iter().flatten().map(|file| file.unwrap().file_name());
    let mut names: Vec<PathBuf> = names.filter(|name| name != ".trinity-run").map(PathBuf::from).collect();
    names.sort();
    names
}

#[test]
fn every_input_of_every_command_outlives_a_forced_run() {
    let desk = Desk::new();
    furnish(desk.path());
    let mut wrong = Vec::new();
    let all = std::env::var_os("TRINITY_TEST_ALL").is_some();
    for (command, name, inputs) in CASES {
        if !all && SLOW.iter().any(|slow| command.starts_with(slow)) {
            continue;
        }
        let run = || desk.run(format!("{command} {name} -q --force"));
        let inputs: Vec<&str> = inputs.split(' ').collect();
        let result = desk.at(name);
        let is_file = result.extension().is_some();
        let files = if is_file {
            vec![PathBuf::new()]
        } else {
            let first = run();
            // What was validated may not hold; it is written all the same.
            if !(first.code() == 0 || command.starts_with("validate")) {
                wrong.push(format!("{command} does not run: {}", first.stderr()));
                continue;
            }
            written(&result)
        };
        assert!(!files.is_empty(), "{command} writes nothing");
        // By default each command is tried with its first input in the way of its first file.
        let tries = if all { inputs.len().max(files.len()) } else { 1 };
        for at in 0..tries {
            let (input, file) = (inputs[at % inputs.len()], &files[at % files.len()]);
            let _ = fs::remove_dir_all(&result);
            let _ = fs::remove_file(&result);
            let place = if is_file { result.clone() } else { result.join(file) };
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            let before = desk.read(input);
            // A link leads to the input itself, so that what replaces the one replaces the other.
            std::os::unix::fs::symlink(desk.at(input), &place).unwrap();
            let forced = run();
            let said = format!("{command} with {input} in the way of {}", file.display());
            let replaced = desk.read(input) != before;
            if replaced {
                desk.write(input, &before);
                wrong.push(format!("{said}: the input is gone"));
            }
            let refused = forced.stderr().contains("input of this very command");
            // Where a file already holds what would be written, nothing needs to be refused.
            let same = forced.code() == 0 && !replaced;
            if !refused && !same && !replaced {
                wrong.push(format!("{said}: exit {}: {}", forced.code(), forced.stderr()));
            }
        }
        let _ = fs::remove_dir_all(&result);
        let _ = fs::remove_file(&result);
        let _ = fs::remove_dir_all(desk.at("e"));
        let _ = fs::remove_file(desk.at("s.264"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What options and arguments call a file that they take.
const FILES: &str = "FILE CSV RECORDING.json TENSORS SWEEP DESIGNS NIC CODEC CODECS CODEC@BITS CODEC,… BASE";
/// Options that take a name of those, and no file.
const NO_FILES: [&str; 1] = ["--anchor"];

/// The options of a help text that name files, results apart.
fn options(help: &str) -> Vec<String> {
    let results = ["--output", "--out", "--recon", "--save", "--trace", "--report", "--record"];
    let mut found = Vec::new();
    for line in help.lines().map(str::trim).filter(|line| line.starts_with('-')) {
        let mut words = line.split_whitespace().filter(|word| !word.ends_with(','));
        let (Some(option), Some(value)) = (words.next(), words.next()) else { continue };
        let value = value.trim_matches(['<', '>', '[', ']', '.']);
        if FILES.split(' ').any(|name| name == value)
            && !results.contains(&option)
            && !NO_FILES.contains(&option)
        {
            found.push(option.to_owned());
        }
    }
    found
}

#[test]
fn every_command_that_writes_is_among_the_cases_with_all_its_inputs() {
    let mut missing = Vec::new();
    for path in crate::help::commands().iter().filter(|path| !path.is_empty()) {
        let (help, name) = (crate::help::help_of(path), path.join(" "));
        let writes =
            ["--out <", "--output <", "--save <", "--trace <"].iter().any(|option| help.contains(option));
        // What reads nothing has nothing to lose, and the trace of `serve play` is read.
        if !writes || ["man", "web", "config schema", "serve codec", "serve play"].contains(&name.as_str()) {
            continue;
        }
        let own: Vec<&Case> = CASES.iter().filter(|case| case.0.starts_with(&name)).collect();
        if own.is_empty() {
            missing.push(name.clone());
        }
        for option in options(&help) {
            if !own.iter().any(|case| case.0.split_whitespace().any(|word| word == option)) {
                missing.push(format!("{name} {option}"));
            }
        }
    }
    assert!(missing.is_empty(), "no case for {missing:?}");
}
