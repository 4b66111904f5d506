//! Bytes from the host to a simulated device and back, in the order of a stream.

use std::sync::Arc;

use phalanx_nccl::api::{Cuda, Stream};
use phalanx_nccl::group::{DeviceBuffer, PinnedBuffer};
use phalanx_nccl::sim::SimCuda;

use crate::seats::DEVICE;

pub(crate) type Memory = DeviceBuffer<SimCuda>;

/// Memory of the device with these bytes, written on a stream.
pub(crate) fn upload(cuda: &Arc<SimCuda>, stream: Stream, bytes: &[u8]) -> Memory {
    let memory = DeviceBuffer::new(cuda, DEVICE, bytes.len()).expect("memory");
    if !bytes.is_empty() {
        let host = PinnedBuffer::new(cuda, bytes.len()).expect("memory");
        host.write(bytes).expect("written");
        cuda.copy(memory.span(), host.span(), stream).expect("copied");
        cuda.synchronize_stream(stream).expect("done");
    }
    memory
}

/// The bytes of the device's memory, after what is on a stream.
pub(crate) fn download(cuda: &Arc<SimCuda>, stream: Stream, memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.byte_len()];
    if !bytes.is_empty() {
        let host = PinnedBuffer::new(cuda, bytes.len()).expect("memory");
        cuda.copy(host.span(), memory.span(), stream).expect("copied");
        cuda.synchronize_stream(stream).expect("done");
        host.read(&mut bytes).expect("read");
    }
    bytes
}
