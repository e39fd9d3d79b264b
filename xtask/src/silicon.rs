//! `cargo xtask silicon`: the RTL of models/silicon/rtl, held against the Rust
//! codec and synthesized on ASAP7.
//!
//! `--verify` compares every value and byte under Verilator. Without it, the
//! designs go through yosys and OpenSTA with the switching of a simulation on
//! captured tensors, and `configs/silicon/asap7.toml` is written; `--show` prints
//! that file beside the paper's figures, `--bits` what the encoders take of captured
//! tensors. Exits 2 where
//! a tool or the library is missing; everything else works from that file.

mod activity;
mod bits;
mod design;
mod formal;
mod library;
mod netlist;
mod report;
mod simulate;
mod synthesize;
mod table;

use crate::{
    files,
    tools::{self, Failure},
};
use design::{DESIGNS, folder};
use std::time::Instant;

pub fn run(args: &[&str]) -> Result<(), Failure> {
    let (verify, only) = match args {
        [] => (false, None),
        ["--verify"] => (true, None),
        ["--show"] => return table::show().and_then(|()| bits::show()),
        ["--bits"] => return bits::run(),
        ["--only", name] if DESIGNS.iter().any(|design| design.name == *name) => (false, Some(*name)),
        _ => {
            let names: Vec<&str> = DESIGNS.iter().map(|design| design.name).collect();
            return Err(Failure::Missing(format!(
                "expected nothing, --verify, --show, --bits, or --only with one of: {}",
                names.join(", ")
            )));
        }
    };
    let needed = ["verilator", "g++", "make", "yosys", "sta", "gzip"];
    require(if verify { &needed[..4] } else { &needed })?;
    files::folder(&folder())?;
    let start = Instant::now();
    if verify {
        simulate::verify(true, &simulate::PRESSURES)?;
    } else {
        let library = library::prepare()?;
        let mut blocks = Vec::new();
        for design in DESIGNS.iter().filter(|design| only.is_none_or(|name| name == design.name)) {
            let netlist = synthesize::synthesize(design, &library)?;
            let activity = match synthesize::measured(design, &netlist)? {
                Some(activity) => activity,
                None => {
                    let activity = simulate::activity(design)?;
                    synthesize::measure(design, &library, &netlist, &activity)?;
                    activity
                }
            };
            blocks.push((*design, synthesize::block(design, netlist, &activity)?));
            // What is found is kept, should a later design fail.
            if only.is_none() {
                report::write(&blocks)?;
            }
        }
        eprintln!("{}", report::table(&blocks));
    }
    eprintln!("{} s", start.elapsed().as_secs());
    Ok(())
}

/// The small set of `cargo xtask test`, under some pressure or, where `every` is asked for, under
/// each; the reason where it is left out.
pub fn quick(every: bool) -> Result<(), Failure> {
    require(&["verilator", "g++", "make"])?;
    files::folder(&folder())?;
    simulate::verify(false, if every { &simulate::PRESSURES } else { &simulate::PRESSURES[1..2] })
}

fn require(programs: &[&str]) -> Result<(), Failure> {
    let missing: Vec<&str> =
        programs.iter().copied().filter(|program| tools::find(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Failure::Missing(format!("no {missing} here (Debian: apt install verilator yosys opensta)")))
}
