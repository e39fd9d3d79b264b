//! `trinity explore`: from tensors to a cluster, in one answer.

mod map;
mod page;
mod show;

use super::compare::Selection;
use super::encode::positive;
use super::sweep::quantity;
use crate::context::Context;
use crate::failure::Failure;
use crate::json_path::spelled;
use crate::output;
use crate::row_cache::RowCache;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use trinity_config::Area;
use trinity_study::Quality;
use trinity_study::evaluate::Probe;
use trinity_study::explore::{self, Exploration, ExploreRequest, Explored, Training};
use trinity_study::search;
use trinity_tensor::Class;
use trinity_tensor::codec::Rate;
use trinity_tensor::compare::{ComparisonRow, InputTensor};

/// Say which codec to build: on these tensors, at this quality, in this silicon, for this cluster
///
/// Measures the bits of every class of tensor at one quality, prices every codec in silicon, sweeps
/// the cluster with each of them and the measured bits, each at its best, and says which to build
/// within the budget, by how much it gains, with what odds, and on which clusters it would pay.
/// Without a budget what counts is what each mm² gives.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity explore                                 built-in tensors, Llama 3 70B on DGX H100, every codec
  trinity explore --study sweeps/llama-7b           the paper's own setting
  trinity explore --study sweeps/a100-pcie          servers of eight A100 PCIe, 100 Gbit/s cards
  trinity explore --study sweeps/nvl72              Llama 3 405B on GB200 NVL72
  trinity explore --study sweeps/kv-spill           decoding with the KV cache in the host's memory
  trinity explore --study sweeps/prefill-transfer   prompts whose KV cache is sent to other workers
  trinity explore kv.safetensors --nmse 0.01 --study sweeps/kv-spill --budget \"50000 mm2\"
  trinity explore --loss 0.02                     the quality at which a language model loses 0.02 bits per byte
  trinity explore --search --save mine.toml       let it choose the stages, too; then: encode --codec mine.toml
  trinity explore --codecs three-in-one,line,uniform+ac=codecs/line-lanes --nmse 0.02
  trinity explore --set \"study.cluster.nic.bandwidth=400 Gbit/s\" --out out/fast-wires

Codecs are those of configs/explorations/codecs.toml (`trinity config show explorations/codecs`), a
tensor codec that counts its operations (trinity-max, a profile as FILE.toml), or any tensor codec
with the silicon of a file of configs/codecs, as CODER=CODEC.

