//! Weights through a codec before a run: what each is coded as, and at how many
//! bits, where a text tells; and quantizers that stand as published.

use crate::accumulator::Accumulator;
pub use crate::accumulator::CodedWeights;
use crate::cache::CacheTurns;
use crate::cache_choice::ChosenWays;
use crate::cache_moments::{CacheMoments, Keys};
use crate::calibrate::{Moments, damped};
use crate::cholesky::Factor;
use crate::coding::Coding;
use crate::keeper::{Fate, Keeper};
use crate::model::{Part, Workspace};
use crate::nearby::Nearby;
use crate::principal::{CacheBases, Changed};
use crate::probe::{disturb, disturb_table};
use crate::progressive::Task;
use crate::{Error, Hooks, Model, NoHooks, Reference, Text, Weight, progressive, score_against};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use trinity_tensor::allocate::{Allocation, Curve, allocate};

/// Bits at whose error a weight's divergence is measured: coarse enough to stand out,
/// fine enough to leave the model one.
const PROBE_BITS: f64 = 3.0;
/// A weight that seems to cost nothing still gets this share of the average.
const LEAST_SHARE: f64 = 0.05;

/// Codes every linear weight of `model` at the coding's bits: for quantizers that
/// stand as published, embedding and head as they are.
pub fn code_weights(model: &mut Model, coding: &Coding) -> Result<CodedWeights, Error> {
    put(model, |weight| coding.code(weight, coding.bits(), None))
}

/// A text that tells what errors in a model's weights cost it.
#[derive(Debug)]
pub struct Calibrator {
    text: Text,
    /// Of the model as it is, over the whole text and over a part that is enough to probe with, once somebody asked.
    moments: OnceLock<Moments>,
    probing: OnceLock<Moments>,
    /// What each weight costs alone, once somebody asked.
    divergences: OnceLock<Vec<f64>>,
    /// What changes of K and V may pay, for keys after rotary positions and before.
    caches: [OnceLock<CacheChanges>; 2],
    /// For quantizers that stand as published, of all of the text.
    bases: OnceLock<CacheBases>,
}

/// Changes of K and V that may pay.
#[derive(Debug)]
struct CacheChanges {
    turns: CacheTurns,
    bases: CacheBases,
    /// Of K and V that are turned already.
    turned_bases: CacheBases,
}

/// Tokens at the start of windows, and windows, that divergences are taken of:
/// each half of a layer takes a run over all of them.
const PROBE_TOKENS: usize = 256;
const PROBE_WINDOWS: usize = 2;
/// Windows over which it is seen what weights read that are probed: what each costs is then measured, not foretold.
const SEEN_WINDOWS: usize = 8;
/// Windows at the end of a text, and tokens of each, on which it is tried what changes of a cache pay: two blocks
/// that are coded together in each.
const TRIED_WINDOWS: usize = 2;
const TRIED_TOKENS: usize = 512;
/// Bits per value from which on divergences are trusted as they are when bits are moved. The
/// coarser a code, the more of what a weight alone costs do layers after it make good, and
/// the less do costs add up: trust falls with the bits.
const TRUSTED_BITS: f64 = 4.0;

impl Calibrator {
    /// By a text; the model is run over it when somebody asks what it says.
    pub fn new(text: Text) -> Self {
        let (moments, probing, divergences, caches, bases) = Default::default();
        Self { text, moments, probing, divergences, caches, bases }
    }

    /// Second moments of what the layers of the model as it is read over the whole text.
    fn moments(&self, model: &Model) -> Result<&Moments, Error> {
        once(&self.moments, || Moments::measure(model, &self.text))
    }

    /// Principal components of K and V across heads.
    pub fn cache_bases(&self, model: &Model, sink: usize) -> Result<&CacheBases, Error> {
        once(&self.bases, || {
            let moments = CacheMoments::measure(model, &self.text, Keys::BeforeRotary, sink)?;
            Ok(CacheBases::new(&moments, None))
        })
    }

