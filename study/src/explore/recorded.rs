//! Bits at which training was seen to work: the recorded runs, by what codes and
//! by what is coded.
//!
//! The error of a tensor says little of what a model learns from it. A recorded
//! run says that at so many bits it learned as much, so what replicas and stages
//! send takes the bits of runs; what no run coded is sent as it is. Knows runs
//! and coders; nothing of clusters.

use crate::Error;
use crate::trained::{self, RECORDING, UNCODED_BITS};
use serde::Serialize;
use trinity_tensor::Class;

/// A recipe may lose a hundredth, which the recorded pipelines aimed at, or what its seeds
/// cannot tell from nothing. What it lost is charged as time either way.
pub const MOST_LOST: f64 = 0.01;

/// The bits of one class of a training job by one coder, and the run that has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trained {
    pub class: Class,
    pub coder: String,
    /// Nothing where the class is sent as it is.
    pub bits_per_value: Option<f64>,
    /// The recorded recipe; of a class that is sent as it is, the one that came nearest.
    pub run: Option<String>,
    /// Relative loss over the uncoded run of the same seed: mean, half of its 95 % interval.
    pub lost: Option<f64>,
    pub interval: Option<f64>,
    /// Runs of the recipe, over sizes of model and seeds.
    pub runs: usize,
    /// Where the run is, or why there is none.
    pub source: String,
    #[serde(skip)]
    pub(super) charge: Option<Lost>,
}

/// Relative loss over the uncoded run of the same seed: mean and standard
/// deviation over runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lost {
    pub mean: f64,
    pub deviation: f64,
    pub seeds: usize,
}

impl Lost {
    /// Of so many runs; one of them does not deviate.
    pub(super) fn of(losses: &[f64]) -> Self {
        let seeds = losses.len();
        let mean = losses.iter().sum::<f64>() / seeds.max(1) as f64;
        let squares: f64 = losses.iter().map(|lost| (lost - mean).powi(2)).sum();
        Self { mean, deviation: (squares / (seeds.max(2) - 1) as f64).sqrt(), seeds }
    }
}

/// What is asked of a recipe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Every rank holds AdamW's second moment, over whose root gradients are coded best.
    pub holds_moment: bool,
    /// Bits per byte that a model may lose.
    pub loss: f64,
}

/// What the recorded runs say of these coders and classes.
pub(super) fn trained(coders: &[&str], classes: &[Class], asked: Asked) -> Result<Vec<Trained>, Error> {
    let recording = Recording::read()?;
    let mut all = Vec::new();
    for &coder in coders {
        for &class in classes {
            all.push(recording.of(coder, class, asked));
        }
    }
    Ok(all)
}

/// Why a coder has nothing to do in training: every class is sent as it is.
pub(super) fn idle(trained: &[Trained], coder: &str) -> Option<String> {
    let mut own = trained.iter().filter(|one| one.coder == coder).peekable();
    own.peek()?;
    if own.clone().any(|one| one.bits_per_value.is_some()) {
        return None;
    }
    let reasons: Vec<String> = own.map(|one| format!("{}: {}", one.class, one.source)).collect();
    Some(format!("nothing to code that a recorded training run stood ({})", reasons.join("; ")))
}

/// Runs of one recipe on one size of model.
#[derive(Debug, Clone)]
struct Family {
    recipe: String,
    size: String,
    method: String,
    gradient_bits: f64,
    activation_bits: f64,
    activation_gradient_bits: f64,
    losses: Vec<f64>,
    /// Bits per byte of the uncoded runs.
    uncoded: f64,
}

/// 97.5 % points of Student's distribution for one to five degrees of freedom.
const STUDENT: [f64; 5] = [12.706, 4.303, 3.182, 2.776, 2.571];
/// The same of the normal distribution, for one run beside the spread of others.
const NORMAL: f64 = 1.96;

impl Family {
    fn mean(&self) -> f64 {
        Lost::of(&self.losses).mean
    }

    /// The standard deviation over seeds; nothing of one run.
    fn deviation(&self) -> Option<f64> {
        (self.losses.len() > 1).then(|| Lost::of(&self.losses).deviation)
    }

