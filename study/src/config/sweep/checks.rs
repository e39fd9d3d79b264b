//! What is wrong with a sweep although each of its lines can be read: names
//! that clash or name nothing, axes that undo each other, a codec that has
//! nothing to do.
//!
//! A sweep that starts must mean what its labels say. Knows the files; what a
//! point costs it leaves to the model.

use super::super::layout::ParallelismFile;
use super::{Scenario, StudyFile, SweepFile, read_point};
use trinity_config::{Complaint, Diagnostic, Document, nearest};
use trinity_sim::sweep::{Point, Space};

/// Where the parts of a GPU stand in a study.
const PARTS: &str = "cluster.gpu.parts.";
/// Where degrees of parallelism stand.
const DEGREES: &str = "job.parallelism.";

impl SweepFile {
    /// Scenarios that share a name, and names of scenarios that are none.
    pub(super) fn check_names(&self, document: &Document) -> Result<(), Diagnostic> {
        let names: Vec<&str> = self.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let twins = names.iter().enumerate().filter_map(|(at, name)| {
            let first = names[..at].iter().position(|earlier| earlier == name)?;
            Some(twin(
                document,
                "two scenarios are named",
                name,
                [format!("scenarios.{first}.name"), format!("scenarios.{at}.name")],
            ))
        });
        let headline = self.headline.iter().flat_map(|headline| {
            [("headline.baseline", &headline.baseline), ("headline.candidate", &headline.candidate)]
        });
        let headline = headline.map(|(path, name)| (path.to_string(), name));
        let only = self.axes.iter().enumerate().flat_map(|(k, axis)| {
            let only = axis.only.iter().flatten().enumerate();
            only.map(move |(j, name)| (format!("axes.{k}.only.{j}"), name))
        });
        let nobody = headline
            .chain(only)
            .filter(|(_, name)| !names.contains(&name.as_str()))
            .map(|(path, name)| document.complain(&path, &no_scenario(name, &names)));
        Diagnostic::gather(twins.chain(nobody).map(Err))
    }

    /// Assumptions that cannot be varied: the report would leave them out.
    pub(super) fn check_assumptions(&self, document: &Document) -> Result<(), Diagnostic> {
        let turned = self.assumptions.iter().enumerate().filter_map(|(k, assumption)| {
            let (low, high) = (assumption.low.number(), assumption.high.number());
            let what = match (low, high) {
                _ if assumption.low == assumption.high => {
                    "an assumption without a range: both ends are the same"
                }
                (Some((low, unit)), Some((high, same))) if unit == same && low > high => {
                    "a range turned around: the low end is above the high one"
                }
                _ => return None,
            };
            let complaint = Complaint::new(what).expected("low < high");
            Some(Err(document.complain(&format!("assumptions.{k}.low"), &complaint)))
        });
        let ends = self.assumptions.iter().enumerate().flat_map(|(k, assumption)| {
            let path = assumption.path.as_str();
            [("low", &assumption.low), ("high", &assumption.high)].map(|(end, value)| (k, path, end, value))
        });
        let ends = ends.map(|(k, path, end, value)| {
            let assignment = format!("study.{path}={value}");
            let mut varied = document.clone();
            let read = varied.set(&assignment).and_then(|()| read_point(&varied));
            let place = |mistake: &Diagnostic| match super::set_by(mistake, &assignment) {
                Some(super::Part::Path) => format!("assumptions.{k}.path"),
                _ => format!("assumptions.{k}.{end}"),
            };
            read.map(drop).map_err(|wrong| super::moved(document, place, wrong))
        });
        Diagnostic::gather(turned.chain(ends))
    }

    /// Crossovers of scenarios that are none, or along what is no axis of theirs.
    pub(super) fn check_crossovers(&self, document: &Document) -> Result<(), Diagnostic> {
        let names: Vec<&str> = self.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let mut mistakes = Vec::new();
        for (c, crossover) in self.crossovers.iter().enumerate() {
            if crossover.scenarios.len() < 2 {
                let complaint = Complaint::new("nothing to compare").expected("two or more scenarios");
                mistakes.push(document.complain(&format!("crossovers.{c}.scenarios"), &complaint));
            }
            let axis = self.axes.iter().position(|axis| axis.path == crossover.along);
            if axis.is_none() {
                let paths: Vec<&str> = self.axes.iter().map(|axis| axis.path.as_str()).collect();
                let complaint = Complaint::new(format_args!("no axis varies `{}`", crossover.along))
                    .expected(format_args!("one of: {}", paths.join(", ")));
                let complaint = with_nearest(complaint, &crossover.along, &paths);
                mistakes.push(document.complain(&format!("crossovers.{c}.along"), &complaint));
            }
            for (j, name) in crossover.scenarios.iter().enumerate() {
                let place = format!("crossovers.{c}.scenarios.{j}");
                match (names.iter().position(|known| known == name), axis) {
                    (None, _) => {
                        mistakes.push(document.complain(&place, &no_scenario(name, &names)));
                    }
                    (Some(at), Some(k)) if !self.varies(k, at) => {
                        let complaint = Complaint::new(format_args!(
                            "scenario `{name}` does not vary `{}`",
                            crossover.along
                        ))
                        .expected("scenarios that have the axis");
                        mistakes.push(document.complain(&place, &complaint));
                    }
                    _ => {}
                }
            }
        }
        Diagnostic::gather(mistakes.into_iter().map(Err))
    }

