//! `trinity explore` as a user meets it.

use crate::support::{Desk, trinity};
use std::fs;

/// The paper's own setting.
const PAPER: &str = "sweeps/llama-7b";
/// Few draws and cells, in seconds.
const QUICK: &str = "explore --draws 48 --cells 3";
/// A K cache that is spilled, coded by the line codec.
const SPILLED: &str = "--tensor k_cache --study sweeps/kv-spill --codecs line";
const TENSORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../study/data/tensors.safetensors");

#[test]
fn an_exploration_runs_again_as_a_sweep_and_goes_on_where_it_was() {
    let desk = Desk::new();
    let line = format!("{QUICK} --study {PAPER} --codecs three-in-one,line --out e --json -q");
    let first = desk.ok(&line);
    let found: serde_json::Value = serde_json::from_str(&first).unwrap();
    let best = &found["standings"][0];
    // Distributions are among what is printed.
    let odds = &found["odds"];
    let quantiles = odds["quantiles"].as_array().unwrap();
    assert!(quantiles.len() == 21 && odds["draws"] == 48, "{odds}");
    assert_eq!(quantiles[10], odds["gain"]["median"]);
    assert!(found["regime"]["marks"].as_array().unwrap().len() >= 8 && desk.at("e/map.svg").is_file());
    let swept = desk.json("sweep e/study.toml --out s --points none --json -q");
    assert_eq!(swept["top"][0]["index"], best["best"]["index"]);
    assert_eq!(swept["top"][0]["tokens_per_s"], best["value"]);
    // Bits are not measured again, and nothing else changes.
    let rows = desk.read("e/bits.csv");
    assert_eq!(desk.ok(&line), first);
    assert_eq!(desk.read("e/bits.csv"), rows);
    // Other work is not written over.
    let other = desk.refused(format!("{QUICK} --codecs line --study sweeps/kv-spill --out e"));
    assert!(other.contains("holds the results of"), "{other}");
}

#[test]
#[ignore = "takes long: cargo xtask test --all"]
fn a_loss_is_measured_once_and_kept() {
    let desk = Desk::new();
    let explored =
        |loss: &str| desk.ok(format!("{QUICK} {TENSORS} {SPILLED} --loss {loss} --out e --json -q"));
    let first = explored("0.05");
    let rows = desk.text("e/loss.csv");
    let found: serde_json::Value = serde_json::from_str(&first).unwrap();
    let quality = found["quality"].as_str().unwrap();
    assert!(quality.starts_with("a loss of 0.05 bits/byte: kv-cache at NMSE 0.0"), "{quality}");
    // What was asked for is met, by the last of the runs that are within.
    let lost: Vec<f64> =
        rows.lines().skip(1).map(|row| row.split(',').nth(2).unwrap().parse().unwrap()).collect();
    assert!(lost.iter().any(|lost| (0.0..=0.05).contains(lost)), "{rows}");
    assert_eq!(explored("0.05"), first);
    assert_eq!(desk.text("e/loss.csv"), rows, "measured again");
    let both = desk.refused("explore --loss 0.1 --nmse 0.1");
    assert!(both.contains("--nmse"), "{both}");
}

