//! The whole chain, held against its parts run one after the other.

use std::sync::LazyLock;
use trinity_numeric::random::Lcg;
use trinity_study::explore::{
    Edge, Exploration, ExploreRequest, Explored, QUALITY, Ranking, TOLERANCE, Training, built_in, explore,
};
use trinity_study::{Error, Silent, compare, price, sweep};
use trinity_tensor::codec::Rate;
use trinity_tensor::compare::{InputTensor, Turn};
use trinity_tensor::{Class, Entry, TensorFile};

/// Tensors of 48 × 64 heavy-tailed values, one for each name.
fn input_tensors(names: &[&str]) -> Vec<InputTensor> {
    const ROWS: usize = 48;
    const COLUMNS: usize = 64;
    let mut header = String::from("{");
    let size = ROWS * COLUMNS * 4;
    for (at, name) in names.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        header += &format!(
            "{comma}\"{name}\":{{\"dtype\":\"F32\",\"shape\":[{ROWS},{COLUMNS}],\"data_offsets\":[{},{}]}}",
            at * size,
            (at + 1) * size
        );
    }
    header += "}";
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    let mut lcg = Lcg(1);
    for at in 0..names.len() * ROWS * COLUMNS {
        let uniform = lcg.uniform() - 0.5;
        bytes.extend((uniform * (1.0 + (at % 5) as f32)).to_le_bytes());
    }
    let file = TensorFile::from_bytes(bytes, "test").unwrap();
    file.entries().iter().map(|entry| InputTensor::new(entry.clone(), "test").unwrap()).collect()
}

/// One of each class.
fn all() -> &'static [InputTensor] {
    static ALL: LazyLock<Vec<InputTensor>> = LazyLock::new(|| {
        input_tensors(&["a.weight", "k_cache", "boundary.1.activation", "a.weight.grad", "boundary.1.grad"])
    });
    &ALL
}

/// The paper's own setting.
const PAPER: &str = "sweeps/llama-7b";
/// Enough draws for a sentence, few enough for a test.
const FEW: usize = 48;

fn request<'a>(input_tensors: &'a [InputTensor], candidates: &[&str]) -> ExploreRequest<'a> {
    ExploreRequest {
        input_tensors,
        quality: QUALITY.into(),
        study: PAPER.into(),
        sets: Vec::new(),
        budget_mm2: None,
        candidates: candidates.iter().map(|name| (*name).to_owned()).collect(),
        node: None,
        training: Training::Tensors,
        cells: 3,
        draws: FEW,
        earlier: &[],
    }
}

fn explored(request: &ExploreRequest<'_>) -> Explored {
    explore(request, &|_| (), &Silent).unwrap()
}

fn found(request: &ExploreRequest<'_>) -> Exploration {
    explored(request).exploration
}

fn refused(request: &ExploreRequest<'_>) -> (String, String) {
    match explore(request, &|_| (), &Silent) {
        Err(error @ Error::Input { .. }) => (error.to_string(), error.help().unwrap_or_default().to_owned()),
        other => panic!("{:?}", other.map(|found| found.exploration.answer)),
    }
}

