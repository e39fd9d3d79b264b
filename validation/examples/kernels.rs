//! Distils tables of measured kernels into `configs/calibrations/kernels`;
//! `cargo xtask kernels` calls it with the folders.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::process::ExitCode;
use trinity_validation::kernels::distil;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tables, out, gpus @ ..] = arguments.as_slice() else {
        eprintln!("kernels TABLES OUT [GPU ...]");
        return ExitCode::from(2);
    };
    println!("{:14} {:22} {:>8} {:>8} {:>8} {:>8}", "GPU", "family", "> 50 us", "error", "<= 50 us", "error");
    let mut failed = None;
    let wanted = |gpu: &str| gpus.is_empty() || gpus.iter().any(|wanted| wanted == gpu);
    let result = distil(Path::new(tables), wanted, |distilled| {
        for error in &distilled.errors {
            let unseen = &error.unseen;
            println!(
                "{:14} {:22} {:8} {:6.2} % {:8} {:6.2} %",
                error.gpu,
                error.family,
                unseen.long,
                100.0 * unseen.long_mape(),
                unseen.short,
                100.0 * unseen.short_mape()
            );
        }
        let path = Path::new(out).join(distilled.gpu).with_extension("toml");
        println!("{:14} {} bytes", distilled.gpu, distilled.text.len());
        if let Err(error) = std::fs::write(&path, &distilled.text) {
            failed = Some(format!("cannot write {}: {error}", path.display()));
        }
    });
    match (result, failed) {
        (Ok(()), None) => ExitCode::SUCCESS,
        (Err(error), _) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        (_, Some(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
