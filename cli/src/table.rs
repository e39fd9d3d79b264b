//! Aligned tables for the terminal: units in the header, numbers to the right.

use crate::failure::Failure;
use anstyle::{Effects, Style};
use std::fmt::Display;
use std::sync::OnceLock;
use unicode_width::UnicodeWidthStr;

/// Columns of the terminal that tables are written to, where it is one.
static TERMINAL_WIDTH: OnceLock<usize> = OnceLock::new();

/// Says how wide the terminal is.
pub(crate) fn fit(width: usize) {
    // A second word about it changes nothing.
    let _ = TERMINAL_WIDTH.set(width);
}

/// Rows of text under headers; columns of numbers line up at the right.
///
/// ```text
/// tensor           class     bits/value   NMSE
/// layers.0.k_proj  weight          2.90  0.012
/// ```
#[derive(Debug, Clone)]
pub struct Table(trinity_study::table::Table);

impl From<trinity_study::table::Table> for Table {
    fn from(table: trinity_study::table::Table) -> Self {
        Self(table)
    }
}

impl Table {
    pub fn new<S: Into<String>>(headers: impl IntoIterator<Item = S>) -> Self {
        Self(trinity_study::table::Table::new(headers))
    }

    /// Adds one row; missing cells are blank, surplus ones are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Self {
        self.0.row(cells);
        self
    }

    /// A table of these rows, to which columns are then added.
    pub fn of<R: Copy>(rows: impl IntoIterator<Item = R>) -> Columns<R> {
        let rows = rows.into_iter().map(|row| (row, Vec::new())).collect();
        Columns { headers: Vec::new(), rows }
    }

    pub fn headers(&self) -> &[String] {
        self.0.headers()
    }

    /// The rows, each as long as the headers.
    pub fn rows(&self) -> &[Vec<String>] {
        self.0.rows()
    }

    pub fn csv(&self) -> Result<Vec<u8>, Failure> {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let lines = std::iter::once(self.headers()).chain(self.rows().iter().map(Vec::as_slice));
        for line in lines {
            csv.write_record(line).map_err(Failure::run)?;
        }
        csv.into_inner().map_err(Failure::run)
    }

    /// The table as text ending in a line end; headers are bold with `colour`.
    /// On a terminal that is narrower, it comes in pieces that fit.
    pub fn render(&self, colour: bool) -> String {
        self.render_within(colour, TERMINAL_WIDTH.get().copied())
    }

    /// The table with no line wider than `width`, where that can be: columns
    /// that do not fit follow below, the first one beside them again, and what is
    /// still too wide is cut.
    fn render_within(&self, colour: bool, width: Option<usize>) -> String {
        let mut columns: Vec<Column> = (0..self.headers().len()).map(|index| self.column(index)).collect();
        let width = width.unwrap_or(usize::MAX);
        // A long name gives way to numbers, which say nothing when they are cut.
        if let Some(name) = columns.first_mut() {
            name.width = name.width.min((width / 2).max(1));
        }
        let pieces: Vec<String> =
            pieces(&columns, width).iter().map(|shown| self.piece(shown, &columns, colour, width)).collect();
        pieces.join("\n")
    }

    /// The lines of some of the columns.
    fn piece(&self, shown: &[usize], columns: &[Column], colour: bool, width: usize) -> String {
        let bold = if colour { Style::new().effects(Effects::BOLD) } else { Style::new() };
        let cut = |cells: &[String]| shortened(&line(cells, columns, shown), width);
        let mut text = format!("{bold}{}{bold:#}\n", cut(self.headers()));
        for row in self.rows() {
            text.push_str(&cut(row));
            text.push('\n');
        }
        text
    }

    fn column(&self, index: usize) -> Column {
        let cells = || self.rows().iter().map(|row| row[index].as_str());
        let width = cells().map(str::width).max().unwrap_or(0).max(self.headers()[index].width());
        Column {
            width,
            numeric: cells().any(is_number) && cells().all(|cell| is_blank(cell) || is_number(cell)),
        }
    }
}

/// A table that is described column by column: what stands above, and what a row has below it.
#[derive(Debug, Clone)]
pub struct Columns<R> {
    headers: Vec<String>,
    rows: Vec<(R, Vec<String>)>,
}

impl<R: Copy> Columns<R> {
    /// Adds a column behind the others.
    pub fn column<C: Display>(mut self, header: impl Into<String>, cell: impl Fn(R) -> C) -> Self {
        self.headers.push(header.into());
        self.rows.iter_mut().for_each(|(row, cells)| cells.push(cell(*row).to_string()));
        self
    }

    pub fn end(self) -> Table {
        let mut table = Table::new(self.headers);
        for (_, cells) in self.rows {
            table.row(cells);
        }
        table
    }
}

struct Column {
    width: usize,
    numeric: bool,
}

