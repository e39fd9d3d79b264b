//! A place for a library to write a file by its name.
//!
//! Libraries make files at a path; this gives them one of their own and puts
//! what they made where the user wants it, under the rules of this layer.

use super::{Draft, Goal, cannot, goal, settled};
use crate::failure::Failure;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use trinity_tensor::file::{draft_path, settle};

/// A file that a library writes by name; [`Spool::finish`] puts it in place,
/// dropping it without that removes it.
#[derive(Debug)]
pub struct Spool {
    goal: Goal,
    destination: PathBuf,
    work_path: PathBuf,
}

impl Spool {
    /// Checks that `path` may be written, before any work is done.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let goal = goal(path)?;
        let work_path = match &goal {
            Goal::File { path, .. } => draft_path(path),
            // What cannot be moved into place is copied from here.
            Goal::Through(_) => std::env::temp_dir().join(format!("trinity-{}.part", std::process::id())),
        };
        Ok(Self { goal, destination: path.to_path_buf(), work_path })
    }

    /// Where the library writes.
    pub fn path(&self) -> &Path {
        &self.work_path
    }

    /// Puts the file in its place.
    pub fn finish(self) -> Result<(), Failure> {
        match &self.goal {
            Goal::File { path, replace } => settled(path, settle(&self.work_path, path, *replace)),
            Goal::Through(_) => {
                let mut file =
                    File::open(&self.work_path).map_err(|error| cannot("read", &self.work_path, &error))?;
                let mut draft = Draft::create(&self.destination)?;
                std::io::copy(&mut file, &mut draft)
                    .map_err(|error| cannot("write", &self.destination, &error))?;
                draft.finish()
            }
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // After a finished move there is nothing left under this name.
        let _ = fs::remove_file(&self.work_path);
    }
}
