//! What the arguments name: every file that a command may read, known before
//! it runs.
//!
//! One walk for all commands, so that a new one is covered without a word of
//! its own. It protects more than is read, never less: a file that any argument
//! names, the files that a configuration names in turn, the shards of an index,
//! the files of a model's folder, and what stdin was redirected from. Knows
//! names; what a command does with a file is its own affair.

use super::pipe::is_pipe;
use crate::failure::Failure;
use crate::output;
use clap::{ArgMatches, Command};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// An argument of one command, or of all that have it.
type Argument = (Option<&'static str>, &'static str);

/// Arguments that name results.
const RESULTS: [Argument; 9] = [
    (None, "output"),
    (None, "out"),
    (None, "recon"),
    (Some("explore"), "save"),
    (Some("figure"), "record"),
    (Some("validate"), "errors"),
    (Some("validate"), "fit_engines"),
    (Some("explain"), "trace"),
    (Some("explain"), "report"),
];
/// Folders that hold parts of work: what is read of them is said by who reads
/// it, for results may lie there, too.
const PARTS: [Argument; 1] = [(Some("merge"), "folders")];
/// Inputs that are read front to back, and so may come through a pipe.
const STREAMED: [Argument; 4] =
    [(None, "input"), (Some("encode"), "file"), (Some("decode"), "file"), (Some("apply"), "delta")];

fn is_among(list: &[Argument], command: &str, id: &str) -> bool {
    list.iter().any(|(own, name)| *name == id && own.is_none_or(|own| own == command))
}

/// The variable by which a command that runs another says what else is read.
pub const READ_BY_PARENT: &str = "TRINITY_READ_BY_PARENT";

/// Protects every file that the arguments lead to.
///
/// # Errors
///
/// Where two results would share a name, or a pipe is named where a file must be.
pub fn register(matches: &ArgMatches, command: &Command) -> Result<(), Failure> {
    protect_stdin();
    std::env::var_os(READ_BY_PARENT).iter().for_each(|path| protect(Path::new(path)));
    let mut results = Vec::new();
    walk(matches, command, &mut results)?;
    for (at, (id, path)) in results.iter().enumerate() {
        if let Some((other, _)) = results[..at].iter().find(|(_, earlier)| output::are_one(earlier, path)) {
            return Err(Failure::input(format_args!("--{other} and --{id} both name `{}`", path.display()))
                .help("each result needs a name of its own"));
        }
        // Known now, so said now, and not after the work is done.
        output::refuse_input(path)?;
    }
    Ok(())
}

fn walk(
    matches: &ArgMatches,
    command: &Command,
    results: &mut Vec<(String, PathBuf)>,
) -> Result<(), Failure> {
    let name = command.get_name();
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        for value in matches.try_get_raw(id).ok().flatten().into_iter().flatten() {
            if !is_among(&RESULTS, name, id) {
                let in_parts = is_among(&PARTS, name, id);
                named(value).iter().filter(|path| !in_parts || !path.is_dir()).for_each(|path| protect(path));
                if !is_among(&STREAMED, name, id) {
                    refuse_pipe(Path::new(value))?;
                }
            } else if id != "out" && !output::is_stdout(Path::new(value)) {
                results.push((id.to_owned(), value.into()));
            }
        }
    }
    match matches.subcommand() {
        Some((sub, matches)) => {
            command.find_subcommand(sub).map_or(Ok(()), |sub| walk(matches, sub, results))
        }
        None => Ok(()),
    }
}

/// The paths that a value may mean: itself, and the parts of `CODER=CODEC.toml`,
/// `CODEC.toml@3`, `path=value` and lists.
fn named(value: &OsStr) -> Vec<PathBuf> {
    let whole = PathBuf::from(value);
    let parts = value.to_str().into_iter().flat_map(|text| text.split(['=', ',', '#', '@']));
    std::iter::once(whole).chain(parts.map(|part| part.trim().trim_matches(['"', '\'']).into())).collect()
}

/// Protects a file and all that it leads to, or the files of a folder.
pub fn protect(path: &Path) {
    model_files(path).iter().for_each(|file| output::protect(file));
    let Ok(found) = fs::metadata(path) else { return };
    if found.is_dir() {
        let within = fs::read_dir(path).into_iter().flatten().flatten();
        within.for_each(|file| output::protect(&file.path()));
    }
    if !found.is_file() {
        return;
    }
    trinity_config::mentioned_files(path).iter().for_each(|file| output::protect(file));
    shards(path).iter().for_each(|shard| output::protect(shard));
}

