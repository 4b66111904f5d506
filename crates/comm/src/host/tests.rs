//! Calls over links that never rest, and over windows that fail.

use std::ops::Range;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::backend::{Buffers, Numbers};
use phalanx_core::link::{Borrowed, Lease, Link, LinkError, View, Wanted, Windows};
use phalanx_core::schedule::Algorithm;
use phalanx_core::{DType, Error, Group, Layout, Op, PeerReason, ReduceOp, Result, Scope};
use phalanx_mem::{Buffer, ring};

use crate::bell::Bell;
use crate::equipment::{Equipment, Links, Sight, Style};
use crate::fate::tests::desync;
use crate::fate::{Fate, Return};
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
fn what_is_queued_ends_in_time_though_what_has_its_turn_moves() {
    let [giver, taker] = pair();
    thread::scope(|scope| {
        scope.spawn(|| giver.broadcast(&mut vec![1_u8; BYTE_LEN], 0).expect_err("rank 1 gives up"));
        let first = taker.broadcast_async(vec![0_u8; BYTE_LEN], 0).expect("it begins");
        let began = Instant::now();
        let queued = taker.within(Duration::from_millis(200)).barrier_async().expect("it is queued");
        let error = queued.wait().expect_err("its turn takes too long to come");
        let elapsed = began.elapsed();
        assert!(matches!(error, Error::Timeout(_)) && error.culprits() == [0], "{error}");
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
        first.wait().expect_err("its group has failed");
    });
}

#[test]
fn of_calls_whose_time_is_up_together_the_one_that_has_its_turn_tells_it() {
    let [giver, taker] = pair();
    thread::scope(|scope| {
        scope.spawn(|| giver.broadcast(&mut vec![1_u8; BYTE_LEN], 0).expect_err("rank 1 gives up"));
        let taker = taker.within(Duration::from_millis(200));
        let first = taker.broadcast_async(vec![0_u8; BYTE_LEN], 0).expect("it begins");
        let queued = taker.barrier_async().expect("it is queued");
        let error = first.wait().expect_err("it takes too long");
        assert!(matches!(error, Error::Timeout(_)) && error.culprits() == [0], "{error}");
        queued.wait().expect_err("its group has failed");
    });
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

/// A waker is the program's own, and its panic not the driver's end.
#[test]
fn what_follows_a_waker_that_panics_ends() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic_any("planted");
        }
    }
    let [caller, other] = pair();
    let mut work = caller.barrier_async().expect("it is queued");
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_pending());
    other.barrier().expect("rank 0 comes");
    let next = caller.barrier_async().expect("it is queued");
    other.barrier().expect("rank 0 comes");
    assert_eq!(next.wait_timeout(Duration::from_secs(10)).expect("an end"), Ok(()));
    assert_eq!(work.wait(), Ok(()));
}

/// A task may go on where it is told, on the thread that moves messages and plays collectives.
#[test]
fn who_is_told_of_an_end_may_call_the_group_at_once() {
    struct Calls(Group, mpsc::Sender<Result<()>>);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            let sent = self.0.send_async(vec![1_u8], 1, 7).map(drop);
            self.1.send(sent.and_then(|()| self.0.barrier())).expect("the test waits");
        }
    }
    for is_message in [true, false] {
        let [caller, other] = pair();
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Calls(caller.clone(), tell)));
        let mut looks = Context::from_waker(&waker);
        let (mut message, mut barrier) = (None, None);
        if is_message {
            let work = message.insert(caller.recv_async(vec![0_u8], 1, 7).expect("it is queued"));
            assert!(Pin::new(work).poll(&mut looks).is_pending());
            other.send(&[1_u8], 0, 7).expect("it is asked for");
        } else {
            let work = barrier.insert(caller.barrier_async().expect("it is queued"));
            assert!(Pin::new(work).poll(&mut looks).is_pending());
            other.barrier().expect("rank 0 comes");
        }
        other.recv(&mut [0_u8], 0, 7).expect("it comes");
        other.barrier().expect("rank 0 comes again");
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(Ok(())), "a message: {is_message}");
    }
}

