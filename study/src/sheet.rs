//! An answer as it is shown, in order: sections of a page and blocks of a terminal, as data. How they are drawn is a
//! front end's affair.

use crate::sweep::FrontCharts;
use crate::table::Table;

/// A part of a page.
#[derive(Debug, Clone)]
pub enum Section {
    Heading(String),
    Paragraph(String),
    /// A caption and a table.
    Table(String, Table),
    Split(Split),
    Fronts(FrontCharts),
    Ranges(Ranges),
    Die(Die),
}

impl Section {
    /// A table under a caption.
    pub fn table(caption: impl Into<String>, table: Table) -> Self {
        Self::Table(caption.into(), table)
    }
}

/// Clusters by the parts of their silicon.
#[derive(Debug, Clone)]
pub struct Split {
    pub caption: String,
    pub clusters: Vec<SplitOf>,
}

/// One cluster by the parts of its silicon.
#[derive(Debug, Clone)]
pub struct SplitOf {
    pub name: String,
    /// GPUs, NICs and codecs, as shares of the largest cluster.
    pub shares: [f64; 3],
    pub text: String,
}

/// What a figure becomes with each of several assumptions at either end.
#[derive(Debug, Clone)]
pub struct Ranges {
    pub caption: String,
    /// What the figure is called, and what it is as assumed.
    pub figure: &'static str,
    pub expected: f64,
    /// An assumption, and the figure at its low and its high end.
    pub lines: Vec<(String, f64, f64)>,
}

/// A die by its parts.
#[derive(Debug, Clone)]
pub struct Die {
    pub caption: String,
    /// Each part and its area in mm².
    pub parts: Vec<(&'static str, f64)>,
}

/// A part of what a terminal shows; blocks stand apart by an empty line.
#[derive(Debug, Clone, Default)]
pub struct Block {
    pub caption: Option<String>,
    pub table: Option<Table>,
    pub lines: Vec<String>,
}

impl Block {
    /// A table without a caption.
    pub fn table(table: Table) -> Self {
        Self { table: Some(table), ..Self::default() }
    }

    /// A table under a caption.
    pub fn captioned(caption: impl Into<String>, table: Table) -> Self {
        Self { caption: Some(caption.into()), table: Some(table), ..Self::default() }
    }

    /// Lines of text.
    pub fn lines(lines: Vec<String>) -> Self {
        Self { lines, ..Self::default() }
    }
}
