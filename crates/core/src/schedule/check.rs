//! The validity check: all ranks' schedules of one operation, walked together with no buffer between the ranks.
//!
//! A send ends only when its receive is there, which is the hardest case: what ends here ends over every link. Passing
//! means that every send meets a receive of its length, that nobody waits for ever, that no step reads what it writes,
//! that every span lies inside its memory, and that every pull reads an offer that is there and may still be read.

use super::{Part, Place, Recv, Schedule, Send, Span, Step};

/// What is wrong with a set of schedules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A span reaches beyond its memory.
    #[error("rank {rank} step {step}: {span:?} reaches beyond its {len} elements")]
    Bounds {
        /// The rank.
        rank: usize,
        /// Its step.
        step: usize,
        /// The span.
        span: Span,
        /// Elements that are there.
        len: usize,
    },
    /// A step writes the caller's input.
    #[error("rank {rank} step {step}: writes the input")]
    Input {
        /// The rank.
        rank: usize,
        /// Its step.
        step: usize,
    },
    /// A step writes what it reads at the same time.
    #[error("rank {rank} step {step}: spans overlap")]
    Overlap {
        /// The rank.
        rank: usize,
        /// Its step.
        step: usize,
    },
    /// Two sides of one transfer, or of one local step, differ in length.
    #[error("rank {rank} step {step}: {given} elements for a place of {taken}")]
    Length {
        /// The rank that takes.
        rank: usize,
        /// Its step.
        step: usize,
        /// Elements given.
        given: usize,
        /// Elements taken.
        taken: usize,
    },
    /// A pull of an offer that may have been overwritten, or that ends before the part does.
    #[error("rank {rank} step {step}: pull outside the offer")]
    Pull {
        /// The rank.
        rank: usize,
        /// Its step.
        step: usize,
    },
    /// Ranks of one host make different numbers of offers, which would shift the next operation's.
    #[error("rank {rank} makes {offers} offers, rank {other} of the same host {others}")]
    Offers {
        /// The rank.
        rank: usize,
        /// How many it makes.
        offers: usize,
        /// A rank of the same host.
        other: usize,
        /// How many that one makes.
        others: usize,
    },
    /// Ranks that wait for each other, each with the step it waits in.
    #[error("deadlock: (rank, step) {stuck:?}")]
    Deadlock {
        /// The ranks and their steps.
        stuck: Vec<(usize, usize)>,
    },
}

/// Something that happens while the schedules are walked, in an order that the ranks could really take.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A send meets its receive.
    Transfer {
        /// What goes out, at rank `recv.from`.
        send: Send,
        /// Where it goes, at rank `send.to`.
        recv: Recv,
    },
    /// A rank takes a step that moves nothing over a link.
    Local {
        /// The rank.
        rank: usize,
        /// Its step.
        step: &'a Step,
    },
}

/// Walks all ranks' schedules without looking at data. `len_of(rank, place)` tells the caller's memory.
///
/// # Errors
///
/// The first [`Fault`] that is found.
pub fn check(schedules: &[Schedule], hosts: &[u32], len_of: impl Fn(usize, Place) -> usize) -> Result<(), Fault> {
    walk(schedules, hosts, len_of, |_| {})
}

/// Walks all ranks' schedules and tells `event` what happens, so that a caller can move real data along.
///
/// # Errors
///
/// As [`check`].
pub fn walk<'a>(
    schedules: &'a [Schedule],
    hosts: &[u32],
    len_of: impl Fn(usize, Place) -> usize,
    mut event: impl FnMut(Event<'a>),
) -> Result<(), Fault> {
    for (rank, schedule) in schedules.iter().enumerate() {
        check_spans(rank, schedule, |place| match place {
            Place::Scratch => schedule.scratch,
            _ => len_of(rank, place),
        })?;
    }
    check_offers(schedules, hosts)?;
    let mut walk = Walk { schedules, hosts, ranks: vec![Standing::default(); schedules.len()] };
    while walk.round(&mut event)? {}
    walk.end()
}

