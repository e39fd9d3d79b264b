//! The whole chain: tensors into bits, codecs into silicon, both into a
//! cluster, and the answer in words.
//!
//! Joins what the other studies do one at a time: [`crate::compare`] measures
//! the bits of each class, [`crate::price`] prices codecs that nobody built,
//! [`crate::sweep`] finds the best point of each codec. Knows nothing of how a
//! tensor is coded or what a point costs, and prints nothing.

mod answer;
mod baseline_study;
mod certainty;
mod chance;
mod contest;
mod effect;
mod field;
mod inputs;
mod knob;
mod lattice;
mod optimum;
mod outcome;
mod ranking;
mod recorded;
mod regime;
mod request;
mod setting;
mod silicon;
mod tensors;
mod vary;

pub use baseline_study::Fixed;
pub use certainty::Certainty;
pub use chance::{Chance, DRAWS, Decides, Odds, PAYS, SURE, Spread};
pub use contest::TOLERANCE;
pub use inputs::Input;
pub use outcome::Exploration;
pub use ranking::{Chosen, Part, PerWatt, Ranking, Split, Steps, WinningInterval};
pub use recorded::{MOST_LOST, Trained};
pub use regime::{CELLS, Edge, Mark, Regime, Ruler};
pub use request::{ExploreRequest, MOST_NMSE, QUALITY, STUDY, Training, at_loss};
pub use setting::{Setting, setting_of};
pub(crate) use silicon::stated;
pub use silicon::{Block, Silicon};
pub use tensors::{BUILT_IN, Bits, LeftOut, TENSORS, built_in};
pub use vary::{AssumptionSensitivity, End, Limit, Turn};

use crate::compare::{self, Comparison};
use crate::config::{CandidateFile, ExplorationFile, OriginName};
use crate::measured::Question;
use crate::sweep::Study;
use crate::{Error, Progress, Shard};
use baseline_study::BaselineStudy;
use contest::Contest;
use recorded::Asked;
use tensors::Rates;
use trinity_config::Checked;
use trinity_tensor::Class;
use trinity_tensor::compare::{ComparisonRow, InputTensor, Turn as Precondition};

/// The codecs to choose from where nothing else is said.
pub const EXPLORATION: &str = "explorations/codecs";

/// What the exploration rests on beside its answer: the measured rows, and the
/// sweep that can explain its points.
#[derive(Debug)]
pub struct Explored {
    pub exploration: Exploration,
    pub comparison: Comparison,
    pub study: Study,
}

/// Explores. `keep` sees each new row of measured bits as it is found. Fails
/// where the study, a codec or a tensor is wrong, the tensors lack a class that
/// the study sends, no codec meets the quality, a codec that was asked for has
/// no silicon figure, or nothing fits into the budget.
pub fn explore(
    request: &ExploreRequest<'_>,
    keep: &(dyn Fn(&ComparisonRow) + Sync),
    progress: &dyn Progress,
) -> Result<Explored, Error> {
    let file = choices(EXPLORATION)?;
    request.check()?;
    let baseline_study = BaselineStudy::load(request, &file)?;
    let candidates = candidates(&file, &request.candidates)?;
    baseline_study.check_classes(request.input_tensors)?;
    let comparison = compared(request, &candidates, keep, progress)?;
    let bits = tensors::bits(&comparison, request.input_tensors);
    let rates = Rates { bits, trained: trained(request, &baseline_study, &candidates)? };
    let mut left_out = Vec::new();
    let entered: Vec<&CandidateFile> = candidates
        .iter()
        .filter(|candidate| match out(&rates, &candidate.coder, &baseline_study) {
            Some(why) => {
                left_out.push(LeftOut { candidate: candidate.name.clone(), why });
                false
            }
            None => true,
        })
        .collect();
    if entered.is_empty() {
        return Err(tensors::unreachable(&request.quality, &left_out, baseline_study.recorded));
    }
    let silicon = silicon::price(request, &file, &entered, &baseline_study, progress)?;
    let (exploration, study) =
        judged(request, &file, &baseline_study, Measured { rates, silicon, left_out }, progress)?;
    Ok(Explored { exploration, comparison, study })
}

