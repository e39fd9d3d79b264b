//! A file encoded in parts, on as many machines, and put together again.
//!
//! A part is a container with every N-th slab, so that one large tensor is shared
//! out, too; most tensors have one slab. It carries a key of all that
//! it follows from, so that the same part is not made twice and parts of
//! different work are not taken for one.

use super::job::Job;
use super::show::EncodeOutcome;
use crate::context::Context;
use crate::device::Used;
use crate::failure::Failure;
use crate::json_path::JsonPath;
use crate::output::Spool;
use crate::shards::{self, unread};
use crate::tensor_files::{bad_input, not_written, open};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use trinity_study::encode::Work;
use trinity_study::{Progress, Shard};
use trinity_tensor::file::{TIED_KEY, TriWriter};
use trinity_tensor::pipeline::{Treatment, join_coded, slabs};
use trinity_tensor::{ContentHash, Error, TensorFile};

/// The text of a part that says what it follows from.
const KEY: &str = "part.key";

/// A hash of all that a part follows from: tensors, codec, target and version.
fn key(job: &Job<'_>) -> Result<String, Failure> {
    let mut hash = ContentHash::default();
    hash.add(trinity_tensor::codec::VERSION.as_bytes());
    let request = job.request;
    let asked = (request.codec, request.target, job.allocation, request.all, job.on_non_finite);
    hash.add(format!("{asked:?} {:?}", request.rules).as_bytes());
    if let Some(path) = job.calibrated_on {
        hash.add(&std::fs::read(path).map_err(|error| unread(path, error))?);
    }
    hash.add(&request.basis.map_or(0, trinity_tensor::codec::Basis::hash).to_le_bytes());
    if request.codec.ends_with(".toml") {
        let profile = Path::new(request.codec);
        hash.add(&std::fs::read(profile).map_err(|error| unread(profile, error))?);
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

/// The number of each tensor's first slab, all slabs of the file counted through.
fn first_slabs(file: &TensorFile) -> Vec<usize> {
    let mut next = 0;
    let first = |entry| {
        next += slabs(entry);
        next - slabs(entry)
    };
    file.entries().iter().map(first).collect()
}

/// Encodes every N-th slab.
pub fn encode(job: &Job<'_>, shard: Shard, output: &Path, ctx: &Context) -> Result<(), Failure> {
    let path = path_of(output, shard);
    let key = key(job)?;
    if key_of(&path).as_ref() == Some(&key) {
        ctx.remark(format!("{} is there already", path.display()));
    } else {
        let mut texts = job.texts()?;
        texts.insert(KEY.to_owned(), key);
        let spool = Spool::create(&path)?;
        let watch = ctx.watch();
        watch.begin(job.plan.values() as u64 / shard.count().max(1), "encoding");
        let advance = |done: usize| {
            watch.advance(done as u64);
            Ok(())
        };
        let first = first_slabs(job.file);
        let takes = |at: usize, slab: usize| shard.takes(first[at] + slab);
        let work = Work { measure: false, takes: &takes, progress: &advance, ..job.work() };
        TriWriter::create(spool.path(), &texts)
            .and_then(|writer| work.encode_into(writer))
            .and_then(|(_, writer)| writer.finish())
            .map_err(|error| not_written(&job.path.display().to_string(), &path, &error))?;
        spool.finish()?;
        watch.end();
        ctx.remark(format!("wrote {}; when all parts are there, run the same with --merge", path.display()));
    }
    let first = first_slabs(job.file);
    let has_part = |(at, entry)| (0..slabs(entry)).any(|slab| shard.takes(first[at] + slab));
    let tensors = job.file.entries().iter().enumerate().filter(|&own| has_part(own)).count();
    ctx.tell(&json!({ "part": JsonPath::from(path), "tensors": tensors }))
}

/// Puts all parts together: the container that one machine would have made.
pub fn merge(job: &Job<'_>, output: &Path, device: Used, ctx: &Context) -> Result<EncodeOutcome, Failure> {
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
    let failed = |error: Error| not_written(&job.path.display().to_string(), output, &error);
    let bytes = join(job, &parts, spool.path()).map_err(failed)?;
    let watch = ctx.watch();
    watch.begin(job.plan.values() as u64, "measuring");
    let advance = |done: usize| {
        watch.advance(done as u64);
        Ok(())
    };
    let merged = TensorFile::open(spool.path()).map_err(failed)?;
    let measured = Work { progress: &advance, ..job.work() }.measure(&merged).map_err(failed)?;
    watch.end();
    let outcome =
        EncodeOutcome::of(job, output.to_owned(), bytes, measured.tensors, measured.metrics, device, ctx)?;
    spool.finish()?;
    ctx.remark(format!("{} parts put together", paths.len()));
    Ok(outcome)
}

fn join(job: &Job<'_>, parts: &[TensorFile], path: &Path) -> Result<u64, Error> {
    let mut writer = TriWriter::create(path, &job.file.texts()?)?;
    let first = first_slabs(job.file);
    for (at, entry) in job.file.entries().iter().enumerate() {
        if let Treatment::Tied { to } = job.plan.treatment(entry) {
            writer.text(format!("{TIED_KEY}{}", entry.name()), to);
            continue;
        }
        join_coded(entry, &|slab| &parts[(first[at] + slab) % parts.len()], &mut writer)?;
    }
    writer.finish()
}
