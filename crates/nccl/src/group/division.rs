//! Groups that are split from another: their communicator comes from that one's, without an id of its own.

use std::sync::{Arc, Mutex};

use phalanx_core::backend::Pending;
use phalanx_core::{DType, Error, Group, GroupOptions, Layout, Op, OpKind, Result};

use super::backend::NcclBackend;
use super::device::DeviceGroup;
use super::hall::{Hall, lock};
use super::job::{Errand, Split};
use super::lane::{Hold, Lane, Line};
use super::options::NcclOptions;
use super::order::Company;
use crate::api::{Comm, Cuda, Nccl, Process};

impl<N: Nccl, C: Cuda, P: Process> DeviceGroup<N, C, P> {
    /// A group of some ranks of this one, in this order, with its resources. All ranks of this group call it with the same members, at the
    /// same place among their operations; those that are no members get none. When this group fails, so does the new one.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for members that are not ranks of this group, or one twice; whatever kept the ranks from
    /// splitting.
    #[track_caller]
    pub fn split(&self, members: &[usize], options: GroupOptions) -> Result<Option<DeviceGroup<N, C, P>>> {
        let hall = &self.backend().hall;
        check(members, hall.layout.size())?;
        let place = members.iter().position(|&member| member == hall.layout.rank());
        let call = self.group().call_elsewhere(Op::Barrier, DType::U8, None, Some(0), 0)?;
        let sequence = call.sequence;
        let child = Arc::new(Mutex::new(None));
        let colour = place.map(|_| 0);
        let key = place.and_then(|place| i32::try_from(place).ok()).unwrap_or_default();
        let spare = call.clone();
        let begun =
            self.backend().send(call, Errand::Split(Split { colour, key, child: Arc::clone(&child) }), Vec::new());
        let mut waiting = self.in_world(begun.inspect_err(|error| {
            spare.end(|| hall.now(), Some(error));
            hall.fail(error.clone(), None);
        }))?;
        let ended = waiting.wait(None).unwrap_or_else(|| Err(Error::aborted("the split has no end")));
        if ended.is_err() {
            hall.abort_unclaimed(&child);
        }
        self.in_world(ended)?;
        let (Some(place), Some(comm)) = (place, lock(&child).take()) else { return Ok(None) };
        let adopted = self.adopt(comm, place, members, (sequence, options));
        // Nobody has come to know it otherwise, so nobody else ends it.
        adopted.map(Some).inspect_err(|_| hall.abort_stray(comm))
    }

    /// The new group over a communicator that was split.
    fn adopt(
        &self,
        comm: Comm,
        place: usize,
        members: &[usize],
        (sequence, options): (u32, GroupOptions),
    ) -> Result<DeviceGroup<N, C, P>> {
        let hall = &self.backend().hall;
        let hosts = members.iter().map(|&member| hall.layout.hosts()[member]).collect();
        let layout = Layout::new(place, hosts)?;
        let in_world: Arc<[usize]> = members.iter().map(|&member| hall.world_rank(member)).collect();
        let chosen = options.chosen_members().cloned().unwrap_or(in_world);
        let options = options.members(Arc::clone(&chosen));
        let store = hall.store.scope("phalanx").scope("split").scope(&sequence.to_string());
        let name = options.chosen_name().map(Arc::from);
        // The job's signals know the whole group's numbers, and that heard them before.
        let own_options = NcclOptions { name, torch: None, ..hall.options.clone().members(chosen) };
        let own = Hall::new(hall.stack.clone(), layout.clone(), store, own_options)?;
        // Of the two that need a thread, the one that ends the communicator comes last.
        let backend = Arc::new(NcclBackend::with(Arc::clone(&own))?);
        Lane::with(&own, Line::Whole, Hold::Made(comm))?;
        lock(&hall.children).push(Arc::downgrade(&own));
        if let Some(fate) = hall.fate() {
            backend.hall.fail(hall.told_to_children(fate.error), None);
        }
        Ok(DeviceGroup::over(Group::new(layout, Arc::clone(&backend) as _, options), backend))
    }
}

impl<N: Nccl, C: Cuda, P: Process> Hall<N, C, P> {
    /// What groups that were split from this one are told of its failure. In what their callers get, numbers of their own ranks become the
    /// world's; this one's ranks have others there, so they are told as the world's, where nothing changes them.
    pub(super) fn told_to_children(&self, error: Error) -> Error {
        let error = self.in_world(error);
        let root = match &error {
            Error::Aborted(aborted) => aborted.cause.as_deref().unwrap_or(&error),
            first => first,
        };
        if !matches!(root, Error::Peer(_) | Error::Timeout(_) | Error::Desync(_)) {
            return Error::aborted_by(error);
        }
        let (title, culprits) = (self.title(), root.culprits());
        if culprits.is_empty() {
            return Error::aborted(format!("{title}: {root}"));
        }
        Error::aborted_by(Error::absent(title, root, culprits))
    }
}

fn check(members: &[usize], size: usize) -> Result<()> {
    let wrong = members.iter().enumerate().find(|(at, rank)| **rank >= size || members[..*at].contains(rank));
    match wrong {
        None if !members.is_empty() => Ok(()),
        _ => {
            let expected = format!("must be different ranks below the group size {size}");
            Err(Error::usage(OpKind::Barrier, "members", format!("{members:?}"), expected))
        }
    }
}
