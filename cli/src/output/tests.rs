use super::*;

#[test]
fn an_unfinished_draft_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/result.csv");
    let mut draft = Draft::create(&path).unwrap();
    draft.write_all(b"half").unwrap();
    drop(draft);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_device_is_written_to_and_stays_a_device() {
    write(Path::new("/dev/null"), b"gone").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    let spool = Spool::create(Path::new("/dev/null")).unwrap();
    fs::write(spool.path(), b"gone").unwrap();
    spool.finish().unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_file_of_this_run_is_renewed_and_one_of_others_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.csv");
    renew(&path, b"old").unwrap();
    renew(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let other = folder.path().join("other.csv");
    fs::write(&other, b"theirs").unwrap();
    assert!(write(&other, b"ours").is_err());
    assert!(Spool::create(&other).is_err());
    write(&other, b"theirs").unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"theirs");
    // No two results share a name, whatever is forced.
    assert!(write(&other, b"theirs").is_err());
}

#[test]
fn a_file_that_came_to_be_meanwhile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.csv");
    let mut draft = Draft::create(&path).unwrap();
    draft.write_all(b"ours").unwrap();
    fs::write(&path, b"theirs").unwrap();
    assert!(draft.finish().is_err());
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn an_input_stays_under_every_name_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let [input, hard, soft] = ["input", "hard", "soft"].map(|name| folder.path().join(name));
    fs::write(&input, b"precious").unwrap();
    fs::hard_link(&input, &hard).unwrap();
    std::os::unix::fs::symlink(&input, &soft).unwrap();
    protect(&input);
    // Whatever this run wrote before, or was told to replace.
    own(&input);
    for name in [&input, &hard, &soft] {
        assert!(write(name, b"gone").is_err(), "{}", name.display());
    }
    assert_eq!(fs::read(&input).unwrap(), b"precious");
    next_tick();
}

/// Whatever is made afterwards is dated later, by the clock that dates files.
fn next_tick() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

#[test]
fn a_new_file_is_no_input_whatever_place_it_gets() {
    let folder = tempfile::tempdir().unwrap();
    let [input, other] = ["input", "other"].map(|name| folder.path().join(name));
    fs::write(&input, b"read").unwrap();
    protect(&input);
    fs::remove_file(&input).unwrap();
    next_tick();
    // The inode that is free now is often the input's.
    fs::write(&other, b"new").unwrap();
    assert!(session::refuse_input(&other).is_ok());
}

#[test]
fn a_folder_is_renewed_by_the_same_work_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    lock(&out, "sweep a").unwrap();
    renew(&out.join("points.csv"), b"1").unwrap();
    let marker = fs::read_to_string(out.join(lock::MARKER)).unwrap();
    assert_eq!(marker, "sweep a\npoints.csv\n");
    lock(&out, "sweep a").unwrap();
    renew(&out.join("points.csv"), b"2").unwrap();
    assert!(lock(&out, "sweep b").is_err());
    // What failed and left nothing stands in nobody's way.
    fs::remove_file(out.join("points.csv")).unwrap();
    lock(&out, "sweep b").unwrap();
    renew(&out.join("points.csv"), b"3").unwrap();
    lock(&out, "sweep b").unwrap();
    // A file that nobody of ours wrote is not ours by lying there.
    fs::write(out.join("report.html"), b"mine").unwrap();
    lock(&out, "sweep b").unwrap();
    assert!(renew(&out.join("report.html"), b"ours").is_err());
}

#[test]
fn a_folder_is_not_taken_from_under_a_run() {
    let folder = tempfile::tempdir().unwrap();
    lock(folder.path(), "sweep a").unwrap();
    // Another process: it has the file open on its own.
    let other = fs::File::open(folder.path().join(lock::MARKER)).unwrap();
    assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    // A part of the same work may come.
    other.try_lock_shared().unwrap();
    lock(folder.path(), "sweep a").unwrap();
    assert!(lock(folder.path(), "sweep b").is_err());
    drop(other);
    lock(folder.path(), "sweep b").unwrap();
}

#[test]
fn a_name_for_another_format_is_refused() {
    assert!(Path::new("x.png").named_as(&["raw frames"]).is_err());
    for fine in ["x.yuv", "x", "x.bin", "/dev/null", "-"] {
        Path::new(fine).named_as(&["raw frames"]).unwrap();
    }
}
