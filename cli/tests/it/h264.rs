//! `trinity h264` from files to files.

use crate::support::{Desk, picture};

#[test]
fn what_is_encoded_decodes_to_the_reconstruction() {
    let desk = Desk::new();
    desk.write("in.gray", picture(50, 40));
    let said = desk.ok("h264 encode in.gray --size 50x40 --qp 20 --recon recon.gray -o out.264");
    assert!(said.contains("bits/sample") && said.contains("QP 20.00"), "{said}");
    let md5 = desk.ok("h264 decode out.264 --md5 -o out.gray");
    assert_eq!(md5.trim().len(), 32);
    assert_eq!(desk.read("out.gray"), desk.read("recon.gray"));
    let info = desk.ok("h264 info out.264");
    assert!(info.contains("1 frame of 50×40") && info.contains("CABAC"), "{info}");
}

#[test]
fn lossless_gives_the_input_back() {
    let desk = Desk::new();
    let raw = picture(33, 18);
    let mut pgm = b"P5 33 18 255\n".to_vec();
    pgm.extend(&raw);
    desk.write("in.pgm", pgm);
    desk.ok("h264 encode in.pgm --lossless --entropy cavlc -o out.264");
    desk.ok("h264 decode out.264 -o out.gray");
    assert_eq!(desk.read("out.gray"), raw);
}

#[test]
fn frames_come_and_go_one_at_a_time_and_parameter_sets_once() {
    let desk = Desk::new();
    desk.write("in.gray", picture(48, 32 * 5));
    for (threads, name) in [("1", "one.264"), ("3", "three.264")] {
        let encode = "h264 encode in.gray --size 48x32 --qp 30 --recon recon.yuv --force";
        desk.ok(format!("{encode} --threads {threads} -o {name}"));
    }
    let stream = desk.read("one.264");
    assert_eq!(stream, desk.read("three.264"));
    let units = |kind: u8| stream.windows(4).filter(|w| w[..3] == [0, 0, 1] && w[3] & 31 == kind).count();
    assert_eq!((units(7), units(8), units(5)), (1, 1, 5));
    desk.ok("h264 decode one.264 -o out.yuv");
    assert_eq!(desk.read("out.yuv"), desk.read("recon.yuv"));
}

#[test]
fn streams_joined_end_to_end_decode_to_all_their_frames() {
    let desk = Desk::new();
    desk.write("in.gray", picture(32, 32));
    desk.ok("h264 encode in.gray --size 32x32 --qp 30 -o one.264");
    desk.write("two.264", desk.read("one.264").repeat(2));
    let md5 = desk.ok("h264 decode two.264 --md5");
    assert_eq!(md5.lines().count(), 2, "{md5}");
}

#[test]
fn raw_files_without_a_size_are_refused() {
    let desk = Desk::new();
    desk.write("in.gray", picture(8, 8));
    let said = desk.refused("h264 encode in.gray --qp 30 -o o.264");
    assert!(said.contains("--size"), "{said}");
}
