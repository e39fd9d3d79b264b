//! Work in parts: the whole is what one machine makes, and a part that is
//! missing, damaged or of other work is named.

use crate::support::{Run, all, trinity_in};
use std::path::Path;
use std::process::Command;

#[test]
fn one_large_tensor_is_shared_out_too() {
    let desk = tempfile::tempdir().unwrap();
    let folder = desk.path();
    // Two slabs and a half, and a small tensor behind.
    let (rows, cols) = (2560, 2048);
    let value = |at: usize| ((at * 37) % 101) as u16;
    let mut data: Vec<u8> = (0..rows * cols).flat_map(|at| (0x3800 + value(at)).to_le_bytes()).collect();
    let large = data.len();
    data.extend((0..64 * 64).flat_map(|at| (0x3800 + value(at * 3)).to_le_bytes()));
    let header = format!(
        "{{\"a.weight\":{{\"dtype\":\"F16\",\"shape\":[{rows},{cols}],\"data_offsets\":[0,{large}]}},\
         \"b.weight\":{{\"dtype\":\"F16\",\"shape\":[64,64],\"data_offsets\":[{large},{}]}}}}",
        data.len()
    );
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.join("m.safetensors"), file).unwrap();
    let encode = "encode m.safetensors --bits 4.2 --codec rtn-128g";
    run(folder, &format!("{encode} -o whole.tri")).ok();
    let size = |name: &str| std::fs::metadata(folder.join(name)).unwrap().len();
    for parts in if all() { 2..=3 } else { 3..=3 } {
        let name = format!("parts{parts}.tri");
        for index in 0..parts {
            run(folder, &format!("{encode} -o {name} --shard {index}/{parts}")).ok();
            let part = size(&format!("{name}.shard-{index:05}-of-{parts:05}"));
            assert!(part < 3 * size("whole.tri") / 4, "part {index} of {parts} has nearly all: {part}");
        }
        run(folder, &format!("{encode} -o {name} --merge")).ok();
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
        assert_eq!(read(&name), read("whole.tri"), "{parts} parts");
    }
}

/// A model of several tensors in `folder`.
fn furnish(folder: &Path) {
    let values = |seed: usize, len: usize| -> Vec<u8> {
        let number = |at: usize| ((at * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0;
        (0..len).flat_map(|at| number(at).to_le_bytes()).collect()
    };
    let (mut header, mut data) = (String::new(), Vec::new());
    for (at, (rows, cols)) in [(32, 64), (48, 32), (1, 300), (64, 64), (16, 96)].into_iter().enumerate() {
        let start = data.len();
        data.extend(values(at, rows * cols));
        let shape = if rows == 1 { format!("{cols}") } else { format!("{rows},{cols}") };
        let comma = if at == 0 { "" } else { "," };
        header += &format!(
            "{comma}\"layers.{at}.weight\":{{\"dtype\":\"F32\",\"shape\":[{shape}],\"data_offsets\":[{start},{}]}}",
            data.len()
        );
    }
    let header = format!("{{{header}}}");
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.join("m.safetensors"), file).unwrap();
}

fn run(folder: &Path, command: &str) -> Run {
    trinity_in(folder, command.split(' '))
}

#[test]
fn parts_of_an_encoding_make_the_same_file() {
    let desk = tempfile::tempdir().unwrap();
    let folder = desk.path();
    furnish(folder);
    let encode = "encode m.safetensors --bits 4 --codec uniform+ac";
    run(folder, &format!("{encode} -o whole.tri")).ok();
    for index in [2, 0] {
        run(folder, &format!("{encode} -o parted.tri --shard {index}/3")).ok();
    }
    let said = run(folder, &format!("{encode} -o parted.tri --merge")).refused();
    assert!(said.contains("part 1 of 3 is missing") && said.contains("--shard 1/3"), "{said}");
    run(folder, &format!("{encode} -o parted.tri --shard 1/3")).ok();
    assert!(
        run(folder, &format!("{encode} -o parted.tri --shard 1/3")).stderr().contains("is there already")
    );
    let said =
        run(folder, "encode m.safetensors --bits 5 --codec uniform+ac -o parted.tri --merge").refused();
    assert!(said.contains("of another file, codec, target or version"), "{said}");
    run(folder, &format!("{encode} -o parted.tri --merge")).ok();
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert_eq!(read("parted.tri"), read("whole.tri"));
    let mut damaged = read("parted.tri.shard-00001-of-00003");
    damaged[40] ^= 1;
    std::fs::write(folder.join("parted.tri.shard-00001-of-00003"), damaged).unwrap();
    let said = run(folder, &format!("{encode} -o again.tri --merge")).refused();
    assert!(said.contains("there are no parts"), "{said}");
    let said = run(folder, &format!("{encode} -o parted.tri --merge --force")).refused();
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
    let desk = tempfile::tempdir().unwrap();
    let folder = desk.path();
    furnish(folder);
    let compare = "compare m.safetensors --codecs rtn,uniform+ac --bits 4,5";
    run(folder, &format!("{compare} --out whole")).ok();
    assert!(run(folder, &format!("{compare} --shard 0/2")).refused().contains("--out DIR"));
    for index in 0..4 {
        // As a task of a Slurm array that counts from 1.
        let mut task = Command::new(env!("CARGO_BIN_EXE_trinity"));
        task.args(compare.split(' ')).args(["--out", "parted", "--shard", "slurm"]).current_dir(folder);
        let ids = [("ID", index + 1), ("COUNT", 4), ("MIN", 1)];
        task.envs(ids.map(|(name, id)| (format!("SLURM_ARRAY_TASK_{name}"), id.to_string())));
        let output = task.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let merged = run(folder, &format!("{compare} --out parted --merge"));
        match index {
            3 => drop(merged.ok()),
            _ => assert!(merged.refused().contains("is missing")),
        }
    }
    assert_eq!(without_speeds(folder, "parted/compare.csv"), without_speeds(folder, "whole/compare.csv"));
    let said =
        run(folder, "compare m.safetensors --codecs rtn,nf4 --bits 4,5 --out parted --merge").refused();
    assert!(said.contains("nf4 on `layers.0.weight`") && said.contains("in none of the parts"), "{said}");
    let said = run(folder, &format!("{compare} --out parted --shard slurm")).refused();
    assert!(said.contains("SLURM_ARRAY_TASK_ID, which is not set"), "{said}");
}

#[test]
fn parts_of_an_evaluation_make_the_same_table() {
    let desk = tempfile::tempdir().unwrap();
    let folder = desk.path();
    let eval = "eval --windows 1 --sweep 4 --codecs rtn,nf4";
    run(folder, &format!("{eval} --out whole")).ok();
    for index in 0..2 {
        run(folder, &format!("{eval} --out parted --shard {index}/2")).ok();
    }
    run(folder, &format!("{eval} --out parted --merge")).ok();
    assert_eq!(without_speeds(folder, "parted/eval.csv"), without_speeds(folder, "whole/eval.csv"));
    let said = run(folder, "eval --windows 2 --sweep 4 --codecs rtn,nf4 --out parted --merge").refused();
    assert!(said.contains("another model or text"), "{said}");
    assert!(run(folder, "eval --weights rtn@4 --shard 0/2 --out x").refused().contains("--sweep"));
}
