//! Draws what `study` says of a sweep: sections on a page, blocks in the terminal.

use super::fronts::PARTS;
use super::{die, fronts};
use crate::colour::colours;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::{Bar, Report};
use crate::table::Table;
use serde_json::{Value, json};
use trinity_study::sheet::{Block, Ranges, Section, Split};
use trinity_study::sweep::Curves;

pub fn page(title: &str, sections: &[Section]) -> Report {
    let mut report = Report::new(title);
    add(&mut report, sections);
    report
}

pub fn add(report: &mut Report, sections: &[Section]) {
    for section in sections {
        match section {
            Section::Heading(text) => report.heading(text),
            Section::Paragraph(text) => report.paragraph(text),
            Section::Table(caption, table) => report.table(caption, table.headers(), table.rows()),
            Section::Split(split) => report.bars(&split.caption, &PARTS, &bars(split)),
            Section::Fronts(charts) => fronts::draw(report, charts),
            Section::Ranges(ranges) => report.chart(&ranges.caption, tornado(ranges)),
            Section::Die(own) => report.svg(&own.caption, &die::svg(own)),
        };
    }
}

/// Blocks as text, an empty line between them.
pub fn text(blocks: Vec<Block>, colour: bool) -> String {
    let block = |block: Block| {
        let caption = block.caption.map(|caption| caption + "\n").unwrap_or_default();
        let table = block.table.map(|table| Table::from(table).render(colour)).unwrap_or_default();
        caption + &table + &block.lines.iter().map(|line| format!("{line}\n")).collect::<String>()
    };
    blocks.into_iter().map(block).collect::<Vec<_>>().join("\n")
}

/// Curves as a picture that needs no script.
pub fn plot(curves: Curves) -> Plot {
    let lines = curves.lines.into_iter().map(|(name, points)| Series::new(name, points, Mark::Line));
    // Both span orders of magnitude; the questions are asked at the small end.
    Plot::new(Axis::log(curves.across), Axis::log(curves.up), lines)
}

fn bars(split: &Split) -> Vec<Bar> {
    let names: Vec<&str> = split.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    let bar = |(cluster, colour): (&trinity_study::sheet::SplitOf, &'static str)| Bar {
        label: cluster.name.clone(),
        colour,
        parts: cluster.shares.into_iter().zip(PARTS).map(|(share, (_, colour))| (share, colour)).collect(),
        text: cluster.text.clone(),
    };
    split.clusters.iter().zip(colours(&names)).map(bar).collect()
}

fn tornado(ranges: &Ranges) -> Value {
    let value = |(name, low, high): &(String, f64, f64)| {
        json!({
            "assumption": name,
            "low": low.min(*high),
            "high": low.max(*high),
            "swing": (high - low).abs(),
        })
    };
    json!({
        "data": { "values": ranges.lines.iter().map(value).collect::<Vec<_>>() },
        "layer": [
            {
                "mark": { "type": "bar", "height": { "band": 0.7 } },
                "encoding": {
                    "y": { "field": "assumption", "type": "nominal", "sort": { "field": "swing", "order": "descending" }, "title": null, "axis": { "labelLimit": 340 } },
                    "x": { "field": "low", "type": "quantitative", "title": ranges.figure, "scale": { "zero": false } },
                    "x2": { "field": "high" },
                },
            },
            { "mark": { "type": "rule", "strokeDash": [4, 4] }, "encoding": { "x": { "datum": ranges.expected } } },
        ],
    })
}