/// Which columns stand beside each other within `width`: the first in every piece.
fn pieces(columns: &[Column], width: usize) -> Vec<Vec<usize>> {
    let first = columns.first().map_or(0, |column| column.width);
    let mut pieces: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = 0;
    for (index, column) in columns.iter().enumerate() {
        let needed = column.width + if index == 0 { 0 } else { GAP.len() };
        let alone = pieces.last().is_some_and(|piece| piece.len() <= 1);
        if used + needed > width && !alone {
            pieces.push(vec![0]);
            used = first;
        }
        used += needed;
        if let Some(piece) = pieces.last_mut() {
            piece.push(index);
        }
    }
    pieces
}

/// What stands between columns.
const GAP: &str = "  ";

fn line(cells: &[String], columns: &[Column], shown: &[usize]) -> String {
    let padded: Vec<String> = shown
        .iter()
        .map(|&index| (&cells[index], &columns[index]))
        .map(|(cell, column)| {
            let cell = shortened(cell, column.width);
            let blank = " ".repeat(column.width.saturating_sub(cell.width()));
            if column.numeric { blank + &cell } else { format!("{cell}{blank}") }
        })
        .collect();
    padded.join(GAP).trim_end().to_string()
}

/// A line cut to a width, with a sign that it was.
fn shortened(line: &str, width: usize) -> String {
    if line.width() <= width {
        return line.to_owned();
    }
    let mut text = String::new();
    for symbol in line.chars() {
        if text.width() + unicode_width::UnicodeWidthChar::width(symbol).unwrap_or(0) >= width.max(1) {
            break;
        }
        text.push(symbol);
    }
    text + "…"
}

fn is_blank(cell: &str) -> bool {
    matches!(cell, "" | "-" | "–" | "∞" | "nan")
}

/// `1.5`, `-3e4`, `12 %`, `1.7×` and `1,024` all count: what comes before is a number.
pub(crate) fn is_number(cell: &str) -> bool {
    let digits = cell.trim_end_matches(['%', '×', 'x', ' ']).replace(',', "");
    digits.parse::<f64>().is_ok()
}

pub use trinity_study::number::grouped;

/// Three significant digits, as every table shows them: `0.0123`, `12.3`, `1230`, `1.23e9`.
pub fn sig3(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { value.to_string().to_lowercase() };
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..7).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    // Rounding can carry into the next decade (9.999 → 10.0): round first, then count decimals.
    let unit = 10f64.powi(magnitude - 2);
    let rounded = (value / unit).round() * unit;
    let magnitude = rounded.abs().log10().floor() as i32;
    format!("{rounded:.*}", (2 - magnitude).max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_line_up_at_the_right_and_text_at_the_left() {
        let mut table = Table::new(["tensor", "bits/value", "gap"]);
        table.row(["k_proj", "2.9", "12 %"]).row(["gate", "10.25", "-"]);
        assert_eq!(
            table.render(false),
            "tensor  bits/value   gap\nk_proj         2.9  12 %\ngate         10.25     -\n"
        );
    }

    #[test]
    fn a_table_fits_the_terminal_and_loses_no_column() {
        let mut table = Table::new(["tensor", "class", "bits/value", "NMSE", "SNR dB"]);
        table.row(["layers.0.k_proj.weight", "weight", "2.9", "0.012", "19.2"]);
        table.row(["norm", "weight", "16", "0", "-"]);
        let whole = table.render_within(false, None);
        for width in [30, 40, 50, 60] {
            let text = table.render_within(false, Some(width));
            assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
            for header in table.headers() {
                assert!(text.contains(header.as_str()), "{header} at {width}:\n{text}");
            }
        }
        assert_eq!(table.render_within(false, Some(200)), whole);
        let narrow = table.render_within(false, Some(12));
        assert!(narrow.lines().all(|line| line.width() <= 12) && narrow.contains('…'), "{narrow}");
    }

    #[test]
    fn no_escape_codes_without_colour() {
        let table = Table::new(["a"]);
        assert!(!table.render(false).contains('\u{1b}'));
        assert!(table.render(true).contains('\u{1b}'));
    }

    #[test]
    fn wide_characters_keep_columns_aligned() {
        let mut table = Table::new(["名前", "n"]);
        table.row(["重み", "1"]).row(["x", "22"]);
        assert_eq!(table.render(false), "名前   n\n重み   1\nx     22\n");
    }

    #[test]
    fn three_significant_digits_at_every_magnitude() {
        for (value, text) in [
            (0.0, "0"),
            (9.999, "10.0"),
            (0.012_345, "0.0123"),
            (1234.0, "1230"),
            (-2.5, "-2.50"),
            (1e-9, "1.00e-9"),
            (123_456_789.0, "1.23e8"),
            (99.95, "100"),
        ] {
            assert_eq!(sig3(value), text, "{value}");
        }
    }
}
