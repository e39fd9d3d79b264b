//! The same code for wider registers.
//!
//! Kernels are plain loops, written once. Where the processor has AVX2 they
//! run from a copy that the compiler made for it: same operations in the same
//! order, integer or IEEE 754 without contraction, so both copies give the
//! same bits, and a test holds them side by side.

/// Work that is worth a copy of its own. `run` and all that it calls in its
/// inner loops must be `#[inline(always)]`, or it stays as narrow as it was.
pub trait Kernel {
    type Output;
    fn run(self) -> Self::Output;
}

/// Whether the wide copies can run here.
#[cfg(target_arch = "x86_64")]
pub fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Whether registers of sixteen values can be used here.
#[cfg(target_arch = "x86_64")]
pub fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

/// Runs a kernel with the widest registers there are.
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has just said that it has these instructions.
        #[allow(unsafe_code)]
        return unsafe { with_avx2(kernel) };
    }
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
