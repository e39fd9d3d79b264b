//! From a matrix and a target to a stream: a plan is chosen from what a
//! profile allows, then the step that meets the target is searched.

mod choose;
mod estimate;
mod guess;
pub mod line;
pub mod lossy;
mod near;
mod pass;
pub mod profile;
pub mod report;
mod sample;
mod subject;
pub mod target;
mod trial;
mod turn;
pub mod weighted;
