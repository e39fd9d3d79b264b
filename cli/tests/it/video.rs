//! What `trinity h264` and `trinity h265` have in common: what they keep of a
//! file, what they refuse by name, and rates that cannot be met.

use serde_json::Value;

use crate::support::{Desk, floats, picture, safetensors};

const STANDARDS: [(&str, &str); 2] = [("h264", "264"), ("h265", "265")];

/// Noise, which no codec makes little of.
fn noise(count: usize) -> Vec<u8> {
    // SplitMix64: no compressor finds anything in it.
    let mixed = |at: usize| {
        let z = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..count).map(|at| mixed(at) as u8).collect()
}

/// `trinity COMMAND encode ARGS`, with JSON.
fn json(desk: &Desk, command: &str, args: &str) -> Value {
    desk.json(format!("{command} encode {args} --json --force"))
}

#[test]
fn a_rate_that_is_missed_is_said_and_fails_where_the_user_is_strict() {
    let desk = Desk::new();
    desk.write("n.gray", noise(64 * 64));
    for (command, ending) in STANDARDS {
        let args = format!("n.gray --size 64x64 --bits 0.02 --preset fast -o n.{ending}");
        let run = desk.run(format!("{command} encode {args}"));
        assert!(run.stderr().contains("1 of 1 frames miss 0.02 bits per sample"), "{}", run.stderr());
        assert_eq!(json(&desk, command, &args)["frames_over_target"], 1, "{command}");
        std::fs::remove_file(desk.at(format!("n.{ending}"))).unwrap();
        let strict = desk.run(format!("{command} encode {args} --strict"));
        assert_eq!(strict.code(), 1, "{}", strict.stderr());
        assert!(!desk.at(format!("n.{ending}")).exists(), "{command}");
    }
}

#[test]
fn an_error_below_what_any_qp_reaches_is_met_without_loss() {
    let desk = Desk::new();
    desk.write("n.gray", noise(64 * 48));
    for (command, ending) in STANDARDS {
        let args = format!("n.gray --size 64x48 --mse 0.0001 --preset fast --strict -o n.{ending}");
        let said = json(&desk, command, &args);
        assert!(said["mse"].as_f64().unwrap() <= 1e-4, "{said}");
        assert_eq!(said["frames_over_target"], 0, "{said}");
        // H.264 may as well send the samples of every macroblock.
        assert!(command == "h264" || said["lossless_frames"] == 1, "{said}");
        desk.ok(format!("{command} decode n.{ending} -o back.gray --force"));
        assert_eq!(desk.read("back.gray"), noise(64 * 48), "{command}");
    }
}

#[test]
fn what_is_written_to_a_file_is_decoded_again() {
    let desk = Desk::new();
    desk.write("n.gray", noise(3 * 64 * 48));
    for (command, ending) in STANDARDS {
        let args = format!("n.gray --size 64x48 --bits 1.5 --deblock --preset fast -o n.{ending}");
        assert_eq!(json(&desk, command, &args)["verified"], true, "{command}");
        assert_eq!(json(&desk, command, &format!("{args} --no-verify"))["verified"], false, "{command}");
    }
}

#[test]
fn a_y4m_comes_back_with_its_rate_its_aspect_and_its_range() {
    let desk = Desk::new();
    for header in [
        "YUV4MPEG2 W32 H16 F30000:1001 Ip A128:117 C420mpeg2 XCOLORRANGE=LIMITED\n",
        "YUV4MPEG2 W32 H16 F5:1 Ip A1:1 C420jpeg\n",
        "YUV4MPEG2 W32 H16 F60:1 Ip A0:0 C420\n",
    ] {
        let mut clip = header.as_bytes().to_vec();
        for frame in 0..2 {
            clip.extend(b"FRAME\n");
            clip.extend(noise(32 * 16 * 3 / 2).iter().map(|sample| sample ^ frame));
        }
        desk.write("clip.y4m", &clip);
        for (command, ending) in STANDARDS {
            let stream = format!("clip.{ending}");
            desk.ok(format!("{command} encode clip.y4m --lossless --force -o {stream}"));
            desk.ok(format!("{command} decode {stream} --force -o back.y4m"));
            assert!(desk.read("back.y4m") == clip, "{command}: {header}");
        }
        // What a stream of pictures does not say is refused, or named.
        let said = desk.refused("encode clip.y4m --lossless -o clip.trp --force");
        assert!(said.contains("frames per second"), "{said}");
        let lossy = desk.run("encode clip.y4m --bits 3 -o clip.trp --force");
        lossy.ok();
        assert!(lossy.stderr().contains("frames per second"), "{}", lossy.stderr());
    }
    desk.write("woven.y4m", b"YUV4MPEG2 W2 H2 It Cmono\nFRAME\n\x01\x02\x03\x04");
    let said = desk.refused("h265 encode woven.y4m --lossless -o woven.265");
    assert!(said.contains("interlaced"), "{said}");
}

