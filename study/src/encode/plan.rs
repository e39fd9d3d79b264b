//! What becomes of every tensor of a file, decided before any work is done.
//!
//! One plan for the command, for Python and for an evaluation: what it says is
//! what is written, and what is judged. Knows nothing of where the result goes.

use super::{Kind, Rules};
use crate::Error;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use trinity_tensor::allocate::{Allocation, Curve, allocate, curves as measured};
use trinity_tensor::codec::{Basis, CALIBRATED, Rate, TensorCodec, calibrated_rate, codec};
use trinity_tensor::pipeline::{self, Encoding, OnNonFinite, Treatment};
use trinity_tensor::{Entry, TensorFile};

/// The rate offered to a codec that has one of its own, above every target.
const ANY_RATE: f64 = 16.0;
/// Bytes of a tensor that tell it from others of its shape before all of it is read.
const FIRST_BYTES: usize = 4096;

/// The codec where none is named.
pub fn default_codec(target: Rate) -> &'static str {
    if target == Rate::Lossless { "zstd" } else { "trinity" }
}

/// What tensors are to be coded with.
#[derive(Debug, Clone)]
pub struct EncodeRequest<'a> {
    pub codec: &'a str,
    pub target: Rate,
    pub allocation: Allocation,
    /// Whether norms, biases, vectors and integers are coded too.
    pub all: bool,
    pub basis: Option<&'a Basis>,
    pub rules: Rules,
}

/// What becomes of one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub tensor: String,
    pub kind: Kind,
    pub shape: Vec<usize>,
    pub values: usize,
    pub treatment: Treatment,
}

/// What becomes of every tensor of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    tensors: Vec<Planned>,
    by_name: HashMap<String, usize>,
}

/// Tensors of one kind that are treated alike: a row of the table of kinds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindRow {
    pub kind: Kind,
    /// The codec, or `exact`, or `tied`.
    pub treatment: String,
    pub tensors: usize,
    pub values: usize,
    /// Bits per value on average, where they have a rate.
    pub bits_per_value: Option<f64>,
    /// Why they are not coded, or have a rate of their own.
    pub because: Option<String>,
}

