//! Which question a request asks, and who answers it.

use crate::refusal::Refusal;
use crate::shape;
use crate::studies::{Asked, Studies};
use crate::tensors::{Opened, RateOf};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Everything that lives between two requests.
#[derive(Debug, Default)]
pub struct Engine {
    studies: Studies,
    tensors: Option<Opened>,
}

/// A request, by the name of what is wanted.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum PageRequest {
    /// The built-in configurations and what is known of the model's errors.
    Catalog,
    /// The fronts of a study, as `trinity sweep --json` prints them.
    Sweep { study: Asked },
    /// Every value of a study with its place and source.
    Fields { study: Asked },
    /// One point, as `trinity sweep explain --json` prints it, with its parts and timeline.
    Explain { study: Asked, index: u64 },
    /// What the headline rests on.
    Tornado { study: Asked },
    /// What to build, with odds and a map, as `trinity explore --json` prints it.
    Odds { study: Asked },
    /// The study as a TOML file.
    Toml { study: Asked },
    /// pareto.csv.
    Pareto { study: Asked },
    /// points.csv.
    Points { study: Asked },
    /// The kept file holds tensors.
    Open { name: String },
    /// Statistics of one tensor.
    Statistics { tensor: String },
    /// One codec on a piece of one tensor.
    Rates(RateOf),
    /// One codec's way with a block of one tensor.
    Block(RateOf),
    /// A window of one tensor through the stages of H.265.
    Way { tensor: String, nmse: f64, sample: usize },
    /// A model's `config.json` as values of a study.
    Shape { text: String },
}

impl Engine {
    /// Answers a request in JSON; `file` is what the page kept for it.
    pub fn answer(&mut self, request: &[u8], file: Vec<u8>) -> Vec<u8> {
        let answer = match serde_json::from_slice(request) {
            Ok(request) => self.take(request, file),
            Err(error) => Err(Refusal::new(format!("the page asks what nobody knows: {error}"), "")),
        };
        answer.unwrap_or_else(|Refusal(why)| {
            // A tree of strings and numbers always has a text.
            serde_json::to_vec(&json!({ "refused": why })).unwrap_or_default()
        })
    }

    fn take(&mut self, request: PageRequest, file: Vec<u8>) -> Result<Vec<u8>, Refusal> {
        match request {
            PageRequest::Catalog => written(&crate::studies::catalog()?),
            PageRequest::Sweep { study } => written(&self.studies.sweep(&study)?),
            PageRequest::Fields { study } => written(&self.studies.fields(&study)?),
            PageRequest::Explain { study, index } => written(&self.studies.explain(&study, index)?),
            PageRequest::Tornado { study } => written(&self.studies.tornado(&study)?),
            PageRequest::Odds { study } => written(&self.studies.odds(&study)?),
            PageRequest::Toml { study } => written(&self.studies.toml(&study)?),
            PageRequest::Pareto { study } => written(&self.studies.pareto(&study)?),
            PageRequest::Points { study } => written(&self.studies.points(&study)?),
            PageRequest::Open { name } => {
                let opened = Opened::read(&name, file)?;
                let listed = written(&opened.list());
                self.tensors = Some(opened);
                listed
            }
            PageRequest::Statistics { tensor } => written(&self.tensors()?.statistics(&tensor)?),
            PageRequest::Rates(asked) => written(&self.tensors()?.rates(&asked)?),
            PageRequest::Block(asked) => written(&self.tensors()?.block(&asked)?),
            PageRequest::Way { tensor, nmse, sample } => {
                written(&self.tensors()?.way(&tensor, nmse, sample)?)
            }
            PageRequest::Shape { text } => written(&shape::assignments(&text)?),
        }
    }

    fn tensors(&self) -> Result<&Opened, Refusal> {
        let none = || Refusal::new("no file of tensors is open", "drop one on the page");
        self.tensors.as_ref().ok_or_else(none)
    }
}

/// What was found, as JSON.
fn written(found: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    #[derive(Serialize)]
    struct Answer<'a, T> {
        answer: &'a T,
    }
    serde_json::to_vec(&Answer { answer: found })
        .map_err(|error| Refusal::new(format!("the answer cannot be written: {error}"), ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn ask(request: Value) -> Value {
        let mut engine = Engine::default();
        serde_json::from_slice(&engine.answer(request.to_string().as_bytes(), Vec::new())).unwrap()
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        for request in [json!({ "do": "fly" }), json!(3), json!({ "do": "sweep" })] {
            assert!(ask(request)["refused"]["error"].is_string());
        }
    }

    #[test]
    fn a_wrong_value_gets_the_commands_sentence_and_place() {
        let study = json!({ "sweep": "sweeps/llama-7b", "sets": ["study.cluster.nic.bandwith=3 Gbit/s"] });
        let refused = &ask(json!({ "do": "sweep", "study": study }))["refused"];
        assert!(refused["error"].as_str().unwrap().contains("unknown key `bandwith`"), "{refused}");
        assert_eq!(refused["help"], "did you mean `bandwidth`?");
        assert_eq!(refused["place"]["file"], "--set");
    }

    #[test]
    fn a_point_comes_with_its_parts_and_a_short_timeline() {
        let study = json!({ "sweep": "sweeps/llama-7b" });
        let fronts = &ask(json!({ "do": "sweep", "study": study }))["answer"]["outcome"]["fronts"];
        let index = fronts[2]["front"][3]["index"].as_u64().unwrap();
        let found = &ask(json!({ "do": "explain", "study": study, "index": index }))["answer"];
        assert!(found["explanation"]["lines"].as_array().unwrap().len() > 10);
        assert!(found["estimate"]["area"]["codec_mm2"].as_f64().unwrap() > 0.0);
        let spans = found["timeline"]["spans"].as_array().unwrap().len();
        assert!((1..20_000).contains(&spans), "{spans}");
    }
}
