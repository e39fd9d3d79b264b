//! A figure's commands, run as a user would, and their output as numbers.

use super::asked::Args;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::output;
use crate::row_cache;
use crate::table::{Table, sig3};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use trinity_study::config::FigureFile;
use trinity_study::explore::TENSORS;
use trinity_study::figures::{Fingerprint, Input, MODELS, Recording, codecs_of, fingerprint, read};

/// What a command begins with where no command is run, but a recording is read: its name follows.
pub const RECORDED: &str = "recorded ";

/// Why there is no run.
#[derive(Debug)]
pub enum Stopped {
    /// A file that the command names is in no folder of `--data`.
    NoFile(String),
    Failed(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::NoFile(name) => Self::input(format_args!("the command needs {name}"))
                .help("name the folder it is in with --data DIR"),
            Stopped::Failed(failure) => failure,
        }
    }
}

/// Runs the commands of a figure and keeps the cells.
pub fn anew(figure: &FigureFile, out: &Path, args: &Args, ctx: &Context) -> Result<Recording, Stopped> {
    let begun = std::time::Instant::now();
    let mut outputs = BTreeMap::new();
    let mut inputs = Vec::new();
    for (name, template) in &figure.commands {
        let json = match template.strip_prefix(RECORDED) {
            Some(set) => recorded(set)?,
            None => {
                let elsewhere = args.from.as_ref().map(|folder| brought(figure, name, folder)).transpose()?;
                // What was not run read nothing.
                if elsewhere.as_ref().is_some_and(Value::is_null) {
                    Value::Null
                } else {
                    let arguments = words(template, out, args, &mut inputs)?;
                    elsewhere.map_or_else(|| printed(&arguments, args, ctx), Ok)?
                }
            }
        };
        outputs.insert(name.clone(), json);
    }
    let cells = read(figure, &outputs)
        .map_err(|error| Failure::run(format_args!("figure {}: {error}", figure.id)))?;
    inputs.sort_by(|a: &Input, b: &Input| a.file.cmp(&b.file));
    inputs.dedup();
    Ok(Recording {
        when: trinity_hwcodec::recording::today(),
        on: args.from.as_deref().map_or_else(|| Ok(machine(ctx.threads)), elsewhere)?,
        // Those of another machine are not known here.
        seconds: if args.from.is_some() {
            0.0
        } else {
            (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0
        },
        commands: figure.commands.clone(),
        fingerprint: Fingerprint { inputs, ..now(figure) },
        cells,
    })
}

/// What a result of these commands follows from today, files aside.
pub fn now(figure: &FigureFile) -> Fingerprint {
    let codecs = codecs_of(figure.commands.values())
        .into_iter()
        .filter_map(|name| Some((name.clone(), fingerprint(&name)?)))
        .collect();
    let asks = |command: &String| {
        let first = command.split(' ').next().unwrap_or_default();
        ["sweep", "estimate", "validate", "explore"].contains(&first) || command.contains("--wire")
    };
    let models = figure.commands.values().any(asks).then(|| MODELS.to_owned());
    Fingerprint { codecs, models, inputs: Vec::new() }
}

/// As [`now`], with those of a recording's files that are at hand.
pub fn now_with(figure: &FigureFile, folders: &[PathBuf], recording: &Recording) -> Fingerprint {
    let mut now = now(figure);
    for input in &recording.fingerprint.inputs {
        let bytes = match input.file.as_str() {
            "tensors.safetensors" => Some(TENSORS.to_vec()),
            name => folders.iter().find_map(|folder| std::fs::read(folder.join(name)).ok()),
        };
        now.inputs.extend(bytes.map(|bytes| input_of(&input.file, &bytes)));
    }
    now
}

/// The JSON of a recording that is part of the command.
pub fn recorded(set: &str) -> Result<Value, Failure> {
    trinity_validation::figures::rows(set).map_err(Failure::run)
}

/// The whole of a recording as a table, where it has one.
pub fn table(command: &str) -> Option<Result<String, Failure>> {
    let table = match command.strip_prefix(RECORDED)? {
        set @ ("silicon" | "torch") => return Some(facts(set)),
        "other-models" => trinity_validation::other_models::table(),
        model @ ("smollm2-135m" | "smollm2-135m-linear" | "smollm2-135m-slopes" | "gemma-3-270m") => {
            trinity_validation::language_models::table(model)
        }
        set @ ("pipeline" | "video-pipeline" | "data-parallel" | "85M" | "2.7M") => {
            trinity_validation::trained::table(set)
        }
        _ => return None,
    };
    Some(table.map_err(Failure::run))
}

/// What a source prints and what is found here, row by row.
fn facts(set: &str) -> Result<String, Failure> {
    let rows = recorded(set)?;
    let mut table = Table::new(["row", "source", "here", "what"]);
    for row in rows.as_array().into_iter().flatten() {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| row[field].as_f64().map_or_else(|| "–".into(), sig3);
        table.row([text("name"), number("source"), number("ours"), text("what")]);
    }
    Ok(table.render(false))
}

/// The processor and how many threads it gave.
fn machine(threads: usize) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("{}, {threads} threads", model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()))
}

