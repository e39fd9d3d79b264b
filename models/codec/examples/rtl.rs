//! Writes what a test bench of the RTL in models/silicon/rtl drives and expects:
//! `cargo run -p trinity-codec --example rtl -- FILE [--large] [--states N] [--transform NAME] [TENSORS.safetensors...]`.
//! Tensors are coded with a trellis of N states (8) and, if one is named, under hadamard or dct; matrices of our own with each.
//! `-- --streams FILE FOLDER...` takes streams of the folders' files instead, as they are and with damaged words;
//! what is no stream is left out.
//! `-- --groups hadamard|dct FILE [TENSORS.safetensors...]` writes instead groups of 32 for the transforms:
//! 1 if transformed, 1 if whole, 32 targets, 32 coefficients as `analyse_whole` has them.
//!
//! Numbers of 32 bits, little-endian. For every stream: log2_lanes, states code,
//! transform code, has_row_table, scale bits, inverse bits, rounding, pairs; first
//! classes of pairs 1–7 (32: none); 17 tables of 15 first slots; 16 tables of 16
//! trellis costs; tiles. For every tile: rows, columns, words, 1 if it is refused,
//! 1 if an encoder must give these words; classes, sixteenths and means of its
//! columns; its words; unless refused its values as fp32, bf16 and fp16 bits and as
//! samples of 8 and 10 bits; if for an encoder the values it is given, as fp32 bits.
//! What is built without an option refuses more: the benches know.

use trinity_codec::line::{
    Analysis, Bf16, Coder, Effort, Family, Fixed, MAGNITUDES, Number, Options, Plan, Quantizer, Sample,
    Settings, Stream, Synthesis, Table, Tile, Transform, analyse_whole, choose, encode_with, parse,
    reconstruct, whole_analysis,
};
use trinity_numeric::random::Lcg;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn below(random: &mut Lcg, bound: usize) -> usize {
    random.bits31() as usize % bound
}

