//! `trinity eval` as a user meets it.

use crate::support::{Desk, all};
use serde_json::Value;

fn json(desk: &Desk, more: &str) -> Value {
    desk.json(format!("eval --json --windows 1 {more}"))
}

#[test]
fn the_built_in_model_is_scored_with_codecs_in_all_three_places() {
    let row = json(&Desk::new(), "--weights rtn@8 --kv rtn@8 --activations rtn@8 --stages 2");
    let kept = "bits_per_byte delta_bits_per_byte delta_ci95 kl_nats kl_nats_p99 top1_agreement \
                weights_bits_per_value kv_bits_per_value activations_bits_per_value";
    for key in kept.split_whitespace() {
        assert!(row[key].is_number(), "{key}: {row}");
    }
    assert!(row["delta_bits_per_byte"].as_f64().unwrap().abs() < 0.05, "{row}");
}

#[test]
fn several_codings_are_a_table_each_by_itself() {
    let rows = json(&Desk::new(), "--kv rtn@3,rtn@8 --activations rtn@4");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4, "{rows:?}");
    let lost = |row: usize| rows[row]["delta_bits_per_byte"].as_f64().unwrap();
    assert!(lost(0) == 0.0 && lost(1) > lost(2) && rows[3]["kv"].is_null());
}

#[test]
fn a_sweep_draws_a_curve_a_codec_and_says_where_the_paper_is_contradicted() {
    let desk = Desk::new();
    // Finding the best baseline codes by all of them.
    let all = all();
    let codecs =
        if all { "rtn,mxfp4,nf4,uniform+ac,hadamard/rtn,best-baseline" } else { "rtn,mxfp4,nf4,uniform+ac" };
    let sweep = || json(&desk, &format!("--sweep 3,4 --codecs {codecs} --out ."));
    let rows = sweep();
    let names: Vec<&str> =
        rows.as_array().unwrap().iter().filter_map(|row| row["weights"].as_str()).collect();
    // MXFP4 and NF4 have a rate of their own and are shown there: the file's, and as published.
    let always = ["rtn@3", "rtn@4", "mxfp4@4.26", "nf4@4.25", "uniform+ac@3", "uniform+ac@4"];
    let slow = ["hadamard/rtn@3", "hadamard/rtn@4", "best-baseline@3", "best-baseline@4"];
    let expected: Vec<&str> = always.into_iter().chain(slow.into_iter().filter(|_| all)).collect();
    assert_eq!(names, expected);
    if all {
        let best = rows.as_array().unwrap().iter().find(|row| row["weights"] == "best-baseline@4").unwrap();
        assert!(best["codec"].as_str().unwrap().contains('+'), "{best}");
    }
    let csv = desk.text("eval.csv");
    assert_eq!(csv.lines().count(), expected.len() + 2);
    // A run that was stopped keeps its points; one that was changed is noticed, and made again.
    let column = csv.lines().next().unwrap().split(',').position(|name| name == "bits_per_byte").unwrap();
    let mark = csv.lines().nth(2).unwrap().split(',').nth(column).unwrap();
    let doctored = csv.lines().map(|line| {
        let mut fields: Vec<&str> = line.split(',').collect();
        if fields.contains(&"rtn@4") {
            fields[column] = mark;
        }
        fields.join(",") + "\n"
    });
    desk.write("eval.csv", doctored.collect::<String>());
    let resumed = sweep();
    let at = |rows: &Value, row: usize| rows[row]["bits_per_byte"].as_f64().unwrap();
    assert_eq!(at(&resumed, 2), at(&rows, 2), "the point that was changed in the file");
    assert_eq!(at(&resumed, expected.len()), at(&rows, expected.len()));
    assert!(desk.text("report.html").contains("Held against the paper"));
}

#[test]
fn a_point_is_resumed_only_where_it_follows_from_the_same() {
    let desk = Desk::new();
    desk.write("text.txt", "The quick brown fox jumps over the lazy dog. ".repeat(8));
    desk.write("other.txt", "A lazy dog sleeps while the brown fox is quick. ".repeat(8));
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/profiles/trinity-static.toml");
    std::fs::copy(built_in, desk.at("mine.toml")).unwrap();
    let key = |line: &str| json(&desk, &format!("--text {line}"))["key"].as_str().unwrap().to_owned();
    let mine = "text.txt --weights ./mine.toml@4";
    let before = key(mine);
    assert_eq!(before, key(mine));
    let lines = [
        "other.txt --weights ./mine.toml@4",
        "text.txt --weights rtn@4",
        "text.txt --weights rtn@5",
        "text.txt --weights rtn@4 --kv rtn@8",
        "text.txt --weights uniform+ac@4",
        "text.txt --weights uniform+ac@4 --allocation linear",
    ];
    let mut keys: Vec<String> = lines.map(key).into_iter().chain([before]).collect();
    // The codec keeps its name; what it is made of is another profile.
    desk.write("mine.toml", desk.text("mine.toml") + "\n# another\n");
    keys.push(key(mine));
    let all = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all, "rows that follow from different things share a key");
    // And a sweep takes no point of another text's, though it stands in the same folder.
    let sweep = |text: &str| {
        json(&desk, &format!("--text {text} --sweep 4 --codecs rtn --out curve --force"))[1].clone()
    };
    let (first, second) = (sweep("text.txt"), sweep("other.txt"));
    assert_ne!(first["bits_per_byte"], second["bits_per_byte"]);
}