impl EncodeRequest<'_> {
    /// Decides for every tensor; `file` is what messages call it. Fails where
    /// nothing is left to code, a rule matches nothing, a codec cannot keep to
    /// the rate, or a tensor cannot be read.
    pub fn plan(&self, tensors: &TensorFile, file: &str) -> Result<Plan, Error> {
        let entries = tensors.entries();
        let names: Vec<&str> = entries.iter().map(Entry::name).collect();
        self.rules.check(&names)?;
        for (_, own) in &self.rules.codec_for {
            codec(own).map_err(|error| Error::Tensor { subject: file.to_owned(), error })?;
        }
        let read = |error| Error::Tensor { subject: file.to_owned(), error };
        let first: Vec<Treatment> = entries.iter().map(|entry| self.alone(entry)).collect();
        let is_coded = |treatment: &Treatment| matches!(treatment, Treatment::Coded { .. });
        if !self.all
            && !first.iter().any(is_coded)
            && entries.iter().any(|e| e.dtype().is_float() && !e.is_empty())
        {
            let message = format!("{file}: every tensor is a norm, a bias or a vector, which stay exact");
            if self.rules.exclude.is_empty() {
                return Err(Error::input(message, "--all codes them too"));
            }
            return Err(Error::input(format!("{file}: nothing is left to code"), "exclude fewer tensors"));
        }
        let ties = ties(entries, &first).map_err(read)?;
        let planned = entries.iter().zip(first).enumerate().map(|(at, (entry, treatment))| {
            let treatment = match ties.get(&at) {
                Some(&to) => Treatment::Tied { to: entries[to].name().to_owned() },
                None => treatment,
            };
            let (tensor, kind, values) = (entry.name().to_owned(), Kind::of(entry), entry.stated_values());
            Planned { tensor, kind, shape: entry.shape().to_vec(), values, treatment }
        });
        let mut plan = Plan::of(planned.collect());
        self.own_rates(&mut plan, entries)?;
        self.share(&mut plan, entries).map_err(read)?;
        Ok(plan)
    }

    /// What becomes of a tensor for its own sake.
    fn alone(&self, entry: &Entry) -> Treatment {
        let name = entry.name();
        let kind = Kind::of(entry);
        let kept = |why: &str, apart| Treatment::Exact { why: why.to_owned(), apart };
        if let Some(pattern) = self.rules.excluding(name) {
            return kept(&format!("excluded by `{pattern}`"), true);
        }
        let (bits, own) = (self.rules.bits(name), self.rules.codec(name));
        let named = bits.is_some() || own.is_some();
        let lossy = self.target != Rate::Lossless || bits.is_some();
        if let Some(why) = kind.kept_because().filter(|_| lossy) {
            // What codecs cannot take stays exact whatever is said.
            let always = matches!(kind, Kind::Small | Kind::Carried);
            if always || !self.all && !named {
                return kept(why, false);
            }
        }
        let target = bits.map_or(self.target, Rate::Bits);
        let by_default = if bits.is_some() && self.target == Rate::Lossless { "trinity" } else { self.codec };
        let codec = own.unwrap_or(by_default).to_owned();
        let layers = matches!(kind, Kind::Linear | Kind::Experts);
        if CALIBRATED.contains(&codec.as_str()) && !layers && lossy {
            return kept(&format!("{codec} rounds linear layers alone"), true);
        }
        Treatment::Coded { codec, target, apart: bits.is_some() }
    }

    /// Shares a budget in bits out among the tensors that have one.
    fn share(&self, plan: &mut Plan, entries: &[Entry]) -> Result<(), trinity_tensor::Error> {
        let Rate::Bits(bits) = self.target else { return Ok(()) };
        let shared: Vec<usize> = (0..entries.len()).filter(|&at| plan.tensors[at].shares()).collect();
        let values: usize = shared.iter().map(|&at| entries[at].len()).sum();
        let finer = |at: usize| plan.tensors[at].kind.finer_bits();
        let rates: Vec<f64> = if self.allocation == Allocation::Equal {
            let mean = shared.iter().map(|&at| finer(at) * entries[at].len() as f64).sum::<f64>();
            let mean = mean / values.max(1) as f64;
            shared.iter().map(|&at| bits + finer(at) - mean).collect()
        } else {
            let mut curves = Vec::new();
            for own in shared.chunk_by(|&a, &b| plan.tensors[a].codec() == plan.tensors[b].codec()) {
                let codec = self.coder(plan.tensors[own[0]].codec())?;
                let entries: Vec<Entry> = own.iter().map(|&at| entries[at].clone()).collect();
                // Six decibels a bit.
                let weight = |entry: &Entry| (2.0 * Kind::of(entry).finer_bits()).exp2();
                let floor = |(entry, curve): (&Entry, Curve)| Curve {
                    floor_bits: Kind::of(entry).floor_bits(bits),
                    ..curve
                };
                let found = measured(&entries, codec.as_ref(), bits, weight)?;
                curves.extend(entries.iter().zip(found).map(floor));
            }
            allocate(&curves, bits, self.allocation)
        };
        // A budget that no kind needs finer stays what it was, to the last bit.
        for (at, rate) in shared.into_iter().zip(rates) {
            plan.tensors[at].set_bits(rate);
        }
        Ok(())
    }

    fn coder(&self, name: &str) -> Result<Box<dyn TensorCodec>, trinity_tensor::Error> {
        self.basis.map_or_else(|| codec(name), |basis| basis.codec(name))
    }

    /// A number format takes what it takes: it stands beside the budget, which
    /// must have room for it.
    fn own_rates(&self, plan: &mut Plan, entries: &[Entry]) -> Result<(), Error> {
        let mut known: BTreeMap<String, Option<f64>> = BTreeMap::new();
        for (planned, entry) in plan.tensors.iter_mut().zip(entries) {
            let Treatment::Coded { codec: name, target: target @ Rate::Bits(_), apart } =
                &mut planned.treatment
            else {
                continue;
            };
            let failed = |error| Error::Tensor { subject: entry.name().to_owned(), error };
            if CALIBRATED.contains(&name.as_str()) {
                (*target, *apart) = (Rate::Bits(rate_within(entry, name, *target).map_err(failed)?), true);
                continue;
            }
            if !known.contains_key(name.as_str()) {
                let coder = self.coder(name).map_err(failed)?;
                let lossy_format = coder.has_one_rate() && name != trinity_tensor::pipeline::EXACT_CODEC;
                let rate = if lossy_format {
                    let curve = Curve::measure(entry, coder.as_ref(), ANY_RATE, 1.0).map_err(failed)?;
                    curve.points.first().map(|&(rate, _)| rate)
                } else {
                    None
                };
                known.insert(name.clone(), rate);
            }
            let (Some(Some(rate)), Rate::Bits(asked)) = (known.get(name.as_str()), &*target) else {
                continue;
            };
            // Who names a format for a tensor wants it at its rate, beside that of the others.
            let wanted = self.rules.codec(entry.name()).is_some() && self.rules.bits(entry.name()).is_none();
            // Scales that do not fill their blocks, and headers, take a little more than the format says.
            if *rate > asked * 1.01 && !wanted {
                return Err(failed(trinity_tensor::Error::Unreachable {
                    name: entry.name().to_owned(),
                    codec: name.clone(),
                    target: target.to_string(),
                    limiting_factor: trinity_tensor::LimitingFactor::Rate,
                    reason: format!("it is a number format and takes {rate:.2} bits/value").into(),
                }));
            }
            (*target, *apart) = (Rate::Bits(ANY_RATE), true);
        }
        Ok(())
    }
}

