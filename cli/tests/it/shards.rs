//! Work in parts: the whole is what one machine makes, and a part that is
//! missing, damaged or of other work is named.

use crate::support::{Desk, Tensor, all, floats, safetensors};
use std::path::Path;

#[test]
fn one_large_tensor_is_shared_out_too() {
    let desk = Desk::new();
    // Two slabs and a half, and a small tensor behind.
    let (rows, cols) = (2560, 2048);
    let value = |at: usize| ((at * 37) % 101) as u16;
    let halves = |name, sides, step: usize| -> Tensor<'_> {
        let count: usize = <[usize]>::iter(sides).product();
        (name, "F16", sides, (0..count).flat_map(|at| (0x3800 + value(at * step)).to_le_bytes()).collect())
    };
    let (large, small) = ([rows, cols], [64, 64]);
    let tensors = [halves("a.weight", &large, 1), halves("b.weight", &small, 3)];
    safetensors(&desk.at("m.safetensors"), &tensors);
    let encode = "encode m.safetensors --bits 4.2 --codec rtn-128g";
    desk.ok(format!("{encode} -o whole.tri"));
    let size = |name: &str| std::fs::metadata(desk.at(name)).unwrap().len();
    for parts in if all() { 2..=3 } else { 3..=3 } {
        let name = format!("parts{parts}.tri");
        for index in 0..parts {
            desk.ok(format!("{encode} -o {name} --shard {index}/{parts}"));
            let part = size(&format!("{name}.shard-{index:05}-of-{parts:05}"));
            assert!(part < 3 * size("whole.tri") / 4, "part {index} of {parts} has nearly all: {part}");
        }
        desk.ok(format!("{encode} -o {name} --merge"));
        let read = |name: &str| desk.read(name);
        assert_eq!(read(&name), read("whole.tri"), "{parts} parts");
    }
}

/// A model of several tensors in `folder`.
fn furnish(folder: &Path) {
    let number = |at: usize, seed: usize| ((at * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0;
    let shapes: [&[usize]; 5] = [&[32, 64], &[48, 32], &[300], &[64, 64], &[16, 96]];
    let names = [0, 1, 2, 3, 4].map(|at| format!("layers.{at}.weight"));
    let tensors = shapes.iter().zip(&names).enumerate();
    let tensors = tensors.map(|(seed, (sides, name))| floats(name, sides, move |at| number(at, seed)));
    safetensors(&folder.join("m.safetensors"), &tensors.collect::<Vec<_>>());
}

#[test]
fn parts_of_an_encoding_make_the_same_file() {
    let desk = Desk::new();
    furnish(desk.path());
    let encode = "encode m.safetensors --bits 4 --codec uniform+ac";
    desk.ok(format!("{encode} -o whole.tri"));
    for index in [2, 0] {
        desk.ok(format!("{encode} -o parted.tri --shard {index}/3"));
    }
    let said = desk.refused(format!("{encode} -o parted.tri --merge"));
    assert!(said.contains("part 1 of 3 is missing") && said.contains("--shard 1/3"), "{said}");
    desk.ok(format!("{encode} -o parted.tri --shard 1/3"));
    assert!(desk.run(format!("{encode} -o parted.tri --shard 1/3")).stderr().contains("is there already"));
    let said = desk.refused("encode m.safetensors --bits 5 --codec uniform+ac -o parted.tri --merge");
    assert!(said.contains("of another file, codec, target or version"), "{said}");
    desk.ok(format!("{encode} -o parted.tri --merge"));
    let read = |name: &str| desk.read(name);
    assert_eq!(read("parted.tri"), read("whole.tri"));
    let mut damaged = read("parted.tri.shard-00001-of-00003");
    damaged[40] ^= 1;
    desk.write("parted.tri.shard-00001-of-00003", damaged);
    let said = desk.refused(format!("{encode} -o again.tri --merge"));
    assert!(said.contains("there are no parts"), "{said}");
    let said = desk.refused(format!("{encode} -o parted.tri --merge --force"));
    assert!(said.contains("shard-00001-of-00003 is damaged"), "{said}");
}

/// A CSV without the two columns of speeds.
fn without_speeds(folder: &Path, name: &str) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_path(folder.join(name)).unwrap();
    let headers = reader.headers().unwrap().clone();
    let kept = |record: &csv::StringRecord| {
        let fields = headers.iter().zip(record).filter(|(name, _)| !name.ends_with("_mb_s"));
        fields.map(|(_, field)| field.to_owned()).collect()
    };
    reader.records().map(|record| kept(&record.unwrap())).collect()
}

#[test]
fn parts_of_a_comparison_make_the_same_table() {
    let desk = Desk::new();
    furnish(desk.path());
    let compare = "compare m.safetensors --codecs rtn,uniform+ac --bits 4,5";
    desk.ok(format!("{compare} --out whole"));
    assert!(desk.refused(format!("{compare} --shard 0/2")).contains("--out DIR"));
    for index in 0..4 {
        // As a task of a Slurm array that counts from 1.
        let mut task = desk.command(&format!("{compare} --out parted --shard slurm"));
        let ids = [("ID", index + 1), ("COUNT", 4), ("MIN", 1)];
        task.envs(ids.map(|(name, id)| (format!("SLURM_ARRAY_TASK_{name}"), id.to_string())));
        let output = task.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let merged = desk.run(format!("{compare} --out parted --merge"));
        match index {
            3 => drop(merged.ok()),
            _ => assert!(merged.refused().contains("is missing")),
        }
    }
    assert_eq!(
        without_speeds(desk.path(), "parted/compare.csv"),
        without_speeds(desk.path(), "whole/compare.csv")
    );
    let said = desk.refused("compare m.safetensors --codecs rtn,nf4 --bits 4,5 --out parted --merge");
    assert!(said.contains("nf4 on `layers.0.weight`") && said.contains("in none of the parts"), "{said}");
    let said = desk.refused(format!("{compare} --out parted --shard slurm"));
    assert!(said.contains("SLURM_ARRAY_TASK_ID, which is not set"), "{said}");
}

#[test]
fn parts_of_an_evaluation_make_the_same_table() {
    let desk = Desk::new();
    let eval = "eval --windows 1 --sweep 4 --codecs rtn,nf4";
    desk.ok(format!("{eval} --out whole"));
    for index in 0..2 {
        desk.ok(format!("{eval} --out parted --shard {index}/2"));
    }
    desk.ok(format!("{eval} --out parted --merge"));
    assert_eq!(without_speeds(desk.path(), "parted/eval.csv"), without_speeds(desk.path(), "whole/eval.csv"));
    let said = desk.refused("eval --windows 2 --sweep 4 --codecs rtn,nf4 --out parted --merge");
    assert!(said.contains("another model or text"), "{said}");
    assert!(desk.refused("eval --weights rtn@4 --shard 0/2 --out x").contains("--sweep"));
}