#[test]
fn the_answer_is_what_compare_price_and_sweep_give_by_hand() {
    let explored = found(&request(all(), &["three-in-one", "line", "trinity-static"]));
    // Bits, by compare.
    let compared = compare::compare(
        &compare::ComparisonRequest {
            input_tensors: all(),
            codecs: ["h264", "line-rtl", "trinity-static"].map(String::from).to_vec(),
            turns: vec![Turn::None],
            targets: vec![Rate::Nmse(0.01)],
            earlier: &[],
            part: trinity_study::Shard::WHOLE,
            only_earlier: false,
        },
        &|_| (),
        &Silent,
    )
    .unwrap();
    let bits = |class: Class, coder: &str| {
        let line = compared.classes.iter().find(|line| line.class == class && line.codec == coder);
        line.unwrap().bits_per_value
    };
    for row in &explored.bits {
        assert_eq!(row.bits_per_value, Some(bits(row.class, &row.coder)), "{row:?}");
    }
    // Silicon of what nobody built, by price.
    let coded: Vec<Entry> = all()
        .iter()
        .map(|subject| subject.entry.clone())
        .filter(|entry| entry.class() != Class::KvCache)
        .collect();
    let stages = price::stages(
        &price::PriceRequest {
            entries: &coded,
            codecs: vec!["trinity-static".into()],
            targets: vec![Rate::Nmse(0.01)],
            sample: 1 << 15,
            technology: price::technology("technologies/asap7").unwrap(),
            throughput_gbps: 100.0,
        },
        &Silent,
    )
    .unwrap();
    let mut names: Vec<&str> = stages.iter().map(|row| row.stage).collect();
    names.sort_unstable();
    names.dedup();
    let most = |of: fn(&price::PriceRow) -> f64| -> f64 {
        let stage = |name: &&str| stages.iter().filter(|row| row.stage == *name).map(of).fold(0.0, f64::max);
        names.iter().map(stage).sum()
    };
    let (area, power) = (most(|row| row.estimate_mm2), most(|row| row.estimate_pj_per_bit) * 0.1);
    let lite = explored.silicon.iter().find(|silicon| silicon.candidate == "trinity-static").unwrap();
    assert!((lite.encoder.area_mm2 / area - 1.0).abs() < 1e-12, "{lite:?} {area}");
    assert!((lite.decoder.power_w / power - 1.0).abs() < 1e-12, "{lite:?} {power}");
    // The cluster, by a sweep that somebody typed in.
    let swept = |text: String| {
        let request =
            sweep::SweepRequest { sweep: "typed.toml".into(), text: Some(text), ..Default::default() };
        sweep::run(&sweep::Study::load(&request).unwrap(), &Silent).unwrap()
    };
    let outcome = swept(typed(&bits, area, power));
    for front in &outcome.fronts {
        let within = front.points.iter().map(|point| point.estimate).filter(|e| e.area_mm2 <= 50_000.0);
        let best = within.map(|estimate| estimate.tokens_per_s).fold(0.0, f64::max);
        let value = ranking(&explored, &front.scenario).value.unwrap();
        // The search starts at the best of the study's own grid, and ends at no worse.
        assert!(value > best * (1.0 - 1e-9) && value < best * 2.0, "{}: {value} {best}", front.scenario);
    }
    let values: Vec<f64> = explored.rankings.iter().filter_map(|ranking| ranking.value).collect();
    assert!(values.windows(2).all(|pair| pair[0] >= pair[1]) && values.len() == 4, "{values:?}");
    assert_eq!(explored.best, explored.rankings[0].scenario);
    assert!(explored.answer[1].contains(&explored.best), "{:?}", explored.answer);
    // The file it leaves is that sweep again.
    let again = swept(explored.sweep_toml.clone());
    let points =
        |fronts: &[sweep::FrontOf]| fronts.iter().map(|front| front.points.len()).collect::<Vec<_>>();
    assert_eq!(points(&again.fronts), points(&explored.fronts));
}

/// A sweep of LLaMA-7B with three codecs at the bits of these tensors.
fn typed(bits: &dyn Fn(Class, &str) -> f64, area: f64, power: f64) -> String {
    let sets = |coder: &str| {
        [
            ("weights", Class::Weight),
            ("activations", Class::Activation),
            ("weight-gradients", Class::WeightGradient),
            ("activation-gradients", Class::ActivationGradient),
        ]
        .map(|(key, class)| format!("\"job.compression.{key}={}\"", bits(class, coder)))
        .join(", ")
    };
    let built = ["encoder", "decoder"]
        .map(|side| {
            format!(
                "\"cluster.codec.{side}.throughput=100 Gbit/s\", \"cluster.codec.{side}.area={area} mm2\", \
                 \"cluster.codec.{side}.power={power} W\""
            )
        })
        .join(", ");
    // As far as frameworks were measured to hide communication, which the study leaves at nothing.
    let overlap = r#""job.overlap.data=0.49", "job.overlap.pipeline=0.922""#;
    format!(
        r#"
extends = "sweeps/llama-7b"
scenarios = [
  {{ name = "uncompressed", set = [{overlap}] }},
  {{ name = "three-in-one", set = [{overlap}, "cluster.codec.extends=codecs/three-in-one", {}] }},
  {{ name = "line", set = [{overlap}, "cluster.codec.extends=codecs/line-rtl", {}] }},
  {{ name = "trinity-static", set = [{overlap}, "cluster.codec.extends=codecs/line-lanes", {built}, {}] }},
]
axes = [
  {{ path = "job.parallelism.data", values = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 80, 96, 112, 128] }},
  {{ path = "job.parallelism.pipeline", values = [2, 4, 8, 16] }},
  {{ path = "job.microbatch", values = [1, 2] }},
  {{ path = "cluster.nics-per-gpu", values = [0.125, 0.25, 0.5, 1, 2, 4, 8] }},
  {{ path = "cluster.codecs-per-gpu", values = [1, 2, 4], only = ["three-in-one", "line", "trinity-static"] }},
]
"#,
        sets("h264"),
        sets("line-rtl"),
        sets("trinity-static"),
    )
}

