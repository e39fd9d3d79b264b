//! `trinity compare --show`: one tensor's way through H.265, drawn.

use std::fmt::Write;

use serde_json::json;
use trinity_tensor::codec::ablate::{Block, Histogram, Shown, show};
use trinity_tensor::{Entry, crop, stats::Grid};

use super::asked::{Args, entries, fixed_error, take};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::report::Report;
use crate::table::{Table, sig3};
use crate::tensor_files::bad_input;

pub fn run(wanted: &str, args: &Args, ctx: &Context) -> Result<(), Failure> {
    let entries = entries(args)?;
    let entry = find(&entries, wanted)?;
    let bad = |error| bad_input(entry.name(), &error);
    let tensor = crop(entry, args.sample as usize).map_err(bad)?;
    let shown = show(&tensor, fixed_error(args))
        .map_err(bad)?
        .ok_or_else(|| Failure::input(format_args!("`{}` holds nothing but zeros", entry.name())))?;
    if let Some(folder) = &args.out {
        take(args, "compare --show")?;
        output::write(&folder.join("show.svg"), figure(&shown).as_bytes())?;
        report(entry.name(), &shown).write(&folder.join("report.html"))?;
        ctx.remark(format!("wrote {} and report.html", folder.join("show.svg").display()));
    }
    let table = table(&shown);
    if ctx.json {
        return ctx.print_json(&json!({
            "tensor": entry.name(), "bits_per_value": shown.bits_per_value, "nmse": shown.nmse,
            "row": shown.origin.0, "column": shown.origin.1,
            "values": rows(&shown.values), "prediction": rows(&shown.prediction),
            "residual": rows(&shown.residual), "levels": rows(&shown.levels),
            "blocks": shown.blocks.iter().map(|block| json!({
                "x": block.x - shown.origin.1.min(block.x), "y": block.y - shown.origin.0.min(block.y),
                "size": block.size, "mode": block.mode,
            })).collect::<Vec<_>>(),
        }));
    }
    ctx.print(table.render(ctx.colour))?;
    if args.out.is_none() {
        ctx.remark("with --out DIR the pictures are drawn: show.svg and report.html");
    }
    Ok(())
}

/// The tensor of that name, or the only one whose name contains it.
fn find<'a>(entries: &'a [Entry], wanted: &str) -> Result<&'a Entry, Failure> {
    let exact = entries.iter().find(|entry| entry.name() == wanted);
    let mut near = entries.iter().filter(|entry| entry.name().contains(wanted));
    match (exact, near.next(), near.next()) {
        (Some(entry), ..) | (None, Some(entry), None) => Ok(entry),
        _ => {
            let names: Vec<&str> = entries.iter().map(Entry::name).collect();
            Err(Failure::input(format_args!("`{wanted}` names no single tensor"))
                .help(format_args!("tensors: {}", names.join(", "))))
        }
    }
}

fn rows(grid: &Grid) -> Vec<&[f64]> {
    grid.cells.chunks(grid.cols.max(1)).collect()
}

/// Spread of what each picture shows.
fn table(shown: &Shown) -> Table {
    Table::of(pictures(shown).iter())
        .column("picture", |(name, _)| *name)
        .column("RMS", |(_, grid)| {
            let energy: f64 = grid.cells.iter().map(|cell| cell * cell).sum();
            sig3((energy / grid.cells.len() as f64).sqrt())
        })
        .column("largest", |(_, grid)| sig3(grid.cells.iter().fold(0f64, |most, cell| most.max(cell.abs()))))
        .column("zeros %", |(_, grid)| {
            let zeros = grid.cells.iter().filter(|cell| **cell == 0.0).count();
            sig3(100.0 * (zeros as f64 / grid.cells.len() as f64))
        })
        .end()
}

