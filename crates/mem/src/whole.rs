//! Copies by the instruction that processors have for them.

/// Copies bytes as the processor itself does it. Where it writes whole lines it need not fetch what was there before, which another core may
/// have: on some processors that takes a third of the time, on others more than a loop.
///
/// # Panics
///
/// Unless both are equally long.
pub(crate) fn copy_whole(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as many bytes as both have, which do not overlap, because one is borrowed mutably. The direction is upwards, as it is wherever
    // a function begins.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") from.len() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    into.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_from_any_address_to_any_address_is_copied() {
        let from: Vec<u8> = (0..1000).map(|at| (at % 251) as u8).collect();
        for (start, len) in [0, 1, 63, 64].into_iter().flat_map(|start| [0, 1, 64, 65, 800].map(|len| (start, len))) {
            let mut into = vec![0xEE; 1000];
            copy_whole(&mut into[start..start + len], &from[3..3 + len]);
            assert_eq!(into[start..start + len], from[3..3 + len], "{len} bytes to {start}");
            assert!(into[..start].iter().chain(&into[start + len..]).all(|byte| *byte == 0xEE));
        }
    }
}
