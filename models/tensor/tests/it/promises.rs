//! Five hundred random tensors through every codec: what comes back is within
//! the bound asked for, or an error names what stands in the way.
//!
//! By default each tensor meets a few codecs and each codec every kind of
//! tensor; `TRINITY_GRID=full` has every tensor meet every codec.

use trinity_tensor::codec::{Metrics, Rate, TensorCodec, codec, is_external, names};
use trinity_tensor::{Class, Dtype, Error, Tensor};

use crate::draw::is_whole_grid;
use crate::random::Random;

const TENSORS: u64 = 500;
const TARGETS: [Rate; 2] = [Rate::Bits(4.5), Rate::Nmse(0.02)];
/// From this many values on, no header stands in the way of a target.
const LARGE: usize = 1000;

/// A tensor of some kind, and its first value that is no number, if any.
struct Case {
    tensor: Tensor,
    not_finite: Option<usize>,
}

impl Case {
    /// Noise, constant, zeros, denormals, one outlier, NaN or infinity.
    fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let shapes: [&[usize]; 12] = [
            &[1, 1],
            &[1],
            &[],
            &[2, 3],
            &[7, 64],
            &[3, 5, 7, 11],
            &[129, 33],
            &[1, 5000],
            &[4, 0],
            &[5000, 1],
            &[40, 3, 31],
            &[17, 255],
        ];
        let shape = shapes[random.below(shapes.len())];
        let dtype = Dtype::ALL[random.below(Dtype::ALL.len())];
        let kind = random.below(8);
        let count: usize = shape.iter().product();
        let mut values: Vec<f32> = match kind {
            0 => vec![random.normal(); count],
            1 => vec![0.0; count],
            2 => (0..count).map(|_| random.normal() * 1e-40).collect(),
            _ => (0..count).map(|_| random.normal() * 20.0).collect(),
        };
        if let Some(value) = values.get_mut(random.below(count.max(1))) {
            match kind {
                3 => *value = 1e30,
                4 => *value = f32::NAN,
                5 => *value = f32::INFINITY,
                6 => *value = f32::NEG_INFINITY,
                _ => {}
            }
        }
        Self::new(format!("t{seed}"), dtype, shape, &values)
    }

    fn new(name: String, dtype: Dtype, shape: &[usize], values: &[f32]) -> Self {
        let mut data = Vec::new();
        dtype.extend_from_f32(values, &mut data);
        let mut stored = vec![0f64; values.len()];
        dtype.to_f64(&data, &mut stored);
        let not_finite = stored.iter().position(|value| !value.is_finite());
        Self { tensor: Tensor::new(name, Class::Other, dtype, shape.to_vec(), data).unwrap(), not_finite }
    }

    /// Every promise that a codec makes about this tensor.
    fn check(&self, codec: &dyn TensorCodec) {
        for target in TARGETS {
            let tensor = &self.tensor;
            let context = crate::task(codec, tensor, target);
            match codec.encode(tensor, target) {
                Ok(encoded) => {
                    let decoded = codec.decode(&encoded).unwrap_or_else(|error| panic!("{context}: {error}"));
                    assert_eq!(
                        (decoded.shape(), decoded.dtype()),
                        (tensor.shape(), tensor.dtype()),
                        "{context}"
                    );
                    if codec.name() == "zstd" {
                        assert!(decoded == *tensor, "{context}: not exact");
                        continue;
                    }
                    assert_eq!(self.not_finite, None, "{context}: passed what is no number");
                    let nmse = Metrics::between(tensor, &decoded).nmse;
                    let (bits, error) = match target {
                        Rate::Nmse(bound) => (f64::MAX, bound),
                        // Zeros would do as well.
                        Rate::Bits(bits) => (bits, 1.0),
                        _ => unreachable!(),
                    };
                    let found = encoded.bits_per_value();
                    assert!(found <= bits && nmse <= error, "{context}: {found} bits, NMSE {nmse}");
                }
                Err(Error::NonFinite { name, index, .. }) => {
                    assert_eq!((name.as_str(), Some(index)), (tensor.name(), self.not_finite), "{context}");
                }
                // A number format has the rate and the error it has.
                Err(Error::Unreachable { reason, .. }) => assert!(
                    tensor.len() < LARGE || codec.has_one_rate(),
                    "{context}: refused although it is large: {reason}"
                ),
                Err(error) => panic!("{context}: {error}"),
            }
        }
    }
}

fn full_grid() -> bool {
    std::env::var("TRINITY_GRID").is_ok_and(|grid| grid == "full")
}

