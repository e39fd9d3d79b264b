//! The answer in words. Every sentence is computed from all rows, and is left
//! out where the rows do not bear it out.

use super::certainty::MODEL;
use super::chance::{Odds, PAYS, SURE};
use super::contest::TIE;
use super::knob::SCALE;
use super::outcome::Exploration;
use super::ranking::{Ranking, WinningInterval};
use super::regime::{CONTEXT, Edge, Regime};
use super::vary::{AssumptionSensitivity, Limit};
use crate::number::{
    amount, chance, grouped_whole as grouped, percent, significant_grouped as significant, times,
};

/// Whole GPUs that move a gain by less than this are not worth a sentence.
const STEP: f64 = 0.01;
/// An input that explains less than this decides nothing.
const DECIDES: f64 = 0.05;

/// The sentences, the answer first, then what it rests on; and how many open it.
pub(super) fn answer(found: &Exploration) -> (Vec<String>, usize) {
    let mut sentences = Vec::new();
    sentences.extend(found.setting.as_ref().map(|setting| format!("{}.", setting.line)));
    sentences.extend(best(found));
    sentences.extend(odds(found));
    sentences.extend(asked(found));
    sentences.extend(per_watt(found));
    sentences.extend(map(found));
    let opening = sentences.len();
    sentences.extend(holes(found));
    sentences.extend(split(found));
    sentences.extend(layouts(found));
    sentences.extend(trained(found));
    sentences.extend(ends(found));
    sentences.extend(stepped(found));
    sentences.extend(bottleneck(found));
    sentences.extend(energy(found));
    sentences.extend(budgets(found));
    sentences.extend(found.limits.iter().map(|limit| stops(found, limit)));
    sentences.extend(sensitive(found));
    sentences.extend(turned(found));
    sentences.extend(model(found));
    (sentences, opening)
}

fn ranking<'a>(found: &'a Exploration, name: &str) -> Option<&'a Ranking> {
    found.rankings.iter().find(|ranking| ranking.scenario == name)
}

/// What to build, and by how much it is better.
fn best(found: &Exploration) -> Option<String> {
    let own = ranking(found, &found.best)?;
    let within = found
        .budget_mm2
        .map_or_else(|| "For each mm²".to_owned(), |mm2| format!("Within {} mm²", grouped(mm2)));
    let figure = format!("{} {}", significant(own.value?), unit(&found.rank_by));
    let first = found.rankings.first()?;
    if own.scenario == found.baseline {
        // A codec may lead as assumed and still be no reason to build it.
        let leads = first.scenario != found.baseline;
        let gain = first.over_baseline.map(|ratio| ratio - 1.0).filter(|_| leads);
        let (rest, odds) = (found.rankings.get(1), found.odds.as_ref());
        let versus = match (gain, odds, rest) {
            (Some(gain), Some(odds), _) => format!(
                "; {} would gain {} as assumed, and pays in {} of the draws",
                first.scenario,
                percent(gain),
                chance(odds.pays)
            ),
            _ => versus(own, rest),
        };
        return Some(format!("{within}, build no codec: {figure}{versus}."));
    }
    let at = found.rankings.iter().position(|ranking| ranking.scenario == own.scenario)?;
    let versus = versus(own, found.rankings.get(at + 1));
    let gain = own
        .over_baseline
        .map_or_else(String::new, |ratio| format!(", {} times as good as {}", times(ratio), found.baseline));
    Some(format!("{within}, build {}: {figure}{gain}{versus}.", own.scenario))
}

/// How far the next is behind.
fn versus(own: &Ranking, next: Option<&Ranking>) -> String {
    let next = next.filter(|ranking| ranking.value.is_some());
    match (next, own.over_next.map(|ratio| ratio - 1.0)) {
        (Some(next), Some(lead)) if lead < TIE => {
            format!("; {} is within {} of it, a tie", next.scenario, percent(lead.max(0.0)))
        }
        (Some(next), Some(lead)) => {
            format!("; {} comes next, {} behind", next.scenario, percent(lead / (1.0 + lead)))
        }
        _ => String::new(),
    }
}

