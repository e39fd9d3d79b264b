//! `models/silicon/asap7.toml`: what synthesis found, and what was assumed.

use super::design::{Design, Failure, captured};
use super::netlist::Memory;
use super::synthesize::{ACCESS_PS, Block, CLOCK_PS, SETUP_PS, SIZED_PS, script};
use crate::workspace::root;
use std::{fs, process::Command};

/// Where the figures are kept.
pub const FILE: &str = "models/silicon/asap7.toml";
/// Square micrometres of a bit: a 6T cell of 0.027 µm² (TSMC 7 nm, ISSCC 2017)
/// over an array efficiency of one half, of a quarter below [`SMALL_BITS`].
const BIT_UM2: f64 = 0.054;
const SMALL_BIT_UM2: f64 = 0.108;
const SMALL_BITS: u64 = 1 << 15;
/// Femtojoules of an access for each bit that the array holds.
const ACCESS_FJ_PER_BIT: f64 = 0.05;
/// Share of a placed block that is cells.
const UTILIZATION: f64 = 0.7;
/// What wires do to the critical path and to the logic's power, and what the
/// clock tree adds to the flip-flops': between those of reference blocks timed
/// with and without a wire load.
const WIRE_DELAY: f64 = 1.3;
const WIRE_POWER: f64 = 1.15;
const CLOCK_TREE_POWER: f64 = 0.3;
/// Values of a cycle, and bits of a value of bf16.
const VALUES_PER_CYCLE: f64 = 8.0;
const VALUE_BITS: f64 = 16.0;

/// Figures of one design that follow from what the tools said.
struct Figures {
    cells: u64,
    flip_flops: u64,
    logic_um2: f64,
    sram_bits: u64,
    sram_um2: f64,
    area_mm2: f64,
    clock_ghz: f64,
    gbps: f64,
    power_w: f64,
}

fn sram_um2(memory: &Memory) -> f64 {
    memory.bits() as f64 * if memory.bits() < SMALL_BITS { SMALL_BIT_UM2 } else { BIT_UM2 }
}

/// Memories by instance: a module's memories are there as often as the module.
fn memories(block: &Block) -> Vec<&Memory> {
    let counted = |memory: &Memory| block.netlist.copies.get(&memory.module).copied().unwrap_or(1);
    block.netlist.memories.iter().flat_map(|memory| vec![memory; counted(memory) as usize]).collect()
}

fn figures(block: &Block) -> Figures {
    let netlist = &block.netlist;
    let sum = |of: &dyn Fn(&super::netlist::Module) -> f64| -> f64 {
        let modules = netlist.modules.iter();
        modules.map(|(name, module)| of(module) * netlist.copies.get(name).copied().unwrap_or(0) as f64).sum()
    };
    let memories = memories(block);
    let sram_bits: u64 = memories.iter().map(|memory| memory.bits()).sum();
    let sram_um2: f64 = memories.iter().map(|memory| sram_um2(memory)).sum();
    let logic_um2 = sum(&|module| module.area_um2);
    // No faster than it was checked for, with wires.
    let clock_ghz = (1e3 / (block.critical_ps * WIRE_DELAY)).min(1e3 / f64::from(CLOCK_PS));
    let sram_w = sram_bits as f64 * ACCESS_FJ_PER_BIT * 1e-15 * clock_ghz * 1e9;
    let at_clock = clock_ghz * f64::from(CLOCK_PS) / 1e3;
    let power_w =
        (block.logic_w * WIRE_POWER + block.sequential_w * (1.0 + CLOCK_TREE_POWER)) * at_clock + sram_w;
    Figures {
        cells: sum(&|module| module.cells as f64) as u64,
        flip_flops: sum(&|module| module.flip_flops as f64) as u64,
        logic_um2,
        sram_bits,
        sram_um2,
        area_mm2: (logic_um2 / UTILIZATION + sram_um2) / 1e6,
        clock_ghz,
        gbps: VALUES_PER_CYCLE * VALUE_BITS * clock_ghz,
        power_w,
    }
}