/// The root of the mean square.
fn deviation(values: &[f32]) -> f32 {
    (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt()
}

/// Rows and columns of different scale, drift down the rows, some outliers.
fn values(rows: usize, cols: usize, random: &mut Lcg) -> Vec<f32> {
    let mut above = vec![0.0f32; cols];
    let mut out = Vec::with_capacity(rows * cols);
    for row in 0..rows {
        let row_scale = 0.3 + (row % 7) as f32 * 0.5;
        for (col, above) in above.iter_mut().enumerate() {
            let noise: f32 = (0..4).map(|_| random.uniform() - 0.5).sum();
            *above = 0.7 * *above + noise * (1.0 + (col % 5) as f32);
            let outlier = if below(random, 500) == 0 { 60.0 * noise } else { 0.0 };
            out.push((*above + outlier + if col % 11 == 3 { 20.0 } else { 0.0 }) * row_scale);
        }
    }
    out
}

/// Numbers that a short format has: mantissa bits, octaves of normal numbers below
/// the largest, and the largest over its power of two.
const SHORT: [(i32, i32, f32); 6] = [
    (10, 29, 2.0 - 1.0 / 1024.0), // fp16
    (3, 14, 1.75),                // MXFP8, E4M3
    (2, 29, 1.75),                // MXFP8, E5M2
    (2, 6, 1.75),                 // MXFP6, E3M2
    (3, 2, 1.875),                // MXFP6, E2M3
    (1, 2, 1.5),                  // MXFP4, E2M1
];

/// Rounds values, 32 columns of a row together, to what a short format has.
fn shorten(values: &mut [f32], cols: usize, (mantissa, octaves, largest): (i32, i32, f32)) {
    for block in values.chunks_mut(cols).flat_map(|row| row.chunks_mut(32)) {
        let most = block.iter().fold(0f32, |most, value| most.max(value.abs()));
        let top = most.log2().floor() as i32;
        for value in block {
            let exponent = (value.abs().log2().floor() as i32).max(top - octaves);
            let unit = 2f32.powi(exponent - mantissa);
            let most = largest * 2f32.powi(top);
            *value = ((*value / unit).round() * unit).clamp(-most, most);
        }
    }
}

/// fp16 to nearest even, finite to finite; NaN keeps its payload's upper bits.
fn fp16(value: f32, kept: bool) -> u16 {
    let sign = (value.to_bits() >> 16 & 0x8000) as u16;
    if value.is_nan() && kept {
        let upper = (value.to_bits() >> 13 & 0x3ff) as u16;
        return sign | 0x7c00 | if upper == 0 { 0x200 } else { upper };
    }
    if value.is_infinite() && kept {
        return sign | 0x7c00;
    }
    // In double precision every fp16 and every halfway point is exact.
    let magnitude = f64::from(value.abs());
    let exponent = if magnitude < 2f64.powi(-14) { -14 } else { magnitude.log2().floor() as i32 };
    let steps = (magnitude / 2f64.powi(exponent - 10)).round_ties_even();
    let rounded = steps * 2f64.powi(exponent - 10);
    if rounded > 65504.0 {
        return sign | 0x7bff;
    }
    let exponent = if rounded < 2f64.powi(-14) { -14 } else { rounded.log2().floor() as i32 };
    let steps = (rounded / 2f64.powi(exponent - 10)) as u16;
    sign | if steps < 1024 { steps } else { ((exponent + 15) as u16) << 10 | (steps - 1024) }
}

#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn put(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn all(&mut self, numbers: impl IntoIterator<Item = u32>) {
        numbers.into_iter().for_each(|number| self.put(number));
    }

    fn header(&mut self, coder: &Coder, settings: &Settings) -> Outcome<()> {
        let plan = &coder.plan;
        let transform = match &plan.transform {
            Transform::None => 0,
            Transform::Hadamard => 1,
            Transform::Dct => 2,
            Transform::Signalled { size, .. } => 3 + *size as u32 / 64,
        };
        let quantizer = Quantizer::new(coder, settings.lambda, settings.rounding).ok_or("no inverse")?;
        self.all([plan.log2_lanes, plan.log2_states.saturating_sub(1), transform]);
        self.put(plan.row_table.is_some().into());
        self.all([coder.scale.to_bits(), quantizer.inverse.to_bits(), settings.rounding as u32]);
        self.put(plan.firsts.len() as u32);
        self.all((1..8).map(|pair| plan.firsts.get(pair).map_or(32, |&first| u32::from(first))));
        let starts = |table: Option<&Table>| {
            (1..MAGNITUDES).map(move |m| table.map_or(1023, |table| table.start(m))).collect::<Vec<u32>>()
        };
        // Pair p and quantizer z stand at 2p + z, also with one quantizer.
        let of = |at: usize| {
            if plan.quantizers() == 2 { Some(at) } else { at.is_multiple_of(2).then_some(at / 2) }
        };
        for at in 0..16 {
            self.all(starts(of(at).and_then(|at| plan.tables.get(at))));
        }
        self.all(starts(plan.row_table.as_ref()));
        for at in 0..16 {
            let costs = of(at).and_then(|at| quantizer.costs.get(at)).copied().unwrap_or_default();
            self.all(costs.map(|cost| cost as u32));
        }
        Ok(())
    }

    /// A tile of which a decoder makes these numbers, or which it refuses.
    fn tile(&mut self, coder: &Coder, place: &Tile, words: &[u16], input: Option<&[f32]>, refused: bool) {
        let plan = &coder.plan;
        let parsed = if refused { None } else { parse(coder, place, words).ok() };
        self.all([place.rows as u32, place.cols as u32, words.len() as u32]);
        self.all([parsed.is_none().into(), input.is_some().into()]);
        for list in [&plan.classes, &plan.above, &plan.means] {
            self.all(list[place.col..][..place.cols].iter().map(|&entry| entry as u32));
        }
        self.all(words.iter().map(|&word| word.into()));
        if let Some(parsed) = parsed {
            let mut values = vec![0.0; place.values()];
            reconstruct(coder, place, &parsed, &mut values);
            let mut kept = vec![false; place.values()];
            parsed.exceptions.iter().for_each(|e| kept[usize::from(e.position)] = true);
            self.all(values.iter().map(|value| value.to_bits()));
            let bf16 = |(&v, &kept)| if kept { Bf16::kept(v) } else { Bf16::rounded(v) };
            self.all(values.iter().zip(&kept).map(bf16).map(|number| number.0.into()));
            self.all(values.iter().zip(&kept).map(|(&v, &kept)| fp16(v, kept).into()));
            self.all(values.iter().map(|&v| Sample::<8>::rounded(v).0.into()));
            self.all(values.iter().map(|&v| Sample::<10>::rounded(v).0.into()));
        }
        self.all(input.unwrap_or_default().iter().map(|value| value.to_bits()));
    }
}

