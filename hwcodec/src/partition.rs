//! Multiprocessors set apart: green contexts, whose kernels never share a multiprocessor.

use crate::error::{During, Error};
use crate::gpu::Gpu;
use cudarc::driver::{CudaContext, CudaStream, sys};
use std::sync::Arc;

impl Gpu {
    /// Two streams, one with at least so many multiprocessors to itself and one with all others: green
    /// contexts, whose blocks never meet. The driver rounds up to what it can set apart (8 on Hopper).
    pub fn partition(&self, multiprocessors: u32) -> Result<Partition, Error> {
        require("cuGreenCtxStreamCreate")?;
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let device = self.context.cu_device();
        let mut all = empty_resource();
        let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        // SAFETY: a device that is open, and room for one resource.
        unsafe { sys::cuDeviceGetDevResource(device, &mut all, kind) }
            .result()
            .during("cuDeviceGetDevResource")?;
        let (mut part, mut rest, mut groups) = (empty_resource(), empty_resource(), 1);
        // SAFETY: one group is asked for, which `part` has room for; `all` is what the driver just wrote.
        unsafe {
            sys::cuDevSmResourceSplitByCount(&mut part, &mut groups, &all, &mut rest, 0, multiprocessors)
        }
        .result()
        .during("cuDevSmResourceSplitByCount")?;
        Ok(Partition { part: Green::new(&self.context, part)?, rest: Green::new(&self.context, rest)? })
    }
}

/// A GPU in two, by [`Gpu::partition`].
#[derive(Debug)]
pub struct Partition {
    /// As many multiprocessors as were asked for, or a few more.
    pub part: Green,
    /// All others.
    pub rest: Green,
}

/// Some multiprocessors and a stream whose kernels run there and nowhere else.
#[derive(Debug)]
pub struct Green {
    multiprocessors: u32,
    stream: Arc<CudaStream>,
    green: sys::CUgreenCtx,
}

impl Green {
    fn new(context: &Arc<CudaContext>, mut resource: sys::CUdevResource) -> Result<Self, Error> {
        let mut description = std::ptr::null_mut();
        // SAFETY: one resource that the driver wrote, and room for one description.
        unsafe { sys::cuDevResourceGenerateDesc(&mut description, &mut resource, 1) }
            .result()
            .during("cuDevResourceGenerateDesc")?;
        let mut green = std::ptr::null_mut();
        let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as u32;
        // SAFETY: the description is of this device, whose primary context is alive with `context`.
        unsafe { sys::cuGreenCtxCreate(&mut green, description, context.cu_device(), flags) }
            .result()
            .during("cuGreenCtxCreate")?;
        let mut raw_stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context that was just made; it is destroyed after its stream.
        let made = unsafe { sys::cuGreenCtxStreamCreate(&mut raw_stream, green, flags, 0) }.result();
        if let Err(error) = made {
            // SAFETY: made above, and nothing refers to it.
            let _ = unsafe { sys::cuGreenCtxDestroy(green) };
            return Err(error).during("cuGreenCtxStreamCreate");
        }
        // SAFETY: a stream of this device and of the primary context behind both; `drop` ends it.
        let stream = unsafe { context.wrap_borrowed_stream(raw_stream) };
        // SAFETY: the driver wrote a resource of multiprocessors.
        let multiprocessors = unsafe { resource.__bindgen_anon_1.sm.smCount };
        Ok(Self { multiprocessors, stream, green })
    }

    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Their stream, which ends with `self`: what holds it is dropped first.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.stream.clone()
    }
}

impl Drop for Green {
    fn drop(&mut self) {
        // SAFETY: both were made in `new` and are ended once, the stream first and after its work.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream.cu_stream());
            let _ = sys::cuStreamDestroy_v2(self.stream.cu_stream());
            let _ = sys::cuGreenCtxDestroy(self.green);
        }
    }
}

/// Fails with a sentence where the driver is older than the function; cudarc would panic.
fn require(function: &'static str) -> Result<(), Error> {
    // SAFETY: the driver is loaded, since a `Gpu` is open; the symbol is looked up and not called.
    let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(function.as_bytes()).is_ok() };
    if found { Ok(()) } else { Err(Error::OldDriver { library: "libcuda.so.1", function }) }
}

/// Room for the driver to write a resource to.
fn empty_resource() -> sys::CUdevResource {
    // SAFETY: integers and padding, for which zeros stand for "no resource".
    unsafe { std::mem::zeroed() }
}
