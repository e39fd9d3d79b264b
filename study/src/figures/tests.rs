//! Rules decide by their numbers: fed the opposite, each gives the opposite.

use super::*;
use crate::config::{FiguresFile, RuleFile};
use trinity_config::Checked;

fn built_in() -> FiguresFile {
    let file = FiguresFile::load("figures/llm265").unwrap();
    FiguresFile { figures: file.whole(), ..file }
}

fn sample(values: &[f64]) -> Sample {
    Sample {
        labels: (0..values.len()).map(|k| k.to_string()).collect(),
        values: values.to_vec(),
        halves: Vec::new(),
    }
}

fn claim(rule: RuleFile, paper: Option<f64>) -> ClaimFile {
    ClaimFile {
        says: "x".into(),
        quote: "x".into(),
        paper,
        ours: "ours".into(),
        rule,
        ..ClaimFile::default()
    }
}

fn outcome(claim: &ClaimFile, cells: &[(&str, &[f64])]) -> ClaimOutcome {
    let read = cells.iter().map(|(name, values)| ((*name).to_owned(), sample(values))).collect();
    let cells = Cells { read: &read, made: &BTreeMap::new(), exact: false, each: None };
    rule::judge(claim, &cells, "rows").unwrap().outcome
}

#[test]
fn each_kind_of_rule_turns_over() {
    let (low, high): (&[f64], &[f64]) = (&[1.0, 1.1, 0.9], &[2.0, 2.1, 1.95]);
    let wide: &[f64] = &[-3.0, 4.0, 2.0];
    let above = claim(RuleFile { above: Some("other".into()), ..RuleFile::default() }, None);
    assert_eq!(outcome(&above, &[("ours", high), ("other", low)]), ClaimOutcome::Holds);
    assert_eq!(outcome(&above, &[("ours", low), ("other", high)]), ClaimOutcome::Fails);
    assert_eq!(outcome(&above, &[("ours", wide), ("other", low)]), ClaimOutcome::Open);
    assert_eq!(outcome(&above, &[("ours", &[5.0]), ("other", &[1.0])]), ClaimOutcome::Open);
    let below = claim(RuleFile { below: Some("1.5".into()), ..RuleFile::default() }, None);
    assert_eq!(outcome(&below, &[("ours", low)]), ClaimOutcome::Holds);
    assert_eq!(outcome(&below, &[("ours", high)]), ClaimOutcome::Fails);
    let near = claim(RuleFile { near: Some(0.2), ..RuleFile::default() }, Some(2.0));
    assert_eq!(outcome(&near, &[("ours", high)]), ClaimOutcome::Holds);
    assert_eq!(outcome(&near, &[("ours", low)]), ClaimOutcome::Fails);
    assert_eq!(outcome(&near, &[("ours", wide)]), ClaimOutcome::Open);
    let alike = claim(RuleFile { alike: Some("other".into()), ..RuleFile::default() }, None);
    assert_eq!(
        outcome(&alike, &[("ours", &[1.0, 1.01, 0.99]), ("other", &[1.01, 0.99, 1.0])]),
        ClaimOutcome::Holds
    );
    // Within an interval that would hide a difference of a tenth: too little power.
    assert_eq!(outcome(&alike, &[("ours", low), ("other", &[1.1, 0.9, 1.0])]), ClaimOutcome::Open);
    assert_eq!(outcome(&alike, &[("ours", low), ("other", high)]), ClaimOutcome::Fails);
    assert_eq!(outcome(&alike, &[("ours", &[1.0]), ("other", &[1.0])]), ClaimOutcome::Open);
    // Zero has no tenth: that of what another loses is what counts.
    let none = RuleFile { alike: Some("0".into()), of: Some("rival".into()), ..RuleFile::default() };
    let none = claim(none, None);
    let near_zero: &[f64] = &[0.01, -0.01, 0.0];
    assert_eq!(outcome(&none, &[("ours", near_zero), ("rival", low)]), ClaimOutcome::Holds);
    assert_eq!(outcome(&none, &[("ours", near_zero), ("rival", &[0.1, 0.1])]), ClaimOutcome::Open);
    assert_eq!(outcome(&none, &[("ours", low), ("rival", high)]), ClaimOutcome::Fails);
    let order = claim(RuleFile { order: vec!["b".into(), "c".into()], ..RuleFile::default() }, None);
    let top: &[f64] = &[3.0, 3.2, 3.1];
    assert_eq!(outcome(&order, &[("ours", low), ("b", high), ("c", top)]), ClaimOutcome::Holds);
    assert_eq!(outcome(&order, &[("ours", low), ("b", top), ("c", high)]), ClaimOutcome::Fails);
    assert_eq!(outcome(&order, &[("ours", low), ("b", wide), ("c", top)]), ClaimOutcome::Open);
    let few = ClaimFile { rows: Some(5), ..above };
    assert_eq!(outcome(&few, &[("ours", high), ("other", low)]), ClaimOutcome::Open);
}

