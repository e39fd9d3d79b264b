//! One macroblock: its syntax elements, what is kept of it for its
//! neighbours, and who those neighbours are (clauses 6.4.8 to 6.4.13).

use crate::intra::Available;

/// How a macroblock predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MbKind {
    #[default]
    I4x4,
    I8x8,
    I16x16,
    Pcm,
}

/// What neighbours and the deblocking filter need to know of a decoded macroblock.
#[derive(Debug, Clone, Copy, Default)]
pub struct MbInfo {
    /// 1 + the slice's index in its picture; 0 while not decoded.
    pub slice: u32,
    pub kind: MbKind,
    /// A field macroblock of an MBAFF frame.
    pub field: bool,
    pub chroma_mode: u8,
    /// CodedBlockPatternLuma | CodedBlockPatternChroma << 4.
    pub cbp: u8,
    /// Which DC blocks (Y, Cb, Cr) have levels, by bit.
    pub dc_coded: u8,
    /// QPY as the deblocking filter sees it (0 for I_PCM).
    pub qp: i8,
    /// Prediction modes of the 4×4 blocks in raster order; DC where there are none.
    pub modes: [u8; 16],
    /// Levels in each 4×4 block of each component, raster order.
    pub total_coeff: [[u8; 16]; 3],
}

impl MbInfo {
    /// What an I_PCM macroblock looks like to its neighbours.
    pub fn pcm() -> Self {
        Self {
            kind: MbKind::Pcm,
            cbp: 0x2f,
            dc_coded: 7,
            modes: [crate::intra::mode::DC; 16],
            total_coeff: [[16; 16]; 3],
            ..Self::default()
        }
    }

    /// What is kept of a coded macroblock, slice and field aside.
    pub fn of(mb: &Macroblock, n: &Neighbours) -> Self {
        let mut info = Self {
            kind: mb.kind,
            chroma_mode: mb.chroma_mode,
            cbp: mb.cbp,
            dc_coded: mb.levels.dc_coded,
            qp: mb.qp as i8,
            modes: mb.modes,
            ..Self::default()
        };
        for (own, cache) in info.total_coeff.iter_mut().zip(&n.total_coeff) {
            for (y, row) in own.chunks_exact_mut(4).enumerate() {
                row.copy_from_slice(&cache[cache_at(0, y)..][..4]);
            }
        }
        info
    }

    /// transform_size_8x8_flag.
    pub fn transform_8x8(&self) -> bool {
        self.kind == MbKind::I8x8
    }
}

/// The levels of one macroblock, in raster order within each block.
#[derive(Debug, Clone, Copy)]
pub struct Levels {
    /// By component and luma4x4BlkIdx (or chroma blkIdx); an 8×8 block takes
    /// the room of its four 4×4 blocks.
    pub blocks: [[i32; 256]; 3],
    /// Intra16x16 DC (raster order of blocks) or chroma DC.
    pub dc: [[i32; 16]; 3],
    /// Which blocks hold a level, by component and index; an 8×8 block sets
    /// the bit of its first.
    pub coded: [u16; 3],
    /// The same for `dc`.
    pub dc_coded: u8,
}

impl Default for Levels {
    fn default() -> Self {
        Self { blocks: [[0; 256]; 3], dc: [[0; 16]; 3], coded: [0; 3], dc_coded: 0 }
    }
}

/// The syntax elements of one macroblock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Macroblock {
    pub kind: MbKind,
    /// Intra4x4PredMode or Intra8x8PredMode by raster 4×4 block.
    pub modes: [u8; 16],
    pub mode_16x16: u8,
    pub chroma_mode: u8,
    pub cbp: u8,
    /// QPY.
    pub qp: i32,
    pub field: bool,
    pub levels: Levels,
}

/// Marks a block outside the slice in the caches below.
pub const UNAVAILABLE: u8 = 0x80;

/// Row length of the caches: one column for the left neighbour, four blocks.
const STRIDE: usize = 8;

/// Index of block (x, y) in a cache; row and column -1 hold the neighbours.
#[inline(always)]
pub const fn cache_at(x: usize, y: usize) -> usize {
    (y + 1) * STRIDE + x + 1
}

/// total_coeff of the blocks of one component and of those around them, by [`cache_at`].
pub type TotalCoeff = [u8; 5 * STRIDE];