    /// Whether gradients are coded over the root of the second moment.
    fn needs_moment(&self) -> bool {
        self.recipe.split('-').any(|part| part == "v")
    }

    /// Whether it is bits and a scale alone: error feedback, slower moments and other exchanges
    /// were tried in one run each.
    fn is_plain(&self) -> bool {
        self.recipe.split('-').skip(1).all(|part| part == "v" || part.parse::<f64>().is_ok())
    }

    fn is_pipeline(&self) -> bool {
        self.recipe.starts_with("pp-")
    }
}

struct Recording {
    families: Vec<Family>,
}

impl Recording {
    fn read() -> Result<Self, Error> {
        let runs = trained::recorded()?;
        let mut families: Vec<Family> = Vec::new();
        for run in &runs {
            let (size, recipe) = parts(&run.name);
            // Pipelines of video codecs have a model and a baseline of their own, and fast presets are other encoders.
            let other = ["timing", "tune", "lr", "ppv-"].iter().any(|own| recipe.starts_with(own));
            if other || recipe.contains("-fast-") {
                continue;
            }
            let pipeline = recipe.starts_with("pp-");
            let plain = format!("{size}{}", if pipeline { "pp-none" } else { "none" });
            let Some(uncoded) = runs.iter().find(|one| one.name == plain && one.seed == run.seed) else {
                continue;
            };
            let lost = run.bits_per_byte / uncoded.bits_per_byte - 1.0;
            let known = families.iter_mut().find(|one| one.recipe == recipe && one.size == size);
            match known {
                Some(family) => family.losses.push(lost),
                None => families.push(Family {
                    recipe: recipe.to_owned(),
                    size: size.to_owned(),
                    method: run.method.clone().unwrap_or_default(),
                    gradient_bits: run.weight_gradient_bits.unwrap_or(UNCODED_BITS),
                    activation_bits: run.activation_bits.unwrap_or(UNCODED_BITS),
                    activation_gradient_bits: run.activation_gradient_bits.unwrap_or(UNCODED_BITS),
                    losses: vec![lost],
                    uncoded: uncoded.bits_per_byte,
                }),
            }
        }
        Ok(Self { families })
    }

    /// Half the 95 % interval of a family's mean; of one run, of what runs of that size differ by.
    fn interval(&self, family: &Family) -> f64 {
        match family.deviation() {
            Some(deviation) => {
                let count = family.losses.len();
                STUDENT[(count - 2).min(STUDENT.len() - 1)] * deviation / (count as f64).sqrt()
            }
            None => NORMAL * self.widest(&family.size),
        }
    }

    /// The widest spread over seeds among recipes of a size.
    fn widest(&self, size: &str) -> f64 {
        let own = self.families.iter().filter(|one| one.size == size);
        own.filter_map(Family::deviation).fold(0.0, f64::max)
    }

    /// The families of each recipe that a coder could follow for a class.
    fn recipes(&self, coder: &str, class: Class, asked: Asked) -> Vec<Vec<&Family>> {
        let Some(method) = method_of(coder) else { return Vec::new() };
        let fits = |family: &&Family| match class {
            Class::WeightGradient => {
                !family.is_pipeline()
                    && family.is_plain()
                    && family.method == method
                    && family.gradient_bits < UNCODED_BITS
                    && (asked.holds_moment || !family.needs_moment())
            }
            // Boundaries were coded by the line-rate codec; these took another for gradients.
            Class::Activation | Class::ActivationGradient => {
                let other = ["rtn8", "residual"].iter().any(|own| family.recipe.ends_with(own));
                family.is_pipeline()
                    && method == "trinity"
                    && !other
                    && family.activation_bits < UNCODED_BITS
                    && family.activation_gradient_bits < UNCODED_BITS
            }
            _ => false,
        };
        let mut recipes: Vec<Vec<&Family>> = Vec::new();
        for family in self.families.iter().filter(fits) {
            match recipes.iter_mut().find(|own| own[0].recipe == family.recipe) {
                Some(own) => own.push(family),
                None => recipes.push(vec![family]),
            }
        }
        recipes
    }

