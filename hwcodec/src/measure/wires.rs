//! Slow wires: when is coding a tensor faster than sending it as it is?
//!
//! Real decode on NVDEC, our encoder's own time (NVENC's where there is one),
//! and a wire that waits exactly as long as its bits would take. Serial adds
//! the three; dual-lane runs them as a pipeline, picture by picture.

use super::bench::{Bench, typical};
use super::decode;
use crate::nvdec::{Session, Standard};
use crate::recording::{Recording, WirePoint};
use crate::stats::wall_s;
use crate::streams::{self, Spec};
use crate::{Error, discover};
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
        let load = Load::new(bench, typical(standard, 1024, 16))?;
        let packets: Vec<&[u8]> = load.packets.iter().map(Vec::as_slice).collect();
        let cuvid = bench.gpu.cuvid()?;
        let mut session = Session::new(bench.gpu, &cuvid, standard)?;
        let mut decode = || session.decode(&packets, &mut |_, _| Ok(())).map(drop);
        let decode_s = bench.repeat(|| wall_s(&mut decode))?.median;
        for wire in WIRES {
            let wire_s = load.coded_bits() / wire;
            let dual_lane_s = if wire_s + load.encode_s > LONGEST_S {
                load.closed_form_s(wire_s, decode_s)
            } else {
                load.dual_lane_s(&mut session, wire)?
            };
            recording.wires.push(WirePoint {
                standard,
                wire_bits_per_s: wire,
                raw_bits: load.raw_bits,
                coded_bits: load.coded_bits(),
                encoder: load.encoder.into(),
                encode_s: load.encode_s,
                decode_s,
                raw_s: load.raw_bits / wire,
                serial_s: load.encode_s + wire_s + decode_s,
                dual_lane_s,
            });
        }
    }
    Ok(())
}

/// A coded tensor, picture by picture, and what coding it took.
struct Load {
    packets: Vec<Vec<u8>>,
    /// `nvenc` or `cpu`.
    encoder: &'static str,
    encode_s: f64,
    raw_bits: f64,
}

impl Load {
    /// Pictures coded by NVENC where there is one, else by our own encoder.
    fn new(bench: &Bench<'_>, spec: Spec) -> Result<Self, Error> {
        let raw_bits = (spec.width * spec.height * spec.pictures) as f64 * RAW_BITS;
        match discover::open_encoder(bench.gpu) {
            Ok(mut session) => {
                session.start(decode::settings(&spec))?;
                let frames = streams::weight_like(&spec, 1);
                let mut packets = Vec::new();
                let mut encode = || session.encode(&frames).map(|made| packets = made);
                let encode_s = bench.repeat(|| wall_s(&mut encode))?;
                Ok(Self { packets, encoder: "nvenc", encode_s: encode_s.median, raw_bits })
            }
            Err(_) => {
                let stream = bench.stream(spec)?;
                let packets = stream.packets().into_iter().map(<[u8]>::to_vec).collect();
                Ok(Self { packets, encoder: "cpu", encode_s: stream.encode_s, raw_bits })
            }
        }
    }

    fn coded_bits(&self) -> f64 {
        self.packets.iter().map(Vec::len).sum::<usize>() as f64 * 8.0
    }

    /// A three-stage pipeline of equal stages' medians: fill, then the slowest stage.
    fn closed_form_s(&self, wire_s: f64, decode_s: f64) -> f64 {
        let n = self.packets.len() as f64;
        let stages = [self.encode_s / n, wire_s / n, decode_s / n];
        stages.iter().sum::<f64>() + (n - 1.0) * stages.iter().copied().fold(0.0, f64::max)
    }

    /// The same, run: one thread stands for the encoder and one for the wire, each
    /// waiting as long as the real thing takes; decoding is real.
    fn dual_lane_s(&self, session: &mut Session, wire: f64) -> Result<f64, Error> {
        let encode_s = self.encode_s / self.packets.len() as f64;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let (coded_in, coded) = sync_channel::<&[u8]>(2);
            let (sent_in, sent) = sync_channel::<&[u8]>(2);
            scope.spawn(move || {
                for packet in &self.packets {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_takes_its_slowest_stage_and_once_the_others() {
        let load = Load { packets: vec![vec![0; 100]; 10], encoder: "cpu", encode_s: 1.0, raw_bits: 16e3 };
        assert_eq!(load.coded_bits(), 8000.0);
        // Ten pictures: the wire bounds, then the encoder, then all alike.
        for ((wire_s, decode_s), expected_s) in [((5.0, 2.0), 5.3), ((0.5, 0.5), 1.1), ((1.0, 1.0), 1.2)] {
            assert!((load.closed_form_s(wire_s, decode_s) - expected_s).abs() < 1e-12, "{wire_s} {decode_s}");
        }
        // One picture has nothing to hide behind.
        let one = Load { packets: vec![vec![0; 100]], ..load };
        assert!((one.closed_form_s(5.0, 2.0) - 8.0).abs() < 1e-12);
    }

    #[test]
    fn waiting_takes_as_long_as_it_says_or_longer() {
        for seconds in [0.0, 2e-4, 3e-3] {
            let start = Instant::now();
            wait_for(seconds);
            assert!(start.elapsed().as_secs_f64() >= seconds);
        }
    }
}