#[test]
fn a_profile_of_ones_own_is_priced_as_the_profile_it_copies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "extends = \"profiles/trinity-static\"\nname = \"some-other-name\"\n").unwrap();
    let found = found(&request(all(), &["trinity-static", path.to_str().unwrap()]));
    assert_eq!(found.silicon[1].candidate, "mine");
    assert!(found.silicon[1].encoder.area_mm2 > 0.0);
    assert_eq!(found.silicon[0].encoder, found.silicon[1].encoder);
}

#[test]
fn another_node_scales_a_codec_once() {
    let at = |node: Option<&str>| {
        let found =
            found(&ExploreRequest { node: node.map(String::from), ..request(all(), &["three-in-one"]) });
        let best = ranking(&found, "three-in-one");
        let split = best.split.unwrap();
        let codecs = split.codec * best.best.as_ref().unwrap().estimate.area_mm2 / f64::from(split.gpus);
        (found.silicon[0].encoder.area_mm2 + found.silicon[0].decoder.area_mm2, codecs)
    };
    let ((plain, built), (small, built_small)) = (at(None), at(Some("5nm")));
    assert!(small < plain);
    // Codecs on a GPU are so many sixteenths of one.
    let whole = |ratio: f64| (ratio * 16.0 - (ratio * 16.0).round()).abs() < 1e-6 && ratio > 0.0;
    assert!(whole(built / plain) && whole(built_small / small), "{plain} {built} {small} {built_small}");
}

#[test]
fn earlier_rows_are_not_measured_again() {
    let request = request(all(), &["line"]);
    let first = explored(&request);
    let measured = std::sync::atomic::AtomicUsize::new(0);
    let count = |_: &trinity_tensor::compare::ComparisonRow| {
        measured.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let request = ExploreRequest { earlier: &first.comparison.all, ..request };
    let again = explore(&request, &count, &Silent).unwrap();
    assert_eq!(measured.into_inner(), 0);
    assert_eq!(again.exploration.answer, first.exploration.answer);
}

#[test]
fn tensors_without_a_class_that_the_study_codes_are_refused_by_name() {
    let input_tensors = input_tensors(&["k_cache"]);
    let (message, help) = refused(&request(&input_tensors, &["line"]));
    assert!(message.contains("tensors at hand are of kv-cache"), "{message}");
    assert!(message.contains("nothing is known of weight, activation, weight-gradient"), "{message}");
    assert!(help.contains("sweeps/kv-spill"), "{help}");
    // A study that codes the cache alone takes the same file.
    let spilled = ExploreRequest { study: "sweeps/kv-spill".into(), ..request(&input_tensors, &["line"]) };
    assert_eq!(found(&spilled).baseline, "raw");
}

#[test]
fn a_budget_below_the_smallest_point_is_refused_with_that_point() {
    let (message, help) = refused(&ExploreRequest { budget_mm2: Some(100.0), ..request(all(), &["line"]) });
    assert!(message.contains("nothing fits into 100 mm²") && message.contains("of GPUs"), "{message}");
    assert!(help.contains("--budget of"), "{help}");
}

#[test]
fn a_codec_that_nobody_priced_is_refused_and_taken_with_a_price() {
    let (message, help) = refused(&request(all(), &["rtn-128g"]));
    assert!(message.contains("nothing is known of the silicon of `rtn-128g`"), "{message}");
    assert!(help.contains("rtn-128g=codecs/"), "{help}");
    let priced = found(&request(all(), &["rtn-128g=codecs/line-lanes"]));
    assert_eq!(priced.silicon[0].source, "codecs/line-lanes");
}

#[test]
fn a_quality_out_of_reach_is_refused_with_each_codecs_reason() {
    let (message, help) =
        refused(&ExploreRequest { quality: Rate::Bits(0.001).into(), ..request(all(), &["line", "h264"]) });
    assert!(message.contains("no codec reaches 0.001 bits/value") && message.contains("h264 ("), "{message}");
    assert!(help.contains("more bits"), "{help}");
}

#[test]
fn built_in_tensors_are_of_every_class() {
    let input_tensors = built_in().unwrap();
    for class in
        [Class::Weight, Class::KvCache, Class::Activation, Class::WeightGradient, Class::ActivationGradient]
    {
        assert!(input_tensors.iter().any(|subject| subject.entry.class() == class), "{class}");
    }
}

fn ranking<'a>(found: &'a Exploration, name: &str) -> &'a Ranking {
    found.rankings.iter().find(|one| one.scenario == name).unwrap()
}

