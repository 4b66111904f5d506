//! The meeting of the ranks of one host: the lowest hands the segment out, and all begin together or none does.
//!
//! Each comes through the door with the group's token and its numbers. Once all have come, each is given the segment and
//! a descriptor of every rank's process, takes its place and says so; once all have said so, all are told to go.
//!
//! # Why a descriptor is of the right process
//!
//! The system says which process connected, and its descriptor is opened while it is waited for. A number could have been
//! reused before that only if the process had ended; but then it could not say afterwards that it is ready.

#[cfg(test)]
mod tests;

use std::iter;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::{Error, Ranks, Result};
use phalanx_mem::Segment;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::door::{Door, OpenDoor, Peer};
use super::packet::{self, Answer, GO, Hello, READY};
use super::process::{Condition, condition};

/// What the ranks of a host must agree on, and which one this is.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) rank: usize,
    /// The numbers by which errors name the ranks, one for each.
    pub(crate) members: Arc<[usize]>,
    pub(crate) epoch: u32,
    pub(crate) token: [u8; 16],
    /// The hash of the segment's map.
    pub(crate) map: u64,
    pub(crate) byte_len: usize,
}

impl Terms {
    fn size(&self) -> usize {
        self.members.len()
    }

    /// The number of the rank that opens the door.
    fn first(&self) -> usize {
        self.members[0]
    }