fn pictures(shown: &Shown) -> [(&'static str, &Grid); 4] {
    [
        ("(a) block", &shown.values),
        ("(b) prediction", &shown.prediction),
        ("(c) residual", &shown.residual),
        ("(d) quantized coefficients", &shown.levels),
    ]
}

fn report(name: &str, shown: &Shown) -> Report {
    let mut report = Report::new(format!("{name} on its way through H.265"));
    report.paragraph(format!(
        "Coded with every intra stage on, at {:.3} bits per value and an NMSE of {}. The window starts at row {}, \
         column {} of the piece that was coded and holds its largest value.",
        shown.bits_per_value,
        sig3(shown.nmse),
        shown.origin.0,
        shown.origin.1,
    ));
    report.heading("A block, its prediction, its residual, its coefficients (Figure 4)");
    report.svg(
        "One scale for (a), (b) and (c): blue below zero, red above. Lines are the blocks of the partitioning.",
        &figure(shown),
    );
    report.add("What is left to code", &table(shown));
    report.heading("Outliers before and after the transform (Figure 3)");
    let [values, coefficients] = &shown.histograms;
    report.paragraph(format!(
        "The largest value lies {} standard deviations out (excess kurtosis {}); the largest coefficient of the 8×8 \
         DCT {} (excess kurtosis {}).",
        sig3(values.largest),
        sig3(values.excess_kurtosis),
        sig3(coefficients.largest),
        sig3(coefficients.excess_kurtosis),
    ));
    let bars: Vec<_> = shown
        .histograms
        .iter()
        .zip(["(a) values", "(b) DCT coefficients"])
        .flat_map(|(histogram, what)| {
            let bins = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            bins.map(move |(bin, count)| {
                let width = 2.0 * Histogram::REACH / Histogram::BINS as f64;
                json!({"what": what, "deviations": (bin as f64 + 0.5) * width - Histogram::REACH, "count": count})
            })
        })
        .collect();
    report.chart(
        "Values and coefficients in standard deviations; the outermost bars take all beyond",
        json!({
            "data": {"values": bars},
            "mark": {"type": "bar", "width": 3},
            "encoding": {
                "x": {"field": "deviations", "type": "quantitative", "title": "standard deviations"},
                "y": {"field": "count", "type": "quantitative", "scale": {"type": "symlog"}},
                "column": {"field": "what", "type": "nominal", "title": null},
            },
        }),
    );
    for (what, block) in [
        ("(c) The 8×8 block around the largest value, in 8-bit units", &shown.outlier.0),
        ("(d) Its DCT: the outlier is spread over the block", &shown.outlier.1),
    ] {
        let rows = block.chunks(8).map(|row| row.iter().map(i32::to_string));
        report.table(what, (0..8).map(|column| column.to_string()), rows);
    }
    report
}

/// Side of one value in the drawing.
const CELL: usize = 5;
const GAP: usize = 24;

/// The four pictures side by side as one SVG element.
fn figure(shown: &Shown) -> String {
    let (width, height) = (shown.values.cols * CELL, shown.values.rows * CELL);
    let reach = |grid: &Grid| grid.cells.iter().fold(0f64, |most, cell| most.max(cell.abs())).max(1e-30);
    let common = reach(&shown.values);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\" \
         shape-rendering=\"crispEdges\">\n",
        2 * width + GAP,
        2 * (height + GAP) + GAP
    );
    for (index, (name, grid)) in pictures(shown).into_iter().enumerate() {
        let (left, top) = (index % 2 * (width + GAP), index / 2 * (height + 2 * GAP));
        let reach = if index == 3 { reach(grid) } else { common };
        let _ = writeln!(svg, "<g transform=\"translate({left} {top})\"><text y=\"16\">{name}</text>");
        let _ = writeln!(svg, "<g transform=\"translate(0 {GAP})\">");
        for (at, cell) in grid.cells.iter().enumerate() {
            let (x, y) = (at % grid.cols * CELL, at / grid.cols * CELL);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{}\"/>",
                colour(cell / reach)
            );
        }
        for block in &shown.blocks {
            svg.push_str(&outline(block, shown, grid));
        }
        svg.push_str("</g></g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// A block's border, cut to the window.
fn outline(block: &Block, shown: &Shown, grid: &Grid) -> String {
    let span = |start: usize, origin: usize, limit: usize| {
        let from = start.saturating_sub(origin);
        (from, (start + block.size).saturating_sub(origin).min(limit) - from)
    };
    let (x, width) = span(block.x, shown.origin.1, grid.cols);
    let (y, height) = span(block.y, shown.origin.0, grid.rows);
    format!(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#000\" stroke-opacity=\"0.35\"/>\n",
        x * CELL,
        y * CELL,
        width * CELL,
        height * CELL
    )
}

/// White at zero, blue below, red above; square roots let small values show.
fn colour(share: f64) -> String {
    let strength = share.abs().min(1.0).sqrt();
    let fade = |full: f64| (255.0 + (full - 255.0) * strength) as u8;
    let [red, green, blue] = if share < 0.0 { [33.0, 102.0, 172.0] } else { [178.0, 24.0, 43.0] };
    format!("#{:02x}{:02x}{:02x}", fade(red), fade(green), fade(blue))
}
