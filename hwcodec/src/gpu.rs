//! One GPU, opened: a CUDA context, our kernels, and the libraries beside it.
//!
//! The only place that decides whether there is a GPU at all.

use crate::error::{During, Error};
use crate::sys::cuvid::Cuvid;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, PinnedHostSlice, result, sys};
use cudarc::nvrtc;
use std::sync::Arc;

/// The name the dynamic linker knows NVDEC's library by.
const LIBNVCUVID: &str = "libnvcuvid.so.1";

/// Fails with a sentence where kernels cannot be compiled.
pub fn require_nvrtc() -> Result<(), Error> {
    // SAFETY: only tries to dlopen libnvrtc.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(Error::no_toolkit("libnvrtc.so", "cuda-nvrtc"));
    }
    Ok(())
}

/// True when a CUDA driver can be loaded. cudarc panics without one, so
/// everything else here asks first.
pub fn driver_present() -> bool {
    // SAFETY: only tries to dlopen libcuda and closes it again.
    unsafe { sys::is_culib_present() }
}

/// A GPU with a context of ours on it.
#[derive(Debug)]
pub struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) name: String,
}

impl Gpu {
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        if !driver_present() {
            return Err(Error::NoDriver { library: "libcuda.so.1" });
        }
        result::init().during("cuInit")?;
        let context = CudaContext::new(ordinal).during("cuDevicePrimaryCtxRetain")?;
        // SAFETY: every buffer of ours is used on one stream at a time, or
        // ordered by explicit events; cudarc's own tracking would add two
        // events to each launch we time.
        unsafe { context.disable_event_tracking() };
        let name = context.name().during("cuDeviceGetName")?;
        Ok(Self { context, name })
    }

    /// GPUs the driver sees; 0 where there is no driver.
    pub fn count() -> Result<usize, Error> {
        if !driver_present() {
            return Ok(0);
        }
        result::init().during("cuInit")?;
        Ok(result::device::get_count().during("cuDeviceGetCount")?.max(0) as usize)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A stream of its own.
    pub fn stream(&self) -> Result<Arc<CudaStream>, Error> {
        self.context.new_stream().during("cuStreamCreate")
    }

    /// A stream of its own whose blocks go first.
    pub fn urgent_stream(&self) -> Result<Arc<CudaStream>, Error> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let (_, greatest) = result::stream::get_priority_range().during("cuCtxGetStreamPriorityRange")?;
        self.context.new_stream_with_priority(greatest).during("cuStreamCreateWithPriority")
    }

    /// Free and total memory, bytes.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.context.mem_get_info().during("cuMemGetInfo")
    }

    /// Filled host memory that copies need not be staged through.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<PinnedHostSlice<u8>, Error> {
        // SAFETY: u8 has no invalid values; filled just below.
        let mut pinned = unsafe { self.context.alloc_pinned::<u8>(bytes) }.during("cuMemHostAlloc")?;
        pinned.as_mut_slice().during("cuMemHostAlloc")?.fill(0x5a);
        Ok(pinned)
    }

    /// Fails with a sentence where less than `bytes` are free.
    pub fn require_memory(&self, bytes: usize, call: &'static str) -> Result<(), Error> {
        let (free, _) = self.memory()?;
        if free < bytes {
            return Err(Error::OutOfMemory {
                call,
                needed_mib: (bytes >> 20) as u64,
                free_mib: (free >> 20) as u64,
            });
        }
        Ok(())
    }

    pub fn cuvid(&self) -> Result<Arc<Cuvid>, Error> {
        Ok(Arc::new(Cuvid::load(LIBNVCUVID)?))
    }

    /// Compiles CUDA C++ for this GPU with NVRTC and takes one function of it.
    pub fn compile(&self, source: &str, kernel: &'static str) -> Result<CudaFunction, Error> {
        require_nvrtc()?;
        let (major, minor) = self.context.compute_capability().during("cuDeviceGetAttribute")?;
        let options = nvrtc::CompileOptions {
            options: vec![format!("--gpu-architecture=compute_{major}{minor}"), "--std=c++17".into()],
            ..Default::default()
        };
        let ptx = nvrtc::compile_ptx_with_opts(source, options)
            .map_err(|e| Error::Kernel { kernel, log: format!("{e:?}") })?;
        let module = self.context.load_module(ptx).during("cuModuleLoadData")?;
        module.load_function(kernel).during("cuModuleGetFunction")
    }
}