/// Who the neighbours of the current macroblock are, and what they hold.
#[derive(Debug, Clone, Copy)]
pub struct Neighbours {
    pub available: Available,
    /// The macroblock at (-1, 0), if it is in the slice.
    pub a: Option<MbInfo>,
    /// The macroblock at (0, -1).
    pub b: Option<MbInfo>,
    /// CodedBlockPatternLuma of the left neighbour of each 8×8 row, as one bit.
    pub left_cbp: [bool; 2],
    /// Kind of the left neighbour of each 8×8 row.
    pub left_kinds: [MbKind; 2],
    /// Levels in the blocks of each component and around them.
    pub total_coeff: [TotalCoeff; 3],
    /// Modes of the blocks and around them.
    pub modes: [u8; 5 * STRIDE],
}

impl Neighbours {
    /// Forgets the levels of the macroblock before.
    pub fn clear_totals(&mut self) {
        for cache in &mut self.total_coeff {
            (0..4).for_each(|y| cache[cache_at(0, y)..][..4].fill(0));
        }
    }
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            available: Available::default(),
            a: None,
            b: None,
            left_cbp: [false; 2],
            left_kinds: [MbKind::I4x4; 2],
            total_coeff: [[0; 5 * STRIDE]; 3],
            modes: [0; 5 * STRIDE],
        }
    }
}

/// The macroblocks of one coded picture and how they are laid out.
#[derive(Debug, Default)]
pub struct MbMap {
    pub infos: Vec<MbInfo>,
    pub width: usize,
    pub mbaff: bool,
    /// Columns and rows of 4×4 blocks of each chroma component: 2 × 2 in
    /// 4:2:0, 2 × 4 in 4:2:2, 4 × 4 in 4:4:4.
    pub chroma_blocks: (usize, usize),
}

/// A macroblock address and, for the left side, the row of 4×4 blocks there.
type Place = (usize, usize);

impl MbMap {
    /// Column and row of the macroblock (of the pair with MBAFF).
    #[inline]
    pub fn position(&self, addr: usize) -> (usize, usize) {
        let at = if self.mbaff { addr / 2 } else { addr };
        (at % self.width, at / self.width)
    }

    /// The macroblock and 4×4 row that cover sample row `row` of an MBAFF
    /// frame in pair column `x`. Table 6-4 comes down to this: a neighbour is
    /// what covers the adjacent sample of the same frame or field.
    fn covering(&self, x: usize, row: usize) -> Place {
        let pair = row / 32 * self.width + x;
        let within = row % 32;
        if self.infos[2 * pair].field {
            (2 * pair + (within & 1), within / 8)
        } else {
            (2 * pair + within / 16, within % 16 / 4)
        }
    }

    /// Sample row of the top of a macroblock, and the distance of its rows,
    /// within an MBAFF frame.
    fn rows(&self, addr: usize, field: bool) -> (usize, usize) {
        let top = addr / 2 / self.width * 32;
        if field { (top + addr % 2, 2) } else { (top + addr % 2 * 16, 1) }
    }

    #[inline(always)]
    fn in_slice(&self, addr: usize, slice: u32) -> bool {
        self.infos[addr].slice == slice
    }

    pub fn neighbours(&self, addr: usize, slice: u32, field: bool, n: &mut Neighbours) {
        if self.mbaff {
            self.neighbours_mbaff(addr, slice, field, n);
            return;
        }
        let (x, y) = self.position(addr);
        let above = addr.wrapping_sub(self.width);
        n.available = Available {
            left: x > 0 && self.in_slice(addr - 1, slice),
            top: y > 0 && self.in_slice(above, slice),
            top_left: x > 0 && y > 0 && self.in_slice(above - 1, slice),
            top_right: y > 0 && x + 1 < self.width && self.in_slice(above + 1, slice),
        };
        let left = n.available.left.then(|| std::array::from_fn(|row| (addr - 1, row)));
        self.fill(n, left, n.available.top.then_some(above));
    }

