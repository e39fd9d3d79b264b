//! What is on users' disks stays readable, and no codec's bytes change unseen.
//!
//! Files under `tests/golden` are never written again: they are what some user
//! may have. Those of today's version are also made anew here and must come
//! out the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trinity_numeric::random::Lcg;

use trinity_tensor::codec::{Basis, PcaBasis, Rate, codec, is_external, names};
use trinity_tensor::delta::{self, Mode};
use trinity_tensor::file::TriWriter;
use trinity_tensor::pipeline::{OnNonFinite, encode_file, spec};
use trinity_tensor::{Class, Dtype, Entry, Tensor, TensorFile};

use crate::write_safetensors;

#[path = "../../../bits/tests/support/pins.rs"]
mod pins;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Every codec of ours, with presets, packings and codecs made of others. Programs of others have bytes that are
/// their own affair.
fn codecs() -> Vec<String> {
    let mut all = names();
    all.retain(|name| !is_external(name));
    for standard in ["h264", "h265"] {
        all.extend(["fast", "slow", "best", "420", "444"].map(|form| format!("{standard}-{form}")));
    }
    all.extend(
        ["hadamard/uniform+ac", "hadamard/trinity", "hadamard/line", "residual/uniform+ac/rtn-128g"]
            .map(String::from),
    );
    all
}

/// About Gaussian, columns with scales of their own; out of integers, so the
/// same on every machine.
fn tensor(name: &str, dtype: Dtype, shape: &[usize], seed: u64) -> Tensor {
    let mut lcg = Lcg(seed);
    let mut uniform = move || lcg.uniform();
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|i| ((0..12).map(|_| uniform()).sum::<f32>() - 6.0) * (1 + i % 5) as f32 / 64.0)
        .collect();
    Tensor::of_f32(name, Class::Weight, dtype, shape.to_vec(), &values).unwrap()
}

fn file(folder: &Path, name: &str, tensors: &[Tensor]) -> TensorFile {
    let path = folder.join(name);
    write_safetensors(&path, tensors);
    TensorFile::open(&path).unwrap()
}

/// Name, number format, shape, class and values of all tensors of a file.
fn contents(file: &TensorFile) -> Vec<u8> {
    let mut all = Vec::new();
    for (key, value) in file.metadata() {
        all.extend(format!("{key}={value}\n").bytes());
    }
    for entry in file.entries() {
        let (name, dtype, shape, class) = (entry.name(), entry.dtype(), entry.shape(), entry.class());
        all.extend(format!("{name} {dtype} {shape:?} {class} {}\n", entry.stored()).bytes());
        all.extend(entry.read().unwrap().data());
    }
    all
}

#[test]
fn no_codec_changes_a_byte_of_its_streams() {
    let matrix = tensor("matrix", Dtype::F32, &[72, 80], 1);
    let vector = tensor("vector", Dtype::Bf16, &[777], 2);
    let mut found = BTreeMap::new();
    for name in codecs() {
        let codec = codec(&name).unwrap();
        let targets = [Rate::Bits(3.0), Rate::Bits(5.5), Rate::Nmse(0.02), Rate::Lossless];
        for target in targets {
            for tensor in [&matrix, &vector] {
                // Some formats stand at a rate of their own; that stays so, too.
                let pin = match codec.encode(tensor, target) {
                    Ok(coded) => pins::fingerprint(&coded.bytes),
                    Err(_) => "refused 0".into(),
                };
                found.insert(format!("{name} {target} {}", tensor.name()), pin);
            }
        }
    }
    pins::hold(&golden("streams.txt"), &found);
}