/// Where a rank stands in its schedule.
#[derive(Clone, Debug, Default)]
struct Standing {
    at: usize,
    sent: bool,
    received: bool,
    /// Elements in each of its offers so far.
    offers: Vec<usize>,
}

struct Walk<'a, 'b> {
    schedules: &'a [Schedule],
    hosts: &'b [u32],
    ranks: Vec<Standing>,
}

impl<'a> Walk<'a, '_> {
    /// Lets every rank go as far as it can; false when nothing moved.
    fn round(&mut self, event: &mut impl FnMut(Event<'a>)) -> Result<bool, Fault> {
        let mut moved = false;
        for rank in 0..self.schedules.len() {
            while self.advance(rank, event)? {
                moved = true;
            }
        }
        Ok(moved)
    }

    fn advance(&mut self, rank: usize, event: &mut impl FnMut(Event<'a>)) -> Result<bool, Fault> {
        let Some(step) = self.step(rank) else { return Ok(false) };
        if let Step::Move { send, recv } = step {
            return self.advance_move(rank, *send, *recv, event);
        }
        if !self.is_ready(rank, step)? {
            return Ok(false);
        }
        if let Step::Offer { spans, .. } = step {
            self.ranks[rank].offers.push(spans.iter().map(|span| span.len).sum());
        }
        event(Event::Local { rank, step });
        self.ranks[rank].at += 1;
        Ok(true)
    }

    /// A rank's own send looks for its receive; its receive is found by the sender.
    fn advance_move(
        &mut self,
        rank: usize,
        send: Option<Send>,
        recv: Option<Recv>,
        event: &mut impl FnMut(Event<'a>),
    ) -> Result<bool, Fault> {
        if let Some(send) = send.filter(|_| !self.ranks[rank].sent)
            && let Some(recv) = self.awaited_by(send.to, rank)
        {
            self.meet(send, recv)?;
            event(Event::Transfer { send, recv });
            self.ranks[rank].sent = true;
            self.ranks[send.to].received = true;
        }
        let standing = &mut self.ranks[rank];
        let done = (standing.sent || send.is_none()) && (standing.received || recv.is_none());
        if done {
            (standing.at, standing.sent, standing.received) = (standing.at + 1, false, false);
        }
        Ok(done)
    }

    /// The receive from `from` that `rank` waits in, if it does.
    fn awaited_by(&self, rank: usize, from: usize) -> Option<Recv> {
        match self.step(rank)? {
            Step::Move { recv: Some(recv), .. } if recv.from == from && !self.ranks[rank].received => Some(*recv),
            _ => None,
        }
    }

    fn meet(&self, send: Send, recv: Recv) -> Result<(), Fault> {
        let (given, taken) = (send.span.len, recv.span.len);
        let fault = Fault::Length { rank: send.to, step: self.ranks[send.to].at, given, taken };
        if given == taken { Ok(()) } else { Err(fault) }
    }

    /// Whether a step on windows can be taken now. Offers are walked in lockstep: no rank is two ahead of another.
    fn is_ready(&self, rank: usize, step: &Step) -> Result<bool, Fault> {
        match step {
            Step::Offer { .. } => {
                let made = self.ranks[rank].offers.len();
                Ok(self.mates(rank).all(|mate| self.ranks[mate].offers.len() >= made))
            }
            Step::Pull { from, offer, start, into } => self.can_pull(rank, *from, *offer, start + into.len),
            Step::PullAll { from, offer, into, .. } => {
                let mut ready = true;
                for &Part { rank: peer, start } in from {
                    ready &= self.can_pull(rank, peer, *offer, start + into.len)?;
                }
                Ok(ready)
            }
            _ => Ok(true),
        }
    }

    fn can_pull(&self, rank: usize, peer: usize, offer: usize, end: usize) -> Result<bool, Fault> {
        let fault = Fault::Pull { rank, step: self.ranks[rank].at };
        let own = self.ranks[rank].offers.len();
        if !(offer < own && own <= offer + LOOKBACK) || self.hosts[rank] != self.hosts[peer] {
            return Err(fault);
        }
        match self.ranks[peer].offers.get(offer) {
            Some(&len) if end > len => Err(fault),
            offered => Ok(offered.is_some()),
        }
    }

    fn mates(&self, rank: usize) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(move |&mate| self.hosts[mate] == self.hosts[rank])
    }

    fn step(&self, rank: usize) -> Option<&'a Step> {
        self.schedules.get(rank)?.steps.get(self.ranks[rank].at)
    }

    fn end(&self) -> Result<(), Fault> {
        let waits = |&rank: &usize| self.step(rank).is_some();
        let stuck: Vec<_> = (0..self.ranks.len()).filter(waits).map(|rank| (rank, self.ranks[rank].at)).collect();
        if stuck.is_empty() { Ok(()) } else { Err(Fault::Deadlock { stuck }) }
    }
}

