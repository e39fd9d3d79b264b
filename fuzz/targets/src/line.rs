//! Any bytes as a stream of the line-rate codec, and damage to streams of every
//! transform, trellis and number of lanes. Every width of registers must say the
//! same of them.

use std::sync::LazyLock;

use trinity_codec::line::{
    Effort, Error, Options, Plan, Reflections, Settings, Stream, Transform, Width, choose, encode,
};

use crate::RunOutcome;
use crate::damage::{bytes_of, seeds_of, values};

const ROWS: usize = 40;
const COLS: usize = 72;
const STEP: f32 = 0.1;

/// A plan for some values, made to use a transform and so many lanes.
fn plan(values: &[f32], transform: usize, log2_states: u32, log2_lanes: u32) -> Option<Plan> {
    let options = Options { effort: Effort::Fast, log2_states, budgeted: true, ..Options::default() };
    let mut plan = choose(values, ROWS, COLS, STEP, &options)?;
    let group = |size: usize| Reflections { vectors: vec![(0..size as i32).map(|i| i % 7 - 3).collect()] };
    plan.transform = match transform {
        0 => Transform::None,
        1 => Transform::Hadamard,
        2 => Transform::Dct,
        3 => Transform::Signalled { size: 32, groups: vec![group(32); COLS / 32] },
        _ => Transform::Signalled { size: 64, groups: vec![group(64); COLS / 64] },
    };
    plan.log2_lanes = log2_lanes;
    (plan.tile_rows, plan.tile_cols) = (ROWS / 2, COLS.next_multiple_of(64).min(COLS));
    plan.above.iter_mut().step_by(3).for_each(|above| *above = 8);
    Some(plan)
}

/// Streams of every transform and trellis, of few lanes and of 32, with and
/// without exceptions and a budget.
static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut streams = Vec::new();
    for (at, transform) in (0..5).flat_map(|transform| [transform; 3]).enumerate() {
        let mut values = values(ROWS * COLS);
        if at % 2 == 0 {
            (values[5], values[900]) = (f32::NAN, f32::NEG_INFINITY);
        }
        let budget = (at % 5 == 1).then_some(700);
        let settings = Settings { tile_budget: budget, ..Settings::default() };
        let plan = plan(&values, transform, [0, 2, 3][at % 3], if at % 4 == 0 { 2 } else { 5 });
        let coded = plan.and_then(|plan| encode(&plan, &values, &settings).ok());
        streams.push(coded.unwrap_or_default());
    }
    streams
});

pub fn seeds() -> Vec<Vec<u8>> {
    seeds_of(&STREAMS)
}

pub fn run(input: &[u8]) -> RunOutcome {
    read(&bytes_of(input, &STREAMS))
}

fn read(bytes: &[u8]) -> RunOutcome {
    let stream = match Stream::open(bytes) {
        Ok(stream) => stream,
        Err(Error::NotLine { .. }) => return RunOutcome::Refused,
        Err(_) if bytes.len() < 3 => return RunOutcome::Refused,
        Err(_) => return RunOutcome::Reached,
    };
    let bits = |width| {
        let values = stream.numbers::<f32>(width);
        values.map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    let truth = bits(Width::Scalar);
    for width in Width::available() {
        let found = bits(width);
        assert!(
            found.is_ok() == truth.is_ok() && found.ok() == truth.as_ref().ok().cloned(),
            "registers of {width:?} read another matrix than the scalar decoder"
        );
    }
    if truth.is_ok() { RunOutcome::Accepted } else { RunOutcome::Reached }
}
