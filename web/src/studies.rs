//! Studies that the page has open: read, run, explained, written down.

use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trinity_config::{Document, builtin};
use trinity_sim::event::{Span, simulate};
use trinity_sim::sweep::{Accumulator, Direction};
use trinity_study::config::ExplorationFile;
use trinity_study::explore::{self, Exploration, setting_of};
use trinity_study::origin::{Origin, origin};
use trinity_study::sensitivity::{Sensitivity, sensitivity};
use trinity_study::sweep::{
    Explanation, Found, FrontOf, Study, SweepOutcome, SweepRequest, pareto_csv, points_csv,
};
use trinity_study::{Silent, serving};
use trinity_tensor::compare::ComparisonRow;

/// Points beyond which a page would keep its reader waiting.
const MOST_POINTS: u64 = 2_000_000;
/// Points beyond which points.csv is too much for a page.
const MOST_ROWS: u64 = 500_000;
/// Best points that are kept, as the command keeps them.
const TOP: usize = 10;
/// Studies kept at hand: two side by side, and the one before each.
const CACHED: usize = 4;
/// Spans are told apart down to this share of an iteration.
const FINEST: f64 = 1.0 / 2000.0;

/// A study as the page names it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// A built-in sweep, or what messages call `text`.
    pub sweep: String,
    /// A file of the user's.
    #[serde(default)]
    pub text: Option<String>,
    #[serde(default)]
    pub sets: Vec<String>,
}

/// What is at hand: the last studies, each run at most once, and the bits of the
/// built-in tensors once somebody asked for them.
#[derive(Debug, Default)]
pub struct Studies {
    cache: Vec<Cached>,
    measured: Vec<ComparisonRow>,
}

#[derive(Debug)]
struct Cached {
    asked: Asked,
    study: Study,
    accumulated: Accumulator,
}

/// A study's fronts and what they are drawn on.
#[derive(Debug, Serialize)]
pub struct Fronts {
    pub outcome: SweepOutcome,
    /// Cluster and job of the first scenario's best point, in one line.
    pub setting: String,
    /// The best point of each scenario, by what the study ranks by, within the budget.
    pub best: Vec<Option<Found>>,
    pub budget_mm2: Option<f64>,
    pub objectives: Vec<String>,
    pub fingerprint: String,
}

/// One value of a study.
#[derive(Debug, Serialize)]
pub struct Field {
    pub path: String,
    /// As TOML writes it.
    pub value: String,
    pub place: String,
    pub source: Option<String>,
    pub origin: Origin,
}

/// One point: its lines, its parts, its step.
#[derive(Debug, Serialize)]
pub struct Explained {
    pub explanation: Explanation,
    pub estimate: trinity_sim::Estimate,
    pub timeline: Option<TimelineOf>,
}

/// One step as spans on tracks.
#[derive(Debug, Serialize)]
pub struct TimelineOf {
    pub iteration_s: f64,
    pub tracks: Vec<String>,
    /// Track, kind, start and end.
    pub spans: Vec<(usize, &'static str, f64, f64)>,
}

/// The built-in configurations, each with its first line, and how far the
/// model's links were from measurements.
pub fn catalog() -> Result<Value, Refusal> {
    let about = |name: &str| {
        let first = builtin::text(name).and_then(|text| text.lines().next()).unwrap_or_default();
        first.trim_start_matches('#').trim().to_owned()
    };
    let names: Vec<Value> =
        builtin::names().map(|name| json!({ "name": name, "about": about(name) })).collect();
    let file: ExplorationFile = Document::load("explorations/codecs")?.read()?;
    let links: Vec<Value> = file
        .certainty
        .iter()
        .map(|link| json!({ "link": link.link, "error": link.error, "basis": link.basis, "set": link.set }))
        .collect();
    Ok(json!({ "configurations": names, "certainty": links, "sources": env!("TRINITY_PAGE_SOURCES") }))
}

impl Studies {
    /// The study, read and run now or before.
    fn at(&mut self, asked: &Asked) -> Result<&Cached, Refusal> {
        if let Some(at) = self.cache.iter().position(|cache| cache.asked == *asked) {
            let cache = self.cache.remove(at);
            self.cache.push(cache);
        } else {
            let study = load(asked)?;
            let accumulated = study.accumulate(&Silent)?;
            study.refuse_nonsense(&accumulated)?;
            if self.cache.len() >= CACHED {
                self.cache.remove(0);
            }
            self.cache.push(Cached { asked: asked.clone(), study, accumulated });
        }
        self.cache.last().ok_or_else(|| Refusal::new("no study is open", ""))
    }

    pub fn sweep(&mut self, asked: &Asked) -> Result<Fronts, Refusal> {
        let Cached { study, accumulated, .. } = self.at(asked)?;
        let outcome = study.outcome(accumulated);
        let best: Vec<Option<Found>> = outcome.fronts.iter().map(|front| best(study, front)).collect();
        let space = &study.plan.space;
        let point = best.iter().flatten().next().map(|best| space.point(best.index));
        let point = point.or_else(|| space.scenarios().first().map(|scenario| scenario.base));
        Ok(Fronts {
            setting: point.map(|point| setting_of(&study.document, &point).line).unwrap_or_default(),
            best,
            outcome,
            budget_mm2: study.file.budget_mm2(),
            objectives: study.file.objectives.clone(),
            fingerprint: study.fingerprint(),
        })
    }

