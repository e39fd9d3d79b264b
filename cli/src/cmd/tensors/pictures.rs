//! The pictures of `tensors info --out`: histogram, heat map, spectrum.

use serde_json::{Value, json};
use trinity_tensor::stats::{Grid, Profile};

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
    grid(
        report,
        format!("{tensor}: RMS over the matrix"),
        &pictures.heat_map,
        "column",
        "row",
        "rms",
        "linear",
    );
    grid(
        report,
        format!("{tensor}: mean power by frequency, in cycles per 32 values"),
        &pictures.spectrum,
        "horizontal",
        "vertical",
        "power",
        "log",
    );
}

fn grid(
    report: &mut Report,
    caption: String,
    grid: &Grid,
    across: &str,
    down: &str,
    value: &str,
    scale: &str,
) {
    if grid.cells.len() < 2 {
        return;
    }
    let cells: Vec<Value> = grid
        .cells
        .iter()
        .enumerate()
        .map(|(i, &cell)| json!({across: i % grid.cols, down: i / grid.cols, value: round(cell)}))
        .collect();
    report.chart(
        caption,
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

/// Four digits: a picture shows no more, and pages stay small.
fn round(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