/// The bits of recorded training runs, where those decide.
fn trained(
    request: &ExploreRequest<'_>,
    baseline_study: &BaselineStudy,
    candidates: &[CandidateFile],
) -> Result<Vec<Trained>, Error> {
    let Training::Recorded { loss } = request.training else { return Ok(Vec::new()) };
    if !baseline_study.recorded {
        return Ok(Vec::new());
    }
    let mut coders: Vec<&str> = candidates.iter().map(|candidate| candidate.coder.as_str()).collect();
    coders.sort_unstable();
    coders.dedup();
    recorded::trained(
        &coders,
        &baseline_study.needs,
        Asked { holds_moment: baseline_study.holds_moment, loss },
    )
}

/// Why a coder takes no part.
fn out(rates: &Rates, coder: &str, baseline_study: &BaselineStudy) -> Option<String> {
    if baseline_study.recorded {
        return recorded::idle(&rates.trained, coder);
    }
    tensors::missed(&rates.bits, coder, &baseline_study.needs)
}

/// What tensors and silicon said.
struct Measured {
    rates: Rates,
    silicon: Vec<Silicon>,
    left_out: Vec<LeftOut>,
}

/// The codecs in the cluster: who is best, how surely, and where.
fn judged(
    request: &ExploreRequest<'_>,
    file: &ExplorationFile,
    baseline_study: &BaselineStudy,
    Measured { rates, silicon, left_out }: Measured,
    progress: &dyn Progress,
) -> Result<(Exploration, Study), Error> {
    let (contest, found) = Contest::refined(baseline_study, &silicon, &rates, progress)?;
    let rankings = ranking::rankings(&contest, &found);
    let Some(first) = rankings.first().filter(|ranking| ranking.best.is_some()) else {
        return Err(contest.too_small(&found));
    };
    let runs = |one: &&Ranking| one.scenario != baseline_study.baseline && one.value.is_some();
    let candidate = rankings.iter().find(runs).map(|one| one.scenario.clone());
    let asked = &contest.study.file.study;
    let plain = contest.baseline_at().and_then(|at| contest.optima[at].as_ref());
    let job = plain.or_else(|| contest.optima.iter().flatten().next()).map(|best| best.point.job);
    let measured = crate::measured::quote(job.and_then(|job| Question::of(asked, &job)).as_ref());
    let odds = match &candidate {
        Some(candidate) => chance::odds(&contest, candidate, &measured, request.draws, progress)?,
        None => None,
    };
    let against = odds.as_ref().is_some_and(|odds| odds.pays < 0.5);
    let plain = rankings.iter().any(|one| one.scenario == baseline_study.baseline && one.value.is_some());
    let best = if against && plain { baseline_study.baseline.clone() } else { first.scenario.clone() };
    let regime = match &candidate {
        Some(candidate) => regime::regime(&contest, file, candidate, request.cells, progress)?,
        None => None,
    };
    // Where the odds are against the leader, where it stops leading is no part of the answer.
    let leads = best == first.scenario;
    let limits = if leads { vary::limits(&contest, &best, progress)? } else { Vec::new() };
    let winning_intervals =
        if leads { vary::winning_intervals(&contest, &best, progress)? } else { Vec::new() };
    let sensitivities = vary::sensitivities(&contest, &first.scenario, progress)?;
    let (study, sweep_toml) = contest.grid(Some(&best))?;
    let mut exploration = Exploration {
        title: file.title.clone(),
        study: request.study.clone(),
        quality: request.quality.to_string(),
        budget_mm2: baseline_study.budget_mm2,
        fixed: baseline_study.fixed.clone(),
        rank_by: baseline_study.rank_by.clone(),
        answer: Vec::new(),
        setting: setting::setting(&contest),
        winning_intervals,
        steps: ranking::steps(&contest, &best, progress)?,
        per_watt: ranking::per_watt(&contest),
        certainty: certainty::certainty(file, &rates, &silicon, &best, &measured),
        fronts: study.outcome(&found.accumulated).fronts,
        best,
        baseline: baseline_study.baseline.clone(),
        rankings,
        tolerance: TOLERANCE,
        odds,
        regime,
        limits,
        sensitivities,
        left_out,
        sweep_toml,
        opening: 0,
        bits: rates.bits.clone(),
        trained: rates.trained.clone(),
        silicon: silicon.clone(),
    };
    (exploration.answer, exploration.opening) = answer::answer(&exploration);
    Ok((exploration, study))
}

