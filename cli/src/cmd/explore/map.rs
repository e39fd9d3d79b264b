//! The map of where a codec pays, as a picture that needs no script: gains as
//! colours, a line where a codec starts to pay, and clusters as numbered marks.

use crate::report::escape;
use crate::table::sig3;
use std::fmt::Write;
use trinity_study::explore::{Mark, PAYS, Regime, Ruler};

const WIDTH: f64 = 840.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 330.0;
/// Room for the legend below the axis.
const FOOT: f64 = 54.0;
const LINE: f64 = 18.0;

/// Gains and their colours, from which a place takes the last that it reaches.
const COLOURS: [(f64, &str, &str); 7] = [
    (0.0, "#d9dde2", "less"),
    (0.99, "#eef0f2", "0.99"),
    (PAYS, "#d6ecd2", "1.01"),
    (1.1, "#a6d8a0", "1.1"),
    (1.5, "#66bd63", "1.5"),
    (2.0, "#2b8f4a", "2"),
    (4.0, "#0b5d2c", "4"),
];

pub fn svg(regime: &Regime) -> String {
    let rows = regime.marks.len() as f64 + 2.0;
    let foot = FOOT + if regime.why.is_some() { LINE } else { 0.0 };
    let height = (BOTTOM + foot).max(TOP + LINE * rows + 20.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"12\" role=\"img\" aria-label=\"{}\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n",
        escape(&label(regime))
    );
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"18\" font-weight=\"600\" fill=\"#1b1f24\">Gain of {} for each mm²; within the line it pays</text>",
        escape(&regime.candidate)
    );
    cells(&mut text, regime);
    edge(&mut text, regime);
    axes(&mut text, regime);
    marks(&mut text, regime);
    legend(&mut text, regime);
    text + "</svg>\n"
}

fn label(regime: &Regime) -> String {
    format!("Gain of {} over {} and {}", regime.candidate, regime.x.name, regime.y.name)
}

/// Where a value lies along an axis, from 0 to 1 at the middles of the first and last cell.
fn along(ruler: &Ruler, value: f64) -> f64 {
    let (first, last) = (ruler.values[0], ruler.values[ruler.values.len() - 1]);
    (value / first).ln() / (last / first).ln()
}

/// The horizontal place of a value; cells lie around the axis' values.
fn across(regime: &Regime, value: f64) -> f64 {
    let count = regime.x.values.len() as f64;
    let cell = (RIGHT - LEFT) / count;
    (LEFT + cell / 2.0 + along(&regime.x, value) * cell * (count - 1.0)).clamp(LEFT, RIGHT)
}

fn up(regime: &Regime, value: f64) -> f64 {
    let count = regime.y.values.len() as f64;
    let cell = (BOTTOM - TOP) / count;
    (BOTTOM - cell / 2.0 - along(&regime.y, value) * cell * (count - 1.0)).clamp(TOP, BOTTOM)
}

fn sizes(regime: &Regime) -> (f64, f64) {
    ((RIGHT - LEFT) / regime.x.values.len() as f64, (BOTTOM - TOP) / regime.y.values.len() as f64)
}

fn colour(gain: f64) -> &'static str {
    COLOURS.iter().rev().find(|(from, ..)| gain >= *from).map_or("#d9dde2", |(_, colour, _)| colour)
}

fn cells(text: &mut String, regime: &Regime) {
    let (wide, high) = sizes(regime);
    for (row, y) in regime.gains.iter().zip(&regime.y.values) {
        for (gain, x) in row.iter().zip(&regime.x.values) {
            let (left, top) = (across(regime, *x) - wide / 2.0, up(regime, *y) - high / 2.0);
            let (fill, said) = match gain {
                Some(gain) => (colour(*gain), format!("{}×", sig3(*gain))),
                None => ("#fff", "cannot run".to_owned()),
            };
            let _ = writeln!(
                text,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"><title>{} {}, {} {}: {said}</title></rect>",
                wide + 0.3,
                high + 0.3,
                sig3(*x),
                regime.x.unit,
                sig3(*y),
                regime.y.unit
            );
        }
    }
}

