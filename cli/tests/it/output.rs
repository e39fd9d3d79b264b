//! What the command promises about files: nothing lost, nothing misnamed,
//! devices stay devices. One test for each promise, over all commands that write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Desk, npy, pgm};

/// A folder with one input of each kind.
fn furnished() -> Desk {
    let desk = Desk::new();
    let value = |i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0;
    npy(&desk.at("w.npy"), (32, 32), value);
    npy(&desk.at("t/w.npy"), (32, 32), |i| value(i) + 0.5);
    desk.write("p.pgm", pgm(32, 16, |i| (i * 3 % 200) as u8));
    let mut y4m = b"YUV4MPEG2 W16 H16 F25:1 Cmono\n".to_vec();
    for frame in 0..2u8 {
        y4m.extend(b"FRAME\n");
        y4m.extend((0..=255u8).map(|i| i / 2 + frame));
    }
    desk.write("clip.y4m", y4m);
    desk.ok("encode w.npy --bits 4 -o w.tri");
    desk.ok("encode p.pgm --lossless -o p.trp");
    desk.ok("delta make w.npy t/w.npy -o d.tri");
    desk.ok("h264 encode p.pgm --qp 30 -o p.264");
    desk.ok("h265 encode p.pgm --qp 30 -o p.265");
    desk
}

/// Every command that writes a file, without the file's name, and the ending it should have.
const WRITERS: [(&str, &str); 12] = [
    ("encode w.npy --bits 3 -o", "tri"),
    ("encode p.pgm --bits 3 -o", "trp"),
    ("encode p.pgm --bits 3 --codec paper -o", "264"),
    ("decode w.tri -o", "safetensors"),
    ("decode w.tri -o", "npy"),
    ("decode p.trp -o", "pgm"),
    ("delta make w.npy t/w.npy -o", "tri"),
    ("delta apply w.npy d.tri -o", "safetensors"),
    ("h264 encode p.pgm --qp 30 -o", "264"),
    ("h265 encode p.pgm --qp 30 -o", "265"),
    ("h265 decode p.265 -o", "yuv"),
    ("tensors basis w.npy --group 8 -o", "basis"),
];

