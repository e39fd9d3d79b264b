//! A place for a library to write a file by its name.
//!
//! Libraries make files at a path; this gives them one of their own and puts
//! what they made where the user wants it, under the rules of this layer.

use super::{Draft, Goal, cannot, goal, session, settled};
use crate::failure::Failure;
use std::fs::File;
use std::path::{Path, PathBuf};
use trinity_tensor::file::{self, reserve, settle};

/// A file that a library writes by name; [`Spool::finish`] puts it in place,
/// dropping it without that removes it.
#[derive(Debug)]
pub struct Spool {
    goal: Goal,
    destination: PathBuf,
    work: file::Draft,
}

impl Spool {
    /// Checks that `path` may be written, before any work is done.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let goal = goal(path)?;
        let work = match &goal {
            Goal::File { path, .. } => {
                session::take(path)?;
                reserve(path)
            }
            // What cannot be moved into place is copied from here.
            Goal::Through(_) => file::Draft::create(&std::env::temp_dir()),
        };
        let work = work.map_err(|error| cannot("write", path, &error))?;
        Ok(Self { goal, destination: path.to_path_buf(), work })
    }

    /// Where the library writes.
    pub fn path(&self) -> &Path {
        self.work.path()
    }

    /// Puts the file in its place.
    pub fn finish(self) -> Result<(), Failure> {
        match &self.goal {
            Goal::File { path, replace } => settled(path, settle(&self.work, path, *replace)),
            Goal::Through(_) => {
                let work_path = self.work.path();
                let mut file = File::open(work_path).map_err(|error| cannot("read", work_path, &error))?;
                let mut draft = Draft::create(&self.destination)?;
                std::io::copy(&mut file, &mut draft)
                    .map_err(|error| cannot("write", &self.destination, &error))?;
                draft.finish()
            }
        }
    }
}
