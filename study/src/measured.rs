//! How far answers like this one were from measurements.
//!
//! `trinity validate --errors FILE` writes the table beside this module: the mean
//! absolute error of rows by GPU, number format of the products, kind of model
//! and scale. An answer quotes the rows most like its question, says how like
//! they are, and says so where nothing of the kind was measured.

use crate::config::StudyFile;
use serde::Serialize;
use trinity_sim::Job;

/// Rows that share what an error depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Question {
    /// The calibration that answers, which names framework and GPU.
    pub calibration: String,
    /// Dense FP16 rate, rounded to TFLOP/s: what tells GPUs of one calibration apart.
    pub peak_tflops: u32,
    pub power_w: u32,
    /// Format of the products.
    pub math: String,
    /// `dense` or `experts`.
    pub model: String,
    /// Tensor, pipeline, context, expert and sharded data parallelism: those in use.
    pub parallelism: String,
    /// GPUs, as the power of two below.
    pub scale: u32,
}

/// A question and what its rows said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub question: Question,
    pub rows: usize,
    /// Mean absolute error, a fraction.
    pub error: f64,
}

/// The error that an answer quotes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quoted {
    /// A fraction; nothing where no run of the kind was ever measured.
    pub error: Option<f64>,
    pub rows: usize,
    /// What the rows share with the question, and what not.
    pub basis: String,
}

const TABLE: &str = include_str!("measured.csv");

/// Every question that was measured.
pub fn table() -> Vec<Measured> {
    TABLE.lines().skip(1).filter_map(row).collect()
}

fn row(line: &str) -> Option<Measured> {
    let mut fields = line.split(',');
    let mut next = || fields.next();
    Some(Measured {
        question: Question {
            calibration: next()?.to_owned(),
            peak_tflops: next()?.parse().ok()?,
            power_w: next()?.parse().ok()?,
            math: next()?.to_owned(),
            model: next()?.to_owned(),
            parallelism: next()?.to_owned(),
            scale: next()?.parse().ok()?,
        },
        rows: next()?.parse().ok()?,
        error: next()?.parse().ok()?,
    })
}

/// The table as a file, in the order of the questions.
pub fn written(rows: &[Measured]) -> String {
    let mut text = String::from("calibration,peak_tflops,power_w,math,model,parallelism,scale,rows,error\n");
    for Measured { question: q, rows, error } in rows {
        text += &format!(
            "{},{},{},{},{},{},{},{rows},{error:.4}\n",
            q.calibration, q.peak_tflops, q.power_w, q.math, q.model, q.parallelism, q.scale
        );
    }
    text
}

impl Question {
    /// What a study asks; nothing where no calibration answers.
    pub fn of(file: &StudyFile, job: &Job) -> Option<Self> {
        let calibration = file.calibration()?.to_owned();
        let p = &job.parallelism;
        let used = [
            ("tp", p.tensor > 1),
            ("pp", p.pipeline > 1),
            ("cp", p.context > 1),
            ("ep", p.expert > 1),
            ("fsdp", p.zero == trinity_sim::Zero::Parameters),
        ];
        let used: Vec<&str> = used.into_iter().filter(|(_, used)| *used).map(|(name, _)| name).collect();
        let gpus = p.gpus().max(1);
        Some(Self {
            calibration,
            peak_tflops: file.cluster.gpu.fp16.map_or(0, |rate| (rate.flop_per_s() / 1e12).round() as u32),
            power_w: file.cluster.gpu.power.w().round() as u32,
            math: job.precision.math.name().to_owned(),
            model: if job.llm.moe.is_some() { "experts" } else { "dense" }.to_owned(),
            parallelism: if used.is_empty() { "dp".to_owned() } else { used.join("+") },
            scale: 1 << gpus.ilog2().min(30),
        })
    }

    fn same_gpu(&self, other: &Self) -> bool {
        self.peak_tflops == other.peak_tflops && self.power_w == other.power_w
    }
}

