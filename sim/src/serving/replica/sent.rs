//! One request while it is played: what runs write and reports read.

/// A request and how far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub at_s: f64,
    pub first_token_s: Option<f64>,
    pub done_s: f64,
    pub prompt: f64,
    pub hit: f64,
    /// Decoding steps that make its answer.
    pub answer: f64,
    /// Answer tokens that were made.
    pub made: f64,
    /// Tokens that are to be read before it decodes, and those that were.
    pub to_read: f64,
    pub read: f64,
    /// The step in which it ends, while it decodes.
    pub ends: u64,
    pub state: State,
    pub goes_on: bool,
}

impl Sent {
    /// When its first token was there; the last where it has none of its own.
    pub fn first_s(&self) -> f64 {
        self.first_token_s.unwrap_or(self.done_s)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Swapped,
    Reading,
    Decoding,
    Done,
}
