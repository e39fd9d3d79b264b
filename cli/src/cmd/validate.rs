//! `trinity validate`: every model beside its measurements.

mod page;

use crate::{
    context::Context,
    failure::Failure,
    output,
    table::{Table, sig3},
};
use std::path::{Path, PathBuf};
use trinity_validation::constants::{self, Constant};
use trinity_validation::serving::{self, LeftOut};
use trinity_validation::validate::{self, Line, Truth, ValidationOutcome, ValidationRequest};
use trinity_validation::well_known::{self, WellKnown};

/// Hold every model against measurements, and fail where a bar is breached
///
/// Published training runs, the paper's numbers and the external decoders at
/// hand are always used; further tables add measured runs, runs out of memory
/// and collectives. Errors are fractions of what was measured.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity validate
  trinity validate --runs training_runs.csv --oom oom.csv --collectives collectives.csv --out report
  trinity validate --host-runs h200_runs.csv
  trinity validate --kernels runs/kernels
  trinity validate --runs training_runs.csv --serving serving.csv --json
  trinity validate --serving serving.csv --leave-out
  trinity validate --serving serving.csv --fit-engines configs/engines --force
  trinity validate --runs training_runs.csv --fit
  trinity validate --runs training_runs.csv --constants
  trinity validate --set a100.gpu.gemm-efficiency=0.6

Exit code 1 names the bars (validation/bars.toml) that were breached.")]
pub struct Args {
    /// Measured training iterations, a CSV; may be repeated
    #[arg(long, value_name = "CSV")]
    runs: Vec<PathBuf>,
    /// Runs that ran out of memory, a CSV; may be repeated
    #[arg(long, value_name = "CSV")]
    oom: Vec<PathBuf>,
    /// Collectives that NCCL took or ASTRA-sim simulated, a CSV; may be repeated
    #[arg(long, value_name = "CSV")]
    collectives: Vec<PathBuf>,
    /// Measured services (time to first token, time per token), a CSV; may be repeated
    #[arg(long, value_name = "CSV")]
    serving: Vec<PathBuf>,
    /// Tables of measured kernels, a folder: hold the built-in curves against them anew
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,
    /// Fit the constants of engines anew without each model, GPU and engine version in turn, and predict that one
    #[arg(long, requires = "serving")]
    leave_out: bool,
    /// Folder for constants of engines fitted on these services, from the files in it or those built in
    #[arg(long, value_name = "DIR", requires = "serving", conflicts_with = "leave_out")]
    fit_engines: Option<PathBuf>,
    /// Runs on the GPU of the recording (training, prompts, decoding) instead of the committed ones, a CSV; may be repeated
    #[arg(long, value_name = "CSV")]
    host_runs: Vec<PathBuf>,
    /// The recording of `trinity measure` to predict them from, instead of the H200's
    #[arg(long, value_name = "RECORDING.json")]
    recording: Option<PathBuf>,
    /// Derive the constants again from the rows at hand and show what changes
    #[arg(long)]
    fit: bool,
    /// List every constant: meaning, value, interval, and the rows that identify it
    #[arg(long, conflicts_with = "fit")]
    constants: bool,
    /// Change a constant for this run, such as a100.gpu.gemm-efficiency=0.6; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Print the table of twelve well-known runs, published and predicted, as Markdown
    #[arg(long, conflicts_with_all = ["fit", "constants"])]
    well_known: bool,
    /// Write the table of errors by kind of question that answers quote (study/src/measured.csv)
    #[arg(long, value_name = "CSV")]
    errors: Option<PathBuf>,
    /// Also write errors.csv, pairs.csv, problems.csv and report.html here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let request = ValidationRequest {
        runs: args.runs.clone(),
        oom: args.oom.clone(),
        collectives: args.collectives.clone(),
        host_runs: args.host_runs.clone(),
        serving: args.serving.clone(),
        kernels: args.kernels.clone(),
        recording: args.recording.clone(),
        assignments: args.sets.clone(),
    };
    let truth = Truth::read(&request).map_err(|error| Failure::input(&error))?;
    for problem in &truth.malformed {
        ctx.remark(format!("skipped: {problem}"));
    }
    if args.well_known {
        let table = well_known::table(&truth.calibrations).map_err(|error| Failure::input(&error))?;
        return match ctx.json {
            true => ctx.print_json(&table),
            false => ctx.print(well_known_text(&table)),
        };
    }
    if let Some(path) = &args.errors {
        ctx.may_write(path)?;
        let table = trinity_study::measured::written(&trinity_validation::errors::by_question(&truth));
        output::write(path, table.as_bytes())?;
        ctx.remark(format!("wrote {}", path.display()));
        return Ok(());
    }
    if args.constants {
        let list = constants::constants(&truth).map_err(|error| Failure::input(&error))?;
        return match ctx.json {
            true => ctx.print_json(&list),
            false => ctx.print(constants_table(&list).render(ctx.colour)),
        };
    }
    if let Some(folder) = &args.fit_engines {
        return fit_engines(ctx, args, folder);
    }
    if args.leave_out {
        let lines =
            serving::leave_out(&truth.services, &ctx.watch()).map_err(|error| Failure::input(&error))?;
        return match ctx.json {
            true => ctx.print_json(&lines),
            false => ctx.print(left_out_table(&lines).render(ctx.colour)),
        };
    }
    let outcome = validate::validate(&truth).map_err(|error| Failure::input(&error))?;
    let refitted = match args.fit {
        true => Some(validate::refit(&truth).map_err(|error| Failure::input(&error))?),
        false => None,
    };
    if ctx.json {
        print_json(ctx, &truth, &outcome, refitted.as_ref())?;
    } else {
        ctx.print(summary(ctx, &truth, &outcome))?;
        if let Some(refit) = &refitted {
            ctx.print(changes(ctx, refit))?;
        }
    }
    if let Some(folder) = &args.out {
        output::lock(folder, "validate")?;
        write_files(folder, &truth, &outcome)?;
        ctx.remark(format!("wrote {}", folder.join("report.html").display()));
    }
    if outcome.breaches.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = outcome.breaches.iter().map(ToString::to_string).collect();
    Err(Failure::run(format_args!("breached: {}", named.join("; ")))
        .help("bars are in validation/bars.toml; `--out DIR` shows the rows that err most"))
}

