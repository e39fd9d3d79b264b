//! Replicas of engines as benchmarks meet them: a model placed on GPUs, steps
//! timed by rooflines with the engine's own constants, a closed loop of
//! requests played through it.
//!
//! What is here was held against measured services; see `trinity validate`.
//! Knows no files: whoever reads configurations hands plain data over.

mod closed_form;
mod closed_loop;
mod engine;
mod roofline;
mod search;
mod shape;
mod step;
#[cfg(test)]
mod tests;

pub use closed_form::{Deployment, Pool, Predicted, Stage, predict};
pub use closed_loop::{ClosedLoop, Replayed, replay};
pub use engine::{EngineConstants, Policy};
pub use roofline::{Accelerator, AllReduce, AttentionShares, Efficiency, Generation};
pub use search::{Candidate, Found, Goal, Nearest, search};
pub use shape::{Experts, Format, Formats, Latent, Linear, Placement, Sliding, Transformer};
pub use step::{PromptWork, StepTable};
