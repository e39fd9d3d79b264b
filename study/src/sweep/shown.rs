//! What a sweep found as it is shown: in the terminal and on a page.
//!
//! Everything is read off one accumulator; nothing here is evaluated but points of fronts, for their numbers.

use super::crossover;
use super::die::{best_die_table, best_dies, die_mm2, marginal_table, point_marginals};
use super::fronts::{self, Arrow};
use super::{Answer, Explanation, Found, FrontOf, Replaced, Study, SweepOutcome, layout_column};
use crate::number::significant;
use crate::sensitivity::Sensitivity;
use crate::sheet::{Block, Die, Ranges, Section, Split, SplitOf};
use crate::table::Table;
use std::borrow::Cow;
use trinity_silicon::stages::{Design, Technology, XK264, reconcile};
use trinity_silicon::{EnergyColumn, InstanceRate, partition, table3};
use trinity_sim::die::picture;
use trinity_sim::sweep::{Accumulator, Direction, Metric, Point};
use trinity_sim::{Line, Phase, footprint};

fn times(value: Option<f64>) -> String {
    value.map_or_else(|| "not reached".into(), |value| format!("{value:.2}×"))
}

impl Study {
    /// The result in the terminal: answer, fronts, best points, what did not run.
    pub fn blocks(&self, accumulated: &Accumulator, outcome: &SweepOutcome) -> Vec<Block> {
        let answer = &self.answer(accumulated);
        let energy = (self.file.headline.is_some() && self.has_paper_codec()).then(energy_table);
        let answers = [headline_table(self, answer), energy, footprint_table(self)];
        let mut blocks = vec![Block::lines(vec![self.file.title.clone()])];
        blocks.extend(answers.into_iter().flatten().map(Block::table));
        blocks.extend(self.replaced_block());
        blocks.push(Block::captioned("Pareto fronts", front_table(self, accumulated, answer, 12)));
        if !outcome.top.is_empty() {
            let within =
                self.file.budget.map_or_else(String::new, |area| format!(" within {} mm²", area.mm2()));
            let caption = format!("Best points{within} by {}", self.file.rank_by);
            let points = outcome.top.iter().map(|found| (found.scenario.as_str(), found.index));
            blocks.push(Block::captioned(caption, points_table(self, points, answer)));
        }
        let others = if accumulated.rejected.is_empty() { "" } else { "; the others:" };
        let mut lines =
            vec![format!("{} points, {} can run{others}", accumulated.points, accumulated.feasible)];
        lines.extend(accumulated.rejected.iter().map(|(reason, count)| format!("  {count:>12}  {reason}")));
        blocks.push(Block::lines(lines));
        let dies = [best_die_table(self, accumulated), marginal_table(self)];
        blocks.extend(dies.into_iter().flatten().map(Block::table));
        blocks.extend(outcome.crossovers.iter().map(|one| Block {
            lines: crossover::words(one),
            ..Block::captioned(&one.name, crossover::table(one))
        }));
        blocks
    }

    /// The result on a page: fronts, area split, sensitivity, assumptions.
    pub fn sections(
        &self,
        accumulated: &Accumulator,
        outcome: &SweepOutcome,
        sensitivity: &[Sensitivity],
    ) -> Vec<Section> {
        let answer = &self.answer(accumulated);
        let mut page = Vec::new();
        page.extend(headline_table(self, answer).map(|table| Section::table("Headline", table)));
        page.extend(
            outcome.warnings.iter().map(|warning| Section::Paragraph(format!("Warning: {warning}."))),
        );
        page.extend(
            replaced_table(self, None)
                .map(|table| Section::table("Measured values in use, from the calibration", table)),
        );
        page.push(Section::Heading("Fronts".into()));
        let arrows = arrows(self, answer);
        let budget_mm2 = self.file.budget_mm2();
        page.push(Section::Fronts(fronts::charts(self, &outcome.fronts, budget_mm2, &arrows)));
        page.push(Section::table(
            "Points of the fronts; `trinity sweep explain INDEX` breaks one down",
            front_table(self, accumulated, answer, 40),
        ));
        page.push(Section::Heading("Where the area goes".into()));
        page.push(Section::Split(split(self, outcome)));
        page.extend(crossovers(outcome));
        page.extend(dies(self, accumulated));
        page.extend(ranges(answer, sensitivity));
        if self.has_paper_codec() {
            page.extend(silicon());
        }
        page.push(Section::Heading("Axes".into()));
        page.push(Section::table("What each value allows", axes_table(self, accumulated)));
        page.push(Section::table("All points by outcome", outcome_table(accumulated)));
        page.extend(self.assumptions());
        page
    }

