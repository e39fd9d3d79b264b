//! Requests as they come: from a trace, or drawn from stated distributions.
//!
//! Knows times and lengths; knows nothing of machines. Draws come from a
//! generator of our own, so that a seed means the same requests everywhere.

use super::ServingError;
use std::sync::Arc;
use trinity_numeric::random::SplitMix64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServingRequest {
    pub arrival_s: f64,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
}

/// A distribution of lengths, in tokens. Draws are rounded up and at least 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    Fixed(u32),
    Uniform {
        least: u32,
        most: u32,
    },
    Exponential {
        mean: f64,
    },
    /// Cut at `most`, as services limit what they take and give.
    LogNormal {
        median: f64,
        sigma: f64,
        most: u32,
    },
}

impl Lengths {
    fn draw(&self, random: &mut Random) -> u32 {
        let tokens = match *self {
            Self::Fixed(tokens) => return tokens.max(1),
            Self::Uniform { least, most } => {
                let span = f64::from(most.saturating_sub(least)) + 1.0;
                f64::from(least) + (random.uniform() * span).floor()
            }
            Self::Exponential { mean } => mean * random.exponential(),
            Self::LogNormal { median, sigma, most } => {
                (median * (sigma * random.normal()).exp()).min(f64::from(most))
            }
        };
        tokens.ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

/// Makes and checks lists of requests.
#[derive(Debug)]
pub struct Requests;

impl Requests {
    /// `count` requests that arrive at random, one a second in the mean.
    pub fn draw(seed: u64, count: usize, prompt: &Lengths, output: &Lengths) -> Vec<ServingRequest> {
        let mut random = Random::new(seed);
        let mut arrival_s = 0.0;
        (0..count)
            .map(|_| {
                arrival_s += random.exponential();
                let prompt_tokens = prompt.draw(&mut random);
                ServingRequest { arrival_s, prompt_tokens, output_tokens: output.draw(&mut random) }
            })
            .collect()
    }

    /// The same requests with time running `factor` times as fast.
    pub fn faster(requests: &[ServingRequest], factor: f64) -> Vec<ServingRequest> {
        requests.iter().map(|r| ServingRequest { arrival_s: r.arrival_s / factor, ..*r }).collect()
    }

    /// The same requests `times` over, one list behind the other.
    fn repeated(requests: &[ServingRequest], times: usize) -> Vec<ServingRequest> {
        let rate = Self::rate_per_s(requests);
        let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return Vec::new() };
        let gap_s = if rate.is_finite() { 1.0 / rate } else { 0.0 };
        let span_s = last.arrival_s - first.arrival_s + gap_s;
        let shifted = |turn: usize| {
            requests
                .iter()
                .map(move |r| ServingRequest { arrival_s: r.arrival_s + span_s * turn as f64, ..*r })
        };
        (0..times).flat_map(shifted).collect()
    }

    /// Requests per second from the first arrival to the last.
    pub fn rate_per_s(requests: &[ServingRequest]) -> f64 {
        match (requests.first(), requests.last()) {
            (Some(first), Some(last)) if last.arrival_s > first.arrival_s => {
                (requests.len() - 1) as f64 / (last.arrival_s - first.arrival_s)
            }
            _ => f64::INFINITY,
        }
    }

    /// Tokens a decoding step finds in a sequence's cache, in the mean.
    pub fn mean_context(requests: &[ServingRequest]) -> f64 {
        let (mut weighted, mut steps) = (0.0, 0.0);
        for request in requests {
            let output = f64::from(request.output_tokens);
            weighted += output * (f64::from(request.prompt_tokens) + output / 2.0);
            steps += output;
        }
        if steps > 0.0 { weighted / steps } else { 1.0 }
    }

    /// Refuses lists that no service could see.
    pub(super) fn check(requests: &[ServingRequest]) -> Result<(), ServingError> {
        if requests.is_empty() {
            return Err(ServingError::NoRequests);
        }
        let mut before_s = f64::NEG_INFINITY;
        for (index, request) in requests.iter().enumerate() {
            let problems = [
                (!request.arrival_s.is_finite(), "has no finite arrival time"),
                (request.arrival_s < 0.0, "arrives before time 0"),
                (request.arrival_s < before_s, "arrives before the one above it"),
                (request.prompt_tokens == 0, "has an empty prompt"),
                (request.output_tokens == 0, "asks for no token"),
            ];
            if let Some((_, problem)) = problems.into_iter().find(|(has, _)| *has) {
                return Err(ServingError::Request { index, problem });
            }
            before_s = request.arrival_s;
        }
        Ok(())
    }
}

/// Requests without end: drawn, or a trace over and over.
#[derive(Clone, Debug, PartialEq)]
pub enum Stream {
    Drawn { seed: u64, prompt: Lengths, output: Lengths },
    Trace(Arc<[ServingRequest]>),
}

/// Requests of a stream that tell how long its sequences are.
const TYPICAL: usize = 20_000;

impl Stream {
    /// At least the first `count` requests, at one a second in the mean; of a
    /// trace as often as it takes, and whole. A longer list begins with the
    /// requests of a shorter one. Fails when a trace makes no sense or has no
    /// rate.
    pub fn first(&self, count: usize) -> Result<Vec<ServingRequest>, ServingError> {
        let list = match self {
            Self::Drawn { seed, prompt, output } => Requests::draw(*seed, count.max(2), prompt, output),
            Self::Trace(requests) => {
                Requests::check(requests)?;
                Requests::repeated(requests, count.div_ceil(requests.len()).max(1))
            }
        };
        let rate = Requests::rate_per_s(&list);
        if !rate.is_finite() {
            return Err(ServingError::Setting {
                name: "requests",
                value: list.len() as f64,
                rule: "two or more at different times, to search for a rate",
            });
        }
        Ok(Requests::faster(&list, 1.0 / rate))
    }

    /// Tokens a decoding step finds in a sequence's cache, in the mean.
    pub(super) fn mean_context(&self) -> f64 {
        match self {
            Self::Drawn { seed, prompt, output } => {
                Requests::mean_context(&Requests::draw(*seed, TYPICAL, prompt, output))
            }
            Self::Trace(requests) => Requests::mean_context(requests),
        }
    }
}

/// Draws of a load.
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// A number in [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    /// Mean 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Box and Muller's transform, one of its two values.
    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }
}
