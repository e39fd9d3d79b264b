//! Numbers of one cell, and what their mean is worth.
//!
//! Knows means, pairs and 95 % intervals; knows nothing of claims.

use super::error::Error;
use serde::{Deserialize, Serialize};

/// The numbers of a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What each number is of; empty texts where nothing was said.
    #[serde(default, skip_serializing_if = "unsaid")]
    pub labels: Vec<String>,
    pub values: Vec<f64>,
    /// Half of each number's own 95 % interval, where its command states it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub halves: Vec<f64>,
}

fn unsaid(labels: &[String]) -> bool {
    labels.iter().all(String::is_empty)
}

/// A mean and half of its 95 % interval; no interval where there is one number and nothing is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mean {
    pub mean: f64,
    pub half: Option<f64>,
    /// How many numbers.
    pub rows: usize,
}

/// Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Sample {
    /// A number that nothing varies in.
    pub fn constant(value: f64) -> Self {
        Self { labels: vec![String::new()], values: vec![value], halves: vec![0.0] }
    }

    /// The mean and its interval: by the numbers' own intervals where they are stated, else by their spread.
    pub fn mean(&self) -> Mean {
        let rows = self.values.len();
        let count = rows as f64;
        let mean = self.values.iter().sum::<f64>() / count;
        let half = if self.halves.is_empty() {
            (rows > 1).then(|| {
                let spread =
                    self.values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
                STUDENT[(rows - 2).min(STUDENT.len() - 1)] * (spread / count).sqrt()
            })
        } else {
            Some(self.halves.iter().map(|half| half * half).sum::<f64>().sqrt() / count)
        };
        Mean { mean, half, rows }
    }

    /// Row by row: rows of the same label, or of the same place where there are no labels. A constant goes with
    /// every row.
    pub fn zip(
        &self,
        other: &Self,
        of: impl Fn(f64, f64) -> f64,
        half: impl Fn([f64; 4]) -> f64,
    ) -> Result<Self, Error> {
        if other.values.len() == 1 && other.halves == [0.0] {
            let values = self.values.iter().map(|&value| of(value, other.values[0])).collect();
            let own = |(&value, &own): (&f64, &f64)| half([value, own, other.values[0], 0.0]);
            let halves = self.values.iter().zip(&self.halves).map(own).collect();
            return Ok(Self { labels: self.labels.clone(), values, halves });
        }
        let mut joined = Self::default();
        let both = !self.halves.is_empty() && !other.halves.is_empty();
        let mut taken = vec![false; other.values.len()];
        for (at, (label, &value)) in self.labels.iter().zip(&self.values).enumerate() {
            let twin = (0..other.values.len()).find(|&twin| !taken[twin] && other.labels[twin] == *label);
            let Some(twin) = twin else { continue };
            taken[twin] = true;
            joined.labels.push(label.clone());
            joined.values.push(of(value, other.values[twin]));
            if both {
                joined.halves.push(half([value, self.halves[at], other.values[twin], other.halves[twin]]));
            }
        }
        if joined.values.is_empty() {
            return Err(Error::NoPair);
        }
        Ok(joined)
    }

    /// The difference, row by row.
    pub fn minus(&self, other: &Self) -> Result<Self, Error> {
        self.zip(other, |own, other| own - other, |[_, own, _, other]| own.hypot(other))
    }

    /// The ratio, row by row.
    pub fn over(&self, other: &Self) -> Result<Self, Error> {
        let half = |[value, own, base, other]: [f64; 4]| {
            (value / base).abs() * (own / value.abs().max(f64::MIN_POSITIVE)).hypot(other / base.abs())
        };
        self.zip(other, |own, other| own / other, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(&str, f64)]) -> Sample {
        Sample {
            labels: rows.iter().map(|row| row.0.to_owned()).collect(),
            values: rows.iter().map(|row| row.1).collect(),
            halves: Vec::new(),
        }
    }

    #[test]
    fn an_interval_follows_from_the_spread_or_from_what_is_stated() {
        let spread = of(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]).mean();
        // Student: 4.303 · 1 / √3.
        assert!((spread.mean - 2.0).abs() < 1e-12 && (spread.half.unwrap() - 2.4843).abs() < 1e-3);
        assert_eq!(of(&[("a", 1.0)]).mean().half, None);
        let stated = Sample { halves: vec![0.3, 0.4], ..of(&[("a", 1.0), ("b", 2.0)]) };
        assert!((stated.mean().half.unwrap() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn rows_are_paired_by_what_they_are_of() {
        let (own, other) = (of(&[("a", 1.0), ("b", 5.0)]), of(&[("b", 3.0), ("a", 0.5), ("c", 9.0)]));
        assert_eq!(own.minus(&other).unwrap().values, [0.5, 2.0]);
        assert_eq!(own.over(&other).unwrap().values, [2.0, 5.0 / 3.0]);
        assert!(own.minus(&of(&[("x", 1.0), ("y", 2.0)])).is_err());
        assert_eq!(own.minus(&Sample::constant(1.0)).unwrap().values, [0.0, 4.0]);
    }
}
