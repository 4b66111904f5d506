//! The thread that keeps a group together: it beats, listens, judges who is silent, passes failures on, and leaves in order.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use phalanx_core::{Error, PeerReason};
use rustix::event::epoll::EventFlags;

use super::message::Message;
use super::peer::{Loss, Peer};
use super::stay::Company;
use crate::bell::Bell;
use crate::fate::{Fate, Return};
use crate::waits;

/// One rank's keeper.
pub(super) struct Keeper {
    rank: usize,
    peers: Vec<Peer>,
    fate: Arc<Fate>,
    bell: Arc<Bell>,
    rank_bell: Arc<Bell>,
    has_ended: Arc<AtomicBool>,
    last_beat: Instant,
    /// When the next one is due, unless there are news.
    next_beat: Instant,
    last_look: Instant,
    has_told_verdict: bool,
    told_return: Option<Return>,
    /// Who was asked about this rank's failure, and since when it is asked.
    asked: Option<(Option<usize>, Instant)>,
    /// Until when to wait for the peers to have all that was sent.
    leaving: Option<Instant>,
    /// The numbers of the sockets where more has come than was taken at once.
    untaken: BTreeSet<u64>,
}

impl Keeper {
    pub(super) fn new(company: Company, has_ended: Arc<AtomicBool>) -> io::Result<Keeper> {
        let Company { rank, peers, fate, bell, rank_bell } = company;
        let peers: Vec<Peer> =
            peers.into_iter().map(|(rank, line, data, standing)| Peer::new(rank, line, data, standing)).collect();
        let now = Instant::now();
        let (last_beat, next_beat, last_look) = (now, now + until_all_beat(), now);
        let (has_told_verdict, told_return, asked, leaving) = (false, None, None, None);
        let mut keeper = Keeper {
            rank,
            peers,
            fate,
            bell,
            rank_bell,
            has_ended,
            last_beat,
            next_beat,
            last_look,
            has_told_verdict,
            told_return,
            asked,
            leaving,
            untaken: BTreeSet::new(),
        };
        keeper.register()?;
        keeper.peers.iter_mut().for_each(|peer| {
            let place = peer.beacon.place();
            place.iter().for_each(|place| peer.say(place));
        });
        Ok(keeper)
    }

    /// Keeps the group until its rank has left.
    pub(super) fn keep(mut self) {
        loop {
            let armed = self.bell.arm();
            let now = Instant::now();
            self.fate.go_round();
            self.forgive(now);
            self.judge(now);
            self.agree(now);
            self.pass_on();
            self.announce_return();
            self.shine(now);
            self.beat_if_due(now);
            if self.has_left(now) {
                return;
            }
            let mut news = std::mem::take(&mut self.untaken);
            let limit = if news.is_empty() { self.rest(now) } else { Duration::ZERO };
            self.bell.listen(armed, limit, |number| {
                news.insert(number);
            });
            news.into_iter().for_each(|number| self.attend(number));
        }
    }

    /// Asks for news of all sockets: of the links only that their peer sends no more.
    fn register(&self) -> io::Result<()> {
        let Some(poller) = self.bell.poller() else { return Ok(()) };
        for (at, peer) in self.peers.iter().enumerate() {
            let control = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
            poller.add(&*peer.line.socket, number(at, CONTROL), control)?;
            for (link, socket) in peer.data.iter().enumerate() {
                poller.add(socket.as_fd(), number(at, 1 + link), EventFlags::RDHUP)?;
            }
            if let Some(socket) = peer.beacon.socket() {
                poller.add(socket, number(at, BEACON), EventFlags::IN)?;
            }
        }
        Ok(())
    }

    /// Brings a failure before the lowest rank that is here and was heard lately, which says of which the group failed first.
    fn agree(&mut self, now: Instant) {
        let Some(failure) = self.fate.proposal() else { return };
        let (_, since) = *self.asked.get_or_insert((None, now));
        let arbiter = self.peers.iter().position(|peer| peer.rank < self.rank && peer.is_near(now));
        match arbiter {
            Some(at) if now < since + patience_with(&failure) => {
                if self.asked.replace((arbiter, since)) != Some((arbiter, since)) {
                    self.peers[at].say(&Message::Proposal(failure));
                }
            }
            // Who died at the same time is part of the same failure.
            _ if now < since + GATHERING && self.may_grow(&failure) => {}
            _ => drop(self.fate.decide(self.rank, failure)),
        }
    }

