//! Images and video through `trinity encode` and `trinity decode`.

use std::path::Path;
use std::process::Command;

use crate::support::trinity_in;

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
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_pgm(&at.join("hill.pgm"), 255);
    let original = std::fs::read(at.join("hill.pgm")).unwrap();
    for codec in ["trinity", "trinity-static", "paper", "paper-cabac"] {
        let said = trinity_in(
            at,
            ["encode", "hill.pgm", "--codec", codec, "--bits", "2.5", "--force", "-o", "hill.bin"],
        );
        assert!(said.ok().contains("PSNR"), "{codec}");
        let size = std::fs::metadata(at.join("hill.bin")).unwrap().len();
        assert!(8 * size as usize <= SIZE.0 * SIZE.1 * 5 / 2, "{codec}: {size} bytes");
        trinity_in(at, ["decode", "hill.bin", "-o", "back.pgm", "--force"]).ok();
        let back = std::fs::read(at.join("back.pgm")).unwrap();
        let pixels = |bytes: &[u8]| bytes[bytes.len() - SIZE.0 * SIZE.1..].to_vec();
        let worst = pixels(&original).iter().zip(pixels(&back)).map(|(&a, b)| a.abs_diff(b)).max();
        assert!(worst.is_some_and(|worst| worst < 40), "{codec}: off by {worst:?}");
    }
}

#[test]
fn deep_and_coloured_pictures_come_back_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_pgm(&at.join("deep.pgm"), 4095);
    trinity_in(at, ["encode", "deep.pgm", "--lossless"]).ok();
    trinity_in(at, ["decode", "deep.trp", "-o", "back.pgm"]).ok();
    let tail = |name: &str| {
        let bytes = std::fs::read(at.join(name)).unwrap();
        bytes[bytes.len() - 2 * SIZE.0 * SIZE.1..].to_vec()
    };
    assert!(tail("deep.pgm") == tail("back.pgm"));
    write_y4m(&at.join("clip.y4m"), 3);
    trinity_in(at, ["encode", "clip.y4m", "--lossless", "-o", "clip.trp"]).ok();
    trinity_in(at, ["decode", "clip.trp", "-o", "clip.yuv"]).ok();
    let raw: Vec<u8> = std::fs::read(at.join("clip.y4m"))
        .unwrap()
        .split_inclusive(|&b| b == b'\n')
        .skip(1)
        .flatten()
        .copied()
        .collect();
    let frame = SIZE.0 * SIZE.1 * 3 / 2;
    let wanted: Vec<u8> = raw.chunks(frame + 6).flat_map(|chunk| &chunk[6..]).copied().collect();
    assert!(std::fs::read(at.join("clip.yuv")).unwrap() == wanted);
}

#[test]
fn ffmpeg_shows_the_video_of_the_paper_as_we_do() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        eprintln!("no ffmpeg here: its view of the stream is not checked");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_y4m(&at.join("clip.y4m"), 3);
    trinity_in(at, ["encode", "clip.y4m", "--codec", "paper", "--qp", "24"]).ok();
    trinity_in(at, ["decode", "clip.264", "-o", "ours.yuv"]).ok();
    let shown = Command::new("ffmpeg")
        .args(["-loglevel", "error", "-i", "clip.264", "-f", "rawvideo", "theirs.yuv"])
        .current_dir(at)
        .status()
        .unwrap();
    assert!(shown.success());
    assert!(std::fs::read(at.join("ours.yuv")).unwrap() == std::fs::read(at.join("theirs.yuv")).unwrap());
}

#[test]
fn a_colour_png_stays_in_colour() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        eprintln!("no ffmpeg here: colours are not checked");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_y4m(&at.join("clip.y4m"), 1);
    let ffmpeg = |args: &[&str]| {
        let mut run = Command::new("ffmpeg");
        run.args(["-loglevel", "error", "-y", "-i"]).args(args).current_dir(at);
        assert!(run.status().unwrap().success(), "{args:?}");
    };
    ffmpeg(&["clip.y4m", "-pix_fmt", "rgb24", "photo.png"]);
    ffmpeg(&["photo.png", "-f", "rawvideo", "photo.rgb"]);
    let photo = std::fs::read(at.join("photo.rgb")).unwrap();
    for (command, stream) in [("h264", "photo.264"), ("h265", "photo.265")] {
        trinity_in(at, [command, "encode", "photo.png", "--lossless", "-o", stream]).ok();
        ffmpeg(&[stream, "-pix_fmt", "rgb24", "-f", "rawvideo", "shown.rgb"]);
        assert!(std::fs::read(at.join("shown.rgb")).unwrap() == photo, "{command}");
    }
    for codec in ["paper", "trinity"] {
        let encode = ["encode", "photo.png", "--lossless", "--codec", codec, "-o", "photo.bin", "--force"];
        trinity_in(at, encode).ok();
        trinity_in(at, ["decode", "photo.bin", "-o", "back.png", "--force"]).ok();
        ffmpeg(&["back.png", "-f", "rawvideo", "back.rgb"]);
        assert!(std::fs::read(at.join("back.rgb")).unwrap() == photo, "{codec}");
    }
}

#[test]
fn what_pictures_cannot_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_pgm(&at.join("hill.pgm"), 255);
    let refused = |args: &[&str]| trinity_in(at, args.iter().copied()).refused();
    let inter = refused(&["encode", "hill.pgm", "--bits", "2", "--motion", "inter"]);
    assert!(inter.contains("inter prediction is not supported"), "{inter}");
    let tensors = refused(&["encode", "hill.pgm", "--bits", "2", "--codec", "rtn"]);
    assert!(tensors.contains("codecs of pictures: trinity"), "{tensors}");
    let video = refused(&["encode", "hill.pgm", "--bits", "2", "--codec", "h265"]);
    assert!(video.contains("trinity h265 encode"), "{video}");
    trinity_in(at, ["encode", "hill.pgm", "--bits", "2", "-o", "hill.trp"]).ok();
    let name = refused(&["decode", "hill.trp", "-o", "hill.jpg"]);
    assert!(name.contains(".png"), "{name}");
    let cut = std::fs::read(at.join("hill.trp")).unwrap();
    std::fs::write(at.join("cut.trp"), &cut[..cut.len() / 2]).unwrap();
    let damaged = refused(&["decode", "cut.trp", "-o", "cut.png"]);
    assert!(damaged.contains("cut.trp"), "{damaged}");
}