/// A matrix and what is done to it.
struct Case {
    values: Vec<f32>,
    rows: usize,
    cols: usize,
    step: f32,
    states: u32,
    fixed: Fixed,
    settings: Settings,
    change: fn(&mut Plan, &mut [f32]),
    /// Tiles to be followed by damaged copies of themselves.
    damage: bool,
    /// Whether decoders in hardware refuse it.
    outside: bool,
}

impl Case {
    /// Under a trellis of eight states, coded as gates do.
    fn new(values: Vec<f32>, rows: usize, cols: usize) -> Self {
        let settings = Settings { analysis: Analysis::Whole, ..Settings::default() };
        let (step, states, fixed) = (0.35, 3, Fixed::default());
        let (change, damage, outside): (fn(&mut Plan, &mut [f32]), _, _) = (|_, _| (), false, false);
        Self { values, rows, cols, step, states, fixed, settings, change, damage, outside }
    }
}

/// A plane of samples: slopes, edges and noise, up to `most`.
fn samples(rows: usize, cols: usize, most: f32, random: &mut Lcg) -> Vec<f32> {
    let mut out = Vec::with_capacity(rows * cols);
    for row in 0..rows {
        for col in 0..cols {
            let slope = (row + 2 * col) as f32 / (rows + 2 * cols) as f32;
            let edge = if (row / 9 + col / 13) % 3 == 0 { 0.4 } else { 0.0 };
            let value = most * (slope + edge + 0.1 * (random.uniform() - 0.5));
            out.push(value.round_ties_even().clamp(0.0, most));
        }
    }
    out
}

