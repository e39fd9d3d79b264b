//! Models that are no language models, their weights coded: what each still does as the uncoded one would.
//!
//! `python python/research/figure7` made the rows (validation/data/other_models). Knows tables; knows nothing of the models or
//! how a weight is coded.

use crate::Error;
use crate::committed;
use std::fmt::Write;

const ROWS: &[u8] = include_bytes!("../data/other_models/fidelity.csv");
const FILE: &str = "other_models/fidelity.csv";

const COLUMNS: &str = "model,method,target_bits,bits_per_value,model_bits,nmse,agreement,second";

/// A model that agrees with its uncoded self this often is called the same.
pub const SAME: f64 = 0.99;

/// The models in the table's order, with what `agreement` and `second` are of each.
const MODELS: [(&str, &str, &str); 3] = [
    ("minilm-l6-v2", "rank correlation of similarities", "nearest sentence the same"),
    ("whisper-base", "words kept", "next token the same"),
    ("mobile-sam", "intersection over union of masks", "pixels the same"),
];

/// One model after one method at one rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Fidelity {
    pub model: String,
    pub method: String,
    pub target_bits: f64,
    /// Of the coded matrices: all that their file holds over their values.
    pub bits_per_value: f64,
    /// Bits per parameter, with those that are left exact.
    pub model_bits: f64,
    /// The error of the coded matrices together, scaled back.
    pub nmse: f64,
    /// What the first measure of [`MODELS`] says, 1 where nothing changed.
    pub agreement: f64,
    pub second: f64,
}

/// Every recorded row.
pub fn rows() -> Result<Vec<Fidelity>, Error> {
    parse(ROWS)
}

fn parse(bytes: &[u8]) -> Result<Vec<Fidelity>, Error> {
    committed::rows(FILE, bytes, COLUMNS, |row| {
        Ok(Fidelity {
            model: row.text("model").to_owned(),
            method: row.text("method").to_owned(),
            target_bits: row.number("target_bits")?,
            bits_per_value: row.number("bits_per_value")?,
            model_bits: row.number("model_bits")?,
            nmse: row.number("nmse")?,
            agreement: row.number("agreement")?,
            second: row.number("second")?,
        })
    })
}

/// The fewest bits per value at which a method leaves a model the same, among the rates recorded.
pub fn least_bits(rows: &[Fidelity], model: &str, method: &str) -> Option<f64> {
    let same = |row: &&Fidelity| row.model == model && row.method == method && row.agreement >= SAME;
    rows.iter().filter(same).map(|row| row.bits_per_value).min_by(f64::total_cmp)
}

/// The table, for people: agreement and, in brackets, the second measure, for each model, method and rate.
pub fn table() -> Result<String, Error> {
    Ok(drawn(&rows()?))
}

