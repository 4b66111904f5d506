//! The instruction set a kernel runs on, chosen at run time.

#[cfg(target_arch = "x86_64")]
use phalanx_mem::Halves;
use pulp::Arch;

/// What a kernel may assume about the machine beyond what the compiler already knows.
#[derive(Clone, Copy)]
pub(super) enum Isa {
    /// Nothing: plain code, which the compiler may have vectorised for the set it is inlined into.
    Portable,
    /// The AVX2 of the x86-64-v3 level, with its conversions of 16-bit floats.
    #[cfg(target_arch = "x86_64")]
    V3(pulp::x86::V3, Halves),
    /// The AVX-512 of the x86-64-v4 level.
    #[cfg(target_arch = "x86_64")]
    V4(pulp::x86::V4),
}

#[cfg(target_arch = "x86_64")]
impl Isa {
    #[inline(always)]
    pub(super) fn v3(self) -> Option<(pulp::x86::V3, Halves)> {
        match self {
            Isa::V3(v3, halves) => Some((v3, halves)),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn v4(self) -> Option<pulp::x86::V4> {
        match self {
            Isa::V4(v4) => Some(v4),
            _ => None,
        }
    }
}

/// Runs `kernel` compiled for `arch`. It must be `#[inline(always)]` all the way down, or it is compiled for the base set.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn run_on(arch: Arch, kernel: impl FnOnce(Isa)) {
    if let Arch::V4(v4) = arch {
        return v4.vectorize(
            #[inline(always)]
            || kernel(Isa::V4(v4)),
        );
    }
    if let Arch::V3(v3) = arch
        && let Some(halves) = Halves::detect()
    {
        return halves.vectorize(
            #[inline(always)]
            || kernel(Isa::V3(v3, halves)),
        );
    }
    // Nobody makes a processor with AVX2 that does not convert halves, for which all kernels would be compiled once more.
    kernel(Isa::Portable);
}

/// Runs `kernel` compiled for `arch`. It must be `#[inline(always)]` all the way down, or it is compiled for the base set.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(super) fn run_on(arch: Arch, kernel: impl FnOnce(Isa)) {
    arch.dispatch(
        #[inline(always)]
        || kernel(Isa::Portable),
    );
}
