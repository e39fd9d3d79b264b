//! A file encoded in parts, on as many machines, and put together again.
//!
//! A part is a container with every N-th tensor. It carries a key of all that
//! it follows from, so that the same part is not made twice and parts of
//! different work are not taken for one.

use super::job::Job;
use crate::context::Context;
use crate::failure::Failure;
use crate::json_path::JsonPath;
use crate::output::Spool;
use crate::shards;
use crate::tensor_files::{bad_input, not_written, open};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trinity_study::Shard;
use trinity_tensor::file::TriWriter;
use trinity_tensor::pipeline::{Encoding, copy_coded, encode_into};
use trinity_tensor::{ContentHash, Entry, Error, TensorFile};

/// The text of a part that says what it follows from.
const KEY: &str = "part.key";

/// A hash of all that a part follows from: tensors, codec, target and version.
fn key(job: &Job<'_>) -> Result<String, Failure> {
    let mut hash = ContentHash::default();
    hash.add(trinity_tensor::codec::VERSION.as_bytes());
    let request = job.request;
    let asked = (request.codec, request.target, request.allocation, request.all, job.on_non_finite);
    hash.add(format!("{asked:?}").as_bytes());
    hash.add(&request.basis.map_or(0, trinity_tensor::codec::Basis::hash).to_le_bytes());
    if request.codec.ends_with(".toml") {
        let profile = std::fs::read(request.codec)
            .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", request.codec)))?;
        hash.add(&profile);
    }
    for entry in job.file.entries() {
        hash.add(entry.name().as_bytes());
        hash.add(entry.class().name().as_bytes());
        let content = entry.content().map_err(|error| bad_input(entry.name(), &error))?;
        hash.add(&content.to_le_bytes());
    }
    Ok(format!("{:016x}", hash.finish()))
}

/// The name of a part of `output`.
fn path_of(output: &Path, shard: Shard) -> PathBuf {
    let mut name = prefix(output);
    name.push(shard.stem());
    output.with_file_name(name)
}

fn prefix(output: &Path) -> OsString {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name
}

/// The key of a part that is there and whole.
fn key_of(path: &Path) -> Option<String> {
    let part = TensorFile::open(path).ok()?;
    let whole = trinity_tensor::file::damaged(&part).is_empty();
    part.metadata().get(KEY).filter(|_| whole).cloned()
}

/// Encodes every N-th tensor.
pub fn encode(job: &Job<'_>, shard: Shard, output: &Path, ctx: &Context) -> Result<(), Failure> {
    let path = path_of(output, shard);
    let key = key(job)?;
    if key_of(&path).as_ref() == Some(&key) {
        ctx.remark(format!("{} is there already", path.display()));
    } else {
        let texts: BTreeMap<String, String> =
            job.file.metadata().clone().into_iter().chain([(KEY.to_owned(), key)]).collect();
        let spool = Spool::create(&path)?;
        let own = job.file.entries().iter().enumerate().filter(|(at, _)| shard.takes(*at));
        let progress = ctx.progress(own.map(|(_, entry)| entry.len() as u64).sum(), "encoding");
        let advance = |done: usize| {
            progress.inc(done as u64);
            Ok(())
        };
        let encoding = Encoding {
            codec_for: job.choice,
            basis: job.request.basis,
            on_non_finite: job.on_non_finite,
            measure: false,
            calibrated: &|_| None,
            takes: &|at| shard.takes(at),
            progress: &advance,
        };
        TriWriter::create(spool.path(), &texts)
            .and_then(|writer| encode_into(job.file, &encoding, writer))
            .and_then(|(_, writer)| writer.finish())
            .map_err(|error| not_written(&job.path.display().to_string(), &path, &error))?;
        spool.finish()?;
        progress.finish_and_clear();
        ctx.remark(format!("wrote {}; when all parts are there, run the same with --merge", path.display()));
    }
    let tensors = (0..job.file.entries().len()).filter(|&at| shard.takes(at)).count();
    if ctx.json {
        ctx.print_json(&json!({ "part": JsonPath::from(path), "tensors": tensors }))
    } else {
        Ok(())
    }
}

/// Puts all parts together: the container that one machine would have made.
pub fn merge(job: &Job<'_>, output: &Path, ctx: &Context) -> Result<(), Failure> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let paths = shards::all(folder, &prefix(output), "")?;
    let key = key(job)?;
    let mut parts = Vec::new();
    for path in &paths {
        match key_of(path) {
            Some(own) if own == key => parts.push(open(path)?),
            Some(_) => {
                let what = "is of another file, codec, target or version";
                return Err(Failure::input(format_args!("{} {what}", path.display()))
                    .help("make all parts with the arguments that the merge has"));
            }
            None => {
                return Err(Failure::input(format_args!("{} is damaged", path.display()))
                    .help("remove it, and run that part again"));
            }
        }
    }
    let spool = Spool::create(output)?;
    let bytes = join(job.file, &parts, spool.path())
        .map_err(|error| not_written(&job.path.display().to_string(), output, &error))?;
    let values: usize = job.file.entries().iter().map(Entry::stated_values).sum();
    let bits_per_value = 8.0 * bytes as f64 / values.max(1) as f64;
    let over_target = job.over_target(bits_per_value, &[], ctx)?;
    spool.finish()?;
    let merged = json!({
        "output": JsonPath::from(output), "bytes": bytes, "values": values, "bits_per_value": bits_per_value,
        "over_target": over_target,
        "parts": paths.iter().map(|path| JsonPath::from(path.as_path())).collect::<Vec<_>>(),
    });
    let said =
        format!("{}: {bytes} bytes, {bits_per_value:.4} bits/value, everything counted\n", output.display());
    ctx.outcome(output, &merged, said)
}

fn join(file: &TensorFile, parts: &[TensorFile], path: &Path) -> Result<u64, Error> {
    let mut writer = TriWriter::create(path, file.metadata())?;
    for (at, entry) in file.entries().iter().enumerate() {
        let coded = parts[at % parts.len().max(1)].entry(entry.name())?;
        copy_coded(coded, entry.name(), &mut writer)?;
    }
    writer.finish()
}
