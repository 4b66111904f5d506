//! Memory for key material: a page of its own, wiped before it is given back. What the key is for is not known here.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

use zeroize::Zeroize;

use crate::page::Page;

/// `N` secret bytes.
///
/// On Linux they are never swapped and are left out of core files, as far as the system's limits allow, and a forked child
/// finds zeros in their place. Everywhere they are overwritten on drop, and are not shown by `Debug`.
pub struct Secret<const N: usize> {
    page: Page,
}

impl<const N: usize> Secret<N> {
    /// `N` zero bytes, to be filled in place so that no copy stays elsewhere.
    ///
    /// # Errors
    ///
    /// When the system has no memory left.
    pub fn zeroed() -> io::Result<Secret<N>> {
        const { assert!(N > 0, "a secret of no bytes") };
        let page = Page::zeroed(N)?;
        page.shelter();
        Ok(Secret { page })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; N] {
        // SAFETY: the page is valid for `N` bytes, which are initialised, and nobody writes while `self` is borrowed.
        unsafe { self.page.start().cast().as_ref() }
    }

    /// The bytes, to be filled in.
    pub fn bytes_mut(&mut self) -> &mut [u8; N] {
        // SAFETY: the page is valid for `N` bytes, which are initialised, and `self` is borrowed by nobody else.
        unsafe { self.page.start().cast().as_mut() }
    }
}

impl<const N: usize> Drop for Secret<N> {
    fn drop(&mut self) {
        self.bytes_mut().zeroize();
    }
}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({N} bytes)")
    }
}
