//! A point's timeline in Chrome-trace form.

use serde_json::{Value, json};
use trinity_sim::event::Timeline;

/// The timeline as ui.perfetto.dev and chrome://tracing read it.
pub fn chrome(timeline: &Timeline) -> Value {
    let mut events: Vec<Value> = timeline
        .tracks
        .iter()
        .enumerate()
        .map(|(at, name)| {
            json!({ "ph": "M", "name": "thread_name", "pid": 0, "tid": at, "args": { "name": name } })
        })
        .collect();
    events.extend(timeline.spans.iter().map(|span| {
        json!({
            "ph": "X",
            "name": span.name,
            "cat": span.kind,
            "pid": 0,
            "tid": span.track,
            "ts": span.start_s * 1e6,
            "dur": (span.end_s - span.start_s) * 1e6,
        })
    }));
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}