    /// The numbers of the ranks of these bits, in order.
    fn numbers(&self, ranks: u64) -> Vec<usize> {
        let named = self.members.iter().enumerate().filter(|(rank, _)| *rank < 64 && ranks & 1 << rank != 0);
        let mut numbers: Vec<usize> = named.map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// The same in words.
    fn named(&self, ranks: u64) -> String {
        Ranks(&self.numbers(ranks)).named()
    }

    /// Of what the meeting ended, as the host says.
    fn lost(&self, rank: u32, errno: i32) -> Error {
        match self.members.get(rank as usize).filter(|_| errno > 0) {
            Some(&number) => left(number, Errno::from_raw_os_error(errno)),
            None => left(self.first(), Errno::PROTO),
        }
    }
}

/// A descriptor for each of some ranks, which several may hold.
pub(crate) type Peers = Vec<(usize, Arc<OwnedFd>)>;

/// What a rank has after all have come.
#[derive(Debug)]
pub(crate) struct Met {
    pub(crate) segment: Segment,
    /// The processes of the other ranks.
    pub(crate) peers: Peers,
    /// What wakes each rank, this one too, where they brought that.
    pub(crate) kicks: Vec<OwnedFd>,
    ties: Ties,
}

/// The connections to those who must still say that they are ready.
#[derive(Debug)]
pub(crate) enum Ties {
    Host(Vec<Guest>),
    /// To the host.
    Guest(Arc<OwnedFd>, Terms),
}

/// A rank that has come.
#[derive(Debug)]
pub(crate) struct Guest {
    rank: usize,
    /// By which errors name it.
    number: usize,
    socket: Arc<OwnedFd>,
    process: Arc<OwnedFd>,
    kick: Option<OwnedFd>,
}

/// Waits for all other ranks and hands the segment out.
pub(crate) fn host(door: &Door, terms: &Terms, segment: Segment, deadline: Instant) -> Result<Met> {
    match terms.size() {
        1 => welcome(terms, segment, None, vec![], deadline),
        _ => Gathering::open(door, terms)?.host(segment, None, deadline),
    }
}

/// Hands the segment to all guests, and to each the processes and kicks of all.
fn welcome(
    terms: &Terms,
    segment: Segment,
    kick: Option<BorrowedFd<'_>>,
    guests: Vec<Guest>,
    deadline: Instant,
) -> Result<Met> {
    let failed = |error: std::io::Error| Error::setup("descriptors of local ranks", error);
    let own = pidfd_open(getpid(), PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    let processes = iter::once(own.as_fd()).chain(guests.iter().map(|guest| guest.process.as_fd()));
    let kicks: Vec<BorrowedFd<'_>> =
        kick.into_iter().chain(guests.iter().filter_map(|guest| Some(guest.kick.as_ref()?.as_fd()))).collect();
    let fds: Vec<BorrowedFd<'_>> = iter::once(segment.fd()).chain(processes).chain(kicks.iter().copied()).collect();
    let welcome = Answer::Welcome { token: terms.token }.encode();
    for guest in &guests {
        let sent = packet::send_when_others_were_taken(&guest.socket, &welcome, &fds, deadline);
        sent.map_err(|errno| lose(&guests, guest, errno))?;
    }
    let peers = guests.iter().map(|guest| (guest.rank, Arc::clone(&guest.process))).collect();
    let kicks = kicks.into_iter().map(|kick| kick.try_clone_to_owned()).collect::<Result<_, _>>().map_err(failed)?;
    Ok(Met { segment, peers, kicks, ties: Ties::Host(guests) })
}

/// Comes to the meeting and receives the segment.
pub(crate) fn attend(door: &Door, terms: &Terms, kick: Option<BorrowedFd<'_>>, deadline: Instant) -> Result<Met> {
    let (rank, size, first) = (terms.rank as u32, terms.size() as u32, terms.first());
    let socket = door.enter(first, deadline)?;
    let hello = Hello { token: terms.token, rank, size, epoch: terms.epoch, map: terms.map };
    let sent = packet::send_when_others_were_taken(&socket, &hello.encode(), kick.as_slice(), deadline);
    sent.map_err(|errno| left(first, errno))?;
    let (bytes, fds) = packet::recv(&socket, deadline + GRACE).map_err(|errno| refused(first, door, &socket, errno))?;
    let failed = |why: String| Err(Error::setup("local ranks", why));
    match Answer::decode(&bytes) {
        Some(Answer::Welcome { token }) if token == terms.token => received(terms, socket, fds, kick.is_some()),
        Some(Answer::Missing(ranks)) => {
            let why = format!("{} did not come to {door}", terms.named(ranks));
            Err(Error::absent("local ranks", why, terms.numbers(ranks)))
        }
        Some(Answer::Lost { rank, errno }) => Err(terms.lost(rank, errno)),
        Some(Answer::Stranger) => {
            let (own, epoch) = (terms.members[terms.rank], terms.epoch);
            failed(format!(
                "rank {first} has another group or other settings than rank {own} of {size} in epoch {epoch}"
            ))
        }
        Some(Answer::Taken) => failed(format!("rank {} came to {door} before", terms.members[terms.rank])),
        Some(Answer::Lacking(errno)) => {
            let lacks = std::io::Error::from_raw_os_error(errno);
            failed(format!("rank {first} could not let all in at {door}: {lacks}"))
        }
        _ => failed(format!("what rank {first} said at {door} is not understood")),
    }
}

/// What was handed over: the segment first, then the process of each rank, this one's too, and then the kicks likewise.
fn received(terms: &Terms, socket: OwnedFd, fds: Vec<OwnedFd>, with_kicks: bool) -> Result<Met> {
    let size = terms.size();
    let due = 1 + size + if with_kicks { size } else { 0 };
    if fds.len() != due {
        let why = format!("{} descriptors came where {due} are due", fds.len());
        return Err(Error::setup("local ranks", why));
    }
    let mut fds = fds.into_iter();
    let segment = fds.next().map(|fd| Segment::open_sized(fd, terms.byte_len));
    let segment = segment.ok_or_else(|| Error::setup("shared segment", "it did not come"))?;
    let segment = segment.map_err(|error| Error::setup("shared segment", error))?;
    let processes = fds.by_ref().take(size).map(Arc::new).enumerate();
    let peers = processes.filter(|(rank, _)| *rank != terms.rank).collect();
    Ok(Met { segment, peers, kicks: fds.collect(), ties: Ties::Guest(Arc::new(socket), terms.clone()) })
}

impl Met {
    /// The segment, the other ranks' processes, and what is left to do once this rank has its place.
    pub(crate) fn into_parts(self) -> (Segment, Peers, Ties) {
        (self.segment, self.peers, self.ties)
    }
}

impl Ties {
    /// The connections by rank. One that is kept ends with the program at its other end, also where another program goes on in
    /// its process.
    pub(crate) fn kept(&self) -> Peers {
        match self {
            Ties::Host(guests) => guests.iter().map(|guest| (guest.rank, Arc::clone(&guest.socket))).collect(),
            Ties::Guest(socket, _) => vec![(0, Arc::clone(socket))],
        }
    }

    /// Says that this rank has its place, and waits until all have.
    pub(crate) fn confirm(self, deadline: Instant) -> Result<()> {
        match self {
            Ties::Host(guests) => {
                for guest in &guests {
                    let said = packet::recv(&guest.socket, deadline);
                    let is_ready = said.and_then(|(word, _)| if word == [READY] { Ok(()) } else { Err(Errno::PROTO) });
                    is_ready.map_err(|errno| lose(&guests, guest, errno))?;
                }
                for guest in &guests {
                    packet::send(&guest.socket, &[GO], &[]).map_err(|errno| lose(&guests, guest, errno))?;
                }
                Ok(())
            }
            Ties::Guest(socket, terms) => {
                let failed = |errno| left(terms.first(), errno);
                packet::send(&socket, &[READY], &[]).map_err(failed)?;
                let heard = packet::recv(&socket, deadline + GRACE);
                let (bytes, _) = heard.map_err(|errno| match errno {
                    Errno::TIMEDOUT => {
                        silent(terms.first(), &socket, "not all ranks took their places in time".to_owned())
                    }
                    other => failed(other),
                })?;
                match Answer::decode(&bytes) {
                    _ if bytes == [GO] => Ok(()),
                    Some(Answer::Lost { rank, errno }) => Err(terms.lost(rank, errno)),
                    _ => Err(failed(Errno::PROTO)),
                }
            }
        }
    }
}

/// Tells all other guests whom the meeting has lost, lest they take the host for the cause, who goes because of it.
fn lose(guests: &[Guest], lost: &Guest, errno: Errno) -> Error {
    let answer = Answer::Lost { rank: lost.rank as u32, errno: errno.raw_os_error() }.encode();
    for guest in guests.iter().filter(|guest| guest.rank != lost.rank) {
        let _ = packet::send(&guest.socket, &answer, &[]);
    }
    left(lost.number, errno)
}

/// The lowest rank at its open door.
pub(crate) struct Gathering<'a> {
    name: &'a Door,
    terms: &'a Terms,
    door: OpenDoor,
    /// Connected, but nothing said yet.
    strangers: Vec<(OwnedFd, Pid)>,
    guests: Vec<Guest>,
    /// Whether each brings what wakes it.
    with_kicks: bool,
    /// Why the last one was sent away.
    refused: Option<String>,
    /// What this process lacked to let the last one in.
    lacks: Option<Errno>,
}

impl<'a> Gathering<'a> {
    /// Opens the door. Who comes waits until it is looked for.
    pub(crate) fn open(name: &'a Door, terms: &'a Terms) -> Result<Gathering<'a>> {
        let door = name.open(MOST_STRANGERS)?;
        Ok(Gathering {
            name,
            terms,
            door,
            strangers: vec![],
            guests: vec![],
            with_kicks: false,
            refused: None,
            lacks: None,
        })
    }

