//! From a world to a group of its ranks: which way their bytes go, and what they tell each other first.

use std::time::{Duration, Instant};

use phalanx_core::{Error, Group, GroupOptions, Result};

use crate::local::Door;
use crate::rendezvous::{Meeting, World};
use crate::{Network, Processes, Protection};

/// Which way the bytes of a group go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory where all ranks are on one host, at most 64 of them; else shared memory inside each host, and TCP between
    /// hosts.
    #[default]
    Automatic,
    /// Memory that the ranks share.
    SharedMemory,
    /// TCP, also between ranks of one host.
    Tcp,
}

/// How a world's ranks become a group. All ranks say the same.
#[derive(Clone, Debug)]
pub struct Wiring {
    options: GroupOptions,
    transport: Transport,
    protection: Protection,
    timeout: Duration,
}

impl Default for Wiring {
    /// With the group's own defaults, any transport, encrypted where there is a job key, and 300 s to meet.
    fn default() -> Wiring {
        let (transport, protection) = (Transport::default(), Protection::default());
        Wiring { options: GroupOptions::default(), transport, protection, timeout: DEFAULT_TIMEOUT }
    }
}

impl Wiring {
    /// How the group behaves. Its epoch is the world's.
    #[must_use]
    pub fn options(mut self, options: GroupOptions) -> Wiring {
        self.options = options;
        self
    }

    /// Which way its bytes go.
    #[must_use]
    pub fn transport(mut self, transport: Transport) -> Wiring {
        self.transport = transport;
        self
    }

    /// What the job key does for bytes that travel over TCP.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Wiring {
        self.protection = protection;
        self
    }

    /// How long to wait for the other ranks.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Wiring {
        self.timeout = timeout;
        self
    }
}

impl World {
    /// The group of all ranks of this world, which exchange data in it. Every rank calls this, and as often as the others.
    ///
    /// # Errors
    ///
    /// [`Setup`](phalanx_core::ErrorKind::Setup), which names the ranks that did not come or cannot be reached.
    pub fn group(&self) -> Result<Group> {
        self.wire(&Wiring::default())
    }

    /// The same as by [`group`](World::group), wired as told.
    ///
    /// # Errors
    ///
    /// As [`group`](World::group), and when the transport is shared memory and the ranks are on several hosts.
    pub fn wire(&self, wiring: &Wiring) -> Result<Group> {
        let options = wiring.options.clone().epoch(self.epoch());
        let profile = options.chosen_profile().or(self.profile());
        let options = profile.into_iter().fold(options, GroupOptions::profile);
        match wiring.transport {
            Transport::Tcp => self.over_network(wiring, options, false),
            Transport::Automatic if !self.layout().is_one_host() || self.size() > Processes::MOST => {
                self.over_network(wiring, options, true)
            }
            Transport::SharedMemory if !self.layout().is_one_host() => {
                let hosts = format!("the world's ranks are on {} hosts", self.nodes());
                Err(Error::setup("shared memory", hosts))
            }
            Transport::Automatic | Transport::SharedMemory => self.in_shared_memory(wiring, options),
        }
    }

    fn over_network(&self, wiring: &Wiring, options: GroupOptions, shared_memory: bool) -> Result<Group> {
        let network = Network::new(self.rank(), self.size(), self.next_scope()).options(options);
        let network = network.shared_memory(shared_memory);
        let network = network.hosts(self.layout().hosts().to_vec()).protection(wiring.protection);
        let network = self.key().cloned().into_iter().fold(network, Network::key);
        network.insecure(self.is_insecure()).join(wiring.timeout)
    }

    /// The first rank chooses where they meet, and the secret that lets them in.
    fn in_shared_memory(&self, wiring: &Wiring, options: GroupOptions) -> Result<Group> {
        let began = Instant::now();
        let mut choice = [0; 32];
        getrandom::fill(&mut choice).map_err(|error| Error::setup("random bytes", error))?;
        let card: &[u8] = if self.rank() == 0 { &choice } else { &[] };
        let meeting = Meeting::new(self.next_scope(), "door", self.rank(), self.size());
        let cards = meeting.meet(card, wiring.timeout).map_err(|error| error.during("forming a group"))?;
        let chosen = cards.first().and_then(|card| card.split_first_chunk());
        let Some((token, name)) = chosen else {
            return Err(Error::setup("forming a group", "rank 0 did not say where to meet"));
        };
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let ranks = Processes::new(self.rank(), self.size(), Door::named(format!("phalanx-{name}")), *token);
        ranks.options(options).join(wiring.timeout.saturating_sub(began.elapsed()))
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::thread;

    use phalanx_core::store::{Limits, Store};
    use phalanx_core::{ErrorKind, ReduceOp};

    use super::*;
    use crate::rendezvous::WorldOptions;
    use crate::secure::JobKey;
    use crate::store::LocalStore;

    fn worlds(size: usize, act: impl Fn(World) + Sync) {
        let store = Store::new(LocalStore::new(Limits::default()));
        let key = JobKey::mint().expect("random bytes");
        thread::scope(|scope| {
            for rank in 0..size {
                let (store, options, act) = (store.clone(), WorldOptions::new(rank, size).key(key.clone()), &act);
                scope.spawn(move || act(World::join(store, &options).expect("a world")));
            }
        });
    }

    #[test]
    fn a_world_has_any_number_of_groups_over_any_transport() {
        worlds(3, |world| {
            for transport in [Transport::Automatic, Transport::Tcp, Transport::SharedMemory] {
                let group = world.wire(&Wiring::default().transport(transport)).expect("all come");
                let mut data = [group.rank() as u32 + 1];
                group.all_reduce(&mut data, ReduceOp::Sum).expect("a group");
                assert_eq!(data, [6], "{transport:?}");
            }
        });
    }

    #[test]
    fn who_does_not_come_is_named() {
        worlds(2, |world| {
            if world.rank() == 0 {
                let wiring = Wiring::default().timeout(Duration::from_millis(300));
                let error = world.wire(&wiring).expect_err("rank 1 does not come");
                assert_eq!(error.kind(), ErrorKind::Setup);
                assert!(error.to_string().contains('1'), "{error}");
            }
            world.barrier("end", Duration::from_secs(10)).expect("both");
        });
    }
}