/// The end may have come to a thread that plays a collective meanwhile, whose turn is before that of whatever the task calls.
#[test]
fn who_is_told_while_another_thread_is_in_a_collective_may_come_to_the_next() {
    struct Calls(Group, mpsc::Sender<Result<()>>);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.1.send(Ok(())).expect("the test waits");
            self.1.send(self.0.barrier()).expect("the test waits");
        }
    }
    for _ in 0..20 {
        let [caller, other] = pair();
        let (tell, told) = mpsc::channel();
        let told = || told.recv_timeout(Duration::from_secs(10));
        let waker = Waker::from(Arc::new(Calls(caller.clone(), tell)));
        thread::scope(|scope| {
            let playing = scope.spawn(|| caller.barrier());
            let mut message = caller.recv_async(vec![0_u8], 1, 7).expect("it is queued");
            assert!(Pin::new(&mut message).poll(&mut Context::from_waker(&waker)).is_pending());
            other.send(&[1_u8], 0, 7).expect("it is asked for");
            assert_eq!(told(), Ok(Ok(())));
            // Whichever of the two is the first.
            (0..2).for_each(|_| other.barrier().expect("rank 0 is there"));
            assert_eq!((playing.join().expect("no panic"), told()), (Ok(()), Ok(Ok(()))));
        });
    }
}

/// A link whose use is a mistake of this library.
struct Mistaken;

impl Link for Mistaken {
    fn try_send(&mut self, _bytes: &[u8]) -> std::result::Result<usize, LinkError> {
        panic_any("planted")
    }

    fn try_recv(&mut self, _into: &mut [u8]) -> std::result::Result<usize, LinkError> {
        panic_any("planted")
    }
}

/// Of rank 0 among ranks of which it reaches the last by this link, and the others not.
fn equipment(size: usize, link: fn() -> Box<dyn Link>) -> Equipment {
    let links = || -> Links { (1..size).map(|_| None).chain([Some(link())]).collect() };
    let bell = Arc::new(Bell::new().expect("memory"));
    let fate = Arc::new(Fate::of_threads(vec![Arc::clone(&bell); size]).expect("memory"));
    let windows = Sight::of_all(None::<BoardWindows>);
    Equipment { links: links(), windows, post: links(), bell, fate, presence: None, heap: None }
}

#[test]
fn a_driver_that_panics_ends_what_it_plays_and_what_is_queued() {
    let group = || {
        let layout = Layout::one_host(0, 2).expect("two ranks");
        Style::default().group(layout, equipment(2, || Box::new(Mistaken)), Once)
    };
    let [plays, takes_mail] = [group(), group()];
    let mut works = Vec::from([(); 3].map(|()| plays.barrier_async().expect("it is queued")));
    works.push(takes_mail.recv_async(vec![0_u8], 1, 0).expect("it is posted").map(drop));
    for work in works {
        let error = work.wait_timeout(Duration::from_secs(10)).expect("an end").expect_err("it was not played");
        assert!(error.to_string().ends_with("rank 0 is dead: its thread panicked"), "{error}");
    }
}

/// A link of which even the end is a mistake of this library; its use waits until there is nobody to send.
struct Cursed(mpsc::Receiver<()>);

impl Link for Cursed {
    fn try_send(&mut self, _bytes: &[u8]) -> std::result::Result<usize, LinkError> {
        panic_any("planted")
    }

    fn try_recv(&mut self, _into: &mut [u8]) -> std::result::Result<usize, LinkError> {
        let _ = self.0.recv();
        panic_any("planted")
    }
}

impl Drop for Cursed {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic_any("planted");
        }
    }
}

/// As where the group cannot be closed after a panic: that leaves nobody waiting either.
#[test]
fn a_driver_that_panics_twice_ends_what_it_plays_and_what_is_queued() {
    let group = |until| {
        let layout = Layout::one_host(0, 2).expect("two ranks");
        let post: Links = vec![None, Some(Box::new(Cursed(until)))];
        Style::default().group(layout, Equipment { post, ..equipment(2, || Box::new(Mistaken)) }, Once)
    };
    let [(_, never), (go, until)] = [mpsc::channel(), mpsc::channel()];
    let [plays, takes_mail] = [never, until].map(group);
    let played = plays.barrier_async().expect("it is queued");
    let posted = takes_mail.recv_async(vec![0_u8], 1, 0).expect("it is posted").map(drop);
    let queued = takes_mail.barrier_async().expect("it is queued");
    drop(go);
    for work in [played, posted, queued] {
        let error = work.wait_timeout(Duration::from_secs(10)).expect("an end").expect_err("it was not played");
        assert!(error.to_string().ends_with("panicked"), "{error}");
    }
}

