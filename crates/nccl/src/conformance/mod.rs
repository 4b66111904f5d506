//! The conformance list: what every implementation of NCCL and CUDA must do below the group, each result held against arithmetic of the
//! host. The simulator runs it in the tests, and `phalanx gpu-check` on a card.

#![forbid(unsafe_code)]

mod collectives;
mod endings;
mod messages;
mod order;
mod values;

use std::time::Duration;

use phalanx_core::store::Store;
use phalanx_core::{DType, Error, GroupOptions, Layout, Op, ReduceOp};

use crate::api::{Cuda, CudaCode, Nccl, Process, Stream, Version};
use crate::group::{DeviceBuffer, DeviceGroup, NcclOptions, PinnedBuffer, Stack};

pub use values::elements;

/// One rank that goes through the list, and its group.
#[must_use]
pub struct Candidate<N: Nccl, C: Cuda, P: Process> {
    stack: Stack<N, C, P>,
    layout: Layout,
    store: Store,
    timeout: Duration,
    /// Whether the device knows the kernels of the check for NaN, or why it does not.
    nan_check: Result<(), String>,
    version: Version,
    group: DeviceGroup<N, C, P>,
    stream: Stream,
}

/// One entry of the list. All ranks run the same one at the same time.
pub struct Trial<N: Nccl, C: Cuda, P: Process> {
    name: &'static str,
    run: fn(&Candidate<N, C, P>) -> Verdict,
}

/// How a trial ended: well, or for a reason not tried, or in part; else what was wrong.
pub type Verdict = Result<Option<String>, String>;

impl<N: Nccl, C: Cuda, P: Process> Trial<N, C, P> {
    /// What it tries.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it on this rank.
    ///
    /// # Errors
    ///
    /// What was wrong, in words.
    pub fn run(&self, candidate: &Candidate<N, C, P>) -> Verdict {
        (self.run)(candidate)
    }
}

/// The whole list, in the order in which it is run.
pub fn trials<N: Nccl, C: Cuda, P: Process>() -> Vec<Trial<N, C, P>> {
    let trial = |name, run| Trial { name, run };
    vec![
        trial("reductions", collectives::reductions),
        trial("scattered reductions", collectives::scattered),
        trial("moves", collectives::moves),
        trial("all to all", collectives::exchanges),
        trial("messages", messages::singles),
        trial("batches", messages::batches),
        trial("order of streams", order::chain),
        trial("memory of the host", order::host),
        trial("known memory", order::known),
        trial("split", endings::split),
        trial("nan", endings::nan),
        trial("abort", endings::abort),
    ]
}

impl<N: Nccl, C: Cuda, P: Process> Candidate<N, C, P> {
    /// This rank of the job, whose ranks meet in the store. Operations end within the timeout.
    ///
    /// # Errors
    ///
    /// What keeps a group from being made.
    pub fn new(
        stack: Stack<N, C, P>,
        layout: Layout,
        store: Store,
        timeout: Duration,
    ) -> Result<Candidate<N, C, P>, Error> {
        let options = GroupOptions::default().timeout(timeout);
        let group =
            DeviceGroup::new(stack.clone(), layout.clone(), store.scope("list"), NcclOptions::default(), options)?;
        let version = stack.nccl().version().map_err(|status| Error::setup("NCCL", status))?;
        let stream = stack.cuda().create_stream(stack.device(), false);
        let stream = stream.map_err(|code| Error::setup("a stream", stack.cuda().error_text(code)))?;
        let nan_check = Err("nobody said that it does".to_owned());
        Ok(Candidate { stack, layout, store, timeout, nan_check, version, group, stream })
    }

    /// Says that the device knows the kernels of the check for NaN.
    pub fn knowing_nan_check(mut self) -> Candidate<N, C, P> {
        self.nan_check = Ok(());
        self
    }

    /// Says why it does not.
    pub fn lacking_nan_check(mut self, why: impl Into<String>) -> Candidate<N, C, P> {
        self.nan_check = Err(why.into());
        self
    }

    /// Leaves the group that the trials have had, and waits for its end: a process that ends before takes its threads out of the libraries.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceGroup::leave`].
    pub fn leave(&self) -> Result<(), Error> {
        self.group.await_end(self.timeout)
    }

    fn rank(&self) -> usize {
        self.layout.rank()
    }

    fn size(&self) -> usize {
        self.layout.size()
    }

    /// A group of its own for a trial that ends it, or may.
    fn other(&self, scope: &str, options: NcclOptions) -> Result<DeviceGroup<N, C, P>, String> {
        let group = GroupOptions::default().timeout(self.timeout);
        DeviceGroup::new(self.stack.clone(), self.layout.clone(), self.store.scope(scope), options, group).map_err(told)
    }

    /// Ends such a group, so that nothing of it goes on beside what comes next.
    fn leave_other(&self, group: DeviceGroup<N, C, P>) -> Result<(), String> {
        group.leave(self.timeout).map_err(told)
    }

    fn cuda<T>(&self, answer: Result<T, CudaCode>) -> Result<T, String> {
        answer.map_err(|code| self.stack.cuda().error_text(code))
    }

    /// Memory of the device with these bytes, once they are there.
    fn upload(&self, bytes: &[u8]) -> Result<DeviceBuffer<C>, String> {
        let cuda = self.stack.cuda();
        let memory = DeviceBuffer::new(cuda, self.stack.device(), bytes.len()).map_err(told)?;
        if !bytes.is_empty() {
            let host = PinnedBuffer::new(cuda, bytes.len()).map_err(told)?;
            host.write(bytes).map_err(told)?;
            self.cuda(cuda.copy(memory.span(), host.span(), self.stream))?;
            self.cuda(cuda.synchronize_stream(self.stream))?;
        }
        Ok(memory)
    }

    /// The bytes of the device's memory after what is on the stream.
    fn download(&self, memory: &DeviceBuffer<C>) -> Result<Vec<u8>, String> {
        let cuda = self.stack.cuda();
        let mut bytes = vec![0; memory.byte_len()];
        if !bytes.is_empty() {
            let host = PinnedBuffer::new(cuda, bytes.len()).map_err(told)?;
            self.cuda(cuda.copy(host.span(), memory.span(), self.stream))?;
            self.cuda(cuda.synchronize_stream(self.stream))?;
            host.read(&mut bytes).map_err(told)?;
        }
        Ok(bytes)
    }

    /// Runs one operation and gives what is in the output then.
    fn ran(&self, op: Op, dtype: DType, input: Option<&[u8]>, output: &[u8]) -> Result<Vec<u8>, String> {
        let factor = (op.reduce() == Some(ReduceOp::PreMulSum)).then_some(values::FACTOR.into());
        let input = input.map(|bytes| self.upload(bytes)).transpose()?;
        let output = self.upload(output)?;
        let work = self.group.submit(op, dtype, factor, (input.as_ref(), &output), self.stream).map_err(told)?;
        work.fence(self.stream).map_err(told)?;
        let bytes = self.download(&output);
        work.wait().map_err(told)?;
        bytes
    }
}

impl<N: Nccl, C: Cuda, P: Process> Drop for Candidate<N, C, P> {
    fn drop(&mut self) {
        let _ = self.stack.cuda().destroy_stream(self.stream);
    }
}

fn told(error: Error) -> String {
    error.to_string()
}

/// That bytes are those that were expected.
fn same(got: &[u8], expected: &[u8], what: impl FnOnce() -> String) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    let at = got.iter().zip(expected).position(|(got, expected)| got != expected).unwrap_or(0);
    Err(format!("{}: byte {at} of {} is not what it must be", what(), expected.len()))
}
