//! KVTC (NVIDIA 2025, arXiv 2511.01815): columns in groups that share a scale for each token, their widths (none, two
//! or four bits, or an eight-bit float) chosen by dynamic programming to err least within the bits, then Deflate.
//!
//! Columns are taken as they come: principal components, the largest first, where the caller turns rows into a basis
//! learned ahead (`compare --precondition pca`, `eval --kv kvtc@BITS --calibrate`), as the paper does. The plan is of
//! the matrix itself, and counted; the paper learns it with the basis. What Deflate saves the plan may spend.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use half::f16;

use super::super::grouped::{pack, unpack};
use super::super::lossy::Matrix;
use super::quantizer::{Quantizer, Refusal, Side};
use crate::{Dtype, Error};

/// Columns of a group, as published; and all of them.
const SIZES: [usize; 5] = [1, 16, 64, 256, 1024];
/// Budgets told apart: beyond so many, or so many for all columns, bits are counted in larger units.
const UNITS: usize = 2048;
const ALL_UNITS: usize = 1 << 22;
/// Columns that are planned for.
const WIDEST: usize = 1 << 14;
/// How much more than the target a plan may spend before Deflate.
const MOST_SAVED: f64 = 1.6;
/// What planning looks at, in values times group sizes.
const LOOKS: usize = 1 << 23;
/// The largest float of eight bits (E4M3).
const LARGEST_E4M3: f32 = 448.0;

#[derive(Debug)]
pub(super) struct Kvtc;

/// How a group's values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Int2,
    Int4,
    Fp8,
}

impl Kind {
    const ALL: [Self; 4] = [Self::None, Self::Int2, Self::Int4, Self::Fp8];

    fn bits(self) -> usize {
        match self {
            Self::None => 0,
            Self::Int2 => 2,
            Self::Int4 => 4,
            Self::Fp8 => 8,
        }
    }

    /// Bits for each token beside the values: least value and step; a scale.
    fn scale_bits(self) -> usize {
        match self {
            Self::None => 0,
            Self::Int2 | Self::Int4 => 32,
            Self::Fp8 => 16,
        }
    }

    fn cost(self, size: usize) -> usize {
        self.scale_bits() + size * self.bits()
    }
}

/// One token's values of a group, quantized.
struct Quantized {
    scale: Vec<u8>,
    codes: Vec<u8>,
}

fn halves(bytes: &[u8]) -> (f32, f32) {
    let half = |at: usize| bytes.get(at..at + 2).map_or(0.0, |b| f16::from_le_bytes([b[0], b[1]]).to_f32());
    (half(0), half(2))
}

impl Kind {
    fn quantize(self, values: &[f32]) -> Quantized {
        match self {
            Self::None => Quantized { scale: Vec::new(), codes: Vec::new() },
            Self::Int2 | Self::Int4 => {
                let top = ((1u32 << self.bits()) - 1) as f32;
                let (low, high) = values.iter().fold((f32::MAX, f32::MIN), |(l, h), &v| (l.min(v), h.max(v)));
                let low = f16::from_f32(low);
                let step = f16::from_f32((high - low.to_f32()).max(0.0) / top);
                let (from, by) = (low.to_f32(), step.to_f32().max(f32::MIN_POSITIVE));
                let codes = values.iter().map(|v| ((v - from) / by).round().clamp(0.0, top) as u8);
                Quantized { scale: [low.to_le_bytes(), step.to_le_bytes()].concat(), codes: codes.collect() }
            }
            Self::Fp8 => {
                let largest = values.iter().fold(0f32, |most, v| most.max(v.abs()));
                let scale = f16::from_f32(largest / LARGEST_E4M3);
                let by = scale.to_f32().max(f32::MIN_POSITIVE);
                let scaled: Vec<f32> =
                    values.iter().map(|v| (v / by).clamp(-LARGEST_E4M3, LARGEST_E4M3)).collect();
                let mut codes = Vec::new();
                Dtype::F8e4m3.extend_from_f32(&scaled, &mut codes);
                Quantized { scale: scale.to_le_bytes().to_vec(), codes }
            }
        }
    }

