//! Process nodes: how area and energy move from one to another.

use crate::Cost;

/// A process node by the density of its high-density logic library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    pub name: &'static str,
    /// Millions of transistors in a square millimetre. Compiled by S. Jones,
    /// "TSMC and Samsung 5nm comparison" (SemiWiki, 2019) and "7nm, 5nm and
    /// 3nm logic" (SemiWiki, 2020).
    pub density_mtr_per_mm2: f64,
    /// Nominal supply, for energy ∝ C·V².
    pub supply_v: f64,
}

impl Node {
    pub const TSMC_16: Self = Self { name: "16nm", density_mtr_per_mm2: 28.88, supply_v: 0.80 };
    pub const TSMC_12: Self = Self { name: "12nm", density_mtr_per_mm2: 33.8, supply_v: 0.80 };
    pub const TSMC_10: Self = Self { name: "10nm", density_mtr_per_mm2: 52.51, supply_v: 0.75 };
    pub const SAMSUNG_8: Self = Self { name: "samsung-8nm", density_mtr_per_mm2: 61.18, supply_v: 0.75 };
    pub const TSMC_7: Self = Self { name: "7nm", density_mtr_per_mm2: 96.49, supply_v: 0.70 };
    pub const TSMC_5: Self = Self { name: "5nm", density_mtr_per_mm2: 173.1, supply_v: 0.65 };

    /// Every node the model knows. ASAP7, in which the paper synthesizes, is
    /// a predictive 7 nm library and stands at 7 nm.
    pub const ALL: [Self; 6] =
        [Self::TSMC_16, Self::TSMC_12, Self::TSMC_10, Self::SAMSUNG_8, Self::TSMC_7, Self::TSMC_5];

    /// The node of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.name == name)
    }

    /// Area of the same circuit at `to`, relative to here.
    pub fn area_factor(&self, to: &Self) -> f64 {
        self.density_mtr_per_mm2 / to.density_mtr_per_mm2
    }

    /// Energy of the same operation at `to`: capacitance goes with the linear
    /// dimension (the square root of area), and with it goes V².
    pub fn energy_factor(&self, to: &Self) -> f64 {
        self.area_factor(to).sqrt() * (to.supply_v / self.supply_v).powi(2)
    }

    /// The cost of a design at `to`, at the same clock.
    pub fn scale(&self, cost: Cost, to: &Self) -> Cost {
        Cost {
            area_mm2: cost.area_mm2 * self.area_factor(to),
            power_w: cost.power_w * self.energy_factor(to),
            throughput_gbps: cost.throughput_gbps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_gpu_shrinks_from_628_to_398_mm2() {
        let at_7nm = 628.0 * Node::SAMSUNG_8.area_factor(&Node::TSMC_7);
        assert!((at_7nm - 398.0).abs() < 1.0, "{at_7nm}");
    }

    #[test]
    fn there_and_back_is_where_we_started() {
        let cost = Cost { area_mm2: 0.96, power_w: 1.1, throughput_gbps: 100.0 };
        for a in Node::ALL {
            for b in Node::ALL {
                let back = b.scale(a.scale(cost, &b), &a);
                assert!((back.area_mm2 - cost.area_mm2).abs() < 1e-12);
                assert!((back.power_w - cost.power_w).abs() < 1e-12);
            }
        }
    }
}
