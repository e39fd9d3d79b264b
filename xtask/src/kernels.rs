//! `cargo xtask kernels`: measured kernels, distilled into curves.
//!
//! The distiller is an example of `trinity-validation`, since this crate reads
//! no tables; here is where they lie and where the curves go.

use crate::{
    compile, tools,
    workspace::{root, shared},
};
use std::path::PathBuf;
use std::process::Command;

const USAGE: &str = "cargo xtask kernels [FOLDER] [--gpu NAME ...]";
const HELP: &str = "
Fits curves on four fifths of the kernels of FOLDER (shared/runs/kernels beside the project unless given) and
writes configs/calibrations/kernels; prints the mean error on the fifth that the fit did not see, by GPU and
family. Three minutes on two cores.

  --gpu NAME    of this GPU alone, such as h100; may be repeated";

pub fn run(args: &[&str]) -> Result<(), String> {
    if let ["--help" | "-h"] = args {
        eprintln!("{USAGE}\n{HELP}");
        return Ok(());
    }
    let mut folder = None;
    let mut gpus = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match (*word, folder.is_some()) {
            ("--gpu", _) => gpus.push(*words.next().ok_or(format!("`--gpu` wants a name: {USAGE}"))?),
            (word, false) if !word.starts_with('-') => folder = Some(PathBuf::from(word)),
            (word, _) => return Err(format!("`{word}`: expected {USAGE}")),
        }
    }
    let folder = folder.unwrap_or_else(|| shared().join("runs/kernels"));
    if !folder.is_dir() {
        return Err(format!("there are no tables of kernels in {}: name their folder", folder.display()));
    }
    let mut distiller = Command::new(compile::example("kernels", "trinity-validation")?);
    distiller.arg(&folder).arg(root().join("configs/calibrations/kernels")).args(gpus);
    tools::succeed(&mut distiller)
}
