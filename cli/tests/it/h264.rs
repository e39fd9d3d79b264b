//! `trinity h264` from files to files.

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
    let said = trinity_in(
        at,
        [
            "h264",
            "encode",
            "in.gray",
            "--size",
            "50x40",
            "--qp",
            "20",
            "--recon",
            "recon.gray",
            "-o",
            "out.264",
        ],
    )
    .ok();
    assert!(said.contains("bits/sample") && said.contains("QP 20.00"), "{said}");
    let md5 = trinity_in(at, ["h264", "decode", "out.264", "--md5", "-o", "out.gray"]).ok();
    assert_eq!(md5.trim().len(), 32);
    assert_eq!(std::fs::read(at.join("out.gray")).unwrap(), std::fs::read(at.join("recon.gray")).unwrap());
    let info = trinity_in(at, ["h264", "info", "out.264"]).ok();
    assert!(info.contains("1 frame of 50×40") && info.contains("CABAC"), "{info}");
}

#[test]
fn lossless_gives_the_input_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let raw = picture(33, 18);
    let mut pgm = b"P5 33 18 255\n".to_vec();
    pgm.extend(&raw);
    std::fs::write(at.join("in.pgm"), pgm).unwrap();
    trinity_in(at, ["h264", "encode", "in.pgm", "--lossless", "--entropy", "cavlc", "-o", "out.264"]).ok();
    trinity_in(at, ["h264", "decode", "out.264", "-o", "out.gray"]).ok();
    assert_eq!(std::fs::read(at.join("out.gray")).unwrap(), raw);
}

#[test]
fn a_cut_stream_is_refused_with_its_place_and_kept_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.gray"), [picture(32, 32), picture(32, 32)].concat()).unwrap();
    trinity_in(at, ["h264", "encode", "in.gray", "--size", "32x32", "--qp", "30", "-o", "out.264"]).ok();
    let stream = std::fs::read(at.join("out.264")).unwrap();
    std::fs::write(at.join("cut.264"), &stream[..stream.len() - 9]).unwrap();
    let said = trinity_in(at, ["h264", "decode", "cut.264", "-o", "cut.gray"]).refused();
    assert!(said.contains("NAL unit 3 at byte"), "{said}");
    assert!(!at.join("cut.gray").exists());
    trinity_in(at, ["h264", "decode", "cut.264", "-o", "cut.gray", "--keep-going"]).ok();
    assert_eq!(std::fs::read(at.join("cut.gray")).unwrap().len(), 32 * 32);
}

#[test]
fn frames_come_and_go_one_at_a_time_and_parameter_sets_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.gray"), picture(48, 32 * 5)).unwrap();
    for (threads, name) in [("1", "one.264"), ("3", "three.264")] {
        let words = ["h264", "encode", "in.gray", "--size", "48x32", "--qp", "30", "--recon", "recon.yuv"];
        trinity_in(at, words.into_iter().chain(["--threads", threads, "--force", "-o", name])).ok();
    }
    let stream = std::fs::read(at.join("one.264")).unwrap();
    assert_eq!(stream, std::fs::read(at.join("three.264")).unwrap());
    let units = |kind: u8| stream.windows(4).filter(|w| w[..3] == [0, 0, 1] && w[3] & 31 == kind).count();
    assert_eq!((units(7), units(8), units(5)), (1, 1, 5));
    trinity_in(at, ["h264", "decode", "one.264", "-o", "out.yuv"]).ok();
    assert_eq!(std::fs::read(at.join("out.yuv")).unwrap(), std::fs::read(at.join("recon.yuv")).unwrap());
}

#[test]
fn streams_joined_end_to_end_decode_to_all_their_frames() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.gray"), picture(32, 32)).unwrap();
    trinity_in(at, ["h264", "encode", "in.gray", "--size", "32x32", "--qp", "30", "-o", "one.264"]).ok();
    std::fs::write(at.join("two.264"), std::fs::read(at.join("one.264")).unwrap().repeat(2)).unwrap();
    let md5 = trinity_in(at, ["h264", "decode", "two.264", "--md5"]).ok();
    assert_eq!(md5.lines().count(), 2, "{md5}");
}

#[test]
fn raw_files_without_a_size_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in.gray"), picture(8, 8)).unwrap();
    let said =
        trinity_in(folder.path(), ["h264", "encode", "in.gray", "--qp", "30", "-o", "o.264"]).refused();
    assert!(said.contains("--size"), "{said}");
}
