//! Coalescing: many small operations of one kind as one exchange, at the price of one copy there and one back.

use phalanx_mem::Buffer;

use super::{Group, bytes, bytes_mut, nan};
use crate::call::Reduction;
use crate::reduce::Factor;
use crate::{Counts, DType, Element, Error, Op, OpKind, Result, Site};

/// Operations that are to travel as one. They must be of one kind, element type and reduction, and every rank must add those
/// of the same lengths in the same order.
#[derive(Debug)]
pub struct Coalesced<'a> {
    size: usize,
    alike: Option<Alike>,
    entries: Vec<Entry<'a>>,
    refused: Option<Error>,
}

/// What all operations of one exchange have in common.
#[derive(Clone, Copy, Debug)]
struct Alike {
    kind: OpKind,
    dtype: DType,
    reduction: Option<Reduction>,
    root: usize,
}

/// The buffers of one operation.
#[derive(Debug)]
struct Entry<'a> {
    /// Absent when it works in place.
    input: Option<&'a [u8]>,
    output: &'a mut [u8],
}

impl Group {
    /// Joins the operations that `add` adds into one exchange. Nothing is sent when one of them does not fit the others, or
    /// when `add` panics.
    ///
    /// ```
    /// # use phalanx_core::{Group, ReduceOp, Result};
    /// # fn step(group: &Group, weights: &mut [f32], bias: &mut [f32]) -> Result<()> {
    /// group.coalesce(|all| {
    ///     all.all_reduce(weights, ReduceOp::Avg);
    ///     all.all_reduce(bias, ReduceOp::Avg);
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are operations that are not of the kind, element type, reduction and root of the first, and
    /// lengths that do not fit each other; the first of these is told. [`Setup`](Error::Setup), with nothing sent, where there is no memory to
    /// join them in.
    #[track_caller]
    pub fn coalesce<'a>(&self, add: impl FnOnce(&mut Coalesced<'a>)) -> Result<()> {
        let site = Site::caller();
        let add = |all: &mut Coalesced<'a>| {
            add(all);
            Ok(())
        };
        self.join(add, site)
    }

    /// As [`coalesce`](Group::coalesce), where `add` may fail; then nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`coalesce`](Group::coalesce), and what `add` returned.
    #[track_caller]
    pub fn try_coalesce<'a>(&self, add: impl FnOnce(&mut Coalesced<'a>) -> Result<()>) -> Result<()> {
        self.join(add, Site::caller())
    }

    /// As [`all_reduce`](Group::all_reduce) of each entry, in one exchange.
    ///
    /// # Errors
    ///
    /// As [`coalesce`](Group::coalesce).
    #[track_caller]
    pub fn all_reduce_many<T: Element>(&self, data: &mut [&mut [T]], op: impl Into<Reduction>) -> Result<()> {
        let op = op.into();
        self.coalesce(move |all| data.iter_mut().for_each(|data| all.all_reduce(data, op)))
    }

    /// As [`all_gather`](Group::all_gather) of each entry, in one exchange.
    ///
    /// # Errors
    ///
    /// As [`coalesce`](Group::coalesce), and refused are `outputs` that are not one for each input.
    #[track_caller]
    pub fn all_gather_many<T: Element>(&self, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
        check_pairs(OpKind::AllGather, inputs.len(), outputs.len())?;
        let pairs = inputs.iter().zip(outputs);
        self.coalesce(move |all| pairs.for_each(|(input, output)| all.all_gather(input, output)))
    }

    /// As [`reduce_scatter`](Group::reduce_scatter) of each entry, in one exchange.
    ///
    /// # Errors
    ///
    /// As [`coalesce`](Group::coalesce), and refused are `outputs` that are not one for each input.
    #[track_caller]
    pub fn reduce_scatter_many<T: Element>(
        &self,
        inputs: &[&[T]],
        outputs: &mut [&mut [T]],
        op: impl Into<Reduction>,
    ) -> Result<()> {
        let op = op.into();
        check_pairs(OpKind::ReduceScatter, inputs.len(), outputs.len())?;
        let pairs = inputs.iter().zip(outputs);
        self.coalesce(move |all| pairs.for_each(|(input, output)| all.reduce_scatter(input, output, op)))
    }

    fn join<'a>(&self, add: impl FnOnce(&mut Coalesced<'a>) -> Result<()>, site: Site) -> Result<()> {
        let mut all = Coalesced { size: self.size(), alike: None, entries: vec![], refused: None };
        add(&mut all)?;
        match (all.refused.take(), all.alike) {
            (Some(refused), _) => Err(refused),
            (None, Some(alike)) => self.exchange(alike, &mut all.entries, site),
            (None, None) => Ok(()),
        }
    }

    fn exchange(&self, alike: Alike, entries: &mut [Entry<'_>], site: Site) -> Result<()> {
        let size = self.size();
        self.check_numbers(alike, entries)?;
        let mut input = match alike.kind {
            OpKind::AllReduce | OpKind::Broadcast => None,
            OpKind::AllGather => Some(joined(entries.iter().filter_map(|entry| entry.input))?),
            _ => Some(interleaved(size, entries)?),
        };
        let mut output = match &input {
            None => joined(entries.iter().map(|entry| &*entry.output))?,
            Some(_) => zeroed(entries.iter().map(|entry| entry.output.len()))?,
        };
        let input = input.as_mut().map(|input| input.as_bytes());
        let (op, factor) = (alike.op(size, output.byte_len()), alike.reduction.and_then(|reduction| reduction.factor));
        self.fits(&op, alike.dtype, factor, input, output.as_bytes())?;
        let mut call = self.number(op, alike.dtype, factor, input.is_none(), site)?;
        // Two ranks may have as much in all and yet cut it otherwise.
        call.fingerprint = call.fingerprint.cut(entries.iter().map(|entry| entry.output.len()));
        self.play(&call, input, output.as_bytes_mut())?;
        match alike.kind {
            OpKind::AllGather => deal(size, output.as_bytes(), entries),
            _ => hand_out(output.as_bytes(), entries),
        }
        Ok(())
    }

    /// That no operation of the exchange is given a NaN, where the group checks that.
    fn check_numbers(&self, alike: Alike, entries: &[Entry<'_>]) -> Result<()> {
        let gives = alike.kind != OpKind::Broadcast || alike.root == self.rank();
        if !self.shared.options.check_nan || !gives {
            return Ok(());
        }
        let argument = if entries.iter().any(|entry| entry.input.is_some()) { "input" } else { "data" };
        let given = entries.iter().map(|entry| entry.input.unwrap_or(&*entry.output));
        nan::check_entries((alike.kind, argument), alike.dtype, self.own_world_rank(), given)
    }
}

impl<'a> Coalesced<'a> {
    /// As [`Group::all_reduce`].
    pub fn all_reduce<T: Element>(&mut self, data: &'a mut [T], op: impl Into<Reduction>) {
        let alike = Alike { kind: OpKind::AllReduce, dtype: T::DTYPE, reduction: Some(op.into()), root: 0 };
        self.add(alike, None, bytes_mut(data));
    }

    /// As [`Group::broadcast`].
    pub fn broadcast<T: Element>(&mut self, data: &'a mut [T], root: usize) {
        self.add(Alike { kind: OpKind::Broadcast, dtype: T::DTYPE, reduction: None, root }, None, bytes_mut(data));
    }

    /// As [`Group::all_gather`].
    pub fn all_gather<T: Element>(&mut self, input: &'a [T], output: &'a mut [T]) {
        self.check_len(OpKind::AllGather, "output", output.len(), input.len());
        let alike = Alike { kind: OpKind::AllGather, dtype: T::DTYPE, reduction: None, root: 0 };
        self.add(alike, Some(bytes(input)), bytes_mut(output));
    }

    /// As [`Group::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(&mut self, input: &'a [T], output: &'a mut [T], op: impl Into<Reduction>) {
        self.check_len(OpKind::ReduceScatter, "input", input.len(), output.len());
        let alike = Alike { kind: OpKind::ReduceScatter, dtype: T::DTYPE, reduction: Some(op.into()), root: 0 };
        self.add(alike, Some(bytes(input)), bytes_mut(output));
    }

    fn add(&mut self, alike: Alike, input: Option<&'a [u8]>, output: &'a mut [u8]) {
        let first = *self.alike.get_or_insert(alike);
        if !first.is_like(&alike) {
            let expected = format!("must be as the first of its exchange, {first}");
            self.refuse(Error::usage(alike.kind, "operation", alike, expected));
        }
        self.entries.push(Entry { input, output });
    }

    /// That one buffer of an operation is as long as one part for each rank.
    fn check_len(&mut self, kind: OpKind, argument: &'static str, len: usize, part: usize) {
        if part.checked_mul(self.size) != Some(len) {
            let value = format!("{len} elements long in entry {}", self.entries.len());
            let expected = format!("must be {}", part.saturating_mul(self.size));
            self.refuse(Error::usage(kind, argument, value, expected));
        }
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }
}