    /// Every value of the study with its source, as a page has it.
    pub fn assumptions(&self) -> Vec<Section> {
        let mut page = vec![Section::Heading("Assumptions".into())];
        let settings = self.document.settings();
        let energy = settings.iter().filter(|setting| setting.path.ends_with("codec.energy"));
        page.extend(energy.map(|setting| {
            Section::Paragraph(format!("Energy of codecs: {} ({}).", setting.value, setting.path))
        }));
        let mut values = Table::new(["value", "is", "source", "written at"]);
        for setting in &settings {
            let Some(path) = setting.path.strip_prefix("study.") else { continue };
            values.row([
                path.to_string(),
                setting.value.clone(),
                setting.source.clone().unwrap_or_default(),
                format!("{}:{}", setting.place.source.name, setting.place.line()),
            ]);
        }
        page.push(Section::table("Every value the study starts from", values));
        let mut changes = Table::new(["scenario", "sets"]);
        for scenario in &self.file.scenarios {
            let measured = self.replaced.iter().filter(|one| one.scenario == scenario.name);
            let measured = measured
                .map(|one| format!("{}={{ value = {}, source = {:?} }}", one.path, one.value, one.source));
            let sets: Vec<String> = scenario.set.iter().cloned().chain(measured).collect();
            changes.row([scenario.name.clone(), sets.join("; ")]);
        }
        page.push(Section::table("What the scenarios change", changes));
        page
    }

    /// Measured values in use, as the terminal has them.
    pub fn replaced_block(&self) -> Option<Block> {
        Some(Block::captioned("Measured values in use", replaced_table(self, None)?))
    }

    /// One point in the terminal: its axes, what was measured of it, its lines.
    pub fn explained_blocks(&self, explained: &Explanation) -> Vec<Block> {
        let lines = vec![format!("point {} of {}: {}", explained.index, self.name, at(explained))];
        let mut blocks = vec![Block::lines(lines)];
        blocks.extend(replaced_table(self, Some(&explained.scenario)).map(Block::table));
        blocks.push(Block::table(explain_table(&explained.lines)));
        blocks
    }

    /// One point on a page: its title, its die where there is one, then its numbers.
    pub fn explained_sections(&self, explained: &Explanation) -> (String, Vec<Section>) {
        let point = self.plan.space.point(explained.index);
        let point = point.chosen().unwrap_or(point);
        let caption = |mm2: f64| format!("One die of {mm2:.0} mm², area by part in mm²");
        let mut page = Vec::new();
        page.extend(die(&point, caption).map(Section::Die));
        page.extend(
            point_marginals(&point)
                .map(|table| Section::table("What one more of each part would buy", table)),
        );
        page.push(Section::table("Every line, with its formula", explain_table(&explained.lines)));
        (format!("Point {} of {}: {}", explained.index, self.name, at(explained)), page)
    }
}

/// The scenario of a point and its place on each axis that it has.
fn at(explained: &Explanation) -> String {
    let axes = explained.axes.iter().filter(|(_, label)| !label.is_empty());
    explained.scenario.clone() + &axes.map(|(path, label)| format!(", {path} = {label}")).collect::<String>()
}