/// The finest rate within a target of a codec that rounds layers: most have whole bits.
fn rate_within(entry: &Entry, name: &str, target: Rate) -> Result<f64, trinity_tensor::Error> {
    let rate = match target {
        Rate::Bits(bits) => calibrated_rate(name, bits),
        _ => None,
    };
    // Hundredths from nothing on: the first that is enough.
    let least =
        (1..1600).map(|hundredth| f64::from(hundredth) / 100.0).find_map(|bits| calibrated_rate(name, bits));
    rate.ok_or_else(|| trinity_tensor::Error::Unreachable {
        name: entry.name().to_owned(),
        codec: name.to_owned(),
        target: target.to_string(),
        limiting_factor: trinity_tensor::LimitingFactor::Rate,
        reason: format!("with its scales it takes {:.2} bits/value or more", least.unwrap_or(ANY_RATE))
            .into(),
    })
}

impl Planned {
    /// Whether its codec cannot do without a calibration.
    pub(super) fn needs_moments(&self) -> bool {
        CALIBRATED.contains(&self.codec())
    }

    /// Whether it has a part in the budget.
    pub(super) fn shares(&self) -> bool {
        matches!(self.treatment, Treatment::Coded { target: Rate::Bits(_), apart: false, .. })
    }

    pub(super) fn codec(&self) -> &str {
        match &self.treatment {
            Treatment::Coded { codec, .. } => codec,
            _ => "",
        }
    }

    /// Bits per value that it is to have, where it is said.
    pub fn bits(&self) -> Option<f64> {
        match self.treatment {
            Treatment::Coded { target: Rate::Bits(bits), .. } if bits < ANY_RATE => Some(bits),
            _ => None,
        }
    }

    fn set_bits(&mut self, bits: f64) {
        if let Treatment::Coded { target, .. } = &mut self.treatment {
            *target = Rate::Bits(bits);
        }
    }

    fn row(&self) -> KindRow {
        let (treatment, because) = match &self.treatment {
            Treatment::Coded { codec, apart, .. } => {
                let own = (*apart && self.bits().is_some()).then(|| "a rate of its own".to_owned());
                (codec.clone(), own)
            }
            Treatment::Exact { why, .. } => ("exact".to_owned(), Some(why.clone())),
            Treatment::Tied { to } => ("tied".to_owned(), Some(format!("holds what `{to}` holds"))),
        };
        let values = if matches!(self.treatment, Treatment::Tied { .. }) { 0 } else { self.values };
        KindRow { kind: self.kind, treatment, tensors: 1, values, bits_per_value: self.bits(), because }
    }
}

impl Plan {
    /// A plan out of what becomes of each tensor.
    pub fn of(tensors: Vec<Planned>) -> Self {
        let by_name = tensors.iter().enumerate().map(|(at, own)| (own.tensor.clone(), at)).collect();
        Self { tensors, by_name }
    }

    /// What becomes of every tensor, in the file's order.
    pub fn tensors(&self) -> &[Planned] {
        &self.tensors
    }

    /// What becomes of a tensor; one that the plan has not is kept.
    pub fn treatment(&self, entry: &Entry) -> Treatment {
        let known = self.by_name.get(entry.name()).map(|&at| self.tensors[at].treatment.clone());
        known.unwrap_or_else(|| Treatment::Exact { why: "not in the plan".into(), apart: true })
    }

