//! What a codec costs in silicon, and what the parts of a GPU do.
//!
//! Two views that are held against each other: the paper's synthesized blocks
//! ([`table3`]), and a model of gates and SRAM bits stage by stage
//! ([`stages`]), which can answer what leaving a stage out would save.
//! [`reconcile`](stages::reconcile) reports how far they are apart. Our own RTL
//! (`rtl`) is synthesized ([`synthesis`]); what has no RTL is estimated from the
//! operations of its algorithm ([`operations`]).
//! A whole GPU is the sum of its parts ([`die`]).
//!
//! Knows square millimetres, watts and gigabits a second; knows nothing of
//! what a tensor holds or how well it compresses.
//!
//! ```
//! use trinity_silicon::Node;
//! use trinity_silicon::table3::THREE_IN_ONE_ENCODER;
//!
//! let (from, to) = (Node::TSMC_7, Node::TSMC_5);
//! let smaller = from.scale(THREE_IN_ONE_ENCODER.cost(), &to);
//! assert!(smaller.area_mm2 < THREE_IN_ONE_ENCODER.area_mm2);
//! ```
#![forbid(unsafe_code)]

mod cost;
pub mod die;
mod node;
pub mod operations;
pub mod partition;
pub mod stages;
pub mod synthesis;
pub mod table3;

pub use cost::{Cost, EnergyColumn, Error, InstanceRate};
pub use node::Node;
