//! `trinity serve codec`: what a codec of KV caches buys, as a map.

use super::asked::{What, refused};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::plot::{Axis, Mark, Plot, Series};
use crate::report::Report;
use crate::table::{Table, sig3};
use std::path::PathBuf;
use trinity_study::serving::coded::{Cell, Map, MapRequest, Place, Ratio, Verdict, map};
use trinity_study::serving::library::Library;

/// Map what coding KV caches buys over context length and concurrency
///
/// Four places for the codec: caches coded in the GPU's memory, kept in host
/// memory or on disk between requests, and sent coded from workers that read
/// prompts to workers that decode. Each cell plays the same load with and
/// without it; intervals move the engine's constants by what they were wrong by
/// on models that the fit did not see, and the codec's speed by a tenth.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  trinity serve codec Llama-3.1-70B --gpu h200-sxm --tensor 4
  trinity serve codec Llama-3.1-70B --codec line-lanes --codecs-per-gpu 256 --out map
  trinity serve codec Qwen3-32B --tensor 2 --contexts 4096,32768 --concurrencies 8,64 --json

line-h200 are kernels on a GPU's multiprocessors, measured on an H200
(validation/data/h200/line.json); line-lanes and line-rtl are silicon. What the loss of a codec does
to answers was measured by `trinity eval --kv` on two small models; `--recorded FILE` takes what it
wrote (`--json`) of the model that is served.")]
pub struct CodecArgs {
    #[command(flatten)]
    what: What,
    /// GPUs that share each layer
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tensor: u32,
    /// Prompt lengths
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1024,4096,16384,65536")]
    contexts: Vec<u32>,
    /// Requests in flight
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8,32,128")]
    concurrencies: Vec<u32>,
    /// Bits of a coded value
    #[arg(long, value_name = "BITS", default_value_t = 3.0)]
    bits: f64,
    /// A codec: a built-in name (`trinity config list`, codecs) or a .toml file
    #[arg(long, value_name = "NAME", default_value = "line-h200")]
    codec: String,
    /// How many of it a GPU has
    #[arg(long, value_name = "N", default_value_t = 132.0)]
    codecs_per_gpu: f64,
    /// Read bandwidth of disks, for each GPU
    #[arg(long, value_name = "GB/S", default_value_t = 7.0)]
    disk: f64,
    /// Share of a prompt whose cache is kept in host memory or on disk
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    reused: f64,
    /// What `trinity eval --kv CODEC@BITS --json` wrote of this model
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    recorded: Vec<PathBuf>,
    /// Also write report.html here
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub fn run(args: &CodecArgs, library: &Library, ctx: &Context) -> Result<(), Failure> {
    let request = MapRequest {
        ask: args.what.ask(),
        contexts: args.contexts.clone(),
        concurrencies: args.concurrencies.clone(),
        tensor: args.tensor,
        bits: args.bits,
        codec: args.codec.clone(),
        codecs_per_gpu: args.codecs_per_gpu,
        disk_gb_per_s: args.disk,
        reused: args.reused,
        recorded: args.recorded.clone(),
    };
    let map = map(library, &request).map_err(refused)?;
    ctx.show(&map, || text(&map, ctx.colour))?;
    if let Some(folder) = &args.out {
        output::lock(folder, "serve-codec")?;
        page(&map).write(&folder.join("report.html"))?;
        ctx.remark(format!("wrote {}", folder.join("report.html").display()));
    }
    Ok(())
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Enables => "runs only coded",
        Verdict::Pays => "pays",
        Verdict::Even => "even",
        Verdict::Costs => "costs",
        Verdict::DoesNotFit => "does not fit",
    }
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or(String::new(), |own| format!("{:.2} ({:.2} to {:.2})", own.value, own.low, own.high))
}

/// Where it pays, in words.
fn answer(map: &Map) -> Vec<String> {
    let mut sentences = vec![format!(
        "{} bits of {:.0} by {}, {} GB/s of 16-bit values coded and {} decoded by each GPU{}.",
        sig3(map.request.bits),
        map.stored_bits,
        map.request.codec,
        sig3(map.encode_values_per_s * 2e-9),
        sig3(map.decode_values_per_s * 2e-9),
        if map.in_software { ", on its multiprocessors" } else { ", in silicon of their own" }
    )];
    for place in Place::ALL {
        let own: Vec<&Cell> = map.cells.iter().filter(|cell| cell.place == place).collect();
        let count = |verdict| own.iter().filter(|cell| cell.verdict == verdict).count();
        let best = own
            .iter()
            .filter_map(|cell| Some((cell, cell.tokens?.value.max(cell.ttft?.value))))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let best = best.filter(|(cell, _)| cell.verdict == Verdict::Pays).map(|(cell, _)| {
            format!(
                "; most at {} tokens, {} in flight: tokens/s {}, TTFT {}",
                cell.context,
                cell.concurrency,
                ratio(cell.tokens),
                ratio(cell.ttft)
            )
        });
        sentences.push(format!(
            "{}: pays in {} of {} cells, costs in {}, runs only coded in {}{}.",
            place.name(),
            count(Verdict::Pays),
            own.len(),
            count(Verdict::Costs),
            count(Verdict::Enables),
            best.unwrap_or_default()
        ));
    }
    sentences.push(map.answers.statement.clone());
    sentences
}

fn table(map: &Map) -> Table {
    let time = |own: Option<f64>| own.map_or(String::new(), sig3);
    Table::of(&map.cells)
        .column("cache", |cell| cell.place.name())
        .column("context", |cell| cell.context)
        .column("in flight", |cell| cell.concurrency)
        .column("tokens/s", |cell| time(cell.plain.map(|own| own.tokens_per_s)))
        .column("coded", |cell| time(cell.coded.map(|own| own.tokens_per_s)))
        .column("× (interval)", |cell| ratio(cell.tokens))
        .column("TTFT ms", |cell| time(cell.plain.map(|own| own.ttft_s * 1e3)))
        .column("coded", |cell| time(cell.coded.map(|own| own.ttft_s * 1e3)))
        .column("× sooner (interval)", |cell| ratio(cell.ttft))
        .column("", |cell| word(cell.verdict))
        .end()
}

fn text(map: &Map, colour: bool) -> String {
    format!("{}\n\n{}", answer(map).join("\n"), table(map).render(colour))
}

fn page(map: &Map) -> Report {
    let mut report = Report::new(format!("{}: what coding its KV cache buys", map.request.ask.model));
    report.heading("Answer").paragraphs(answer(map));
    for place in Place::ALL {
        let gain: fn(&Cell) -> Option<Ratio> = match place {
            Place::Hbm => |cell: &Cell| cell.tokens,
            _ => |cell: &Cell| cell.ttft,
        };
        let what = if place == Place::Hbm {
            "tokens per second, coded over not"
        } else {
            "TTFT, not coded over coded"
        };
        // One line for each number in flight.
        let series = map.request.concurrencies.iter().map(|&concurrency| {
            let cells =
                map.cells.iter().filter(|cell| cell.place == place && cell.concurrency == concurrency);
            let points = cells.filter_map(|cell| Some((f64::from(cell.context), gain(cell)?.value)));
            Series::new(format!("{concurrency} in flight"), points, Mark::Line)
        });
        let series = series.filter(|series| !series.points.is_empty());
        let plot = Plot::new(Axis::log("context, tokens"), Axis::log(what), series);
        if !plot.series.is_empty() {
            report.plot(format!("Cache {}: {what}", place.name()), &plot);
        }
    }
    report.add("Every cell", &table(map));
    report
}
