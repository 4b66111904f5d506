//! Collectives over lists: one slice for each rank instead of one that holds all parts. They are the operations over one
//! slice, with one staging copy on each side that is a list.

use super::{Group, bytes, bytes_mut, check, nan};
use crate::call::Reduction;
use crate::reduce::Factor;
use crate::{Counts, Element, Error, Op, OpKind, Result, Site};

impl Group {
    /// As [`all_gather`](Group::all_gather), where rank `i`'s input becomes `outputs[i]`; the lengths may differ.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are `outputs` that are not one for each rank, and an `input` that is not as long as this
    /// rank's. [`Setup`](Error::Setup), with nothing sent, where there is no memory for all parts.
    #[track_caller]
    pub fn all_gather_list<T: Element>(&self, input: &[T], outputs: &mut [&mut [T]]) -> Result<()> {
        let lens = self.lens(OpKind::AllGather, "outputs", outputs.iter().map(|entry| entry.len()))?;
        let mut whole = blank(&lens)?;
        self.lent(Op::AllGather { counts: counts(&lens) }, None, Some(input), &mut whole)?;
        hand_out(&whole, outputs);
        Ok(())
    }

    /// As [`reduce_scatter`](Group::reduce_scatter), where rank `i` gets the reduction of all ranks' `inputs[i]`; the
    /// lengths may differ.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are what [`all_reduce`](Group::all_reduce) refuses, `inputs` that are not one for each rank,
    /// and an `output` that is not as long as this rank's. [`Setup`](Error::Setup), with nothing sent, where there is no memory for all parts.
    #[track_caller]
    pub fn reduce_scatter_list<T: Element>(
        &self,
        inputs: &[&[T]],
        output: &mut [T],
        op: impl Into<Reduction>,
    ) -> Result<()> {
        let Reduction { op: reduce, factor } = op.into();
        let lens = self.lens(OpKind::ReduceScatter, "inputs", inputs.iter().map(|entry| entry.len()))?;
        let op = Op::ReduceScatter { counts: counts(&lens), reduce };
        self.run_joined(op, factor, inputs, output)
    }

    /// As [`all_to_all`](Group::all_to_all), where rank `i`'s `inputs[j]` becomes rank `j`'s `outputs[i]`; the lengths may
    /// differ.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are lists that do not have one for each rank, and two of this rank for itself that differ in
    /// length. [`Setup`](Error::Setup), with nothing sent, where there is no memory for all parts.
    #[track_caller]
    pub fn all_to_all_list<T: Element>(&self, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
        let give = self.lens(OpKind::AllToAll, "inputs", inputs.iter().map(|entry| entry.len()))?;
        let take = self.lens(OpKind::AllToAll, "outputs", outputs.iter().map(|entry| entry.len()))?;
        let mut whole = blank(&take)?;
        // Never as even parts, which travel another way: a rank does not know whether the others' are.
        let op = Op::AllToAll { give: Counts::uneven(&give), take: Counts::uneven(&take) };
        self.run_joined(op, None, inputs, &mut whole)?;
        hand_out(&whole, outputs);
        Ok(())
    }

    /// As [`gather`](Group::gather), where rank `i`'s input becomes `root`'s `outputs[i]`; the others' list is empty.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a `root` that is no rank of the group, `outputs` that on `root` are not one for each
    /// rank, or elsewhere are any, and one that is not as long as `input`. [`Setup`](Error::Setup), with nothing sent, where there is no memory
    /// for all parts.
    #[track_caller]
    pub fn gather_list<T: Element>(&self, input: &[T], outputs: &mut [&mut [T]], root: usize) -> Result<()> {
        let lens = outputs.iter().map(|entry| entry.len());
        let lens = self.lens_at(OpKind::Gather, "outputs", lens, root, input.len())?;
        let mut whole = blank(&lens)?;
        self.lent(Op::Gather { counts: Counts::Even(input.len()), root }, None, Some(input), &mut whole)?;
        hand_out(&whole, outputs);
        Ok(())
    }