#[test]
fn what_cannot_be_read_is_refused_before_anything_runs() {
    for (arguments, expected) in [
        ("--weights h265", "CODEC@BITS"),
        ("--kv mp3@3", "mp3"),
        ("--sweep 2,…", "…"),
        // The name before the model: hours may lie between them.
        ("/nowhere/model.json --sweep 2,3 --codecs mp3", "mp3"),
        ("/nowhere/model.json", "nowhere"),
    ] {
        let said = Desk::new().refused(format!("eval {arguments}"));
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
#[ignore = "takes long: cargo xtask test --all"]
fn a_calibration_weighs_errors_in_caches() {
    let desk = Desk::new();
    let eval = include_bytes!("../../../models/lm/data/eval.txt");
    // Weights are those of a file: `tensors::a_calibrated_file_decodes_as_any_other_to_a_model_that_lost_less`.
    desk.write("calibrate.txt", &eval[32768..][..4096]);
    let kl = |more: &str| json(&desk, &format!("--kv trinity@2 {more}"))["kl_nats"].as_f64().unwrap();
    let (plain, calibrated) = (kl(""), kl("--calibrate calibrate.txt"));
    assert!(calibrated < plain, "{calibrated} against {plain}");
}

#[test]
fn caches_are_coded_as_the_field_codes_them() {
    let desk = Desk::new();
    let rows = json(&desk, "--sink 4 --kv kivi-64g@2.5,kvquant@2.25,kvquant-1p@2.6,turboquant@2.5");
    for row in &rows.as_array().unwrap()[1..] {
        let (bits, lost) = (row["kv_bits_per_value"].as_f64().unwrap(), row["kl_nats"].as_f64().unwrap());
        // Four tokens of 1,024 take 16 bits.
        assert!(bits < 2.75 && lost > 0.01 && lost < 2.0, "{row}");
    }
    let said = desk.refused("eval --windows 1 --kv kvtc@2");
    assert!(said.contains("--calibrate"), "{said}");
    // Bits that scales alone take are said, not fallen short of.
    let run = desk.run("eval --windows 1 --kv kivi-64g@1");
    assert!(run.stderr().contains("it takes 1.50"), "{}", run.stderr());
}

#[test]
fn a_context_is_a_window_that_the_model_can_see() {
    let desk = Desk::new();
    let bits = |context: &str| {
        let row = json(&desk, &format!("--context {context} --kv rtn@4 --sink 4"));
        row["kv_bits_per_value"].as_f64().unwrap()
    };
    // The four tokens that stay as they are weigh more in a short window.
    assert!(bits("64") > bits("256") + 0.4);
    let said = desk.refused("eval --windows 1 --context 4096");
    assert!(said.contains("2 to 1024"), "{said}");
}

#[test]
fn a_text_too_short_to_calibrate_with_is_remarked_upon() {
    let desk = Desk::new();
    let said = |bytes: usize| {
        desk.write("calibrate.txt", &include_bytes!("../../../models/lm/data/eval.txt")[..bytes]);
        let run = desk.run("eval --windows 1 --calibrate calibrate.txt");
        run.ok();
        run.stderr()
    };
    assert!(said(2048).contains("warning: the calibrating text has 2048 tokens"));
    assert!(!said(16384).contains("warning"));
}

#[test]
fn a_damaged_file_is_named_once() {
    let desk = Desk::new();
    desk.write("cut.tri", b"TRIN, and nothing else");
    let original = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/lm/data/tiny.safetensors");
    for line in [
        format!("eval cut.tri --original {original}"),
        format!("encode {original} --calibrate cut.tri --bits 3 -o made.tri"),
    ] {
        let said = desk.refused(line);
        assert_eq!(said.matches("cut.tri").count(), 1, "{said}");
    }
}
