//! The strangers: all tries from one thread of a process of its own, many at a time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use phalanx_comm::secure::{Claim, ClientHandshake, ClientStep, JobKey, JobName, Plane, Session};

use super::attempt::{Arsenal, Attempt, EPOCH};
use super::kind::Kind;
use super::tally::Tally;
use crate::failure::Failure;
use crate::store::bench::line::{End, Line};
use crate::store::bench::system;

/// All tries that are still to be made or underway.
#[derive(Debug)]
pub(super) struct Strangers {
    address: SocketAddr,
    arsenal: Arsenal,
    poll: Poll,
    events: Events,
    /// How many of each kind are still to come.
    left: [u32; Kind::ALL.len()],
    slots: Vec<Option<Try>>,
    free: Vec<usize>,
    /// When slow tries say their next byte, in that order: each with its slot and number.
    drips: VecDeque<(Instant, usize, u64)>,
    begun: u64,
    /// How many quick and slow ones are underway.
    underway: [usize; 2],
    /// When the system last told, and the time before, which connections had been closed.
    told: [Instant; 2],
    tally: Tally,
}

#[derive(Debug)]
struct Try {
    number: u64,
    attempt: Attempt,
    line: Line,
    /// When it began to connect, then when it was connected.
    since: Instant,
}

impl Strangers {
    /// As many as `tries`, who know `key` and what a member says to be let in.
    pub(super) fn new(tries: u32, address: SocketAddr, key: JobKey) -> Result<Strangers, Failure> {
        let captured = capture(address, &key)?;
        let other = JobKey::mint().map_err(system("another key"))?;
        let arsenal = Arsenal { key, other, captured, random: fastrand::Rng::with_seed(SEED) };
        Ok(Strangers {
            address,
            arsenal,
            poll: Poll::new().map_err(system("connections"))?,
            events: Events::with_capacity(1024),
            left: Kind::ALL.map(|kind| kind.share(tries)),
            slots: Vec::new(),
            free: Vec::new(),
            drips: VecDeque::new(),
            begun: 0,
            underway: [0; 2],
            told: [Instant::now(); 2],
            tally: Tally::default(),
        })
    }

    /// Makes all tries and says now and then how many are over.
    pub(super) fn run(mut self, mut say: impl FnMut(u64) -> Result<(), Failure>) -> Result<Tally, Failure> {
        let mut swept = Instant::now();
        while self.left.iter().any(|&left| left > 0) || self.underway != [0; 2] {
            self.begin_more()?;
            self.wait().map_err(system("connections"))?;
            self.drip(Instant::now());
            if swept.elapsed() > SWEEP {
                self.give_up();
                say(self.tally.tries())?;
                swept = Instant::now();
            }
        }
        Ok(self.tally)
    }

