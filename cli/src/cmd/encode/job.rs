//! What an encoding works on, whether it is done in one go or in parts.

use std::path::Path;
use trinity_study::encode::Request;
use trinity_tensor::codec::Target;
use trinity_tensor::pipeline::OnNonFinite;
use trinity_tensor::{Entry, TensorFile};

/// A tensor file and what is asked of it.
pub struct Job<'a> {
    /// Where the file is, for messages.
    pub path: &'a Path,
    pub file: &'a TensorFile,
    pub request: &'a Request<'a>,
    /// The codec and the target of each tensor.
    pub choice: &'a dyn Fn(&Entry) -> (String, Target),
    pub on_non_finite: OnNonFinite,
}