#[test]
fn a_workload_is_held_and_moves_as_the_answer_says() {
    let desk = Desk::new();
    let held = |more: &str| -> (serde_json::Value, String) {
        let found = desk.json(format!("{QUICK} {TENSORS} {SPILLED} --json -q {more}"));
        let said: Vec<&str> =
            found["answer"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        (found["held"].clone(), said.join(" "))
    };
    let (first, said) = held("--out a");
    let (spill, length) = (&first[0], &first[1]);
    assert_eq!((&spill["path"], &spill["value"]), (&"job.kv-spill".into(), &1.0.into()));
    assert_eq!((&length["path"], &length["value"]), (&"job.sequence".into(), &65536.0.into()));
    assert!(said.contains("`--set study.job.kv-spill=…`"), "{said}");
    let (moved, _) = held("--set study.job.kv-spill=0.5 --out b");
    assert_eq!(moved[0]["value"], 0.5);
}

#[test]
fn what_cannot_be_explored_is_said_in_a_sentence_that_helps() {
    let desk = Desk::new();
    let fails = |line: &str| {
        let study = if line.contains("--study") { String::new() } else { format!("--study {PAPER}") };
        desk.refused(format!("{QUICK} {line} {study}"))
    };
    let nothing = fails("--codecs line --nmse 0.9 --out n");
    assert!(nothing.contains("nothing is learned"), "{nothing}");
    let few = desk.refused("explore --draws 3");
    assert!(few.contains("3 draws say nothing of odds"), "{few}");
    let ranged = |text: &str| {
        let head = "extends = \"sweeps/llama-7b\"\n[[assumptions]]\nname = \"goodput\"\npath = \"cluster.network.efficiency\"\n";
        desk.write("mine.toml", format!("{head}{text}"));
        fails("--codecs line --study mine.toml --out r")
    };
    let turned = ranged("low = 0.9\nhigh = 0.6\n");
    assert!(turned.contains("a range turned around") && turned.contains("mine.toml:5"), "{turned}");
    let same = ranged("low = 0.9\nhigh = 0.9\n");
    assert!(same.contains("an assumption without a range"), "{same}");
    let none = ranged("low = 0.9\n");
    assert!(none.contains("high"), "{none}");
    let small = fails("--codecs line --budget '300 mm2'");
    assert!(small.contains("nothing fits into 300 mm²") && small.contains("--budget of"), "{small}");
    let unpriced = fails("--codecs nf4 --out b");
    assert!(unpriced.contains("nothing is known of the silicon of `nf4`"), "{unpriced}");
    let unreached = fails("--codecs line --bits 0.001 --out c");
    assert!(unreached.contains("no codec reaches 0.001 bits/value"), "{unreached}");
    let one_class = fails("--codecs line --study sweeps/kv-spill --set study.nonsense=1 --out d");
    assert!(one_class.contains("nonsense"), "{one_class}");
}

/// A design space of eight, so that a search takes a moment.
const FEW: &str = r#"
title = "few"
orientation = ["rows"]
preconditioning = ["none"]
transform = ["none", "dct-32"]
prediction = ["none"]
quantization = ["dead-zone", "trellis-4"]
entropy = ["static", "adaptive"]
tile-values = [16384]
segment = [1024]
"#;

#[test]
fn a_search_is_the_same_for_any_number_of_threads_and_its_winner_encodes() {
    let desk = Desk::new();
    desk.write("few.toml", FEW);
    let search = |out: &str, threads: &str, save: &str| {
        let searched = format!("--search --designs few.toml --codecs line --save {save} --study {PAPER}");
        desk.ok(format!("{QUICK} {searched} --out {out} --threads {threads} --json -q"))
    };
    let first = search("a", "1", "one.toml");
    let second = search("b", "2", "two.toml");
    // Paths of profiles differ with the folder; nothing else does.
    assert_eq!(first.replace("a/design", "b/design"), second);
    let designs = |out: &str| desk.text(format!("{out}/designs.csv"));
    assert_eq!(designs("a"), designs("b"));
    assert_eq!(designs("a").lines().filter(|line| line.contains(",2048,")).count(), 8);
    let profile = desk.read("one.toml");
    assert_eq!(profile, desk.read("two.toml"));
    desk.ok(format!("encode {TENSORS} --codec one.toml --bits 4 -o t.tri"));
    let refused = desk.refused("explore --search --bits 3");
    assert!(refused.contains("--bits"), "{refused}");
}

#[test]
fn how_sure_an_answer_is_said_to_be_is_what_validate_finds() {
    let table = trinity(["validate"]).stdout();
    for link in trinity_study::explore::choices(trinity_study::explore::EXPLORATION).unwrap().certainty {
        let line = table
            .lines()
            .find_map(|line| line.strip_prefix(&link.set))
            .unwrap_or_else(|| panic!("{}", link.set));
        let mean: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!((mean / 100.0 - link.error).abs() < 0.01, "{}: {mean} % and {}", link.set, link.error);
    }
}

#[test]
fn the_codec_on_sms_is_what_was_recorded() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../validation/data/h200/line.json");
    let recorded: serde_json::Value = serde_json::from_str(&fs::read_to_string(recorded).unwrap()).unwrap();
    let speed = recorded["speeds"]
        .as_array()
        .unwrap()
        .iter()
        .find(|speed| speed["what"] == "trinity-lite, 8 states" && speed["multiprocessors"] == 16);
    let speed = speed.unwrap();
    let energy = |what: &str| {
        let found =
            recorded["energy"].as_array().unwrap().iter().find(|energy| energy["what"] == what).unwrap();
        let of = |key: &str| found[key].as_f64().unwrap();
        (of("busy_w") - of("idle_w")) / (of("gb_per_s") * 8.0)
    };
    let document = trinity_config::Document::load("codecs/line-h200").unwrap();
    let codec: trinity_study::config::CodecFile = document.read().unwrap();
    for (block, time, what) in
        [(&codec.encoder, "encode_s", "encode, 8 states"), (&codec.decoder, "decode_s", "decode, 8 states")]
    {
        let cost = block.cost();
        let gbps = speed["input_bytes"].as_f64().unwrap() * 8e-9 / speed[time].as_f64().unwrap() / 16.0;
        assert!((cost.throughput_gbps / gbps - 1.0).abs() < 1e-3, "{what}: {gbps} Gbit/s");
        let nj_per_bit = cost.power_w / cost.throughput_gbps;
        assert!((nj_per_bit / energy(what) - 1.0).abs() < 1e-2, "{what}: {} nJ a bit", energy(what));
    }
}