/// How sure that is, with everything uncertain drawn together.
fn odds(found: &Exploration) -> Vec<String> {
    let Some(odds) = &found.odds else { return Vec::new() };
    let mut sentences = vec![format!(
        "With {} uncertain inputs drawn together, {} gains {} times (median; 90 % of {} draws between {} and {}).",
        odds.inputs.len(),
        odds.candidate,
        times(odds.gain.median),
        grouped((odds.draws - odds.failed) as f64),
        times(odds.gain.low),
        times(odds.gain.high),
    )];
    sentences.push(pays(odds));
    sentences.extend(who(odds));
    sentences.extend(decides(odds));
    if odds.failed > 0 {
        sentences.push(format!(
            "In {} of {} draws nothing could run without a codec; they are left out.",
            odds.failed, odds.draws
        ));
    }
    sentences
}

fn pays(odds: &Odds) -> String {
    let more = percent(PAYS - 1.0);
    let draws = format!("in {} of the draws.", chance(odds.any_pays));
    let sure = |what: &str| format!("That {what} pays is sure: one gains more than {more} {draws}");
    match odds.any_pays {
        share if share >= SURE => sure("a codec"),
        share if share <= 1.0 - SURE => sure("no codec"),
        _ => format!("A codec pays, by more than {more}, {draws}"),
    }
}

/// Which candidate is the best how often.
fn who(odds: &Odds) -> Option<String> {
    let (first, rest) = odds.chances.split_first()?;
    if first.best >= SURE {
        return Some(format!(
            "That {} is the best is sure: it is so in {} of them.",
            first.scenario,
            chance(first.best)
        ));
    }
    let rest: Vec<String> = rest
        .iter()
        .filter(|one| one.best >= 0.01)
        .map(|one| format!("{} in {}", one.scenario, chance(one.best)))
        .collect();
    let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.join(", ")) };
    Some(format!("{} is the best in {} of them{rest}.", first.scenario, chance(first.best)))
}

/// The two or three inputs that decide the gain.
fn decides(odds: &Odds) -> Option<String> {
    let some: Vec<String> = odds
        .decides
        .iter()
        .filter(|one| one.share >= DECIDES)
        .take(3)
        .enumerate()
        .map(|(at, one)| {
            let of = if at == 0 { " of the variance of the gain" } else { "" };
            format!("{} ({}{of})", one.input, percent(one.share))
        })
        .collect();
    let (last, rest) = some.split_last()?;
    let listed = if rest.is_empty() { last.clone() } else { format!("{} and {last}", rest.join(", ")) };
    Some(format!("What decides it: {listed}."))
}

/// Says what is best for each watt, without a budget.
fn per_watt(found: &Exploration) -> Option<String> {
    let own = found.per_watt.as_ref()?;
    if own.scenario == found.baseline {
        return Some(format!("For each watt no codec is better than {}.", found.baseline));
    }
    Some(format!(
        "For each watt {} is best, {} times as good as {}.",
        own.scenario,
        times(own.over_baseline),
        found.baseline
    ))
}

/// Where a codec pays, and where this cluster lies.
fn map(found: &Exploration) -> Option<String> {
    let regime = found.regime.as_ref()?;
    let Regime { x, y, here, candidate, .. } = regime;
    let unit = if here.y == 1.0 { y.unit.trim_end_matches('s') } else { y.unit };
    let at = format!("At {} {unit} ({})", amount(here.y), y.name);
    // Serving is laid out by what is asked of it, training by what it is asked of.
    let whose = if x.name == CONTEXT { "workload" } else { "cluster" };
    let edge = match regime.edge {
        Edge::Everywhere => format!("{at}, {candidate} pays at any {} on the map", x.name),
        Edge::Nowhere => format!("{at}, {candidate} pays at no {} on the map", x.name),
        Edge::Below(edge) => format!("{at}, {candidate} pays below {} {}", amount(edge), x.unit),
        Edge::Above(edge) => format!("{at}, {candidate} pays above {} {}", amount(edge), x.unit),
        Edge::Here => format!("{at}, whether {candidate} pays changes more than once along the {}", x.name),
    };
    let pays: Vec<&str> = regime
        .marks
        .iter()
        .filter(|mark| mark.gain.is_some_and(|gain| gain > PAYS))
        .map(|mark| mark.name.as_str())
        .collect();
    let known = match (pays.len(), regime.marks.len()) {
        (_, 0) => String::new(),
        (0, all) => format!(" Where {all} well-known ones lie, it pays for none."),
        (some, all) => {
            format!(" Where {all} well-known ones lie, it pays for {some}: {}.", pays.join("; "))
        }
    };
    Some(format!("{edge}; this {whose} has {}.{known}", amount(here.x)))
}