/// A few lines for the terminal.
pub fn table(blocks: &[(Design, Block)]) -> String {
    let mut text =
        "design       cells  flip-flops  logic um2  SRAM bits  mm2     ps    GHz   Gb/s   W      pJ/bit\n"
            .to_string();
    for (design, block) in blocks {
        let f = figures(block);
        text += &format!(
            "{:<9} {:>8} {:>11} {:>10.0} {:>10} {:>6.4} {:>6.0} {:>5.2} {:>6.1} {:>6.4} {:>6.3}\n",
            design.top,
            f.cells,
            f.flip_flops,
            f.logic_um2,
            f.sram_bits,
            f.area_mm2,
            block.critical_ps,
            f.clock_ghz,
            f.gbps,
            f.power_w,
            f.power_w / f.gbps * 1e3
        );
    }
    text
}

fn first_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_string()
}

pub fn write(blocks: &[(Design, Block)]) -> Result<(), Failure> {
    let mut text = format!(
        "# The line-rate codec's RTL on ASAP7 (RVT, typical, 0.7 V, 25 C). Written by `cargo xtask silicon`.\n\
         \n[run]\ndate = \"{}\"\nyosys = \"{}\"\nopensta = \"{}\"\nverilator = \"{}\"\nabc-script = \"{}\"\n\
         switching-from = \"{}\"\n\
         \n[assumed]\nsized-ps = {SIZED_PS}\nclock-ps = {CLOCK_PS}\nsram-setup-ps = {SETUP_PS}\nsram-access-ps = {ACCESS_PS}\n\
         sram-um2-per-bit = {BIT_UM2}\nsmall-sram-um2-per-bit = {SMALL_BIT_UM2}\nsmall-sram-bits = {SMALL_BITS}\n\
         sram-access-fj-per-bit = {ACCESS_FJ_PER_BIT}\nutilization = {UTILIZATION}\nwire-delay = {WIRE_DELAY}\n\
         wire-power = {WIRE_POWER}\nclock-tree-power = {CLOCK_TREE_POWER}\n",
        first_line("date", &["-u", "+%Y-%m-%d"]),
        first_line("yosys", &["-V"]),
        first_line("sta", &["-version"]),
        first_line("verilator", &["--version"]),
        script(),
        if captured().is_empty() { "random matrices" } else { "captured tensors, bf16 out" },
    );
    for (design, block) in blocks {
        let f = figures(block);
        text += &format!(
            "\n[[design]]\nname = \"{}\"\nwhat = \"{}\"\ncells = {}\nflip-flops = {}\nlogic-um2 = {:.1}\nsram-bits = {}\n\
             sram-um2 = {:.1}\narea-mm2 = {:.5}\ncritical-ps = {:.1}\nclock-ghz = {:.4}\ngbps = {:.2}\nsequential-w = {:.5}\n\
             logic-w = {:.5}\npower-w = {:.5}\npj-per-bit = {:.4}\nannotated = {:.3}\nsimulated-cycles = {}\nsimulated-values = {}\n",
            design.top,
            design.what,
            f.cells,
            f.flip_flops,
            f.logic_um2,
            f.sram_bits,
            f.sram_um2,
            f.area_mm2,
            block.critical_ps,
            f.clock_ghz,
            f.gbps,
            block.sequential_w,
            block.logic_w,
            f.power_w,
            f.power_w / f.gbps * 1e3,
            block.annotated,
            block.cycles,
            block.values
        );
        for (name, module) in &block.netlist.modules {
            let copies = block.netlist.copies.get(name).copied().unwrap_or(0);
            if copies > 0 && !name.contains("line_ram") {
                let sram: u64 = module_sram(block, module);
                text += &format!(
                    "\n[[stage]]\ndesign = \"{}\"\nname = \"{name}\"\ncopies = {copies}\ncells = {}\nflip-flops = {}\nlogic-um2 = {:.2}\nsram-bits = {sram}\n",
                    design.top, module.cells, module.flip_flops, module.area_um2
                );
            }
        }
    }
    let place = root().join(FILE);
    fs::write(&place, text).map_err(|error| format!("cannot write {}: {error}", place.display()))?;
    eprintln!("{}wrote {}", table(blocks), place.display());
    Ok(())
}

/// Bits of the memories in one copy of a module.
fn module_sram(block: &Block, module: &super::netlist::Module) -> u64 {
    let bits = |memory: &Memory| memory.bits() * module.children.get(&memory.module).copied().unwrap_or(0);
    block.netlist.memories.iter().map(bits).sum()
}
