//! Bytes between the host and the device. They go through pinned memory that is used again and again: to make some or to free it, the driver may
//! wait for all that the device does. Of that there is never more than twice what was in use at one time.

use std::any::Any;
use std::cmp::Reverse;

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

    /// How much of that there is.
    fn pinned_len(&self) -> usize {
        match self {
            Kept::Other(_) => 0,
            Kept::Pinned(whole) => whole.span().byte_len(),
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
            None => {
                self.clear_shelf(byte_len);
                PinnedBuffer::new(self.stack.cuda(), byte_len)
            }
        }
    }

    /// Frees what nobody uses and is more than what is in use once memory of so many bytes is made too. Nothing is freed but where some is made:
    /// a step that finds all that it needs waits for neither.
    fn clear_shelf(&mut self, byte_len: usize) {
        let in_use = byte_len + self.kept.iter().map(|(_, kept)| kept.pinned_len()).sum::<usize>();
        let lens: Vec<usize> = self.shelf.iter().map(|host| host.span().byte_len()).collect();
        for at in beyond(&lens, in_use) {
            self.shelf.swap_remove(at);
        }
    }
}

/// Which of so many lengths to give up, the longest first, so that the rest are together no more than `most`: their places, the last first.
fn beyond(lens: &[usize], most: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..lens.len()).collect();
    places.sort_unstable_by_key(|&at| Reverse(lens[at]));
    let mut left: usize = lens.iter().sum();
    places.retain(|&at| {
        let is_given_up = left > most;
        left -= if is_given_up { lens[at] } else { 0 };
        is_given_up
    });
    places.sort_unstable_by_key(|&at| Reverse(at));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_the_shelf_is_bounded_by_what_is_in_use() {
        assert_eq!(beyond(&[8, 100, 2, 40], 150), [0; 0]);
        assert_eq!(beyond(&[8, 100, 2, 40], 149), [1]);
        assert_eq!(
            beyond(&[8, 100, 2, 40], 10),
            [3, 1],
            "places that are taken out first leave the others where they are"
        );
        assert_eq!(beyond(&[8, 100, 2, 40], 0), [3, 2, 1, 0]);
        assert_eq!(beyond(&[], 0), [0; 0]);
    }

    /// Lengths that come one after the other, again and again: after a few rounds nothing is made or freed any more.
    #[test]
    fn what_is_needed_again_and_again_is_there_in_the_end() {
        for order in [[1_000, 100, 10], [10, 100, 1_000], [100, 1_000, 10]] {
            let (mut shelf, mut made) = (Vec::new(), Vec::new());
            for round in 0..5 {
                for len in order {
                    if shelf.contains(&len) {
                        continue;
                    }
                    for at in beyond(&shelf, len) {
                        shelf.swap_remove(at);
                    }
                    shelf.push(len);
                    made.push(round);
                    assert!(shelf.iter().sum::<usize>() <= 2 * 1_000);
                }
            }
            assert!(made.iter().all(|&round| round < 3), "{order:?}: {made:?}");
        }
    }
}
