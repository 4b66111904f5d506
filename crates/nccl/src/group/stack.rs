//! What a group stands on: NCCL, CUDA and the process, each of one known kind, so that no call is looked up at run time.

use std::fmt;
use std::sync::Arc;

use crate::api::{Cuda, Device, Nccl, Process};

/// NCCL, CUDA and the process. Clones are the same.
pub struct Stack<N, C, P> {
    pub(super) nccl: Arc<N>,
    pub(super) cuda: Arc<C>,
    pub(super) process: Arc<P>,
    pub(super) device: Device,
}

impl<N: Nccl, C: Cuda, P: Process> Stack<N, C, P> {
    /// These three, with a device.
    pub fn new(nccl: Arc<N>, cuda: Arc<C>, process: Arc<P>, device: Device) -> Stack<N, C, P> {
        Stack { nccl, cuda, process, device }
    }

    /// The CUDA driver.
    pub fn cuda(&self) -> &Arc<C> {
        &self.cuda
    }

    /// NCCL.
    pub fn nccl(&self) -> &Arc<N> {
        &self.nccl
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }
}

impl<N, C, P> Clone for Stack<N, C, P> {
    fn clone(&self) -> Stack<N, C, P> {
        let Stack { nccl, cuda, process, device } = self;
        Stack { nccl: Arc::clone(nccl), cuda: Arc::clone(cuda), process: Arc::clone(process), device: *device }
    }
}

impl<N, C, P> fmt::Debug for Stack<N, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stack on {}", self.device)
    }
}
