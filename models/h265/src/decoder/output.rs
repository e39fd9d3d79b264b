//! The order pictures leave the decoder in (H.265 clause C.5.2).
//!
//! Intra pictures need no references, so only output order keeps a picture
//! waiting.

use super::decoded::Decoded;
use crate::syntax::DpbLimits;

#[derive(Debug)]
struct Waiting {
    /// Pictures decoded since this one.
    latency: u32,
    picture: Decoded,
}

/// Pictures waiting for their turn.
#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    waiting: Vec<Waiting>,
    ready: std::collections::VecDeque<Decoded>,
}

impl OutputQueue {
    /// Takes in a decoded picture and releases what must not wait longer.
    pub fn push(&mut self, picture: Decoded, limits: DpbLimits) {
        self.waiting.iter_mut().for_each(|waiting| waiting.latency += 1);
        self.waiting.push(Waiting { latency: 0, picture });
        while self.must_release(limits) {
            self.release_first();
        }
    }

    fn must_release(&self, limits: DpbLimits) -> bool {
        let count = self.waiting.len() as u64;
        if count > u64::from(limits.max_num_reorder_pics)
            || count > u64::from(limits.max_dec_pic_buffering_minus1) + 1
        {
            return true;
        }
        let max_latency =
            u64::from(limits.max_num_reorder_pics) + u64::from(limits.max_latency_increase_plus1);
        limits.max_latency_increase_plus1 > 0
            && self.waiting.iter().any(|waiting| u64::from(waiting.latency) + 1 > max_latency)
    }

    fn release_first(&mut self) {
        let first = (0..self.waiting.len()).min_by_key(|&at| self.waiting[at].picture.poc);
        if let Some(first) = first {
            self.ready.push_back(self.waiting.remove(first).picture);
        }
    }

    /// Releases every picture, smallest POC first: a new sequence begins.
    pub fn flush(&mut self) {
        while !self.waiting.is_empty() {
            self.release_first();
        }
    }

    /// Drops what waits (NoOutputOfPriorPicsFlag).
    pub fn discard(&mut self) {
        self.waiting.clear();
    }

    pub fn pop(&mut self) -> Option<Decoded> {
        self.ready.pop_front()
    }
}