fn cases(large: bool) -> Vec<Case> {
    let mut random = Lcg(19);
    let mut cases = Vec::new();
    let mut add = |rows: usize, cols: usize, step: f32, states: u32, change: fn(&mut Plan, &mut [f32])| {
        let values = values(rows, cols, &mut random);
        cases.push(Case { step, states, change, damage: true, ..Case::new(values, rows, cols) });
    };
    fn no_prediction(plan: &mut Plan, _: &mut [f32]) {
        plan.above.fill(0);
    }
    fn hadamard(plan: &mut Plan, _: &mut [f32]) {
        plan.transform = Transform::Hadamard;
    }
    fn dct(plan: &mut Plan, _: &mut [f32]) {
        plan.transform = Transform::Dct;
    }
    fn no_rows(plan: &mut Plan, _: &mut [f32]) {
        plan.row_table = None;
    }
    fn exceptions(_: &mut Plan, values: &mut [f32]) {
        for (at, bits) in [
            (5, 0x7fc0_1234u32),
            (7, 0x7f80_0001),
            (8, 0x7f80_0000),
            (9, 0xff80_0000),
            (500, 0x7149_f2ca),
            (2047, 0xff7f_ffff),
        ] {
            values[at] = f32::from_bits(bits);
        }
    }
    fn lanes(plan: &mut Plan, _: &mut [f32]) {
        plan.log2_lanes = 5;
    }
    let rounds = if large { 6 } else { 1 };
    for _ in 0..rounds {
        for states in [0, 2, 3] {
            add(64, 512, 0.35, states, |_, _| ());
            add(40, 160, 0.35, states, no_prediction);
            add(48, 150, 0.35, states, hadamard);
            add(37, 300, 0.8, states, no_rows);
            add(48, 150, 0.35, states, dct);
            for turn in [hadamard, dct] {
                // A last group that is not whole, and one alone that is not.
                add(40, 330, 0.35, states, turn);
                add(90, 20, 0.35, states, turn);
            }
            add(64, 256, 0.35, states, |plan, values| {
                hadamard(plan, values);
                no_prediction(plan, values);
            });
            add(64, 300, 0.35, states, |plan, values| {
                dct(plan, values);
                no_prediction(plan, values);
                no_rows(plan, values);
            });
            add(32, 512, 0.35, states, |plan, values| {
                dct(plan, values);
                no_prediction(plan, values);
                exceptions(plan, values);
            });
            // Steps so fine that many values are near the bound and some beyond it.
            add(30, 96, 0.22, states, |plan, values| {
                dct(plan, values);
                no_prediction(plan, values);
                values.iter_mut().for_each(|value| *value *= 2.0);
            });
        }
        // Row above row, in tiles of one step and of more.
        for (rows, cols) in [(300, 32), (200, 20), (100, 33), (40, 64)] {
            add(rows, cols, 0.35, 0, lanes);
        }
        for states in [0, 3] {
            add(64, 512, 0.35, states, no_prediction);
            add(37, 300, 0.8, states, |plan, values| {
                no_prediction(plan, values);
                no_rows(plan, values);
            });
            add(32, 512, 0.35 / 64.0, states, no_prediction);
            add(64, 128, 0.35 * 64.0, states, no_prediction);
            add(32, 512, 0.35, states, |plan, values| {
                no_prediction(plan, values);
                exceptions(plan, values);
            });
            add(500, 9, 0.35, states, no_prediction);
            add(1, 500, 0.35, states, no_prediction);
        }
        add(64, 512, 0.35 / 64.0, 3, |_, _| ());
        add(64, 128, 0.35 * 64.0, 3, lanes);
        add(32, 512, 0.35, 3, exceptions);
        add(1, 777, 0.35, 3, lanes);
        add(777, 1, 0.35, 3, lanes);
        add(1024, 9, 0.35, 3, lanes);
        add(3, 37, 0.35, 0, lanes);
    }
    for (at, format) in SHORT.into_iter().enumerate() {
        let (rows, cols) = (40, 150 + 32 * at);
        let mut short = values(rows, cols, &mut random);
        shorten(&mut short, cols, format);
        cases.push(Case { change: no_prediction, ..Case::new(short, rows, cols) });
    }
    let planes =
        [(64, 480, 255.0, Family::Dct), (150, 32, 255.0, Family::None), (50, 300, 1023.0, Family::Dct)];
    for (rows, cols, most, family) in planes {
        let plane = samples(rows, cols, most, &mut random);
        let fixed = Fixed {
            transform: Some(family),
            predicts: Some(true),
            transposed: Some(false),
            gates: true,
            ..Fixed::default()
        };
        let (step, states, damage) = (most / 64.0, 0, true);
        cases.push(Case { step, states, fixed, damage, ..Case::new(plane, rows, cols) });
    }
    let mut within = Case::new(values(40, 256, &mut random), 40, 256);
    within.settings.tile_budget = Some(2600);
    let mut outside = Case::new(values(40, 256, &mut random), 40, 256);
    outside.change = |plan, _| plan.log2_lanes = 4;
    outside.outside = true;
    cases.extend([within, outside]);
    cases
}

fn write(out: &mut Out, mut case: Case, random: &mut Lcg) -> Outcome<()> {
    let budgeted = case.settings.tile_budget.is_some();
    let (effort, log2_states, fixed) = (Effort::Fast, case.states, case.fixed);
    let options = Options { effort, log2_states, budgeted, fixed, ..Options::default() };
    let mut plan = choose(&case.values, case.rows, case.cols, case.step, &options).ok_or("no plan")?;
    plan.log2_lanes = 5;
    (case.change)(&mut plan, &mut case.values);
    let coder = Coder::new(plan)?;
    let bytes = encode_with(&coder, &case.values, &case.settings)?;
    let stream = Stream::open(&bytes)?;
    out.header(&coder, &case.settings)?;
    let count = stream.plan().tiles();
    out.put((count * if case.damage { 3 } else { 1 }) as u32);
    for index in 0..count {
        let place = stream.plan().tile(index);
        let words = stream.words(index);
        let row = |r: usize| &case.values[(place.row + r) * case.cols + place.col..][..place.cols];
        let input: Vec<f32> = (0..place.rows).flat_map(|r| row(r).to_vec()).collect();
        let encoded = (!case.outside && case.settings.tile_budget.is_none()).then_some(&input[..]);
        out.tile(&coder, &place, &words, encoded, case.outside);
        if case.damage {
            let mut damaged = words.clone();
            match below(random, 4) {
                0 => damaged.truncate(below(random, words.len())),
                1 => damaged.extend((0..=below(random, 20)).map(|word| word as u16)),
                2 => damaged[below(random, 3)] ^= 1 << below(random, 16),
                _ => {
                    let at = below(random, words.len());
                    damaged[at] ^= 1 << below(random, 16);
                }
            }
            out.tile(&coder, &place, &damaged, None, false);
            out.tile(&coder, &place, &words, None, false);
        }
    }
    Ok(())
}

