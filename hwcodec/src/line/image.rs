//! A plan as the kernels see it: tables on the device, and their addresses.

use super::Address;
use crate::error::{During, Error};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;
use trinity_codec::line::{CLASSES, Coder, MAGNITUDES, ONE, Quantizer, Table, UNITS, class_weight};

/// `Plan` of `common.cu`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanArguments {
    pub pitch: u64,
    pub rows: u32,
    pub cols: u32,
    pub tile_rows: u32,
    pub tile_cols: u32,
    pub panels: u32,
    pub tiles: u32,
    pub tables: u32,
    pub groups: u32,
    pub one_matrix: u32,
    pub limit: i32,
    pub step_units: f32,
    pub inverse: f32,
    pub safe: f32,
    pub rounding: i32,
    pub budget: u32,
    pub capacity: u32,
    pub header_bytes: u32,
    pub header_length: u32,
    pub step_at: u32,
    pub header: Address,
    pub classes: Address,
    pub above: Address,
    pub means: Address,
    pub slots: Address,
    pub of_class: Address,
    pub syntheses: Address,
    pub analyses: Address,
    pub weights: Address,
    pub symbols: Address,
    pub costs: Address,
}

/// Everything of a plan that lies on the device.
#[derive(Debug)]
pub(super) struct Image {
    pub arguments: PlanArguments,
    pub tiles: usize,
    /// Tables with the one for row classes.
    pub tables: usize,
    pub group: usize,
    /// Rows and columns of the matrix as it is given.
    pub shape: (usize, usize),
    _bytes: CudaSlice<u8>,
}

/// Tables laid one after the other, each on a multiple of sixteen bytes.
#[derive(Default)]
struct Layout {
    bytes: Vec<u8>,
}

impl Layout {
    fn put<T: Copy, const N: usize>(&mut self, values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        let at = self.bytes.len() as u64;
        self.bytes.extend(values.iter().flat_map(|&value| to_bytes(value)));
        at
    }
}

impl Image {
    /// For decoding streams that begin with `header`, and with a quantizer for encoding
    /// too. Copies to the device on `stream` and waits for it.
    pub fn new(
        coder: &Coder,
        header: &[u8],
        quantizer: Option<&Quantizer>,
        stream: &Arc<CudaStream>,
    ) -> Result<Self, Error> {
        let plan = &coder.plan;
        let header_length = header.len() as u32;
        let mut header = header.to_vec();
        header.resize(header.len().next_multiple_of(4), 0);
        let (rows, cols) = plan.coded_shape();
        let mut layout = Layout::default();
        let classes: Vec<i8> = plan.classes.iter().map(|&class| class as i8).collect();
        let above: Vec<u8> = plan.above.iter().map(|&above| above as u8).collect();
        let of_class: Vec<u16> = (0..CLASSES)
            .map(|class| u16::from(coder.tables[class]) | u16::from(coder.raw_bits[class]) << 8)
            .collect();
        let slots: Vec<u32> = coder.slots.iter().map(|slot| slot.0).collect();
        let syntheses: Vec<i8> = coder.syntheses.iter().flat_map(|s| s.entries.iter().copied()).collect();
        let mut arguments = PlanArguments {
            pitch: plan.cols as u64,
            rows: rows as u32,
            cols: cols as u32,
            tile_rows: plan.tile_rows as u32,
            tile_cols: plan.tile_cols as u32,
            panels: plan.grid().1 as u32,
            tiles: plan.tiles() as u32,
            tables: plan.tables.len() as u32,
            groups: plan.group_count() as u32,
            one_matrix: u32::from(coder.syntheses.len() == 1),
            limit: coder.limit,
            step_units: (UNITS * if coder.transformed { ONE } else { 1 }) as f32,
            inverse: quantizer.map_or(0.0, |q| q.inverse),
            safe: Quantizer::safe(coder),
            rounding: quantizer.map_or(0, |q| q.rounding),
            budget: 0,
            capacity: 0,
            header_bytes: header.len() as u32,
            header_length,
            step_at: step_at(&header) as u32,
            header: layout.put(&header, u8::to_le_bytes),
            classes: layout.put(&classes, i8::to_le_bytes),
            above: layout.put(&above, u8::to_le_bytes),
            means: layout.put(&plan.means, i32::to_le_bytes),
            slots: layout.put(&slots, u32::to_le_bytes),
            of_class: layout.put(&of_class, u16::to_le_bytes),
            syntheses: layout.put(&syntheses, i8::to_le_bytes),
            analyses: 0,
            weights: 0,
            symbols: 0,
            costs: 0,
        };
        if let Some(quantizer) = quantizer {
            let analyses: Vec<f32> = quantizer.analyses.iter().flatten().copied().collect();
            let symbols: Vec<u64> = plan.tables.iter().chain(&plan.row_table).flat_map(symbols).collect();
            let costs: Vec<i32> = quantizer.costs.iter().flatten().copied().collect();
            let weights: Vec<u32> = plan.classes.iter().map(|&class| class_weight(class)).collect();
            arguments.analyses = layout.put(&analyses, f32::to_le_bytes);
            arguments.weights = layout.put(&weights, u32::to_le_bytes);
            arguments.symbols = layout.put(&symbols, u64::to_le_bytes);
            arguments.costs = layout.put(&costs, i32::to_le_bytes);
        }
        let bytes = stream.clone_htod(&layout.bytes).during("cuMemcpyHtoD")?;
        stream.synchronize().during("cuStreamSynchronize")?;
        let base = bytes.device_ptr(stream).0;
        for address in arguments.addresses() {
            *address += base;
        }
        Ok(Self {
            arguments,
            tiles: plan.tiles(),
            tables: plan.tables.len() + usize::from(plan.row_table.is_some()),
            group: plan.transform.size(),
            shape: (plan.rows, plan.cols),
            _bytes: bytes,
        })
    }
}

