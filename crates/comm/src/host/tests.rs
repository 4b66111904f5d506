//! Calls over links that never rest, and over windows that fail.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::backend::{Buffers, Numbers};
use phalanx_core::link::{Borrowed, Lease, Link, LinkError, View, Wanted, Windows};
use phalanx_core::schedule::Algorithm;
use phalanx_core::{DType, Error, Group, Layout, Op, ReduceOp, Result, Scope};
use phalanx_mem::{Buffer, ring};

use crate::bell::Bell;
use crate::equipment::{Equipment, Links, Sight, Style};
use crate::fate::Fate;
use crate::fate::tests::desync;
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

/// A link to a rank that is gone.
struct Closed;

impl Link for Closed {
    fn try_send(&mut self, _bytes: &[u8]) -> std::result::Result<usize, LinkError> {
        Err(LinkError::Closed { rank: None })
    }

    fn try_recv(&mut self, _into: &mut [u8]) -> std::result::Result<usize, LinkError> {
        Err(LinkError::Closed { rank: None })
    }
}

/// Windows of a process that gets no memory in the place of what it has lent.
struct Lent(Borrowed);

impl Windows for Lent {
    fn try_offer(&mut self, _head: &[u8], _parts: &[&[u8]], _lease: Lease) -> std::result::Result<bool, LinkError> {
        Ok(false)
    }

    fn try_offer_beside(
        &mut self,
        _head: &[u8],
        _part: &[u8],
        _lease: Lease,
        _wanted: Wanted,
        _fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool {
        false
    }

    fn offers(&self) -> u64 {
        0
    }

    fn behind(&self) -> Vec<usize> {
        vec![]
    }

    fn view(&self, _rank: usize, _offer: u64, _part: Range<usize>) -> std::result::Result<Option<View<'_>>, LinkError> {
        Ok(None)
    }

    fn fetch(&mut self, rank: usize, _address: usize, _into: &mut [u8]) -> std::result::Result<(), LinkError> {
        Err(LinkError::Ended { rank })
    }

    fn try_settle(&mut self) -> std::result::Result<bool, LinkError> {
        Ok(true)
    }

    fn take_back(&mut self) -> std::result::Result<(), LinkError> {
        Err(LinkError::Failed("no memory".to_owned()))
    }

    fn take_borrowed(&mut self) -> Borrowed {
        self.0
    }

    fn readers(&self) -> Vec<usize> {
        vec![]
    }

    fn slot_byte_len(&self) -> usize {
        0
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
    pair_with(|| Sight::of_all(None::<BoardWindows>))
}

fn pair_with(windows: impl Fn() -> Sight) -> [Group; 2] {
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
            windows: windows(),
            post: links(messages),
            bell: Arc::clone(&bells[rank]),
            fate: Arc::clone(&fate),
            presence: None,
            heap: None,
        };
        let layout = Layout::one_host(rank, 2).expect("two ranks");
        rank += 1;
        // It works in the program's own memory.
        let style = Style { wish: Some(Algorithm::Tree), ..Style::default() };
        style.group(layout, equipment, Once)
    });
    groups.collect::<Vec<Group>>().try_into().expect("two groups")
}

