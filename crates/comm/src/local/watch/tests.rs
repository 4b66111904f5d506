//! Watches over children: what is told of how a rank is lost, and to whom.

use std::process::{Child, Command, Stdio};

use phalanx_core::Desync;
use phalanx_mem::{LINE, Segment};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::*;
use crate::bell::Bell;
use crate::patience::Patience;

fn process() -> (Child, OwnedFd) {
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
    let pid = Pid::from_raw(child.id() as i32).expect("a pid");
    (child, pidfd_open(pid, PidfdFlags::empty()).expect("it lives"))
}

fn stay() -> (Stay, Vec<Child>, Arc<Bell>, Arc<Fate>) {
    stay_tied(vec![])
}

fn stay_tied(ties: Peers) -> (Stay, Vec<Child>, Arc<Bell>, Arc<Fate>) {
    let (bell, fate) = fate();
    let departures = Departures::new(Cells::on_heap(LINE).expect("memory"), (0..3).collect());
    let (children, peers) = peers();
    let stay = Stay::tied(0, (peers, ties), departures, Arc::clone(&fate)).expect("a thread");
    (stay, children, bell, fate)
}

/// The processes of ranks 1 and 2.
fn peers() -> (Vec<Child>, Peers) {
    let (children, processes): (Vec<_>, Vec<_>) = (0..2).map(|_| process()).unzip();
    (children, processes.into_iter().enumerate().map(|(at, process)| (at + 1, Arc::new(process))).collect())
}

/// That of three ranks, and the bell of the first.
fn fate() -> (Arc<Bell>, Arc<Fate>) {
    let bells: Vec<_> = (0..3).map(|_| Arc::new(Bell::new().expect("memory"))).collect();
    let first = Arc::clone(&bells[0]);
    (first, Arc::new(Fate::of_threads(bells).expect("memory")))
}

fn end(mut child: Child) {
    child.kill().expect("it lives");
    child.wait().expect("a child");
}

#[test]
fn the_end_of_a_process_is_told_unless_its_rank_had_left() {
    let (stay, mut children, bell, fate) = stay();
    stay.departures.note(1);
    end(children.remove(0));
    end(children.remove(0));
    let mut patience = Patience::new(&bell, std::time::Duration::from_secs(10));
    while fate.check().is_ok() && patience.wait() {}
    let dead = Error::peer(2, PeerReason::Dead, "its process ended");
    assert_eq!(fate.check(), Err(Error::aborted_by(dead)));
}

/// As where a process goes on with another program.
#[test]
fn the_end_of_a_program_is_told_unless_its_rank_had_left() {
    let (ties, theirs) = ties();
    let (stay, children, bell, fate) = stay_tied(ties);
    stay.departures.note(1);
    drop(theirs);
    let mut patience = Patience::new(&bell, std::time::Duration::from_secs(10));
    while fate.check().is_ok() && patience.wait() {}
    let dead = Error::peer(2, PeerReason::Dead, LET_GO);
    assert_eq!(fate.check(), Err(Error::aborted_by(dead)));
    children.into_iter().for_each(end);
}

/// Ties to ranks 1 and 2, and their ends of them.
fn ties() -> (Peers, Vec<OwnedFd>) {
    let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| pair().expect("a pair")).unzip();
    (ours.into_iter().enumerate().map(|(at, tie)| (at + 1, Arc::new(tie))).collect(), theirs)
}

/// The first rank has the ties, and the fate tells nothing new after a disagreement.
#[test]
fn the_end_of_a_program_after_a_disagreement_is_told_to_those_without_a_tie_to_it() {
    let segment = Segment::create(LINE).expect("memfd");
    let departures = || {
        let view = Segment::open(segment.fd().try_clone_to_owned().expect("free")).expect("sealed");
        Departures::new(Cells::in_segment(Arc::new(view), 0, 3).expect("free"), (0..3).collect())
    };
    let (children, peers) = peers();
    let (first, second) = (process(), Arc::clone(&peers[1].1));
    let (ties, mut theirs) = ties();
    let [(_, fate), (bell, others)] = [fate(), fate()];
    for fate in [&fate, &others] {
        fate.seal(0, desync());
    }
    let tied = Stay::tied(0, (peers, ties), departures(), fate).expect("a thread");
    let other = vec![(0, Arc::new(first.1)), (2, second)];
    let untied = Stay::begin(1, other, departures(), Arc::clone(&others)).expect("a thread");
    drop(theirs.pop());
    let mut patience = Patience::new(&bell, Duration::from_secs(10));
    while others.lost_since().is_none() && patience.wait() {}
    assert_eq!(others.lost_since(), Some(Error::peer(2, PeerReason::Dead, LET_GO)));
    drop((tied, untied));
    children.into_iter().chain([first.0]).for_each(end);
}

#[test]
fn ranks_that_are_lost_at_once_in_two_ways_are_all_named() {
    let (_, fate) = fate();
    let departures = Departures::new(Cells::on_heap(LINE).expect("memory"), (0..3).collect());
    let stop = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let (mut children, ended) = peers();
    let mut watch = Watch {
        rank: 0,
        departures: Arc::new(departures),
        stop: Arc::new(stop),
        peers: vec![],
        ties: vec![],
        neighbour: None,
        seen_stopped: BTreeMap::new(),
        fate: Arc::clone(&fate),
    };
    end(children.remove(0));
    watch.lose(ended);
    let lost = Peer { rank: 1, others: vec![2], reason: PeerReason::Dead, detail: EITHER.to_owned() };
    assert_eq!(fate.check(), Err(Error::aborted_by(lost.into())));
    assert_eq!([1, 2].map(|rank| watch.departures.said(rank)), [0, ADRIFT]);
    children.into_iter().for_each(end);
}

/// Behind a rank that has left, and after a disagreement behind any.
#[test]
fn a_process_that_is_stopped_is_seen_although_it_is_no_neighbours() {
    let stays = [stay(), stay()];
    let [(left, ..), (_, _, _, quarrelled)] = &stays;
    left.departures.note(1);
    quarrelled.seal(0, desync());
    let stop = |child: &Child| kill_process(Pid::from_child(child), Signal::STOP).expect("it lives");
    stays.iter().for_each(|(_, children, ..)| stop(&children[1]));
    let expected = Error::peer(2, PeerReason::Unresponsive, "stopped by a signal");
    for (_, _, bell, fate) in &stays {
        let mut patience = Patience::new(bell, std::time::Duration::from_secs(60));
        while fate.lost_since().is_none() && patience.wait() {}
        assert_eq!(fate.lost_since(), Some(expected.clone()));
    }
    assert_eq!(stays[0].3.check(), Err(Error::aborted_by(expected)));
    stays.into_iter().flat_map(|(_, children, ..)| children).for_each(end);
}

fn desync() -> Error {
    let (field, ours, theirs) = ("count", "1".to_owned(), "2".to_owned());
    Desync { sequence: 3, rank: 0, peer: 1, field, ours, theirs, moved: false, site: None }.into()
}

#[test]
fn a_stay_that_ends_says_so_and_watches_no_more() {
    let (stay, children, _, fate) = stay();
    let departures = Arc::clone(&stay.departures);
    drop(stay);
    assert!(departures.has(0));
    children.into_iter().for_each(end);
    assert_eq!(fate.check(), Ok(()));
    assert_eq!(Arc::strong_count(&fate), 1, "the thread has ended");
}
