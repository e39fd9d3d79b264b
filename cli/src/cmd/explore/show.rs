//! An exploration as text: the answer, then the rows it is read from.

use crate::table::{Table, sig3};
use trinity_sim::Estimate;
use trinity_study::explore::{Exploration, Odds, Ranking, Split};
use trinity_study::search::Found;
use trinity_tensor::Class;

pub fn text(found: &Exploration, colour: bool) -> String {
    let mut text: String = found.answer.iter().map(|sentence| format!("{sentence}\n")).collect();
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
    Table::of(&found.rankings)
        .column("codec", |ranking| &ranking.scenario)
        .column("plays", |ranking| ranking.layout.as_deref().unwrap_or("nothing fits"))
        .end()
}

/// Every scenario's odds.
pub fn chances(odds: &Odds) -> Table {
    Table::of(&odds.chances)
        .column("codec", |one| &one.scenario)
        .column("best in", |one| percent(one.best))
        .column("gain, median", |one| format!("{:.3}×", one.gain.median))
        .column("5 %", |one| format!("{:.3}×", one.gain.low))
        .column("95 %", |one| format!("{:.3}×", one.gain.high))
        .end()
}

/// The inputs that explain anything of the gain's variance.
pub fn decides(odds: &Odds) -> Table {
    Table::of(odds.decides.iter().filter(|one| one.share >= 0.005))
        .column("input", |one| &one.input)
        .column("of the variance", |one| percent(one.share))
        .end()
}

/// The designs that no other beats.
pub fn search(found: &Found, colour: bool) -> String {
    let heading = format!("\n{} of {} designs that no other beats\n", found.front.len(), found.designs);
    heading + &designs(found).render(colour)
}

pub fn designs(found: &Found) -> Table {
    Table::of(&found.front)
        .column("design", |(row, _)| &row.design)
        .column("bits/value", |(row, _)| format!("{:.3}", row.bits_per_value))
        .column("encoder mm²", |(row, _)| sig3(row.area_mm2))
        .column("pJ/bit", |(row, _)| sig3(row.pj_per_bit))
        .end()
}

fn within(found: &Exploration) -> String {
    found.budget_mm2.map_or_else(|| " for each mm²".to_owned(), |mm2| format!(" within {mm2} mm²"))
}

fn percent(share: f64) -> String {
    format!("{} %", sig3(share * 100.0))
}

/// Every scenario at the budget, the best first.
pub fn rankings(found: &Exploration) -> Table {
    // A scenario that nothing fits has dashes.
    let fits = |ranking: &Ranking, said: &dyn Fn(&Estimate, &Split) -> String| {
        let both = ranking.best.as_ref().zip(ranking.split.as_ref());
        both.map_or_else(|| "-".to_owned(), |(best, split)| said(&best.estimate, split))
    };
    let over = |ranking: &Ranking| ranking.over_baseline.filter(|_| ranking.scenario != found.baseline);
    Table::of(&found.rankings)
        .column("codec", |own| &own.scenario)
        .column("tokens/s", |own| fits(own, &|best, _| sig3(best.tokens_per_s)))
        .column("over none", |own| {
            fits(own, &|_, _| over(own).map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}×")))
        })
        .column("J/token", |own| fits(own, &|best, _| sig3(best.energy_j_per_token)))
        .column("area mm²", |own| fits(own, &|best, _| sig3(best.area_mm2)))
        .column("GPUs", |own| fits(own, &|_, split| split.gpus.to_string()))
        .column("GPU", |own| fits(own, &|_, split| percent(split.gpu)))
        .column("NIC", |own| fits(own, &|_, split| percent(split.nic)))
        .column("codec", |own| fits(own, &|_, split| percent(split.codec)))
        .column("waits most for", waits)
        .end()
}

/// Compute is what a cluster is for; what it waits for is the rest.
fn waits(ranking: &Ranking) -> String {
    if ranking.best.is_none() || ranking.split.is_none() {
        return "nothing fits".into();
    }
    let waits = ranking.time.iter().find(|part| part.name != "compute");
    waits.map_or_else(|| "nothing".into(), |part| format!("{}, {}", part.name, percent(part.share)))
}

/// Who coded, each once.
pub fn coders(found: &Exploration) -> Vec<&str> {
    let mut coders: Vec<&str> = Vec::new();
    for bits in &found.bits {
        if !coders.contains(&bits.coder.as_str()) {
            coders.push(&bits.coder);
        }
    }
    coders
}

/// A row for each class, a column for each coder.
pub fn bits(found: &Exploration) -> Table {
    let coders = coders(found);
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
    Table::of(&found.trained)
        .column("class", |own| own.class)
        .column("coder", |own| &own.coder)
        .column("bits", |own| own.bits_per_value.map_or("as it is".into(), |bits| format!("{bits:.2}")))
        .column("runs", |own| own.runs)
        .column("from", |own| &own.source)
        .end()
}

/// What each codec costs, and where that is from.
pub fn silicon(found: &Exploration) -> Table {
    let known = |value: f64| if value == 0.0 { "0".into() } else { sig3(value) };
    Table::of(&found.silicon)
        .column("codec", |own| &own.candidate)
        .column("coder", |own| &own.coder)
        .column("node", |own| &own.node)
        .column("enc mm²", |own| known(own.encoder.area_mm2))
        .column("dec mm²", |own| known(own.decoder.area_mm2))
        .column("enc Gbit/s", |own| sig3(own.encoder.throughput_gbps))
        .column("dec Gbit/s", |own| sig3(own.decoder.throughput_gbps))
        .column("enc pJ/bit", |own| sig3(own.encoder.pj_per_bit))
        .column("dec pJ/bit", |own| sig3(own.decoder.pj_per_bit))
        .column("off by", |own| {
            own.area_factor.map_or_else(|| "not known".into(), |factor| format!("{factor:.1}×"))
        })
        .column("from", |own| format!("{} ({})", own.origin.words(), own.source))
        .end()
}

/// How far each link was from what is true.
pub fn certainty(found: &Exploration) -> Table {
    Table::of(&found.certainty)
        .column("link", |link| &link.link)
        .column("error", |link| link.error.map_or_else(|| "not known".into(), percent))
        .column("measured on", |link| &link.basis)
        .end()
}
