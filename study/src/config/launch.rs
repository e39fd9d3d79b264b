//! How benchmarks launched an engine, in files: the settings of their public
//! scripts, by model, GPU, version and load.
//!
//! Settings are stated, not fitted. They matter to whoever reads a measurement:
//! an engine that looks at its queue every thirty steps answers later than one
//! that looks every step. Nothing here computes times.

use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{At, Checked, Complaint, Diagnostic};
use trinity_sim::serving::replica::{Draft, EngineConstants, Intake};

/// Launches of one engine.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LaunchesFile {
    /// Later ones lay what they state over earlier ones.
    pub launches: Vec<LaunchFile>,
    /// Batches of workers that decode alone.
    #[serde(default)]
    pub split: Vec<SplitLaunchFile>,
}

/// Settings of launches; what is not stated fits all, or stays as it is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LaunchFile {
    pub versions: Vec<String>,
    pub models: Vec<String>,
    pub gpus: Vec<String>,
    pub precisions: Vec<String>,
    /// Days of the measurement, `2026-01-14`: from and to, both included.
    pub since: Option<String>,
    pub until: Option<String>,
    /// Whether prompts are read by workers of their own.
    pub separate: bool,
    pub tensor: Vec<u32>,
    pub expert: Option<u32>,
    /// Whether attention is copied (attention DP).
    pub copies: Option<bool>,
    pub prompt: Option<u32>,
    pub answer: Option<u32>,
    pub least_concurrency: Option<u32>,

    pub token_budget: Option<u32>,
    /// The budget is the load's: a prompt, a token of each request in flight and
    /// some, as scripts of TensorRT-LLM compute it, or `token-budget` if that is more.
    pub budget_of_load: bool,
    /// The budget in prompts.
    pub budget_prompts: Option<f64>,
    pub max_batch: Option<u32>,
    /// So many sequences fewer than requests in flight.
    pub slots_short: Option<u32>,
    pub memory_share: Option<f64>,
    /// Bytes of a cached value.
    pub kv_bytes: Option<f64>,
    /// Decoding steps from one look at the queue to the next.
    pub poll_steps: Option<u32>,
    /// Steps that prompts wait for others to be read with, and how many tokens
    /// (as a share of the budget) or prompts are enough.
    pub wait_steps: Option<u32>,
    pub wait_budget_share: Option<f64>,
    pub wait_prompts: Option<f64>,
    /// Tokens that are written to a client together.
    pub stream_interval: Option<u32>,
    /// Drafted tokens of each step.
    pub draft_tokens: Option<u32>,
}

/// The batch of a worker that decodes alone, in a recipe for some loads.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SplitLaunchFile {
    pub versions: Vec<String>,
    pub gpu: String,
    pub precision: String,
    pub prompt: u32,
    pub answer: u32,
    pub prefill_workers: u32,
    pub decode_workers: u32,
    /// GPUs of a worker that decodes, and whether attention is copied on them.
    pub decode_gpus: u32,
    pub copies: bool,
    pub concurrencies: Vec<u32>,
    pub max_batch: u32,
}

/// What a launch is told apart by.
#[derive(Clone, Copy, Debug)]
pub struct Launched<'a> {
    pub version: &'a str,
    pub model: &'a str,
    pub gpu: &'a str,
    pub precision: &'a str,
    /// Day of the measurement; empty where it is not known.
    pub measured: &'a str,
    pub separate: bool,
    pub tensor: u32,
    pub expert: u32,
    pub copies: u32,
    pub prompt: u32,
    pub answer: u32,
    pub concurrency: u32,
}

/// Drafting one token with a layer of the model and its head, over a step.
const DRAFT_COST: f64 = 0.06;

impl Checked for LaunchesFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let complain = |key: String, what: &str| Err(at.complain(key, &Complaint::new(what)));
        for (number, launch) in self.launches.iter().enumerate() {
            let zero = [launch.token_budget, launch.max_batch, launch.poll_steps, launch.stream_interval];
            if zero.contains(&Some(0)) {
                return complain(
                    format!("launches[{number}]"),
                    "budgets, batches and intervals are at least 1",
                );
            }
        }
        if let Some(number) = self.split.iter().position(|own| own.max_batch == 0) {
            return complain(format!("split[{number}].max-batch"), "a batch is at least 1");
        }
        Ok(())
    }
}

