//! An exploration as text: the answer, then the rows it is read from.

use crate::table::{Table, sig3};
use trinity_study::explore::{Exploration, Odds, Ranking, Silicon};
use trinity_study::search::Found;
use trinity_tensor::Class;

pub fn text(found: &Exploration, colour: bool) -> String {
    let mut text = String::new();
    for sentence in &found.answer {
        text += sentence;
        text.push('\n');
    }
    text += &format!("\nEach codec at its best{}\n", within(found));
    text += &rankings(found).render(colour);
    text += "\nWhat each plays\n";
    text += &layouts(found).render(colour);
    if let Some(odds) = &found.odds {
        text += &format!("\nOver {} draws\n", odds.draws - odds.failed);
        text += &chances(odds).render(colour);
        text += "\nWhat decides the gain\n";
        text += &decides(odds).render(colour);
    }
    text += &format!("\nBits per value at {}\n", found.quality);
    text += &bits(found).render(colour);
    if !found.trained.is_empty() {
        text += "\nBits of what training sends, by recorded runs\n";
        text += &trained(found).render(colour);
    }
    text += "\nSilicon\n";
    text += &silicon(found).render(colour);
    text += "\nHow sure each link is\n";
    text += &certainty(found).render(colour);
    for left in &found.left_out {
        text += &format!("left out: {}: {}\n", left.candidate, left.why);
    }
    text
}

/// How each scenario cuts the job and what its GPUs have.
pub fn layouts(found: &Exploration) -> Table {
    let mut table = Table::new(["codec", "plays"]);
    for ranking in &found.rankings {
        let plays = ranking.layout.clone().unwrap_or_else(|| "nothing fits".into());
        table.row([ranking.scenario.clone(), plays]);
    }
    table
}

/// Every scenario's odds.
pub fn chances(odds: &Odds) -> Table {
    let mut table = Table::new(["codec", "best in", "gain, median", "5 %", "95 %"]);
    for one in &odds.chances {
        let gain = [one.gain.median, one.gain.low, one.gain.high].map(|gain| format!("{gain:.3}×"));
        table.row([one.scenario.clone(), percent(one.best)].into_iter().chain(gain));
    }
    table
}

/// The inputs that explain anything of the gain's variance.
pub fn decides(odds: &Odds) -> Table {
    let mut table = Table::new(["input", "of the variance"]);
    for one in odds.decides.iter().filter(|one| one.share >= 0.005) {
        table.row([one.input.clone(), percent(one.share)]);
    }
    table
}

/// The designs that no other beats.
pub fn search(found: &Found, colour: bool) -> String {
    let heading = format!("\n{} of {} designs that no other beats\n", found.front.len(), found.designs);
    heading + &designs(found).render(colour)
}

pub fn designs(found: &Found) -> Table {
    let mut table = Table::new(["design", "bits/value", "encoder mm²", "pJ/bit"]);
    for (row, _) in &found.front {
        let figures = [format!("{:.3}", row.bits_per_value), sig3(row.area_mm2), sig3(row.pj_per_bit)];
        table.row([row.design.clone()].into_iter().chain(figures));
    }
    table
}

fn within(found: &Exploration) -> String {
    found.budget_mm2.map_or_else(|| " for each mm²".to_owned(), |mm2| format!(" within {mm2} mm²"))
}

fn percent(share: f64) -> String {
    format!("{} %", sig3(share * 100.0))
}

/// Every scenario at the budget, the best first.
pub fn rankings(found: &Exploration) -> Table {
    let mut table = Table::new([
        "codec",
        "tokens/s",
        "over none",
        "J/token",
        "area mm²",
        "GPUs",
        "GPU",
        "NIC",
        "codec",
        "waits most for",
    ]);
    for ranking in &found.rankings {
        table.row(cells(ranking, found));
    }
    table
}

