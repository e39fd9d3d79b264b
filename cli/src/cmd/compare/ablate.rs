//! `trinity compare --ablate`: what each stage of H.265 is worth.

use serde::Serialize;
use serde_json::json;
use trinity_tensor::codec::ablate::{Line, ablate};
use trinity_tensor::{Class, Entry, crop};

use super::asked::{Args, entries, fixed_error, of_each, write_rows};
use crate::context::Context;
use crate::failure::Failure;
use crate::report::Report;
use crate::table::{Table, sig3};

/// One bar of one tensor; the fields are the columns of `ablate.csv`.
#[derive(Debug, Clone, Serialize)]
struct AblationRow {
    tensor: String,
    class: Class,
    /// The paper's number; none for a reference.
    step: Option<u8>,
    stage: String,
    bits_per_value: f64,
    nmse: f64,
    /// Whether the error bound holds.
    within: bool,
}

pub fn run(args: &Args, ctx: &Context) -> Result<(), Failure> {
    let entries = entries(args)?;
    let goal = fixed_error(args);
    let found = of_each(&entries, "ablating", ctx, Entry::name, |entry| {
        let lines = ablate(&crop(entry, args.sample as usize)?, goal)?;
        Ok(lines.into_iter().map(|line| row(entry, line, goal)).collect::<Vec<_>>())
    })?;
    let rows = found.concat();
    if let Some(folder) = &args.out {
        write_rows(args, folder, "ablate.csv", &rows)?;
        report(&rows, goal).write(&folder.join("report.html"))?;
        ctx.remark(format!("wrote {} and report.html", folder.join("ablate.csv").display()));
    }
    ctx.show(&rows, || table(&rows).render(ctx.colour))
}

fn row(entry: &Entry, line: Line, goal: f64) -> AblationRow {
    AblationRow {
        tensor: entry.name().to_owned(),
        class: entry.class(),
        step: line.step,
        stage: line.stage.to_owned(),
        bits_per_value: line.bits_per_value,
        nmse: line.nmse,
        within: line.within(goal),
    }
}

fn table(rows: &[AblationRow]) -> Table {
    Table::of(rows)
        .column("tensor", |row| &row.tensor)
        .column("step", |row| row.step.map_or("-".into(), |step| step.to_string()))
        .column("stage", |row| &row.stage)
        .column("bits/value", |row| format!("{:.3}", row.bits_per_value))
        .column("NMSE", |row| sig3(row.nmse))
        .column("bound", |row| if row.within { "held".into() } else { "exceeded".to_owned() })
        .end()
}

fn report(rows: &[AblationRow], goal: f64) -> Report {
    let mut report = Report::new("What each stage of H.265 is worth");
    report.paragraph(format!(
        "The paper's Figure 2(b): stages are switched on one by one; bars are bits per value at an NMSE of at most \
         {goal}. Steps 3 to 5 use one encoder with the same quantizer and entropy coder, so a difference is the \
         stage's own. Step 6, inter prediction, is `trinity compare --motion`.",
    ));
    report.paragraph(said(rows));
    let bars: Vec<_> = rows
        .iter()
        .map(|row| {
            let label = row.step.map_or(row.stage.clone(), |step| format!("({step}) {}", row.stage));
            json!({"tensor": row.tensor, "stage": label, "bits": row.bits_per_value,
                   "order": row.step.unwrap_or(u8::MAX)})
        })
        .collect();
    report.chart(
        "Bits per value at one error, by stage",
        json!({
            "data": {"values": bars},
            "width": 340,
            "mark": "bar",
            "encoding": {
                "y": {"field": "tensor", "type": "nominal", "title": null, "sort": null,
                      "axis": {"labelLimit": 260}},
                "x": {"field": "bits", "type": "quantitative", "title": "bits per value"},
                "row": {"field": "stage", "type": "nominal", "sort": {"field": "order"}, "title": null,
                        "header": {"labelAngle": 0, "labelAlign": "left", "labelOrient": "top", "labelAnchor": "start",
                                   "labelFontWeight": "bold"}},
                "tooltip": [{"field": "tensor"}, {"field": "stage"},
                            {"field": "bits", "type": "quantitative", "format": ".3f"}],
            },
        }),
    );
    report.add("Every bar", &table(rows));
    report
}

/// Where these tensors agree with the paper, and where not.
fn said(rows: &[AblationRow]) -> String {
    let bits = |tensor: &str, pick: &dyn Fn(&AblationRow) -> bool| {
        rows.iter().find(|row| row.tensor == tensor && pick(row)).map(|row| row.bits_per_value)
    };
    let mut tensors: Vec<&str> = rows.iter().map(|row| row.tensor.as_str()).collect();
    tensors.dedup();
    let count = |claim: &dyn Fn(&str) -> Option<bool>| {
        let known: Vec<bool> = tensors.iter().filter_map(|tensor| claim(tensor)).collect();
        format!("{} of {}", known.iter().filter(|&&held| held).count(), known.len())
    };
    let step = |tensor: &str, number: u8| bits(tensor, &|row| row.step == Some(number));
    let saves = |from: u8, to: u8| count(&|tensor| Some(step(tensor, to)? < step(tensor, from)?));
    let reference = |tensor: &str, text: &str| bits(tensor, &|row| row.stage.contains(text));
    format!(
        "Entropy coding saves bits on {} tensors, intra prediction on {}, partitioning on {}. The paper credits the transform with what freeing the \
         quantizer's step is worth: a uniform step with arithmetic coding and no transform needs fewer bits than \
         step 3 on {}, and fewer than step 5 on {}.",
        saves(1, 2),
        saves(3, 4),
        saves(4, 5),
        count(&|tensor| Some(reference(tensor, "no transform")? < step(tensor, 3)?)),
        count(&|tensor| Some(reference(tensor, "no transform")? < step(tensor, 5)?)),
    )
}
