//! Why a die cannot be priced.

/// What cannot be built, or is not known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the table of die constants is damaged: {why}")]
    Constants { why: String },
    #[error("no data for the process `{name}`; known are {known}")]
    Process { name: String, known: String },
    #[error("no data for the memory `{name}`; known are {known}")]
    Memory { name: String, known: String },
    #[error("no data for the link `{name}`; known are {known}")]
    Link { name: String, known: String },
    #[error("the parts take {area_mm2:.0} mm2, a reticle holds {reticle_mm2:.0}")]
    Reticle { area_mm2: f64, reticle_mm2: f64 },
    #[error(
        "memory, links and PCIe take {needed_mm:.0} mm of the die's edge, a square die of {area_mm2:.0} mm2 \
         has {edge_mm:.0}"
    )]
    Shoreline { needed_mm: f64, edge_mm: f64, area_mm2: f64 },
    #[error("a clock of {clock_ghz:.2} GHz, but the process ends at {most_ghz:.2} GHz at its highest supply")]
    Clock { clock_ghz: f64, most_ghz: f64 },
    #[error("a power limit of {limit_w:.0} W, but the die draws {idle_w:.0} W while it does nothing")]
    Power { limit_w: f64, idle_w: f64 },
}
