//! The report of an exploration: the answer, the fronts it is read from, and
//! what it rests on.

use super::show;
use crate::cmd::sweep::fronts::{self, PARTS};
use crate::colour::{colour, colours};
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::{Bar, Report};
use crate::table::{Table, sig3};
use serde_json::{Value, json};
use trinity_study::explore::{Exploration, Explored, Odds};
use trinity_study::search::Found;
use trinity_study::sweep::charts;
use trinity_tensor::Class;

pub fn page(explored: &Explored, searched: Option<&Found>) -> Report {
    let found = &explored.exploration;
    let mut report = Report::new(found.title.clone());
    let (opening, rest) = found.answer.split_at(found.opening.min(found.answer.len()));
    report.answer(opening);
    if let Some(odds) = &found.odds {
        report.heading("The odds");
        gains(&mut report, odds);
        report.add("Each codec over all draws", &show::chances(odds));
        report.add("What decides the gain", &show::decides(odds));
    }
    if let Some(regime) = &found.regime {
        report.heading("Where it pays");
        report.svg(
            format!("{} over {} and {}", found.study, regime.x.name, regime.y.name),
            &super::map::svg(regime),
        );
    }
    report.heading("What it rests on, in words").paragraphs(rest);
    report.paragraph(format!("{} at {}, in {}.", codecs(found), found.quality, found.study));
    report.heading("The best of each codec");
    split(&mut report, found);
    report.add("Each codec at its best", &show::rankings(found));
    report.add("What each plays", &show::layouts(found));
    report.heading("Over the budget");
    differences(&mut report, found);
    fronts::draw(&mut report, &charts(&explored.study, &found.fronts, found.budget_mm2, &[]));
    report.heading("Tensors");
    bits(&mut report, found);
    report.add(format!("Bits per value at {}", found.quality), &show::bits(found));
    if !found.trained.is_empty() {
        report.add("Bits of what training sends, by recorded runs", &show::trained(found));
    }
    report.heading("Silicon");
    silicon(&mut report, found);
    report.add("Encoder and decoder, and where the figures are from", &show::silicon(found));
    report.heading("What the answer rests on");
    tornado(&mut report, found);
    rests_on(&mut report, found);
    if let Some(searched) = searched {
        report.heading("Designs");
        designs(&mut report, searched);
        report.add("Designs that no other beats in bits, mm² and pJ", &show::designs(searched));
    }
    if !found.left_out.is_empty() {
        let table = Table::of(&found.left_out)
            .column("codec", |left| &left.candidate)
            .column("why", |left| &left.why)
            .end();
        report.add("Left out", &table);
    }
    report
}

fn rests_on(report: &mut Report, found: &Exploration) {
    if !found.winning_intervals.is_empty() {
        report.add("Which codec is best at which budget", &winning_intervals(found));
    }
    report.add("Each assumption at either end of its range, alone", &sensitivities(found));
    if let Some(odds) = &found.odds {
        report.add("What is drawn", &inputs(odds));
        report.paragraphs(&odds.correlations);
    }
    report.add("How sure each link is", &show::certainty(found));
}

