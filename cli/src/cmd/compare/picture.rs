//! The report of `trinity compare`: rate–distortion curves by class.

use serde_json::{Value, json};
use trinity_study::compare::{Miss, Winner, on_common_tensors, verdicts, winners};
use trinity_tensor::Class;
use trinity_tensor::codec::Rate;
use trinity_tensor::compare::{ClassLine, ComparisonRow, GAUSSIAN, ORDER0, bd_rate, by_class, off_target};

use crate::colour::colours;
use crate::report::Report;
use crate::table::{Table, sig3};

pub fn report(rows: &[ComparisonRow], targets: &[Rate], misses: &[Miss], anchor: &str) -> Report {
    let mut report = Report::new("Codecs side by side");
    report.paragraph(
        "Bits per value count everything: scales, tables, headers. SNR is energy over squared error. \
         A number format stands at the one rate it has. The gap is the distance in bits from the rate–distortion bound of independent Gaussian values.",
    );
    let winners = winners(rows, targets);
    report.answer(winners.iter().filter(|winner| winner.lead.is_some()).map(ToString::to_string));
    for class in Class::ALL {
        let own: Vec<ComparisonRow> = rows.iter().filter(|row| row.class == class).cloned().collect();
        if own.is_empty() {
            continue;
        }
        report.heading(class.name());
        match targets {
            // One rate is no curve.
            [target] => {
                report.chart(format!("{class} at {target}: mean over its tensors"), bars(&own, *target));
            }
            _ => {
                report.chart(
                    format!(
                        "{class}: mean over its tensors; BD-rate against {anchor} in the legend, best first; click \
                         a name to pick it out"
                    ),
                    chart(&curves(&own, anchor)),
                );
            }
        }
        report.add(format!("{class}: who is best"), &winners_table(&winners, class));
        report.add(format!("{class}: every tensor"), &rows_table(&own));
    }
    let said = verdicts(rows);
    if !said.is_empty() {
        report.heading("Held against the paper");
        report.paragraphs(said);
    }
    let off = off_target(rows, targets);
    if !off.is_empty() {
        report.heading("Off target");
        report.add(
            "Rows more than a per cent from their target: where a coder jumps, or values take no more bits",
            &rows_table(off),
        );
    }
    if !misses.is_empty() {
        report.heading("Not reached");
        report.table(
            "Targets below what a codec needs at its coarsest",
            ["what", "times"],
            misses.iter().map(|miss| [miss.to_string(), miss.tensors.to_string()]),
        );
    }
    report
}

fn winners_table(winners: &[Winner], class: Class) -> Table {
    let lead = |winner: &Winner| {
        winner.lead.map_or_else(String::new, |lead| match winner.target.contains("bits") {
            true => format!("{lead:.2} dB"),
            false => format!("{:.1} % of bits", lead * 100.0),
        })
    };
    Table::of(winners.iter().filter(|winner| winner.class == class))
        .column("target", |winner| &winner.target)
        .column("best", |winner| &winner.codec)
        .column("tensors", |winner| format!("{} of {}", winner.tensors, winner.of))
        .column("bits/value", |winner| format!("{:.3}", winner.bits_per_value))
        .column("SNR dB", |winner| format!("{:.2}", winner.snr_db))
        .column("next", |winner| winner.next.as_deref().unwrap_or_default())
        .column("both reach", |winner| {
            winner.next.as_ref().map_or_else(String::new, |_| winner.shared.to_string())
        })
        .column("lead", lead)
        .end()
}

/// A bar for each codec at a single rate, the best on top: decibels where bits
/// were asked for, bits where an error was.
fn bars(rows: &[ComparisonRow], target: Rate) -> Value {
    let in_bits = matches!(target, Rate::Bits(_));
    let mut lines = by_class(rows);
    lines.sort_by(|a, b| match in_bits {
        true => b.snr_db.total_cmp(&a.snr_db),
        false => a.bits_per_value.total_cmp(&b.bits_per_value),
    });
    let codecs: Vec<String> = lines.iter().map(|line| label(&line.codec, &line.precondition)).collect();
    // A number format has the one rate it has, whatever was asked for.
    let off = |bits: f64| matches!(target, Rate::Bits(asked) if (bits / asked - 1.0).abs() > 0.01);
    let most = lines.iter().map(|line| line.tensors).max().unwrap_or(0);
    let named = |(line, codec): (&ClassLine, &String)| {
        let bits = off(line.bits_per_value).then(|| format!(", {:.2} bits", line.bits_per_value));
        // A mean over fewer tensors is one of others.
        let few = (line.tensors < most).then(|| format!(", {} of {most} tensors", line.tensors));
        format!("{codec}{}{}", bits.unwrap_or_default(), few.unwrap_or_default())
    };
    let names: Vec<String> = lines.iter().zip(&codecs).map(named).collect();
    let values: Vec<Value> = lines
        .iter()
        .zip(&names)
        .map(|(line, name)| json!({"codec": name, "bits": line.bits_per_value, "snr": line.snr_db}))
        .collect();
    let (field, title) = if in_bits { ("snr", "SNR in dB") } else { ("bits", "bits per value") };
    let place = json!({"field": "codec", "type": "nominal", "sort": names, "title": null, "axis": {"labelLimit": 240}});
    json!({
        "data": {"values": values},
        "height": 22 * names.len().max(2),
        "encoding": {"y": place, "x": {"field": field, "type": "quantitative", "title": title}},
        "layer": [
            {"mark": {"type": "bar", "tooltip": true},
             "encoding": {"color": {"field": "codec", "type": "nominal", "legend": null,
                                    "scale": {"domain": names, "range": colours(&codecs)}}}},
            {"mark": {"type": "text", "align": "left", "dx": 4},
             "encoding": {"text": {"field": field, "type": "quantitative", "format": ".3f"}}},
        ],
    })
}

