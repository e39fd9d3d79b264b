//! What a rule of the search costs and saves: choices with it and without.

use std::time::{Duration, Instant};

use trinity_codec::{Rule, Rules};

use super::codecs::Contestant;
use super::points::{InputTensor, Point};

/// Codes every tensor at every rate with all rules and without one (or each in turn: `all`), and prints
/// a line for each rule.
pub fn leave_out(
    name: &str,
    contestants: &[Contestant],
    input_tensors: &[InputTensor],
    rates: &[f64],
) -> Result<(), String> {
    let wanted: Vec<Rule> = match name {
        "all" => Rule::ALL.iter().map(|(rule, ..)| *rule).collect(),
        name => vec![name.parse()?],
    };
    println!(
        "{:<24}{:>8}{:>9}{:>16}{:>12}{:>8}",
        "without", "choices", "changed", "bits more", "at worst", "time"
    );
    for contestant in contestants {
        let own: Vec<Rule> = wanted.iter().copied().filter(|rule| contestant.asks(*rule)).collect();
        if own.is_empty() {
            continue;
        }
        let (with_all, time) = choices(contestant, input_tensors, rates, Rules::default())?;
        for rule in own {
            let (left_out, without) = choices(contestant, input_tensors, rates, Rules::without(rule))?;
            let pairs = with_all.iter().zip(&left_out).filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
            let more: Vec<f64> = pairs.clone().map(|(with, out)| out.score() - with.score()).collect();
            let changed = pairs.filter(|(with, out)| with.plan != out.plan).count();
            let mean = more.iter().sum::<f64>() / more.len().max(1) as f64;
            let worst = more.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let ratio = without.as_secs_f64() / time.as_secs_f64();
            println!(
                "{:<24}{:>8}{changed:>9}{mean:>16.5}{worst:>12.4}{ratio:>7.2}×",
                rule.to_string(),
                more.len()
            );
        }
    }
    Ok(())
}

/// What a codec chooses by some rules, tensor by tensor and rate by rate, and how long that takes.
fn choices(
    contestant: &Contestant,
    input_tensors: &[InputTensor],
    rates: &[f64],
    rules: Rules,
) -> Result<(Vec<Option<Point>>, Duration), String> {
    let start = Instant::now();
    let mut found = Vec::new();
    for input in input_tensors {
        for &bits in rates {
            found.push(contestant.choose(input, bits, rules)?);
        }
    }
    Ok((found, start.elapsed()))
}
