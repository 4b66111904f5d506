//! From a list of a world's ranks to their group: which way their bytes go, and where they meet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::store::Store;
use phalanx_core::{Error, Group, GroupOptions, Layout, Result};

use super::ledger::{Formed, Turn};
use crate::backends::{Maker, Seat};
use crate::local::Invitation;
use crate::rendezvous::{Meeting, World};
use crate::wiring::{Transport, Wiring};
use crate::{Network, Processes};

/// Some ranks of a world that become a group; this rank is among them.
pub(super) struct Part {
    pub(super) members: Vec<usize>,
    pub(super) name: String,
    /// How often its ranks had met there before.
    pub(super) generation: u64,
    /// Keys that no other group uses.
    pub(super) scope: Store,
    pub(super) timeout: Duration,
}

impl World {
    /// Forms a new group of all ranks of this world, which exchange data in it. Every rank calls this, and as often as the others: call it once, and
    /// clone the handle.
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
    /// As [`group`](World::group), and when the transport is shared memory and the ranks are on several hosts. Two threads of a
    /// rank that form groups of one name at the same time are told so, because the ranks' threads could meet crosswise.
    pub fn wire(&self, wiring: &Wiring) -> Result<Group> {
        let name = wiring.chosen_name().unwrap_or("world").to_owned();
        let (turn, scope) = self.claim_place("wire", "all", &name)?;
        let (members, generation) = ((0..self.size()).collect(), turn.generation);
        self.form(Part { members, name, generation, scope, timeout: wiring.patience() }, wiring)
    }

    /// The groups of this world that this rank is in and that live, in the order in which they were formed.
    pub fn groups(&self) -> Vec<Formed> {
        self.registry().groups().into_iter().map(|(formed, _)| formed).collect()
    }

    /// Takes a place where ranks meet to form a group in this way, and its keys for this time.
    pub(super) fn claim_place(&self, call: &'static str, way: &str, place: &str) -> Result<(Turn<'_>, Store)> {
        let turn = self.ledger().claim(call, &format!("{way}/{place}"))?;
        let scope = self.group_scope(way).scope(place).scope(&turn.generation.to_string());
        Ok((turn, scope))
    }

    pub(super) fn form(&self, part: Part, wiring: &Wiring) -> Result<Group> {
        let (name, device) = wiring.chosen_backend();
        let (backend, maker) = self.backends().chosen(name, device)?;
        let options = wiring.group_options().clone().epoch(self.epoch()).name(&part.name);
        let whole = options.members_of(self.size());
        let members: Arc<[usize]> = part.members.iter().map(|&rank| whole[rank]).collect();
        let options = options.members(members);
        let profile = options.chosen_profile().or(self.profile());
        let options = profile.into_iter().fold(options, GroupOptions::profile);
        let options = self.alarm().cloned().into_iter().fold(options, GroupOptions::alarm);
        let generation = part.generation;
        let (group, transport) = match maker {
            Some(maker) => (self.made(maker.as_ref(), part, options)?, wiring.way()),
            None => self.of_host(&part, options, wiring)?,
        };
        self.registry().enter(&group, (backend, transport), generation);
        Ok(group)
    }

    /// A group with a backend of the program's own.
    fn made(&self, maker: &dyn Maker, part: Part, options: GroupOptions) -> Result<Group> {
        let layout = Layout::new(self.seat_in(&part), self.hosts_of(&part))?;
        let Part { members, name, scope, timeout, .. } = part;
        let seat =
            Seat { name, layout: layout.clone(), members, epoch: self.epoch(), store: scope.scope("own"), timeout };
        Ok(Group::new(layout, maker.make(&seat)?, options))
    }

    /// A group in shared memory or over TCP, and which of them it became.
    fn of_host(&self, part: &Part, options: GroupOptions, wiring: &Wiring) -> Result<(Group, Transport)> {
        let hosts = self.hosts_of(part);
        let is_one_host = hosts.iter().all(|&host| host == hosts[0]);
        let transport = match wiring.way() {
            Transport::SharedMemory if !is_one_host => {
                let count = hosts.iter().collect::<std::collections::HashSet<_>>().len();
                return Err(Error::setup("shared memory", format!("the group's ranks are on {count} hosts")));
            }
            Transport::Automatic if is_one_host && hosts.len() <= Processes::MOST => Transport::SharedMemory,
            way => way,
        };
        let group = match transport {
            Transport::SharedMemory => self.in_shared_memory(part, options),
            way => self.over_network(part, options, hosts, (wiring, way == Transport::Automatic)),
        }?;
        Ok((group, transport))
    }

    fn hosts_of(&self, part: &Part) -> Vec<u32> {
        part.members.iter().map(|&rank| self.layout().hosts()[rank]).collect()
    }

    fn over_network(
        &self,
        part: &Part,
        options: GroupOptions,
        hosts: Vec<u32>,
        (wiring, shared_memory): (&Wiring, bool),
    ) -> Result<Group> {
        let network = Network::new(self.seat_in(part), part.members.len(), part.scope.clone()).options(options);
        let network = network.kin(Arc::clone(self.kin()));
        let network = network.shared_memory(shared_memory).hosts(hosts).protection(wiring.shield());
        let network = self.key().cloned().into_iter().fold(network, Network::key);
        network.insecure(self.is_insecure()).join(part.timeout)
    }

    /// The first rank chooses where they meet, and the secret that lets them in.
    fn in_shared_memory(&self, part: &Part, options: GroupOptions) -> Result<Group> {
        let (began, rank, size) = (Instant::now(), self.seat_in(part), part.members.len());
        let members = options.members_of(size);
        let what = format!("forming group {:?}", part.name);
        let invitation = Invitation::mint()?;
        let card = if rank == 0 { invitation.bytes() } else { &[] };
        let meeting = Meeting::new(part.scope.clone(), "door", rank, size);
        let met = meeting.meet(card, part.timeout);
        let cards = met.map_err(|error| error.among(&members).during(&what))?;
        meeting.end(part.timeout.saturating_sub(began.elapsed()));
        let Some(invitation) = cards.first().and_then(|card| Invitation::told(card)) else {
            return Err(Error::setup(what, format!("rank {} did not say where to meet", members[0])));
        };
        let ranks = Processes::new(rank, size, invitation.door(), invitation.token());
        ranks.options(options).kin(Arc::clone(self.kin())).join(part.timeout.saturating_sub(began.elapsed()))
    }

    /// This rank's number in a part, which it is in.
    fn seat_in(&self, part: &Part) -> usize {
        part.members.iter().position(|&rank| rank == self.rank()).unwrap_or(part.members.len())
    }
}
