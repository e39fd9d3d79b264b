//! The levels of one sub-block, chosen together.
//!
//! A level changes what later ones cost: it moves the Rice parameter, uses up
//! greater-than flags, and its parity may have to hide a sign. So candidates
//! of all sixteen positions are followed as paths; of paths that leave the
//! coder in the same state only the cheapest goes on.

use super::residual::{next_rice, remaining_bits};

/// What the coder would charge in one sub-block, in squared steps.
#[derive(Debug)]
pub struct Prices {
    /// sig_coeff_flag of each position: absent, present.
    pub sig: [[f32; 2]; 16],
    /// coeff_abs_level_greater1_flag by greater1Ctx.
    pub greater1: [[f32; 2]; 4],
    pub greater2: [f32; 2],
    pub bit: f32,
}

/// One sub-block to quantize.
#[derive(Debug)]
pub struct SubBlock<'a> {
    /// Magnitudes in steps, in scan order.
    pub magnitude: &'a [f32],
    /// Bit n: the coefficient is negative.
    pub negative: u32,
    /// The highest position that may have a level.
    pub start: usize,
    /// Whether that one is the last of the block and must have one.
    pub holds_last: bool,
    /// Whether a lone level at position 0 needs no flag.
    pub infers_first: bool,
    pub hides_signs: bool,
    pub rice: u32,
    pub persistent: bool,
}

/// The chosen levels.
#[derive(Debug, Clone, Copy)]
pub struct Chosen {
    pub levels: [u16; 16],
    /// Error and price together; without coded_sub_block_flag.
    pub cost: f32,
    pub greater1: usize,
    pub first_remaining: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Path {
    cost: f32,
    /// Two bits a position: which candidate.
    choices: u32,
    greater1: u8,
    count: u8,
    rice: u8,
    parity: u8,
    /// Whether the lowest level is negative.
    sign: u8,
    highest: u8,
    lowest: u8,
    /// The first coeff_abs_level_remaining plus one; 0 before there is one.
    first_remaining: u16,
}

const NONE: u8 = 255;
/// Positions from here on are likely to be followed by a level.
const LATE: usize = 5;
/// A path this much dearer than the cheapest, in squared steps, never catches up.
const HOPELESS: f32 = 0.35;
/// How much error a level away from the nearer one may add at first.
const NEAR: f32 = 0.42;
/// Parity, the sign it may have to hide, greater1Ctx, and the Rice parameter
/// relative to the first.
const STATES: usize = 2 * 2 * 4 * 4;

/// Scratch space: the paths before a position and after it.
#[derive(Debug)]
pub struct Paths([[Path; STATES]; 2]);

impl Default for Paths {
    fn default() -> Self {
        Self([[Path::START; STATES]; 2])
    }
}

impl Path {
    const START: Self = Self {
        cost: 0.0,
        choices: 0,
        greater1: 1,
        count: 0,
        rice: 0,
        parity: 0,
        sign: 0,
        highest: NONE,
        lowest: NONE,
        first_remaining: 0,
    };

    /// The path at its end, if its parity hides the sign it has to.
    fn finished(mut self, sub_block: &SubBlock<'_>, prices: &Prices) -> Option<Self> {
        if sub_block.hides_signs && self.highest != NONE && self.highest - self.lowest > 3 {
            if self.parity != self.sign {
                return None;
            }
            self.cost -= prices.bit;
        }
        Some(self)
    }

    fn state(&self, first_rice: u32, n: usize) -> usize {
        let rice = (u32::from(self.rice) - first_rice).min(3) as usize;
        // A sign matters only if no level follows.
        let sign = if n < LATE { usize::from(self.sign) } else { 0 };
        usize::from(self.parity) | sign << 1 | usize::from(self.greater1) << 2 | rice << 4
    }

