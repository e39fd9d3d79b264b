//! The scenarios of a contest as places to search: each one's study, read once,
//! with values set over it as often as a search asks.

use super::optimum::Player;
use crate::Error;
use crate::config::{Settable, StudyFile};
use crate::sweep::Study;
use trinity_config::{Checked, Document};
use trinity_sim::sweep::Point;

/// One scenario.
#[derive(Debug)]
pub(super) struct Field {
    own: Document,
    study: StudyFile,
    pub player: Player,
}

impl Field {
    /// The scenarios of a study, in their order. `most_codecs` holds codecs back that no area buys;
    /// `free` are the paths that the study leaves to the search.
    pub fn all(
        study: &Study,
        most_codecs: impl Fn(&str) -> Option<f64>,
        free: &[&str],
    ) -> Result<Vec<Self>, Error> {
        let scenarios = study.plan.space.scenarios().iter().enumerate();
        let read = |(at, scenario): (usize, &trinity_sim::sweep::Scenario)| -> Result<Self, Error> {
            let own = study.file.document_of(&study.document, at)?;
            Ok(Self {
                study: study.file.study_of(&own, at)?,
                own,
                player: Player::of(scenario, most_codecs(&scenario.name), free),
            })
        };
        scenarios.map(read).collect()
    }

    /// The scenario's point with `path=value` set over its study; nothing where a value cannot
    /// stand there.
    pub fn base(&self, assignments: &[String]) -> Option<Point> {
        let mut study = self.study.clone();
        for assignment in assignments {
            let assignment = self.own.assignment(&format!("study.{assignment}")).ok()?;
            let set = StudyFile::setter(assignment.keys().get(1..).unwrap_or_default()).ok()?;
            set(&mut study, assignment.value()).ok()?;
        }
        study.check_at(&self.own.whole().table("study")).ok()?;
        Some(study.point())
    }
}