fn check_offers(schedules: &[Schedule], hosts: &[u32]) -> Result<(), Fault> {
    for (rank, schedule) in schedules.iter().enumerate() {
        let other = hosts.iter().position(|host| *host == hosts[rank]).unwrap_or(rank);
        let (offers, others) = (schedule.offers(), schedules[other].offers());
        if offers != others {
            return Err(Fault::Offers { rank, offers, other, others });
        }
    }
    Ok(())
}

fn check_spans(rank: usize, schedule: &Schedule, len_of: impl Fn(Place) -> usize) -> Result<(), Fault> {
    for (step, taken) in schedule.steps.iter().enumerate() {
        let reach = Reach::of(taken);
        for span in reach.reads.iter().chain(&reach.writes) {
            let len = len_of(span.place);
            if span.end() > len {
                return Err(Fault::Bounds { rank, step, span: *span, len });
            }
        }
        if reach.writes.iter().any(|write| write.place == Place::Input) {
            return Err(Fault::Input { rank, step });
        }
        let clash = |write: &Span| reach.reads.iter().any(|read| !read.is_apart_from(*write));
        if reach.writes.iter().any(clash) {
            return Err(Fault::Overlap { rank, step });
        }
        if let Some((given, taken)) = reach.uneven {
            return Err(Fault::Length { rank, step, given, taken });
        }
    }
    Ok(())
}

/// The memory that a step touches.
#[derive(Default)]
struct Reach {
    reads: Vec<Span>,
    writes: Vec<Span>,
    /// Two lengths that should be one.
    uneven: Option<(usize, usize)>,
}

impl Reach {
    fn of(step: &Step) -> Reach {
        let (reads, writes) = match step {
            Step::Move { send, recv } => {
                (send.iter().map(|send| send.span).collect(), recv.iter().map(|recv| recv.span).collect())
            }
            Step::Offer { spans, .. } => (spans.clone(), vec![]),
            Step::Pull { into, .. } => (vec![], vec![*into]),
            Step::PullAll { own, into, .. } => {
                (vec![*own].into_iter().filter(|own| own != into).collect(), vec![*into])
            }
            Step::Copy { from, into } => (vec![*from], vec![*into]),
            Step::Combine { into, parts, .. } => {
                (parts.iter().copied().filter(|part| part != into).collect(), vec![*into])
            }
            Step::Scale(span) | Step::Finish(span) => (vec![], vec![*span]),
        };
        let local = matches!(step, Step::Copy { .. } | Step::Combine { .. } | Step::PullAll { .. });
        let odd = reads.iter().find(|read| local && read.len != writes[0].len);
        let uneven = odd.map(|read| (read.len, writes[0].len));
        Reach { reads, writes, uneven }
    }
}

/// How many of its latest offers' numbers a rank may read of others, as windows have it ([`Windows`](crate::link::Windows)).
const LOOKBACK: usize = 3;