fn label(codec: &str, precondition: &str) -> String {
    if precondition == "none" { codec.to_owned() } else { format!("{codec} ({precondition})") }
}

/// One codec's curve, as the legend names it.
struct Curve {
    name: String,
    /// A line that is no codec.
    reference: bool,
    /// Against the anchor, in per cent.
    bd_rate: Option<f64>,
    /// (bits per value, dB).
    points: Vec<(f64, f64)>,
}

/// Curves with their BD-rates, the best first and those without one last. A
/// BD-rate is of the tensors on which both reached all they were asked for.
fn curves(rows: &[ComparisonRow], anchor: &str) -> Vec<Curve> {
    type OfCodec = ((String, String), Vec<(f64, f64)>);
    let mut lines: Vec<OfCodec> = Vec::new();
    for line in by_class(rows) {
        let point = (line.bits_per_value, line.snr_db);
        let codec = (line.codec, line.precondition);
        match lines.iter_mut().find(|(own, _)| *own == codec) {
            Some((_, points)) => points.push(point),
            None => lines.push((codec, vec![point])),
        }
    }
    let against_anchor = |codec: &(String, String)| {
        let own = (codec.0.as_str(), codec.1.as_str());
        let shared = by_class(&on_common_tensors(rows, [(anchor, "none"), own]));
        let points = |codec: (&str, &str)| -> Vec<(f64, f64)> {
            let own = shared.iter().filter(|line| (line.codec.as_str(), line.precondition.as_str()) == codec);
            own.map(|line| (line.bits_per_value, line.snr_db)).collect()
        };
        bd_rate(&points((anchor, "none")), &points(own))
    };
    let mut curves: Vec<Curve> = lines
        .into_iter()
        .map(|(codec, points)| Curve {
            reference: codec.0 == ORDER0 || codec.0 == GAUSSIAN,
            bd_rate: against_anchor(&codec),
            name: label(&codec.0, &codec.1),
            points,
        })
        .collect();
    let rank = |curve: &Curve| curve.bd_rate.unwrap_or(f64::MAX);
    curves.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    curves
}

/// Curves of more codecs than there are colours differ in their marks, too.
fn chart(curves: &[Curve]) -> Value {
    let label = |curve: &Curve| match curve.bd_rate {
        Some(rate) => format!("{} {rate:+.1} %", curve.name),
        None => curve.name.clone(),
    };
    let values: Vec<Value> = curves
        .iter()
        .flat_map(|curve| {
            let (codec, reference) = (label(curve), curve.reference);
            let point = move |&(bits, snr): &(f64, f64)| {
                json!({"codec": codec, "bits": bits, "snr": snr, "reference": reference})
            };
            curve.points.iter().map(point)
        })
        .collect();
    let order: Vec<String> = curves.iter().map(label).collect();
    let colours = colours(&curves.iter().map(|curve| curve.name.as_str()).collect::<Vec<_>>());
    let number = |field: &str, title: &str| json!({"field": field, "type": "quantitative", "title": title, "format": ".3f"});
    json!({
        "data": {"values": values},
        "height": 60 + 16 * curves.len().max(15),
        "params": [{"name": "zoom", "select": "interval", "bind": "scales"}, {"name": "picked", "select": {"type": "point", "fields": ["codec"]}, "bind": "legend"}],
        "mark": {"type": "line", "point": {"size": 50}},
        "encoding": {
            "x": {"field": "bits", "type": "quantitative", "title": "bits per value", "scale": {"zero": false},
                  "axis": {"tickCount": 8}},
            "y": {"field": "snr", "type": "quantitative", "title": "SNR in dB", "scale": {"zero": false}},
            "color": {"field": "codec", "type": "nominal", "sort": order, "scale": {"domain": order, "range": colours},
                      "legend": {"symbolLimit": 99, "labelLimit": 300}},
            "shape": {"field": "codec", "type": "nominal", "sort": order, "legend": null},
            "strokeDash": {"condition": {"test": "datum.reference", "value": [5, 4]}, "value": [1, 0]},
            "opacity": {"condition": {"param": "picked", "value": 1}, "value": 0.1},
            "tooltip": [{"field": "codec"}, number("bits", "bits per value"), number("snr", "SNR in dB")],
        },
    })
}

fn rows_table<'r>(rows: impl IntoIterator<Item = &'r ComparisonRow>) -> Table {
    // The bound is no codec: it has no largest error and no speed.
    let number = |value: f64| if value.is_finite() { sig3(value) } else { "-".to_owned() };
    Table::of(rows)
        .column("tensor", |row| &row.tensor)
        .column("codec", |row| label(&row.codec, &row.precondition))
        .column("target", |row| &row.target)
        .column("bits/value", |row| format!("{:.3}", row.bits_per_value))
        .column("NMSE", |row| number(row.nmse))
        .column("SNR dB", |row| format!("{:.2}", row.snr_db))
        .column("MAE", |row| number(row.mae))
        .column("max error", |row| number(row.max_abs_error))
        .column("enc MB/s", |row| number(row.encode_mb_s))
        .column("dec MB/s", |row| number(row.decode_mb_s))
        .column("gap bits", |row| format!("{:.3}", row.gap_bits))
        .end()
}