fn cells(ranking: &Ranking, found: &Exploration) -> Vec<String> {
    let (Some(best), Some(split)) = (&ranking.best, ranking.split) else {
        let nothing = std::iter::repeat_n(String::from("-"), 8);
        return [ranking.scenario.clone()]
            .into_iter()
            .chain(nothing)
            .chain(["nothing fits".into()])
            .collect();
    };
    let over = ranking.over_baseline.filter(|_| ranking.scenario != found.baseline);
    // Compute is what a cluster is for; what it waits for is the rest.
    let waits = ranking.time.iter().find(|part| part.name != "compute");
    vec![
        ranking.scenario.clone(),
        sig3(best.estimate.tokens_per_s),
        over.map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}×")),
        sig3(best.estimate.energy_j_per_token),
        sig3(best.estimate.area_mm2),
        split.gpus.to_string(),
        percent(split.gpu),
        percent(split.nic),
        percent(split.codec),
        waits.map_or_else(|| "nothing".into(), |part| format!("{}, {}", part.name, percent(part.share))),
    ]
}

/// A row for each class, a column for each coder.
pub fn bits(found: &Exploration) -> Table {
    let mut coders: Vec<&str> = Vec::new();
    for bits in &found.bits {
        if !coders.contains(&bits.coder.as_str()) {
            coders.push(&bits.coder);
        }
    }
    let mut table = Table::new(["class", "tensors"].into_iter().chain(coders.iter().copied()));
    for class in Class::ALL {
        let own: Vec<_> = found.bits.iter().filter(|bits| bits.class == class).collect();
        let Some(first) = own.first() else { continue };
        let cells = coders.iter().map(|coder| {
            let bits = own.iter().find(|bits| bits.coder == *coder);
            bits.and_then(|bits| bits.bits_per_value)
                .map_or_else(|| "not reached".into(), |bits| format!("{bits:.3}"))
        });
        table.row([class.to_string(), first.tensors.to_string()].into_iter().chain(cells));
    }
    table
}

/// A row for each class and coder of a training job.
pub fn trained(found: &Exploration) -> Table {
    let mut table = Table::new(["class", "coder", "bits", "runs", "from"]);
    for own in &found.trained {
        let bits = own.bits_per_value.map_or_else(|| "as it is".into(), |bits| format!("{bits:.2}"));
        table.row([own.class.to_string(), own.coder.clone(), bits, own.runs.to_string(), own.source.clone()]);
    }
    table
}

/// What each codec costs, and where that is from.
pub fn silicon(found: &Exploration) -> Table {
    let mut table = Table::new([
        "codec",
        "coder",
        "node",
        "enc mm²",
        "dec mm²",
        "enc Gbit/s",
        "dec Gbit/s",
        "enc pJ/bit",
        "dec pJ/bit",
        "off by",
        "from",
    ]);
    for silicon in &found.silicon {
        table.row(silicon_cells(silicon));
    }
    table
}

fn silicon_cells(silicon: &Silicon) -> Vec<String> {
    let known = |value: f64| if value == 0.0 { "0".into() } else { sig3(value) };
    vec![
        silicon.candidate.clone(),
        silicon.coder.clone(),
        silicon.node.clone(),
        known(silicon.encoder.area_mm2),
        known(silicon.decoder.area_mm2),
        sig3(silicon.encoder.throughput_gbps),
        sig3(silicon.decoder.throughput_gbps),
        sig3(silicon.encoder.pj_per_bit),
        sig3(silicon.decoder.pj_per_bit),
        silicon.area_factor.map_or_else(|| "not known".into(), |factor| format!("{factor:.1}×")),
        format!("{} ({})", silicon.origin.words(), silicon.source),
    ]
}

/// How far each link was from what is true.
pub fn certainty(found: &Exploration) -> Table {
    let mut table = Table::new(["link", "error", "measured on"]);
    for link in &found.certainty {
        let error = link.error.map_or_else(|| "not known".into(), percent);
        table.row([link.link.clone(), error, link.basis.clone()]);
    }
    table
}
