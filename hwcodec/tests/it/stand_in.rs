//! NVENC's path against a library that checks order and arguments and says in
//! its bitstream what it was told.

use std::ffi::c_void;
use std::sync::Arc;
use trinity_bits::{Chroma, Frame, Rate};
use trinity_hwcodec::Error;
use trinity_hwcodec::measure::encode;
use trinity_hwcodec::nvdec::Standard;
use trinity_hwcodec::nvenc::{RING, Session, Settings};
use trinity_hwcodec::sys::nvenc::Nvenc;

/// The stand-in, and a probe for how many sessions it still holds.
struct StandIn {
    nvenc: Arc<Nvenc>,
    library: libloading::Library,
    _folder: tempfile::TempDir,
}

impl StandIn {
    fn build() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = super::compile("stand_in.c", &["-shared", "-fPIC"], &folder.path().join("libstandin.so"))?;
        let path = path.to_str().unwrap();
        // SAFETY: our own library, without initialisers.
        let library = unsafe { libloading::Library::new(path) }.unwrap();
        Some(Self { nvenc: Arc::new(Nvenc::load(path).unwrap()), library, _folder: folder })
    }

    fn open(&self) -> Result<Session, Error> {
        // SAFETY: the stand-in takes any non-null pointer for a context.
        unsafe { Session::open(&self.nvenc, std::ptr::dangling_mut::<c_void>(), "stand-in") }
    }

    fn sessions(&self) -> i32 {
        // SAFETY: `int stand_in_open_sessions(void)`.
        unsafe {
            let probe: libloading::Symbol<'_, unsafe extern "C" fn() -> i32> =
                self.library.get(b"stand_in_open_sessions\0").unwrap();
            probe()
        }
    }
}

fn settings(standard: Standard, chroma: Chroma, depth: u32, rate: Rate) -> Settings {
    Settings { standard, width: 20, height: 14, chroma, depth, rate }
}

fn frames(settings: &Settings, count: usize) -> Vec<Frame> {
    (0..count)
        .map(|n| {
            let mut frame = Frame::filled(20, 14, settings.chroma, settings.depth, 0);
            for (c, plane) in frame.planes.iter_mut().enumerate() {
                for (i, sample) in plane.samples.iter_mut().enumerate() {
                    *sample = ((i * 7 + c * 31 + n * 13) % (1 << settings.depth)) as u16;
                }
            }
            frame
        })
        .collect()
}

/// The stand-in's hash over the rows NVENC would read.
fn expected_hash(frame: &Frame) -> u32 {
    let deep = frame.depth > 8;
    let mut bytes = Vec::new();
    let mut put = |sample: u16| match deep {
        true => bytes.extend((sample << (16 - frame.depth)).to_le_bytes()),
        false => bytes.push(sample as u8),
    };
    match frame.chroma {
        Chroma::C444 => frame.planes.iter().flat_map(|p| &p.samples).for_each(|&s| put(s)),
        _ => {
            frame.planes[0].samples.iter().for_each(|&s| put(s));
            for i in 0..10 * 7 {
                for c in 1..3 {
                    put(frame.planes.get(c).map_or(1 << (frame.depth - 1), |p| p.samples[i]));
                }
            }
        }
    }
    bytes.iter().fold(2166136261u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(16777619))
}

#[test]
fn nvenc_is_told_the_format_the_rate_and_every_sample() {
    let Some(stand_in) = StandIn::build() else { return };
    use Standard::{H264, Hevc};
    // Format, monochrome, chroma, rate control, QP, bit rate, lossless.
    let cases = [
        (H264, Chroma::C420, 8, Rate::Qp(23.0), [1, 0, 1, 0, 23, 0, 0]),
        (H264, Chroma::C400, 8, Rate::Qp(5.0), [1, 1, 1, 0, 5, 0, 0]),
        (H264, Chroma::C444, 8, Rate::Lossless, [1000, 0, 3, 0, 0, 0, 1]),
        (Hevc, Chroma::C420, 10, Rate::Bits(2.0), [10000, 0, 1, 2, 0, 25200, 0]),
        (Hevc, Chroma::C444, 10, Rate::Lossless, [100000, 0, 3, 0, 0, 0, 1]),
        (Hevc, Chroma::C444, 8, Rate::Qp(30.0), [1000, 0, 3, 0, 30, 0, 0]),
    ];
    for (standard, chroma, depth, rate, [format, mono, idc, rc, qp, bits, lossless]) in cases {
        let told = format!(
            "format {format} mono {mono} chroma {idc} depth {depth} rc {rc} qp {qp} rate {bits} lossless {lossless}"
        );
        let settings = settings(standard, chroma, depth, rate);
        let mut session = stand_in.open().unwrap();
        session.start(settings).unwrap();
        // More frames than the ring holds: buffers must come round.
        let frames = frames(&settings, RING * 2 + 1);
        let pieces = session.encode(&frames).unwrap();
        for (n, (piece, frame)) in pieces.iter().zip(&frames).enumerate() {
            let (name, hash) = (standard.name(), expected_hash(frame));
            let expected = format!("frame {n} {name} 20x14 {told} samples {hash:08x}");
            assert_eq!(std::str::from_utf8(piece).unwrap(), expected);
        }
        assert_eq!(pieces.len(), frames.len());
        drop(session);
        assert_eq!(stand_in.sessions(), 0, "the session was not given back in order");
    }
}

