//! Intra prediction (H.265 clause 8.4.4.2).
//!
//! Turns reconstructed neighbours into a predicted block. Knows samples and
//! modes; knows nothing of bits, so the encoder can try all 35 modes without
//! touching the entropy coder.
//!
//! The neighbours of an N×N block travel as one line of 4N + 1 samples, in the
//! order of clause 8.4.4.2.2: from the lowest below-left sample up to the
//! corner, then along the row above to the right. Substitution and smoothing
//! are then plain one-dimensional walks.

pub const PLANAR: u8 = 0;
pub const DC: u8 = 1;
pub const HORIZONTAL: u8 = 10;
pub const VERTICAL: u8 = 26;

/// The largest transform block, hence the largest predicted block.
pub const MAX_SIZE: usize = 32;
/// Samples in the longest line of neighbours.
pub const MAX_LINE: usize = 4 * MAX_SIZE + 1;

/// Table 8-5: intraPredAngle of modes 2 to 34.
const ANGLE: [i32; 33] = [
    32, 26, 21, 17, 13, 9, 5, 2, 0, -2, -5, -9, -13, -17, -21, -26, -32, -26, -21, -17, -13, -9, -5, -2, 0,
    2, 5, 9, 13, 17, 21, 26, 32,
];

/// Table 8-6: invAngle of modes 11 to 25.
const INVERSE_ANGLE: [i32; 15] =
    [-4096, -1638, -910, -630, -482, -390, -315, -256, -315, -390, -482, -630, -910, -1638, -4096];

/// Table 8-3: the mode that predicts 4:2:2 chroma when luma-like mode X is signalled.
const MODE_422: [u8; 35] = [
    0, 1, 2, 2, 2, 2, 3, 5, 7, 8, 10, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 23, 24, 24, 25, 25, 26, 27, 27,
    28, 28, 29, 29, 30, 31,
];

/// The direction as it looks on the narrower samples of 4:2:2 chroma.
pub fn mode_422(mode: u8) -> u8 {
    MODE_422[usize::from(mode)]
}

/// Which neighbours of a block may be used: inside the picture, already
/// decoded, in the same slice and tile.
///
/// In intra pictures availability never changes inside the left column or
/// inside the row straight above; beyond the block it may stop anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Available {
    pub left: bool,
    pub above: bool,
    pub corner: bool,
    /// Samples usable under the left column, from its end down.
    pub below_left: usize,
    /// Samples usable beyond the row above, from its end to the right.
    pub above_right: usize,
}

/// Reads the neighbours of the `size`×`size` block at (`x`, `y`) into
/// `line[..4 * size + 1]` and fills what is missing (clause 8.4.4.2.2).
pub fn gather(
    line: &mut [u16],
    plane: &[u16],
    stride: usize,
    (x, y): (usize, usize),
    size: usize,
    available: Available,
    depth: u32,
) {
    let line = &mut line[..4 * size + 1];
    let corner = 2 * size;
    if available.below_left > 0 {
        for i in 0..available.below_left.min(size) {
            line[size - 1 - i] = plane[(y + size + i) * stride + x - 1];
        }
    }
    if available.left {
        for i in 0..size {
            line[corner - 1 - i] = plane[(y + i) * stride + x - 1];
        }
    }
    if available.corner {
        line[corner] = plane[(y - 1) * stride + x - 1];
    }
    if available.above {
        line[corner + 1..][..size].copy_from_slice(&plane[(y - 1) * stride + x..][..size]);
    }
    let right = available.above_right.min(size);
    if right > 0 {
        line[corner + size + 1..][..right].copy_from_slice(&plane[(y - 1) * stride + x + size..][..right]);
    }
    substitute(line, size, available, depth);
}

/// Replaces missing neighbours by the last one before them, walking the line.
fn substitute(line: &mut [u16], size: usize, available: Available, depth: u32) {
    let corner = 2 * size;
    // Runs of (start, end) that hold samples, in line order.
    let runs = [
        (size - available.below_left.min(size), size),
        (size, if available.left { corner } else { size }),
        (corner, corner + usize::from(available.corner)),
        (corner + 1, if available.above { corner + 1 + size } else { corner + 1 }),
        (corner + 1 + size, corner + 1 + size + available.above_right.min(size)),
    ];
    let mut filled = 0;
    let mut last = None;
    for (start, end) in runs {
        if start == end {
            continue;
        }
        let value = last.unwrap_or(line[start]);
        line[filled..start].fill(value);
        filled = end;
        last = Some(line[end - 1]);
    }
    let value = last.unwrap_or(1 << (depth - 1));
    line[filled..].fill(value);
}

