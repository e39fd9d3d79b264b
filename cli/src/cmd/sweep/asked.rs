//! Which sweep is meant, and what is laid over it: the arguments that every way
//! to look at a sweep shares.

use std::path::PathBuf;
use std::str::FromStr;
use trinity_config::{Area, Complaint};

/// Best points that are listed without being asked for.
pub const TOP: u16 = 10;

/// A sweep by name, and what is laid over it.
#[derive(Debug, Clone, clap::Args)]
pub struct SweepArgs {
    /// A name from `trinity config list sweeps`, or a path that ends in .toml
    #[arg(value_name = "SWEEP", default_value = "sweeps/llama-7b")]
    pub sweep: String,
    /// Override a value; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub sets: Vec<String>,
    /// Silicon of the whole cluster, such as "50000 mm2": best points keep to it, and the report opens on it
    #[arg(long, value_name = "AREA", value_parser = quantity::<Area>)]
    pub budget: Option<Area>,
    /// Measured values in place of configured ones: a calibration.toml of `trinity measure`, or the
    /// summary.json of a training run, whose bits and codec speed go into every scenario that codes alike
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// How many of the best points to list
    #[arg(long, value_name = "N", default_value_t = TOP, value_parser = clap::value_parser!(u16).range(0..=10000))]
    pub top: u16,
}

/// A number with its unit: an area, a rate.
pub fn quantity<Q: FromStr<Err = Complaint>>(text: &str) -> Result<Q, String> {
    let said = |complaint: Complaint| complaint.to_string().trim().replace('\n', "; ");
    text.parse().map_err(said)
}
