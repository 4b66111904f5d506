//! Simulated communicators: who comes together, what each asked for, and what that waits for. What it does to data is elsewhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::Location;

use super::engine::{Queued, Work};
use super::fault::Fault;
use super::order::Order;
use super::stage::State;
use crate::api::{DataType, RedOp, Scalar, Span, Status, Transfer};

/// All communicators of all ranks.
#[derive(Default)]
pub(super) struct Comms {
    pub(super) handles: Vec<Handle>,
    pub(super) rings: Vec<Ring>,
    pub(super) fused: Vec<Fused>,
    /// By unique id, the ring that forms under it.
    pub(super) ids: BTreeMap<u64, usize>,
    /// Splits of a ring: by ring and how many came before.
    pub(super) splits: BTreeMap<(usize, usize), Vec<Option<Wish>>>,
    /// Windows of a ring: by ring and how many came before, the length and kind that each member asked for.
    pub(super) windows: BTreeMap<(usize, usize), Vec<Option<Opening>>>,
    /// Where memory is that NCCL has made.
    pub(super) made: BTreeSet<u64>,
    pub(super) last_known: u64,
}

/// What one rank asks of a split: its colour, its key and its new handle.
pub(super) type Wish = (Option<i32>, i32, u64);

/// What one rank asks of a window: its length, and whether it is symmetric.
pub(super) type Opening = (usize, bool);

/// What one rank holds.
pub(super) struct Handle {
    pub(super) rank: usize,
    pub(super) device: i32,
    /// Which communicator of its rank.
    pub(super) number: usize,
    pub(super) is_blocking: bool,
    pub(super) end: Option<End>,
    /// Once the ranks have come together: which ring, and as whom.
    pub(super) seat: Option<(usize, usize)>,
    /// How often it will still say that it is in progress.
    pub(super) polls: u32,
    /// Questions answered since it was ready.
    pub(super) asked: usize,
    /// What goes onto streams when the polls are over.
    pub(super) launch: Vec<(usize, usize, Order)>,
    pub(super) parent: Option<u64>,
    pub(super) splits: usize,
    /// Reductions that were created.
    pub(super) ops: Vec<Option<(Scalar, DataType)>>,
    /// Memory that it knows, by number, and whether that is a window.
    pub(super) known: BTreeMap<u64, (Span, bool)>,
    /// How many windows it has asked for.
    pub(super) windows: usize,
}

/// How a handle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Aborted,
    Destroyed,
}

/// The ranks of a communicator.
#[derive(Default)]
pub(super) struct Ring {
    pub(super) members: Vec<Option<u64>>,
    /// By number of the collective, what each member brings.
    pub(super) calls: Vec<Vec<Option<(usize, usize)>>>,
    /// How many collectives each member has called.
    pub(super) called: Vec<usize>,
    /// The collective that is next to move data.
    pub(super) next: usize,
    pub(super) told: bool,
    /// Messages by sender and receiver: those given, and those that are wanted.
    pub(super) mail: BTreeMap<(usize, usize), Mail>,
}

/// Messages between two members that still have no other half.
#[derive(Default)]
pub(super) struct Mail {
    pub(super) given: VecDeque<(usize, usize)>,
    pub(super) wanted: VecDeque<(usize, usize)>,
}

/// What one group of calls became: one piece of work on one stream.
pub(super) struct Fused {
    pub(super) rank: usize,
    pub(super) handle: u64,
    pub(super) stream: usize,
    pub(super) launch: usize,
    pub(super) parts: Vec<Part>,
    pub(super) has_arrived: bool,
    pub(super) is_killed: bool,
    pub(super) moment: u64,
}

/// One call of it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) what: Transfer,
    pub(super) op: RedOp,
    /// The root or the peer.
    pub(super) other: usize,
    pub(super) is_done: bool,
    pub(super) site: &'static Location<'static>,
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    Send,
    Recv,
}