    /// Whether some rank may have died with others, and is not known to: whoever lives soon says that somebody is dead.
    fn may_grow(&self, failure: &Error) -> bool {
        matches!(failure, Error::Peer(peer) if peer.reason == PeerReason::Dead)
            && self.peers.iter().any(|peer| peer.is_expected() && !peer.has_proposed)
    }

    /// Tells the peers of what the group failed.
    fn pass_on(&mut self) {
        if self.has_told_verdict {
            return;
        }
        if let Some(failure) = self.fate.first_failure() {
            self.has_told_verdict = true;
            self.peers.iter_mut().for_each(|peer| peer.beacon.turn());
            self.say_to_all(&Message::Verdict(failure));
        }
    }

    /// Tells the peers that the rank is there again after a failure, or never will be.
    fn announce_return(&mut self) {
        let own = self.fate.returned().nth(self.rank).flatten();
        if own == self.told_return {
            return;
        }
        self.told_return = own;
        match own {
            Some(Return::Back(upcoming)) => self.say_to_all(&Message::Return { upcoming }),
            Some(Return::Going(upcoming)) => self.say_to_all(&Message::GoOn { upcoming }),
            Some(Return::Abandoned) => self.say_to_all(&Message::Abandon),
            // Whoever leaves says so when it does.
            Some(Return::Gone) | None => {}
        }
    }

    /// Tells by datagrams that the rank lives, or of what the group failed, where that may not come through otherwise.
    fn shine(&mut self, now: Instant) {
        let quiet = self.peers.iter_mut().filter(|peer| peer.is_quiet(now));
        let mut message = None;
        for peer in quiet {
            let message = message.get_or_insert_with(|| match self.fate.first_failure() {
                Some(failure) => Message::Verdict(failure),
                None => Message::Beat(vec![]),
            });
            peer.beacon.shine(now, message);
        }
    }

    /// Tells the peers that the rank lives and what it has begun: every now and then, and soon when somebody waits for long.
    fn beat_if_due(&mut self, now: Instant) {
        if now >= self.when_to_beat() {
            (self.last_beat, self.next_beat) = (now, now + until_all_beat());
            let (rank, roll) = (self.rank, &self.fate.roll);
            let wait = roll.wait(rank);
            // A peer that takes nothing is not given more, but what it has not been told once it takes.
            for peer in self.peers.iter_mut().filter(|peer| peer.is_flushed()) {
                let (prints, told) = roll.begun(rank, peer.told, Message::PRINTS);
                peer.say(&Message::Beat(prints));
                peer.told = told;
                if let Some(wait) = wait.filter(|wait| *wait != peer.told_wait) {
                    peer.say(&Message::Wait(wait));
                    peer.told_wait = wait;
                }
            }
        }
    }

    /// When the rank says next that it lives.
    fn when_to_beat(&self) -> Instant {
        if self.has_news() { self.next_beat.min(self.last_beat + SOON) } else { self.next_beat }
    }

    /// Whether the rank waits for long, and has begun something that others do not know of who would take it, or for whom it waits.
    fn has_news(&self) -> bool {
        let (called, wait) = (self.fate.called(), self.fate.roll.wait(self.rank));
        let is_new = |peer: &Peer| called > peer.told || wait.is_some_and(|wait| wait != peer.told_wait);
        self.peers.iter().any(|peer| peer.is_flushed() && is_new(peer))
    }

    /// Loses the peers that have been silent for too long, and with the first of them those that are as good as.
    fn judge(&mut self, now: Instant) {
        let is_silent = |peer: &Peer, limit| peer.is_expected() && now.saturating_duration_since(peer.heard) >= limit;
        if !self.peers.iter().any(|peer| is_silent(peer, SILENCE)) {
            return;
        }
        for at in 0..self.peers.len() {
            // What was said may be here already, and nobody looked.
            self.listen_to(at);
            self.look_at(at);
        }
        if self.peers.iter().any(|peer| is_silent(peer, SILENCE)) {
            for at in 0..self.peers.len() {
                if is_silent(&self.peers[at], SILENCE - BEAT) {
                    self.lose(at, (PeerReason::Unresponsive, format!("silent for {SILENCE:?}")));
                }
            }
        }
    }

