//! Who keeps weights that are coded one after the other: a file, which codes each as it will hold it, or nobody.
//!
//! What is coded while a model is calibrated is what is kept, so that no weight is coded twice. Knows neither files nor texts.

use crate::Weight;
use crate::calibrate::InputMoments;
use crate::coding::Coding;
use trinity_tensor::Class;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    /// It has a part in the budget, of so many bits per value where nothing else is found.
    Shares(f64),
    /// It has bits per value of its own.
    Apart(f64),
    /// It stays as it is.
    Kept,
}

impl Fate {
    /// Bits per value before anything is found.
    pub(crate) fn bits(self) -> Option<f64> {
        match self {
            Self::Shares(bits) | Self::Apart(bits) => Some(bits),
            Self::Kept => None,
        }
    }
}

/// Codes weights, and keeps what it likes of them.
pub trait Keeper: Sync {
    /// What becomes of the weight of a short name.
    fn fate(&self, weight: &str) -> Fate;

    /// Codes a weight in place, for what it reads where that is known; answers the bits it takes.
    ///
    /// # Errors
    ///
    /// Says why it cannot be coded.
    fn code(&self, weight: &mut Weight, bits: f64, moments: Option<InputMoments<'_>>) -> Result<u64, String>;
}

/// Every weight at its bits, and nothing kept.
impl Keeper for Coding {
    fn fate(&self, _: &str) -> Fate {
        Fate::Shares(self.bits())
    }

    fn code(&self, weight: &mut Weight, bits: f64, moments: Option<InputMoments<'_>>) -> Result<u64, String> {
        let (rows, cols) = (weight.rows, weight.cols);
        match moments {
            Some(moments) => self.apply_calibrated(rows, &mut weight.values, bits, moments),
            None => self.apply(Class::Weight, rows, cols, &mut weight.values, bits),
        }
    }
}
