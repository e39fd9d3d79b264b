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
use trinity_validation::score::Stats;
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
    let truth = Truth::read(&request).map_err(Failure::input)?;
    for problem in &truth.malformed {
        ctx.remark(format!("skipped: {problem}"));
    }
    if args.well_known {
        let table = well_known::table(&truth.calibrations).map_err(Failure::input)?;
        return ctx.show(&table, || well_known_text(&table));
    }
    if let Some(path) = &args.errors {
        ctx.may_write(path)?;
        let table = trinity_study::measured::written(&trinity_validation::errors::by_question(&truth));
        output::write(path, table.as_bytes())?;
        ctx.remark(format!("wrote {}", path.display()));
        return Ok(());
    }
    if args.constants {
        let list = constants::constants(&truth).map_err(Failure::input)?;
        return ctx.show(&list, || constants_table(&list).render(ctx.colour));
    }
    if let Some(folder) = &args.fit_engines {
        return fit_engines(ctx, args, folder);
    }
    if args.leave_out {
        let lines = serving::leave_out(&truth.services, &ctx.watch()).map_err(Failure::input)?;
        return ctx.show(&lines, || left_out_table(&lines).render(ctx.colour));
    }
    let outcome = validate::validate(&truth).map_err(Failure::input)?;
    let refitted = match args.fit {
        true => Some(validate::refit(&truth).map_err(Failure::input)?),
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
    let end = |end: Option<f64>| end.map_or("open".into(), sig3);
    Table::of(list)
        .column("constant", |constant| &constant.path)
        .column("value", |constant| sig3(constant.value))
        .column("interval", |constant| format!("{} to {}", end(constant.low), end(constant.high)))
        .column("", |constant| if constant.is_identified() { "" } else { "weak" })
        .column("rows", |constant| constant.rows)
        .column("from", |constant| &constant.from)
        .column("meaning", |constant| constant.meaning)
        .end()
}

/// Fits, writes the files, and judges them.
fn fit_engines(ctx: &Context, args: &Args, folder: &Path) -> Result<(), Failure> {
    let refitted = serving::refit(&args.serving, folder, &ctx.watch()).map_err(Failure::input)?;
    for (engine, text) in &refitted.files {
        let path = folder.join(engine).with_extension("toml");
        ctx.may_write(&path)?;
        output::write(&path, text.as_bytes())?;
    }
    let table = Table::of(&refitted.sets)
        .column("set", |set| &set.set)
        .column("n", |set| set.stats.n)
        .column("mean %", |set| percent(set.stats.mape))
        .column("median %", |set| percent(set.stats.median_ape))
        .column("bias %", |set| percent(set.stats.bias))
        .column("AIConfigurator %", |set| maybe(set.aiconfigurator_mape))
        .column("ours there %", |set| maybe(set.ours_there_mape))
        .end();
    let left_out = left_out_table(&refitted.left_out);
    let said = serde_json::json!({ "sets": refitted.sets, "left_out": refitted.left_out });
    ctx.show(&said, || format!("{}\n{}", table.render(ctx.colour), left_out.render(ctx.colour)))
}

fn left_out_table(lines: &[LeftOut]) -> Table {
    let of = |stats: &Option<Stats>, pick: fn(&Stats) -> f64| maybe(stats.as_ref().map(pick));
    Table::of(lines)
        .column("without", |line| line.kind)
        .column("", |line| &line.name)
        .column("n", |line| line.rows)
        .column("TTFT mean %", |line| of(&line.ttft, |own| own.mape))
        .column("median %", |line| of(&line.ttft, |own| own.median_ape))
        .column("bias %", |line| of(&line.ttft, |own| own.bias))
        .column("TPOT mean %", |line| of(&line.tpot, |own| own.mape))
        .column("median %", |line| of(&line.tpot, |own| own.median_ape))
        .column("bias %", |line| of(&line.tpot, |own| own.bias))
        .end()
}

fn percent(value: f64) -> String {
    format!("{:.1}", value * 100.0)
}

fn maybe(value: Option<f64>) -> String {
    value.map_or(String::new(), percent)
}

