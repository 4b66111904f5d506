//! Devices: streams with what is queued on them, events, and the work that moves bytes. Nothing runs when it is submitted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::Location;
use std::time::Duration;

use super::comm::Comms;
use super::fault::{Fault, Script};
use super::kernel::Twins;
use super::memory::{Memory, User};
use super::order::{Actor, Order};
use super::stage::State;
use crate::api::{Argument, CudaCode, EventKind, KernelId, Span};

/// All devices of all ranks, and what joins them.
#[derive(Default)]
pub(super) struct Engine {
    pub(super) memory: Memory,
    pub(super) streams: Vec<StreamState>,
    /// Those on which something is queued.
    busy: BTreeSet<usize>,
    pub(super) events: BTreeMap<u64, EventState>,
    /// Each time an event was recorded: once that has run, what it knows and when it was.
    pub(super) marks: Vec<Option<(Order, Duration)>>,
    pub(super) comms: Comms,
    pub(super) script: Script,
    pub(super) twins: Twins,
    pub(super) ranks: Vec<RankState>,
}

/// What is counted of a rank, what it died of, and what calls of its driver were refused for.
#[derive(Debug, Default)]
pub(super) struct RankState {
    pub(super) calls: usize,
    pub(super) allocations: usize,
    pub(super) launches: usize,
    pub(super) comms: usize,
    pub(super) threads: usize,
    /// How often pinned memory was asked for or given back.
    pub(super) pinned: usize,
    /// The operations of communicators that are on streams, in the order in which they came there.
    pub(super) line: VecDeque<usize>,
    pub(super) sticky: Option<CudaCode>,
    pub(super) refused: Option<CudaCode>,
}

/// A stream.
pub(super) struct StreamState {
    pub(super) rank: usize,
    pub(super) device: i32,
    pub(super) queue: VecDeque<Queued>,
    pub(super) order: Order,
    pub(super) actor: Actor,
    pub(super) weight: u32,
    pub(super) is_open: bool,
    /// Whether it is being captured into a graph.
    pub(super) is_captured: bool,
}

/// An event: which mark it stands for now.
#[derive(Debug)]
pub(super) struct EventState {
    pub(super) rank: usize,
    pub(super) device: i32,
    pub(super) mark: Option<usize>,
    pub(super) kind: EventKind,
    /// Whose event it is, where it is another rank's.
    pub(super) origin: Option<u64>,
}

/// Something on a stream.
pub(super) struct Queued {
    pub(super) work: Work,
    /// What the thread knew that submitted it.
    pub(super) order: Order,
    pub(super) site: &'static Location<'static>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    Copy { to: Span, from: Span },
    Fill { span: Span, byte: u8 },
    Mark(usize),
    Wait(usize),
    Kernel { kernel: KernelId, arguments: Vec<Argument> },
    Fused(usize),
}

impl Engine {
    pub(super) fn new(size: usize, script: Script, twins: Twins) -> Engine {
        Engine { script, twins, ranks: (0..size).map(|_| RankState::default()).collect(), ..Engine::default() }
    }

    /// Whether a rank is not heard of any more.
    pub(super) fn is_gone(&self, rank: usize) -> bool {
        let calls = self.ranks.get(rank).map_or(0, |rank| rank.calls);
        let vanishes = self.script.find(rank, |fault| match fault {
            Fault::Vanishes { calls } => Some(calls),
            _ => None,
        });
        vanishes.is_some_and(|after| calls > after)
    }

    /// Until when the store does not answer a rank, if it does not.
    pub(super) fn store_stalls(&self, rank: usize, now: Duration) -> Option<Duration> {
        self.script.find(rank, |fault| match fault {
            Fault::StoreStalls { from, until } => (from..until).contains(&now).then_some(until),
            _ => None,
        })
    }

    /// What a rank's context died of.
    pub(super) fn sticky(&self, rank: usize) -> Option<CudaCode> {
        self.ranks.get(rank)?.sticky
    }

    /// The streams that can play, and how much each presses.
    pub(super) fn ready_streams(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let busy = self.busy.iter().map(|&index| (index, &self.streams[index]));
        busy.filter(|(_, stream)| self.is_ready(stream)).map(|(index, stream)| (index, stream.weight))
    }

    /// Puts something on a stream.
    pub(super) fn queue(&mut self, stream: usize, queued: Queued) {
        if let Work::Fused(id) = queued.work {
            self.ranks[self.streams[stream].rank].line.push_back(id);
        }
        self.streams[stream].queue.push_back(queued);
        self.busy.insert(stream);
    }

