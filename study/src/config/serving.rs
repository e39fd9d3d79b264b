//! Serving in files: what arrives, on what it is served, what is promised.
//!
//! The model and the machine of one engine are the study's `job` and `cluster`;
//! this table says how many engines there are, how they share the work, and
//! what the service owes. Nothing here computes.

use super::names::names;
use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Diagnostic, Duration, Fraction};
use trinity_sim::serving::{BOUND, Batching, Length, Lengths, Objectives, Pools, Service};
use trinity_sim::sweep::Point;

settable! {
    ServingFile { rate, requests, most_requests, bound, seed, prompt, output, trace, gpus, prefill_gpus, transfer_bits, chunk, max_batch, reserved, prefix_hits, ttft_p99, tpot_p99, usd_per_gpu_hour }
    LengthsFile { distribution, tokens, least, most, mean, median, sigma }
}

/// A service under load.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServingFile {
    /// Requests a second that arrive; a trace has a rate of its own, which this replaces.
    pub rate: Option<f64>,
    /// How many requests a run begins with; all of a trace where it is not said.
    pub requests: Option<u32>,
    /// How many requests a run has at most, however unsure it is.
    #[serde(default = "usual_most")]
    pub most_requests: u32,
    /// Runs go on until rates are known within this share, up and down (95 %).
    #[serde(default = "usual_bound")]
    pub bound: Fraction,
    /// Which requests are drawn.
    #[serde(default = "one")]
    pub seed: u32,
    /// Tokens of a prompt.
    pub prompt: Option<LengthsFile>,
    /// Tokens of an answer.
    pub output: Option<LengthsFile>,
    /// Instead of distributions: a CSV of `arrival_s,prompt_tokens,output_tokens`,
    /// found from the folder of the file that names it.
    pub trace: Option<String>,
    /// GPUs of the whole service; an engine takes as many as the job's parallelism says.
    pub gpus: u32,
    /// GPUs that read prompts while the others decode; all do both where it is not said.
    pub prefill_gpus: Option<u32>,
    /// Bits per cached value on the wire between the two pools; as stored where it is not said.
    pub transfer_bits: Option<f64>,
    /// Prompt tokens that a decoding step takes along; prompts run in steps of
    /// their own, and first, where it is not said.
    pub chunk: Option<u32>,
    /// Sequences an engine decodes together at most.
    #[serde(default = "usual_batch")]
    pub max_batch: u32,
    /// Share of an answer's cache that is kept free when a request is admitted.
    /// Below 1, who came last is thrown out where caches no longer fit, and is read anew.
    #[serde(default = "usual_reserve")]
    pub reserved: Fraction,
    /// Share of each prompt whose cache is there already.
    #[serde(default)]
    pub prefix_hits: Fraction,
    /// What is promised: 99th percentile of the time to the first token.
    pub ttft_p99: Duration,
    /// What is promised: 99th percentile over requests of the time between tokens.
    pub tpot_p99: Duration,
    /// What a GPU costs for an hour.
    pub usd_per_gpu_hour: f64,
}

fn one() -> u32 {
    1
}

fn usual_most() -> u32 {
    Length::MOST as u32
}

fn usual_bound() -> Fraction {
    Fraction::new(BOUND)
}

/// As measured services of vLLM and SGLang are best described (`configs/engines`).
fn usual_reserve() -> Fraction {
    Fraction::new(0.5)
}

fn usual_batch() -> u32 {
    256
}

/// A distribution of lengths, in tokens.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LengthsFile {
    pub distribution: DistributionName,
    /// Of `fixed`.
    pub tokens: Option<u32>,
    /// Of `uniform`.
    pub least: Option<u32>,
    /// Of `uniform` and `log-normal`: what the service takes at most.
    pub most: Option<u32>,
    /// Of `exponential`.
    pub mean: Option<f64>,
    /// Of `log-normal`.
    pub median: Option<f64>,
    /// Of `log-normal`: standard deviation of the logarithm.
    pub sigma: Option<f64>,
}

names! {
    /// How lengths are spread.
    DistributionName { Fixed, Uniform, Exponential, LogNormal }
}

impl LengthsFile {
    /// The distribution, or what is missing for it.
    pub fn resolve(&self) -> Result<Lengths, &'static str> {
        let positive = |value: Option<f64>, what| value.filter(|v| v.is_finite() && *v > 0.0).ok_or(what);
        match self.distribution {
            DistributionName::Fixed => {
                let tokens = self.tokens.filter(|tokens| *tokens > 0).ok_or("`tokens`, at least 1")?;
                Ok(Lengths::Fixed(tokens))
            }
            DistributionName::Uniform => match (self.least, self.most) {
                (Some(least), Some(most)) if (1..=most).contains(&least) => {
                    Ok(Lengths::Uniform { least, most })
                }
                _ => Err("`least` and `most`, 1 <= least <= most"),
            },
            DistributionName::Exponential => {
                Ok(Lengths::Exponential { mean: positive(self.mean, "`mean`, more than zero")? })
            }
            DistributionName::LogNormal => Ok(Lengths::LogNormal {
                median: positive(self.median, "`median`, more than zero")?,
                sigma: positive(self.sigma, "`sigma`, more than zero")?,
                most: self.most.filter(|most| *most > 0).ok_or("`most`, at least 1")?,
            }),
        }
    }

    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        self.resolve().map(drop).or_else(|missing| {
            let name = match self.distribution {
                DistributionName::Fixed => "fixed",
                DistributionName::Uniform => "uniform",
                DistributionName::Exponential => "exponential",
                DistributionName::LogNormal => "log-normal",
            };
            at.refuse("", format_args!("`{name}` lengths need another number"), missing)
        })
    }
}

