//! Choosing sample adaptive offsets for a CTU: the error that each type and
//! class would take away, against the bits it costs.

use crate::encoder::headers::Sequence;
use crate::encoder::tree::LOG2_CTB;
use crate::entropy::residual::State;
use crate::sao::{self, Area, EdgeClass, Reachable, Sao};
use trinity_bits::cabac::BinWriter;
use trinity_bits::{Chroma, Plane};

/// How one CTU is corrected, by component.
pub type CtuSao = [Sao; 3];

/// Number of samples and sum of source − reconstruction, of one category.
#[derive(Debug, Clone, Copy, Default)]
struct Statistics {
    count: i64,
    sum: i64,
}

impl Statistics {
    fn add(&mut self, source: u16, deblocked: u16) {
        self.count += 1;
        self.sum += i64::from(source) - i64::from(deblocked);
    }

    /// The best offset within `low..=high`, and how much squared error it removes.
    fn best(self, low: i64, high: i64) -> (i16, i64) {
        if self.count == 0 {
            return (0, 0);
        }
        let offset = ((2 * self.sum + self.count).div_euclid(2 * self.count)).clamp(low, high);
        (offset as i16, 2 * offset * self.sum - offset * offset * self.count)
    }
}

/// Chooses for every CTU and corrects `planes` (deblocked) in place. `lambda`
/// is the price of a bit in squared sample errors.
pub fn correct(planes: &mut [Plane], source: &[Plane], sequence: &Sequence, lambda: f64) -> Vec<CtuSao> {
    let deblocked = planes.to_vec();
    let (width, height) = sequence.coded_size();
    let (columns, rows) = (width.div_ceil(1 << LOG2_CTB), height.div_ceil(1 << LOG2_CTB));
    let mut chosen = Vec::with_capacity(columns * rows);
    for row in 0..rows {
        for column in 0..columns {
            let reachable: Reachable = std::array::from_fn(|dy| {
                std::array::from_fn(|dx| {
                    (1..=columns).contains(&(column + dx)) && (1..=rows).contains(&(row + dy))
                })
            });
            let area = |c: usize| area(sequence, c, &deblocked[c], column, row);
            let mut ctu = CtuSao::default();
            let groups: &[&[usize]] = if planes.len() == 1 { &[&[0]] } else { &[&[0], &[1, 2]] };
            for components in groups {
                let mut best = 0.0;
                let largest = (1i64 << (sequence.depth.min(10) - 5)) - 1;
                let edges = EdgeClass::ALL.map(|class| {
                    components
                        .iter()
                        .map(|&c| edge(class, &source[c], &deblocked[c], area(c), &reachable, largest))
                        .collect::<Vec<_>>()
                });
                let bands = components
                    .iter()
                    .map(|&c| band(&source[c], &deblocked[c], area(c), sequence.depth, largest))
                    .collect();
                for candidate in edges.into_iter().chain([bands]) {
                    let bits: f64 = 4.0 + candidate.iter().map(|(sao, _)| offset_bits(*sao)).sum::<f64>();
                    let gain = candidate.iter().map(|(_, gain)| *gain as f64).sum::<f64>() - lambda * bits;
                    if gain > best {
                        best = gain;
                        for (&c, (sao, _)) in components.iter().zip(&candidate) {
                            ctu[c] = *sao;
                        }
                    }
                }
                for &c in *components {
                    let (from, to) = (&deblocked[c], &mut planes[c]);
                    sao::apply(ctu[c], from, to, area(c), &reachable, sequence.depth, |_, _| false);
                }
            }
            chosen.push(ctu);
        }
    }
    chosen
}

fn area(sequence: &Sequence, c: usize, plane: &Plane, column: usize, row: usize) -> Area {
    let (sx, sy) = if c == 0 { (0, 0) } else { sequence.chroma.shift() };
    let (x, y) = ((column << LOG2_CTB) >> sx, (row << LOG2_CTB) >> sy);
    let (width, height) = ((1 << LOG2_CTB) >> sx, (1 << LOG2_CTB) >> sy);
    Area { x, y, width: width.min(plane.width - x), height: height.min(plane.height - y) }
}

