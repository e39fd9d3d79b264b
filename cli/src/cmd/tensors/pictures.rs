//! The pictures of `tensors info --out`: histogram, heat map, spectrum.

use serde_json::{Value, json};
use trinity_tensor::stats::Profile;

use crate::report::Report;

pub fn draw(report: &mut Report, tensor: &str, profile: &Profile) {
    let pictures = &profile.pictures;
    let (Some(min), Some(max)) = (profile.min, profile.max) else { return };
    report.heading(tensor);
    let step = (max - min) / 255.0;
    let bars: Vec<Value> = pictures
        .histogram
        .iter()
        .enumerate()
        .filter(|&(_, &count)| count > 0)
        .map(|(level, &count)| json!({"value": min + step * level as f64, "count": count}))
        .collect();
    report.chart(
        format!("{tensor}: values at 256 levels between minimum and maximum"),
        json!({
            "data": {"values": bars},
            "mark": {"type": "bar", "width": 2},
            "encoding": {
                "x": {"field": "value", "type": "quantitative"},
                "y": {"field": "count", "type": "quantitative", "scale": {"type": "symlog"}},
            },
        }),
    );
    for (caption, grid, [across, down, value, scale]) in [
        ("RMS over the matrix", &pictures.heat_map, ["column", "row", "rms", "linear"]),
        (
            "mean power by frequency, in cycles per 32 values",
            &pictures.spectrum,
            ["horizontal", "vertical", "power", "log"],
        ),
    ] {
        if grid.cells.len() < 2 {
            continue;
        }
        let cells: Vec<Value> = grid
            .cells
            .iter()
            .enumerate()
            .map(|(i, &cell)| json!({across: i % grid.cols, down: i / grid.cols, value: round(cell)}))
            .collect();
        report.chart(
            format!("{tensor}: {caption}"),
            json!({
                "data": {"values": cells},
                "mark": "rect",
                "encoding": {
                    "x": {"field": across, "type": "ordinal", "axis": {"labels": false, "ticks": false}},
                    "y": {"field": down, "type": "ordinal", "axis": {"labels": false, "ticks": false}},
                    "color": {"field": value, "type": "quantitative", "scale": {"type": scale, "scheme": "viridis"}},
                },
            }),
        );
    }
}

/// Four digits: a picture shows no more, and pages stay small.
fn round(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
