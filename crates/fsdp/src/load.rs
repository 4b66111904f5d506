//! Full parameters in and out of shards, outside training: initial weights, whole states. Files are somebody else's.

use phalanx_core::{Class, Counts, DType, Element, Error, Op, Result};

use crate::cast::convert;
use crate::sharded::Sharded;
use crate::spec::Param;

impl Sharded {
    /// Takes this rank's rows of a full parameter, cast to its type. No rank waits for another.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a parameter that there is not or that is ignored, and for another length than its own.
    pub fn load_full<T: Element>(&mut self, param: Param, full: &[T]) -> Result<()> {
        let (owner, dtype) = self.stored("load_full", param)?;
        let division = self.units[param.unit].layout.divisions[owner];
        check::<T>("load_full", "full", full.len(), division.full_len())?;
        let rows = &full[division.elements(self.groups.shard.rank())];
        self.note_changed(param.unit)?;
        convert(bytemuck::cast_slice(rows), T::DTYPE, self.units[param.unit].shard_mut(owner), dtype);
        Ok(())
    }

    /// Gathers one full parameter from its shards, in its own type and cast to that of `into`. All ranks of the shard group call this.
    ///
    /// # Errors
    ///
    /// As [`load_full`](Sharded::load_full), and those of the gather.
    pub fn copy_full<T: Element>(&self, param: Param, into: &mut [T]) -> Result<()> {
        self.check_failed()?;
        let (owner, dtype) = self.stored("copy_full", param)?;
        let unit = &self.units[param.unit];
        let division = unit.layout.divisions[owner];
        check::<T>("copy_full", "into", into.len(), division.full_len())?;
        let rank_lens = (0..division.world()).map(|rank| division.elements(rank).len()).collect::<Vec<_>>();
        let mut full = vec![0_u64; (division.full_len() * dtype.byte_len()).div_ceil(size_of::<u64>())];
        let full = &mut bytemuck::cast_slice_mut(&mut full)[..division.full_len() * dtype.byte_len()];
        let op = Op::AllGather { counts: Counts::uneven(&rank_lens) };
        self.groups.shard.run_bytes(op, dtype, None, Some(unit.shard(owner)), full)?;
        convert(full, dtype, bytemuck::cast_slice_mut(into), T::DTYPE);
        Ok(())
    }

    /// Makes all replicas the same as the first: every rank gets the shards of its counterpart there. All ranks call this.
    ///
    /// # Errors
    ///
    /// Those of the broadcasts.
    pub fn broadcast_replicas(&mut self) -> Result<()> {
        self.check_failed()?;
        let Some(replicas) = self.groups.replicate.clone() else { return Ok(()) };
        for param in self.owned().collect::<Vec<_>>() {
            self.note_changed(param.unit)?;
            let (owner, dtype) = self.stored("broadcast_replicas", param)?;
            let shard = self.units[param.unit].shard_mut(owner);
            let op = Op::Broadcast { count: shard.len() / dtype.byte_len(), root: 0 };
            let ended = replicas.run_bytes(op, dtype, None, None, shard);
            ended.inspect_err(|error| self.failed = Some(error.clone()))?;
        }
        Ok(())
    }

    fn stored(&self, call: &'static str, param: Param) -> Result<(usize, DType)> {
        let unit = self.unit(call, param.unit)?;
        let (spec, owner) = unit.owner(call, param.index)?;
        Ok((owner, spec.dtype))
    }
}

pub(crate) fn check<T: Element>(call: &'static str, argument: &'static str, len: usize, full_len: usize) -> Result<()> {
    if len != full_len {
        let expected = format!("must be {full_len}, those of the full parameter");
        return Err(Error::usage(call, argument, format!("{len} elements"), expected));
    }
    if T::DTYPE.class() != Class::Float {
        return Err(Error::usage(call, "dtype", T::DTYPE, "must be f64, f32, f16 or bf16"));
    }
    Ok(())
}
