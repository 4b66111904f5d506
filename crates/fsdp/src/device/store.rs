//! Where a unit's shards and their gradients live: on the device, or in pinned memory of the host, from where they come and go in the
//! order of streams.

use std::fmt;

use phalanx_core::Result;
use phalanx_nccl::api::{Cuda, Nccl, Process, Span};
use phalanx_nccl::group::{DeviceBuffer, PinnedBuffer};

use super::deck::{Deck, Mark};
use super::edge::Edge;
use super::pool::{Block, Pool};
use super::table::{Places, TableSet, Way};
use crate::memory::Class;
use crate::options::Offload;

/// A shard to write and its gradient to read, on the device: in the order of the program's stream.
pub struct Update<C: Cuda> {
    /// This rank's rows.
    pub shard: DeviceBuffer<C>,
    /// Their gradient, once one was reduced.
    pub gradient: Option<DeviceBuffer<C>>,
}

impl<C: Cuda> fmt::Debug for Update<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("shard", &self.shard).field("gradient", &self.gradient).finish()
    }
}

/// The shards and gradients of one unit.
pub(super) struct Store<C: Cuda> {
    pub(super) shards: Places,
    pub(super) gradients: Places,
    pub(super) home: Home<C>,
}

/// Where they live.
pub(super) enum Home<C: Cuda> {
    Device { shards: DeviceBuffer<C>, gradients: Option<Block<C>> },
    Host(Pinned<C>),
}

/// Shards and gradients in memory of the host.
pub(super) struct Pinned<C: Cuda> {
    shards: PinnedBuffer<C>,
    gradients: PinnedBuffer<C>,
    has_gradients: bool,
    /// The last copy from the shards.
    gone: Mark<C>,
    /// The last copy to the gradients.
    come: Mark<C>,
}

impl<C: Cuda> Store<C> {
    pub(super) fn new<N: Nccl, P: Process>(
        (deck, pool): (&mut Deck<N, C, P>, &mut Pool<C>),
        [shards, gradients]: [Places; 2],
        offload: Offload,
    ) -> Result<Store<C>> {
        let home = match offload {
            Offload::No => Home::Device { shards: pool.stay(deck, Class::Sharded, shards.byte_len)?, gradients: None },
            Offload::Host => Home::Host(Pinned {
                shards: deck.host_memory(shards.byte_len)?,
                gradients: deck.host_memory(gradients.byte_len)?,
                has_gradients: false,
                gone: deck.mark()?,
                come: deck.mark()?,
            }),
        };
        match &home {
            Home::Device { shards, .. } => deck.fill_zero(shards.span(), deck.compute)?,
            Home::Host(pinned) => pinned.shards.write(&vec![0; shards.byte_len])?,
        }
        Ok(Store { shards, gradients, home })
    }

    /// Bytes of the host that it takes.
    pub(super) fn host_len(&self) -> usize {
        match &self.home {
            Home::Device { .. } => 0,
            Home::Host(_) => self.shards.byte_len + self.gradients.byte_len,
        }
    }

    /// Has something read the shards from memory of the device, on the stream of copies in.
    pub(super) fn bring_in<N: Nccl, P: Process>(
        &self,
        (deck, pool): (&mut Deck<N, C, P>, &mut Pool<C>),
        read: impl FnOnce(&Deck<N, C, P>, Span) -> Result<()>,
    ) -> Result<()> {
        let stream = deck.copy_in;
        match &self.home {
            Home::Device { shards, .. } => read(deck, shards.span()),
            Home::Host(pinned) => {
                let wanted = (Class::Sharded, self.shards.byte_len);
                let block = pool.take(deck, wanted, (Edge::FillAfterCopyOut, stream))?;
                deck.copy(block.span(), pinned.shards.span(), stream)?;
                deck.record(&pinned.gone, stream)?;
                read(deck, block.span())?;
                pool.give(deck, Class::Sharded, block, stream)
            }
        }
    }

    /// Takes a reduced row as gradients, in place of those before or added to them.
    pub(super) fn take<N: Nccl, P: Process>(
        &mut self,
        (deck, pool): (&mut Deck<N, C, P>, &mut Pool<C>),
        tables: &TableSet<C>,
        (row, divisor): (Span, f32),
    ) -> Result<()> {
        let stream = deck.take;
        let wanted = (Class::Gradients, self.gradients.byte_len);
        let way = |adds: bool| Way { divisor, ..if adds { Way::ADD } else { Way::PUT } };
        match &mut self.home {
            Home::Device { gradients: Some(block), .. } => tables.launch(deck, (block.span(), row), &way(true), stream),
            Home::Device { gradients, .. } => {
                let block = gradients.insert(pool.take(deck, wanted, (Edge::TakeAfterStep, stream))?);
                tables.launch(deck, (block.span(), row), &way(false), stream)
            }
            Home::Host(pinned) => {
                let block = pool.take(deck, wanted, (Edge::TakeAfterStep, stream))?;
                let adds = std::mem::replace(&mut pinned.has_gradients, true);
                if adds {
                    deck.copy(block.span(), pinned.gradients.span(), stream)?;
                }
                tables.launch(deck, (block.span(), row), &way(adds), stream)?;
                deck.copy(pinned.gradients.span(), block.span(), stream)?;
                deck.record(&pinned.come, stream)?;
                pool.give(deck, Class::Gradients, block, stream)
            }
        }
    }

