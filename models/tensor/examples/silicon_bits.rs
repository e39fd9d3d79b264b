//! Bits of the codec in gates beside the paper's H.264 pipeline, at one error:
//! `cargo run -p trinity-tensor --example silicon_bits -- 0.01 kv_cache.safetensors weights.safetensors`.
//!
//! Prints rows of file, class, codec, bits per value (the mean over the class'
//! tensors, whole) and error. `cargo xtask silicon --bits` sets mm² beside them.

#![allow(clippy::print_stdout)] // rows for another program

use std::path::Path;
use std::process::ExitCode;

use trinity_tensor::codec::{Metrics, Rate, codec};
use trinity_tensor::{Class, TensorFile};

/// H.264, then the encoders of models/silicon/rtl by their designs' names.
const CODECS: [&str; 6] =
    ["h264", "line-rtl-1", "line-rtl-4", "line-rtl", "line-rtl-hadamard", "line-rtl-dct"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((nmse, files)) = args.split_first().and_then(|(nmse, files)| Some((nmse.parse().ok()?, files)))
    else {
        eprintln!("usage: silicon_bits NMSE FILE...");
        return ExitCode::from(2);
    };
    println!("file,class,codec,tensors,bits_per_value,nmse");
    for file in files {
        if let Err(error) = measure(Path::new(file), nmse) {
            eprintln!("error: {file}: {error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn measure(path: &Path, nmse: f64) -> Result<(), trinity_tensor::Error> {
    let file = TensorFile::open(path)?;
    for class in Class::ALL {
        let tensors: Vec<_> = file.entries().iter().filter(|entry| entry.class() == class).collect();
        if tensors.is_empty() {
            continue;
        }
        for name in CODECS {
            let codec = codec(name)?;
            let (mut bits, mut lost) = (0.0, 0.0);
            for entry in &tensors {
                let tensor = entry.read()?;
                let encoded = codec.encode(&tensor, Rate::Nmse(nmse))?;
                bits += encoded.bits_per_value() / tensors.len() as f64;
                lost += Metrics::between(&tensor, &codec.decode(&encoded)?).nmse / tensors.len() as f64;
            }
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            println!("{stem},{class},{name},{},{bits:.4},{lost:.5}", tensors.len());
        }
    }
    Ok(())
}
