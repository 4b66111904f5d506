//! Memory of the group's own that operations go through, kept for the next ones until the group ends.
//!
//! To free memory, the driver waits for all that runs on the device. What runs there may wait for another rank, whose thread frees memory and
//! waits for what in turn waits for this rank: so no lane frees what every operation needs anew.

use std::sync::{Arc, Mutex};

use phalanx_core::Result;

use super::hall::lock;
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::{failure, freeing};
use crate::api::{Bell, Cuda, CudaCode, Device, Span};

/// What a group keeps.
pub(super) struct Staging<C: Cuda> {
    cuda: Arc<C>,
    device: Device,
    /// Rung before anything is kept: whoever takes it then knows what its last user saw.
    bell: Arc<dyn Bell>,
    kept: Mutex<Vec<(Kind, Span)>>,
}

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Host,
}

impl<C: Cuda> Staging<C> {
    pub(super) fn new(cuda: &Arc<C>, device: Device, bell: Arc<dyn Bell>) -> Arc<Staging<C>> {
        Arc::new(Staging { cuda: Arc::clone(cuda), device, bell, kept: Mutex::default() })
    }

    /// Memory of the device, which comes back here.
    pub(super) fn device(self: &Arc<Staging<C>>, byte_len: usize) -> Result<DeviceBuffer<C>> {
        let (whole, home) = (self.take(Kind::Device, byte_len)?, Arc::clone(self));
        DeviceBuffer::shelved(&self.cuda, whole, move |span| home.keep(Kind::Device, span)).part(0, byte_len)
    }

    /// Pinned memory of the host, which comes back here.
    pub(super) fn host(self: &Arc<Staging<C>>, byte_len: usize) -> Result<PinnedBuffer<C>> {
        let (whole, home) = (self.take(Kind::Host, byte_len)?, Arc::clone(self));
        PinnedBuffer::lent(&self.cuda, whole, move |span| home.keep(Kind::Host, span)).part(0, byte_len)
    }

    fn take(&self, kind: Kind, byte_len: usize) -> Result<Span> {
        if byte_len == 0 {
            return Ok(Span::EMPTY);
        }
        let class = class(byte_len);
        let kept = {
            let mut kept = lock(&self.kept);
            let at = kept.iter().rposition(|(of, span)| *of == kind && span.byte_len() == class);
            at.map(|at| kept.swap_remove(at))
        };
        if let Some((_, span)) = kept {
            self.bell.count();
            return Ok(span);
        }
        let made = match self.make(kind, class) {
            Err(CudaCode::OUT_OF_MEMORY) if self.free_all(kind) > 0 => self.make(kind, class),
            made => made,
        };
        let call = if kind == Kind::Device { "allocate" } else { "allocate_host" };
        made.map_err(|code| failure::of_cuda(&*self.cuda, call, code))
    }

    fn make(&self, kind: Kind, byte_len: usize) -> std::result::Result<Span, CudaCode> {
        match kind {
            Kind::Device => freeing::allocate(&self.cuda, self.device, byte_len),
            Kind::Host => self.cuda.allocate_host(byte_len),
        }
    }

    fn keep(&self, kind: Kind, span: Span) {
        self.bell.ring();
        lock(&self.kept).push((kind, span));
    }

    /// Frees what is kept of a kind; how many pieces that was.
    fn free_all(&self, kind: Kind) -> usize {
        let kept: Vec<_> = lock(&self.kept).extract_if(.., |(of, _)| *of == kind).collect();
        self.bell.count();
        for (_, span) in &kept {
            let freed = match kind {
                Kind::Device => self.cuda.free(self.device, *span),
                Kind::Host => self.cuda.free_host(*span),
            };
            if let Err(code) = freed {
                log::debug!("memory was not freed: {code}");
            }
        }
        kept.len()
    }
}

impl<C: Cuda> Drop for Staging<C> {
    fn drop(&mut self) {
        for kind in [Kind::Device, Kind::Host] {
            self.free_all(kind);
        }
    }
}

/// How long memory is that so many bytes go through: two lengths between one power of two and the next, so that few are kept and little is
/// left over.
fn class(byte_len: usize) -> usize {
    let step = byte_len.checked_next_power_of_two().map_or(1, |power| power / 4);
    byte_len.checked_next_multiple_of(step.max(LEAST)).unwrap_or(byte_len)
}

/// What the driver gives at least.
const LEAST: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_in_few_classes_with_little_left_over() {
        assert_eq!([1, 4, 512, 513].map(class), [512, 512, 512, 1024]);
        assert_eq!([4097, 6144, 6145, 8192].map(class), [6144, 6144, 8192, 8192]);
        assert_eq!(class(usize::MAX), usize::MAX);
        for byte_len in 1024..10_000 {
            let class = class(byte_len);
            assert!(class >= byte_len && class * 2 <= byte_len * 3 + 2 * LEAST, "{byte_len}");
        }
    }
}