/// How the line of neighbours is smoothed before prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Smoothing {
    None,
    /// The [1 2 1] filter.
    Weak,
    /// The [1 2 1] filter, or a straight ramp where the line is nearly linear
    /// (`strong_intra_smoothing_enabled_flag`, 32×32 luma).
    Strong,
}

/// Which smoothing clause 8.4.4.2.3 asks for. The caller has already ruled out
/// planes that are never smoothed: chroma outside 4:4:4, and everything under
/// `intra_smoothing_disabled_flag`.
pub fn smoothing(mode: u8, size: usize, strong: bool) -> Smoothing {
    let threshold = match size {
        8 => 7,
        16 => 1,
        32 => 0,
        _ => return Smoothing::None,
    };
    let mode = i32::from(mode);
    if mode == i32::from(DC) || (mode - 26).abs().min((mode - 10).abs()) <= threshold {
        Smoothing::None
    } else if strong && size == 32 {
        Smoothing::Strong
    } else {
        Smoothing::Weak
    }
}

/// Writes the smoothed copy of `line` into `out` (clause 8.4.4.2.3). `kind`
/// must not be [`Smoothing::None`].
pub fn smooth(line: &[u16], out: &mut [u16], size: usize, kind: Smoothing, depth: u32) {
    let end = 4 * size;
    let (line, out) = (&line[..=end], &mut out[..=end]);
    if kind == Smoothing::Strong {
        let (bottom, corner, right) = (i32::from(line[0]), i32::from(line[2 * size]), i32::from(line[end]));
        let limit = 1 << (depth - 5);
        let bend = |far: i32, middle: u16| (corner + far - 2 * i32::from(middle)).abs() < limit;
        if bend(right, line[3 * size]) && bend(bottom, line[size]) {
            for i in 0..2 * size as i32 {
                out[i as usize] = (((64 - i) * bottom + i * corner + 32) >> 6) as u16;
                out[2 * size + i as usize] = (((64 - i) * corner + i * right + 32) >> 6) as u16;
            }
            out[end] = line[end];
            return;
        }
    }
    out[0] = line[0];
    out[end] = line[end];
    for (o, w) in out[1..end].iter_mut().zip(line.windows(3)) {
        *o = ((u32::from(w[0]) + 2 * u32::from(w[1]) + u32::from(w[2]) + 2) >> 2) as u16;
    }
}

/// Predicts a `size`×`size` block from its (already smoothed) line into `out`
/// with row distance `stride`. `edge_filter` asks for the boundary smoothing
/// of DC, horizontal and vertical prediction: see [`edge_filter`].
pub fn predict(
    mode: u8,
    line: &[u16],
    size: usize,
    depth: u32,
    edge_filter: bool,
    out: &mut [u16],
    stride: usize,
) {
    match mode {
        PLANAR => match size {
            4 => planar::<4>(line, depth, out, stride),
            8 => planar::<8>(line, depth, out, stride),
            16 => planar::<16>(line, depth, out, stride),
            _ => planar::<32>(line, depth, out, stride),
        },
        DC => dc(line, size, edge_filter, out, stride),
        _ => match size {
            4 => angular::<4>(mode, line, depth, edge_filter, out, stride),
            8 => angular::<8>(mode, line, depth, edge_filter, out, stride),
            16 => angular::<16>(mode, line, depth, edge_filter, out, stride),
            _ => angular::<32>(mode, line, depth, edge_filter, out, stride),
        },
    }
}

/// Whether DC, horizontal and vertical prediction smooth the block's boundary:
/// luma blocks below 32×32 only. Horizontal and vertical prediction of
/// losslessly coded blocks under implicit RDPCM go without
/// (`disableIntraBoundaryFilter`); DC prediction keeps it.
pub fn edge_filter(mode: u8, c_idx: usize, size: usize, disable_boundary_filter: bool) -> bool {
    c_idx == 0 && size < 32 && (mode == DC || !disable_boundary_filter)
}