/// The table as `docs/training.md` has it.
fn well_known_text(table: &[WellKnown]) -> String {
    let mut text = String::from(
        "| run | published, TFLOP/s a GPU | predicted | error | source |\n|---|---:|---:|---:|---|\n",
    );
    for line in table {
        text += &format!(
            "| {} | {:.0} | {:.0} | {:+.1} % | {} |\n",
            line.run,
            line.published_tflops_per_gpu,
            line.predicted_tflops_per_gpu,
            100.0 * line.error,
            line.source
        );
    }
    text
}

fn print_json(
    ctx: &Context,
    truth: &Truth,
    outcome: &ValidationOutcome,
    refit: Option<&validate::Refit>,
) -> Result<(), Failure> {
    // Without `--fit` the document is the list itself, as scripts expect.
    match refit {
        None if !truth.services.rows.is_empty() => ctx.print_json(&serde_json::json!({
            "sets": outcome.lines,
            "serving": truth.services.rows,
            "malformed": truth.malformed,
        })),
        None => ctx.print_json(&outcome.lines),
        Some(refit) => ctx.print_json(&serde_json::json!({
            "sets": outcome.lines,
            "refitted": { "sets": refit.lines, "constants": refit.changes },
            "malformed": truth.malformed,
            "codecs": outcome.codecs,
        })),
    }
}

fn constants_table(list: &[Constant]) -> Table {
    let mut table = Table::new(["constant", "value", "interval", "", "rows", "from", "meaning"]);
    let end = |end: Option<f64>| end.map_or("open".into(), sig3);
    for constant in list {
        table.row([
            constant.path.clone(),
            sig3(constant.value),
            format!("{} to {}", end(constant.low), end(constant.high)),
            if constant.is_identified() { "" } else { "weak" }.into(),
            constant.rows.to_string(),
            constant.from.clone(),
            constant.meaning.into(),
        ]);
    }
    table
}

