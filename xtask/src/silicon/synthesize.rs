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
/// A module's inputs are buffered too (`-p`): others drive them.
const SCRIPT: &str = "+strash;ifraig;map,-B,0.9,-D,PS;topo;buffer,-p,-c;upsize,-D,PS;dnsize,-D,PS;stime,-p";
/// What drives a module's inputs, and the load of its outputs in femtofarads.
const BOUNDARY: &str = "set_driving_cell BUFx2_ASAP7_75t_R\nset_load 8.0\n";

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
    /// Of the simulation.
    pub cycles: u64,
    pub values: u64,
}

pub fn script() -> String {
    SCRIPT.replace("PS", &SIZED_PS.to_string())
}

/// Every module of a design on its own, those below it as black boxes; the
/// netlists together are the design's.
pub fn synthesize(design: &Design, library: &Library) -> Result<Netlist, Failure> {
    let top = design.top;
    let rtl = sources(&root().join("models/silicon/rtl"))?;
    let stem = |path: &PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let known: Vec<String> = rtl.iter().filter_map(stem).filter(|name| name != "line_ram").collect();
    write(&folder().join("boundary.constr"), BOUNDARY)?;
    let mut modules = BTreeMap::new();
    let mut waiting = vec![top.to_string()];
    // Level by level: what a module holds is known once it is mapped.
    while !waiting.is_empty() {
        map_all(&waiting, &rtl, library)?;
        let mut below = Vec::new();
        for name in waiting {
            let found = netlist::modules(&read(&place(&name, "log"))?);
            let module =
                found.get(&name).cloned().ok_or_else(|| format!("yosys gave no figures of {name}"))?;
            below.extend(module.children.keys().filter(|child| known.contains(child)).cloned());
            modules.insert(name, module);
        }
        below.sort();
        below.dedup();
        below.retain(|name| !modules.contains_key(name));
        waiting = below;
    }
    let mut memories: Vec<Memory> = Vec::new();
    let mut verilog = String::new();
    for name in modules.keys() {
        verilog += &read(&place(name, "net.v"))?;
        for memory in netlist::memories(&read(&place(name, "rams.v"))?) {
            if !memories.contains(&memory) {
                memories.push(memory);
            }
        }
    }
    for memory in &memories {
        verilog = verilog.replace(&format!("\\{} ", memory.module), &format!("{} ", memory.cell()));
    }
    write(&place(top, "all.v"), &verilog)?;
    write(&place(top, "rams.lib"), &netlist::liberty(&memories, SETUP_PS, ACCESS_PS))?;
    let copies = netlist::copies(&modules, top);
    Ok(Netlist { modules, copies, memories, verilog: place(top, "all.v"), rams: place(top, "rams.lib") })
}

fn place(module: &str, ending: &str) -> PathBuf {
    folder().join(format!("{module}.{ending}"))
}

/// Maps modules side by side; those whose netlist is newer than the RTL are kept.
fn map_all(names: &[String], rtl: &[PathBuf], library: &Library) -> Result<(), Failure> {
    let stale: Vec<&String> = names.iter().filter(|name| !is_newer(&place(name, "net.v"), rtl)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    for some in stale.chunks(workers) {
        eprintln!("synthesizing {}", some.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "));
        let outcomes: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let started: Vec<_> = some.iter().map(|name| scope.spawn(|| map(name, rtl, library))).collect();
            let lost = || Err(Failure::Failed("a synthesis was lost".into()));
            started.into_iter().map(|job| job.join().unwrap_or_else(|_| lost())).collect()
        });
        outcomes.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    }
    Ok(())
}

fn map(name: &str, rtl: &[PathBuf], library: &Library) -> Result<(), Failure> {
    let files: Vec<String> = rtl.iter().map(|path| path.display().to_string()).collect();
    let text = format!(
        "read_verilog -sv {files}\nhierarchy -top {name}\nselect -set others * {name} %d\nblackbox @others\n\
         synth -top {name} -noabc -noshare -nofsm\nrename -wire t:$_*DFF*\ndfflibmap -liberty {sequential}\n\
         abc -liberty {merged} -constr {boundary} -D {SIZED_PS} -script {script}\nopt_clean -purge\n\
         stat -liberty {merged}\nwrite_verilog -noattr -noexpr -blackboxes {rams}\nwrite_verilog -noattr -noexpr {net}\n",
        files = files.join(" "),
        sequential = library.sequential.display(),
        merged = library.merged.display(),
        boundary = folder().join("boundary.constr").display(),
        script = script(),
        rams = place(name, "rams.v").display(),
        net = place(name, "net.v").display(),
    );
    write(&place(name, "ys"), &text)?;
    let mut yosys = Command::new("yosys");
    let output = yosys.arg("-q").arg("-l").arg(place(name, "log")).arg(place(name, "ys")).output();
    let output = output.map_err(|error| format!("cannot run yosys: {error}"))?;
    if !output.status.success() {
        return Err(Failure::Failed(format!(
            "yosys gave up on {name}: see {}",
            place(name, "log").display()
        )));
    }
    Ok(())
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
        values: activity.values,
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
