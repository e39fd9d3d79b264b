//! Cells of a run's JSON: `wire[codec=h265,class=weight].area_mm2`.
//!
//! A name goes into an object, and into every object of a list. Brackets keep the
//! objects of a list whose fields are as said: `=` equal, `!=` unequal, `^=` begins
//! with, `>=` at least. Knows JSON; knows nothing of what a number means.

use super::error::Error;
use super::sample::Sample;
use serde_json::Value;

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    Name(&'a str),
    Keep(Vec<(&'a str, Test, &'a str)>),
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum Test {
    Equal,
    Unequal,
    Begins,
    AtLeast,
}

/// The numbers at a path, each with what it is of: the fields `by` of the innermost object that has them.
pub fn select(json: &Value, path: &str, by: &[String]) -> Result<Sample, Error> {
    let steps = parse(path)?;
    let mut found = Vec::new();
    walk(json, &steps, by, &vec![String::new(); by.len()], &mut found);
    if found.is_empty() {
        return Err(Error::NoCell { path: path.into() });
    }
    let mut sample = Sample::default();
    for (label, value) in found {
        sample.labels.push(label);
        sample.values.push(value);
    }
    Ok(sample)
}

fn parse(path: &str) -> Result<Vec<Step<'_>>, Error> {
    let bad = |why: &str| Error::BadPath { path: path.into(), why: why.into() };
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (conditions, behind) = inside.split_once(']').ok_or_else(|| bad("a bracket is open"))?;
            let kept = conditions.split(',').map(condition).collect::<Option<Vec<_>>>();
            steps.push(Step::Keep(kept.ok_or_else(|| bad("a condition is FIELD=VALUE, !=, ^= or >="))?));
            rest = behind;
        } else {
            let plain = rest.strip_prefix('.').unwrap_or(rest);
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            if end == 0 {
                return Err(bad("a name is empty"));
            }
            steps.push(Step::Name(&plain[..end]));
            rest = &plain[end..];
        }
    }
    Ok(steps)
}

fn condition(text: &str) -> Option<(&str, Test, &str)> {
    for (sign, test) in
        [("!=", Test::Unequal), ("^=", Test::Begins), (">=", Test::AtLeast), ("=", Test::Equal)]
    {
        if let Some((field, value)) = text.split_once(sign) {
            return (!field.is_empty()).then_some((field, test, value));
        }
    }
    None
}

/// A value as a condition states it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn passes(value: &Value, (field, test, wanted): &(&str, Test, &str)) -> bool {
    let own = value.get(field).map_or_else(|| "null".into(), text);
    let numbers = own.parse::<f64>().ok().zip(wanted.parse::<f64>().ok());
    let equal = own == *wanted || numbers.is_some_and(|(own, wanted)| own == wanted);
    match test {
        Test::Equal => equal,
        Test::Unequal => !equal,
        Test::Begins => own.starts_with(wanted),
        Test::AtLeast => numbers.is_some_and(|(own, wanted)| own >= wanted),
    }
}

fn walk(value: &Value, steps: &[Step<'_>], by: &[String], label: &[String], found: &mut Vec<(String, f64)>) {
    if let Value::Array(items) = value {
        let (tests, rest) = match steps.split_first() {
            Some((Step::Keep(tests), rest)) => (tests.as_slice(), rest),
            _ => (&[][..], steps),
        };
        for item in items.iter().filter(|item| tests.iter().all(|test| passes(item, test))) {
            walk(item, rest, by, label, found);
        }
        return;
    }
    let own = |(known, field): (&String, &String)| value.get(field).map_or_else(|| known.clone(), text);
    let label: Vec<String> = label.iter().zip(by).map(own).collect();
    match steps.split_first() {
        None => {
            let number = value.as_f64().or_else(|| value.as_bool().map(|truth| f64::from(u8::from(truth))));
            found.extend(number.map(|number| (label.join(" "), number)));
        }
        Some((Step::Name(name), rest)) => {
            if let Some(inner) = value.get(name) {
                walk(inner, rest, by, &label, found);
            }
        }
        Some((Step::Keep(tests), rest)) => {
            if tests.iter().all(|test| passes(value, test)) {
                walk(value, rest, by, &label, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_and_names_lead_to_numbers_with_labels() {
        let rows = json!({"rows": [
            {"tensor": "a", "codec": "h265", "bits": 3, "x": null},
            {"tensor": "b", "codec": "h265", "bits": 4.0},
            {"tensor": "a", "codec": "rtn", "bits": 5},
        ]});
        let by = ["tensor".to_owned()];
        let found = select(&rows, "rows[codec=h265].bits", &by).unwrap();
        assert_eq!((found.labels, found.values), (vec!["a".to_owned(), "b".into()], vec![3.0, 4.0]));
        assert_eq!(select(&rows, "rows[codec!=h265].bits", &by).unwrap().values, [5.0]);
        assert_eq!(select(&rows, "rows[codec^=h2,bits=4].bits", &by).unwrap().values, [4.0]);
        assert_eq!(select(&rows, "rows[bits>=3.5].bits", &by).unwrap().values, [4.0, 5.0]);
        assert_eq!(select(&rows, "rows[x=null,codec=rtn].bits", &[]).unwrap().values, [5.0]);
        assert!(matches!(select(&rows, "rows[codec=av1].bits", &by), Err(Error::NoCell { .. })));
        for bad in ["rows[codec", "rows[codec].bits", "rows..bits", "rows[=3]"] {
            assert!(matches!(select(&rows, bad, &by), Err(Error::BadPath { .. })), "{bad}");
        }
    }
}
