//! What yosys says of a design: cells and area by module, and its memories.
//!
//! Reads `stat`'s text and yosys' Verilog; runs nothing.

use std::collections::BTreeMap;

/// One module without those below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Module {
    pub cells: u64,
    pub flip_flops: u64,
    pub area_um2: f64,
    /// Instances of other modules, by name.
    pub children: BTreeMap<String, u64>,
}

/// A memory's shape and its name in the netlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub module: String,
    pub width: u64,
    pub depth: u64,
}

impl Memory {
    pub fn bits(&self) -> u64 {
        self.width * self.depth
    }

    pub fn address_bits(&self) -> u64 {
        u64::from(self.depth.next_power_of_two().ilog2())
    }

    /// The cell that stands for it.
    pub fn cell(&self) -> String {
        format!("line_ram_{}x{}", self.width, self.depth)
    }
}

/// Modules by name, from the last `stat` of a log.
pub fn modules(log: &str) -> BTreeMap<String, Module> {
    let mut found = BTreeMap::new();
    let last = log.rfind("Printing statistics.").unwrap_or(0);
    let mut name = None;
    let mut module = Module::default();
    for line in log[last..].lines() {
        if let Some(title) = line.strip_prefix("=== ").and_then(|line| line.strip_suffix(" ===")) {
            name = (title != "design hierarchy").then(|| title.to_string());
            module = Module::default();
            continue;
        }
        let Some(current) = &name else { continue };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Number", "of", "cells:", count] => module.cells = count.parse().unwrap_or(0),
            // Nothing is said of a module that is all memories.
            ["Chip", "area", "for", "module", _, area] => {
                module.area_um2 = area.parse().unwrap_or(0.0);
                found.insert(current.clone(), module.clone());
            }
            [cell, count] if line.starts_with("     ") => {
                let count = count.parse().unwrap_or(0);
                if cell.starts_with("DFF") || cell.starts_with("DLL") || cell.starts_with("DHL") {
                    module.flip_flops += count;
                } else if !cell.ends_with("_ASAP7_75t_R") {
                    module.children.insert((*cell).to_string(), count);
                    module.cells -= count.min(module.cells);
                }
                found.insert(current.clone(), module.clone());
            }
            _ => {}
        }
    }
    found
}

/// The longest path that abc's last `stime` found; none where all is flip-flops.
pub fn delay_ps(log: &str) -> f64 {
    let last = log.lines().rfind(|line| line.contains("Delay =") && line.contains(" ps"));
    let word = last.and_then(|line| line.split("Delay =").nth(1)?.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Watts of each module, without those below it, from lines `module NAME WATTS`.
pub fn module_power(said: &str) -> BTreeMap<String, f64> {
    let module = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["module", name, watts] => Some((name.to_string(), watts.parse::<f64>().ok()?)),
        _ => None,
    };
    said.lines().filter_map(module).collect()
}

/// Instances of every module below a top, counted through the hierarchy.
pub fn copies(modules: &BTreeMap<String, Module>, top: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut waiting = vec![(top.to_string(), 1)];
    while let Some((name, count)) = waiting.pop() {
        *counts.entry(name.clone()).or_insert(0) += count;
        if let Some(module) = modules.get(&name) {
            waiting.extend(module.children.iter().map(|(child, copies)| (child.clone(), count * copies)));
        }
    }
    counts
}

/// Depths of memories as the RTL states them, by width and bits of address.
pub fn stated_depths(rtl: &str) -> BTreeMap<(u64, u64), u64> {
    let number =
        |text: &str, key: &str| -> Option<u64> { text.split_once(key)?.1.split_once(')')?.0.parse().ok() };
    let shape = |text: &str| {
        let text = text.split_once("))")?.0.to_string() + ")";
        Some(((number(&text, ".WIDTH(")?, number(&text, ".ADDR(")?), number(&text, ".DEPTH(")?))
    };
    rtl.split("line_ram #(").skip(1).filter_map(shape).collect()
}

/// Memories among the black boxes that yosys wrote, as deep as the RTL states, or
/// else as their address reaches.
pub fn memories(verilog: &str, stated: &BTreeMap<(u64, u64), u64>) -> Vec<Memory> {
    let mut found = Vec::new();
    let mut module = String::new();
    let mut width = 0;
    for line in verilog.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("module ") {
            module = rest.split('(').next().unwrap_or_default().trim().trim_start_matches('\\').to_string();
        }
        let high = |line: &str| line.split('[').nth(1)?.split(':').next()?.parse::<u64>().ok();
        if line.starts_with("output") && line.ends_with("rdata;") {
            width = high(line).map_or(1, |high| high + 1);
        }
        // Stages have ports of that name too.
        if module.ends_with("line_ram") && line.starts_with("input") && line.ends_with("waddr;") {
            let depth = 1 << high(line).map_or(1, |high| high + 1);
            found.push(Memory { module: module.clone(), width: 0, depth });
        }
        if line == "endmodule"
            && let Some(memory) = found.last_mut().filter(|memory| memory.module == module)
        {
            memory.width = width;
            let stated = stated.get(&(width, memory.address_bits()));
            memory.depth = stated.copied().unwrap_or(memory.depth);
        }
    }
    found
}