fn named(list: &[String], own: &str) -> bool {
    list.is_empty() || list.iter().any(|one| one == own)
}

impl LaunchFile {
    fn fits(&self, own: &Launched<'_>) -> bool {
        let same = |asked: Option<u32>, own: u32| asked.is_none_or(|asked| asked == own);
        named(&self.versions, own.version)
            && named(&self.models, own.model)
            && named(&self.gpus, own.gpu)
            && named(&self.precisions, own.precision)
            && self.separate == own.separate
            && self.since.as_ref().is_none_or(|since| own.measured >= since.as_str())
            && self
                .until
                .as_ref()
                .is_none_or(|until| !own.measured.is_empty() && own.measured <= until.as_str())
            && (self.tensor.is_empty() || self.tensor.contains(&own.tensor))
            && same(self.expert, own.expert)
            && same(self.prompt, own.prompt)
            && same(self.answer, own.answer)
            && self.copies.is_none_or(|copies| copies == (own.copies > 1))
            && self.least_concurrency.is_none_or(|least| own.concurrency >= least)
    }

    /// Budget of a step under `own` load.
    fn budget(&self, own: &Launched<'_>) -> Option<u32> {
        let prompts = self.budget_prompts.map(|prompts| (f64::from(own.prompt) * prompts) as u32);
        let of_load = self.budget_of_load.then(|| (own.concurrency + own.prompt + 127) / 64 * 64);
        match (prompts.or(of_load), self.token_budget) {
            (Some(load), least) => Some(load.max(least.unwrap_or(1)).max(1)),
            (None, stated) => stated,
        }
    }

    fn lay_over(&self, constants: &mut EngineConstants, own: &Launched<'_>, acceptance: f64) {
        if let Some(budget) = self.budget(own) {
            constants.token_budget = budget;
        }
        let rank = own.concurrency.div_ceil(own.copies.max(1));
        let short = self.slots_short.map(|short| rank.saturating_sub(short).max(1));
        if let Some(batch) = self.max_batch.into_iter().chain(short).min() {
            constants.max_batch = batch;
        }
        constants.memory_share = self.memory_share.unwrap_or(constants.memory_share);
        let intake = &mut constants.intake;
        intake.poll_steps = self.poll_steps.unwrap_or(intake.poll_steps);
        if let Some(steps) = self.wait_steps {
            let share = self.wait_budget_share.map(|share| share * f64::from(constants.token_budget));
            let prompts = self.wait_prompts.map(|prompts| prompts * f64::from(own.prompt));
            let wait_tokens = share.or(prompts).unwrap_or(f64::INFINITY);
            *intake = Intake { wait_steps: steps, wait_tokens, ..*intake };
        }
        if let Some(tokens) = self.draft_tokens.filter(|tokens| *tokens > 0) {
            constants.draft = Some(Draft { tokens: f64::from(tokens), acceptance, cost: DRAFT_COST });
        }
    }
}

impl LaunchesFile {
    /// Constants of an engine that was launched as `own`, whose drafted tokens
    /// are accepted with `acceptance`, and bytes of a cached value where stated.
    pub fn settle(
        &self,
        mut constants: EngineConstants,
        own: &Launched<'_>,
        acceptance: f64,
    ) -> (EngineConstants, Option<f64>) {
        let (mut kv_bytes, mut stream_interval) = (None, 1);
        for launch in self.launches.iter().filter(|launch| launch.fits(own)) {
            launch.lay_over(&mut constants, own, acceptance);
            kv_bytes = launch.kv_bytes.or(kv_bytes);
            stream_interval = launch.stream_interval.unwrap_or(stream_interval);
        }
        constants.stream_s /= f64::from(stream_interval);
        (constants, kv_bytes)
    }