/// How a window stands.
enum Windows {
    /// There is none, or all have come.
    Open,
    /// Some are still to come.
    Awaited,
    /// Not all asked for the same length and kind.
    Different,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "ncclAllReduce",
            Kind::Broadcast => "ncclBroadcast",
            Kind::Reduce => "ncclReduce",
            Kind::AllGather => "ncclAllGather",
            Kind::ReduceScatter => "ncclReduceScatter",
            Kind::Send => "ncclSend",
            Kind::Recv => "ncclRecv",
        }
    }

    pub(super) fn is_message(self) -> bool {
        matches!(self, Kind::Send | Kind::Recv)
    }
}

impl Comms {
    pub(super) fn handle(&self, number: u64) -> Option<&Handle> {
        self.handles.get(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(super) fn handle_mut(&mut self, number: u64) -> Option<&mut Handle> {
        self.handles.get_mut(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    /// Whether the ranks have come together and nothing is in progress.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        self.handle(number).is_none_or(|handle| handle.end.is_some() || self.has_formed(handle))
    }

    /// Whether all ranks of a handle's ring have come.
    pub(super) fn has_formed(&self, handle: &Handle) -> bool {
        handle.seat.is_some_and(|(ring, _)| self.rings[ring].members.iter().all(Option::is_some))
    }

    /// Whether nothing that all its ranks do together, as a split or a window, is still under way on it.
    pub(super) fn is_idle(&self, handle: &Handle) -> bool {
        handle.polls == 0 && !self.is_splitting(handle) && !matches!(self.windows_of(handle), Windows::Awaited)
    }

    /// Whether some members have not come to the last split of a handle.
    fn is_splitting(&self, handle: &Handle) -> bool {
        let place = handle.seat.and_then(|(ring, _)| Some((ring, handle.splits.checked_sub(1)?)));
        place.and_then(|place| self.splits.get(&place)).is_some_and(|entries| entries.iter().any(Option::is_none))
    }

    /// Whether a piece of work has come to the head of its stream.
    pub(super) fn has_arrived(&self, fused: usize) -> bool {
        self.fused[fused].has_arrived
    }

    /// Whether it can arrive, or leave.
    pub(super) fn can_play(&self, fused: usize) -> bool {
        let fused = &self.fused[fused];
        !fused.has_arrived || fused.is_killed || fused.parts.iter().all(|part| part.is_done)
    }

    /// Gives the ranks of a split their rings: one for each colour, in the order of keys and then of numbers.
    pub(super) fn divide(&mut self, ring: usize, nth: usize) {
        let entries: Vec<_> = self.splits.get(&(ring, nth)).into_iter().flatten().flatten().copied().collect();
        let mut colours: BTreeMap<i32, Vec<(i32, u64)>> = BTreeMap::new();
        for (colour, key, handle) in entries {
            if let Some(colour) = colour {
                colours.entry(colour).or_default().push((key, handle));
            }
        }
        for (_, mut members) in colours {
            members.sort_by_key(|(key, _)| *key);
            let child = self.rings.len();
            self.rings
                .push(Ring { members: members.iter().map(|(_, handle)| Some(*handle)).collect(), ..Ring::default() });
            for (member, (_, number)) in members.into_iter().enumerate() {
                if let Some(handle) = self.handle_mut(number) {
                    handle.seat = Some((child, member));
                }
            }
        }
    }

    /// Whether a communicator of a rank that has not ended knows any of this memory.
    pub(super) fn knows(&self, rank: usize, span: Span) -> bool {
        let is_within =
            |known: &Span| (span.address()..span.address() + span.byte_len() as u64).contains(&known.address());
        let alive = self.handles.iter().filter(|handle| handle.rank == rank && handle.end.is_none());
        alive.flat_map(|handle| handle.known.values()).any(|(known, _)| is_within(known))
    }

    /// Whether all members have come to the last window of a handle.
    fn windows_of(&self, handle: &Handle) -> Windows {
        let place = handle.seat.and_then(|(ring, _)| Some((ring, handle.windows.checked_sub(1)?)));
        let Some(entries) = place.and_then(|place| self.windows.get(&place)) else { return Windows::Open };
        match entries.iter().copied().collect::<Option<Vec<_>>>() {
            None => Windows::Awaited,
            Some(all) if all.iter().all(|one| *one == all[0]) => Windows::Open,
            Some(_) => Windows::Different,
        }
    }

    /// Ends all that a handle does on its streams.
    pub(super) fn kill(&mut self, number: u64) {
        let seat = self.handle(number).and_then(|handle| handle.seat);
        self.fused.iter_mut().filter(|fused| fused.handle == number).for_each(|fused| fused.is_killed = true);
        if let Some((ring, _)) = seat {
            let alive = |(fused, _): &(usize, usize)| self.fused[*fused].handle != number;
            for mail in self.rings[ring].mail.values_mut() {
                mail.given.retain(alive);
                mail.wanted.retain(alive);
            }
        }
    }
}

impl State {
    /// A new handle of a rank.
    pub(super) fn new_handle(&mut self, rank: usize, device: i32, is_blocking: bool, parent: Option<u64>) -> u64 {
        let number = self.engine.ranks[rank].comms;
        self.engine.ranks[rank].comms += 1;
        let polls = if is_blocking { 0 } else { self.draw.below(4) };
        self.engine.comms.handles.push(Handle {
            rank,
            device,
            number,
            is_blocking,
            end: None,
            seat: None,
            polls,
            asked: 0,
            launch: Vec::new(),
            parent,
            splits: 0,
            ops: Vec::new(),
            known: BTreeMap::new(),
            windows: 0,
        });
        self.engine.comms.handles.len() as u64
    }

    /// What a handle answers when it is asked how it stands.
    pub(super) fn ask(&mut self, number: u64) -> Status {
        let Some(handle) = self.engine.comms.handle(number) else { return Status::INVALID_ARGUMENT };
        let (rank, which) = (handle.rank, handle.number);
        if self.engine.sticky(rank).is_some() {
            return Status::UNHANDLED_CUDA;
        }
        if self.engine.script.has(rank, Fault::TellsOfTheVanished) && self.has_lost(handle) {
            return Status::REMOTE;
        }
        let never = self.engine.script.has(rank, Fault::InProgressForEver { comm: which });
        let comms = &self.engine.comms;
        if never || !comms.has_formed(handle) || comms.is_splitting(handle) {
            return Status::IN_PROGRESS;
        }
        let fails = self.engine.script.find(rank, |fault| match fault {
            Fault::AsyncError { comm, polls, status } if comm == which => Some((polls, Status(status))),
            _ => None,
        });
        match self.engine.comms.windows_of(handle) {
            Windows::Open => {}
            Windows::Awaited => return Status::IN_PROGRESS,
            Windows::Different => return Status::INVALID_ARGUMENT,
        }
        let Some(handle) = self.engine.comms.handle_mut(number) else { return Status::INVALID_ARGUMENT };
        if handle.polls > 0 {
            handle.polls -= 1;
            if handle.polls == 0 {
                self.launch(number);
            }
            return Status::IN_PROGRESS;
        }
        handle.asked += 1;
        let asked = handle.asked;
        fails.filter(|(polls, _)| asked > *polls).map_or(Status::SUCCESS, |(_, status)| status)
    }

    /// Whether a rank of a handle's ring has vanished.
    fn has_lost(&self, handle: &Handle) -> bool {
        let members =
            handle.seat.into_iter().flat_map(|(ring, _)| self.engine.comms.rings[ring].members.iter().flatten());
        members.filter_map(|member| self.engine.comms.handle(*member)).any(|member| self.engine.is_gone(member.rank))
    }

    /// Puts on the streams what was called and was in progress.
    pub(super) fn launch(&mut self, number: u64) {
        let Some(handle) = self.engine.comms.handle_mut(number) else { return };
        for (fused, stream, order) in std::mem::take(&mut handle.launch) {
            let site = self.engine.comms.fused[fused].parts[0].site;
            self.engine.queue(stream, Queued { work: Work::Fused(fused), order, site });
        }
    }
}
