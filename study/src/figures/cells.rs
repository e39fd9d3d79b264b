//! Cells of a figure: numbers read off a run, and numbers made from them.
//!
//! Knows names and arithmetic; knows nothing of claims.

use super::error::Error;
use super::sample::Sample;
use crate::config::CellFile;
use std::collections::BTreeMap;

/// The cells of a figure, as read and as made from others.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    pub read: &'a BTreeMap<String, Sample>,
    pub made: &'a BTreeMap<String, CellFile>,
    /// Nothing varies: numbers have no interval.
    pub exact: bool,
    /// What `{each}` stands for.
    pub each: Option<&'a str>,
}

/// Cells are made of others no deeper than this.
const DEEPEST: usize = 8;

impl Cells<'_> {
    /// The numbers of a cell.
    pub fn get(&self, name: &str) -> Result<Sample, Error> {
        self.at_depth(name, DEEPEST)
    }

    fn at_depth(&self, name: &str, depth: usize) -> Result<Sample, Error> {
        let missing = || Error::Missing { name: name.into() };
        let own = self.each.and_then(|each| self.read.get(&of_each(name, each)));
        if let Some(sample) = own.or_else(|| self.read.get(name)) {
            let mut sample = sample.clone();
            sample.labels.resize(sample.values.len(), String::new());
            if self.exact {
                sample.halves = vec![0.0; sample.values.len()];
            }
            return Ok(sample);
        }
        let cell = self.made.get(name).filter(|_| depth > 0).ok_or_else(missing)?;
        let get = |name: &String| self.at_depth(name, depth - 1);
        if let [first, second] = cell.minus.as_slice() {
            return get(first)?.minus(&get(second)?);
        }
        if let [first, second] = cell.ratio.as_slice() {
            return get(first)?.over(&get(second)?);
        }
        let (of, parts): (fn(f64, f64) -> f64, _) =
            if cell.least.is_empty() { (f64::max, &cell.most) } else { (f64::min, &cell.least) };
        let (first, rest) = parts.split_first().ok_or_else(missing)?;
        let wider = |[_, own, _, other]: [f64; 4]| own.max(other);
        rest.iter().try_fold(get(first)?, |best, part| best.zip(&get(part)?, of, wider))
    }
}

/// The name of a cell for one value of `{each}`.
pub fn of_each(cell: &str, each: &str) -> String {
    format!("{cell} {each}")
}
