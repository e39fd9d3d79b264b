//! Requests from a trace: a CSV with a line for each.
//!
//! Knows the three columns and where each was written; what is wrong is said
//! with file, line and column.

use crate::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trinity_config::{Complaint, Diagnostic, Document, Place, Source};
use trinity_sim::serving::ServingRequest;

const COLUMNS: [&str; 3] = ["arrival_s", "prompt_tokens", "output_tokens"];
/// Mistakes that are named; who has more sees the pattern.
const MOST_MISTAKES: usize = 5;
const SETTING: &str = "study.serving.trace";

/// The trace that a study names: beside the file that names it.
pub fn path(document: &Document) -> Option<PathBuf> {
    let setting = document.setting(SETTING)?;
    let name = setting.value.trim_matches('"').to_owned();
    let beside = Path::new(&setting.place.source.name);
    let folder = beside.parent().filter(|_| beside.extension().is_some_and(|ending| ending == "toml"));
    Some(folder.unwrap_or(Path::new("")).join(name))
}

/// The requests of a trace, in the order of their arrival.
pub fn read(document: &Document, path: &Path) -> Result<Vec<ServingRequest>, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let complaint = Complaint::new(format_args!("cannot read the trace `{}`: {error}", path.display()))
            .expected("a CSV of arrival_s,prompt_tokens,output_tokens")
            .help("a path is relative to the folder of the file that names it");
        document.complain(SETTING, &complaint)
    })?;
    Ok(parse(Source { name: path.display().to_string(), text })?)
}

/// The requests of a trace that is named by itself.
pub fn of_file(path: &Path) -> Result<Vec<ServingRequest>, Diagnostic> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(Source { name, text }),
        Err(error) => Err(Diagnostic::new(format!("cannot read the trace `{name}`: {error}"))
            .help(Some("a trace is a CSV of arrival_s,prompt_tokens,output_tokens"))),
    }
}

fn parse(source: Source) -> Result<Vec<ServingRequest>, Diagnostic> {
    let source = Arc::new(source);
    let wrong = |span: Range<usize>, message: String, label: &str| {
        Diagnostic::new(message).at(&Place { source: source.clone(), span }).label(label)
    };
    let mut lines = lines(&source.text);
    let (header_at, header) = lines.next().unwrap_or((0, ""));
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let mut columns = [0; 3];
    for (column, name) in columns.iter_mut().zip(COLUMNS) {
        *column = names.iter().position(|found| *found == name).ok_or_else(|| {
            let span = header_at..header_at + header.len();
            wrong(
                span,
                format!("the trace has no column `{name}`"),
                "expected arrival_s, prompt_tokens and output_tokens",
            )
        })?;
    }
    let (mut requests, mut mistakes): (Vec<ServingRequest>, Vec<Diagnostic>) = (Vec::new(), Vec::new());
    for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let cells = cells(at, line);
        let cell = |column: usize| {
            cells.get(column).cloned().ok_or_else(|| {
                wrong(
                    at..at + line.len(),
                    format!("a row of {} cells", cells.len()),
                    "expected a cell for every column",
                )
            })
        };
        let tokens = |column: usize| {
            let (span, text) = cell(column)?;
            let count = text.parse::<u32>().ok().filter(|tokens| *tokens > 0);
            count.ok_or_else(|| {
                wrong(span, format!("`{text}` is no count of tokens"), "expected a whole number from 1")
            })
        };
        let arrival = || {
            let (span, text) = cell(columns[0])?;
            let before_s = requests.last().map_or(f64::NEG_INFINITY, |request| request.arrival_s);
            match text.parse::<f64>() {
                Ok(s) if s < 0.0 => Err(wrong(
                    span,
                    format!("a request at {s} s, before the trace begins"),
                    "expected seconds from 0",
                )),
                Ok(s) if s.is_finite() && s >= before_s => Ok(s),
                Ok(s) if s.is_finite() => Err(wrong(
                    span,
                    format!("a request at {s} s after one at {before_s} s"),
                    "expected times that do not fall",
                )),
                _ => Err(wrong(span, format!("`{text}` is no time"), "expected seconds")),
            }
        };
        let request = || -> Result<ServingRequest, Diagnostic> {
            Ok(ServingRequest {
                arrival_s: arrival()?,
                prompt_tokens: tokens(columns[1])?,
                output_tokens: tokens(columns[2])?,
            })
        };
        match request() {
            Ok(request) => requests.push(request),
            Err(mistake) => mistakes.push(mistake),
        }
        if mistakes.len() >= MOST_MISTAKES {
            break;
        }
    }
    match Diagnostic::of_all(mistakes) {
        Some(mistakes) => Err(mistakes),
        None => Ok(requests),
    }
}

/// Lines without their ends, each with the byte it starts at.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        (at, line.trim_end_matches(['\n', '\r']))
    })
}

/// Cells without the blanks around them, each with its place.
fn cells(at: usize, line: &str) -> Vec<(Range<usize>, &str)> {
    let mut start = at;
    line.split(',')
        .map(|padded| {
            let cell = padded.trim();
            let lead = start + (padded.len() - padded.trim_start().len());
            start += padded.len() + 1;
            (lead..lead + cell.len(), cell)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        let source = Source { name: "trace.csv".into(), text: text.into() };
        match parse(source) {
            Ok(requests) => format!("{} requests", requests.len()),
            Err(wrong) => wrong
                .flatten()
                .iter()
                .map(|one| format!("{}: {}\n", one.place.as_ref().unwrap(), one.message))
                .collect(),
        }
    }

    #[test]
    fn columns_go_by_name_and_others_are_left_alone() {
        assert_eq!(
            said("id,prompt_tokens,arrival_s,output_tokens\r\n7, 5 ,0.5,3\r\n\r\n8,9,0.5,1\n"),
            "2 requests"
        );
    }

    #[test]
    fn every_mistake_has_its_line_and_column() {
        let text = "arrival_s,prompt_tokens,output_tokens\n0.0,5,0\n1.0,x,3\n2.0,5\nsoon,5,5\n";
        let expected = "trace.csv:2:7: `0` is no count of tokens\ntrace.csv:3:5: `x` is no count of tokens\n\
                        trace.csv:4:1: a row of 2 cells\ntrace.csv:5:1: `soon` is no time\n";
        assert_eq!(said(text), expected);
        assert!(
            said("arrival_s,prompt_tokens,output_tokens\n2,1,1\n1,1,1\n")
                .starts_with("trace.csv:3:1: a request at 1 s")
        );
        assert!(
            said("arrival_s,prompt_tokens,output_tokens\n-2,1,1\n")
                .starts_with("trace.csv:2:1: a request at -2 s, before the trace begins")
        );
        assert!(said("a,b,c\n").starts_with("trace.csv:1:1: the trace has no column `arrival_s`"));
        assert_eq!(said("arrival_s,prompt_tokens,output_tokens"), "0 requests");
    }
}
