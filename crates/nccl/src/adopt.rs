//! Memory of a device that another library has made. Whoever brings it vouches for it, which is why this is not in `group`.

use std::sync::Arc;

use crate::api::{Cuda, Span};
use crate::group::DeviceBuffer;

impl<C: Cuda> DeviceBuffer<C> {
    /// Memory of a device that another library has made, as the tensors of candle, cudarc and PyTorch are: so many bytes from an address on.
    ///
    /// `keeper` is what it stays by, such as the tensor. It is dropped with the last handle, once nothing that was submitted to a group needs
    /// the memory any more, on whatever thread that is: often one of the group's own, which no operation waits for.
    ///
    /// # Safety
    ///
    /// So many bytes from `address` on are memory that a device of `cuda` reads and writes in its primary context, and stay so until `keeper`
    /// is dropped. Whoever else uses them meanwhile does so in the order of streams: after the end of an operation that writes them, or that
    /// reads what is then written.
    pub unsafe fn adopt(
        cuda: &Arc<C>,
        address: u64,
        byte_len: usize,
        keeper: impl Send + Sync + 'static,
    ) -> DeviceBuffer<C> {
        let span = if byte_len == 0 { Span::EMPTY } else { Span::new(address, byte_len) };
        // It goes with the function that holds it.
        DeviceBuffer::lent(cuda, span, move |_| {
            let _ = &keeper;
        })
    }
}
