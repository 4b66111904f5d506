//! The instruction set a kernel runs on, chosen at run time.

use pulp::Arch;

/// What a kernel may assume about the machine beyond what the compiler already knows.
#[derive(Clone, Copy)]
pub(super) enum Isa {
    /// Nothing: plain code, which the compiler may have vectorised for the set it is inlined into.
    Portable,
    /// The AVX-512 of the x86-64-v4 level.
    #[cfg(target_arch = "x86_64")]
    V4(pulp::x86::V4),
}

/// Runs `kernel` compiled for `arch`. It must be `#[inline(always)]` all the way down, or it is compiled for the base set.
#[inline(always)]
pub(super) fn run_on(arch: Arch, kernel: impl FnOnce(Isa)) {
    match arch {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(v4) => v4.vectorize(
            #[inline(always)]
            || kernel(Isa::V4(v4)),
        ),
        arch => arch.dispatch(
            #[inline(always)]
            || kernel(Isa::Portable),
        ),
    }
}
