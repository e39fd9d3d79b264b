//! The one error type of this crate.

/// Why the host GPU could not be asked, or did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No driver on this machine: not a failure of ours, and said so.
    #[error("no NVIDIA driver on this machine ({library} cannot be loaded)")]
    NoDriver { library: &'static str },
    /// The driver is there, but a library that comes with it is not.
    #[error(
        "{library} cannot be loaded: {reason}; it comes with the NVIDIA driver (package libnvidia-{package})"
    )]
    NoLibrary { library: &'static str, package: &'static str, reason: String },
    /// A library without a function we need: older than we know how to talk to.
    #[error("{library} has no function {function}: the driver is too old")]
    OldDriver { library: &'static str, function: &'static str },
    #[error("{call} failed: {code} ({meaning})")]
    Cuda { call: &'static str, code: i32, meaning: String },
    /// The GPU went away (a reset, an ECC error, a crashed kernel): nothing on it can be trusted any more.
    #[error("the GPU was lost during {call}: {meaning}; results measured before it are kept")]
    DeviceLost { call: &'static str, meaning: String },
    /// Somebody else holds the memory.
    #[error(
        "{call} needs {needed_mib} MiB of GPU memory, {free_mib} MiB are free; another process may hold the rest"
    )]
    OutOfMemory { call: &'static str, needed_mib: u64, free_mib: u64 },
    #[error("{engine} of {gpu} does not take {what}")]
    Unsupported { engine: &'static str, gpu: String, what: String },
    #[error("corrupt stream: {what}")]
    CorruptStream { what: String },
    #[error("{gpu} has no NVENC engine (opening a session answers: {meaning})")]
    NoEncoder { gpu: String, meaning: String },
    #[error("{call} failed with NVENC status {code} ({meaning})")]
    Nvenc { call: &'static str, code: u32, meaning: &'static str },
    /// nvCOMP is not installed, or is a version with another interface.
    #[error("nvCOMP cannot be used: {reason} ({library} is looked for)")]
    NoNvcomp { library: &'static str, reason: String },
    #[error("{call} failed with nvCOMP status {status}")]
    Nvcomp { call: &'static str, status: i32 },
    /// No framework behind the interpreter, or one that failed.
    #[error("{python} could not run the framework's probe: {reason}")]
    Framework { python: String, reason: String },
    /// A kernel of ours that NVRTC refused.
    #[error("NVRTC could not compile `{kernel}`: {log}")]
    Kernel { kernel: &'static str, log: String },
    /// Too few or degenerate points.
    #[error("fit of {what}: {reason}")]
    Fit { what: String, reason: String },
    /// A recording or calibration that cannot be read.
    #[error("{file}: {reason}")]
    BadFile { file: String, reason: String },
    /// A codec of ours that could not make the stream to measure with.
    #[error("encoding the test stream {what}: {reason}")]
    Encode { what: String, reason: String },
}

/// Something that could not be measured.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LeftOut {
    pub what: String,
    pub why: String,
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i32 = 2;
/// Codes after which a context is dead (ECC, hardware stack, illegal address, launch failure, unknown).
const LOST: [i32; 6] = [46, 214, 700, 710, 719, 999];

impl LeftOut {
    pub(crate) fn new(what: impl Into<String>, error: &Error) -> Self {
        Self { what: what.into(), why: error.to_string() }
    }
}

impl Error {
    /// A library of the CUDA toolkit that is not there.
    pub(crate) fn no_toolkit(library: &'static str, package: &'static str) -> Self {
        Self::NoLibrary { library, package, reason: "not found; it comes with the CUDA toolkit".into() }
    }

    /// An error out of a driver result code.
    pub(crate) fn cuda(call: &'static str, code: i32, meaning: String) -> Self {
        match code {
            OUT_OF_MEMORY => {
                let (free, _) = cudarc::driver::result::mem_get_info().unwrap_or((0, 0));
                Self::OutOfMemory { call, needed_mib: 0, free_mib: (free >> 20) as u64 }
            }
            code if LOST.contains(&code) => Self::DeviceLost { call, meaning },
            code => Self::Cuda { call, code, meaning },
        }
    }

    /// True when nothing on the GPU can be used after this.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::DeviceLost { .. } | Self::NoDriver { .. })
    }
}

/// Turns cudarc's errors into ours, with the call that failed.
pub(crate) trait During<T> {
    fn during(self, call: &'static str) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, cudarc::driver::DriverError> {
    fn during(self, call: &'static str) -> Result<T, Error> {
        self.map_err(|e| {
            let meaning =
                e.error_string().ok().and_then(|s| s.to_str().ok()).unwrap_or("no description").to_owned();
            Error::cuda(call, e.0 as i32, meaning)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_s_code_says_whether_the_gpu_can_still_be_asked() {
        for code in LOST {
            let error = Error::cuda("cuCtxSynchronize", code, "an illegal memory access".into());
            assert!(
                error.is_fatal() && error.to_string().contains("measured before it are kept"),
                "{code}: {error}"
            );
        }
        let refused = Error::cuda("cuMemcpyHtoD", 1, "invalid argument".into());
        assert!(!refused.is_fatal());
        assert_eq!(refused.to_string(), "cuMemcpyHtoD failed: 1 (invalid argument)");
        assert!(Error::NoDriver { library: "libcuda.so.1" }.is_fatal());
        assert!(!Error::OldDriver { library: "libcuda.so.1", function: "f" }.is_fatal());
    }
}
