//! The server's thread: one turn after the other, in which the known are served before the unknown, and everything is
//! bounded so that nobody waits long for their turn.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use mio::event::Event;
use mio::{Events, Poll, Token};
use phalanx_core::store::ClientId;

use super::clerk::Answer;
use super::connection::{Connection, Ending, House, Next};
use super::counts::{Counts, Rejection};
use super::entrance::Entrance;
use super::ledger::{self, Ledger};
use super::line::{Line, Load};
use super::newcomers::Turn;
use super::roster::Seat;
use super::vigil::Vigil;
use crate::secure::HandshakeError;

/// Everything that the server's thread owns.
#[derive(Debug)]
pub(super) struct Reactor {
    vigil: Vigil,
    entrance: Entrance,
    house: House,
    ledger: Ledger,
    guests: HashMap<Token, Connection>,
    /// Who has something to do, the known and the unknown.
    known: VecDeque<Token>,
    unknown: VecDeque<Token>,
    orders: Receiver<Order>,
    /// When clients that do not take their answers are looked for next.
    inspection: Instant,
    is_stopped: bool,
}

/// What the handle wants done on the server's thread.
pub(super) type Order = Box<dyn FnOnce(&mut Reactor) + Send>;

impl Reactor {
    pub(super) fn new(poll: Poll, entrance: Entrance, house: House, orders: Receiver<Order>) -> Reactor {
        Reactor {
            ledger: Ledger::new(entrance.address().clone(), house.now),
            inspection: house.now,
            vigil: Vigil::new(poll, house.now, house.gate.is_open()),
            entrance,
            house,
            guests: HashMap::new(),
            known: VecDeque::new(),
            unknown: VecDeque::new(),
            orders,
            is_stopped: false,
        }
    }