#[test]
fn a_file_of_two_pictures_keeps_both_and_an_animation_is_refused() {
    let desk = Desk::new();
    let picture = |flip: u8| {
        let mut bytes = b"P5\n16 16\n255\n".to_vec();
        bytes.extend(noise(256).iter().map(|sample| sample ^ flip));
        bytes
    };
    let both = [picture(0), picture(9)].concat();
    desk.write("two.pgm", &both);
    desk.write("scale.pgm", b"P5\n1 1\n100\n\x05");
    let mut apng = Vec::new();
    let mut encoder = png::Encoder::new(&mut apng, 2, 2);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_animated(3, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    (0..3).for_each(|frame| writer.write_image_data(&[frame; 4]).unwrap());
    writer.finish().unwrap();
    desk.write("moving.png", &apng);
    for (command, stream) in [("h264 ", "two.264"), ("h265 ", "two.265"), ("", "two.trp")] {
        let run = |input: &str| desk.run(format!("{command}encode {input} --lossless -o {stream} --force"));
        run("two.pgm").ok();
        desk.ok(format!("{command}decode {stream} -o back.pgm --force"));
        assert!(desk.read("back.pgm") == both, "{stream}");
        let said = run("scale.pgm").refused();
        assert!(said.contains("largest value is 100"), "{said}");
        let said = run("moving.png").refused();
        assert!(said.contains("animation of 3 frames"), "{said}");
    }
}

#[test]
fn odd_frames_in_420_say_how_they_come_back_and_are_never_called_lossless() {
    let desk = Desk::new();
    desk.write("odd.yuv", noise(17 * 33 + 2 * 9 * 17));
    for (command, ending) in STANDARDS {
        let encode = format!("{command} encode odd.yuv --size 17x33 -o odd.{ending}");
        let said = desk.refused(format!("{encode} --lossless"));
        assert!(said.contains("17×33 in 4:2:0") && said.contains("18×34"), "{said}");
        let said = desk.ok(format!("{encode} --qp 20"));
        assert!(said.contains("17×33 at 8 bit, decoded as 18×34"), "{said}");
    }
}

#[test]
fn the_frame_before_damage_is_kept() {
    let desk = Desk::new();
    desk.write("n.gray", noise(3 * 32 * 32));
    for (command, ending) in STANDARDS {
        let stream = format!("n.{ending}");
        desk.ok(format!("{command} encode n.gray --size 32x32 --qp 30 -o {stream}"));
        let mut bytes = desk.read(&stream);
        let starts: Vec<usize> = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 3] == [0, 0, 1]).collect();
        let is_slice = |&&start: &&usize| match command {
            "h264" => bytes[start + 3] & 31 == 5,
            _ => bytes[start + 3] >> 1 < 32,
        };
        let last = *starts.iter().rfind(is_slice).unwrap();
        // A picture parameter set that is not there.
        bytes[last + 5] = if command == "h264" { 0x44 } else { 0x81 };
        desk.write("bad", &bytes);
        desk.ok(format!("{command} decode bad --keep-going -o kept.gray --force"));
        assert_eq!(desk.read("kept.gray").len(), 2 * 32 * 32, "{command}");
    }
}

#[test]
fn a_tensor_file_over_its_rate_says_so_and_fails_where_the_user_is_strict() {
    let desk = Desk::new();
    // Most of it is carried, and no codec can make it smaller.
    let zeros = floats("f", &[16, 32], |_| 0.0);
    safetensors(&desk.at("mix.safetensors"), &[zeros, ("u", "U32", &[4096], noise(4 * 4096))]);
    let encode = "encode mix.safetensors --bits 6 --all -o mix.tri";
    let run = desk.run(format!("{encode} --json"));
    let said = run.json();
    assert_eq!((&said["over_target"], &said["values"]), (&true.into(), &(512 + 4096).into()), "{said}");
    assert!(run.stderr().contains("more than the 6 asked for; 1 of 2 tensors"), "{}", run.stderr());
    std::fs::remove_file(desk.at("mix.tri")).unwrap();
    let strict = desk.run(format!("{encode} --strict"));
    assert_eq!(strict.code(), 1, "{}", strict.stderr());
    assert!(!desk.at("mix.tri").exists());
}

#[test]
fn a_cut_stream_is_refused_with_its_place_and_kept_when_asked() {
    let desk = Desk::new();
    desk.write("in.gray", picture(32, 32).repeat(2));
    // Of H.265 past the second picture's hash (an SEI of 22 bytes) and into its slice.
    for (standard, more, left_out, place) in
        [("h264", "", 9, "NAL unit 3 at byte"), ("h265", "--preset fast", 40, "at byte")]
    {
        desk.ok(format!("{standard} encode in.gray --size 32x32 --qp 30 {more} -o whole --force"));
        let stream = desk.read("whole");
        desk.write("cut", &stream[..stream.len() - left_out]);
        let said = desk.refused(format!("{standard} decode cut -o cut.gray"));
        assert!(said.contains(place) && said.contains("--keep-going"), "{said}");
        assert!(!desk.at("cut.gray").exists());
        desk.ok(format!("{standard} decode cut -o cut.gray --keep-going"));
        assert_eq!(desk.read("cut.gray").len(), 32 * 32);
        std::fs::remove_file(desk.at("cut.gray")).unwrap();
    }
}
