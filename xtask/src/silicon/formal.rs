//! yosys' `sat`: handshakes of small stages, proved for so many cycles from reset,
//! whatever their neighbours do.

use super::design::folder;
use crate::tools::{Failure, output};
use crate::{files, workspace::root};
use std::process::Command;

/// A stage, and what of it `line_stage_check` connects.
struct Check {
    module: &'static str,
    /// Ports that carry a beat, and how wide they are.
    carried: [&'static str; 2],
    bits: u32,
    /// Beats that may be inside.
    room: u32,
    /// Cycles from reset.
    cycles: u32,
    /// Whether it has a format, which is then that of numbers as they are.
    formatted: bool,
}

const BEATS: [&str; 2] = ["in_beat", "out_beat"];
const VALUES: [&str; 2] = ["in_values", "out_values"];
const SIDES: [&str; 2] = ["in_side", "out_side"];
const CHECKS: &[Check] = &[
    Check { module: "line_skid", carried: BEATS, bits: 288, room: 1, cycles: 12, formatted: false },
    Check { module: "line_widen", carried: VALUES, bits: 256, room: 1, cycles: 12, formatted: true },
    Check { module: "line_float", carried: SIDES, bits: 32, room: 6, cycles: 12, formatted: false },
    Check { module: "line_dequant", carried: SIDES, bits: 32, room: 6, cycles: 12, formatted: false },
    Check { module: "line_hadamard_inv", carried: SIDES, bits: 32, room: 9, cycles: 16, formatted: false },
    Check { module: "line_dct_inv", carried: SIDES, bits: 32, room: 10, cycles: 16, formatted: false },
];

pub fn check() -> Result<(), Failure> {
    for check in CHECKS {
        let log = folder().join(format!("{}.formal.log", check.module));
        let script = folder().join(format!("{}.formal.ys", check.module));
        files::write(&script, script_of(check))?;
        let proved = output(Command::new("yosys").arg("-q").arg("-l").arg(&log).arg(&script))?;
        if !proved.status.success() {
            let place = log.display();
            return Err(format!("the handshake of {} does not hold: see {place}", check.module).into());
        }
        eprintln!("{}: handshakes hold for {} cycles", check.module, check.cycles);
    }
    Ok(())
}

fn script_of(check: &Check) -> String {
    let Check { module, carried: [input, output], bits, room, cycles, formatted } = check;
    let rtl = root().join("models/silicon/rtl");
    let format = if *formatted { "-DFORMATTED " } else { "" };
    let files = [*module, "line_ram", "line_float_lane", "line_group", "line_turn"];
    let files = files.map(|name| rtl.join(format!("{name}.sv")).display().to_string()).join(" ");
    format!(
        "read_verilog -sv -formal -DCHECKED={module} -DCARRIED_IN={input} -DCARRIED_OUT={output} -DCARRIED_BITS={bits} \
         -DROOM=8'd{room} {format}{files} {checker}\nprep -top line_stage_check -flatten\nmemory_map\nopt_clean -purge\n\
         setundef -undriven -anyseq\nopt -full\nsat -verify -prove-asserts -set-assumes -seq {cycles}\n",
        checker = rtl.join("formal/line_stage_check.sv").display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_proves_every_assertion_of_its_module() {
        for check in CHECKS {
            let script = script_of(check);
            assert!(script.contains(&format!("-DCHECKED={}", check.module)), "{script}");
            assert!(script.contains("-prove-asserts") && script.contains("-verify"), "{script}");
        }
    }
}
