//! Switching activity from a value-change dump: toggles per cycle of every bit.
//!
//! Knows the VCD format and the clock's name; knows nothing of cells.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

/// Toggles per clock cycle of the bits of a simulation's signals.
#[derive(Debug, Default)]
pub struct Activity {
    /// Rates by path below the top, dots between, and bit.
    pub rates: HashMap<(String, usize), f64>,
    pub cycles: u64,
    /// Values that passed in them.
    pub values: u64,
}

struct Signal {
    names: Vec<String>,
    last: Vec<u8>,
    toggles: Vec<u64>,
}

pub fn read(path: &Path) -> Result<Activity, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let reader = BufReader::new(File::open(path).map_err(cannot)?);
    let mut signals: HashMap<String, Signal> = HashMap::new();
    let mut scopes: Vec<String> = Vec::new();
    let mut clock = None;
    let mut defined = false;
    for line in reader.lines() {
        let line = line.map_err(cannot)?;
        if defined {
            change(&line, &mut signals);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["$scope", _, name, ..] => scopes.push((*name).to_string()),
            ["$upscope", ..] => drop(scopes.pop()),
            ["$var", _, width, id, name, ..] => {
                // TOP, the design, then its instances.
                let path =
                    scopes.iter().skip(2).map(String::as_str).chain([*name]).collect::<Vec<_>>().join(".");
                if path == "clk" && scopes.len() == 2 {
                    clock = Some((*id).to_string());
                }
                let width = width.parse().unwrap_or(1);
                let signal = signals.entry((*id).to_string()).or_insert_with(|| Signal {
                    names: Vec::new(),
                    last: vec![b'x'; width],
                    toggles: vec![0; width],
                });
                signal.names.push(path);
            }
            ["$enddefinitions", ..] => defined = true,
            _ => {}
        }
    }
    let clock = clock.and_then(|id| signals.get(&id)).map_or(0, |signal| signal.toggles[0]);
    if clock < 2 {
        return Err(format!("{} has no running clock", path.display()));
    }
    let cycles = clock / 2;
    let mut rates = HashMap::new();
    for signal in signals.values() {
        for (bit, &toggles) in signal.toggles.iter().enumerate() {
            for name in &signal.names {
                rates.insert((name.clone(), bit), toggles as f64 / cycles as f64);
            }
        }
    }
    Ok(Activity { rates, cycles, values: 0 })
}

/// Counts what one line of the dump changes.
fn change(line: &str, signals: &mut HashMap<String, Signal>) {
    let parts = match line.as_bytes().first() {
        Some(b'b') => line[1..].split_once(' '),
        Some(b'0' | b'1' | b'x' | b'z') => Some(line.split_at(1)),
        _ => None,
    };
    let Some((value, id)) = parts else { return };
    let Some(signal) = signals.get_mut(id) else { return };
    // Most significant first; leading zeros are left out.
    let width = signal.last.len();
    for bit in 0..width {
        let now = value.len().checked_sub(bit + 1).map_or(b'0', |at| value.as_bytes()[at]);
        if signal.last[bit] != now {
            signal.toggles[bit] += u64::from(signal.last[bit] != b'x');
            signal.last[bit] = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toggles_are_counted_by_bit_and_cycle() {
        let text = "$scope module TOP $end\n$scope module dut $end\n$var wire 1 ! clk $end\n$scope module a $end\n\
            $var wire 4 # x [3:0] $end\n$upscope $end\n$upscope $end\n$upscope $end\n$enddefinitions $end\n\
            #0\n0!\nb0 #\n#1\n1!\nb11 #\n#2\n0!\n#3\n1!\nb10 #\n#4\n0!\n";
        let place = std::env::temp_dir().join(format!("activity-{}.vcd", std::process::id()));
        std::fs::write(&place, text).unwrap();
        let found = read(&place).unwrap();
        std::fs::remove_file(&place).unwrap();
        assert_eq!(found.cycles, 2);
        let rate = |bit| found.rates[&("a.x".to_string(), bit)];
        assert_eq!([rate(0), rate(1), rate(2)], [1.0, 0.5, 0.0]);
    }
}
