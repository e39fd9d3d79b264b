//! How sure each link of the chain is.

use super::silicon::Silicon;
use super::tensors::Bits;
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
    bits: &[Bits],
    silicon: &[Silicon],
    best: &str,
    measured: &Quoted,
) -> Vec<Certainty> {
    let mut links = Vec::new();
    let own = silicon.iter().find(|silicon| silicon.candidate == best);
    if let Some(own) = own {
        let spread = bits
            .iter()
            .filter(|bits| bits.coder == own.coder)
            .filter_map(|bits| Some(((bits.high? - bits.low?) / 2.0) / bits.bits_per_value?))
            .fold(0.0, f64::max);
        let tensors: usize =
            bits.iter().filter(|bits| bits.coder == own.coder).map(|bits| bits.tensors).sum();
        links.push(Certainty {
            link: format!("bits of {best}"),
            error: Some(spread),
            basis: format!("{tensors} tensors coded, decoded and measured; half the range within a class"),
        });
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