/// The gain that the answer states, as assumed.
fn gain(found: &Exploration, name: &str) -> f64 {
    ranking(found, name).over_baseline.unwrap()
}

#[test]
fn neighbouring_budgets_give_neighbouring_answers() {
    let first = explored(&request(all(), &["line"]));
    let at = |budget: f64| {
        let asked = ExploreRequest {
            earlier: &first.comparison.all,
            budget_mm2: Some(budget),
            ..request(all(), &["line"])
        };
        gain(&found(&asked), "line")
    };
    // A tenth to either side of 50,000 mm².
    let steps = if std::env::var_os("TRINITY_TEST_ALL").is_some() { 10 } else { 3 };
    let budgets: Vec<f64> =
        (0..=steps).map(|step| 45_000.0 + 10_000.0 * f64::from(step) / f64::from(steps)).collect();
    let gains: Vec<f64> = budgets.iter().map(|budget| at(*budget)).collect();
    for (pair, budget) in gains.windows(2).zip(&budgets) {
        assert!((pair[1] / pair[0] - 1.0).abs() < 0.03, "from {budget} mm²: {gains:?}");
    }
    let (least, most) =
        (gains.iter().copied().fold(9.0, f64::min), gains.iter().copied().fold(0.0, f64::max));
    assert!(most / least < 1.06, "{gains:?}");
}

#[test]
fn a_large_batch_gains_less_and_the_answer_says_that_the_batch_decides() {
    let asked = ExploreRequest { draws: 251, ..request(all(), &["line"]) };
    let first = explored(&asked);
    let at = |batch: u32| {
        found(&ExploreRequest {
            earlier: &first.comparison.all,
            sets: vec![format!("study.job.replica-batch={batch}")],
            ..request(all(), &["line"])
        })
    };
    let (middle, large) = (at(64), at(256));
    let gains = [&first.exploration, &middle, &large].map(|found| gain(found, "line"));
    assert!(gains[0] > gains[1] && gains[1] > gains[2], "{gains:?}");
    assert!(gains[0] > 1.25 && gains[1] < 1.2 && gains[2] < 1.08, "{gains:?}");
    for (found, batch) in [(&first.exploration, 4), (&middle, 64), (&large, 256)] {
        let named = format!("{batch} sequences of 2048 tokens a rank");
        assert!(found.answer[0].contains(&named), "{}", found.answer[0]);
    }
    // Who asks with a batch of 4 is told that it rests on that.
    let decides = &first.exploration.odds.as_ref().unwrap().decides[0];
    assert_eq!(decides.input, "sequences of a data-parallel rank in a step", "{decides:?}");
    // Who states a batch is told of that batch: it is not drawn.
    let odds = large.odds.as_ref().unwrap();
    assert!(odds.inputs.iter().all(|input| input.name != decides.input), "{:?}", odds.inputs);
    assert!(odds.gain.high < first.exploration.odds.as_ref().unwrap().gain.median, "{:?}", odds.gain);
}

