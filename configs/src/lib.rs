//! Configuration as people write it.
//!
//! TOML with units (`"100 Gbit/s"`), sources (`{ value = …, source = "…" }`),
//! inheritance (`extends = "gpus/h100"`) and overrides (`--set gpu.power=350 W`).
//! After merging, every value still knows the file, line and column it was
//! written at, and a mistake is reported there. The crate must not know what
//! any value means: consumers bring types, this crate fills them.
//!
//! # How to use it
//!
//! Describe your table with serde and this crate's quantities:
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use trinity_config::{Area, At, Checked, DataRate, Diagnostic, Document, Kind};
//!
//! /// A network card.
//! #[derive(Debug, Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields, rename_all = "kebab-case")]
//! struct Nic {
//!     bandwidth: DataRate,
//!     area: Area,
//!     ports: u32,
//! }
//!
//! impl Checked for Nic {
//!     fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
//!         if self.ports > 0 {
//!             return Ok(());
//!         }
//!         at.refuse("ports", "a card without ports", "at least 1")
//!     }
//! }
//!
//! const NIC: Kind = Kind::of::<Nic>("nics", "a network card");
//!
//! let mut document = Document::parse("cx5.toml", r#"
//!     source = "LLM.265, section 6.2"
//!     bandwidth = "100 Gbit/s"
//!     area = { value = "169.7 mm2", source = "die measured 12.14 mm x 13.98 mm" }
//!     ports = 1
//! "#)?;
//! document.set("bandwidth=200 Gbit/s")?;
//! let nic: Nic = document.read()?;
//! assert_eq!(nic.bandwidth.gbit_per_s(), 200.0);
//! assert_eq!(nic.area.mm2(), 169.7);
//! NIC.check(&document)?;
//!
//! // A mistake is reported where it was made.
//! document.set("bandwith=1 mm")?;
//! let diagnostic = NIC.check(&document).unwrap_err();
//! assert_eq!(diagnostic.to_string(), "--set:1:1: unknown key `bandwith`: \
//!     expected one of: bandwidth, area, ports; did you mean `bandwidth`?");
//! # Ok::<(), Diagnostic>(())
//! ```
//!
//! Put built-in files under `configs/<folder>/<name>.toml`; they are embedded at
//! the next build and load by `Document::load("nics/cx5")`. A path that ends in
//! `.toml` loads a user's file. Register the [`Kind`] in `study/src/config.rs`
//! so that `trinity config check` and `schema` know it.
//!
//! # Rules
//!
//! - `extends` may stand in any table and names one configuration or a list:
//!   built-in by name, or a `.toml` path relative to the file that says it.
//!   What it names is laid beneath the table; tables merge, the rest is replaced.
//!   So a cluster may say `[gpu] extends = "gpus/h100"` and change one value.
//! - A table with a `value` is that value, with `source` and `note` beside it.
//!   A table's own `source` speaks for every value in it that has none.
//! - `value`, `source`, `note` beside a value, and `extends` are reserved.
//! - `serde(flatten)` and untagged enums buffer values and lose their places:
//!   a mistake inside is then reported at the table around it.
#![forbid(unsafe_code)]

mod assignment;
pub mod builtin;
mod de;
mod diagnostic;
mod document;
mod kind;
mod mentioned;
mod node;
mod quantity;
mod units;

pub use assignment::{Assignment, Fragment};
pub use diagnostic::{Complaint, Diagnostic, Place, Source, nearest};
pub use document::{Document, Setting};
pub use kind::{At, Checked, Kind};
pub use mentioned::mentioned_files;
pub use quantity::{
    Area, BitDensity, DataRate, DataSize, Duration, Energy, EnergyPerBit, EnergyPerFlop, FlopRate, Fraction,
    Frequency, GateCount, GateDensity, Length, Power, PowerDensity, Ratio, SampleRate,
};