#[test]
fn no_file_is_replaced_unless_forced() {
    let desk = furnished();
    for (args, ending) in WRITERS {
        let name = format!("out.{ending}");
        fs::write(desk.at(&name), b"precious").unwrap();
        let said = desk.refused(format!("{args} {name}"));
        assert!(said.contains(&name) && said.contains("--force"), "{args}: {said}");
        assert_eq!(desk.read(&name), b"precious", "{args}");
        desk.ok(format!("{args} {name} --force"));
        assert_ne!(desk.read(&name), b"precious", "{args}");
        fs::remove_file(desk.at(&name)).unwrap();
        let left: Vec<_> = fs::read_dir(desk.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains(".part"))
            .collect();
        assert!(left.is_empty(), "{args} leaves {left:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_input_is_never_replaced_under_any_name() {
    let desk = furnished();
    for (args, ending) in WRITERS {
        for input in args.split(' ').filter(|word| desk.at(word).is_file()) {
            let before = desk.read(input);
            let [hard, soft] = ["hard", "soft"].map(|kind| format!("{kind}.{ending}"));
            fs::hard_link(desk.at(input), desk.at(&hard)).unwrap();
            std::os::unix::fs::symlink(input, desk.at(&soft)).unwrap();
            for name in [&hard, &soft] {
                let said = desk.refused(format!("{args} {name} --force"));
                assert!(said.contains("input of this very command"), "{args}: {said}");
                assert_eq!(desk.read(input), before, "{args}");
                fs::remove_file(desk.at(name)).unwrap();
            }
        }
    }
}

#[test]
fn what_is_decoded_without_a_name_stands_beside_what_was_encoded() {
    let desk = furnished();
    desk.ok("decode w.tri -o m.safetensors");
    let (original, picture) = (desk.read("m.safetensors"), desk.read("p.pgm"));
    desk.ok("encode m.safetensors --bits 3");
    desk.ok("decode m.tri");
    assert_eq!(desk.read("m.safetensors"), original);
    assert!(desk.at("m.decoded.safetensors").is_file());
    desk.ok("decode p.trp");
    assert!(desk.at("p.decoded.png").is_file());
    assert_eq!(desk.read("p.pgm"), picture);
}

#[cfg(unix)]
#[test]
fn pipes_and_stdout_get_what_a_file_would() {
    let desk = furnished();
    for (args, ending) in WRITERS {
        let name = format!("out.{ending}");
        desk.ok(format!("{args} {name}"));
        let whole = desk.read(&name);
        // A pipe has no ending to ask for npy or PGM with.
        if !matches!(ending, "npy" | "pgm") {
            let piped = desk.piped(format!("{args} -"), &[]);
            assert!(piped.status.success(), "{args}: {}", String::from_utf8_lossy(&piped.stderr));
            assert!(piped.stdout == whole, "{args} to -");
            let said = desk.piped(format!("{args} /dev/stdout"), &[]);
            assert!(said.stdout == whole, "{args} to /dev/stdout");
        }
        let pipe = format!("pipe.{ending}");
        assert!(Command::new("mkfifo").arg(desk.at(&pipe)).status().unwrap().success());
        let reader = Command::new("timeout")
            .args(["60", "cat"])
            .arg(desk.at(&pipe))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        desk.ok(format!("{args} {pipe}"));
        assert!(reader.wait_with_output().unwrap().stdout == whole, "{args} to a pipe");
        assert!(!desk.at(&pipe).is_file(), "{args} replaced the pipe");
        fs::remove_file(desk.at(&pipe)).unwrap();
        fs::remove_file(desk.at(&name)).unwrap();
    }
}

#[test]
fn a_result_and_json_about_it_never_share_stdout() {
    let desk = furnished();
    for (args, _) in WRITERS {
        for name in ["-", "/dev/stdout"] {
            let output = desk.piped(format!("{args} {name} --json"), &[]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{args} to {name}: {said}");
            assert!(output.stdout.is_empty(), "{args} to {name}");
            assert!(said.contains("both go to stdout"), "{args} to {name}: {said}");
        }
    }
}

#[test]
fn stdin_is_read_where_a_format_can_be_streamed() {
    let desk = furnished();
    let same = |args: &str, from: &str, file: &str| {
        let output = desk.piped(args, &desk.read(from));
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == desk.read(file), "{args}");
    };
    desk.ok("h265 encode clip.y4m --qp 30 -o clip.265");
    desk.ok("h265 decode clip.265 -o clip.yuv");
    desk.ok("decode p.trp -o back.png");
    same("h265 encode - --qp 30 -o -", "clip.y4m", "clip.265");
    same("h265 decode - -o -", "clip.265", "clip.yuv");
    same("encode - --lossless -o -", "p.pgm", "p.trp");
    same("decode - -o -", "p.trp", "back.png");
    for args in ["decode - -o -", "tensors info -", "compare -"] {
        let output = desk.piped(args, &desk.read("w.tri"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("stdin"), "{args}: {said}");
    }
}

#[test]
fn a_file_is_what_its_name_says() {
    let desk = furnished();
    desk.ok("h265 decode p.265 -o x.png");
    assert!(desk.read("x.png").starts_with(b"\x89PNG"));
    desk.ok("h264 decode p.264 -o x.pgm");
    assert!(desk.read("x.pgm").starts_with(b"P5"));
    desk.ok("h265 encode clip.y4m --lossless -o clip.265");
    desk.ok("h265 decode clip.265 -o x.y4m");
    let y4m = desk.read("x.y4m");
    assert!(y4m.starts_with(b"YUV4MPEG2 W16 H16") && y4m.ends_with(&desk.read("clip.y4m")[31..]));
    let said = desk.refused("h265 decode clip.265 -o two.png");
    assert!(said.contains("one picture") && !desk.at("two.png").exists(), "{said}");
    for (args, ending) in WRITERS {
        // Pictures may be written in several forms; no command here writes these.
        for other in ["mkv", "mp4"] {
            let name = format!("wrong.{other}");
            let said = desk.refused(format!("{args} {name}"));
            assert!(said.contains(&name), "{args}: {said}");
            assert!(!desk.at(&name).exists(), "{args} as .{ending}");
        }
    }
    assert!(desk.refused("delta apply w.npy d.tri -o t.npy").contains("npy"));
    assert!(desk.refused("encode w.npy --bits 3 -o t.npy").contains(".tri"));
}

#[test]
fn a_disk_or_folder_that_cannot_be_written_is_a_failed_run() {
    let desk = furnished();
    fs::write(desk.at("file"), b"").unwrap();
    for (args, ending) in WRITERS {
        let inside = format!("file/out.{ending}");
        let mut places = vec![inside.as_str()];
        if Path::new("/dev/full").exists() && !matches!(ending, "npy" | "pgm") {
            places.push("/dev/full");
        }
        for place in places {
            let run = desk.run(format!("{args} {place}"));
            assert_eq!(run.code(), 1, "{args} to {place}: {}", run.stderr());
            assert!(run.stderr().contains(place), "{args} to {place}: {}", run.stderr());
        }
    }
    for args in [
        "sweep sweeps/llama-3-70b-edge --out file/out",
        "compare w.npy --codecs rtn --bits 4 --out file/out",
        "tensors info w.npy --out file/out",
        "validate --out file/out",
        "man --out file/out",
        "config schema --out file/out",
    ] {
        let run = desk.run(args);
        assert_eq!(run.code(), 1, "{args}: {}", run.stderr());
    }
}

/// Every file beneath a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Whether a file is what its name says, down to its end. What a run goes on from may grow by rows.
fn is_whole(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => text.trim_end().ends_with("</html>"),
        Some("svg") => text.trim_end().ends_with("</svg>"),
        Some("json") => serde_json::from_str::<serde_json::Value>(&text).is_ok(),
        Some("csv" | "toml") => {
            let grows = ["bits.csv", "compare.csv", ".partial.csv"];
            grows.iter().any(|end| path.to_string_lossy().ends_with(end)) || text.ends_with('\n')
        }
        Some("rows" | "safetensors" | "sums") => true,
        _ => path.file_name().is_some_and(|name| name == ".trinity-run") && text.ends_with('\n'),
    }
}

#[test]
#[cfg(unix)]
fn a_disk_that_fills_up_leaves_no_half_file() {
    let desk = furnished();
    fs::write(desk.at("study.toml"), crate::json::STUDY).unwrap();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/h200/recording.json");
    fs::copy(recording, desk.at("recording.json")).unwrap();
    for command in [
        "explore --codecs line --study study.toml --draws 48 --cells 3",
        "compare w.npy --codecs rtn --bits 4",
        "compare w.npy --codecs rtn --bits 4 --shard 0/1",
        "tensors info w.npy",
        "sweep study.toml",
        "sweep study.toml --shard 0/1",
        "figure 16b-bound --run",
        "measure --replay recording.json",
        "validate",
    ] {
        // A file that may grow no further stands for the disk: it needs no mount, and fails as late.
        for blocks in ["0", "12"] {
            let out = desk.at(format!("full-{blocks}"));
            let words: Vec<&str> = command.split(' ').chain(["--out", out.to_str().unwrap(), "-q"]).collect();
            let run = Command::new("sh")
                .args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"", blocks])
                .arg(env!("CARGO_BIN_EXE_trinity"))
                .args(words)
                .current_dir(desk.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            if blocks == "0" || run.status.code() != Some(0) {
                assert_eq!(run.status.code(), Some(1), "{command}: {said}");
                assert!(said.contains("cannot write"), "{command}: {said}");
            }
            for file in files(&out) {
                assert!(is_whole(&file), "{command} left {}", file.display());
            }
            fs::remove_dir_all(&out).unwrap_or_default();
        }
    }
}

#[test]
fn a_delta_knows_its_base() {
    let desk = furnished();
    desk.ok("delta apply w.npy d.tri -o back.safetensors");
    let said = desk.refused("delta apply t/w.npy d.tri -o wrong.safetensors");
    assert!(said.contains("t/w.npy") && said.contains("not the base of `d.tri`"), "{said}");
    assert!(!desk.at("wrong.safetensors").exists());
    desk.ok("delta make w.npy t/w.npy --nmse 0.1 -o lossy.tri");
    desk.refused("delta apply t/w.npy lossy.tri -o wrong.safetensors");
}

#[test]
fn one_folder_holds_the_results_of_one_work() {
    let desk = furnished();
    let (one, other) = ("sweeps/llama-3-70b-edge", "sweeps/slow-wires");
    desk.ok(format!("sweep {one} --out s -q"));
    let before = desk.read("s/pareto.csv");
    // The same again is no other work.
    desk.ok(format!("sweep {one} --out s -q --threads 1"));
    let said = desk.refused(format!("sweep {other} --out s -q"));
    assert!(said.contains(one) && said.contains(other) && said.contains("--force"), "{said}");
    let said = desk.refused(format!("sweep {one} --set study.job.global-batch=2 --out s -q"));
    assert!(said.contains("global-batch=2"), "{said}");
    assert_eq!(desk.read("s/pareto.csv"), before);
    desk.ok(format!("sweep {other} --out s -q --force"));
    assert_ne!(desk.read("s/pareto.csv"), before);
    let said = desk.refused("tensors info w.npy --out s");
    assert!(said.contains(other) && said.contains("tensors info w.npy"), "{said}");
    // Results that lie in a folder already, of whomever, stay.
    fs::create_dir(desk.at("mine")).unwrap();
    fs::write(desk.at("mine/report.html"), b"my own page").unwrap();
    let said = desk.refused("tensors info w.npy --out mine");
    assert!(said.contains("report.html"), "{said}");
    assert_eq!(desk.read("mine/report.html"), b"my own page");
}

#[test]
fn a_second_study_has_a_folder_of_its_own() {
    let desk = furnished();
    let (one, other) = ("sweeps/llama-3-70b-edge", "sweeps/slow-wires");
    desk.ok(format!("sweep {one} -q"));
    let first = desk.read("out/sweep/llama-3-70b-edge/pareto.csv");
    desk.ok(format!("sweep {other} -q"));
    assert_ne!(desk.read("out/sweep/slow-wires/pareto.csv"), first);
    // One study asked in three ways leaves three answers, and asked again none more.
    for _ in 0..2 {
        desk.ok(format!("sweep {one} --top 3 -q"));
        desk.ok(format!("sweep {one} --set study.job.global-batch=2 -q"));
    }
    let folders = fs::read_dir(desk.at("out/sweep")).unwrap().map(|entry| entry.unwrap().file_name());
    let edge = folders.filter(|name| name.to_string_lossy().starts_with("llama-3-70b-edge")).count();
    assert_eq!(edge, 3);
    assert_eq!(desk.read("out/sweep/llama-3-70b-edge/pareto.csv"), first);
    // Shards and what joins them find the same place.
    desk.ok(format!("sweep {one} --top 4 --shard 0/1 -q"));
    let whole = fs::read_dir(desk.at("out/sweep")).unwrap().map(|entry| entry.unwrap().path());
    let mut shards = whole.filter(|path| path.join("shard-00000-of-00001.json").exists());
    let shard = shards.next().unwrap();
    desk.ok(format!("sweep merge {} -q", shard.display()));
    assert!(shard.join("pareto.csv").exists());
}

#[test]
fn a_checkpoint_is_lost_to_no_other_sweep() {
    let desk = furnished();
    let (one, other) = ("sweeps/llama-3-70b-edge", "sweeps/slow-wires");
    desk.ok(format!("sweep {one} --shard 0/2 --out s -q"));
    let checkpoint = desk.read("s/shard-00000-of-00002.json");
    // As a run of an earlier version left it, without a word about whose folder this is.
    fs::remove_file(desk.at("s/.trinity-run")).unwrap();
    let said = desk.refused(format!("sweep {other} --shard 0/2 --out s -q"));
    assert!(said.contains(one) && said.contains(other) && said.contains("--force"), "{said}");
    assert_eq!(desk.read("s/shard-00000-of-00002.json"), checkpoint);
    desk.ok(format!("sweep {one} --shard 0/2 --out s -q"));
    desk.ok(format!("sweep {other} --shard 0/2 --out s -q --force"));
    assert_ne!(desk.read("s/shard-00000-of-00002.json"), checkpoint);
}

/// A PNG of eight by eight pixels with an alpha channel.
fn rgba(alpha: impl Fn(usize) -> u8) -> Vec<u8> {
    let data: Vec<u8> = (0..64).flat_map(|i| [(i * 3) as u8, (i * 2) as u8, i as u8, alpha(i)]).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 8, 8);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&data)).unwrap();
    bytes
}