/// The netlist with ports and nets open that constants are tied to.
pub fn untied(verilog: &str) -> String {
    let is = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let constant = |text: &str| text.split_once("'h").is_some_and(|(width, digits)| is(width) && is(digits));
    let tied = |line: &str| -> Option<String> {
        if let Some((_, value)) = line.trim().strip_prefix("assign ").and_then(|rest| rest.split_once(" = "))
        {
            return constant(value.trim_end_matches(';')).then(String::new);
        }
        let (port, rest) = line.trim_start().strip_prefix('.')?.split_once('(')?;
        let (value, end) = rest.split_once(')')?;
        constant(value).then(|| format!("    .{port}(){end}"))
    };
    let mut kept = String::with_capacity(verilog.len());
    for line in verilog.split_inclusive('\n') {
        kept.push_str(tied(line).as_deref().unwrap_or(line));
    }
    kept
}

/// Names of the instances of memories.
pub fn instances(verilog: &str) -> Vec<String> {
    let lines = verilog.lines().map(str::trim).filter(|line| line.starts_with("line_ram_"));
    lines.filter_map(|line| Some(line.split_whitespace().nth(1)?.to_string())).collect()
}

/// Liberty of memories, so that paths through them are timed: address and data
/// must be there `setup_ps` before the clock, data comes `access_ps` after it.
pub fn liberty(memories: &[Memory], setup_ps: u32, access_ps: u32) -> String {
    let mut text = "library (line_rams) {\n  delay_model : table_lookup;\n  time_unit : \"1ps\";\n  \
        voltage_unit : \"1V\";\n  current_unit : \"1mA\";\n  leakage_power_unit : \"1pW\";\n  \
        capacitive_load_unit (1,ff);\n  pulling_resistance_unit : \"1kohm\";\n  nom_voltage : 0.7;\n  \
        nom_temperature : 25;\n  nom_process : 1;\n"
        .to_string();
    // Without these OpenSTA reads the file and says that it is wrong.
    for edge in ["rise", "fall"] {
        for (key, percent) in [
            ("input_threshold", 50),
            ("output_threshold", 50),
            ("slew_lower_threshold", 10),
            ("slew_upper_threshold", 90),
        ] {
            text += &format!("  {key}_pct_{edge} : {percent};\n");
        }
    }
    let cells: BTreeMap<String, &Memory> = memories.iter().map(|memory| (memory.cell(), memory)).collect();
    let widths: std::collections::BTreeSet<u64> =
        cells.values().flat_map(|memory| [memory.width, memory.address_bits()]).collect();
    for width in widths {
        text += &format!(
            "  type (bus{width}) {{ base_type : array; data_type : bit; bit_width : {width}; bit_from : {}; bit_to : 0; downto : true; }}\n",
            width - 1
        );
    }
    let constraint = format!(
        "timing () {{ related_pin : \"clk\"; timing_type : setup_rising; rise_constraint (scalar) {{ values (\"{setup_ps}\"); }} fall_constraint (scalar) {{ values (\"{setup_ps}\"); }} }}"
    );
    for (name, memory) in cells {
        let input = format!("direction : input; capacitance : 1.0; {constraint}");
        let address = memory.address_bits();
        text += &format!(
            "  cell ({name}) {{\n    area : 0;\n    interface_timing : true;\n    \
             pin (clk) {{ direction : input; clock : true; capacitance : 1.0; }}\n    \
             pin (we) {{ {input} }}\n    pin (re) {{ {input} }}\n    \
             bus (waddr) {{ bus_type : bus{address}; {input} }}\n    bus (raddr) {{ bus_type : bus{address}; {input} }}\n    \
             bus (wdata) {{ bus_type : bus{width}; {input} }}\n    \
             bus (rdata) {{ bus_type : bus{width}; direction : output; timing () {{ related_pin : \"clk\"; timing_type : rising_edge; \
             cell_rise (scalar) {{ values (\"{access_ps}\"); }} cell_fall (scalar) {{ values (\"{access_ps}\"); }} \
             rise_transition (scalar) {{ values (\"40\"); }} fall_transition (scalar) {{ values (\"40\"); }} }} }}\n  }}\n",
            width = memory.width
        );
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gives_modules_and_how_often_they_are_there() {
        let log = "7. Printing statistics.\n\n=== top ===\n\n   Number of cells:   12\n     \
            DFFHQNx1_ASAP7_75t_R  4\n     INVx1_ASAP7_75t_R  6\n     part  2\n\n   Chip area for module '\\top': 2.5\n\n\
            === part ===\n\n   Number of cells:  3\n     INVx1_ASAP7_75t_R  3\n\n   Chip area for module '\\part': 0.5\n";
        let found = modules(log);
        assert_eq!((found["top"].cells, found["top"].flip_flops, found["top"].area_um2), (10, 4, 2.5));
        assert_eq!(copies(&found, "top")["part"], 2);
    }

    #[test]
    fn what_is_tied_is_opened_and_nothing_else() {
        let verilog = "  line_classes classify (\n    .clk(clk),\n    .en(1'h1),\n    .gain(6'h00),\n    .row(a[3])\n  );\n  assign x = 1'h0;\n  assign y = z;\n";
        let open = "  line_classes classify (\n    .clk(clk),\n    .en(),\n    .gain(),\n    .row(a[3])\n  );\n  assign y = z;\n";
        assert_eq!(untied(verilog), open);
    }

    #[test]
    fn a_memory_is_known_by_its_ports() {
        let verilog = "module \\$paramod$12\\line_ram (clk, we);\n  input clk;\n  output [51:0] rdata;\n  \
            input [5:0] waddr;\n  input [51:0] wdata;\nendmodule\nmodule line_tables(waddr);\n  input [4:0] waddr;\nendmodule\n";
        let found = memories(verilog, &BTreeMap::new());
        assert_eq!((found.len(), found[0].address_bits()), (1, 6));
        let stated = stated_depths(
            "line_ram #(.WIDTH(52), .DEPTH(40), .ADDR(6)) list (\n line_ram #(.WIDTH(8*K), .DEPTH(9), .ADDR(4)) x (",
        );
        assert_eq!(memories(verilog, &stated)[0].bits(), 52 * 40);
        assert_eq!(memories(verilog, &stated)[0].address_bits(), 6);
        assert_eq!((found[0].cell().as_str(), found[0].bits()), ("line_ram_52x64", 3328));
        assert!(liberty(&found, 50, 350).contains("cell (line_ram_52x64)"));
    }
}