/// Clause 8.4.4.2.4.
fn planar<const N: usize>(line: &[u16], depth: u32, out: &mut [u16], stride: usize) {
    let corner = 2 * N;
    let shift = N.trailing_zeros() + 1;
    let above = &line[corner + 1..][..N];
    let (right, bottom) = (line[corner + 1 + N], line[N - 1]);
    let n = N as u32;
    for (y, row) in out.chunks_mut(stride).take(N).enumerate() {
        let left = line[corner - 1 - y];
        let row = &mut row[..N];
        // Weights add up to 2 N, at most 64: nine bits of sample make fifteen.
        if depth <= 9 {
            let n = N as u16;
            let y = y as u16;
            let down = (y + 1).wrapping_mul(bottom).wrapping_add(n);
            for (x, (o, &a)) in row.iter_mut().zip(above).enumerate() {
                let x = x as u16;
                let across = (n - 1 - x).wrapping_mul(left).wrapping_add((x + 1).wrapping_mul(right));
                *o = across.wrapping_add((n - 1 - y).wrapping_mul(a)).wrapping_add(down) >> shift;
            }
            continue;
        }
        let (y, left, right, bottom) = (y as u32, u32::from(left), u32::from(right), u32::from(bottom));
        for (x, (o, &a)) in row.iter_mut().zip(above).enumerate() {
            let x = x as u32;
            let sum =
                (n - 1 - x) * left + (x + 1) * right + (n - 1 - y) * u32::from(a) + (y + 1) * bottom + n;
            *o = (sum >> shift) as u16;
        }
    }
}

/// Clause 8.4.4.2.5.
fn dc(line: &[u16], size: usize, edge_filter: bool, out: &mut [u16], stride: usize) {
    let corner = 2 * size;
    let sum: u32 = line[size..corner].iter().chain(&line[corner + 1..][..size]).map(|&s| u32::from(s)).sum();
    let value = (sum + size as u32) >> (size.trailing_zeros() + 1);
    for row in out.chunks_mut(stride).take(size) {
        row[..size].fill(value as u16);
    }
    if edge_filter {
        let (left, above) = (u32::from(line[corner - 1]), u32::from(line[corner + 1]));
        out[0] = ((left + 2 * value + above + 2) >> 2) as u16;
        for i in 1..size {
            out[i] = ((u32::from(line[corner + 1 + i]) + 3 * value + 2) >> 2) as u16;
            out[i * stride] = ((u32::from(line[corner - 1 - i]) + 3 * value + 2) >> 2) as u16;
        }
    }
}

/// Clause 8.4.4.2.6. Horizontal modes are vertical ones seen in a mirror: the
/// line is read backwards and the block transposed.
fn angular<const N: usize>(
    mode: u8,
    line: &[u16],
    depth: u32,
    edge_filter: bool,
    out: &mut [u16],
    stride: usize,
) {
    let vertical = mode >= 18;
    let angle = ANGLE[usize::from(mode) - 2];
    let size = N;
    let corner = 2 * size;

    // ref[-size ..= 2 * size] of the standard, ref[0] at `size`.
    let mut reference = [0u16; 3 * MAX_SIZE + 1];
    let main = &mut reference[size..=3 * size];
    if vertical {
        main.copy_from_slice(&line[corner..=4 * size]);
    } else {
        for (r, &s) in main.iter_mut().zip(line[..=corner].iter().rev()) {
            *r = s;
        }
    }
    if angle < 0 {
        let inverse = INVERSE_ANGLE[usize::from(mode) - 11];
        let last = (size as i32 * angle) >> 5;
        // At -1 the projected sample is never read, and would lie off the line.
        for i in if last < -1 { last..0 } else { 0..0 } {
            let side = ((i * inverse + 128) >> 8) as usize;
            reference[(size as i32 + i) as usize] =
                if vertical { line[corner - side] } else { line[corner + side] };
        }
    }

    if vertical {
        for (y, row) in out.chunks_mut(stride).take(N).enumerate() {
            row[..N].copy_from_slice(&project::<N>(&reference, angle, y, depth));
        }
    } else {
        let block: [[u16; N]; N] = std::array::from_fn(|y| project(&reference, angle, y, depth));
        for (y, row) in out.chunks_mut(stride).take(N).enumerate() {
            for (o, column) in row[..N].iter_mut().zip(&block) {
                *o = column[y];
            }
        }
    }
    if angle == 0 && edge_filter {
        smooth_first_column(line, size, depth, vertical, out, stride);
    }
}