    /// Axes over the parts of a GPU whose totals decide: their points would all be one.
    pub(super) fn check_parts(&self, document: &Document) -> Result<(), Diagnostic> {
        let idle = |at: usize, study: &StudyFile| {
            // Another axis may choose the GPU or its model.
            let chosen = (0..self.axes.len()).any(|k| {
                self.varies(k, at)
                    && ["cluster.gpu.model", "cluster.gpu.extends"].contains(&self.axes[k].path.as_str())
            });
            !chosen && !study.cluster.gpu.by_parts()
        };
        self.check_under(document, PARTS, idle, |path, scenario| {
            Complaint::new(format_args!(
                "`{path}` changes nothing: the GPU of scenario `{scenario}` is modelled by its totals"
            ))
            .expected("a part of a GPU that is modelled by its parts")
            .help("set `model = \"parts\"` under [study.cluster.gpu]")
        })
    }

    /// Axes that state a part of what a scenario leaves to be chosen: the word
    /// `best` would give way to them without a word.
    pub(super) fn check_choices(&self, document: &Document) -> Result<(), Diagnostic> {
        let chosen = |_, study: &StudyFile| matches!(study.job.parallelism, ParallelismFile::Word(_));
        self.check_under(document, DEGREES, chosen, |path, scenario| {
            Complaint::new(format_args!(
                "`{path}` varies a part of `parallelism = \"best\"` of scenario `{scenario}`"
            ))
            .expected("another axis, or a table that says what is chosen")
            .help("`parallelism = { choose = \"best\" }` chooses the rest for each value of the axis")
        })
    }

    /// Complains about every axis under a path that varies in a scenario whose study is `unfit` for it.
    fn check_under(
        &self,
        document: &Document,
        path: &str,
        unfit: impl Fn(usize, &StudyFile) -> bool,
        complaint: impl Fn(&str, &str) -> Complaint,
    ) -> Result<(), Diagnostic> {
        let axes = || (0..self.axes.len()).filter(|&k| self.axes[k].path.starts_with(path));
        let mut mistakes = Vec::new();
        for (at, scenario) in self.scenarios.iter().enumerate().filter(|_| axes().next().is_some()) {
            if !unfit(at, &self.as_seen_by(document, at)?.file.study) {
                continue;
            }
            for k in axes().filter(|&k| self.varies(k, at)) {
                let complaint = complaint(&self.axes[k].path, &scenario.name);
                let mistake = document.complain(&format!("axes.{k}.path"), &complaint);
                if !mistakes.contains(&mistake) {
                    mistakes.push(mistake);
                }
            }
        }
        Diagnostic::gather(mistakes.into_iter().map(Err))
    }

    /// Axes of one scenario that undo each other, so that labels would lie.
    pub(super) fn check_axes(&self, document: &Document, space: &Space) -> Result<(), Diagnostic> {
        let mut mistakes: Vec<Diagnostic> = Vec::new();
        for (at, scenario) in space.scenarios().iter().enumerate() {
            let varied: Vec<usize> = (0..self.axes.len()).filter(|&k| self.varies(k, at)).collect();
            for (j, &second) in varied.iter().enumerate() {
                for (i, &first) in varied[..j].iter().enumerate() {
                    let mistake = self.clash(document, at, [first, second], scenario, [i, j])?;
                    mistakes.extend(mistake.filter(|mistake| !mistakes.contains(mistake)));
                }
            }
        }
        Diagnostic::gather(mistakes.into_iter().map(Err))
    }

