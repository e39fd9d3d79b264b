//! One iteration as events: compute, encoder, wire and decoder as resources.
//!
//! Plays the pipeline micro-batch by micro-batch and every message chunk by
//! chunk, where [`crate::estimate`] uses closed forms. The two must agree:
//! this is their check, and the picture a user can look at. It shares the
//! durations of kernels and the choice of channels with the closed forms, and
//! nothing of how they are put together.

use crate::compression::Channel;
use crate::hardware::Cluster;
use crate::job::{Job, Phase, Schedule};
use crate::schedule::{self, Parts, Reduce};
use crate::{Infeasible, estimate};

/// What one resource did for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Position in [`Timeline::tracks`].
    pub track: usize,
    pub name: String,
    /// `compute`, `encode`, `wire`, `decode`, `reduce`, `optimizer`.
    pub kind: &'static str,
    pub start_s: f64,
    pub end_s: f64,
}

/// One simulated iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub iteration_s: f64,
    pub tracks: Vec<String>,
    pub spans: Vec<Span>,
}

/// Simulates one iteration. Fails when the job does not fit the cluster, or its
/// pipeline runs both ways.
pub fn simulate(cluster: &Cluster, job: &Job) -> Result<Timeline, Infeasible> {
    estimate(cluster, job)?;
    if job.parallelism.schedule == Schedule::DualPipe && job.parallelism.pipeline > 1 {
        return Err(Infeasible::NotPlayed);
    }
    let parts = schedule::parts(cluster, job);
    let mut player = Player::new(job, &parts);
    player.play();
    Ok(player.timeline)
}

/// Busy times of a message's chunks at encoder, wire and decoder, from the
/// moment it is handed over.
struct Message {
    /// (kind, start, end), chunk after chunk.
    chunks: Vec<(&'static str, f64, f64)>,
    total_s: f64,
}

/// Chunks beyond this are played as this many larger ones.
const MOST_CHUNKS: f64 = 4096.0;

/// Plays one message through encoder, wire and decoder. `encodes` is false
/// where it is forwarded as it came.
fn play_message(channel: &Channel, values: f64, encodes: bool) -> Message {
    let hops_s = channel.link.neighbour_s();
    let count = (values / channel.chunk_values).ceil().clamp(1.0, MOST_CHUNKS);
    let each = channel.stages(values / count);
    let (mut encoder, mut wire, mut decoder) = (0.0f64, 0.0f64, 0.0f64);
    let mut chunks = Vec::new();
    for _ in 0..count as usize {
        let encoded = if encodes { encoder + each.encode_s } else { 0.0 };
        if each.encode_s > 0.0 && encodes {
            chunks.push(("encode", encoder, encoded));
        }
        encoder = encoded;
        let sent = wire.max(encoded) + each.wire_s;
        chunks.push(("wire", sent - each.wire_s, sent));
        wire = sent;
        let decoded = decoder.max(sent) + each.decode_s;
        if each.decode_s > 0.0 {
            chunks.push(("decode", decoded - each.decode_s, decoded));
        }
        decoder = decoded;
    }
    Message { chunks, total_s: decoder + hops_s + if encodes { channel.codec_latency_s } else { 0.0 } }
}

/// A pass of one micro-batch through one chunk of layers on one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    backward: bool,
    chunk: usize,
    microbatch: usize,
}

struct Player<'a> {
    parts: &'a Parts,
    stages: usize,
    chunks: usize,
    microbatches: usize,
    training: bool,
    decoding: bool,
    forward_message: Option<Message>,
    backward_message: Option<Message>,
    /// End of each pass, by stage, chunk and micro-batch.
    forward_end: Vec<f64>,
    backward_end: Vec<f64>,
    timeline: Timeline,
}