#[test]
fn transparency_is_refused_rather_than_lost() {
    let desk = furnished();
    fs::write(desk.at("glass.png"), rgba(|i| i as u8)).unwrap();
    fs::write(desk.at("opaque.png"), rgba(|_| 255)).unwrap();
    for command in [
        "encode glass.png --lossless -o glass.trp",
        "encode glass.png --bits 2 -o glass.trp",
        "h264 encode glass.png --lossless -o glass.264",
        "h265 encode glass.png --lossless -o glass.265",
    ] {
        let said = desk.refused(command);
        assert!(said.contains("alpha"), "{command}: {said}");
    }
    desk.ok("encode opaque.png --lossless -o opaque.trp");
}

#[test]
fn no_flipped_bit_of_a_picture_shows_another_picture() {
    let desk = furnished();
    let whole = desk.read("p.trp");
    for bit in (0..8 * whole.len()).step_by(97) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(desk.at("flipped.trp"), &flipped).unwrap();
        desk.refused("decode flipped.trp -o flipped.png");
        assert!(!desk.at("flipped.png").exists(), "bit {bit}");
    }
}

#[test]
fn the_help_offers_no_chroma_format_that_the_encoders_refuse() {
    let desk = furnished();
    for standard in ["h264", "h265"] {
        assert!(!desk.ok(format!("{standard} encode --help")).contains("422"), "{standard}");
    }
}
