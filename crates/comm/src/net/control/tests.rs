//! One rank and its keeper, whose only peer is the test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::{DType, Error, Fingerprint, Op, PeerReason, ReduceOp};
use phalanx_mem::Cells;
use rustix::event::PollFlags;

use super::beacon::Beacon;
use super::message::Message;
use super::peer::Peer;
use super::stay::{Company, Stay};
use crate::bell::Bell;
use crate::fate::tests::desync;
use crate::fate::{self, Fate};
use crate::net::greeting::{Guard, Line, answer, call};
use crate::net::hello::{Hello, Traffic};
use crate::net::protection::Protection;
use crate::net::socket::tests::pair;
use crate::net::socket::{Socket, wait_any};
use crate::net::standing::Standing;
use crate::patience::Patience;
use crate::poller::Poller;
use crate::roll::{self, Roll};
use crate::secure::{JobKey, Tunnel};

/// A rank of two, whose peer is the test.
struct Rank {
    stay: Option<Stay>,
    fate: Arc<Fate>,
    bell: Arc<Bell>,
    standing: Arc<Standing>,
    /// The test's ends of the control connection and of the links.
    control: TcpStream,
    links: Vec<TcpStream>,
}

fn rank() -> Rank {
    rank_of(0)
}

fn rank_of(own: usize) -> Rank {
    let bells = [(); 2].map(|()| Arc::new(Bell::with_poller(Poller::new().expect("epoll")).expect("memory")));
    let cells = |words| Cells::on_heap(words).expect("memory");
    let fate = Fate::new(cells(fate::words(2)), bells.to_vec(), Roll::new(cells(roll::words(2))));
    let [rank_bell, bell] = bells;
    let fate = Arc::new(fate.with_herald(Arc::clone(&bell)));
    let standing = Arc::new(Standing::default());
    let ((control, line), (first, one), (second, two)) = (pair(), pair(), pair());
    let line = Line { socket: line, tunnel: Tunnel::plain() };
    let peers = vec![(1 - own, line, vec![one, two], Arc::clone(&standing))];
    let company = Company { rank: own, peers, fate: Arc::clone(&fate), bell, rank_bell: Arc::clone(&rank_bell) };
    let stay = Stay::begin(company).expect("a thread");
    Rank { stay: Some(stay), fate, bell: rank_bell, standing, control, links: vec![first, second] }
}

/// Two ranks' ends of a connection over which the key was proven.
fn sealed_pair() -> (Line, Line) {
    let (higher, lower) = pair();
    higher.set_nonblocking(true).expect("a socket");
    let higher = Arc::new(Socket::prepared(higher.into()).expect("a socket"));
    let key = JobKey::from_hex(&"07".repeat(32)).expect("a key");
    let guard = Guard { key: Some(key), protection: Protection::default() };
    let hello = Hello { token: [6; 16], epoch: 1, from: 1, to: 0, traffic: Traffic::Control };
    let until = Instant::now() + LONG;
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| call(higher, hello, &guard, until));
        let (_, lower) = answer(lower, &guard, until, |_| Ok(())).expect("it has the key");
        (caller.join().expect("no panic").expect("it has the key"), lower)
    })
}

impl Rank {
    fn say(&mut self, message: &Message) {
        self.control.write_all(&message.encode()).expect("it listens");
    }

    /// The next message that is no sign of life.
    fn hear(&mut self) -> Message {
        self.control.set_read_timeout(Some(LONG)).expect("a limit");
        let mut inbox = vec![];
        loop {
            let mut byte = [0];
            self.control.read_exact(&mut byte).expect("it speaks");
            inbox.extend(byte);
            if let Some((message, _)) = Message::read(&inbox).expect("a message") {
                inbox.clear();
                if !matches!(message, Message::Beat(_) | Message::Beacon { .. }) {
                    return message;
                }
            }
        }
    }

    /// Waits until something is so.
    fn until(&self, mut what: impl FnMut(&Rank) -> bool) {
        let mut patience = Patience::new(&self.bell, LONG);
        while !what(self) {
            assert!(patience.wait(), "it does not come");
        }
    }

    fn failure(&self) -> Error {
        self.until(|rank| rank.fate.first_failure().is_some());
        self.fate.first_failure().expect("there is one")
    }
}

