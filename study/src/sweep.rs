//! A sweep: read once, planned once, run, and read off its fronts.
//!
//! [`Study::load`] turns a file into a plan, [`run`] evaluates it and returns
//! an [`Outcome`]. A front end that keeps shards or rows of its own drives
//! [`trinity_sim::sweep`] with [`Study::plan`] and asks the study the rest.

mod crossover;
mod csv;
mod outcome;
mod study;
mod written;

pub use crossover::{Contender, Crossover, CrossoverRow, TIE};
pub use csv::{layout_column, pareto_csv, point_row, points_csv, points_header, quoted};
pub use outcome::{Explanation, Found, FrontOf, HeadlineOf, Outcome, POINT_COLUMNS};
pub use study::{Answer, Replaced, Request, Study};

use crate::{Error, Progress};

/// Evaluates every point and reads the answers off the fronts.
///
/// # Errors
///
/// Where no point can run, pointing at the value to blame, or the work is no
/// longer wanted.
pub fn run(study: &Study, progress: &dyn Progress) -> Result<Outcome, Error> {
    if crate::serving::serves(study) {
        return Err(Error::input("this sweep plays requests through a service", "run it as a serving study"));
    }
    let accumulated = study.accumulate(progress)?;
    study.refuse_nonsense(&accumulated)?;
    Ok(study.outcome(&accumulated))
}