/// That `take` ends at its deadline though what `give` gives goes on coming.
fn ends_in_time(give: fn(&Group, &mut [u8]) -> Result<()>, take: fn(&Group, &mut [u8]) -> Result<()>) {
    let [giver, taker] = pair();
    let (mut given, mut data) = (vec![1; BYTE_LEN], vec![0; BYTE_LEN]);
    thread::scope(|scope| {
        scope.spawn(|| give(&giver, &mut given).expect_err("rank 1 gives up"));
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

/// Word of it may come later than the end of what was read.
#[test]
fn memory_that_was_read_of_a_rank_that_had_given_up_is_no_result() {
    let seeing = |borrowed| Sight { windows: Some(Box::new(Lent(borrowed))), everywhere: false };
    for (seen, told) in [(Borrowed::Kept, None), (Borrowed::GivenUp(1), Some("rank 1 gave the operation up while"))] {
        let [reader, other] = pair_with(|| seeing(seen));
        thread::scope(|scope| {
            scope.spawn(move || other.all_reduce(&mut [1.0; 4], ReduceOp::Sum));
            let end = reader.all_reduce(&mut [1.0; 4], ReduceOp::Sum);
            let said = end.as_ref().err().map(Error::to_string);
            assert!(told.map_or(end.is_ok(), |told| said.is_some_and(|said| said.contains(told))), "{end:?}");
        });
    }
}

#[test]
fn who_cannot_take_back_what_it_has_lent_is_told_that_its_process_is_lost() {
    let bell = Arc::new(Bell::new().expect("memory"));
    let links = || -> Links { vec![None, Some(Box::new(Closed))] };
    let equipment = Equipment {
        links: links(),
        windows: Sight { windows: Some(Box::new(Lent(Borrowed::Nothing))), everywhere: false },
        post: links(),
        fate: Arc::new(Fate::of_threads(vec![Arc::clone(&bell); 2]).expect("memory")),
        bell,
        presence: None,
        heap: None,
    };
    let group = Style::default().group(Layout::one_host(0, 2).expect("two ranks"), equipment, Once);
    let error = group.all_reduce(&mut [1.0; 4], ReduceOp::Sum).expect_err("its peer is gone");
    assert_eq!(error.scope(), Scope::Process);
    let told =
        "memory lent for an operation: peers may write to it at any time: no memory; the operation failed because";
    assert!(error.to_string().starts_with(told), "{error}");
}

/// Another thread has led the rank into the next round between the number of a call and the call itself.
#[test]
fn what_is_submitted_to_a_round_that_was_left_ends() {
    let [caller, _] = pair();
    let made = |op, input| {
        let call = caller.call_elsewhere(op, DType::U8, None, input, 4).expect("a call");
        (call, Buffers { input: None, output: Buffer::try_zeroed(4).expect("memory") })
    };
    let receive = || made(Op::Recv { count: 4, from: Some(1), tag: 0 }, Some(0));
    let bell = Arc::new(Bell::new().expect("memory"));
    let (out, into) = (ring::pair(64).expect("memory"), ring::pair(64).expect("memory"));
    let fate = Arc::new(Fate::of_threads(vec![Arc::clone(&bell); 2]).expect("memory"));
    let silent: Box<dyn Link> = Box::new(MemoryLink::new(out.0, into.1, Arc::clone(&bell)));
    let equipment = Equipment {
        links: vec![None, Some(Box::new(Closed))],
        windows: Sight::of_all(None::<BoardWindows>),
        post: vec![None, Some(silent)],
        fate: Arc::clone(&fate),
        bell,
        presence: None,
        heap: None,
    };
    let layout = Layout::one_host(0, 2).expect("two ranks");
    let host = Style::default().host(&layout, equipment, Numbers::default(), Instant::now());
    let (call, buffers) = receive();
    let mut before = host.submit(call, buffers);
    // About a later operation than these.
    host.retire(&fate.decide(0, desync(0, 1)));
    host.leave();
    assert!(before.wait(None).expect("an end").is_err());
    let driver = host.driver.lock().expect("no panic").take().expect("a driver");
    assert!(driver.recv().is_err(), "it has ended");
    let join = || made(Op::AllReduce { count: 4, reduce: ReduceOp::Max }, None);
    for (call, buffers) in [receive(), join()] {
        let end = host.submit(call, buffers).wait(Some(Duration::from_secs(10)));
        assert!(end.expect("an end, though no driver looks any more").is_err());
    }
    drop((out.1, into.0));
}

/// More than trickles through in time.
const BYTE_LEN: usize = 48 << 20;