    /// Takes what comes next off a stream.
    fn take(&mut self, stream: usize) -> Option<Queued> {
        let queue = &mut self.streams[stream].queue;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.busy.remove(&stream);
        }
        if let Some(Work::Fused(id)) = next.as_ref().map(|queued| &queued.work) {
            self.ranks[self.streams[stream].rank].line.retain(|other| other != id);
        }
        next
    }

    /// Whether all that was submitted to a stream is done.
    pub(super) fn is_idle(&self, stream: usize) -> bool {
        self.streams.get(stream).is_none_or(|stream| stream.queue.is_empty())
    }

    /// Whether all that was submitted to a rank's streams is done.
    pub(super) fn is_all_idle(&self, rank: usize) -> bool {
        self.streams.iter().filter(|stream| stream.rank == rank).all(|stream| stream.queue.is_empty())
    }

    /// Whether a communicator is no longer in progress.
    pub(super) fn is_settled(&self, handle: u64) -> bool {
        self.comms.is_settled(handle)
    }

    /// Whether all ranks of a communicator have ended theirs, or are not heard of any more.
    pub(super) fn has_been_left(&self, handle: u64) -> bool {
        let seat = self.comms.handle(handle).and_then(|handle| handle.seat);
        let members = seat.into_iter().flat_map(|(ring, _)| self.comms.rings[ring].members.iter().flatten());
        let mut members = members.filter_map(|member| self.comms.handle(*member));
        members.all(|member| member.end.is_some() || self.is_gone(member.rank))
    }

    /// Whether the device has room for an operation that has not begun.
    fn has_room(&self, rank: usize, id: usize) -> bool {
        let is_first = self.ranks[rank].line.front() == Some(&id);
        is_first || self.comms.has_arrived(id) || !self.script.has(rank, Fault::OneQueue)
    }

    fn is_ready(&self, stream: &StreamState) -> bool {
        let is_dead = self.sticky(stream.rank).is_some() || self.is_gone(stream.rank);
        match stream.queue.front().map(|queued| &queued.work) {
            None => false,
            Some(_) if is_dead => false,
            Some(Work::Wait(mark)) => self.marks[*mark].is_some(),
            Some(Work::Fused(id)) => self.comms.can_play(*id) && self.has_room(stream.rank, *id),
            Some(_) => true,
        }
    }
}

impl State {
    /// Puts work on a stream.
    pub(super) fn submit(&mut self, stream: usize, work: Work, site: &'static Location<'static>) {
        let order = self.own_order().unwrap_or_default();
        self.engine.queue(stream, Queued { work, order, site });
    }

    /// Lets a stream do what comes next on it.
    pub(super) fn play_stream(&mut self, index: usize) {
        let Some(queued) = self.engine.streams[index].queue.front() else { return };
        if let Work::Fused(id) = queued.work {
            let (order, site) = (queued.order.clone(), queued.site);
            if !self.engine.comms.has_arrived(id) {
                let moment = self.engine.streams[index].advance(&order);
                return self.arrive(id, moment, site);
            }
            self.engine.take(index);
            return self.leave_stream(id);
        }
        let Some(queued) = self.engine.take(index) else { return };
        let moment = self.engine.streams[index].advance(&queued.order);
        self.play(index, moment, &queued);
    }

    fn play(&mut self, index: usize, moment: u64, queued: &Queued) {
        let stream_order = self.engine.streams[index].order.clone();
        let (actor, rank) = (self.engine.streams[index].actor, self.engine.streams[index].rank);
        let user = |what| User { rank, actor, order: &stream_order, moment, what, site: queued.site };
        let (memory, found) = (&mut self.engine.memory, &mut self.found);
        let fits = match &queued.work {
            Work::Copy { to, from } => {
                let fits =
                    memory.touch(*from, false, user("copy"), found) & memory.touch(*to, true, user("copy"), found);
                if fits {
                    let bytes = memory.read(*from).to_vec();
                    memory.write(*to).copy_from_slice(&bytes);
                }
                fits
            }
            Work::Fill { span, byte } => {
                let fits = memory.touch(*span, true, user("fill"), found);
                if fits {
                    memory.write(*span).fill(*byte);
                }
                fits
            }
            Work::Kernel { kernel, arguments } => {
                let name = self.engine.twins.name(*kernel);
                let fits = arguments.iter().all(|argument| match argument {
                    Argument::Read(span) => memory.touch(*span, false, user(name), found),
                    Argument::Write(span) => memory.touch(*span, true, user(name), found),
                    _ => true,
                });
                fits && self.engine.twins.run(*kernel, arguments, memory)
            }
            Work::Mark(mark) => {
                self.engine.marks[*mark] = Some((stream_order, self.now));
                true
            }
            Work::Wait(mark) => {
                if let Some((order, _)) = &self.engine.marks[*mark] {
                    self.engine.streams[index].order.join(order);
                }
                true
            }
            Work::Fused(_) => true,
        };
        if !fits {
            self.engine.ranks[rank].sticky.get_or_insert(CudaCode::ILLEGAL_ADDRESS);
        }
    }
}

impl StreamState {
    /// The stream comes to something submitted by somebody who knew this.
    pub(super) fn advance(&mut self, submitted: &Order) -> u64 {
        self.order.join(submitted);
        self.order.tick(self.actor)
    }
}
