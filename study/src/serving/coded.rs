//! What a codec buys a service: its KV cache coded in the GPU's memory, in
//! host memory, on disk, and on the way from workers that read prompts to those
//! that decode, over context length and concurrency.
//!
//! Each cell is the same load played with and without the codec. Its interval
//! is what the gain becomes when an engine's constants and the codec's speed
//! are moved by what they were wrong by. Must not know how a map is drawn.

use super::library::Library;
use super::loss::{self, Answers};
use super::plan::Refused;
use super::platform::{Ask, Platform};
use crate::config::CodecFile;
use crate::{Error, parallel};
use serde::Serialize;
use std::path::PathBuf;
use trinity_config::Document;
use trinity_sim::Codec;
use trinity_sim::serving::ServingError;
use trinity_sim::serving::replica::{
    ClosedLoop, CodedCache, EngineConstants, Handoff, Load, Placement, PrefillWorkers, Replayed, Reuse,
    Scene, StepTable, play,
};

/// The deployments and loads that a map of where a codec pays is asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapRequest {
    #[serde(flatten)]
    pub ask: Ask,
    pub contexts: Vec<u32>,
    pub concurrencies: Vec<u32>,
    /// GPUs of the replica, which share each layer.
    pub tensor: u32,
    /// Bits of a coded value.
    pub bits: f64,
    /// A codec's file, and how many of it a GPU has.
    pub codec: String,
    pub codecs_per_gpu: f64,
    /// The rate of a disk, for each GPU.
    pub disk_gb_per_s: f64,
    /// Share of a prompt whose cache lies outside the GPU.
    pub reused: f64,
    /// What `trinity eval --kv` wrote of this model, in the place of built-in
    /// recordings of others.
    pub recorded: Vec<PathBuf>,
}

/// Where the coded cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    Hbm,
    Host,
    Disk,
    Wire,
}

impl Place {
    pub const ALL: [Self; 4] = [Self::Hbm, Self::Host, Self::Disk, Self::Wire];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hbm => "in HBM",
            Self::Host => "in host memory",
            Self::Disk => "on disk",
            Self::Wire => "prefill to decode",
        }
    }
}

/// Whether the codec is worth having.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The codec makes a load run that does not run at all without it.
    Enables,
    Pays,
    Even,
    Costs,
    /// It does not run with it either.
    DoesNotFit,
}

/// A ratio and between which bounds it stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Times of one way to serve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    pub ttft_s: f64,
    pub tpot_s: f64,
    pub tokens_per_s: f64,
}

/// One cell of the map.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub place: Place,
    pub context: u32,
    pub concurrency: u32,
    pub plain: Option<Times>,
    pub coded: Option<Times>,
    /// Tokens per second with the codec over without.
    pub tokens: Option<Ratio>,
    /// Time to first token without the codec over with it.
    pub ttft: Option<Ratio>,
    pub verdict: Verdict,
}

/// The map.
#[derive(Clone, Debug, Serialize)]
pub struct Map {
    #[serde(flatten)]
    pub request: MapRequest,
    pub stored_bits: f64,
    /// Values per second that a GPU codes and decodes.
    pub encode_values_per_s: f64,
    pub decode_values_per_s: f64,
    /// Whether coding takes multiprocessors from other work.
    pub in_software: bool,
    /// What the codec costs answers at this rate.
    pub answers: Answers,
    pub cells: Vec<Cell>,
}

/// Requests sent for each in flight: the first wave is cut off.
const WAVES: u32 = 4;
/// A gain within this of one is none.
const EVEN: f64 = 0.02;
/// By how much the measured speed of a codec may be off.
const CODEC_SPEED: f64 = 0.1;

/// Draws the map. Fails when a name is not known, the codec's file is wrong, or
/// a setting makes no sense.
pub fn map(library: &Library, request: &MapRequest) -> Result<Map, Refused> {
    let platform = library.platform(&request.ask).map_err(Refused::Unknown)?;
    check(request)?;
    let codec = Document::load(&codec_name(&request.codec))
        .and_then(|document| document.read::<CodecFile>())
        .map_err(Error::from)?
        .resolve();
    let placement =
        Placement { tensor: request.tensor, attention_data: 1, expert_tensor: request.tensor, expert: 1 };
    if let Some(problem) = placement.problem(&platform.model) {
        return Err(ServingError::Placement { problem }.into());
    }
    let table = platform.table(&placement, &platform.constants);
    table.map_err(|error| request.ask.does_not_fit(request.tensor, error.to_string()))?;
    let answers = loss::answers(&request.ask.model, &request.codec, request.bits, &request.recorded)?;
    let all = Study { platform: &platform, request, codec, placement };
    let mut wanted = Vec::new();
    for place in Place::ALL {
        for &context in &request.contexts {
            wanted.extend(request.concurrencies.iter().map(|&concurrency| (place, context, concurrency)));
        }
    }
    let cells =
        parallel::map(&wanted, |&(place, context, concurrency)| all.cell(place, context, concurrency));
    Ok(Map {
        request: request.clone(),
        stored_bits: 8.0 * platform.kv_value_bytes,
        encode_values_per_s: codec.encode_values_per_s * request.codecs_per_gpu,
        decode_values_per_s: codec.decode_values_per_s * request.codecs_per_gpu,
        in_software: codec.gpu_share > 0.0,
        answers,
        cells,
    })
}

