//! Memory that the communicator of a group knows beforehand, so that it moves without a copy of the library's own: registered by each rank,
//! or as a window that all ranks open together.

use std::fmt;
use std::sync::{Arc, Mutex};

use phalanx_core::backend::Pending;
use phalanx_core::{DType, Error, Op, Result};

use super::device::DeviceGroup;
use super::failure;
use super::hall::lock;
use super::job::Errand;
use super::lane::{Hold, Lane, Line};
use super::memory::DeviceBuffer;
use crate::api::{Comm, Cuda, Nccl, Process, Registration, Span, Version, Window};

/// Memory that the communicator of a group knows, for as long as this is kept. It forgets the memory once what was submitted before has ended.
#[must_use = "the communicator forgets the memory when this is dropped"]
pub struct Registered<N: Nccl, C: Cuda, P: Process> {
    lane: Arc<Lane<N, C, P>>,
    known: Known,
    memory: DeviceBuffer<C>,
}

/// As what a communicator knows memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    Memory(Registration),
    Window(Window),
    /// A window that the library was asked for and did not open, as where it has none. It moves the memory as any other.
    NoWindow(Window),
}

/// Memory that a communicator is to know.
#[derive(Clone)]
pub(super) struct Introduction {
    span: Span,
    /// Whether it is a window, and then whether it has the same offset on every rank.
    window: Option<bool>,
    /// Where it is put as what the communicator knows it.
    known: Arc<Mutex<Option<Known>>>,
}

impl<N: Nccl, C: Cuda, P: Process> DeviceGroup<N, C, P> {
    /// Memory of the library's own making, which can be registered best: windows need it. Since NCCL 2.19.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where the library is older; [`Device`](phalanx_core::ErrorKind::Device) when memory is out.
    #[track_caller]
    pub fn allocate(&self, byte_len: usize) -> Result<DeviceBuffer<C>> {
        let hall = &self.backend().hall;
        check("allocate", hall.version, Version::new(2, 19, 0))?;
        let (nccl, device) = (Arc::clone(&hall.stack.nccl), hall.stack.device);
        let made = if byte_len == 0 { Ok(Span::EMPTY) } else { nccl.allocate(device, byte_len) };
        let span = made.map_err(|status| failure::of_nccl(&*nccl, "ncclMemAlloc", status, None))?;
        Ok(DeviceBuffer::of_library(hall.stack.cuda(), span, move |span| {
            let status = nccl.free(span);
            if !status.is_success() {
                log::debug!("ncclMemFree: {status}");
            }
        }))
    }

    /// Makes memory known to the group's communicator. All ranks call it, at the same place among their operations, each with memory that
    /// it then uses for the same operations: NCCL does not bear registered memory on some ranks beside unregistered on others. Since NCCL 2.19.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where the library is older; whatever kept it from that.
    #[track_caller]
    pub fn register(&self, memory: &DeviceBuffer<C>) -> Result<Registered<N, C, P>> {
        check("register", self.backend().hall.version, Version::new(2, 19, 0))?;
        self.introduce(memory, None)
    }

    /// Opens a window of all ranks over memory of the library's [own](DeviceGroup::allocate), as much on each, from where a page of it begins. All
    /// call it, at the same place among their operations. It is symmetric where the memory of every rank is used at the same offset of its
    /// allocation. Where the library has no windows, the memory is moved as any other: [`Registered::is_window`]. Since NCCL 2.27.
    ///
    /// # Errors
    ///
    /// As [`register`](DeviceGroup::register), and [`Usage`](phalanx_core::ErrorKind::Usage) for other memory, of which the communicator would end.
    #[track_caller]
    pub fn register_window(&self, memory: &DeviceBuffer<C>, is_symmetric: bool) -> Result<Registered<N, C, P>> {
        check("register_window", self.backend().hall.version, Version::new(2, 27, 0))?;
        let refused = |value: String, expected: &str| Err(Error::usage("register_window", "memory", value, expected));
        match memory.offset_in_library() {
            None => refused("other memory".into(), "must be of the library's making: DeviceGroup::allocate"),
            Some(offset) if !offset.is_multiple_of(PAGE) => {
                refused(format!("{offset} bytes into its allocation"), "must begin at a multiple of 4096 bytes of it")
            }
            Some(_) => self.introduce(memory, Some(is_symmetric)),
        }
    }

