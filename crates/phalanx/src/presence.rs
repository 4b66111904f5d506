//! How a rank is seen from outside: by `phalanx top`, by Prometheus, by who collects traces, and in what it leaves when a call fails.

use std::sync::Arc;

use phalanx_comm::rendezvous::{World, host_name};
use phalanx_comm::secure::JobName;
use phalanx_comm::{Registry, Transport};
use phalanx_core::{Alarm, Group, Result};

use crate::inquiry::{Office, Service};
use crate::trace::BlackBox;

/// A rank's place in its job, and the groups it is in.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) registry: Registry,
    pub(crate) job: String,
    pub(crate) local_rank: usize,
    pub(crate) host_name: String,
}

impl Seat {
    pub(crate) fn of(world: &World) -> Seat {
        Seat {
            registry: world.registry().clone(),
            job: world.job().as_str().to_owned(),
            local_rank: world.local_rank(),
            host_name: world.members()[world.rank()].host_name().to_owned(),
        }
    }
}

/// What a rank that [joins](crate::Joining) a world has by itself, for a program whose groups are formed in another way, as another library's
/// process groups are: `phalanx top` shows it, `phalanx trace collect` asks it on its host, `PHALANX_METRICS` and `PHALANX_TRACE_DIR` hold for it.
///
/// It ends when this is dropped.
///
/// ```no_run
/// # use phalanx::{Group, GroupOptions, JobName, Presence, Transport};
/// # fn example(form: impl Fn(GroupOptions) -> phalanx::Result<Group>) -> Result<(), Box<dyn std::error::Error>> {
/// let presence = Presence::open(&JobName::new("night-run")?, (2, 8), 2)?;
/// let group = form(GroupOptions::default().alarm(presence.alarm()))?; // however the program comes by it
/// presence.show(&group, (0..8).collect(), Transport::Tcp);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Presence {
    registry: Registry,
    black_box: Arc<BlackBox>,
    _office: Option<Office>,
}

impl Presence {
    /// That of this process as rank `rank` of `size` in a job, with this number on its host.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), where the environment asks for what cannot be done.
    pub fn open(job: &JobName, (rank, size): (usize, usize), local_rank: usize) -> Result<Presence> {
        let registry = Registry::of(rank, size);
        let seat =
            Seat { registry: registry.clone(), job: job.as_str().to_owned(), local_rank, host_name: host_name() };
        let black_box = BlackBox::of_environment()?;
        let service = Service::of_environment()?.prepare(Some(local_rank))?;
        black_box.open(&seat);
        let office = service.open(&seat, Arc::clone(&black_box));
        Ok(Presence { registry, black_box, _office: office })
    }

    /// Who has to be told of its groups' failures: given to the [options](crate::GroupOptions::alarm) of each.
    pub fn alarm(&self) -> Arc<dyn Alarm> {
        Arc::clone(&self.black_box) as _
    }

    /// Says that the job's ranks have met in this world, by which their dumps are known to be of one start. One of fewer ranks is not meant, and the
    /// first counts for as long as groups are shown that live.
    pub fn met(&self, world: &World) {
        self.registry.adopt(world.registry());
    }

    /// Shows a group for as long as it lives; `members` are the job's ranks that are its ranks, in their order.
    pub fn show(&self, group: &Group, members: Vec<usize>, transport: Transport) {
        self.registry.show(group, members, transport);
    }
}

#[cfg(test)]
mod tests {
    use phalanx_comm::Threads;
    use phalanx_core::{Error, GroupOptions, ReduceOp};

    use super::*;

    #[test]
    fn groups_from_elsewhere_are_remembered_with_their_failures() {
        let job = JobName::new("presence").unwrap();
        let present = [1, 3].map(|rank| Presence::open(&job, (rank, 4), 0).unwrap());
        let options = GroupOptions::default().name("pair").alarm(present[0].alarm());
        let ranks = Threads::new(2).options(options).run(|group| {
            let own = &present[group.rank()];
            own.show(&group, vec![1, 3], Transport::SharedMemory);
            let count = 1 + group.rank();
            assert!(matches!(group.all_reduce(&mut vec![1.0_f32; count], ReduceOp::Sum), Err(Error::Desync(_))));
            own.black_box.dump().unwrap()
        });
        for (dump, rank) in ranks.unwrap().into_iter().zip([1, 3]) {
            assert_eq!((dump.rank, dump.world_size, dump.groups.len()), (rank, Some(4), 1));
            assert_eq!((dump.groups[0].name.as_str(), dump.groups[0].members.as_deref()), ("pair", Some(&[1, 3][..])));
        }
        let verdict = present[0].black_box.dump();
        assert_eq!(verdict.unwrap().groups.len(), 0, "the group is gone");
    }
}
