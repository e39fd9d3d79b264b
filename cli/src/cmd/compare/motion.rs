//! `trinity compare --motion`: is a tensor predicted from its kin?

use serde::Serialize;
use std::collections::BTreeMap;
use trinity_tensor::codec::ablate::{Inter, inter};
use trinity_tensor::{Class, Entry, crop};

use super::asked::{Args, entries, fixed_error, keep_rows, of_each};
use crate::context::Context;
use crate::failure::Failure;
use crate::table::{Table, sig3};

/// Frames of a run, at most.
const FRAMES: usize = 8;

/// One run of frames; the fields are the columns of `motion.csv`.
#[derive(Debug, Serialize)]
struct MotionRow {
    /// The names of its frames, `#` for what differs.
    kind: String,
    class: Class,
    first: String,
    last: String,
    frames: usize,
    intra_bits_per_value: f64,
    inter_bits_per_value: f64,
    /// The part of samples, behind the first frame, that another frame predicts.
    predicted: f64,
    nmse: f64,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let entries = entries(args)?;
    let runs = runs(&entries);
    if runs.is_empty() {
        return Err(Failure::input(
            "no two tensors have names that differ in numbers alone, a class and a shape",
        )
        .help("frames are layers or steps of one matrix: layers.0.k_proj.weight, layers.1.k_proj.weight"));
    }
    let goal = fixed_error(args);
    let found = of_each(
        &runs,
        "searching motion",
        ctx,
        |frames| frames[0].name(),
        |frames| {
            let piece = |entry: &&Entry| crop(entry, args.sample as usize);
            let found = inter(&frames.iter().map(piece).collect::<Result<Vec<_>, _>>()?, goal)?;
            Ok(found.map(|found| row(frames, &found)))
        },
    )?;
    let rows: Vec<MotionRow> = found.into_iter().flatten().collect();
    keep_rows(args, "motion.csv", &rows, ctx)?;
    let table = Table::of(&rows)
        .column("frames", |row| row.frames)
        .column("class", |row| row.class)
        .column("first", |row| &row.first)
        .column("bits/value intra", |row| format!("{:.3}", row.intra_bits_per_value))
        .column("with inter", |row| format!("{:.3}", row.inter_bits_per_value))
        .column("predicted %", |row| sig3(100.0 * row.predicted))
        .column("NMSE", |row| sig3(row.nmse))
        .end();
    ctx.show(&rows, || table.render(ctx.colour))
}

fn row(frames: &[&Entry], found: &Inter) -> MotionRow {
    MotionRow {
        kind: kind(frames[0].name()),
        class: frames[0].class(),
        first: frames[0].name().to_owned(),
        last: frames[frames.len() - 1].name().to_owned(),
        frames: found.frames,
        intra_bits_per_value: found.intra_bits_per_value,
        inter_bits_per_value: found.inter_bits_per_value,
        predicted: found.predicted,
        nmse: found.nmse,
    }
}

/// Tensors of one kind in the order of their numbers, cut into runs of nearly one length.
fn runs(entries: &[Entry]) -> Vec<Vec<&Entry>> {
    let mut kinds: BTreeMap<(String, String, Vec<usize>), Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        let key = (entry.class().to_string(), kind(entry.name()), entry.shape().to_vec());
        kinds.entry(key).or_default().push(entry);
    }
    let mut runs = Vec::new();
    for (_, mut kin) in kinds {
        kin.sort_by_key(|entry| numbers(entry.name()));
        let parts = kin.len().div_ceil(FRAMES);
        let length = kin.len().div_ceil(parts);
        runs.extend(kin.chunks(length).filter(|run| run.len() > 1).map(<[&Entry]>::to_vec));
    }
    runs
}

/// A name with `#` for its numbers: what layers and steps have in common.
fn kind(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        match character {
            '0'..='9' if text.ends_with('#') => (),
            '0'..='9' => text.push('#'),
            other => text.push(other),
        }
    }
    text
}

/// The numbers in a name, in order.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kin_differ_in_numbers_alone_and_follow_them() {
        assert_eq!(kind("layers.12.k_proj.weight"), "layers.#.k_proj.weight");
        assert_eq!(kind("layers.2.k_proj.weight"), kind("layers.12.k_proj.weight"));
        assert_ne!(kind("layers.2.k_proj.weight"), kind("layers.2.v_proj.weight"));
        assert!(numbers("layers.2.x") < numbers("layers.12.x"));
    }
}
