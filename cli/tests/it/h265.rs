//! `trinity h265` from files to files.

use crate::support::{Desk, picture};

#[test]
fn what_is_encoded_decodes_to_the_reconstruction() {
    let desk = Desk::new();
    desk.write("in.gray", picture(50, 40));
    let encode = "h265 encode in.gray --size 50x40 --qp 20 --preset fast --recon recon.yuv -o out.265";
    desk.ok(encode);
    let md5 = desk.ok("h265 decode out.265 --md5 -o out.yuv");
    assert_eq!(md5.trim().len(), 32);
    assert_eq!(desk.read("out.yuv"), desk.read("recon.yuv"));
}

#[test]
fn info_shows_parameter_sets_slices_and_where_the_bits_went() {
    let desk = Desk::new();
    desk.write("in.gray", picture(50, 40));
    desk.ok("h265 encode in.gray --size 50x40 --qp 20 --preset fast -o out.265");
    let info = desk.ok("h265 info out.265");
    for fact in ["VPS 0", "SPS 0", "PPS 0", "50×40 shown", "residual %", "agrees"] {
        assert!(info.contains(fact), "{fact} in {info}");
    }
    let json = desk.ok("h265 info out.265 --json");
    assert!(json.contains("\"residual_bits\"") && json.contains("\"slices\": \"I\""), "{json}");
}

#[test]
fn what_is_no_stream_is_refused() {
    let desk = Desk::new();
    desk.write("x.265", b"not a stream");
    let said = desk.refused("h265 decode x.265 --md5");
    assert!(said.contains("no picture in 12 bytes"), "{said}");
    let said = desk.refused("h265 decode absent.265 --md5");
    assert!(said.contains("absent.265"), "{said}");
}