impl Alike {
    /// Whether it is the same in all, to the bits of its factor: one that is no number is like itself.
    fn is_like(&self, other: &Alike) -> bool {
        let of = |alike: &Alike| {
            let reduction = alike.reduction.map(|reduction| (reduction.op, reduction.factor.map(Factor::bits)));
            (alike.kind, alike.dtype, reduction, alike.root)
        };
        of(self) == of(other)
    }

    /// The one operation, whose output is this long.
    fn op(self, size: usize, byte_len: usize) -> Op {
        let (count, root) = (self.dtype.elements(byte_len), self.root);
        let reduce = self.reduction.map_or(crate::ReduceOp::Sum, |reduction| reduction.op);
        match self.kind {
            OpKind::AllReduce => Op::AllReduce { count, reduce },
            OpKind::Broadcast => Op::Broadcast { count, root },
            OpKind::AllGather => Op::AllGather { counts: Counts::Even(count / size) },
            _ => Op::ReduceScatter { counts: Counts::Even(count), reduce },
        }
    }
}

impl std::fmt::Display for Alike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.kind, self.dtype)?;
        match self.reduction {
            Some(Reduction { op, factor: Some(factor) }) => write!(f, " by {op} with {factor:?}"),
            Some(Reduction { op, factor: None }) => write!(f, " by {op}"),
            None if self.kind == OpKind::Broadcast => write!(f, " from rank {}", self.root),
            None => Ok(()),
        }
    }
}

