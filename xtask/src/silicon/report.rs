//! `configs/silicon/asap7.toml`: what synthesis found, and what was assumed.

use super::design::{DESIGNS, Design, part_of};
use super::netlist::Memory;
use super::synthesize::{ACCESS_PS, Block, CLOCK_PS, SETUP_PS, script};
use crate::{
    files,
    tools::Failure,
    workspace::{captured, root},
};
use std::collections::BTreeMap;
use std::process::Command;

/// Where the figures are kept.
pub const FILE: &str = "configs/silicon/asap7.toml";
/// Square micrometres of a bit: a 6T cell of 0.027 µm² (TSMC 7 nm, ISSCC 2017)
/// over an array efficiency of one half, of a quarter below [`SMALL_BITS`]. The
/// large arrays hold two tiles, one written and one read: two arrays of one port.
const BIT_UM2: f64 = 0.054;
const SMALL_BIT_UM2: f64 = 0.108;
const SMALL_BITS: u64 = 1 << 15;
/// Femtojoules of an accessed bit in an array of [`ACCESS_BITS`], with the root of
/// its size: 10, 20 and 100 pJ for 64 bits of 8 KiB, 32 KiB and 1 MiB at 45 nm
/// (Horowitz, ISSCC 2014), times 0.12 for 7 nm (capacitance a fifth, 0.7 V for 0.9 V).
const ACCESS_FJ_PER_BIT: f64 = 19.0;
const ACCESS_BITS: f64 = 65536.0;
/// Share of a placed block that is cells.
const UTILIZATION: f64 = 0.7;
/// What wires do to the critical path and to the logic's power, and what the
/// clock tree adds to the flip-flops': between those of reference blocks timed
/// with and without a wire load.
const WIRE_DELAY: f64 = 1.3;
const WIRE_POWER: f64 = 1.15;
const CLOCK_TREE_POWER: f64 = 0.3;
/// Bits of a value of bf16.
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
    values_per_cycle: f64,
    gbps: f64,
    sram_w: f64,
    power_w: f64,
}

fn sram_um2(memory: &Memory) -> f64 {
    memory.bits() as f64 * if memory.bits() < SMALL_BITS { SMALL_BIT_UM2 } else { BIT_UM2 }
}

/// Picojoules of a cycle: a word is written and a word is read.
fn sram_pj(memory: &Memory) -> f64 {
    let of_bit = ACCESS_FJ_PER_BIT * (memory.bits() as f64 / ACCESS_BITS).sqrt();
    2.0 * memory.width as f64 * of_bit / 1e3
}

/// Memories by instance, each as often as its module is counted.
fn memories<'a>(block: &'a Block, counts: &BTreeMap<String, u64>) -> Vec<&'a Memory> {
    let counted = |memory: &Memory| counts.get(&memory.module).copied().unwrap_or(0);
    block.netlist.memories.iter().flat_map(|memory| vec![memory; counted(memory) as usize]).collect()
}

fn figures(block: &Block) -> Figures {
    let netlist = &block.netlist;
    let sum = |of: &dyn Fn(&super::netlist::Module) -> f64| -> f64 {
        let modules = netlist.modules.iter();
        modules.map(|(name, module)| of(module) * netlist.copies.get(name).copied().unwrap_or(0) as f64).sum()
    };
    let memories = memories(block, &netlist.copies);
    let sram_bits: u64 = memories.iter().map(|memory| memory.bits()).sum();
    // Nothing sums up to -0.
    let sram_um2 = memories.iter().map(|memory| sram_um2(memory)).sum::<f64>() + 0.0;
    let logic_um2 = sum(&|module| module.area_um2);
    // No faster than it was checked for, with wires.
    let clock_ghz = (1e3 / (block.critical_ps * WIRE_DELAY)).min(1e3 / f64::from(CLOCK_PS));
    let sram_w = memories.iter().map(|memory| sram_pj(memory)).sum::<f64>() * clock_ghz / 1e3;
    let at_clock = clock_ghz * f64::from(CLOCK_PS) / 1e3;
    let power_w =
        (block.logic_w * WIRE_POWER + block.sequential_w * (1.0 + CLOCK_TREE_POWER)) * at_clock + sram_w;
    let values_per_cycle = block.values as f64 / block.cycles as f64;
    Figures {
        cells: sum(&|module| module.cells as f64) as u64,
        flip_flops: sum(&|module| module.flip_flops as f64) as u64,
        logic_um2,
        sram_bits,
        sram_um2,
        area_mm2: (logic_um2 / UTILIZATION + sram_um2) / 1e6,
        clock_ghz,
        values_per_cycle,
        gbps: values_per_cycle * VALUE_BITS * clock_ghz,
        sram_w,
        power_w,
    }
}

