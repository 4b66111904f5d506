//! How neighbours come to share memory: the first rank of a host opens a door and says where on the store, the others come
//! through it, and a second meeting tells everybody whether that went well. Where it did not, TCP remains.

use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::store::Store;
use phalanx_core::{Error, Layout, Ranks, Result, fnv};
use phalanx_mem::Segment;

use super::link::NeighbourLink;
use super::teams::Teams;
use super::windows::NeighbourWindows;
use crate::bell::Bell;
use crate::equipment::{Links, Sight};
use crate::local::{self, Departures, Door, Gathering, Invitation, Joined, Peers, SegmentMap, Terms};
use crate::moment;
use crate::net::Standing;
use crate::poller::{Kick, Poller};
use crate::rendezvous::Meeting;

/// What a rank asks for.
pub(crate) struct Request<'a> {
    pub(crate) store: &'a Store,
    pub(crate) layout: &'a Layout,
    /// The world's numbers of all ranks, by which errors name them.
    pub(crate) members: &'a [usize],
    /// Where each rank really is.
    pub(crate) places: &'a [String],
    pub(crate) epoch: u32,
    /// Whether neighbours shall read each other's windows.
    pub(crate) windows: bool,
    /// How long neighbours may keep each other waiting, whom only a fault keeps from coming at once.
    pub(crate) patience: Duration,
}

/// What became of it; by default nothing.
#[derive(Default)]
pub(crate) struct Agreement {
    /// What this rank shares with its neighbours.
    shared: Option<Shared>,
    /// Whether every rank that is not alone on its host has windows to all others there.
    windows: bool,
}

/// A rank's share in the memory of its host.
struct Shared {
    /// All ranks that share it, by their seats.
    ranks: Vec<usize>,
    joined: Joined,
    /// The processes of the others.
    peers: Peers,
}

/// What a rank has to its neighbours, by rank.
pub(crate) struct Ways {
    pub(crate) links: Links,
    pub(crate) post: Links,
    pub(crate) windows: Sight,
    /// Whose processes to watch, and where they say that they leave.
    pub(crate) watched: Option<(Peers, Departures)>,
}

/// Comes together with all ranks of the group by `deadline`, and agrees on who shares memory.
pub(crate) fn share(request: &Request<'_>, deadline: Instant) -> Result<Agreement> {
    let teams = Teams::of(request.layout.hosts(), request.places);
    if teams.all().is_empty() {
        return Ok(Agreement::default());
    }
    let rank = request.layout.rank();
    let meeting = Meeting::new(request.store.clone(), "neighbours", rank, request.layout.size());
    // All were there a moment ago: who does not come soon is lost, and no time is left to whom it would take as long to join.
    let deadline = deadline.min(moment::after(request.patience.saturating_mul(MEETINGS)));
    let meeting = Round { meeting, members: request.members, deadline, patience: request.patience };
    let windows = request.windows && teams.are_hosts();
    let mine = match teams.team_of(rank) {
        Some(team) => Some(request.take_seat(team, windows, &meeting)?),
        None => {
            meeting.hear(b"")?;
            None
        }
    };
    let word = match &mine {
        Some(Err(why)) => why.to_string(),
        _ => YES.to_owned(),
    };
    let words = meeting.hear(word.as_bytes())?;
    meeting.end();
    let agrees = |team: &[usize]| team.iter().all(|&rank| words[rank] == YES.as_bytes());
    let windows = windows && teams.all().iter().all(|team| agrees(team));
    let shared = mine.and_then(Result::ok).filter(|shared| agrees(&shared.ranks));
    if let Some(team) = teams.team_of(rank).filter(|_| shared.is_none()) {
        let why = team.iter().map(|&rank| String::from_utf8_lossy(&words[rank])).find(|word| word != YES);
        let team = request.in_world(team);
        log::warn!("{} of one host share no memory but use TCP: {}", Ranks(&team).named(), why.unwrap_or_default());
    }
    Ok(Agreement { shared, windows })
}

/// A meeting of all ranks, which ends in time.
struct Round<'a> {
    meeting: Meeting,
    members: &'a [usize],
    deadline: Instant,
    patience: Duration,
}

impl Round<'_> {
    /// Says this, and hears what each rank says.
    fn hear(&self, word: &[u8]) -> Result<Vec<Vec<u8>>> {
        let met = self.meeting.meet(word, moment::left(self.deadline));
        met.map_err(|error| error.among(self.members).during("ranks of one host"))
    }

    /// There is no more to say.
    fn end(self) {
        self.meeting.end(moment::left(self.deadline));
    }

    /// Until when to wait for neighbours.
    fn soon(&self) -> Instant {
        self.deadline.min(Instant::now() + self.patience)
    }
}

