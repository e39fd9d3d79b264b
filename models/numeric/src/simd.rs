//! Which processor this is, and the same code for wider registers.
//!
//! Kernels are plain loops, written once. Where the processor has AVX-512 or AVX2 they
//! run from a copy that the compiler made for it: same operations in the same
//! order, integer or IEEE 754 without contraction, so all copies give the
//! same bits, and tests hold them beside the scalar truth. On aarch64 the one copy is
//! for NEON, which every such processor has.

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

/// Runs a kernel with registers of eight values where there are any.
pub fn widest<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has just said that it has these instructions.
        #[allow(unsafe_code)]
        return unsafe { with_avx2(kernel) };
    }
    narrow(kernel)
}

/// Runs a kernel as it is compiled for every processor: what wide copies are held against.
///
/// Never inlined: a kernel is large, and whoever calls this would have a copy of all of it.
#[inline(never)]
pub fn narrow<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// The plain truth.
    Scalar,
    /// Four values, on aarch64.
    Neon,
    Avx2,
    Avx512,
}

impl Width {
    /// The widest that the processor has.
    pub fn widest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = has_avx2();
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx2 && avx512 {
                return Self::Avx512;
            }
            if avx2 {
                return Self::Avx2;
            }
        }
        if cfg!(target_arch = "aarch64") { Self::Neon } else { Self::Scalar }
    }

    /// Every width that can be used here.
    pub fn available() -> impl Iterator<Item = Self> {
        let all: &[Self] = if cfg!(target_arch = "aarch64") {
            &[Self::Scalar, Self::Neon]
        } else {
            &[Self::Scalar, Self::Avx2, Self::Avx512]
        };
        let widest = Self::widest();
        all.iter().copied().filter(move |&width| width <= widest)
    }
}

/// Runs a kernel with registers of a width that [`Width::available`] named.
pub fn with_width<K: Kernel>(width: Width, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        let widest = Width::widest();
        if width == Width::Avx512 && widest >= Width::Avx512 {
            // SAFETY: the processor has just said that it has these instructions.
            #[allow(unsafe_code)]
            return unsafe { with_avx512(kernel) };
        }
        if width >= Width::Avx2 && widest >= Width::Avx2 {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            return unsafe { with_avx2(kernel) };
        }
    }
    let _ = width;
    narrow(kernel)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn with_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