    /// Values that the file holds: those of tensors that refer to others once.
    pub fn values(&self) -> usize {
        let held = |planned: &&Planned| !matches!(planned.treatment, Treatment::Tied { .. });
        self.tensors.iter().filter(held).map(|planned| planned.values).sum()
    }

    /// Bits per value that tensors of the budget give up for what is beside it.
    pub(super) fn overhead_bits_per_value(&self, file: &TensorFile) -> Result<f64, trinity_tensor::Error> {
        let encoding = Encoding {
            treatment: &|entry| self.treatment(entry),
            basis: None,
            on_non_finite: OnNonFinite::KeepExact,
            measure: false,
            calibrated: &|_| None,
            ahead: &|_| None,
            takes: &|_, _| true,
            overhead_bits_per_value: None,
            progress: &|_| Ok(()),
        };
        pipeline::overhead_of(file, &encoding)
    }

    /// Gives tensors the bits that a calibration found for them.
    pub fn calibrate(&mut self, bits_of: &dyn Fn(&str) -> Option<f64>) {
        for planned in self.tensors.iter_mut().filter(|planned| planned.shares()) {
            if let Some(bits) = bits_of(&planned.tensor) {
                planned.set_bits(bits);
            }
        }
    }

    /// The table of kinds.
    pub fn kinds(&self) -> Vec<KindRow> {
        let mut rows: BTreeMap<(Kind, String, Option<String>), KindRow> = BTreeMap::new();
        for planned in &self.tensors {
            let own = planned.row();
            let key = (own.kind, own.treatment.clone(), own.because.clone());
            match rows.get_mut(&key) {
                None => drop(rows.insert(key, own)),
                Some(row) => {
                    let total = (row.values + own.values).max(1) as f64;
                    row.bits_per_value = row
                        .bits_per_value
                        .zip(own.bits_per_value)
                        .map(|(mean, bits)| (mean * row.values as f64 + bits * own.values as f64) / total);
                    row.tensors += 1;
                    row.values += own.values;
                }
            }
        }
        rows.into_values().collect()
    }
}

/// Values from which on a tensor that stays exact may refer to another, too.
const LARGE_EXACT: usize = 1 << 16;

/// Whether two tensors that hold the same may be one in a file.
fn treated_alike(a: &Treatment, b: &Treatment) -> bool {
    a == b || matches!((a, b), (Treatment::Exact { .. }, Treatment::Exact { .. }))
}

/// Tensors that hold what one before them holds, by position: what is coded is
/// looked at, and what is large.
fn ties(entries: &[Entry], treatments: &[Treatment]) -> Result<HashMap<usize, usize>, trinity_tensor::Error> {
    let mut alike: BTreeMap<(&str, &[usize]), Vec<usize>> = BTreeMap::new();
    for (at, (entry, treatment)) in entries.iter().zip(treatments).enumerate() {
        let worth_it = matches!(treatment, Treatment::Coded { .. }) || entry.len() >= LARGE_EXACT;
        if worth_it && !entry.is_empty() {
            alike.entry((entry.dtype().name(), entry.shape())).or_default().push(at);
        }
    }
    let mut ties = HashMap::new();
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let mut seen: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for at in group {
            let before = seen.entry(beginning(&entries[at])?).or_default();
            let mut same = None;
            for &other in before.iter() {
                let alike = treated_alike(&treatments[other], &treatments[at]);
                if alike && entries[other].content()? == entries[at].content()? {
                    same = Some(other);
                    break;
                }
            }
            match same {
                Some(other) => drop(ties.insert(at, other)),
                None => before.push(at),
            }
        }
    }
    Ok(ties)
}

