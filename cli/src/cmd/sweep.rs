//! `trinity sweep`: area budgets, Pareto fronts, and the headline they carry.

mod asked;
mod bench;
mod die;
mod files;
pub mod fronts;
mod page;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod serving;
mod trace;

pub use asked::quantity;

use crate::input;
use crate::json_path::JsonPath;
use crate::output::{self, Named};
use crate::table::grouped;
use crate::{context::Context, failure::Failure};
use asked::{SweepArgs, TOP};
use clap::Subcommand;
use files::{Shard, State};
use rows::RowsWriter;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trinity_sim::sweep::{Accumulator, evaluate, run as run_blocks};
use trinity_study::calibration::Measurements;
use trinity_study::sensitivity::sensitivity;
use trinity_study::sweep::{Study, SweepRequest, axes_csv, pareto_csv, point_row};

const AFTER_HELP: &str = "\
Examples:
  trinity sweep                                   the LLaMA-7B study of LLM.265
  trinity sweep sweeps/kv-spill --top 5           another that comes with the command
  trinity sweep my-study.toml --out out/mine      your own
  trinity sweep --budget \"30000 mm2\"              what fits into so much silicon
  trinity sweep --set \"study.cluster.nic.area=100 mm2\"
  trinity sweep sweeps/kv-spill --calibration validation/data/h200/calibration.toml
  trinity sweep sweeps/trained-gradients --calibration runs/coded/summary.json    a training run's
  trinity sweep explain 1500                      one point, with the formula behind each line
  trinity sweep sweeps/serving-kv                 requests that arrive, promises kept, tokens per dollar

A large sweep on many machines, then one result, the same bytes for any number of shards:
  Slurm:       #SBATCH --array=0-63
               trinity sweep big.toml --out out/big --shard $SLURM_ARRAY_TASK_ID/64
  Kubernetes:  completionMode: Indexed, completions: 64
               trinity sweep big.toml --out /data/big --shard $JOB_COMPLETION_INDEX/64
  then         trinity sweep merge out/big --out out/big
A run that was killed goes on where it stopped when started again with the same --out.";

/// Sweep GPUs, NICs and codecs over an area budget and find the Pareto fronts
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    sweep: SweepArgs,
    /// Folder for points.csv, pareto.csv, pareto.svg and report.html (default: out/sweep/STUDY, and
    /// for a study that --set, --budget, --calibration or --top change, one of its own beside it)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Do only part I of N, numbered from 0, and leave it for `merge`; `slurm`
    /// takes both from the array that the task is of
    #[arg(long, value_name = "I/N", value_parser = crate::shards::parse)]
    shard: Option<Shard>,
    /// Sweep more than 10^11 points, whatever time that takes
    #[arg(long)]
    yes: bool,
    /// Write every point to points.csv: `auto` up to a million
    #[arg(long, value_enum, default_value_t = Points::Auto)]
    points: Points,
    /// Form of the points: points.csv, or points.parquet in a build with `--features parquet`
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Points {
    Auto,
    All,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Csv,
    Parquet,
}

impl Format {
    /// Parquet is a library of its own size, so it is there on request only.
    fn check(self) -> Result<(), Failure> {
        if self == Self::Parquet && cfg!(not(feature = "parquet")) {
            return Err(Failure::input("this build of trinity writes no Parquet")
                .help("build it with `cargo build --release --features parquet`, or leave --format at csv"));
        }
        Ok(())
    }

