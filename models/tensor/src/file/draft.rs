//! Drafts: files on their way to a name, and what becomes of those whose
//! writer was killed.
//!
//! A draft has a name that no other run has: random, and taken exclusively,
//! since process numbers repeat from container to container. It is locked as
//! long as its writer lives. What nobody holds any more is removed by the next
//! run that writes into the folder.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const PREFIX: &str = ".trinity-";
const ENDING: &str = ".part";
/// Age at which a draft of this machine that nobody holds is a left-over.
const LEFT_HERE: Duration = Duration::from_secs(2);
/// The same for one of another machine, whose locks may not be seen from here.
const LEFT_ELSEWHERE: Duration = Duration::from_secs(24 * 3600);
/// Random names that are tried before something else must be wrong.
const ATTEMPTS: usize = 16;

/// A file of its own name in a folder, removed when it is dropped unless it was
/// moved away.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

impl Draft {
    /// Makes an empty draft in `folder`.
    pub fn create(folder: &Path) -> io::Result<Self> {
        sweep_once(folder);
        for _ in 0..ATTEMPTS {
            let path = folder.join(name());
            let file = match File::options().read(true).write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            // Where a file system has no locks, the age alone protects the draft.
            let _ = file.lock();
            // Whoever took it for a left-over before the lock was held has removed it.
            if fs::symlink_metadata(&path).is_ok() {
                return Ok(Self { path, file });
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "no free name for a draft"))
    }

    /// Where it is; a library may put a file of its own there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a move there is nothing left under this name.
        fs::remove_file(&self.path).ok();
    }
}

/// A name for a draft: this machine, and sixteen random digits.
fn name() -> String {
    format!("{PREFIX}{}-{:016x}{ENDING}", *MACHINE, RandomState::new().hash_one(0u8))
}

/// Tells machines, and a machine's boots, apart; containers of one are alike,
/// and so are their locks.
static MACHINE: LazyLock<String> = LazyLock::new(|| {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    if digits.len() == 8 { digits } else { "unknown".into() }
});

/// Removes the drafts of a folder whose writers are gone, the first two times
/// that this process asks: when it begins to write there, and when it is done.
pub(super) fn sweep_once(folder: &Path) {
    static SWEPT: Mutex<Option<HashSet<(PathBuf, bool)>>> = Mutex::new(None);
    let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let swept = swept.get_or_insert_default();
    let folder = folder.to_owned();
    if swept.insert((folder.clone(), false)) || swept.insert((folder.clone(), true)) {
        sweep(&folder);
    }
}

/// Removes the drafts of a folder whose writers are gone.
fn sweep(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let Some(machine) = name.to_str().and_then(machine_of) else { continue };
        let age = if machine == *MACHINE { LEFT_HERE } else { LEFT_ELSEWHERE };
        if is_left_over(&file.path(), age) {
            // Another run may be sweeping, too.
            fs::remove_file(file.path()).ok();
        }
    }
}

/// The machine that a draft of this name was made on; nothing for other names.
fn machine_of(name: &str) -> Option<&str> {
    let (machine, random) = name.strip_prefix(PREFIX)?.strip_suffix(ENDING)?.split_once('-')?;
    (random.len() == 16 && random.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(machine)
}

/// Whether nobody writes a draft any more: it is old, and no lock is on it.
fn is_left_over(path: &Path, age: Duration) -> bool {
    let is_old = |found: fs::Metadata| {
        let touched = found.modified().ok()?;
        SystemTime::now().duration_since(touched).ok().filter(|passed| *passed >= age)
    };
    let Some(found) = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file) else { return false };
    if is_old(found).is_none() {
        return false;
    }
    let Ok(file) = File::options().write(true).open(path) else { return false };
    match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        // A file system without locks: only what is older than any run.
        Err(TryLockError::Error(_)) => age == LEFT_ELSEWHERE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aged(path: &Path, by: Duration) {
        let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
        file.set_modified(SystemTime::now() - by).unwrap();
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_and_what_one_still_holds_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let draft_of =
            |machine: &str| folder.path().join(format!(".trinity-{machine}-0123456789abcdef.part"));
        let (left, elsewhere) = (draft_of(MACHINE.as_str()), draft_of("01234567"));
        let minutes = Duration::from_secs(600);
        aged(&left, minutes);
        aged(&elsewhere, minutes);
        let held = Draft::create(folder.path()).unwrap();
        assert!(!left.exists(), "the left-over of this machine stays");
        aged(held.path(), minutes);
        let young = Draft::create(folder.path()).unwrap();
        let others = [folder.path().join(".trinity-run"), folder.path().join("mine.part")];
        others.iter().for_each(|other| aged(other, minutes * 1000));
        sweep(folder.path());
        for kept in others.iter().map(PathBuf::as_path).chain([held.path(), young.path(), &elsewhere]) {
            assert!(kept.exists(), "{}", kept.display());
        }
        aged(&elsewhere, LEFT_ELSEWHERE * 2);
        sweep(folder.path());
        assert!(!elsewhere.exists());
    }
}
