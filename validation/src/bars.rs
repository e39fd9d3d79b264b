//! The bars: how far each set may be off before the command fails.

use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `validation/bars.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// Mean absolute error at most.
    pub error: BTreeMap<String, f64>,
    /// Error of a set's worst row at most.
    pub worst: BTreeMap<String, f64>,
    /// Mean absolute error at most with constants that saw none of the set.
    #[serde(rename = "left-out")]
    pub left_out: BTreeMap<String, f64>,
    /// Balanced accuracy at least.
    pub accuracy: BTreeMap<String, f64>,
}

/// A bar that was not met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breach {
    pub set: String,
    pub measured: f64,
    pub bar: f64,
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:.1} %, the bar is {:.1} %", self.set, self.measured * 100.0, self.bar * 100.0)
    }
}

impl Bars {
    /// The committed bars.
    pub fn load() -> Result<Self, Error> {
        Self::parse(include_str!("../bars.toml"))
    }

    /// Bars from the text of a file.
    pub fn parse(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|e| Error::Data { file: "bars.toml", why: e.to_string() })
    }

    /// Whether `mape` of `set` is too large.
    pub fn judge_error(&self, set: &str, mape: f64) -> Option<Breach> {
        breach(&self.error, set, "", mape, |mape, bar| mape <= bar)
    }

    /// Whether the worst row of `set` errs too much.
    pub fn judge_worst(&self, set: &str, error: f64) -> Option<Breach> {
        breach(&self.worst, set, ", worst row", error.abs(), |error, bar| error <= bar)
    }

    /// Whether `mape` of `set`, left out of the fit, is too large.
    pub fn judge_left_out(&self, set: &str, mape: f64) -> Option<Breach> {
        breach(&self.left_out, set, ", left out", mape, |mape, bar| mape <= bar)
    }

    /// Whether `accuracy` of `set` is too small.
    pub fn judge_accuracy(&self, set: &str, accuracy: f64) -> Option<Breach> {
        breach(&self.accuracy, set, "", accuracy, |accuracy, bar| accuracy >= bar)
    }
}

/// A breach where a set's bar is not met, as it never is by what is no number.
fn breach(
    bars: &BTreeMap<String, f64>,
    set: &str,
    kind: &str,
    measured: f64,
    is_met: fn(f64, f64) -> bool,
) -> Option<Breach> {
    let bar = *bars.get(set)?;
    (!is_met(measured, bar)).then(|| Breach { set: format!("{set}{kind}"), measured, bar })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[error]\na = 0.1\n[worst]\na = 0.3\n[left-out]\na = 0.2\n[accuracy]\na = 0.9\n";

    /// Every kind of bar, at the bar, beyond it, and where no number came out.
    #[test]
    fn a_bar_is_met_up_to_itself_and_never_by_what_is_no_number() {
        type Judge = fn(&Bars, &str, f64) -> Option<Breach>;
        let bars = Bars::parse(TEXT).unwrap();
        for (judge, met, missed, named) in [
            (Bars::judge_error as Judge, 0.1, 0.1001, "a"),
            (Bars::judge_worst, -0.3, -0.31, "a, worst row"),
            (Bars::judge_left_out, 0.2, 0.25, "a, left out"),
            (Bars::judge_accuracy, 0.9, 0.89, "a"),
        ] {
            assert_eq!(judge(&bars, "a", met), None);
            assert_eq!(judge(&bars, "a", f64::NAN).map(|breach| breach.set), Some(named.into()));
            let breach = judge(&bars, "a", missed).unwrap();
            assert_eq!((breach.set.as_str(), breach.measured), (named, missed.abs()));
            assert_eq!(judge(&bars, "nobody's", 1e9), None, "a set without a bar");
        }
        let said = bars.judge_error("a", 0.255).unwrap().to_string();
        assert_eq!(said, "a: 25.5 %, the bar is 10.0 %");
    }

    #[test]
    fn a_file_of_bars_has_every_table_and_no_other() {
        assert!(Bars::load().is_ok());
        for (from, to) in [("[accuracy]\na = 0.9\n", ""), ("[worst]", "[wurst]"), ("0.2", "\"much\"")] {
            let said = Bars::parse(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(said.contains("bars.toml"), "{said}");
        }
    }
}
