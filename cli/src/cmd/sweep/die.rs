//! The picture of a die by its parts.

use std::fmt::Write as _;
use trinity_study::sheet::Die;

/// Side of the picture, in the units of its view box.
const SIDE: f64 = 600.0;
/// Light enough for dark letters.
const COLOURS: [&str; 11] = [
    "#9ec2e6", "#fdbf7d", "#f4a3a0", "#a9dad6", "#a5d6a0", "#f6e08a", "#d9b8d4", "#ffc9cf", "#d3b8a6",
    "#f08d8d", "#d9d3d0",
];

/// A die as a treemap: each part a rectangle of its area.
pub fn svg(die: &Die) -> String {
    let mut parts: Vec<(usize, &str, f64)> = die
        .parts
        .iter()
        .enumerate()
        .filter(|(_, (_, mm2))| *mm2 > 0.0)
        .map(|(at, (name, mm2))| (at, *name, *mm2))
        .collect();
    parts.sort_by(|a, b| b.2.total_cmp(&a.2));
    let total: f64 = parts.iter().map(|part| part.2).sum();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {SIDE} {SIDE}\" width=\"{SIDE}\" \
         font-family=\"sans-serif\" font-size=\"13\">"
    );
    for (at, name, mm2, [x, y, width, height]) in rectangles(&parts, total) {
        // Writing to memory cannot fail.
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" \
             stroke=\"white\"><title>{name}: {mm2:.2} mm²</title></rect>",
            COLOURS[at % COLOURS.len()]
        );
        svg.push_str(&label(name, mm2, [x, y, width, height]));
    }
    svg.push_str("</svg>");
    svg
}

/// Widths of a letter over its size, about.
const LETTER: f64 = 0.56;

/// A part's name and area inside its rectangle: on one line where that fits, a
/// word a line and smaller where it does not, else nothing (the title of the
/// rectangle says it, too).
fn label(name: &str, mm2: f64, [x, y, width, height]: [f64; 4]) -> String {
    let whole = format!("{name} {mm2:.0}");
    let fits = |lines: &[&str], size: f64| {
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64;
        widest * LETTER * size + 8.0 <= width && lines.len() as f64 * 1.2 * size + 4.0 <= height
    };
    let words: Vec<&str> = whole.split(' ').collect();
    let (lines, size) = if fits(&[&whole], 13.0) {
        (vec![whole.as_str()], 13.0)
    } else if let Some(size) = [13.0, 10.0, 8.0].into_iter().find(|size| fits(&words, *size)) {
        (words, size)
    } else {
        return String::new();
    };
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let below = y + 2.0 + 1.2 * size * (at + 1) as f64 - 0.2 * size;
        // Writing to memory cannot fail.
        let _ = write!(
            text,
            "<text x=\"{:.1}\" y=\"{below:.1}\" font-size=\"{size}\" fill=\"#111\">{line}</text>",
            x + 4.0
        );
    }
    text
}

/// A part's place among the names, its name and area, and its rectangle.
type Placed<'a> = (usize, &'a str, f64, [f64; 4]);

/// Cuts a square into strips along the longer side of what is left: each takes
/// the next parts until about a third of the rest is in it.
fn rectangles<'a>(parts: &[(usize, &'a str, f64)], total: f64) -> Vec<Placed<'a>> {
    let scale = SIDE * SIDE / total;
    let (mut x, mut y, mut width, mut height) = (0.0, 0.0, SIDE, SIDE);
    let mut placed = Vec::new();
    let mut rest = parts;
    while !rest.is_empty() {
        let left: f64 = rest.iter().map(|part| part.2).sum();
        let mut taken = 0;
        let mut sum = 0.0;
        while taken < rest.len() && sum < left / 3.0 {
            sum += rest[taken].2;
            taken += 1;
        }
        let upright = width >= height;
        let thickness = sum * scale / if upright { height } else { width };
        let mut at = 0.0;
        for &(index, name, mm2) in &rest[..taken] {
            let length = mm2 * scale / thickness;
            placed.push((
                index,
                name,
                mm2,
                if upright { [x, y + at, thickness, length] } else { [x + at, y, length, thickness] },
            ));
            at += length;
        }
        if upright {
            x += thickness;
            width -= thickness;
        } else {
            y += thickness;
            height -= thickness;
        }
        rest = &rest[taken..];
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stays_inside_its_rectangle_or_is_left_out() {
        assert!(label("SMs", 530.0, [0.0, 0.0, 300.0, 600.0]).contains(">SMs 530<"));
        let narrow = label("video engines", 6.6, [0.0, 0.0, 60.0, 60.0]);
        assert_eq!(narrow.matches("<text").count(), 3, "{narrow}");
        assert!(label("video engines", 6.6, [0.0, 0.0, 20.0, 20.0]).is_empty());
    }

    #[test]
    fn rectangles_cover_the_square_and_keep_their_areas() {
        let parts = [(0, "a", 500.0), (1, "b", 200.0), (2, "c", 80.0), (3, "d", 20.0), (4, "e", 0.5)];
        let total: f64 = parts.iter().map(|part| part.2).sum();
        let placed = rectangles(&parts, total);
        assert_eq!(placed.len(), parts.len());
        for (_, name, mm2, [x, y, width, height]) in placed {
            assert!((width * height / (SIDE * SIDE) - mm2 / total).abs() < 1e-9, "{name}");
            assert!(
                x >= -1e-9 && y >= -1e-9 && x + width <= SIDE + 1e-6 && y + height <= SIDE + 1e-6,
                "{name}"
            );
        }
    }
}
