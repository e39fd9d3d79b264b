//! Where CTBs lie: tiles, and the order they are coded in (H.265 clause 6.5.1).

use crate::syntax::{BitstreamError, Pps, Sps};
use trinity_bits::invalid;

/// The CTB grid of a picture.
#[derive(Debug)]
pub(super) struct Layout {
    /// PicWidthInCtbsY.
    pub columns: usize,
    /// PicHeightInCtbsY.
    pub rows: usize,
    /// CtbAddrRsToTs.
    pub rs_to_ts: Vec<u32>,
    /// CtbAddrTsToRs.
    pub ts_to_rs: Vec<u32>,
    /// TileId, by address in raster scan.
    pub tile: Vec<u32>,
    /// The first CTB of a row inside its tile, by address in raster scan.
    pub starts_row: Vec<bool>,
}

impl Layout {
    pub fn new(sps: &Sps, pps: &Pps) -> Result<Self, BitstreamError> {
        let (columns, rows) = sps.size_in_ctbs();
        let (column_ends, row_ends) = match &pps.tiles {
            None => (vec![columns], vec![rows]),
            Some(tiles) => {
                let sizes = tiles.sizes.as_ref();
                (
                    boundaries(columns, tiles.columns, sizes.map(|s| &s.0[..]))?,
                    boundaries(rows, tiles.rows, sizes.map(|s| &s.1[..]))?,
                )
            }
        };
        let count = columns as usize * rows as usize;
        let mut layout = Self {
            columns: columns as usize,
            rows: rows as usize,
            rs_to_ts: vec![0; count],
            ts_to_rs: Vec::with_capacity(count),
            tile: vec![0; count],
            starts_row: vec![false; count],
        };
        let mut tile = 0;
        let mut top = 0;
        for &bottom in &row_ends {
            let mut left = 0;
            for &right in &column_ends {
                for y in top..bottom {
                    for x in left..right {
                        let rs = (y * columns + x) as usize;
                        layout.rs_to_ts[rs] = layout.ts_to_rs.len() as u32;
                        layout.ts_to_rs.push(rs as u32);
                        layout.tile[rs] = tile;
                        layout.starts_row[rs] = x == left;
                    }
                }
                left = right;
                tile += 1;
            }
            top = bottom;
        }
        Ok(layout)
    }
}

/// colBd or rowBd without its leading zero.
fn boundaries(ctbs: u32, tiles: u32, sizes: Option<&[u32]>) -> Result<Vec<u32>, BitstreamError> {
    if tiles > ctbs {
        return invalid(format!("{tiles} tiles side by side in {ctbs} CTBs"));
    }
    let Some(sizes) = sizes else {
        return Ok((1..=tiles).map(|i| i * ctbs / tiles).collect());
    };
    let mut ends = Vec::with_capacity(tiles as usize);
    let mut end = 0;
    for size in sizes {
        end += size;
        ends.push(end);
    }
    if end >= ctbs {
        return invalid(format!("the tiles take {end} of {ctbs} CTBs and leave none for the last"));
    }
    ends.push(ctbs);
    Ok(ends)
}