/// The first matrices of a file in safetensors' format, in bf16 or f32.
fn read(path: &str, most: usize) -> Outcome<Vec<(usize, usize, Vec<f32>)>> {
    let bytes = std::fs::read(path)?;
    let size = u64::from_le_bytes(bytes.get(..8).ok_or("too short")?.try_into()?) as usize;
    let header = std::str::from_utf8(bytes.get(8..8 + size).ok_or("too short")?)?;
    let numbers = |entry: &str, key: &str| -> Option<Vec<usize>> {
        let list = entry.split_once(key)?.1.split_once('[')?.1.split_once(']')?.0;
        list.split(',').map(|number| number.trim().parse().ok()).collect()
    };
    let mut out = Vec::new();
    for entry in header.split('}').filter(|entry| entry.contains("\"data_offsets\"")) {
        let shape = numbers(entry, "\"shape\"").ok_or("no shape")?;
        let place = numbers(entry, "\"data_offsets\"").ok_or("no offsets")?;
        let (&[rows, cols], &[from, to]) = (&shape[..], &place[..]) else { continue };
        let data = bytes.get(8 + size + from..8 + size + to).ok_or("too short")?;
        let values: Vec<f32> = match data.len() / (rows * cols).max(1) {
            2 => data
                .chunks_exact(2)
                .map(|b| f32::from_bits(u32::from(b[0]) << 16 | u32::from(b[1]) << 24))
                .collect(),
            4 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            _ => continue,
        };
        let rows = rows.min(most / cols).max(1);
        out.push((rows, cols, values[..rows * cols].to_vec()));
    }
    Ok(out)
}

/// Whether the decoder in gates takes a tile (docs/silicon.md).
fn in_profile(coder: &Coder, place: &Tile, words: &[u16]) -> bool {
    let plan = &coder.plan;
    let transform = matches!(plan.transform, Transform::None | Transform::Hadamard | Transform::Dct);
    let exceptions =
        words.first().is_some_and(|head| head & 64 != 0) && words.get(1).is_some_and(|&n| n >= 64);
    plan.log2_lanes == 5
        && transform
        && coder.scale.is_normal()
        && coder.scale > 0.0
        && place.rows <= 1024
        && place.cols <= 512
        && !exceptions
}

/// Tiles of streams that are kept in folders, each as it is, damaged, and again.
fn write_streams(path: &str, folders: &[String]) -> Outcome<()> {
    let (mut out, mut random) = (Out::default(), Lcg(23));
    for folder in folders {
        let mut files: Vec<_> =
            std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            let bytes = std::fs::read(file)?;
            let Ok(stream) = Stream::open(&bytes) else { continue };
            let Ok(coder) = Coder::new(stream.plan().clone()) else { continue };
            if out.header(&coder, &Settings::default()).is_err() {
                continue;
            }
            let count = coder.plan.tiles().min(8);
            out.put(3 * count as u32);
            for index in 0..count {
                let (place, words) = (coder.plan.tile(index), stream.words(index));
                let mut changed = words.clone();
                let at = below(&mut random, changed.len().max(1));
                changed.get_mut(at).into_iter().for_each(|word| *word ^= 1 << below(&mut random, 16));
                for words in [&words, &changed, &words] {
                    let refused = !in_profile(&coder, &place, words);
                    out.tile(&coder, &place, words, None, refused);
                }
            }
        }
    }
    std::fs::write(path, out.0)?;
    Ok(())
}