    /// Waits for all other ranks and hands the segment out. With a kick, each must bring one.
    pub(crate) fn host(mut self, segment: Segment, kick: Option<BorrowedFd<'_>>, deadline: Instant) -> Result<Met> {
        let terms = self.terms;
        self.with_kicks = kick.is_some();
        welcome(terms, segment, kick, self.gather(deadline)?, deadline)
    }

    /// Waits until all have come. The guests are in the order of their ranks.
    fn gather(mut self, deadline: Instant) -> Result<Vec<Guest>> {
        while self.guests.len() + 1 < self.terms.size() {
            self.wait(deadline).map_err(|errno| Error::setup(self.name.to_string(), errno))?;
            self.admit();
            self.hear();
            // The clock decides, however many still speak.
            if self.guests.len() + 1 < self.terms.size() && Instant::now() >= deadline {
                return Err(self.missed());
            }
        }
        self.guests.sort_by_key(|guest| guest.rank);
        Ok(self.guests)
    }

    /// Waits until somebody comes or speaks. What this process lacks may be there again in a moment, of which no event tells.
    fn wait(&self, deadline: Instant) -> Result<(), Errno> {
        let door = self.lacks.is_none().then_some(&self.door.socket);
        let deadline = if door.is_some() { deadline } else { deadline.min(Instant::now() + PAUSE) };
        let strangers = self.strangers.iter().map(|(socket, _)| socket);
        let guests = self.guests.iter().map(|guest| &*guest.socket);
        let all = door.into_iter().chain(strangers).chain(guests);
        let mut polled: Vec<PollFd<'_>> = all.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        packet::wait(&mut polled, deadline).map(drop)
    }

    fn admit(&mut self) {
        loop {
            match self.door.admit() {
                Ok(Some((socket, Peer::Ours(pid)))) => {
                    self.lacks = None;
                    self.strangers.push((socket, pid));
                }
                Ok(Some((_, Peer::Elsewhere))) => {
                    self.refused = Some("somebody came from another PID namespace".to_owned());
                    return;
                }
                Ok(Some((_, Peer::Stranger)) | None) => return,
                Err(errno) => return self.lacks = Some(errno),
            }
            if self.strangers.len() > MOST_STRANGERS {
                self.strangers.remove(0);
            }
        }
    }

    /// Hears everybody who says something. A guest has nothing more to say: it is gone, and may come again.
    fn hear(&mut self) {
        self.guests.retain(|guest| packet::try_recv(&guest.socket).err() == Some(Errno::AGAIN));
        for (socket, pid) in std::mem::take(&mut self.strangers) {
            match packet::try_recv(&socket) {
                Err(Errno::AGAIN) => self.strangers.push((socket, pid)),
                Ok((bytes, fds)) => self.greet((socket, pid), Hello::decode(&bytes), fds.into_iter().next()),
                Err(Errno::MFILE) => self.lack(&socket, Errno::MFILE),
                Err(_) => {}
            }
        }
    }

