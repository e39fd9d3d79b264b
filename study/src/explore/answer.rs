//! The answer in words. Every sentence is computed from all rows, and is left
//! out where the rows do not bear it out.

use super::certainty::MODEL;
use super::outcome::Exploration;
use super::standing::Standing;
use super::vary::{Limit, Swing};

/// Two that are closer than this are told as equals.
const TIE: f64 = 0.005;

/// The sentences, the answer first, then what it rests on.
pub(super) fn answer(found: &Exploration) -> Vec<String> {
    let mut sentences = Vec::new();
    sentences.extend(best(found));
    sentences.extend(asked(found));
    sentences.extend(split(found));
    sentences.extend(bottleneck(found));
    sentences.extend(energy(found));
    sentences.extend(budgets(found));
    sentences.extend(found.limits.iter().map(|limit| stops(found, limit)));
    sentences.extend(sensitive(found));
    sentences.extend(turned(found));
    sentences.extend(sure(found));
    sentences
}

/// The best at the budget, and by how much.
fn best(found: &Exploration) -> Option<String> {
    let (best, rest) = found.standings.split_first()?;
    let value = best.value?;
    let within = found
        .budget_mm2
        .map_or_else(|| "Over all points".to_owned(), |mm2| format!("Within {} mm²", grouped(mm2)));
    let next = rest.iter().find(|standing| standing.value.is_some());
    let lead = best.over_next.map(|ratio| ratio - 1.0);
    let versus = match (next, lead) {
        (Some(next), Some(lead)) if lead < TIE => {
            format!("; {} is within {} of it, a tie", next.scenario, percent(lead.max(0.0)))
        }
        (Some(next), Some(lead)) => {
            format!("; {} comes next, {} behind", next.scenario, percent(lead / (1.0 + lead)))
        }
        _ => String::new(),
    };
    let figure = format!("{} {}", significant(value), unit(&found.rank_by));
    if best.scenario == found.baseline {
        return Some(format!("{within}, build no codec: {figure}{versus}."));
    }
    let gain = best.over_baseline.map_or_else(String::new, |ratio| {
        format!(", {} times as good as {}", significant(ratio), found.baseline)
    });
    Some(format!("{within}, build {}: {figure}{gain}{versus}.", best.scenario))
}

/// The workload that it is the answer for, where the study has several.
fn asked(found: &Exploration) -> Option<String> {
    let first = found.held.first()?;
    let held: Vec<String> = found.held.iter().map(|held| format!("{} = {}", held.path, held.value)).collect();
    Some(format!("That is for {}; `--set study.{}=…` asks for another.", held.join(" and "), first.path))
}

/// How the silicon of the best is shared out.
fn split(found: &Exploration) -> Option<String> {
    let best = found.standings.first()?;
    let split = best.split?;
    let area = best.best.as_ref()?.estimate.area_mm2;
    Some(format!(
        "Its {} mm² are {} GPU{} ({}), network cards ({}) and codecs ({}).",
        grouped(area),
        split.gpus,
        if split.gpus == 1 { "" } else { "s" },
        percent(split.gpu),
        percent(split.nic),
        percent(split.codec),
    ))
}

/// Where the time of the best goes.
fn bottleneck(found: &Exploration) -> Option<String> {
    let best = found.standings.first()?;
    let (first, rest) = best.time.split_first()?;
    let next = rest
        .first()
        .map_or_else(String::new, |part| format!(", then {} ({})", part.name, percent(part.share)));
    Some(format!("Its time goes into {} ({}){next}.", first.name, percent(first.share)))
}

/// What a token takes, beside what it takes without a codec.
fn energy(found: &Exploration) -> Option<String> {
    let best = found.standings.first()?;
    let own = best.energy_j_per_token?;
    let plain = found.standings.iter().find(|standing| standing.scenario == found.baseline)?;
    let plain_j = plain.energy_j_per_token.filter(|_| best.scenario != found.baseline)?;
    Some(format!("A token takes {} J, {} without a codec.", significant(own), significant(plain_j)))
}

