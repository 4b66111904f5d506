//! The group over NCCL as one of a world's backends.

use std::sync::Arc;

use phalanx_comm::{Maker, Seat};
use phalanx_core::Result;
use phalanx_core::backend::Backend;

use super::backend::NcclBackend;
use super::options::NcclOptions;
use super::stack::Stack;
use crate::api::{Cuda, Nccl, Process};

/// Makes the backends of a world's groups over one stack: register it under a name, and say that this name serves `cuda`.
#[derive(Debug)]
pub struct NcclMaker<N, C, P> {
    stack: Stack<N, C, P>,
    options: NcclOptions,
}

impl<N: Nccl, C: Cuda, P: Process> NcclMaker<N, C, P> {
    /// For groups over this stack that behave like this.
    pub fn new(stack: Stack<N, C, P>, options: NcclOptions) -> NcclMaker<N, C, P> {
        NcclMaker { stack, options }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Maker for NcclMaker<N, C, P> {
    fn make(&self, seat: &Seat) -> Result<Arc<dyn Backend>> {
        let (stack, options) = (self.stack.clone(), self.options.clone());
        let backend = NcclBackend::new(stack, seat.layout().clone(), seat.store().clone(), options)?;
        Ok(Arc::new(backend))
    }
}