    #[track_caller]
    fn introduce(&self, memory: &DeviceBuffer<C>, window: Option<bool>) -> Result<Registered<N, C, P>> {
        if memory.byte_len() == 0 {
            return Err(Error::usage("register", "memory", "empty", "must have bytes"));
        }
        let hall = &self.backend().hall;
        let call = self.group().call_elsewhere(Op::Barrier, DType::U8, None, Some(0), 0)?;
        let spare = call.clone();
        let known = Arc::new(Mutex::new(None));
        let introduction = Introduction { span: memory.span(), window, known: Arc::clone(&known) };
        let begun = self.backend().send(call, Errand::Introduce(introduction), vec![memory.clone()]);
        let mut waiting = self.in_world(begun.inspect_err(|error| {
            spare.end(|| hall.now(), Some(error));
            hall.fail(error.clone(), None);
        }))?;
        let ended = waiting.wait(None).unwrap_or_else(|| Err(Error::aborted("the registration has no end")));
        self.in_world(ended)?;
        let known = lock(&known).take().ok_or_else(|| Error::aborted("the communicator is gone"))?;
        Ok(Registered { lane: Lane::of(hall, Line::Whole)?, known, memory: memory.clone() })
    }
}

impl<N: Nccl, C: Cuda, P: Process> Registered<N, C, P> {
    /// The memory.
    pub fn memory(&self) -> &DeviceBuffer<C> {
        &self.memory
    }

    /// Whether it is a window that the library has opened.
    pub fn is_window(&self) -> bool {
        matches!(self.known, Known::Window(_))
    }
}

impl<N: Nccl, C: Cuda, P: Process> Lane<N, C, P> {
    /// Makes memory known to the communicator.
    pub(super) fn introduce(&self, comm: Comm, introduction: &Introduction) -> Result<()> {
        let span = introduction.span;
        let known = match introduction.window {
            None => {
                let made = self.inside(comm, |nccl| nccl.register(comm, span))?;
                Known::Memory(made.map_err(|status| self.failed(comm, "ncclCommRegister", status))?)
            }
            Some(is_symmetric) => {
                let call = "ncclCommWindowRegister";
                let (status, window) = self.inside(comm, |nccl| nccl.register_window(comm, span, is_symmetric))?;
                self.settle_begun(comm, call, status)?;
                let window = window.ok_or_else(|| self.failed(comm, call, status))?;
                if self.hall.stack.nccl.is_open(window) { Known::Window(window) } else { Known::NoWindow(window) }
            }
        };
        *lock(&introduction.known) = Some(known);
        Ok(())
    }

    /// Has the communicator, if it is still there, forget what it knew.
    pub(super) fn forget(&self, known: Known) {
        let Hold::Made(comm) = *lock(&self.hold) else { return };
        let status = self.inside(comm, |nccl| match known {
            Known::Memory(registration) => nccl.deregister(comm, registration),
            Known::Window(window) | Known::NoWindow(window) => nccl.deregister_window(comm, window),
        });
        if let Ok(status) = status
            && let Err(error) = self.settle_begun(comm, "ncclCommDeregister", status)
        {
            log::debug!("a communicator does not forget memory: {error}");
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Drop for Registered<N, C, P> {
    fn drop(&mut self) {
        self.lane.part_with(self.known, self.memory.clone());
    }
}

impl<N: Nccl, C: Cuda, P: Process> fmt::Debug for Registered<N, C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registered({:?} as {:?})", self.memory, self.known)
    }
}

/// That the library has a function.
fn check(call: &'static str, version: Version, since: Version) -> Result<()> {
    if version >= since {
        return Ok(());
    }
    Err(Error::usage(call, "library", format!("NCCL {version}"), format!("must be {since} or later")))
}

/// At multiples of so many bytes windows begin.
const PAGE: u64 = 4096;
