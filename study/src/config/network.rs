//! Adapters, switches and the network they make, in files: rates, latencies, and
//! what each draws with and without traffic.

use super::names::{AlgorithmName, TopologyName};
use super::setter::settable;
use schemars::JsonSchema;
use serde::Deserialize;
use trinity_config::{
    Area, At, Checked, DataRate, Diagnostic, Duration, EnergyPerBit, Fraction, Power, Ratio,
};
use trinity_sim::{Level, Levels, Nic};

settable! {
    NicFile { bandwidth, latency, area, idle_power, active_power, energy }
    SwitchFile { ports, bandwidth, latency, idle_power, active_power }
    NetworkTierFile { name, reach, oversubscription, bandwidth, switch }
    NetworkFile { efficiency, latency, topology, all_reduce, tiers }
}

/// What something draws without traffic and at its full rate, or a bit's energy
/// in place of the latter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub idle_w: f64,
    pub active_w: Option<f64>,
    pub energy_j_per_bit: Option<f64>,
}

impl Draw {
    /// Energy of a bit beyond what is drawn anyway.
    pub fn energy_j_per_bit(&self, bit_per_s: f64) -> f64 {
        match (self.energy_j_per_bit, self.active_w) {
            (Some(energy), _) => energy,
            (None, Some(active_w)) if bit_per_s > 0.0 => (active_w - self.idle_w).max(0.0) / bit_per_s,
            _ => 0.0,
        }
    }

    /// Complains about a bit that costs nothing for want of a word.
    pub fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        let idle_w = self.idle_w;
        match (self.energy_j_per_bit, self.active_w) {
            (None, None) => at.refuse(
                "",
                "neither `active-power` nor `energy` is stated",
                "the watts at the full rate, or the energy of a bit",
            ),
            (None, Some(active_w)) if active_w < idle_w => at.refuse(
                "active-power",
                format_args!("{active_w} W at the full rate, but {idle_w} W without traffic"),
                "no less than `idle-power`",
            ),
            _ => Ok(()),
        }
    }
}

/// A network interface.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NicFile {
    pub bandwidth: DataRate,
    pub latency: Duration,
    pub area: Area,
    /// With links up and no traffic.
    pub idle_power: Power,
    /// Sending and receiving at its rate.
    pub active_power: Option<Power>,
    /// One bit from GPU memory to GPU memory beyond the idle power, both ends
    /// together; follows from `active-power` where it is not said.
    pub energy: Option<EnergyPerBit>,
}

impl NicFile {
    pub(super) fn draw(&self) -> Draw {
        Draw {
            idle_w: self.idle_power.w(),
            active_w: self.active_power.map(|power| power.w()),
            energy_j_per_bit: self.energy.map(|energy| energy.j_per_bit()),
        }
    }

    pub fn resolve(&self) -> Nic {
        Nic {
            bytes_per_s: self.bandwidth.byte_per_s(),
            latency_s: self.latency.s(),
            area_mm2: self.area.mm2(),
            idle_power_w: self.idle_power.w(),
            energy_j_per_bit: self.draw().energy_j_per_bit(self.bandwidth.bit_per_s()),
        }
    }
}

impl Checked for NicFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        at.positive(&[("bandwidth", self.bandwidth.bit_per_s())])?;
        self.draw().check_at(at)
    }
}

/// A switch, whole.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SwitchFile {
    pub ports: u32,
    /// One port, one direction.
    pub bandwidth: DataRate,
    /// From port to port.
    pub latency: Duration,
    /// With links up and no traffic.
    pub idle_power: Power,
    /// Every port at its rate.
    pub active_power: Power,
}

impl Checked for SwitchFile {
    fn check_at(&self, at: &At<'_>) -> Result<(), Diagnostic> {
        at.positive(&[("ports", f64::from(self.ports)), ("bandwidth", self.bandwidth.bit_per_s())])?;
        let draw = Draw {
            idle_w: self.idle_power.w(),
            active_w: Some(self.active_power.w()),
            energy_j_per_bit: None,
        };
        draw.check_at(at)
    }
}