    /// Forgets the gradients; what the program does with them it has put on its stream.
    pub(super) fn forget<N: Nccl, P: Process>(
        &mut self,
        (deck, pool): (&mut Deck<N, C, P>, &mut Pool<C>),
    ) -> Result<()> {
        match &mut self.home {
            Home::Device { gradients, .. } => match gradients.take() {
                Some(block) => pool.give(deck, Class::Gradients, block, deck.compute),
                None => Ok(()),
            },
            Home::Host(pinned) => {
                pinned.has_gradients = false;
                Ok(())
            }
        }
    }

    /// Forgets some of the gradients on the stream on which they are taken: all memory, or else they are zero.
    pub(super) fn free<N: Nccl, P: Process>(
        &mut self,
        (deck, pool): (&mut Deck<N, C, P>, &mut Pool<C>),
        freed: &[usize],
    ) -> Result<()> {
        let Home::Device { gradients, .. } = &mut self.home else { return Ok(()) };
        let stream = deck.take;
        match gradients.take_if(|_| self.gradients.numbers().all(|index| freed.contains(&index))) {
            Some(block) => pool.give(deck, Class::Gradients, block, stream),
            None => freed.iter().zip(gradients.iter().cycle()).try_for_each(|(index, block)| {
                deck.fill_zero(self.gradients.part(*index, &block.buffer)?.span(), stream)
            }),
        }
    }

    /// The bytes of a shard, as the host gets them.
    pub(super) fn read_shard<N: Nccl, P: Process>(&self, deck: &mut Deck<N, C, P>, index: usize) -> Result<Vec<u8>> {
        let (start, byte_len) = self.shards.of(index).unwrap_or_default();
        let mut bytes = vec![0; byte_len];
        match &self.home {
            Home::Device { shards, .. } => {
                let stream = deck.compute;
                deck.download(shards.part(start, byte_len)?.span(), &mut bytes, stream)?;
            }
            Home::Host(pinned) => pinned.shards.part(start, byte_len)?.read(&mut bytes)?,
        }
        Ok(bytes)
    }

    /// Writes a shard from the host.
    pub(super) fn write_shard<N: Nccl, P: Process>(
        &self,
        deck: &mut Deck<N, C, P>,
        index: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let (start, byte_len) = self.shards.of(index).unwrap_or_default();
        match &self.home {
            Home::Device { shards, .. } => {
                let stream = deck.compute;
                deck.upload(shards.part(start, byte_len)?.span(), bytes, stream)
            }
            Home::Host(pinned) => {
                deck.reach_by(Edge::HostWritesAfterCopy, &pinned.gone)?;
                pinned.shards.part(start, byte_len)?.write(bytes)
            }
        }
    }

    /// The bytes of a shard's gradient, if there is one.
    pub(super) fn read_gradient<N: Nccl, P: Process>(
        &self,
        deck: &mut Deck<N, C, P>,
        index: usize,
    ) -> Result<Option<Vec<u8>>> {
        let Some((start, byte_len)) = self.gradients.of(index) else { return Ok(None) };
        let mut bytes = vec![0; byte_len];
        match &self.home {
            Home::Device { gradients: Some(block), .. } => {
                let stream = deck.compute;
                deck.download(block.buffer.part(start, byte_len)?.span(), &mut bytes, stream)?;
            }
            Home::Host(pinned) if pinned.has_gradients => {
                deck.reach_by(Edge::HostReadsAfterCopy, &pinned.come)?;
                pinned.gradients.part(start, byte_len)?.read(&mut bytes)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(bytes))
    }

    /// Where the gradients lie on the device; none where there are none, and where they live on the host.
    pub(super) fn gradients_on_device(&self) -> Option<Span> {
        match &self.home {
            Home::Device { gradients, .. } => gradients.as_ref().map(Block::span),
            Home::Host(_) => None,
        }
    }

    /// Writes a gradient that lives on the host and was [read](Store::read_gradient) before.
    pub(super) fn write_gradient(&self, index: usize, bytes: &[u8]) -> Result<()> {
        match (&self.home, self.gradients.of(index)) {
            (Home::Host(pinned), Some((start, byte_len))) => pinned.gradients.part(start, byte_len)?.write(bytes),
            _ => Ok(()),
        }
    }

    /// A shard on the device, and its gradient; none where they live on the host.
    pub(super) fn on_device(&self, index: usize) -> Result<Option<Update<C>>> {
        let Home::Device { shards, gradients } = &self.home else { return Ok(None) };
        let gradient = gradients.as_ref().filter(|_| self.gradients.of(index).is_some());
        let gradient = gradient.map(|block| self.gradients.part(index, &block.buffer)).transpose()?;
        Ok(Some(Update { shard: self.shards.part(index, shards)?, gradient }))
    }
}