/// The gain of every codec over no codec: median and the middle 90 % of the draws.
fn gains(report: &mut Report, odds: &Odds) {
    let values: Vec<Value> = odds
        .chances
        .iter()
        .filter(|one| one.gain.high > 0.0)
        .map(|one| {
            json!({ "codec": one.scenario, "median": one.gain.median, "low": one.gain.low, "high": one.gain.high,
                    "best": format!("{:.0} % of draws", one.best * 100.0) })
        })
        .collect();
    let names: Vec<&str> = odds.chances.iter().map(|one| one.scenario.as_str()).collect();
    let y = json!({ "field": "codec", "type": "nominal", "sort": names, "title": null });
    let colour = json!({ "field": "codec", "type": "nominal", "legend": null, "scale": scale(&names) });
    report.chart(
        format!("Gain over no codec in {} draws: median, and 90 % of them", odds.draws - odds.failed),
        json!({
            "data": { "values": values },
            "height": 26 * values.len().max(2),
            "layer": [
                { "mark": { "type": "rule", "strokeWidth": 5, "opacity": 0.5, "tooltip": { "content": "data" } },
                  "encoding": { "y": y, "x": { "field": "low", "type": "quantitative", "title": "times no codec",
                                "scale": { "zero": false } }, "x2": { "field": "high" }, "color": colour } },
                { "mark": { "type": "point", "filled": true, "size": 90, "tooltip": { "content": "data" } },
                  "encoding": { "y": y, "x": { "field": "median", "type": "quantitative" }, "color": colour } },
                { "mark": { "type": "rule", "strokeDash": [4, 4], "color": "#8a929c" }, "encoding": { "x": { "datum": 1 } } },
            ],
        }),
    );
}

/// Each front over the baseline's: lines that lie on each other are told apart by their difference.
fn differences(report: &mut Report, found: &Exploration) {
    let Some(plain) = found.fronts.iter().find(|front| front.scenario == found.baseline) else { return };
    let value = |point: &trinity_study::sweep::Found| (point.estimate.area_mm2, point.estimate.tokens_per_s);
    let plain: Vec<(f64, f64)> = plain.points.iter().map(value).collect();
    let best_within = |points: &[(f64, f64)], area: f64| {
        points.iter().filter(|(own, _)| *own <= area).map(|(_, value)| *value).reduce(f64::max)
    };
    let series = found.fronts.iter().filter(|front| front.scenario != found.baseline).map(|front| {
        let own: Vec<(f64, f64)> = front.points.iter().map(value).collect();
        let over = own.iter().filter_map(|(area, _)| {
            let (own, plain) = (best_within(&own, *area)?, best_within(&plain, *area)?);
            Some((*area, (own / plain - 1.0) * 100.0))
        });
        Series::new(&front.scenario, over, Mark::Line)
    });
    let series = series.filter(|own| !own.points.is_empty());
    let y = Axis::linear(format!("tokens/s over {}, %", found.baseline));
    let plot = Plot::new(Axis::log("total die area, mm²"), y, series);
    if !plot.series.is_empty() {
        report.plot(format!("What each codec gains over {} within an area", found.baseline), &plot);
    }
}

fn inputs(odds: &Odds) -> Table {
    Table::of(&odds.inputs)
        .column("input", |input| &input.name)
        .column("from", |input| &input.low)
        .column("to", |input| &input.high)
        .column("drawn", |input| &input.shape)
        .end()
}

/// Every design that went into the last round, bits against area.
fn designs(report: &mut Report, searched: &Found) {
    let last = searched.rows.iter().map(|row| row.values).max().unwrap_or(0);
    let values: Vec<Value> = searched
        .rows
        .iter()
        .filter(|row| row.values == last && row.bits_per_value.is_finite())
        .map(|row| {
            let kept = if row.kept { "no other beats it" } else { "beaten" };
            json!({ "design": row.design, "bits": row.bits_per_value, "area": row.area_mm2, "pj": row.pj_per_bit, "is": kept })
        })
        .collect();
    report.chart(
        format!("{} designs tried, {} measured on {last} values of each class", searched.designs, values.len()),
        json!({
            "data": { "values": values },
            "mark": { "type": "point", "filled": true, "size": 50, "tooltip": { "content": "data" } },
            "encoding": {
                "x": { "field": "area", "type": "quantitative", "title": "encoder for 100 Gbit/s, mm²", "scale": { "type": "log" } },
                "y": { "field": "bits", "type": "quantitative", "title": "bits per value", "scale": { "zero": false } },
                "color": { "field": "is", "type": "nominal", "title": null,
                           "scale": { "domain": ["no other beats it", "beaten"], "range": ["#54a24b", "#8a929c"] } },
            },
        }),
    );
}