/// A built-in codec without its folder, as the folder's.
fn codec_name(name: &str) -> String {
    if name.contains('/') || name.ends_with(".toml") { name.to_owned() } else { format!("codecs/{name}") }
}

fn check(request: &MapRequest) -> Result<(), ServingError> {
    let setting = ServingError::setting;
    setting("bits", request.bits, request.bits > 0.0 && request.bits <= 16.0, "above 0 and at most 16")?;
    let codecs = request.codecs_per_gpu;
    setting("codecs-per-gpu", codecs, codecs > 0.0 && codecs.is_finite(), "above 0")?;
    setting("disk", request.disk_gb_per_s, request.disk_gb_per_s > 0.0, "above 0 GB/s")?;
    setting("reused", request.reused, (0.0..1.0).contains(&request.reused), "at least 0 and below 1")?;
    for (name, list) in [("context", &request.contexts), ("concurrency", &request.concurrencies)] {
        let least = list.iter().min().copied().unwrap_or(0);
        setting(name, f64::from(least), least > 0, "at least 1")?;
    }
    Ok(())
}

struct Study<'a> {
    platform: &'a Platform<'a>,
    request: &'a MapRequest,
    codec: Codec,
    placement: Placement,
}

/// What is moved for an interval: decoding steps, prompts, the codec's speed.
#[derive(Clone, Copy)]
struct Moved {
    decode: f64,
    prefill: f64,
    codec: f64,
}

