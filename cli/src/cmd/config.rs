//! `trinity config`: what is configured, and where each value came from.

use crate::{context::Context, failure::Failure, output, table::Table};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use trinity_config::{Diagnostic, Document, Kind, Setting, builtin, nearest};
use trinity_study::config::{Derived, GpuFile, KINDS, derived};

/// Look at configurations: GPUs, NICs, codecs, models, clusters, sweeps
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the configurations that come with the command
    #[command(after_help = "\
Examples:
  trinity config list
  trinity config list gpus")]
    List {
        /// Only this kind, such as `gpus`
        kind: Option<String>,
    },
    /// Print every value with the file and line it came from, and its source
    #[command(after_help = "\
Examples:
  trinity config show gpus/h100                  a GPU with parts: what follows from them, too
  trinity config show gpus/h100 --cost           and what the package may cost, by assumptions
  trinity config show my-cluster.toml --set \"gpu.power=350 W\"")]
    Show(Selection),
    /// Read configurations as the models do and report every mistake of each
    #[command(after_help = "\
Examples:
  trinity config check
  trinity config check gpus/h100 my-cluster.toml
  trinity config check study.toml --kind sweeps --set \"headline.budget=50000 mm2\"")]
    Check {
        /// Names or .toml paths (default: everything that comes with the command)
        #[arg(value_name = "CONFIG")]
        names: Vec<String>,
        /// Override a value; may be repeated
        #[arg(long = "set", value_name = "PATH=VALUE")]
        sets: Vec<String>,
        /// What the files describe, where neither their folder nor what they extend says it
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
    },
    /// Print the JSON schema of a kind, or of all, for editors that complete and check TOML
    #[command(after_help = "\
Examples:
  trinity config schema
  trinity config schema gpus
  trinity config schema --out configs/schema")]
    Schema {
        /// The kind, such as `gpus` (default: an object with all of them)
        kind: Option<String>,
        /// Write KIND.json for every kind into this folder
        #[arg(long, value_name = "DIR", conflicts_with = "kind")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Selection {
    /// A name from `trinity config list`, or a path that ends in .toml
    #[arg(value_name = "CONFIG")]
    name: String,
    /// Override a value; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Of a GPU by its parts, also the cost: wafer, yield, memory and package, all assumed
    #[arg(long)]
    cost: bool,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.action {
        Action::List { kind } => list(kind.as_deref(), ctx),
        Action::Show(selection) => show(&load(&selection.name, &selection.sets)?, selection.cost, ctx),
        Action::Check { names, sets, kind } => check(names, sets, kind.as_deref(), ctx),
        Action::Schema { kind: Some(kind), .. } => ctx.print_json(&find(kind)?.schema()),
        Action::Schema { out: Some(folder), .. } => write_schemas(folder, ctx),
        Action::Schema { .. } => {
            let schemas = KINDS.iter().map(|kind| (kind.name.to_string(), kind.schema())).collect();
            ctx.print_json(&serde_json::Value::Object(schemas))
        }
    }
}

fn list(kind: Option<&str>, ctx: &Context) -> Result<(), Failure> {
    let wanted = kind.map(find).transpose()?;
    let mut rows = Vec::new();
    for name in builtin::names() {
        let kind = kind_of(&Document::load(name)?)?;
        if wanted.is_none_or(|wanted| wanted.name == kind.name) {
            rows.push((name, kind));
        }
    }
    let said: Vec<_> = rows
        .iter()
        .map(|(name, kind)| json!({ "name": name, "kind": kind.name, "title": title(name) }))
        .collect();
    let table = Table::of(&rows)
        .column("name", |(name, _)| *name)
        .column("kind", |(_, kind)| kind.name)
        .column("what it is", |(name, kind)| title(name).unwrap_or(kind.describes))
        .end();
    ctx.show(&said, || table.render(ctx.colour))
}

/// A file opens with a comment that says what it describes.
fn title(name: &str) -> Option<&'static str> {
    let comment = builtin::text(name)?.lines().find(|line| !line.starts_with("#:"))?.strip_prefix('#')?;
    Some(comment.trim())
}

/// What follows from the parts of a GPU, where the document describes one.
fn follows(document: &Document, cost: bool) -> Result<Vec<Derived>, Failure> {
    // A document of no kind is shown as it is.
    if !kind_of(document).is_ok_and(|kind| kind.name == "gpus") {
        return Ok(Vec::new());
    }
    let file: GpuFile = document.read()?;
    let Some(parts) = &file.parts else { return Ok(Vec::new()) };
    parts.check_at(&document.whole().table("parts"), file.power.w())?;
    Ok(file.die().map_or_else(Vec::new, |die| derived(&die, cost)))
}