/// Every codec, and among how many tensors one is for it.
fn codecs() -> Vec<(String, u64)> {
    let slow = ["trinity-max", "paper", "paper-cabac", "h265", "h264"];
    let made_of_others =
        ["hadamard/uniform+ac", "residual/h265-fast/rtn-128g", "h264-fast-420", "h265-fast-444"];
    let pace = |name: &str| match (full_grid(), is_external(name), slow.contains(&name)) {
        // Each of their trials starts a process.
        (true, true, _) => 20,
        (false, true, _) => 250,
        (true, ..) => 1,
        (false, _, true) => 32,
        (false, _, false) => 4,
    };
    let all = names().into_iter().chain(made_of_others.map(String::from));
    all.map(|name| (name.clone(), pace(&name))).collect()
}

#[test]
fn random_tensors_through_every_codec() {
    let codecs = codecs();
    let tensors = if is_whole_grid() { TENSORS } else { TENSORS / 10 };
    // Some wait for processes of others, which is no reason for the rest to wait.
    let workers = std::thread::available_parallelism().map_or(2, usize::from).max(2) as u64;
    let work = &|worker: u64| {
        for seed in (worker..tensors).step_by(workers as usize) {
            let case = Case::random(seed);
            for (offset, (name, pace)) in (0..).zip(&codecs) {
                if (seed + offset) % pace == 0 {
                    case.check(codec(name).unwrap().as_ref());
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || work(worker));
        }
    });
}

#[test]
fn a_million_values_in_one_row_pass() {
    let mut random = Random::new(3);
    let values: Vec<f32> = (0..1_000_000).map(|_| random.normal()).collect();
    let case = Case::new("long".into(), Dtype::Bf16, &[1, 1_000_000], &values);
    for (name, _) in codecs() {
        if full_grid() || ["uniform+ac", "int+cabac", "rtn-128g", "h264-fast-420"].contains(&name.as_str()) {
            case.check(codec(&name).unwrap().as_ref());
        }
    }
}

#[test]
fn lossless_is_exact_to_the_bit_also_for_nan() {
    let codec = codec("zstd").unwrap();
    for seed in 0..TENSORS {
        let Case { tensor, .. } = Case::random(seed);
        let encoded = codec.encode(&tensor, Rate::Lossless).unwrap();
        assert_eq!(codec.decode(&encoded).unwrap(), tensor, "t{seed}");
    }
}

#[test]
fn a_non_finite_value_is_named() {
    let case = Case::new("x".into(), Dtype::F32, &[3], &[1.0, 2.0, f32::NAN]);
    let error = codec("uniform+ac").unwrap().encode(&case.tensor, Rate::Bits(8.0)).unwrap_err();
    assert!(matches!(error, Error::NonFinite { index: 2, .. }), "{error}");
}

/// Channels far from zero and others with heavy tails, as the keys of a first layer have.
fn biased_and_heavy_tailed(seed: u64, rows: usize, cols: usize) -> Tensor {
    let mut random = Random::new(seed);
    let biases: Vec<f32> =
        (0..cols).map(|col| if col % 11 == 4 { 300.0 * random.normal() } else { 0.0 }).collect();
    let mut value = |col: usize| {
        let normal = random.normal();
        biases[col] + if col.is_multiple_of(3) { normal.powi(3) } else { normal }
    };
    let values: Vec<f32> = (0..rows * cols).map(|at| value(at % cols)).collect();
    Case::new("biased".into(), Dtype::F32, &[rows, cols], &values).tensor
}

#[test]
fn more_bits_never_mean_more_error() {
    let presets = ["h265-fast", "h265-slow", "h265-best", "h264-fast", "h264-slow", "h265-fast-444"];
    let tensor = biased_and_heavy_tailed(5, 96, 128);
    let codecs: Vec<String> = names().into_iter().chain(presets.map(String::from)).collect();
    let check = |name: &String| {
        // Each of their trials starts a process.
        let rates: &[f64] = if is_external(name) {
            &[3.0, 5.0]
        } else if !is_whole_grid() {
            &[2.0, 3.0, 5.0, 8.0]
        } else {
            &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0]
        };
        let codec = codec(name).unwrap();
        let mut before = (0.0, f64::INFINITY);
        for &bits in rates {
            let encoded = match codec.encode(&tensor, Rate::Bits(bits)) {
                Ok(encoded) => encoded,
                Err(Error::Unreachable { .. }) => continue,
                Err(error) => panic!("{name} at {bits}: {error}"),
            };
            let nmse = Metrics::between(&tensor, &codec.decode(&encoded).unwrap()).nmse;
            assert!(
                nmse <= before.1,
                "{name}: NMSE {nmse:e} at {bits} bits, {:e} already at {}",
                before.1,
                before.0
            );
            before = (bits, nmse);
        }
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let run = |name| (name, scope.spawn(move || check(name)));
        let running: Vec<_> = codecs.iter().map(run).collect();
        running.into_iter().filter_map(|(name, work)| work.join().is_err().then(|| name.clone())).collect()
    });
    assert!(failures.is_empty(), "error rises with bits: {}", failures.join(", "));
}