/// Row `y`: the reference moved by `angle`/32 samples a row.
#[inline(always)]
fn project<const N: usize>(
    reference: &[u16; 3 * MAX_SIZE + 1],
    angle: i32,
    y: usize,
    depth: u32,
) -> [u16; N] {
    let position = (y as i32 + 1) * angle;
    let fraction = (position & 31) as u16;
    let start = (N as i32 + (position >> 5) + 1) as usize;
    let mut row = [0; N];
    let taps = &reference[start..];
    if fraction == 0 {
        row.copy_from_slice(&taps[..N]);
        return row;
    }
    let (near, far) = (&taps[..N], &taps[1..=N]);
    // Weights add up to 32: eleven bits of sample make sixteen.
    if depth <= 11 {
        for ((o, &a), &b) in row.iter_mut().zip(near).zip(far) {
            let sum = (32 - fraction).wrapping_mul(a).wrapping_add(fraction.wrapping_mul(b));
            *o = sum.wrapping_add(16) >> 5;
        }
    } else {
        let fraction = u32::from(fraction);
        for ((o, &a), &b) in row.iter_mut().zip(near).zip(far) {
            *o = (((32 - fraction) * u32::from(a) + fraction * u32::from(b) + 16) >> 5) as u16;
        }
    }
    row
}

/// The boundary filter of pure vertical (first column) and pure horizontal
/// (first row) prediction.
fn smooth_first_column(
    line: &[u16],
    size: usize,
    depth: u32,
    vertical: bool,
    out: &mut [u16],
    stride: usize,
) {
    let corner_at = 2 * size;
    let corner = i32::from(line[corner_at]);
    let limit = (1i32 << depth) - 1;
    for i in 0..size {
        let (base, side, at) = if vertical {
            (line[corner_at + 1], line[corner_at - 1 - i], i * stride)
        } else {
            (line[corner_at - 1], line[corner_at + 1 + i], i)
        };
        let value = i32::from(base) + ((i32::from(side) - corner) >> 1);
        out[at] = value.clamp(0, limit) as u16;
    }
}

