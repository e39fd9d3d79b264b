//! `trinity figure`: the paper, figure by figure.
//!
//! The verdicts are kept in `configs/figures`; running a figure runs the
//! command behind it, as a user would, and says whether the verdict stands.

use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::output;
use crate::table::Table;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use trinity_config::{Checked, Document, nearest};
use trinity_study::config::{FigureFile, FiguresFile};
use trinity_study::explore::TENSORS;

/// What a command begins with where no command is run, but a recording is read: the set follows.
const RECORDED: &str = "recorded ";
/// The recording of models that are no language models; every other set is of training runs.
const OTHER_MODELS: &str = "other-models";

/// List every figure and table of the paper with its verdict, or run one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity figure                  every figure: reproduced, contradicted, out of scope or not run here yet
  trinity figure 16a              run it, and see both numbers
  trinity figure 16b-bound --out out/bound")]
pub struct Args {
    /// A figure's or a table's id, such as 16a or table-3
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Folder for what the figure's command writes (default: out/figures/ID)
    #[arg(long, value_name = "DIR", requires = "id")]
    out: Option<PathBuf>,
    /// The figures and their verdicts: a name from `trinity config list figures`, or a path that ends in .toml
    #[arg(long, value_name = "FILE", default_value = "figures/llm265")]
    figures: String,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let document = Document::load(&args.figures)?;
    let file: FiguresFile = document.read()?;
    file.check(&document)?;
    match &args.id {
        None => list(&file, ctx),
        Some(id) => {
            let figure = file.figures.iter().find(|figure| figure.id == *id);
            let figure = figure.ok_or_else(|| unknown(id, &file))?;
            let out = args.out.clone().unwrap_or_else(|| Path::new("out/figures").join(id));
            reproduce(figure, &out, &args.figures, ctx)
        }
    }
}

fn unknown(id: &str, file: &FiguresFile) -> Failure {
    let ids: Vec<&str> = file.figures.iter().map(|figure| figure.id.as_str()).collect();
    let failure = Failure::input(format_args!("there is no figure `{id}`"));
    match nearest(id, &ids) {
        Some(near) => failure.help(format_args!("did you mean `{near}`?")),
        None => failure.help(format_args!("one of: {}", ids.join(", "))),
    }
}

fn list(file: &FiguresFile, ctx: &Context) -> Result<(), Failure> {
    if ctx.json {
        return ctx.print_json(file);
    }
    let mut table = Table::new(["figure", "verdict", "s", "the paper", "here", "why"]);
    for figure in &file.figures {
        table.row([
            figure.id.clone(),
            figure.verdict.words().to_owned(),
            figure.seconds.map_or_else(|| "-".into(), |seconds| seconds.to_string()),
            figure.paper.clone(),
            figure.ours.clone(),
            figure.why.clone().unwrap_or_default(),
        ]);
    }
    ctx.print(table.render(ctx.colour))?;
    let count = |words: &str| file.figures.iter().filter(|figure| figure.verdict.words() == words).count();
    let counts = ["reproduced", "contradicted", "not run here yet", "out of scope"]
        .map(|words| format!("{} {words}", count(words)));
    ctx.remark(format!("{}; `trinity figure ID` runs one", counts.join(", ")));
    Ok(())
}

/// What a figure's command prints.
fn printed_by(template: &str, out: &Path, figures: &str, ctx: &Context) -> Result<String, Failure> {
    let tensors = out.join("tensors.safetensors");
    if template.contains("{tensors}") {
        output::write(&tensors, TENSORS)?;
    }
    let recording = out.join("h200.json");
    if template.contains("{recording}") {
        output::write(&recording, trinity_validation::engines::RECORDING.as_bytes())?;
    }
    let fill = |word| match word {
        "{tensors}" => tensors.as_os_str(),
        "{recording}" => recording.as_os_str(),
        "{out}" => out.as_os_str(),
        other => OsStr::new(other),
    };
    let arguments: Vec<&OsStr> = template.split(' ').map(fill).collect();
    let said = arguments.join(OsStr::new(" "));
    let said = said.display();
    ctx.remark(format!("trinity {said}"));
    let own = std::env::current_exe()
        .map_err(|error| Failure::run(format_args!("cannot find this command again: {error}")))?;
    let mut command = Command::new(own);
    command.args(&arguments).args(["--threads", &ctx.threads.to_string()]);
    command.env(input::READ_BY_PARENT, figures);
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
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the command of a figure and holds its output against the verdict.
fn reproduce(figure: &FigureFile, out: &Path, figures: &str, ctx: &Context) -> Result<(), Failure> {
    let Some(template) = &figure.command else {
        let why = figure.why.as_deref().unwrap_or("it has no command");
        return Err(Failure::input(format_args!(
            "figure {} is {}: {why}",
            figure.id,
            figure.verdict.words()
        ))
        .help("`trinity figure` lists those that can be run"));
    };
    let printed = match template.strip_prefix(RECORDED) {
        Some(OTHER_MODELS) => trinity_validation::other_models::table().map_err(Failure::run)?,
        Some(set) => trinity_validation::trained::table(set).map_err(Failure::run)?,
        None => printed_by(template, out, figures, ctx)?,
    };
    let missing: Vec<&String> = figure.shows.iter().filter(|text| !printed.contains(text.as_str())).collect();
    if ctx.json {
        let stands = missing.is_empty();
        ctx.print_json(&serde_json::json!({ "figure": figure, "stands": stands, "printed": printed }))?;
    } else {
        ctx.print(printed.as_str())?;
        ctx.print(format!(
            "\n{}: {}\n  the paper: {}\n  here:      {}\n",
            figure.title,
            figure.verdict.words(),
            figure.paper,
            figure.ours
        ))?;
        if let Some(why) = &figure.why {
            ctx.print(format!("  why:       {why}\n"))?;
        }
    }
    match missing.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Failure::run(format_args!(
            "the verdict on figure {} no longer stands: its command does not print `{first}`",
            figure.id
        ))
        .help("judge it again, and write the new verdict into configs/figures")),
    }
}