    #[inline(always)]
    fn with(
        mut self,
        n: usize,
        index: u32,
        level: u32,
        cost: f32,
        prices: &Prices,
        sub_block: &SubBlock<'_>,
    ) -> Self {
        self.choices |= index << (2 * n);
        self.cost += cost;
        if level == 0 {
            return self;
        }
        let mut cost = prices.bit;
        let base;
        if self.count < 8 {
            let greater = level > 1;
            cost += prices.greater1[usize::from(self.greater1)][usize::from(greater)];
            if self.greater1 == 0 {
                base = 2;
            } else {
                base = 3;
                if greater {
                    cost += prices.greater2[usize::from(level > 2)];
                    self.greater1 = 0;
                } else if self.greater1 < 3 {
                    self.greater1 += 1;
                }
            }
        } else {
            base = 1;
        }
        if level >= base {
            let rice = u32::from(self.rice);
            cost += remaining_bits(level - base, rice) as f32 * prices.bit;
            if self.first_remaining == 0 {
                self.first_remaining = (level - base + 1).min(65535) as u16;
            }
            self.rice = next_rice(rice, level, sub_block.persistent) as u8;
        }
        self.cost += cost;
        self.count += 1;
        self.parity ^= (level & 1) as u8;
        if self.highest == NONE {
            self.highest = n as u8;
        }
        self.lowest = n as u8;
        self.sign = (sub_block.negative >> n & 1) as u8;
        self
    }
}

/// Up to three levels for one magnitude. Away from the nearer one only where
/// that adds less than `reach` squared steps.
#[inline(always)]
fn candidates(magnitude: f32, reach: f32) -> ([u32; 3], usize) {
    let floor = magnitude as u32;
    let upward = 1.0 - 2.0 * (magnitude - floor as f32);
    let mut list = [0; 3];
    let mut count = 0;
    let mut add = |level: u32| {
        list[count] = level;
        count += 1;
    };
    if floor > 0 && (upward > 0.0 || -upward < reach) {
        add(floor);
    }
    if (upward <= 0.0 || upward < reach) && floor < 32767 {
        add(floor + 1);
    }
    if floor < 2 {
        add(0);
    }
    (list, count)
}

/// Chooses the levels of a sub-block.
pub fn choose(sub_block: &SubBlock<'_>, prices: &Prices, paths: &mut Paths) -> Option<Chosen> {
    // The parity that hides a sign may be out of reach of the cheapest paths.
    follow(sub_block, prices, paths, NEAR, HOPELESS)
        .or_else(|| follow(sub_block, prices, paths, f32::INFINITY, f32::INFINITY))
}

fn follow(
    sub_block: &SubBlock<'_>,
    prices: &Prices,
    paths: &mut Paths,
    reach: f32,
    hopeless: f32,
) -> Option<Chosen> {
    let [mut from, mut to] = paths.0.each_mut();
    from[0] = Path { rice: sub_block.rice as u8, ..Path::START };
    let mut alive: u64 = 1;
    let mut least = 0.0;
    for n in (0..=sub_block.start).rev() {
        let magnitude = sub_block.magnitude[n];
        let (list, count) = candidates(magnitude, reach);
        let is_last = sub_block.holds_last && n == sub_block.start;
        let error = list.map(|level| (magnitude - level as f32).powi(2));
        if count == 1 && list[0] == 0 && n > 0 {
            let cost = error[0] + prices.sig[n][0];
            for at in set_bits(alive) {
                from[at].cost += cost;
            }
            least += cost;
            continue;
        }
        let limit = least + hopeless;
        least = f32::INFINITY;
        let mut reached: u64 = 0;
        for at in set_bits(alive) {
            let path = from[at];
            if path.cost > limit {
                continue;
            }
            let flags = if is_last || (n == 0 && sub_block.infers_first && path.highest == NONE) {
                [f32::INFINITY, 0.0]
            } else {
                prices.sig[n]
            };
            for (index, &level) in list[..count].iter().enumerate() {
                let cost = error[index] + flags[usize::from(level > 0)];
                if cost == f32::INFINITY {
                    continue;
                }
                let new = path.with(n, index as u32, level, cost, prices, sub_block);
                least = least.min(new.cost);
                let state = new.state(sub_block.rice, n);
                if reached >> state & 1 == 0 || new.cost < to[state].cost {
                    to[state] = new;
                    reached |= 1 << state;
                }
            }
        }
        std::mem::swap(&mut from, &mut to);
        alive = reached;
    }
    let path = set_bits(alive)
        .filter_map(|at| from[at].finished(sub_block, prices))
        .min_by(|a, b| a.cost.total_cmp(&b.cost))?;
    let mut levels = [0u16; 16];
    for (n, level) in levels[..=sub_block.start].iter_mut().enumerate() {
        let (list, _) = candidates(sub_block.magnitude[n], reach);
        *level = list[(path.choices >> (2 * n) & 3) as usize] as u16;
    }
    Some(Chosen {
        levels,
        cost: path.cost,
        greater1: usize::from(path.greater1),
        first_remaining: path.first_remaining.checked_sub(1).map(u32::from),
    })
}

fn set_bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (at < 64).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prices() -> Prices {
        Prices {
            sig: [[0.06, 0.12]; 16],
            greater1: [[0.14, 0.07], [0.08, 0.12], [0.07, 0.14], [0.05, 0.2]],
            greater2: [0.1, 0.1],
            bit: 0.1,
        }
    }

    /// The price of given levels, path by path.
    fn cost(sub_block: &SubBlock<'_>, levels: &[u16; 16], prices: &Prices) -> Option<f32> {
        let mut path = Path { rice: sub_block.rice as u8, ..Path::START };
        for n in (0..16).rev() {
            let level = u32::from(levels[n]);
            let error = (sub_block.magnitude[n] - level as f32).powi(2);
            let flag = prices.sig[n][usize::from(level > 0)];
            path = path.with(n, 0, level, error + flag, prices, sub_block);
        }
        path.finished(sub_block, prices).map(|path| path.cost)
    }

    proptest! {
        #[test]
        fn the_hidden_sign_agrees_and_no_single_change_is_cheaper(
            magnitude in prop::collection::vec(0.0f32..7.0, 16),
            negative in 0u32..65536,
            rice in 0u32..3,
        ) {
            let sub_block = SubBlock {
                magnitude: &magnitude, negative, start: 15, holds_last: false, infers_first: false,
                hides_signs: true, rice, persistent: true,
            };
            let prices = prices();
            let chosen = choose(&sub_block, &prices, &mut Paths::default()).expect("some path fits");
            let own = cost(&sub_block, &chosen.levels, &prices).expect("the parity fits");
            prop_assert!((own - chosen.cost).abs() < 1e-3, "{own} is not {}", chosen.cost);
            for n in 0..16 {
                for m in 0..16 {
                    let mut other = chosen.levels;
                    other[n] = magnitude[n] as u16 + u16::from(other[n] == magnitude[n] as u16);
                    other[m] = magnitude[m] as u16 + u16::from(other[m] == magnitude[m] as u16);
                    // Paths that meet are told apart by what matters most, not by all.
                    if let Some(other) = cost(&sub_block, &other, &prices) {
                        prop_assert!(own < other + HOPELESS, "{own} against {other}: {n} {m}");
                    }
                }
            }
        }
    }
}
