//! Tensors of a file to a container: what is coded, kept exact or tied, at how
//! many bits, and the work itself.
//!
//! The one policy for every front end. [`Kind`] says what a tensor is, [`Rules`]
//! what a user says of it, [`Plan`] what becomes of it; [`Work`] does it.

mod calibrated;
mod keeper;
mod kind;
mod plan;
mod rules;
mod size;
mod work;

pub use calibrated::{Calibrate, Calibration};
pub use kind::{FINER_BITS, Kind};
pub use plan::{EncodeRequest, KindRow, Plan, Planned, default_codec};
pub use rules::Rules;
pub use work::Work;