fn show(document: &Document, cost: bool, ctx: &Context) -> Result<(), Failure> {
    let settings = document.settings();
    let follows = follows(document, cost)?;
    let mut rows: Vec<_> = settings
        .iter()
        .map(|Setting { path, value, place, source }| {
            json!({ "path": path, "value": value, "file": place.source.name, "line": place.line(), "source": source })
        })
        .collect();
    rows.extend(follows.iter().map(|Derived { name, value, unit, how }| {
        json!({ "path": format!("derived.{name}"), "value": format!("{value:.1} {unit}"), "source": how })
    }));
    let stated = Table::of(&settings)
        .column("key", |own| &own.path)
        .column("value", |own| &own.value)
        .column("written at", |own| format!("{}:{}", own.place.source.name, own.place.line()))
        .column("source", |own| own.source.as_deref().unwrap_or_default())
        .end();
    let derived = Table::of(&follows)
        .column("follows from the parts", |own| &own.name)
        .column("value", |own| format!("{:.1}", own.value))
        .column("unit", |own| own.unit)
        .column("how", |own| &own.how)
        .end();
    let behind = if follows.is_empty() { String::new() } else { format!("\n{}", derived.render(ctx.colour)) };
    ctx.show(&rows, || stated.render(ctx.colour) + &behind)
}

fn check(names: &[String], sets: &[String], kind: Option<&str>, ctx: &Context) -> Result<(), Failure> {
    let kind = kind.map(find).transpose()?;
    let everything: Vec<String> = builtin::names().map(str::to_string).collect();
    let names = if names.is_empty() { &everything } else { names };
    let (mut checked, mut mistakes) = (Vec::new(), Vec::new());
    for name in names {
        match check_one(name, sets, kind) {
            Ok(kind) => checked.push((name, kind)),
            Err(failure) => mistakes.push(failure),
        }
    }
    if let Some(mistakes) = Failure::of_all(mistakes) {
        return Err(mistakes);
    }
    let said: Vec<_> =
        checked.iter().map(|(name, kind)| json!({ "name": name, "kind": kind.name })).collect();
    let mut table = Table::new(["configuration", "reads as", "values"]);
    for (name, kind) in checked {
        let values = load(name, sets)?.settings().len();
        table.row([name.as_str(), kind.describes, &values.to_string()]);
    }
    ctx.show(&said, || table.render(ctx.colour))
}

/// Reads one configuration as the models do; gives what it describes.
fn check_one(name: &str, sets: &[String], kind: Option<Kind>) -> Result<Kind, Failure> {
    let document = load(name, sets)?;
    let kind = match kind {
        Some(kind) => kind,
        None => kind_of(&document)?,
    };
    kind.check(&document)?;
    Ok(kind)
}

fn write_schemas(folder: &Path, ctx: &Context) -> Result<(), Failure> {
    let mut written = Vec::new();
    for kind in KINDS {
        let mut text = serde_json::to_string_pretty(&kind.schema()).map_err(Failure::run)?;
        text.push('\n');
        let path = folder.join(kind.name).with_extension("json");
        output::write(&path, text.as_bytes())?;
        ctx.remark(format!("wrote {}", path.display()));
        written.push(path);
    }
    ctx.tell(&json!({ "written": written }))
}

fn load(name: &str, sets: &[String]) -> Result<Document, Diagnostic> {
    let mut document = Document::load(name)?;
    sets.iter().try_for_each(|assignment| document.set(assignment))?;
    Ok(document)
}

fn find(name: &str) -> Result<Kind, Failure> {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    KINDS.iter().copied().find(|kind| kind.name == name).ok_or_else(|| {
        let failure =
            Failure::input(format_args!("there is no kind `{name}`; expected one of: {}", names.join(", ")));
        match nearest(name, &names) {
            Some(near) => failure.help(format_args!("did you mean `{near}`?")),
            None => failure,
        }
    })
}

/// A built-in file lies in its kind's folder; a user's may lie in a folder of
/// that name, extend built-in files of one kind, or have the keys of one.
fn kind_of(document: &Document) -> Result<Kind, Failure> {
    let folder = Path::new(document.name()).parent().and_then(Path::file_name);
    let folder = folder.map(|name| name.to_string_lossy().into_owned());
    let extended = document.extends().iter().filter_map(|name| Some(name.split_once('/')?.0.to_string()));
    let of_folder = |folder: String| KINDS.iter().find(|kind| kind.name == folder).copied();
    let found = folder.into_iter().chain(extended).find_map(of_folder);
    found.or_else(|| likeliest(document)).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        Failure::input(format_args!("cannot tell what `{}` describes", document.name()))
            .help(format_args!("say it with --kind {}", names.join("|")))
    })
}

/// The kind that knows most of the document's keys.
fn likeliest(document: &Document) -> Option<Kind> {
    let known = |kind: &&Kind| {
        let schema = kind.schema();
        document.keys().filter(|key| schema["properties"].get(key).is_some()).count()
    };
    KINDS.iter().max_by_key(known).filter(|kind| known(kind) > 0).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_file_reads_as_its_kind() {
        for name in builtin::names() {
            let document = load(name, &[]).unwrap_or_else(|diagnostic| panic!("{diagnostic}"));
            let kind = kind_of(&document).unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
            kind.check(&document).unwrap_or_else(|diagnostic| panic!("{diagnostic}"));
        }
    }

    #[test]
    fn committed_schemas_have_not_drifted_from_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/schema");
        for kind in KINDS {
            let path = folder.join(kind.name).with_extension("json");
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            let committed: serde_json::Value = serde_json::from_str(&committed).unwrap_or_default();
            assert!(
                committed == kind.schema(),
                "{} has drifted: run `cargo run -- config schema --out configs/schema --force`",
                path.display()
            );
        }
    }
}