    /// As [`scatter`](Group::scatter), where `root`'s `inputs[i]` becomes rank `i`'s output; the others' list is empty.
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Refused are a `root` that is no rank of the group, `inputs` that on `root` are not one for each rank,
    /// or elsewhere are any, and one that is not as long as `output`. [`Setup`](Error::Setup), with nothing sent, where there is no memory for
    /// all parts.
    #[track_caller]
    pub fn scatter_list<T: Element>(&self, inputs: &[&[T]], output: &mut [T], root: usize) -> Result<()> {
        let lens = inputs.iter().map(|entry| entry.len());
        self.lens_at(OpKind::Scatter, "inputs", lens, root, output.len())?;
        let op = Op::Scatter { counts: Counts::Even(output.len()), root };
        self.run_joined(op, None, inputs, output)
    }

    /// Runs an operation over all inputs behind each other.
    #[track_caller]
    fn run_joined<T: Element>(&self, op: Op, factor: Option<Factor>, inputs: &[&[T]], output: &mut [T]) -> Result<()> {
        if self.shared.options.check_nan {
            let given = inputs.iter().map(|entry| bytes(entry));
            nan::check_entries((op.kind(), "inputs"), T::DTYPE, self.own_world_rank(), given)?;
        }
        let whole = joined(inputs)?;
        let (input, output) = (bytes(&whole), bytes_mut(output));
        self.fits(&op, T::DTYPE, factor, Some(input), output)?;
        let call = self.number(op, T::DTYPE, factor, false, Site::caller())?;
        self.play(&call, Some(input), output).map(drop)
    }

    /// The lengths of a list that has an entry for each rank.
    fn lens(
        &self,
        kind: OpKind,
        argument: &'static str,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Vec<usize>> {
        check::check_list(kind, argument, lens.len(), self.size())?;
        Ok(lens.collect())
    }

    /// The lengths of a list that `root` alone has, each of them `len`.
    fn lens_at(
        &self,
        kind: OpKind,
        argument: &'static str,
        lens: impl ExactSizeIterator<Item = usize>,
        root: usize,
        len: usize,
    ) -> Result<Vec<usize>> {
        check::check_rank(kind, "root", root, self.size())?;
        check::check_list(kind, argument, lens.len(), if self.rank() == root { self.size() } else { 0 })?;
        let lens: Vec<usize> = lens.collect();
        match lens.iter().position(|entry| *entry != len) {
            None => Ok(lens),
            Some(at) => {
                let value = format!("{} elements long in entry {at}", lens[at]);
                Err(Error::usage(kind, argument, value, format!("must be {len}")))
            }
        }
    }
}

/// How long each rank's part is; even parts travel faster.
fn counts(lens: &[usize]) -> Counts {
    match lens.split_first() {
        Some((first, rest)) if rest.iter().all(|len| len == first) => Counts::Even(*first),
        _ => Counts::uneven(lens),
    }
}

/// Room for parts of these lengths.
fn blank<T: Element>(lens: &[usize]) -> Result<Vec<T>> {
    let mut whole = reserved(lens.iter().copied())?;
    whole.resize(lens.iter().sum(), T::default());
    Ok(whole)
}

/// All parts behind each other.
fn joined<T: Element>(parts: &[&[T]]) -> Result<Vec<T>> {
    let mut whole = reserved(parts.iter().map(|part| part.len()))?;
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    Ok(whole)
}

fn reserved<T>(mut lens: impl Iterator<Item = usize>) -> Result<Vec<T>> {
    let mut whole = Vec::new();
    let total = lens.try_fold(0_usize, usize::checked_add).unwrap_or(usize::MAX);
    whole.try_reserve_exact(total).map_err(|error| Error::setup("staging", error))?;
    Ok(whole)
}

fn hand_out<T: Element>(mut whole: &[T], parts: &mut [&mut [T]]) {
    for part in parts {
        let (first, rest) = whole.split_at(part.len());
        part.copy_from_slice(first);
        whole = rest;
    }
}
