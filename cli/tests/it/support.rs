//! Runs the built command in a folder of its own, and holds on to what it said.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

/// A folder that is gone after the test, with files in it and the command run there.
pub struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    #[track_caller]
    pub fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.at(&name)).unwrap_or_else(|error| panic!("{}: {error}", name.as_ref().display()))
    }

    #[track_caller]
    pub fn text(&self, name: impl AsRef<Path>) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// Writes a file, and makes the folder it lies in.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// `trinity LINE` with words as a shell parts them: `'one word'`.
    pub fn run(&self, line: impl AsRef<str>) -> Run {
        trinity_in(self.path(), parted(line.as_ref()))
    }

    #[track_caller]
    pub fn ok(&self, line: impl AsRef<str>) -> String {
        self.run(line).ok()
    }

    #[track_caller]
    pub fn refused(&self, line: impl AsRef<str>) -> String {
        self.run(line).refused()
    }

    #[track_caller]
    pub fn json(&self, line: impl AsRef<str>) -> Value {
        self.run(line).json()
    }

    /// `trinity LINE`, not yet started.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trinity"));
        command.args(parted(line)).current_dir(self.path());
        command
    }

    /// Runs with bytes on stdin.
    pub fn piped(&self, line: impl AsRef<str>, input: &[u8]) -> Output {
        let mut child = self
            .command(line.as_ref())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // What refuses its input does not read it.
        child.stdin.take().unwrap().write_all(input).ok();
        child.wait_with_output().unwrap()
    }
}

/// The words of a line: what is quoted is one.
fn parted(line: &str) -> impl Iterator<Item = &str> {
    line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part],
    })
}

/// An f32 npy of that shape, whose values follow from their places.
pub fn npy(path: &Path, (rows, columns): (usize, usize), value: impl Fn(usize) -> f32) {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    let header = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend((0..rows * columns).flat_map(|at| value(at).to_le_bytes()));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A tensor of a file: its name, its format, its sides and its bytes.
pub type Tensor<'a> = (&'a str, &'a str, &'a [usize], Vec<u8>);

/// A safetensors file of these tensors.
pub fn safetensors(path: &Path, tensors: &[Tensor<'_>]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let place = [data.len(), data.len() + bytes.len()];
        let entry = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": place });
        header.insert((*name).to_owned(), entry);
        data.extend(bytes);
    }
    let header = Value::Object(header).to_string();
    fs::write(path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()).unwrap();
}

/// An f32 tensor, whose values follow from their places.
pub fn floats<'a>(name: &'a str, sides: &'a [usize], value: impl Fn(usize) -> f32) -> Tensor<'a> {
    let values = 0..sides.iter().product();
    (name, "F32", sides, values.flat_map(|at| value(at).to_le_bytes()).collect())
}

/// A gradient with some texture, 8-bit 4:0:0.
pub fn picture(width: usize, height: usize) -> Vec<u8> {
    (0..width * height).map(|at| (at % width * 3 + at / width * 2 + at * at % 11) as u8).collect()
}

/// A binary PGM of 8 bits, whose samples follow from their places.
pub fn pgm(width: usize, height: usize, sample: impl Fn(usize) -> u8) -> Vec<u8> {
    let header = format!("P5 {width} {height} 255\n").into_bytes();
    header.into_iter().chain((0..width * height).map(sample)).collect()
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

    /// Stdout of a run that must have succeeded, as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.ok()).unwrap_or_else(|error| panic!("{error}: {}", self.stdout()))
    }

    /// Stderr of a run that must have refused its input.
    #[track_caller]
    pub fn refused(&self) -> String {
        assert_eq!(self.code(), 2, "stdout: {}\nstderr: {}", self.stdout(), self.stderr());
        self.stderr()
    }
}