/// Fits, writes the files, and judges them.
fn fit_engines(ctx: &Context, args: &Args, folder: &Path) -> Result<(), Failure> {
    let wrong = |error: &trinity_validation::Error| Failure::input(error);
    let refitted = serving::refit(&args.serving, folder, &ctx.watch()).map_err(|error| wrong(&error))?;
    for (engine, text) in &refitted.files {
        let path = folder.join(engine).with_extension("toml");
        ctx.may_write(&path)?;
        output::write(&path, text.as_bytes())?;
    }
    if ctx.json {
        return ctx.print_json(&serde_json::json!({ "sets": refitted.sets, "left_out": refitted.left_out }));
    }
    let mut table =
        Table::new(["set", "n", "mean %", "median %", "bias %", "AIConfigurator %", "ours there %"]);
    for set in &refitted.sets {
        table.row([
            set.set.clone(),
            set.stats.n.to_string(),
            percent(set.stats.mape),
            percent(set.stats.median_ape),
            percent(set.stats.bias),
            maybe(set.aiconfigurator_mape),
            maybe(set.ours_there_mape),
        ]);
    }
    let left_out = left_out_table(&refitted.left_out);
    ctx.print(format!("{}\n{}", table.render(ctx.colour), left_out.render(ctx.colour)))
}

fn left_out_table(lines: &[LeftOut]) -> Table {
    let mut table = Table::new([
        "without",
        "",
        "n",
        "TTFT mean %",
        "median %",
        "bias %",
        "TPOT mean %",
        "median %",
        "bias %",
    ]);
    for line in lines {
        let mut cells = vec![line.kind.to_owned(), line.name.clone(), line.rows.to_string()];
        for stats in [&line.ttft, &line.tpot] {
            let own = stats.as_ref().map(|own| [own.mape, own.median_ape, own.bias].map(percent));
            cells.extend(own.unwrap_or_default());
        }
        table.row(cells);
    }
    table
}

fn percent(value: f64) -> String {
    format!("{:.1}", value * 100.0)
}

fn maybe(value: Option<f64>) -> String {
    value.map_or(String::new(), percent)
}

/// The verdict on a set.
fn verdict(line: &Line) -> &'static str {
    match (line.bar, line.breached) {
        (None, _) => "",
        (Some(_), false) => "ok",
        (Some(_), true) => "BREACHED",
    }
}

fn error_table(lines: &[Line]) -> Table {
    let mut table = Table::new([
        "set",
        "n",
        "mean %",
        "median %",
        "bias %",
        "p90 %",
        "k-fold %",
        "source out %",
        "its bar %",
        "one constant %",
        "Calculon %",
        "vTrain %",
        "AIConfigurator %",
        "ours there %",
        "bar %",
        "",
    ]);
    for line in lines {
        let mut mean = percent(line.stats.mape);
        let mut bar = maybe(line.bar);
        if let Some(accuracy) = line.balanced_accuracy {
            mean = format!("{} wrong", percent(1.0 - accuracy));
            bar = line.bar.map_or(String::new(), |bar| format!("{} wrong", percent(1.0 - bar)));
        }
        table.row([
            line.set.clone(),
            line.stats.n.to_string(),
            mean,
            percent(line.stats.median_ape),
            percent(line.stats.bias),
            percent(line.stats.p90),
            maybe(line.k_fold_mape),
            maybe(line.leave_one_source_out_mape),
            maybe(line.left_out_bar),
            maybe(line.one_constant_mape),
            maybe(line.calculon_mape),
            maybe(line.vtrain_mape),
            maybe(line.aiconfigurator_mape),
            maybe(line.ours_on_aiconfigurators_mape),
            bar,
            verdict(line).to_owned(),
        ]);
    }
    table
}

fn worst_table(lines: &[Line]) -> Table {
    let mut table = Table::new(["set", "predicted", "measured", "worst row"]);
    for line in lines {
        if let Some(worst) = &line.worst {
            table.row([
                line.set.clone(),
                format!("{:.4}", worst.predicted),
                format!("{:.4}", worst.measured),
                worst.configuration.clone(),
            ]);
        }
    }
    table
}

fn summary(ctx: &Context, truth: &Truth, outcome: &ValidationOutcome) -> String {
    let mut text = error_table(&outcome.lines).render(ctx.colour);
    text.push('\n');
    text.push_str(&worst_table(&outcome.lines).render(ctx.colour));
    text.push('\n');
    for line in &outcome.lines {
        if let Some(scatter) = line.between_neighbours_mape {
            text.push_str(&format!(
                "{}: between its neighbours in size a row errs by {} %, which no law of the size can explain\n",
                line.set,
                percent(scatter)
            ));
        }
    }
    for check in &outcome.codecs {
        let verdict = match check.agrees {
            Some(true) => "agrees",
            Some(false) => "DISAGREES",
            None => "not asked",
        };
        text.push_str(&format!("{} with {}: {verdict} ({})\n", check.name, check.decoder, check.remark));
    }
    text.push_str(&room(outcome));
    text.push_str(&counts(truth, outcome));
    text
}

