//! A matrix product to keep the SMs busy while other engines work: bf16 in,
//! f32 accumulation, through cuBLAS.

use crate::compute::blas::{Blas, Product, random_bf16};
use crate::compute::{Layout, Operand};
use crate::error::{During, Error};
use crate::gpu::Gpu;
use crate::stats::wall_s;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;

/// A square bf16 product C = A·B on its own stream.
#[derive(Debug)]
pub(crate) struct Gemm {
    /// Dropped first, which waits for the stream.
    blas: Blas,
    product: Product,
    _operands: [CudaSlice<u16>; 3],
}

impl Gemm {
    /// Prepares an n × n × n product of pseudo-random values (power depends on the data: zeros would flatter).
    pub fn new(gpu: &Gpu, size: usize) -> Result<Self, Error> {
        Self::on(gpu, size, gpu.stream()?)
    }

    /// [`Gemm::new`] on a stream.
    pub fn on(gpu: &Gpu, size: usize, stream: Arc<CudaStream>) -> Result<Self, Error> {
        gpu.require_memory(size * size * 6 + (64 << 20), "GEMM buffers")?;
        let blas = Blas::open(gpu, stream.clone())?;
        let random = |seed| stream.clone_htod(&random_bf16(size * size, seed)).during("cuMemcpyHtoD");
        let operands = [random(1)?, random(2)?, stream.alloc_zeros(size * size).during("cuMemAlloc")?];
        stream.synchronize().during("cuStreamSynchronize")?;
        let [w, x, y] = [0, 1, 2].map(|at| operands[at].device_ptr(&stream).0);
        // Both operands as they lie.
        let (operand, layout) = (Operand::Bf16, Layout::InputGradient);
        let product = Product { operand, layout, m: size, n: size, k: size, batch: 1, x, w, y };
        Ok(Self { blas, product, _operands: operands })
    }

    /// Lets cuBLAS choose kernels for so many multiprocessors, which is all that its stream has.
    pub fn on_multiprocessors(&self, count: u32) -> Result<(), Error> {
        self.blas.on_multiprocessors(count)
    }

    /// Floating-point operations of one product.
    pub fn flop(&self) -> f64 {
        2.0 * (self.product.n as f64).powi(3)
    }

    /// Queues so many products; does not wait.
    pub fn launch(&self, count: usize) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.blas.launch(&self.product))
    }

    pub fn wait(&self) -> Result<(), Error> {
        self.blas.stream.synchronize().during("cuStreamSynchronize")
    }

    pub fn products_s(&self, count: usize) -> Result<f64, Error> {
        wall_s(|| self.launch(count).and_then(|()| self.wait()))
    }
}
