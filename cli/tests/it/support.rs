//! Runs the built command and holds on to what it said.

use std::{
    path::Path,
    process::{Command, Output},
};

/// `trinity ARGS…`, run where the tests run.
pub fn trinity<'a>(args: impl IntoIterator<Item = &'a str>) -> Run {
    trinity_in(Path::new(env!("CARGO_MANIFEST_DIR")), args)
}

/// `trinity ARGS…` in a folder, with nothing of the caller's environment that changes its looks.
pub fn trinity_in<'a>(folder: &Path, args: impl IntoIterator<Item = &'a str>) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_trinity"))
        .args(args)
        .current_dir(folder)
        .env_remove("NO_COLOR")
        .output()
        .expect("the built command starts");
    Run { output }
}

/// Whether slow tests are asked for, too (`cargo xtask test --all`).
pub fn all() -> bool {
    std::env::var_os("TRINITY_TEST_ALL").is_some()
}

pub struct Run {
    output: Output,
}

impl Run {
    pub fn code(&self) -> i32 {
        self.output.status.code().expect("it exits rather than being killed")
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Stdout of a run that must have succeeded.
    #[track_caller]
    pub fn ok(&self) -> String {
        assert_eq!(self.code(), 0, "{}", self.stderr());
        self.stdout()
    }

    /// Stderr of a run that must have refused its input.
    #[track_caller]
    pub fn refused(&self) -> String {
        assert_eq!(self.code(), 2, "stdout: {}\nstderr: {}", self.stdout(), self.stderr());
        self.stderr()
    }
}
