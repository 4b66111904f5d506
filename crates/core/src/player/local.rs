//! Steps that touch this rank's memory only.

use super::Task;
use super::memory::{Memory, Parts};
use crate::reduce::{combine, combine_in_place, finish_avg, scale};
use crate::schedule::{Span, Step};
use crate::{Error, Result};

/// Takes a step that moves nothing between ranks.
pub(super) fn take(task: &Task<'_>, step: &Step, memory: &mut Memory<'_, '_>) -> Result<()> {
    let done = match step {
        Step::Copy { from, into } => {
            memory.copy(*from, *into);
            Ok(())
        }
        Step::Combine { into, parts, whole } => return join(task, *into, parts, *whole, memory),
        Step::Scale(span) => match &task.factor {
            Some(factor) => scale(task.dtype, memory.write(*span), factor),
            None => Ok(()),
        },
        Step::Finish(span) => finish_avg(task.dtype, memory.write(*span), task.size),
        Step::Move { .. } | Step::Offer { .. } | Step::Pull { .. } | Step::PullAll { .. } => Ok(()),
    };
    done.map_err(|error| Error::setup("reduction", error))
}

/// Joins spans of this rank's own memory.
fn join(task: &Task<'_>, into: Span, parts: &[Span], whole: bool, memory: &mut Memory<'_, '_>) -> Result<()> {
    let (reduce, position) = (task.join(whole), parts.iter().position(|part| *part == into));
    let (target, around) = memory.split(into);
    let mut others = Parts::new();
    others.extend(parts.iter().filter(|part| **part != into).map(|part| around.read(*part)));
    let joined = match position {
        Some(position) => combine_in_place(reduce, task.dtype, target, position, &others),
        None => combine(reduce, task.dtype, target, &others),
    };
    joined.map_err(|error| Error::setup("reduction", error))
}
