//! Images and video through `trinity encode` and `trinity decode`.

use std::path::Path;
use std::process::Command;

use crate::support::Desk;

const SIZE: (usize, usize) = (48, 32);

/// A soft hill with a hard edge, as samples up to `limit`.
fn sample(x: usize, y: usize, limit: usize) -> usize {
    let hill = (x * y * limit) / (SIZE.0 * SIZE.1);
    if x + y > 50 { limit - hill } else { hill }
}

fn write_pgm(path: &Path, limit: usize) {
    let (width, height) = SIZE;
    let mut bytes = format!("P5 {width} {height} {limit}\n").into_bytes();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let value = sample(x, y, limit) as u16;
        bytes.extend(&value.to_be_bytes()[usize::from(limit < 256)..]);
    }
    std::fs::write(path, bytes).unwrap();
}

fn write_y4m(path: &Path, frames: usize) {
    let (width, height) = SIZE;
    let mut bytes = format!("YUV4MPEG2 W{width} H{height} F25:1 C420jpeg\n").into_bytes();
    for frame in 0..frames {
        bytes.extend(b"FRAME\n");
        bytes.extend((0..width * height).map(|i| (sample(i % width, i / width, 200) + frame) as u8));
        bytes.extend((0..width * height / 2).map(|i| (100 + i % 8) as u8));
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_image_goes_through_every_profile_and_comes_back() {
    let desk = Desk::new();
    write_pgm(&desk.at("hill.pgm"), 255);
    let original = desk.read("hill.pgm");
    for codec in ["trinity", "trinity-static", "paper", "paper-cabac"] {
        let said = desk.ok(format!("encode hill.pgm --codec {codec} --bits 2.5 --force -o hill.bin"));
        assert!(said.contains("PSNR"), "{codec}");
        let size = desk.read("hill.bin").len();
        assert!(8 * size <= SIZE.0 * SIZE.1 * 5 / 2, "{codec}: {size} bytes");
        desk.ok("decode hill.bin -o back.pgm --force");
        let back = desk.read("back.pgm");
        let pixels = |bytes: &[u8]| bytes[bytes.len() - SIZE.0 * SIZE.1..].to_vec();
        let worst = pixels(&original).iter().zip(pixels(&back)).map(|(&a, b)| a.abs_diff(b)).max();
        assert!(worst.is_some_and(|worst| worst < 40), "{codec}: off by {worst:?}");
    }
}

#[test]
fn deep_and_coloured_pictures_come_back_exactly() {
    let desk = Desk::new();
    write_pgm(&desk.at("deep.pgm"), 4095);
    desk.ok("encode deep.pgm --lossless");
    desk.ok("decode deep.trp -o back.pgm");
    let tail = |name: &str| {
        let bytes = desk.read(name);
        bytes[bytes.len() - 2 * SIZE.0 * SIZE.1..].to_vec()
    };
    assert!(tail("deep.pgm") == tail("back.pgm"));
    write_y4m(&desk.at("clip.y4m"), 3);
    desk.ok("encode clip.y4m --lossless -o clip.trp");
    desk.ok("decode clip.trp -o clip.yuv");
    let raw: Vec<u8> =
        desk.read("clip.y4m").split_inclusive(|&b| b == b'\n').skip(1).flatten().copied().collect();
    let frame = SIZE.0 * SIZE.1 * 3 / 2;
    let wanted: Vec<u8> = raw.chunks(frame + 6).flat_map(|chunk| &chunk[6..]).copied().collect();
    assert!(desk.read("clip.yuv") == wanted);
}

#[test]
fn ffmpeg_shows_the_video_of_the_paper_as_we_do() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        eprintln!("no ffmpeg here: its view of the stream is not checked");
        return;
    }
    let desk = Desk::new();
    write_y4m(&desk.at("clip.y4m"), 3);
    desk.ok("encode clip.y4m --codec paper --qp 24");
    desk.ok("decode clip.264 -o ours.yuv");
    let shown = Command::new("ffmpeg")
        .args(["-loglevel", "error", "-i", "clip.264", "-f", "rawvideo", "theirs.yuv"])
        .current_dir(desk.path())
        .status()
        .unwrap();
    assert!(shown.success());
    assert!(desk.read("ours.yuv") == desk.read("theirs.yuv"));
}

#[test]
fn a_colour_png_stays_in_colour() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        eprintln!("no ffmpeg here: colours are not checked");
        return;
    }
    let desk = Desk::new();
    write_y4m(&desk.at("clip.y4m"), 1);
    let ffmpeg = |args: &[&str]| {
        let mut run = Command::new("ffmpeg");
        run.args(["-loglevel", "error", "-y", "-i"]).args(args).current_dir(desk.path());
        assert!(run.status().unwrap().success(), "{args:?}");
    };
    ffmpeg(&["clip.y4m", "-pix_fmt", "rgb24", "photo.png"]);
    ffmpeg(&["photo.png", "-f", "rawvideo", "photo.rgb"]);
    let photo = desk.read("photo.rgb");
    for (command, stream) in [("h264", "photo.264"), ("h265", "photo.265")] {
        desk.ok(format!("{command} encode photo.png --lossless -o {stream}"));
        ffmpeg(&[stream, "-pix_fmt", "rgb24", "-f", "rawvideo", "shown.rgb"]);
        assert!(desk.read("shown.rgb") == photo, "{command}");
    }
    for codec in ["paper", "trinity"] {
        desk.ok(format!("encode photo.png --lossless --codec {codec} -o photo.bin --force"));
        desk.ok("decode photo.bin -o back.png --force");
        ffmpeg(&["back.png", "-f", "rawvideo", "back.rgb"]);
        assert!(desk.read("back.rgb") == photo, "{codec}");
    }
}

#[test]
fn what_pictures_cannot_do_is_said() {
    let desk = Desk::new();
    write_pgm(&desk.at("hill.pgm"), 255);
    for (line, said) in [
        ("--motion inter", "inter prediction is not supported"),
        ("--codec rtn", "codecs of pictures: trinity"),
        ("--codec h265", "trinity h265 encode"),
    ] {
        let refusal = desk.refused(format!("encode hill.pgm --bits 2 {line}"));
        assert!(refusal.contains(said), "{refusal}");
    }
    desk.ok("encode hill.pgm --bits 2 -o hill.trp");
    let name = desk.refused("decode hill.trp -o hill.jpg");
    assert!(name.contains(".png"), "{name}");
    let cut = desk.read("hill.trp");
    desk.write("cut.trp", &cut[..cut.len() / 2]);
    let damaged = desk.refused("decode cut.trp -o cut.png");
    assert!(damaged.contains("cut.trp"), "{damaged}");
}