/// Groups of targets and their coefficients: of tensors in steps of three tenths of
/// their deviation, or random ones up to the largest that are not kept exactly.
fn write_groups(transform: &str, path: &str, tensors: &[String]) -> Outcome<()> {
    let synthesis = match transform {
        "hadamard" => Synthesis::hadamard(32),
        "dct" => Synthesis::dct(32),
        _ => return Err("--groups: hadamard or dct?".into()),
    };
    let analysis = whole_analysis(&synthesis).ok_or("no inverse")?;
    let mut groups: Vec<(bool, bool, [i32; 32])> = Vec::new();
    for tensor in tensors {
        for (_, cols, values) in read(tensor, 1 << 14)?.into_iter().take(1) {
            let deviation = deviation(&values);
            let target =
                |&v: &f32| ((v / (0.3 * deviation) * 16.0).round_ties_even() as i32).clamp(-8192, 8192);
            for row in values.chunks_exact(cols) {
                for group in row.as_chunks::<32>().0 {
                    groups.push((true, true, std::array::from_fn(|i| target(&group[i]))));
                }
            }
        }
    }
    let mut random = Lcg(7);
    while tensors.is_empty() && groups.len() < 4000 {
        let mut below = |bound: usize| below(&mut random, bound);
        let (transformed, whole) = (below(8) != 0, below(8) != 0);
        let most = if transformed && whole { 1 << below(14) } else { (1 << 20) - 64 };
        // Every bound is met: all at the most, with the signs of a row of the matrix.
        let row = below(64);
        let mut target = |i: usize| match analysis.get(32 * row + i) {
            Some(&weight) if below(64) != 0 => {
                if weight < 0 {
                    -(most as i32)
                } else {
                    most as i32
                }
            }
            _ => below(2 * most + 1) as i32 - most as i32,
        };
        groups.push((transformed, whole, std::array::from_fn(&mut target)));
    }
    let mut out = Out::default();
    for (transformed, whole, targets) in groups {
        let mut coefficients = targets;
        if transformed && whole {
            analyse_whole(&analysis, &mut coefficients);
        }
        out.all([transformed.into(), whole.into()]);
        out.all(targets.iter().chain(&coefficients).map(|&number| number as u32));
    }
    std::fs::write(path, out.0)?;
    Ok(())
}

fn main() -> Outcome<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((flag, [transform, path, tensors @ ..])) = arguments.split_first()
        && flag == "--groups"
    {
        return write_groups(transform, path, tensors);
    }
    if let Some((flag, [path, folders @ ..])) = arguments.split_first()
        && flag == "--streams"
    {
        return write_streams(path, folders);
    }
    let large = arguments.iter().position(|a| a == "--large").map(|at| arguments.remove(at)).is_some();
    let states: u32 = match arguments.iter().position(|a| a == "--states") {
        Some(at) => arguments.drain(at..=at + 1).nth(1).ok_or("--states: how many?")?.parse()?,
        None => 8,
    };
    let transform = match arguments.iter().position(|a| a == "--transform") {
        Some(at) => match arguments.drain(at..=at + 1).nth(1).as_deref() {
            Some("hadamard") => Some(Family::Hadamard),
            Some("dct") => Some(Family::Dct),
            _ => return Err("--transform: hadamard or dct?".into()),
        },
        None => None,
    };
    let fixed = match transform {
        Some(_) => Fixed { transform, predicts: Some(false), gates: true, ..Fixed::default() },
        None => Fixed::default(),
    };
    let usage = "usage: rtl FILE [--large] [--states N] [--transform NAME] [TENSORS.safetensors...]";
    let (path, tensors) = arguments.split_first().ok_or(usage)?;
    let mut random = Lcg(4);
    let mut out = Out::default();
    let cases = if tensors.is_empty() { cases(large) } else { Vec::new() };
    for case in cases {
        write(&mut out, case, &mut random)?;
    }
    for path in tensors {
        // One tensor of a file, or all: 65536 values of each.
        for (rows, cols, values) in read(path, 1 << 16)?.into_iter().take(if large { 99 } else { 1 }) {
            let (step, states) = (deviation(&values) * 0.3, states.ilog2());
            let case = Case { step, states, fixed, ..Case::new(values, rows, cols) };
            write(&mut out, case, &mut random)?;
        }
    }
    std::fs::write(path, out.0)?;
    Ok(())
}
