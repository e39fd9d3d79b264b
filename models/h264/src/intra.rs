//! Intra prediction (clause 8.3).
//!
//! Turns reconstructed neighbours into a predicted block. Knows samples and
//! modes; knows nothing of bits or of where a block lies, so the encoder can
//! try every mode without touching the entropy coder.

/// Names of Intra4x4PredMode and Intra8x8PredMode (Tables 8-2 and 8-3).
pub mod mode {
    pub const VERTICAL: u8 = 0;
    pub const HORIZONTAL: u8 = 1;
    pub const DC: u8 = 2;
    pub const DIAGONAL_DOWN_LEFT: u8 = 3;
    pub const DIAGONAL_DOWN_RIGHT: u8 = 4;
    pub const VERTICAL_RIGHT: u8 = 5;
    pub const HORIZONTAL_DOWN: u8 = 6;
    pub const VERTICAL_LEFT: u8 = 7;
    pub const HORIZONTAL_UP: u8 = 8;
    /// Intra16x16PredMode: plane. The other three are as above.
    pub const PLANE_16X16: u8 = 3;
    /// intra_chroma_pred_mode.
    pub const CHROMA_DC: u8 = 0;
    pub const CHROMA_HORIZONTAL: u8 = 1;
    pub const CHROMA_VERTICAL: u8 = 2;
}

/// Which neighbours of a block may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Available {
    pub left: bool,
    pub top: bool,
    pub top_left: bool,
    pub top_right: bool,
}

/// The neighbours of an N×N block in one line: left column from the bottom
/// up, corner, then 2N samples above. `N` is 4 or 8.
#[derive(Debug, Clone, Copy)]
pub struct Edge<const N: usize> {
    /// `3 * N + 1` samples are in use.
    line: [u16; 25],
    available: Available,
    depth: u32,
}

#[inline(always)]
fn half(a: u16, b: u16) -> u16 {
    ((u32::from(a) + u32::from(b) + 1) >> 1) as u16
}

#[inline(always)]
fn quarter(a: u16, b: u16, c: u16) -> u16 {
    ((u32::from(a) + 2 * u32::from(b) + u32::from(c) + 2) >> 2) as u16
}

impl<const N: usize> Edge<N> {
    /// From the left column (top to bottom), the corner and the row above.
    /// Samples that are not available may hold anything; a missing top right
    /// is filled from the last sample above, as the standard says.
    #[inline(always)]
    pub fn new(left: &[u16; N], corner: u16, top: &[u16], available: Available, depth: u32) -> Self {
        let mut line = [0; 25];
        for y in 0..N {
            line[N - 1 - y] = left[y];
        }
        line[N] = corner;
        line[N + 1..3 * N + 1].copy_from_slice(&top[..2 * N]);
        if !available.top_right {
            let last = line[2 * N];
            line[2 * N + 1..3 * N + 1].fill(last);
        }
        Self { line, available, depth }
    }

    /// Reference sample filtering, which precedes every 8×8 prediction
    /// (clause 8.3.2.2.1).
    #[inline(always)]
    pub fn filtered(&self) -> Self {
        let Available { left, top, top_left, .. } = self.available;
        let mut out = *self;
        let last = 3 * N;
        for at in 1..last {
            out.line[at] = quarter(self.line[at - 1], self.line[at], self.line[at + 1]);
        }
        out.line[0] = quarter(self.line[1], self.line[0], self.line[0]);
        out.line[last] = quarter(self.line[last - 1], self.line[last], self.line[last]);
        if !top_left {
            out.line[N - 1] = quarter(self.line[N - 1], self.line[N - 1], self.line[N - 2]);
            out.line[N + 1] = quarter(self.line[N + 1], self.line[N + 1], self.line[N + 2]);
        }
        out.line[N] = match (left, top) {
            (true, true) => out.line[N],
            (false, true) => quarter(self.line[N], self.line[N], self.line[N + 1]),
            (true, false) => quarter(self.line[N], self.line[N], self.line[N - 1]),
            (false, false) => self.line[N],
        };
        out
    }

    /// Whether the samples that `mode` needs are there.
    pub fn allows(&self, mode: u8) -> bool {
        allows_nxn(mode, self.available)
    }