/// A likeness: what rows share with a question, in words, and how to tell.
type Likeness = (&'static str, fn(&Question, &Question) -> bool);

/// Likenesses, nearest first: each asks for less than the one before.
const NEAREST: [Likeness; 5] = [
    ("this GPU, number format, kind of model, parallelism and scale", |a, b| {
        a.same_gpu(b)
            && a.math == b.math
            && a.model == b.model
            && a.parallelism == b.parallelism
            && a.scale.max(b.scale) <= 4 * a.scale.min(b.scale)
    }),
    ("this GPU, number format and kind of model", |a, b| {
        a.same_gpu(b) && a.math == b.math && a.model == b.model
    }),
    ("this GPU and kind of model, in another number format", |a, b| a.same_gpu(b) && a.model == b.model),
    ("this kind of model and number format, on other GPUs of the calibration", |a, b| {
        a.math == b.math && a.model == b.model
    }),
    ("this calibration alone", |_, _| true),
];

/// The error of the rows most like `question`.
pub fn quote(question: Option<&Question>) -> Quoted {
    let table = table();
    let Some(question) = question else {
        return elsewhere(&table);
    };
    let own: Vec<&Measured> =
        table.iter().filter(|row| row.question.calibration == question.calibration).collect();
    for (words, like) in NEAREST {
        let near: Vec<&&Measured> = own.iter().filter(|row| like(question, &row.question)).collect();
        let rows: usize = near.iter().map(|row| row.rows).sum();
        if rows == 0 {
            continue;
        }
        let error = near.iter().map(|row| row.error * row.rows as f64).sum::<f64>() / rows as f64;
        let shared =
            if words == NEAREST[0].0 { "measured runs of" } else { "measured runs, the nearest, share" };
        return Quoted { error: Some(error), rows, basis: format!("{rows} {shared} {words}") };
    }
    elsewhere(&table)
}

/// What is known where no run like the question was measured: the error on GPUs
/// that constants were fitted for, which the question's were not.
fn elsewhere(table: &[Measured]) -> Quoted {
    let rows: usize = table.iter().map(|row| row.rows).sum();
    let sum: f64 = table.iter().map(|row| row.error * row.rows as f64).sum();
    Quoted {
        error: (rows > 0).then(|| sum / rows as f64),
        rows: 0,
        basis: format!(
            "no run like it was measured; the nearest are {rows} training runs on GPUs with a calibration"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b200(math: &str, scale: u32) -> Question {
        Question {
            calibration: "megatron".to_owned(),
            peak_tflops: 2250,
            power_w: 1000,
            math: math.to_owned(),
            model: "dense".to_owned(),
            parallelism: "dp".to_owned(),
            scale,
        }
    }

    #[test]
    fn the_table_is_read_as_it_was_written() {
        assert_eq!(written(&table()), TABLE);
        assert!(table().len() > 20);
    }

    #[test]
    fn a_b200_is_not_quoted_the_error_of_an_a100() {
        let near = quote(Some(&b200("fp8", 8)));
        let a100 = quote(Some(&Question {
            calibration: "a100".to_owned(),
            peak_tflops: 312,
            power_w: 400,
            math: "fp16".to_owned(),
            ..b200("fp16", 8)
        }));
        assert!(near.error.is_some() && near.error != a100.error, "{near:?} {a100:?}");
        assert!(
            near.basis.starts_with(&format!("{} measured runs of this GPU", near.rows)),
            "{}",
            near.basis
        );
    }

    #[test]
    fn what_was_never_measured_says_so_or_names_the_nearest() {
        let far = quote(Some(&Question { power_w: 123, ..b200("fp8", 8) }));
        assert!(far.basis.contains("nearest") && far.basis.contains("other GPUs"), "{}", far.basis);
        let none = quote(None);
        assert!(none.rows == 0 && none.basis.starts_with("no run like it was measured"));
    }
}