/// What tells most tensors of one shape apart without reading, or decoding, all
/// of them.
fn beginning(entry: &Entry) -> Result<Vec<u8>, trinity_tensor::Error> {
    if entry.slabs().is_some() {
        return entry.coded_slab(0);
    }
    let mut bytes = vec![0; (entry.len() * entry.dtype().bytes()).min(FIRST_BYTES)];
    entry.stream()?.fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trinity_tensor::Dtype;

    fn entry(name: &str, shape: &[usize], seed: u32) -> Entry {
        let count = shape.iter().product::<usize>() as u32;
        let value = |i: u32| ((i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 9) as f32).sin();
        let bytes: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
        Entry::in_memory(name, Dtype::F32, shape.to_vec(), Arc::new(bytes)).unwrap()
    }

    fn model() -> TensorFile {
        let entries = vec![
            entry("embed_tokens.weight", &[128, 32], 1),
            entry("layers.0.q_proj.weight", &[32, 32], 2),
            entry("layers.0.up_proj.weight", &[64, 32], 3),
            entry("layers.0.input_layernorm.weight", &[512], 4),
            entry("lm_head.weight", &[128, 32], 1),
        ];
        TensorFile::of(entries, BTreeMap::new()).unwrap()
    }

    fn request(rules: Rules) -> EncodeRequest<'static> {
        let target = Rate::Bits(3.0);
        EncodeRequest {
            codec: "uniform+ac",
            target,
            allocation: Allocation::Equal,
            all: false,
            basis: None,
            rules,
        }
    }

    #[test]
    fn a_tied_output_is_coded_once_and_the_embedding_is_finer_at_the_same_mean() {
        let plan = request(Rules::default()).plan(&model(), "model").unwrap();
        assert_eq!(plan.tensors()[4].treatment, Treatment::Tied { to: "embed_tokens.weight".into() });
        assert_eq!(plan.values(), 128 * 32 + 32 * 32 + 64 * 32 + 512);
        let bits: Vec<f64> = plan.tensors().iter().filter_map(Planned::bits).collect();
        assert!((bits[0] - bits[1] - Kind::Embedding.finer_bits()).abs() < 1e-9, "{bits:?}");
        let mean = (bits[0] * 4096.0 + bits[1] * 1024.0 + bits[2] * 2048.0) / 7168.0;
        assert!((mean - 3.0).abs() < 1e-9, "{bits:?}");
        let kinds: Vec<String> = plan
            .kinds()
            .iter()
            .map(|row| format!("{} {} {}", row.kind, row.treatment, row.tensors))
            .collect();
        assert_eq!(kinds, ["linear uniform+ac 2", "embedding uniform+ac 1", "output tied 1", "norm exact 1"]);
    }

    #[test]
    fn no_embedding_is_coarser_than_its_file_where_slopes_decide() {
        let bits_of = |allocation| {
            let request = EncodeRequest { allocation, ..request(Rules::default()) };
            // Rows all alike: an error of its own that says bits are better spent elsewhere.
            let mut entries = model().entries().to_vec();
            let flat: Vec<u8> = (0..128 * 32).flat_map(|i| ((i % 32) as f32).to_le_bytes()).collect();
            let made = Entry::in_memory("embed_tokens.weight", Dtype::F32, vec![128, 32], Arc::new(flat));
            entries[0] = made.unwrap();
            let plan = request.plan(&TensorFile::of(entries, BTreeMap::new()).unwrap(), "model").unwrap();
            plan.tensors()[0].bits().unwrap()
        };
        assert!(bits_of(Allocation::EqualSlope) >= 3.0 - 1e-6, "{}", bits_of(Allocation::EqualSlope));
        assert!(bits_of(Allocation::Equal) > 3.0);
    }

    #[test]
    fn what_is_said_of_one_tensor_is_beside_the_budget_of_the_others() {
        let rules = Rules {
            exclude: vec!["embed_tokens".into(), "lm_head".into()],
            bits_for: vec![("*.q_proj.*".into(), 6.0), ("layernorm".into(), 5.0)],
            codec_for: vec![("up_proj".into(), "rtn".into())],
        };
        let plan = request(rules).plan(&model(), "model").unwrap();
        let treatments: Vec<&Treatment> = plan.tensors().iter().map(|own| &own.treatment).collect();
        let coded = |codec: &str, bits: f64, apart| Treatment::Coded {
            codec: codec.into(),
            target: Rate::Bits(bits),
            apart,
        };
        assert_eq!(
            *treatments[0],
            Treatment::Exact { why: "excluded by `embed_tokens`".into(), apart: true }
        );
        assert_eq!(*treatments[1], coded("uniform+ac", 6.0, true));
        assert_eq!(*treatments[2], coded("rtn", 3.0, false));
        assert_eq!(*treatments[3], coded("uniform+ac", 5.0, true));
    }

    #[test]
    fn a_number_format_takes_its_own_rate_or_is_refused_with_it() {
        let planned = |bits| {
            let request =
                EncodeRequest { codec: "mxfp4", target: Rate::Bits(bits), ..request(Rules::default()) };
            request.plan(&model(), "model")
        };
        assert!(planned(4.25).is_ok());
        let said = planned(4.0).unwrap_err().to_string();
        assert!(said.contains("takes 4.2"), "{said}");
    }
}
