//! How the ranks of a group come together: all bring a card to one meeting, of each pair the higher rank connects to the
//! lower one, and then all tell each other that this went well.

use std::io;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use phalanx_core::store::Store;
use phalanx_core::{Error, Ranks, Result};
use rustix::event::PollFlags;

use super::accord::{Accord, Reason};
use super::card::{Card, Manner};
use super::connect::reach;
use super::door::Door;
use super::greeting::{Guard, Line, answer};
use super::hello::{Hello, Traffic};
use super::muster::muster;
use super::places::Places;
use super::socket::{Socket, wait_any};
use crate::moment;
use crate::rendezvous::{Meeting, home_identity};
use crate::secure::{Cipher, Suite};

/// What a rank brings to its group.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) rank: usize,
    /// The world's numbers of all ranks, by which errors name them.
    pub(crate) members: Arc<[usize]>,
    pub(crate) address: Option<IpAddr>,
    /// Whether others than this host may come to the door without a key.
    pub(crate) insecure: bool,
    pub(crate) manner: Manner,
    pub(crate) guard: Guard,
}

/// The connections of one rank by peer: for collectives, for messages, and for control.
pub(crate) type Lines = Vec<Option<[Line; Traffic::ALL.len()]>>;

/// The connections of a rank, and what else it learns while they are made.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) lines: Lines,
    /// Which host each rank is on: those of one host can share memory.
    pub(crate) places: Vec<String>,
    /// How data travels where a key protects it.
    pub(crate) suite: Option<Suite>,
}

/// Comes together with all other ranks by `deadline`.
pub(crate) fn gather(store: &Store, terms: &Terms, deadline: Instant) -> Result<Gathered> {
    let door = Door::open(terms.address, terms.insecure || terms.guard.key.is_some())?;
    let meeting = Meeting::new(store.clone(), "ranks", terms.rank, terms.members.len());
    let ours = card(terms, &door)?;
    let members = &terms.members;
    let met = meeting.meet(&ours.encode(), moment::left(deadline));
    let cards = met.map_err(|error| error.among(members).during(TOGETHER))?;
    let read = |(rank, card): (usize, &Vec<u8>)| check(&ours, members[rank], Card::decode(card));
    let cards: Vec<Card> = cards.iter().enumerate().map(read).collect::<Result<_>>()?;
    let accord = Accord::new(store.clone(), terms.rank, Arc::clone(members));
    let lines = connect_all(terms, &door, &cards, &accord, deadline).and_then(|mut lines| {
        muster(&mut lines, deadline).map(|()| lines).map_err(|(rank, why)| {
            // One that gave up has said why, and may not be the one to blame.
            let rank = terms.members[rank];
            let missing = || Error::absent(TOGETHER, format!("rank {rank} is not there: {why}"), vec![rank]);
            accord.reason(deadline).map_or_else(missing, |reason| reason.error(TOGETHER))
        })
    });
    accord.forget(deadline);
    if lines.is_ok() {
        meeting.end(moment::left(deadline));
    }
    let suite = suite(&terms.guard, &cards);
    lines.map(|lines| Gathered { lines, places: cards.into_iter().map(|card| card.host).collect(), suite })
}

/// Ranks whose processor has no AES would hold all others up.
fn suite(guard: &Guard, cards: &[Card]) -> Option<Suite> {
    let all_have_aes = cards.iter().all(|card| card.cipher == Cipher::Aes);
    let cipher = if all_have_aes { Cipher::Aes } else { Cipher::ChaCha };
    guard.key.as_ref().and_then(|_| guard.protection.cover()).map(|cover| Suite { cipher, cover })
}

fn card(terms: &Terms, door: &Door) -> Result<Card> {
    let mut token = [0; 16];
    getrandom::fill(&mut token).map_err(|error| Error::setup("random bytes", error))?;
    let (port, addresses) = (door.port, door.addresses.clone());
    Ok(Card {
        token,
        cipher: Cipher::of_this_processor(),
        manner: terms.manner,
        host: home_identity(),
        port,
        addresses,
    })
}

