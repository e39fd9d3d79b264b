//! Configurations a second on one core: `cargo bench -p trinity-study`.
//!
//! Points go through everything a sweep does with them – estimate, fronts,
//! best points, summaries – but are not written down. Time is that of the
//! core, where the system tells it (Linux), so a busy machine does not count
//! against the model. `trinity sweep bench` measures the same with threads.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::Instant;
use trinity_config::Document;
use trinity_sim::sweep::{BLOCK, evaluate};
use trinity_study::config::SweepFile;

fn cpu_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

fn main() {
    for name in ["sweeps/llama-7b", "sweeps/figure-16b", "sweeps/kv-spill", "sweeps/die-h100"] {
        let document = Document::load(name).unwrap();
        let file: SweepFile = document.read().unwrap();
        let plan = file.plan(&document, 10).unwrap();
        let mut best = 0.0f64;
        for _ in 0..5 {
            let (start, before) = (Instant::now(), cpu_s());
            let (mut points, mut at) = (0u64, 0u64);
            while points < 300_000 {
                let end = (at + BLOCK).min(plan.space.len());
                points += evaluate(&plan, at..end, |_, _, _, _| ()).points;
                at = if end == plan.space.len() { 0 } else { end };
            }
            let waited = start.elapsed().as_secs_f64();
            let used = before.zip(cpu_s()).map_or(waited, |(before, after)| after - before);
            best = best.max(points as f64 / used);
        }
        println!("{name}: {best:.0} configurations a second of one core, the best of five runs");
    }
}
