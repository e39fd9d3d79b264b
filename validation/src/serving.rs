//! Services against what engines measured: rows of measurements predicted
//! (`rows.rs`), constants fitted on them (`fit.rs`), and the errors on what a fit
//! never saw (`left_out.rs`).

mod fit;
mod knobs;
mod left_out;
mod rows;
mod written;

pub use fit::{Fitted, fit};
pub use left_out::{LeftOut, left_out};
pub use rows::{Group, Judged, Services, TPOT, TTFT};
use rows::{damaged, library};
pub use written::written;

use crate::Error;
use crate::score::Stats;
use serde::Serialize;
use std::path::Path;
use trinity_study::Progress;
use trinity_study::serving::library::Library;

/// Steps of the fit that leaving out starts from.
const ROUNDS: u32 = 2;

/// Fits constants on `services` and leaves out each model, GPU and version in
/// turn.
pub fn leave_out(services: &Services, progress: &dyn Progress) -> Result<Vec<LeftOut>, Error> {
    let library = library()?;
    let mut fitted = fit(services, &library, ROUNDS, progress);
    Ok(left_out(services, &library, &mut fitted))
}

/// Constants that were fitted anew, and what they give.
#[derive(Clone, Debug)]
pub struct Refitted {
    /// The file of each engine.
    pub files: Vec<(String, String)>,
    pub sets: Vec<FittedSet>,
    pub left_out: Vec<LeftOut>,
}

/// Errors of a group of rows under fitted constants.
#[derive(Clone, Debug, Serialize)]
pub struct FittedSet {
    pub set: String,
    pub stats: Stats,
    pub aiconfigurator_mape: Option<f64>,
    pub ours_there_mape: Option<f64>,
}

/// Steps of a fit that is written down.
const ROUNDS_WRITTEN: u32 = 3;

/// Fits the constants of all engines on the rows of `tables`, from the files in
/// `folder` where they are there and from those built in otherwise.
pub fn refit(
    tables: &[std::path::PathBuf],
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Refitted, Error> {
    let mut library = library()?;
    for name in library.engines().keys().cloned().collect::<Vec<_>>() {
        let path = folder.join(&name).with_extension("toml");
        if path.exists() {
            let file = trinity_config::Document::load(&path.display().to_string())
                .and_then(|document| document.read())
                .map_err(damaged)?;
            library = library.with_engine(&name, file);
        }
    }
    let read = |library: &Library| -> Result<Services, Error> {
        let mut all = Services::default();
        for table in tables {
            all.extend(Services::read_with(table, library)?);
        }
        Ok(all)
    };
    let services = read(&library)?;
    let mut fitted = fit(&services, &library, ROUNDS_WRITTEN, progress);
    for own in &fitted {
        library = library.with_engine(&own.engine, own.file.clone());
    }
    let services = read(&library)?;
    let left_out = left_out(&services, &library, &mut fitted);
    let sets = services.groups().into_iter().filter_map(|group| {
        let stats = Stats::of_pairs(&group.pairs)?;
        Some(FittedSet {
            set: group.set,
            stats,
            aiconfigurator_mape: group.peer_mape,
            ours_there_mape: group.ours_on_peer_rows,
        })
    });
    let files = fitted.iter().map(|own| (own.engine.clone(), written(own))).collect();
    Ok(Refitted { files, sets: sets.collect(), left_out })
}