/// The fronts up to a little more than the budget, as a picture that needs no script.
pub fn picture(found: &Exploration) -> Plot {
    let right = found.budget_mm2.map_or(f64::INFINITY, |budget| budget * 1.2);
    let series = found.fronts.iter().map(|front| {
        let points = front.points.iter().map(|point| (point.estimate.area_mm2, point.estimate.tokens_per_s));
        Series::new(&front.scenario, points.filter(|(area, _)| *area <= right), Mark::Line)
    });
    Plot::new(Axis::linear("total die area, mm²"), Axis::linear("tokens/s"), series)
}

fn codecs(found: &Exploration) -> String {
    let names: Vec<&str> = found.silicon.iter().map(|silicon| silicon.candidate.as_str()).collect();
    format!("{} codecs ({})", names.len(), names.join(", "))
}

/// How the silicon of each codec's best point is shared out.
fn split(report: &mut Report, found: &Exploration) {
    let most = found.rankings.iter().filter_map(|ranking| ranking.value).fold(0.0, f64::max);
    let bars: Vec<Bar> = found
        .rankings
        .iter()
        .filter_map(|ranking| {
            let split = ranking.split?;
            let width =
                if most > 0.0 && found.rank_by.starts_with("max") { ranking.value? / most } else { 1.0 };
            let parts = [split.gpu, split.nic, split.codec];
            Some(Bar {
                label: ranking.scenario.clone(),
                colour: colour(&ranking.scenario),
                parts: parts
                    .into_iter()
                    .zip(PARTS)
                    .map(|(share, (_, colour))| (share * width, colour))
                    .collect(),
                text: format!(
                    "{} tokens/s · GPU {} %, NIC {} %, codec {} %",
                    sig3(ranking.best.as_ref()?.estimate.tokens_per_s),
                    sig3(split.gpu * 100.0),
                    sig3(split.nic * 100.0),
                    sig3(split.codec * 100.0),
                ),
            })
        })
        .collect();
    report.bars(
        "Silicon of the best point of each codec; the bar is as long as the point is fast",
        &PARTS,
        &bars,
    );
}

fn scale(names: &[&str]) -> Value {
    json!({ "domain": names, "range": colours(names) })
}

/// Bits of each class, a bar for each coder.
fn bits(report: &mut Report, found: &Exploration) {
    let coders = show::coders(found);
    let known = found.bits.iter().filter_map(|own| {
        let bits = own.bits_per_value?;
        Some(json!({ "class": own.class.name(), "coder": own.coder, "bits": bits, "low": own.low, "high": own.high }))
    });
    let order: Vec<&str> = Class::ALL.into_iter().map(Class::name).collect();
    report.chart(
        format!("Bits per value at {}; shorter is better", found.quality),
        json!({
            "data": { "values": known.collect::<Vec<Value>>() },
            "height": 34 * coders.len().max(2) * 2,
            "mark": { "type": "bar", "tooltip": true },
            "encoding": {
                "y": { "field": "class", "type": "nominal", "sort": order, "title": null },
                "yOffset": { "field": "coder", "sort": coders },
                "x": { "field": "bits", "type": "quantitative", "title": "bits per value" },
                "color": { "field": "coder", "type": "nominal", "title": null, "scale": scale(&coders) },
            },
        }),
    );
}

