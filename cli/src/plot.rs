//! Curves and points over two axes, described once and drawn twice: as an
//! interactive Vega-Lite chart for `report.html` and as a static SVG file for
//! papers and pages without scripts.
//!
//! For anything else (heat maps, facets) a report takes Vega-Lite directly.

use crate::colour::colours;
use crate::table::sig3;
use serde_json::{Value, json};
use std::fmt::Write;

#[derive(Debug, Clone, Default)]
pub struct Plot {
    pub x: Axis,
    pub y: Axis,
    /// What is drawn, in the order of the legend.
    pub series: Vec<Series>,
}

/// An axis: its label carries the unit.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// Such as `area (mm²)`.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
}

/// How values are laid along an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences.
    #[default]
    Linear,
    /// Equal steps are equal ratios; values that are not positive are left out.
    Log,
}

/// One curve or cloud of points.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    /// The points, in drawing order.
    pub points: Vec<(f64, f64)>,
    pub mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A line with a dot at each point.
    Line,
    /// Dots alone.
    Points,
    /// A thin dashed line: a bound or a reference.
    Reference,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Left, right, top and bottom of the drawing area.
const FRAME: [f64; 4] = [72.0, 560.0, 16.0, 364.0];

impl Plot {
    pub fn new(x: Axis, y: Axis, series: impl IntoIterator<Item = Series>) -> Self {
        Self { x, y, series: series.into_iter().collect() }
    }
}

impl Series {
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>, mark: Mark) -> Self {
        Self { name: name.into(), points: points.into_iter().collect(), mark }
    }
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// Where a value lies on an axis on which equal steps look equal.
    fn position(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
        }
    }

    /// Round values within `low..=high` (positions), about six of them.
    fn ticks(&self, low: f64, high: f64) -> Vec<f64> {
        if self.scale == Scale::Log && high - low > 1.0 {
            let decades = (low.floor() as i32)..=(high.ceil() as i32);
            let steps: &[f64] = if high - low > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            return all.filter(|tick| (low..=high).contains(&tick.log10())).collect();
        }
        let (from, to) = match self.scale {
            Scale::Linear => (low, high),
            Scale::Log => (10f64.powf(low), 10f64.powf(high)),
        };
        let rough = (to - from) / 6.0;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * unit).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(unit);
        let first = (from / step).ceil() as i64;
        (0..64)
            .map(|count| (first + count) as f64 * step)
            .take_while(|tick| *tick <= to + step * 1e-9)
            .collect()
    }
}

impl Plot {
    fn drawable(&self) -> impl Iterator<Item = (usize, &Series, Vec<(f64, f64)>)> {
        self.series.iter().enumerate().map(|(index, series)| {
            let points = series.points.iter().filter(|(x, y)| self.x.takes(*x) && self.y.takes(*y));
            (index, series, points.map(|(x, y)| (self.x.position(*x), self.y.position(*y))).collect())
        })
    }

    /// The picture as a Vega-Lite specification.
    pub fn vega_lite(&self) -> Value {
        let values: Vec<Value> = self
            .series
            .iter()
            .flat_map(|series| {
                let points = series.points.iter().enumerate();
                points.filter(|(_, (x, y))| self.x.takes(*x) && self.y.takes(*y)).map(move |(order, (x, y))| {
                    json!({ "x": x, "y": y, "series": series.name, "mark": format!("{:?}", series.mark), "order": order })
                })
            })
            .collect();
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let colours = colours(&names);
        let only = |mark: Mark| json!([{ "filter": format!("datum.mark == '{mark:?}'") }]);
        // A layer without points has no extent, which the browser's console would tell.
        let drawn = |mark: Mark| values.iter().any(|value| value["mark"] == format!("{mark:?}"));
        let layers: Vec<Value> = [
            (Mark::Line, json!({ "type": "line", "point": true })),
            (Mark::Points, json!({ "type": "point", "filled": true })),
            (Mark::Reference, json!({ "type": "line", "strokeDash": [4, 4] })),
        ]
        .into_iter()
        .filter(|(mark, _)| drawn(*mark))
        .map(|(mark, look)| json!({ "transform": only(mark), "mark": look }))
        .collect();
        json!({
            "data": { "values": values },
            "encoding": {
                "x": axis("x", &self.x),
                "y": axis("y", &self.y),
                "color": { "field": "series", "type": "nominal", "title": null,
                           "scale": { "domain": names, "range": colours } },
                "order": { "field": "order" },
                "tooltip": [
                    { "field": "series" },
                    { "field": "x", "title": self.x.label, "format": ".4" },
                    { "field": "y", "title": self.y.label, "format": ".4" },
                ],
            },
            "layer": layers,
        })
    }

