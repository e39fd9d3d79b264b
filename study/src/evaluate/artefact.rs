//! A model as its file holds it: encoded as `encode` encodes, decoded again and
//! loaded, so that what is judged is what is written.

use super::{Artefact, Evaluation};
use crate::encode::{Calibrate, Calibration, EncodeRequest, Rules, Work};
use crate::{Error, Progress};
use std::io::Cursor;
use trinity_lm::Model;
use trinity_lm::coding::Coding;
use trinity_lm::weights::{code_weights, code_weights_calibrated};
use trinity_tensor::TensorFile;
use trinity_tensor::allocate::Allocation;
use trinity_tensor::codec::Rate;
use trinity_tensor::file::TriWriter;

impl Evaluation {
    /// The model as `encode` would write it; quantizers that make no files
    /// replace linear weights, as published.
    pub(super) fn artefact(
        &self,
        coding: &Coding,
        allocation: Allocation,
        progress: &dyn Progress,
    ) -> Result<Artefact, Error> {
        if !coding.makes_streams() {
            let mut model = self.model.clone();
            let coded = match &self.calibrator {
                Some(calibrator) if coding.takes_moments() => {
                    code_weights_calibrated(&mut model, coding, calibrator)?
                }
                _ => code_weights(&mut model, coding)?,
            };
            let (bits_per_value, nmse) = (coded.bits_per_value, coded.nmse);
            return Ok(Artefact { model, bits_per_value, nmse, bytes: self.bytes(bits_per_value) });
        }
        let file = self.checkpoint.tensors()?;
        let shared = self.shared(coding, allocation);
        let calibrator = self.calibrator.as_ref().filter(|_| coding.takes_moments());
        let request = EncodeRequest {
            codec: coding.name(),
            target: Rate::Bits(coding.bits()),
            allocation: if calibrator.is_some() { Allocation::Equal } else { shared },
            all: false,
            basis: None,
            rules: Rules::default(),
        };
        let mut plan = request.plan(&file, &self.name)?;
        let calibration = match calibrator {
            Some(calibrator) => {
                let (checkpoint, model) = (&self.checkpoint, &self.model);
                let asked = Calibrate { file: &file, plan: &plan, coding, allocation: shared };
                let own = Calibration::of_model(checkpoint, model, calibrator, &asked, progress)?;
                plan.calibrate(&|tensor| own.bits_of(tensor));
                Some(own)
            }
            None => None,
        };
        let failed = |error| Error::Tensor { subject: self.name.clone(), error };
        progress.begin(plan.values() as u64, "encoding");
        let step = |values: usize| {
            progress.advance(values as u64);
            if progress.is_cancelled() { Err(trinity_tensor::Error::Stopped) } else { Ok(()) }
        };
        let work = Work { calibration: calibration.as_ref(), progress: &step, ..Work::new(&file, &plan) };
        let encoded = file
            .texts()
            .and_then(|texts| TriWriter::over(Cursor::new(Vec::new()), &texts))
            .and_then(|writer| work.encode_into(writer))
            .and_then(|(encoded, writer)| Ok((encoded, writer.complete()?)));
        progress.end();
        let (encoded, (cursor, bytes)) = encoded.map_err(failed)?;
        let decoded = TensorFile::from_bytes(cursor.into_inner(), "model").map_err(failed)?;
        let model = Model::load(&self.checkpoint.holding(decoded)?)?;
        let bits_per_value = 8.0 * bytes as f64 / plan.values().max(1) as f64;
        Ok(Artefact { model, bits_per_value, nmse: encoded.metrics.nmse, bytes: bytes as f64 })
    }
}