    /// The prediction (clauses 8.3.1.2 and 8.3.2.2.2 on).
    #[inline(always)]
    pub fn predict(&self, mode: u8, out: &mut [[u16; N]; N]) {
        let line = &self.line;
        match mode {
            mode::VERTICAL => {
                if let Some(above) = line[N + 1..].first_chunk() {
                    out.fill(*above);
                }
            }
            mode::HORIZONTAL => {
                for (y, row) in out.iter_mut().enumerate() {
                    row.fill(line[N - 1 - y]);
                }
            }
            mode::DC => {
                let value = self.dc();
                out.iter_mut().for_each(|row| row.fill(value));
            }
            mode::DIAGONAL_DOWN_LEFT => self.diagonal::<{ mode::DIAGONAL_DOWN_LEFT }>(out),
            mode::DIAGONAL_DOWN_RIGHT => self.diagonal::<{ mode::DIAGONAL_DOWN_RIGHT }>(out),
            mode::VERTICAL_RIGHT => self.diagonal::<{ mode::VERTICAL_RIGHT }>(out),
            mode::HORIZONTAL_DOWN => self.diagonal::<{ mode::HORIZONTAL_DOWN }>(out),
            mode::VERTICAL_LEFT => self.diagonal::<{ mode::VERTICAL_LEFT }>(out),
            _ => self.diagonal::<{ mode::HORIZONTAL_UP }>(out),
        }
    }

    #[inline(always)]
    fn dc(&self) -> u16 {
        let sum = |range: std::ops::Range<usize>| self.line[range].iter().map(|&s| u32::from(s)).sum::<u32>();
        let n = N as u32;
        (match (self.available.left, self.available.top) {
            (true, true) => (sum(0..N) + sum(N + 1..2 * N + 1) + n) / (2 * n),
            (true, false) => (sum(0..N) + n / 2) / n,
            (false, true) => (sum(N + 1..2 * N + 1) + n / 2) / n,
            (false, false) => 1 << (self.depth - 1),
        }) as u16
    }

    #[inline(always)]
    fn diagonal<const MODE: u8>(&self, out: &mut [[u16; N]; N]) {
        let line = &self.line;
        let two = |at: usize| half(line[at], line[at + 1]);
        let three = |at: usize| quarter(line[at - 1], line[at], line[at + 1]);
        for y in 0..N {
            for x in 0..N {
                out[y][x] = match MODE {
                    mode::DIAGONAL_DOWN_LEFT => {
                        if x + y == 2 * N - 2 {
                            quarter(line[3 * N - 1], line[3 * N], line[3 * N])
                        } else {
                            three(N + 2 + x + y)
                        }
                    }
                    mode::DIAGONAL_DOWN_RIGHT => three(N + x - y),
                    mode::VERTICAL_RIGHT => {
                        if 2 * x + 1 < y {
                            three(N + 1 + 2 * x - y)
                        } else if (y & 1) == 0 {
                            two(N + x - (y >> 1))
                        } else {
                            three(N + x - (y >> 1))
                        }
                    }
                    mode::HORIZONTAL_DOWN => {
                        if 2 * y + 1 < x {
                            three(N - 1 + x - 2 * y)
                        } else if (x & 1) == 0 {
                            two(N - 1 + (x >> 1) - y)
                        } else {
                            three(N + (x >> 1) - y)
                        }
                    }
                    mode::VERTICAL_LEFT => {
                        if (y & 1) == 0 {
                            two(N + 1 + x + (y >> 1))
                        } else {
                            three(N + 2 + x + (y >> 1))
                        }
                    }
                    _ => {
                        let at = x + 2 * y;
                        let k = y + (x >> 1);
                        if at > 2 * N - 3 {
                            line[0]
                        } else if at == 2 * N - 3 {
                            quarter(line[1], line[0], line[0])
                        } else if at & 1 == 0 {
                            two(N - 2 - k)
                        } else {
                            three(N - 2 - k)
                        }
                    }
                };
            }
        }
    }
}

/// Whether a 4×4 or 8×8 mode has the neighbours it needs.
pub fn allows_nxn(mode: u8, available: Available) -> bool {
    let Available { left, top, top_left, .. } = available;
    match mode {
        mode::VERTICAL | mode::DIAGONAL_DOWN_LEFT | mode::VERTICAL_LEFT => top,
        mode::HORIZONTAL | mode::HORIZONTAL_UP => left,
        mode::DC => true,
        mode::DIAGONAL_DOWN_RIGHT | mode::VERTICAL_RIGHT | mode::HORIZONTAL_DOWN => left && top && top_left,
        _ => false,
    }
}

/// Whether an Intra16x16 mode has the neighbours it needs.
pub fn allows_16x16(mode: u8, available: Available) -> bool {
    let Available { left, top, top_left, .. } = available;
    match mode {
        mode::VERTICAL => top,
        mode::HORIZONTAL => left,
        mode::DC => true,
        mode::PLANE_16X16 => left && top && top_left,
        _ => false,
    }
}

