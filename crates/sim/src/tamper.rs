//! Tampering with one rank's schedule: each bug at each step where it fits.

use phalanx_core::schedule::{Place, Recv, Schedule, Send, Span, Step, Then};
use phalanx_core::{Op, ReduceOp};

use crate::mutation::Mutation;
use crate::scene::Call;

/// One rank's schedule while somebody tampers with it.
pub(crate) struct Bench<'a> {
    call: &'a Call,
    rank: usize,
    size: usize,
    schedule: &'a Schedule,
}

impl Bench<'_> {
    pub(crate) fn new<'a>(call: &'a Call, rank: usize, size: usize, schedule: &'a Schedule) -> Bench<'a> {
        Bench { call, rank, size, schedule }
    }

    /// The schedule with the bug at this step, if it fits there.
    pub(crate) fn change(&self, mutation: Mutation, step: usize) -> Option<Schedule> {
        match mutation {
            Mutation::DroppedFold => self.dropped_fold(step),
            Mutation::SwappedSegment => self.swapped_segment(step),
            Mutation::OffByOneSpan => self.off_by_one_span(step),
            Mutation::StaleBuffer => self.stale_buffer(step),
            Mutation::DoubleFold => self.double_fold(step),
            Mutation::ShortReceive => self.short_receive(step),
            Mutation::MissingPart => self.missing_part(step),
            Mutation::WrongWindow => self.wrong_window(step),
            Mutation::MissingFinish => self.missing_finish(step),
            Mutation::WrongRoot | Mutation::MissingBarrierStep => None,
        }
    }

    fn dropped_fold(&self, step: usize) -> Option<Schedule> {
        let (send, recv) = self.moving(step)?;
        let recv = recv.filter(|recv| recv.then == Then::Fold)?;
        let stores = Recv { then: Then::Store, ..recv };
        self.with(step, vec![moves(send, stores)], 0)
    }

    fn swapped_segment(&self, step: usize) -> Option<Schedule> {
        let first = self.moving(step)?.0?;
        let later = (step + 1..self.schedule.steps.len()).find_map(|at| {
            let second = self.moving(at)?.0?;
            let fits = second.to == first.to && second.span.len == first.span.len && first.span.len > 0;
            (fits && second.span != first.span).then_some((at, second))
        });
        let (at, second) = later?;
        let mut schedule = self.schedule.clone();
        resend(&mut schedule.steps[step], second.span);
        resend(&mut schedule.steps[at], first.span);
        Some(schedule)
    }

    fn off_by_one_span(&self, step: usize) -> Option<Schedule> {
        match &self.schedule.steps[step] {
            Step::Move { send, recv } => {
                let sent = send.and_then(|send| Some((send, self.beside(send.span)?)));
                if let Some((send, span)) = sent {
                    let step_beside = Step::Move { send: Some(Send { span, ..send }), recv: *recv };
                    return self.with(step, vec![step_beside], 0);
                }
                let recv = (*recv)?;
                let span = self.beside(recv.span)?;
                self.with(step, vec![moves(*send, Recv { span, ..recv })], 0)
            }
            Step::Pull { from, offer, start, into } => {
                let into = self.beside(*into)?;
                let pull = Step::Pull { from: *from, offer: *offer, start: *start, into };
                self.with(step, vec![pull], 0)
            }
            _ => None,
        }
    }

    fn stale_buffer(&self, step: usize) -> Option<Schedule> {
        let received = self.moving(step)?.1?.span;
        let passed_on = (step + 1..self.schedule.steps.len()).find_map(|at| {
            let span = self.moving(at)?.0?.span;
            let within = span.place == received.place && span.start >= received.start && span.end() <= received.end();
            (within && span.len > 0).then_some((at, span))
        });
        let (at, span) = passed_on?;
        let before = Place::Scratch.span(self.schedule.scratch, span.len);
        let mut schedule = self.schedule.clone();
        schedule.scratch += span.len;
        resend(&mut schedule.steps[at], before);
        schedule.steps.insert(step, Step::Copy { from: span, into: before });
        Some(schedule)
    }

    fn double_fold(&self, step: usize) -> Option<Schedule> {
        let (send, recv) = self.moving(step)?;
        let recv = recv.filter(|recv| recv.then == Then::Fold)?;
        let (aside, room) = self.aside(recv);
        let fold = Step::Combine { into: recv.span, parts: vec![recv.span, room], whole: false };
        self.with(step, vec![moves(send, aside), fold.clone(), fold], room.len)
    }

    fn short_receive(&self, step: usize) -> Option<Schedule> {
        let (send, recv) = self.moving(step)?;
        let recv = recv.filter(|recv| recv.span.len > 0 && self.call.op != Op::Barrier)?;
        let (aside, room) = self.aside(recv);
        let (into, from) = (without_last(recv.span), without_last(room));
        let arrive = match recv.then {
            Then::Store => Step::Copy { from, into },
            Then::Fold => Step::Combine { into, parts: vec![into, from], whole: false },
        };
        let arrives = (into.len > 0).then_some(arrive);
        self.with(step, [moves(send, aside)].into_iter().chain(arrives).collect(), room.len)
    }

    fn missing_part(&self, step: usize) -> Option<Schedule> {
        let mut joined = self.schedule.steps[step].clone();
        match &mut joined {
            Step::PullAll { from, place, into, .. } if !from.is_empty() && into.len > 0 => {
                from.pop();
                *place = from.len().min(*place);
            }
            Step::Combine { parts, .. } if parts.len() > 1 => {
                parts.pop();
            }
            _ => return None,
        }
        self.with(step, vec![joined], 0)
    }

    fn wrong_window(&self, step: usize) -> Option<Schedule> {
        let mut pulls = self.schedule.steps[step].clone();
        let Step::Pull { from, into, .. } = &mut pulls else {
            return None;
        };
        let other = (0..self.size).find(|other| other != from && *other != self.rank)?;
        (into.len > 0).then_some(())?;
        *from = other;
        self.with(step, vec![pulls], 0)
    }

    fn missing_finish(&self, step: usize) -> Option<Schedule> {
        let finishes = matches!(self.schedule.steps[step], Step::Finish(_));
        (finishes && self.call.op.reduce() == Some(ReduceOp::Avg)).then_some(())?;
        self.with(step, vec![], 0)
    }

    fn moving(&self, step: usize) -> Option<(Option<Send>, Option<Recv>)> {
        match &self.schedule.steps[step] {
            Step::Move { send, recv } => Some((*send, *recv)),
            _ => None,
        }
    }

    /// The receive as it goes to scratch of its own, and that scratch.
    fn aside(&self, recv: Recv) -> (Recv, Span) {
        let span = Place::Scratch.span(self.schedule.scratch, recv.span.len);
        let then = Then::Store;
        (Recv { span, then, ..recv }, span)
    }

    /// The span moved by one element, where there is room for it.
    fn beside(&self, span: Span) -> Option<Span> {
        let start = if span.end() < self.len_of(span.place) { span.start + 1 } else { span.start.checked_sub(1)? };
        (span.len > 0 && self.call.op != Op::Barrier).then_some(Span { start, ..span })
    }

    fn len_of(&self, place: Place) -> usize {
        let need = self.call.op.need(self.rank, self.size);
        let in_place = self.call.op.need_in_place(self.rank, self.size);
        let in_place = in_place.filter(|_| self.call.in_place);
        match place {
            Place::Input => in_place.map_or(need.input, |_| 0),
            Place::Output => in_place.unwrap_or(need.output),
            Place::Scratch => self.schedule.scratch,
        }
    }

    /// The schedule with other steps instead of one, and more scratch.
    fn with(&self, step: usize, steps: Vec<Step>, scratch: usize) -> Option<Schedule> {
        let mut schedule = self.schedule.clone();
        schedule.scratch += scratch;
        schedule.steps.splice(step..=step, steps);
        Some(schedule)
    }
}

fn moves(send: Option<Send>, recv: Recv) -> Step {
    Step::Move { send, recv: Some(recv) }
}

fn resend(step: &mut Step, span: Span) {
    if let Step::Move { send: Some(send), .. } = step {
        send.span = span;
    }
}

fn without_last(span: Span) -> Span {
    Span { len: span.len.saturating_sub(1), ..span }
}
