//! Stands in for `memfd` where the system has no sealed anonymous files: nothing can be created or opened.

use std::convert::Infallible;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::SegmentError;

pub(crate) fn create(_byte_len: usize) -> Result<OwnedFd, SegmentError> {
    Err(SegmentError::Unsupported)
}

pub(crate) fn create_sparse(_byte_len: usize, _reserved: usize) -> Result<OwnedFd, SegmentError> {
    Err(SegmentError::Unsupported)
}

pub(crate) fn reserve(_fd: BorrowedFd<'_>, _range: Range<usize>) -> Result<(), SegmentError> {
    Err(SegmentError::Unsupported)
}

pub(crate) fn sealed_byte_len(_fd: BorrowedFd<'_>) -> Result<usize, SegmentError> {
    Err(SegmentError::Unsupported)
}

pub(crate) struct Mapping(Infallible);

impl Mapping {
    pub(crate) fn new(_fd: BorrowedFd<'_>, _byte_len: usize) -> Result<Mapping, SegmentError> {
        Err(SegmentError::Unsupported)
    }

    pub(crate) fn populate(&self, _byte_len: usize) {
        match self.0 {}
    }

    pub(crate) fn part_with(&self, _fd: BorrowedFd<'_>, _range: Range<usize>) -> Result<(), SegmentError> {
        match self.0 {}
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        match self.0 {}
    }
}