/// The others are told only that it has.
#[test]
fn who_gives_the_group_up_after_a_disagreement_is_told_why() {
    let [caller, _] = pair();
    let made = |sequence, timeout| {
        let mut call = caller.call_elsewhere(Op::Barrier, DType::U8, None, None, 0).expect("a call");
        (call.sequence, call.timeout) = (sequence, timeout);
        (call, Buffers::default())
    };
    let (layout, equipment) = (Layout::one_host(0, 2).expect("two ranks"), equipment(2, || Box::new(Closed)));
    equipment.fate.decide(1, desync(1, 0));
    let host = Style::default().host(&layout, equipment, Numbers::default(), Instant::now());
    let end_of = |(call, buffers)| {
        let end = host.submit(call, buffers).wait(Some(Duration::from_secs(10)));
        end.expect("an end").expect_err("the group has failed")
    };
    // Both come before what the ranks disagree about, and behind what nobody calls.
    let first = end_of(made(2, Duration::from_millis(10)));
    assert!(matches!(first, Error::Timeout(_)), "{first}");
    assert_eq!(end_of(made(1, Duration::from_secs(60))), Error::aborted_by(first));
}

/// The number of its call is used up, and others would wait for its turn.
#[test]
fn a_driver_that_cannot_be_started_ends_the_group() {
    let [caller, _] = pair();
    let made = || {
        let call = caller.call_elsewhere(Op::Barrier, DType::U8, None, None, 0).expect("a call");
        (call, Buffers::default())
    };
    let layout = Layout::one_host(0, 2).expect("two ranks");
    let host = Style::default().host(&layout, equipment(2, || Box::new(Closed)), Numbers::default(), Instant::now());
    let (call, _) = made();
    // No address space has room for such a stack.
    let error = host.drive(&call, thread::Builder::new().stack_size(usize::MAX / 4)).expect_err("no thread");
    assert!(error.to_string().starts_with("driver thread: "), "{error}");
    let (call, buffers) = made();
    let end = host.submit(call, buffers).wait(Some(Duration::from_secs(10))).expect("an end");
    assert_eq!(end.expect_err("the group has failed"), Error::aborted_by(error));
}

/// The others would wait for it until their time is over, but where they know of another one that parted: that one is to be named.
#[test]
fn who_gives_a_reunion_up_tells_the_others_unless_another_did_before() {
    fn dead() -> Error {
        Error::peer(2, PeerReason::Dead, "planted")
    }
    let (layout, late) = (Layout::one_host(0, 3).expect("three ranks"), Error::aborted("it takes too long"));
    type Reason = (fn(&Fate), Error, bool);
    let reasons: &[Reason] = &[
        (|fate| fate.mourn(dead()), dead(), true),
        (|fate| fate.note_return(1, Return::Gone), Error::peer(1, PeerReason::Left, "its group was dropped"), false),
        (|_| {}, late.clone(), true),
    ];
    for &(part, ref expected, is_told) in reasons {
        let equipment = equipment(3, || Box::new(Closed));
        let fate = Arc::clone(&equipment.fate);
        // All that came before the operation that ranks disagree about has ended.
        let host = Style::default().host(&layout, equipment, Numbers::new(0, 4), Instant::now());
        fate.decide(0, desync(0, 1));
        part(&fate);
        let deadline = Instant::now() + Duration::from_millis(500);
        assert_eq!(host.reunite(Some(deadline), |_| late.clone()), Err(expected.clone()));
        assert_eq!(fate.returned().next() == Some(Some(Return::Abandoned)), is_told, "{expected}");
    }
}

/// More than trickles through in time.
const BYTE_LEN: usize = 48 << 20;