impl<'a> Player<'a> {
    fn new(job: &Job, parts: &'a Parts) -> Self {
        let p = &job.parallelism;
        let training = job.phase == Phase::Training;
        let stages = p.pipeline as usize;
        let chunks = if training { p.schedule.chunks() as usize } else { 1 };
        // Decoding is played for two tokens; the second shows the steady pace.
        let tokens = if job.phase == Phase::Decode { 2 } else { 1 };
        let microbatches = job.microbatches() as usize * tokens;
        let mut tracks = Vec::new();
        for stage in 0..stages {
            for resource in ["compute", "encode", "wire", "decode"] {
                tracks.push(format!("stage {stage} {resource}"));
            }
        }
        let message = |boundary: &Option<schedule::Boundary>| {
            boundary.as_ref().map(|b| {
                if b.channel.is_coded() {
                    play_message(&b.channel, b.values, true)
                } else {
                    // The wire alone, in closed form.
                    Message { chunks: vec![("wire", 0.0, b.whole_s)], total_s: b.whole_s }
                }
            })
        };
        let passes = stages * chunks * microbatches;
        Self {
            parts,
            stages,
            chunks,
            microbatches,
            training,
            decoding: job.phase == Phase::Decode,
            forward_message: message(&parts.forward_boundary),
            backward_message: message(&parts.backward_boundary),
            forward_end: vec![f64::NAN; passes],
            backward_end: vec![f64::NAN; passes],
            timeline: Timeline { iteration_s: 0.0, tracks, spans: Vec::new() },
        }
    }

    fn at(&self, stage: usize, chunk: usize, microbatch: usize) -> usize {
        (stage * self.chunks + chunk) * self.microbatches + microbatch
    }

    /// The order in which a stage runs its passes (Narayanan 2021, figure 4).
    fn order(&self, stage: usize) -> Vec<Pass> {
        let (p, v) = (self.stages, self.chunks);
        let total = self.microbatches * v;
        let pass = |k: usize, backward: bool| {
            let (group, within) = (k / (p * v), k % (p * v));
            let chunk = if v == 1 { 0 } else { within / p };
            let microbatch = if v == 1 { k } else { group * p + within % p };
            Pass { backward, chunk: if backward { v - 1 - chunk } else { chunk }, microbatch }
        };
        if !self.training {
            return (0..total).map(|k| pass(k, false)).collect();
        }
        let ahead = if v == 1 { p - stage - 1 } else { (p - stage - 1) * 2 + (v - 1) * p };
        let warmup = ahead.min(total);
        let mut order: Vec<Pass> = (0..warmup).map(|k| pass(k, false)).collect();
        for k in 0..total - warmup {
            order.push(pass(warmup + k, false));
            order.push(pass(k, true));
        }
        order.extend((total - warmup..total).map(|k| pass(k, true)));
        order
    }

    /// End of the pass this one waits for, and whether a message lies between.
    fn awaits(&self, stage: usize, pass: Pass) -> Option<(f64, bool)> {
        let Pass { backward, chunk, microbatch } = pass;
        let last = self.stages - 1;
        let crosses = self.stages > 1;
        if backward {
            let own = self.forward_end[self.at(stage, chunk, microbatch)];
            let from = if stage < last {
                Some(self.at(stage + 1, chunk, microbatch))
            } else if chunk + 1 < self.chunks {
                Some(self.at(0, chunk + 1, microbatch))
            } else {
                None
            };
            return Some(from.map_or((own, false), |from| (self.backward_end[from], crosses)));
        }
        let from = if stage > 0 {
            self.at(stage - 1, chunk, microbatch)
        } else if chunk > 0 {
            self.at(last, chunk - 1, microbatch)
        } else if self.decoding && microbatch >= self.microbatches / 2 {
            // The second token needs the first; a token is no message.
            return Some((self.forward_end[self.at(last, 0, microbatch - self.microbatches / 2)], false));
        } else {
            return None;
        };
        Some((self.forward_end[from], crosses))
    }