#[test]
fn a_verdict_follows_from_its_claims() {
    use ClaimOutcome::{Fails, Holds, Open};
    for (outcomes, verdict) in [
        (vec![Holds, Holds], Verdict::Reproduced),
        (vec![Holds, Fails], Verdict::InPart),
        (vec![Holds, Open], Verdict::InPart),
        (vec![Fails, Fails], Verdict::Contradicted),
        (vec![Fails, Open], Verdict::Contradicted),
        (vec![Open, Open], Verdict::NotDecided),
        (vec![], Verdict::OutOfScope),
    ] {
        assert_eq!(Verdict::of(outcomes.clone()), verdict, "{outcomes:?}");
    }
}

/// The cells of a claim such that its outcome is the other one: ours mirrored at what it is held against, or put at
/// the source's number or far from it.
fn opposite(
    figure: &FigureFile,
    claim: &ClaimFile,
    each: Option<&str>,
    read: &BTreeMap<String, Sample>,
) -> BTreeMap<String, Sample> {
    let cells = Cells { read, made: &figure.cells, exact: figure.exact, each };
    let ours = cells.get(&claim.ours).unwrap();
    let held = rule::judge(claim, &cells, "rows").unwrap().outcome == ClaimOutcome::Holds;
    let rule = &claim.rule;
    let bounding =
        |bound: &String| bound.parse().map_or_else(|_| cells.get(bound).unwrap(), Sample::constant);
    let mirrored = |bound: &String| {
        let other = bounding(bound);
        let twice =
            other.zip(&Sample::constant(2.0), |value, two| two * value, |[_, half, ..]| 2.0 * half).unwrap();
        if other.values.len() == 1 && ours.values.len() > 1 {
            Sample {
                values: ours.values.iter().map(|value| twice.values[0] - value).collect(),
                ..ours.clone()
            }
        } else {
            let joined = twice.zip(&ours, |twice, value| twice - value, |[_, _, _, half]| half).unwrap();
            Sample {
                halves: if ours.halves.is_empty() { Vec::new() } else { joined.halves.clone() },
                ..joined
            }
        }
    };
    let at = |value: f64| Sample {
        values: vec![value; ours.values.len()],
        halves: vec![0.0; ours.values.len()],
        ..ours.clone()
    };
    let new = if let Some(bound) = rule.above.as_ref().or(rule.below.as_ref()) {
        mirrored(bound)
    } else if let Some(part) = rule.near {
        let paper = claim.paper.unwrap();
        at(if held { paper * (1.0 + 2.0 * part) } else { paper })
    } else if let Some(bound) = &rule.alike {
        let other = bounding(bound);
        if held {
            at(other.mean().mean + 100.0 * other.mean().mean.abs().max(1.0))
        } else {
            Sample { labels: ours.labels.clone(), ..other }
        }
    } else {
        let largest =
            rule.order.iter().map(|name| cells.get(name).unwrap().mean().mean.abs()).fold(1.0, f64::max);
        at(if held { 100.0 * largest } else { -100.0 * largest })
    };
    // Under its own name, before anything that it is made of.
    let mut changed = read.clone();
    changed.insert(each.map_or_else(|| claim.ours.clone(), |each| of_each(&claim.ours, each)), new);
    changed
}

