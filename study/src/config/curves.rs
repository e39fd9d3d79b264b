//! The built-in curves of measured kernels, by GPU.
//!
//! Read once and kept: a query is then a lookup without allocation, and a
//! cluster may carry a plain reference.

use super::kernels::KernelsFile;
use std::sync::{Mutex, PoisonError};
use trinity_config::{Diagnostic, Document};
use trinity_sim::kernels::Kernels;

/// GPU types that have curves.
pub const GPUS: [&str; 9] =
    ["a100", "b200", "b300", "gb200", "gb300", "h100", "h200", "l40s", "rtx-pro-6000"];

/// The built-in configuration that holds the curves of a GPU.
pub fn name_of(gpu: &str) -> String {
    format!("calibrations/kernels/{gpu}")
}

/// Curves that were read, by GPU.
static READ: Mutex<Vec<(&'static str, &'static Kernels)>> = Mutex::new(Vec::new());

/// The curves of a GPU such as `h100`, if its kernels were measured. Fails when
/// the built-in file is damaged.
pub fn of(gpu: &str) -> Result<Option<&'static Kernels>, Diagnostic> {
    let Some(gpu) = GPUS.into_iter().find(|known| *known == gpu) else { return Ok(None) };
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, kernels)) = read.iter().find(|(known, _)| *known == gpu) {
        return Ok(Some(kernels));
    }
    let document = Document::load(&name_of(gpu))?;
    let kernels = document.read::<KernelsFile>()?.resolve(&document.whole())?;
    // At most nine are ever read, and all live as long as the program.
    let kernels: &'static Kernels = Box::leak(Box::new(kernels));
    read.push((gpu, kernels));
    Ok(Some(kernels))
}