    fn neighbours_mbaff(&self, addr: usize, slice: u32, field: bool, n: &mut Neighbours) {
        let (x, pair_y) = self.position(addr);
        let (top, step) = self.rows(addr, field);
        let pair = addr / 2;
        let above_pair = pair.wrapping_sub(self.width);
        let pair_in_slice = |pair: usize| self.in_slice(2 * pair, slice);
        let left = x > 0 && pair_in_slice(pair - 1);
        // The lower macroblock of a frame pair looks up into its own pair.
        let inner = !field && addr % 2 == 1;
        let up = pair_y > 0;
        n.available = Available {
            left,
            top: inner || up && pair_in_slice(above_pair),
            top_left: if inner { left } else { x > 0 && up && pair_in_slice(above_pair - 1) },
            top_right: !inner && up && x + 1 < self.width && pair_in_slice(above_pair + 1),
        };
        let places = left.then(|| std::array::from_fn(|row| self.covering(x - 1, top + 4 * row * step)));
        let above = n.available.top.then(|| if inner { addr - 1 } else { self.covering(x, top - step).0 });
        self.fill(n, places, above);
    }

    /// The macroblock that covers row `row` of a pair of `2 * mb_height` rows.
    pub fn in_pair(&self, pair: usize, row: usize, mb_height: usize) -> usize {
        2 * pair + if self.infos[2 * pair].field { row % 2 } else { row / mb_height }
    }

    /// How many of the left and upper pairs are field pairs (clause 9.3.3.1.1.3).
    pub fn field_pairs(&self, addr: usize, slice: u32) -> u8 {
        let (x, y) = self.position(addr);
        let pair = addr / 2;
        let is_field = |pair: usize| self.in_slice(2 * pair, slice) && self.infos[2 * pair].field;
        u8::from(x > 0 && is_field(pair - 1)) + u8::from(y > 0 && is_field(pair - self.width))
    }

    fn fill(&self, n: &mut Neighbours, left: Option<[Place; 4]>, above: Option<usize>) {
        let (columns, rows) = self.chroma_blocks;
        match above {
            Some(addr) => {
                let info = &self.infos[addr];
                for c in 0..3 {
                    let row = if c == 0 { 12 } else { 4 * rows - 4 };
                    n.total_coeff[c][1..5].copy_from_slice(&info.total_coeff[c][row..row + 4]);
                }
                n.modes[1..5].copy_from_slice(&info.modes[12..16]);
                n.b = Some(*info);
            }
            None => {
                for c in 0..3 {
                    n.total_coeff[c][1..5].fill(UNAVAILABLE);
                }
                n.modes[1..5].fill(UNAVAILABLE);
                n.b = None;
            }
        }
        match left {
            Some(places) => {
                for (y, &(addr, row)) in places.iter().enumerate() {
                    let info = &self.infos[addr];
                    n.total_coeff[0][(y + 1) * STRIDE] = info.total_coeff[0][4 * row + 3];
                    n.modes[(y + 1) * STRIDE] = info.modes[4 * row + 3];
                    if rows == 4 {
                        for c in 1..3 {
                            n.total_coeff[c][(y + 1) * STRIDE] = info.total_coeff[c][4 * row + columns - 1];
                        }
                    } else if y % 2 == 0 {
                        for c in 1..3 {
                            n.total_coeff[c][(y / 2 + 1) * STRIDE] =
                                info.total_coeff[c][row / 2 * 4 + columns - 1];
                        }
                    }
                    if y % 2 == 0 {
                        n.left_kinds[y / 2] = info.kind;
                        n.left_cbp[y / 2] = info.cbp >> (row / 2 * 2 + 1) & 1 != 0;
                    }
                }
                n.a = Some(self.infos[places[0].0]);
            }
            None => {
                for c in 0..3 {
                    for y in 0..4 {
                        n.total_coeff[c][(y + 1) * STRIDE] = UNAVAILABLE;
                    }
                }
                for y in 0..4 {
                    n.modes[(y + 1) * STRIDE] = UNAVAILABLE;
                }
                n.a = None;
            }
        }
    }
}

/// For the coded_block_flag of an 8×8 block only 8×8 blocks and I_PCM count as
/// neighbours (clause 9.3.3.1.1.9).
pub fn hide_4x4_neighbours(n: &mut Neighbours, c: usize) {
    let hidden = |kind: MbKind| matches!(kind, MbKind::I4x4 | MbKind::I16x16);
    if n.a.is_some() {
        for y in (0..4).filter(|y| hidden(n.left_kinds[y / 2])) {
            n.total_coeff[c][cache_at(0, y) - 1] = 0;
        }
    }
    if n.b.is_some_and(|mb| hidden(mb.kind)) {
        n.total_coeff[c][1..5].fill(0);
    }
}