    pub fn fields(&mut self, asked: &Asked) -> Result<Vec<Field>, Refusal> {
        let settings = self.at(asked)?.study.document.settings();
        let field = |setting: trinity_config::Setting| Field {
            place: setting.place.to_string(),
            origin: origin(setting.source.as_deref()),
            path: setting.path,
            value: setting.value,
            source: setting.source,
        };
        Ok(settings.into_iter().map(field).collect())
    }

    pub fn explain(&mut self, asked: &Asked, index: u64) -> Result<Explained, Refusal> {
        let study = &self.at(asked)?.study;
        let explanation = study.explain(index)?;
        let point = study.plan.space.point(index);
        let point = point.chosen().unwrap_or(point);
        let timeline = simulate(&point.cluster, &point.job).ok().map(|timeline| TimelineOf {
            spans: joined(&timeline.spans, timeline.iteration_s * FINEST),
            iteration_s: timeline.iteration_s,
            tracks: timeline.tracks,
        });
        Ok(Explained { estimate: explanation.estimate, explanation, timeline })
    }

    pub fn tornado(&mut self, asked: &Asked) -> Result<Vec<Sensitivity>, Refusal> {
        Ok(sensitivity(&self.at(asked)?.study, &Silent)?)
    }

    /// What `trinity explore --json` prints of this study with the built-in tensors.
    pub fn odds(&mut self, asked: &Asked) -> Result<Exploration, Refusal> {
        if asked.text.is_some() {
            return Err(Refusal::new(
                "the page explores built-in studies; this one is a file of yours",
                "save it as TOML and run `trinity explore --study FILE.toml`",
            ));
        }
        let input_tensors = explore::built_in()?;
        let request = explore::ExploreRequest {
            input_tensors: &input_tensors,
            quality: explore::QUALITY.into(),
            study: asked.sweep.clone(),
            sets: asked.sets.clone(),
            budget_mm2: None,
            candidates: Vec::new(),
            node: None,
            training: explore::Training::of(true, None),
            cells: explore::CELLS,
            draws: explore::DRAWS,
            earlier: &self.measured,
        };
        let explored = explore::explore(&request, &|_| (), &Silent)?;
        self.measured = explored.comparison.all;
        Ok(explored.exploration)
    }

    pub fn toml(&mut self, asked: &Asked) -> Result<String, Refusal> {
        Ok(self.at(asked)?.study.toml())
    }

    pub fn pareto(&mut self, asked: &Asked) -> Result<String, Refusal> {
        let Cached { study, accumulated, .. } = self.at(asked)?;
        Ok(pareto_csv(study, accumulated, &study.answer(accumulated)))
    }

    pub fn points(&mut self, asked: &Asked) -> Result<String, Refusal> {
        let study = &self.at(asked)?.study;
        let points = study.plan.space.len();
        if points > MOST_ROWS {
            let message = format!("{points} points are too many for a page to write down");
            return Err(Refusal::new(message, "export the study as TOML and run `trinity sweep` on it"));
        }
        Ok(String::from_utf8_lossy(&points_csv(study)).into_owned())
    }
}

/// The best point of a front within the study's budget, the first of equals.
fn best(study: &Study, front: &FrontOf) -> Option<Found> {
    let budget_mm2 = study.file.budget_mm2().unwrap_or(f64::INFINITY);
    let rank = study.plan.rank_by;
    let value = |point: &Found| rank.metric.of(&point.estimate);
    let within = front.points.iter().filter(|point| point.estimate.area_mm2 <= budget_mm2);
    let better = |a: &Found, b: &Found| match rank.direction {
        Direction::Maximize => value(a) > value(b),
        Direction::Minimize => value(a) < value(b),
    };
    within
        .fold(None, |best, point| match best {
            Some(best) if !better(point, best) => Some(best),
            _ => Some(point),
        })
        .cloned()
}

fn load(asked: &Asked) -> Result<Study, Refusal> {
    let request = SweepRequest {
        sweep: asked.sweep.clone(),
        text: asked.text.clone(),
        sets: asked.sets.clone(),
        top: TOP,
    };
    let study = Study::load(&request)?;
    if serving::serves(&study) {
        return Err(Refusal::new(
            "this sweep plays requests through a service, which the page does not",
            format!("run `trinity sweep {}`", asked.sweep),
        ));
    }
    let points = study.plan.space.len();
    if points > MOST_POINTS {
        return Err(Refusal::new(
            format!("this sweep has {points} points; the page evaluates up to {MOST_POINTS}"),
            format!("leave out values of an axis, or run `trinity sweep {}`", asked.sweep),
        ));
    }
    Ok(study)
}

/// Neighbours of one kind on one track as one span, where what lies between
/// them is too short to see.
fn joined(spans: &[Span], finest_s: f64) -> Vec<(usize, &'static str, f64, f64)> {
    let mut order: Vec<&Span> = spans.iter().collect();
    order.sort_by(|a, b| a.track.cmp(&b.track).then(a.start_s.total_cmp(&b.start_s)));
    let mut joined: Vec<(usize, &'static str, f64, f64)> = Vec::new();
    for span in order {
        match joined.last_mut() {
            Some((track, kind, _, end_s))
                if *track == span.track && *kind == span.kind && span.start_s - *end_s <= finest_s =>
            {
                *end_s = end_s.max(span.end_s);
            }
            _ => joined.push((span.track, span.kind, span.start_s, span.end_s)),
        }
    }
    joined
}