/// At which budgets another is the best.
fn budgets(found: &Exploration) -> Option<String> {
    let budget = found.budget_mm2?;
    let own = found.reigns.iter().position(|reign| {
        reign.from_mm2 <= budget && reign.to_mm2.is_none_or(|to| budget < to) && reign.scenario == found.best
    })?;
    let reign = &found.reigns[own];
    let below = own.checked_sub(1).map(|at| &found.reigns[at]);
    let above = found.reigns.get(own + 1);
    let sentence = match (below, above) {
        (None, None) => "It is the best at every budget at which anything fits.".to_owned(),
        (Some(below), None) => {
            format!(
                "From {} mm² on it is the best; below that, {} is.",
                grouped(reign.from_mm2),
                below.scenario
            )
        }
        (None, Some(above)) => {
            format!(
                "Up to {} mm² it is the best; above that, {} is.",
                grouped(above.from_mm2),
                above.scenario
            )
        }
        (Some(below), Some(above)) => format!(
            "It is the best from {} to {} mm²; below that {} is, above it {}.",
            grouped(reign.from_mm2),
            grouped(above.from_mm2),
            below.scenario,
            above.scenario
        ),
    };
    Some(sentence)
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
        (Some(below), Some(above)) => format!(
            "{} stays the best with {what} between {} and {}; below that {} is, above it {}.",
            found.best,
            at(below.factor),
            at(above.factor),
            below.scenario,
            above.scenario
        ),
    }
}

/// What moves the gain over no codec most.
fn sensitive(found: &Exploration) -> Option<String> {
    if found.best == found.baseline {
        return None;
    }
    let widest = found.swings.iter().max_by(|a, b| a.width().total_cmp(&b.width()))?;
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

/// Which assumptions change who is the best.
fn turned(found: &Exploration) -> Option<String> {
    let turns = |swing: &&Swing| {
        [&swing.low, &swing.high]
            .into_iter()
            .any(|end| end.best.as_ref().is_some_and(|best| *best != found.best))
    };
    let turned: Vec<String> = found
        .swings
        .iter()
        .filter(turns)
        .map(|swing| {
            let end = [&swing.low, &swing.high]
                .into_iter()
                .find(|end| end.best.as_ref().is_some_and(|best| *best != found.best));
            let (value, best) =
                end.map_or(("", ""), |end| (end.value.as_str(), end.best.as_deref().unwrap_or("")));
            format!("{} ({best} at {value})", swing.assumption)
        })
        .collect();
    match (turned.len(), found.swings.len()) {
        (_, 0) => None,
        (0, all) => Some(format!(
            "None of the {all} assumptions, at either end of its range, makes another the best."
        )),
        (some, all) => Some(format!(
            "{some} of the {all} assumptions, at an end of {} range, make{} another the best: {}.",
            if some == 1 { "its" } else { "their" },
            if some == 1 { "s" } else { "" },
            turned.join("; ")
        )),
    }
}

/// Whether the lead is larger than what the model was off by.
fn sure(found: &Exploration) -> Option<String> {
    let best = found.standings.first()?;
    let model = found.certainty.iter().find(|link| link.link == MODEL)?;
    let error = model.error?;
    let next = found.standings.get(1).filter(|next| next.value.is_some());
    let gain = best.over_baseline.filter(|_| best.scenario != found.baseline).map(|ratio| ratio - 1.0);
    let pays = gain.map(|gain| {
        let verdict = if gain > error { "is sure" } else { "is not sure" };
        format!("That a codec pays {verdict}: its gain is {}", percent(gain))
    });
    let lead = best.over_next.map(|ratio| ratio - 1.0).zip(next).map(|(lead, next)| {
        let verdict = if lead > error { "is sure, too" } else { "is not" };
        let verdict = if gain.is_none_or(|gain| gain <= error) && lead > error { "is sure" } else { verdict };
        (lead, next, verdict)
    });
    let lead = lead.filter(|(_, next, _)| next.scenario != found.baseline || gain.is_none());
    let lead = lead.map(|(lead, next, verdict): (f64, &Standing, &str)| {
        format!(
            "that {} is the one rather than {} {verdict}: its lead is {}",
            best.scenario,
            next.scenario,
            percent(lead)
        )
    });
    let said: Vec<String> = [pays, lead].into_iter().flatten().collect();
    if said.is_empty() {
        return None;
    }
    let said = said.join("; ");
    let mut letters = said.chars();
    let said = letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str());
    let off = percent(error);
    Some(match model.basis.strip_prefix("no run") {
        Some(rest) => format!("{said}. No run{rest}, on which the model was off by {off}."),
        None => format!("{said}, and the model was off by {off} on {}.", model.basis),
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

/// Three significant digits.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    match magnitude {
        -4..=2 => format!("{value:.*}", (2 - magnitude).max(0) as usize),
        3..=11 => {
            let step = 10f64.powi(magnitude - 2);
            grouped((value / step).round() * step)
        }
        _ => format!("{value:.2e}"),
    }
}

/// A share, with as many digits as it needs.
fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        0.0 => "0 %".into(),
        value if value < 0.01 => "less than 0.01 %".into(),
        size if size < 1.0 => format!("{value:.2} %"),
        size if size < 10.0 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// A whole number with its thousands set apart.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digit.is_ascii_digit() && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
