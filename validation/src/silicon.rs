//! The operation-count model against synthesized stages, each by a fit that had
//! not seen it.
//!
//! Two constants, an addition's area and a multiplication's, are linear in a
//! stage's area; the squared logarithm of predicted over synthesized is made
//! least, so that half and twice as much weigh the same.

use crate::Error;
use crate::score::Pair;
use serde::Deserialize;
use trinity_silicon::synthesis::Synthesis;

/// Name of the set.
pub const LEFT_OUT: &str = "silicon stages, left out";

const FILE: &str = "silicon.toml";
const TEXT: &str = include_str!("../data/silicon.toml");
/// Gauss-Newton settles in a few steps.
const STEPS: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    stage: Vec<StageFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StageFile {
    name: String,
    values_per_cycle: f64,
    additions: f64,
    multiplications: f64,
    /// Of a block that is not in `configs/silicon/asap7.toml`.
    logic_um2: Option<f64>,
    #[allow(dead_code)]
    what: String,
}

/// Operations in a cycle of one copy, and the cells that synthesis made of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub name: String,
    pub additions: f64,
    pub multiplications: f64,
    pub logic_um2: f64,
}

/// Areas of an addition and of a multiplication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operators {
    pub addition_um2: f64,
    pub multiplication_um2: f64,
}

impl Operators {
    fn predict(&self, stage: &Stage) -> f64 {
        self.addition_um2 * stage.additions + self.multiplication_um2 * stage.multiplications
    }

    /// The operators that come nearest to `stages`.
    pub fn fitted<'a>(stages: impl Iterator<Item = &'a Stage> + Clone) -> Self {
        let mut found = Self { addition_um2: 10.0, multiplication_um2: 200.0 };
        for _ in 0..STEPS {
            // Shares of the prediction are its slopes in the logarithms.
            let [mut aa, mut am, mut mm, mut ga, mut gm] = [0.0; 5];
            for stage in stages.clone() {
                let predicted = found.predict(stage);
                let off = (predicted / stage.logic_um2).ln();
                let additions = found.addition_um2 * stage.additions / predicted;
                let multiplications = 1.0 - additions;
                aa += additions * additions;
                am += additions * multiplications;
                mm += multiplications * multiplications;
                ga += additions * off;
                gm += multiplications * off;
            }
            let determinant = (aa * mm - am * am).max(1e-9);
            found.addition_um2 *= (-(ga * mm - gm * am) / determinant).exp();
            found.multiplication_um2 *= (-(gm * aa - ga * am) / determinant).exp();
        }
        found
    }
}

/// Every stage whose operations were counted.
///
/// # Errors
///
/// Where a committed file is damaged, or counts a stage that was not synthesized.
pub fn stages() -> Result<Vec<Stage>, Error> {
    let data = |why: String| Error::Data { file: FILE, why };
    let file: File = toml::from_str(TEXT).map_err(|error| data(error.to_string()))?;
    let synthesis =
        Synthesis::asap7().ok_or_else(|| data("configs/silicon/asap7.toml does not read".into()))?;
    let area = |name: &str| synthesis.stage.iter().find(|stage| stage.name == name).map(|one| one.logic_um2);
    file.stage
        .into_iter()
        .map(|stage| {
            let logic_um2 = stage
                .logic_um2
                .or_else(|| area(&stage.name))
                .ok_or_else(|| data(format!("`{}` was not synthesized", stage.name)))?;
            Ok(Stage {
                additions: stage.values_per_cycle * stage.additions,
                multiplications: stage.values_per_cycle * stage.multiplications,
                logic_um2,
                name: stage.name,
            })
        })
        .collect()
}

/// Each stage by operators fitted to the others.
pub fn left_out(stages: &[Stage]) -> Vec<Pair> {
    let others = |left_out: usize| {
        stages.iter().enumerate().filter(move |(at, _)| *at != left_out).map(|(_, stage)| stage)
    };
    let pair = |(at, stage): (usize, &Stage)| Pair {
        what: format!("{}, um2", stage.name),
        predicted: Operators::fitted(others(at)).predict(stage),
        measured: stage.logic_um2,
    };
    stages.iter().enumerate().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_silicon::stages::Technology;

    #[test]
    fn the_technology_file_has_the_fit() {
        let found = Operators::fitted(stages().unwrap().iter());
        let technology = Technology::ASAP7;
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.02, "{a} {b}: {found:?}");
        near(technology.addition_um2, found.addition_um2);
        near(technology.multiplication_um2, found.multiplication_um2);
    }

    #[test]
    fn stages_that_follow_the_law_give_the_law_back() {
        let law = Operators { addition_um2: 7.0, multiplication_um2: 90.0 };
        let made = [(3.0, 0.0), (10.0, 1.0), (0.0, 2.0), (50.0, 0.5)].map(|(additions, multiplications)| {
            let stage = Stage { name: String::new(), additions, multiplications, logic_um2: 1.0 };
            Stage { logic_um2: law.predict(&stage), ..stage }
        });
        let found = Operators::fitted(made.iter());
        assert!((found.addition_um2 - 7.0).abs() < 1e-6 && (found.multiplication_um2 - 90.0).abs() < 1e-6);
        assert!(left_out(&made).iter().all(|pair| pair.error().abs() < 1e-6));
    }
}
