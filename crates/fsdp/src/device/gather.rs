//! From shards to full parameters, in the order of streams: copy-in with the cast fused, the gather in place, copy-out. When is not
//! decided here.

use phalanx_core::Result;
use phalanx_nccl::api::{Cuda, Nccl, Process};

use super::edge::Edge;
use super::groups::Means;
use super::table::Way;
use super::unit::{Full, Unit};
use crate::gather::operation;
use crate::memory::Class;

/// Begins to gather a unit from its shards.
pub(super) fn begin<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    let Means { deck, pool, groups, .. } = means;
    let (row, stream) = (&unit.layout.gather, deck.copy_in);
    let staging = pool.take(deck, (Class::Gathered, row.total()), (Edge::FillAfterCopyOut, stream))?;
    if std::mem::take(&mut unit.is_written) {
        deck.join(Edge::CopyInAfterStep, stream, deck.compute)?;
    }
    if std::mem::take(&mut unit.is_stepped) {
        deck.join(Edge::CopyInAfterStep, stream, deck.take)?;
    }
    let own = staging.buffer.part(row.of(groups.rank()).start, row.byte_len)?.span();
    let table = &unit.tables.copy_in;
    unit.store.bring_in((deck, pool), |deck, shards| table.launch(deck, (own, shards), &Way::PUT, stream))?;
    if !unit.after.is_empty() {
        deck.record(&unit.read, stream)?;
    }
    let work = deck.submit(&groups.shard, operation(row), &staging.buffer, (Edge::GatherAfterCopyIn, stream))?;
    unit.full = Full::Coming { staging, work, is_narrow: false };
    Ok(())
}

/// The same from this rank's part in the smaller group.
pub(super) fn begin_narrow<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    let Means { deck, pool, groups, .. } = means;
    let (Some(group), Some(row), Some(part)) = (&groups.smaller, &unit.layout.narrow, unit.narrow.take()) else {
        return begin(unit, means);
    };
    let stream = deck.copy_in;
    let staging = pool.take(deck, (Class::Gathered, row.total()), (Edge::FillAfterCopyOut, stream))?;
    deck.order(Edge::CopyInAfterNarrow, stream, &unit.narrowed)?;
    let own = staging.buffer.part(row.of(group.group().rank()).start, row.byte_len)?.span();
    deck.copy(own, part.span(), stream)?;
    pool.give(deck, Class::Narrow, part, stream)?;
    let work = deck.submit(group, operation(row), &staging.buffer, (Edge::GatherAfterCopyIn, stream))?;
    unit.full = Full::Coming { staging, work, is_narrow: true };
    Ok(())
}

/// The program's stream waits for what was begun, and copies it out.
pub(super) fn end<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    let Means { deck, pool, .. } = means;
    let Full::Coming { staging, work, is_narrow } = std::mem::take(&mut unit.full) else { return Ok(()) };
    let stream = deck.copy_out_stream();
    deck.fence(Edge::CopyOutAfterGather, stream, work)?;
    let full = pool.take(deck, (Class::Gathered, unit.places.byte_len), (Edge::FillAfterCopyOut, deck.compute))?;
    let table = match &unit.tables.narrow {
        Some([_, out]) if is_narrow => out,
        _ => &unit.tables.copy_out,
    };
    table.launch(deck, (full.span(), staging.span()), &Way::PUT, stream)?;
    pool.give(deck, Class::Gathered, staging, stream)?;
    unit.full = Full::Here(full);
    Ok(())
}

/// Keeps this rank's part in the smaller group, and frees the rest.
pub(super) fn narrow<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    let Means { deck, pool, .. } = means;
    if let (Some([kept, _]), Some(row), Full::Here(full)) = (&unit.tables.narrow, &unit.layout.narrow, &unit.full) {
        let stream = deck.compute;
        let part = pool.take(deck, (Class::Narrow, row.byte_len), (Edge::NarrowAfterCopyIn, stream))?;
        kept.launch(deck, (part.span(), full.span()), &Way::PUT, stream)?;
        deck.record(&unit.narrowed, stream)?;
        unit.narrow = Some(part);
    }
    drop_full(unit, means)
}

/// Frees whatever there is beside the shards, once the program's stream is past it.
pub(super) fn release<N: Nccl, C: Cuda, P: Process>(
    unit: &mut Unit<N, C, P>,
    means: &mut Means<N, C, P>,
) -> Result<()> {
    drop_full(unit, means)?;
    match unit.narrow.take() {
        Some(part) => means.pool.give(&means.deck, Class::Narrow, part, means.deck.compute),
        None => Ok(()),
    }
}

fn drop_full<N: Nccl, C: Cuda, P: Process>(unit: &mut Unit<N, C, P>, means: &mut Means<N, C, P>) -> Result<()> {
    match std::mem::take(&mut unit.full) {
        Full::Here(block) => means.pool.give(&means.deck, Class::Gathered, block, means.deck.compute),
        full => {
            unit.full = full;
            Ok(())
        }
    }
}