    /// Sequences of each rank that decodes alone, where a recipe says.
    pub fn split_batch(&self, own: &Launched<'_>, prefill_workers: u32, decode_workers: u32) -> Option<u32> {
        let fits = |split: &&SplitLaunchFile| {
            named(&split.versions, own.version)
                && split.gpu == own.gpu
                && split.precision == own.precision
                && (split.prompt, split.answer) == (own.prompt, own.answer)
                && (split.prefill_workers, split.decode_workers) == (prefill_workers, decode_workers)
                && split.decode_gpus == own.tensor * own.copies
                && split.copies == (own.copies > 1)
                && split.concurrencies.contains(&own.concurrency)
        };
        self.split.iter().find(fits).map(|split| split.max_batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineFile;
    use trinity_config::Document;
    use trinity_sim::serving::replica::Generation;

    fn launches() -> LaunchesFile {
        let text = r#"
            split = [
                { versions = ["1"], gpu = "gb200", precision = "fp4", prompt = 1024, answer = 1024, prefill-workers = 1, decode-workers = 4, decode-gpus = 8, copies = false, concurrencies = [12, 24], max-batch = 2 },
            ]
            [[launches]]
            models = ["a"]
            token-budget = 8192
            budget-of-load = true
            poll-steps = 10
            stream-interval = 4
            kv-bytes = 1
            [[launches]]
            models = ["a"]
            least-concurrency = 16
            poll-steps = 30
            [[launches]]
            models = ["a"]
            since = "2026-01-10"
            draft-tokens = 3
            [[launches]]
            models = ["a"]
            copies = true
            wait-steps = 60
            wait-prompts = 2
        "#;
        Document::parse("launches.toml", text).and_then(|document| document.read()).unwrap()
    }

    fn constants() -> EngineConstants {
        let file: EngineFile = Document::load("engines/sglang").and_then(|own| own.read()).unwrap();
        file.resolve("", Generation::Hopper, crate::config::ClassName::Dense).unwrap()
    }

    fn launched<'a>() -> Launched<'a> {
        Launched {
            version: "1",
            model: "a",
            gpu: "gb200",
            precision: "fp4",
            measured: "",
            separate: false,
            tensor: 8,
            expert: 1,
            copies: 1,
            prompt: 1024,
            answer: 1024,
            concurrency: 12,
        }
    }

    #[test]
    fn later_launches_lay_over_earlier_ones_and_others_stay_out() {
        let (file, own) = (launches(), constants());
        let settle = |launched: Launched<'_>| file.settle(own, &launched, 0.7);
        let (few, kv) = settle(launched());
        assert_eq!((few.intake.poll_steps, few.token_budget, kv), (10, 8192, Some(1.0)));
        assert!((few.stream_s - own.stream_s / 4.0).abs() < 1e-12 && few.draft.is_none());
        assert_eq!(settle(Launched { concurrency: 16, ..launched() }).0.intake.poll_steps, 30);
        let long = settle(Launched { prompt: 8192, ..launched() }).0;
        assert_eq!(long.token_budget, (12 + 8192 + 127) / 64 * 64);
        assert!(settle(Launched { measured: "2026-01-14", ..launched() }).0.draft.is_some());
        assert!(settle(Launched { measured: "2025-12-15", ..launched() }).0.draft.is_none());
        let copied = settle(Launched { copies: 8, ..launched() }).0.intake;
        assert_eq!((copied.wait_steps, copied.wait_tokens), (60, 2048.0));
        for other in [Launched { model: "b", ..launched() }, Launched { separate: true, ..launched() }] {
            assert_eq!(settle(other), (own, None));
        }
    }

    #[test]
    fn a_recipe_of_separate_workers_names_its_batch() {
        let file = launches();
        assert_eq!(file.split_batch(&launched(), 1, 4), Some(2));
        assert_eq!(file.split_batch(&launched(), 1, 3), None);
        assert_eq!(file.split_batch(&Launched { concurrency: 13, ..launched() }, 1, 4), None);
        assert_eq!(file.split_batch(&Launched { copies: 2, tensor: 4, ..launched() }, 1, 4), None);
    }
}