fn drawn(rows: &[Fidelity]) -> String {
    let mut out = String::new();
    for (model, first, second) in MODELS {
        let own: Vec<&Fidelity> = rows.iter().filter(|row| row.model == model).collect();
        if own.is_empty() {
            let _ = writeln!(out, "{model}: not recorded");
            continue;
        }
        let mut rates: Vec<f64> = own.iter().map(|row| row.target_bits).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        let mut methods: Vec<&str> = Vec::new();
        for row in &own {
            if !methods.contains(&row.method.as_str()) {
                methods.push(&row.method);
            }
        }
        let _ = write!(out, "{model}: {first}, % ({second}, %)\n{:<16}", "method");
        for rate in &rates {
            let _ = write!(out, "{:>16}", format!("{rate} bits"));
        }
        let _ = writeln!(out, "{:>12}", "99 % at");
        for method in methods {
            let _ = write!(out, "{method:<16}");
            for rate in &rates {
                let found = own.iter().find(|row| row.method == method && row.target_bits == *rate);
                let cell = found.map_or_else(
                    || "-".to_owned(),
                    |row| format!("{:.1} ({:.1})", 100.0 * row.agreement, 100.0 * row.second),
                );
                let _ = write!(out, "{cell:>16}");
            }
            let least =
                least_bits(rows, model, method).map_or_else(|| "-".into(), |bits| format!("{bits:.2}"));
            let _ = writeln!(out, "{least:>12}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "model,method,target_bits,bits_per_value,model_bits,nmse,agreement,second\n";

    #[test]
    fn the_table_follows_from_the_rows() {
        let text = format!(
            "{HEAD}mobile-sam,trinity,3,2.98,3.4,0.01,0.9912,0.999\nmobile-sam,trinity,2,1.99,2.4,0.1,0.9,0.95\n\
             mobile-sam,h265,3,2.99,3.4,0.02,-0.01,0.98\n"
        );
        let rows = parse(text.as_bytes()).unwrap();
        assert_eq!(least_bits(&rows, "mobile-sam", "trinity"), Some(2.98));
        assert_eq!(least_bits(&rows, "mobile-sam", "h265"), None);
        let drawn = drawn(&rows);
        let line = |method: &str| drawn.lines().find(|line| line.starts_with(method)).unwrap().to_owned();
        let words = |method: &str| line(method).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words("trinity"), ["trinity", "90.0", "(95.0)", "99.1", "(99.9)", "2.98"]);
        assert_eq!(words("h265"), ["h265", "-", "-1.0", "(98.0)", "-"]);
    }

    /// What chance moves an agreement by: Whisper's recording has 271 words, and two or three of them change with any
    /// noise at all, at 5 bits as at 3.
    const CHANCE: f64 = 0.01;

    /// What the recording denies of our bars, if anything: at every rate `trinity` beside the codecs without data, and
    /// after scaling beside AWQ, errs less and agrees as well; whoever is called the same, `trinity` is.
    fn denied(rows: &[Fidelity]) -> Vec<String> {
        let of = |row: &Fidelity, method: &str| {
            let same = |other: &&Fidelity| {
                (&other.model, other.method.as_str(), other.target_bits)
                    == (&row.model, method, row.target_bits)
            };
            rows.iter().find(same)
        };
        let mut found = Vec::new();
        for row in rows {
            let mut hold = |holds: bool, bar: &str| {
                if !holds {
                    found.push(format!("{bar}: {row:?}"));
                }
            };
            hold(MODELS.iter().any(|(model, ..)| *model == row.model), "a model of ours");
            let near = 0.97 * row.target_bits..=row.target_bits;
            hold(near.contains(&row.bits_per_value), "the rate asked for");
            hold(row.model_bits > row.bits_per_value, "a model is more than its matrices");
            let ours = of(row, if row.method.starts_with("awq+") { "awq+trinity" } else { "trinity" });
            hold(ours.is_none_or(|own| own.agreement >= row.agreement - CHANCE), "agrees as well");
            hold(row.method.starts_with("awq+") || ours.is_none_or(|own| own.nmse <= row.nmse), "errs less");
            let best = [of(row, "trinity"), of(row, "awq+trinity")].into_iter().flatten();
            let same = row.agreement < SAME || best.fold(0.0, |best, own| own.agreement.max(best)) >= SAME;
            hold(same, "called the same");
        }
        found
    }

    #[test]
    fn the_recording_keeps_to_its_bars() {
        let rows = rows().unwrap();
        assert!(!rows.is_empty());
        assert_eq!(denied(&rows), Vec::<String>::new());
    }

    #[test]
    fn a_recording_that_misses_a_bar_is_named() {
        let missed = |h265: &str| {
            let text =
                format!("{HEAD}whisper-base,trinity,3,2.99,3.1,0.01,0.985,1\nwhisper-base,h265,{h265}\n");
            let found = denied(&parse(text.as_bytes()).unwrap());
            found.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(missed("3,2.98,3.1,0.02,0.984,1"), Vec::<String>::new());
        assert_eq!(missed("3,2.98,3.1,0.02,0.996,1"), ["agrees as well", "called the same"]);
        assert_eq!(missed("3,2.98,3.1,0.02,0.992,1"), ["called the same"]);
        assert_eq!(missed("3,2.98,3.1,0.009,0.98,1"), ["errs less"]);
        assert_eq!(missed("3,2.8,3.1,0.02,0.98,1"), ["the rate asked for"]);
    }

    #[test]
    fn a_damaged_row_is_an_error() {
        assert!(parse(format!("{HEAD}a,b,2,x,2,0.1,1,1\n").as_bytes()).is_err());
        assert!(parse(format!("{HEAD}a,b,2\n").as_bytes()).is_err());
        assert!(parse(b"model,method\n").is_err());
    }
}
