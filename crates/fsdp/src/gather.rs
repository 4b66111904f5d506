//! From shards to full parameters: copy-in with the cast fused, the gather in place, copy-out. When is not decided here.

use std::ops::Range;

use phalanx_core::{Counts, DType, Element, Error, Op, Result};

use crate::arena::Arena;
use crate::cast::{convert, slice};
use crate::flight::Flight;
use crate::groups::Groups;
use crate::layout::Row;
use crate::memory::Class;
use crate::trace::Trace;
use crate::unit::{Full, Unit};

/// The full parameters of a unit, lent while they are there. Nothing is lent of a unit for which a copy of the owner's
/// [stands](crate::Sharded::set_copies).
#[derive(Clone, Copy, Debug)]
pub struct Gathered<'a> {
    unit: &'a Unit,
    row: &'a Row,
    bytes: &'a [u8],
}

impl<'a> Gathered<'a> {
    pub(crate) fn of(unit: &'a Unit) -> Option<Gathered<'a>> {
        unit.full().map(|(row, bytes)| Gathered { unit, row, bytes })
    }

    /// What is lent of a unit that its owner has copied.
    pub(crate) fn copied(unit: &'a Unit) -> Gathered<'a> {
        Gathered { unit, row: &unit.layout.gather, bytes: &[] }
    }

    /// The type in which a parameter was gathered; `f32` where that is another form than its elements.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not, by its number in the unit.
    pub fn dtype(&self, index: usize) -> Result<DType> {
        let (_, owner) = self.unit.owner("dtype", index)?;
        Ok(self.row.span(owner).map_or(DType::F32, |span| span.dtype))
    }

    /// Copies a full parameter into memory of the caller's, cast to its elements.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not, where `into` is not of its length, and for a unit for
    /// which a copy stands.
    pub fn copy_out<T: Element>(&self, index: usize, into: &mut [T]) -> Result<()> {
        let (spec, owner) = self.unit.owner("copy_out", index)?;
        let full_len = self.unit.layout.divisions[owner].full_len();
        if into.len() != full_len {
            let expected = format!("must be {full_len} elements, those of {:?}", spec.name);
            return Err(Error::usage("copy_out", "into", format!("{} elements", into.len()), expected));
        }
        if T::DTYPE.class() != phalanx_core::Class::Float {
            return Err(Error::usage("copy_out", "dtype", T::DTYPE, "must be f64, f32, f16 or bf16"));
        }
        if self.bytes.len() < self.row.total() {
            return Err(Error::usage(
                "copy_out",
                "unit",
                format!("{:?}", self.unit.spec.name),
                "must not be one that was copied",
            ));
        }
        let into = bytemuck::cast_slice_mut(into);
        match self.row.extended().find(|(index, _)| *index == owner) {
            Some((_, inputs)) => self.decode(owner, inputs, into, T::DTYPE),
            None => copy_range(self.row, self.bytes, owner, 0..full_len, into, T::DTYPE),
        }
        Ok(())
    }

    /// A full parameter where it lies, if it lies there in one piece and in this type: one that a single rank holds, and any of a unit
    /// that has no other. A row for each rank stands in the buffer, so that of several the parts are apart.
    pub fn view<T: Element>(&self, index: usize) -> Option<&'a [T]> {
        let (_, owner) = self.unit.owner("view", index).ok()?;
        let span = self.row.span(owner).filter(|span| span.dtype == T::DTYPE)?;
        self.row.whole(&span).and_then(|range| self.bytes.get(range)).map(slice)
    }

    /// Copies out what was gathered in another form.
    fn decode(&self, owner: usize, inputs: &[Range<usize>], into: &mut [u8], to: DType) {
        let Some(extension) = &self.unit.spec.params[owner].extension else { return };
        let division = self.unit.layout.divisions[owner];
        let mut part = vec![0.0_f32; division.padded_len()];
        for rank in 0..self.row.world {
            let row = &self.bytes[self.row.of(rank)];
            let inputs: Vec<&[u8]> = inputs.iter().map(|range| &row[range.clone()]).collect();
            extension.decode(&inputs, &mut part);
            let held = division.elements(rank);
            let target = &mut into[held.start * to.byte_len()..held.end * to.byte_len()];
            convert(bytemuck::cast_slice(&part[..held.len()]), DType::F32, target, to);
        }
    }
}

/// Begins to gather a unit from its shards.
pub(crate) fn begin(unit: &mut Unit, number: usize, groups: &Groups, arena: &mut Arena) -> Result<()> {
    let (row, rank) = (&unit.layout.gather, groups.shard.rank());
    let mut buffer = arena.take(Class::Gathered, row.total())?;
    let bytes = buffer.as_bytes_mut();
    for (index, span) in row.spans() {
        let piece = row.piece(&span, rank);
        convert(unit.shard(index), unit.spec.params[index].dtype, &mut bytes[piece], span.dtype);
        bytes[row.padding(&span, rank)].fill(0);
    }
    encode(unit, &mut bytes[row.of(rank)]);
    let flight = Flight::begin(&groups.shard, number, operation(row), buffer)?;
    unit.full = Full::Coming { flight, is_narrow: false };
    Ok(())
}

/// Writes this rank's parts of parameters that are gathered in another form.
fn encode(unit: &Unit, row: &mut [u8]) {
    for (index, inputs) in unit.layout.gather.extended() {
        let Some(extension) = &unit.spec.params[index].extension else { continue };
        let mut part = vec![0.0_f32; unit.layout.divisions[index].padded_len()];
        let (shard, dtype) = (unit.shard(index), unit.spec.params[index].dtype);
        let held = shard.len() / dtype.byte_len();
        convert(shard, dtype, bytemuck::cast_slice_mut(&mut part[..held]), DType::F32);
        extension.encode(&part, &mut apart(row, inputs));
    }
}

/// Ranges of a row that follow each other, each to write.
fn apart<'a>(row: &'a mut [u8], ranges: &[Range<usize>]) -> Vec<&'a mut [u8]> {
    let (mut rest, mut at, mut parts) = (row, 0, Vec::new());
    for range in ranges {
        let (part, after) = rest.split_at_mut(range.start - at).1.split_at_mut(range.len());
        parts.push(part);
        (rest, at) = (after, range.end);
    }
    parts
}

