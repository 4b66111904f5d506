//! Bytes between the host and the device. They go through pinned memory that is used again and again: to make some or to free it, the driver may
//! wait for all that the device does.

use std::any::Any;

use phalanx_core::Result;
use phalanx_nccl::api::{Cuda, Nccl, Process, Span, Stream};
use phalanx_nccl::group::PinnedBuffer;

use super::deck::Deck;

/// What is kept until a stream is past it.
pub(super) enum Kept<C: Cuda> {
    /// What belongs to others.
    Other(#[expect(dead_code, reason = "it is held, not looked at")] Box<dyn Any + Send>),
    /// What bytes go through.
    Pinned(PinnedBuffer<C>),
}

impl<C: Cuda> Kept<C> {
    /// What can be used again.
    fn into_pinned(self) -> Option<PinnedBuffer<C>> {
        match self {
            Kept::Other(_) => None,
            Kept::Pinned(whole) => Some(whole),
        }
    }
}

impl<N: Nccl, C: Cuda, P: Process> Deck<N, C, P> {
    /// Copies bytes of the host to the device, in the order of a stream.
    #[track_caller]
    pub(super) fn upload(&mut self, to: Span, bytes: &[u8], stream: Stream) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let whole = self.pinned(bytes.len())?;
        let host = whole.part(0, bytes.len())?;
        host.write(bytes)?;
        self.copy(to, host.span(), stream)?;
        self.keep_past(Kept::Pinned(whole), stream)
    }

    /// Copies memory of the device to the host, and waits for that.
    pub(super) fn download(&mut self, from: Span, into: &mut [u8], stream: Stream) -> Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let whole = self.pinned(into.len())?;
        let host = whole.part(0, into.len())?;
        let mark = self.mark()?;
        self.copy(host.span(), from, stream)?;
        self.record(&mark, stream)?;
        if let Err(error) = self.reach(&mark) {
            // The device may still write to it.
            self.kept.push_back((mark, Kept::Pinned(whole)));
            return Err(error);
        }
        host.read(into)?;
        self.shelf.push(whole);
        Ok(())
    }

    /// Keeps memory until a stream is past what is on it by now.
    pub(super) fn keep(&mut self, memory: Box<dyn Any + Send>, stream: Stream) -> Result<()> {
        self.keep_past(Kept::Other(memory), stream)
    }

    fn keep_past(&mut self, kept: Kept<C>, stream: Stream) -> Result<()> {
        let mark = self.mark()?;
        self.record(&mark, stream)?;
        self.kept.push_back((mark, kept));
        self.let_go()
    }

    /// Lets go of what its stream is past.
    fn let_go(&mut self) -> Result<()> {
        while let Some((mark, _)) = self.kept.front()
            && self.is_reached(mark)?
        {
            self.shelf.extend(self.kept.pop_front().and_then(|(_, kept)| kept.into_pinned()));
        }
        Ok(())
    }

    /// The same of everything, once all streams are past all that is on them.
    pub(super) fn let_go_of_all(&mut self) {
        self.shelf.extend(self.kept.drain(..).filter_map(|(_, kept)| kept.into_pinned()));
    }

    /// Pinned memory of so many bytes, or up to twice as many: the shortest that nobody uses, if there is any.
    fn pinned(&mut self, byte_len: usize) -> Result<PinnedBuffer<C>> {
        self.let_go()?;
        let fitting = byte_len..=byte_len.saturating_mul(2);
        let lens = self.shelf.iter().map(|host| host.span().byte_len()).enumerate();
        let shortest = lens.filter(|(_, len)| fitting.contains(len)).min_by_key(|(_, len)| *len);
        match shortest {
            Some((at, _)) => Ok(self.shelf.swap_remove(at)),
            None => PinnedBuffer::new(self.stack.cuda(), byte_len),
        }
    }
}
