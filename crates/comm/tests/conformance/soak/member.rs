//! One member of a company: it plays its part of every deed, waits for what is in flight in an order of its own, and writes
//! down what was not as it must be.

use std::collections::HashSet;

use fastrand::Rng;
use phalanx_core::backend::{Buffers, Finished, Pending};
use phalanx_core::{Error, Group, Op};
use phalanx_mem::Buffer;

use super::act::Act;
use super::plan::Plan;
use crate::case::hash;

/// What a member has found wrong.
pub(super) type Findings = Vec<String>;

/// A member under way.
struct Member<'a> {
    plan: &'a Plan,
    me: usize,
    /// Its group of each team, where it is in it.
    groups: &'a [Option<Group>],
    /// What no other member knows: in which order it waits, and what its buffers are made of.
    own: Rng,
    waiting: Vec<Waiting>,
    /// By deed, whose messages have come that were asked for from anybody.
    heard: HashSet<(u64, usize)>,
    found: Findings,
}

/// An operation in flight.
struct Waiting {
    number: u64,
    act: Act,
    pending: Box<dyn Pending>,
}

/// Plays a member's part. One that fails ends its groups, lest the others wait for it.
pub(super) fn play(plan: &Plan, me: usize, groups: &[Option<Group>]) -> Findings {
    let own = Rng::with_seed(hash(plan.seed() ^ hash(me as u64)));
    let mut member = Member { plan, me, groups, own, waiting: vec![], heard: HashSet::new(), found: vec![] };
    let played = (0..Plan::DEEDS).try_for_each(|number| member.deed(number)).and_then(|()| member.wait(0));
    if let Err(why) = played {
        groups.iter().flatten().for_each(|group| group.abort(why.clone()));
        member.found.push(why);
    }
    member.found
}

impl Member<'_> {
    fn deed(&mut self, number: u64) -> Result<(), String> {
        let deed = self.plan.deed(number);
        let Some(group) = &self.groups[deed.team] else {
            return Ok(());
        };
        for act in deed.acts(group.rank()) {
            match self.own.bool() {
                true => self.call(number, group, act)?,
                false => self.begin(number, group, act)?,
            }
        }
        let most = self.own.usize(..MOST_IN_FLIGHT);
        self.wait(most)
    }

    /// Calls and waits, as one does.
    fn call(&mut self, number: u64, group: &Group, act: Act) -> Result<(), String> {
        let Buffers { input, mut output } =
            self.buffers(group, &act).map_err(|error| self.said(number, &act, &error))?;
        let bytes = input.as_ref().map(Buffer::as_bytes);
        let source = group.run_bytes(act.op.clone(), act.dtype, act.factor, bytes, output.as_bytes_mut());
        let source = source.map_err(|error| self.said(number, &act, &error))?;
        self.check(number, &act, Finished { buffers: Buffers { input, output }, source });
        Ok(())
    }

    /// Begins, and waits later or not at all.
    fn begin(&mut self, number: u64, group: &Group, act: Act) -> Result<(), String> {
        let buffers = self.buffers(group, &act).map_err(|error| self.said(number, &act, &error))?;
        let pending = group.submit_bytes(act.op.clone(), act.dtype, act.factor, buffers);
        let pending = pending.map_err(|error| self.said(number, &act, &error))?;
        // Nobody would know which of a rank's messages came to a work that was dropped.
        if self.own.u8(..50) > 0 || act.op.is_message() {
            self.waiting.push(Waiting { number, act, pending });
        }
        Ok(())
    }

    /// Waits until no more than these are in flight, for any of them first.
    fn wait(&mut self, most: usize) -> Result<(), String> {
        while self.waiting.len() > most {
            let Waiting { number, act, mut pending } = self.waiting.swap_remove(self.own.usize(..self.waiting.len()));
            let ended = pending.wait(None).expect("a wait without a limit ends with the operation");
            let finished = ended.map_err(|error| self.said(number, &act, &error))?;
            self.check(number, &act, finished);
        }
        Ok(())
    }

    /// The buffers of a call, some of them the group's own.
    fn buffers(&mut self, group: &Group, act: &Act) -> Result<Buffers, Error> {
        let mut buffer = |bytes: &[u8]| -> Result<Buffer, Error> {
            if self.own.u8(..5) > 0 {
                return Ok(Buffer::from_vec(bytes.to_vec()));
            }
            let mut buffer = group.buffer(bytes.len())?;
            buffer.as_bytes_mut().copy_from_slice(bytes);
            Ok(buffer)
        };
        let input = act.input.as_deref().map(&mut buffer).transpose()?;
        Ok(Buffers { input, output: buffer(&act.output)? })
    }

    fn check(&mut self, number: u64, act: &Act, finished: Finished) {
        let Finished { buffers: Buffers { input, mut output }, source } = finished;
        if let Some(difference) = act.right.difference(output.as_bytes(), source) {
            self.find(number, act, &difference);
        }
        let kept = input.as_ref().map(Buffer::as_bytes).unwrap_or_default();
        if kept != act.input.as_deref().unwrap_or_default() {
            self.find(number, act, "its input came back as another");
        }
        if let (Op::Recv { from, .. }, Some(source)) = (&act.op, source) {
            if from.is_some_and(|from| from != source) {
                self.find(number, act, &format!("the source is {source}"));
            }
            if from.is_none() && !self.heard.insert((number, source)) {
                self.find(number, act, &format!("rank {source} was heard before"));
            }
        }
        // Nobody may still read what this rank writes from here on.
        output.as_bytes_mut().fill(0xEE);
        input.into_iter().for_each(|mut input| input.as_bytes_mut().fill(0xEE));
    }

    fn find(&mut self, number: u64, act: &Act, what: &str) {
        if self.found.len() < MOST_FOUND {
            self.found.push(self.said(number, act, what));
        }
    }

    fn said(&self, number: u64, act: &Act, what: impl std::fmt::Display) -> String {
        let team = &self.plan.teams[self.plan.deed(number).team];
        format!("deed {number}, {:?} of {} in team {team:?}, member {}: {what}", act.op, act.dtype, self.me)
    }
}

/// More than the queue of a rank holds at times, few enough to be found out about one by one.
const MOST_IN_FLIGHT: usize = 24;
/// What is told of a member; the first differences tell most.
const MOST_FOUND: usize = 5;