/// Area against energy of each codec, both on logarithmic axes.
fn silicon(report: &mut Report, found: &Exploration) {
    let names: Vec<&str> = found.silicon.iter().map(|silicon| silicon.candidate.as_str()).collect();
    let values: Vec<Value> = found
        .silicon
        .iter()
        .map(|silicon| {
            let gbps = silicon.encoder.throughput_gbps;
            json!({
                "codec": silicon.candidate,
                // Engines that are on the die already have no area to draw.
                "area": (silicon.area_mm2() * 100.0 / gbps).max(0.01),
                "energy": silicon.encoder.pj_per_bit + silicon.decoder.pj_per_bit,
                "from": silicon.origin.words(),
            })
        })
        .collect();
    report.chart(
        "Area of encoder and decoder for 100 Gbit/s against energy of a bit there and back; 0.01 mm² is none",
        json!({
            "data": { "values": values },
            "height": 260,
            "encoding": {
                "x": { "field": "area", "type": "quantitative", "title": "mm² for 100 Gbit/s", "scale": { "type": "log" } },
                "y": { "field": "energy", "type": "quantitative", "title": "pJ/bit", "scale": { "type": "log" } },
                "color": { "field": "codec", "type": "nominal", "title": null, "scale": scale(&names) },
                "tooltip": [{ "field": "codec" }, { "field": "area" }, { "field": "energy" }, { "field": "from" }],
            },
            "layer": [
                { "mark": { "type": "point", "filled": true, "size": 120 } },
                { "mark": { "type": "text", "dy": -12 }, "encoding": { "text": { "field": "codec" } } },
            ],
        }),
    );
}

/// The gain over no codec with each assumption at either end.
fn tornado(report: &mut Report, found: &Exploration) {
    let best = found.rankings.first().and_then(|ranking| ranking.over_baseline);
    let Some(gain) = best.filter(|_| found.best != found.baseline) else { return };
    let values: Vec<Value> = found
        .sensitivities
        .iter()
        .filter_map(|sensitivity| {
            let (low, high) = (sensitivity.low.over_baseline?, sensitivity.high.over_baseline?);
            Some(json!({
                "assumption": sensitivity.assumption, "low": low.min(high), "high": low.max(high), "swing": sensitivity.width(),
            }))
        })
        .collect();
    report.chart(
        format!("{} over {} ({gain:.3}× as assumed) with each assumption at either end", found.best, found.baseline),
        json!({
            "data": { "values": values },
            "height": 24 * values.len().max(2),
            "layer": [
                {
                    "mark": { "type": "bar", "height": { "band": 0.7 }, "color": colour(&found.best), "tooltip": true },
                    "encoding": {
                        "y": { "field": "assumption", "type": "nominal", "title": null,
                               "sort": { "field": "swing", "order": "descending" }, "axis": { "labelLimit": 340 } },
                        "x": { "field": "low", "type": "quantitative", "title": format!("times {}", found.baseline),
                               "scale": { "zero": false } },
                        "x2": { "field": "high" },
                    },
                },
                { "mark": { "type": "rule", "strokeDash": [4, 4], "color": "#8a929c" },
                  "encoding": { "x": { "datum": gain } } },
            ],
        }),
    );
}

fn winning_intervals(found: &Exploration) -> Table {
    Table::of(&found.winning_intervals)
        .column("from mm²", |own| sig3(own.from_mm2))
        .column("to mm²", |own| own.to_mm2.map_or_else(|| "any".into(), sig3))
        .column("best", |own| &own.scenario)
        .end()
}

fn sensitivities(found: &Exploration) -> Table {
    let gain = |value: Option<f64>| value.map_or_else(|| "-".into(), |gain| format!("{gain:.3}×"));
    let best = |name: &Option<String>| name.clone().unwrap_or_else(|| "nothing fits".into());
    Table::of(&found.sensitivities)
        .column("assumption", |sensitivity| &sensitivity.assumption)
        .column("low", |sensitivity| &sensitivity.low.value)
        .column("best then", |sensitivity| best(&sensitivity.low.best))
        .column("over none", |sensitivity| gain(sensitivity.low.over_baseline))
        .column("high", |sensitivity| &sensitivity.high.value)
        .column("best then", |sensitivity| best(&sensitivity.high.best))
        .column("over none", |sensitivity| gain(sensitivity.high.over_baseline))
        .end()
}
