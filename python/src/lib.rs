//! The extension module under the Python package `trinity`.
//!
//! Plain data crosses this border: buffers, names, numbers, and JSON for what
//! studies answer. What a Python user sees (arrays, `Encoded`, rows) is made
//! of it in `trinity/*.py`; what a codec or a study is stays in their crates.
#![deny(unsafe_code)]

mod array;
mod coded;
mod cuda;
mod failure;
mod parts;
mod scaled;
mod studies;
mod watch;

use pyo3::prelude::*;

/// Codecs and studies of Trinity, as plain data; use `trinity` instead.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::array::Memory;
    #[pymodule_export]
    use super::coded::{
        codec_names, decode, decode_s, describe, encode, encode_file, encode_model, load, plan, read, write,
    };
    #[pymodule_export]
    use super::cuda::{
        CudaDecoder, CudaDevice, CudaEncoder, line_decode, line_encode, line_plan, line_plan_info,
        line_plan_of_sample, line_plan_tiles, line_slabs,
    };
    #[pymodule_export]
    use super::parts::{encode_part, plan_model};
    #[pymodule_export]
    use super::scaled::{line_decode_scaled, line_encode_scaled};
    #[pymodule_export]
    use super::studies::{config_names, config_text, study};

    #[pymodule_init]
    fn facts(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        use super::PyModuleMethods;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("__build__", env!("TRINITY_VERSION"))?;
        module.add("CODECS_VERSION", trinity_tensor::codec::VERSION)?;
        module.add("ROOM_HEAD_BYTES", trinity_hwcodec::line::HEAD_BYTES)?;
        module.add("USUAL_CODECS", trinity_study::compare::usual_codecs())?;
        module.add("EVALUATED_CODECS", trinity_study::evaluate::CODECS.to_vec())?;
        module.add("USUAL_BITS", trinity_study::compare::USUAL_BITS.to_vec())
    }
}
