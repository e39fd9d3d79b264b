//! Runs that share a folder from containers of their own, where every process
//! has the number 1: nobody gets another's bytes, and nobody fails.
//!
//! The containers are process namespaces (`unshare`); where they cannot be made,
//! the tests say so and pass. `cargo xtask test --all` runs six rounds of eight.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Set where tests that take long are to run as well.
const ALL: &str = "TRINITY_TEST_ALL";

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
fn npy(path: &Path, seed: usize) {
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (96, 256), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(
        (0..96 * 256).flat_map(|at| (((at * 37 + seed * 7919) % 1009) as f32 / 500.0 - 1.0).to_le_bytes()),
    );
    fs::write(path, bytes).unwrap();
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
    let rounds = if std::env::var_os(ALL).is_some() { 8 } else { 2 };
    for round in 0..rounds {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        (0..2).for_each(|seed| npy(&folder.join(format!("{seed}.npy")), seed));
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
    let rounds = if std::env::var_os(ALL).is_some() { 6 } else { 1 };
    for round in 0..rounds {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        (0..4).for_each(|seed| npy(&folder.join(format!("{seed}.npy")), seed));
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
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    fs::create_dir(folder.join("s")).unwrap();
    // Whoever writes the rows holds them.
    let rows = fs::File::create(folder.join("s/shard-00000-of-00001.rows")).unwrap();
    rows.lock().unwrap();
    let second = Command::new(env!("CARGO_BIN_EXE_trinity"))
        .args(["sweep", "sweeps/figure-15", "--out", "s", "--force", "-q"])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code() == Some(2) && said.contains("another run is writing"), "{said}");
}

#[test]
fn what_a_killed_run_left_is_gone_after_the_next() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    npy(&folder.join("w.npy"), 1);
    let encode = |to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trinity"));
        command.args(["encode", "w.npy", "--bits", "4", "--codec", "trinity-max", "-q", "-o", to]);
        command.current_dir(folder).stdout(Stdio::null());
        command
    };
    let mut killed = encode("a.tri").spawn().unwrap();
    while left_behind(folder).is_empty() {
        assert!(killed.try_wait().unwrap().is_none(), "it was done before it could be killed");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!left_behind(folder).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(encode("b.tri").status().unwrap().success());
    assert_eq!(left_behind(folder), [""; 0]);
    assert!(!folder.join("a.tri").exists());
}

#[cfg(unix)]
#[test]
fn a_forced_result_keeps_the_mode_of_what_it_replaces() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    npy(&folder.join("w.npy"), 1);
    fs::write(folder.join("w.tri"), b"old").unwrap();
    fs::set_permissions(folder.join("w.tri"), fs::Permissions::from_mode(0o640)).unwrap();
    let run = |args: &str| {
        let run = Command::new(env!("CARGO_BIN_EXE_trinity"))
            .args(args.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    };
    let mode = |name: &str| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
    run("encode w.npy --bits 4 --codec rtn -o w.tri --force");
    assert_eq!(mode("w.tri"), 0o640);
    fs::write(folder.join("c.csv"), b"old").unwrap();
    run("tensors info w.npy --out i");
    fs::set_permissions(folder.join("i/info.csv"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::write(folder.join("i/info.csv"), b"changed").unwrap();
    run("tensors info w.npy --out i");
    assert_eq!(mode("i/info.csv"), 0o604);
}