#[test]
fn what_a_peer_says_that_makes_no_sense_is_its_fault() {
    for bytes in [vec![11, 0, 0], vec![1, 255, 255], vec![3, 1, 0, 2], [&[1, 32, 0][..], &[0; 32]].concat()] {
        let mut rank = rank();
        rank.control.write_all(&bytes).expect("it listens");
        let Error::Peer(peer) = rank.failure() else { panic!("a peer") };
        assert_eq!((peer.rank, peer.reason), (1, PeerReason::Corrupt), "{bytes:?}");
    }
}

#[test]
fn bytes_that_are_no_whole_record_are_no_sign_of_life() {
    let (mut theirs, ours) = sealed_pair();
    let mut peer = Peer::new(1, ours, vec![], Arc::default());
    let before = (peer.heard, peer.spoke);
    let mut record = vec![];
    theirs.tunnel.seal(&Message::Beat(vec![]).encode(), &mut record).expect("a number");
    let hear = |peer: &mut Peer, byte: &u8| {
        let until = Instant::now() + LONG;
        theirs.socket.send_all(&[*byte], until).expect("it is taken");
        let came = wait_any(&[(peer.line.socket.as_fd(), PollFlags::IN)], until).expect("a socket");
        assert_eq!(came, Some(0));
        peer.hear()
    };
    let (last, front) = record.split_last().expect("a record");
    for byte in front {
        assert_eq!(hear(&mut peer, byte), Ok(None));
        assert_eq!((peer.heard, peer.spoke), before);
    }
    assert_eq!(hear(&mut peer, last), Ok(Some(Message::Beat(vec![]))));
    assert!(peer.heard > before.0 && peer.spoke > before.1);
}

#[test]
fn a_peer_that_talks_without_end_keeps_no_rank_from_saying_that_it_lives() {
    let mut rank = rank();
    let mut flood = rank.control.try_clone().expect("a descriptor");
    let beats = Message::Beat(vec![]).encode().repeat(10_000);
    let talk = std::thread::spawn(move || while flood.write_all(&beats).is_ok() {});
    rank.control.set_read_timeout(Some(LONG)).expect("a limit");
    let (mut inbox, mut beats) = (vec![], 0);
    while beats < 3 {
        let mut byte = [0];
        rank.control.read_exact(&mut byte).expect("it speaks");
        inbox.extend(byte);
        if let Some((message, _)) = Message::read(&inbox).expect("a message") {
            inbox.clear();
            beats += usize::from(matches!(message, Message::Beat(_)));
        }
    }
    rank.control.shutdown(std::net::Shutdown::Both).expect("open");
    talk.join().expect("no panic");
}

#[test]
fn a_connection_that_ends_is_a_death_unless_the_peer_had_left() {
    let bereft = rank();
    bereft.control.shutdown(std::net::Shutdown::Both).expect("open");
    assert_eq!(bereft.failure(), Error::peer(1, PeerReason::Dead, "connection closed"));
    bereft.until(|rank| rank.standing.is_lost());

    let mut rank = rank();
    rank.say(&Message::Leave { failed: false });
    rank.until(|rank| rank.standing.has_left());
    // It is told that all has come once its links have ended, and not before.
    rank.links.clear();
    assert_eq!(rank.hear(), Message::Arrived);
    rank.control.shutdown(std::net::Shutdown::Both).expect("open");
    drop(rank.stay);
    assert_eq!(rank.fate.check(), Ok(()));
}

#[test]
fn a_failure_is_passed_on_in_both_directions_and_once() {
    let dead = Error::peer(0, PeerReason::Dead, "planted");
    let mut ours = rank();
    ours.fate.seal(0, dead.clone());
    assert_eq!(ours.hear(), Message::Verdict(dead.clone()));
    let mut theirs = rank();
    theirs.say(&Message::Verdict(dead.clone()));
    assert_eq!(theirs.failure(), dead);
}

/// Nobody is lost, and all are to be told the same: the rank that decides may take its time.
#[test]
fn what_ranks_disagree_about_is_decided_by_one_of_them_however_late() {
    let mut rank = rank_of(1);
    let fate = Arc::clone(&rank.fate);
    let told = std::thread::spawn(move || fate.seal(1, desync(1, 0)));
    assert_eq!(rank.hear(), Message::Proposal(desync(1, 0)));
    // Longer than it waits where somebody is lost.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(400) {
        rank.say(&Message::Beat(vec![]));
        std::thread::yield_now();
    }
    rank.say(&Message::Verdict(desync(0, 1)));
    assert_eq!(told.join().expect("no panic"), desync(0, 1));
}