bits.csv grows as results arrive; the same command run again goes on where it stopped. study.toml is
the sweep behind the answer: `trinity sweep out/explore/llama-3-70b/study.toml` runs it again.")]
pub struct Args {
    /// Tensor files; seven captured tensors of five classes that come with the command where none is named
    #[arg(value_name = "TENSORS")]
    files: Vec<PathBuf>,
    /// Normalized mean squared error that every codec meets (default: 0.01; what training sends has
    /// the bits of recorded training runs unless this is given)
    #[arg(long, value_name = "NMSE", value_parser = positive, conflicts_with = "bits")]
    nmse: Option<f64>,
    /// Bits per value that every codec gets, instead of an error
    #[arg(long, value_name = "BITS", value_parser = positive)]
    bits: Option<f64>,
    /// Bits per byte that a model may lose with any one class coded, instead of an error: the built-in
    /// language model with weights, KV cache or activations coded, recorded runs with gradients coded
    #[arg(long, value_name = "BITS_PER_BYTE", value_parser = positive, conflicts_with_all = ["bits", "nmse"])]
    loss: Option<f64>,
    /// The cluster and its job: a name from `trinity config list sweeps`, or a path that ends in .toml
    #[arg(long, value_name = "SWEEP", default_value = explore::STUDY)]
    study: String,
    /// Silicon of the whole cluster, such as "50000 mm2" (default: the study's)
    #[arg(long, value_name = "AREA", value_parser = quantity::<Area>)]
    budget: Option<Area>,
    /// Draws of everything uncertain together, from which odds are taken
    #[arg(long, value_name = "COUNT", default_value_t = explore::DRAWS)]
    draws: usize,
    /// Places along the map of where a codec pays; 0 draws none
    #[arg(long, value_name = "COUNT", default_value_t = explore::CELLS)]
    cells: usize,
    /// Codecs, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "CODECS")]
    codecs: Vec<String>,
    /// Build codecs at this node, such as 5nm
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Override a value of the study; may be repeated
    #[arg(long = "set", value_name = "PATH=VALUE")]
    sets: Vec<String>,
    /// Search the design space of the chain first: bits, mm² and pJ of every combination of stages;
    /// designs that no other beats take part beside the codecs
    #[arg(long, conflicts_with = "bits")]
    search: bool,
    /// The alternatives of each stage: a name from `trinity config list designs`, or a path that ends in .toml
    #[arg(long, value_name = "DESIGNS", default_value = search::DESIGNS, requires = "search")]
    designs: String,
    /// Write the searched design that does best in the cluster as a profile that `encode --codec` takes
    #[arg(long, value_name = "FILE", requires = "search")]
    save: Option<PathBuf>,
    /// Treat every tensor as of this class
    #[arg(long, value_name = "CLASS")]
    class: Option<Class>,
    /// Only tensors whose name contains this
    #[arg(long, value_name = "TEXT")]
    tensor: Option<String>,
    /// Folder for bits.csv, study.toml and report.html (default: out/explore/STUDY, and with tensors
    /// of your own one beside it that has their name)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let input_tensors = if args.files.is_empty() {
        explore::built_in()?
    } else {
        let tensor = args.tensor.as_deref();
        Selection { files: &args.files, class: args.class, tensor, strict: false }.input_tensors(ctx)?
    };
    let out = args.out.clone().unwrap_or_else(|| folder(args));
    output::lock(&out, &work(args))?;
    let quality = quality(args, &out, &input_tensors, ctx)?;
    let searched = if args.search { Some(designs(args, &out, &input_tensors, &quality, ctx)?) } else { None };
    let mut candidates = args.codecs.clone();
    if let Some(searched) = &searched {
        if candidates.is_empty() {
            let known = explore::choices(explore::EXPLORATION)?.candidates;
            candidates.extend(known.into_iter().map(|candidate| candidate.name));
        }
        candidates.extend(searched.files.iter().map(|(path, _)| path.display().to_string()));
    }
    let kept: RowCache<ComparisonRow> = RowCache::open(Some(&out), "bits.csv", |_| true)?;
    let request = ExploreRequest {
        input_tensors: &input_tensors,
        quality,
        study: args.study.clone(),
        sets: args.sets.clone(),
        budget_mm2: args.budget.map(Area::mm2),
        candidates,
        node: args.node.clone(),
        training: Training::of(args.nmse.is_none() && args.bits.is_none(), args.loss),
        cells: args.cells,
        draws: args.draws,
        earlier: kept.earlier(),
    };
    let explored = explore::explore(&request, &|row| kept.add(row), &ctx.watch())?;
    let Explored { exploration, comparison, .. } = &explored;
    kept.finish(&comparison.all)?;
    output::write(&out.join("study.toml"), exploration.sweep_toml.as_bytes())?;
    page::page(&explored, searched.as_ref().map(|searched| &searched.found))
        .write(&out.join("report.html"))?;
    let picture = page::picture(exploration).svg();
    output::write(&out.join("explore.svg"), picture.as_bytes())?;
    if let Some(regime) = &exploration.regime {
        output::write(&out.join("map.svg"), map::svg(regime).as_bytes())?;
    }
    match (&searched, ctx.json) {
        (None, true) => ctx.print_json(exploration)?,
        (Some(searched), true) => {
            let front: Vec<&search::SearchRow> = searched.found.front.iter().map(|(row, _)| row).collect();
            let designs = serde_json::json!({ "designs": searched.found.designs, "front": front });
            ctx.print_json(&serde_json::json!({ "search": designs, "exploration": exploration }))?;
        }
        (None, false) => ctx.print(show::text(exploration, ctx.colour))?,
        (Some(searched), false) => {
            let text = show::text(exploration, ctx.colour) + &show::search(&searched.found, ctx.colour);
            ctx.print(text)?;
        }
    }
    if let (Some(path), Some(searched)) = (&args.save, &searched) {
        save(path, searched, exploration, ctx)?;
    }
    ctx.remark(format!("wrote {}", out.join("report.html").display()));
    Ok(())
}

