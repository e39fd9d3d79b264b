//! Aligned tables for the terminal: units in the header, numbers to the right.

use anstyle::{Effects, Style};
use unicode_width::UnicodeWidthStr;

/// Rows of text under headers; columns of numbers line up at the right.
///
/// ```text
/// tensor           class     bits/value   NMSE
/// layers.0.k_proj  weight          2.90  0.012
/// ```
#[derive(Debug, Clone)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column headers.
    pub fn new<S: Into<String>>(headers: impl IntoIterator<Item = S>) -> Self {
        Self { headers: headers.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds one row; missing cells are blank, surplus ones are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Self {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.headers.len(), String::new());
        self.rows.push(row);
        self
    }

    /// The column headers.
    pub fn headers(&self) -> &[String] {
        &self.headers
    }

    /// The rows, each as long as the headers.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as text ending in a line end; headers are bold with `colour`.
    pub fn render(&self, colour: bool) -> String {
        let columns: Vec<Column> = (0..self.headers.len()).map(|index| self.column(index)).collect();
        let bold = if colour { Style::new().effects(Effects::BOLD) } else { Style::new() };
        let mut text = format!("{bold}{}{bold:#}\n", line(&self.headers, &columns));
        for row in &self.rows {
            text.push_str(&line(row, &columns));
            text.push('\n');
        }
        text
    }

    fn column(&self, index: usize) -> Column {
        let cells = || self.rows.iter().map(|row| row[index].as_str());
        let width = cells().map(str::width).max().unwrap_or(0).max(self.headers[index].width());
        Column {
            width,
            numeric: cells().any(is_number) && cells().all(|cell| is_blank(cell) || is_number(cell)),
        }
    }
}

struct Column {
    width: usize,
    numeric: bool,
}

fn line(cells: &[String], columns: &[Column]) -> String {
    let padded: Vec<String> = cells
        .iter()
        .zip(columns)
        .map(|(cell, column)| {
            let blank = " ".repeat(column.width - cell.width());
            if column.numeric { blank + cell } else { format!("{cell}{blank}") }
        })
        .collect();
    padded.join("  ").trim_end().to_string()
}

fn is_blank(cell: &str) -> bool {
    matches!(cell, "" | "-" | "–" | "∞" | "nan")
}

/// `1.5`, `-3e4`, `12 %`, `1.7×` and `1,024` all count: what comes before is a number.
pub(crate) fn is_number(cell: &str) -> bool {
    let digits = cell.trim_end_matches(['%', '×', 'x', ' ']).replace(',', "");
    digits.parse::<f64>().is_ok()
}

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