/// What is read beside a file of a model: its configuration, its tokenizer, its
/// other shards. A model may be named without an ending.
fn model_files(path: &Path) -> Vec<PathBuf> {
    let of_model = path.extension().is_none_or(|ending| ending == "safetensors" || ending == "json");
    let Some(stem) = path.file_stem().and_then(OsStr::to_str).filter(|_| of_model) else { return Vec::new() };
    // `small-1-of-2` is a shard of `small`.
    let model =
        stem.rsplit_once("-of-").and_then(|(rest, _)| rest.rsplit_once('-')).map_or(stem, |(model, _)| model);
    let is_read = |name: &str| {
        let shard = |shard: &str| shard == model || shard.starts_with(&format!("{model}-"));
        ["config.json", "tokenizer.json"].contains(&name)
            || name.strip_suffix(".json").is_some_and(|name| name == stem || name == model)
            || name.strip_suffix(".safetensors").is_some_and(shard)
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = fs::read_dir(folder).into_iter().flatten().flatten();
    beside.filter(|file| file.file_name().to_str().is_some_and(is_read)).map(|file| file.path()).collect()
}

/// The files that the index of a sharded checkpoint names.
fn shards(path: &Path) -> Vec<PathBuf> {
    let is_index = path.extension().is_some_and(|ending| ending == "json");
    let text = if is_index { fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    let index: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let names = index["weight_map"].as_object().into_iter().flat_map(|map| map.values());
    names.filter_map(|name| Some(path.with_file_name(name.as_str()?))).collect()
}

/// A pipe with a name of its own is read by nobody who needs a file; what a
/// shell hands over as `/dev/fd/N` is.
fn refuse_pipe(path: &Path) -> Result<(), Failure> {
    let by_shell = path.starts_with("/dev") || path.starts_with("/proc");
    if by_shell || !fs::metadata(path).is_ok_and(|found| is_pipe(&found)) {
        return Ok(());
    }
    Err(Failure::input(format_args!("`{}` is a pipe or a device, and this must be a file", path.display()))
        .help("write it to a file first, and name that"))
}

/// Protects the file that stdin was redirected from.
#[cfg(unix)]
fn protect_stdin() {
    use std::os::fd::AsFd;
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().map(fs::File::from);
    if let Ok(found) = stdin.and_then(|file| file.metadata()) {
        output::protect_found(&found);
    }
}

#[cfg(not(unix))]
fn protect_stdin() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command's name, an argument's and its help.
    type Described = (String, String, String);

    fn arguments(command: &Command, found: &mut Vec<Described>) {
        for argument in command.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            found.push((command.get_name().into(), argument.get_id().to_string(), help));
        }
        command.get_subcommands().for_each(|sub| arguments(sub, found));
    }

    #[test]
    fn results_are_told_from_inputs_in_every_command() {
        const WRITES: [&str; 6] =
            ["Write ", "Where to write", "Folder for", "Also write", "The page to", "The stream to write"];
        const SHOWS: &str = "The frames to write";
        // Says whether, not where.
        const SWITCHES: [&str; 1] = ["points"];
        let mut found = Vec::new();
        arguments(&crate::tree(), &mut found);
        for (command, id, help) in &found {
            let is_result = WRITES.iter().chain([&SHOWS]).any(|start| help.starts_with(start))
                && !SWITCHES.contains(&id.as_str());
            assert_eq!(is_result, is_among(&RESULTS, command, id), "{command} --{id}: {help}");
        }
        for (own, name) in RESULTS.iter().chain(&PARTS).chain(&STREAMED) {
            let known = |(command, id, _): &Described| id == name && own.is_none_or(|own| own == command);
            assert!(found.iter().any(known), "no command has {own:?} {name}");
        }
    }

    #[test]
    fn a_value_may_mean_a_path_in_part() {
        for text in
            ["mine.toml", "trinity=mine.toml", "mine.toml@3", "a,mine.toml", "codec.extends = \"mine.toml\""]
        {
            assert!(named(OsStr::new(text)).contains(&PathBuf::from("mine.toml")), "{text}");
        }
    }
}