    /// Serves until it is stopped.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_stopped {
            self.wait(&mut events);
            self.obey();
            self.serve();
            self.deliver();
            self.greet();
            self.admit();
            self.look_around();
        }
        // What was answered before the end goes as far as it can.
        self.guests.values_mut().for_each(|guest| drop(guest.line.send(self.house.now)));
    }

    /// Ends the server after this turn.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Begins another epoch: nobody of the old one is served any more.
    pub(super) fn advance(&mut self, epoch: u32, world: u32) {
        self.house.gate.roster.advance(epoch, world);
        // Who has not claimed anything yet may belong to the new one.
        let is_old = |guest: &Connection| guest.is_known() || guest.seat().is_some();
        let old = self.guests.iter().filter(|(_, guest)| is_old(guest)).map(|(token, _)| *token);
        for token in old.collect::<Vec<_>>() {
            self.part(token);
        }
    }

    /// Hands an answer of the clerk to whom it is for, if that connection is still there.
    pub(super) fn hand(&mut self, token: Token, answer: Result<Answer, HandshakeError>) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        let before = guest.line.load();
        let outcome = guest.admit(answer, &self.house.desk);
        self.ledger.weigh(before, &guest.line);
        match outcome {
            Ok(()) => {
                self.entrance.leave(token);
                self.queue(token);
            }
            Err(ending) => self.end(token, &ending),
        }
    }

    pub(super) fn seats(&self) -> Vec<Seat> {
        self.house.gate.roster.seats()
    }

    pub(super) fn counts(&self) -> Counts {
        let table = &self.house.desk.table;
        let newcomers = self.entrance.newcomers();
        Counts {
            connections: self.guests.len() - newcomers,
            newcomers,
            waiting: table.waiting(),
            entries: table.len(),
            byte_len: table.byte_len(),
            unread_byte_len: self.ledger.load.unread,
            unsent_byte_len: self.ledger.load.unsent,
            accepted: self.entrance.accepted(),
            requests: self.house.desk.requests,
            rejected: self.ledger.rejected.clone(),
        }
    }

    fn wait(&mut self, events: &mut Events) {
        let timeout = self.timeout(Instant::now());
        match self.vigil.wait(events, timeout) {
            Ok(now) => self.house.now = now,
            Err(error) => {
                log::error!("store server at {}: stops serving: {error}", self.entrance.address());
                self.stop();
            }
        }
        events.iter().for_each(|event| self.notice(event));
    }

    /// How long nothing may happen.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        if !self.known.is_empty()
            || !self.unknown.is_empty()
            || self.house.desk.table.has_woken()
            || self.entrance.is_busy(now)
        {
            return Some(Duration::ZERO);
        }
        let inspection = self.ledger.is_heavy(&self.house.desk.limits).then_some(self.inspection);
        let due = [self.entrance.due(), self.ledger.journal_due(), inspection].into_iter().flatten().min();
        due.map(|due| due.saturating_duration_since(now))
    }

    fn notice(&mut self, event: &Event) {
        match event.token() {
            ENTRANCE => self.entrance.notice(),
            ORDERS => {}
            token => {
                if let Some(guest) = self.guests.get_mut(&token) {
                    guest.line.notice(event);
                    self.queue(token);
                }
            }
        }
    }

    fn obey(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            order(self);
        }
    }

    /// Gives a connection a place in its queue, if it has none.
    fn queue(&mut self, token: Token) {
        if let Some(guest) = self.guests.get_mut(&token)
            && !std::mem::replace(&mut guest.is_queued, true)
        {
            if guest.is_known() {
                self.known.push_back(token);
            } else {
                self.unknown.push_back(token);
                self.entrance.queued(token);
            }
        }
    }

    /// A round among the known. It ends early where a few ask for so much that the others would wait for it.
    fn serve(&mut self) {
        let mut written = 0;
        for _ in 0..self.known.len().min(SERVED) {
            let Some(token) = self.known.pop_front() else { return };
            written += self.serve_one(token);
            if written >= WRITTEN {
                return;
            }
        }
    }

    /// Newcomers come after those who are known, and few at a time.
    fn greet(&mut self) {
        for _ in 0..self.unknown.len().min(GREETED) {
            if let Some(token) = self.unknown.pop_front() {
                self.serve_one(token);
            }
        }
    }

    /// One connection's turn; how many bytes of answers it left behind for that connection alone.
    fn serve_one(&mut self, token: Token) -> usize {
        let Some(guest) = self.guests.get_mut(&token) else { return 0 };
        guest.is_queued = false;
        self.house.is_heavy = self.ledger.is_heavy(&self.house.desk.limits);
        let before = guest.line.load();
        let (was_known, step, came) = (guest.is_known(), guest.step(), guest.line.came());
        let outcome = guest.serve(&mut self.house);
        if !was_known {
            let turn = Turn::of(guest.step() > step, guest.line.came() > came);
            self.entrance.had_turn(token, turn, self.house.now);
        }
        if guest.is_known() && !was_known {
            self.entrance.leave(token);
        } else if guest.is_claimed() {
            self.entrance.claimed(token);
        }
        self.ledger.weigh(before, &guest.line);
        let written = guest.line.load().own.saturating_sub(before.own);
        self.go_on(token, outcome);
        written
    }

    /// What comes after something was done for a connection.
    fn go_on(&mut self, token: Token, outcome: Result<Next, Ending>) {
        match outcome {
            Ok(Next::Rest) => {}
            Ok(Next::Again) => self.queue(token),
            Err(ending) => self.end(token, &ending),
        }
        self.bound();
    }

    /// Brings answers to those who waited for them, each at once: whoever has one goes on while others get theirs.
    fn deliver(&mut self) {
        for _ in 0..SERVED {
            let Some(letter) = self.house.desk.next_letter() else { return };
            let token = Token(letter.client.0 as usize);
            let Some(guest) = self.guests.get_mut(&token) else { continue };
            let before = guest.line.load();
            let outcome = guest.answer(letter, &self.house);
            self.ledger.weigh(before, &guest.line);
            self.go_on(token, outcome);
        }
    }

    fn admit(&mut self) {
        for _ in 0..ADMITTED {
            let now = self.house.now;
            let accepted = self.entrance.accept(self.vigil.registry(), now, &mut self.ledger);
            let Some((token, socket, peer)) = accepted else { return };
            let guest = Connection::new(ClientId(token.0 as u64), Line::new(socket), peer);
            self.guests.insert(token, guest);
            self.queue(token);
            if let Some(token) = self.entrance.surplus(now) {
                self.reject(token, Rejection::Crowded, "");
            }
        }
    }

    /// What time brings about.
    fn look_around(&mut self) {
        let now = self.house.now;
        for token in self.entrance.expired(now) {
            self.reject(token, Rejection::Silent, "");
        }
        if let Some(token) = self.entrance.take_shortage(now) {
            self.reject(token, Rejection::Crowded, "no descriptors are left");
        }
        self.ledger.summarise(now);
        if now >= self.inspection && self.ledger.is_heavy(&self.house.desk.limits) {
            self.inspection = now + INSPECTION;
            self.end_stuck(now);
            self.bound_shared();
        }
    }

    /// Ends those who hold answers and take none, while too many answers are held.
    fn end_stuck(&mut self, now: Instant) {
        let is_stuck = |guest: &Connection| guest.line.stuck_since().is_some_and(|since| since + STUCK <= now);
        let stuck = self.guests.iter().filter(|(_, guest)| is_stuck(guest)).map(|(token, _)| *token);
        for token in stuck.collect::<Vec<_>>() {
            self.reject(token, Rejection::Stalled, "");
        }
    }

    /// Ends whoever holds most of what came in part, or of answers, while too much of that is held.
    fn bound(&mut self) {
        let limits = self.house.desk.limits;
        while self.ledger.is_flooded(&limits) && self.end_largest(Rejection::Flood, |load| load.unread) > 0 {}
        while self.ledger.is_crammed(&limits) && self.end_largest(Rejection::Stalled, |load| load.own) > 0 {}
    }

    /// Ends those who hold most answers while these take too much. A value may be gone from the store and still on its way,
    /// to one or to thousands, and takes its memory once: that is counted now and then only.
    fn bound_shared(&mut self) {
        let mut seen = HashSet::new();
        let shared = self.guests.values().flat_map(|guest| guest.line.outbox.shared());
        let shared: usize = shared.filter(|value| seen.insert(value.as_ptr())).map(|value| value.len()).sum();
        let mut excess = (self.ledger.load.own + shared).saturating_sub(ledger::most(&self.house.desk.limits));
        while excess > 0 {
            match self.end_largest(Rejection::Stalled, |load| load.unsent) {
                0 => return,
                freed => excess = excess.saturating_sub(freed),
            }
        }
    }

    /// Ends whoever holds most by such a measure; how much that was.
    fn end_largest(&mut self, reason: Rejection, measure: impl Fn(&Load) -> usize) -> usize {
        let held = self.guests.iter().map(|(token, guest)| (measure(&guest.line.load()), *token));
        let Some((most, token)) = held.max_by_key(|(held, _)| *held).filter(|(held, _)| *held > 0) else { return 0 };
        self.reject(token, reason, "");
        most
    }

    fn reject(&mut self, token: Token, reason: Rejection, detail: &str) {
        self.end(token, &Ending::Rejected(reason, detail.to_owned()));
    }

    fn end(&mut self, token: Token, ending: &Ending) {
        if let (Some(guest), Ending::Rejected(reason, detail)) = (self.guests.get_mut(&token), ending) {
            self.ledger.reject(&guest.peer, *reason, detail, self.house.now);
            // What it is told, if anything, fits the socket; if it does not, the end of the connection says enough.
            let before = guest.line.load();
            let _ = guest.line.send(self.house.now);
            self.ledger.weigh(before, &guest.line);
        }
        self.part(token);
    }

    /// Forgets a connection and what it waited for. Its socket is closed.
    fn part(&mut self, token: Token) {
        let Some(guest) = self.guests.remove(&token) else { return };
        self.ledger.forget(&guest.line);
        self.entrance.leave(token);
        if let Some(claim) = guest.seat() {
            self.house.gate.roster.leave(claim);
        }
        self.house.desk.table.leave(ClientId(token.0 as u64));
        self.entrance.resume();
    }
}

/// Events of the listener, and of the handle.
pub(super) const ENTRANCE: Token = Token(0);
pub(super) const ORDERS: Token = Token(1);

/// The most events taken at once.
const EVENTS: usize = 1024;
/// The most known, unknown and new connections that have a turn each time. Of those that are not known one, because a client
/// that comes back for more waits for it: to answer one who proved the key takes longer than to answer many requests.
const SERVED: usize = 256;
/// A round among the known ends after so many bytes of answers.
const WRITTEN: usize = 16 << 20;
const GREETED: usize = 1;
const ADMITTED: usize = 1;
/// How often clients that do not take their answers are looked for, and how long they may take none.
const INSPECTION: Duration = Duration::from_secs(1);
const STUCK: Duration = Duration::from_secs(5);
