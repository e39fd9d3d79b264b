//! `trinity compare`: codecs side by side on captured tensors.

mod ablate;
mod asked;
mod blocks;
mod motion;
mod picture;
mod show;
mod stages;
mod wire;

pub use asked::{Args, Selection};

use asked::{codecs, take, targets};
use trinity_study::Shard;
use trinity_study::compare::{self, Comparison};
use trinity_tensor::Entry;
use trinity_tensor::compare::{ClassLine, ComparisonRow, Turn, shared_bases};

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::row_cache::RowCache;
use crate::table::{Table, sig3};
use crate::tensor_files::bad_input;

const USUAL_ANCHOR: &str = "uniform+ac";

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    if args.parts.are_asked_for() && args.out.is_none() {
        return Err(Failure::input("parts are left in a folder").help("name it with --out DIR"));
    }
    if args.ablate || args.motion || args.blocks || args.show.is_some() {
        args.device.open(["the paper's chain of stages"], ctx)?;
    }
    if args.ablate {
        return ablate::run(args, ctx);
    }
    if args.motion {
        return motion::run(args, ctx);
    }
    if args.blocks {
        return blocks::run(args, ctx);
    }
    if args.stages {
        return stages::run(args, ctx);
    }
    if let Some(tensor) = &args.show {
        return show::run(tensor, args, ctx);
    }
    let codecs = codecs(args)?;
    let anchor = anchor(args, &codecs)?;
    let device = args.device.open(codecs.iter().map(String::as_str), ctx)?;
    let targets = targets(args);
    let input_tensors = Selection::of(args).input_tensors(ctx)?;
    take(args, "compare")?;
    let name = args.parts.growing("compare.csv");
    let kept: RowCache<ComparisonRow> = RowCache::open(args.out.as_deref(), &name, |_| true)?;
    let parts = args.parts.rows(args.out.as_deref())?;
    let request = compare::ComparisonRequest {
        input_tensors: &input_tensors,
        codecs: codecs.clone(),
        turns: args.precondition.clone(),
        targets: targets.clone(),
        earlier: if args.parts.merge { &parts } else { kept.earlier() },
        part: args.parts.shard.unwrap_or(Shard::WHOLE),
        only_earlier: args.parts.merge,
    };
    let Comparison { all, rows, classes, misses } =
        compare::compare(&request, &|row| kept.add(row), &ctx.watch())?;
    device.remark(ctx);
    if let Some(shard) = args.parts.shard {
        return kept.finish_part(shard, &all, ctx);
    }
    if let Some(folder) = &args.out {
        kept.finish(&all)?;
        picture::report(&rows, &targets, &misses, anchor).write(&folder.join("report.html"))?;
        ctx.remark(format!("wrote {} and report.html", folder.join("compare.csv").display()));
    }
    bases(args, &input_tensors.iter().map(|tensor| &tensor.entry).collect::<Vec<_>>(), ctx)?;
    let wires = wire::rows(args, &classes, ctx)?;
    if ctx.json {
        return match wires {
            Some(wires) => {
                let tensors = wire::by_tensor(args, &rows, ctx)?;
                ctx.print_json(&serde_json::json!({ "rows": all, "wire": wires, "wire_by_tensor": tensors }))
            }
            None => ctx.print_json(&all),
        };
    }
    ctx.print(table(&classes).render(ctx.colour))?;
    if let Some(wires) = &wires {
        ctx.print(wire::text(args, wires, ctx.colour))?;
    }
    let winners = compare::winners(&rows, &targets);
    winners.iter().filter(|winner| winner.lead.is_some()).for_each(|winner| ctx.remark(winner.to_string()));
    compare::verdicts(&rows).into_iter().for_each(|sentence| ctx.remark(sentence));
    for miss in &misses {
        ctx.remark(format!("not reached ({}×): {}", miss.tensors, miss));
    }
    Ok(())
}

/// What PCA bases cost beside the tensors, and the files that hold them.
fn bases(args: &Args, entries: &[&Entry], ctx: &Context) -> Result<(), Failure> {
    for turn in &args.precondition {
        let &Turn::Pca { rank } = turn else { continue };
        let shared = shared_bases(entries, rank).map_err(|error| bad_input("pca", &error))?;
        for shared in shared {
            let (class, basis) = (shared.class, &shared.basis);
            ctx.remark(format!(
                "{turn} basis of {class} tensors with {} columns: {} bits, {:.4} a value of the tensors it serves; not \
                 counted in the table, where each tensor is left out of its own basis",
                basis.cols,
                basis.bits(),
                shared.bits_per_value(),
            ));
            if let Some(folder) = &args.out {
                let file = format!("{class}-{}-rank-{}.pca", basis.cols, basis.rank);
                output::write(&folder.join(file), &basis.to_bytes())?;
            }
        }
    }
    Ok(())
}

/// The codec that others are held against; one that has a curve.
fn anchor<'a>(args: &'a Args, codecs: &'a [String]) -> Result<&'a str, Failure> {
    let compared = |name: &str| codecs.iter().any(|codec| codec == name);
    match &args.anchor {
        Some(name) if compared(name) => Ok(name),
        Some(name) => Err(Failure::input(format_args!("the anchor `{name}` is not compared"))
            .help(format_args!("add it to --codecs, or choose one of {}", codecs.join(", ")))),
        None if compared(USUAL_ANCHOR) => Ok(USUAL_ANCHOR),
        None => Ok(codecs.first().map_or(USUAL_ANCHOR, String::as_str)),
    }
}

fn table(lines: &[ClassLine]) -> Table {
    let number = |value: f64| if value.is_nan() { "-".to_owned() } else { sig3(value) };
    Table::of(lines)
        .column("class", |line| line.class)
        .column("codec", |line| &line.codec)
        .column("precondition", |line| &line.precondition)
        .column("target", |line| &line.target)
        .column("tensors", |line| line.tensors)
        .column("bits/value", |line| format!("{:.3}", line.bits_per_value))
        .column("NMSE", |line| number(line.nmse))
        .column("SNR dB", |line| format!("{:.2}", line.snr_db))
        .column("MAE", |line| number(line.mae))
        .column("max error", |line| number(line.max_abs_error))
        .column("enc MB/s", |line| number(line.encode_mb_s))
        .column("dec MB/s", |line| number(line.decode_mb_s))
        .column("gap bits", |line| format!("{:.3}", line.gap_bits))
        .end()
}