    fn restore(self, scale: &[u8], codes: &[u8], to: &mut [f32]) {
        let (first, second) = halves(scale);
        match self {
            Self::None => to.fill(0.0),
            Self::Int2 | Self::Int4 => {
                to.iter_mut().zip(codes).for_each(|(v, &code)| *v = first + f32::from(code) * second);
            }
            Self::Fp8 => {
                Dtype::F8e4m3.to_f32(codes, to);
                to.iter_mut().for_each(|v| *v *= first);
            }
        }
    }

    fn error(self, values: &[f32], scratch: &mut Vec<f32>) -> f64 {
        let quantized = self.quantize(values);
        scratch.resize(values.len(), 0.0);
        self.restore(&quantized.scale, &quantized.codes, scratch);
        values.iter().zip(scratch).map(|(a, b)| f64::from(a - *b).powi(2)).sum()
    }
}

/// Columns that share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    size: usize,
    kind: Kind,
}

/// Where the best way to a column and a budget came from.
#[derive(Clone, Copy)]
struct Step {
    size: u16,
    kind: Kind,
    units: u16,
}

/// Best plans for every budget.
struct Plans {
    cols: usize,
    /// Units of bits in the largest budget.
    units: usize,
    /// `(cols + 1) × (units + 1)`.
    steps: Vec<Step>,
}

impl Plans {
    /// Plans of at most `bits` for each token.
    fn new(matrix: &Matrix, bits: usize) -> Self {
        let cols = matrix.cols;
        let unit = bits.div_ceil(UNITS.min(ALL_UNITS / cols.max(1))).max(1);
        let units = bits / unit;
        let width = units + 1;
        let mut sizes: Vec<usize> = SIZES.into_iter().filter(|&size| size <= cols).collect();
        if !sizes.contains(&cols) {
            sizes.push(cols);
        }
        let sample = sample(matrix, sizes.iter().sum());
        let mut errors = vec![f64::INFINITY; (cols + 1) * width];
        errors[..width].fill(0.0);
        let mut steps = vec![Step { size: 1, kind: Kind::None, units: 0 }; (cols + 1) * width];
        let mut scratch = Vec::new();
        for end in 1..=cols {
            for &size in sizes.iter().filter(|&&size| size <= end) {
                for kind in Kind::ALL {
                    let cost = kind.cost(size).div_ceil(unit);
                    // None is said of one column at a time, which is every size.
                    if cost > units || (kind == Kind::None && size > 1) {
                        continue;
                    }
                    let group =
                        |row: &[f32], scratch: &mut Vec<f32>| kind.error(&row[end - size..end], scratch);
                    let error: f64 = sample.iter().map(|row| group(row, &mut scratch)).sum();
                    let (before, own) = errors.split_at_mut(end * width);
                    let before = &before[(end - size) * width..][..width];
                    let steps = &mut steps[end * width..][..width];
                    for at in cost..width {
                        let all = before[at - cost] + error;
                        if all < own[at] {
                            own[at] = all;
                            steps[at] = Step { size: size as u16, kind, units: cost as u16 };
                        }
                    }
                }
            }
        }
        Self { cols, units, steps }
    }

    /// The plan of a budget; neighbours without values are one group.
    fn plan(&self, units: usize) -> Vec<Group> {
        let (mut end, mut left) = (self.cols, units.min(self.units));
        let mut groups: Vec<Group> = Vec::new();
        while end > 0 {
            let Step { size, kind, units } = self.steps[end * (self.units + 1) + left];
            match groups.last_mut() {
                Some(last) if last.kind == Kind::None && kind == Kind::None => last.size += usize::from(size),
                _ => groups.push(Group { size: size.into(), kind }),
            }
            end -= usize::from(size);
            left -= usize::from(units);
        }
        groups.reverse();
        groups
    }
}

