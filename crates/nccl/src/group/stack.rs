//! What a group stands on: NCCL, CUDA and the process, each of one known kind, so that no call is looked up at run time.

use std::fmt;
use std::sync::Arc;

use super::failure;
use crate::api::{Cuda, CudaCode, Device, Nccl, Process};

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

    /// The process.
    pub fn process(&self) -> &Arc<P> {
        &self.process
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Has the calling thread, which is one of a group's own, call for the device from now on.
    pub(super) fn enter_thread(&self) {
        if let Err(code) = self.cuda.enter_thread(self.device) {
            // Whatever it then asks of the device fails, and is told.
            log::debug!("{} cannot be made a thread's own: {code}", self.device);
        }
    }

    /// What the driver answered to a call, as a result that says what was called and has the driver's words.
    ///
    /// # Errors
    ///
    /// [`Device`](phalanx_core::ErrorKind::Device) for every code.
    pub fn answer<T>(&self, call: &str, answer: Result<T, CudaCode>) -> phalanx_core::Result<T> {
        answer.map_err(|code| failure::of_cuda(&*self.cuda, call, code))
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
