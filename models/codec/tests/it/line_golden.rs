//! Streams of version 1 stay as they are: stored ones decode to what they always
//! did, and a stored plan codes the same values into the stored bytes, on every
//! width of registers. What plan an encoder chooses may change; this may not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use trinity_numeric::random::Lcg;

use trinity_codec::line::{Bf16, Effort, Options, Plan, Settings, Stream, Width, choose, encode};

use crate::line::with_transform;
use crate::pins;

const ROWS: usize = 66;
const COLS: usize = 96;

/// A name, transform, trellis, lanes, prediction and byte budget of a tile.
type Case = (&'static str, u32, u32, u32, bool, Option<usize>);

const CASES: [Case; 8] = [
    ("v1-uniform", 0, 0, 5, false, None),
    ("v1-trellis-4", 0, 2, 5, false, None),
    ("v1-trellis-8", 0, 3, 5, true, None),
    ("v1-hadamard", 1, 3, 5, false, None),
    ("v1-dct", 2, 0, 3, true, None),
    ("v1-stated-32", 3, 3, 5, true, None),
    ("v1-stated-64", 4, 2, 0, false, None),
    ("v1-budget", 0, 3, 5, false, Some(900)),
];

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/line").join(name)
}

/// About Gaussian, rows and columns of their own scales, with values that no level
/// stands for; out of integers, so the same on every machine.
fn values() -> Vec<f32> {
    let mut lcg = Lcg(11);
    let value = |at: usize| {
        lcg.gaussian() * (1 + at % 7) as f32 * (1 + at / COLS % 3) as f32 / 16.0 + (at % 2) as f32
    };
    let mut values: Vec<f32> = (0..ROWS * COLS).map(value).collect();
    (values[40], values[1000]) = (f32::from_bits(0x7fc0_1234), f32::NEG_INFINITY);
    (values[4001], values[6000]) = (1e30, 300.0);
    values
}

fn made(values: &[f32], case: &Case) -> Vec<u8> {
    let &(_, transform, log2_states, log2_lanes, predicts, tile_budget) = case;
    let options =
        Options { effort: Effort::Fast, log2_states, budgeted: tile_budget.is_some(), ..Options::default() };
    let mut plan = with_transform(choose(values, ROWS, COLS, 0.06, &options).unwrap(), transform);
    (plan.log2_lanes, plan.tile_rows) = (log2_lanes, 50);
    plan.above = (0..COLS as i32).map(|at| if predicts { at % 17 } else { 0 }).collect();
    encode(&plan, values, &Settings { tile_budget, ..Settings::default() }).unwrap()
}

#[test]
fn stored_streams_decode_to_what_they_always_did() {
    let values = values();
    let mut found = BTreeMap::new();
    for case in &CASES {
        let path = golden(&format!("{}.tl", case.0));
        if std::env::var_os("TRINITY_BLESS").is_some() && !path.exists() {
            pins::store(&path, &made(&values, case));
        }
        let bytes = std::fs::read(&path).unwrap();
        let stream = Stream::open(&bytes).unwrap();
        let decoded = stream.numbers::<f32>(Width::Scalar).unwrap();
        assert_eq!(decoded[40].to_bits(), values[40].to_bits(), "NaN is kept to the bit");
        assert_eq!(decoded[1000], f32::NEG_INFINITY);
        let bits: Vec<u8> = decoded.iter().flat_map(|value| value.to_le_bytes()).collect();
        found.insert(format!("{} f32", case.0), pins::fingerprint(&bits));
        for width in Width::available() {
            let again = stream.numbers::<f32>(width).unwrap();
            let same = again.iter().zip(&decoded).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{} {width:?}", case.0);
        }
        let halves: Vec<u8> =
            stream.numbers::<Bf16>(Width::widest()).unwrap().iter().flat_map(|b| b.0.to_le_bytes()).collect();
        found.insert(format!("{} bf16", case.0), pins::fingerprint(&halves));
    }
    pins::hold(&golden("values.txt"), &found);
}

#[test]
fn a_stored_plan_codes_the_same_values_into_the_same_bytes() {
    let values = values();
    for case in &CASES {
        let stored = std::fs::read(golden(&format!("{}.tl", case.0))).unwrap();
        let (plan, _) = Plan::read(&stored).unwrap();
        let settings = Settings { tile_budget: case.5, ..Settings::default() };
        assert!(encode(&plan, &values, &settings).unwrap() == stored, "{}: other bytes", case.0);
    }
}
