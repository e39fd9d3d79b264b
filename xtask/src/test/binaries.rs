//! Test binaries, several at a time.
//!
//! `cargo test` runs one binary after the other, and most end with one long
//! test that leaves all cores but one idle. Here cargo compiles them and says
//! where they are; as many as there are cores run side by side, those that take
//! longest first. What a binary says appears in one piece when it is done.

use crate::json::member;
use crate::tools::{output, succeed_with_output};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

/// One test binary and the package it belongs to.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    executable: PathBuf,
    /// The folder of the package, in which cargo would run it.
    folder: PathBuf,
    /// As `cargo test` takes it.
    target: String,
    /// Whether it is made of `tests/`, not of a library or a program itself.
    integration: bool,
}

/// Compiles with `build`, a `cargo test`, and runs what comes of it with `words` for every binary; all run, whatever
/// fails.
pub fn run(mut build: Command, words: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let said = succeed_with_output(build.args(["--no-run", "--message-format=json"]))?;
    let mut binaries =
        said.lines().filter_map(|line| Binary::of(line).transpose()).collect::<Result<Vec<_>, _>>()?;
    if binaries.is_empty() {
        return Err("cargo built no test".into());
    }
    binaries.sort_by_key(Binary::rank);
    let queue = Mutex::new(VecDeque::from(binaries));
    let failed = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(binary) = next else { return };
                    if let Err(reason) = binary.run(words, environment) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(reason);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

impl Binary {
    /// Of a line of `cargo test --message-format=json`; nothing where the line is of something else.
    fn of(line: &str) -> Result<Option<Self>, String> {
        // The command is built as well, since tests start it.
        let is_test = line
            .split_once("\"profile\":{")
            .and_then(|(_, profile)| profile.split_once('}'))
            .is_some_and(|(profile, _)| profile.contains("\"test\":true"));
        let Some(executable) = member(line, "executable").filter(|own| is_test && *own != "null") else {
            return Ok(None);
        };
        let cut = |what: &str| format!("cargo names a test without its {what}: {line}");
        let manifest = member(line, "manifest_path").ok_or_else(|| cut("manifest"))?;
        let name = member(line, "name").ok_or_else(|| cut("name"))?;
        let folder = Path::new(manifest).parent().ok_or_else(|| cut("folder"))?.to_path_buf();
        let integration = line.contains(r#""kind":["test"]"#);
        let target = match (integration, line.contains(r#""kind":["bin"]"#)) {
            (true, _) => format!("--test {name}"),
            (_, true) => format!("--bin {name}"),
            _ => "--lib".to_string(),
        };
        Ok(Some(Self { executable: executable.into(), folder, target, integration }))
    }

    /// What comes first takes longest: the command's own tests, which start it some thousand times, then other
    /// integration tests.
    fn rank(&self) -> (bool, bool) {
        (!(self.integration && self.folder.ends_with("cli")), !self.integration)
    }

    fn run(&self, words: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let start = Instant::now();
        let mut command = Command::new(&self.executable);
        command.args(words).envs(environment.iter().copied()).current_dir(&self.folder).stdin(Stdio::null());
        // As cargo has it for tests that ask.
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        let output = output(&mut command)?;
        let said = [output.stdout, output.stderr].concat();
        let seconds = start.elapsed().as_secs();
        eprintln!("── {package} {} ({seconds} s)\n{}", self.target, String::from_utf8_lossy(&said));
        if output.status.success() {
            return Ok(());
        }
        let manifest = self.folder.join("Cargo.toml");
        Err(format!("`cargo test --manifest-path {} {}`: {}", manifest.display(), self.target, output.status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///t/cli#trinity@0.2.0","manifest_path":"/t/cli/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"it","src_path":"/t/cli/tests/it/main.rs","test":true},"profile":{"opt_level":"0","test":true},"executable":"/t/target/once/deps/it-87ef","fresh":true}"#;

    #[test]
    fn what_cargo_built_is_found_in_its_words() {
        let own = Binary::of(LINE).unwrap().unwrap();
        assert_eq!((own.target.as_str(), own.folder.as_path()), ("--test it", Path::new("/t/cli")));
        let units = Binary::of(&LINE.replace(r#"["test"]"#, r#"["lib"]"#)).unwrap().unwrap();
        assert_eq!(units.target, "--lib");
        let program = Binary::of(&LINE.replace(r#"["test"]"#, r#"["bin"]"#)).unwrap().unwrap();
        assert_eq!(program.target, "--bin it");
        assert!(own.rank() < program.rank());
        let library = LINE.replace(r#""/t/target/once/deps/it-87ef""#, "null");
        assert_eq!(Binary::of(&library), Ok(None));
        let command = LINE.replace(r#""0","test":true"#, r#""0","test":false"#);
        assert_eq!(Binary::of(&command), Ok(None));
        assert!(Binary::of(&LINE.replace("manifest_path", "path")).unwrap_err().contains("manifest"));
    }

    #[test]
    fn every_binary_runs_and_each_failure_says_how_to_run_it_alone() {
        let binary = |program: &str| Binary {
            executable: program.into(),
            folder: "/".into(),
            target: "--lib".into(),
            integration: false,
        };
        assert_eq!(binary("true").run(&[], &[]), Ok(()));
        assert!(binary("false").run(&[], &[]).unwrap_err().contains("cargo test --manifest-path"));
        assert!(binary("no such program").run(&[], &[]).unwrap_err().contains("no such program"));
    }
}