fn check_pairs(kind: OpKind, inputs: usize, outputs: usize) -> Result<()> {
    if inputs == outputs {
        return Ok(());
    }
    let expected = format!("must have one for each of the {inputs} inputs");
    Err(Error::usage(kind, "outputs", format!("a list of {outputs}"), expected))
}

fn zeroed(byte_lens: impl Iterator<Item = usize>) -> Result<Buffer> {
    let total = byte_lens.fold(0, usize::saturating_add);
    Buffer::try_zeroed(total).map_err(|error| Error::setup("staging", error))
}

/// All parts behind each other.
fn joined<'b>(parts: impl Iterator<Item = &'b [u8]> + Clone) -> Result<Buffer> {
    let mut whole = zeroed(parts.clone().map(<[u8]>::len))?;
    let mut room = whole.as_bytes_mut();
    for part in parts {
        let (here, rest) = room.split_at_mut(part.len());
        here.copy_from_slice(part);
        room = rest;
    }
    Ok(whole)
}

/// All inputs by rank: of each entry the part of the first rank, then of each that of the second, and so on.
fn interleaved(size: usize, entries: &[Entry<'_>]) -> Result<Buffer> {
    let part = |rank: usize, entry: &'_ Entry<'_>| {
        let len = entry.output.len();
        rank * len..(rank + 1) * len
    };
    let parts = (0..size)
        .flat_map(|rank| entries.iter().filter_map(move |entry| entry.input.map(|input| &input[part(rank, entry)])));
    joined(parts)
}

fn hand_out(mut whole: &[u8], entries: &mut [Entry<'_>]) {
    for entry in entries {
        let (first, rest) = whole.split_at(entry.output.len());
        entry.output.copy_from_slice(first);
        whole = rest;
    }
}

/// Deals what came by rank to the entries: the inverse of [`interleaved`].
fn deal(size: usize, mut whole: &[u8], entries: &mut [Entry<'_>]) {
    for rank in 0..size {
        for entry in &mut *entries {
            let len = entry.output.len() / size;
            let (first, rest) = whole.split_at(len);
            entry.output[rank * len..(rank + 1) * len].copy_from_slice(first);
            whole = rest;
        }
    }
}
