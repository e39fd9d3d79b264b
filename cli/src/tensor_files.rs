//! Tensor files as commands open them, and what is said of those that cannot be
//! read or written.
//!
//! Knows whose fault an error is; knows nothing of what a command is for.

use crate::failure::Failure;
use crate::input;
use crate::json_path::spelled;
use crate::output;
use std::path::{Path, PathBuf};
pub use trinity_study::tensors::sentence;
use trinity_tensor::{Entry, Error, TensorFile};

/// What a command does with files, as a folder of results remembers it.
pub fn work(command: &str, files: &[PathBuf]) -> String {
    let names = files.iter().map(|file| format!(" {}", spelled(file)));
    std::iter::once(command.to_owned()).chain(names).collect()
}

/// Opens a tensor file; what is wrong with it is the user's to mend.
pub fn open(path: &Path) -> Result<TensorFile, Failure> {
    let file = open_delta(path)?;
    if is_delta(&file) {
        return Err(delta_alone(&path.display().to_string()));
    }
    Ok(file)
}

/// Whether a file holds what was changed, and no tensors of its own.
pub fn is_delta(file: &TensorFile) -> bool {
    let is_change = |entry: &Entry| entry.stored() == "delta" || entry.stored().starts_with("delta/");
    file.format() == "tri" && file.entries().iter().any(is_change)
}

/// Opens a tensor file that may be a delta.
pub fn open_delta(path: &Path) -> Result<TensorFile, Failure> {
    if input::is_stdin(path) {
        return Err(Failure::input("a tensor file is read here and there, which stdin cannot be")
            .help("write it to a file first, and name that"));
    }
    output::protect(path);
    // The error names the file itself.
    TensorFile::open(path).map_err(|error| Failure::input(sentence(&error)))
}

/// A failure to make `output` out of what is at `place`: the disk's, or the file's.
pub fn not_written(place: &str, output: &Path, error: &Error) -> Failure {
    match error.write_failure() {
        Some(cause) => output::cannot("write", output, cause),
        None => bad_input(place, error),
    }
}

fn delta_alone(place: &str) -> Failure {
    Failure::input(format_args!("{place}: a delta holds what was changed, and no tensors of its own"))
        .help("`trinity delta apply BASE DELTA -o TUNED` puts it on the file it was made against")
}

/// A failure at `place` because of what a file holds.
pub fn bad_input(place: &str, error: &Error) -> Failure {
    let said = sentence(error);
    // What was opened there names it already.
    let said = if said.starts_with(&format!("{place}: ")) { said } else { format!("{place}: {said}") };
    match error.root() {
        Error::OutOfMemory { .. } => Failure::run(said)
            .help("use fewer --threads, or a machine with more memory; tensors need not fit, a few slabs do"),
        Error::UnknownCodec { name, .. } if name == "delta" || name.starts_with("delta/") => {
            delta_alone(place)
        }
        Error::UnknownCodec { name, .. } => unknown_codec(name),
        Error::Profile(diagnostic) => diagnostic.as_ref().clone().into(),
        _ => Failure::input(said),
    }
}

/// No codec has this name; one may have been meant.
pub fn unknown_codec(name: &str) -> Failure {
    trinity_study::tensors::unknown_codec(name).into()
}

impl From<trinity_study::Error> for Failure {
    fn from(error: trinity_study::Error) -> Self {
        use trinity_study::Error;
        let error = match error {
            Error::Config(diagnostic) => return diagnostic.into(),
            other => other,
        };
        let failure = match &error {
            Error::Model(trinity_lm::Error::Hook { .. }) | Error::Cancelled => Self::run(&error),
            Error::Tensor { subject, error } => return bad_input(subject, error),
            _ => Self::input(&error),
        };
        match error.help() {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}
