//! Memory: what was given out, so that it is freed once and read only while it is there.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Mutex;

use super::table::Opaque;
use super::{CudaDriver, locked};
use crate::api::{CudaCode, Device, Span};

/// What this driver gave out, by address.
#[derive(Debug, Default)]
pub(super) struct Memory {
    device: Mutex<BTreeMap<u64, (Device, usize)>>,
    host: Mutex<BTreeMap<u64, (Device, usize)>>,
}

impl Memory {
    /// The device in whose memory this lies.
    pub(super) fn device_with(&self, span: Span) -> Option<Device> {
        let held = locked(&self.device);
        let (start, (device, byte_len)) = held.range(..=span.address()).next_back()?;
        let end = usize::try_from(span.address() - start).ok()?.checked_add(span.byte_len())?;
        (end <= *byte_len).then_some(*device)
    }
}

impl CudaDriver {
    pub(super) fn take_device_memory(&self, device: Device, byte_len: usize) -> Result<Span, CudaCode> {
        if byte_len == 0 {
            return Ok(Span::EMPTY);
        }
        let mut address = 0;
        self.on(device, || {
            // SAFETY: room for an address.
            self.call(&self.functions.allocate, |call| unsafe { call(&mut address, byte_len) })
        })?;
        locked(&self.memory.device).insert(address, (device, byte_len));
        Ok(Span::new(address, byte_len))
    }

    pub(super) fn give_device_memory(&self, device: Device, span: Span) -> Result<(), CudaCode> {
        if span.is_empty() {
            return Ok(());
        }
        let mut held = locked(&self.memory.device);
        if held.get(&span.address()) != Some(&(device, span.byte_len())) {
            return Err(CudaCode::INVALID_VALUE);
        }
        held.remove(&span.address());
        drop(held);
        // SAFETY: what was given out, and is not given out any more.
        self.on(device, || self.call(&self.functions.free, |call| unsafe { call(span.address()) }))
    }

    pub(super) fn take_host_memory(&self, byte_len: usize) -> Result<Span, CudaCode> {
        if byte_len == 0 {
            return Ok(Span::EMPTY);
        }
        let (mut address, device): (Opaque, Device) = (ptr::null_mut(), self.any_device());
        self.on(device, || {
            // SAFETY: room for an address.
            self.call(&self.functions.allocate_host, |call| unsafe { call(&mut address, byte_len, PORTABLE) })
        })?;
        let span = Span::new(address.expose_provenance() as u64, byte_len);
        locked(&self.memory.host).insert(span.address(), (device, byte_len));
        Ok(span)
    }

    pub(super) fn give_host_memory(&self, span: Span) -> Result<(), CudaCode> {
        if span.is_empty() {
            return Ok(());
        }
        let mut held = locked(&self.memory.host);
        let known = held.get(&span.address()).filter(|(_, byte_len)| *byte_len == span.byte_len());
        let (device, _) = *known.ok_or(CudaCode::INVALID_VALUE)?;
        held.remove(&span.address());
        // Others go on meanwhile: the driver waits for all that runs before it frees.
        drop(held);
        let address = ptr::with_exposed_provenance_mut(span.address() as usize);
        // SAFETY: what was given out, and is not given out any more. Who reads or writes it found it under the lock, and holds that.
        self.on(device, || self.call(&self.functions.free_host, |call| unsafe { call(address) }))
    }

    pub(super) fn read_pinned(&self, from: Span, to: &mut [u8]) -> Result<(), CudaCode> {
        self.with_pinned(from, to.len(), |address| {
            // SAFETY: as many bytes as both have. It is there while the lock is held, and nothing of Rust's lies in it.
            unsafe { ptr::copy_nonoverlapping(address.cast_const(), to.as_mut_ptr(), to.len()) }
        })
    }

    pub(super) fn write_pinned(&self, to: Span, from: &[u8]) -> Result<(), CudaCode> {
        self.with_pinned(to, from.len(), |address| {
            // SAFETY: as many bytes as both have. It is there while the lock is held, and nothing of Rust's lies in it.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), address, from.len()) }
        })
    }

    /// Does something with pinned memory, of which this is a part of that length.
    fn with_pinned(&self, span: Span, byte_len: usize, run: impl FnOnce(*mut u8)) -> Result<(), CudaCode> {
        if span.byte_len() != byte_len {
            return Err(CudaCode::INVALID_VALUE);
        }
        if span.is_empty() {
            return Ok(());
        }
        let held = locked(&self.memory.host);
        let (start, (_, len)) = held.range(..=span.address()).next_back().ok_or(CudaCode::INVALID_VALUE)?;
        let offset = usize::try_from(span.address() - start).unwrap_or(usize::MAX);
        if offset.checked_add(byte_len).is_none_or(|end| end > *len) {
            return Err(CudaCode::INVALID_VALUE);
        }
        run(ptr::with_exposed_provenance_mut(span.address() as usize));
        Ok(())
    }
}

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every device.
const PORTABLE: u32 = 1;
