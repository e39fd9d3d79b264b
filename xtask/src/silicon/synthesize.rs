//! yosys to a netlist, OpenSTA to timing and power.

use super::activity::Activity;
use super::design::{Design, Failure, folder};
use super::library::Library;
use super::netlist::{self, Memory, Module};
use super::simulate::sources;
use crate::workspace::root;
use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

/// The clock that abc sizes for and OpenSTA checks, in picoseconds.
pub const SIZED_PS: u32 = 800;
pub const CLOCK_PS: u32 = 1000;
/// Memories: set-up and access, in picoseconds. Small arrays at 7 nm; an assumption.
pub const SETUP_PS: u32 = 60;
pub const ACCESS_PS: u32 = 350;
/// Mapping with buffers and sizes, so that the clock is not that of least gates.
const SCRIPT: &str = "+strash;dch;map,-B,0.9,-D,PS;topo;buffer,-c;upsize,-D,PS;dnsize,-D,PS;stime,-p";

/// A design as yosys left it.
#[derive(Debug)]
pub struct Netlist {
    pub modules: BTreeMap<String, Module>,
    pub copies: BTreeMap<String, u64>,
    pub memories: Vec<Memory>,
    verilog: PathBuf,
    rams: PathBuf,
}

/// What OpenSTA says of it.
#[derive(Debug)]
pub struct Block {
    pub netlist: Netlist,
    pub critical_ps: f64,
    /// Watts at [`CLOCK_PS`]: flip-flops, logic.
    pub sequential_w: f64,
    pub logic_w: f64,
    /// Share of flip-flops whose switching the simulation gave.
    pub annotated: f64,
    pub cycles: u64,
}

pub fn script() -> String {
    SCRIPT.replace("PS", &SIZED_PS.to_string())
}

pub fn synthesize(design: &Design, library: &Library) -> Result<Netlist, Failure> {
    let top = design.top;
    let place = |ending: &str| folder().join(format!("{top}.{ending}"));
    let files: Vec<String> =
        sources(&root().join("models/silicon/rtl"))?.iter().map(|path| path.display().to_string()).collect();
    let text = format!(
        "read_verilog -sv {files}\nhierarchy -top {top}\nblackbox *line_ram*\nsynth -top {top}\nrename -wire t:$_*DFF*\n\
         dfflibmap -liberty {sequential}\nabc -liberty {merged} -D {SIZED_PS} -script {script}\nopt_clean -purge\n\
         stat -liberty {merged}\nwrite_verilog -noattr -noexpr -blackboxes {rams}\nwrite_verilog -noattr -noexpr {net}\n",
        files = files.join(" "),
        sequential = library.sequential.display(),
        merged = library.merged.display(),
        script = script(),
        rams = place("rams.v").display(),
        net = place("net.v").display(),
    );
    write(&place("ys"), &text)?;
    if is_newer(&place("net.v"), &sources(&root().join("models/silicon/rtl"))?) {
        eprintln!("{top}: the netlist in {} is newer than the RTL", folder().display());
    } else {
        eprintln!("synthesizing {top}");
        let output = Command::new("yosys").arg("-q").arg("-l").arg(place("log")).arg(place("ys")).output();
        let output = output.map_err(|error| format!("cannot run yosys: {error}"))?;
        if !output.status.success() {
            return Err(Failure::Failed(format!("yosys gave up on {top}: see {}", place("log").display())));
        }
    }
    let memories = netlist::memories(&read(&place("rams.v"))?);
    let mut verilog = read(&place("net.v"))?;
    for memory in &memories {
        verilog = verilog.replace(&format!("\\{} ", memory.module), &format!("{} ", memory.cell()));
    }
    write(&place("net.v"), &verilog)?;
    write(&place("rams.lib"), &netlist::liberty(&memories, SETUP_PS, ACCESS_PS))?;
    let modules = netlist::modules(&read(&place("log"))?);
    let copies = netlist::copies(&modules, top);
    Ok(Netlist { modules, copies, memories, verilog: place("net.v"), rams: place("rams.lib") })
}

/// Whether a file is there and no source was changed after it.
fn is_newer(file: &PathBuf, sources: &[PathBuf]) -> bool {
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let Some(made) = changed(file) else { return false };
    sources.iter().all(|source| changed(source).is_some_and(|at| at < made))
}

/// Timing and power, with the switching that a simulation gave.
pub fn measure(
    design: &Design,
    library: &Library,
    netlist: Netlist,
    activity: &Activity,
) -> Result<Block, Failure> {
    let top = design.top;
    let script = folder().join(format!("{top}.tcl"));
    let rates = folder().join(format!("{top}.rates"));
    let lines: Vec<String> = activity
        .rates
        .iter()
        .map(|((path, bit), rate)| format!("{} {bit} {rate:.6}", path.replace('.', "/")))
        .collect();
    write(&rates, &lines.join("\n"))?;
    let names = netlist::instances(&read(&netlist.verilog)?);
    let mut text = String::new();
    for part in library.parts.iter().chain([&netlist.rams]) {
        text += &format!("read_liberty {}\n", part.display());
    }
    text += &format!(
        "read_verilog {}\nlink_design {top}\ncreate_clock -name clk -period {CLOCK_PS} [get_ports clk]\n\
         set_input_delay -clock clk 0 [all_inputs]\nset_output_delay -clock clk 0 [all_outputs]\n{}",
        netlist.verilog.display(),
        ANNOTATE.replace("RATES", &rates.display().to_string()).replace("MEMORIES", &names.join(" "))
    );
    write(&script, &text)?;
    eprintln!("timing and power of {top}");
    let output = Command::new("sta").arg("-exit").arg(&script).output();
    let output = output.map_err(|error| format!("cannot run sta: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = folder().join(format!("{top}.sta.log"));
    write(&log, &said)?;
    let number = |key: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(key));
        let word =
            line.and_then(|rest| rest.split_whitespace().last()).and_then(|word| word.parse::<f64>().ok());
        word.ok_or_else(|| format!("OpenSTA did not say `{key}` of {top}: see {}", log.display()))
    };
    let total = |key: &str| {
        let line = said.lines().find(|line| line.starts_with(key));
        let word =
            line.and_then(|rest| rest.split_whitespace().nth(4)).and_then(|word| word.parse::<f64>().ok());
        word.ok_or_else(|| format!("OpenSTA gave no power of {top}: see {}", log.display()))
    };
    Ok(Block {
        critical_ps: f64::from(CLOCK_PS) - number("worst slack")?,
        sequential_w: total("Sequential")?,
        logic_w: total("Combinational")?,
        annotated: number("annotated")?,
        cycles: activity.cycles,
        netlist,
    })
}

/// Gives OpenSTA the simulation's switching, then asks for timing and power.
const ANNOTATE: &str = include_str!("annotate.tcl");

fn read(path: &PathBuf) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