/// One level of switches, the lowest first.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkTierFile {
    /// Such as `leaf`, `rail`, `spine`.
    pub name: Option<String>,
    /// GPUs that reach each other without leaving the tier.
    pub reach: u32,
    /// Bandwidth into the tier over that out of it; the last tier has none above.
    pub oversubscription: Option<Ratio>,
    /// What each GPU has out of the tier, over an adapter of the tier's switch
    /// ports, instead of `oversubscription`.
    pub bandwidth: Option<DataRate>,
    pub switch: SwitchFile,
}

impl NetworkTierFile {
    fn resolve(&self) -> Level {
        let switch = &self.switch;
        let narrowed = self.bandwidth.map(|out| switch.bandwidth.bit_per_s() / out.bit_per_s());
        let ports = f64::from(switch.ports);
        let bit_per_s = switch.bandwidth.bit_per_s();
        Level {
            reach: self.reach,
            oversubscription: self.oversubscription.map(|ratio| ratio.get()).or(narrowed).unwrap_or(1.0),
            latency_s: switch.latency.s(),
            port_bytes_per_s: bit_per_s / 8.0,
            port_idle_w: switch.idle_power.w() / ports,
            energy_j_per_bit: (switch.active_power.w() - switch.idle_power.w()).max(0.0)
                / (ports * bit_per_s),
        }
    }
}

/// Tiers that a network may have.
const MOST_TIERS: usize = 3;

/// What lies between the NICs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkFile {
    pub efficiency: Fraction,
    /// Software and cables, beside the NIC's own latency and that of `tiers`.
    pub latency: Duration,
    pub topology: TopologyName,
    pub all_reduce: AlgorithmName,
    /// Switches from the nodes up: at most three tiers, none where it is not
    /// said, which is a network without a bottleneck or a price.
    #[serde(default)]
    pub tiers: Vec<NetworkTierFile>,
}

impl NetworkFile {
    pub(super) fn levels(&self) -> Levels {
        let at = |k: usize| self.tiers.get(k).map_or(Level::NONE, NetworkTierFile::resolve);
        Levels { leaf: at(0), spine: at(1), core: at(2) }
    }

    /// Complains about tiers that do not stack.
    pub(super) fn check_at(&self, at: &At<'_>, per_node: u32) -> Result<(), Diagnostic> {
        if self.tiers.len() > MOST_TIERS {
            let what = format_args!("{} tiers of switches", self.tiers.len());
            return at.refuse("tiers", what, format_args!("at most {MOST_TIERS}"));
        }
        let (mut below, mut each) = ("a node", per_node.max(1));
        for (k, tier) in self.tiers.iter().enumerate() {
            let here = at.table(format_args!("tiers.{k}"));
            tier.switch.check_at(&here.table("switch"))?;
            let reach = tier.reach;
            if reach == 0 || !reach.is_multiple_of(each) {
                return here.refuse(
                    "reach",
                    format_args!("a tier of {reach} GPUs is not made of whole domains: {below} has {each}"),
                    format_args!("a multiple of {each}"),
                );
            }
            tier.check_uplinks(&here, k + 1 == self.tiers.len())?;
            (below, each) = ("the tier below", reach);
        }
        Ok(())
    }
}

impl NetworkTierFile {
    fn check_uplinks(&self, at: &At<'_>, last: bool) -> Result<(), Diagnostic> {
        let out = self.bandwidth.map(|rate| rate.bit_per_s());
        let wrong = match (out, self.oversubscription.map(|ratio| ratio.get())) {
            (None, None) if !last => Some(("", "a tier without a bandwidth to the next".to_owned())),
            (Some(_), Some(_)) => Some((
                "bandwidth",
                "`bandwidth` and `oversubscription` both say what leaves the tier".to_owned(),
            )),
            (Some(rate), None) if rate <= 0.0 => Some(("bandwidth", "`bandwidth` is 0".to_owned())),
            (None, Some(ratio)) if ratio < 1.0 => {
                Some(("oversubscription", format!("`oversubscription` is {ratio}")))
            }
            _ => None,
        };
        let expected = "`oversubscription` of at least 1, or the `bandwidth` of a GPU out of the tier";
        wrong.map_or(Ok(()), |(key, what)| at.refuse(key, what, expected))
    }
}