/// Whether a chroma mode has the neighbours it needs.
pub fn allows_chroma(mode: u8, available: Available) -> bool {
    match mode {
        mode::CHROMA_DC => true,
        mode::CHROMA_HORIZONTAL => allows_16x16(mode::HORIZONTAL, available),
        mode::CHROMA_VERTICAL => allows_16x16(mode::VERTICAL, available),
        _ => allows_16x16(mode::PLANE_16X16, available),
    }
}

/// The neighbours of a whole macroblock in one plane.
#[derive(Debug, Clone, Copy)]
pub struct MbEdge {
    pub left: [u16; 16],
    pub corner: u16,
    pub top: [u16; 16],
    pub available: Available,
    pub depth: u32,
}

/// Intra16x16 prediction (clause 8.3.3).
pub fn predict_16x16(edge: &MbEdge, mode: u8, out: &mut [[u16; 16]; 16]) {
    match mode {
        mode::VERTICAL => out.fill(edge.top),
        mode::HORIZONTAL => {
            for (row, &sample) in out.iter_mut().zip(&edge.left) {
                row.fill(sample);
            }
        }
        mode::DC => {
            let sum = |samples: &[u16; 16]| samples.iter().map(|&s| u32::from(s)).sum::<u32>();
            let value = match (edge.available.left, edge.available.top) {
                (true, true) => (sum(&edge.left) + sum(&edge.top) + 16) >> 5,
                (true, false) => (sum(&edge.left) + 8) >> 4,
                (false, true) => (sum(&edge.top) + 8) >> 4,
                (false, false) => 1 << (edge.depth - 1),
            };
            out.fill([value as u16; 16]);
        }
        _ => predict_plane(edge, 16, 16, |x, y, value| out[y][x] = value),
    }
}

/// Plane prediction of a 16×16, 8×8 or 8×16 block (clauses 8.3.3.4, 8.3.4.4).
fn predict_plane(edge: &MbEdge, width: usize, height: usize, mut put: impl FnMut(usize, usize, u16)) {
    let gradient = |samples: &[u16; 16], length: usize| {
        let middle = length / 2;
        let before = |k: usize| i32::from(if k == middle { edge.corner } else { samples[middle - 1 - k] });
        (1..=middle).map(|k| k as i32 * (i32::from(samples[middle - 1 + k]) - before(k))).sum::<i32>()
    };
    let factor = |length: usize| if length == 16 { 5 } else { 34 };
    let b = (factor(width) * gradient(&edge.top, width) + 32) >> 6;
    let c = (factor(height) * gradient(&edge.left, height) + 32) >> 6;
    let a = 16 * (i32::from(edge.left[height - 1]) + i32::from(edge.top[width - 1]));
    let limit = (1 << edge.depth) - 1;
    for y in 0..height {
        for x in 0..width {
            let (dx, dy) = (x as i32 - width as i32 / 2 + 1, y as i32 - height as i32 / 2 + 1);
            put(x, y, ((a + b * dx + c * dy + 16) >> 5).clamp(0, limit) as u16);
        }
    }
}

/// Chroma prediction of 4:2:0 and 4:2:2, `height` 8 or 16 (clause 8.3.4).
pub fn predict_chroma(edge: &MbEdge, mode: u8, height: usize, out: &mut [[u16; 8]; 16]) {
    match mode {
        mode::CHROMA_DC => predict_chroma_dc(edge, height, out),
        mode::CHROMA_HORIZONTAL => {
            for (row, &sample) in out.iter_mut().zip(&edge.left).take(height) {
                row.fill(sample);
            }
        }
        mode::CHROMA_VERTICAL => {
            for row in out.iter_mut().take(height) {
                row.copy_from_slice(&edge.top[..8]);
            }
        }
        _ => predict_plane(edge, 8, height, |x, y, value| out[y][x] = value),
    }
}