/// That a rank of the world is one of this version and set as we are.
fn check(ours: &Card, rank: usize, theirs: Option<Card>) -> Result<Card> {
    let odd = |why: String| Error::setup(TOGETHER, why);
    let theirs = theirs.ok_or_else(|| odd(format!("rank {rank} is of another version of this library")))?;
    let settings = |card: &Card| {
        let Manner { epoch, checksum, shared_memory, windows, algorithm, profile, protection } = card.manner;
        [
            ("epoch", epoch.to_string()),
            ("checksum", checksum.to_string()),
            ("shared memory", shared_memory.to_string()),
            ("windows", windows.to_string()),
            ("algorithm", algorithm.map_or("of its choice".to_owned(), |algorithm| algorithm.to_string())),
            ("a profile with hash", format!("{profile:016x}")),
            ("protection", protection.to_string()),
        ]
    };
    if let Some(((what, ours), (_, theirs))) =
        settings(ours).into_iter().zip(settings(&theirs)).find(|(ours, theirs)| ours != theirs)
    {
        return Err(odd(format!("rank {rank} has {what} {theirs}, this rank {ours}")));
    }
    Ok(theirs)
}

/// The connections to all others: lower ranks are called, higher ones call. A rank that does not get them says why before it ends those that
/// it has, and keeps some of the time for that.
fn connect_all(terms: &Terms, door: &Door, cards: &[Card], accord: &Accord, deadline: Instant) -> Result<Lines> {
    let until = deadline - (moment::left(deadline) / 4).min(LAST_WORDS);
    let hello = Hello {
        token: cards[0].token,
        epoch: terms.manner.epoch,
        from: terms.rank as u32,
        to: 0,
        traffic: Traffic::Control,
    };
    let places = Places::new(hello, terms.members.len()).map_err(|errno| Error::setup(TOGETHER, errno))?;
    let called = thread::scope(|scope| {
        let (places, guard) = (&places, &terms.guard);
        let welcoming = move || {
            let lost = welcome(scope, door, places, guard, until);
            accord.settle(lost.map(|rank| ended(terms.members[rank])), until);
        };
        let begun = thread::Builder::new().name("phalanx-door".to_owned()).spawn_scoped(scope, welcoming);
        begun.map_err(|error| Error::setup(TOGETHER, error))?;
        let called = call_lower(terms, cards, hello, places, until).map_err(|error| {
            // A rank that gave up has closed its door, and is not the one to blame.
            accord.reason(until).map_or(error, |reason| reason.error(TOGETHER))
        });
        let called = called.and_then(|()| await_higher(places, accord, until));
        called.inspect_err(|_| places.fail())
    });
    let all = called.and_then(|()| check_places(terms, door, &places));
    all.inspect_err(|error| accord.call_off(error, deadline)).map(|()| places.into_lines())
}

/// That all have come.
fn check_places(terms: &Terms, door: &Door, places: &Places) -> Result<()> {
    let mut absent: Vec<usize> = places.absent().into_iter().map(|rank| terms.members[rank]).collect();
    absent.sort_unstable();
    let own = terms.members[terms.rank];
    match places.lacks() {
        _ if absent.is_empty() => Ok(()),
        Some(lacks) => {
            let why = format!("rank {own} cannot let {} in at port {}: {lacks}", Ranks(&absent).named(), door.port);
            Err(Error::setup(TOGETHER, why))
        }
        None => {
            let why = format!("{} did not connect to rank {own} at port {}", Ranks(&absent).named(), door.port);
            Err(Error::absent(TOGETHER, why, absent))
        }
    }
}

/// Waits until all higher ranks have called, or it is known that not all will, and why.
fn await_higher(places: &Places, accord: &Accord, until: Instant) -> Result<()> {
    if places.absent().is_empty() {
        return Ok(());
    }
    match accord.wait(until) {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => Err(reason.error(TOGETHER)),
        Err(error) => Err(Error::setup(TOGETHER, error)),
    }
}

/// What is told of a rank that was connected and is not any more.
fn ended(rank: usize) -> Reason {
    Reason { why: format!("rank {rank} ended its connection before all were connected"), lost: vec![rank] }
}

fn call_lower(terms: &Terms, cards: &[Card], hello: Hello, places: &Places, until: Instant) -> Result<()> {
    let ours = &cards[terms.rank];
    for (rank, card) in cards.iter().enumerate().take(terms.rank) {
        let at = card.places(&ours.host, &ours.addresses);
        for (traffic, line) in
            reach(&at, (Hello { to: rank as u32, ..hello }, terms.members[rank]), &terms.guard, until)?
        {
            places.take(rank as u32, traffic, line);
        }
    }
    Ok(())
}

