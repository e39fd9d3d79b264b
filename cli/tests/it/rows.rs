//! A sweep's rows on disk: what is damaged, cut off or of another shard is
//! noticed by a merge and written again by a run that goes on.

use crate::support::Desk;
use std::fs;
use std::path::{Path, PathBuf};

const SWEEP: &str = "sweeps/figure-15";

/// A folder with two shards in `s`, and the whole sweep in `whole`.
fn furnish(desk: &Desk) -> [PathBuf; 2] {
    for out in ["s --shard 0/2", "s --shard 1/2", "whole"] {
        desk.ok(format!("sweep {SWEEP} --out {out} -q"));
    }
    ["00000", "00001"].map(|at| desk.at(format!("s/shard-{at}-of-00002.rows")))
}

#[test]
fn rows_that_are_not_what_the_run_wrote_are_not_merged() {
    let desk = Desk::new();
    let [first, second] = furnish(&desk);
    let whole = fs::read(&first).unwrap();
    // A digit of a number, which is as good a digit as the one that was there.
    let digit = (whole.len() / 2..whole.len()).find(|&at| whole[at].is_ascii_digit()).unwrap();
    let mut flipped = whole.clone();
    flipped[digit] ^= 1;
    let lines: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    let without_a_line = [&lines[..lines.len() / 2], &lines[lines.len() / 2 + 1..]].concat().concat();
    let twice = [&whole[..], &whole].concat();
    for (what, damaged) in [
        ("a flipped digit", flipped),
        ("half a file", whole[..whole.len() / 2].to_vec()),
        ("all but the last line", lines[..lines.len() - 1].concat()),
        ("a line less", without_a_line),
        ("another shard's rows", fs::read(&second).unwrap()),
        ("rows twice", twice),
        ("nothing", Vec::new()),
        ("zeros", vec![0; whole.len()]),
    ] {
        fs::write(&first, damaged).unwrap();
        let said = desk.refused("sweep merge s --out merged");
        assert!(said.contains("shard-00000-of-00002.rows"), "{what}: {said}");
        assert!(!desk.at("merged/points.csv").exists(), "{what}");
    }
    fs::remove_file(&first).unwrap();
    assert!(desk.refused("sweep merge s --out merged").contains("cannot read"));
    fs::write(&first, &whole).unwrap();
    desk.ok("sweep merge s --out merged");
    let points = |out: &str| desk.read(format!("{out}/points.csv"));
    assert!(points("merged") == points("whole"));
}

#[test]
fn rows_that_are_missing_are_written_again_by_a_run_that_goes_on() {
    let desk = Desk::new();
    let [first, second] = furnish(&desk);
    let whole = fs::read(&first).unwrap();
    let other = fs::read(&second).unwrap();
    for damaged in [&whole[..whole.len() / 2], &[], &other] {
        fs::write(&first, damaged).unwrap();
        let again = desk.run(format!("sweep {SWEEP} --out s --shard 0/2"));
        again.ok();
        assert!(again.stderr().contains("missing or damaged"), "{}", again.stderr());
        assert!(fs::read(&first).unwrap() == whole);
    }
    // Nothing is said of rows that are there.
    let again = desk.run(format!("sweep {SWEEP} --out s --shard 0/2"));
    assert!(!again.stderr().contains("missing"), "{}", again.stderr());
    desk.ok("sweep merge s --out merged -q");
    let points = |out: &str| desk.read(format!("{out}/points.csv"));
    assert!(points("merged") == points("whole"));
}

#[test]
fn rows_of_before_there_were_checksums_are_counted() {
    let desk = Desk::new();
    crate::golden::shards_of(&desk, "checkpoint-v1");
    desk.ok("sweep merge old --out fine -q");
    let rows = desk.at("old/shard-00000-of-00002.rows");
    let whole = fs::read(&rows).unwrap();
    let second = desk.read("old/shard-00001-of-00002.rows");
    let swapped = [&whole[whole.iter().position(|&b| b == b'\n').unwrap() + 1..], &second].concat();
    for damaged in [&whole[..whole.len() / 2], &second, &swapped[..whole.len()]] {
        fs::write(&rows, damaged).unwrap();
        let said = desk.refused("sweep merge old --out never");
        assert!(said.contains("shard-00000-of-00002.rows"), "{said}");
    }
}

#[test]
fn a_shard_that_is_there_twice_or_under_another_name_is_named() {
    let desk = Desk::new();
    furnish(&desk);
    fs::create_dir(desk.at("more")).unwrap();
    for ending in ["json", "rows"] {
        let name = format!("shard-00000-of-00002.{ending}");
        fs::copy(desk.at("s").join(&name), desk.at("more").join(&name)).unwrap();
    }
    let said = desk.refused("sweep merge s more --out never");
    assert!(
        said.contains("s/shard-00000-of-00002.json") && said.contains("more/shard-00000-of-00002.json"),
        "{said}"
    );
    assert!(said.contains("both hold points 0 to"), "{said}");
    fs::rename(desk.at("more/shard-00000-of-00002.json"), desk.at("more/shard-00001-of-00002.json")).unwrap();
    let said = desk.refused("sweep merge s more --out never");
    assert!(said.contains("it was written as `shard-00000-of-00002.json`"), "{said}");
}

#[test]
fn a_merge_leaves_its_shards_where_they_are() {
    let desk = Desk::new();
    desk.ok(format!("sweep {SWEEP} --out s --shard 0/1 -q"));
    desk.ok("sweep merge s --out s -q");
    for ending in ["json", "rows"] {
        assert!(desk.at(format!("s/shard-00000-of-00001.{ending}")).exists(), "{ending}");
    }
}

/// A sweep over one axis of numbers.
fn axis(folder: &Path, values: &str) {
    let text = format!(
        "extends = \"sweeps/llama-7b\"\ntitle = \"long\"\nscenarios = [{{ name = \"plain\" }}]\n\
         axes = [{{ path = \"cluster.nic.bandwidth\", unit = \"Gbit/s\", {values} }}]\n[study.job.parallelism]\npipeline = 8\ndata = 8\n"
    );
    let headline = text.replace("title", "headline = { baseline = \"plain\", candidate = \"plain\", budget = \"50000 mm2\", performance = 1.1, unit-area = \"20000 mm2\" }\ntitle");
    fs::write(folder.join("long.toml"), headline).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_long_axis_takes_megabytes_and_one_too_long_is_refused_before_it_is_made() {
    let desk = Desk::new();
    // An address space in which the command itself takes most.
    let limited = |args: &str| {
        let output = std::process::Command::new("sh")
            .args(["-c", "ulimit -v 300000; exec timeout 100 \"$@\"", "sh", env!("CARGO_BIN_EXE_trinity")])
            .args(args.split(' '))
            .current_dir(desk.path())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    axis(desk.path(), "log-range = { from = 1, to = 1000, points = 4000000000 }");
    let (code, said) = limited("config check long.toml --kind sweeps --threads 1");
    assert!(code == Some(2) && said.contains("an axis of 4000000000 values"), "{said}");
    axis(desk.path(), "range = { from = 1, to = 1000, step = 1e-9 }");
    let (code, said) = limited("config check long.toml --kind sweeps --threads 1");
    assert!(code == Some(2) && said.contains("1 to 1000000"), "{said}");
    axis(desk.path(), "log-range = { from = 1, to = 100000, points = 30000 }");
    let (code, said) = limited("config check long.toml --kind sweeps --threads 1");
    assert!(code == Some(0), "{said}");
}
