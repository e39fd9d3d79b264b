//! The host GPU's compute: matrix products, streaming kernels, attention,
//! launches, host copies, power; measured as they are used in a network.
//!
//! Kernels are timed in captured graphs, weights come from memory and not
//! from the cache, and products run half of the time only, so that clocks are
//! those of short work; what sustained work does to them is measured apart
//! (`power`). Knows nothing of networks: it hands over times and watts.

mod attention;
pub(crate) mod blas;
pub mod curves;
mod framework;
mod host;
mod lab;
mod launches;
mod points;
mod power;
mod products;
mod streams;

pub use points::*;

use crate::error::{Error, LeftOut};
use lab::Lab;

/// Measures everything on GPU 0. `python` names the interpreter whose
/// framework is asked; `save` is handed what there is after every step.
pub fn run(
    python: Option<&str>,
    quick: bool,
    progress: &(dyn Fn(&str) + Sync),
    save: &mut dyn FnMut(&Compute, &[LeftOut]),
) -> Result<(Compute, Vec<LeftOut>), Error> {
    let lab = Lab::open(quick)?;
    let mut compute = lab.describe()?;
    let mut left_out = Vec::new();
    let steps: [(&str, Step); 6] = [
        ("kernel launches", launches::run),
        ("streaming kernels", streams::run),
        ("matrix products", products::run),
        ("attention by batched products", attention::run),
        ("loads and power", power::run),
        ("host copies beside products", host::run),
    ];
    for (what, step) in steps {
        progress(what);
        if let Err(error) = step(&lab, &mut compute) {
            left_out.push(LeftOut::new(what, &error));
            if error.is_fatal() {
                return Ok((compute, left_out));
            }
        }
        save(&compute, &left_out);
    }
    // The framework gets the memory back first.
    drop(lab);
    if let Some(python) = python {
        progress("framework");
        match framework::run(python, quick) {
            Ok((asked, attention)) => {
                compute.attention.extend(attention);
                compute.framework = Some(asked);
            }
            Err(error) => left_out.push(LeftOut::new("framework", &error)),
        }
        save(&compute, &left_out);
    }
    Ok((compute, left_out))
}

type Step = fn(&Lab, &mut Compute) -> Result<(), Error>;