/// Places of the map that are none, and why.
fn holes(found: &Exploration) -> Option<String> {
    let regime = found.regime.as_ref()?;
    let why = regime.why.as_ref()?;
    let all: usize = regime.gains.iter().map(Vec::len).sum();
    Some(format!("{} of the {all} places on the map cannot run ({why}).", regime.holes))
}

/// Where the bits of training come from, of the codec that leads as assumed.
fn trained(found: &Exploration) -> Option<String> {
    let leader = found.rankings.iter().find(|one| one.scenario != found.baseline && one.value.is_some())?;
    let coder = &found.silicon.iter().find(|silicon| silicon.candidate == leader.scenario)?.coder;
    let own: Vec<_> = found.trained.iter().filter(|one| one.coder == *coder).collect();
    let coded = own.iter().filter_map(|one| {
        let (bits, run) = (one.bits_per_value?, one.run.as_ref()?);
        let (lost, interval) = (one.lost? * 100.0, one.interval? * 100.0);
        Some(format!("{} at {bits:.2} (run {run}, {lost:+.1} ± {interval:.1} % of loss)", one.class))
    });
    let coded: Vec<String> = coded.collect();
    if coded.is_empty() {
        return None;
    }
    let raw: Vec<String> =
        own.iter().filter(|one| one.bits_per_value.is_none()).map(|one| one.class.to_string()).collect();
    let raw = match raw.as_slice() {
        [] => String::new(),
        all => format!("; sent as it is, as no recorded run stood it coded: {}", all.join(", ")),
    };
    Some(format!(
        "Bits of {} are those of recorded training runs: {}{raw}.",
        leader.scenario,
        coded.join(", ")
    ))
}

/// How the best and the baseline cut the job.
fn layouts(found: &Exploration) -> Option<String> {
    let own = ranking(found, &found.best)?;
    let cut = own.layout.as_ref()?;
    let plain = ranking(found, &found.baseline).filter(|_| found.best != found.baseline);
    let plain = plain.and_then(|plain| plain.layout.as_ref());
    let plain = plain.map_or_else(String::new, |cut| format!("; {} plays {cut}", found.baseline));
    Some(format!("It plays {cut}{plain}."))
}

/// Axes on which the search went on beyond the study's values, and those it
/// could not go on along.
fn ends(found: &Exploration) -> Vec<String> {
    let told = found.rankings.iter().filter(|one| {
        one.scenario == found.best
            || one.scenario == found.baseline
            || one.over_next.is_some_and(|lead| lead < 1.1)
    });
    let (mut beyond, mut stuck) = (Vec::new(), Vec::new());
    for ranking in told {
        for chosen in &ranking.chosen {
            let what = format!("{} of {}", chosen.path, ranking.scenario);
            if let Some(end) = chosen.beyond {
                beyond.push(format!("{what} at {} ({} is listed)", chosen.value, significant(end)));
            } else if chosen.at_end {
                stuck.push(format!("{what} ({})", chosen.value));
            }
        }
    }
    let beyond = (!beyond.is_empty())
        .then(|| format!("The search went beyond the study's axes: {}.", beyond.join("; ")));
    let stuck = (!stuck.is_empty()).then(|| {
        format!("At the end of its axis, and with no way on: {}. More might be better.", stuck.join("; "))
    });
    beyond.into_iter().chain(stuck).collect()
}

fn gpus(count: u32) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

