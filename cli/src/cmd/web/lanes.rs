//! Who answers which page: one engine a lane, as each worker of the one-file
//! page has one of its own.
//!
//! A page has two lanes, one that a hand waits for and one for what takes long;
//! an engine holds the studies and the file that were opened there.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use trinity_web::Engine;

/// Engines kept: two each of as many pages as a person compares. The one that
/// was asked longest ago makes room; its page gets a fresh one when it asks.
const KEPT: usize = 16;

#[derive(Debug, Default)]
pub struct Lanes(Mutex<VecDeque<(String, Arc<Mutex<Engine>>)>>);

impl Lanes {
    /// Answers a request in its lane.
    pub fn answer(&self, lane: &str, request: &[u8], file: Vec<u8>) -> Vec<u8> {
        let engine = self.engine(lane);
        let answered = catch_unwind(AssertUnwindSafe(|| {
            engine.lock().unwrap_or_else(PoisonError::into_inner).answer(request, file)
        }));
        answered.unwrap_or_else(|_| {
            // What it was in the middle of is lost; the next request starts anew.
            self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(own, _)| own != lane);
            let why = serde_json::json!({ "refused": {
                "error": "the model stopped (its last words are on the command's stderr)",
                "help": "please report this with the link of this page",
            } });
            why.to_string().into_bytes()
        })
    }

    fn engine(&self, lane: &str) -> Arc<Mutex<Engine>> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = lanes.iter().position(|(own, _)| own == lane);
        let kept = at.and_then(|at| lanes.remove(at)).unwrap_or_else(|| (lane.to_owned(), Arc::default()));
        let engine = Arc::clone(&kept.1);
        lanes.push_back(kept);
        if lanes.len() > KEPT {
            lanes.pop_front();
        }
        engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(lanes: &Lanes, lane: &str) -> bool {
        let asked = br#"{"do": "statistics", "tensor": "none"}"#;
        let answer = String::from_utf8(lanes.answer(lane, asked, Vec::new())).unwrap();
        !answer.contains("no file of tensors is open")
    }

    #[test]
    fn a_lane_keeps_its_file_until_many_others_have_asked() {
        let lanes = Lanes::default();
        let npy =
            b"\x93NUMPY\x01\x00\x38\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\n\0\0\x80\x3f";
        let answer = lanes.answer("a", br#"{"do": "open", "name": "x.npy"}"#, npy.to_vec());
        assert!(
            String::from_utf8_lossy(&answer).contains("\"answer\""),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        assert!(!opened(&lanes, "b"), "a lane saw another's file");
        assert!(opened(&lanes, "a"));
        for other in 0..KEPT {
            opened(&lanes, &other.to_string());
        }
        assert!(!opened(&lanes, "a"), "nothing makes room");
    }
}