    /// Hooks that turn K and V before `hooks`, or put them into a basis across heads, or both, where that leaves
    /// attention nearer to what it was; `sink` tokens at the beginning stay as they are.
    pub fn cache<'h>(
        &'h self,
        model: &Model,
        hooks: &'h dyn Hooks,
        sink: usize,
    ) -> Result<ChosenWays<Changed<'h>>, Error> {
        let (learned, tried) = self.text.held_out(TRIED_WINDOWS, TRIED_TOKENS);
        let keys = if hooks.before_rotary() { Keys::BeforeRotary } else { Keys::AfterRotary };
        let CacheChanges { turns, bases, turned_bases } =
            once(&self.caches[usize::from(hooks.before_rotary())], || {
                let moments = CacheMoments::measure(model, &learned, keys, sink)?;
                let turns = CacheTurns::new(&moments);
                let (bases, turned_bases) =
                    (CacheBases::new(&moments, None), CacheBases::new(&moments, Some(&turns)));
                Ok(CacheChanges { turns, bases, turned_bases })
            })?;
        let ways =
            [(None, None), (Some(turns), None), (None, Some(bases)), (Some(turns), Some(turned_bases))];
        let ways = ways.map(|(turns, bases)| Changed { hooks, turns, bases });
        ChosenWays::measure(model, &tried, ways.into())
    }

    /// The KL divergence from the model as it is that each weight ([`of_half`]), and then each
    /// table, causes when it errs as if it were coded at [`PROBE_BITS`].
    fn divergences(&self, model: &Model) -> Result<Vec<f64>, Error> {
        let text = self.text.beginnings(PROBE_WINDOWS, PROBE_TOKENS);
        let nearby = Nearby::measure(model, &text)?;
        let seen = self.text.beginnings(SEEN_WINDOWS, PROBE_TOKENS);
        let moments = once(&self.probing, || Moments::measure(model, &seen))?;
        let layers = 0..model.config().num_hidden_layers;
        let halves: Vec<(usize, [Part; 2])> =
            layers.flat_map(|n| Part::HALVES.map(|half| (n, half))).collect();
        // A copy of the model for each thread, which takes the next half that nobody has.
        let next = AtomicUsize::new(0);
        let dealt = |_: usize| {
            let (mut copy, mut work) = (model.clone(), model.workspace(PROBE_TOKENS));
            let own = std::iter::from_fn(|| halves.get(next.fetch_add(1, Ordering::Relaxed)));
            own.map(|&(n, half)| of_half(model, &mut copy, (n, half), (&nearby, moments), &mut work))
                .collect::<Result<Vec<_>, Error>>()
        };
        let of_parts: Vec<Vec<Vec<(String, f64)>>> =
            (0..rayon::current_num_threads()).into_par_iter().map(dealt).collect::<Result<_, Error>>()?;
        let by_name: BTreeMap<String, f64> = of_parts.into_iter().flatten().flatten().collect();
        let of = |weight: &Weight| by_name.get(&weight.name).copied().unwrap_or(0.0);
        let mut measured: Vec<f64> = model.weights().iter().map(of).collect();
        measured.extend(table_divergences(model, &text)?);
        Ok(measured)
    }

    /// The bits of each weight that shares the budget at which the next bit saves as much divergence
    /// everywhere, `coding`'s on average.
    fn budgets(
        &self,
        model: &Model,
        coding: &Coding,
        keeper: &dyn Keeper,
    ) -> Result<BTreeMap<String, f64>, Error> {
        let mut weights = model.weights();
        let linear = weights.len();
        weights.extend(model.tables());
        let divergences = once(&self.divergences, || self.divergences(model))?;
        let shares = |weight: &Weight| matches!(keeper.fate(&weight.name), Fate::Shares(_));
        let all = weights.into_iter().enumerate().filter(|(_, weight)| shares(weight));
        let shared: Vec<(Weight, f64, bool)> =
            all.map(|(at, weight)| (weight, divergences[at], at < linear)).collect();
        let mean = shared.iter().map(|own| own.1).sum::<f64>() / shared.len().max(1) as f64;
        let least = (LEAST_SHARE * mean).max(f64::MIN_POSITIVE);
        let trust = (coding.bits() / TRUSTED_BITS).min(1.0);
        let curve = |(weight, divergence, is_linear): &(Weight, f64, bool)| Curve {
            values: weight.values.len(),
            weight: (divergence.max(least) / weight.values.len().max(1) as f64).powf(trust),
            layer: 0.0,
            points: vec![(coding.bits(), 1.0)],
            // No table is coarser than the file: what one loses no layer makes good (docs/language_models.md).
            floor_bits: if *is_linear { Curve::LEAST_BITS } else { coding.bits() },
        };
        let curves: Vec<Curve> = shared.iter().map(curve).collect();
        let budgets = allocate(&curves, coding.bits(), Allocation::EqualSlope);
        Ok(shared.into_iter().map(|(weight, ..)| weight.name).zip(budgets).collect())
    }
}