/// The lines of an explanation as a table.
pub fn explain_table(lines: &[Line]) -> Table {
    let mut table = Table::new(["part", "line", "value", "unit", "formula"]);
    for line in lines {
        table.row([line.group, line.name, &significant(line.value), line.unit, &line.formula]);
    }
    table
}

/// What a calibration put in place of what was configured, in one scenario or in all.
fn replaced_table(study: &Study, scenario: Option<&str>) -> Option<Table> {
    let shown = |one: &&Replaced| scenario.is_none_or(|name| name == one.scenario);
    let mut table = Table::new(["scenario", "value", "configured", "measured", "source"]);
    for one in study.replaced.iter().filter(shown) {
        let (before, value) = (brief(&one.before), brief(&one.value));
        table.row([one.scenario.as_str(), &one.path, &before, &value, &one.source]);
    }
    (!table.rows().is_empty()).then_some(table)
}

/// A value as a cell of a table takes it: of a curve its ends, which the JSON has whole.
fn brief(value: &str) -> Cow<'_, str> {
    let points: Vec<&str> = value.trim_matches(['[', ']']).split("], [").collect();
    match points.as_slice() {
        [first, _, .., last] => format!("[{first}] … [{last}], {} points", points.len()).into(),
        _ => value.into(),
    }
}

/// The headline; beside the paper's where the study is the paper's.
fn headline_table(study: &Study, answer: &Answer) -> Option<Table> {
    let asked = study.file.headline.as_ref()?;
    let headline = answer.headline?;
    let (speedup, saving) = study.paper();
    let beside = speedup.is_some() || saving.is_some();
    let mut table = Table::new(["headline", "here"].into_iter().chain(beside.then_some("paper")));
    let speed = format!(
        "{} over {}, speed at {} mm²",
        asked.candidate,
        asked.baseline,
        study.file.budget.unwrap_or(asked.budget).mm2()
    );
    let area = format!(
        "{} over {}, area at {}× performance",
        asked.baseline,
        asked.candidate,
        asked.performance.get()
    );
    for (what, here, paper) in [(speed, headline.speedup(), speedup), (area, headline.saving(), saving)] {
        table.row([what, times(here)].into_iter().chain(beside.then(|| times(paper))));
    }
    Some(table)
}

/// The two energy headlines of the paper, by either column of its Table 3.
fn energy_table() -> Table {
    let mut table =
        Table::new(["energy, three-in-one at ratio 5", "printed column", "power over throughput"]);
    let with =
        |column| table3::headlines(&table3::THREE_IN_ONE_ENCODER, &table3::THREE_IN_ONE_DECODER, 5.0, column);
    let (printed, derived) = (with(EnergyColumn::Printed), with(EnergyColumn::PowerOverThroughput));
    table.row([
        "sending a bit over coding it".to_string(),
        format!("{:.1}×", printed.communication_over_codec),
        format!("{:.0}×", derived.communication_over_codec),
    ]);
    table.row([
        "sending raw over sending compressed".to_string(),
        format!("{:.2}×", printed.raw_over_compressed),
        format!("{:.2}×", derived.raw_over_compressed),
    ]);
    table
}

/// What the served model takes in each scenario, fitting or not.
fn footprint_table(study: &Study) -> Option<Table> {
    let scenarios = study.plan.space.scenarios();
    if scenarios.iter().any(|scenario| scenario.base.job.phase == Phase::Training) {
        return None;
    }
    let mut table =
        Table::new(["scenario", "weights GB", "KV GiB", "weights a device GB", "KV a device GiB", "fits"]);
    const GIB: f64 = 1_073_741_824.0;
    for scenario in scenarios {
        let f = footprint(&scenario.base);
        table.row([
            scenario.name.clone(),
            significant(f.weights_bytes / 1e9),
            significant(f.kv_bytes / GIB),
            significant(f.weights_bytes / 1e9 / f.devices),
            significant(f.kv_bytes / GIB / f.devices),
            scenario.base.estimate().map_or_else(|why| why.to_string(), |_| "yes".into()),
        ]);
    }
    Some(table)
}