    /// Whether the rank has left. The first time, once its group was dropped, says that it leaves.
    fn has_left(&mut self, now: Instant) -> bool {
        if !self.has_ended.load(Ordering::Acquire) {
            return false;
        }
        let until = match self.leaving {
            Some(until) => until,
            None => {
                // The last words before the farewell: a failure may have come since, or the rank may have given the group up.
                self.pass_on();
                self.announce_return();
                self.shine(now);
                self.say_to_all(&Message::Leave { failed: self.fate.check().is_err() });
                self.watch_links_end();
                *self.leaving.insert(now + LINGER)
            }
        };
        // Who cannot be reached any more has nothing to say that a failed group waits for.
        let has_failed = self.fate.check().is_err();
        now >= until || self.peers.iter().all(|peer| peer.is_settled() || (has_failed && peer.is_quiet(now)))
    }

    /// From now on nobody reads the links but the keeper.
    fn watch_links_end(&self) {
        let Some(poller) = self.bell.poller() else { return };
        for (at, peer) in self.peers.iter().enumerate() {
            for (link, socket) in peer.data.iter().enumerate() {
                // One that cannot be watched costs the rest of the linger.
                let _ = poller.change(socket.as_fd(), number(at, 1 + link), EventFlags::IN | EventFlags::RDHUP);
            }
        }
    }

    /// How long there is nothing to do unless something comes.
    fn rest(&self, now: Instant) -> Duration {
        let asked = self.asked.and_then(|(_, since)| {
            let limits = [GATHERING, patience_with(&self.fate.proposal()?)];
            limits.into_iter().map(|limit| since + limit).find(|end| *end > now)
        });
        let silent = self.peers.iter().filter(|peer| peer.is_expected()).map(|peer| peer.heard + SILENCE).min();
        let shine = self.peers.iter().filter(|peer| peer.is_quiet(now)).filter_map(|peer| peer.beacon.next()).min();
        let ends = [Some(self.when_to_beat()), asked, silent, shine, self.leaving];
        ends.into_iter().flatten().min().map_or(BEAT, |end| end.saturating_duration_since(now))
    }

    /// A process that was stopped itself cannot say who was silent meanwhile.
    fn forgive(&mut self, now: Instant) {
        if now.duration_since(self.last_look) > LATE {
            self.peers.iter_mut().for_each(|peer| peer.heard = now);
        }
        self.last_look = now;
    }

    /// Looks at the socket with this number.
    fn attend(&mut self, number: u64) {
        let (at, socket) = (number as usize / SOCKETS, number as usize % SOCKETS);
        let Some(peer) = self.peers.get_mut(at) else { return };
        if socket == BEACON {
            return self.look_at(at);
        }
        if socket > CONTROL {
            if self.leaving.is_some() && !peer.discard() {
                self.untaken.insert(number);
            }
            return peer.tell_when_all_has_come();
        }
        peer.flush();
        self.listen_to(at);
    }

    /// Takes what a peer has said; what is more than anybody has to say, later.
    fn listen_to(&mut self, at: usize) {
        for _ in 0..AT_ONCE {
            match self.peers[at].hear() {
                Ok(Some(message)) => self.take(at, message),
                Ok(None) => return,
                Err(loss) => {
                    self.peers[at].is_gone = true;
                    return self.lose(at, loss);
                }
            }
        }
        self.untaken.insert(number(at, CONTROL));
    }

    /// Takes what a peer said by datagrams.
    fn look_at(&mut self, at: usize) {
        for _ in 0..AT_ONCE {
            let Some(said) = self.peers[at].beacon.look() else { return };
            self.peers[at].heard = Instant::now();
            if matches!(said, Message::Verdict(_)) {
                self.take(at, said);
            }
        }
        self.untaken.insert(number(at, BEACON));
    }