    /// What is wrong with two axes of a scenario together: `axes` in the file,
    /// `own` among those of the scenario.
    fn clash(
        &self,
        document: &Document,
        at: usize,
        axes: [usize; 2],
        scenario: &Scenario,
        own: [usize; 2],
    ) -> Result<Option<Diagnostic>, Diagnostic> {
        let paths = axes.map(|k| self.axes[k].path.as_str());
        let places = axes.map(|k| format!("axes.{k}.path"));
        if paths[0] == paths[1] {
            return Ok(Some(twin(document, "two axes vary", paths[0], places)));
        }
        let [first, second] = own.map(|k| &scenario.axes[k]);
        let last = second.labels.len() - 1;
        let study = self.document_of(document, at)?;
        let read = |digit: usize| -> Option<Point> {
            let mut study = study.clone();
            study.set(&format!("study.{}={}", paths[0], first.labels[digit])).ok()?;
            study.set(&format!("study.{}={}", paths[1], second.labels[last])).ok()?;
            Some(self.study_of(&study, at).ok()?.point())
        };
        let applied = |digit: usize| {
            let mut point = scenario.base;
            first.apply(digit, &mut point);
            second.apply(last, &mut point);
            point.settle();
            point
        };
        let alone = |digit: usize| {
            let mut point = scenario.base;
            first.apply(digit, &mut point);
            point
        };
        let ends = [0, first.labels.len() - 1];
        let [Some(from), Some(to)] = ends.map(read) else { return Ok(None) };
        if alone(ends[0]) != alone(ends[1]) && from == to {
            return Ok(Some(together(document, paths, &places, "sets over what the other varies")));
        }
        if [from, to] != ends.map(applied) {
            return Ok(Some(together(
                document,
                paths,
                &places,
                "is computed into the same value as the other",
            )));
        }
        Ok(None)
    }

    /// What a scenario has but does not use: sentences for who reads the result.
    pub fn warnings(&self, document: &Document) -> Result<Vec<String>, Diagnostic> {
        let mut warnings = Vec::new();
        for (at, scenario) in self.scenarios.iter().enumerate() {
            let study = self.study_of(&self.document_of(document, at)?, at)?;
            if !study.cluster.gpu.by_parts() && scenario.set.iter().any(|set| set.starts_with(PARTS)) {
                warnings.push(format!(
                    "scenario `{}` sets parts of a GPU that is modelled by its totals: they change nothing; \
                     set `cluster.gpu.model=parts`, too",
                    scenario.name
                ));
            }
            let keys = study.job.compression.bits().map(|(key, _)| format!("job.compression.{key}"));
            let varied =
                |key: &String| (0..self.axes.len()).any(|k| self.varies(k, at) && self.axes[k].path == *key);
            let sent = study.serving.as_ref().is_some_and(|serving| serving.transfer_bits.is_some());
            let idle = study.job.compression.is_raw() && !sent && !keys.iter().any(varied);
            if study.cluster.codec.is_some() && idle {
                warnings.push(format!(
                    "scenario `{}` has a codec and gives it nothing to compress: its points pay for the codec \
                     and send everything raw; set bits per value under one or more of {}",
                    scenario.name,
                    keys.join(", ")
                ));
            }
        }
        Ok(warnings)
    }
}

/// One name in two places.
fn twin(document: &Document, what: &str, name: &str, places: [String; 2]) -> Diagnostic {
    let first = document.place(&places[0]).map(ToString::to_string).unwrap_or_default();
    let complaint = Complaint::new(format_args!("{what} `{name}`, here and at {first}"))
        .expected("each to differ")
        .help(format_args!("remove one of the two; the first is at {first}"));
    document.complain(&places[1], &complaint)
}

fn together(document: &Document, paths: [&str; 2], places: &[String; 2], why: &str) -> Diagnostic {
    let first = document.place(&places[0]).map(ToString::to_string).unwrap_or_default();
    let complaint = Complaint::new(format_args!(
        "the axes `{}` (at {first}) and `{}` cannot both vary: the second {why}",
        paths[0], paths[1]
    ))
    .expected("axes that do not touch each other's values")
    .help("vary one of them, and make scenarios of the other's values");
    document.complain(&places[1], &complaint)
}

fn no_scenario(name: &str, names: &[&str]) -> Complaint {
    let complaint = Complaint::new(format_args!("there is no scenario `{name}`"));
    with_nearest(complaint.expected(format_args!("one of: {}", names.join(", "))), name, names)
}

fn with_nearest(complaint: Complaint, word: &str, candidates: &[&str]) -> Complaint {
    match nearest(word, candidates) {
        Some(near) => complaint.help(format_args!("did you mean `{near}`?")),
        None => complaint,
    }
}
