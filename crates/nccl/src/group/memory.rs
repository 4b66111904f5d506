//! Memory of a device and pinned memory of the host, freed when the last handle is gone.

use std::fmt;
use std::sync::Arc;

use phalanx_core::{DType, Error, Result};

use super::{failure, freeing};
use crate::api::{Cuda, Device, Span};

/// Memory of a device, or a part of it. Clones and parts are handles on the same memory, which is freed with the last of them.
///
/// Operations keep a handle until their end was observed, so memory that only an operation still uses lives as long as it must, and is then freed
/// on a thread that no operation waits for. What the program itself puts on streams, it must wait for before it drops its last handle. Memory
/// that another library has made comes in by [`adopt`](DeviceBuffer::adopt).
pub struct DeviceBuffer<C: Cuda> {
    owner: Arc<Owner<C>>,
    span: Span,
}

/// Memory of the host that devices copy from and to while the host goes on.
pub struct PinnedBuffer<C: Cuda> {
    owner: Arc<Owner<C>>,
    span: Span,
}

struct Owner<C: Cuda> {
    cuda: Arc<C>,
    home: Home,
    span: Span,
}

/// Memory of which the last handle is gone. It goes back with this.
pub(super) struct Last<C: Cuda>(#[expect(dead_code, reason = "it is held, not looked at")] Owner<C>);

/// Whom memory goes back to.
enum Home {
    Device(Device),
    Host,
    /// NCCL, which has made it.
    Library(GiveBack),
    /// A shelf, from which it is taken again.
    Shelf(GiveBack),
    /// Whoever lent it.
    Elsewhere(GiveBack),
}

type GiveBack = Box<dyn Fn(Span) + Send + Sync>;

impl<C: Cuda> DeviceBuffer<C> {
    /// New memory of a device, whose content has no meaning.
    ///
    /// # Errors
    ///
    /// [`Device`](phalanx_core::ErrorKind::Device) when memory is out, or the device does not answer well.
    #[track_caller]
    pub fn new(cuda: &Arc<C>, device: Device, byte_len: usize) -> Result<DeviceBuffer<C>> {
        let made = if byte_len == 0 { Ok(Span::EMPTY) } else { freeing::allocate(cuda, device, byte_len) };
        let span = made.map_err(|code| failure::of_cuda(&**cuda, "allocate", code))?;
        Ok(DeviceBuffer::owned(cuda, span, Home::Device(device)))
    }

    /// Memory that somebody else made and takes back.
    pub(crate) fn lent(cuda: &Arc<C>, span: Span, give_back: impl Fn(Span) + Send + Sync + 'static) -> DeviceBuffer<C> {
        DeviceBuffer::owned(cuda, span, Home::Elsewhere(Box::new(give_back)))
    }

    /// Memory that goes back to a shelf, which takes no time.
    pub(super) fn shelved(
        cuda: &Arc<C>,
        span: Span,
        give_back: impl Fn(Span) + Send + Sync + 'static,
    ) -> DeviceBuffer<C> {
        DeviceBuffer::owned(cuda, span, Home::Shelf(Box::new(give_back)))
    }

    /// Memory that NCCL has made.
    pub(super) fn of_library(
        cuda: &Arc<C>,
        span: Span,
        give_back: impl Fn(Span) + Send + Sync + 'static,
    ) -> DeviceBuffer<C> {
        DeviceBuffer::owned(cuda, span, Home::Library(Box::new(give_back)))
    }

    fn owned(cuda: &Arc<C>, span: Span, home: Home) -> DeviceBuffer<C> {
        DeviceBuffer { owner: Arc::new(Owner { cuda: Arc::clone(cuda), home, span }), span }
    }

    /// The memory, if this was the last handle on it. What goes back to a shelf is there at once.
    pub(super) fn into_last(self) -> Option<Last<C>> {
        let owner = Arc::into_inner(self.owner)?;
        let is_freed = !owner.span.is_empty() && !matches!(owner.home, Home::Shelf(_));
        is_freed.then_some(Last(owner))
    }

    /// How far it begins into memory that NCCL has made; none where it is other memory.
    pub(super) fn offset_in_library(&self) -> Option<u64> {
        matches!(self.owner.home, Home::Library(_)).then(|| self.span.address() - self.owner.span.address())
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Its bytes.
    pub fn byte_len(&self) -> usize {
        self.span.byte_len()
    }

    /// So many bytes of it from an offset on.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where it has not so many.
    pub fn part(&self, offset: usize, byte_len: usize) -> Result<DeviceBuffer<C>> {
        Ok(DeviceBuffer { owner: Arc::clone(&self.owner), span: part(self.span, offset, byte_len)? })
    }

    /// How many elements of this type it holds, for a call and its argument that are named where it is none of them.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where it ends within an element, and where none may lie at its address.
    pub fn len(&self, call: impl Into<&'static str>, argument: &'static str, dtype: DType) -> Result<usize> {
        let unit = dtype.byte_len();
        if !self.byte_len().is_multiple_of(unit) {
            let expected = format!("must be a multiple of the {unit} bytes of {dtype}");
            return Err(Error::usage(call, argument, format!("{} bytes long", self.byte_len()), expected));
        }
        // Where it is not, the device's context dies of it.
        let alignment = if matches!(dtype, DType::Complex64 | DType::Complex128) { unit / 2 } else { unit };
        if !self.span.is_empty() && !self.span.address().is_multiple_of(alignment as u64) {
            let expected = format!("must lie at a multiple of {alignment} bytes for {dtype}");
            return Err(Error::usage(call, argument, format!("at the address {:#x}", self.span.address()), expected));
        }
        Ok(self.byte_len() / unit)
    }
}

impl<C: Cuda> PinnedBuffer<C> {
    /// New pinned memory, whose content has no meaning.
    ///
    /// # Errors
    ///
    /// [`Device`](phalanx_core::ErrorKind::Device) when memory is out.
    #[track_caller]
    pub fn new(cuda: &Arc<C>, byte_len: usize) -> Result<PinnedBuffer<C>> {
        let made = if byte_len == 0 { Ok(Span::EMPTY) } else { cuda.allocate_host(byte_len) };
        let span = made.map_err(|code| failure::of_cuda(&**cuda, "allocate_host", code))?;
        Ok(PinnedBuffer { owner: Arc::new(Owner { cuda: Arc::clone(cuda), home: Home::Host, span }), span })
    }

    /// Memory that somebody else made and takes back.
    pub(super) fn lent(cuda: &Arc<C>, span: Span, give_back: impl Fn(Span) + Send + Sync + 'static) -> PinnedBuffer<C> {
        let owner = Owner { cuda: Arc::clone(cuda), home: Home::Elsewhere(Box::new(give_back)), span };
        PinnedBuffer { owner: Arc::new(owner), span }
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }

    /// So many bytes of it from an offset on.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where it has not so many.
    pub fn part(&self, offset: usize, byte_len: usize) -> Result<PinnedBuffer<C>> {
        Ok(PinnedBuffer { owner: Arc::clone(&self.owner), span: part(self.span, offset, byte_len)? })
    }

    /// Copies from it. What a device wrote is there once the end of that was observed.
    ///
    /// # Errors
    ///
    /// [`Device`](phalanx_core::ErrorKind::Device) where the driver refuses, as it does where the lengths differ.
    #[track_caller]
    pub fn read(&self, into: &mut [u8]) -> Result<()> {
        let cuda = &*self.owner.cuda;
        cuda.read_host(self.span, into).map_err(|code| failure::of_cuda(cuda, "read_host", code))
    }

    /// Copies to it.
    ///
    /// # Errors
    ///
    /// As of [`read`](PinnedBuffer::read).
    #[track_caller]
    pub fn write(&self, from: &[u8]) -> Result<()> {
        let cuda = &*self.owner.cuda;
        cuda.write_host(self.span, from).map_err(|code| failure::of_cuda(cuda, "write_host", code))
    }
}

fn part(span: Span, offset: usize, byte_len: usize) -> Result<Span> {
    span.part(offset, byte_len).ok_or_else(|| {
        let expected = format!("must lie within the {} bytes", span.byte_len());
        Error::usage("part", "offset", format!("{offset} with {byte_len} bytes"), expected)
    })
}

impl<C: Cuda> Drop for Owner<C> {
    fn drop(&mut self) {
        let freed = match &self.home {
            _ if self.span.is_empty() => Ok(()),
            Home::Device(device) => self.cuda.free(*device, self.span),
            Home::Host => self.cuda.free_host(self.span),
            Home::Library(give_back) | Home::Shelf(give_back) | Home::Elsewhere(give_back) => {
                give_back(self.span);
                Ok(())
            }
        };
        if let Err(code) = freed {
            log::debug!("memory was not freed: {code}");
        }
    }
}

impl<C: Cuda> Clone for DeviceBuffer<C> {
    fn clone(&self) -> DeviceBuffer<C> {
        DeviceBuffer { owner: Arc::clone(&self.owner), span: self.span }
    }
}

impl<C: Cuda> Clone for PinnedBuffer<C> {
    fn clone(&self) -> PinnedBuffer<C> {
        PinnedBuffer { owner: Arc::clone(&self.owner), span: self.span }
    }
}

impl<C: Cuda> fmt::Debug for DeviceBuffer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({:?})", self.span)
    }
}

impl<C: Cuda> fmt::Debug for PinnedBuffer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBuffer({:?})", self.span)
    }
}