/// How well the memory model tells runs that ran from runs that did not, and the
/// first of those it takes for the other.
fn room(outcome: &ValidationOutcome) -> String {
    let capacity = &outcome.capacity;
    let Some(accuracy) = capacity.balanced_accuracy() else { return String::new() };
    let mut text = format!(
        "memory: {} of {} runs that ran fit, {} of {} that ran out of it do not; balanced accuracy {} %\n",
        capacity.fitted_right(),
        capacity.fitted,
        capacity.failed_right(),
        capacity.failed,
        percent(accuracy)
    );
    for (words, wrong) in [
        ("ran, but would not fit", &capacity.wrong_fits),
        ("ran out, but would fit", &capacity.wrong_failures),
    ] {
        if let Some(first) = wrong.first() {
            text.push_str(&format!("{words}: {}, the first {first}\n", wrong.len()));
        }
    }
    text
}

/// What was read and what was not, so that nothing is dropped in silence.
fn counts(truth: &Truth, outcome: &ValidationOutcome) -> String {
    let unscored: usize = outcome.lines.iter().map(|line| line.unscored).sum();
    let mut text = format!(
        "{} runs, {} out of memory, {} collectives; {} malformed rows skipped, {} incomplete, {} repeated, \
         {unscored} not scored\n",
        truth.runs.len(),
        truth.failures.len(),
        truth.measurements.len() + truth.simulated.pairs.len(),
        truth.malformed.len(),
        truth.incomplete.len(),
        truth.repeated,
    );
    for problem in &truth.incomplete {
        text.push_str(&format!("incomplete: {problem}\n"));
    }
    for line in outcome.lines.iter().filter(|line| line.unscored > 0) {
        let why = line.unscored_because.as_deref().unwrap_or("no reason");
        text.push_str(&format!("not scored: {} of {}, the first because {why}\n", line.unscored, line.set));
    }
    text
}

fn changes(ctx: &Context, refit: &validate::Refit) -> String {
    let mut table = Table::new(["constant", "committed", "refitted", "change %"]);
    for change in &refit.changes {
        let relative = if change.committed == 0.0 { 0.0 } else { change.refitted / change.committed - 1.0 };
        table.row([
            change.constant.clone(),
            format!("{:.4}", change.committed),
            format!("{:.4}", change.refitted),
            percent(relative),
        ]);
    }
    let mut errors = Table::new(["set", "mean % refitted"]);
    for line in refit.lines.iter().filter(|line| line.fitted) {
        errors.row([line.set.clone(), percent(line.stats.mape)]);
    }
    format!("\n{}\n{}", table.render(ctx.colour), errors.render(ctx.colour))
}

fn write_files(folder: &std::path::Path, truth: &Truth, outcome: &ValidationOutcome) -> Result<(), Failure> {
    let failed = |error: csv::Error| Failure::run(format_args!("cannot write a table: {error}"));
    let mut errors = csv::Writer::from_writer(Vec::new());
    let table = error_table(&outcome.lines);
    errors.write_record(table.headers()).map_err(failed)?;
    for row in table.rows() {
        errors.write_record(row).map_err(failed)?;
    }
    let mut pairs = csv::Writer::from_writer(Vec::new());
    pairs.write_record(["set", "configuration", "predicted", "measured", "error"]).map_err(failed)?;
    for (set, rows) in &outcome.pairs {
        for pair in rows {
            pairs
                .write_record([
                    set,
                    &pair.what,
                    &pair.predicted.to_string(),
                    &pair.measured.to_string(),
                    &pair.error().to_string(),
                ])
                .map_err(failed)?;
        }
    }
    let mut problems = csv::Writer::from_writer(Vec::new());
    problems.write_record(["file", "line", "column", "message"]).map_err(failed)?;
    for problem in truth.malformed.iter().chain(&truth.incomplete) {
        problems
            .write_record([
                &problem.file,
                &problem.line.to_string(),
                &problem.column.to_string(),
                &problem.message,
            ])
            .map_err(failed)?;
    }
    for (name, writer) in [("errors.csv", errors), ("pairs.csv", pairs), ("problems.csv", problems)] {
        let bytes =
            writer.into_inner().map_err(|e| Failure::run(format_args!("cannot write {name}: {e}")))?;
        output::write(&folder.join(name), &bytes)?;
    }
    page::page(truth, outcome, &error_table(&outcome.lines)).write(&folder.join("report.html"))
}
