//! Constants of an engine from rows of measured services.
//!
//! What is least: the mean absolute relative errors of both times, each over
//! its bar, and the squared distance of each constant from what it is expected
//! to be. Gauss and Newton's steps with derivatives by difference; absolute
//! values by weights that are renewed each step.

use super::knobs::{self, Knob, LEAST_ROWS};
use super::rows::Services;
use trinity_study::Progress;
use trinity_study::config::{EngineFile, FirstTokenFile};
use trinity_study::serving::library::Library;
use trinity_study::serving::measured::{Arrangement, Expected, Recipe, Service};

/// Bars that errors are measured by: TTFT, TPOT.
const BARS: [f64; 2] = [0.25, 0.12];
/// Errors below this count as they were squares.
const SOFT: f64 = 0.03;
/// Step of a constant's logarithm for derivatives, and the longest taken.
const DIFFERENCE: f64 = 0.04;
const LONGEST: f64 = 0.7;

/// One row as the fit sees it.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Number of the row in [`Services`].
    pub row: usize,
    pub service: Service,
    pub recipe: Recipe,
    measured_s: [f64; 2],
}

/// An engine's constants and how its rows depend on them.
#[derive(Clone, Debug)]
pub struct Fitted {
    pub engine: String,
    pub file: EngineFile,
    pub(super) points: Vec<Point>,
    pub(super) knobs: Vec<Knob>,
    /// Relative errors of both times of each point.
    pub(super) errors: Vec<[f64; 2]>,
    /// Derivatives of the errors by the logarithm of each constant.
    pub(super) slopes: Vec<Vec<[f64; 2]>>,
}

/// Fits every engine's constants on usable rows of `services`, from those that
/// `library` has, in `rounds` steps.
pub fn fit(services: &Services, library: &Library, rounds: u32, progress: &dyn Progress) -> Vec<Fitted> {
    let own = |(name, file): (&String, &EngineFile)| Fitted::new(services, library, name, file);
    let engines: Vec<Fitted> = library.engines().iter().map(own).collect();
    let knobs: usize = engines.iter().map(|own| own.knobs.len()).sum();
    progress.begin(knobs as u64 * u64::from(rounds + 1), "fitting engines");
    let fitted = engines.into_iter().map(|own| own.fit(library, rounds, progress)).collect();
    progress.end();
    fitted
}

impl Fitted {
    fn new(services: &Services, library: &Library, name: &str, file: &EngineFile) -> Self {
        let mut points = Vec::new();
        for (number, (row, service)) in services.rows.iter().zip(&services.services).enumerate() {
            let Some(service) = service.as_ref().filter(|own| row.usable && own.engine == name) else {
                continue;
            };
            let Some(recipe) = library.recipe(service) else { continue };
            if row.ttft_ms.is_some() {
                let measured_s = [row.measured_ttft_ms * 1e-3, row.measured_tpot_ms * 1e-3];
                points.push(Point { row: number, service: service.clone(), recipe, measured_s });
            }
        }
        let mut file = file.clone();
        let keep: Vec<usize> = (0..points.len()).collect();
        count_rows(&mut file, &points, &keep, true);
        knobs::settle_general(&mut file);
        let knobs = knobs::knobs(&file);
        Self { engine: name.to_owned(), file, points, knobs, errors: Vec::new(), slopes: Vec::new() }
    }

    /// Rows of services with separate workers.
    pub(super) fn split_rows(&self) -> usize {
        let split = |point: &&Point| matches!(point.service.arrangement, Arrangement::Disaggregated { .. });
        self.points.iter().filter(split).count()
    }

    fn fit(mut self, library: &Library, rounds: u32, progress: &dyn Progress) -> Self {
        let all: Vec<usize> = (0..self.points.len()).collect();
        self.errors = self.errors_of(library, &self.file, &all);
        let mut cost = self.cost(&self.file, &self.errors);
        for _ in 0..rounds {
            self.slopes = self.slopes_of(library, progress);
            let step = self.solve(&all);
            let mut taken = false;
            for share in [1.0, 0.5, 0.25, 0.1] {
                let file = self.moved(&step, share);
                let errors = self.errors_of(library, &file, &all);
                let own = self.cost(&file, &errors);
                if own < cost {
                    (self.file, self.errors, cost, taken) = (file, errors, own, true);
                    break;
                }
            }
            if !taken {
                return self;
            }
        }
        self.slopes = self.slopes_of(library, progress);
        self
    }

    /// Relative errors of some points under `file`.
    pub(super) fn errors_of(&self, library: &Library, file: &EngineFile, points: &[usize]) -> Vec<[f64; 2]> {
        let library = library.clone().with_engine(&self.engine, file.clone());
        let services: Vec<Service> = points.iter().map(|&at| self.points[at].service.clone()).collect();
        let expected = library.expect_all(&services);
        points.iter().zip(expected).map(|(&at, own)| self.points[at].errors(own)).collect()
    }

    fn slopes_of(&self, library: &Library, progress: &dyn Progress) -> Vec<Vec<[f64; 2]>> {
        let mut slopes = vec![vec![[0.0; 2]; self.knobs.len()]; self.points.len()];
        for (number, knob) in self.knobs.iter().enumerate() {
            let concerned = |at: &usize| knob.at.concerns(&self.file, self.points[*at].recipe);
            let mine: Vec<usize> = (0..self.points.len()).filter(concerned).collect();
            let mut file = self.file.clone();
            *knob.at.of(&mut file) *= DIFFERENCE.exp();
            let errors = self.errors_of(library, &file, &mine);
            for (&at, moved) in mine.iter().zip(&errors) {
                for time in 0..2 {
                    slopes[at][number][time] = (moved[time] - self.errors[at][time]) / DIFFERENCE;
                }
            }
            progress.advance(1);
        }
        slopes
    }

