//! `trinity figure`: what sources claim, judged.
//!
//! Claims, commands and rules are in `configs/figures`; the verdicts are computed
//! (`trinity_study::figures`) from recordings, or from the commands run again.

mod answer;
mod asked;
mod page;
mod run;
mod show;

pub use asked::Args;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use answer::Answer;
use std::collections::BTreeSet;
use std::path::Path;
use trinity_config::{Checked, Document, nearest};
use trinity_study::config::{FigureFile, FiguresFile};
use trinity_study::figures::{Recordings, recorded};

/// A figure that takes longer, by its own estimate, is run only by name.
const QUICK_S: u32 = 60;

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let document = Document::load(&args.figures)?;
    let file: FiguresFile = document.read()?;
    file.check(&document)?;
    let figures = file.whole();
    let asked: Vec<&FigureFile> = match &args.id {
        None => figures.iter().collect(),
        Some(id) => vec![figures.iter().find(|figure| figure.id == *id).ok_or_else(|| unknown(id, &file))?],
    };
    let mut recordings = recorded().map_err(Failure::run)?;
    if let Some(folder) = args.data.iter().find(|folder| !folder.is_dir()) {
        return Err(Failure::input(format_args!("--data {} is no folder", folder.display()))
            .help("name a folder that holds captured tensors (.safetensors)"));
    }
    // A device or a pipe has nothing to go on from, and may never end.
    if let Some(path) = args.record.as_deref().filter(|path| path.is_file()) {
        recordings.extend(kept(path)?);
    }
    let mut answers = Vec::new();
    let mut today = Recordings::new();
    for figure in asked {
        let by_name = args.id.is_some();
        let lender = figure.uses.as_ref().unwrap_or(&figure.id);
        let known = figure.uses.is_some() && !by_name;
        let runs = args.run && !figure.commands.is_empty() && !known && (by_name || quick(figure));
        let fresh = if runs { anew(figure, args, by_name, ctx)? } else { None };
        today.extend(fresh.map(|recording| (lender.clone(), recording)));
        answers.push(Answer::new(figure, today.get(lender), recordings.get(lender), args)?);
    }
    if let Some(path) = &args.record {
        record(recordings, today, args, ctx)?;
        ctx.remark(format!("recorded in {}", path.display()));
    }
    if let Some(folder) = &args.out {
        page::report(&file.title, &answers).write(&folder.join("report.html"))?;
        ctx.remark(format!("wrote {}", folder.join("report.html").display()));
    }
    match &args.id {
        _ if ctx.json => ctx.print_json(&answer::json(&file.title, &answers)),
        Some(_) => {
            ctx.print(show::one(&answers[0], ctx))?;
            let commands: BTreeSet<&String> = answers[0].commands.values().collect();
            let mut tables = commands.into_iter().filter_map(|command| run::table(command));
            tables.try_for_each(|table| ctx.print(format!("\n{}", table?)))
        }
        None if args.markdown => ctx.print(show::markdown(&file.title, &answers)),
        None => {
            ctx.print(show::list(&answers).render(ctx.colour))?;
            ctx.remark(format!("{}; `trinity figure ID` shows the claims of one", answer::counts(&answers)));
            Ok(())
        }
    }
}

/// Writes recordings with today's runs among them. Of all figures, one that was run on less than its recording has
/// stays as it is recorded.
fn record(mut recordings: Recordings, today: Recordings, args: &Args, ctx: &Context) -> Result<(), Failure> {
    let Some(path) = &args.record else { return Ok(()) };
    for (id, run) in today {
        let lesser = recordings.get(&id).is_some_and(|kept| run.lacks_inputs_of(kept));
        if lesser && args.id.is_none() {
            ctx.remark(format!("figure {id} was run on less than its recording has, which is kept"));
        } else {
            recordings.insert(id, run);
        }
    }
    let mut text = serde_json::to_string_pretty(&recordings)
        .map_err(|error| Failure::run(format_args!("cannot write the recordings: {error}")))?;
    text.push('\n');
    output::renew(path, text.as_bytes())
}

fn quick(figure: &FigureFile) -> bool {
    figure.seconds.is_some_and(|seconds| seconds <= QUICK_S)
}

/// A run of a figure's commands. Of all figures, those whose files are not at hand are left to their recordings.
fn anew(
    figure: &FigureFile,
    args: &Args,
    by_name: bool,
    ctx: &Context,
) -> Result<Option<trinity_study::figures::Recording>, Failure> {
    let out = args.out.clone().unwrap_or_else(|| Path::new("out/figures").into()).join(&figure.id);
    match run::anew(figure, &out, args, ctx) {
        Ok(recording) => Ok(Some(recording)),
        Err(run::Stopped::NoFile(name)) if !by_name => {
            ctx.remark(format!("figure {} is left to its recording: no {name} in --data", figure.id));
            Ok(None)
        }
        Err(stopped) => Err(stopped.into()),
    }
}

fn kept(path: &Path) -> Result<Recordings, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| output::cannot("read", path, &error))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::input(format_args!("{} holds no recordings: {error}", path.display())))
}

fn unknown(id: &str, file: &FiguresFile) -> Failure {
    let ids: Vec<&str> = file.figures.iter().map(|figure| figure.id.as_str()).collect();
    let failure = Failure::input(format_args!("there is no figure `{id}`"));
    match nearest(id, &ids) {
        Some(near) => failure.help(format_args!("did you mean `{near}`?")),
        None => failure.help(format_args!("one of: {}", ids.join(", "))),
    }
}