/// Rows at equal distances, as many as planning has time for.
fn sample(matrix: &Matrix, sizes: usize) -> Vec<&[f32]> {
    let cols = matrix.cols.max(1);
    let most = (LOOKS / (cols * sizes).max(1)).clamp(8, 128);
    let step = matrix.rows.div_ceil(most).max(1);
    matrix.values.chunks_exact(cols).step_by(step).collect()
}

/// Bytes before Deflate: group by group, scales of all tokens, then their codes.
fn payload(matrix: &Matrix, plan: &[Group]) -> Vec<u8> {
    let (mut bytes, mut first) = (Vec::new(), 0);
    for &Group { size, kind } in plan {
        let rows = matrix.values.chunks_exact(matrix.cols.max(1));
        let quantized: Vec<Quantized> = rows.map(|row| kind.quantize(&row[first..first + size])).collect();
        quantized.iter().for_each(|own| bytes.extend(&own.scale));
        let codes = quantized.iter().flat_map(|own| own.codes.iter().copied());
        if kind != Kind::None {
            pack(codes, kind.bits() as u32, &mut bytes);
        }
        first += size;
    }
    bytes
}

fn payload_size(plan: &[Group], rows: usize) -> usize {
    let of = |group: &Group| {
        rows * group.kind.scale_bits() / 8 + (rows * group.size * group.kind.bits()).div_ceil(8)
    };
    plan.iter().map(of).sum()
}

/// Whether what follows the plan went through Deflate.
const PLAIN: u8 = 0;
const DEFLATED: u8 = 1;

fn stream(matrix: &Matrix, plan: &[Group]) -> Vec<u8> {
    let mut bytes = (plan.len() as u16).to_le_bytes().to_vec();
    for group in plan {
        bytes.extend((group.size as u16).to_le_bytes());
        bytes.push(group.kind.bits() as u8);
    }
    let payload = payload(matrix, plan);
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let deflated = encoder.write_all(&payload).and_then(|()| encoder.finish()).unwrap_or_default();
    if !deflated.is_empty() && deflated.len() < payload.len() {
        bytes.push(DEFLATED);
        bytes.extend(deflated);
    } else {
        bytes.push(PLAIN);
        bytes.extend(payload);
    }
    bytes
}

impl Quantizer for Kvtc {
    fn name(&self) -> &'static str {
        "kvtc"
    }

    fn encode(&self, matrix: &Matrix, _: Side, most: usize) -> Result<Vec<u8>, Refusal> {
        if matrix.cols > WIDEST {
            return Err(Refusal::Wide(WIDEST));
        }
        let bits = (MOST_SAVED * 8.0 * most as f64 / matrix.rows.max(1) as f64).ceil() as usize;
        let plans = Plans::new(matrix, bits.clamp(1, 9 * matrix.cols + 32));
        let (mut low, mut high) = (0, plans.units);
        let mut best = stream(matrix, &plans.plan(0));
        if best.len() > most {
            return Err(Refusal::Bytes(best.len()));
        }
        // The largest budget whose stream is within the bytes.
        while low < high {
            let middle = (low + high).div_ceil(2);
            let tried = stream(matrix, &plans.plan(middle));
            if tried.len() <= most {
                (low, best) = (middle, tried);
            } else {
                high = middle - 1;
            }
        }
        Ok(best)
    }

    fn decode(&self, bytes: &[u8], rows: usize, cols: usize) -> Result<Vec<f32>, Error> {
        let (plan, rest) = read_plan(bytes, cols)?;
        let cut = || Error::corrupt(bytes.len(), "scales or codes are cut");
        let (&way, rest) = rest.split_first().ok_or_else(cut)?;
        let size = payload_size(&plan, rows);
        let payload = match way {
            PLAIN => rest.to_vec(),
            DEFLATED => {
                let mut payload = Vec::new();
                let mut reader = DeflateDecoder::new(rest).take(size as u64 + 1);
                reader.read_to_end(&mut payload).map_err(|_| cut())?;
                payload
            }
            _ => return Err(Error::corrupt(0, "coded in no known way")),
        };
        if payload.len() != size {
            return Err(cut());
        }
        let mut values = vec![0f32; rows * cols];
        let (mut payload, mut first) = (payload.as_slice(), 0);
        for Group { size, kind } in plan {
            if kind != Kind::None {
                let scale_bytes = kind.scale_bits() / 8;
                let (scales, rest) = payload.split_at(rows * scale_bytes);
                let (packed, rest) = rest.split_at((rows * size * kind.bits()).div_ceil(8));
                payload = rest;
                let codes = unpack(packed, kind.bits() as u32, rows * size);
                let tokens = scales.chunks_exact(scale_bytes).zip(codes.chunks_exact(size.max(1)));
                for (row, (scale, codes)) in values.chunks_exact_mut(cols).zip(tokens) {
                    kind.restore(scale, codes, &mut row[first..first + size]);
                }
            }
            first += size;
        }
        Ok(values)
    }
}