/// The same from this rank's part in the smaller group.
pub(crate) fn begin_narrow(unit: &mut Unit, number: usize, groups: &Groups, arena: &mut Arena) -> Result<()> {
    let (Some(group), Some(row), Some(part)) = (&groups.smaller, &unit.layout.narrow, unit.narrow.take()) else {
        return begin(unit, number, groups, arena);
    };
    let mut buffer = arena.take(Class::Gathered, row.total())?;
    buffer.as_bytes_mut()[row.of(group.rank())].copy_from_slice(part.as_bytes());
    arena.give(Class::Narrow, part);
    let flight = Flight::begin(group, number, operation(row), buffer)?;
    unit.full = Full::Coming { flight, is_narrow: true };
    Ok(())
}

/// Waits for what was begun.
pub(crate) fn end(unit: &mut Unit, trace: &mut Trace) -> Result<()> {
    unit.full = match std::mem::take(&mut unit.full) {
        Full::Coming { flight, is_narrow } => Full::Here { buffer: flight.end(trace)?, is_narrow },
        full => full,
    };
    Ok(())
}

/// Keeps this rank's part in the smaller group, and frees the rest.
pub(crate) fn narrow(unit: &mut Unit, groups: &Groups, arena: &mut Arena) -> Result<()> {
    if let (Some(group), Some(row), Some((from, bytes))) = (&groups.smaller, &unit.layout.narrow, unit.full()) {
        let mut part = arena.take_own(Class::Narrow, row.byte_len)?;
        part.as_bytes_mut().fill(0);
        let own = row.of(group.rank()).start;
        for (index, span) in row.spans() {
            let piece = row.piece(&span, group.rank());
            let into = &mut part.as_bytes_mut()[piece.start - own..piece.end - own];
            copy_range(from, bytes, index, span.division.elements(group.rank()), into, span.dtype);
        }
        unit.narrow = Some(part);
    }
    drop_full(unit, arena);
    Ok(())
}

/// Frees whatever there is beside the shards.
pub(crate) fn release(unit: &mut Unit, arena: &mut Arena) {
    drop_full(unit, arena);
    if let Some(part) = unit.narrow.take() {
        arena.give(Class::Narrow, part);
    }
}

fn drop_full(unit: &mut Unit, arena: &mut Arena) {
    if let Full::Here { buffer, .. } = std::mem::take(&mut unit.full) {
        arena.give(Class::Gathered, buffer);
    }
}

/// Copies a range of a full parameter's elements out of the rows of all ranks.
fn copy_range(row: &Row, bytes: &[u8], index: usize, range: Range<usize>, into: &mut [u8], to: DType) {
    let Some(span) = row.span(index) else { return };
    let (from_len, to_len) = (span.dtype.byte_len(), to.byte_len());
    for rank in 0..row.world {
        let (held, piece) = (span.division.elements(rank), row.piece(&span, rank));
        let (start, end) = (held.start.max(range.start), held.end.min(range.end));
        if start < end {
            let source = piece.start + (start - held.start) * from_len..piece.start + (end - held.start) * from_len;
            let target = (start - range.start) * to_len..(end - range.start) * to_len;
            convert(&bytes[source], span.dtype, &mut into[target], to);
        }
    }
}

/// The gather of a row a rank: in the type of its elements, or as bytes where there are several.
pub(crate) fn operation(row: &Row) -> (Op, DType) {
    let dtype = row.dtype.unwrap_or(DType::U8);
    (Op::AllGather { counts: Counts::Even(row.byte_len / dtype.byte_len()) }, dtype)
}
