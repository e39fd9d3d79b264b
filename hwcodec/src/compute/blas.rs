//! Matrix products through cuBLAS (cuBLASLt for fp8), on one stream, with a
//! workspace of our own so that products can be captured into a graph.

use super::points::{Layout, Operand};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use cudarc::cublas::{self, result as blas, sys as blas_sys};
use cudarc::cublaslt::{result as lt, sys as lt_sys};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use trinity_numeric::random::Lcg;

/// What PyTorch gives cuBLAS on Hopper too.
const WORKSPACE_BYTES: usize = 32 << 20;

/// `y[m×n] = x[m×k] · w` at addresses on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub operand: Operand,
    pub layout: Layout,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Independent products, one after the other in memory.
    pub batch: usize,
    pub x: u64,
    pub w: u64,
    pub y: u64,
}

#[derive(Debug)]
pub(crate) struct Blas {
    handle: blas_sys::cublasHandle_t,
    light: Option<lt_sys::cublasLtHandle_t>,
    pub stream: Arc<CudaStream>,
    workspace: CudaSlice<u8>,
}

impl Blas {
    pub fn open(gpu: &Gpu, stream: Arc<CudaStream>) -> Result<Self, Error> {
        // SAFETY: only tries to dlopen the libraries.
        let (plain, light) =
            unsafe { (cublas::sys::is_culib_present(), cudarc::cublaslt::sys::is_culib_present()) };
        if !plain {
            return Err(Error::no_toolkit("libcublas.so", "cublas"));
        }
        gpu.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mut workspace = stream.alloc_zeros::<u8>(WORKSPACE_BYTES).during("cuMemAlloc")?;
        stream.synchronize().during("cuStreamSynchronize")?;
        let handle = blas::create_handle().map_err(|e| status("cublasCreate", e.0 as i32))?;
        let light = light.then(lt::create_handle).and_then(Result::ok);
        let (address, keep) = workspace.device_ptr_mut(&stream);
        // SAFETY: handle, stream and workspace live as long as the value made of them.
        unsafe {
            blas::set_stream(handle, stream.cu_stream().cast())
                .map_err(|e| status("cublasSetStream", e.0 as i32))?;
            blas_sys::cublasSetWorkspace_v2(handle, address as *mut c_void, WORKSPACE_BYTES)
                .result()
                .map_err(|e| status("cublasSetWorkspace", e.0 as i32))?;
        }
        drop(keep);
        Ok(Self { handle, light, stream, workspace })
    }

    /// Lets cuBLAS choose kernels for so many multiprocessors, which is all that its stream has.
    pub fn on_multiprocessors(&self, count: u32) -> Result<(), Error> {
        // SAFETY: a live handle.
        unsafe { blas_sys::cublasSetSmCountTarget(self.handle, count as c_int) }
            .result()
            .map_err(|e| status("cublasSetSmCountTarget", e.0 as i32))
    }

    /// Queues `product`; does not wait.
    pub fn launch(&self, product: &Product) -> Result<(), Error> {
        match product.operand {
            Operand::Fp8 => self.launch_light(product),
            _ => self.launch_plain(product),
        }
    }

    /// Row-major y = x·w is column-major yᵀ = wᵀ·xᵀ: `w` comes first.
    fn launch_plain(&self, p: &Product) -> Result<(), Error> {
        use blas_sys::cublasOperation_t::{CUBLAS_OP_N as N, CUBLAS_OP_T as T};
        let (kind, compute) = match p.operand {
            Operand::Bf16 => (blas_sys::cudaDataType::CUDA_R_16BF, PLAIN),
            Operand::Fp16 => (blas_sys::cudaDataType::CUDA_R_16F, PLAIN),
            _ => (
                blas_sys::cudaDataType::CUDA_R_32F,
                blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            ),
        };
        let (w_op, w_ld, x_op, x_ld) = match p.layout {
            Layout::Forward => (T, p.k, N, p.k),
            Layout::InputGradient => (N, p.n, N, p.k),
            Layout::WeightGradient => (N, p.n, T, p.m),
        };
        let (one, zero) = (1f32, 0f32);
        let (n, m, k) = (p.n as c_int, p.m as c_int, p.k as c_int);
        let (alpha, beta) = ((&raw const one).cast(), (&raw const zero).cast());
        let (w, x, y) = (p.w as *const c_void, p.x as *const c_void, p.y as *mut c_void);
        let (w_ld, x_ld, y_ld) = (w_ld as c_int, x_ld as c_int, p.n as c_int);
        let algorithm = blas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT;
        // SAFETY: the caller's addresses hold `batch` matrices of these sizes on
        // this handle's device; alpha and beta are read before the call returns.
        let answer = unsafe {
            if p.batch == 1 {
                blas::gemm_ex(
                    self.handle,
                    w_op,
                    x_op,
                    n,
                    m,
                    k,
                    alpha,
                    w,
                    kind,
                    w_ld,
                    x,
                    kind,
                    x_ld,
                    beta,
                    y,
                    kind,
                    y_ld,
                    compute,
                    algorithm,
                )
            } else {
                let strides = [p.n * p.k, p.m * p.k, p.m * p.n].map(|values| values as i64);
                blas::gemm_strided_batched_ex(
                    self.handle,
                    w_op,
                    x_op,
                    n,
                    m,
                    k,
                    alpha,
                    w,
                    kind,
                    w_ld,
                    strides[0],
                    x,
                    kind,
                    x_ld,
                    strides[1],
                    beta,
                    y,
                    kind,
                    y_ld,
                    strides[2],
                    p.batch as c_int,
                    compute,
                    algorithm,
                )
            }
        };
        answer.map_err(|e| status("cublasGemmEx", e.0 as i32))
    }