impl PlanArguments {
    fn addresses(&mut self) -> [&mut Address; 11] {
        [
            &mut self.header,
            &mut self.classes,
            &mut self.above,
            &mut self.means,
            &mut self.slots,
            &mut self.of_class,
            &mut self.syntheses,
            &mut self.analyses,
            &mut self.weights,
            &mut self.symbols,
            &mut self.costs,
        ]
    }
}

/// Where a header states its step: after the magic and two numbers whose last byte has no upper bit.
fn step_at(header: &[u8]) -> usize {
    let mut at = 3;
    for _ in 0..2 {
        at += header[at..].iter().take_while(|&&byte| byte >= 0x80).count() + 1;
    }
    at
}

/// Start and frequency of each magnitude of a table, and 2^32 over the
/// frequency, rounded down.
fn symbols(table: &Table) -> [u64; MAGNITUDES] {
    std::array::from_fn(|magnitude| {
        let (start, frequency) = (table.start(magnitude), table.frequency(magnitude));
        let reciprocal = (1u64 << 32).checked_div(u64::from(frequency)).unwrap_or(0).min(u64::from(u32::MAX));
        u64::from(start | frequency << 16) | reciprocal << 32
    })
}

#[cfg(test)]
mod tests {
    use super::step_at;
    use trinity_codec::line::{Options, Plan, Rate, Settings, encode_under};

    #[test]
    fn a_header_states_its_step_where_kernels_look_for_it() {
        for (rows, cols) in [(30, 70), (200, 64), (2, 9000)] {
            let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            let target = Rate::Step(2.0);
            let stream =
                encode_under(&values, rows, cols, target, &Options::default(), &Settings::default()).unwrap();
            let (plan, _) = Plan::read(&stream).unwrap();
            let at = step_at(&stream);
            assert_eq!(stream[at..at + 4], plan.step.to_bits().to_be_bytes(), "{rows} × {cols}");
            // The same stream with another step is a plan with another step.
            let mut other = stream.clone();
            other[at..at + 4].copy_from_slice(&(2.0 * plan.step).to_bits().to_be_bytes());
            assert_eq!(Plan::read(&other).unwrap().0, Plan { step: 2.0 * plan.step, ..plan });
        }
    }
}