/// A table of at most `limit` points of each front, spread evenly.
fn front_table(study: &Study, accumulated: &Accumulator, answer: &Answer, limit: usize) -> Table {
    let mut points = Vec::new();
    for (scenario, front) in study.plan.space.scenarios().iter().zip(&accumulated.fronts) {
        let entries = front.entries();
        let shown = limit.min(entries.len());
        for k in 0..shown {
            let at = if shown < 2 { 0 } else { k * (entries.len() - 1) / (shown - 1) };
            points.push((scenario.name.as_str(), entries[at].index));
        }
    }
    points_table(study, points.into_iter(), answer)
}

/// Points, each of its scenario.
fn points_table<'a>(study: &Study, points: impl Iterator<Item = (&'a str, u64)>, answer: &Answer) -> Table {
    let paths = study.plan.space.paths();
    let fixed = ["scenario", "index", "area mm²", "tokens/s", "performance", "J/token"];
    let mut table = Table::new(fixed.into_iter().chain(layout_column(study)).chain(paths));
    for (scenario, index) in points {
        table.row(point_cells(study, scenario, index, answer));
    }
    table
}

fn point_cells(study: &Study, scenario: &str, index: u64, answer: &Answer) -> Vec<String> {
    let mut cells = vec![scenario.to_string(), index.to_string()];
    if let Ok(estimate) = study.plan.space.point(index).estimate() {
        cells.push(significant(estimate.area_mm2));
        cells.push(significant(estimate.tokens_per_s));
        cells.push(
            answer
                .unit_tokens_per_s
                .map_or_else(String::new, |unit| significant(estimate.tokens_per_s / unit)),
        );
        cells.push(significant(estimate.energy_j_per_token));
        cells.extend(estimate.chosen.map(|layout| layout.to_string()));
    }
    if layout_column(study).is_some() && cells.len() < 7 {
        cells.push("as stated".into());
    }
    cells.extend(study.plan.space.labels(index).into_iter().map(str::to_string));
    cells
}

/// Both headlines as the arrows they are: up at the budget, and to the left at
/// the performance asked for.
fn arrows(study: &Study, answer: &Answer) -> Vec<Arrow> {
    // They are headlines of speed over area.
    let axes = fronts::axes(study);
    if axes.first() != Some(&(Metric::AreaMm2, Metric::TokensPerS)) {
        return Vec::new();
    }
    let Some((headline, asked)) = answer.headline.zip(study.file.question()) else { return Vec::new() };
    let faster = headline.baseline_at_budget.zip(headline.candidate_at_budget).map(|(from, to)| Arrow {
        from: (asked.budget_mm2, from.tokens_per_s),
        to: (asked.budget_mm2, to.tokens_per_s),
        text: format!("{:.2}× as fast", to.tokens_per_s / from.tokens_per_s),
    });
    let tokens_per_s = asked.performance * headline.unit_tokens_per_s;
    let pair = headline.baseline_at_performance.zip(headline.candidate_at_performance);
    let smaller = pair.map(|(from, to)| Arrow {
        from: (from.area_mm2, tokens_per_s),
        to: (to.area_mm2, tokens_per_s),
        text: format!("{:.2}× smaller", from.area_mm2 / to.area_mm2),
    });
    faster.into_iter().chain(smaller).collect()
}