#[test]
fn assumptions_that_move_together_stay_within_what_the_answer_says() {
    let alone = explored(&ExploreRequest { draws: 251, ..request(all(), &["line"]) });
    let together = ExploreRequest {
        earlier: &alone.comparison.all,
        sets: [
            "study.job.replica-batch=12",
            "study.cluster.network.efficiency=0.95",
            "study.job.overlap.data=0.7",
            "study.job.precision.gradient-reduce=16",
        ]
        .map(String::from)
        .to_vec(),
        ..request(all(), &["line"])
    };
    let (stated, moved) = (gain(&alone.exploration, "line"), gain(&found(&together), "line"));
    // Four of them, none at the end of its range, take most of the gain away.
    assert!(moved - 1.0 < 0.6 * (stated - 1.0), "{stated} and {moved}");
    let odds = alone.exploration.odds.as_ref().unwrap();
    let (least, most) = (odds.quantiles[0], odds.quantiles[20]);
    assert!(least <= moved && moved <= most, "{moved} is outside {:?}", odds.quantiles);
    assert!(odds.gain.low < stated - 0.5 * (stated - moved), "the range reaches there: {:?}", odds.gain);
    // And nothing is said of assumptions one at a time that does not say so.
    let said = alone.exploration.answer.join(" ");
    assert!(said.contains("drawn together") && !said.contains("None of the"), "{said}");
}

#[test]
fn a_finer_grid_gives_the_same_answer() {
    let coarse = explored(&request(all(), &["line"]));
    let finer = ExploreRequest {
        earlier: &coarse.comparison.all,
        sets: vec![
            "axes.0.values=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,22,24,26,28,30,32,34,36,38,40,44,48,52,56,60,64]"
                .into(),
            "axes.1.values=[1,2,3,4,5,6,7,8,10,12,16]".into(),
            "axes.2.values=[1,2,4]".into(),
            "axes.3.values=[0.125,0.25,0.375,0.5,0.75,1,1.5,2,3,4,6,8]".into(),
        ],
        ..request(all(), &["line"])
    };
    let finer = found(&finer);
    for name in ["line", "uncompressed"] {
        let value = |of: &Exploration| ranking(of, name).value.unwrap();
        let (own, fine) = (value(&coarse.exploration), value(&finer));
        assert!((fine / own - 1.0).abs() < 5.0 * TOLERANCE, "{name}: {own} and {fine}");
    }
}

#[test]
fn an_axis_that_ends_early_does_not_choose_the_codec() {
    let input_tensors = input_tensors(&["k_cache"]);
    let names = ["line", "line-sm", "three-in-one", "nvenc"];
    let spilled = |sets: &[&str]| {
        let sets = sets.iter().map(|set| (*set).to_owned()).collect();
        found(&ExploreRequest {
            study: "sweeps/kv-spill".into(),
            budget_mm2: Some(50_000.0),
            sets,
            ..request(&input_tensors, &names)
        })
    };
    let (short, long) = (spilled(&[]), spilled(&["axes.2.values=[1,2,4,8,16,32,64]"]));
    assert_eq!(short.best, long.best);
    for name in names.into_iter().filter(|name| *name != "nvenc") {
        let (short, long) = (gain(&short, name), gain(&long, name));
        assert!((short / long - 1.0).abs() < 0.01, "{name}: {short} and {long}");
    }
    // Engines that are on the die end where the study says, and that is told.
    let said = short.answer.join(" ");
    let stuck = ranking(&short, "nvenc");
    assert!(stuck.chosen.iter().any(|chosen| chosen.at_end), "{:?} {said}", stuck.chosen);
}

#[test]
fn an_error_at_which_nothing_is_learned_is_refused_with_the_reason() {
    let (message, help) =
        refused(&ExploreRequest { quality: Rate::Nmse(0.9).into(), ..request(all(), &["line"]) });
    assert!(message.contains("NMSE of 0.9") && message.contains("nothing is learned"), "{message}");
    assert!(help.contains("0.01") && help.contains("--loss"), "{help}");
}

