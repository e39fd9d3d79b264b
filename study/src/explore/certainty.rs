//! How sure each link of the chain is.

use super::silicon::Silicon;
use super::tensors::{Bits, Rates};
use crate::config::ExplorationFile;
use crate::measured::Quoted;
use serde::Serialize;

/// A link, and how far it was from what is true.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certainty {
    pub link: String,
    /// A fraction of what was measured; nothing where it is not known.
    pub error: Option<f64>,
    pub basis: String,
}

/// The link that times a cluster: its error is that of runs like the question.
pub(super) const MODEL: &str = "time of an iteration";

/// The links of the chain: bits, silicon, cluster.
pub(super) fn certainty(
    file: &ExplorationFile,
    rates: &Rates,
    silicon: &[Silicon],
    best: &str,
    measured: &Quoted,
) -> Vec<Certainty> {
    let mut links = Vec::new();
    let own = silicon.iter().find(|silicon| silicon.candidate == best);
    if let Some(own) = own {
        links.push(of_bits(rates, &own.coder, best));
        links.push(Certainty {
            link: format!("area of {best}"),
            error: own.area_factor.map(|factor| factor - 1.0),
            basis: format!("{}: {}", own.origin.words(), own.source),
        });
    }
    links.push(Certainty { link: MODEL.to_owned(), error: measured.error, basis: measured.basis.clone() });
    links.extend(file.certainty.iter().map(|known| Certainty {
        link: known.link.clone(),
        error: Some(known.error),
        basis: format!("{}, `trinity validate`", known.basis),
    }));
    links
}

/// How sure the bits of a coder are.
fn of_bits(rates: &Rates, coder: &str, best: &str) -> Certainty {
    let link = format!("bits of {best}");
    let own = || rates.bits.iter().filter(|bits| bits.coder == coder);
    let runs: Vec<String> = rates
        .trained
        .iter()
        .filter(|one| one.coder == coder && one.bits_per_value.is_some())
        .map(|one| format!("{} {}", one.class, one.source))
        .collect();
    if !rates.trained.is_empty() {
        return Certainty {
            link,
            error: None,
            basis: format!("recorded training runs: {}", runs.join("; ")),
        };
    }
    let half_range = |bits: &Bits| Some(((bits.high? - bits.low?) / 2.0) / bits.bits_per_value?);
    let tensors: usize = own().map(|bits| bits.tensors).sum();
    Certainty {
        link,
        error: Some(own().filter_map(half_range).fold(0.0, f64::max)),
        basis: format!("{tensors} tensors coded, decoded and measured; half the range within a class"),
    }
}
