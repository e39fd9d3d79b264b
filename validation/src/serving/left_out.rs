//! How wrong services are that the fit never saw: constants are fitted without
//! one model, one GPU or one version of an engine, and that one is predicted.
//!
//! Each fit starts from that of all rows and takes its step with the
//! derivatives found there.

use super::fit::{Fitted, count_rows};
use super::knobs;
use super::rows::Services;
use crate::score::Stats;
use serde::Serialize;
use trinity_study::config::UnseenErrorsFile;
use trinity_study::serving::library::Library;

/// Errors on rows that were left out together.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// `model`, `GPU` or `version`.
    pub kind: &'static str,
    pub name: String,
    pub rows: usize,
    pub ttft: Option<Stats>,
    pub tpot: Option<Stats>,
}

/// Leaves out every model, GPU and version in turn. The last line of each kind,
/// `all`, has the rows of all its lines. Engines take down their errors on
/// models that were left out.
pub fn left_out(services: &Services, library: &Library, fitted: &mut [Fitted]) -> Vec<LeftOut> {
    let mut list = Vec::new();
    for kind in ["model", "GPU", "version"] {
        let mut names: Vec<String> = Vec::new();
        for own in fitted.iter() {
            names.extend(own.points.iter().map(|point| name_of(kind, services, point.row)));
        }
        names.sort();
        names.dedup();
        let mut all: Vec<[f64; 2]> = Vec::new();
        let mut of_engine = vec![Vec::new(); fitted.len()];
        for name in names {
            let mut errors: Vec<[f64; 2]> = Vec::new();
            for (own, mine) in fitted.iter().zip(&mut of_engine) {
                let unseen = own.without(library, |row| name_of(kind, services, row) == name);
                mine.extend(&unseen);
                errors.extend(unseen);
            }
            all.extend(&errors);
            list.push(LeftOut::of(kind, name, &errors));
        }
        if kind == "model" {
            for (own, mine) in fitted.iter_mut().zip(&of_engine) {
                own.note_unseen(mine);
            }
        }
        list.push(LeftOut::of(kind, "all".into(), &all));
    }
    list
}

fn name_of(kind: &str, services: &Services, row: usize) -> String {
    let row = &services.rows[row];
    match kind {
        "model" => row.model.clone(),
        "GPU" => row.gpu.clone(),
        _ => format!("{} {}", row.engine, if row.version.is_empty() { "unstated" } else { &row.version }),
    }
}

impl LeftOut {
    fn of(kind: &'static str, name: String, errors: &[[f64; 2]]) -> Self {
        let time = |at: usize| Stats::of(&errors.iter().map(|own| own[at]).collect::<Vec<_>>());
        Self { kind, name, rows: errors.len(), ttft: time(0), tpot: time(1) }
    }
}

impl Fitted {
    fn note_unseen(&mut self, errors: &[[f64; 2]]) {
        let mean =
            |at: usize| errors.iter().map(|own| own[at].abs()).sum::<f64>() / errors.len().max(1) as f64;
        self.file.unseen = UnseenErrorsFile { ttft: mean(0), tpot: mean(1) };
    }

    /// Errors of the rows that `left` names, under constants without them.
    fn without(&self, library: &Library, left: impl Fn(usize) -> bool) -> Vec<[f64; 2]> {
        let (gone, kept): (Vec<usize>, Vec<usize>) =
            (0..self.points.len()).partition(|&at| left(self.points[at].row));
        if gone.is_empty() {
            return Vec::new();
        }
        let step = self.solve(&kept);
        let mut file = self.moved(&step, 1.0);
        count_rows(&mut file, &self.points, &kept, false);
        knobs::settle_general(&mut file);
        let (ms, steps) = (file.constants.first_token_ms, file.constants.first_token_steps);
        for family in &mut file.families {
            for first in family.first_token.iter_mut().filter(|first| first.rows == 0) {
                (first.ms, first.steps) = (ms, steps);
            }
            if family.rows == 0 {
                (family.decode, family.prefill) = (1.0, 1.0);
            }
        }
        self.errors_of(library, &file, &gone)
    }
}