/// IntraPredModeC for `intra_chroma_pred_mode` (clause 8.4.3, Table 8-2),
/// before the mapping of 4:2:2.
pub fn chroma_mode(intra_chroma_pred_mode: u8, luma_mode: u8) -> u8 {
    let mode = match intra_chroma_pred_mode {
        0 => PLANAR,
        1 => VERTICAL,
        2 => HORIZONTAL,
        3 => DC,
        _ => return luma_mode,
    };
    if mode == luma_mode { 34 } else { mode }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Clause 8.4.4.2.6 word for word, one sample at a time.
    fn angular_by_the_book(mode: u8, line: &[u16], n: usize) -> Vec<u16> {
        let p = |x: i32, y: i32| -> i32 {
            let at = if x < 0 { 2 * n as i32 - 1 - y } else { 2 * n as i32 + 1 + x };
            i32::from(line[at as usize])
        };
        let angle = ANGLE[usize::from(mode) - 2];
        let vertical = mode >= 18;
        let reference = |i: i32| -> i32 {
            if i >= 0 {
                if vertical { p(i - 1, -1) } else { p(-1, i - 1) }
            } else {
                let side = -1 + ((i * INVERSE_ANGLE[usize::from(mode) - 11] + 128) >> 8);
                if vertical { p(-1, side) } else { p(side, -1) }
            }
        };
        // p(-1, -1) is the corner from either side.
        let reference = |i: i32| if i == 0 { i32::from(line[2 * n]) } else { reference(i) };
        let mut out = vec![0; n * n];
        for y in 0..n {
            for x in 0..n {
                let (along, across) = if vertical { (x, y) } else { (y, x) };
                let position = (across as i32 + 1) * angle;
                let (whole, fraction) = (position >> 5, position & 31);
                let at = along as i32 + whole + 1;
                let next = if fraction == 0 { 0 } else { reference(at + 1) };
                out[y * n + x] = (((32 - fraction) * reference(at) + fraction * next + 16) >> 5) as u16;
            }
        }
        out
    }

    proptest! {
        #[test]
        fn every_direction_follows_the_formula(mode in 2u8..=34, log2 in 2usize..=5, seed in any::<u64>()) {
            let n = 1 << log2;
            let line: Vec<u16> = (0..=4 * n as u64)
                .map(|i| (seed.wrapping_mul(i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as u16)
                .collect();
            let mut out = vec![0; n * n];
            predict(mode, &line, n, 10, false, &mut out, n);
            prop_assert_eq!(out, angular_by_the_book(mode, &line, n));
        }

        #[test]
        fn narrow_sums_hold_what_wide_ones_do(mode in 0u8..35, log2 in 2usize..=5, seed in any::<u64>(), full in any::<bool>()) {
            let n = 1 << log2;
            // The largest samples that narrow sums are used for, or noise.
            let (depth, line): (u32, Vec<u16>) = if full {
                let depth = if mode == PLANAR { 9 } else { 11 };
                (depth, vec![(1 << depth) - 1; 4 * n + 1])
            } else {
                let noise = |i| (seed.wrapping_mul(i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as u16;
                (9, (0..=4 * n as u64).map(noise).collect())
            };
            let (mut narrow, mut wide) = (vec![0; n * n], vec![0; n * n]);
            predict(mode, &line, n, depth, false, &mut narrow, n);
            predict(mode, &line, n, 16, false, &mut wide, n);
            prop_assert_eq!(narrow, wide);
        }

        #[test]
        fn a_flat_neighbourhood_predicts_itself(mode in 0u8..35, log2 in 2usize..=5, value in 0u16..256, edge in any::<bool>()) {
            let n = 1 << log2;
            let line = vec![value; 4 * n + 1];
            let mut out = vec![0; n * n];
            predict(mode, &line, n, 8, edge, &mut out, n);
            prop_assert!(out.iter().all(|&s| s == value));
        }
    }

    #[test]
    fn missing_neighbours_take_the_last_one_seen() {
        let plane: Vec<u16> = (0..256).collect();
        let mut line = [0; MAX_LINE];
        let only_above = Available { above: true, ..Default::default() };
        gather(&mut line, &plane, 16, (4, 4), 4, only_above, 8);
        let first = 3 * 16 + 4;
        assert_eq!(line[..9], [first; 9]);
        assert_eq!(line[9..13], [first, first + 1, first + 2, first + 3]);
        assert_eq!(line[13..17], [first + 3; 4]);

        gather(&mut line, &plane, 16, (4, 4), 4, Available::default(), 8);
        assert_eq!(line[..17], [128; 17]);
    }

    #[test]
    fn strong_smoothing_draws_a_ramp_only_where_the_line_is_nearly_straight() {
        let straight: Vec<u16> = (0..129).collect();
        let mut out = [0; MAX_LINE];
        smooth(&straight, &mut out, 32, Smoothing::Strong, 8);
        assert_eq!(out[..], straight[..]);
        let mut bent = straight.clone();
        bent[96] += 40;
        smooth(&bent, &mut out, 32, Smoothing::Strong, 8);
        assert_eq!(out[96], bent[96] - 20);
    }

    #[test]
    fn mode_tables_have_not_been_misprinted() {
        assert_eq!(ANGLE.iter().sum::<i32>(), 32);
        assert_eq!(INVERSE_ANGLE.iter().sum::<i32>(), -17178);
        assert_eq!(MODE_422.iter().map(|&m| u32::from(m)).sum::<u32>(), 598);
        // 256 * 32 / angle, rounded.
        for mode in 11..=25 {
            let angle = ANGLE[mode - 2];
            assert_eq!(INVERSE_ANGLE[mode - 11], (8192.0 / f64::from(angle)).round() as i32);
        }
    }

    #[test]
    fn directions_on_422_chroma_fall_twice_as_steeply() {
        let angle = |mode: u8| ANGLE[usize::from(mode) - 2];
        let nearest = |modes: std::ops::RangeInclusive<u8>, wanted: i32| {
            modes.min_by_key(|&mode| (angle(mode) - wanted).abs()).unwrap()
        };
        // Samples are twice as wide as they are high: what a horizontal mode
        // moves vertically over one sample doubles, up to 45 degrees.
        for mode in 6..=14 {
            assert_eq!(mode_422(mode), nearest(2..=18, 2 * angle(mode)), "mode {mode}");
        }
        // What a vertical mode moves sideways is half as many samples.
        for mode in 18..=34 {
            let wanted = angle(mode) / 2;
            assert!((angle(mode_422(mode)) - wanted).abs() <= 3, "mode {mode}");
        }
    }
}
