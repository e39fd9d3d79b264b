//! Bits against how far a model's predictions move, as a picture that documents show: a line a codec, divergences on a
//! logarithmic axis.

/// A line of the chart.
#[derive(Debug, Clone)]
pub struct Line {
    pub name: String,
    /// Bits per weight, and nats of divergence.
    pub points: Vec<(f64, f64)>,
    /// Whether it is a bound that no codec is below.
    pub is_bound: bool,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
/// Left, right, top and bottom.
const MARGINS: [f64; 4] = [70.0, 190.0, 30.0, 50.0];
const COLOURS: [&str; 10] = [
    "#0b6e4f", "#c8553d", "#3d5a98", "#8a6d1b", "#7b3f8c", "#2b8a9e", "#a23b72", "#6b6b6b", "#d99a00",
    "#4f8f2f",
];

/// An SVG of the lines; divergences at or below zero are left out, as a logarithm has no place for them.
pub fn svg(title: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied()).filter(|point| point.1 > 0.0);
    let bounds = |of: fn((f64, f64)) -> f64| {
        points().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let ((left, right), (low, high)) = (bounds(|point| point.0.floor()), bounds(|point| point.1));
    let right = right.max(left + 1.0).ceil();
    let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let [before, after, above, below] = MARGINS;
    let x = |bits: f64| before + (bits - left) / (right - left) * (WIDTH - before - after);
    let y = |lost: f64| above + (high - lost.log10()) / (high - low) * (HEIGHT - above - below);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{before}\" y=\"18\">{title}</text>\n"
    );
    let mut put = |text: String| out.push_str(&(text + "\n"));
    for bits in left as i64..=right as i64 {
        let at = x(bits as f64);
        put(format!(
            "<line x1=\"{at:.1}\" y1=\"{above}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{bits}</text>",
            HEIGHT - below,
            HEIGHT - below + 18.0
        ));
    }
    for decade in low as i32..=high as i32 {
        let at = y(10f64.powi(decade));
        put(format!(
            "<line x1=\"{before}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - after,
            before - 8.0,
            at + 4.0,
            10f64.powi(decade)
        ));
    }
    put(format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">bits per weight</text>\n<text x=\"16\" y=\"{:.1}\" \
         transform=\"rotate(-90 16 {:.1})\" text-anchor=\"middle\">divergence, nats a token</text>",
        0.5 * (before + WIDTH - after),
        HEIGHT - 10.0,
        0.5 * HEIGHT,
        0.5 * HEIGHT
    ));
    for (at, line) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let mut shown: Vec<(f64, f64)> = line.points.iter().copied().filter(|point| point.1 > 0.0).collect();
        shown.sort_by(|a, b| a.0.total_cmp(&b.0));
        let path: Vec<String> =
            shown.iter().map(|&(bits, lost)| format!("{:.1},{:.1}", x(bits), y(lost))).collect();
        let dashes = if line.is_bound { " stroke-dasharray=\"5 4\"" } else { "" };
        put(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>",
            path.join(" ")
        ));
        for &(bits, lost) in &shown {
            put(format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(bits), y(lost)));
        }
        let (key, row) = (WIDTH - after + 14.0, above + 14.0 + 18.0 * at as f64);
        put(format!(
            "<line x1=\"{key}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"1.8\"{dashes}/>\
             <text x=\"{:.1}\" y=\"{row:.1}\">{}</text>",
            row - 4.0,
            key + 20.0,
            row - 4.0,
            key + 26.0,
            line.name
        ));
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_with_a_divergence_is_drawn_once_and_within_the_picture() {
        let line = |name: &str, points: &[(f64, f64)], is_bound| Line {
            name: name.into(),
            points: points.to_vec(),
            is_bound,
        };
        let lines = [
            line("one", &[(2.0, 0.5), (3.0, 0.05), (4.0, -0.01)], false),
            line("bound", &[(2.15, 0.2)], true),
        ];
        let picture = svg("title", &lines);
        assert_eq!(picture.matches("<circle").count(), 3);
        // A dashed line and its key.
        assert_eq!(picture.matches("stroke-dasharray").count(), 2);
        let number = |text: &str| text.split('"').next().and_then(|own| own.parse::<f64>().ok());
        for (name, most) in [("cx=\"", WIDTH), ("cy=\"", HEIGHT)] {
            let places: Vec<f64> = picture.split(name).skip(1).filter_map(number).collect();
            assert_eq!(places.len(), 3);
            assert!(places.iter().all(|place| (0.0..most).contains(place)), "{places:?}");
        }
    }
}