/// Reads what an exploration chooses from. Fails where there is no such file,
/// or it is wrong, pointing at it.
pub fn choices(name: &str) -> Result<ExplorationFile, Error> {
    Ok(ExplorationFile::load(name)?)
}

/// The candidates that were asked for, in that order; all where none was.
fn candidates(file: &ExplorationFile, asked: &[String]) -> Result<Vec<CandidateFile>, Error> {
    if asked.is_empty() {
        return Ok(file.candidates.clone());
    }
    asked.iter().map(|name| candidate(file, name)).collect()
}

fn candidate(file: &ExplorationFile, name: &str) -> Result<CandidateFile, Error> {
    if let Some(known) = file.candidates.iter().find(|candidate| candidate.name == name) {
        return Ok(known.clone());
    }
    let (coder, silicon) = match name.split_once('=') {
        Some((coder, silicon)) => (coder, Some(silicon.to_owned())),
        None => (name, None),
    };
    let codec = trinity_tensor::codec::codec(coder)
        .map_err(|error| Error::Tensor { subject: coder.to_owned(), error })?;
    if silicon.is_none() && !silicon::has_operations(codec.as_ref()) {
        let known: Vec<&str> = file.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
        return Err(Error::input(
            format_args!(
                "nothing is known of the silicon of `{coder}`: nobody built it, and it does not count its operations"
            ),
            format_args!(
                "give it the silicon of a file of configs/codecs, such as `--codecs {coder}=codecs/line-lanes`, or choose \
                 from {}",
                known.join(", ")
            ),
        ));
    }
    // A profile goes by the name of its file.
    let name = coder.rsplit('/').next().and_then(|file| file.strip_suffix(".toml")).unwrap_or(coder);
    Ok(CandidateFile {
        name: name.to_owned(),
        coder: coder.to_owned(),
        origin: if silicon.is_some() { OriginName::Given } else { OriginName::Operations },
        silicon,
        area_factor: None,
        sms: None,
    })
}

fn compared(
    request: &ExploreRequest<'_>,
    candidates: &[CandidateFile],
    keep: &(dyn Fn(&ComparisonRow) + Sync),
    progress: &dyn Progress,
) -> Result<Comparison, Error> {
    let mut coders: Vec<String> = Vec::new();
    for candidate in candidates {
        if !coders.contains(&candidate.coder) {
            coders.push(candidate.coder.clone());
        }
    }
    let mut whole = Comparison { all: vec![], rows: vec![], classes: vec![], misses: vec![] };
    for (target, classes) in request.quality.targets(&Class::ALL) {
        let has = |tensor: &&InputTensor| classes.contains(&tensor.entry.class());
        let input_tensors: Vec<InputTensor> = request.input_tensors.iter().filter(has).cloned().collect();
        if input_tensors.is_empty() {
            continue;
        }
        let asked = compare::ComparisonRequest {
            input_tensors: &input_tensors,
            codecs: coders.clone(),
            turns: vec![Precondition::None],
            targets: vec![target],
            earlier: request.earlier,
            part: Shard::WHOLE,
            only_earlier: false,
        };
        let part = compare::compare(&asked, keep, progress)?;
        whole.all.extend(part.all);
        whole.rows.extend(part.rows);
        whole.classes.extend(part.classes);
        whole.misses.extend(part.misses);
    }
    Ok(whole)
}
