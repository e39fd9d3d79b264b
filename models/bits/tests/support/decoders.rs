//! What a stream decodes to, by others and by its own word. Tests of both standards' codecs include this
//! file by its path.

use std::process::Command;
use trinity_bits::Frame;

/// What a decoder of others writes to `out.yuv` of the stream it finds as `in`; said aloud where it
/// is not installed.
pub fn outside(program: &str, arguments: &[&str], stream: &[u8], case: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), stream).unwrap();
    let Ok(output) = Command::new(program).args(arguments).current_dir(&folder).output() else {
        eprintln!("SKIPPED: {program} is not installed");
        return None;
    };
    let failed = || panic!("{program}, {case}: {}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(folder.path().join("out.yuv")).unwrap_or_else(|_| failed()))
}

/// Every sample is as it was; a reconstruction may be larger by a column or a row.
pub fn assert_lossless(frames: &[Frame], recon: &[Frame], case: &str) {
    for (own, other) in frames.iter().zip(recon).flat_map(|(a, b)| a.planes.iter().zip(&b.planes)) {
        assert!((0..own.height).all(|y| own.row(y) == &other.row(y)[..own.width]), "lossless, {case}");
    }
}

/// All frames as raw files have them.
pub fn raw(frames: &[Frame]) -> Vec<u8> {
    let mut raw = Vec::new();
    frames.iter().for_each(|frame| frame.write_raw(&mut raw));
    raw
}
