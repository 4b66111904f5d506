//! Memory and events that other processes of this host open.
//!
//! The driver shares whole allocations: what another process gets is the one in which the memory lies, and where in it.

use std::ptr;

use super::table::Exported;
use super::{CudaDriver, locked};
use crate::api::{CudaCode, Device, Event, Shared, Span};

impl CudaDriver {
    pub(super) fn give_memory(&self, device: Device, span: Span) -> Result<Shared, CudaCode> {
        let (mut start, mut byte_len, mut exported) = (0, 0, Exported([0; 64]));
        self.on(device, || {
            // SAFETY: room for an address and a length.
            self.call(&self.functions.address_range, |call| unsafe {
                call(&mut start, &mut byte_len, span.address())
            })?;
            // SAFETY: memory that the driver knows, and room for what is exported.
            self.call(&self.functions.export_memory, |call| unsafe { call(&mut exported, start) })
        })?;
        let offset = span.address() - start;
        let mut bytes = exported.0.to_vec();
        bytes.extend(offset.to_le_bytes());
        bytes.extend((span.byte_len() as u64).to_le_bytes());
        Ok(Shared(bytes))
    }

    pub(super) fn take_memory(&self, device: Device, shared: &Shared) -> Result<Span, CudaCode> {
        let (exported, rest) = split(shared)?;
        let (offset, byte_len) = rest.split_first_chunk::<8>().ok_or(CudaCode::INVALID_VALUE)?;
        let offset = u64::from_le_bytes(*offset);
        let byte_len = u64::from_le_bytes(byte_len.try_into().map_err(|_| CudaCode::INVALID_VALUE)?);
        let mut start = 0;
        self.on(device, || {
            // SAFETY: room for an address; whatever the bytes are, the driver judges them.
            self.call(&self.functions.import_memory, |call| unsafe { call(&mut start, exported, PEER_ACCESS) })?;
            let (mut base, mut all) = (0, 0);
            // SAFETY: room for an address and a length.
            self.call(&self.functions.address_range, |call| unsafe { call(&mut base, &mut all, start) })?;
            // The other process says where in it, which is to be believed no further than it goes.
            if offset.checked_add(byte_len).is_none_or(|end| end > all as u64) {
                self.close(start)?;
                return Err(CudaCode::INVALID_VALUE);
            }
            Ok(())
        })?;
        let span = Span::new(start + offset, usize::try_from(byte_len).map_err(|_| CudaCode::INVALID_VALUE)?);
        locked(&self.imported).entry(span).or_default().push((device, start));
        Ok(span)
    }

    pub(super) fn forget_memory(&self, span: Span) -> Result<(), CudaCode> {
        let taken = locked(&self.imported).get_mut(&span).and_then(Vec::pop);
        let (device, start) = taken.ok_or(CudaCode::INVALID_VALUE)?;
        self.on(device, || self.close(start))
    }

    fn close(&self, start: u64) -> Result<(), CudaCode> {
        // SAFETY: what an import gave, and is not used any more.
        self.call(&self.functions.close_memory, |call| unsafe { call(start) })
    }

    pub(super) fn give_event(&self, event: Event) -> Result<Shared, CudaCode> {
        let mut exported = Exported([0; 64]);
        self.with_event(event, |event| {
            // SAFETY: an event that is there, and room for what is exported.
            self.call(&self.functions.export_event, |call| unsafe { call(&mut exported, event) })
        })?;
        Ok(Shared(exported.0.to_vec()))
    }

    pub(super) fn take_event(&self, device: Device, shared: &Shared) -> Result<Event, CudaCode> {
        let (exported, _) = split(shared)?;
        let mut pointer = ptr::null_mut();
        self.on(device, || {
            // SAFETY: room for an event; whatever the bytes are, the driver judges them.
            self.call(&self.functions.import_event, |call| unsafe { call(&mut pointer, exported) })
        })?;
        Ok(self.enter_event(device, pointer))
    }

    /// The device in whose memory this lies.
    pub(super) fn device_with(&self, span: Span) -> Result<Device, CudaCode> {
        self.memory.device_with(span).ok_or(CudaCode::INVALID_VALUE)
    }
}

fn split(shared: &Shared) -> Result<(Exported, &[u8]), CudaCode> {
    let (exported, rest) = shared.0.split_first_chunk::<64>().ok_or(CudaCode::INVALID_VALUE)?;
    Ok((Exported(*exported), rest))
}

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const PEER_ACCESS: u32 = 1;
