//! Which groups this rank of a world has asked for: what is being formed, how often each name was used, and what exists.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use phalanx_core::{Error, Group, Result, WeakGroup};
use rustix::event::{EventfdFlags, eventfd};

use crate::backends::HOST;
use crate::wiring::Transport;

/// A group of a world that this rank is in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Formed {
    /// Counts the groups that this rank was in, over all changes of its world. Other ranks may have counted otherwise.
    pub number: u64,
    /// What it is called.
    pub name: String,
    /// Tells groups of one name and the same members apart. All its ranks have the same.
    pub generation: u64,
    /// The world's ranks that are its ranks, in their order.
    pub members: Vec<usize>,
    /// The name of its backend.
    pub backend: String,
    /// Which way its bytes go, where that is for the backend `host` to say.
    pub transport: Transport,
}

/// The groups of one rank.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    claims: Mutex<HashMap<String, Claim>>,
}

/// The groups that a rank is in, those of its world as it is now. It is the same over all changes of that, and so is a clone.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    place: Arc<Mutex<Place>>,
    /// Rings when that has changed, where somebody waits for it.
    moved: Arc<Mutex<Option<Arc<OwnedFd>>>>,
    formed: Arc<Mutex<Entries>>,
}

/// Where a rank is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) met_ns: Option<u64>,
}

/// The groups that live, and how many there were.
#[derive(Debug, Default)]
struct Entries {
    /// Those of the world as it is now. Others may live, but their ranks are numbers of another world.
    living: Vec<(Formed, WeakGroup)>,
    count: u64,
    /// How many groups were shown that have a name and these members, by the hash of both: a program may show any number of them.
    shown: HashMap<u64, u64>,
}

/// The use of one name.
#[derive(Debug, Default)]
struct Claim {
    used: u64,
    is_held: bool,
}

/// The forming of one group, for which no other of the same name may be formed at this time.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    ledger: &'a Ledger,
    name: String,
    /// How often the name was used before.
    pub(super) generation: u64,
}

impl Ledger {
    /// Takes a name for as long as a group of this name is formed.
    pub(super) fn claim(&self, call: &'static str, name: &str) -> Result<Turn<'_>> {
        let mut claims = locked(&self.claims);
        let claim = claims.entry(name.to_owned()).or_default();
        if std::mem::replace(&mut claim.is_held, true) {
            let expected = "must be no other's that a thread of this rank is just making; give each a name";
            return Err(Error::usage(call, "name", format!("{name:?}"), expected));
        }
        let generation = claim.used;
        claim.used += 1;
        Ok(Turn { ledger: self, name: name.to_owned(), generation })
    }
}

impl Registry {
    /// That of a rank whose groups do not come from a world.
    pub fn of(rank: usize, size: usize) -> Registry {
        let registry = Registry::default();
        registry.sit(Place { rank, size, met_ns: None });
        registry
    }

    /// Remembers a group of the host's backend that was formed elsewhere, whose ranks are these of the registry's. All of them show it, and as
    /// often as the others.
    pub fn show(&self, group: &Group, members: Vec<usize>, transport: Transport) {
        let mut hasher = DefaultHasher::new();
        (group.name(), &members).hash(&mut hasher);
        let mut entries = locked(&self.formed);
        let shown = entries.shown.entry(hasher.finish()).or_default();
        let generation = *shown;
        *shown += 1;
        entries.add(group, members, (HOST.to_owned(), transport), generation);
    }

    /// Says where this rank is now, which is in a new world.
    pub(crate) fn sit(&self, place: Place) {
        let mut entries = locked(&self.formed);
        entries.living.clear();
        *locked(&self.place) = place;
        drop(entries);
        if let Some(moved) = &*locked(&self.moved) {
            // One that is full has rung already.
            let _ = rustix::io::write(moved, &1_u64.to_ne_bytes());
        }
    }

    /// What can be read, eight bytes, once the rank's place in its world has changed. All who ask get the same, so that one of them hears of it.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn moved(&self) -> io::Result<Arc<OwnedFd>> {
        let mut moved = locked(&self.moved);
        if let Some(moved) = &*moved {
            return Ok(Arc::clone(moved));
        }
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        *moved = Some(Arc::clone(&bell));
        Ok(bell)
    }

    pub(crate) fn place(&self) -> Place {
        *locked(&self.place)
    }

    /// This rank's number in its world as it is now, and how many ranks that has.
    pub fn seat(&self) -> (usize, usize) {
        let Place { rank, size, .. } = self.place();
        (rank, size)
    }

    /// When the last rank came to this world, in nanoseconds since 1970 by its clock: all ranks know the same, so it tells the world from those
    /// of other jobs, of earlier starts, and from what it was before it changed. None where the groups do not come from a world.
    pub fn met_ns(&self) -> Option<u64> {
        self.place().met_ns
    }

    /// Takes over when the ranks have met from the world where they did; one of fewer ranks is another. It stays for as long as groups live.
    pub fn adopt(&self, world: &Registry) {
        let (there, is_empty) = (world.place(), self.groups().is_empty());
        let mut place = locked(&self.place);
        if there.size == place.size && (is_empty || place.met_ns.is_none()) {
            place.met_ns = there.met_ns;
        }
    }

    /// Remembers a group of these ranks for as long as it lives.
    pub(super) fn enter(&self, group: &Group, way: (String, Transport), generation: u64) {
        locked(&self.formed).add(group, group.members().to_vec(), way, generation);
    }

    /// The groups that live, in the order in which they were formed. Let go of them soon: a group is left with its last handle.
    pub fn groups(&self) -> Vec<(Formed, Group)> {
        let entries = locked(&self.formed);
        entries.living.iter().filter_map(|(formed, group)| Some((formed.clone(), group.upgrade()?))).collect()
    }
}

impl Entries {
    fn add(&mut self, group: &Group, members: Vec<usize>, (backend, transport): (String, Transport), generation: u64) {
        let name = group.name().to_owned();
        let formed = Formed { number: self.count, name, generation, members, backend, transport };
        self.count += 1;
        self.living.retain(|(_, group)| group.upgrade().is_some());
        self.living.push((formed, group.downgrade()));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(claim) = locked(&self.ledger.claims).get_mut(&self.name) {
            claim.is_held = false;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_by_one_at_a_time_and_counted() {
        let ledger = Ledger::default();
        let first = ledger.claim("split", "a").expect("free");
        assert_eq!(ledger.claim("split", "b").expect("another").generation, 0);
        let error = ledger.claim("split", "a").expect_err("taken");
        assert!(error.to_string().starts_with("split: name is \"a\", must be no other's"), "{error}");
        drop(first);
        assert_eq!(ledger.claim("split", "a").expect("free again").generation, 1);
    }

    /// Their ranks have other numbers there, or are none.
    #[test]
    fn groups_of_a_world_that_has_changed_are_not_those_of_the_next() {
        let group = crate::Threads::new(1).groups().expect("a world").remove(0);
        let registry = Registry::of(3, 4);
        registry.show(&group, vec![3], Transport::SharedMemory);
        assert_eq!(registry.groups().len(), 1);
        registry.sit(Place { rank: 2, size: 3, met_ns: Some(1) });
        assert!(registry.groups().is_empty());
        registry.show(&group, vec![2], Transport::SharedMemory);
        let [(formed, _)] = &registry.groups()[..] else { panic!("one group") };
        assert_eq!((formed.number, &formed.members[..]), (1, &[2][..]));
    }
}
