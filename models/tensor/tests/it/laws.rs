//! What `docs/promises.md` says of codecs, over laws × codecs × targets.
//!
//! Each pair of a law and a codec is held to every promise: a rate is kept, an
//! error is kept, what comes back is finite and of its shape, more bits never
//! mean more error, and the same input gives the same bytes. A random part of
//! the pairs by default, whose seed a failure prints (`TRINITY_SEED` runs it
//! again); all of them with `TRINITY_GRID=full` or `cargo xtask test --all`.

use trinity_tensor::codec::{Metrics, Rate, TensorCodec, codec, is_external, names};
use trinity_tensor::{Class, Dtype, Error, Tensor};

use crate::draw::{is_whole_grid, seed};
use crate::random::Random;

/// Rates whose errors must not rise from one to the next.
const RATES: [f64; 11] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 9.0];
const ERRORS: [f64; 3] = [0.1, 0.003, 1e-4];
/// Pairs of a law and a codec that a run by default looks at, and rates of each.
const PAIRS: usize = 14;
const RATES_OF_A_PAIR: usize = 4;

type Law = fn(usize, usize, usize, &mut Random) -> f32;

/// Values by row, column and number.
const LAWS: [(&str, Law); 20] = [
    ("gaussian", |_, _, _, random| random.normal()),
    ("uniform", |_, _, _, random| random.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0),
    ("heavy tails", |_, _, _, random| random.normal().powi(5)),
    ("one outlier", |_, _, at, random| if at == 777 { 1e4 } else { random.normal() }),
    ("one huge outlier", |_, _, at, random| if at == 13 { 1e30 } else { random.normal() }),
    ("scales by row", |row, _, _, random| random.normal() * (row as f32 * 0.2).exp()),
    ("scales by column", |_, col, _, random| random.normal() * if col % 16 == 3 { 50.0 } else { 1.0 }),
    ("constant", |_, _, _, _| 0.7),
    ("zeros", |_, _, _, _| 0.0),
    ("small integers", |_, _, _, random| random.below(8) as f32),
    ("two values", |_, _, _, random| random.below(2) as f32 * 2.0 - 1.0),
    ("sparse", |_, _, _, random| if random.below(100) == 0 { random.normal() } else { 0.0 }),
    ("ramp", |_, _, at, _| at as f32),
    ("saw", |_, col, _, _| (col % 7) as f32),
    ("wave", |row, col, _, _| (row as f32 * 0.21).sin() + (col as f32 * 0.13).cos()),
    ("low rank", |row, col, _, _| ((row * 37 % 23) as f32 - 11.0) * ((col * 41 % 29) as f32 - 14.0)),
    ("far from zero", |_, _, _, random| 1000.0 + random.normal()),
    ("largest", |_, _, _, random| if random.below(2) == 0 { f32::MAX } else { -f32::MAX }),
    ("denormal", |_, _, _, random| random.normal() * 1e-40),
    ("checkerboard", |row, col, _, random| ((row + col) % 2) as f32 + 0.001 * random.normal()),
];

/// Shapes: large enough for any header, small, and large enough to be told from chance.
const SHAPES: [[usize; 2]; 3] = [[36, 64], [20, 24], [80, 96]];

fn tensor(law: usize, shape: [usize; 2], dtype: Dtype) -> Tensor {
    let (name, law) = LAWS[law];
    let mut random = Random::new(shape[0] as u64 * 31 + name.len() as u64);
    let [rows, cols] = shape;
    let values: Vec<f32> = (0..rows * cols).map(|at| law(at / cols, at % cols, at, &mut random)).collect();
    let mut data = Vec::new();
    // The largest value of f32 stays finite in formats that hold less.
    let wide: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    dtype.extend_from_f64(&wide, &mut data);
    Tensor::new(name, Class::Other, dtype, shape.to_vec(), data).unwrap()
}

