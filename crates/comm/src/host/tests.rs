//! Calls over links that never rest end in time all the same.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::link::{Link, LinkError};
use phalanx_core::{Error, Group, Layout, Result};
use phalanx_mem::ring;

use crate::bell::Bell;
use crate::equipment::{Equipment, Links, Sight, Style};
use crate::fate::Fate;
use crate::lasting::Rejoin;
use crate::memory::{BoardWindows, MemoryLink};

/// A link over which one byte comes with every other look.
struct Trickle {
    link: MemoryLink,
    looks: u64,
}

impl Link for Trickle {
    fn try_send(&mut self, bytes: &[u8]) -> std::result::Result<usize, LinkError> {
        self.link.try_send(bytes)
    }

    fn try_recv(&mut self, into: &mut [u8]) -> std::result::Result<usize, LinkError> {
        self.looks += 1;
        let len = into.len().min(1);
        if self.looks.is_multiple_of(2) { Ok(0) } else { self.link.try_recv(&mut into[..len]) }
    }

    fn announce(&mut self) {
        self.link.announce();
    }
}

/// A way for ranks that never disagree.
struct Once;

impl Rejoin for Once {
    fn rejoin(&self, _round: u32, _deadline: Instant) -> Result<Equipment> {
        Err(Error::aborted("there is one round"))
    }
}

/// Two ranks, to both of which everything trickles.
fn pair() -> [Group; 2] {
    let bells = [0, 1].map(|_| Arc::new(Bell::new().expect("memory")));
    let fate = Arc::new(Fate::of_threads(bells.to_vec()).expect("memory"));
    let ends = || {
        let (out, into) = (ring::pair(1 << 20).expect("memory"), ring::pair(1 << 20).expect("memory"));
        let first = MemoryLink::new(out.0, into.1, Arc::clone(&bells[1]));
        [first, MemoryLink::new(into.0, out.1, Arc::clone(&bells[0]))]
    };
    let (collectives, messages) = (ends(), ends());
    let mut rank = 0;
    let groups = collectives.into_iter().zip(messages).map(|(collectives, messages)| {
        let links = |link| -> Links {
            let to_peer: Option<Box<dyn Link>> = Some(Box::new(Trickle { link, looks: 0 }));
            if rank == 0 { vec![None, to_peer] } else { vec![to_peer, None] }
        };
        let equipment = Equipment {
            links: links(collectives),
            windows: Sight::of_all(None::<BoardWindows>),
            post: links(messages),
            bell: Arc::clone(&bells[rank]),
            fate: Arc::clone(&fate),
            presence: None,
            heap: None,
        };
        let layout = Layout::one_host(rank, 2).expect("two ranks");
        rank += 1;
        Style::default().group(layout, equipment, Once)
    });
    groups.collect::<Vec<Group>>().try_into().expect("two groups")
}

/// That `take` ends at its deadline though what `give` gives goes on coming.
fn ends_in_time(give: fn(&Group, &mut [u8]) -> Result<()>, take: fn(&Group, &mut [u8]) -> Result<()>) {
    let [giver, taker] = pair();
    thread::scope(|scope| {
        scope.spawn(|| give(&giver, &mut vec![1; BYTE_LEN]).expect_err("rank 1 gives up"));
        let mut data = vec![0; BYTE_LEN];
        let began = Instant::now();
        let error = take(&taker.within(Duration::from_millis(200)), &mut data).expect_err("it takes too long");
        let elapsed = began.elapsed();
        assert!(matches!(error, Error::Timeout(_)) && error.culprits() == [0], "{error}");
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    });
}

#[test]
fn a_collective_ends_in_time_though_bytes_keep_coming() {
    let broadcast = |group: &Group, data: &mut [u8]| group.broadcast(data, 0);
    ends_in_time(broadcast, broadcast);
}

#[test]
fn a_message_ends_in_time_though_bytes_keep_coming() {
    ends_in_time(|group, data| group.send(data, 1, 0), |group, data| group.recv(data, 0, 0).map(drop));
}

/// More than trickles through in time.
const BYTE_LEN: usize = 48 << 20;
