//! A planned file through its codecs: what every front end, and an evaluation,
//! calls to have a container made.

use super::{Calibration, Plan};
use std::io::{Seek, Write};
use trinity_tensor::codec::Basis;
use trinity_tensor::file::TriWriter;
use trinity_tensor::pipeline::{self, EncodedFile, Encoding, OnNonFinite};
use trinity_tensor::{Error, TensorFile};

/// A file, its plan, and what is left to whoever has it encoded.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub file: &'a TensorFile,
    pub plan: &'a Plan,
    pub calibration: Option<&'a Calibration>,
    pub basis: Option<&'a Basis>,
    pub on_non_finite: OnNonFinite,
    /// Whether what was coded is decoded again to measure its error.
    pub measure: bool,
    /// Bits per value that tensors of the budget give up, where they are known.
    pub overhead_bits_per_value: Option<f64>,
    /// Which slabs, by the position of their tensor and their own in it, go into the container.
    pub takes: &'a dyn Fn(usize, usize) -> bool,
    /// Hears of values done, and may refuse to go on.
    pub progress: &'a (dyn Fn(usize) -> Result<(), Error> + Sync),
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Work {{ tensors: {} }}", self.plan.tensors().len())
    }
}

impl<'a> Work<'a> {
    /// The whole of a file, everything measured.
    pub fn new(file: &'a TensorFile, plan: &'a Plan) -> Self {
        Self {
            file,
            plan,
            calibration: None,
            basis: None,
            on_non_finite: OnNonFinite::KeepExact,
            measure: true,
            overhead_bits_per_value: None,
            takes: &|_, _| true,
            progress: &|_| Ok(()),
        }
    }

    /// Into a container that the caller began with the file's texts and
    /// completes. Fails where a tensor cannot be read or coded, or `progress`
    /// refuses.
    pub fn encode_into<W: Write + Seek>(
        &self,
        writer: TriWriter<W>,
    ) -> Result<(EncodedFile, TriWriter<W>), Error> {
        self.with(|encoding| pipeline::encode_into(self.file, encoding, writer))
    }

    /// Bits per value that tensors of the budget give up for what is beside it.
    /// Fails where a tensor cannot be read.
    pub fn overhead_bits_per_value(&self) -> Result<f64, Error> {
        self.with(|encoding| pipeline::overhead_of(self.file, encoding))
    }

    /// What became of the tensors in a container that was made of this file.
    /// Fails where a tensor cannot be read or decoded, or `progress` refuses.
    pub fn measure(&self, coded: &TensorFile) -> Result<EncodedFile, Error> {
        self.with(|encoding| pipeline::measure(self.file, encoding, coded))
    }

    fn with<T>(&self, work: impl FnOnce(&Encoding<'_>) -> Result<T, Error>) -> Result<T, Error> {
        work(&Encoding {
            treatment: &|entry| self.plan.treatment(entry),
            basis: self.basis,
            on_non_finite: self.on_non_finite,
            measure: self.measure,
            calibrated: &|name| self.calibration.and_then(|known| known.of(name)),
            ahead: &|name| self.calibration.and_then(|known| known.coded(name)),
            takes: self.takes,
            overhead_bits_per_value: self.overhead_bits_per_value,
            progress: self.progress,
        })
    }
}