impl Study<'_> {
    fn cell(&self, place: Place, context: u32, concurrency: u32) -> Cell {
        let asis = Moved { decode: 1.0, prefill: 1.0, codec: 1.0 };
        let load = self.load(place, context, concurrency);
        let (plain, coded) = (self.plain(place, &load, asis), self.coded(place, &load, asis));
        let (mut tokens, mut ttft) = (Vec::new(), Vec::new());
        for moved in self.moves() {
            let own = (self.plain(place, &load, moved), self.coded(place, &load, moved));
            if let (Some(plain), Some(coded)) = own {
                tokens.push(coded.tokens_per_s / plain.tokens_per_s);
                ttft.push(plain.ttft_s / coded.ttft_s);
            }
        }
        let both = plain.zip(coded);
        let tokens = both.map(|(p, c)| Ratio::of(c.tokens_per_s / p.tokens_per_s, &tokens));
        let ttft = both.map(|(p, c)| Ratio::of(p.ttft_s / c.ttft_s, &ttft));
        let verdict = match (plain, coded, tokens, ttft) {
            (_, None, ..) => Verdict::DoesNotFit,
            (None, Some(_), ..) => Verdict::Enables,
            (_, _, Some(tokens), Some(ttft)) => verdict(&tokens, &ttft),
            _ => Verdict::Even,
        };
        Cell { place, context, concurrency, plain, coded, tokens, ttft, verdict }
    }

    fn moves(&self) -> [Moved; 6] {
        let unseen = self.platform.engine.unseen;
        let one = Moved { decode: 1.0, prefill: 1.0, codec: 1.0 };
        [
            Moved { decode: 1.0 + unseen.tpot, ..one },
            Moved { decode: 1.0 / (1.0 + unseen.tpot), ..one },
            Moved { prefill: 1.0 + unseen.ttft, ..one },
            Moved { prefill: 1.0 / (1.0 + unseen.ttft), ..one },
            Moved { codec: 1.0 + CODEC_SPEED, ..one },
            Moved { codec: 1.0 - CODEC_SPEED, ..one },
        ]
    }

    fn load(&self, place: Place, context: u32, concurrency: u32) -> ClosedLoop {
        let ask = Ask { prompt_tokens: context, ..self.request.ask.clone() };
        let away = matches!(place, Place::Host | Place::Disk);
        let prefix_hits = if away { self.request.reused } else { 0.0 };
        ClosedLoop { reuse: Reuse { prefix_hits, ..Reuse::default() }, ..ask.load(concurrency, WAVES) }
    }

    fn constants(&self, moved: Moved) -> EngineConstants {
        let c = self.platform.constants;
        EngineConstants {
            decode: c.decode * moved.decode,
            experts_decode: c.experts_decode * moved.decode,
            attention_decode: c.attention_decode * moved.decode,
            prefill: c.prefill * moved.prefill,
            experts_prefill: c.experts_prefill * moved.prefill,
            attention_prefill: c.attention_prefill * moved.prefill,
            ..c
        }
    }

    fn table(&self, moved: Moved, value_bytes: f64) -> Option<StepTable> {
        let p = self.platform;
        StepTable::new(p.gpu, &p.model, &self.placement, &self.constants(moved), value_bytes).ok()
    }

    fn plain(&self, place: Place, load: &ClosedLoop, moved: Moved) -> Option<Times> {
        let table = self.table(moved, self.platform.kv_value_bytes)?;
        let token_bytes = table.kv_token_bytes();
        match place {
            Place::Hbm => self.shared(&table, load, moved),
            Place::Wire => self.split(&table, load, moved, self.platform.handoff(token_bytes)),
            Place::Host | Place::Disk => {
                let coded = CodedCache {
                    load_s: token_bytes / self.away_bytes_per_s(place),
                    ..CodedCache::default()
                };
                self.loaded(&table, coded, load, moved)
            }
        }
    }

    fn coded(&self, place: Place, load: &ClosedLoop, moved: Moved) -> Option<Times> {
        let stored = self.platform.kv_value_bytes;
        let value_bytes = self.request.bits / 8.0;
        let table = self.table(moved, if place == Place::Hbm { value_bytes } else { stored })?;
        let values = self.platform.model.kv_bytes_per_token(&self.placement, 1.0);
        let speed = self.request.codecs_per_gpu * moved.codec;
        let decode_s = values / (self.codec.decode_values_per_s * speed);
        let encode_s = values / (self.codec.encode_values_per_s * speed);
        // Multiprocessors that code do nothing else; silicon works while others do.
        let software = self.codec.gpu_share > 0.0;
        let beside = |own_s: f64, other_s: f64| if software { own_s + other_s } else { own_s.max(other_s) };
        match place {
            Place::Hbm => {
                let bandwidth = self.platform.gpu.kernels.device().memory_bytes_per_s;
                let read_s = values * value_bytes / bandwidth;
                let coded = CodedCache {
                    read_s: beside(decode_s, read_s) - read_s,
                    write_s: if software { encode_s } else { 0.0 },
                    load_s: 0.0,
                };
                self.shared(&table.with_coded_cache(coded), load, moved)
            }
            Place::Host | Place::Disk => {
                let link_s = values * value_bytes / self.away_bytes_per_s(place);
                let coded = CodedCache { load_s: beside(decode_s, link_s), ..CodedCache::default() };
                self.loaded(&table, coded, load, moved)
            }
            Place::Wire => {
                let link_s = values * value_bytes / self.platform.gpu.network_bytes_per_s;
                let token_s = beside(encode_s + decode_s, link_s);
                let handoff = Handoff { token_s, ..self.platform.handoff(0.0) };
                let fixed_s = handoff.fixed_s + self.codec.latency_s;
                self.split(&table, load, moved, Handoff { fixed_s, ..handoff })
            }
        }
    }

    fn away_bytes_per_s(&self, place: Place) -> f64 {
        match place {
            Place::Disk => self.request.disk_gb_per_s * 1e9,
            _ => self.platform.gpu.host_bytes_per_s,
        }
    }

    /// Caches are brought back as `coded` says; who can read a prompt anew sooner does so.
    fn loaded(&self, table: &StepTable, coded: CodedCache, load: &ClosedLoop, moved: Moved) -> Option<Times> {
        let loaded = self.shared(&table.clone().with_coded_cache(coded), load, moved);
        let anew = ClosedLoop { reuse: Reuse::default(), ..*load };
        better(loaded, self.shared(table, &anew, moved))
    }

    fn shared(&self, table: &StepTable, load: &ClosedLoop, moved: Moved) -> Option<Times> {
        let engine = self.constants(moved);
        play(&Scene::alone(table, &engine), &Load::Closed(*load)).ok().map(times)
    }

    /// One worker reads prompts, one decodes.
    fn split(&self, table: &StepTable, load: &ClosedLoop, moved: Moved, handoff: Handoff) -> Option<Times> {
        let engine = self.constants(moved);
        let workers = PrefillWorkers { table, engine: &engine, workers: 1, ranks: 1, handoff };
        let scene = Scene { table, engine: &engine, ranks: 1, prefill: Some(workers) };
        play(&scene, &Load::Closed(*load)).ok().map(times)
    }
}

fn times(played: Replayed) -> Times {
    Times { ttft_s: played.steady_ttft_s, tpot_s: played.tpot_s, tokens_per_s: played.answer_tokens_per_s }
}

fn better(one: Option<Times>, other: Option<Times>) -> Option<Times> {
    match (one, other) {
        (Some(a), Some(b)) => Some(if a.tokens_per_s >= b.tokens_per_s { a } else { b }),
        (a, b) => a.or(b),
    }
}

impl Ratio {
    fn of(value: f64, moved: &[f64]) -> Self {
        let low = moved.iter().copied().fold(value, f64::min);
        let high = moved.iter().copied().fold(value, f64::max);
        Self { value, low, high }
    }
}

fn verdict(tokens: &Ratio, ttft: &Ratio) -> Verdict {
    let gains = |ratio: &Ratio| ratio.low > 1.0 + EVEN;
    let loses = |ratio: &Ratio| ratio.high < 1.0 - EVEN;
    match (gains(tokens) || gains(ttft), loses(tokens) || loses(ttft)) {
        (true, false) => Verdict::Pays,
        (false, true) => Verdict::Costs,
        _ => Verdict::Even,
    }
}
