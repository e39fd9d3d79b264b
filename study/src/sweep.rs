//! A sweep: read once, planned once, run, and read off its fronts.
//!
//! [`Study::load`] turns a file into a plan, [`run`] evaluates it and returns
//! a [`SweepOutcome`]. A front end that keeps shards or rows of its own drives
//! [`trinity_sim::sweep`] with [`Study::plan`] and asks the study the rest.

mod crossover;
mod csv;
mod die;
mod outcome;
mod study;
mod written;

pub use crossover::{Contender, Crossover, CrossoverRow, TIE};
pub use csv::{layout_column, pareto_csv, point_row, points_csv, points_header, quoted};
pub use die::{BestDie, best_die_table, best_dies, die_mm2, marginal_table, point_marginals};
pub use outcome::{Explanation, Found, FrontOf, HeadlineOf, POINT_COLUMNS, SweepOutcome};
pub use study::{Answer, Replaced, Study, SweepRequest};

use crate::{Error, Progress};

/// Evaluates every point and reads the answers off the fronts.
///
/// # Errors
///
/// Where no point can run, pointing at the value to blame, or the work is no
/// longer wanted.
pub fn run(study: &Study, progress: &dyn Progress) -> Result<SweepOutcome, Error> {
    if crate::serving::serves(study) {
        return Err(Error::input("this sweep plays requests through a service", "run it as a serving study"));
    }
    let accumulated = study.accumulate(progress)?;
    study.refuse_nonsense(&accumulated)?;
    Ok(study.outcome(&accumulated))
}
