//! From a matrix and a target to a stream: a plan is chosen from what a
//! profile allows, then the step that meets the target is searched.

mod change_of_basis;
mod choose;
mod estimate;
mod input;
pub mod line;
pub mod lossy;
mod near;
mod pass;
mod predictor;
pub mod profile;
pub mod report;
pub mod rules;
mod sample;
mod trial;
pub mod weighted;