#[test]
fn a_gpu_without_an_encoder_gets_a_sentence() {
    let Some(stand_in) = StandIn::build() else { return };
    // SAFETY: the stand-in takes null for a GPU without NVENC.
    let refused = unsafe { Session::open(&stand_in.nvenc, std::ptr::null_mut(), "NVIDIA H200") };
    let message = refused.unwrap_err().to_string();
    assert_eq!(message, "NVIDIA H200 has no NVENC engine (opening a session answers: unsupported device)");
}

#[test]
fn what_the_engine_cannot_do_is_refused_by_name() {
    let Some(stand_in) = StandIn::build() else { return };
    for (bad, what) in [
        (settings(Standard::H264, Chroma::C420, 10, Rate::Qp(20.0)), "10 bit"),
        (settings(Standard::Hevc, Chroma::C400, 8, Rate::Qp(20.0)), "4:0:0"),
        (settings(Standard::Hevc, Chroma::C422, 8, Rate::Qp(20.0)), "4:2:2"),
        (Settings { width: 9000, ..settings(Standard::Hevc, Chroma::C420, 8, Rate::Qp(20.0)) }, "this size"),
    ] {
        let message = stand_in.open().unwrap().start(bad).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
    assert_eq!(stand_in.sessions(), 0);
}

#[test]
fn capabilities_are_read_per_standard() {
    let Some(stand_in) = StandIn::build() else { return };
    let session = stand_in.open().unwrap();
    let (h264, hevc) =
        (session.capabilities(Standard::H264).unwrap(), session.capabilities(Standard::Hevc).unwrap());
    assert_eq!((h264.engines, h264.max_width, h264.ten_bit, h264.monochrome), (3, 4096, false, true));
    assert_eq!((hevc.engines, hevc.max_width, hevc.ten_bit, hevc.monochrome), (3, 8192, true, false));
}

#[test]
fn encoding_before_starting_and_frames_of_another_kind_are_errors() {
    let Some(stand_in) = StandIn::build() else { return };
    let mut session = stand_in.open().unwrap();
    let kind = settings(Standard::H264, Chroma::C420, 8, Rate::Qp(20.0));
    assert!(session.encode(&frames(&kind, 1)).is_err());
    session.start(kind).unwrap();
    assert!(session.encode(&[Frame::filled(8, 8, Chroma::C420, 8, 0)]).is_err());
    assert_eq!(session.encode(&frames(&kind, 2)).unwrap().len(), 2, "still usable afterwards");
}

#[test]
fn encoding_is_timed_on_every_session_and_all_are_given_back() {
    let Some(stand_in) = StandIn::build() else { return };
    let kind = settings(Standard::Hevc, Chroma::C420, 8, Rate::Qp(20.0));
    let pictures = frames(&kind, 2);
    let mut session = stand_in.open().unwrap();
    session.start(kind).unwrap();
    let bytes: usize = session.encode(&pictures).unwrap().iter().map(Vec::len).sum();
    drop(session);
    // The stand-in counts sessions without a lock: one at a time.
    let point = encode::measure(&|| stand_in.open(), kind, &pictures, 1, 3).unwrap();
    assert_eq!(point.bits_per_value, 8.0 * bytes as f64 / (2.0 * 20.0 * 14.0));
    assert_eq!((point.sessions, point.seconds_per_picture.n), (1, 3));
    assert!(point.seconds_per_picture.median > 0.0 && point.pictures >= 8);
    assert_eq!(stand_in.sessions(), 0);
    let refused = encode::measure(&|| stand_in.open(), Settings { width: 9000, ..kind }, &pictures, 1, 3);
    assert!(refused.is_err_and(|e| e.to_string().contains("this size")));
    assert_eq!(stand_in.sessions(), 0);
}