/// The others come together after it, and wait for the rank that is dead unless they know.
#[test]
fn a_death_is_known_although_ranks_agree_on_what_they_disagree_about() {
    let mut rank = rank_of(1);
    let fate = Arc::clone(&rank.fate);
    let told = std::thread::spawn(move || fate.seal(1, desync(1, 0)));
    assert_eq!(rank.hear(), Message::Proposal(desync(1, 0)));
    rank.control.shutdown(std::net::Shutdown::Both).expect("open");
    assert_eq!(told.join().expect("no panic"), desync(1, 0));
    rank.until(|rank| rank.fate.lost_since().is_some());
    assert_eq!(rank.fate.lost_since(), Some(Error::peer(0, PeerReason::Dead, "connection closed")));
}

#[test]
fn a_rank_that_gives_up_and_leaves_at_once_says_both() {
    let mut rank = rank();
    rank.fate.come_back(0, 7);
    assert_eq!(rank.hear(), Message::Return { upcoming: 7 });
    let stay = rank.stay.take();
    let fate = Arc::clone(&rank.fate);
    let leaving = std::thread::spawn(move || {
        fate.abandon(0);
        drop(stay);
    });
    assert_eq!(rank.hear(), Message::Abandon);
    assert_eq!(rank.hear(), Message::Leave { failed: false });
    rank.say(&Message::Arrived);
    leaving.join().expect("no panic");
}

/// The peer's side of the datagrams, and what the rank was told of it.
fn beacon(rank: &mut Rank) -> Beacon {
    rank.control.set_read_timeout(Some(LONG)).expect("a limit");
    let (mut inbox, control) = (vec![], rank.control.try_clone().expect("a descriptor"));
    let socket = Socket::prepared(control.into()).expect("a socket");
    let mut ours = Beacon::beside(&socket);
    rank.say(&ours.place().expect("datagrams"));
    while inbox.len() < PLACE {
        let mut byte = [0];
        rank.control.read_exact(&mut byte).expect("it speaks");
        inbox.extend(byte);
    }
    let Ok(Some((Message::Beacon { port, key }, _))) = Message::read(&inbox) else { panic!("its first words") };
    ours.aim(port, &key);
    ours
}

#[test]
fn a_rank_that_is_heard_by_datagrams_alone_is_no_loss_and_says_what_it_knows() {
    let mut rank = rank();
    let mut beacon = beacon(&mut rank);
    let began = Instant::now();
    // The test says nothing over the connection, for longer than a silent peer is waited for.
    rank.control.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
    while began.elapsed() < Duration::from_millis(3500) {
        beacon.shine(Instant::now(), &Message::Beat(vec![]));
        assert_eq!(rank.fate.check(), Ok(()));
        // It speaks now and then, or not; both is a moment that passes.
        let _ = rank.control.read(&mut [0; 64]);
    }
    let dead = Error::peer(1, PeerReason::Dead, "planted");
    beacon.turn();
    beacon.shine(Instant::now(), &Message::Proposal(dead.clone()));
    beacon.turn();
    beacon.shine(Instant::now(), &Message::Verdict(dead.clone()));
    assert_eq!(rank.failure(), dead);
    // The rank sees that nothing comes over the connection, and shines too.
    rank.until(|_| beacon.look() == Some(Message::Verdict(dead.clone())));
}

#[test]
fn what_a_peer_has_begun_is_written_down() {
    let print = |count| Fingerprint::of(&Op::AllReduce { count, reduce: ReduceOp::Sum }, DType::F32, 2, 0, 5);
    let mut rank = rank();
    assert_eq!(rank.fate.roll.absent(5), [0, 1]);
    rank.say(&Message::Beat(vec![print(7)]));
    rank.until(|rank| rank.fate.roll.absent(5) == [0]);
    assert!(rank.fate.roll.compare(0, &print(8)).is_err());
}

#[test]
fn a_rank_that_leaves_waits_until_what_it_sent_has_arrived() {
    let mut rank = rank();
    let stay = rank.stay.take();
    let leaving = std::thread::spawn(move || drop(stay));
    assert_eq!(rank.hear(), Message::Leave { failed: false });
    // What still comes is taken, or the peer could not end.
    rank.links[0].write_all(&vec![1; 8 << 20]).expect("it is taken");
    assert!(!leaving.is_finished());
    rank.say(&Message::Arrived);
    leaving.join().expect("no panic");
    assert_eq!(rank.fate.check(), Ok(()));
}

/// The bytes of a message that says where datagrams are taken.
const PLACE: usize = 3 + 2 + 32;
const LONG: Duration = Duration::from_secs(60);
