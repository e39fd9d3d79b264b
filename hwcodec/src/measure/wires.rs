//! Slow wires: when is coding a tensor faster than sending it as it is?
//!
//! Real decode on NVDEC, our encoder's own time (NVENC's where there is one),
//! and a wire that waits exactly as long as its bits would take. Serial adds
//! the three; dual-lane runs them as a pipeline, picture by picture.

use super::{Bench, typical};
use crate::Error;
use crate::nvdec::{Session, Standard};
use crate::recording::{Recording, WirePoint};
use crate::streams::TestStream;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// 50 Mb/s broadband to 400 Gb/s.
const WIRES: [f64; 9] = [50e6, 100e6, 1e9, 10e9, 25e9, 50e9, 100e9, 200e9, 400e9];
/// Values travel as bf16 when they are not coded.
const RAW_BITS: f64 = 16.0;
/// A dual-lane run longer than this is not waited for: nothing but the wire is in it.
const LONGEST_S: f64 = 2.0;

pub(super) fn run(bench: &Bench<'_>, recording: &mut Recording) -> Result<(), Error> {
    for standard in [Standard::H264, Standard::Hevc] {
        let stream = bench.stream(typical(standard, 1024, 16))?;
        let packets = stream.packets();
        let cuvid = bench.gpu.cuvid()?;
        let mut session = Session::new(bench.gpu, &cuvid, standard)?;
        let decode_s = bench
            .repeat(|| {
                let start = Instant::now();
                session.decode(&packets, &mut |_, _| Ok(()))?;
                Ok(start.elapsed().as_secs_f64())
            })?
            .median;
        for wire in WIRES {
            let coded_bits = stream.bytes.len() as f64 * 8.0;
            let raw_bits = (stream.spec.width * stream.spec.height * packets.len()) as f64 * RAW_BITS;
            let serial_s = stream.encode_s + coded_bits / wire + decode_s;
            let dual_lane_s = if coded_bits / wire + stream.encode_s > LONGEST_S {
                closed_form_s(&packets, &stream, wire, decode_s)
            } else {
                dual_lane_s(&mut session, &packets, &stream, wire)?
            };
            recording.wires.push(WirePoint {
                standard,
                wire_bits_per_s: wire,
                raw_bits,
                coded_bits,
                encoder: "cpu".into(),
                encode_s: stream.encode_s,
                decode_s,
                raw_s: raw_bits / wire,
                serial_s,
                dual_lane_s,
            });
        }
    }
    Ok(())
}

/// A three-stage pipeline of equal stages' medians: fill, then the slowest stage.
fn closed_form_s(packets: &[&[u8]], stream: &TestStream, wire: f64, decode_s: f64) -> f64 {
    let n = packets.len() as f64;
    let wire_s = stream.bytes.len() as f64 * 8.0 / wire;
    let stages = [stream.encode_s / n, wire_s / n, decode_s / n];
    stages.iter().sum::<f64>() + (n - 1.0) * stages.iter().copied().fold(0.0, f64::max)
}

/// The same, run: one thread stands for the encoder and one for the wire, each
/// waiting as long as the real thing takes; decoding is real.
fn dual_lane_s(
    session: &mut Session,
    packets: &[&[u8]],
    stream: &TestStream,
    wire: f64,
) -> Result<f64, Error> {
    let encode_s = stream.encode_s / packets.len() as f64;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (coded_in, coded) = sync_channel::<&[u8]>(2);
        let (sent_in, sent) = sync_channel::<&[u8]>(2);
        scope.spawn(move || {
            for packet in packets {
                wait_for(encode_s);
                if coded_in.send(packet).is_err() {
                    break;
                }
            }
        });
        scope.spawn(move || {
            for packet in coded {
                wait_for(packet.len() as f64 * 8.0 / wire);
                if sent_in.send(packet).is_err() {
                    break;
                }
            }
        });
        for packet in sent {
            session.decode(&[packet], &mut |_, _| Ok(()))?;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// Sleeps, then spins the last stretch: sleeping alone overshoots by up to 0.1 ms.
fn wait_for(seconds: f64) {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    if seconds > 1e-3 {
        std::thread::sleep(Duration::from_secs_f64(seconds - 5e-4));
    }
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