#[test]
fn without_a_budget_area_is_not_free() {
    let found = found(&ExploreRequest {
        study: "sweeps/five-codecs".into(),
        ..request(all(), &["three-in-one", "line", "trinity-static"])
    });
    assert!(found.budget_mm2.is_none() && found.per_watt.is_some());
    for ranking in &found.rankings {
        let split = ranking.split.unwrap();
        assert!(split.codec < 0.2, "{}: {split:?}", ranking.scenario);
    }
    assert!(found.answer[1].starts_with("For each mm²"), "{:?}", found.answer);
}

#[test]
fn odds_are_the_same_for_any_number_of_threads() {
    let odds = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let found = found(&request(all(), &["line", "three-in-one"]));
            (found.odds.unwrap(), found.regime.unwrap(), found.answer)
        })
    };
    let (one, three) = (odds(1), odds(3));
    assert_eq!(one, three);
    let total: f64 = one.0.chances.iter().map(|chance| chance.best).sum();
    assert!((total - 1.0).abs() < 1e-9, "{:?}", one.0.chances);
    assert_eq!(one.0.draws, FEW);
    // The paper's setting is one in which codecs pay, and the map says so where it lies.
    assert!(one.0.gain.median > 1.05 && one.1.here.gain.unwrap() > 1.05, "{:?} {:?}", one.0.gain, one.1.here);
}

/// The built-in tensors, coded once for all that ask of them.
fn asked<'a>(input_tensors: &'a [InputTensor], study: &str, sets: &[&str]) -> ExploreRequest<'a> {
    ExploreRequest {
        study: study.into(),
        sets: sets.iter().map(|set| (*set).to_owned()).collect(),
        training: Training::Recorded { loss: 0.0 },
        ..request(input_tensors, &["line", "line-sm", "three-in-one"])
    }
}

/// Whose odds of being the best are largest.
fn likeliest(found: &Exploration) -> &str {
    &found.odds.as_ref().unwrap().chances[0].scenario
}

#[test]
fn a_dgx_h100_hardly_needs_a_codec_and_says_whose_bits_it_counts_with() {
    let found = found(&asked(all(), "sweeps/llama-3-70b", &[]));
    let gain = gain(&found, "line");
    // 400 Gbit/s a GPU: a few percent at most, and never a loss beyond the codec's area.
    assert!((0.98..1.08).contains(&gain), "{gain} {:?}", found.answer);
    let odds = found.odds.as_ref().unwrap();
    assert!(odds.gain.low > 0.95 && odds.gain.high < 1.2, "{:?}", odds.gain);
    let said = found.answer.join(" ");
    assert!(
        said.contains("h100") && said.contains("llama-3-70b") && said.contains("512 sequences"),
        "{said}"
    );
    assert!(said.contains("recorded training runs: ") && said.contains("run t2.6"), "{said}");
    assert!(found.answer[0].contains("nodes of 8"), "{}", found.answer[0]);
    // A node has whole network cards, a GPU whole codecs, a stage chunks of as many layers.
    for ranking in &found.rankings {
        let of = |path: &str| -> Option<f64> {
            ranking.chosen.iter().find(|one| one.path == path)?.value.parse().ok()
        };
        let cards = of("cluster.nics-per-gpu").unwrap() * 8.0;
        assert_eq!(cards.fract(), 0.0, "{}: {cards} cards a node", ranking.scenario);
        let codecs = of("cluster.codecs-per-gpu").filter(|codecs| *codecs >= 1.0);
        assert!(codecs.is_none_or(|codecs| codecs.fract() == 0.0), "{}: {codecs:?}", ranking.scenario);
        let stage = 80.0 / of("job.parallelism.pipeline").unwrap();
        let chunk = stage.ceil() / of("job.parallelism.interleave").unwrap();
        assert_eq!(chunk.fract(), 0.0, "{}: {chunk} layers a chunk", ranking.scenario);
    }
    // The paper's codec lost what no one would give up, and is out with the reason.
    let out = found.left_out.iter().find(|one| one.candidate == "three-in-one").unwrap();
    assert!(out.why.contains("2.7M-h264-1.4") && out.why.contains("lost +16.3"), "{}", out.why);
}