    fn of(&self, coder: &str, class: Class, asked: Asked) -> Trained {
        let mut recipes = self.recipes(coder, class, asked);
        // Both ends of a boundary take one recipe; fewest bits first, then least lost.
        let bits = |own: &[&Family]| match class {
            Class::WeightGradient => own[0].gradient_bits,
            _ => own[0].activation_bits + own[0].activation_gradient_bits,
        };
        // Recipes of the same bits differ by a rounding of rates.
        let key = |own: &[&Family]| (bits(own) * 10.0).round();
        recipes.sort_by(|a, b| key(a).total_cmp(&key(b)).then(pooled(a).mean.total_cmp(&pooled(b).mean)));
        let stood = |own: &&Vec<&Family>| {
            own.iter().all(|family| {
                let allowed = MOST_LOST.max(asked.loss / family.uncoded);
                family.mean() <= allowed.max(self.interval(family))
            })
        };
        if let Some(own) = recipes.iter().find(stood) {
            return self.row(coder, class, own, asked, true);
        }
        let nearest = recipes.iter().min_by(|a, b| pooled(a).mean.total_cmp(&pooled(b).mean));
        match nearest {
            Some(own) => self.row(coder, class, own, asked, false),
            None => Trained {
                class,
                coder: coder.to_owned(),
                bits_per_value: None,
                run: None,
                lost: None,
                interval: None,
                runs: 0,
                source: "no recorded run codes it".into(),
                charge: None,
            },
        }
    }

    fn row(&self, coder: &str, class: Class, own: &[&Family], asked: Asked, stood: bool) -> Trained {
        // What is quoted is the size on which most was lost.
        let worst = own.iter().max_by(|a, b| a.mean().total_cmp(&b.mean())).unwrap_or(&own[0]);
        let bits = match class {
            Class::WeightGradient => own[0].gradient_bits,
            Class::Activation => own[0].activation_bits,
            _ => own[0].activation_gradient_bits,
        };
        let pool = pooled(own);
        let named = format!("{}{}", worst.size, worst.recipe);
        let lost = format!("{:+.1} ± {:.1} %", worst.mean() * 100.0, self.interval(worst) * 100.0);
        let source = if stood {
            format!("{RECORDING}, run {named}: {lost}")
        } else {
            format!("run {named} of {RECORDING}, at {bits:.2} bits, lost {lost}")
        };
        // What the asker may lose need not be made up for.
        let pardoned = asked.loss / worst.uncoded;
        let deviation = if pool.seeds > 1 { pool.deviation } else { self.widest(&worst.size) };
        Trained {
            class,
            coder: coder.to_owned(),
            bits_per_value: stood.then_some(bits),
            run: Some(named),
            lost: Some(worst.mean()),
            interval: Some(self.interval(worst)),
            runs: pool.seeds,
            source,
            charge: stood.then_some(Lost { mean: pool.mean - pardoned, deviation, seeds: pool.seeds }),
        }
    }
}

/// Losses of all runs of a recipe.
fn pooled(own: &[&Family]) -> Lost {
    let all: Vec<f64> = own.iter().flat_map(|family| family.losses.iter().copied()).collect();
    Lost::of(&all)
}

/// A run's name as size, with the hyphen, and recipe: `2.7M-t1.4-v`; 13 M parameters go without.
fn parts(name: &str) -> (&str, &str) {
    let Some((size, _)) = name.split_once('-') else { return ("", name) };
    match size.strip_suffix('M').is_some_and(|number| number.parse::<f64>().is_ok()) {
        true => name.split_at(size.len() + 1),
        false => ("", name),
    }
}

