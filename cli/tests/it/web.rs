//! The explorer's page, as the command hands it out. What the page does is
//! tested in a browser (`cargo xtask test web`).

use crate::support::trinity_in;
use std::fs;

#[test]
fn the_page_is_written_like_any_other_result() {
    let folder = tempfile::tempdir().unwrap();
    let first = trinity_in(folder.path(), ["web"]);
    if first.code() == 1 {
        // `cargo xtask test` builds the page first, where it can.
        let said = first.stderr();
        assert!(said.contains("the explorer's page") || said.contains("other sources"), "{said}");
        assert!(said.contains("cargo xtask web"), "no way out: {said}");
        assert!(!folder.path().join("trinity.html").exists());
        eprintln!("SKIPPED: {said}");
        return;
    }
    first.ok();
    let page = fs::read_to_string(folder.path().join("trinity.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    // Twice the same is no overwriting; something else in its place is.
    trinity_in(folder.path(), ["web"]).ok();
    fs::write(folder.path().join("trinity.html"), "mine").unwrap();
    trinity_in(folder.path(), ["web"]).refused();
    assert_eq!(fs::read_to_string(folder.path().join("trinity.html")).unwrap(), "mine");
    trinity_in(folder.path(), ["web", "--force"]).ok();
    assert!(trinity_in(folder.path(), ["web", "-o", "page.png"]).refused().contains("HTML"));
    assert_eq!(trinity_in(folder.path(), ["web", "-o", "-"]).ok(), page);
}