/// Where whole GPUs, and not the codec, make a difference.
fn stepped(found: &Exploration) -> Option<String> {
    let steps = found.steps.as_ref()?;
    let gain = ranking(found, &found.best)?.over_baseline?;
    if (steps.mean / gain - 1.0).abs() < STEP && steps.most / steps.least < 1.0 + 2.0 * STEP {
        return None;
    }
    Some(format!(
        "Part of that is whole steps: clusters come in whole pipelines, of {} with {} and of {} without{}; at budgets up \
         to {} away it gains between {} and {} times, {} in the mean.",
        gpus(steps.gpus),
        found.best,
        gpus(steps.baseline_gpus),
        if steps.dealt { ", and in numbers of them that divide the batch" } else { "" },
        percent(steps.around),
        times(steps.least),
        times(steps.most),
        times(steps.mean),
    ))
}

/// The workload that it is the answer for, where the study has several.
fn asked(found: &Exploration) -> Option<String> {
    let asked: Vec<_> = found.fixed.iter().filter(|fixed| fixed.path != SCALE).collect();
    let grows = found.fixed.iter().find(|fixed| fixed.path == SCALE);
    let fixed = found.fixed.iter().map(|fixed| format!("{} = {} {}", fixed.path, fixed.value, fixed.unit));
    let fixed: Vec<String> = fixed.map(|fixed| fixed.trim_end().to_owned()).collect();
    let others = match (asked.first(), grows) {
        (Some(first), _) => format!("`--set study.{}=…` asks for another", first.path),
        (None, Some(_)) => "`--budget` lets the cluster grow".to_owned(),
        (None, None) => return None,
    };
    Some(format!("That is for {}; {others}.", fixed.join(" and ")))
}

/// How the silicon of the best is shared out.
fn split(found: &Exploration) -> Option<String> {
    let best = ranking(found, &found.best)?;
    let split = best.split?;
    let area = best.best.as_ref()?.estimate.area_mm2;
    Some(format!(
        "Its {} mm² are {} ({}), network cards ({}) and codecs ({}).",
        grouped(area),
        gpus(split.gpus),
        percent(split.gpu),
        percent(split.nic),
        percent(split.codec),
    ))
}

/// Where the time of the best goes.
fn bottleneck(found: &Exploration) -> Option<String> {
    let best = ranking(found, &found.best)?;
    let (first, rest) = best.time.split_first()?;
    let next = rest
        .first()
        .map_or_else(String::new, |part| format!(", then {} ({})", part.name, percent(part.share)));
    Some(format!("Its time goes into {} ({}){next}.", first.name, percent(first.share)))
}

/// What a token takes, beside what it takes without a codec.
fn energy(found: &Exploration) -> Option<String> {
    let best = ranking(found, &found.best)?;
    let own = best.energy_j_per_token?;
    let plain_j =
        ranking(found, &found.baseline)?.energy_j_per_token.filter(|_| best.scenario != found.baseline)?;
    Some(format!("A token takes {} J, {} without a codec.", significant(own), significant(plain_j)))
}

/// Says at which budgets another is the best.
fn budgets(found: &Exploration) -> Option<String> {
    let budget = found.budget_mm2?;
    let own = found.winning_intervals.iter().position(|winning| {
        winning.from_mm2 <= budget
            && winning.to_mm2.is_none_or(|to| budget < to)
            && winning.scenario == found.best
    })?;
    let winning = &found.winning_intervals[own];
    let below = own.checked_sub(1).map(|at| &found.winning_intervals[at]);
    let above = found.winning_intervals.get(own + 1);
    let others = match (below, above) {
        (None, None) => return Some(format!("It stays the best at every budget {}.", from_to(winning))),
        (Some(below), None) => format!("below that, {} is", below.scenario),
        (None, Some(above)) => format!("above that, {} is", above.scenario),
        (Some(below), Some(above)) => {
            format!("below that {} is, above it {}", below.scenario, above.scenario)
        }
    };
    Some(format!("It is the best {}; {others}.", from_to(winning)))
}

/// The budgets of a winning interval, of which two figures are enough.
fn from_to(winning: &WinningInterval) -> String {
    let from = grouped(rounded(winning.from_mm2));
    winning.to_mm2.map_or_else(
        || format!("from {from} mm² on"),
        |to| format!("from {from} to {} mm²", grouped(rounded(to))),
    )
}

/// Two figures of a number.
fn rounded(value: f64) -> f64 {
    let unit = 10_f64.powf(value.abs().max(1.0).log10().floor() - 1.0);
    (value / unit).round() * unit
}

