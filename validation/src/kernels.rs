//! Kernels by measurement: how far the curves of `configs/calibrations/kernels`
//! are from kernels that their fit did not see.
//!
//! The files state that error themselves, as the distiller found it
//! ([`stated`]). Where the tables are at hand, [`remeasured`] computes it anew
//! from rows and curves (feature `parquet`), and [`distil`] makes the curves.

#[cfg(feature = "parquet")]
mod distil;
#[cfg(feature = "parquet")]
mod fit;
#[cfg(feature = "parquet")]
mod rows;
#[cfg(feature = "parquet")]
mod table;

#[cfg(feature = "parquet")]
pub use distil::{Distilled, distil, remeasured};
#[cfg(feature = "parquet")]
pub use table::Error as TableError;

use crate::Error;
use crate::score::Pair;
use trinity_config::Document;
use trinity_study::config::KernelsFile;
use trinity_study::kernels::{self, GPUS};

/// A kernel above this is long: launches and clocks no longer decide it.
pub const LONG_S: f64 = 50e-6;

/// Sums of relative errors on kernels that were not fitted on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unseen {
    pub long: usize,
    pub long_error: f64,
    pub short: usize,
    pub short_error: f64,
}

impl Unseen {
    /// Takes in one kernel.
    pub fn add(&mut self, predicted_s: f64, measured_s: f64) {
        let error = (predicted_s / measured_s - 1.0).abs();
        if measured_s > LONG_S {
            self.long += 1;
            self.long_error += error;
        } else {
            self.short += 1;
            self.short_error += error;
        }
    }

    /// Takes in what another saw.
    pub fn merge(&mut self, other: &Self) {
        self.long += other.long;
        self.long_error += other.long_error;
        self.short += other.short;
        self.short_error += other.short_error;
    }

    /// Mean error of kernels above 50 µs.
    pub fn long_mape(&self) -> f64 {
        self.long_error / self.long.max(1) as f64
    }

    /// Mean error of kernels up to 50 µs.
    pub fn short_mape(&self) -> f64 {
        self.short_error / self.short.max(1) as f64
    }

    /// Mean error of all.
    pub fn mape(&self) -> f64 {
        (self.long_error + self.short_error) / (self.long + self.short).max(1) as f64
    }
}

/// The error of one family on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyError {
    pub gpu: String,
    pub family: &'static str,
    pub unseen: Unseen,
}

impl FamilyError {
    /// Name of the set in `trinity validate`.
    pub fn set(&self) -> String {
        format!("{} kernels: {}", self.gpu, self.family)
    }
}

/// Sets of `trinity validate`.
pub const LONG: &str = "kernels above 50 us";
pub const SHORT: &str = "kernels up to 50 us";
pub const IN_A_NODE: &str = "collectives in a node";

/// One set: the mean error of each family on each GPU, and how many kernels
/// that is of.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSet {
    pub name: &'static str,
    pub pairs: Vec<Pair>,
    pub kernels: usize,
    /// Mean over kernels, not over families.
    pub mape: f64,
}

/// Errors by length of the kernels, collectives apart.
pub fn sets(errors: &[FamilyError]) -> Vec<KernelSet> {
    let is_collective = |error: &FamilyError| error.family == "collective";
    let long = |unseen: &Unseen| (unseen.long, unseen.long_error);
    let short = |unseen: &Unseen| (unseen.short, unseen.short_error);
    let all = |unseen: &Unseen| (unseen.long + unseen.short, unseen.long_error + unseen.short_error);
    let of = |name, collectives: bool, part: &dyn Fn(&Unseen) -> (usize, f64)| {
        let mut set = KernelSet { name, pairs: Vec::new(), kernels: 0, mape: 0.0 };
        let mut sum = 0.0;
        for error in errors.iter().filter(|error| is_collective(error) == collectives) {
            let (kernels, error_sum) = part(&error.unseen);
            if kernels == 0 {
                continue;
            }
            let predicted = 1.0 + error_sum / kernels as f64;
            set.pairs.push(Pair {
                what: format!("{}, {}", error.gpu, error.family),
                predicted,
                measured: 1.0,
            });
            set.kernels += kernels;
            sum += error_sum;
        }
        set.mape = sum / set.kernels.max(1) as f64;
        set
    };
    vec![of(LONG, false, &long), of(SHORT, false, &short), of(IN_A_NODE, true, &all)]
}

/// What the built-in files say of themselves.
pub fn stated() -> Result<Vec<FamilyError>, Error> {
    let mut errors: Vec<FamilyError> = Vec::new();
    for gpu in GPUS {
        let file: KernelsFile = Document::load(&kernels::name_of(gpu))?.read()?;
        for curve in &file.curves {
            let Some(kind) = curve.kind() else { continue };
            let unseen = Unseen {
                long: curve.unseen.long,
                long_error: curve.unseen.long_mape * curve.unseen.long as f64,
                short: curve.unseen.short,
                short_error: curve.unseen.short_mape * curve.unseen.short as f64,
            };
            join(&mut errors, gpu, kind.family(), &unseen);
        }
    }
    Ok(errors)
}

/// Adds to the entry of the same GPU and family, which is the last or none.
fn join(errors: &mut Vec<FamilyError>, gpu: &str, family: &'static str, unseen: &Unseen) {
    match errors.iter_mut().find(|error| error.gpu == gpu && error.family == family) {
        Some(error) => error.unseen.merge(unseen),
        None => errors.push(FamilyError { gpu: gpu.into(), family, unseen: *unseen }),
    }
}
