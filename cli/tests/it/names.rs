//! Paths are bytes: names that are no text, and names as long as they may be.
//! Pipes that nobody writes into, and results that would share a name.
#![cfg(unix)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output};

/// Runs with words that are text and `%` in them for a byte that is none.
fn run(folder: &Path, command: &str) -> Output {
    let word =
        |word: &str| OsString::from_vec(word.bytes().map(|b| if b == b'%' { 0xff } else { b }).collect());
    Command::new("timeout")
        .arg("120")
        .arg(env!("CARGO_BIN_EXE_trinity"))
        .args(command.split(' ').map(word))
        .current_dir(folder)
        .output()
        .unwrap()
}

/// What was said on stderr of a command that must have ended like this.
#[track_caller]
fn ended(code: i32, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[track_caller]
fn json(folder: &Path, command: &str) -> serde_json::Value {
    let output = run(folder, command);
    ended(0, &output);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command}: {error}"))
}

/// The bytes of a path that JSON says.
fn bytes(said: &serde_json::Value) -> Vec<u8> {
    let byte = |byte: &serde_json::Value| byte.as_u64().unwrap() as u8;
    said["bytes"].as_array().unwrap_or_else(|| panic!("{said}")).iter().map(byte).collect()
}

fn at(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn furnish(folder: &Path) {
    let tensors =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../validation/data/captured/sample.safetensors");
    fs::copy(tensors, folder.join(at(b"m\xff.safetensors"))).unwrap();
}

#[test]
fn a_name_that_is_no_text_is_read_written_and_said_in_full() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    furnish(folder);
    let encode = "encode m%.safetensors --bits 4 --codec rtn -o m%.tri --json";
    for part in ["0/2", "1/2"] {
        let said = json(folder, &format!("{encode} --shard {part}"));
        assert!(bytes(&said["part"]).starts_with(b"m\xff.tri.shard-0000"), "{said}");
    }
    let said = json(folder, &format!("{encode} --merge"));
    assert_eq!(bytes(&said["output"]), b"m\xff.tri");
    let said = json(folder, "decode m%.tri --json");
    assert_eq!(bytes(&said["output"]), b"m\xff.decoded.safetensors");
    json(folder, "delta make m%.safetensors m%.decoded.safetensors -o d%.tri --json");
    let said = json(folder, "delta apply m%.safetensors d%.tri -o t%.safetensors --json");
    assert_eq!(bytes(&said["output"]), b"t\xff.safetensors");
    let [decoded, applied] = [&b"m\xff.decoded.safetensors"[..], b"t\xff.safetensors"]
        .map(|name| fs::read(folder.join(at(name))).unwrap());
    assert_eq!(decoded.len(), applied.len());
    let said = json(folder, "sweep sweeps/figure-15 --out s% --shard 0/1 --json");
    assert!(bytes(&said["shard"]).starts_with(b"s\xff/shard-00000"), "{said}");
    json(folder, "sweep merge s% --out r% --json");
    let compare = "compare m%.safetensors --codecs rtn --bits 4 --out c% --json";
    let said = json(folder, &format!("{compare} --shard 0/1"));
    assert!(bytes(&said["part"]).starts_with(b"c\xff/shard-00000"), "{said}");
    json(folder, &format!("{compare} --merge"));
    json(folder, "tensors info m%.safetensors --out i% --json");
    json(folder, "tensors basis m%.safetensors --tensor k_proj -o b%.basis --json");
    json(folder, "man --out man% --json");
    json(folder, "eval --windows 1 --sweep 4 --codecs rtn --out e% --shard 0/1 --json");
}

#[test]
fn two_names_that_look_alike_are_two_works() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    furnish(folder);
    fs::copy(folder.join(at(b"m\xff.safetensors")), folder.join(at(b"m\xfe.safetensors"))).unwrap();
    json(folder, "tensors info m%.safetensors --out i --json");
    let other = Command::new(env!("CARGO_BIN_EXE_trinity"))
        .args(["tensors", "info", "--out", "i"])
        .arg(at(b"m\xfe.safetensors"))
        .current_dir(folder)
        .output()
        .unwrap();
    ended(2, &other);
}

#[test]
fn names_as_long_as_they_may_be_are_written() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    furnish(folder);
    let long = |ending: &str| "n".repeat(255 - ending.len()) + ending;
    json(folder, &format!("encode m%.safetensors --bits 4 --codec rtn -o {} --json", long(".tri")));
    json(folder, &format!("decode {} -o {} --json", long(".tri"), long(".safetensors")));
    json(folder, &format!("sweep sweeps/figure-15 --out {} --json", long("")));
    json(folder, &format!("compare m%.safetensors --codecs rtn --bits 4 --out {} --json", long("c")));
    ended(1, &run(folder, &format!("decode {} --json", long(".tri"))));
}

#[test]
fn a_pipe_that_nobody_writes_into_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    for name in ["p", "p.toml", "p.y4m", "p.csv"] {
        assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
    }
    let commands = [
        "decode p",
        "h265 decode p -o out.yuv",
        "h264 info p",
        "h265 encode p.y4m --qp 30 -o out.265",
        "encode p.y4m --bits 3 -o out.trp",
        "sweep p.toml",
        "config check p.toml",
        "validate --runs p.csv",
        "eval --text p --windows 1",
        "compare p",
    ];
    // Some give a writer seconds to come.
    std::thread::scope(|scope| {
        for command in commands {
            scope.spawn(move || {
                let said = ended(2, &run(folder, command));
                assert!(said.contains("pipe"), "{command}: {said}");
            });
        }
    });
    // One that is written into is read.
    let feed = "trinity=$0; printf 'YUV4MPEG2 W16 H16 F25:1 Cmono\\nFRAME\\n%256s' x > p.y4m & \
                \"$trinity\" h265 encode p.y4m --qp 30 -o out.265";
    let fed = Command::new("timeout")
        .args(["120", "sh", "-c", feed, env!("CARGO_BIN_EXE_trinity")])
        .current_dir(folder)
        .output()
        .unwrap();
    ended(0, &fed);
}

#[test]
fn results_of_one_command_never_share_a_name() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::write(folder.join("p.gray"), vec![7; 256]).unwrap();
    fs::create_dir(folder.join("deep")).unwrap();
    for command in [
        "sweep explain 0 sweeps/figure-15 --trace a.json --report deep/../a.json --force",
        "h265 encode p.gray --size 16x16 --qp 30 -o one --recon ./one --force",
        "h264 encode p.gray --size 16x16 --qp 30 -o one --recon one --force",
    ] {
        let said = ended(2, &run(folder, command));
        assert!(said.contains("both name") || said.contains("HTML"), "{command}: {said}");
        assert!(!folder.join("one").exists() && !folder.join("a.json").exists(), "{command}");
    }
    let said = ended(2, &run(folder, "sweep explain 0 sweeps/figure-15 --report x.json"));
    assert!(said.contains("a name for JSON"), "a page is no JSON");
}