/// Every rule of the file, on its recorded cells: what holds fails when it is fed the opposite, and what fails holds.
#[test]
fn every_recorded_claim_turns_over_when_it_is_fed_the_opposite() {
    let (file, recordings) = (built_in(), recorded().unwrap());
    let mut turned = 0;
    for figure in &file.figures {
        let lender = figure.uses.as_ref().unwrap_or(&figure.id);
        let Some(recording) = recordings.get(lender) else { continue };
        let judged = judge(figure, &recording.cells).unwrap();
        let mut at = 0;
        for claim in &figure.claims {
            for each in figure.each_in(&[&claim.says]) {
                let before = judged.claims[at].outcome;
                at += 1;
                // Of an order that fails, the first link may hold; links behind it are turned by unit tests.
                if before == ClaimOutcome::Open
                    || (before == ClaimOutcome::Fails && claim.rule.order.len() > 1)
                {
                    continue;
                }
                let changed = opposite(figure, claim, each, &recording.cells);
                let cells = Cells { read: &changed, made: &figure.cells, exact: figure.exact, each };
                let after = rule::judge(claim, &cells, "rows").unwrap().outcome;
                let wanted =
                    if before == ClaimOutcome::Holds { ClaimOutcome::Fails } else { ClaimOutcome::Holds };
                assert_eq!(after, wanted, "figure {}: {} ({each:?})", figure.id, claim.says);
                turned += 1;
            }
        }
    }
    assert!(turned > 40, "{turned} claims were turned over");
}

/// The cells of a claim alone, as a run would have them for which it holds, or does not.
fn fed(claim: &ClaimFile, each: Option<&str>, holds: bool) -> BTreeMap<String, Sample> {
    let count = claim.rows.map_or(3, |rows| (rows as usize).max(3));
    let about = |value: f64| {
        sample(
            &(0..count).map(|row| value * (1.0 + 1e-6 * row as f64) + 1e-6 * row as f64).collect::<Vec<_>>(),
        )
    };
    let name = |cell: &str| each.map_or_else(|| cell.to_owned(), |each| of_each(cell, each));
    let mut cells: BTreeMap<String, Sample> =
        claim.rule.names().enumerate().map(|(at, cell)| (name(cell), about(2.0 + at as f64))).collect();
    let rule = &claim.rule;
    let bound = |bound: &String| bound.parse::<f64>().unwrap_or(2.0);
    let ours = match (&rule.above, &rule.below, &rule.alike, rule.near) {
        (Some(other), ..) => bound(other) + if holds { 1.0 } else { -1.0 },
        (_, Some(other), ..) => bound(other) + if holds { -1.0 } else { 1.0 },
        (_, _, Some(other), _) => bound(other) + if holds { 0.0 } else { 1.0 },
        (.., Some(part)) => claim.paper.unwrap() * if holds { 1.0 } else { 1.0 + 2.0 * part },
        _ if holds => 1.0,
        _ => 100.0,
    };
    cells.insert(name(&claim.ours), about(ours));
    cells
}