/// A few lines for the terminal.
pub fn table(blocks: &[(Design, Block)]) -> String {
    let mut text =
        "design        cells  flip-flops  logic um2  SRAM bits  mm2     ps    GHz   Gb/s   W      pJ/bit\n"
            .to_string();
    for (design, block) in blocks {
        let f = figures(block);
        text += &format!(
            "{:<10} {:>8} {:>11} {:>10.0} {:>10} {:>6.4} {:>6.0} {:>5.2} {:>6.1} {:>6.4} {:>6.3}\n",
            design.name,
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

/// How the figures were made, and what was assumed beside them.
fn preamble() -> String {
    format!(
        "# The line-rate codec's RTL on ASAP7 (RVT, typical, 0.7 V, 25 C). Written by `cargo xtask silicon`.\n\
         source = \"our synthesis of models/silicon/rtl on ASAP7: cargo xtask silicon\"\n\
         \n[run]\ndate = \"{}\"\ncommand = \"cargo xtask silicon\"\nyosys = \"{}\"\nopensta = \"{}\"\nverilator = \"{}\"\n\
         abc-script = \"{}\"\nswitching-from = \"{}\"\n\
         \n[assumed]\nsource = \"estimates, each with its reason\"\nclock-ps = {CLOCK_PS}\n\
         utilization = {UTILIZATION} # estimate: share of a placed block that is cells; the 30 % margin\n\
         sram-um2-per-bit = {BIT_UM2} # 6T bit cell of TSMC 7 nm (ISSCC 2017), 0.027 um2, over an array efficiency of one half\n\
         small-sram-um2-per-bit = {SMALL_BIT_UM2} # estimate: half that efficiency, or 8T cells\n\
         small-sram-bits = {SMALL_BITS}\nsram-setup-ps = {SETUP_PS}\nsram-access-ps = {ACCESS_PS}\n\
         sram-access-fj-per-bit = {ACCESS_FJ_PER_BIT} # Horowitz, ISSCC 2014: 10 pJ for 64 bits of 8 KiB at 45 nm, times 0.12 for 7 nm; with the root of the size; a read and a write in each cycle\n\
         wire-delay = {WIRE_DELAY} # reference blocks timed with and without a wire load: 1.24 to 1.31\n\
         wire-power = {WIRE_POWER} # xk264's stages with and without a wire load: 237 and 276 mW\n\
         clock-tree-power = {CLOCK_TREE_POWER} # estimate: a tree's buffers beside the clock pins they drive\n",
        first_line("date", &["-u", "+%Y-%m-%d"]),
        first_line("yosys", &["-V"]),
        first_line("sta", &["-version"]),
        first_line("verilator", &["--version"]),
        script(),
        if captured().is_empty() { "random matrices" } else { "captured tensors, bf16" },
    )
}

fn design_table(design: &Design, block: &Block) -> String {
    let f = figures(block);
    let mut text = format!(
        "\n[[design]]\nname = \"{}\"\nwhat = \"{}\"\ncells = {}\nflip-flops = {}\nlogic-um2 = {:.1}\nsram-bits = {}\n\
         sram-um2 = {:.1}\narea-mm2 = {:.5}\ncritical-ps = {:.1}\nclock-ghz = {:.4}\nvalues-per-cycle = {:.3}\ngbps = {:.2}\n\
         sram-w = {:.5}\nannotated = {:.3}\nsimulated-cycles = {}\nsimulated-values = {}\n",
        design.name,
        design.what,
        f.cells,
        f.flip_flops,
        f.logic_um2,
        f.sram_bits,
        f.sram_um2,
        f.area_mm2,
        block.critical_ps,
        f.clock_ghz,
        f.values_per_cycle,
        f.gbps,
        f.sram_w,
        block.annotated,
        block.cycles,
        block.values
    );
    text += &if f.power_w.is_nan() {
        "# No power of flip-flops and logic: OpenSTA's report_power crashed on this netlist.\n".to_string()
    } else {
        format!(
            "sequential-w = {:.5}\nlogic-w = {:.5}\npower-w = {:.5}\npj-per-bit = {:.4}\n",
            block.sequential_w,
            block.logic_w,
            f.power_w,
            f.power_w / f.gbps * 1e3
        )
    };
    text
}

pub fn write(blocks: &[(Design, Block)]) -> Result<(), Failure> {
    let mut text = preamble();
    for (design, block) in blocks {
        text += &design_table(design, block);
        for (name, module) in &block.netlist.modules {
            let copies = block.netlist.copies.get(name).copied().unwrap_or(0);
            if copies == 0 {
                continue;
            }
            let own = memories(block, &module.children);
            text += &format!(
                "\n[[stage]]\ndesign = \"{}\"\nname = \"{name}\"\npart = \"{}\"\ncopies = {copies}\ncells = {}\nflip-flops = {}\n\
                 logic-um2 = {:.2}\nsram-bits = {}\nsram-um2 = {:.1}\ncritical-ps = {:.1}\n",
                design.name,
                part_of(name)?,
                module.cells,
                module.flip_flops,
                module.area_um2,
                own.iter().map(|memory| memory.bits()).sum::<u64>(),
                own.iter().map(|memory| sram_um2(memory)).sum::<f64>() + 0.0,
                block.netlist.delays_ps.get(name).copied().unwrap_or(0.0),
            );
            if let Some(power_w) = block.stages_w.get(name) {
                text += &format!("power-w = {power_w:.6}\n");
            }
        }
    }
    files::write(&root().join(FILE), text)?;
    eprintln!("wrote {FILE}: {} of {} designs", blocks.len(), DESIGNS.len());
    Ok(())
}