/// The border between places where a codec pays and where it does not.
fn edge(text: &mut String, regime: &Regime) {
    let (wide, high) = sizes(regime);
    let pays = |row: usize, column: usize| regime.gains[row][column].is_some_and(|gain| gain > PAYS);
    let mut path = String::new();
    for row in 0..regime.y.values.len() {
        for column in 0..regime.x.values.len() {
            let right = across(regime, regime.x.values[column]) + wide / 2.0;
            let top = up(regime, regime.y.values[row]) - high / 2.0;
            if column + 1 < regime.x.values.len() && pays(row, column) != pays(row, column + 1) {
                let _ = write!(path, "M{right:.1} {top:.1}v{high:.1}");
            }
            if row + 1 < regime.y.values.len() && pays(row, column) != pays(row + 1, column) {
                let _ = write!(path, "M{:.1} {top:.1}h{wide:.1}", right - wide);
            }
        }
    }
    let _ = writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"#1b1f24\" stroke-width=\"1.6\"/>");
}

fn axes(text: &mut String, regime: &Regime) {
    let _ = writeln!(
        text,
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#8a929c\"/>",
        RIGHT - LEFT,
        BOTTOM - TOP
    );
    let mut label = |place: &str, anchor: &str, colour: &str, said: &str| {
        let _ = writeln!(text, "<text {place} text-anchor=\"{anchor}\" fill=\"{colour}\">{said}</text>");
    };
    for value in powers(&regime.x) {
        let place = format!("x=\"{:.1}\" y=\"{:.1}\"", across(regime, value), BOTTOM + 15.0);
        label(&place, "middle", "#57606a", &plain(value));
    }
    for value in powers(&regime.y) {
        let place = format!("x=\"{:.1}\" y=\"{:.1}\"", LEFT - 6.0, up(regime, value) + 4.0);
        label(&place, "end", "#57606a", &plain(value));
    }
    for (place, ruler) in [
        (format!("x=\"{}\" y=\"{:.1}\"", (LEFT + RIGHT) / 2.0, BOTTOM + 31.0), &regime.x),
        (format!("transform=\"translate(14 {:.1}) rotate(-90)\"", (TOP + BOTTOM) / 2.0), &regime.y),
    ] {
        label(&place, "middle", "#1b1f24", &format!("{}, {}", ruler.name, ruler.unit));
    }
}

/// The powers of ten on an axis.
fn powers(ruler: &Ruler) -> Vec<f64> {
    let (first, last) = (ruler.values[0], ruler.values[ruler.values.len() - 1]);
    (-6..=9)
        .map(|power| 10f64.powi(power))
        .filter(|value| (first * 0.99..=last * 1.01).contains(value))
        .collect()
}

fn plain(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}

fn marks(text: &mut String, regime: &Regime) {
    let side = RIGHT + 16.0;
    let line = |text: &mut String, at: usize, sign: &str, mark: &Mark| {
        let gain = mark.gain.map_or_else(|| "cannot run".into(), |gain| format!("{}×", sig3(gain)));
        let _ = writeln!(
            text,
            "<text x=\"{side}\" y=\"{:.1}\" fill=\"#1b1f24\"><tspan font-weight=\"600\">{sign}</tspan> {}: {gain}</text>",
            TOP + 12.0 + 18.0 * at as f64,
            escape(&mark.name)
        );
    };
    for (at, mark) in regime.marks.iter().enumerate() {
        let (x, y) = (across(regime, mark.x), up(regime, mark.y));
        let _ = writeln!(
            text,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\" fill=\"#fff\" stroke=\"#1b1f24\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\" font-size=\"10\" fill=\"#1b1f24\">{}</text>",
            y + 3.5,
            at + 1
        );
        line(text, at + 1, &format!("{}", at + 1), mark);
    }
    let (x, y) = (across(regime, regime.here.x), up(regime, regime.here.y));
    let _ =
        writeln!(text, "<path d=\"M{x:.1} {:.1}l8 8-8 8-8-8z\" fill=\"#b3261e\" stroke=\"#fff\"/>", y - 8.0);
    line(text, 0, "◆", &regime.here);
}

fn legend(text: &mut String, regime: &Regime) {
    let y = BOTTOM + 40.0;
    for (at, (_, colour, said)) in COLOURS.iter().enumerate() {
        let x = LEFT + 60.0 * at as f64;
        let said = if at == 0 { (*said).to_owned() } else { format!("{said}×") };
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"14\" height=\"10\" fill=\"{colour}\" stroke=\"#8a929c\" stroke-width=\"0.4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#57606a\" font-size=\"11\">{said}</text>",
            x + 18.0,
            y + 9.0
        );
    }
    if let Some(why) = &regime.why {
        let _ = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#57606a\" font-size=\"11\">white: cannot run ({})</text>",
            y + 26.0,
            escape(why)
        );
    }
}