/// Lets the higher ranks in, each on a thread for as long as it greets, until all are there. Returns the rank that ended a
/// connection meanwhile, which is then no longer awaited.
fn welcome<'scope>(
    scope: &'scope Scope<'scope, '_>,
    door: &'scope Door,
    places: &'scope Places,
    guard: &'scope Guard,
    until: Instant,
) -> Option<usize> {
    while !places.is_settled() && Instant::now() < until {
        match look_out(door, places, until) {
            Ok(Some((socket, from))) => let_in(scope, Arc::new(socket), from, places, guard, until),
            Ok(None) => {}
            Err(_) => break,
        }
    }
    places.guests.send_away();
    places.lost()
}

/// Waits for what comes first: somebody at the door, who is admitted, the end of somebody who is in, or other news.
fn look_out(door: &Door, places: &Places, until: Instant) -> io::Result<Option<(Socket, SocketAddr)>> {
    let (here, now) = (places.sockets(), Instant::now());
    // What this process lacks may be there again in a moment, of which no event tells.
    let lacks = places.lacks().map(|_| now + PAUSE);
    let full = places.guests.full_until(now);
    let ends = here.iter().map(|(_, socket)| (socket.as_fd(), PollFlags::RDHUP));
    let nudge = (places.nudge.as_fd(), PollFlags::IN);
    let door_opens = (lacks.is_none() && full.is_none()).then(|| (door.as_fd(), PollFlags::IN));
    let wanted: Vec<_> = ends.chain(iter::once(nudge)).chain(door_opens).collect();
    let first = wait_any(&wanted, [lacks, full].into_iter().flatten().fold(until, Instant::min))?;
    if let Some((rank, _)) = first.and_then(|first| here.get(first)) {
        places.lose(*rank);
        return Ok(None);
    }
    // Only empties the counter.
    let _ = rustix::io::read(&places.nudge, &mut [0_u8; 8]);
    if full.is_some() {
        return Ok(None);
    }
    match door.admit() {
        Ok(None) => Ok(None),
        Ok(guest) => {
            places.lack(None);
            Ok(guest)
        }
        Err(error) => {
            places.lack(Some(error.to_string()));
            Ok(None)
        }
    }
}

/// Greets a guest on a thread of its own.
fn let_in<'scope>(
    scope: &'scope Scope<'scope, '_>,
    socket: Arc<Socket>,
    from: SocketAddr,
    places: &'scope Places,
    guard: &'scope Guard,
    until: Instant,
) {
    let now = Instant::now();
    let guest = places.guests.enter(Arc::clone(&socket), now);
    let greeting = move || {
        if let Err(trouble) = greet(socket, guest, places, guard, until.min(now + GREETING)) {
            places.guests.complain(&format_args!("a connection from {from} was refused: {trouble}"));
        }
        places.guests.leave(guest);
        places.wake();
    };
    if let Err(error) = thread::Builder::new().spawn_scoped(scope, greeting) {
        places.lack(Some(format!("a thread for the connection from {from}: {error}")));
        places.guests.leave(guest);
    }
}

fn greet(socket: Arc<Socket>, guest: u64, places: &Places, guard: &Guard, until: Instant) -> Result<(), String> {
    if wait_any(&[(socket.as_fd(), PollFlags::IN)], until).is_ok_and(|came| came.is_some()) {
        places.guests.heard(guest, Instant::now());
    }
    let mut promised = None;
    let answered = answer(socket, guard, until, |hello| {
        // From here on it makes room for nobody: a place that was promised to one who is gone would be the end of the group.
        if !places.guests.leave(guest) {
            return Err("it had to make room for another".to_owned());
        }
        places.promise(hello)?;
        promised = Some((hello.from, hello.traffic));
        Ok(())
    });
    match (answered, promised) {
        (Ok((hello, line)), _) => places.take(hello.from, hello.traffic, line),
        (Err(trouble), Some((from, _))) => {
            places.lose(from as usize);
            return Err(trouble);
        }
        (Err(trouble), None) => return Err(trouble),
    }
    Ok(())
}

/// What ranks do here, in errors.
const TOGETHER: &str = "ranks over TCP";
/// What remains for telling the others.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long whoever connects waits for a process that can let nobody in, until it tries again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long whoever connects may take to say who it is.
const GREETING: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
