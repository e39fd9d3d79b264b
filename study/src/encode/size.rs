//! The rate at which a file has a size.

use super::EncodeRequest;
use crate::Error;
use trinity_tensor::TensorFile;
use trinity_tensor::codec::Rate;
use trinity_tensor::pipeline::Treatment;

/// Bits per value below which nothing is worth writing.
const LEAST_BITS: f64 = 0.1;
/// Bits per value from which on every bit can be kept.
const MOST_BITS: f64 = 16.0;

impl EncodeRequest<'_> {
    /// Bits per value of what shares a budget, at which the whole file takes at most so many bytes: what is excluded,
    /// or has a rate of its own, is taken off first. The request's own rate is
    /// not looked at. Fails where the size is out of reach, or a tensor's own
    /// is not known before it is coded.
    pub fn bits_for_size(&self, tensors: &TensorFile, file: &str, bytes: f64) -> Result<f64, Error> {
        let plan = self.plan(tensors, file)?;
        let (mut beside, mut shared) = (0.0, 0usize);
        for (planned, entry) in plan.tensors().iter().zip(tensors.entries()) {
            match &planned.treatment {
                Treatment::Tied { .. } => {}
                Treatment::Exact { apart: true, .. } => {
                    beside += (planned.values * entry.dtype().bytes()) as f64;
                }
                Treatment::Coded { apart: true, target: Rate::Bits(_), codec } => {
                    let Some(bits) = planned.bits() else {
                        let message = format!(
                            "{codec} has a rate of its own, and `{}` is coded with it: a size cannot be shared out",
                            planned.tensor
                        );
                        let help = "ask for --bits, or take a codec that has any rate";
                        return Err(Error::input(message, help));
                    };
                    beside += bits * planned.values as f64 / 8.0;
                }
                _ => shared += planned.values,
            }
        }
        let bits = 8.0 * (bytes - beside) / shared.max(1) as f64;
        let size_at = |bits: f64| (beside + bits * shared as f64 / 8.0) / 1e6;
        if bits < LEAST_BITS {
            let message = format!(
                "{:.3} MB is too small for {file}: {shared} values, and {:.3} MB of what is kept or has a rate of its own",
                bytes / 1e6,
                beside / 1e6
            );
            let help = format!("{:.3} MB is 2 bits per value, {:.3} MB 1", size_at(2.0), size_at(1.0));
            return Err(Error::input(message, help));
        }
        if bits > MOST_BITS {
            let message = format!("{:.3} MB is {bits:.1} bits per value of {file}", bytes / 1e6);
            let help = format!("--lossless keeps every bit; {:.3} MB is 4 bits per value", size_at(4.0));
            return Err(Error::input(message, help));
        }
        // As few digits as are worth saying, and never more bits.
        Ok((bits * 1e4).floor() / 1e4)
    }
}
