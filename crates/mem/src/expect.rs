//! What a processor can be told about memory beforehand. Stores wait for lines that another core has read since, and those of a
//! copy ask for one after the other.

/// Has the processor fetch what is about to be written.
#[inline]
pub fn expect_writes(bytes: &mut [u8]) {
    expect_lines(bytes.as_ptr(), bytes.len());
}

/// The same for bytes that are still another's: a hint touches nothing.
#[inline]
pub(crate) fn expect_lines(start: *const u8, byte_len: usize) {
    (0..byte_len).step_by(PROCESSOR_LINE).for_each(|at| fetch_to_write(start.wrapping_add(at)));
}

/// Copies a block at a time, and has the processor fetch the lines of the next one meanwhile. Both are equally long.
#[inline]
pub(crate) fn copy_expecting(mut target: &mut [u8], source: &[u8]) {
    let first = target.len().min(BLOCK);
    expect_writes(&mut target[..first]);
    for block in source.chunks(BLOCK) {
        let (here, later) = target.split_at_mut(block.len());
        let next = later.len().min(BLOCK);
        expect_writes(&mut later[..next]);
        here.copy_from_slice(block);
        target = later;
    }
}

/// Hints that the line at this address is written soon.
#[inline(always)]
fn fetch_to_write(address: *const u8) {
    // By hand, because the intrinsic becomes a hint for reading unless all is built for processors that surely know this one.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint: it changes nothing that a program could see, faults at no address, and does nothing on processors without it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    let _ = address;
}

/// Bytes of a block: enough that the next one's lines come while it is copied, and few enough that these do not get in the way.
const BLOCK: usize = 1024;
/// The bytes that a processor fetches at a time.
pub const PROCESSOR_LINE: usize = 64;
