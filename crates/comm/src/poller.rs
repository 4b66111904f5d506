//! What a rank with sockets sleeps on: all of them at once, and a kick from its bell. The sockets are told apart by numbers
//! that mean nothing here.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// A set of sockets that one thread at a time sleeps on, the leader. Other sleepers follow it: it wakes them.
///
/// A socket is told of once for everything that comes, so bytes that nobody asks for wake a sleeper once and no more.
/// Whoever sleeps must have found a socket empty or full before: then news of it ends the sleep.
pub(crate) struct Poller {
    epoll: OwnedFd,
    kick: Kick,
    lead: Mutex<()>,
    followers: AtomicUsize,
}

/// What ends the sleep of a poller's leader, from any process that has it.
#[derive(Debug)]
pub(crate) struct Kick(OwnedFd);

impl Poller {
    pub(crate) fn new() -> Result<Poller, Errno> {
        let poller = Poller {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            kick: Kick(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            lead: Mutex::new(()),
            followers: AtomicUsize::new(0),
        };
        poller.add(&poller.kick.0, KICK, EventFlags::IN)?;
        Ok(poller)
    }

    /// Tells of a socket as `number` when one of `flags` becomes true, until the socket is closed.
    pub(crate) fn add(&self, socket: impl AsFd, number: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), flags | EventFlags::ET)
    }

    /// Tells of other things of a socket from now on, and of those that are true already.
    pub(crate) fn change(&self, socket: impl AsFd, number: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(number), flags | EventFlags::ET)
    }

    /// Ends the leader's sleep, or else the next one.
    pub(crate) fn kick(&self) {
        self.kick.give();
    }

    /// What another process kicks by.
    pub(crate) fn kick_descriptor(&self) -> BorrowedFd<'_> {
        self.kick.0.as_fd()
    }

    /// The lead, unless another thread has it.
    pub(crate) fn lead(&self) -> Option<MutexGuard<'_, ()>> {
        match self.lead.try_lock() {
            Ok(lead) => Some(lead),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sleeps by `sleep` behind the leader.
    pub(crate) fn follow(&self, sleep: impl FnOnce()) {
        self.followers.fetch_add(1, Ordering::SeqCst);
        sleep();
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.followers.load(Ordering::SeqCst) > 0
    }

    /// Sleeps until there is news, at most this long, and calls `each` with the number of every socket that has some.
    pub(crate) fn wait(&self, limit: Duration, mut each: impl FnMut(u64)) {
        let limit = Timespec::try_from(limit).ok();
        let mut events = [const { MaybeUninit::<Event>::uninit() }; AT_ONCE];
        // An interrupted sleep is one that brought no news.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, limit.as_ref()) else { return };
        events.iter().map(|event| event.data.u64()).filter(|&number| number != KICK).for_each(&mut each);
    }
}

impl Kick {
    /// The kick of a rank of another process, which handed its [descriptor](Poller::kick_descriptor) over.
    pub(crate) fn of(descriptor: OwnedFd) -> Kick {
        Kick(descriptor)
    }

    pub(crate) fn give(&self) {
        // It fails only when the counter is full, and then the kick is there all the same.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").finish_non_exhaustive()
    }
}

/// The number of the kick, which no socket has.
const KICK: u64 = u64::MAX;
/// What did not fit is told of the next time.
const AT_ONCE: usize = 64;