    /// Sends somebody away for want of something that is this process's own.
    fn lack(&mut self, socket: &OwnedFd, errno: Errno) {
        self.lacks = Some(errno);
        let _ = packet::send(socket, &Answer::Lacking(errno.raw_os_error()).encode(), &[]);
    }

    /// Who does not know the token is told nothing.
    fn greet(&mut self, (socket, pid): (OwnedFd, Pid), hello: Option<Hello>, kick: Option<OwnedFd>) {
        let Some(hello) = hello.filter(|hello| hello.token == self.terms.token) else {
            self.refused = Some(format!("process {pid} has not the group's token"));
            return;
        };
        let rank = hello.rank as usize;
        let answer = if !self.is_ours(&hello) || kick.is_some() != self.with_kicks {
            let Hello { size, epoch, .. } = hello;
            let rank = self.terms.members.get(rank).copied().unwrap_or(rank);
            self.refused = Some(format!("rank {rank} came as one of {size} in epoch {epoch}, or with other settings"));
            Answer::Stranger
        } else if self.guests.iter().any(|guest| guest.rank == rank) {
            Answer::Taken
        } else {
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => {
                    let number = self.terms.members[rank];
                    let (socket, process) = (Arc::new(socket), Arc::new(process));
                    self.guests.push(Guest { rank, number, socket, process, kick });
                }
                Err(errno) => self.lack(&socket, errno),
            }
            return;
        };
        let _ = packet::send(&socket, &answer.encode(), &[]);
    }

    fn is_ours(&self, hello: &Hello) -> bool {
        let (size, Terms { epoch, map, .. }) = (self.terms.size(), self.terms);
        let of_ranks = 1..size as u32;
        of_ranks.contains(&hello.rank) && (hello.size as usize, hello.epoch, hello.map) == (size, *epoch, *map)
    }

    /// Tells those who came who did not, or what kept this rank from letting them in.
    fn missed(&self) -> Error {
        let came = self.guests.iter().fold(1, |came: u64, guest| came | 1 << guest.rank);
        let missing =
            (0..self.terms.size()).filter(|rank| came & 1 << rank == 0).fold(0, |bits, rank| bits | 1 << rank);
        let answer = self.lacks.map_or(Answer::Missing(missing), |errno| Answer::Lacking(errno.raw_os_error()));
        for guest in &self.guests {
            let _ = packet::send(&guest.socket, &answer.encode(), &[]);
        }
        if let Some(errno) = self.lacks {
            return Error::setup(
                self.name.to_string(),
                format!("cannot let {} in: {errno}", self.terms.named(missing)),
            );
        }
        let refused = self.refused.as_ref().map_or(String::new(), |refused| format!("; {refused}"));
        let why = format!("{} did not come to {}{refused}", self.terms.named(missing), self.name);
        Error::absent("local ranks", why, self.terms.numbers(missing))
    }
}

/// The connection to a rank ended, or it said nothing in time.
fn left(rank: usize, errno: Errno) -> Error {
    let why = match errno {
        Errno::TIMEDOUT => format!("rank {rank} did not take its place in time"),
        Errno::CONNRESET | Errno::PIPE => format!("rank {rank} left before all had come"),
        other => format!("rank {rank}: {other}"),
    };
    Error::absent("local ranks", why, vec![rank])
}

fn refused(host: usize, door: &Door, socket: &OwnedFd, errno: Errno) -> Error {
    let why = match errno {
        Errno::TIMEDOUT => return silent(host, socket, format!("rank {host} still waited for others at {door}")),
        Errno::CONNRESET => format!("rank {host} sent this rank away from {door}: it has another token, or gave up"),
        other => format!("rank {host} at {door}: {other}"),
    };
    Error::setup("local ranks", why)
}

/// What is told of the host where nothing came of it in time. It waits as long as it has time itself, which is longer than a guest's where
/// that came first: only where it does not run is it to blame.
fn silent(host: usize, socket: &OwnedFd, else_why: String) -> Error {
    let condition = match Peer::of(socket) {
        Peer::Ours(pid) => condition(pid.as_raw_pid()),
        Peer::Elsewhere | Peer::Stranger => Condition::Runs,
    };
    let why = match condition {
        Condition::Runs => return Error::setup("local ranks", else_why),
        Condition::Stopped => "stopped by a signal",
        Condition::Crashes => "writing its core file",
    };
    Error::absent("local ranks", format!("rank {host} is {why}"), vec![host])
}

/// How much longer a guest waits than its host, who can say more about what is missing.
const GRACE: Duration = Duration::from_millis(200);
/// How long somebody waits at the door of a process that can let nobody in, until it tries again.
const PAUSE: Duration = Duration::from_millis(20);
/// How many may be at the door without a word; the oldest goes first.
const MOST_STRANGERS: usize = 256;