/// Where it stops being the best, along one link or in its bits.
fn stops(found: &Exploration, limit: &Limit) -> String {
    let at = |factor: f64| match (limit.value, limit.path.is_some()) {
        (Some(value), true) => format!("{} {}", significant(value * factor), limit.unit),
        _ => format!("{} times as many", significant(factor)),
    };
    let what = &limit.what;
    match (&limit.below, &limit.above) {
        (None, None) if limit.from < 1.0 => {
            format!("With {what} from {} to {} it stays the best.", at(limit.from), at(limit.to))
        }
        (None, None) => format!("With {what} {} it stays the best.", at(limit.to)),
        (Some(below), None) => {
            format!("With {what} at {} or less, {} is the best.", at(below.factor), below.scenario)
        }
        (None, Some(above)) if limit.path.is_some() => {
            format!("With {what} at {} or more, {} is the best.", at(above.factor), above.scenario)
        }
        (None, Some(above)) => {
            format!("Were the {what} {}, {} would be the best.", at(above.factor), above.scenario)
        }
        (Some(below), Some(above)) => {
            let (least, most) = (at(below.factor), at(above.factor));
            let others = if below.scenario == above.scenario {
                format!("below and above that {} is", below.scenario)
            } else {
                format!("below that {} is, above it {}", below.scenario, above.scenario)
            };
            format!("{} stays the best with {what} between {least} and {most}; {others}.", found.best)
        }
    }
}

/// What moves the gain over no codec most.
fn sensitive(found: &Exploration) -> Option<String> {
    if found.best == found.baseline {
        return None;
    }
    let widest = found.sensitivities.iter().max_by(|a, b| a.width().total_cmp(&b.width()))?;
    let (low, high) = (widest.low.over_baseline?, widest.high.over_baseline?);
    // Below this nothing can be said to move it.
    if widest.width() < TIE {
        return None;
    }
    Some(format!(
        "The gain over {} rests most on the {}: {} times at {}, {} times at {}.",
        found.baseline,
        widest.assumption.trim_start_matches("the "),
        significant(low),
        widest.low.value,
        significant(high),
        widest.high.value,
    ))
}

/// Which assumptions change who is the best, each alone.
fn turned(found: &Exploration) -> Option<String> {
    let other = |sensitivity: &AssumptionSensitivity| {
        [&sensitivity.low, &sensitivity.high].into_iter().find_map(|end| {
            let best = end.best.as_ref().filter(|best| **best != found.best)?;
            Some(format!("{} ({best} at {})", sensitivity.assumption, end.value))
        })
    };
    // Odds may be against who leads as assumed; then there is no lead to lose.
    found.rankings.first().filter(|first| first.scenario == found.best)?;
    let turned: Vec<String> = found.sensitivities.iter().filter_map(other).collect();
    let (some, all) = (turned.len(), found.sensitivities.len());
    (some > 0).then(|| {
        format!(
            "Alone, {some} of the {all} assumptions, at an end of {} range, make{} another the best: {}.",
            if some == 1 { "its" } else { "their" },
            if some == 1 { "s" } else { "" },
            turned.join("; ")
        )
    })
}

/// What the cluster model was off by on runs like this one.
fn model(found: &Exploration) -> Option<String> {
    let model = found.certainty.iter().find(|link| link.link == MODEL)?;
    let off = percent(model.error?);
    Some(match model.basis.strip_prefix("no run") {
        Some(rest) => format!("No run{rest}, on which the cluster model was off by {off}."),
        None => format!("The cluster model was off by {off} on {}.", model.basis),
    })
}

/// What `rank-by` counts, as a unit.
fn unit(rank_by: &str) -> &'static str {
    match rank_by.trim_start_matches("max ").trim_start_matches("min ").replace('_', "-").as_str() {
        "tokens-per-s" => "tokens/s",
        "energy-j-per-token" => "J/token",
        "iteration-s" => "s an iteration",
        "energy-j" => "J an iteration",
        "memory-gb" => "GB",
        "power-w" => "W",
        _ => "mm²",
    }
}

#[cfg(test)]
mod tests;