/// How the silicon of the best point of each scenario is shared out.
fn split(study: &Study, outcome: &SweepOutcome) -> Split {
    let budget = study.file.budget_mm2();
    let rank = study.plan.rank_by;
    let best = |front: &FrontOf| -> Option<Found> {
        let within = front.points.iter().filter(|p| budget.is_none_or(|mm2| p.estimate.area_mm2 <= mm2));
        let value = |point: &&Found| rank.metric.of(&point.estimate);
        let best = match rank.direction {
            Direction::Maximize => within.max_by(|a, b| value(a).total_cmp(&value(b))),
            Direction::Minimize => within.min_by(|a, b| value(a).total_cmp(&value(b))),
        };
        best.cloned()
    };
    let points: Vec<Found> = outcome.fronts.iter().filter_map(best).collect();
    let largest = points.iter().map(|point| point.estimate.area_mm2).fold(0.0, f64::max);
    let cluster = |point: &Found| {
        let area = &point.estimate.area;
        let parts = [area.gpu_mm2, area.nic_mm2, area.codec_mm2];
        let [gpu, nic, codec] = parts.map(|part| significant(part / point.estimate.area_mm2 * 100.0));
        SplitOf {
            name: point.scenario.clone(),
            shares: parts.map(|part| part / largest),
            text: format!(
                "{} {}, {} mm²: GPU {gpu} %, NIC {nic} %, codec {codec} %",
                significant(rank.metric.of(&point.estimate)),
                fronts::title(rank.metric),
                significant(point.estimate.area_mm2),
            ),
        }
    };
    let within = budget.map_or_else(String::new, |mm2| format!(" within {mm2} mm²"));
    Split {
        caption: format!("The best point of each scenario{within} by {}", study.file.rank_by),
        clusters: points.iter().map(cluster).collect(),
    }
}

/// Which scenario wins where along an axis.
fn crossovers(outcome: &SweepOutcome) -> Vec<Section> {
    let mut page = Vec::new();
    if !outcome.crossovers.is_empty() {
        page.push(Section::Heading("Where which wins".into()));
    }
    for one in &outcome.crossovers {
        page.extend(crossover::words(one).into_iter().map(Section::Paragraph));
        page.push(Section::table(&one.name, crossover::table(one)));
    }
    page
}

/// The best die of each scenario, of a sweep over parts.
fn dies(study: &Study, accumulated: &Accumulator) -> Vec<Section> {
    let Some(table) = best_die_table(study, accumulated) else { return Vec::new() };
    let mut page = vec![
        Section::Heading("The die".into()),
        Section::table("The best die of each scenario beside the one that was built", table),
    ];
    page.extend(
        marginal_table(study)
            .map(|table| Section::table("What one more of each part would buy the die as built", table)),
    );
    page.extend(best_dies(study, accumulated).iter().filter_map(|best| {
        let (scenario, index) = (best.scenario, best.index);
        let caption =
            |mm2: f64| format!("{scenario}: point {index}, a die of {mm2:.0} mm², area by part in mm²");
        die(&best.point, caption).map(Section::Die)
    }));
    page
}

/// The die of a point by its parts, under a caption with its area.
fn die(point: &Point, caption: impl Fn(f64) -> String) -> Option<Die> {
    let picture = picture(point, &point.estimate().ok()?)?;
    Some(Die { caption: caption(die_mm2(point)?), parts: picture.area.named().into_iter().collect() })
}

/// What the headline rests on.
fn ranges(answer: &Answer, sensitivity: &[Sensitivity]) -> Vec<Section> {
    let speedup = answer.headline.and_then(|headline| headline.speedup());
    let Some(speedup) = speedup.filter(|_| !sensitivity.is_empty()) else { return Vec::new() };
    let mut lines = Vec::new();
    let mut table =
        Table::new(["assumption", "low", "speed-up", "area saving", "high", "speed-up", "area saving"]);
    for line in sensitivity {
        let assumption = &line.assumption;
        table.row([
            assumption.name.clone(),
            assumption.low.to_string(),
            times(line.low.0),
            times(line.low.1),
            assumption.high.to_string(),
            times(line.high.0),
            times(line.high.1),
        ]);
        lines.extend(line.low.0.zip(line.high.0).map(|(low, high)| (assumption.name.clone(), low, high)));
    }
    vec![
        Section::Heading("What the headline rests on".into()),
        Section::Ranges(Ranges {
            caption: format!(
                "Speed-up at the budget ({speedup:.2}× as assumed) with each assumption at either end"
            ),
            figure: "speed-up",
            expected: speedup,
            lines,
        }),
        Section::table("Each assumption on its own, all others as configured", table),
    ]
}

