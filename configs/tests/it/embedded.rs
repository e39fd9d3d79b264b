//! The files that come with the command.

use trinity_config::{Document, builtin};

#[test]
fn every_embedded_file_loads() {
    for name in builtin::names() {
        if let Err(diagnostic) = Document::load(name) {
            panic!("{name}: {diagnostic}");
        }
    }
}

#[test]
fn a_misspelt_name_gets_the_nearest_right_one() {
    let Some(name) = builtin::names().next() else { return };
    let misspelt = format!("{name}x");
    let help = Document::load(&misspelt).unwrap_err().help;
    assert_eq!(help, Some(format!("did you mean `{name}`?")));
}
