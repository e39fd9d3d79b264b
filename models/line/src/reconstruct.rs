//! Levels to values: points, prediction, synthesis in integers; one product
//! and nothing else in floating point.

use crate::coder::{Coder, UNITS, next_state, units};
use crate::plan::Tile;
use crate::quantize::predict;
use crate::tile::Parsed;

/// Values of a tile, row by row.
pub fn reconstruct(coder: &Coder, tile: &Tile, parsed: &Parsed, values: &mut [f32]) {
    let (cols, lanes) = (tile.cols, coder.plan.lanes());
    let above = &coder.plan.above[tile.col..][..cols];
    let means = &coder.plan.means[tile.col..][..cols];
    let mut states = vec![0u8; lanes];
    let mut deviations = vec![0i32; cols];
    let mut coefficients = vec![0i32; cols];
    for (levels, values) in parsed.levels.chunks_exact(cols).zip(values.chunks_exact_mut(cols)) {
        for column in 0..cols {
            let (state, level) = (&mut states[column % lanes], i32::from(levels[column]));
            let point = units(level, i32::from(*state & 1), parsed.gain);
            let deviation = point.wrapping_add(predict(above[column], deviations[column]));
            deviations[column] = deviation.clamp(-coder.limit, coder.limit);
            coefficients[column] = means[column] * UNITS + deviations[column];
            *state = next_state(coder.plan.log2_states, *state, level & 1 == 1);
        }
        if coder.transformed {
            synthesize(coder, tile, &mut coefficients);
        }
        for (value, &coefficient) in values.iter_mut().zip(&coefficients) {
            *value = coefficient as f32 * coder.scale;
        }
    }
    for exception in &parsed.exceptions {
        values[usize::from(exception.position)] = f32::from_bits(exception.bits);
    }
}

/// One row through the synthesis matrices; columns outside whole groups are
/// multiplied by one.
fn synthesize(coder: &Coder, tile: &Tile, row: &mut [i32]) {
    let size = coder.plan.transform.size();
    let mut group = [0i32; 64];
    for (index, values) in row.chunks_mut(size).enumerate() {
        let number = tile.col / size + index;
        if number >= coder.plan.group_count() || values.len() < size {
            values.iter_mut().for_each(|value| *value = value.wrapping_mul(crate::matrix::ONE));
            continue;
        }
        let synthesis = coder.synthesis(number);
        for (value, weights) in group.iter_mut().zip(synthesis.entries.chunks_exact(size)) {
            let products = weights.iter().zip(&*values).map(|(&w, &c)| i32::from(w).wrapping_mul(c));
            *value = products.fold(0, i32::wrapping_add);
        }
        values.copy_from_slice(&group[..size]);
    }
}
