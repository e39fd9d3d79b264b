//! Replicas of engines as benchmarks meet them: a model placed on GPUs, steps
//! timed by measured kernels with the engine's own constants, a closed loop of
//! requests played through it, or requests that come when they come.
//!
//! What is here was held against measured services; see `trinity validate`.
//! Knows no files: whoever reads configurations hands plain data over.

mod accelerator;
mod beyond;
mod build;
mod closed_form;
mod engine;
mod load;
mod play;
mod prefill;
mod report;
mod search;
mod sent;
mod shape;
mod step;
#[cfg(test)]
mod tests;

pub use accelerator::{Accelerator, Generation};
pub use beyond::Sizes;
pub use closed_form::{Deployment, Predicted, Stage, predict};
pub use engine::{Draft, EngineConstants, Intake, Policy, Preemption};
pub use load::{ClosedLoop, Load, Reuse};
pub use play::{Scene, play, replay, watch};
pub use prefill::{Handoff, PrefillWorkers};
pub use report::{Replayed, Watched};
pub use search::{Candidate, Found, Goal, Nearest, concurrencies, search};
pub use shape::{Experts, Format, Formats, Latent, Linear, Placement, Sliding, Transformer};
pub use step::{CodedCache, PromptWork, StepTable};
