//! Runs that share a folder from containers of their own, where every process
//! has the number 1: nobody gets another's bytes, and nobody fails.
//!
//! The containers are process namespaces (`unshare`); where they cannot be made,
//! the tests say so and pass. `cargo xtask test --all` runs six rounds of eight.

use crate::support::{Desk, all, npy};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A command in a process namespace of its own.
fn contained(folder: &Path, command: &str) -> Command {
    let mut contained = Command::new("unshare");
    contained.args(["--user", "--map-root-user", "--pid", "--fork", env!("CARGO_BIN_EXE_trinity")]);
    contained.args(command.split(' ')).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    contained
}

fn spawned(folder: &Path, command: &str) -> Child {
    contained(folder, command).spawn().unwrap()
}

/// Whether this machine lets its users make namespaces.
fn can_contain() -> bool {
    let able = contained(Path::new("."), "--version").output().is_ok_and(|output| output.status.success());
    if !able {
        eprintln!("SKIPPED: no process namespaces here (unshare --user --pid)");
    }
    able
}

/// An f32 npy of 96 by 256 values.
fn matrix(path: &Path, seed: usize) {
    npy(path, (96, 256), |at| ((at * 37 + seed * 7919) % 1009) as f32 / 500.0 - 1.0);
}

fn left_behind(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".part")).collect()
}

#[test]
fn two_encoders_of_one_name_write_what_they_were_given() {
    if !can_contain() {
        return;
    }
    let rounds = if all() { 8 } else { 2 };
    for round in 0..rounds {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        (0..2).for_each(|seed| matrix(&folder.join(format!("{seed}.npy")), seed));
        let encode = |seed: usize, to: &str| format!("encode {seed}.npy --bits 4 --codec trinity -o {to} -q");
        let whole = |seed: usize| {
            let to = format!("{seed}.tri");
            assert!(contained(folder, &encode(seed, &to)).status().unwrap().success());
            fs::read(folder.join(to)).unwrap()
        };
        let whole = [whole(0), whole(1)];
        for force in ["", " --force"] {
            let runs = [0, 1].map(|seed| spawned(folder, &format!("{}{force}", encode(seed, "out.tri"))));
            let codes = runs.map(|run| run.wait_with_output().unwrap().status.code());
            let found = fs::read(folder.join("out.tri")).unwrap();
            let whose = whole.iter().position(|whole| *whole == found);
            let whose = whose.unwrap_or_else(|| panic!("round {round}{force}: neither's tensors"));
            assert_eq!(codes[whose], Some(0), "round {round}{force}: the tensors of one that failed");
            if force.is_empty() {
                // Who was second is told, and does not say that all is well.
                assert_eq!(codes[1 - whose], Some(2), "round {round}");
            }
            assert_eq!(left_behind(folder), [""; 0], "round {round}{force}");
        }
    }
}

#[test]
fn parts_of_a_comparison_in_eight_containers_never_fail() {
    if !can_contain() {
        return;
    }
    let rounds = if all() { 6 } else { 1 };
    for round in 0..rounds {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        (0..4).for_each(|seed| matrix(&folder.join(format!("{seed}.npy")), seed));
        let compare = "compare 0.npy 1.npy 2.npy 3.npy --codecs rtn,nf4 --bits 3,4 --out c -q";
        let runs: Vec<Child> =
            (0..8).map(|at| spawned(folder, &format!("{compare} --shard {at}/8"))).collect();
        for (at, run) in runs.into_iter().enumerate() {
            let output = run.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "round {round}, part {at}: {said}");
        }
        let merged = contained(folder, &format!("{compare} --merge")).output().unwrap();
        let said = String::from_utf8_lossy(&merged.stderr);
        assert_eq!(merged.status.code(), Some(0), "round {round}: {said}");
        let marker = fs::read_to_string(folder.join("c/.trinity-run")).unwrap();
        for at in 0..8 {
            let name = format!("shard-{at:05}-of-00008.csv");
            assert!(marker.lines().any(|line| line == name), "round {round}: {name} is missing in\n{marker}");
        }
        assert_eq!(left_behind(&folder.join("c")), [""; 0], "round {round}");
    }
}

#[test]
fn one_shard_is_not_written_by_two_runs_at_once() {
    let desk = Desk::new();
    fs::create_dir(desk.at("s")).unwrap();
    // Whoever writes the rows holds them.
    let rows = fs::File::create(desk.at("s/shard-00000-of-00001.rows")).unwrap();
    rows.lock().unwrap();
    let said = desk.refused("sweep sweeps/figure-15 --out s --force -q");
    assert!(said.contains("another run is writing"), "{said}");
}

#[test]
fn what_a_killed_run_left_is_gone_after_the_next() {
    let desk = Desk::new();
    let left_behind = || left_behind(desk.path());
    matrix(&desk.at("w.npy"), 1);
    let encode = |to: &str| {
        let line = format!("encode w.npy --bits 4 --codec trinity-max -q -o {to}");
        let mut command = desk.command(&line);
        command.stdout(Stdio::null());
        command
    };
    let mut killed = encode("a.tri").spawn().unwrap();
    while left_behind().is_empty() {
        assert!(killed.try_wait().unwrap().is_none(), "it was done before it could be killed");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!left_behind().is_empty());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(encode("b.tri").status().unwrap().success());
    assert_eq!(left_behind(), [""; 0]);
    assert!(!desk.at("a.tri").exists());
}

#[cfg(unix)]
#[test]
fn a_forced_result_keeps_the_mode_of_what_it_replaces() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    matrix(&desk.at("w.npy"), 1);
    let kept = |name: &str, mode: u32| {
        desk.write(name, b"old");
        fs::set_permissions(desk.at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |name: &str| fs::metadata(desk.at(name)).unwrap().permissions().mode() & 0o777;
    kept("w.tri", 0o640);
    desk.ok("encode w.npy --bits 4 --codec rtn -o w.tri --force");
    assert_eq!(mode("w.tri"), 0o640);
    desk.ok("tensors info w.npy --out i");
    kept("i/info.csv", 0o604);
    desk.ok("tensors info w.npy --out i");
    assert_eq!(mode("i/info.csv"), 0o604);
}