    /// How far constants are from what is expected, in spreads.
    fn distances(&self, file: &EngineFile) -> Vec<f64> {
        let mut file = file.clone();
        let expected: Vec<f64> = self.knobs.iter().map(|knob| knob.expected_log(&file)).collect();
        let of = |(knob, expected): (&Knob, f64)| (knob.at.of(&mut file).ln() - expected) / knob.spread;
        self.knobs.iter().zip(expected).map(of).collect()
    }

    fn cost(&self, file: &EngineFile, errors: &[[f64; 2]]) -> f64 {
        let rows: f64 = errors
            .iter()
            .map(|own| own.iter().zip(BARS).map(|(e, bar)| e.abs() / bar / 2.0).sum::<f64>())
            .sum();
        let apart: f64 = self.distances(file).iter().map(|distance| distance * distance / 2.0).sum();
        rows + apart
    }

    /// The step of all constants' logarithms that suits the points `kept` best.
    pub(super) fn solve(&self, kept: &[usize]) -> Vec<f64> {
        let count = self.knobs.len();
        let distances = self.distances(&self.file);
        let mut step = vec![0.0; count];
        // Weights belong to errors after the step: a few rounds settle both.
        for _ in 0..6 {
            let mut matrix = vec![vec![0.0; count]; count];
            let mut right = vec![0.0; count];
            for (number, knob) in self.knobs.iter().enumerate() {
                matrix[number][number] = 1.0 / (knob.spread * knob.spread);
                right[number] = -distances[number] / knob.spread;
            }
            for &at in kept {
                for time in 0..2 {
                    let slope: Vec<f64> = self.slopes[at].iter().map(|own| own[time]).collect();
                    let error = self.errors[at][time];
                    let moved = error + slope.iter().zip(&step).map(|(s, d)| s * d).sum::<f64>();
                    let weight = 0.5 / BARS[time] / moved.abs().max(SOFT);
                    for i in 0..count {
                        if slope[i] == 0.0 {
                            continue;
                        }
                        right[i] -= weight * slope[i] * error;
                        for j in 0..count {
                            matrix[i][j] += weight * slope[i] * slope[j];
                        }
                    }
                }
            }
            step = cholesky(matrix, right);
            step.iter_mut().for_each(|own| *own = own.clamp(-LONGEST, LONGEST));
        }
        step
    }

    /// The file after a share of `step`.
    pub(super) fn moved(&self, step: &[f64], share: f64) -> EngineFile {
        let mut file = self.file.clone();
        for (knob, own) in self.knobs.iter().zip(step) {
            *knob.at.of(&mut file) *= (own * share).exp();
        }
        knobs::settle_general(&mut file);
        file
    }
}

impl Point {
    fn errors(&self, expected: Result<Expected, String>) -> [f64; 2] {
        let Ok(expected) = expected else { return [0.0; 2] };
        [expected.ttft_s / self.measured_s[0] - 1.0, expected.tpot_s / self.measured_s[1] - 1.0]
    }
}

/// Counts the points `kept` under each family and recipe; with `make`, adds
/// recipes that enough rows have.
pub(super) fn count_rows(file: &mut EngineFile, points: &[Point], kept: &[usize], make: bool) {
    let (ms, steps) = (file.constants.first_token_ms, file.constants.first_token_steps);
    for (number, family) in file.families.iter_mut().enumerate() {
        let own: Vec<Recipe> =
            kept.iter().map(|&at| points[at].recipe).filter(|recipe| recipe.family == number).collect();
        family.rows = own.len() as u32;
        let same = |first: &FirstTokenFile, recipe: &Recipe| {
            first.generation == recipe.generation && first.class == recipe.class
        };
        for recipe in &own {
            let rows = own.iter().filter(|other| *other == recipe).count();
            let known = family.first_token.iter().any(|first| same(first, recipe));
            if make && rows >= LEAST_ROWS && !known {
                let (generation, class) = (recipe.generation, recipe.class);
                family.first_token.push(FirstTokenFile { generation, class, ms, steps, rows: 0 });
            }
        }
        for first in &mut family.first_token {
            first.rows = own.iter().filter(|recipe| same(first, recipe)).count() as u32;
        }
        if make {
            family.first_token.retain(|first| first.rows as usize >= LEAST_ROWS);
        }
    }
}

/// Solves a symmetric positive system.
fn cholesky(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for i in 0..count {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let own = matrix[i][j] - dot;
            matrix[i][j] = if i == j { own.max(1e-12).sqrt() } else { own / matrix[j][j] };
        }
    }
    for i in 0..count {
        let dot: f64 = (0..i).map(|k| matrix[i][k] * right[k]).sum();
        right[i] = (right[i] - dot) / matrix[i][i];
    }
    for i in (0..count).rev() {
        let dot: f64 = (i + 1..count).map(|k| matrix[k][i] * right[k]).sum();
        right[i] = (right[i] - dot) / matrix[i][i];
    }
    right
}
