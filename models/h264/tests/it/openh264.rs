//! The encoder against OpenH264, in the format that takes: 8 bit, 4:2:0.

use crate::decoders::raw;
use crate::grid::{Case, cases};
use std::path::{Path, PathBuf};
use std::process::Command;
use trinity_bits::Chroma;
use trinity_h264::{Rate, encode};

/// A program around the library, built on the spot; `None` where it cannot be.
fn build(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("openh264");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openh264.c");
    let built = Command::new("cc").arg(source).args(["-lopenh264", "-o"]).arg(&program).output();
    built.is_ok_and(|output| output.status.success()).then_some(program)
}

/// Luma alone it takes as well, but reads cropping and I_PCM as if there were chroma.
fn is_taken(case: &Case) -> bool {
    case.depth == 8 && case.chroma == Chroma::C420 && case.params.rate != Rate::Lossless
}

#[test]
fn the_first_frame_equals_openh264() {
    let folder = tempfile::tempdir().unwrap();
    let Some(openh264) = build(folder.path()) else {
        eprintln!("no C compiler or no libopenh264-dev: streams are not held against OpenH264");
        return;
    };
    let cases: Vec<Case> = cases().into_iter().filter(is_taken).collect();
    assert!(cases.len() >= 30, "{} cases", cases.len());
    let file = folder.path().join("stream.264");
    for case in cases {
        let frame = case.content.frame(case.size.0, case.size.1, case.chroma, case.depth);
        let coded = encode(std::slice::from_ref(&frame), &case.params).unwrap();
        std::fs::write(&file, &coded.stream).unwrap();
        let output = Command::new(&openh264).arg(&file).output().unwrap();
        assert!(output.status.success(), "{case:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == raw(&coded.recon), "OpenH264 differs: {case:?}");
    }
}