/// Every file that today's version writes, made in a folder.
fn files_of_today(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let mut files = Vec::new();
    let mut add = |name: &'static str| {
        files.push((name, folder.join(name)));
        folder.join(name)
    };
    // A tensor for every codec there was when the file was stored, coded with it. Of version 2,
    // `v2-every-codec.tri` is the oldest: its `trinity-lite` was a profile of the Trinity codec; of
    // `v2-every-codec-line.tri`, and of what has no `samples` in its name, plans were chosen otherwise.
    let stored = TensorFile::open(&golden("v3-every-codec.tri"));
    let names: Vec<String> = stored
        .map_or_else(|_| codecs(), |file| file.entries().iter().map(|entry| entry.name().into()).collect());
    let tensors: Vec<Tensor> =
        names.iter().map(|name| tensor(name, Dtype::F32, &[40, 48], name.len() as u64)).collect();
    let every_codec = file(folder, "every-codec.safetensors", &tensors);
    let choice = |entry: &Entry| {
        let lossless = entry.name() == "zstd";
        (entry.name().to_owned(), if lossless { Rate::Lossless } else { Rate::Nmse(0.03) })
    };
    encode_file(&every_codec, &choice, None, OnNonFinite::Refuse, &add("v3-every-codec.tri"), &|_| ())
        .unwrap();
    // Every number format that version 2 began with, in the order that files number them, exactly;
    // beside tensors without dimensions and without values.
    let mut tensors: Vec<Tensor> =
        Dtype::ALL[..10].iter().map(|&dtype| tensor(dtype.name(), dtype, &[3, 5, 7], 3)).collect();
    tensors.push(tensor("scalar", Dtype::F32, &[], 4));
    tensors.push(tensor("empty", Dtype::F32, &[0, 4], 4));
    let exact = |_: &Entry| ("zstd".to_owned(), Rate::Lossless);
    let every_format = file(folder, "every-format.safetensors", &tensors);
    encode_file(&every_format, &exact, None, OnNonFinite::Refuse, &add("v3-every-format.tri"), &|_| ())
        .unwrap();
    // Slabs, classes and texts.
    let texts = BTreeMap::from([("format".to_owned(), "pt".to_owned()), ("ü".to_owned(), String::new())]);
    let mut writer = TriWriter::create(&add("v3-slabs.tri"), &texts).unwrap();
    for class in Class::ALL {
        let whole = tensor(class.name(), Dtype::F16, &[12, 32], 5);
        let described = file(folder, "one.safetensors", std::slice::from_ref(&whole));
        let described = spec(&described.entries()[0].clone().with_class(class));
        writer.begin(&described, "uniform+ac", 96).unwrap();
        for rows in whole.data().chunks(96 * 2) {
            let slab = Tensor::new("t", class, Dtype::F16, vec![3, 32], rows.to_vec()).unwrap();
            writer
                .slab(&codec("uniform+ac").unwrap().encode(&slab, Rate::Nmse(0.01)).unwrap().bytes)
                .unwrap();
        }
    }
    writer.finish().unwrap();
    // Bases of both kinds, and files that need them.
    let sample = tensor("sample", Dtype::F32, &[96, 48], 6);
    let pca = Basis::Pca(Arc::new(PcaBasis::from_samples(&[&sample], 48).unwrap()));
    let values = sample.to_f32();
    let grouped =
        Basis::from_bytes(&trinity_codec::Basis::learn(&values, 48, 16).unwrap().to_bytes()).unwrap();
    std::fs::write(add("pca.basis"), pca.to_bytes()).unwrap();
    std::fs::write(add("grouped.basis"), grouped.to_bytes()).unwrap();
    let small = file(folder, "small.safetensors", &[sample]);
    let trinity = |_: &Entry| ("trinity".to_owned(), Rate::Nmse(0.001));
    encode_file(&small, &trinity, Some(&pca), OnNonFinite::Refuse, &add("v3-pca.tri"), &|_| ()).unwrap();
    encode_file(&small, &trinity, Some(&grouped), OnNonFinite::Refuse, &add("v3-grouped.tri"), &|_| ())
        .unwrap();
    // Deltas.
    let base = tensor("w", Dtype::Bf16, &[64, 48], 7);
    let mut tuned = base.data().to_vec();
    (0..tuned.len()).step_by(97).for_each(|at| tuned[at] ^= 5);
    let tuned = Tensor::new("w", Class::Weight, Dtype::Bf16, vec![64, 48], tuned).unwrap();
    let (base, tuned) =
        (file(folder, "base.safetensors", &[base]), file(folder, "tuned.safetensors", &[tuned]));
    let lossy = Mode::Lossy { codec: "trinity".into(), target: Rate::Nmse(0.1) };
    delta::make(&base, &tuned, &Mode::Lossless, &add("v3-exact.delta.tri")).unwrap();
    delta::make(&base, &tuned, &lossy, &add("v3-lossy.delta.tri")).unwrap();
    files.push(("base.safetensors", folder.join("base.safetensors")));
    files
}

#[test]
fn files_of_today_are_written_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for (name, made) in files_of_today(folder.path()) {
        let made = std::fs::read(made).unwrap();
        pins::store(&golden(name), &made);
        let kept = std::fs::read(golden(name)).unwrap();
        assert!(made == kept, "{name}: {} bytes now, {} in tests/golden", made.len(), kept.len());
    }
}

#[test]
fn stored_files_read_as_they_always_did() {
    let folder = tempfile::tempdir().unwrap();
    let bases = ["pca", "grouped"].map(|name| Basis::open(&golden(&format!("{name}.basis"))).unwrap());
    let base = TensorFile::open(&golden("base.safetensors")).unwrap();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(golden("")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let read = if name.ends_with(".delta.tri") {
            let tuned = folder.path().join("tuned.safetensors");
            delta::apply(&base, &TensorFile::open(&path).unwrap(), &tuned).unwrap();
            contents(&TensorFile::open(&tuned).unwrap())
        } else if name.ends_with(".basis") {
            Basis::open(&path).unwrap().to_bytes()
        } else if name.ends_with(".tri") || name.ends_with(".safetensors") {
            let mut file = TensorFile::open(&path).unwrap();
            for (basis, needs) in bases.iter().zip(["pca.tri", "grouped.tri"]) {
                if name.ends_with(needs) {
                    file = file.with_basis(basis);
                }
            }
            contents(&file)
        } else {
            continue;
        };
        found.insert(name, pins::fingerprint(&read));
    }
    assert!(found.len() >= 10, "{found:?}");
    pins::hold(&golden("files.txt"), &found);
}

/// Version 1 changed its slabs while it lasted and was never released: refused by name.
#[test]
fn a_version_that_cannot_be_read_is_named() {
    let mut bytes = std::fs::read(golden("v3-slabs.tri")).unwrap();
    for (version, named) in [(1u16, "version 1"), (99, "version 99")] {
        bytes[4..6].copy_from_slice(&version.to_le_bytes());
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[..28]);
        let crc = crc.sum().to_le_bytes();
        bytes[28..32].copy_from_slice(&crc);
        let error = TensorFile::from_bytes(bytes.clone(), "t").unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
