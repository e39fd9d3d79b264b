//! A sweep: read once, planned once, run, and read off its fronts.
//!
//! [`Study::load`] turns a file into a plan, [`run`] evaluates it and returns
//! a [`SweepOutcome`]. A front end that keeps shards or rows of its own drives
//! [`trinity_sim::sweep`] with [`Study::plan`] and asks the study the rest.

mod crossover;
mod csv;
mod die;
mod fronts;
mod outcome;
mod shown;
mod study;
mod written;

pub use crate::config::measured::Replaced;
pub use crossover::{Contender, Crossover, CrossoverRow, TIE};
pub use csv::{axes_csv, layout_column, pareto_csv, point_row, points_csv, points_header, quoted};
pub use fronts::{Arrow, Curves, FrontChart, FrontCharts, FrontPoint, charts};
pub use outcome::{Explanation, Found, FrontOf, HeadlineOf, POINT_COLUMNS, SweepOutcome};
pub use shown::explain_table;
pub use study::{Answer, Study, SweepRequest};

use crate::{Error, Progress};

/// Evaluates every point and reads the answers off the fronts. Fails where no
/// point can run, pointing at the value to blame, or the work is no longer
/// wanted.
pub fn run(study: &Study, progress: &dyn Progress) -> Result<SweepOutcome, Error> {
    if crate::serving::serves(study) {
        return Err(Error::input("this sweep plays requests through a service", "run it as a serving study"));
    }
    let accumulated = study.accumulate(progress)?;
    study.refuse_nonsense(&accumulated)?;
    Ok(study.outcome(&accumulated))
}