    /// The picture as an SVG file.
    pub fn svg(&self) -> String {
        let all: Vec<(f64, f64)> = self.drawable().flat_map(|(.., points)| points).collect();
        let colours = colours(&self.series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>());
        let [left, right, top, bottom] = FRAME;
        let (x_low, x_high) = extent(all.iter().map(|point| point.0));
        let (y_low, y_high) = extent(all.iter().map(|point| point.1));
        let across = |x: f64| left + (x - x_low) / (x_high - x_low) * (right - left);
        let down = |y: f64| bottom - (y - y_low) / (y_high - y_low) * (bottom - top);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        for tick in self.x.ticks(x_low, x_high) {
            let at = across(self.x.position(tick));
            grid(&mut svg, [at, top, at, bottom]);
            text(&mut svg, at, bottom + 18.0, "middle", &short(tick));
        }
        for tick in self.y.ticks(y_low, y_high) {
            let at = down(self.y.position(tick));
            grid(&mut svg, [left, at, right, at]);
            text(&mut svg, left - 6.0, at + 4.0, "end", &short(tick));
        }
        text(&mut svg, (left + right) / 2.0, HEIGHT - 12.0, "middle", &self.x.label);
        let _ = write!(svg, "<g transform=\"rotate(-90 16 {0}) translate(16 {0})\">", (top + bottom) / 2.0);
        text(&mut svg, 0.0, 0.0, "middle", &self.y.label);
        svg.push_str("</g>\n");
        for (index, series, points) in self.drawable() {
            let points: Vec<(f64, f64)> = points.into_iter().map(|(x, y)| (across(x), down(y))).collect();
            draw(&mut svg, series.mark, colours[index], &points);
            let line = top + 12.0 + 18.0 * index as f64;
            draw(&mut svg, series.mark, colours[index], &[(572.0, line - 4.0), (588.0, line - 4.0)]);
            text(&mut svg, 596.0, line, "start", &series.name);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// A tick's label: ticks are round, so trailing zeros say nothing.
fn short(tick: f64) -> String {
    let label = sig3(tick);
    if label.contains('.') && !label.contains('e') {
        label.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        label
    }
}

fn axis(field: &str, axis: &Axis) -> Value {
    let scale = match axis.scale {
        Scale::Linear => json!({ "zero": false }),
        Scale::Log => json!({ "type": "log" }),
    };
    json!({ "field": field, "type": "quantitative", "title": axis.label, "scale": scale })
}

/// The range of positions with a little air, never empty.
fn extent(positions: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = positions.clone().fold(f64::INFINITY, f64::min);
    let high = positions.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() {
        return (0.0, 1.0);
    }
    let air = if high > low { (high - low) * 0.04 } else { low.abs().max(1.0) * 0.5 };
    (low - air, high + air)
}

fn grid(svg: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#dddddd\"/>");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

fn draw(svg: &mut String, mark: Mark, colour: &str, points: &[(f64, f64)]) {
    if mark != Mark::Points {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let dash = if mark == Mark::Reference { " stroke-dasharray=\"4 4\"" } else { "" };
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/>",
            path.join(" ")
        );
    }
    if mark != Mark::Reference {
        for (x, y) in points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Plot {
        let line =
            Series { name: "h265 <best>".into(), points: vec![(2.0, 0.1), (3.0, 0.01)], mark: Mark::Line };
        let dots = Series { name: "x265".into(), points: vec![(2.5, 0.05), (3.5, -1.0)], mark: Mark::Points };
        Plot { x: Axis::linear("bits per value"), y: Axis::log("NMSE"), series: vec![line, dots] }
    }

    #[test]
    fn both_drawings_leave_out_what_a_log_axis_cannot_show() {
        assert_eq!(sample().vega_lite()["data"]["values"].as_array().unwrap().len(), 3);
        // Three points and, of each series, two in the legend.
        assert_eq!(sample().svg().matches("<circle").count(), 3 + 4);
    }

    #[test]
    fn text_in_an_svg_is_escaped() {
        assert!(sample().svg().contains("h265 &lt;best>"));
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Axis::linear("").ticks(0.3, 5.9), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(Axis::log("").ticks(-2.1, -0.3), [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]);
        assert_eq!(Axis::log("").ticks(0.0, 4.0), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
        assert!(Axis::log("").ticks(2.0, 2.2).len() >= 3);
    }

    #[test]
    fn an_empty_plot_is_still_a_picture() {
        let svg = Plot::default().svg();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{svg}");
    }
}