    fn take(&mut self, at: usize, message: Message) {
        let peer = &mut self.peers[at];
        match message {
            Message::Beat(prints) => {
                prints.iter().for_each(|print| self.fate.roll.note(peer.rank, print));
                if !prints.is_empty() {
                    self.rank_bell.ring();
                }
            }
            Message::Wait(words) => self.fate.roll.set_wait(peer.rank, words),
            Message::Proposal(failure) => {
                peer.has_proposed = true;
                self.fate.propose(failure);
            }
            Message::Verdict(failure) => drop(self.fate.decide(self.rank, failure)),
            Message::Leave { failed } => {
                peer.leaving = Some(failed);
                peer.standing.leave();
                self.fate.note_return(peer.rank, Return::Gone);
                // Nobody waits in a group that it has left.
                self.fate.roll.set_wait(peer.rank, [0; waits::WORDS]);
                peer.tell_when_all_has_come();
                self.rank_bell.ring();
            }
            Message::Arrived => peer.has_all = true,
            Message::Return { upcoming } => self.fate.note_return(peer.rank, Return::Back(upcoming)),
            Message::GoOn { upcoming } => self.fate.note_return(peer.rank, Return::Going(upcoming)),
            Message::Abandon => self.fate.note_return(peer.rank, Return::Abandoned),
            Message::Beacon { port, key } => peer.beacon.aim(port, &key),
        }
    }

    /// A peer can no longer be heard. One that said it leaves may go; any other is the group's end.
    fn lose(&mut self, at: usize, (reason, detail): Loss) {
        let peer = &self.peers[at];
        if peer.leaving.is_some() && reason == PeerReason::Dead {
            return;
        }
        if !peer.standing.is_lost() {
            peer.standing.lose();
            let lost = Error::peer(peer.rank, reason, detail);
            self.fate.propose(lost.clone());
            // What the group fails of may be something else, after which the others come together.
            self.fate.mourn(lost);
            self.rank_bell.ring();
        }
    }

    fn say_to_all(&mut self, message: &Message) {
        self.peers.iter_mut().for_each(|peer| peer.say(message));
    }
}

/// How long to wait for the answer of the rank that decides. Where ranks disagree nobody is lost, so that all can be told the same.
fn patience_with(failure: &Error) -> Duration {
    if let Error::Desync(_) = failure { UNHURRIED } else { AGREEMENT }
}

/// How long it is until the ranks of a host beat, all at a time by the clock that they share: each wakes for what several say then,
/// where it would wake for each of them.
fn until_all_beat() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    BEAT - Duration::from_nanos((now.as_nanos() % BEAT.as_nanos()) as u64)
}

/// The number under which the poller knows a socket of the peer at this place.
fn number(at: usize, socket: usize) -> u64 {
    (at * SOCKETS + socket) as u64
}

/// The sockets of a peer: control, two links, and the beacon.
const SOCKETS: usize = 4;
const CONTROL: usize = 0;
const BEACON: usize = 3;
/// How many messages of one peer are taken before the others have their turn, and what else is due: one that talks without end keeps
/// no rank from saying that it lives.
const AT_ONCE: usize = 64;
/// How often a rank says that it lives.
const BEAT: Duration = Duration::from_millis(250);
/// How soon it may say so again when it waits for long.
const SOON: Duration = Duration::from_millis(20);
const AGREEMENT: Duration = Duration::from_millis(130);
/// A machine that does much else takes its time. The rank itself waits longer for its keeper.
const UNHURRIED: Duration = Duration::from_millis(1300);
/// How long that rank waits for whoever died at the same time, while somebody may have.
const GATHERING: Duration = Duration::from_millis(50);
/// How long a rank may say nothing. Datagrams are tried all the time: an outage of 2.5 s is no failure.
const SILENCE: Duration = Duration::from_secs(3);
/// Who does not look around for so long, and wanted to at every beat, has been stopped.
const LATE: Duration = Duration::from_millis(1500);
/// How long a rank that leaves waits until what it sent has arrived.
const LINGER: Duration = Duration::from_secs(5);