impl ServingFile {
    /// What the service promises.
    pub fn objectives(&self) -> Objectives {
        Objectives { ttft_p99_s: self.ttft_p99.s(), tpot_p99_s: self.tpot_p99.s() }
    }

    /// How long its runs are, which begin with `first` requests.
    pub fn length(&self, first: usize) -> Length {
        Length { first, most: self.most_requests as usize, bound: self.bound.get() }
    }

    /// The service on engines like `point`. Fails where GPUs do not make whole
    /// engines: the field, and what is wrong.
    pub fn service(&self, point: &Point) -> Result<Service, (&'static str, String)> {
        let each = point.cluster.gpus.max(1);
        let engines = |key: &'static str, gpus: u32| {
            if gpus == 0 || !gpus.is_multiple_of(each) {
                return Err((key, format!("{gpus} GPUs do not make engines of {each}")));
            }
            Ok(gpus / each)
        };
        let all = engines("gpus", self.gpus)?;
        let pools = match self.prefill_gpus {
            None => Pools::Shared { engines: all },
            Some(gpus) if gpus >= self.gpus => {
                return Err(("prefill-gpus", format!("{gpus} of {} GPUs leave none to decode", self.gpus)));
            }
            Some(gpus) => {
                let prefill = engines("prefill-gpus", gpus)?;
                Pools::Disaggregated { prefill, decode: all - prefill, transfer_bits: self.transfer_bits }
            }
        };
        Ok(Service {
            engine: point.cluster,
            job: point.job,
            pools,
            batching: match self.chunk {
                Some(tokens) => Batching::Chunked { tokens },
                None => Batching::PrefillFirst,
            },
            max_batch: self.max_batch,
            reserved_answer: self.reserved.get(),
            prefix_hits: self.prefix_hits.get(),
            usd_per_gpu_hour: self.usd_per_gpu_hour,
        })
    }

    /// Complains about what no field shows alone.
    pub(super) fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let requests = match (&self.trace, &self.prompt, &self.output, self.rate) {
            (Some(_), None, None, _) | (None, Some(_), Some(_), Some(_)) => Ok(()),
            (Some(_), ..) => {
                at.refuse("trace", "a trace, and lengths to draw", "either `trace`, or `prompt` and `output`")
            }
            (None, ..) => at.refuse("", "no requests", "`rate`, `prompt` and `output`, or a `trace`"),
        };
        let lengths = [("prompt", &self.prompt), ("output", &self.output)];
        let lengths = lengths.into_iter();
        let lengths = lengths.filter_map(|(key, own)| Some(own.as_ref()?.check_at(&at.table(key))));
        let unsent = (self.transfer_bits.is_some() && self.prefill_gpus.is_none()).then(|| {
            let expected = "`prefill-gpus`, or no `transfer-bits`";
            at.refuse("transfer-bits", "nothing is sent between pools", expected)
        });
        let counts = [
            ("requests", self.requests),
            ("most-requests", Some(self.most_requests)),
            ("max-batch", Some(self.max_batch)),
            ("chunk", self.chunk),
        ];
        let counts = counts.into_iter().map(|(key, count)| match count {
            Some(0) => at.refuse(key, format_args!("`{key}` is 0"), "at least 1"),
            Some(count) if count > MOST => {
                at.refuse(key, format_args!("`{key}` is {count}"), format_args!("at most {MOST}"))
            }
            _ => Ok(()),
        });
        let numbers = [
            ("rate", self.rate.unwrap_or(1.0)),
            ("transfer-bits", self.transfer_bits.unwrap_or(1.0)),
            ("usd-per-gpu-hour", self.usd_per_gpu_hour),
            ("ttft-p99", self.ttft_p99.s()),
            ("tpot-p99", self.tpot_p99.s()),
        ];
        let cached = (self.prefix_hits.get() >= 1.0)
            .then(|| at.refuse("prefix-hits", "every prompt is cached whole", "less than 1"));
        let bound = self.bound.get();
        let unsure = (!(bound > 0.0 && bound < 1.0))
            .then(|| at.refuse("bound", "no run is that sure", "more than 0, less than 1"));
        let rest = [Some(requests), unsent, cached, unsure, Some(at.positive(&numbers))];
        Diagnostic::gather(rest.into_iter().flatten().chain(lengths).chain(counts))
    }
}

/// Beyond this a count is a mistake.
const MOST: u32 = 100_000_000;