    /// fp8 takes only the forward layout, and writes bf16.
    fn launch_light(&self, p: &Product) -> Result<(), Error> {
        let Some(handle) = self.light else {
            return Err(Error::no_toolkit("libcublasLt.so", "cublas"));
        };
        let failed = |e: lt::CublasError| status("cublasLtMatmul", e.0 as i32);
        let (fp8, bf16) = (lt_sys::cudaDataType::CUDA_R_8F_E4M3, lt_sys::cudaDataType::CUDA_R_16BF);
        let (m, n, k) = (p.m as u64, p.n as u64, p.k as u64);
        let (one, zero) = (1f32, 0f32);
        // cublasOperation_t, which cudarc's cuBLASLt leaves out.
        let transposed = blas_sys::cublasOperation_t::CUBLAS_OP_T as i32;
        let (workspace, _keep) = self.workspace.device_ptr(&self.stream);
        // SAFETY: descriptors are made here and destroyed below; the addresses
        // hold matrices of these sizes.
        unsafe {
            let description = lt::create_matmul_desc(
                lt_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                lt_sys::cudaDataType::CUDA_R_32F,
            )
            .map_err(failed)?;
            let attribute = lt_sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA;
            let size = std::mem::size_of_val(&transposed);
            lt::set_matmul_desc_attribute(description, attribute, (&raw const transposed).cast(), size)
                .map_err(failed)?;
            let w = lt::create_matrix_layout(fp8, k, n, k as i64).map_err(failed)?;
            let x = lt::create_matrix_layout(fp8, k, m, k as i64).map_err(failed)?;
            let y = lt::create_matrix_layout(bf16, n, m, n as i64).map_err(failed)?;
            let wishes = lt::create_matmul_pref().map_err(failed)?;
            let most = WORKSPACE_BYTES;
            let attribute =
                lt_sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            lt::set_matmul_pref_attribute(wishes, attribute, (&raw const most).cast(), size_of::<usize>())
                .map_err(failed)?;
            let done =
                lt::get_matmul_algo_heuristic(handle, description, w, x, y, y, wishes).and_then(|best| {
                    lt::matmul(
                        handle,
                        description,
                        (&raw const one).cast(),
                        (&raw const zero).cast(),
                        p.w as *const c_void,
                        w,
                        p.x as *const c_void,
                        x,
                        p.y as *const c_void,
                        y,
                        p.y as *mut c_void,
                        y,
                        &best.algo,
                        workspace as *mut c_void,
                        WORKSPACE_BYTES,
                        self.stream.cu_stream().cast(),
                    )
                });
            for layout in [w, x, y] {
                lt::destroy_matrix_layout(layout).map_err(failed)?;
            }
            lt::destroy_matmul_pref(wishes).map_err(failed)?;
            lt::destroy_matmul_desc(description).map_err(failed)?;
            done.map_err(failed)
        }
    }
}

const PLAIN: blas_sys::cublasComputeType_t = blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;

impl Drop for Blas {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
        // SAFETY: created in `open`, destroyed once.
        unsafe {
            let _ = blas::destroy_handle(self.handle);
            if let Some(light) = self.light {
                let _ = lt::destroy_handle(light);
            }
        }
    }
}

fn status(call: &'static str, code: i32) -> Error {
    Error::Cuda { call, code, meaning: "cuBLAS status".into() }
}

/// Uniform in [-1, 1), as bf16 bits: power and speed depend on the data.
pub(crate) fn random_bf16(count: usize, seed: u64) -> Vec<u16> {
    let mut lcg = Lcg(seed);
    (0..count).map(|_| ((2.0 * lcg.uniform() - 1.0).to_bits() >> 16) as u16).collect()
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
        let error = status("cublasGemmEx", 13).to_string();
        assert_eq!(error, "cublasGemmEx failed: 13 (cuBLAS status)");
    }
}
