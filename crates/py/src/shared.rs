//! Memory of a group's making as Python sees it: an address and a length, there for as long as the object is.

use phalanx::Buffer;
use pyo3::pyclass;

/// Bytes that the ranks of this host read and write where they are, if the group is on one host.
#[pyclass(frozen, module = "phalanx._native")]
pub(crate) struct Memory {
    /// Kept for its drop, and not looked at: Python reads and writes by the address.
    _buffer: Buffer,
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    byte_len: usize,
}

impl Memory {
    pub(crate) fn new(mut buffer: Buffer) -> Memory {
        let bytes = buffer.as_bytes_mut();
        let (address, byte_len) = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
        Memory { _buffer: buffer, address, byte_len }
    }
}