/// What a cell holds, made now where nothing is in it yet.
fn once<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    if let Some(known) = cell.get() {
        return Ok(known);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// What each weight of half a layer costs: what all of them do to the predictions together, shared out by how far each
/// alone moves the residual stream behind that half. `copy` is the model, and is so again.
fn of_half(
    model: &Model,
    copy: &mut Model,
    (n, half): (usize, [Part; 2]),
    (nearby, moments): (&Nearby, &Moments),
    work: &mut Workspace,
) -> Result<Vec<(String, f64)>, Error> {
    let own = nearby.half(model, n, half[1], work)?;
    let (mut disturbed, mut moved) = (Vec::new(), Vec::new());
    for part in half {
        let factor = moments.of_part(n, part).and_then(|known| Factor::new(damped(known)));
        for weight in model.part_weights(n, part) {
            let mut other = weight.clone();
            // Errors of one weight have nothing to do with another's.
            let seed = (8 * n + disturbed.len()) as u64;
            match &factor {
                Some(factor) => disturb(&mut other, factor, PROBE_BITS, seed),
                None => disturb_table(&mut other, PROBE_BITS, seed),
            }
            copy.replace_weight(&other);
            moved.push(own.moved(copy, work)?);
            copy.replace_weight(&weight);
            disturbed.push((weight, other));
        }
    }
    disturbed.iter().for_each(|(_, other)| copy.replace_weight(other));
    let all = nearby.divergence(copy, n, work)?;
    disturbed.iter().for_each(|(weight, _)| copy.replace_weight(weight));
    let share = all / moved.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    Ok(disturbed.into_iter().zip(moved).map(|((weight, _), moved)| (weight.name, moved * share)).collect())
}

/// The KL divergence that each table causes when it alone errs.
fn table_divergences(model: &Model, text: &Text) -> Result<Vec<f64>, Error> {
    let reference = Reference::measure(model, text, &|| ())?;
    let one = |table: &Weight| {
        let (mut other, mut changed) = (table.clone(), model.clone());
        disturb_table(&mut other, PROBE_BITS, 0);
        changed.replace_table(&other);
        let scored = score_against(&reference, &changed, text, &NoHooks, &|| ())?;
        Ok(scored.fidelity.map_or(0.0, |fidelity| fidelity.kl_nats))
    };
    model.tables().iter().map(one).collect()
}

/// Codes every linear weight of `model` at the coding's bits on average,
/// weighing errors by what each weight's inputs are worth: for quantizers that
/// stand as published, embedding and head as they are.
pub fn code_weights_calibrated(
    model: &mut Model,
    coding: &Coding,
    calibrator: &Calibrator,
) -> Result<CodedWeights, Error> {
    if !coding.is_progressive() {
        let moments = calibrator.moments(model)?;
        return put(model, |weight| {
            let known = moments.of(&weight.name).filter(|known| known.inputs() == weight.cols);
            let known = known.ok_or("the calibration has no moments of its input")?;
            coding.code(weight, coding.bits(), Some(known))
        });
    }
    let budget = |_: &str| Some(coding.bits());
    let task = Task { coding, text: &calibrator.text, keeper: coding, budget: &budget, done: &|_| () };
    progressive::code(model, &task)
}

/// What a weight is coded as, and what errors in it cost.
#[derive(Debug, Clone)]
pub struct Target {
    /// `layers.3.q_proj.weight`.
    pub weight: String,
    /// Second moments of what it reads, columns × columns.
    pub moments: Arc<Vec<f32>>,
}

/// What a text says of a model's weights.
#[derive(Debug, Default)]
pub struct Found {
    /// Bits per value of every weight and table that shares a budget, by short name.
    pub bits: BTreeMap<String, f64>,
    /// What errors cost in linear weights that nobody has coded yet.
    pub targets: Vec<Target>,
}

impl Calibrator {
    /// Has every weight of `model` coded by `keeper`, where the coding's bits are
    /// the average of those that share them: as the keeper has it, or, with `equal_slopes`, by what the next bit
    /// saves; embedding and head with the others. What takes the model as it was is not coded, but only told what errors
    /// cost. `done` hears of values.
    ///
    /// # Errors
    ///
    /// Where the codec takes no calibration, or fails.
    pub fn code(
        &self,
        model: &Model,
        coding: &Coding,
        equal_slopes: bool,
        keeper: &dyn Keeper,
        done: &(dyn Fn(usize) + Sync),
    ) -> Result<Found, Error> {
        if !coding.takes_moments() {
            let reason = format!("{} takes no calibration", coding.name());
            return Err(Error::Hook { place: "calibration".into(), reason });
        }
        let bits = if equal_slopes { self.budgets(model, coding, keeper)? } else { BTreeMap::default() };
        if !coding.is_progressive() {
            let known = self.moments(model)?;
            let targets = model.weights().into_iter().filter_map(|weight| {
                let moments = Arc::new(known.of(&weight.name)?.values().to_vec());
                done(weight.values.len());
                Some(Target { weight: weight.name, moments })
            });
            return Ok(Found { targets: targets.collect(), bits });
        }
        let budget = |name: &str| bits.get(name).copied().or_else(|| keeper.fate(name).bits());
        // Layers make good what coding does to the embedding, too.
        let mut coded = model.clone();
        for mut table in model.tables() {
            done(table.values.len());
            let Some(bits) = budget(&table.name) else { continue };
            let spent = keeper.code(&mut table, bits, None);
            spent.map_err(|reason| Error::of_weight(&table.name, reason))?;
            coded.replace_table(&table);
        }
        let task = Task { coding, text: &self.text, keeper, budget: &budget, done };
        progressive::code_from(model, &mut coded, &task)?;
        Ok(Found { bits, targets: Vec::new() })
    }
}

/// Puts weights into a model as `code` leaves them; it answers their bits.
fn put(
    model: &mut Model,
    code: impl Fn(&mut Weight) -> Result<u64, String> + Sync,
) -> Result<CodedWeights, Error> {
    let originals = model.weights();
    let one = |weight: &Weight| {
        let mut coded = weight.clone();
        let spent = code(&mut coded).map_err(|reason| Error::of_weight(&weight.name, reason))?;
        Ok((coded, spent))
    };
    let coded = originals.par_iter().map(one).collect::<Result<Vec<(Weight, u64)>, Error>>()?;
    let mut accumulator = Accumulator::default();
    originals.iter().zip(&coded).for_each(|(a, (b, spent))| accumulator.add(&a.values, &b.values, *spent));
    let weights: Vec<Weight> = coded.into_iter().map(|c| c.0).collect();
    model.replace_weights(&weights)?;
    Ok(accumulator.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn shares_of_half_a_layer_are_about_what_each_weight_costs_alone() {
        let (model, text) = builtin::case(4096, 256);
        let nearby = Nearby::measure(&model, &text.beginnings(2, 128)).unwrap();
        let moments = Moments::measure(&model, &text.beginnings(4, 256)).unwrap();
        let (mut copy, mut work) = (model.clone(), model.workspace(128));
        let n = 1;
        for half in Part::HALVES {
            let shares = of_half(&model, &mut copy, (n, half), (&nearby, &moments), &mut work).unwrap();
            let mut seed = 8 * n as u64;
            for part in half {
                let factor = Factor::new(damped(moments.of_part(n, part).unwrap())).unwrap();
                for weight in model.part_weights(n, part) {
                    let mut other = weight.clone();
                    disturb(&mut other, &factor, PROBE_BITS, seed);
                    seed += 1;
                    copy.replace_weight(&other);
                    let alone = nearby.divergence(&copy, n, &mut work).unwrap();
                    copy.replace_weight(&weight);
                    let share = shares.iter().find(|own| own.0 == weight.name).unwrap().1;
                    eprintln!("{}: {share:.3e} shared, {alone:.3e} alone", weight.name);
                    assert!((0.4..2.5).contains(&(share / alone)), "{}: {share}, {alone}", weight.name);
                }
            }
        }
        // The copy is the model again.
        assert_eq!(nearby.divergence(&copy, 0, &mut work).unwrap(), 0.0);
    }
}
