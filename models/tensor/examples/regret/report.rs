//! Tables of regrets, and whether they keep within their bars.

use super::points::Point;

/// Regret in bits per value: on average, and in the worst cell.
const MEAN_BAR: f64 = 0.01;
const WORST_BAR: f64 = 0.05;
/// What counts as a plan of its own.
const NOTED: f64 = 0.02;
/// Bits per value by which scores of equal codecs may differ: targets are met
/// within a per cent.
const TIE: f64 = 0.005;

/// One tensor at one rate.
#[derive(Debug)]
pub struct Cell {
    pub input: String,
    pub bits: f64,
    pub chosen: Point,
    pub fixed: Vec<(String, Point)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Met,
    Missed,
}

impl Cell {
    /// The best of all and its name; the chosen one wins ties.
    fn best(&self) -> (&str, f64) {
        let own = (self.chosen.plan.as_str(), self.chosen.score());
        let fixed = self.fixed.iter().map(|(name, point)| (name.as_str(), point.score()));
        fixed.fold(own, |best, other| if other.1 < best.1 { other } else { best })
    }

    fn regret(&self) -> f64 {
        self.chosen.score() - self.best().1
    }
}

/// Prints regrets, worst first, and their mean.
pub fn regrets(codec: &str, cells: &[Cell]) -> Verdict {
    println!("\n{codec}: regret of the chosen plan, bits per value at equal error\n");
    println!(
        "{:<44}{:>5}{:>9}  {:<38}{:<38}{:>8}",
        "tensor", "bits", "NMSE", "chosen", "best when held to it", "regret"
    );
    let mut sorted: Vec<&Cell> = cells.iter().collect();
    sorted.sort_by(|a, b| b.regret().total_cmp(&a.regret()));
    for cell in &sorted {
        let (best, regret) = (cell.best().0, cell.regret());
        println!(
            "{:<44}{:>5}{:>9.1e}  {:<38}{best:<38}{regret:>8.4}",
            cell.input, cell.bits, cell.chosen.nmse, cell.chosen.plan
        );
    }
    let mean = cells.iter().map(Cell::regret).sum::<f64>() / cells.len().max(1) as f64;
    let worst = sorted.first().map_or(0.0, |cell| cell.regret());
    let noted = cells.iter().filter(|cell| cell.regret() > NOTED).count();
    println!(
        "\n{codec}: {} cells, mean {mean:.4} (bar {MEAN_BAR}), worst {worst:.4} (bar {WORST_BAR}), \
         {noted} above {NOTED}",
        cells.len()
    );
    if mean <= MEAN_BAR && worst <= WORST_BAR { Verdict::Met } else { Verdict::Missed }
}

/// Prints what other codecs take more than `trinity`, least first.
pub fn others(cells: &[Cell]) -> Verdict {
    println!("\nBits per value at equal error that a codec takes more than trinity\n");
    let mut verdict = Verdict::Met;
    let mut rows: Vec<(f64, &Cell)> = Vec::new();
    for cell in cells {
        let more = cell.fixed.iter().map(|(_, point)| point.score() - cell.chosen.score());
        rows.push((more.fold(f64::INFINITY, f64::min), cell));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (least, cell) in &rows {
        let more =
            |(name, point): &(String, Point)| format!("  {name} {:+.3}", point.score() - cell.chosen.score());
        let line: String = cell.fixed.iter().map(more).collect();
        println!("{:<44}{:>5}{line}", cell.input, cell.bits);
        if *least < -TIE {
            verdict = Verdict::Missed;
        }
    }
    let beaten = rows.iter().filter(|(least, _)| *least < -TIE).count();
    println!("\nbetter than trinity by more than {TIE}: {beaten} of {} cells", rows.len());
    let lite = lite_beaten(cells);
    println!("better than trinity-lite by more than {TIE}, no learned transform: {lite} cells");
    if lite > 0 { Verdict::Missed } else { verdict }
}

/// Cells in which another codec without a learned transform beats `trinity-lite`.
fn lite_beaten(cells: &[Cell]) -> usize {
    let beaten = |cell: &&Cell| {
        let own = cell.fixed.iter().find(|(name, _)| name == "trinity-lite").map(|(_, point)| point.score());
        own.is_some_and(|own| cell.fixed.iter().any(|(_, point)| point.score() < own - TIE))
    };
    cells.iter().filter(beaten).count()
}