/// What coded gradients in runs that speak for a coder.
fn method_of(coder: &str) -> Option<&'static str> {
    match coder {
        "h264" => Some("h264"),
        "h265" => Some("h265"),
        // Profiles are chains of the same stages.
        own if own.starts_with("trinity") || own.starts_with("line") || own.ends_with(".toml") => {
            Some("trinity")
        }
        own if own.starts_with("rtn") => Some("rtn"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Asked = Asked { holds_moment: false, loss: 0.0 };
    const WITH_MOMENT: Asked = Asked { holds_moment: true, loss: 0.0 };

    fn of(coder: &str, class: Class, asked: Asked) -> Trained {
        Recording::read().unwrap().of(coder, class, asked)
    }

    #[test]
    fn gradients_take_the_fewest_bits_that_lost_nothing_on_any_size() {
        // docs/training.md: 0.8 bits train 13 M parameters as well (+0.22 ± 1.13 %) and lose 5 % of 85 M.
        let own = of("line-rtl", Class::WeightGradient, WITH_MOMENT);
        assert_eq!(own.run.as_deref(), Some("85M-t1.4-v"), "{own:?}");
        assert!((own.bits_per_value.unwrap() - 1.4).abs() < 0.01 && own.runs == 8, "{own:?}");
        // Ranks that share the optimizer's state have no second moment of all gradients.
        let shared = of("line-rtl", Class::WeightGradient, PLAIN);
        assert_eq!(shared.run.as_deref(), Some("t2.6"), "{shared:?}");
        assert!((shared.bits_per_value.unwrap() - 2.6).abs() < 0.01, "{shared:?}");
        assert!(
            shared.charge.unwrap().deviation > 0.0,
            "one run says nothing of how runs differ: {shared:?}"
        );
    }

    #[test]
    fn a_coder_whose_runs_lost_is_out_and_says_what_was_lost() {
        for coder in ["h264", "h265"] {
            let own = of(coder, Class::WeightGradient, PLAIN);
            assert_eq!(own.bits_per_value, None, "{own:?}");
            assert!(own.source.contains("lost +") && own.lost.unwrap() > MOST_LOST, "{own:?}");
            let over = of(coder, Class::WeightGradient, WITH_MOMENT);
            assert!((over.bits_per_value.unwrap() - 2.59).abs() < 0.01, "{over:?}");
        }
        let classes = [Class::Weight, Class::WeightGradient, Class::Activation];
        let rows = trained(&["h264", "line-rtl"], &classes, PLAIN).unwrap();
        let why = idle(&rows, "h264").unwrap();
        assert!(why.contains("weight: no recorded run codes it") && why.contains("2.7M-h264-1.4"), "{why}");
        assert_eq!(idle(&rows, "line-rtl"), None);
    }

    #[test]
    fn pipelines_take_the_recipe_that_lost_least_at_its_bits() {
        // docs/training.md: +0.93 ± 0.45 % over six seeds.
        let own = of("line-fast", Class::ActivationGradient, PLAIN);
        assert_eq!(own.run.as_deref(), Some("pp-a3-g5-basis-rows"), "{own:?}");
        assert!((own.lost.unwrap() - 0.0093).abs() < 5e-4 && (own.interval.unwrap() - 0.0045).abs() < 5e-4);
        assert!((own.bits_per_value.unwrap() - 4.97).abs() < 0.01 && own.runs == 6, "{own:?}");
        let same = of("line-fast", Class::Activation, PLAIN);
        assert_eq!((same.run, same.charge), (own.run, own.charge));
        assert_eq!(of("h265", Class::Activation, PLAIN).run, None, "no pipeline was coded by video codecs");
        assert_eq!(of("line-fast", Class::Weight, WITH_MOMENT).bits_per_value, None);
    }

    #[test]
    fn a_loss_that_is_allowed_takes_fewer_bits_and_is_not_charged() {
        let strict = of("line-rtl", Class::WeightGradient, WITH_MOMENT);
        let loose = of("line-rtl", Class::WeightGradient, Asked { loss: 0.2, ..WITH_MOMENT });
        assert!(loose.bits_per_value < strict.bits_per_value, "{loose:?}");
        assert!(loose.charge.unwrap().mean < loose.lost.unwrap(), "{loose:?}");
    }

    #[test]
    fn names_are_size_and_recipe() {
        assert_eq!(parts("2.7M-t1.4-v"), ("2.7M-", "t1.4-v"));
        assert_eq!(parts("pp-a3-basis"), ("", "pp-a3-basis"));
        assert_eq!(parts("none"), ("", "none"));
    }
}
