//! Collectives in closed form against ASTRA-sim's analytical backends: ring,
//! halving-doubling, double tree and direct, on rings, switches and fully
//! connected groups.
//!
//! A table of simulated collectives is told by its header. Rows in which several
//! chunks are under way at once are counted and not scored: they contend in an
//! order that no closed form has.

use crate::csv::{CsvRow, Problem, Table};
use crate::score::Pair;
use trinity_sim::collective::{
    Algorithm, Link, Switching, Topology, all_gather, all_reduce, all_to_all_by, reduce_scatter,
};
use trinity_sim::compression::Channel;

/// A column that only these tables have.
pub const TOLD_BY: &str = "sim_ns";

/// Columns that a row is read from.
pub const COLUMNS: &str = "op,algo,topology,backend,n,bytes,bw_GiBps,latency_ns,splits,active_chunks,sim_ns";

const GIB: f64 = 1_073_741_824.0;

/// Simulated collectives beside ours.
#[derive(Clone, Debug, Default)]
pub struct Simulated {
    pub pairs: Vec<Pair>,
    /// Rows in which chunks contend.
    pub contended: usize,
    pub malformed: Vec<Problem>,
}

impl Simulated {
    /// Reads a table whose header was told by [`TOLD_BY`].
    pub fn of(table: &Table) -> Result<Self, crate::csv::Error> {
        table.require(COLUMNS)?;
        let (read, malformed) = table.each(pair);
        let contended = read.iter().filter(|pair| pair.is_none()).count();
        Ok(Self { pairs: read.into_iter().flatten().collect(), contended, malformed })
    }

    /// Takes in another table's.
    pub fn extend(&mut self, other: Self) {
        self.pairs.extend(other.pairs);
        self.contended += other.contended;
        self.malformed.extend(other.malformed);
    }
}

/// One of `choices` by its name in the table.
fn named<T: Copy>(row: &CsvRow<'_>, column: &str, choices: &[(&str, T)]) -> Result<T, Problem> {
    let text = row.text(column);
    choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        row.problem(column, format!("expected one of {}, found `{text}`", known.join(", ")))
    })
}

fn pair(row: &CsvRow<'_>) -> Result<Option<Pair>, Problem> {
    let algorithm = named(
        row,
        "algo",
        &[
            ("ring", Algorithm::Ring),
            ("direct", Algorithm::Direct),
            ("halvingDoubling", Algorithm::HalvingDoubling),
            ("doubleBinaryTree", Algorithm::DoubleTree),
        ],
    )?;
    let topology = named(
        row,
        "topology",
        &[
            ("Ring", Topology::Ring),
            ("Switch", Topology::Switch),
            ("FullyConnected", Topology::FullyConnected),
        ],
    )?;
    let switching =
        named(row, "backend", &[("Aware", Switching::StoreAndForward), ("Unaware", Switching::Uncontended)])?;
    let ranks = row.required_count("n")?;
    if ranks < 2 {
        return Err(row.problem("n", "a collective needs two ranks"));
    }
    let splits = row.required("splits")?;
    let bytes = row.required("bytes")? / splits;
    let link = Link {
        bytes_per_s: row.required("bw_GiBps")? * GIB,
        latency_s: row.required("latency_ns")? * 1e-9,
        launch_s: 0.0,
        topology,
        switching,
        all_reduce: algorithm,
        energy_j_per_bit: 0.0,
    };
    let channel = Channel::raw(link, 8.0);
    let one_s = match row.text("op") {
        "all_reduce" => all_reduce(&channel, ranks, bytes),
        // ASTRA-sim counts what one rank brings.
        "all_gather" => all_gather(&channel, ranks, bytes * f64::from(ranks)),
        "reduce_scatter" => reduce_scatter(&channel, ranks, bytes),
        "all_to_all" => all_to_all_by(&channel, algorithm, ranks, bytes),
        other => return Err(row.problem("op", format!("no collective is called `{other}`"))),
    };
    let measured = row.required("sim_ns")? * 1e-9;
    if row.required_count("active_chunks")? > 1 {
        return Ok(None);
    }
    Ok(Some(Pair {
        what: format!(
            "{} of {bytes} bytes by {} over {ranks} ranks, {}, congestion {}",
            row.text("op"),
            row.text("algo"),
            row.text("topology"),
            row.text("backend").to_lowercase()
        ),
        predicted: splits * one_s,
        measured,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "op,algo,topology,backend,n,bytes,bw_GiBps,latency_ns,splits,active_chunks,sim_ns\n";

    fn read(rows: &str) -> Simulated {
        let table = Table::parse("t.csv", format!("{HEADER}{rows}").as_bytes(), "").unwrap();
        Simulated::of(&table).unwrap()
    }

    #[test]
    fn a_row_is_scored_or_counted_or_complained_about() {
        let read = read(
            "all_reduce,ring,Ring,Unaware,4,1048576,50,500,1,1,32299\n\
             all_reduce,ring,Ring,Unaware,4,1048576,50,500,4,4,32299\n\
             all_reduce,ring,Torus,Unaware,4,1048576,50,500,1,1,32299\n",
        );
        assert!(read.pairs.len() == 1 && read.pairs[0].error().abs() < 0.01, "{:?}", read.pairs);
        assert_eq!(read.contended, 1);
        assert!(read.malformed[0].message.contains("`Torus`"), "{:?}", read.malformed);
    }
}
