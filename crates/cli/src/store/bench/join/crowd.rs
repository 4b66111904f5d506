//! Many clients in one thread: they connect, meet, and leave, each phase beginning when all are through the one before.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::super::line::{End, Line};
use super::joiner::{Joiner, Stage};

/// What a crowd went through.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    /// Until the server had greeted everybody.
    pub(super) connect: Duration,
    /// Until everybody knew that all had come.
    pub(super) barrier: Duration,
    /// Until the server had closed every connection.
    pub(super) leave: Duration,
    /// Why clients did not get through, and how many each.
    pub(super) failures: BTreeMap<String, usize>,
}

/// The clients of one server.
#[derive(Debug)]
pub(super) struct Crowd {
    address: SocketAddr,
    poll: Poll,
    events: Events,
    members: Vec<Member>,
    goal: Stage,
    /// Members that are neither at the goal nor lost.
    missing: usize,
    failures: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Member {
    joiner: Joiner,
    line: Option<Line>,
    stage: Stage,
    is_leaving: bool,
    is_lost: bool,
}

impl Gathering {
    pub(super) fn total(&self) -> Duration {
        self.connect + self.barrier + self.leave
    }
}

impl Crowd {
    /// The crowd of these clients, before the door of `address`.
    pub(super) fn new(address: SocketAddr, joiners: impl Iterator<Item = Joiner>) -> io::Result<Crowd> {
        let members: Vec<Member> = joiners.map(Member::new).collect();
        let missing = members.len();
        let events = Events::with_capacity(1024);
        let (poll, failures) = (Poll::new()?, BTreeMap::new());
        Ok(Crowd { address, poll, events, members, goal: Stage::Inside, missing, failures })
    }

    /// Lets all connect, meet and leave.
    pub(super) fn gather(mut self) -> io::Result<Gathering> {
        let connect = self.connect()?;
        let barrier = self.phase(Stage::Met, Member::arrive)?;
        let leave = self.phase(Stage::Left, |member, _| member.leave())?;
        Ok(Gathering { connect, barrier, leave, failures: self.failures })
    }

    /// All connect, but only so many at once as the queue of a server takes.
    fn connect(&mut self) -> io::Result<Duration> {
        let began = Instant::now();
        let mut outside = (0..self.members.len()).peekable();
        let mut underway: VecDeque<(usize, Instant)> = VecDeque::new();
        while self.missing > 0 {
            underway.retain(|(index, _)| self.members[*index].is_before(Stage::Inside));
            while underway.len() < IN_FLIGHT && outside.peek().is_some() {
                underway.extend(outside.next().map(|index| (index, Instant::now())));
                underway.back().into_iter().for_each(|(index, _)| self.open(*index));
            }
            self.wait()?;
            for (index, _) in underway.iter().filter(|(_, began)| began.elapsed() > GREETING_LIMIT) {
                self.lose(*index, &format!("none within {GREETING_LIMIT:?}"));
            }
        }
        Ok(began.elapsed())
    }

    /// All that are left `begin`, and are waited for until they reach `goal`.
    fn phase(&mut self, goal: Stage, begin: impl Fn(&mut Member, usize) -> Result<(), String>) -> io::Result<Duration> {
        let began = Instant::now();
        let size = self.members.iter().filter(|member| !member.is_lost).count();
        (self.goal, self.missing) = (goal, size);
        for index in 0..self.members.len() {
            self.advance(index, |member| if member.is_lost { Ok(()) } else { begin(member, size) });
        }
        while self.missing > 0 && began.elapsed() < PHASE_LIMIT {
            self.wait()?;
        }
        for index in 0..self.members.len() {
            self.lose(index, &format!("no end within {PHASE_LIMIT:?}"));
        }
        Ok(began.elapsed())
    }

    fn open(&mut self, index: usize) {
        let opened = Line::open(self.address, self.poll.registry(), Token(index));
        self.advance(index, |member| {
            let line = member.line.insert(opened.map_err(|error| error.to_string())?);
            member.joiner.greet(&mut line.outbox);
            Ok(())
        });
    }

    fn wait(&mut self) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(TURN)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        let ready: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
        ready.into_iter().for_each(|index| self.advance(index, Member::serve));
        Ok(())
    }

    /// Does something with a member and sees how far it came by that.
    fn advance(&mut self, index: usize, act: impl FnOnce(&mut Member) -> Result<(), String>) {
        let member = &mut self.members[index];
        let was_before = member.is_before(self.goal);
        match act(member) {
            Err(why) => self.lose(index, &why),
            Ok(()) if was_before && !member.is_before(self.goal) => self.missing -= 1,
            Ok(()) => {}
        }
    }

    /// Gives up a member that is not at the goal.
    fn lose(&mut self, index: usize, why: &str) {
        let phase = match self.goal {
            Stage::Outside | Stage::Inside => "greeting",
            Stage::Met => "barrier",
            Stage::Left => "leaving",
        };
        let member = &mut self.members[index];
        if member.is_before(self.goal) {
            (member.is_lost, member.line) = (true, None);
            self.missing -= 1;
            *self.failures.entry(format!("{phase}: {why}")).or_default() += 1;
        }
    }
}

impl Member {
    fn new(joiner: Joiner) -> Member {
        Member { joiner, line: None, stage: Stage::Outside, is_leaving: false, is_lost: false }
    }

    fn is_before(&self, goal: Stage) -> bool {
        !self.is_lost && self.stage < goal
    }

    fn arrive(&mut self, size: usize) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        self.joiner.arrive(size, &mut line.outbox)?;
        line.flush().map_err(|error| error.to_string())
    }

    fn leave(&mut self) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        self.is_leaving = true;
        line.finish().map_err(|error| error.to_string())
    }

    /// Moves bytes both ways.
    fn serve(&mut self) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        line.flush().map_err(|error| error.to_string())?;
        let mut heard = Ok(());
        let end = line.read(|bytes, out| {
            if heard.is_ok() {
                heard = self.joiner.receive(bytes, out);
            }
        });
        let end = end.map_err(|error| error.to_string())?;
        heard?;
        line.flush().map_err(|error| error.to_string())?;
        match end {
            End::Open => self.stage = self.joiner.stage(),
            End::Closed if self.is_leaving => (self.stage, self.line) = (Stage::Left, None),
            End::Closed => return Err("the server closed the connection".to_owned()),
        }
        Ok(())
    }
}

/// How many clients connect at a time: fewer than a server lets wait at its door.
const IN_FLIGHT: usize = 64;
/// How long one client may wait to be greeted.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// How long all together may take for the barrier, and for leaving.
const PHASE_LIMIT: Duration = Duration::from_secs(60);
/// The longest sleep: deadlines are seen to at least so often.
const TURN: Duration = Duration::from_millis(100);
