//! Constants that were chosen by measurement: each with its name, and with other values that are worth a look.
//!
//! They are what they are, except in a build with the feature `tune`, in which `cargo xtask tune` sets one and codes
//! with it. Knows numbers; what a number does belongs to whoever asks for it.

#[cfg(feature = "tune")]
use std::sync::atomic::{AtomicU64, Ordering};

/// A constant that was chosen by measurement.
#[derive(Debug)]
pub struct Tuned {
    pub name: &'static str,
    /// The codec whose bits it moves.
    pub codec: &'static str,
    value: f64,
    /// Other values, for a comparison.
    pub others: &'static [f64],
    /// The pattern of the value that is set.
    #[cfg(feature = "tune")]
    set: AtomicU64,
}

impl Tuned {
    pub const fn new(name: &'static str, codec: &'static str, value: f64, others: &'static [f64]) -> Self {
        Self {
            name,
            codec,
            value,
            others,
            #[cfg(feature = "tune")]
            set: AtomicU64::new(value.to_bits()),
        }
    }

    pub const fn chosen(&self) -> f64 {
        self.value
    }

    /// The value in force: the one that was chosen, where none is set.
    #[inline(always)]
    pub fn get(&self) -> f64 {
        #[cfg(feature = "tune")]
        return f64::from_bits(self.set.load(Ordering::Relaxed));
        #[cfg(not(feature = "tune"))]
        self.value
    }

    /// Sets the value for all that is coded from now on; whether this build can.
    pub fn set(&self, value: f64) -> bool {
        #[cfg(feature = "tune")]
        self.set.store(value.to_bits(), Ordering::Relaxed);
        let _ = value;
        cfg!(feature = "tune")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_what_was_chosen_unless_this_build_tunes() {
        static SOME: Tuned = Tuned::new("some", "none", 0.25, &[0.5]);
        assert_eq!(SOME.get(), 0.25);
        let tunes = SOME.set(0.5);
        assert_eq!(tunes, cfg!(feature = "tune"));
        assert_eq!(SOME.get(), if tunes { 0.5 } else { SOME.chosen() });
    }
}