/// What every codec has to meet; runs the language model where a loss is asked
/// for, and keeps each run in loss.csv.
fn quality(
    args: &Args,
    out: &Path,
    input_tensors: &[InputTensor],
    ctx: &Context,
) -> Result<Quality, Failure> {
    let Some(loss) = args.loss else {
        return Ok(match (args.nmse, args.bits) {
            (_, Some(bits)) => Rate::Bits(bits),
            (Some(nmse), None) => Rate::Nmse(nmse),
            (None, None) => explore::QUALITY,
        }
        .into());
    };
    let kept: RowCache<Probe> = RowCache::open(Some(out), "loss.csv", |_| true)?;
    let earlier = kept.earlier();
    let new = RefCell::new(Vec::new());
    let keep = |probe: &Probe| {
        kept.add(probe);
        new.borrow_mut().push(probe.clone());
    };
    let quality = explore::at_loss(loss, input_tensors, earlier, &keep, &ctx.watch())?;
    let rows: Vec<Probe> = earlier.iter().cloned().chain(new.into_inner()).collect();
    kept.finish(&rows)?;
    Ok(quality)
}

/// What a search found, and the profiles it left for the cluster to judge.
struct Searched {
    found: search::Found,
    files: Vec<(PathBuf, String)>,
}

/// Designs that go on into the cluster.
const CARRIED: usize = 4;

fn designs(
    args: &Args,
    out: &Path,
    input_tensors: &[InputTensor],
    quality: &Quality,
    ctx: &Context,
) -> Result<Searched, Failure> {
    let kept: RowCache<search::SearchRow> = RowCache::open(Some(out), "designs.csv", |_| true)?;
    let (technology, throughput_gbps) = search::usual_silicon(&explore::choices(explore::EXPLORATION)?)?;
    let request = search::SearchRequest {
        input_tensors,
        quality: quality.clone(),
        designs: args.designs.clone(),
        technology,
        throughput_gbps,
        earlier: kept.earlier(),
    };
    let start = std::time::Instant::now();
    let found = search::search(&request, &|row| kept.add(row), &ctx.watch())?;
    kept.finish(&found.rows)?;
    ctx.remark(format!(
        "{} designs in {:.1} s, {} that no other beats",
        found.designs,
        start.elapsed().as_secs_f64(),
        found.front.len()
    ));
    let mut files = Vec::new();
    for (at, (_, design)) in search::spread(&found.front, CARRIED).into_iter().enumerate() {
        let path = out.join(format!("design-{}.toml", at + 1));
        output::write(&path, design.text.as_bytes())?;
        files.push((path, design.text.clone()));
    }
    Ok(Searched { found, files })
}

/// Writes the design that stands best in the cluster.
fn save(path: &Path, searched: &Searched, exploration: &Exploration, ctx: &Context) -> Result<(), Failure> {
    let stem = |file: &PathBuf| file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let best = exploration.rankings.iter().filter(|ranking| ranking.value.is_some()).find_map(|ranking| {
        searched.files.iter().find(|(file, _)| stem(file).as_ref() == Some(&ranking.scenario))
    });
    let Some((file, text)) = best else {
        return Err(Failure::run("no design of the search fits into the budget")
            .help("give a larger --budget; the designs are in designs.csv"));
    };
    output::write(path, text.as_bytes())?;
    ctx.remark(format!("wrote {} ({})", path.display(), file.display()));
    Ok(())
}

/// Where results go that are given no place: a folder for each study, and for the user's own tensors
/// one that has the first one's name and how many follow.
fn folder(args: &Args) -> PathBuf {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut name = stem(Path::new(&args.study));
    if let [first, rest @ ..] = args.files.as_slice() {
        name = format!("{name}-{}", stem(first));
        if !rest.is_empty() {
            name = format!("{name}-and-{}-more", rest.len());
        }
    }
    Path::new("out/explore").join(name)
}

/// The exploration as a folder of its results remembers it: what is asked of
/// the same tensors may change, rows follow from what they are of.
fn work(args: &Args) -> String {
    let files: Vec<String> = args.files.iter().map(|file| spelled(file)).collect();
    let files = if files.is_empty() { explore::BUILT_IN.to_owned() } else { files.join(" ") };
    format!("explore {files} --study {}", args.study)
}
