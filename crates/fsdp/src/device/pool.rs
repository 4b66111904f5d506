//! Memory of the device, handed out and taken back by purpose, in the order of streams: whoever takes a block that was given back waits
//! on its own stream for the last use, and the host for nothing.

use phalanx_core::Result;
use phalanx_nccl::api::{Cuda, Nccl, Process, Span, Stream};
use phalanx_nccl::group::DeviceBuffer;

use super::deck::{Deck, Mark};
use super::edge::Edge;
use crate::memory::{Bytes, Class, Memory};

/// Where blocks come from. As with the arena of the host, no class ever keeps more than it once needed at a time.
pub(super) struct Pool<C: Cuda> {
    memory: Memory,
    idle: Vec<Block<C>>,
}

/// Memory in use.
pub(super) struct Block<C: Cuda> {
    pub(super) buffer: DeviceBuffer<C>,
    /// All of it, where the beginning of a longer one is lent.
    whole: DeviceBuffer<C>,
    /// What it was made for, and goes back to, whatever it was for in between.
    home: Class,
    /// Where it was last used, and on which stream; a block that is new was not.
    last: Mark<C>,
    on: Option<Stream>,
}

impl<C: Cuda> Block<C> {
    pub(super) fn span(&self) -> Span {
        self.buffer.span()
    }
}

impl<C: Cuda> Pool<C> {
    pub(super) fn new() -> Pool<C> {
        Pool { memory: Memory::default(), idle: Vec::new() }
    }

    pub(super) fn memory(&self) -> Memory {
        self.memory
    }

    /// Memory that is there for as long as the model is.
    pub(super) fn stay<N: Nccl, P: Process>(
        &mut self,
        deck: &mut Deck<N, C, P>,
        class: Class,
        byte_len: usize,
    ) -> Result<DeviceBuffer<C>> {
        let memory = deck.memory(byte_len)?;
        self.memory.count(class, byte_len);
        Ok(memory)
    }

    /// A block for use on a stream, which holds whatever its last user left in it.
    pub(super) fn take<N: Nccl, P: Process>(
        &mut self,
        deck: &mut Deck<N, C, P>,
        (class, byte_len): (Class, usize),
        (edge, stream): (Edge, Stream),
    ) -> Result<Block<C>> {
        let block = match self.fitting(class, byte_len) {
            Some(index) => self.wake(index),
            None => {
                self.make_room(deck, class, byte_len)?;
                let whole = deck.memory(byte_len)?;
                Block { buffer: whole.clone(), whole, home: class, last: deck.mark()?, on: None }
            }
        };
        self.memory.count(class, block.whole.byte_len());
        if block.on.is_some_and(|last| last != stream) {
            deck.order(edge, stream, &block.last)?;
        }
        Ok(Block { buffer: block.whole.part(0, byte_len)?, ..block })
    }

    /// Takes a block back that was last used on this stream.
    pub(super) fn give<N: Nccl, P: Process>(
        &mut self,
        deck: &Deck<N, C, P>,
        class: Class,
        block: Block<C>,
        stream: Stream,
    ) -> Result<()> {
        let byte_len = block.whole.byte_len();
        deck.record(&block.last, stream)?;
        self.memory.forget(class, byte_len);
        self.memory.keep(block.home, byte_len);
        self.idle.push(Block { on: Some(stream), ..block });
        Ok(())
    }

    /// Says that a block in use is for something else now.
    pub(super) fn relabel(&mut self, from: Class, to: Class, block: &Block<C>) {
        self.memory.forget(from, block.whole.byte_len());
        self.memory.count(to, block.whole.byte_len());
    }

    /// An idle block of this length, or the shortest that is longer where there is no room for another.
    fn fitting(&self, class: Class, byte_len: usize) -> Option<usize> {
        let Bytes { current, peak, idle } = self.memory.of(class);
        let has_room = current + idle + byte_len <= peak;
        let of_class = self.idle.iter().enumerate().filter(|(_, block)| block.home == class);
        let lens = of_class.map(|(index, block)| (block.whole.byte_len(), index));
        let long = lens.filter(|(len, _)| *len == byte_len || (*len > byte_len && !has_room));
        long.min_by_key(|(len, _)| *len).map(|(_, index)| index)
    }

    fn wake(&mut self, index: usize) -> Block<C> {
        let block = self.idle.remove(index);
        self.memory.wake(block.home, block.whole.byte_len());
        block
    }

    /// Frees idle blocks, the shortest first, until one more fits under what the class once held. Here the host waits; that is only
    /// before the longest of each class is there, which is in the first step.
    fn make_room<N: Nccl, P: Process>(
        &mut self,
        deck: &mut Deck<N, C, P>,
        class: Class,
        byte_len: usize,
    ) -> Result<()> {
        loop {
            let Bytes { current, peak, idle } = self.memory.of(class);
            if current + idle + byte_len <= peak.max(current + byte_len) {
                return Ok(());
            }
            let of_class = self.idle.iter().enumerate().filter(|(_, block)| block.home == class);
            let shortest = of_class.min_by_key(|(_, block)| block.whole.byte_len()).map(|(index, _)| index);
            let Some(index) = shortest else { return Ok(()) };
            let block = self.wake(index);
            deck.reach(&block.last)?;
            deck.give_up(&block.whole);
        }
    }
}