fn verdict(line: &Line) -> &'static str {
    match (line.bar, line.breached) {
        (None, _) => "",
        (Some(_), false) => "ok",
        (Some(_), true) => "BREACHED",
    }
}

fn error_table(lines: &[Line]) -> Table {
    // Of runs that fit or do not, what counts is how many are taken for the other.
    let wrong = |share: f64| format!("{} wrong", percent(1.0 - share));
    let mean = |line: &Line| line.balanced_accuracy.map_or_else(|| percent(line.stats.mape), wrong);
    let bar = |line: &Line| match line.balanced_accuracy {
        Some(_) => line.bar.map_or(String::new(), wrong),
        None => maybe(line.bar),
    };
    Table::of(lines)
        .column("set", |line| &line.set)
        .column("n", |line| line.stats.n)
        .column("mean %", mean)
        .column("median %", |line| percent(line.stats.median_ape))
        .column("bias %", |line| percent(line.stats.bias))
        .column("p90 %", |line| percent(line.stats.p90))
        .column("k-fold %", |line| maybe(line.k_fold_mape))
        .column("source out %", |line| maybe(line.leave_one_source_out_mape))
        .column("its bar %", |line| maybe(line.left_out_bar))
        .column("one constant %", |line| maybe(line.one_constant_mape))
        .column("Calculon %", |line| maybe(line.calculon_mape))
        .column("vTrain %", |line| maybe(line.vtrain_mape))
        .column("AIConfigurator %", |line| maybe(line.aiconfigurator_mape))
        .column("ours there %", |line| maybe(line.ours_on_aiconfigurators_mape))
        .column("bar %", bar)
        .column("", verdict)
        .end()
}

fn worst_table(lines: &[Line]) -> Table {
    let worst = lines.iter().filter_map(|line| Some((&line.set, line.worst.as_ref()?)));
    Table::of(worst)
        .column("set", |(set, _)| set)
        .column("predicted", |(_, worst)| format!("{:.4}", worst.predicted))
        .column("measured", |(_, worst)| format!("{:.4}", worst.measured))
        .column("worst row", |(_, worst)| &worst.configuration)
        .end()
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
    let change = |committed: f64, refitted: f64| match committed {
        0.0 => 0.0,
        committed => refitted / committed - 1.0,
    };
    let table = Table::of(&refit.changes)
        .column("constant", |own| &own.constant)
        .column("committed", |own| format!("{:.4}", own.committed))
        .column("refitted", |own| format!("{:.4}", own.refitted))
        .column("change %", |own| percent(change(own.committed, own.refitted)))
        .end();
    let errors = Table::of(refit.lines.iter().filter(|line| line.fitted))
        .column("set", |line| &line.set)
        .column("mean % refitted", |line| percent(line.stats.mape))
        .end();
    format!("\n{}\n{}", table.render(ctx.colour), errors.render(ctx.colour))
}

fn write_files(folder: &Path, truth: &Truth, outcome: &ValidationOutcome) -> Result<(), Failure> {
    let errors = error_table(&outcome.lines);
    let pairs = outcome.pairs.iter().flat_map(|(set, rows)| rows.iter().map(move |pair| (set, pair)));
    let pairs = Table::of(pairs)
        .column("set", |(set, _)| set)
        .column("configuration", |(_, pair)| &pair.what)
        .column("predicted", |(_, pair)| pair.predicted)
        .column("measured", |(_, pair)| pair.measured)
        .column("error", |(_, pair)| pair.error())
        .end();
    let problems = Table::of(truth.malformed.iter().chain(&truth.incomplete))
        .column("file", |problem| &problem.file)
        .column("line", |problem| problem.line)
        .column("column", |problem| problem.column)
        .column("message", |problem| &problem.message)
        .end();
    for (name, table) in [("errors.csv", &errors), ("pairs.csv", &pairs), ("problems.csv", &problems)] {
        output::write(&folder.join(name), &table.csv()?)?;
    }
    page::page(truth, outcome, &errors).write(&folder.join("report.html"))
}