impl Request<'_> {
    /// These ranks of the group by their numbers in the world.
    fn in_world(&self, ranks: &[usize]) -> Vec<usize> {
        ranks.iter().map(|&rank| self.members[rank]).collect()
    }

    /// Takes this rank's seat among its team; why it has none is no failure of the group's.
    fn take_seat(&self, team: &[usize], windows: bool, round: &Round<'_>) -> Result<Result<Shared>> {
        let seat = team.iter().position(|&rank| rank == self.layout.rank()).unwrap_or_default();
        let hall = |invitation| Hall::new(invitation, (seat, team), self, windows);
        if seat > 0 {
            let words = round.hear(b"")?;
            let invitation = Invitation::told(&words[team[0]]);
            let hall =
                invitation.ok_or_else(|| Error::setup("shared memory", "the first rank has none")).and_then(hall);
            return Ok(hall.and_then(|hall| hall.attend(round.soon())));
        }
        let invitation = Invitation::mint()?;
        let hall = hall(invitation)?;
        let opened = hall.open();
        round.hear(if opened.is_ok() { invitation.bytes() } else { b"" })?;
        Ok(opened.and_then(|(segment, gathering)| hall.host(segment, gathering, round.soon())))
    }
}

/// Where the ranks of a host meet.
struct Hall {
    team: Vec<usize>,
    door: Door,
    terms: Terms,
    map: SegmentMap,
    windows: bool,
}

impl Hall {
    /// The hall to which the first of the team invites.
    fn new(
        invitation: Invitation,
        (seat, team): (usize, &[usize]),
        request: &Request<'_>,
        windows: bool,
    ) -> Result<Hall> {
        let (token, epoch, members) = (invitation.token(), request.epoch, request.in_world(team).into());
        let map = SegmentMap::new(team.len(), fnv::hash64(token), epoch, 0)?;
        let terms = Terms { rank: seat, members, epoch, token, map: map.hash(), byte_len: map.byte_len };
        Ok(Hall { team: team.to_vec(), door: invitation.door(), terms, map, windows })
    }

    fn open(&self) -> Result<(Segment, Gathering<'_>)> {
        Ok((local::create(&self.map)?, Gathering::open(&self.door, &self.terms)?))
    }

    fn host(&self, segment: Segment, gathering: Gathering<'_>, until: Instant) -> Result<Shared> {
        let poller = poller()?;
        let met = gathering.host(segment, Some(poller.kick_descriptor()), until)?;
        self.sit_down(met, poller, until)
    }

    fn attend(&self, until: Instant) -> Result<Shared> {
        let poller = poller()?;
        let met = local::attend(&self.door, &self.terms, Some(poller.kick_descriptor()), until)?;
        self.sit_down(met, poller, until)
    }

    fn sit_down(&self, mut met: local::Met, poller: Poller, until: Instant) -> Result<Shared> {
        let seat = self.terms.rank;
        let mut kicks = std::mem::take(&mut met.kicks).into_iter();
        let mut poller = Some(poller);
        let fit = |other: usize, bell: Bell| match (kicks.next(), poller.take_if(|_| other == seat)) {
            (_, Some(poller)) => bell.and_poller(poller),
            (Some(kick), None) => bell.and_kick(Kick::of(kick)),
            (None, None) => bell,
        };
        let (segment, peers, ties) = met.into_parts();
        let joined = local::join_fitted(segment, &self.map, seat, self.windows, fit)?;
        ties.confirm(until)?;
        let peers = peers.into_iter().map(|(seat, process)| (self.team[seat], process)).collect();
        Ok(Shared { ranks: self.team.clone(), joined, peers })
    }
}

impl Agreement {
    /// The bell of this rank that its neighbours ring as well, where it shares memory with some.
    pub(crate) fn bell(&self) -> Option<Arc<Bell>> {
        self.shared.as_ref().map(|shared| Arc::clone(&shared.joined.bell))
    }

    /// The ways to the neighbours among all ranks of the group, whose standings these are.
    pub(crate) fn ways(self, standings: &[Arc<Standing>]) -> Ways {
        let none = || standings.iter().map(|_| None).collect();
        match self.shared {
            Some(shared) => shared.ways(standings, self.windows),
            None => {
                let windows = Sight { windows: None, everywhere: self.windows };
                Ways { links: none(), post: none(), windows, watched: None }
            }
        }
    }
}

impl Shared {
    fn ways(self, standings: &[Arc<Standing>], windows: bool) -> Ways {
        let Shared { ranks, joined, peers } = self;
        let spread = |rings: Links| {
            let mut all: Links = standings.iter().map(|_| None).collect();
            for (ring, &rank) in rings.into_iter().zip(&ranks) {
                let link = |ring| Box::new(NeighbourLink::new(ring, rank, Arc::clone(&standings[rank]))) as _;
                all[rank] = ring.map(link);
            }
            all
        };
        let (links, post) = (spread(joined.links), spread(joined.post));
        let board = joined.windows.filter(|_| windows);
        let own = board.map(|board| Box::new(NeighbourWindows::new(board, ranks.clone(), standings)) as _);
        let watched = Some((peers, Departures::new(joined.departures, ranks)));
        Ways { links, post, windows: Sight { windows: own, everywhere: windows }, watched }
    }
}

fn poller() -> Result<Poller> {
    Poller::new().map_err(|errno| Error::setup("waiting for sockets", errno))
}

/// How much longer than one meeting of neighbours all of this may take.
const MEETINGS: u32 = 4;
/// What a rank says that is content.
const YES: &str = "+";