/// A codec's promises that were broken on a tensor.
fn broken(codec: &dyn TensorCodec, tensor: &Tensor, rates: &[f64]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    let targets =
        rates.iter().map(|&bits| Rate::Bits(bits)).chain(ERRORS.iter().map(|&nmse| Rate::Nmse(nmse)));
    for target in targets {
        let task = || crate::task(codec, tensor, target);
        let encoded = match codec.encode(tensor, target) {
            Err(Error::Unreachable { .. }) => continue,
            encoded => encoded,
        };
        let (decoded, encoded) = match encoded.and_then(|own| Ok((codec.decode(&own)?, own))) {
            Ok(both) => both,
            Err(error) => {
                broken.push(format!("{}: {error}", task()));
                continue;
            }
        };
        if (decoded.shape(), decoded.dtype()) != (tensor.shape(), tensor.dtype()) {
            broken.push(format!("{}: comes back as {} {:?}", task(), decoded.dtype(), decoded.shape()));
        }
        let values = decoded.to_f64();
        if !values.iter().all(|value| value.is_finite()) {
            broken.push(format!("{}: comes back with what is no number", task()));
        }
        let (bits, nmse) = (encoded.bits_per_value(), Metrics::between(tensor, &decoded).nmse);
        match target {
            Rate::Bits(asked) => {
                if bits > asked {
                    broken.push(format!("{}: takes {bits} bits", task()));
                }
                let promised = promises_less_error(&codec.name(), tensor.len());
                if let Some((rate, error)) = before.filter(|(_, error)| promised && nmse > *error) {
                    broken.push(format!("{}: NMSE {nmse:e}, {error:e} already at {rate}", task()));
                }
                before = Some((asked, nmse));
            }
            Rate::Nmse(asked) if nmse > asked => broken.push(format!("{}: NMSE {nmse:e}", task())),
            _ => {}
        }
        if codec.encode(tensor, target).ok().as_ref() != Some(&encoded) {
            broken.push(format!("{}: other bytes the second time", task()));
        }
    }
    broken
}

/// Whether `docs/promises.md` says of a codec that more bits never mean more error.
fn promises_less_error(codec: &str, values: usize) -> bool {
    let has_coarse_rates = ["rtn", "h264", "h265"].iter().any(|name| codec.starts_with(name));
    // MXFP8 errs more than MXFP6 where no value needs its exponents.
    !codec.starts_with("mxfp+") && (values < 4096 || !has_coarse_rates)
}

/// Codecs of ours; those of others have their own bytes and promises.
fn codecs() -> Vec<String> {
    let made_of_others = ["hadamard/uniform+ac", "residual/h265-fast/rtn-128g", "h265-fast", "h264-fast"];
    let ours = names().into_iter().filter(|name| !is_external(name) && name != "zstd");
    ours.chain(made_of_others.map(String::from)).collect()
}

#[test]
fn every_codec_keeps_its_promises_on_every_law() {
    let codecs = codecs();
    let whole = is_whole_grid();
    // TRINITY_ONLY=WORD looks at pairs with a word in the codec's name or the law's.
    let only = std::env::var("TRINITY_ONLY").unwrap_or_default();
    let seed = seed();
    println!("TRINITY_SEED={seed}");
    let mut random = Random::new(seed);
    let mut pairs: Vec<(usize, usize)> =
        (0..LAWS.len()).flat_map(|law| (0..codecs.len()).map(move |codec| (law, codec))).collect();
    pairs.retain(|&(law, codec)| codecs[codec].contains(&only) || LAWS[law].0.contains(&only));
    if !whole {
        for place in 0..PAIRS.min(pairs.len()) {
            let other = place + random.below(pairs.len() - place);
            pairs.swap(place, other);
        }
        pairs.truncate(PAIRS);
    }
    let work: Vec<_> = pairs
        .into_iter()
        .map(|(law, codec)| {
            let mut rates = RATES.to_vec();
            while !whole && rates.len() > RATES_OF_A_PAIR {
                rates.remove(random.below(rates.len()));
            }
            let shape = SHAPES[[0, 0, 1, 2][random.below(4)]];
            let dtype = if random.below(3) == 0 { Dtype::Bf16 } else { Dtype::F32 };
            (tensor(law, shape, dtype), &codecs[codec], rates)
        })
        .collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((tensor, name, rates)) =
                    work.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let found = broken(codec(name).unwrap().as_ref(), tensor, rates);
                    found.iter().for_each(|found| eprintln!("{found}"));
                    failures.lock().unwrap().extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} promises broken:\n{}", failures.len(), failures.join("\n"));
}