fn input_of(name: &str, bytes: &[u8]) -> Input {
    Input { file: name.into(), bytes: bytes.len() as u64, hash: row_cache::hashed(bytes) }
}

/// The files that the words of a command stand for.
fn filled(word: &str, out: &Path, args: &Args, inputs: &mut Vec<Input>) -> Result<Vec<OsString>, Stopped> {
    let built_in: &[(&str, &str, &[u8])] = &[
        ("{tensors}", "tensors.safetensors", TENSORS),
        ("{recording}", "h200.json", trinity_validation::engines::RECORDING.as_bytes()),
    ];
    if let Some((_, name, bytes)) = built_in.iter().find(|(mark, ..)| *mark == word) {
        let path = out.join(name);
        output::write(&path, bytes)?;
        inputs.push(input_of(name, bytes));
        return Ok(vec![path.into()]);
    }
    if word == "{synthetic}" {
        let path = out.join("synthetic.safetensors");
        let bytes = trinity_study::figures::synthetic().map_err(Failure::run)?;
        output::write(&path, &bytes)?;
        inputs.push(input_of("synthetic.safetensors", &bytes));
        return Ok(vec![path.into()]);
    }
    if word == "{captured}" {
        let files = captured(&args.data)?;
        if files.is_empty() {
            return filled("{tensors}", out, args, inputs);
        }
        return files.iter().map(|path| taken(path, inputs)).collect();
    }
    if let Some(name) = word.strip_prefix("{file:").and_then(|rest| rest.strip_suffix('}')) {
        let found = args.data.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let found = found.ok_or_else(|| Stopped::NoFile(name.into()))?;
        for weights in beside(&found) {
            taken(&weights, inputs)?;
        }
        return Ok(vec![taken(&found, inputs)?]);
    }
    Ok(vec![if word == "{out}" { out.into() } else { word.into() }])
}

/// The weights that lie beside a model's configuration: `small-1-of-2.safetensors` beside `small.json`.
fn beside(path: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if path.extension().is_none_or(|end| end != "json") {
        return Vec::new();
    }
    let own = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_prefix(&stem).is_some_and(|rest| rest.ends_with(".safetensors"))
    };
    let folder = path.parent().map(std::fs::read_dir);
    let entries = folder.into_iter().flatten().flatten().flatten();
    entries.map(|entry| entry.path()).filter(own).collect()
}

fn taken(path: &Path, inputs: &mut Vec<Input>) -> Result<OsString, Stopped> {
    let bytes = std::fs::read(path).map_err(|error| output::cannot("read", path, &error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    inputs.push(input_of(&name, &bytes));
    output::protect(path);
    Ok(path.into())
}

/// The tensor files of folders, by name.
fn captured(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for folder in folders {
        let entries = std::fs::read_dir(folder).map_err(|error| output::cannot("read", folder, &error))?;
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        files.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "safetensors")));
    }
    files.sort();
    Ok(files)
}

/// The arguments of a command, with files for what stands for them.
fn words(template: &str, out: &Path, args: &Args, inputs: &mut Vec<Input>) -> Result<Vec<OsString>, Stopped> {
    let mut arguments = Vec::new();
    for word in template.split(' ') {
        arguments.extend(filled(word, out, args, inputs)?);
    }
    Ok(arguments)
}

/// What a command printed on another machine; nothing where it was not run there and no cell insists on it.
fn brought(figure: &FigureFile, name: &str, folder: &Path) -> Result<Value, Failure> {
    let path = folder.join(format!("{}.{name}.json", figure.id));
    let reads =
        |run: &String| figure.each.iter().any(|each| run.replace("{each}", each) == name) || run == name;
    let mut own = figure.cells.values().filter(|cell| cell.run.as_ref().is_none_or(reads));
    if !path.exists() && own.all(|cell| cell.optional) {
        return Ok(Value::Null);
    }
    let text = std::fs::read(&path).map_err(|error| output::cannot("read", &path, &error))?;
    output::protect(&path);
    serde_json::from_slice(&text)
        .map_err(|error| Failure::input(format_args!("{} is no JSON: {error}", path.display())))
}

/// The machine that ran them.
fn elsewhere(folder: &Path) -> Result<String, Failure> {
    let path = folder.join("machine.txt");
    let text = std::fs::read_to_string(&path).map_err(|error| output::cannot("read", &path, &error))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What a command prints with `--json`.
fn printed(arguments: &[OsString], args: &Args, ctx: &Context) -> Result<Value, Failure> {
    let said: Vec<String> = arguments.iter().map(|word| word.display().to_string()).collect();
    let said = said.join(" ");
    ctx.remark(format!("trinity {said}"));
    let own = std::env::current_exe()
        .map_err(|error| Failure::run(format_args!("cannot find this command again: {error}")))?;
    let mut command = Command::new(own);
    command.args(arguments).args(["--json", "--quiet", "--threads", &ctx.threads.to_string()]);
    command.env(input::READ_BY_PARENT, &args.figures);
    if output::forced() {
        command.arg("--force");
    }
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| Failure::run(format_args!("cannot run `trinity {said}`: {error}")))?;
    if !output.status.success() {
        return Err(Failure::run(format_args!("`trinity {said}` failed")));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::run(format_args!("`trinity {said}` printed no JSON: {error}")))
}
