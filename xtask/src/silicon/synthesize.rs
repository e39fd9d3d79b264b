//! yosys to a netlist, OpenSTA to timing and power.

use super::activity::Activity;
use super::design::{Design, folder};
use super::library::Library;
use super::netlist::{self, Memory, Module};
use crate::{
    files::{ending_in, text as read, write},
    tools::{Failure, output},
    workspace::root,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The clock that abc sizes for and OpenSTA checks, in picoseconds.
pub const SIZED_PS: u32 = 800;
pub const CLOCK_PS: u32 = 1000;
/// Memories: set-up and access, in picoseconds. Small arrays at 7 nm; an assumption.
pub const SETUP_PS: u32 = 60;
pub const ACCESS_PS: u32 = 350;
/// Mapping with buffers and sizes, so that the clock is not that of least gates.
/// A module's inputs are buffered too (`-p`): others drive them.
const SCRIPT: &str = "+strash;ifraig;map,-B,0.9,-D,PS;topo;buffer,-p,-c;upsize,-D,PS;dnsize,-D,PS;stime,-p";
/// The longest that yosys may take for one module; the largest takes a tenth on an idle core.
const LIMIT: Duration = Duration::from_secs(1200);
/// What drives a module's inputs, and the load of its outputs in femtofarads.
const BOUNDARY: &str = "set_driving_cell BUFx2_ASAP7_75t_R\nset_load 8.0\n";

/// A design as yosys left it.
#[derive(Debug)]
pub struct Netlist {
    pub modules: BTreeMap<String, Module>,
    pub copies: BTreeMap<String, u64>,
    pub memories: Vec<Memory>,
    /// Longest path inside each module, as abc has it.
    pub delays_ps: BTreeMap<String, f64>,
    verilog: PathBuf,
    rams: PathBuf,
}

/// What OpenSTA says of it.
#[derive(Debug)]
pub struct Block {
    pub netlist: Netlist,
    pub critical_ps: f64,
    /// Watts at [`CLOCK_PS`]: flip-flops, logic; NaN where OpenSTA gave none.
    pub sequential_w: f64,
    pub logic_w: f64,
    /// Power by module, all copies together.
    pub stages_w: BTreeMap<String, f64>,
    /// Share of flip-flops whose switching the simulation gave.
    pub annotated: f64,
    /// Cycles of the simulation.
    pub cycles: u64,
    pub values: u64,
}

pub fn script() -> String {
    SCRIPT.replace("PS", &SIZED_PS.to_string())
}

/// Every module of a design on its own, those below it as black boxes; the
/// netlists together are the design's.
pub fn synthesize(design: &Design, library: &Library) -> Result<Netlist, Failure> {
    let rtl = ending_in(&root().join("models/silicon/rtl"), "sv");
    let text = rtl.iter().map(|path| read(path)).collect::<Result<String, String>>()?;
    let stated = netlist::stated_depths(&text);
    let stem = |path: &PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let known: Vec<String> = rtl.iter().filter_map(stem).filter(|name| name != "line_ram").collect();
    write(&folder().join("boundary.constr"), BOUNDARY)?;
    let mut modules = BTreeMap::new();
    let mut delays_ps = BTreeMap::new();
    let mut waiting = vec![design.top.to_string()];
    // Level by level: what a module holds is known once it is mapped.
    while !waiting.is_empty() {
        map_all(design, &waiting, &rtl, library)?;
        let mut below = Vec::new();
        for name in waiting {
            let log = read(&place(&stem_of(design, &name)?, "log"))?;
            let found = netlist::modules(&log);
            delays_ps.insert(name.clone(), netlist::delay_ps(&log));
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
        let stem = stem_of(design, name)?;
        verilog += &read(&place(&stem, "net.v"))?;
        for memory in netlist::memories(&read(&place(&stem, "rams.v"))?, &stated) {
            if !memories.contains(&memory) {
                memories.push(memory);
            }
        }
    }
    for memory in &memories {
        verilog = verilog.replace(&format!("\\{} ", memory.module), &format!("{} ", memory.cell()));
    }
    let (place_of_all, rams) = (place(design.name, "all.v"), place(design.name, "rams.lib"));
    write(&place_of_all, &verilog)?;
    write(&rams, netlist::liberty(&memories, SETUP_PS, ACCESS_PS))?;
    let copies = netlist::copies(&modules, design.top);
    let verilog = place_of_all;
    Ok(Netlist { modules, copies, memories, delays_ps, verilog, rams })
}

fn place(module: &str, ending: &str) -> PathBuf {
    folder().join(format!("{module}.{ending}"))
}

/// What a module's files are called: by the options too where they make a difference.
fn stem_of(design: &Design, module: &str) -> Result<String, String> {
    let source = read(&root().join(format!("models/silicon/rtl/{module}.sv")))?;
    Ok(module.to_string() + &design.suffix(&source))
}

/// A module on its way through yosys.
struct Job<'a> {
    name: &'a str,
    stem: String,
    script: String,
    key: String,
}

/// Maps modules side by side; those whose source and script are what they were
/// keep their netlist.
fn map_all(design: &Design, names: &[String], rtl: &[PathBuf], library: &Library) -> Result<(), Failure> {
    let mut stale = Vec::new();
    for name in names {
        let stem = stem_of(design, name)?;
        let below = below(name, rtl)?;
        let script = script_of(name, &stem, design, &below, library);
        let job = Job { name, key: key_of(name, &script, &below)?, stem, script };
        let known = fs::read_to_string(place(&job.stem, "key")).is_ok_and(|known| known == job.key);
        if known && place(&job.stem, "net.v").exists() {
            eprintln!("{}: as it was", job.stem);
        } else {
            stale.push(job);
        }
    }
    let workers = thread::available_parallelism().map_or(1, usize::from);
    for some in stale.chunks(workers) {
        let outcomes: Vec<Result<(), Failure>> = thread::scope(|scope| {
            let started: Vec<_> = some.iter().map(|job| scope.spawn(move || map(job))).collect();
            let lost = || Err(Failure::Failed("a synthesis was lost".into()));
            started.into_iter().map(|job| job.join().unwrap_or_else(|_| lost())).collect()
        });
        outcomes.into_iter().collect::<Result<Vec<()>, Failure>>()?;
    }
    Ok(())
}

fn script_of(name: &str, stem: &str, design: &Design, rtl: &[PathBuf], library: &Library) -> String {
    // A module that knows nothing of options is the same in every design.
    let define = if stem == name { String::new() } else { design.defines().join(" ") + " " };
    let files = rtl.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    format!(
        "read_verilog -sv {define}{files}\nhierarchy -top {name}\nselect -set others * {name} %d\nblackbox @others\n\
         synth -top {name} -noabc -noshare -nofsm\nrename -wire t:$_*DFF*\ndfflibmap -liberty {sequential}\n\
         abc -liberty {merged} -constr {boundary} -D {SIZED_PS} -script {script}\nopt_clean -purge\n\
         stat -liberty {merged}\nwrite_verilog -noattr -noexpr -blackboxes {rams}\nwrite_verilog -noattr -noexpr -simple-lhs {net}\n",
        sequential = library.sequential.display(),
        merged = library.merged.display(),
        boundary = folder().join("boundary.constr").display(),
        script = script(),
        rams = place(stem, "rams.v").display(),
        net = place(stem, "net.v").display(),
    )
}

/// A module's file, then those of all that it names, directly or not.
fn below(name: &str, rtl: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut found: Vec<PathBuf> =
        rtl.iter().filter(|path| stem(path).is_some_and(|stem| stem == name)).cloned().collect();
    let mut at = 0;
    while let Some(path) = found.get(at) {
        let text = read(path)?;
        let code = text.lines().filter_map(|line| line.split("//").next());
        let words: Vec<&str> =
            code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
        for other in rtl {
            if !found.contains(other) && stem(other).is_some_and(|stem| words.contains(&&stem[..])) {
                found.push(other.clone());
            }
        }
        at += 1;
    }
    Ok(found)
}

/// What a module's netlist follows from: the script, its own source (the first
/// file), and the ports of the others.
fn key_of(name: &str, script: &str, files: &[PathBuf]) -> Result<String, String> {
    let mut texts = vec![script.to_string(), BOUNDARY.to_string()];
    for path in files {
        let text = read(path)?;
        let own = path.file_stem().is_some_and(|stem| stem == name);
        texts.push(if own { text } else { text.split(");").next().unwrap_or_default().to_string() });
    }
    Ok(hash(texts.iter().map(String::as_str)))
}

fn map(job: &Job<'_>) -> Result<(), Failure> {
    let Job { name, stem, script, key } = job;
    write(&place(stem, "ys"), script)?;
    let log = place(stem, "log");
    let failed = |why: &str| Failure::Failed(format!("yosys {why} on {stem}: see {}", log.display()));
    let start = Instant::now();
    let mut yosys = Command::new("yosys");
    yosys.arg("-q").arg("-l").arg(&log).arg(place(stem, "ys")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = yosys.spawn().map_err(|error| format!("cannot run yosys: {error}"))?;
    let status = loop {
        match running.try_wait().map_err(|error| format!("cannot wait for yosys: {error}"))? {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => {
                drop(running.kill());
                drop(running.wait());
                return Err(failed(&format!("took more than {} s", LIMIT.as_secs())));
            }
            None => thread::sleep(Duration::from_millis(100)),
        }
    };
    if !status.success() {
        return Err(failed("gave up"));
    }
    let said = read(&log)?;
    if said.contains("conflicting drivers") {
        return Err(failed("found a net with two drivers"));
    }
    let area = netlist::modules(&said).get(*name).map_or(0.0, |module| module.area_um2);
    let delay = netlist::delay_ps(&said);
    eprintln!("{stem}: {area:.0} um2, {delay:.0} ps, {} s", start.elapsed().as_secs());
    write(&place(stem, "key"), key)?;
    Ok(())
}

/// What OpenSTA said of this very netlist before, if it was asked: cycles and
/// values of the simulation. Its log is still there.
pub fn measured(design: &Design, netlist: &Netlist) -> Result<Option<Activity>, Failure> {
    let Ok(known) = fs::read_to_string(place(design.name, "measured")) else { return Ok(None) };
    let key = netlist_key(netlist)?;
    let [found, cycles, values] = known.split_whitespace().collect::<Vec<_>>()[..] else { return Ok(None) };
    let (Ok(cycles), Ok(values)) = (cycles.parse(), values.parse()) else { return Ok(None) };
    let here = found == key && place(design.name, "sta.log").exists();
    Ok(here.then(|| Activity { cycles, values, ..Activity::default() }))
}

fn netlist_key(netlist: &Netlist) -> Result<String, String> {
    let texts = [read(&netlist.verilog)?, read(&netlist.rams)?, ANNOTATE.to_string()];
    Ok(hash(texts.iter().map(String::as_str)))
}

/// FNV-1a of texts in turn.
fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    format!("{:016x}", crate::numeric::hash::fnv1a(texts.into_iter().flat_map(str::bytes)))
}

/// Timing and power, with the switching that a simulation gave.
pub fn measure(
    design: &Design,
    library: &Library,
    netlist: &Netlist,
    activity: &Activity,
) -> Result<(), Failure> {
    let (top, name) = (design.top, design.name);
    let script = place(name, "tcl");
    let rates = place(name, "rates");
    let found = activity.rates.iter();
    let lines = found.map(|((path, bit), rate)| format!("{} {bit} {rate:.6}", path.replace('.', "/")));
    let lines: Vec<String> = lines.collect();
    write(&rates, lines.join("\n"))?;
    let verilog = read(&netlist.verilog)?;
    let names = netlist::instances(&verilog);
    let parts = library.parts.iter().chain([&netlist.rams]);
    let libraries: String = parts.map(|part| format!("read_liberty {}\n", part.display())).collect();
    let linked = |path: &Path| {
        format!(
            "{libraries}read_verilog {}\nlink_design {top}\ncreate_clock -name clk -period {CLOCK_PS} [get_ports clk]\n\
             set_input_delay -clock clk 0 [all_inputs]\nset_output_delay -clock clk 0 [all_outputs]\n\
             report_checks -digits 1\nreport_worst_slack\n",
            path.display()
        )
    };
    let annotate = ANNOTATE
        .replace("RATES", &rates.display().to_string())
        .replace("TOP", top)
        .replace("MEMORIES", &names.join(" "));
    eprintln!("timing and power of {name}");
    // OpenSTA 2.0.17 crashes in power where what enters a module is tied (`gain` of
    // line_classes): there such nets are open, and switch as little. Apart, as a
    // second netlist in one session crashes it, too.
    let open = place(name, "power.v");
    write(&open, netlist::untied(&verilog))?;
    let said =
        opensta(&script, &linked(&netlist.verilog))? + &opensta(&script, &(linked(&open) + &annotate))?;
    write(&place(name, "sta.log"), &said)?;
    let key = netlist_key(netlist)?;
    write(&place(name, "measured"), format!("{key} {} {}", activity.cycles, activity.values))?;
    Ok(())
}

/// What OpenSTA prints when it runs `text`, kept in `script`.
fn opensta(script: &Path, text: &str) -> Result<String, Failure> {
    write(script, text)?;
    let said = output(Command::new("sta").arg("-exit").arg(script))?.stdout;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// What OpenSTA's log says of a design.
pub fn block(design: &Design, netlist: Netlist, activity: &Activity) -> Result<Block, Failure> {
    let name = design.name;
    let log = place(name, "sta.log");
    let said = read(&log)?;
    let number = |key: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(key));
        let word = line.and_then(|rest| rest.split_whitespace().last()?.parse::<f64>().ok());
        word.ok_or_else(|| format!("OpenSTA did not say `{key}` of {name}: see {}", log.display()))
    };
    let total = |key: &str| {
        let line = said.lines().find(|line| line.starts_with(key));
        let word = line.and_then(|rest| rest.split_whitespace().nth(4)?.parse().ok());
        // OpenSTA 2.0.17 may crash here, after timing; the report then says so.
        word.unwrap_or(f64::NAN)
    };
    Ok(Block {
        critical_ps: f64::from(CLOCK_PS) - number("worst slack")?,
        sequential_w: total("Sequential"),
        logic_w: total("Combinational"),
        stages_w: netlist::module_power(&said),
        annotated: number("annotated")?,
        cycles: activity.cycles,
        values: activity.values,
        netlist,
    })
}

/// Gives OpenSTA the simulation's switching, then asks for timing and power.
const ANNOTATE: &str = include_str!("annotate.tcl");
