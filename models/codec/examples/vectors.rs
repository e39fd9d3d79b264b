//! Writes small streams with everything an implementation elsewhere must
//! reproduce: `cargo run -p trinity-codec --example vectors -- DIR`.
//!
//! For every case: `.tl` stream, `.input.f32` values, `.decoded.f32` values,
//! `.levels.i16` and `.rows.i32` of all tiles in order, `.slots.u32` decoding
//! tables, `.costs.i32` trellis costs, `.synthesis.i8` and `.analysis.f32`
//! matrices, `.txt` the plan in words.

use std::path::Path;
use trinity_numeric::random::Lcg;

use trinity_codec::line::{
    Coder, Effort, Options, Plan, Quantizer, Reflections, Settings, Stream, Transform, choose, encode_with,
    parse,
};

/// Values of a matrix with rows and columns of different scale, drift and outliers.
fn values(rows: usize, cols: usize, seed: u64) -> Vec<f32> {
    let mut lcg = Lcg(seed);
    let mut uniform = || lcg.uniform() - 0.5;
    let mut before = vec![0.0f32; cols];
    let mut out = Vec::with_capacity(rows * cols);
    for row in 0..rows {
        let row_scale = 1.0 + (row % 7) as f32 * 0.5;
        for (col, before) in before.iter_mut().enumerate() {
            let noise = uniform() + uniform() + uniform() + uniform();
            *before = 0.7 * *before + noise * (1.0 + (col % 5) as f32);
            out.push((*before + if col % 11 == 3 { 20.0 } else { 0.0 }) * row_scale);
        }
    }
    out
}

struct Case {
    name: &'static str,
    rows: usize,
    cols: usize,
    states: u32,
    budget: Option<usize>,
    change: fn(&mut Plan, &mut [f32]),
}

fn cases() -> Vec<Case> {
    let case = |name, rows, cols, states, change| Case { name, rows, cols, states, budget: None, change };
    fn keep(_: &mut Plan, _: &mut [f32]) {}
    fn reflections(size: usize, group: usize) -> Reflections {
        let entry = |j: usize, i: usize| ((i * 7 + j * 3 + group) % 9) as i32 - 4;
        Reflections { vectors: (0..5).map(|j| (j..size).map(|i| entry(j, i)).collect()).collect() }
    }
    vec![
        case("plain-1-state", 64, 512, 0, keep),
        case("plain-4-states", 64, 512, 2, keep),
        case("plain-8-states", 64, 512, 3, keep),
        case("no-prediction-8-states", 64, 512, 3, |plan, _| plan.above.fill(0)),
        case("no-prediction-1-state", 64, 512, 0, |plan, _| plan.above.fill(0)),
        case("no-row-classes", 40, 96, 3, |plan, _| plan.row_table = None),
        case("odd-shape", 37, 75, 3, keep),
        case("one-row", 1, 777, 3, keep),
        case("one-column", 777, 1, 3, keep),
        case("few-lanes", 20, 30, 3, |plan, _| plan.log2_lanes = 2),
        case("one-lane", 9, 13, 3, |plan, _| plan.log2_lanes = 0),
        case("transposed", 96, 640, 3, |plan, _| {
            plan.transposed = true;
            (plan.tile_rows, plan.tile_cols) = (100, 64);
            for list in [&mut plan.classes, &mut plan.above, &mut plan.means] {
                list.truncate(96);
            }
        }),
        case("hadamard", 64, 160, 3, |plan, _| plan.transform = Transform::Hadamard),
        case("dct", 64, 150, 2, |plan, _| plan.transform = Transform::Dct),
        case("stated-32", 64, 150, 3, |plan, _| {
            plan.transform =
                Transform::Signalled { size: 32, groups: (0..4).map(|g| reflections(32, g)).collect() };
        }),
        case("stated-64", 64, 200, 0, |plan, _| {
            plan.transform =
                Transform::Signalled { size: 64, groups: (0..3).map(|g| reflections(64, g)).collect() };
        }),
        case("fine-steps", 64, 128, 3, |plan, _| plan.step /= 64.0),
        case("coarse-steps", 64, 128, 3, |plan, _| plan.step *= 64.0),
        case("exceptions", 64, 512, 3, |_, values| {
            for (at, bits) in
                [(5, 0x7fc0_1234u32), (600, 0x7f80_0000), (601, 0xff80_0000), (20_000, 0x7149_f2ca)]
            {
                values[at] = f32::from_bits(bits);
            }
        }),
        Case { name: "budget", rows: 64, cols: 512, states: 3, budget: Some(4096), change: keep },
        Case { name: "many-tiles", rows: 512, cols: 1152, states: 3, budget: None, change: keep },
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: vectors DIR")?;
    std::fs::create_dir_all(&folder)?;
    for (seed, case) in cases().into_iter().enumerate() {
        let mut values = values(case.rows, case.cols, seed as u64 + 1);
        let options = Options {
            effort: Effort::Fast,
            log2_states: case.states,
            budgeted: case.budget.is_some(),
            ..Options::default()
        };
        let mut plan = choose(&values, case.rows, case.cols, 0.35, &options).ok_or("no plan")?;
        (case.change)(&mut plan, &mut values);
        let settings = Settings { tile_budget: case.budget, ..Settings::default() };
        let coder = Coder::new(plan)?;
        let bytes = encode_with(&coder, &values, &settings)?;
        dump(&Path::new(&folder).join(case.name), &coder, &values, &bytes, &settings)?;
    }
    Ok(())
}

fn dump(
    base: &Path,
    coder: &Coder,
    values: &[f32],
    bytes: &[u8],
    settings: &Settings,
) -> Result<(), Box<dyn std::error::Error>> {
    let write = |extension: &str, content: Vec<u8>| std::fs::write(base.with_extension(extension), content);
    let stream = Stream::open(bytes)?;
    let quantizer = Quantizer::new(coder, settings.lambda, settings.rounding).ok_or("no inverse")?;
    let (mut levels, mut rows) = (Vec::new(), Vec::new());
    for index in 0..stream.plan().tiles() {
        let parsed = parse(&stream.coder, &stream.plan().tile(index), &stream.words(index))?;
        levels.extend(parsed.levels.iter().flat_map(|level| level.to_le_bytes()));
        rows.extend(parsed.row_classes.iter().flat_map(|class| class.to_le_bytes()));
    }
    let floats = |list: &[f32]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    write("tl", bytes.to_vec())?;
    write("input.f32", floats(values))?;
    write("decoded.f32", floats(&stream.values()?))?;
    write("levels.i16", levels)?;
    write("rows.i32", rows)?;
    write("slots.u32", coder.slots.iter().flat_map(|slot| slot.0.to_le_bytes()).collect())?;
    write("costs.i32", quantizer.costs.iter().flatten().flat_map(|c| c.to_le_bytes()).collect())?;
    write("synthesis.i8", coder.syntheses.iter().flat_map(|s| s.entries.iter().map(|&e| e as u8)).collect())?;
    write("analysis.f32", floats(&quantizer.analyses.concat()))?;
    write("txt", format!("{settings:#?}\n{:#?}\n", coder.plan).into_bytes())?;
    Ok(())
}