    fn begin_more(&mut self) -> Result<(), Failure> {
        for kind in Kind::ALL.into_iter().cycle() {
            let is_full =
                |kind: Kind| self.left[kind as usize] == 0 || self.underway[pace(kind)] >= AT_ONCE[pace(kind)];
            if Kind::ALL.into_iter().all(is_full) {
                break;
            }
            if !is_full(kind) {
                self.left[kind as usize] -= 1;
                self.begin(kind)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, kind: Kind) -> Result<(), Failure> {
        let mut attempt = self.arsenal.attempt(kind)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let Ok(mut line) = Line::open(self.address, self.poll.registry(), Token(slot)) else {
            self.free.push(slot);
            self.tally.add_unreached(kind);
            return Ok(());
        };
        attempt.begin(&mut line.outbox);
        self.begun += 1;
        self.underway[pace(kind)] += 1;
        let (number, since) = (self.begun, Instant::now());
        self.drips.extend((kind == Kind::Drip).then_some((since + DRIP, slot, number)));
        self.slots[slot] = Some(Try { number, attempt, line, since });
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(TURN)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        self.told = [Instant::now(), self.told[0]];
        let ready: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
        ready.into_iter().for_each(|slot| self.serve(slot));
        Ok(())
    }

    /// Moves bytes both ways, until the server closes.
    fn serve(&mut self, slot: usize) {
        let Some(Some(stranger)) = self.slots.get_mut(slot) else { return };
        let Try { line, attempt, since, .. } = stranger;
        let was_connected = line.is_connected();
        let flushed = line.flush();
        if line.is_connected() && !was_connected {
            *since = Instant::now();
        }
        // Also after a failure to send: what was said before the end counts.
        let end = line.read(|bytes, out| attempt.receive(bytes, out));
        let goes_on = match line.is_connected() {
            true => matches!(end, Ok(End::Open)) && line.flush().is_ok(),
            false => flushed.is_ok(),
        };
        if !goes_on {
            self.end(slot, true);
        }
    }

    fn drip(&mut self, now: Instant) {
        while let Some(&(due, slot, number)) = self.drips.front().filter(|(due, ..)| *due <= now) {
            self.drips.pop_front();
            // Another try may be in the slot by now.
            let stranger = self.slots[slot].as_mut().filter(|stranger| stranger.number == number);
            let Some(Try { line, attempt, .. }) = stranger else { continue };
            attempt.drip(&mut line.outbox);
            self.drips.push_back((due.max(now) + DRIP, slot, number));
            self.serve(slot);
        }
    }

    /// Ends tries that the server should have ended long ago.
    fn give_up(&mut self) {
        let told = self.told[0];
        let is_late = |stranger: &Try| told.saturating_duration_since(stranger.since) > GIVE_UP;
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(is_late) {
                self.end(slot, false);
            }
        }
    }

    /// What is closed now was open when the system told before. That counts: strangers may be slow to look.
    fn end(&mut self, slot: usize, is_closed: bool) {
        let Some(Try { attempt, line, since, .. }) = self.slots[slot].take() else { return };
        let held = self.told[usize::from(is_closed)].saturating_duration_since(since);
        self.free.push(slot);
        self.underway[pace(attempt.kind())] -= 1;
        match line.is_connected() {
            true => self.tally.add(attempt.kind(), attempt.outcome(), held, is_closed),
            false => self.tally.add_unreached(attempt.kind()),
        }
    }
}

/// What a member says to be let in, taken down while it is.
fn capture(address: SocketAddr, key: &JobKey) -> Result<Vec<u8>, Failure> {
    let unable = system::<io::Error>(MEMBER);
    let claim = Claim::new(JobName::default(), EPOCH, Session::mint().map_err(&unable)?);
    let mut handshake = ClientHandshake::new(Some(key), &claim, Plane::Store);
    let mut socket = TcpStream::connect(address).map_err(&unable)?;
    socket.set_read_timeout(Some(GIVE_UP)).map_err(&unable)?;
    let mut captured = handshake.start();
    socket.write_all(&captured).map_err(&unable)?;
    let mut bytes = [0; 1024];
    loop {
        let len = socket.read(&mut bytes).map_err(&unable)?;
        let mut rest = &bytes[..len];
        if rest.is_empty() {
            return Err(system(MEMBER)(handshake.closed()));
        }
        while !rest.is_empty() {
            let (len, step) = handshake.receive(rest).map_err(system(MEMBER))?;
            rest = &rest[len..];
            match step {
                ClientStep::More => {}
                ClientStep::Send(proof) => {
                    socket.write_all(&proof).map_err(&unable)?;
                    captured.extend(proof);
                }
                ClientStep::Admitted { .. } => return Ok(captured),
                ClientStep::Denied(denial) => return Err(system(MEMBER)(denial)),
            }
        }
    }
}

/// Which share of the room a kind takes.
fn pace(kind: Kind) -> usize {
    usize::from(kind == Kind::Drip)
}

/// Whose words are taken down.
const MEMBER: &str = "a member of the job";
/// How many quick and slow tries are underway at once.
pub(super) const AT_ONCE: [usize; 2] = [64, 512];
/// The time between two bytes of a slow try: they never come to the end of a hello within any patience.
const DRIP: Duration = Duration::from_millis(200);
/// How long a server may keep a stranger before the stranger stops waiting to be sent away.
const GIVE_UP: Duration = Duration::from_secs(5);
const SWEEP: Duration = Duration::from_millis(250);
const TURN: Duration = Duration::from_millis(10);
/// The same tries in every run.
const SEED: u64 = 47;