/// Each 4×4 block takes its own mean, from the side it touches (clause 8.3.4.3).
fn predict_chroma_dc(edge: &MbEdge, height: usize, out: &mut [[u16; 8]; 16]) {
    let sum = |samples: &[u16]| samples.iter().map(|&s| u32::from(s)).sum::<u32>();
    let Available { left, top, .. } = edge.available;
    for block_y in 0..height / 4 {
        for block_x in 0..2 {
            let above = top.then(|| sum(&edge.top[4 * block_x..][..4]));
            let beside = left.then(|| sum(&edge.left[4 * block_y..][..4]));
            let mean = |four: u32| (four + 2) >> 2;
            let value = match (block_x, block_y, above, beside) {
                (1, 0, Some(above), _) => mean(above),
                (0, 1.., _, Some(beside)) => mean(beside),
                (1, 0, None, Some(beside)) => mean(beside),
                (_, _, Some(above), Some(beside)) => (above + beside + 4) >> 3,
                (_, _, Some(one), None) | (_, _, None, Some(one)) => mean(one),
                (_, _, None, None) => 1 << (edge.depth - 1),
            };
            for row in &mut out[4 * block_y..4 * block_y + 4] {
                row[4 * block_x..4 * block_x + 4].fill(value as u16);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Available = Available { left: true, top: true, top_left: true, top_right: true };
    const NONE: Available = Available { left: false, top: false, top_left: false, top_right: false };

    /// Samples 10 … 13 on the left from the top down, corner 9, 1 … 8 above.
    fn edge(available: Available) -> Edge<4> {
        Edge::new(&[10, 11, 12, 13], 9, &[1, 2, 3, 4, 5, 6, 7, 8], available, 8)
    }

    fn predicted(edge: &Edge<4>, mode: u8) -> [[u16; 4]; 4] {
        let mut out = [[0; 4]; 4];
        edge.predict(mode, &mut out);
        out
    }

    /// Clause 8.3.1.2, written out by hand.
    #[test]
    fn every_4x4_mode_predicts_what_its_clause_says() {
        let edge = edge(ALL);
        assert_eq!(predicted(&edge, mode::VERTICAL), [[1, 2, 3, 4]; 4]);
        assert_eq!(predicted(&edge, mode::HORIZONTAL), [[10; 4], [11; 4], [12; 4], [13; 4]]);
        assert_eq!(predicted(&edge, mode::DC), [[7; 4]; 4]);
        let down_left = [[2, 3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7], [5, 6, 7, 8]];
        assert_eq!(predicted(&edge, mode::DIAGONAL_DOWN_LEFT), down_left);
        // (10 + 2·9 + 1 + 2) / 4 on the diagonal.
        let down_right = [[7, 3, 2, 3], [10, 7, 3, 2], [11, 10, 7, 3], [12, 11, 10, 7]];
        assert_eq!(predicted(&edge, mode::DIAGONAL_DOWN_RIGHT), down_right);
        let vertical_right = [[5, 2, 3, 4], [7, 3, 2, 3], [10, 5, 2, 3], [11, 7, 3, 2]];
        assert_eq!(predicted(&edge, mode::VERTICAL_RIGHT), vertical_right);
        let horizontal_down = [[10, 7, 3, 2], [11, 10, 10, 7], [12, 11, 11, 10], [13, 12, 12, 11]];
        assert_eq!(predicted(&edge, mode::HORIZONTAL_DOWN), horizontal_down);
        let vertical_left = [[2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6]];
        assert_eq!(predicted(&edge, mode::VERTICAL_LEFT), vertical_left);
        let horizontal_up = [[11, 11, 12, 12], [12, 12, 13, 13], [13, 13, 13, 13], [13; 4]];
        assert_eq!(predicted(&edge, mode::HORIZONTAL_UP), horizontal_up);
    }

    #[test]
    fn what_is_missing_is_filled_or_left_out() {
        let top = Available { top: true, ..NONE };
        let left = Available { left: true, ..NONE };
        assert_eq!(predicted(&edge(left), mode::DC), [[12; 4]; 4]);
        assert_eq!(predicted(&edge(top), mode::DC), [[3; 4]; 4]);
        assert_eq!(predicted(&edge(NONE), mode::DC), [[128; 4]; 4]);
        // The last sample above stands for those to the right of it.
        assert_eq!(predicted(&edge(top), mode::DIAGONAL_DOWN_LEFT)[3], [4; 4]);
        for (available, allowed) in [(NONE, vec![2]), (top, vec![0, 2, 3, 7]), (left, vec![1, 2, 8])] {
            let found: Vec<u8> = (0..12).filter(|&mode| edge(available).allows(mode)).collect();
            assert_eq!(found, allowed, "{available:?}");
        }
        assert!((0..9).all(|mode| edge(ALL).allows(mode)) && !edge(ALL).allows(9));
        let no_corner = Available { top_left: false, ..ALL };
        assert!([4, 5, 6].iter().all(|&mode| !allows_nxn(mode, no_corner)));
        assert!(!allows_16x16(mode::PLANE_16X16, no_corner) && !allows_chroma(3, no_corner));
        assert!(allows_chroma(mode::CHROMA_VERTICAL, top) && !allows_chroma(mode::CHROMA_VERTICAL, left));
        assert!(allows_chroma(mode::CHROMA_HORIZONTAL, left) && !allows_chroma(mode::CHROMA_HORIZONTAL, top));
    }

    /// What is flat stays flat in every mode, filtered or not.
    #[test]
    fn a_flat_edge_predicts_itself() {
        let edge = Edge::<8>::new(&[77; 8], 77, &[77; 16], ALL, 8);
        for edge in [edge, edge.filtered()] {
            for mode in 0..9 {
                let mut out = [[0; 8]; 8];
                edge.predict(mode, &mut out);
                assert_eq!(out, [[77; 8]; 8], "{mode}");
            }
        }
        let edge = MbEdge { left: [77; 16], corner: 77, top: [77; 16], available: ALL, depth: 8 };
        for mode in 0..4 {
            let mut out = [[0; 16]; 16];
            predict_16x16(&edge, mode, &mut out);
            assert_eq!(out, [[77; 16]; 16], "{mode}");
            for height in [8, 16] {
                let mut out = [[0; 8]; 16];
                predict_chroma(&edge, mode, height, &mut out);
                assert!(out[..height].iter().all(|row| row == &[77; 8]), "{mode} {height}");
            }
        }
    }

    /// Clause 8.3.2.2.1 at the ends of the line, and where no corner is.
    #[test]
    fn an_8x8_edge_is_smoothed_as_far_as_it_is_there() {
        let left = [10, 20, 30, 40, 50, 60, 70, 80];
        let top = [12, 24, 36, 48, 60, 72, 84, 96, 8, 8, 8, 8, 8, 8, 8, 16];
        let whole = Edge::<8>::new(&left, 100, &top, ALL, 8).filtered();
        assert_eq!((whole.line[0], whole.line[7], whole.line[8]), (78, 35, 56));
        assert_eq!((whole.line[9], whole.line[24]), (37, 14));
        let apart = Available { top_left: false, ..ALL };
        let apart = Edge::<8>::new(&left, 100, &top, apart, 8).filtered();
        assert_eq!((apart.line[7], apart.line[9]), (13, 15));
        let top_alone = Available { left: false, ..ALL };
        assert_eq!(Edge::<8>::new(&left, 100, &top, top_alone, 8).filtered().line[8], 78);
        let left_alone = Available { top: false, ..ALL };
        assert_eq!(Edge::<8>::new(&left, 100, &top, left_alone, 8).filtered().line[8], 78);
    }

    /// A plane through the neighbours goes on as a plane, up to the largest sample.
    #[test]
    fn planes_go_on_and_end_at_the_largest_sample() {
        let of = |step: u16| MbEdge {
            left: std::array::from_fn(|y| 40 + step * (y as u16 + 1)),
            corner: 40,
            top: std::array::from_fn(|x| 40 + step * (x as u16 + 1)),
            available: ALL,
            depth: 8,
        };
        let mut out = [[0; 16]; 16];
        predict_16x16(&of(2), mode::PLANE_16X16, &mut out);
        for (y, row) in out.iter().enumerate() {
            for (x, &value) in row.iter().enumerate() {
                assert!(value.abs_diff(40 + 2 * (x + y + 2) as u16) <= 1, "{x} {y}: {value}");
            }
        }
        predict_16x16(&of(12), mode::PLANE_16X16, &mut out);
        assert_eq!(out[15][15], 255);
    }

    /// Clause 8.3.4.3: corners take both sides, others the one they touch.
    #[test]
    fn chroma_blocks_take_the_mean_of_the_side_they_touch() {
        let mut edge = MbEdge { left: [0; 16], corner: 0, top: [0; 16], available: ALL, depth: 8 };
        edge.top[..8].copy_from_slice(&[10, 10, 10, 10, 50, 50, 50, 50]);
        edge.left[..8].copy_from_slice(&[30, 30, 30, 30, 90, 90, 90, 90]);
        let means = |edge: &MbEdge| {
            let mut out = [[0; 8]; 16];
            predict_chroma(edge, mode::CHROMA_DC, 8, &mut out);
            [out[0][0], out[0][4], out[4][0], out[4][4]]
        };
        assert_eq!(means(&edge), [20, 50, 90, 70]);
        assert_eq!(means(&MbEdge { available: Available { left: true, ..NONE }, ..edge }), [30, 30, 90, 90]);
        assert_eq!(means(&MbEdge { available: Available { top: true, ..NONE }, ..edge }), [10, 50, 10, 50]);
        assert_eq!(means(&MbEdge { available: NONE, depth: 10, ..edge }), [512; 4]);
    }
}