/// Every claim of every figure, recorded or not: it holds by cells for which it does, fails by the others, and is open
/// where there are none.
#[test]
fn every_claim_holds_or_fails_by_what_it_is_fed() {
    let file = built_in();
    let mut asked = 0;
    for figure in &file.figures {
        for claim in &figure.claims {
            for each in figure.each_in(&[&claim.says]) {
                for (holds, wanted) in [(true, ClaimOutcome::Holds), (false, ClaimOutcome::Fails)] {
                    let read = fed(claim, each, holds);
                    let cells = Cells { read: &read, made: &figure.cells, exact: figure.exact, each };
                    let found = rule::judge(claim, &cells, "rows").unwrap();
                    assert_eq!(found.outcome, wanted, "figure {}: {} ({each:?})", figure.id, found.found);
                }
                let mut read = fed(claim, each, true);
                let ours = each.map_or_else(|| claim.ours.clone(), |each| of_each(&claim.ours, each));
                read.insert(ours, Sample::default());
                let cells = Cells { read: &read, made: &figure.cells, exact: figure.exact, each };
                assert_eq!(rule::judge(claim, &cells, "rows").unwrap().outcome, ClaimOutcome::Open);
                asked += 1;
            }
        }
        assert_eq!(figure.claims.is_empty(), figure.why.is_some(), "figure {}", figure.id);
    }
    assert!(asked > 150, "{asked} claims");
}

/// Numbers in texts are the source's (they stand in its quotes) or settings of the command; none is a result.
#[test]
fn no_number_of_ours_is_written_by_hand() {
    let numbers = |text: &str| -> Vec<String> {
        let plain = text.replace(',', "");
        plain
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .map(|word| word.trim_matches('.').to_owned())
            .filter(|word| word.contains('.'))
            .collect()
    };
    for figure in &built_in().figures {
        let settings = figure.commands.values().cloned();
        let quotes = figure.claims.iter().map(|claim| claim.quote.clone()).chain(figure.quote.clone());
        let paper = figure.claims.iter().filter_map(|claim| Some(claim.paper?.to_string()));
        let known: Vec<String> =
            settings.chain(quotes).chain(paper).flat_map(|text| numbers(&text)).collect();
        let texts = figure
            .claims
            .iter()
            .map(|claim| &claim.says)
            .chain(&figure.scope)
            .chain(&figure.why)
            .chain([&figure.title]);
        for text in texts {
            for number in numbers(text) {
                assert!(known.contains(&number), "figure {}: {number} in “{text}” is nobody's", figure.id);
            }
        }
    }
}

#[test]
fn a_recording_goes_stale_by_content() {
    let commands: BTreeMap<String, String> = [("a".to_owned(), "compare x --codecs h265".to_owned())].into();
    let fingerprint = Fingerprint {
        codecs: [("h265".to_owned(), "1".to_owned())].into(),
        models: Some("m".into()),
        inputs: vec![Input { file: "x".into(), bytes: 3, hash: "7".into() }],
    };
    let recording = Recording {
        when: "2026-11-17".into(),
        on: "here".into(),
        seconds: 1.0,
        commands: commands.clone(),
        fingerprint: fingerprint.clone(),
        cells: BTreeMap::new(),
    };
    assert_eq!(recording.stale(&commands, &fingerprint), None);
    let other: BTreeMap<String, String> = [("a".to_owned(), "compare x --codecs h264".to_owned())].into();
    assert!(recording.stale(&other, &fingerprint).unwrap().contains("command"));
    let codecs = [("h265".to_owned(), "2".to_owned())].into();
    let inputs = vec![Input { file: "x".into(), bytes: 3, hash: "8".into() }];
    for (now, why) in [
        (Fingerprint { codecs, ..fingerprint.clone() }, "h265"),
        (Fingerprint { models: Some("n".into()), ..fingerprint.clone() }, "cluster model"),
        (Fingerprint { inputs, ..fingerprint }, "x is another file"),
    ] {
        assert!(recording.stale(&commands, &now).unwrap().contains(why), "{why}");
    }
}

#[test]
fn codecs_are_told_apart_by_what_they_make_of_a_probe() {
    let (own, other) = (fingerprint("uniform+ac").unwrap(), fingerprint("rtn").unwrap());
    assert_ne!(own, other);
    assert_eq!(fingerprint("uniform+ac"), Some(own));
    assert_eq!(fingerprint("no such codec"), None);
    let commands = ["eval --weights h265@3 --kv rtn@3,trinity@3".to_owned(), "compare x --ablate".into()];
    assert_eq!(codecs_of(&commands), ["h265", "rtn", "stages", "trinity"]);
}
