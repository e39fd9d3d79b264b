//! A matrix product to keep the SMs busy while other engines work: bf16 in,
//! f32 accumulation, through cuBLAS, loaded at run time.

use crate::error::{During, Error};
use crate::gpu::Gpu;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use trinity_numeric::random::Lcg;

const LIBRARIES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
/// `CUDA_R_16BF`, `CUBLAS_COMPUTE_32F`, `CUBLAS_GEMM_DEFAULT`, `CUBLAS_OP_N`.
const BF16: c_int = 14;
const COMPUTE_32F: c_int = 68;
const DEFAULT: c_int = -1;
const OP_N: c_int = 0;

type Handle = *mut c_void;
type GemmEx = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    c_int,
    c_int,
    *const c_void,
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// `cublasSetSmCountTarget`.
type SetMultiprocessors = unsafe extern "C" fn(Handle, c_int) -> c_int;

/// A square bf16 product C = A·B on its own stream.
#[derive(Debug)]
pub struct Gemm {
    handle: Handle,
    gemm_ex: GemmEx,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    set_multiprocessors: SetMultiprocessors,
    stream: Arc<CudaStream>,
    size: usize,
    a: CudaSlice<u16>,
    b: CudaSlice<u16>,
    c: CudaSlice<u16>,
    _library: libloading::Library,
}

// SAFETY: a cuBLAS handle may move between threads; it is used by one at a time (&mut self).
unsafe impl Send for Gemm {}

impl Gemm {
    /// Prepares an n × n × n product of pseudo-random values (power depends on the data: zeros would flatter).
    pub fn new(gpu: &Gpu, size: usize) -> Result<Self, Error> {
        Self::on(gpu, size, gpu.stream()?)
    }

    /// [`Gemm::new`] on a stream.
    pub fn on(gpu: &Gpu, size: usize, stream: Arc<CudaStream>) -> Result<Self, Error> {
        gpu.require_memory(size * size * 6 + (64 << 20), "GEMM buffers")?;
        let missing =
            |reason: String| Error::NoLibrary { library: "libcublas.so", package: "cublas", reason };
        // SAFETY: cuBLAS's initialisers have no preconditions.
        let library = LIBRARIES
            .iter()
            .find_map(|name| unsafe { libloading::Library::new(name) }.ok())
            .ok_or_else(|| missing("not found; it comes with the CUDA toolkit".into()))?;
        type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
        type SetStream = unsafe extern "C" fn(Handle, *mut c_void) -> c_int;
        type Destroy = unsafe extern "C" fn(Handle) -> c_int;
        // SAFETY: the types are the ones cublas_api.h declares; the library is kept beside the pointers.
        let (create, set_stream, destroy, set_multiprocessors, gemm_ex) = unsafe {
            let symbol = |e: libloading::Error| missing(e.to_string());
            (
                *library.get::<Create>(b"cublasCreate_v2\0").map_err(symbol)?,
                *library.get::<SetStream>(b"cublasSetStream_v2\0").map_err(symbol)?,
                *library.get::<Destroy>(b"cublasDestroy_v2\0").map_err(symbol)?,
                *library.get::<SetMultiprocessors>(b"cublasSetSmCountTarget\0").map_err(symbol)?,
                *library.get::<GemmEx>(b"cublasGemmEx\0").map_err(symbol)?,
            )
        };
        gpu.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let (a, b) = (random_bf16(size * size, 1), random_bf16(size * size, 2));
        let a = stream.clone_htod(&a).during("cuMemcpyHtoD")?;
        let b = stream.clone_htod(&b).during("cuMemcpyHtoD")?;
        let c = stream.alloc_zeros(size * size).during("cuMemAlloc")?;
        stream.synchronize().during("cuStreamSynchronize")?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live pointer; the context is current.
        blas(unsafe { create(&mut handle) }, "cublasCreate")?;
        // SAFETY: the handle was just created; the stream lives as long as self.
        blas(unsafe { set_stream(handle, stream.cu_stream().cast()) }, "cublasSetStream")?;
        Ok(Self { handle, gemm_ex, destroy, set_multiprocessors, stream, size, a, b, c, _library: library })
    }

    /// Lets cuBLAS choose kernels for so many multiprocessors, which is all that its stream has.
    pub fn on_multiprocessors(&mut self, count: u32) -> Result<(), Error> {
        // SAFETY: a live handle.
        blas(unsafe { (self.set_multiprocessors)(self.handle, count as c_int) }, "cublasSetSmCountTarget")
    }

    /// Floating-point operations of one product.
    pub fn flop(&self) -> f64 {
        2.0 * (self.size as f64).powi(3)
    }

    /// Queues one product; does not wait.
    pub fn launch(&mut self) -> Result<(), Error> {
        let n = self.size as c_int;
        let (one, zero) = (1f32, 0f32);
        let (a, _keep_a) = self.a.device_ptr(&self.stream);
        let (b, _keep_b) = self.b.device_ptr(&self.stream);
        let (c, _keep_c) = self.c.device_ptr_mut(&self.stream);
        // SAFETY: three n × n bf16 matrices on this handle's device; alpha and
        // beta are read before the call returns (host pointer mode).
        let code = unsafe {
            (self.gemm_ex)(
                self.handle,
                OP_N,
                OP_N,
                n,
                n,
                n,
                (&raw const one).cast(),
                a as *const c_void,
                BF16,
                n,
                b as *const c_void,
                BF16,
                n,
                (&raw const zero).cast(),
                c as *mut c_void,
                BF16,
                n,
                COMPUTE_32F,
                DEFAULT,
            )
        };
        blas(code, "cublasGemmEx")
    }

    /// Waits for everything queued.
    pub fn wait(&self) -> Result<(), Error> {
        self.stream.synchronize().during("cuStreamSynchronize")
    }
}

impl Drop for Gemm {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
        // SAFETY: created in `new`, destroyed once.
        unsafe { (self.destroy)(self.handle) };
    }
}

fn blas(code: c_int, call: &'static str) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::Cuda { call, code, meaning: "cuBLAS status".into() })
}

/// Uniform in [-1, 1), as bf16 bits.
fn random_bf16(count: usize, seed: u64) -> Vec<u16> {
    let mut lcg = Lcg(seed);
    (0..count)
        .map(|_| {
            let unit = 2.0 * lcg.uniform() - 1.0;
            (unit.to_bits() >> 16) as u16
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_numbers_of_all_sizes_below_one_and_another_seed_has_others() {
        let drawn = random_bf16(4096, 1);
        assert_eq!(drawn, random_bf16(4096, 1));
        assert_ne!(drawn, random_bf16(4096, 2));
        let values: Vec<f32> = drawn.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect();
        assert!(values.iter().all(|value| value.abs() <= 1.0), "power is of products that stay finite");
        let mean = values.iter().sum::<f32>() / 4096.0;
        let square = values.iter().map(|value| value * value).sum::<f32>() / 4096.0;
        // Of a uniform law: 0 and a third; zeros, or one value again and again, would draw less power.
        assert!(mean.abs() < 0.05 && (square - 1.0 / 3.0).abs() < 0.03, "{mean} {square}");
    }

    #[test]
    fn a_status_of_the_library_is_an_error_with_its_call() {
        assert!(blas(0, "cublasCreate").is_ok());
        let error = blas(13, "cublasGemmEx").map_err(|error| error.to_string());
        assert_eq!(error, Err("cublasGemmEx failed: 13 (cuBLAS status)".into()));
    }
}
