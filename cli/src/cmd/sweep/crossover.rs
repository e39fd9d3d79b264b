//! Crossovers of a sweep in the terminal and the report: which scenario wins
//! where along an axis, as a table and in words.

use super::show::significant;
use crate::report::Report;
use crate::table::Table;
use trinity_study::sweep::{Contender, Crossover, TIE};

/// Every value of the axis: each scenario's best, and who wins.
fn table(crossover: &Crossover) -> Table {
    let headers = [crossover.along.clone()]
        .into_iter()
        .chain(crossover.scenarios.iter().map(|name| format!("{name}, tokens/s")))
        .chain(["fastest".into(), "most for its mm²".into()]);
    let mut table = Table::new(headers);
    let name = |at: Option<usize>| at.and_then(|at| crossover.scenarios.get(at)).cloned().unwrap_or_default();
    for row in &crossover.rows {
        let first = row.best.first().copied().flatten();
        let cell = |one: &Option<Contender>| match (one, first) {
            (None, _) => "cannot run".into(),
            (Some(one), Some(first)) if one.tokens_per_s != first.tokens_per_s => {
                format!("{} ({:.2}×)", significant(one.tokens_per_s), one.tokens_per_s / first.tokens_per_s)
            }
            (Some(one), _) => significant(one.tokens_per_s),
        };
        let cells = [row.value.clone()].into_iter().chain(row.best.iter().map(cell));
        table.row(cells.chain([name(row.fastest), name(row.most_per_mm2)]));
    }
    table
}

/// The same in sentences.
fn words(crossover: &Crossover) -> Vec<String> {
    let mut sentences = Vec::new();
    let verdicts = [
        ("fastest", crossover.rows.iter().map(|row| row.fastest).collect::<Vec<_>>()),
        ("most tokens/s for the area it adds", crossover.rows.iter().map(|row| row.most_per_mm2).collect()),
    ];
    for (what, winners) in verdicts {
        let stretches = stretches(crossover, &winners);
        if !stretches.is_empty() {
            sentences.push(format!("{}, {what}: {}.", crossover.name, stretches.join("; ")));
        }
    }
    sentences.extend(equals(crossover));
    sentences
}

/// Neighbouring values with one winner, together.
fn stretches(crossover: &Crossover, winners: &[Option<usize>]) -> Vec<String> {
    let mut list: Vec<(usize, usize, usize)> = Vec::new();
    for (at, winner) in winners.iter().enumerate() {
        let Some(winner) = *winner else { continue };
        match list.last_mut() {
            Some((held, _, to)) if *held == winner && *to + 1 == at => *to = at,
            _ => list.push((winner, at, at)),
        }
    }
    let short = crossover.along.rsplit('.').next().unwrap_or_default();
    let value = |at: usize| crossover.rows[at].value.as_str();
    let last = crossover.rows.len().saturating_sub(1);
    list.into_iter()
        .map(|(winner, from, to)| {
            let name = &crossover.scenarios[winner];
            match (from, to) {
                (0, to) if to == last => format!("`{name}` at every {short}"),
                (from, to) if from == to => format!("`{name}` at a {short} of {}", value(from)),
                (0, to) => format!("`{name}` up to a {short} of {}", value(to)),
                (from, to) if to == last => format!("`{name}` from a {short} of {} on", value(from)),
                (from, to) => format!("`{name}` for a {short} of {} to {}", value(from), value(to)),
            }
        })
        .collect()
}

/// Of two scenarios: the least value at which the first is as fast as the
/// second is with less.
fn equals(crossover: &Crossover) -> Vec<String> {
    let [first, second] = crossover.scenarios.as_slice() else { return Vec::new() };
    let short = crossover.along.rsplit('.').next().unwrap_or_default();
    let speed = |row: usize, side: usize| crossover.rows[row].best.get(side).copied().flatten();
    let mut sentences = Vec::new();
    for at in 0..crossover.rows.len() {
        let Some(coded) = speed(at, 1) else { continue };
        let equal = (0..crossover.rows.len()).find(|&row| {
            speed(row, 0).is_some_and(|raw| raw.tokens_per_s * (1.0 + TIE) >= coded.tokens_per_s)
        });
        let value = |row: usize| &crossover.rows[row].value;
        sentences.push(match equal {
            Some(row) if row > at => format!(
                "`{second}` with a {short} of {} is as fast as `{first}` with {}.",
                value(at),
                value(row)
            ),
            Some(_) => continue,
            None => format!(
                "`{second}` with a {short} of {} is faster than `{first}` with any that was tried.",
                value(at)
            ),
        });
    }
    sentences
}

/// The terminal's part.
pub fn text(crossovers: &[Crossover], colour: bool) -> String {
    let mut text = String::new();
    for crossover in crossovers {
        text += &format!("\n{}\n{}", crossover.name, table(crossover).render(colour));
        for sentence in words(crossover) {
            text += &sentence;
            text.push('\n');
        }
    }
    text
}

/// The report's part.
pub fn section(report: &mut Report, crossovers: &[Crossover]) {
    if crossovers.is_empty() {
        return;
    }
    report.heading("Where which wins");
    for crossover in crossovers {
        for sentence in words(crossover) {
            report.paragraph(sentence);
        }
        let table = table(crossover);
        report.table(&crossover.name, table.headers(), table.rows());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trinity_study::sweep::CrossoverRow;

    fn crossover(speeds: &[[f64; 2]]) -> Crossover {
        let row = |(at, speeds): (usize, &[f64; 2])| {
            let one = |tokens_per_s: f64| Some(Contender { index: 0, tokens_per_s, area_mm2: 1.0 });
            let fastest = Some(usize::from(speeds[1] > speeds[0]));
            let best = speeds.iter().map(|speed| one(*speed)).collect();
            CrossoverRow { value: (1 << at).to_string(), best, fastest, most_per_mm2: None }
        };
        Crossover {
            name: "who".into(),
            along: "job.sequence".into(),
            scenarios: vec!["a".into(), "b".into()],
            rows: speeds.iter().enumerate().map(row).collect(),
        }
    }

    #[test]
    fn words_say_where_the_winner_changes() {
        let said = words(&crossover(&[[3.0, 1.0], [3.0, 2.0], [3.0, 4.0], [5.0, 6.0]]));
        assert_eq!(said[0], "who, fastest: `a` up to a sequence of 2; `b` from a sequence of 4 on.");
        assert!(said.contains(&"`b` with a sequence of 4 is as fast as `a` with 8.".to_owned()), "{said:?}");
        assert!(said.iter().any(|one| one.starts_with("`b` with a sequence of 8 is faster")), "{said:?}");
        let said = words(&crossover(&[[1.0, 2.0], [1.0, 2.0]]));
        assert_eq!(said[0], "who, fastest: `b` at every sequence.");
    }

    #[test]
    fn a_lead_that_the_table_calls_none_is_none_in_words() {
        let said = words(&crossover(&[[1.0, 1.0 + 0.5 * TIE]]));
        assert!(!said.iter().any(|one| one.contains("is faster than")), "{said:?}");
    }
}