    fn play(&mut self) {
        let orders: Vec<Vec<Pass>> = (0..self.stages).map(|stage| self.order(stage)).collect();
        let mut next = vec![0; self.stages];
        let mut free = vec![0.0f64; self.stages];
        let mut progressed = true;
        while progressed {
            progressed = false;
            for stage in 0..self.stages {
                while let Some(&pass) = orders[stage].get(next[stage]) {
                    let wait = self.awaits(stage, pass);
                    if wait.is_some_and(|(end, _)| end.is_nan()) {
                        break;
                    }
                    free[stage] = self.run(stage, pass, free[stage], wait);
                    next[stage] += 1;
                    progressed = true;
                }
            }
        }
        for (stage, free) in free.into_iter().enumerate() {
            let end = self.reduce(stage, free);
            self.timeline.iteration_s = self.timeline.iteration_s.max(end);
        }
        if self.decoding {
            let first = self.at(self.stages - 1, 0, self.microbatches / 2 - 1);
            self.timeline.iteration_s -= self.forward_end[first];
        }
    }

    /// Runs one pass; gives its end.
    fn run(&mut self, stage: usize, pass: Pass, free: f64, wait: Option<(f64, bool)>) -> f64 {
        let parts = self.parts;
        let is_last = stage + 1 == self.stages && pass.chunk + 1 == self.chunks;
        let loss = match (is_last, pass.backward) {
            (false, _) => 0.0,
            (true, false) => parts.loss_forward_s,
            (true, true) => parts.loss_backward_s,
        };
        let body = if pass.backward { parts.backward_s } else { parts.forward_s } / self.chunks as f64;
        let boundary = if pass.backward { &parts.backward_boundary } else { &parts.forward_boundary };
        let message = if pass.backward { &self.backward_message } else { &self.forward_message };
        let mut start = free;
        let mut spans = Vec::new();
        if let Some((ready, crosses)) = wait {
            start = start.max(ready);
            if let (true, Some(message), Some(boundary)) = (crosses, message, boundary) {
                // What no compute hides keeps the stage waiting; the rest is in flight.
                let blocking = boundary.exposed_fraction * message.total_s;
                start = (free + blocking).max(ready + message.total_s);
                for &(kind, from, to) in &message.chunks {
                    spans.push((kind, ready + from, ready + to));
                }
            }
        }
        let end = start + body + loss;
        let at = self.at(stage, pass.chunk, pass.microbatch);
        let ends = if pass.backward { &mut self.backward_end } else { &mut self.forward_end };
        ends[at] = end;
        let letter = if pass.backward { "B" } else { "F" };
        let name = format!("{letter}{}.{}", pass.microbatch, pass.chunk);
        for (kind, from, to) in spans {
            let track = stage * 4
                + match kind {
                    "encode" => 1,
                    "wire" => 2,
                    _ => 3,
                };
            self.span(track, name.clone(), kind, (from, to));
        }
        self.span(stage * 4, name, "compute", (start, end));
        end
    }

    fn span(
        &mut self,
        track: usize,
        name: impl Into<String>,
        kind: &'static str,
        (start_s, end_s): (f64, f64),
    ) {
        self.timeline.spans.push(Span { track, name: name.into(), kind, start_s, end_s });
    }

    /// Gradients and weights over the data-parallel ranks, then the optimizer.
    fn reduce(&mut self, stage: usize, passes_end: f64) -> f64 {
        let (mut now, parts) = (passes_end, self.parts);
        for reduce in &parts.reductions {
            let total_s = reduce_s(reduce);
            let beside = reduce.overlap * total_s;
            let end = now + total_s - beside.min(reduce.window_s);
            if total_s > 0.0 {
                self.span(stage * 4 + 2, reduce.name, "reduce", (end - total_s, end));
            }
            now = end;
        }
        if self.training {
            let end = now + self.parts.optimizer_s;
            self.span(stage * 4, "optimizer", "optimizer", (now, end));
            now = end;
        }
        now
    }
}

/// A ring played step by step where a codec is in it; the closed form of the
/// wire alone where there is none.
fn reduce_s(reduce: &Reduce) -> f64 {
    let Some(ring) = &reduce.coded_ring else { return reduce.whole_s };
    let share = ring.values / f64::from(ring.ranks);
    let hop = play_message(&ring.channel, share, true).total_s;
    let steps = f64::from(ring.ranks - 1);
    if ring.gathers {
        let forwarded = play_message(&ring.channel, share, false).total_s;
        hop + (steps - 1.0) * forwarded
    } else {
        steps * hop
    }
}