fn offsets_of(sao: Sao) -> [i16; 4] {
    match sao {
        Sao::Off => [0; 4],
        Sao::Band { offsets, .. } | Sao::Edge { offsets, .. } => offsets,
    }
}

/// About what the offsets of one component cost.
fn offset_bits(sao: Sao) -> f64 {
    let signs = if matches!(sao, Sao::Band { .. }) { 9.0 } else { 0.0 };
    signs + offsets_of(sao).iter().map(|o| f64::from(o.unsigned_abs()) + 1.0).sum::<f64>()
}

/// Edge offsets of one class and the error they remove. Each category is
/// measured by the very filter: offsets of one move its samples and no others.
fn edge(
    class: EdgeClass,
    source: &Plane,
    deblocked: &Plane,
    area: Area,
    reachable: &Reachable,
    largest: i64,
) -> (Sao, i64) {
    let mut statistics = [Statistics::default(); 4];
    for y in 0..area.height {
        for x in 0..area.width {
            if let Some(category) = class.category(deblocked, area, reachable, x, y) {
                let at = (area.y + y) * deblocked.width + area.x + x;
                statistics[category].add(source.samples[at], deblocked.samples[at]);
            }
        }
    }
    let mut offsets = [0; 4];
    let mut gain = 0;
    for (i, counts) in statistics.iter().enumerate() {
        // Valleys only rise, peaks only fall.
        let (low, high) = if i < 2 { (0, largest) } else { (-largest, 0) };
        let (offset, removed) = counts.best(low, high);
        offsets[i] = offset;
        gain += removed;
    }
    (Sao::Edge { class, offsets }, gain)
}

/// The four neighbouring bands whose offsets remove most error.
fn band(source: &Plane, deblocked: &Plane, area: Area, depth: u32, largest: i64) -> (Sao, i64) {
    let mut statistics = [Statistics::default(); 32];
    for y in area.y..area.y + area.height {
        for x in area.x..area.x + area.width {
            let at = y * deblocked.width + x;
            let sample = deblocked.samples[at];
            statistics[usize::from(sample >> (depth - 5)) & 31].add(source.samples[at], sample);
        }
    }
    let best = statistics.map(|t| t.best(-largest, largest));
    let gain = |position: usize| (0..4).map(|k| best[(position + k) & 31].1).sum::<i64>();
    let position = (0..32).max_by_key(|&p| gain(p)).unwrap_or(0);
    let offsets = std::array::from_fn(|k| best[(position + k) & 31].0);
    (Sao::Band { position: position as u8, offsets }, gain(position))
}

/// sao() of one CTU (clause 7.3.8.3).
pub fn write<W: BinWriter>(
    w: &mut W,
    state: &mut State,
    sequence: &Sequence,
    ctu: &CtuSao,
    left: Option<&CtuSao>,
    above: Option<&CtuSao>,
) {
    for neighbour in [left, above].into_iter().flatten() {
        let merge = neighbour == ctu;
        w.encode(&mut state.contexts.sao_merge_flag, merge);
        if merge {
            return;
        }
    }
    let components = if sequence.chroma == Chroma::C400 { 1 } else { 3 };
    let largest = (1u32 << (sequence.depth.min(10) - 5)) - 1;
    for (c, &sao) in ctu.iter().enumerate().take(components) {
        if c < 2 {
            w.encode(&mut state.contexts.sao_type_idx, sao != Sao::Off);
            if sao != Sao::Off {
                w.bypass(matches!(sao, Sao::Edge { .. }));
            }
        }
        if sao == Sao::Off {
            continue;
        }
        let offsets = offsets_of(sao);
        for offset in offsets {
            let magnitude = u32::from(offset.unsigned_abs());
            for _ in 0..magnitude {
                w.bypass(true);
            }
            if magnitude < largest {
                w.bypass(false);
            }
        }
        match sao {
            Sao::Band { position, .. } => {
                offsets.into_iter().filter(|&o| o != 0).for_each(|offset| w.bypass(offset < 0));
                w.bypass_bits(u32::from(position), 5);
            }
            Sao::Edge { class, .. } if c < 2 => w.bypass_bits(class as u32, 2),
            _ => {}
        }
    }
}
