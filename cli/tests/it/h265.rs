//! `trinity h265` from files to files.

use crate::support::trinity_in;

/// A gradient with some texture, 8-bit 4:0:0.
fn picture(width: usize, height: usize) -> Vec<u8> {
    (0..width * height).map(|at| (at % width * 3 + at / width * 2 + at * at % 11) as u8).collect()
}

#[test]
fn what_is_encoded_decodes_to_the_reconstruction() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.gray"), picture(50, 40)).unwrap();
    let encode = "h265 encode in.gray --size 50x40 --qp 20 --preset fast --recon recon.yuv -o out.265";
    trinity_in(at, encode.split(' ')).ok();
    let md5 = trinity_in(at, ["h265", "decode", "out.265", "--md5", "-o", "out.yuv"]).ok();
    assert_eq!(md5.trim().len(), 32);
    assert_eq!(std::fs::read(at.join("out.yuv")).unwrap(), std::fs::read(at.join("recon.yuv")).unwrap());
}

#[test]
fn info_shows_parameter_sets_slices_and_where_the_bits_went() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.gray"), picture(50, 40)).unwrap();
    trinity_in(at, "h265 encode in.gray --size 50x40 --qp 20 --preset fast -o out.265".split(' ')).ok();
    let info = trinity_in(at, ["h265", "info", "out.265"]).ok();
    for fact in ["VPS 0", "SPS 0", "PPS 0", "50×40 shown", "residual %", "agrees"] {
        assert!(info.contains(fact), "{fact} in {info}");
    }
    let json = trinity_in(at, ["h265", "info", "out.265", "--json"]).ok();
    assert!(json.contains("\"residual_bits\"") && json.contains("\"slices\": \"I\""), "{json}");
}

#[test]
fn a_cut_stream_is_refused_with_its_place_and_kept_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.gray"), [picture(32, 32), picture(32, 32)].concat()).unwrap();
    trinity_in(at, "h265 encode in.gray --size 32x32 --qp 30 --preset fast -o out.265".split(' ')).ok();
    let stream = std::fs::read(at.join("out.265")).unwrap();
    // Past the second picture's hash (an SEI of 22 bytes) and into its slice.
    std::fs::write(at.join("cut.265"), &stream[..stream.len() - 40]).unwrap();
    let said = trinity_in(at, ["h265", "decode", "cut.265", "-o", "cut.yuv"]).refused();
    assert!(said.contains("at byte") && said.contains("--keep-going"), "{said}");
    assert!(!at.join("cut.yuv").exists());
    trinity_in(at, ["h265", "decode", "cut.265", "-o", "cut.yuv", "--keep-going"]).ok();
    assert_eq!(std::fs::read(at.join("cut.yuv")).unwrap().len(), 32 * 32);
}

#[test]
fn what_is_no_stream_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.265"), b"not a stream").unwrap();
    let said = trinity_in(folder.path(), ["h265", "decode", "x.265", "--md5"]).refused();
    assert!(said.contains("no picture in 12 bytes"), "{said}");
    let said = trinity_in(folder.path(), ["h265", "decode", "absent.265", "--md5"]).refused();
    assert!(said.contains("absent.265"), "{said}");
}