/// Groups that take up all columns, and what follows them.
fn read_plan(bytes: &[u8], cols: usize) -> Result<(Vec<Group>, &[u8]), Error> {
    let cut = || Error::corrupt(bytes.len(), "the plan is cut");
    let (&[low, high], rest) = bytes.split_first_chunk::<2>().ok_or_else(cut)?;
    let (groups, rest) =
        rest.split_at_checked(3 * usize::from(u16::from_le_bytes([low, high]))).ok_or_else(cut)?;
    let group = |&[low, high, bits]: &[u8; 3]| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.bits() == usize::from(bits));
        let kind = kind.ok_or_else(|| Error::corrupt(2, "values of no known width"))?;
        Ok(Group { size: u16::from_le_bytes([low, high]).into(), kind })
    };
    let plan: Vec<Group> = groups.as_chunks::<3>().0.iter().map(group).collect::<Result<_, Error>>()?;
    if plan.iter().map(|group| group.size).sum::<usize>() != cols {
        return Err(Error::corrupt(2, "groups of another number of columns"));
    }
    Ok((plan, rest))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{keys, nmse, tensor};
    use super::*;

    #[test]
    fn bits_go_to_columns_that_are_worth_them_and_none_to_the_rest() {
        // Columns whose spread halves from one to the next.
        let mut values = keys(256, 32);
        let spread = |col: usize| 0.5f32.powi(col as i32);
        values.iter_mut().enumerate().for_each(|(at, v)| *v *= spread(at % 32));
        let matrix = Matrix { rows: 256, cols: 32, values: values.clone() };
        let plans = Plans::new(&matrix, 3 * 32);
        let plan = plans.plan(plans.units);
        assert_eq!(plan.iter().map(|group| group.size).sum::<usize>(), 32);
        assert_eq!(plan.last().map(|group| group.kind), Some(Kind::None), "{plan:?}");
        assert!(plan[0].kind.bits() >= 4, "{plan:?}");
        let cost: usize = plan.iter().map(|group| group.kind.cost(group.size)).sum();
        assert!(cost <= 3 * 32, "{cost}");
        // Far below what one width for all makes of it.
        assert!(
            nmse("kvtc", &tensor("v", &values, 32), 3.0)
                < 0.3 * nmse("turboquant", &tensor("v", &values, 32), 3.0)
        );
    }

    #[test]
    fn the_plan_is_the_best_there_is() {
        let values = keys(16, 3);
        let matrix = Matrix { rows: 16, cols: 3, values };
        let plans = Plans::new(&matrix, 120);
        let error = |plan: &[Group]| -> f64 {
            let bytes = stream(&matrix, plan);
            let back = Kvtc.decode(&bytes, 16, 3).unwrap();
            back.iter().zip(&matrix.values).map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        let found = error(&plans.plan(plans.units));
        let kinds = || Kind::ALL.into_iter();
        for (a, b) in kinds().flat_map(|a| kinds().map(move |b| (a, b))) {
            for c in kinds() {
                let apart = [a, b, c].map(|kind| Group { size: 1, kind });
                let cost: usize = apart.iter().map(|group| group.kind.cost(1)).sum();
                assert!(cost > 120 || error(&apart) >= found - 1e-9, "{apart:?}");
            }
        }
    }
}