#[test]
fn servers_that_share_100_gbit_want_a_codec_and_a_rack_of_nvlink_does_not() {
    let slow = found(&asked(all(), "sweeps/a100-pcie", &[]));
    let fast = found(&asked(all(), "sweeps/nvl72", &[]));
    let (slow_gain, fast_gain) = (gain(&slow, "line"), gain(&fast, "line"));
    assert!(slow_gain > 1.05, "25 Gbit/s for 312 TFLOP/s: {slow_gain} {:?}", slow.answer);
    // A codec that is larger than thought is built smaller; it never takes half of the GPUs away.
    let odds = slow.odds.as_ref().unwrap();
    assert!(odds.chances.iter().all(|one| one.gain.low > 0.9), "{:?}", odds.chances);
    assert!((0.98..1.05).contains(&fast_gain), "72 GPUs on NVLink: {fast_gain} {:?}", fast.answer);
    assert!(slow_gain > fast_gain + 0.03);
    assert_ne!(likeliest(&slow), "uncompressed", "{:?}", slow.answer);
    // On the map thin wires are where it pays: one of the marks is such a server.
    let map = slow.regime.as_ref().unwrap();
    let server = map.marks.iter().find(|mark| mark.name.starts_with("A100 PCIe")).unwrap();
    assert!(map.here.gain.unwrap() > 1.02 && server.gain.unwrap() > 1.02, "{map:?}");
    assert!(!matches!(map.edge, Edge::Above(_) | Edge::Nowhere), "{:?}", map.edge);
    // Where wires are fast there is nothing to gain, and the codec costs no more than its area.
    let fastest: Vec<f64> = map.gains.iter().filter_map(|row| *row.last()?).collect();
    assert!(fastest.iter().all(|gain| (0.97..1.2).contains(gain)), "{fastest:?}");
    let rack = fast.regime.as_ref().unwrap().here.gain.unwrap();
    assert!((0.98..1.02).contains(&rack), "{rack}");
    // Half as many servers is the next smaller cluster, and that is said where it matters.
    let steps = slow.steps.as_ref().unwrap();
    assert!(steps.dealt && steps.least <= steps.mean && steps.mean <= steps.most, "{steps:?}");
}

#[test]
fn a_cache_that_is_sent_on_wants_a_codec_where_the_wire_is_thin() {
    let input_tensors = input_tensors(&["k_cache"]);
    let ask = |sets: &[&str]| found(&asked(&input_tensors, "sweeps/prefill-transfer", sets));
    // 320 KiB of cache a token, 3,600 tokens/s a GPU: 10 Gbit/s are asked of 400.
    let fast = ask(&[]);
    assert!((0.98..1.05).contains(&gain(&fast, "line")), "{:?}", fast.answer);
    let thin = ask(&["study.cluster.nic.bandwidth=1 Gbit/s", "axes.3.values=[1]"]);
    assert!(gain(&thin, "line") > 2.0, "{:?}", thin.answer);
    assert_ne!(thin.best, "raw", "{:?}", thin.answer);
    let waits = &ranking(&thin, "raw").time[0];
    assert_eq!(waits.name, "KV transfer", "{:?}", thin.rankings);
    let map = thin.regime.unwrap();
    assert_eq!((map.x.name, map.y.name, map.marks.len()), ("context", "concurrency", 8));
}

#[test]
fn what_a_study_pins_down_is_chosen_for_every_candidate_all_the_same() {
    let found = found(&request(all(), &["line"]));
    for ranking in &found.rankings {
        let has = |path: &str| ranking.chosen.iter().any(|chosen| chosen.path == path);
        for path in ["job.recompute", "job.microbatch", "job.parallelism.tensor", "cluster.nics-per-gpu"] {
            assert!(has(path), "{}: {path} is not among {:?}", ranking.scenario, ranking.chosen);
        }
    }
    // What is chosen is no assumption.
    let drawn = &found.odds.as_ref().unwrap().inputs;
    assert!(drawn.iter().all(|input| !input.name.contains("kept or computed again")), "{drawn:?}");
    // Recomputation is chosen: on half of the memory it pays, and is found.
    let small =
        ExploreRequest { sets: vec!["study.cluster.gpu.memory=16 GB".into()], ..request(all(), &["line"]) };
    let small = self::found(&small);
    let value = |found: &Exploration| found.rankings.iter().filter_map(|one| one.value).fold(0.0, f64::max);
    assert!(value(&small) > 0.3 * value(&found), "{:?}", small.answer);
}
