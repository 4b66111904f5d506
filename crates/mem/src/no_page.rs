//! Stands in for `page` where memory cannot be kept from core files by a system call we know: ordinary heap memory.

use std::io;
use std::ptr::NonNull;

use crate::allocation::{Allocation, MAX_ALIGN};

pub(crate) struct Page(Allocation);

impl Page {
    pub(crate) fn zeroed(byte_len: usize) -> io::Result<Page> {
        Ok(Page(Allocation::zeroed(byte_len, MAX_ALIGN).map_err(|_| io::ErrorKind::OutOfMemory)?))
    }

    pub(crate) fn shelter(&self) {}

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start()
    }
}
