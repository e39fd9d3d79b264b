//! How far answers like this one were from measurements.
//!
//! `trinity validate --errors FILE` writes the table beside this module: the mean
//! absolute error of rows by GPU, number format of the products, kind of model
//! and scale, once with the constants as they are and once with constants that
//! were fitted without the rows' model, or without their GPU. A question is about
//! a model that no fit saw, so an answer quotes the error on rows whose model was
//! left out, and where its GPU was not measured either, that with the GPU left
//! out. It takes the rows most like its question, says how like they are, and
//! says so where nothing of the kind was measured.

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
    /// Mean absolute error, a fraction, with constants that saw the rows.
    pub error: f64,
    /// The error with constants that were fitted without the rows' models.
    pub model_left_out: f64,
    /// With constants that were fitted without the rows' GPU, or, of a calibration that knows one GPU,
    /// without the rows' source.
    pub gpu_left_out: f64,
}

/// The error that an answer quotes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quoted {
    /// On rows that the constants had not seen, a fraction; nothing where no run of the kind was ever
    /// measured.
    pub error: Option<f64>,
    /// On the same rows with the constants as they are, which were fitted with them.
    pub fitted_error: Option<f64>,
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
        model_left_out: next()?.parse().ok()?,
        gpu_left_out: next()?.parse().ok()?,
    })
}

/// The table as a file, in the order of the questions.
pub fn written(rows: &[Measured]) -> String {
    let mut text = String::from(
        "calibration,peak_tflops,power_w,math,model,parallelism,scale,rows,error,model_left_out,gpu_left_out\n",
    );
    for Measured { question: q, rows, error, model_left_out, gpu_left_out } in rows {
        text += &format!(
            "{},{},{},{},{},{},{},{rows},{error:.4},{model_left_out:.4},{gpu_left_out:.4}\n",
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

/// Likenesses, nearest first: each asks for less than the one before. The first [`THIS_GPU`] are on
/// the GPU of the question.
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

/// Likenesses that ask for the same GPU.
const THIS_GPU: usize = 3;

/// A mean over rows of what each kind of them has.
fn mean(rows: &[&Measured], of: impl Fn(&Measured) -> f64) -> Option<f64> {
    let count: usize = rows.iter().map(|row| row.rows).sum();
    let sum: f64 = rows.iter().map(|row| of(row) * row.rows as f64).sum();
    (count > 0).then(|| sum / count as f64)
}

/// The error of the rows most like `question`, by constants that had not seen them.
pub fn quote(question: Option<&Question>) -> Quoted {
    let table = table();
    let Some(question) = question else {
        return elsewhere(&table);
    };
    let own: Vec<&Measured> =
        table.iter().filter(|row| row.question.calibration == question.calibration).collect();
    for (at, (words, like)) in NEAREST.into_iter().enumerate() {
        let near: Vec<&Measured> = own.iter().copied().filter(|row| like(question, &row.question)).collect();
        let rows: usize = near.iter().map(|row| row.rows).sum();
        if rows == 0 {
            continue;
        }
        let (left_out, without): (fn(&Measured) -> f64, &str) = match at < THIS_GPU {
            true => (|row| row.model_left_out, "its model"),
            false => (|row| row.gpu_left_out, "its GPU or source"),
        };
        let shared =
            if at == 0 { "measured runs of" } else { "measured runs, the nearest there are: they share" };
        return Quoted {
            error: mean(&near, left_out),
            fitted_error: mean(&near, |row| row.error),
            rows,
            basis: format!("{rows} {shared} {words}, each by constants fitted without {without}"),
        };
    }
    elsewhere(&table)
}

/// What is known where no run like the question was measured: the error on GPUs
/// that constants were fitted for, which the question's were not.
fn elsewhere(table: &[Measured]) -> Quoted {
    let rows: usize = table.iter().map(|row| row.rows).sum();
    let all: Vec<&Measured> = table.iter().collect();
    Quoted {
        error: mean(&all, |row| row.gpu_left_out),
        fitted_error: mean(&all, |row| row.error),
        rows: 0,
        basis: format!(
            "no run like it was measured; the nearest are {rows} training runs on GPUs with a calibration, each by \
             constants fitted without its GPU or source"
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
    fn what_is_quoted_is_the_error_on_rows_that_the_constants_had_not_seen() {
        let table = table();
        let of = |pick: fn(&Measured) -> f64| mean(&table.iter().collect::<Vec<_>>(), pick).unwrap();
        // Constants that saw a row are nearer to it than constants that did not.
        assert!(of(|row| row.model_left_out) > of(|row| row.error));
        assert!(of(|row| row.gpu_left_out) > of(|row| row.error));
        let near = quote(Some(&b200("fp8", 8)));
        let own = table.iter().filter(|row| NEAREST[0].1(&b200("fp8", 8), &row.question));
        let own: Vec<&Measured> = own.filter(|row| row.question.calibration == "megatron").collect();
        assert_eq!(near.error, mean(&own, |row| row.model_left_out));
        assert_eq!(near.fitted_error, mean(&own, |row| row.error));
        assert!(near.basis.ends_with("each by constants fitted without its model"), "{}", near.basis);
        let other = quote(Some(&Question { power_w: 123, ..b200("fp8", 8) }));
        assert!(other.basis.ends_with("without its GPU or source"), "{}", other.basis);
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