    /// Joins the rows of all shards into the file of this form.
    fn join_rows(self, study: &Study, states: &[(PathBuf, State)], out: &Path) -> Result<(), Failure> {
        #[cfg(feature = "parquet")]
        if self == Self::Parquet {
            return parquet::join_rows(study, states, &out.join("points.parquet"));
        }
        rows::join_rows(study, states, &out.join("points.csv"))
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Put the shards of a sweep together
    #[command(after_help = "\
Example:
  trinity sweep merge out/big --out out/big")]
    Merge {
        /// Folders that hold the shards
        #[arg(required = true, value_name = "DIR")]
        folders: Vec<PathBuf>,
        /// Folder for points.csv, pareto.csv, pareto.svg and report.html (default: the sweep's own)
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Form of the points: points.csv, or points.parquet in a build with `--features parquet`
        #[arg(long, value_enum, default_value_t = Format::Csv)]
        format: Format,
    },
    /// Print one point's full breakdown with the formula behind each line
    #[command(after_help = "\
Examples:
  trinity sweep explain 1500
  trinity sweep explain 0 sweeps/kv-spill
  trinity sweep explain 1500 --trace trace.json     then open it in ui.perfetto.dev")]
    Explain {
        /// The point's index, as in points.csv
        index: u64,
        #[command(flatten)]
        sweep: SweepArgs,
        /// Write the point's timeline in Chrome-trace form
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Write a page with the lines and, of a GPU by its parts, a picture of the die
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
    /// Measure how many configurations a second one core evaluates, and what more cores bring
    #[command(after_help = "\
Example:
  trinity sweep bench --seconds 5")]
    Bench(bench::BenchArgs),
}

/// Points up to which points.csv is written without being asked for.
const AUTO_POINTS: u64 = 1_000_000;
/// Points beyond which a sweep is asked for twice: hours of any machine.
const MANY_POINTS: u64 = 100_000_000_000;
/// How often a running sweep writes down where it is.
const CHECKPOINT: Duration = Duration::from_secs(2);

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    match &args.action {
        None => sweep(args, ctx),
        Some(Action::Merge { folders, out, format }) => merge(folders, out.as_deref(), *format, ctx),
        Some(Action::Explain { index, sweep, trace, report }) => {
            explain(*index, sweep, trace.as_deref(), report.as_deref(), ctx)
        }
        Some(Action::Bench(args)) => bench(args, ctx),
    }
}

fn load(args: &SweepArgs) -> Result<Study, Failure> {
    let mut sets = args.sets.clone();
    sets.extend(args.budget.map(|budget| format!("budget={} mm2", budget.mm2())));
    open(&args.sweep, &sets, args.calibration.as_deref(), usize::from(args.top))
}

fn open(sweep: &str, sets: &[String], calibration: Option<&Path>, top: usize) -> Result<Study, Failure> {
    // A merge takes both from a checkpoint, and not from its arguments.
    std::iter::once(Path::new(sweep)).chain(calibration).for_each(input::protect);
    let study = Study::load(&SweepRequest {
        sweep: sweep.into(),
        sets: sets.to_vec(),
        top,
        ..SweepRequest::default()
    })?;
    match calibration {
        Some(path) => Ok(study.calibrated(Measurements::read(path)?)?),
        None => Ok(study),
    }
}

fn sweep(args: &Args, ctx: &Context) -> Result<(), Failure> {
    args.format.check()?;
    let study = load(&args.sweep)?;
    let out = args.out.clone().unwrap_or_else(|| folder(&study));
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let rows = match args.points {
        Points::All => true,
        Points::None => false,
        Points::Auto => study.plan.space.len() <= AUTO_POINTS,
    };
    warn(&study, ctx)?;
    if trinity_study::serving::serves(&study) {
        if args.shard.is_some() {
            return Err(Failure::input("a serving study is not cut into shards")
                .help("leave --shard out; it takes seconds"));
        }
        return serving::serve(&study, &out, ctx);
    }
    announce(&study, shard, args.yes, ctx)?;
    let state = run_shard(&study, shard, rows, &out, ctx)?;
    if args.shard.is_some() {
        let (points, all, path) = (state.accumulated.points, study.plan.space.len(), state.path(&out));
        ctx.remark(format!(
            "{points} of {all} points done in {}; when all shards are, run `trinity sweep merge`",
            path.display()
        ));
        let shard = JsonPath::from(path);
        return ctx.tell(&serde_json::json!({ "shard": shard, "points": points, "of": all }));
    }
    if let Err(nonsense) = study.refuse_nonsense(&state.accumulated) {
        state.discard(&out);
        return Err(nonsense.into());
    }
    let states = [(out.clone(), state)];
    finish(&study, &states, args.format, &out, ctx)?;
    states[0].1.discard(&out);
    Ok(())
}

/// Where results go that are given no place: a folder for each study, and for each way to ask it, so
/// that the next question is not refused for the sake of the last one's answer.
fn folder(study: &Study) -> PathBuf {
    let name = Path::new(&study.name).file_stem().unwrap_or_default().to_string_lossy();
    let as_it_stands =
        study.sets.is_empty() && study.measurements.is_none() && study.plan.top == usize::from(TOP);
    let asked = if as_it_stands { String::new() } else { format!("-{:.8}", study.fingerprint()) };
    Path::new("out/sweep").join(format!("{name}{asked}"))
}

/// What the study has and does not use.
fn warn(study: &Study, ctx: &Context) -> Result<(), Failure> {
    for warning in study.file.warnings(&study.document)? {
        ctx.remark(format!("warning: {warning}"));
    }
    Ok(())
}

/// Says how many points there are and how long they will take; asks before
/// it begins what would not end.
fn announce(study: &Study, shard: Shard, yes: bool, ctx: &Context) -> Result<(), Failure> {
    let range = shard.range(study.plan.space.len());
    let points = range.end - range.start;
    let time = expected_s(study, &range, ctx.threads);
    let said = format!("{} points, {} on {} threads", grouped(points), spoken(time), ctx.threads);
    if points > MANY_POINTS && !yes {
        return Err(Failure::input(format_args!("{said}: more than {} points", grouped(MANY_POINTS)))
            .help("leave out values of an axis, share the points out with --shard I/N, or say --yes"));
    }
    // Nobody waits for what takes a blink.
    if time > 2.0 {
        ctx.remark(said);
    }
    Ok(())
}

/// Seconds that a range of points takes, after a few of them.
fn expected_s(study: &Study, range: &std::ops::Range<u64>, threads: usize) -> f64 {
    const PLACES: u64 = 8;
    const EACH: u64 = 512;
    let points = range.end - range.start;
    let start = Instant::now();
    let mut seen = 0;
    for place in 0..PLACES {
        let from = range.start + points / PLACES * place;
        seen += evaluate(&study.plan, from..(from + EACH).min(range.end), |_, _, _, _| ()).points;
    }
    start.elapsed().as_secs_f64() / seen.max(1) as f64 * points as f64 / threads.max(1) as f64
}

/// A time in the unit one would say it in.
fn spoken(seconds: f64) -> String {
    const YEAR_S: f64 = 365.25 * 86_400.0;
    let (number, unit) = match seconds {
        s if s < 1.0 => return "less than a second".into(),
        s if s < 120.0 => (s, "seconds"),
        s if s < 7_200.0 => (s / 60.0, "minutes"),
        s if s < 172_800.0 => (s / 3_600.0, "hours"),
        s if s < 2.0 * YEAR_S => (s / 86_400.0, "days"),
        s => (s / YEAR_S, "years"),
    };
    format!("about {} {unit}", crate::table::sig3(number))
}

/// Evaluates a shard, going on where an interrupted run stopped.
fn run_shard(study: &Study, shard: Shard, rows: bool, out: &Path, ctx: &Context) -> Result<State, Failure> {
    let plan = &study.plan;
    let mut state = State::open(study, shard, rows, out, ctx)?;
    output::lock(out, &work(study))?;
    let (mut writer, rows_from) = RowsWriter::open(&state, out)?;
    crate::interrupt::hint(format!(
        "the same command goes on where this one is, from {}",
        state.path(out).display()
    ));
    let bar = ctx.progress(state.end - state.start, "sweeping");
    bar.set_position(state.next - state.start);
    // The first checkpoint is due at once, so that a short run can be resumed too.
    let mut written_down: Option<Instant> = None;
    let render = |block: std::ops::Range<u64>| {
        let mut bytes = Vec::new();
        let accumulated = evaluate(plan, block, |index, scenario, digits, outcome| {
            if rows {
                point_row(study, &mut bytes, index, scenario, digits, outcome);
            }
        });
        (accumulated, bytes)
    };
    if rows_from < state.next {
        ctx.remark(format!(
            "rows of points {rows_from} to {} are missing or damaged in {}; writing them again",
            state.next,
            state.rows_path(out).display()
        ));
    }
    (state.rows_bytes, state.in_blocks) = (writer.bytes(), rows);
    run_blocks(plan, rows_from..state.next, render, |block, _, bytes| -> Result<(), Failure> {
        state.rows_bytes += writer.append(&block, &bytes)?;
        Ok(())
    })?;
    run_blocks(plan, state.next..state.end, render, |block, accumulated, bytes| -> Result<(), Failure> {
        state.accumulated.merge(plan, &accumulated);
        state.next = block.end;
        state.rows_bytes += writer.append(&block, &bytes)?;
        bar.set_position(state.next - state.start);
        if written_down.is_none_or(|at| at.elapsed() >= CHECKPOINT) {
            writer.flush()?;
            state.save(out)?;
            written_down = Some(Instant::now());
        }
        Ok(())
    })?;
    writer.flush()?;
    state.save(out)?;
    bar.finish_and_clear();
    Ok(state)
}

fn merge(folders: &[PathBuf], out: Option<&Path>, format: Format, ctx: &Context) -> Result<(), Failure> {
    format.check()?;
    let mut states = files::find(folders)?;
    let first = &states[0].1;
    let study = open(&first.sweep, &first.sets, first.calibration.as_deref(), first.top)?;
    states.sort_by_key(|(_, state)| state.start);
    let missing = |from: u64, to: u64| {
        Failure::input(format_args!("points {from} to {to} are missing"))
            .help("run the missing shards, or name the folder they are in")
    };
    let (mut next, mut before): (u64, Option<PathBuf>) = (0, None);
    for (folder, state) in &states {
        let name = state.path(folder);
        if state.fingerprint != study.fingerprint() {
            return Err(Failure::input(format_args!("`{}` belongs to another sweep", name.display()))
                .help("merge shards of one sweep, made with the same --set and --top"));
        }
        if state.next < state.end {
            return Err(Failure::input(format_args!("`{}` is not finished", name.display()))
                .help("run its shard again with the same --out; it goes on where it stopped"));
        }
        if state.start > next {
            return Err(missing(next, state.start));
        }
        if let Some(earlier) = before.as_ref().filter(|_| state.start < next) {
            return Err(Failure::input(format_args!(
                "`{}` and `{}` both hold points {} to {}",
                earlier.display(),
                name.display(),
                state.start,
                next.min(state.end)
            ))
            .help("name each shard once, and shards of one cut alone"));
        }
        if state.version != states[0].1.version {
            return Err(Failure::input(format_args!(
                "`{}` was computed by another version of the model than the first shard",
                name.display()
            ))
            .help("run it again with the trinity that ran the others"));
        }
        next = state.end;
        before = Some(name);
    }
    if next != study.plan.space.len() {
        return Err(missing(next, study.plan.space.len()));
    }
    let own = folder(&study);
    finish(&study, &states, format, out.unwrap_or(&own), ctx)
}

/// The sweep as a folder of its results remembers it; a calibration shows in the fingerprint.
fn work(study: &Study) -> String {
    let sets = study.sets.iter().map(|set| format!(" --set \"{set}\"")).collect::<String>();
    format!("sweep {}{sets}, fingerprint {}", study.name, study.fingerprint())
}

/// Writes the results of whole sweeps and prints what was asked.
fn finish(
    study: &Study,
    states: &[(PathBuf, State)],
    format: Format,
    out: &Path,
    ctx: &Context,
) -> Result<(), Failure> {
    let mut accumulated = Accumulator::new(&study.plan);
    for (_, state) in states {
        accumulated.merge(&study.plan, &state.accumulated);
    }
    accumulated.sort();
    study.refuse_nonsense(&accumulated)?;
    let (answer, outcome) = (study.answer(&accumulated), study.outcome(&accumulated));
    output::lock(out, &work(study))?;
    if states.iter().all(|(_, state)| state.rows) {
        format.join_rows(study, states, out)?;
    }
    output::write(&out.join("pareto.csv"), pareto_csv(study, &accumulated, &answer).as_bytes())?;
    output::write(&out.join("axes.csv"), axes_csv(study, &accumulated).as_bytes())?;
    let picture = page::plot(study.curves(&accumulated, &answer)).svg();
    output::write(&out.join("pareto.svg"), picture.as_bytes())?;
    let sections = study.sections(&accumulated, &outcome, &sensitivity(study, &ctx.watch())?);
    page::page(&study.file.title, &sections).write(&out.join("report.html"))?;
    ctx.show(&outcome, || page::text(study.blocks(&accumulated, &outcome), ctx.colour))?;
    ctx.remark(format!("wrote {}", out.join("report.html").display()));
    Ok(())
}

fn explain(
    index: u64,
    args: &SweepArgs,
    trace: Option<&Path>,
    report: Option<&Path>,
    ctx: &Context,
) -> Result<(), Failure> {
    for (path, format) in [(trace, "JSON"), (report, "HTML")] {
        if let Some(path) = path {
            path.named_as(&[format])?;
            ctx.may_write(path)?;
        }
    }
    let study = load(args)?;
    if trinity_study::serving::serves(&study) {
        ctx.remark("one decoding step of the job as it stands; what requests see is in `trinity sweep`");
    }
    let explained = study.explain(index)?;
    let point = study.plan.space.point(index);
    let point = point.chosen().unwrap_or(point);
    if let Some(path) = trace {
        let timeline = trinity_sim::event::simulate(&point.cluster, &point.job)
            .map_err(|why| Failure::input(format_args!("no timeline for point {index}: {why}")))?;
        let text = serde_json::to_string(&trace::chrome(&timeline)).map_err(Failure::run)?;
        output::write(path, text.as_bytes())?;
        ctx.remark(format!(
            "wrote {}: {:.4} s simulated, {:.4} s in closed form",
            path.display(),
            timeline.iteration_s,
            explained.estimate.iteration_s
        ));
    }
    if let Some(path) = report {
        let (title, sections) = study.explained_sections(&explained);
        page::page(&title, &sections).write(path)?;
        ctx.remark(format!("wrote {}", path.display()));
    }
    ctx.show(&explained, || page::text(study.explained_blocks(&explained), ctx.colour))
}

fn bench(args: &bench::BenchArgs, ctx: &Context) -> Result<(), Failure> {
    let study = load(&args.sweep)?;
    if trinity_study::serving::serves(&study) {
        return serving::bench(&study, ctx);
    }
    let rates = bench::measure(&study, args, ctx.threads)?;
    ctx.show(&bench::json(&rates), || bench::text(&rates, ctx.colour))
}