/// Table 3, both energy columns, and the stage model it is held against.
fn silicon() -> Vec<Section> {
    let mut table = Table::new([
        "block, 100 Gbit/s",
        "area mm²",
        "power W",
        "printed pJ/bit",
        "power ÷ throughput pJ/bit",
        "ratio",
    ]);
    for row in table3::ROWS {
        table.row([
            row.name.to_string(),
            format!("{}", row.area_mm2),
            format!("{}", row.power_w),
            format!("{}", row.printed_pj_per_bit),
            significant(row.cost().energy_pj_per_bit()),
            format!("{:.1}×", row.column_ratio()),
        ]);
    }
    let design = Design::new(&XK264, InstanceRate::Paper4k60);
    let r = reconcile(&design, &Technology::ASAP7, &table3::H264_ENCODER);
    let mut stages = Table::new(["stage of xk264", "kGE", "SRAM bits"]);
    for stage in design.stages() {
        stages.row([
            stage.stage.name().to_string(),
            stage.gates_kge.map_or_else(|| "not synthesized".into(), |kge| kge.to_string()),
            stage.sram_bits.to_string(),
        ]);
    }
    let sums = format!(
        "The stages add up to {:.2} mm² and {:.2} W for 100 Gbit/s, {:.2}× and {:.2}× of Table 3's H.264 encoder. \
         The three-in-one encoder splits into {:.4} mm² of alignment, {:.2} mm² shared and {:.3} mm² for video alone; \
         the stage model, scaled to Table 3, gives {:.3} mm² for the last.",
        r.model.area_mm2,
        r.model.power_w,
        r.area_ratio,
        r.power_ratio,
        partition::ThreeInOne::encoder().alignment_mm2,
        partition::ThreeInOne::encoder().shared_mm2,
        partition::ThreeInOne::encoder().video_only_mm2,
        partition::video_only_by_stages(&Technology::ASAP7, r.area_ratio),
    );
    vec![
        Section::Heading("Silicon".into()),
        Section::table("LLM.265 Table 3; its energy column is not its power column over 100 Gbit/s", table),
        Section::table("Energy headlines by either column", energy_table()),
        Section::table("Stage model beneath Table 3", stages),
        Section::Paragraph(sums),
    ]
}

/// What each value of each axis allows.
fn axes_table(study: &Study, accumulated: &Accumulator) -> Table {
    let objectives = &study.plan.objectives;
    let best = objectives.iter().map(|objective| format!("best {}", objective.metric.name()));
    let headers =
        ["scenario", "axis", "value", "points", "can run"].map(String::from).into_iter().chain(best);
    let mut table = Table::new(headers);
    for (scenario, axes) in study.plan.space.scenarios().iter().zip(&accumulated.values) {
        for (axis, values) in scenario.axes.iter().zip(axes) {
            for (label, summary) in axis.labels.iter().zip(values).take(64) {
                let mut cells = vec![
                    scenario.name.clone(),
                    axis.path.clone(),
                    label.clone(),
                    summary.points.to_string(),
                    summary.feasible.to_string(),
                ];
                for at in 0..objectives.len() {
                    let best = summary.best.get(at).copied().flatten();
                    cells.push(best.map_or_else(String::new, |(value, _)| significant(value)));
                }
                table.row(cells);
            }
        }
    }
    table
}

/// Points by what became of them.
fn outcome_table(accumulated: &Accumulator) -> Table {
    let mut table = Table::new(["outcome", "points"]);
    table.row(["can run".to_string(), accumulated.feasible.to_string()]);
    for (reason, count) in &accumulated.rejected {
        table.row([reason.to_string(), count.to_string()]);
    }
    table
}
